"""Lookups of offsets and topics for any partition; the fetcher goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sparklog.delta.log import DeltaLog
from sparklog.errors import NotATopicError, TopicShrunkError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.head import TopicHead
from sparklog.log.state import open_state
from sparklog.model import OffsetAndTimestamp, TopicPartition
from sparklog.parallel import parallel_map
from sparklog.storage.position import Position, advance
from sparklog.workers import Worker, error_for_another_thread

__all__ = ["Lookup", "Lookups"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Known:
    head: TopicHead
    position: Position


class Lookups:
    """Answers for one consumer; each call is about topics as they are now.

    A topic that was looked up within the last half minute and has nothing new costs one GET; any other costs a GET, a
    LIST and a GET. Several are looked up side by side. May be used by several threads.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, _Known] = {}

    def log_start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises ``UnknownTopicOrPartitionError``, ``StoreError``."""
        heads = self._heads_of(partitions)
        return {at: heads[at.topic].log_start_offsets[at.partition] for at in partitions}

    def log_end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset to be given in each partition. Raises ``UnknownTopicOrPartitionError``, ``StoreError``."""
        heads = self._heads_of(partitions)
        return {at: heads[at.topic].log_end_offsets[at.partition] for at in partitions}

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that isn't older than its timestamp. Loads the topics: four requests for
        each, and a GET for each partition.

        Raises ``UnknownTopicOrPartitionError``, ``CorruptRecordError``, ``StoreError``.
        """
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), at_ms in timestamps_ms.items():
            by_topic.setdefault(topic, {})[partition] = at_ms

        def find(topic: str) -> dict[int, OffsetAndTimestamp | None]:
            return TopicFollower(self._cluster.topic_log(topic), topic).offsets_for_times(by_topic[topic])

        offsets = dict(zip(by_topic, parallel_map(find, by_topic), strict=True))
        return {at: offsets[at.topic][at.partition] for at in timestamps_ms}

    def partition_count(self, topic: str) -> int | None:
        """The number of a topic's partitions; None without such a topic."""
        try:
            return self._heads([topic])[topic].partition_count
        except UnknownTopicOrPartitionError:
            return None

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The id of a partition's topic; None where there is no such topic, or no such partition."""
        try:
            head = self._heads([partition.topic])[partition.topic]
        except TopicShrunkError:
            raise
        except (UnknownTopicOrPartitionError, NotATopicError):
            return None
        return head.topic_id if partition.partition < head.partition_count else None

    def _heads_of(self, partitions: Collection[TopicPartition]) -> dict[str, TopicHead]:
        heads = self._heads(at.topic for at in partitions)
        for topic, partition in partitions:
            count = heads[topic].partition_count
            if partition >= count:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has no partition {partition}; it has 0 to {count - 1}"
                )
        return heads

    def _heads(self, topics: Iterable[str]) -> dict[str, TopicHead]:
        wanted = list(dict.fromkeys(topics))
        heads = self._unchanged(wanted)
        others = [topic for topic in wanted if topic not in heads]
        heads.update(zip(others, parallel_map(self._open, others), strict=True))
        return heads

    def _unchanged(self, topics: Iterable[str]) -> dict[str, TopicHead]:
        """The topics that are known and have no newer entry, as far as that can be trusted (rule L1, trust)."""
        began = self._cluster.clock.ticks_ms()
        known = {topic: self._known[topic] for topic in topics if topic in self._known}
        known = {topic: head for topic, head in known.items() if self._is_young(head, began)}
        paths = [path for topic, head in known.items() for path in self._log(topic).paths_beyond(head.position, 1)]
        heads = {}
        for (topic, young), newer in zip(known.items(), self._cluster.store.read_many(paths), strict=True):
            if newer is None and not self._log(topic).must_verify(young.position):
                heads[topic] = young.head
                self._known[topic] = replace(young, position=_at_tail(young.position, began))
        return heads

    def _is_young(self, known: _Known, now_ms: float) -> bool:
        """Is there time enough to read what comes next before trust in the position runs out?"""
        return now_ms - known.position.anchor_ticks_ms <= self._cluster.tail_trust_ms / 2

    def _open(self, topic: str) -> TopicHead:
        state = open_state(self._log(topic))
        if state.head.deleted:
            self._known.pop(topic, None)
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
        self._known[topic] = _Known(state.head, state.position)
        return state.head

    def _log(self, topic: str) -> DeltaLog:
        return self._cluster.topic_log(topic)


class Lookup(Generic[T]):
    """A question that is being answered in a thread of its own.

    Args:
        ended: called once there is an answer or an error, by that thread.
    """

    def __init__(self, question: Callable[[], T], *, ended: Callable[[], None]) -> None:
        self._question = question
        self._ended = ended
        self._answer: list[T] = []
        self._error: Exception | None = None
        self._worker = Worker("lookup", self._run)
        self._worker.start()

    @property
    def is_done(self) -> bool:
        """Is there an answer, or an error?"""
        return bool(self._answer) or self._error is not None

    def result(self) -> T:
        """The answer, or raises what went wrong; once it is done."""
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread. True: it has ended."""
        return self._worker.join(timeout_s)

    def _run(self) -> None:
        try:
            self._answer.append(self._question())
        except BaseException as error:
            self._error = error_for_another_thread(error)
        self._ended()


def _at_tail(position: Position, seen_at: float) -> Position:
    return advance(position, version=position.version, token=position.token, tail_seen_at=seen_at)
