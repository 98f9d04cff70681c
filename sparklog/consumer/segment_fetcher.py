"""Reads of the segments that a consumer's partitions need next, in pieces, up to the fetch limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.consumer.joined_rows import joined
from sparklog.consumer.read_ahead import FileAhead, PlannedFiles, ReadAhead
from sparklog.consumer.read_plans import Group, Plan, ReadRequest, read_runs
from sparklog.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import TopicFollower
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.few_rows import FewRows, Rows, decode_few_records
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.plain_reading import read_plain_rows
from sparklog.log.data.record_streaming import (
    RECORD_SCHEMA,
    WHOLE_FILE_BYTES,
    WHOLE_PIECES,
    OpenSegments,
    is_read_whole,
    open_segments,
)
from sparklog.log.data.segments import Segment
from sparklog.log.typed_records import ValueReading
from sparklog.model import TopicPartition
from sparklog.storage.retrying import RetryingStore

__all__ = ["ReadLimits", "ReadResult", "SegmentFetcher"]

_MOST_ARRIVED_BYTES = 32_768
"""The largest file that is read by itself as soon as it was announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Sizes in bytes."""

    whole_file_bytes: int = WHOLE_FILE_BYTES
    """A larger file is read by ranges."""
    piece_bytes: int = 1024 * 1024
    """A file that is larger once decoded is read in pieces of about this size; smaller ones are put together."""
    request_bytes: int = 16 * 1024 * 1024
    """Files read together, over all partitions; a first file is always read. As much is held ahead at most."""
    ahead_bytes: int = 4 * 1024 * 1024
    """Files held ahead for a partition; fewer where many partitions share :attr:`request_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The result of a read for one partition."""

    request: ReadRequest
    batches: list[Rows]
    sizes: list[int]
    """The bytes of each batch: Arrow takes ten microseconds to add one up, and gives Python's lock away meanwhile."""
    error: SparklogError | None = None
    """Why nothing more can be read after the batches."""

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return sum(self.sizes)


@dataclass(slots=True)
class _Open:
    """Segments of which a part was read."""

    epoch: int
    segments: OpenSegments
    next_offset: int
    """After all of them."""


class SegmentFetcher:
    """Reads segments, and remembers for each partition which it is in the middle of. Owned by one thread.

    From a remote store it fetches the bytes of the next files, too, while these are decoded, and while there is no room
    for more records.
    """

    def __init__(
        self, store: RetryingStore, clock: Clock, limits: ReadLimits, *, value_schema_id: int | None = None
    ) -> None:
        self._store = store
        self._value_schema_id = value_schema_id
        self._limits = limits
        self._ahead = ReadAhead(store, clock)
        self._open: dict[TopicPartition, _Open] = {}
        self._growth: dict[str, float] = {}
        """The factor by which decoded files were larger than stored, by topic; at least 1."""
        self._gone: dict[TopicPartition, str] = {}
        """The last file that couldn't be found, by partition."""

        self._stopped: dict[TopicPartition, CorruptLogError] = {}
        """The partitions that may not be read, as planning has found."""

        self.is_behind = False
        """Do the followers know more than their views said when the requests were made?"""

    @property
    def held_bytes(self) -> int:
        """The memory that the segments which are being read take, and the files that are held ahead."""
        return self._open_bytes + self._ahead.held_bytes

    @property
    def held(self) -> dict[TopicPartition, int]:
        """The partitions of which a segment is being read or a file held ahead, and the epochs that they were in."""
        if not self._open:
            return self._ahead.held
        return {**self._ahead.held, **{partition: opened.epoch for partition, opened in self._open.items()}}

    @property
    def _open_bytes(self) -> int:
        return sum(opened.segments.held_bytes for opened in self._open.values()) if self._open else 0

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Begin anew with the segments of these partitions."""
        for partition in partitions:
            self._open.pop(partition, None)
        self._ahead.forget(partitions)

    def hold(self, file: FileAhead, data: Any) -> bool:
        """Hold the bytes of a file that a partition will need, as if it was read ahead. False: that is too much."""
        if self._ahead.held_bytes + file.size_bytes > self._limits.request_bytes:
            return False
        self._ahead.hold(file, data)
        return True

    def close(self) -> None:
        """Wait for what is under way in the background."""
        self._ahead.close()

    def read(
        self, requests: Iterable[ReadRequest], followers: Mapping[str, TopicFollower], room_bytes: int
    ) -> Iterator[ReadResult]:
        """Read for each request about as much as it has room for, and for all of them as much as ``room_bytes``.

        The first records are read however large they are. A file that is gone is looked for once more in the topic
        loaded anew (rule L10, orphans).

        Raises:
            StoreError: the store can't be read now.
        """
        plans = self._plan(requests, followers, room_bytes)
        found = {} if self._ahead.is_useful else self._read_runs(plans, followers)
        paths = (path for plan in plans for group in plan.groups for path in group.paths)
        files = PlannedFiles(self._store, self._ahead, paths, found)
        files.fetch()
        if self._ahead.is_useful or self._ahead.has_any:
            self._read_ahead(plans, room_bytes)
        left = room_bytes
        for plan in plans:
            files.wait(path for group in plan.groups for path in group.paths)
            fetched = self._read(plan.request, plan.groups, files, followers[plan.request.state.partition.topic], left)
            left -= fetched.size_bytes
            yield fetched
            if left - self._open_bytes <= 0:
                return

    def read_arrived(self, follower: TopicFollower, segment: Segment, offset: int) -> FewRows | None:
        """The records of a file of a few that holds all that a partition has from an offset on, which it begins with.

        None: it isn't such a file, or something else is being read; :meth:`read` reads it, or says what is wrong with
        it. Raises as that.
        """
        if self._open or self._ahead.has_any or segment.partition is None or segment.size_bytes > _MOST_ARRIVED_BYTES:
            return None
        if segment.size_bytes > self._limits.whole_file_bytes or [*follower.segments(segment.partition, offset)] != [
            segment
        ]:
            return None
        data = self._store.read_buffers([object_path(follower.log.table, segment.path)])[0]
        rows = decode_few_records(data, segment.base_offset or 0) if isinstance(data, bytes) else None
        if rows is None or segment.record_count not in (None, rows.num_rows):
            return None
        return rows if rows.offsets[0] == offset else None

    def _read_runs(self, plans: Sequence[Plan], followers: Mapping[str, TopicFollower]) -> dict[str, Any]:
        return read_runs(
            self._store,
            plans,
            is_plain=lambda topic: ValueReading.of(followers[topic].head, self._value_schema_id) is None,
            ahead=self._ahead,
            piece_bytes=self._limits.piece_bytes,
            most_bytes=min(WHOLE_PIECES * self._limits.piece_bytes, self._limits.whole_file_bytes),
        )

    def _plan(
        self, requests: Iterable[ReadRequest], followers: Mapping[str, TopicFollower], room_bytes: int
    ) -> list[Plan]:
        plans: list[Plan] = []
        left = min(room_bytes, self._limits.request_bytes)
        for request in requests:
            partition = request.state.partition
            opened = self._open.get(partition)
            offset = request.offset if opened is None else opened.next_offset
            rest = self._groups(partition, offset, followers[partition.topic])
            groups: list[Group] = []
            if opened is None:
                room = min(request.room_bytes, left)
                for group in rest:
                    if groups and room < group.size_bytes:
                        rest = chain([group], rest)
                        break
                    groups.append(group)
                    room -= group.size_bytes
                    left -= group.size_bytes
                    if not group.paths:
                        break  # by ranges: it is more than enough
            plans.append(Plan(request, groups, rest))
            if left <= 0:
                break
        return plans

    def _read_ahead(self, plans: Sequence[Plan], room_bytes: int) -> None:
        """Begin to fetch the files after those that are planned, in up to half of the room that these leave."""
        planned = [group for plan in plans for group in plan.groups]
        taken_bytes = sum(group.stored_bytes for group in planned if self._is_ahead(group))
        left = min(
            (room_bytes - sum(group.size_bytes for group in planned)) // 2,
            self._limits.request_bytes + taken_bytes - self._ahead.held_bytes,
        )
        partitions = {*self._ahead.held, *(plan.request.state.partition for plan in plans)}
        share = min(self._limits.ahead_bytes, self._limits.request_bytes // max(1, len(partitions)))
        files: list[FileAhead] = []
        for plan in plans:
            wanted = {path for group in plan.groups for path in group.paths}
            own = 0
            for group in plan.rest:
                size, is_new = group.stored_bytes, not self._is_ahead(group)
                # A file that is read by ranges has no paths.
                if not group.paths or (is_new and (size > left or (own and own + size > share))):
                    break
                own += size
                wanted.update(group.paths)
                if is_new:
                    left -= size
                    files += group.ahead(plan.request)
            self._ahead.keep(plan.request.state.partition, wanted)
        if self._ahead.is_useful:
            self._ahead.start(files)

    def _is_ahead(self, group: Group) -> bool:
        return bool(group.paths) and all(path in self._ahead for path in group.paths)

    def _groups(self, partition: TopicPartition, offset: int, follower: TopicFollower) -> Iterator[Group]:
        try:
            found = follower.segment_groups(partition.partition, offset)
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):  # since the request was made
            self.is_behind = True
            return
        except CorruptLogError as error:  # another engine moved its records (rule F6, moved records)
            self._stopped[partition] = error
            return
        for segments in found:
            whole = is_read_whole(segments, whole_file_bytes=self._limits.whole_file_bytes)
            decoded = sum(segment.size_bytes for segment in segments) * self._growth.get(follower.topic, 1.0)
            size = int(decoded) if whole else self._limits.piece_bytes
            yield Group.of(follower.log.table, segments, size_bytes=size, by_ranges=not whole)

    def _read(
        self,
        request: ReadRequest,
        groups: list[Group],
        files: PlannedFiles,
        follower: TopicFollower,
        room_bytes: int,
    ) -> ReadResult:
        partition = request.state.partition
        room = min(request.room_bytes, room_bytes)
        batches: list[Rows] = []
        if self._stopped and (stop := self._stopped.pop(partition, None)) is not None:
            self._open.pop(partition, None)
            return self._result(request, batches, stop)
        try:
            if partition in self._open:
                room = self._read_on(request, batches, room)
            for group in groups:
                if room <= 0:
                    break
                group.check()
                reading = ValueReading.of(follower.head, self._value_schema_id)
                data = [files.take(path) for path in group.paths] if group.paths else None
                rows = self._rows(group, data, request.offset) if reading is None else None
                if rows is not None:
                    batches += [rows] if rows.num_rows else []
                    room -= rows.nbytes
                    if isinstance(rows, CopiedRows):
                        self._growth[partition.topic] = max(1.0, rows.nbytes / max(1, group.stored_bytes))
                    request.offset = max(request.offset, group.next_offset)
                    continue
                opened = open_segments(
                    follower.log,
                    group.segments,
                    data,
                    start_offset=request.offset,
                    piece_bytes=self._limits.piece_bytes,
                    values=None if reading is None else reading.type,
                )
                self._open[partition] = _Open(request.epoch, opened, group.next_offset)
                room = self._read_on(request, batches, before := room)
                if partition not in self._open and group.paths:
                    self._growth[partition.topic] = max(1.0, (before - room) / max(1, group.stored_bytes))
            self._gone.pop(partition, None)
        except ObjectNotFoundError as error:
            self._open.pop(partition, None)
            if self._gone.get(partition) == str(error):
                del self._gone[partition]
                return self._result(request, batches, error)
            self._gone[partition] = str(error)
            with suppress(UnknownTopicOrPartitionError):  # the next look at the topic says so
                follower.reload()
            self.is_behind = True
        except SparklogError as error:
            self._open.pop(partition, None)
            return self._result(request, batches, error)
        except BaseException:
            self._open.pop(partition, None)  # a generator that failed is at its end: the rest would seem to be read
            raise
        return self._result(request, batches)

    def _rows(self, group: Group, data: Sequence[Any] | None, start_offset: int) -> FewRows | CopiedRows | None:
        """The plain records of a group that was read, or of a file whose bytes are there, from an offset on.

        None: Arrow reads it, or says what is wrong with it."""
        if group.rows is not None:
            return _from(group.rows, start_offset)
        if data is None or len(data) != 1 or data[0] is None:
            return None
        segment, found = group.segments[0], data[0]
        first, count = segment.base_offset or 0, segment.record_count
        rows = decode_few_records(found, first) if isinstance(found, bytes) else None
        if count is None or (rows is not None and rows.num_rows == count):
            return _from(rows, start_offset)
        copied = read_plain_rows(found, count, first, WHOLE_PIECES * self._limits.piece_bytes)
        return _from(copied, start_offset)

    def _read_on(self, request: ReadRequest, batches: list[Rows], room: int) -> int:
        opened = self._open[request.state.partition]
        for batch in opened.segments.pieces:
            batches.append(batch)
            request.offset = batch.column(0)[-1].as_py() + 1
            room -= batch.nbytes
            if request.offset >= opened.next_offset:
                break  # nothing is kept of a file whose last record was read
            if room <= 0 and opened.segments.held_bytes:
                return room
        del self._open[request.state.partition]
        request.offset = max(request.offset, opened.next_offset)
        return room

    def _result(self, request: ReadRequest, batches: list[Rows], error: SparklogError | None = None) -> ReadResult:
        together = joined(batches, self._limits.piece_bytes)
        return ReadResult(
            request=request, batches=together, sizes=[int(batch.nbytes) for batch in together], error=error
        )


def _from(rows: FewRows | CopiedRows | None, start_offset: int) -> FewRows | CopiedRows | None:
    """Rows whose offsets count one by one, from an offset on."""
    if rows is None or rows.offsets[0] >= start_offset:
        return rows
    return rows.slice(min(start_offset - rows.offsets[0], rows.num_rows))


def empty_batch() -> pa.RecordBatch:
    """A batch without records."""
    return pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)
