"""What the consumer's tests share: a cluster in memory, topics with records, and polling until enough is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sparklog.clock import Clock, SystemClock
from sparklog.config import ConsumerConfig
from sparklog.consumer import Consumer
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.fetcher import Fetcher
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.errors import IllegalStateError
from sparklog.log import Cluster, create_topic
from sparklog.log.data.few_rows import as_batch
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from tests.support import a_writer, append, within

LONG_MS = 60_000
"""A bound that no test reaches unless it fails."""


def tp(partition: int = 0, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def a_cluster(store: ObjectStore | None = None, clock: Clock | None = None, *, retry_ms: float = 0.0) -> Cluster:
    """A cluster whose calls aren't repeated: an error is seen at once."""
    clock = clock or SystemClock()
    store = RetryingStore(store if store is not None else MemoryStore(), clock=clock, retry_ms=retry_ms)
    return Cluster(cluster_id="c", store=store, clock=clock)


def with_topic(
    cluster: Cluster, *batches: str, topic: str = "t", partitions: int = 1, configs: dict[str, object] | None = None
) -> Cluster:
    """Create a topic; each batch is appended to partition 0 in a commit of its own, a record a letter."""
    create_topic(cluster.topic_log(topic), topic, num_partitions=partitions, configs=configs)
    send(cluster, *batches, topic=topic)
    return cluster


def send(cluster: Cluster, *batches: str | Sequence[str], topic: str = "t", partition: int = 0) -> None:
    """Append batches to a partition, each in a commit of its own, a record a letter."""
    if batches:
        writer = a_writer(cluster.topic_log(topic), topic=topic)
        for batch in batches:
            append(writer, *batch, partition=partition)


def send_table(cluster: Cluster, table: pa.Table, *, topic: str = "t", partition: int = 0) -> None:
    writer = a_writer(cluster.topic_log(topic), topic=topic)
    writer.append(writer.upload([(partition, table)]), deadline=within(writer, 1_000))


def a_consumer(cluster: Cluster, *topics: str, limits: ReadLimits | None = None, **settings: Any) -> Consumer:
    """Reads from the beginning unless told otherwise, and retries without a pause."""
    given: dict[str, Any] = {"auto_offset_reset": "earliest", "retry_backoff_ms": 0, **settings}
    return Consumer(*topics, cluster=cluster, read_limits=limits, **given)


def take(consumer: Consumer, count: int, **arguments: int) -> list[ConsumerRecord]:
    """The next ``count`` records, or more where the last poll gave them; in the order of the polls."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(timeout_ms=LONG_MS, **arguments)
        assert records, f"got {len(found)} records, expected {count}"
        found += [record for each in records.values() for record in each]
    return found


def text(records: list[ConsumerRecord]) -> str:
    return "".join(record.value.decode() for record in records)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + LONG_MS / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Rounds:
    """A fetcher without its thread: each round is a call."""

    def __init__(self, cluster: Cluster, *, limits: ReadLimits | None = None, **settings: object) -> None:
        self.config = ConsumerConfig.parse({"auto_offset_reset": "earliest", "retry_backoff_ms": 0, **settings})
        self.fetch_state = FetchState(cluster.clock)
        metrics = ConsumerMetrics(cluster.clock)
        self.fetcher = Fetcher(cluster, self.config, self.fetch_state, metrics, limits or ReadLimits())

    def assign(self, *partitions: TopicPartition) -> None:
        with self.fetch_state.lock:
            self.fetch_state.assignment.replace(dict.fromkeys(partitions, self.config.auto_offset_reset))
            self.fetch_state.request_update()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        state = self.fetch_state.assignment.get(partition)
        assert state is not None
        with self.fetch_state.lock:
            self.fetch_state.assignment.seek(state, offset)
            self.fetch_state.request_update()

    def run(self) -> None:
        """Rounds until there is nothing to do, nothing being opened, and the newest round has read nothing."""
        reached = self._reached()
        while self.fetcher.round() or self._has_opened() or reached != self._reached():
            reached = self._reached()

    def _reached(self) -> list[tuple[int | None, int]]:
        return [(state.fetch_offset, state.buffered_bytes) for state in self.fetch_state.assignment]

    def _has_opened(self) -> bool:
        """Wait until one of the topics that are being opened is open. False: there is none."""
        topics = self.fetcher._topics
        with self.fetch_state.lock:
            return bool(topics._openings) and self.fetch_state.fetcher_condition.wait_for(
                lambda: topics.have_opened, LONG_MS / 1_000
            )

    def take(self, partition: TopicPartition) -> list[tuple[int, str]]:
        """Offsets and values of all that is buffered, which is then gone."""
        state = self.fetch_state.assignment.get(partition)
        assert state is not None
        found = []
        while state.chunks:
            batch = state.chunks[0].next_records(state.chunks[0].left_count)
            found += [(r["offset"], r["value"].decode()) for r in as_batch(batch).to_pylist()]
            with self.fetch_state.lock:
                self.fetch_state.assignment.take(state, batch.num_rows)
                self.fetch_state.notify_room()
        return found


def refused_in_a_fork(calls: Sequence[Callable[[], object]], *, close: Callable[[], object]) -> int:
    """How many of these calls a forked child is refused because it was forked; it calls ``close`` in the end."""
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except IllegalStateError as error:
                refused += "forked" in str(error)
        close()
        os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
