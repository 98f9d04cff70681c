"""Polling: order, bounds, fairness, what comes back, and what is refused."""

from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.consumer import Consumer
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    InvalidConfigurationError,
    InvalidTopicError,
    RecordDeserializationError,
)
from sparklog.log import create_topic, delete_records, delete_topic, open_cluster
from sparklog.log.data.record_streaming import RECORD_SCHEMA
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord
from sparklog.storage import LocalStore
from sparklog.testing import ManualClock
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, send_table, take, text, tp, until, with_topic
from tests.support import T0_MS, a_writer, append, records


def test_records_come_in_order_and_the_position_moves_beyond_them():
    with a_consumer(with_topic(a_cluster(), "ab", "c"), "t") as consumer:
        found = take(consumer, 3)
        assert [(r.offset, r.value) for r in found] == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert consumer.position(tp()) == 3
        assert consumer.poll() == {}


def test_a_record_is_as_kafka_pythons():
    cluster = with_topic(a_cluster(), "a")
    with a_consumer(cluster, "t") as consumer:
        assert take(consumer, 1) == [ConsumerRecord("t", 0, -1, 0, T0_MS, CREATE_TIME, b"a", b"a", [], None, 1, 1, -1)]


def test_the_type_of_timestamps_is_the_topics():
    cluster = with_topic(a_cluster(), "a", configs={"message.timestamp.type": "LogAppendTime"})
    with a_consumer(cluster, "t") as consumer:
        assert take(consumer, 1)[0].timestamp_type == LOG_APPEND_TIME


def test_a_poll_returns_no_more_than_max_poll_records_or_max_records():
    with a_consumer(with_topic(a_cluster(), "abcdefg"), "t", max_poll_records=3) as consumer:
        assert text(take(consumer, 1)) == "abc"
        assert text(take(consumer, 1, max_records=1)) == "d"
        assert consumer.position(tp()) == 4
        assert text(take(consumer, 1)) == "efg"


def test_the_partition_that_begins_rotates_and_a_poll_may_span_several():
    cluster = with_topic(a_cluster(), partitions=3)
    for partition, letters in enumerate(("aaaa", "bbbb", "cccc")):
        send(cluster, letters, partition=partition)
    with a_consumer(cluster, "t", max_poll_records=3) as consumer:
        until(lambda: consumer.poll(max_records=1) != {})  # one record of some partition
        until(lambda: buffered(consumer) == 11)
        found = [text([r for each in consumer.poll().values() for r in each]) for _ in range(4)]
        assert sum(map(len, found)) == 11
        assert len({letter for letters in found[:3] for letter in letters[:1]}) == 3
        assert all(len(letters) == 3 for letters in found[:3])
        assert found[3] != ""


def buffered(consumer):
    with consumer._runtime.fetch_state.lock:
        return sum(state.buffered_count for state in consumer._runtime.fetch_state.assignment)


def test_a_busy_partition_does_not_starve_the_others():
    cluster = with_topic(a_cluster(), "x" * 2_000, partitions=2)
    send(cluster, "y", partition=1)
    with a_consumer(cluster, "t", max_poll_records=10) as consumer:
        first = take(consumer, 1, max_records=1)
        until(lambda: buffered(consumer) == 2_000)
        assert "y" in text(first + take(consumer, 20))


def test_several_topics_are_read():
    cluster = with_topic(with_topic(a_cluster(), "a"), "b", topic="u")
    with a_consumer(cluster, "t", "u") as consumer:
        assert sorted(text(take(consumer, 2))) == ["a", "b"]
        assert consumer.subscription() == {"t", "u"}
        assert consumer.assignment() == {tp(), tp(topic="u")}


def test_null_is_not_empty():
    table = pa.table(
        {
            "key": pa.array([None, b"", b"k"], pa.binary()),
            "value": pa.array([b"", None, b"v"], pa.binary()),
            "timestamp": pa.array([1, 2, 3], pa.int64()),
        }
    )
    cluster = with_topic(a_cluster())
    send_table(cluster, table)
    with a_consumer(cluster, "t") as consumer:
        found = take(consumer, 3)
        assert [(r.key, r.value) for r in found] == [(None, b""), (b"", None), (b"k", b"v")]
        sizes = [(r.serialized_key_size, r.serialized_value_size) for r in found]
        assert sizes == [(-1, 0), (0, -1), (1, 1)]


# Batches


def test_batches_hold_what_poll_returns_as_arrow():
    with a_consumer(with_topic(a_cluster(), "ab", "c"), "t") as consumer:
        found: list[Any] = []
        while len(found) < 3:
            batches = consumer.poll_batches(timeout_ms=LONG_MS)
            assert list(batches) == [tp()]
            assert batches[tp()].schema == RECORD_SCHEMA
            found += batches[tp()].to_pylist()
        assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in found] == [
            (0, b"a", b"a", None),
            (1, b"b", b"b", None),
            (2, b"c", b"c", None),
        ]
        assert consumer.position(tp()) == 3


def test_batches_are_bounded_by_max_records_alone():
    with a_consumer(with_topic(a_cluster(), "abcde"), "t", max_poll_records=1) as consumer:
        assert consumer.poll_batches(timeout_ms=LONG_MS, max_records=2)[tp()].num_rows == 2
        assert consumer.poll_batches(timeout_ms=LONG_MS)[tp()]["offset"].to_pylist() == [2, 3, 4]


def test_batches_know_no_deserializers():
    with a_consumer(with_topic(a_cluster(), "a"), "t", value_deserializer=int) as consumer:
        assert consumer.poll_batches(timeout_ms=LONG_MS)[tp()]["value"].to_pylist() == [b"a"]


# Deserializers and interceptors


class Upper:
    def deserialize(self, topic, headers, data):
        return f"{topic}:{data.decode().upper()}"


def test_keys_and_values_are_deserialized_and_null_stays_none():
    table = records("a", "b").set_column(1, "value", pa.array([b"7", None], pa.binary()))
    cluster = with_topic(a_cluster())
    send_table(cluster, table)
    with a_consumer(cluster, "t", key_deserializer=Upper(), value_deserializer=int) as consumer:
        assert [(r.key, r.value) for r in take(consumer, 2)] == [("t:A", 7), ("t:B", None)]


def test_a_deserialization_error_comes_after_earlier_records_and_the_position_stays():
    cluster = with_topic(a_cluster(), "12x4")
    with a_consumer(cluster, "t", value_deserializer=int) as consumer:
        assert [r.value for r in take(consumer, 2)] == [1, 2]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match=r"the value of t-0 at offset 2 .*invalid lit") as info:
                consumer.poll(timeout_ms=LONG_MS)
            assert (info.value.topic_partition, info.value.offset) == (tp(), 2)
            assert consumer.position(tp()) == 2
        consumer.seek(tp(), 3)
        assert [r.value for r in take(consumer, 1)] == [4]


def test_a_failed_deserialization_neither_hides_nor_stops_other_partitions():
    cluster = with_topic(a_cluster(), "x1", partitions=2)
    send(cluster, "123456", partition=1)
    with a_consumer(cluster, "t", value_deserializer=int, max_poll_records=2) as consumer:
        seen: list[int] = []
        errors: list[Any] = []
        while len(seen) < 6 or len(errors) < 2:
            try:
                seen += [r.value for each in consumer.poll(timeout_ms=100).values() for r in each]
            except RecordDeserializationError as error:
                errors.append((error.topic_partition, error.offset))
        assert seen == [1, 2, 3, 4, 5, 6]
        assert set(errors) == {(tp(0), 0)}


def test_a_deserializer_that_seeks_is_heard():
    cluster = with_topic(a_cluster(), "abcdef")
    sought: list[int] = []

    def seeking(data):
        if data == b"b" and not sought:
            sought.append(4)
            consumer.seek(tp(), 4)
        return data.decode()

    with a_consumer(cluster, value_deserializer=seeking) as consumer:
        consumer.assign([tp()])
        assert [r.value for r in take(consumer, 2)] == ["e", "f"]
        assert consumer.position(tp()) == 6


def test_a_topic_made_again_while_a_deserializer_runs_is_read_from_its_beginning():
    cluster = with_topic(a_cluster(), "abcdef")
    log = cluster.topic_log("t")

    def slow(data):
        if data == b"b":
            delete_topic(log, "t")
            create_topic(log, "t")
            send(cluster, "xy")
            until(another_topic_is_seen)
        return data.decode()

    def another_topic_is_seen():
        with consumer._runtime.fetch_state.lock:
            consumer._runtime.fetch_state.next_error()  # as if poll had raised it
            return state.epoch != epoch

    with a_consumer(cluster, max_poll_records=1, value_deserializer=slow) as consumer:
        consumer.assign([tp()])
        take(consumer, 1)
        state = consumer._runtime.assigned.state_of(tp())
        epoch = state.epoch
        assert [r.value for r in take(consumer, 1)] == ["x"]


class Dropping:
    def on_consume(self, found):
        return {partition: [r for r in each if r.value != b"b"] for partition, each in found.items()}


class Broken:
    def on_consume(self, found):
        raise RuntimeError("no")


def test_interceptors_change_what_is_returned_and_one_that_fails_is_passed_over():
    with a_consumer(with_topic(a_cluster(), "abc"), "t", interceptors=[Broken(), Dropping()]) as consumer:
        assert text(take(consumer, 2)) == "ac"
        assert consumer.position(tp()) == 3


# Waiting


def test_fetch_min_bytes_waits_for_more_but_not_longer_than_fetch_max_wait_ms():
    clock = ManualClock(start_ms=T0_MS)
    cluster = with_topic(a_cluster(clock=clock), "a")
    with a_consumer(cluster, "t", fetch_min_bytes=10_000, fetch_max_wait_ms=500) as consumer:
        consumer.poll()
        until(lambda: consumer.poll() == {} and buffered(consumer) == 1)
        clock.advance(499)
        assert consumer.poll() == {}
        clock.advance(1)
        assert text(take(consumer, 1)) == "a"
        until(lambda: buffered(consumer) == 0)
        append(a_writer(cluster.topic_log("t")), "b" * 20_000)
        assert len(take(consumer, 1)[0].value) == 20_000


def test_a_poll_that_waits_returns_as_soon_as_there_is_something():
    cluster = with_topic(a_cluster())
    with a_consumer(cluster, "t") as consumer:
        consumer.seek_to_end() if consumer.assignment() else None
        assert consumer.poll(timeout_ms=1) == {}
        send(cluster, "a")
        assert text(take(consumer, 1)) == "a"


# Iteration


def test_iteration_hands_out_records_one_by_one_and_each_moves_the_position():
    with a_consumer(with_topic(a_cluster(), "abc", "d"), "t", consumer_timeout_ms=LONG_MS) as consumer:
        seen = []
        for record in consumer:
            assert consumer.position(tp()) == record.offset + 1
            seen.append(record.value)
            if len(seen) == 4:
                break
        assert b"".join(seen) == b"abcd"


def test_iteration_ends_after_consumer_timeout_ms_and_can_go_on():
    cluster = with_topic(a_cluster(), "ab")
    with a_consumer(cluster, "t", consumer_timeout_ms=100) as consumer:
        assert text([following(consumer), following(consumer)]) == "ab"
        assert list(consumer) == []
        send(cluster, "c")
        assert text([following(consumer)]) == "c"
        assert list(consumer) == []


def following(consumer: Consumer) -> ConsumerRecord:
    """The next record of an iteration, which is begun anew where a busy machine let it end before."""
    found: list[ConsumerRecord] = []
    while not found:
        found += islice(consumer, 1)
    return found[0]


def test_a_seek_or_pause_within_iteration_counts_at_once():
    with a_consumer(with_topic(a_cluster(), "abcde"), "t", consumer_timeout_ms=200) as consumer:
        assert following(consumer).value == b"a"
        consumer.seek(tp(), 3)
        assert following(consumer).value == b"d"
        consumer.pause(tp())
        assert next(consumer, None) is None
        consumer.resume(tp())
        assert following(consumer).value == b"e"


def test_a_poll_within_iteration_loses_nothing():
    with a_consumer(with_topic(a_cluster(), "abcde"), "t", consumer_timeout_ms=100) as consumer:
        assert following(consumer).value == b"a"
        assert text(take(consumer, 4)) == "bcde"
        assert list(consumer) == []


# Bad input


def test_nothing_subscribed_is_refused():
    with a_consumer(a_cluster()) as consumer:
        for call in (consumer.poll, consumer.poll_batches, lambda: next(consumer)):
            with pytest.raises(IllegalStateError, match="subscribe to topics or assign partitions first"):
                call()


@pytest.mark.parametrize(
    "arguments", [{"timeout_ms": -1}, {"timeout_ms": "1"}, {"max_records": 0}, {"max_records": 1.5}]
)
def test_a_poll_with_bounds_that_make_no_sense_is_refused(arguments):
    with a_consumer(with_topic(a_cluster()), "t") as consumer:
        for poll in (consumer.poll, consumer.poll_batches):
            with pytest.raises(InvalidArgumentError, match=next(iter(arguments))):
                poll(**arguments)


@pytest.mark.parametrize("timeout", [-1, "1", None, True])
def test_a_close_with_a_bound_that_makes_no_sense_is_refused_and_closes_nothing(timeout):
    with a_consumer(with_topic(a_cluster(), "a"), "t") as consumer:
        take(consumer, 1)
        if timeout is not None:
            with pytest.raises(InvalidArgumentError, match="timeout_ms"):
                consumer.close(timeout_ms=timeout)
        assert consumer.assignment() == {tp()}


def test_every_call_after_close_is_refused_but_close():
    consumer = a_consumer(with_topic(a_cluster(), "a"), "t")
    take(consumer, 1)
    consumer.close()
    consumer.close()
    for call in (
        consumer.poll,
        consumer.poll_batches,
        consumer.assignment,
        consumer.subscription,
        consumer.topics,
        consumer.unsubscribe,
        consumer.seek_to_end,
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.assign([tp()]),
        lambda: consumer.position(tp()),
        lambda: consumer.seek(tp(), 0),
        lambda: consumer.end_offsets([tp()]),
        lambda: iter(consumer),
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    assert next(consumer, None) is None


def test_without_a_group_nothing_is_committed():
    with a_consumer(a_cluster()) as consumer:
        calls: dict[str, Any] = {
            "commit": consumer.commit,
            "commit_async": consumer.commit_async,
            "committed": lambda: consumer.committed(tp()),
            "group_metadata": consumer.group_metadata,
        }
        for name, call in calls.items():
            with pytest.raises(IllegalStateError, match=f"{name}: this consumer has no group_id; keep position"):
                call()


def test_unknown_settings_and_invalid_topic_names_are_refused_before_any_opening():
    with pytest.raises(InvalidConfigurationError, match="max_pol_records"):
        Consumer("t", cluster="memory://nothing-here", max_pol_records=1)
    with pytest.raises(InvalidTopicError):
        Consumer("a/b", cluster="memory://nothing-here")


def test_a_cluster_that_is_not_there_is_an_error_and_is_not_made(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
        Consumer("t", cluster=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_is_opened_by_its_root(tmp_path):
    cluster = open_cluster(LocalStore(tmp_path))
    create_topic(cluster.topic_log("t"), "t")
    send(cluster, "ab")
    with Consumer("t", cluster=str(tmp_path), auto_offset_reset="earliest") as consumer:
        assert text(take(consumer, 2)) == "ab"
    with pytest.raises(InvalidArgumentError, match="storage_options"):
        Consumer("t", cluster=cluster, storage_options={"a": 1})


# Whatever happens, the log's records in order

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("poll"), st.integers(0, 1), st.integers(1, 7)),
        st.tuples(st.just("seek"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("pause"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("next"), st.integers(0, 1), st.just(0)),
    ),
    max_size=14,
)


@pytest.mark.slow
@given(STEPS, st.sampled_from([1, 200, 10_000]), st.sampled_from([1, 300, 10_000]), st.sampled_from([0, 64]))
@settings(max_examples=25)
def test_whatever_is_appended_sought_and_bounded_the_records_are_the_logs_in_order(steps, partition, total, piece):
    cluster = with_topic(a_cluster(), partitions=2)
    writer = a_writer(cluster.topic_log("t"))
    limits = ReadLimits(whole_file_bytes=piece * 50, piece_bytes=max(1, piece))
    log: list[list[bytes]] = [[], []]
    position = [0, 0]

    def see(records):
        for record in records:
            at = record.partition
            assert (record.offset, record.value) == (position[at], log[at][position[at]])
            position[at] += 1

    bounds = {"max_partition_fetch_bytes": partition, "fetch_max_bytes": total, "consumer_timeout_ms": 0}
    with a_consumer(cluster, limits=limits, **bounds) as consumer:
        consumer.assign([tp(0), tp(1)])
        for step, at, count in steps:
            if step == "append":
                values = [b"%d-%d" % (at, len(log[at]) + number) for number in range(count)]
                append(writer, *values, partition=at)
                log[at] += values
            elif step == "poll":
                for records in consumer.poll(timeout_ms=1, max_records=count).values():
                    see(records)
            elif step == "next":
                see([record for record in [next(consumer, None)] if record])
            elif step == "seek" and count <= len(log[at]):
                consumer.seek(tp(at), count)
                position[at] = count
            elif step == "pause":
                (consumer.resume if tp(at) in consumer.paused() else consumer.pause)(tp(at))
        consumer.resume(tp(0), tp(1))
        see(take(consumer, sum(map(len, log)) - sum(position)))
        assert position == [len(log[0]), len(log[1])]
        assert [consumer.position(tp(0)), consumer.position(tp(1))] == position


def test_records_below_the_log_start_are_passed_over():
    cluster = with_topic(a_cluster(), "abc", "de")
    delete_records(cluster.topic_log("t"), "t", {0: 2})
    with a_consumer(cluster, "t") as consumer:
        assert [(r.offset, r.value) for r in take(consumer, 3)] == [(2, b"c"), (3, b"d"), (4, b"e")]
