"""Following a topic: one GET a poll, and finding records by offset or time from the log's own statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import ObjectNotFoundError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.log.commit import catch_up
from sparklog.log.head import TopicHead
from sparklog.log.reading import empty_records, find_timestamp, read_together
from sparklog.log.segments import Segment, overlapping
from sparklog.log.state import TopicState, load_state
from sparklog.model import OffsetAndTimestamp
from sparklog.storage.entry_log import PositionLost

__all__ = ["TopicFollower"]

_MAX_DOUBLINGS = 5
_MAX_TRANSACTIONS_KEPT = 1_000
"""A reader has no use for the producers' ``txn`` actions."""

T = TypeVar("T")


class TopicFollower:
    """A reader's view of a topic that keeps up with it; not for several threads at once."""

    def __init__(self, log: DeltaLog, topic: str) -> None:
        """Load ``topic``. Raises ``UnknownTopicOrPartitionError`` and what reading a log raises."""
        self.topic = topic
        self._log = log
        self._full_polls = 0
        self._caught_up = False
        self._state = self._load()
        self._topic_id = self.head.topic_id
        self._check_alive()

    @property
    def head(self) -> TopicHead:
        """The topic as of the newest version that was applied."""
        return self._state.head

    @property
    def state(self) -> TopicState:
        """All that this follower knows; it goes on changing with the next poll."""
        return self._state

    @property
    def log(self) -> DeltaLog:
        """The topic's log."""
        return self._log

    @property
    def caught_up(self) -> bool:
        """Did the newest poll find the end of the log? Not before the first poll."""
        return self._caught_up

    @property
    def next_entry(self) -> str | None:
        """The path of the entry that comes next, for whoever looks at many topics at once: where it isn't there, a poll
        would find nothing. None where only a poll may tell, as this follower is behind or is about to lose its trust in
        where it stands (rule L1)."""
        position = self._state.position
        is_trusted = self._log.clock.ticks_ms() - position.anchor_ticks_ms <= self._log.tail_trust_ms / 2
        return entry_path(self._log.table, position.version + 1) if self._caught_up and is_trusted else None

    def reload(self) -> None:
        """Load the topic anew: a file that it names is gone (rule L10). Raises as the constructor."""
        self._caught_up = False
        self._state = self._load()
        self._check_alive()

    def poll(self) -> list[Entry]:
        """Apply what follows, if anything does: one GET when nothing new is there, and one per new version.

        A follower that finds something at every poll is behind, and reads further ahead each time, up to 32 versions in
        parallel. One that was left behind by log cleanup loads the topic anew and returns nothing of what it missed.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted, and perhaps created again: that is another topic.
            UnsupportedVersionError, NotATopicError: what another engine did to it can't be understood, as long as it
                lasts.
        """
        self._caught_up = False
        ahead = 1 << min(max(0, self._full_polls - 1), _MAX_DOUBLINGS)
        try:
            entries = catch_up(self._state, ahead=ahead)
        except PositionLost:
            self._state = self._load()
            entries = []
        self._caught_up = len(entries) < ahead
        self._full_polls = 0 if self._caught_up else self._full_polls + 1
        if len(self._state.transactions) > _MAX_TRANSACTIONS_KEPT:
            self._state.transactions.clear()
            self._state.forgotten_version = self._state.position.version
        self._check_alive()
        return entries

    def segments(self, partition: int, offset: int) -> Iterator[Segment]:
        """The segments that hold records of ``partition`` at ``offset`` or beyond, by their first offset.

        Several of one base offset may overlap: :func:`~sparklog.log.segments.overlapping` puts them together.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
        """
        start, end = self._bounds(partition)
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic}-{partition} is out of range: log start {start}, log end {end}"
            )
        return self._state.require_whole().index.from_offset(partition, offset)

    def segment_groups(self, partition: int, offset: int) -> Iterator[list[Segment]]:
        """As :meth:`segments`, those together whose ranges of offsets overlap; most stand alone."""
        return overlapping(self.segments(partition, offset))

    def read(self, partition: int, offset: int, *, max_records: int = 500) -> pa.Table:
        """Up to ``max_records`` records of ``partition`` from ``offset`` on, by offset. Empty at the log end.

        Columns: ``offset``, ``timestamp``, ``key``, ``value``, ``headers``, ``producer_id``, ``producer_epoch``,
        ``sequence``.

        A file that was replaced or vacuumed under this follower is no error: the topic is loaded anew (rule L10).

        Raises:
            OffsetOutOfRangeError, CorruptRecordError, StoreError.
        """
        return self._despite_vacuum(lambda: self._read(partition, offset, max_records))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset whose record is not older than ``timestamp_ms``; None where there is none (as in Kafka)."""
        return self._despite_vacuum(lambda: self._offset_for_time(partition, timestamp_ms))

    def _despite_vacuum(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except ObjectNotFoundError:
            self.reload()
            return look()

    def _load(self) -> TopicState:
        state = load_state(self._log)
        state.require_whole().tail = ()
        return state

    def _check_alive(self) -> None:
        if self.head.deleted or self.head.topic_id != self._topic_id:
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} with id {self._topic_id} was deleted")

    def _offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        start, end = self._bounds(partition)
        index = self._state.require_whole().index
        for together in overlapping(index.from_timestamp(partition, timestamp_ms, log_start_offset=start)):
            found = [find_timestamp(self._log, segment, timestamp_ms, start_offset=start) for segment in together]
            known = [record for record in found if record is not None and record[0] < end]
            if known:
                offset, timestamp = min(known)
                return OffsetAndTimestamp(offset=offset, timestamp=timestamp)
        return None

    def _read(self, partition: int, offset: int, max_records: int) -> pa.Table:
        pieces: list[pa.Table] = []
        missing = max_records
        for together in self.segment_groups(partition, offset):
            piece = read_together(self._log, together, start_offset=offset).slice(0, missing)
            pieces.append(piece)
            missing -= piece.num_rows
            if missing <= 0:
                break
        return pa.concat_tables(pieces) if pieces else empty_records()

    def _bounds(self, partition: int) -> tuple[int, int]:
        self._check_alive()
        head = self._state.head
        if not 0 <= partition < head.partition_count:
            raise UnknownTopicOrPartitionError(
                f"topic {self.topic!r} has no partition {partition}; it has 0 to {head.partition_count - 1}"
            )
        return head.log_start_offsets[partition], head.log_end_offsets[partition]
