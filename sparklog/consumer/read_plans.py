"""Plans of the files that a consumer reads next, by partition, and reading local ones by one call of the core."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.consumer.assignment import PartitionState
from sparklog.consumer.read_ahead import FileAhead
from sparklog.errors import SparklogError
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.plain_runs import PlainRun, read_plain_runs
from sparklog.log.data.segments import Segment
from sparklog.storage.base import ObjectStore

__all__ = ["Group", "Plan", "ReadRequest", "read_runs"]


@dataclass(slots=True, kw_only=True)
class ReadRequest:
    """A read that a partition has room for."""

    state: PartitionState
    epoch: int
    offset: int
    """The first one to read; moves on with what was read."""
    end_offset: int
    """The log end: there is nothing to read from it on."""
    room_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Segments that overlap, or one alone."""

    segments: list[Segment]
    paths: list[str]
    """To be read before they are opened; none for a file that is read by ranges."""
    size_bytes: int
    """About the size of the records that are decoded at once."""
    error: SparklogError | None
    rows: CopiedRows | None = None
    """The records, if they were read already; then there are no paths."""

    @classmethod
    def of(cls, table: str, segments: list[Segment], *, size_bytes: int, by_ranges: bool) -> Group:
        """Segments of a table, which are read by ranges or whole."""
        try:
            paths = [object_path(table, segment.path) for segment in segments]
        except SparklogError as error:
            return cls(segments=segments, paths=[], size_bytes=size_bytes, error=error)
        return cls(segments=segments, paths=[] if by_ranges else paths, size_bytes=size_bytes, error=None)

    @classmethod
    def together(cls, groups: Sequence[Group], rows: CopiedRows) -> Group:
        """Groups whose records were read."""
        segments = [segment for group in groups for segment in group.segments]
        size_bytes = sum(group.size_bytes for group in groups)
        return cls(segments=segments, paths=[], size_bytes=size_bytes, error=None, rows=rows)

    @property
    def next_offset(self) -> int:
        """The offset behind all of them."""
        return max(segment.last_offset for segment in self.segments) + 1

    @property
    def stored_bytes(self) -> int:
        """The size of the files."""
        return sum(segment.size_bytes for segment in self.segments)

    def ahead(self, request: ReadRequest) -> list[FileAhead]:
        """The files that can be read before they are opened, for the partition of a request."""
        return [
            FileAhead(
                path=path,
                partition=request.state.partition,
                epoch=request.epoch,
                size_bytes=segment.size_bytes,
            )
            for path, segment in zip(self.paths, self.segments, strict=True)
        ]

    def check(self) -> None:
        """Raise the error in one of the paths, if there is one."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True)
class Plan:
    """Files to read for a request now."""

    request: ReadRequest
    groups: list[Group]
    rest: Iterator[Group]
    """All after them, and after the one that is being read."""


def read_runs(
    store: ObjectStore,
    plans: Sequence[Plan],
    *,
    is_plain: Callable[[str], bool],
    ahead: Container[str],
    piece_bytes: int,
    most_bytes: int,
) -> dict[str, Any]:
    """Read the planned files that are local and have many plain records, and put their records into the plans' groups.

    Args:
        is_plain: whether a topic has no typed values.
        ahead: the files whose bytes are held, or are being read.
        piece_bytes: files of a partition are put together up to this size.
        most_bytes: the largest file that is read in this way.
    Returns:
        The bytes of files that were read, but have other records, by path.
    Raises:
        StoreError.
    """
    runs = [
        (plan, index, run)
        for plan in plans
        if plan.groups and is_plain(plan.request.state.partition.topic)
        for index, run in _runs(plan.groups, ahead, piece_bytes, most_bytes)
    ]
    results = read_plain_runs(store, [run for *_, run in runs], most_bytes)
    others: dict[str, Any] = {}
    for (plan, index, run), read in zip(reversed(runs), reversed(results or []), strict=results is not None):
        if read.other is not None:
            others[run.paths[read.file_count]] = read.other
        if read.rows is not None:
            end = index + read.file_count
            plan.groups[index:end] = [Group.together(plan.groups[index:end], read.rows)]
    return others


def _runs(
    groups: Sequence[Group], ahead: Container[str], piece_bytes: int, most_bytes: int
) -> Iterator[tuple[int, PlainRun]]:
    """Runs of files among groups, each with the index of its first group."""
    begun: tuple[int, PlainRun] | None = None
    for index, group in enumerate(groups):
        segment = group.segments[0]
        if len(group.paths) != 1 or group.paths[0] in ahead or segment.size_bytes > most_bytes:
            if begun is not None:
                yield begun
            begun = None
        elif begun is None or not begun[1].add(group.paths[0], segment, piece_bytes):
            if begun is not None:
                yield begun
            run = PlainRun()
            begun = (index, run) if run.add(group.paths[0], segment, piece_bytes) else None
    if begun is not None:
        yield begun
