"""The options of the source, which are those of Spark's Kafka source; without Spark."""

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.model import TopicPartition
from sparklog.streaming.source_options import EARLIEST, LATEST, Limit, Limits, Subscription, source_options


def options(streaming=False, **given):
    return source_options({"path": "/c", "subscribe": "orders", **given}, streaming=streaming)


def test_defaults_are_those_of_kafkas_source():
    batch, stream = options(), options(streaming=True)
    assert batch.subscription == Subscription(topics=("orders",))
    assert (batch.starting, batch.ending) == (Limit(everywhere=EARLIEST), Limit(everywhere=LATEST))
    assert stream.starting == Limit(everywhere=LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.limits == Limits(max_offsets=None, min_offsets=None, max_delay_ms=900_000)


@pytest.mark.parametrize("name", ["path", "cluster", "kafka.bootstrap.servers"])
def test_the_cluster_may_be_given_as_kafkas_bootstrap_servers(name):
    assert source_options({name: "/c", "SUBSCRIBE": "orders"}, streaming=False).uri == "/c"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a, b,a"}, Subscription(topics=("a", "b"))),
        ({"subscribePattern": "a.*"}, Subscription(pattern="a.*")),
        (
            {"assign": '{"b": [1], "a": [2, 0, 2]}'},
            Subscription(partitions=(TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))),
        ),
    ],
)
def test_which_topics_are_read(given, expected):
    assert source_options({"path": "/c", **given}, streaming=False).subscription == expected


def test_offsets_are_json_with_words_for_the_ends():
    found = options(startingOffsets='{"orders": {"0": 5, "1": -2}}', endingOffsets="LATEST")
    assert found.starting == Limit(
        everywhere=None, offsets={TopicPartition("orders", 0): 5, TopicPartition("orders", 1): EARLIEST}
    )
    assert found.ending == Limit(everywhere=LATEST)


def test_a_timestamp_goes_before_timestamps_and_those_before_offsets():
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 7}}',
        "startingTimestamp": "9",
    }
    assert options(**given).starting == Limit(timestamp=9)
    del given["startingTimestamp"]
    assert options(**given).starting == Limit(timestamps={TopicPartition("orders", 0): 7})


def test_limits_of_a_trigger():
    found = options(streaming=True, maxOffsetsPerTrigger="9", minOffsetsPerTrigger="3", maxTriggerDelay="2m")
    assert found.limits == Limits(max_offsets=9, min_offsets=3, max_delay_ms=120_000)
    found = options(streaming=True, maxOffsetsPerTrigger="9", splitLargeCommits="True", maxRecordsPerPartition="4")
    assert found.limits == Limits(max_offsets=9, splits_large_commits=True)
    assert found.max_records == 4


def test_what_is_about_brokers_has_no_effect():
    options(**{"kafka.security.protocol": "SSL", "groupIdPrefix": "x", "kafkaConsumer.pollTimeoutMs": "5"})


@pytest.mark.parametrize(
    ("streaming", "given", "named"),
    [
        (False, {"path": ""}, "root"),
        (False, {"subscribePattern": "a"}, "subscribe and subscribepattern"),
        (False, {"subscribe": ""}, "got none"),
        (False, {"subscribe": "no topic"}, "no topic"),
        (False, {"startingOffsets": "latest"}, "startingOffsets"),
        (False, {"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets"),
        (False, {"startingOffsets": "middle"}, "startingOffsets"),
        (False, {"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets"),
        (False, {"startingOffsetsByTimestamp": '{"orders": 5}'}, "startingOffsetsByTimestamp="),
        (False, {"endingOffsets": "earliest"}, "endingOffsets"),
        (False, {"groupId": "g"}, "groupId"),
        (False, {"startingOffset": "earliest"}, r"startingoffset \(did you mean startingOffsets\?\)"),
        (False, {"includeHeaders": "yes"}, "includeHeaders='yes'"),
        (False, {"valueFormat": "json"}, "valueFormat='json'.* expected one of bytes, columns"),
        (False, {"storageOptions": "secret"}, "storageOptions='…'"),
        (False, {"view": "nothing"}, "view"),
        (True, {"endingOffsets": '{"orders": {"0": 5}}'}, "no end: got endingOffsets"),
        (True, {"endingOffsets": "latest"}, "no end: got endingOffsets"),  # as Kafka's source
        (True, {"endingTimestamp": "5"}, "no end: got endingTimestamp"),
        (True, {"newFields": "drop"}, "newFields='drop': expected fail or ignore"),
        (True, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0'"),
        (True, {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "minOffsetsPerTrigger=2"),
        (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        (True, {"splitLargeCommits": "true"}, "means nothing without maxOffsetsPerTrigger"),
        (False, {"maxRecordsPerPartition": "none"}, "maxRecordsPerPartition='none'"),
        (True, {"startingOffsetsByTimestampStrategy": "guess"}, "Strategy"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(streaming, given, named):
    with pytest.raises(InvalidConfigurationError, match=named):
        options(streaming=streaming, **given)


def test_a_subscription_is_one_of_three():
    with pytest.raises(InvalidConfigurationError, match="got none"):
        source_options({"path": "/c"}, streaming=None)


def test_a_view_needs_no_topic():
    assert source_options({"path": "/c", "view": "consumer_lag"}, streaming=False).view == "consumer_lag"
