"""One pass of compaction over a partition: learn the latest offset of each key, then rewrite what holds older records.

The one part of compaction that another engine may do, see :data:`Clean`. Here it is pyarrow: for partitions whose keys
fit in memory at once, or in several passes, each of which cleans as far as its keys fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.compaction.file_ranges import FileRange, FileUnit, file_units
from sparklog.compaction.keys import Counts, LatestOffsets, judge
from sparklog.compaction.open_range import TOMBSTONE
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.rewrite_arrow import OpenRange, RangeWriter, Rewritten
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError
from sparklog.log.data.value_columns import Leaf

__all__ = [
    "KEY_BYTES",
    "Clean",
    "CleanPass",
    "CleanedFiles",
    "clean_with_arrow",
    "split_into_ranges",
]

KEY_BYTES = 128 * 1024 * 1024
"""The size of keys and their offsets in memory. Source: Kafka ``log.cleaner.dedupe.buffer.size``, which holds
hashes."""

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]
_JUDGED_AT_ONCE = 10_000
_JUDGED_BYTES = 64 * 1024 * 1024
"""The size of keys that are looked up at once, at most."""
_LEARNED_AT_ONCE = 16 * 1024 * 1024
_MOST_FILES = 1_000
"""Read at once: the commit names each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedFiles:
    """The result of a pass over some files: counts, and the files that replace some of them."""

    first_offset: int
    """The first offset of these files."""
    counts: Counts
    rewritten: tuple[Rewritten, ...]
    """The replacements of the files that lose records, in offset order; none where nothing goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPass:
    """A pass that is under way."""

    end_offset: int
    """Up to where it cleans (exclusive): the keys of all records below are known."""
    due_tombstones_end: int
    """It drops the tombstones below this offset that the plan says are due."""
    pieces: Generator[CleanedFiles, None, None]
    """The results for all files that hold offsets below ``end_offset``, in offset order. Raises what reading raises.
    Closed early, it ends what is still at work."""


Clean = Callable[[DeltaLog, CleanPlan, str, int], CleanPass]
"""Carries out a pass but for its commits.

Its arguments: the topic's log, the plan, the topic's ``compression.type``, how large a rewritten file may become.

Raises:
    ObjectNotFoundError: a file is gone: another process replaced it.
    CorruptRecordError, InvalidArgumentError, InvalidRecordError: a file can't be read, or rewritten as it is.
    StoreError.
"""


def clean_with_arrow(
    log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int, *, key_bytes: int = KEY_BYTES
) -> CleanPass:
    """A :data:`Clean` in this process.

    Memory: about three times ``key_bytes`` while keys are gathered; then the keys, 64 MiB of those that are looked up,
    a bit for each record of a group of files, and beside it as
    :func:`~sparklog.compaction.rewrite_arrow.rewrite_with_arrow`.
    """
    known = _learn(log, plan, key_bytes)
    units = [unit for unit in plan.units if unit.first_offset < known.end_offset]
    groups = split_into_ranges(units, partition=plan.partition, size_bytes=file_bytes, leaves=plan.leaves)
    pieces = (_clean(log, group, known, compression) for group in groups)
    return CleanPass(end_offset=known.end_offset, due_tombstones_end=known.due_tombstones_end, pieces=pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The knowledge that the first part of a pass has gathered."""

    latest: LatestOffsets
    end_offset: int
    """The keys of all dirty records below are known; the records from here on stay as they are."""
    due_tombstones_end: int
    """So are the keys of all tombstones below that are due."""


def _learn(log: DeltaLog, plan: CleanPlan, key_bytes: int) -> _Known:
    """The latest offsets of the dirty keys, from the first dirty offset up to where they fit; at least of one group of
    files, or of a part of a file that is larger than that."""
    latest = LatestOffsets()
    end_offset = plan.first_dirty_offset
    dirty = [unit for unit in plan.units if unit.last_offset >= plan.first_dirty_offset]
    for group in split_into_ranges(dirty, partition=plan.partition, size_bytes=_LEARNED_AT_ONCE):
        if latest.exceeds(key_bytes):
            break
        is_large = group.size_bytes > 2 * _LEARNED_AT_ONCE
        for piece, offsets in _read(log, group, ["offset_delta", "key"]):
            wanted = pc.greater_equal(offsets, plan.first_dirty_offset)  # below, each key is there once
            latest.add(piece["key"].filter(wanted), offsets.filter(wanted))
            end_offset = max(end_offset, offsets[-1].as_py() + 1)
            if is_large and latest.exceeds(key_bytes):
                break
        else:
            end_offset = group.last_offset + 1
            continue
        break
    due_end = _learn_due_tombstones(log, plan, latest, 2 * key_bytes)
    return _Known(latest=latest, end_offset=end_offset, due_tombstones_end=due_end)


def _learn_due_tombstones(log: DeltaLog, plan: CleanPlan, latest: LatestOffsets, most_bytes: int) -> int:
    """A tombstone must not go before what it deletes: another engine's ``RESTORE`` may have brought that back into the
    clean part, whose keys aren't learned otherwise. Returns up to where they fit in memory (exclusive)."""
    due_end = plan.due_tombstones_end
    units = [unit for unit in plan.units if unit.first_offset < min(due_end, plan.first_dirty_offset)]
    for group in (
        split_into_ranges(units, partition=plan.partition, size_bytes=_LEARNED_AT_ONCE) if plan.tombstones_due else ()
    ):
        for piece, offsets in _read(log, group, ["offset_delta", "key", TOMBSTONE]):
            due = pc.and_(piece[TOMBSTONE], pc.less(offsets, due_end))
            latest.add(piece["key"].filter(due), offsets.filter(due))
            if latest.exceeds(most_bytes):
                return min(due_end, int(offsets[-1].as_py()) + 1)
    return due_end


def _read(log: DeltaLog, file_range: FileRange, columns: Sequence[str]) -> Iterator[tuple[pa.Table, pa.ChunkedArray]]:
    """The records of a range, each piece with the offsets of its records; none is empty."""
    for piece in OpenRange.read(log, file_range).pieces(columns, once=True):
        if piece.num_rows:
            yield piece, pc.add(piece["offset_delta"], pa.scalar(file_range.base_offset, pa.int64()))


def _clean(log: DeltaLog, group: FileRange, known: _Known, compression: str) -> CleanedFiles:
    began = log.clock.ticks_ms()
    opened = OpenRange.read(log, group)
    judged = _Judged(file_units(group.segments))
    _judge(opened, known, judged)
    judged.check(log, group)
    rewritten = tuple(
        _rewrite(log, opened.part(found), found, judged.kept_from(position), compression, began)
        for found, position in judged.changed(group)
    )
    return CleanedFiles(first_offset=group.first_offset, counts=judged.counts, rewritten=rewritten)


class _Judged:
    """The verdicts on the records of a group of files, in the order of their offsets: a bit for each."""

    def __init__(self, units: Sequence[FileUnit]) -> None:
        self.counts = Counts()
        self._units = units
        self._firsts = np.array([unit.first_offset for unit in units], np.int64)
        self._found, self._dropped = np.zeros(len(units), np.int64), np.zeros(len(units), np.int64)
        """Records by unit."""
        self._bits: list[npt.NDArray[np.uint8]] = []
        self._sizes: list[int] = []

    def add(self, offsets: Offsets, kept: Mask, counts: Counts) -> None:
        """The next records."""
        self.counts += counts
        self._found += self._by_unit(offsets)
        self._dropped += self._by_unit(offsets[~kept])
        self._bits.append(np.packbits(kept))
        self._sizes.append(len(kept))

    def _by_unit(self, offsets: Offsets) -> npt.NDArray[np.int64]:
        """How many ascending offsets lie in each unit."""
        return np.diff(np.append(np.searchsorted(offsets, self._firsts), len(offsets)))

    def check(self, log: DeltaLog, group: FileRange) -> None:
        """Raise ``CorruptRecordError`` where a file doesn't hold as many records as the log states: then it isn't
        certain which records go."""
        if [unit.record_count for unit in self._units] != self._found.tolist() or self.counts.records != sum(
            self._sizes
        ):
            raise CorruptRecordError(
                f"{log.table}, partition {group.partition}, offsets {group.first_offset} to {group.last_offset}: found "
                f"{self.counts.records} records, the log tells of {group.record_count}"
            )

    def changed(self, group: FileRange) -> Iterator[tuple[FileRange, int]]:
        """The units that records go from, those together that stand next to each other; and the number of records of
        the group before them."""
        at = np.flatnonzero(self._dropped)
        for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if len(at) else ():
            units = [self._units[number] for number in run]
            yield group.part(units), int(self._found[: run[0]].sum())

    def kept_from(self, position: int) -> Callable[[int], Mask]:
        """A function that is called with a number of records, from this position on, and returns which of them stay."""
        starts = [0, *accumulate(self._sizes)]

        def kept(count: int) -> Mask:
            nonlocal position
            found = []
            while count:
                number = bisect_right(starts, position) - 1
                first = position - starts[number]
                taken = min(count, self._sizes[number] - first)
                bits = np.unpackbits(self._bits[number], count=first + taken)[first:]
                found.append(bits.astype(np.bool_))
                position += taken
                count -= taken
            return np.concatenate(found) if found else np.empty(0, np.bool_)

        return kept


def _judge(opened: OpenRange, known: _Known, judged: _Judged) -> None:
    """Judge all records of a range.

    A look at ``latest`` costs as much as it has keys, so as many records are judged at once as pay for that."""
    waiting: list[pa.Table] = []
    rows, size, enough = 0, 0, max(_JUDGED_AT_ONCE, len(known.latest))
    for piece in opened.pieces(["offset_delta", "key", TOMBSTONE]):
        offsets = pc.add(piece["offset_delta"], pa.scalar(opened.base_offset, pa.int64()))
        waiting.append(pa.table({"offset": offsets, "key": piece["key"], TOMBSTONE: piece[TOMBSTONE]}))
        rows += piece.num_rows
        size += waiting[-1].nbytes
        if rows >= enough or size >= _JUDGED_BYTES:
            _judge_together(waiting, known, judged)
            waiting, rows, size = [], 0, 0
    if waiting:
        _judge_together(waiting, known, judged)


def _judge_together(tables: Sequence[pa.Table], known: _Known, judged: _Judged) -> None:
    table = pa.concat_tables(tables)
    offsets = table["offset"].to_numpy()
    count = int(np.searchsorted(offsets, known.end_offset))  # what lies beyond, the next pass judges
    kept, found = judge(
        table.slice(0, count), offsets[:count], known.latest, due_tombstones_end=known.due_tombstones_end
    )
    beyond = len(offsets) - count
    judged.add(offsets, np.append(kept, np.ones(beyond, np.bool_)), found + Counts(records=beyond))


def _rewrite(
    log: DeltaLog,
    opened: OpenRange,
    file_range: FileRange,
    kept: Callable[[int], Mask],
    compression: str,
    began_ticks_ms: float,
) -> Rewritten:
    """A range without what goes; no file where all of it goes."""
    writer = RangeWriter.of(log, file_range, opened, compression)
    for piece in opened.pieces(once=True):
        writer.write(piece.filter(pa.array(kept(piece.num_rows))))
    return Rewritten(range=file_range, files=writer.close(), began_ticks_ms=began_ticks_ms)


def split_into_ranges(
    units: Iterable[FileUnit], *, partition: int, size_bytes: int, leaves: tuple[Leaf, ...] = ()
) -> Iterator[FileRange]:
    """Units in their order, as many together as are read at once.

    Args:
        size_bytes: of the files of a group, but a single unit may be larger; and of a file that is written of it.
        leaves: those of a typed topic's values that such a file has statistics of.
    """
    empty = FileRange(partition=partition, segments=(), file_bytes=size_bytes, leaves=leaves)
    group: list[FileUnit] = []
    size = 0
    for unit in units:
        if group and (size + unit.size_bytes > size_bytes or len(group) >= _MOST_FILES):
            yield empty.part(group)
            group, size = [], 0
        group.append(unit)
        size += unit.size_bytes
    if group:
        yield empty.part(group)
