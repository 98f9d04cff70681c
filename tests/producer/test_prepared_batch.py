"""Batches that are prepared for their upload: records that the topic refuses, timestamps, partitions without a key."""

from __future__ import annotations

import itertools

import pytest

from sparklog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
)
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.testing import ManualClock
from tests.producer.support import (
    LONG_S,
    a_producer,
    a_topic,
    assert_empty,
    column,
    rows,
    values,
)

HOUR_MS = 3_600_000


def test_without_a_timestamp_a_record_has_the_time_of_sending() -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock)
    with a_producer(cluster) as producer:
        told = [producer.send("t", b"v").get(LONG_S).timestamp, producer.send("t", b"v", headers=[]).get().timestamp]
    assert told == [clock.now_ms()] * 2


def test_a_timestamp_outside_of_the_topics_window_fails_its_record_alone() -> None:
    clock = ManualClock()
    now = clock.now_ms()
    configs = {"message.timestamp.before.max.ms": 1_000, "message.timestamp.after.max.ms": 500}
    cluster = a_topic(clock=clock, configs=configs)
    times = [now, now - 1_001, now - 1_000, now + 500, now + 501, 0, MAX_TIMESTAMP_MS + 1, 2**63 - 1]
    with a_producer(cluster, batch_size=1_000_000, linger_ms=10) as producer:
        sent = [producer.send("t", str(time).encode(), timestamp_ms=time) for time in times]
        producer.flush(LONG_S)
        allowed = [now - 1_000 <= time <= now + 500 for time in times]
        assert [future.succeeded() for future in sent] == allowed
        for future, ok in zip(sent, allowed, strict=True):
            assert isinstance(future.exception, InvalidTimestampError) is not ok
        assert "message.timestamp" in str(sent[1].exception)
        assert_empty(producer)
    assert values(cluster) == [str(now).encode(), str(now - 1_000).encode(), str(now + 500).encode()]
    assert [future.get().offset for future in sent if future.succeeded()] == [0, 1, 2]


def test_an_hour_ahead_is_the_most_by_default() -> None:
    """Source: Kafka 4.0, ``message.timestamp.after.max.ms``."""
    clock = ManualClock()
    with a_producer(a_topic(clock=clock)) as producer:
        producer.send("t", b"v", timestamp_ms=clock.now_ms() + HOUR_MS).get(LONG_S)
        with pytest.raises(InvalidTimestampError):
            producer.send("t", b"v", timestamp_ms=clock.now_ms() + HOUR_MS + 1).get(LONG_S)


def test_with_log_append_time_the_given_time_counts_for_nothing() -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock, configs={"message.timestamp.type": "LogAppendTime"})
    with a_producer(cluster) as producer:
        told = [producer.send("t", b"v", timestamp_ms=time).get(LONG_S).timestamp for time in (0, 2**63 - 1)]
    assert told == [clock.now_ms()] * 2
    assert [int(time.timestamp() * 1000) for time in column(cluster, "timestamp")] == told


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_refuses_records_without_a_key_alone(policy: str) -> None:
    cluster = a_topic(configs={"cleanup.policy": policy})
    with a_producer(cluster, linger_ms=20) as producer:
        sent = [producer.send("t", b"v", key) for key in (None, b"k", None, b"")]
        producer.flush(LONG_S)
        assert [type(future.exception) for future in sent] == [
            InvalidRecordError,
            type(None),
            InvalidRecordError,
            type(None),
        ]
    assert rows(cluster)[0] == [(0, b"k", b"v"), (1, b"", b"v")]


def test_records_without_a_key_stick_to_a_partition_for_a_batch_of_bytes() -> None:
    cluster = a_topic(partitions=4)
    with a_producer(cluster, batch_size=100) as producer:
        found = [producer.send("t", b"v" * 50).get(LONG_S).partition for _ in range(40)]
    pairs = [tuple(found[at : at + 2]) for at in range(0, 40, 2)]
    assert all(one == other for one, other in pairs)
    assert all(before != after for before, after in itertools.pairwise(pairs))


def test_records_without_a_key_that_are_prepared_together_go_to_one_partition() -> None:
    cluster = a_topic(partitions=8)
    with a_producer(cluster, linger_ms=50, batch_size=1_000_000) as producer:
        sent = [producer.send("t", b"v") for _ in range(50)]
        assert len({future.get(LONG_S).partition for future in sent}) == 1
