"""The assigned partitions as the consumer's calls use them: their positions, and which are paused."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparklog.config import ConsumerConfig, ResetPolicy
from sparklog.consumer.assignment import PartitionState
from sparklog.consumer.fetch_state import FetchState
from sparklog.errors import IllegalStateError
from sparklog.model import TopicPartition

__all__ = ["AssignedPartitions"]


class AssignedPartitions:
    """Used by the consumer's own thread alone, but for :meth:`all`, :meth:`paused` and :meth:`count`.

    Methods that name partitions raise ``IllegalStateError`` unless all of them are assigned.
    """

    def __init__(self, config: ConsumerConfig, fetch_state: FetchState) -> None:
        self._paused_bytes = config.fetch_max_bytes // 2
        self._fetch_state = fetch_state

    def all(self) -> set[TopicPartition]:
        """The partitions that are read now. From any thread."""
        with self._fetch_state.lock:
            return self._fetch_state.assignment.partitions()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused. From any thread."""
        with self._fetch_state.lock:
            return {state.partition for state in self._fetch_state.assignment if state.paused}

    def count(self) -> int:
        """The number of assigned partitions. From any thread."""
        with self._fetch_state.lock:
            return len(self._fetch_state.assignment)

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition."""
        with self._fetch_state.lock:
            state = self._fetch_state.assignment.get(partition)
        if state is None:
            raise IllegalStateError(f"partition {partition.topic}-{partition.partition} is not assigned")
        return state

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The ids of the topics that partitions are of, those that are assigned and were seen."""
        with self._fetch_state.lock:
            states = {partition: self._fetch_state.assignment.get(partition) for partition in partitions}
        return {at: state.topic_id for at, state in states.items() if state is not None and state.topic_id is not None}

    def take_gap_ends(self) -> dict[TopicPartition, int]:
        """Positions that have stepped over offsets whose records were all deleted, each once."""
        with self._fetch_state.lock:
            return self._fetch_state.assignment.take_gap_ends()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``."""
        state = self.state_of(partition)
        with self._fetch_state.lock:
            self._fetch_state.assignment.seek(state, offset)
            self._fetch_state.request_update()

    def seek_to(self, begin: ResetPolicy, partitions: Collection[TopicPartition]) -> None:
        """Go on at the beginning or the end of partitions; of all where none is named.

        Raises:
            IllegalStateError: no partitions are assigned.
        """
        wanted = partitions or list(self.all())
        if not wanted:
            raise IllegalStateError("seek: no partitions are assigned")
        states = [self.state_of(partition) for partition in wanted]
        with self._fetch_state.lock:
            for state in states:
                self._fetch_state.assignment.begin_anew(state, begin)
            self._fetch_state.request_update()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return nothing of these partitions."""
        states = [self.state_of(partition) for partition in partitions]
        with self._fetch_state.lock:
            for state in states:
                self._fetch_state.assignment.pause(state, keep_bytes=self._paused_bytes)
            self._fetch_state.request_update()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo :meth:`pause`."""
        states = [self.state_of(partition) for partition in partitions]
        with self._fetch_state.lock:
            for state in states:
                state.paused = False
            self._fetch_state.request_update()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The log end offset as the fetcher saw it last; None before it did."""
        topic, number = self.state_of(partition).partition
        with self._fetch_state.lock:
            view = self._fetch_state.views.get(topic)
        return view.log_end_offsets[number] if view and number < view.partition_count else None
