"""``deliver_at``: what is checked, and how a record waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidPartitionsError,
    InvalidTypeError,
    MessageSizeTooLargeError,
)
from sparklog.producer.delayed_records import CancelAll, Ended, Waiting, deliver_at_ms, parse_delayed
from tests.processing.support import records
from tests.producer.support import a_cluster, a_producer

DUE_MS = 4_102_444_800_000


def a_delay_cluster(**configs):
    cluster = a_cluster()
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 2, configs={"delay": True, **configs})])
    return cluster


def waiting(cluster):
    return [parse_delayed(each.key, each.value, each.headers, "here") for each in records(cluster, "delayed.t")]


def test_a_record_waits_in_a_topic_of_its_own_with_all_that_it_was_sent_with():
    cluster = a_delay_cluster()
    with a_producer(cluster) as producer:
        sent = producer.send("t", b"v", b"k", [("a", b"1"), ("b", None)], 1, 7, deliver_at=DUE_MS).get()
        producer.send("t", None, b"k", deliver_at=datetime(2100, 1, 1, tzinfo=UTC))
        producer.send("t", b"", deliver_at=0)
    assert sent.topic == "delayed.t"
    assert records(cluster, "t") == []
    found = {(each.value, each.deliver_at_ms): each for each in waiting(cluster)}
    assert found.keys() == {(b"v", DUE_MS), (None, DUE_MS), (b"", 0)}
    first = found[b"v", DUE_MS]
    assert (first.key, first.headers, first.partition, first.timestamp_ms) == (b"k", [("a", b"1"), ("b", None)], 1, 7)
    last = found[b"", 0]
    assert (last.key, last.headers, last.partition, last.timestamp_ms) == (None, [], None, None)
    assert len({each.id for each in found.values()}) == 3


def test_records_of_a_key_and_their_cancellation_are_in_one_partition():
    cluster = a_delay_cluster()
    with a_producer(cluster, key_serializer=str.encode) as producer:
        for number in range(5):
            producer.send("t", b"v", "k", partition=number % 2, deliver_at=DUE_MS)
        producer.cancel_delayed("t", "k")
    assert len({record.partition for record in records(cluster, "delayed.t")}) == 1
    assert isinstance(waiting(cluster)[-1], CancelAll)


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_of_waiting_records_gets_no_more_partitions(validate_only):
    cluster = a_delay_cluster()
    with a_producer(cluster) as producer, Admin(cluster) as admin:
        producer.send("t", b"v", b"k", deliver_at=DUE_MS).get()
        with pytest.raises(InvalidPartitionsError, match=r"'delayed\.t' gets no more partitions"):
            admin.create_partitions({"delayed.t": 5}, validate_only=validate_only)
        admin.create_partitions({"t": 5})
        producer.cancel_delayed("t", b"k").get()
        waits = {each.partition for each in records(cluster, "delayed.t")}
    assert len(waits) == 1


def test_what_waits_is_never_removed_for_its_age():
    cluster = a_delay_cluster(**{"retention.ms": 1})
    with a_producer(cluster) as producer:
        producer.send("t", b"v", deliver_at=DUE_MS)
    with Admin(cluster) as admin:
        [described] = admin.describe_topics(["delayed.t"])
    assert described.config["retention.ms"] == -1
    assert described.config["cleanup.policy"] == "compact,delete"
    assert described.partition_count == 2


def test_a_topic_without_the_setting_takes_no_delays_until_it_has_it():
    cluster = a_cluster()
    with Admin(cluster) as admin, a_producer(cluster) as producer:
        admin.create_topics(["t"])
        with pytest.raises(InvalidArgumentError, match="topic 't' takes no deliver_at: expected its delay=true"):
            producer.send("t", b"v", deliver_at=DUE_MS)
        with pytest.raises(InvalidArgumentError, match="delay=true"):
            producer.cancel_delayed("t", b"k")
        admin.alter_configs({"t": {"delay": "true"}})
        producer.send("t", b"v", deliver_at=DUE_MS).get()
    assert len(waiting(cluster)) == 1


def test_a_delay_in_a_transaction_counts_with_it():
    cluster = a_delay_cluster()
    with a_producer(cluster, transactional_id="x") as producer:
        producer.init_transactions()
        for value, end in ((b"a", producer.abort_transaction), (b"b", producer.commit_transaction)):
            producer.begin_transaction()
            producer.send("t", value, deliver_at=DUE_MS)
            end()
    assert [each.value for each in waiting(cluster)] == [b"b"]


@pytest.mark.parametrize(
    ("moment", "error", "told"),
    [
        (datetime(2100, 1, 1), InvalidArgumentError, "no time zone"),
        (-1, InvalidArgumentError, "deliver_at=-1"),
        (2**63, InvalidArgumentError, "deliver_at=9223372036854775808"),
        (True, InvalidTypeError, "got bool"),
        ("2100-01-01", InvalidTypeError, "got str"),
        (1.5, InvalidTypeError, "got float"),
    ],
)
def test_other_times_are_refused(moment, error, told):
    with pytest.raises(error, match=told):
        deliver_at_ms(moment)
    cluster = a_delay_cluster()
    with a_producer(cluster) as producer, pytest.raises(error, match=told):
        producer.send("t", b"v", deliver_at=moment)


def test_what_its_own_topic_would_refuse_is_refused_at_once():
    cluster = a_delay_cluster(**{"max.message.bytes": 100})
    with a_producer(cluster) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", b"v" * 101, deliver_at=DUE_MS)
        producer.send("t", b"v" * 90, b"k" * 10, deliver_at=DUE_MS).get()
        with pytest.raises(InvalidArgumentError, match="__delay"):
            producer.send("t", b"v", headers=[("__delay.x", b"")], deliver_at=DUE_MS)
        with pytest.raises(InvalidTypeError, match="key"):
            producer.cancel_delayed("t", None)


def test_records_of_a_delay_topic_are_read_or_refused():
    assert parse_delayed(b"i", None, [], "here") == Ended(id=b"i")
    assert parse_delayed(b"i", b"", [("__delay.cancel", b"k")], "here") == CancelAll(id=b"i", key=b"k")
    assert isinstance(parse_delayed(b"i", b"", [("__delay.deliver_at", b"1")], "here"), Waiting)
    for key, headers in ((None, []), (b"i", []), (b"i", [("__delay.deliver_at", b"soon")])):
        with pytest.raises(CorruptRecordError, match=r"here (is|has) no"):
            parse_delayed(key, b"", headers, "here")
