"""Where a consumer begins, goes on, and what it does without a valid position."""

import logging
from typing import Any

import pytest

from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import create_partitions, delete_records, delete_topic
from sparklog.model import OffsetAndTimestamp
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, send_table, take, text, tp, until, with_topic
from tests.support import T0_MS, records


def seen_values(consumer):
    return text([record for each in consumer.poll(timeout_ms=50).values() for record in each])


# Beginnings


def test_earliest_begins_at_the_log_start():
    cluster = with_topic(a_cluster(), "abc")
    delete_records(cluster.topic_log("t"), "t", {0: 1})
    with a_consumer(cluster, "t", auto_offset_reset="earliest") as consumer:
        assert text(take(consumer, 2)) == "bc"


def test_latest_begins_at_the_log_end_as_it_is_when_the_partition_is_first_polled():
    cluster = with_topic(a_cluster(), "abc")
    with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([tp()])
        assert consumer.position(tp()) == 3
        send(cluster, "d")
        assert text(take(consumer, 1)) == "d"


def test_none_begins_nowhere_and_says_so_until_somebody_seeks():
    with a_consumer(with_topic(a_cluster(), "abc"), "t", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0 has no position") as info:
                consumer.poll(timeout_ms=LONG_MS)
            assert info.value.topic_partition == tp()
        consumer.seek(tp(), 2)
        assert text(take(consumer, 1)) == "c"


@pytest.mark.parametrize(("policy", "values"), [("PT1S", "c"), ("PT2S", "bc"), ("PT1H", "abc"), ("PT0.001S", "")])
def test_by_duration_begins_with_the_first_record_that_is_young_enough(policy, values):
    clock = ManualClock(start_ms=T0_MS)
    cluster = with_topic(a_cluster(clock=clock))
    for letter, age_ms in (("a", 5_000), ("b", 2_000), ("c", 1_000)):
        send_table(cluster, records(letter, timestamp_ms=T0_MS - age_ms))
    with a_consumer(cluster, auto_offset_reset=f"by_duration:{policy}") as consumer:
        consumer.assign([tp()])
        assert consumer.position(tp()) == 3 - len(values)
        assert text(take(consumer, len(values))) == values


# Seeking


def test_a_seek_drops_what_was_fetched_ahead():
    cluster = with_topic(a_cluster(), "abcdef")
    with a_consumer(cluster, "t", max_poll_records=1) as consumer:
        assert text(take(consumer, 1)) == "a"
        consumer.seek(tp(), 4)
        assert consumer.position(tp()) == 4
        assert text(take(consumer, 2)) == "ef"
        consumer.seek(tp(), 1)
        assert text(take(consumer, 1)) == "b"


def test_to_the_beginning_and_to_the_end():
    cluster = with_topic(a_cluster(), "abc", partitions=2)
    send(cluster, "de", partition=1)
    with a_consumer(cluster) as consumer:
        consumer.assign([tp(0), tp(1)])
        consumer.seek_to_end()
        assert [consumer.position(tp(0)), consumer.position(tp(1))] == [3, 2]
        consumer.seek_to_beginning(tp(1))
        assert text(take(consumer, 2)) == "de"
        consumer.seek_to_beginning()
        assert sorted(text(take(consumer, 5))) == list("abcde")


def test_to_the_end_means_the_end_at_the_time_of_the_call_or_later():
    cluster = with_topic(a_cluster(), "a")
    with a_consumer(cluster, "t") as consumer:
        take(consumer, 1)
        for _ in range(20):
            send(cluster, "x")
            consumer.seek_to_end(tp())
            assert consumer.poll(timeout_ms=1) == {}


@pytest.mark.parametrize("offset", [-1, 1.0, None, True, "1", 2**63])
def test_an_offset_that_is_none_is_refused(offset):
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        consumer.assign([tp()])
        with pytest.raises(InvalidArgumentError, match="expected an offset"):
            consumer.seek(tp(), offset)


def test_what_is_not_assigned_cannot_be_sought_paused_or_asked_for():
    with a_consumer(with_topic(a_cluster(), "a", partitions=2)) as consumer:
        with pytest.raises(IllegalStateError, match="no partitions are assigned"):
            consumer.seek_to_end()
        consumer.assign([tp()])
        for call in (
            lambda: consumer.seek(tp(1), 0),
            lambda: consumer.seek_to_end(tp(1)),
            lambda: consumer.seek_to_beginning(tp(1)),
            lambda: consumer.pause(tp(1)),
            lambda: consumer.resume(tp(1)),
            lambda: consumer.position(tp(1)),
            lambda: consumer.highwater(tp(1)),
        ):
            with pytest.raises(IllegalStateError, match="partition t-1 is not assigned"):
                call()


@pytest.mark.parametrize("partition", ["t", ("t", "0"), ("t",), None, 0])
def test_what_is_no_partition_is_refused(partition):
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        consumer.assign([tp()])
        for call in (consumer.position, consumer.pause, consumer.seek_to_end, lambda p: consumer.assign([p])):
            with pytest.raises(TypeError, match="expected a TopicPartition"):
                call(partition)


# Out of range


@pytest.mark.parametrize(("offset", "why"), [(0, "log start 2, log end 4"), (9, "log start 2, log end 4")])
def test_a_position_outside_of_the_log_is_reset_with_a_warning(offset, why, caplog):
    cluster = with_topic(a_cluster(), "ab", "cd")
    delete_records(cluster.topic_log("t"), "t", {0: 2})
    with a_consumer(cluster) as consumer, caplog.at_level(logging.WARNING, "sparklog.consumer"):
        consumer.assign([tp()])
        consumer.seek(tp(), offset)
        assert text(take(consumer, 2)) == "cd"
    assert f"offset {offset} of t-0 is out of range: {why}; reset to earliest" in caplog.text


def test_a_position_outside_of_the_log_is_an_error_with_none():
    cluster = with_topic(a_cluster(), "ab", "cd")
    delete_records(cluster.topic_log("t"), "t", {0: 2})
    with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp()])
        for offset in (1, 5):
            consumer.seek(tp(), offset)
            with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} of t-0 is out of range") as info:
                consumer.poll(timeout_ms=LONG_MS)
            assert (info.value.topic_partition, info.value.offset) == (tp(), offset)
            assert consumer.position(tp()) == offset
        consumer.seek(tp(), 4)
        assert consumer.poll(timeout_ms=20) == {}
        send(cluster, "e")
        assert text(take(consumer, 1)) == "e"


def test_records_that_were_fetched_are_returned_though_the_log_start_has_passed_them():
    cluster = with_topic(a_cluster(), "abcd")
    with a_consumer(cluster, "t", max_poll_records=1) as consumer:
        assert text(take(consumer, 1)) == "a"
        delete_records(cluster.topic_log("t"), "t", {0: 4})
        send(cluster, "e")
        assert text(take(consumer, 4)) == "bcde"


@pytest.mark.parametrize("by_batches", [False, True], ids=["poll", "poll_batches"])
def test_a_log_start_beyond_what_comes_next_needs_no_news(by_batches):
    """The other partition has room, so that the topic is looked at while records of this one wait to be returned."""
    cluster = with_topic(a_cluster(), "ab", "cd", "ef", partitions=2)
    with a_consumer(cluster, "t", max_poll_records=1, max_partition_fetch_bytes=1) as consumer:
        assert text(take(consumer, 1)) == "a"
        delete_records(cluster.topic_log("t"), "t", {0: 5})
        fetch_state = consumer._runtime.fetch_state
        until(lambda: fetch_state.views["t"].log_start_offsets[0] == 5)
        until(lambda: not fetch_state.is_update_requested)
        if by_batches:
            assert consumer.poll_batches(timeout_ms=LONG_MS)[tp()].column("value").to_pylist() == [b"b"]
        else:
            assert text(take(consumer, 1)) == "b"
        assert text(take(consumer, 1)) == "f"


# Pausing


def test_a_paused_partition_returns_nothing_and_goes_on_where_it_was():
    cluster = with_topic(a_cluster(), "abc", partitions=2)
    with a_consumer(cluster, "t", max_poll_records=1) as consumer:
        assert text(take(consumer, 1)) == "a"
        consumer.pause(tp(0))
        assert consumer.paused() == {tp(0)}
        send(cluster, "x", partition=1)
        assert text(take(consumer, 1)) == "x"
        assert consumer.poll(timeout_ms=5) == {}
        assert consumer.position(tp(0)) == 1
        consumer.resume(tp(0))
        assert consumer.paused() == set()
        assert text(take(consumer, 2)) == "bc"


def test_paused_partitions_do_not_take_the_room_of_the_others():
    cluster = with_topic(a_cluster(), "a" * 500, partitions=2)
    with a_consumer(cluster, "t", fetch_max_bytes=4_000, max_poll_records=1) as consumer:
        take(consumer, 1)
        until(lambda: consumer._runtime.fetch_state.assignment.buffered_bytes > 4_000)
        consumer.pause(tp(0))
        send(cluster, "b" * 50, partition=1)
        assert text(take(consumer, 50)) == "b" * 50


# Looking up


def test_offsets_are_looked_up_whether_assigned_or_not():
    cluster = with_topic(a_cluster(), "abc", partitions=2)
    delete_records(cluster.topic_log("t"), "t", {0: 1})
    with a_consumer(cluster) as consumer:
        for _ in range(2):
            assert consumer.beginning_offsets([tp(0), tp(1)]) == {tp(0): 1, tp(1): 0}
            assert consumer.end_offsets([tp(0), tp(1)]) == {tp(0): 3, tp(1): 0}
            assert consumer.offsets_for_times({tp(0): T0_MS + 2, tp(1): 0}) == {
                tp(0): OffsetAndTimestamp(2, T0_MS + 2),
                tp(1): None,
            }
            consumer.assign([tp(0)])
        send(cluster, "d")
        assert consumer.end_offsets([tp(0)]) == {tp(0): 4}
        assert consumer.beginning_offsets([]) == {}


def test_what_does_not_exist_cannot_be_looked_up():
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        for look in (consumer.beginning_offsets, consumer.end_offsets, lambda p: consumer.offsets_for_times({p[0]: 0})):
            with pytest.raises(UnknownTopicOrPartitionError):
                look([tp(topic="missing")])
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 1"):
                look([tp(1)])
        with pytest.raises(InvalidArgumentError, match="timestamp -1"):
            consumer.offsets_for_times({tp(): -1})


@pytest.mark.parametrize("timestamp", ["5", 1.5, None, True, -1])
def test_a_timestamp_that_is_none_is_refused(timestamp):
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        with pytest.raises(InvalidArgumentError, match=r"timestamp .*partition=0.* expected milliseconds, 0 or more"):
            consumer.offsets_for_times({tp(): timestamp})
        no_dict: Any = [tp()]
        with pytest.raises(TypeError, match="expected a dict of TopicPartition to milliseconds"):
            consumer.offsets_for_times(no_dict)


def test_a_partition_that_does_not_exist_is_named_also_after_a_seek():
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        consumer.assign([tp(3)])
        consumer.seek(tp(3), 5)
        for _ in range(3):
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3"):
                consumer.poll(timeout_ms=LONG_MS)


def test_the_high_watermark_is_what_was_seen_last():
    with a_consumer(with_topic(a_cluster(), "abc")) as consumer:
        consumer.assign([tp()])
        assert consumer.highwater(tp()) is None
        take(consumer, 3)
        assert consumer.highwater(tp()) == 3


def test_topics_and_their_partitions():
    cluster = with_topic(with_topic(a_cluster(), topic="a"), topic="b", partitions=3)
    with a_consumer(cluster) as consumer:
        cluster.store.put("topics/no topic/file", b"")
        assert consumer.topics() == {"a", "b"}
        assert consumer.partitions_for_topic("b") == {0, 1, 2}
        assert consumer.partitions_for_topic("c") is None
        delete_topic(cluster.topic_log("a"), "a")
        assert consumer.topics() == {"b"}
        assert consumer.partitions_for_topic("a") is None
        consumer.assign([tp(topic="b")])
        consumer.poll(timeout_ms=1)
        create_partitions(cluster.topic_log("b"), "b", 4)
        assert consumer.partitions_for_topic("b") == {0, 1, 2, 3}


def test_a_store_that_does_not_answer_ends_a_look_up_in_time():
    memory = MemoryStore()
    with_topic(a_cluster(memory), "a")
    slow = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["get", "list"], times=None))
    consumer = a_consumer(a_cluster(slow, retry_ms=500))
    with pytest.raises(KafkaTimeoutError, match="timed out after 10 ms"):
        consumer.end_offsets([tp()], timeout_ms=10)
    consumer.assign([tp()])
    with pytest.raises(KafkaTimeoutError, match=r"position of .* not found within 5 ms"):
        consumer.position(tp(), timeout_ms=5)
    consumer.close(timeout_ms=LONG_MS)
