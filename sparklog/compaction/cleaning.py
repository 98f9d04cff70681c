"""One pass of compaction over a partition: learn the latest offset of each key, then rewrite what holds older records.

The one part of compaction that another engine may do, see :data:`Clean`. Here it is pyarrow: for partitions whose keys
fit in memory at once, or in several passes, each of which cleans as far as its keys fit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.compaction.cleaner import CleanPlan
from sparklog.compaction.keys import Counts, LatestOffsets, judge
from sparklog.compaction.rewriting import OpenRange, Rewritten, upload
from sparklog.compaction.units import FileRange, Unit, units_of
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError

__all__ = [
    "KEY_BYTES",
    "Clean",
    "CleanPass",
    "Cleaned",
    "clean_with_arrow",
    "groups_of",
    "range_of",
]

KEY_BYTES = 256 * 1024 * 1024
"""Of keys and their offsets in memory. Source: Kafka ``log.cleaner.dedupe.buffer.size``, 128 MiB of hashes."""

Offsets = npt.NDArray[np.int64]
_JUDGED_AT_ONCE = 10_000
_LEARNED_AT_ONCE = 16 * 1024 * 1024
_MOST_FILES = 1_000
"""Read at once: the commit names each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a pass found in some files, and what is to replace some of them."""

    first_offset: int
    """Of these files."""
    counts: Counts
    rewritten: tuple[Rewritten, ...]
    """Of the files that records go from, in offset order; none where nothing goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPass:
    """A pass that is under way."""

    end_offset: int
    """Up to where it cleans (exclusive): the keys of all records below are known."""
    pieces: Generator[Cleaned, None, None]
    """Of all files below ``end_offset``, in offset order. Raises what reading raises. Closed early, it ends what is
    still at work."""


Clean = Callable[[DeltaLog, CleanPlan, str, int], CleanPass]
"""Carries out a pass but for its commits.

Its arguments: the topic's log, the plan, the topic's ``compression.type``, how large a rewritten file may become.

Raises:
    ObjectNotFoundError: a file is gone: somebody else is at it.
    CorruptRecordError, InvalidArgumentError: a file isn't understood.
    StoreError.
"""


def clean_with_arrow(
    log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int, *, key_bytes: int = KEY_BYTES
) -> CleanPass:
    """A :data:`Clean` in this process.

    Memory: ``key_bytes`` and the keys of one group of files more; beside it as
    :func:`~sparklog.compaction.rewriting.rewrite_with_arrow`.
    """
    latest, end_offset = _learn(log, plan, key_bytes)
    units = [unit for unit in plan.units if unit.last_offset < end_offset]
    groups = groups_of(units, partition=plan.partition, size_bytes=file_bytes)
    pieces = (_clean(log, group, latest, compression, plan.due_tombstones_end) for group in groups)
    return CleanPass(end_offset=end_offset, pieces=pieces)


def _learn(log: DeltaLog, plan: CleanPlan, key_bytes: int) -> tuple[LatestOffsets, int]:
    """The latest offsets of the dirty keys, from the first dirty offset up to where they fit; at least of one group."""
    latest = LatestOffsets()
    end_offset = plan.first_dirty_offset
    dirty = [unit for unit in plan.units if unit.last_offset >= plan.first_dirty_offset]
    for group in groups_of(dirty, partition=plan.partition, size_bytes=_LEARNED_AT_ONCE):
        if latest.exceeds(key_bytes):
            break
        for piece in OpenRange.read(log, group).pieces(["offset_delta", "key"], once=True):
            latest.add(piece["key"], pc.add(piece["offset_delta"], pa.scalar(group.base_offset, pa.int64())))
        end_offset = group.last_offset + 1
    _learn_due_tombstones(log, plan, latest)
    return latest, end_offset


def _learn_due_tombstones(log: DeltaLog, plan: CleanPlan, latest: LatestOffsets) -> None:
    """A tombstone must not go before what it deletes: another engine's ``RESTORE`` may have brought that back into the
    clean part, whose keys aren't learned otherwise."""
    units = [u for u in plan.units if u.first_offset < min(plan.due_tombstones_end, plan.first_dirty_offset)]
    for group in groups_of(units, partition=plan.partition, size_bytes=_LEARNED_AT_ONCE) if plan.tombstones_due else ():
        for piece in OpenRange.read(log, group).pieces(["offset_delta", "key", "value"], once=True):
            offsets = pc.add(piece["offset_delta"], pa.scalar(group.base_offset, pa.int64()))
            due = pc.and_(pc.is_null(piece["value"]), pc.less(offsets, plan.due_tombstones_end))
            latest.add(piece["key"].filter(due), offsets.filter(due))


def _clean(
    log: DeltaLog, group: FileRange, latest: LatestOffsets, compression: str, due_tombstones_end: int
) -> Cleaned:
    began = log.clock.ticks_ms()
    opened = OpenRange.read(log, group)
    counts, dropped = _judge(opened, latest, due_tombstones_end)
    if counts.records != group.record_count:
        raise CorruptRecordError(
            f"{log.table}, partition {group.partition}, offsets {group.first_offset} to {group.last_offset}: found "
            f"{counts.records} records, the log tells of {group.record_count}"
        )
    changed = _changed(units_of(group.segments), dropped, group.partition)
    rewritten = tuple(_rewrite(log, opened.part(found), found, dropped, compression, began) for found in changed)
    return Cleaned(first_offset=group.first_offset, counts=counts, rewritten=rewritten)


def _judge(opened: OpenRange, latest: LatestOffsets, due_tombstones_end: int) -> tuple[Counts, Offsets]:
    """What was found, and the offsets of what goes, ascending.

    A look at ``latest`` costs as much as it has keys, so as many records are judged at once as pay for that."""
    counts, dropped = Counts(), []
    waiting: list[pa.Table] = []
    rows, enough = 0, max(_JUDGED_AT_ONCE, len(latest))

    def judge_waiting() -> None:
        nonlocal counts, rows
        table = pa.concat_tables(waiting)
        offsets = table["offset"].to_numpy()
        kept, found = judge(table, offsets, latest, due_tombstones_end=due_tombstones_end)
        dropped.append(offsets[~kept])
        counts += found
        waiting.clear()
        rows = 0

    for piece in opened.pieces(["offset_delta", "key", "value"]):
        offsets = pc.add(piece["offset_delta"], pa.scalar(opened.base_offset, pa.int64()))
        has_value = pc.if_else(pc.is_valid(piece["value"]), pa.scalar(True), pa.scalar(None, pa.bool_()))
        waiting.append(pa.table({"offset": offsets, "key": piece["key"], "value": has_value}))
        rows += piece.num_rows
        if rows >= enough:
            judge_waiting()
    if waiting:
        judge_waiting()
    return counts, np.concatenate(dropped) if dropped else np.empty(0, np.int64)


def _changed(units: Sequence[Unit], dropped: Offsets, partition: int) -> list[FileRange]:
    """The units that records go from; those together that stand next to each other."""
    firsts = np.array([unit.first_offset for unit in units])
    at = np.unique(np.searchsorted(firsts, dropped, side="right") - 1)
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if len(at) else []
    return [range_of(partition, [units[number] for number in run]) for run in runs]


def _rewrite(
    log: DeltaLog, opened: OpenRange, found: FileRange, dropped: Offsets, compression: str, began_ticks_ms: float
) -> Rewritten:
    """A range without what goes, as one file; no file where all of it goes."""
    writer = opened.writer(compression)
    for piece in opened.pieces():
        offsets = piece["offset_delta"].to_numpy() + opened.base_offset
        writer.write(piece.filter(pa.array(~np.isin(offsets, dropped, assume_unique=True))))
    files = (upload(log, found, writer),) if writer.record_count else ()
    return Rewritten(range=found, files=files, began_ticks_ms=began_ticks_ms)


def groups_of(units: Iterable[Unit], *, partition: int, size_bytes: int) -> Iterator[FileRange]:
    """Units in their order, as many together as are read at once."""
    group: list[Unit] = []
    size = 0
    for unit in units:
        if group and (size + unit.size_bytes > size_bytes or len(group) >= _MOST_FILES):
            yield range_of(partition, group)
            group, size = [], 0
        group.append(unit)
        size += unit.size_bytes
    if group:
        yield range_of(partition, group)


def range_of(partition: int, units: Iterable[Unit]) -> FileRange:
    return FileRange(partition=partition, segments=tuple(segment for unit in units for segment in unit.segments))
