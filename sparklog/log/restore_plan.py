"""Which records return to a topic that other engines removed: by their offsets, against what is live now.

Only offsets that no live file has return, and none below the log start. A file that is refused has none; where a commit
put records elsewhere, its files go as the records return (rule F6, moved records). A file that is wholly gone returns
as it is; of one that was rewritten without some of its records, these return into a new file, together with those of
the live files around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, ObjectNotFoundError
from sparklog.log.data.record_reading import read_segment
from sparklog.log.data.segments import Segment, SegmentIndex
from sparklog.log.head import TopicHead
from sparklog.log.removed_records import KnownFile, Removal

__all__ = ["Gathered", "LostRecords", "ReturnPlan", "in_the_way", "misplaced", "plan_of_removals", "readable"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Live files of a partition whose place a new file takes, and the records that return into it."""

    partition: int
    live: tuple[Segment, ...]
    sources: tuple[tuple[Segment, I64], ...]
    """Removed files, and the offsets that return of each, ascending."""

    @property
    def range(self) -> tuple[int, int]:
        """First and last offset (inclusive)."""
        bounds = [(one.first_offset, one.last_offset) for one in self.live]
        bounds += [(int(offsets[0]), int(offsets[-1])) for _, offsets in self.sources]
        return min(first for first, _ in bounds), max(last for _, last in bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Records that can't return: the file isn't there any more, or can't be read."""

    partition: int
    path: str
    first_offset: int
    last_offset: int
    """Inclusive; not each offset between them need have had a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnPlan:
    """The records that return."""

    whole: tuple[KnownFile, ...]
    """Files that return as they are."""
    gathered: tuple[Gathered, ...]
    lost: tuple[LostRecords, ...]
    is_move_lost: bool = False
    """Are records among the lost that a commit moved? Then the files that it put elsewhere may be all that is left of
    them, and stay."""

    def record_counts(self) -> dict[int, int]:
        """How many records return, by partition."""
        counts: dict[int, int] = {}
        for file in self.whole:
            partition = file.segment.partition or 0
            counts[partition] = counts.get(partition, 0) + (file.segment.record_count or 0)
        for one in self.gathered:
            added = sum(len(offsets) for _, offsets in one.sources)
            counts[one.partition] = counts.get(one.partition, 0) + added
        return counts


def plan_of_removals(
    log: DeltaLog, head: TopicHead, index: SegmentIndex, removals: Sequence[Removal], there: frozenset[str]
) -> ReturnPlan:
    """Plan what returns of these removals, the newest version of a record first.

    Reads the offsets of files that were removed in part, and of the live files around them.

    Args:
        head, index: of the topic as it is now; of the :func:`readable` files.
        removals: oldest first.
        there: the paths of the removed files that exist.
    """
    lost: list[LostRecords] = []
    is_move_lost = False
    parts: dict[int, _Partition] = {}
    for removal in reversed(removals):
        rest: I64 | None = None
        for file in removal.files:
            segment = file.segment
            number = segment.partition or 0
            if number >= head.partition_count or segment.last_offset < head.log_start_offsets[number]:
                continue
            part = parts.setdefault(number, _Partition(log, index, number, head.log_start_offsets[number]))
            if segment.path in there and not removal.rest and segment.has_stats and part.is_free(segment):
                part.whole.append(file)
                continue
            try:
                if rest is None:
                    rest = _offsets_of(log, removal.rest)
                offsets = part.missing(_offsets_of(log, [segment]), rest)
            except (ObjectNotFoundError, CorruptRecordError):
                if not part.is_covered(segment):
                    lost.append(_lost(segment))
                    is_move_lost |= removal.is_move
                continue
            if len(offsets):
                part.some.append((file, offsets))
    found = [part.gathered() for part in parts.values()]
    return ReturnPlan(
        whole=tuple(file for part in parts.values() for file in part.whole),
        gathered=tuple(one for some in found for one in some),
        lost=tuple(lost),
        is_move_lost=is_move_lost,
    )


def readable(index: SegmentIndex) -> SegmentIndex:
    """The live files that aren't refused, those of partitions that stop among them: their records are to return."""
    return SegmentIndex.of(one for one in index.by_path.values() if not one.is_refused)


def misplaced(index: SegmentIndex, since: int) -> list[Segment]:
    """The live files that commits behind a version put elsewhere, whose records return to where they were."""
    rewrites = index.rewrites
    moves = {stop.version for stop in rewrites.stops if stop.version > since}
    return [one for one in index.refused() if rewrites.refused[one.path] in moves]


class _Partition:
    """The records that return to one partition."""

    def __init__(self, log: DeltaLog, index: SegmentIndex, partition: int, log_start_offset: int) -> None:
        self.whole: list[KnownFile] = []
        self.some: list[tuple[KnownFile, I64]] = []
        self._log, self._index = log, index
        self._partition, self._log_start_offset = partition, log_start_offset

    def is_free(self, segment: Segment) -> bool:
        """Does nothing that is live, or returns, lie between a segment's offsets?"""
        return not self._live(segment.first_offset, segment.last_offset) and not any(
            _overlap(segment, other.segment) for other in [*self.whole, *(file for file, _ in self.some)]
        )

    def is_covered(self, segment: Segment) -> bool:
        """Are as many records live, or return, between a segment's offsets as it had?"""
        offsets = [self._known(segment.first_offset, segment.last_offset), *(offsets for _, offsets in self.some)]
        together = np.unique(np.concatenate(offsets))
        inside = (together >= segment.first_offset) & (together <= segment.last_offset)
        return segment.record_count is not None and int(inside.sum()) >= segment.record_count

    def missing(self, offsets: I64, rest: I64) -> I64:
        """The offsets that no live file has and none that returns, at or above the log start."""
        offsets = np.setdiff1d(offsets[offsets >= self._log_start_offset], rest)
        if not len(offsets):
            return offsets
        offsets = np.setdiff1d(offsets, self._known(int(offsets[0]), int(offsets[-1])))
        for _, others in self.some:
            offsets = np.setdiff1d(offsets, others)
        return offsets

    def gathered(self) -> list[Gathered]:
        """The live files whose place new ones take, each with all that returns between its offsets."""
        groups: list[tuple[int, int, dict[str, Segment], list[tuple[Segment, I64]]]] = []
        for file, offsets in self.some:
            first, last = int(offsets[0]), int(offsets[-1])
            live: dict[str, Segment] = {}
            sources = [(file.segment, offsets)]
            while True:
                found = {one.path: one for one in self._live(first, last)}
                joined = [group for group in groups if group[0] <= last and first <= group[1]]
                inside = [
                    one for one in self.whole if one.segment.first_offset <= last and first <= one.segment.last_offset
                ]
                if found.keys() <= live.keys() and not joined and not inside:
                    break
                for group in joined:
                    groups.remove(group)
                    found |= group[2]
                    sources += group[3]
                for one in inside:
                    self.whole.remove(one)
                    sources.append((one.segment, _offsets_of(self._log, [one.segment])))
                live |= found
                bounds = [(one.first_offset, one.last_offset) for one in live.values()]
                bounds += [(int(some[0]), int(some[-1])) for _, some in sources]
                first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
            groups.append((first, last, live, sources))
        return [
            Gathered(partition=self._partition, live=tuple(live.values()), sources=tuple(sources))
            for _, _, live, sources in groups
        ]

    def _live(self, first: int, last: int) -> list[Segment]:
        return list(_between(self._index, self._partition, first, last))

    def _known(self, first: int, last: int) -> I64:
        inside = [
            one.segment for one in self.whole if one.segment.first_offset <= last and first <= one.segment.last_offset
        ]
        return _offsets_of(self._log, [*self._live(first, last), *inside])


def _between(index: SegmentIndex, partition: int, first: int, last: int) -> Iterable[Segment]:
    for segment in index.from_offset(partition, first):
        if segment.first_offset > last:
            break
        yield segment


def _offsets_of(log: DeltaLog, segments: Iterable[Segment]) -> I64:
    found = [read_segment(log, one, columns=())["offset"].to_numpy() for one in segments]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _overlap(one: Segment, other: Segment) -> bool:
    return one.first_offset <= other.last_offset and other.first_offset <= one.last_offset


def _lost(segment: Segment) -> LostRecords:
    return LostRecords(
        partition=segment.partition or 0,
        path=segment.path,
        first_offset=segment.first_offset,
        last_offset=segment.last_offset,
    )


def in_the_way(index: SegmentIndex, partition: int, first: int, last: int, known: Mapping[str, object]) -> bool:
    """Is a file live between these offsets that isn't one of the known?"""
    return any(one.path not in known for one in _between(index, partition, first, last))
