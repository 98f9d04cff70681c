"""Reading the records of one partition for a share group, from any offset, before they are acquired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.errors import ObjectNotFoundError
from sparklog.log import TopicFollower
from sparklog.log.data.arrow_buffers import buffer_numbers
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_streaming import is_read_whole, open_segments
from sparklog.log.data.segments import Segment
from sparklog.log.typed_records import ValueReading

__all__ = ["PartitionReader", "Window"]

_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Records that were read, and between which offsets there are no others."""

    first: int
    """Offset (inclusive)."""
    end: int
    """Offset (exclusive)."""
    batches: Sequence[pa.RecordBatch]
    """Batches of the columns that a consumer reads, ascending; the first may begin below ``first``."""

    def runs(self) -> list[tuple[int, int]]:
        """First and last offsets (both inclusive) of records next to each other."""
        ranges: list[tuple[int, int]] = []
        for batch in self.batches:
            offsets = _offsets(batch)
            offsets = offsets[offsets >= self.first]
            if not len(offsets):
                continue
            breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
            firsts = offsets[np.concatenate(([0], breaks))].tolist()
            lasts = offsets[np.concatenate((breaks - 1, [len(offsets) - 1]))].tolist()
            ranges += zip(firsts, lasts, strict=True)
        return ranges

    def records(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The records between two offsets (both inclusive)."""
        for batch in self.batches:
            offsets = _offsets(batch)
            low, high = np.searchsorted(offsets, [first, last + 1]).tolist()
            if low < high:
                yield batch.slice(low, high - low)


def _offsets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return buffer_numbers(batch.column("offset"), 1, np.int64)


class PartitionReader:
    """Reads a partition in pieces, and keeps what was read last. Owned by one thread.

    Args:
        follower: of the topic; what it knows is read, it isn't moved.
        schema_id: of typed values; None: the newest.
    """

    def __init__(self, follower: TopicFollower, partition: int, *, schema_id: int | None = None) -> None:
        self._follower = follower
        self._partition = partition
        self._schema_id = schema_id
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self._first = self._end = offset
        self._batches: list[pa.RecordBatch] = []
        self._pieces: Iterator[pa.RecordBatch] | None = None
        self._pieces_end = offset

    def window(self, offset: int, max_records: int) -> Window:
        """Up to about ``max_records`` records from ``offset`` on, or more if they were read; fewer at the log end.

        Raises:
            UnknownTopicOrPartitionError, CorruptRecordError, StoreError.
        """
        try:
            return self._window(offset, max_records)
        except ObjectNotFoundError:  # replaced or vacuumed under us (rule L10, orphans)
            self._follower.reload()
            self._restart(offset)
            return self._window(offset, max_records)

    def _window(self, offset: int, max_records: int) -> Window:
        if not self._first <= offset <= self._end:
            self._restart(offset)
        while self._batches and _offsets(self._batches[0])[-1] < offset:
            self._batches.pop(0)
        self._first = offset
        head = self._follower.head
        log_end = head.log_end_offsets[self._partition]
        while self._end < log_end and sum(map(len, self._batches)) < max_records:
            self._read_next(log_end)
        return Window(first=offset, end=min(self._end, log_end), batches=tuple(self._batches))

    def _read_next(self, log_end: int) -> None:
        if self._pieces is None:
            start = max(self._end, self._follower.head.log_start_offsets[self._partition])
            group = next(self._follower.segment_groups(self._partition, start), None) if start < log_end else None
            if group is None:  # compaction has removed all that was there
                self._end = log_end
                return
            self._pieces = self._open(group, start)
            self._pieces_end = max(segment.last_offset for segment in group) + 1
        try:
            piece = next(self._pieces, None)
        except BaseException:  # a generator that failed is at its end: the rest would seem to be read
            self._restart(self._first)
            raise
        if piece is None:
            self._pieces, self._end = None, max(self._end, self._pieces_end)
            return
        self._batches.append(piece)
        self._end = int(_offsets(piece)[-1]) + 1

    def _open(self, group: Sequence[Segment], start: int) -> Iterator[pa.RecordBatch]:
        log = self._follower.log
        data = None
        if is_read_whole(group):
            data = log.store.read_buffers([object_path(log.table, segment.path) for segment in group])
        reading = ValueReading.of(self._follower.head, self._schema_id)
        values = None if reading is None else reading.type
        return open_segments(log, group, data, start_offset=start, piece_bytes=_PIECE_BYTES, values=values).pieces
