"""Compaction by key in two parts with a shuffle between them, for keys that don't fit in memory; on any engine.

:func:`read_keys` gives the key and the *position* of each record; whoever shuffles finds the greatest position of each
key, which is where its latest record lies; and :func:`clean_group` writes one group of files anew without the others.
Both need the memory of one group, and know nothing of who shuffles.

A position is a long: the number of the group of files, the record's place in it, and whether it is a tombstone. So the
greater is the later, and a shift yields the group.

Unlike :func:`~sparklog.compaction.clean_arrow.clean_with_arrow` this looks at all keys, not only at those of dirty
records; as what is clean holds each key once, the records that stay are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.compaction.clean_arrow import CleanedFiles, split_into_ranges
from sparklog.compaction.file_ranges import FileRange, FileUnit, file_units
from sparklog.compaction.keys import Counts
from sparklog.compaction.open_range import TOMBSTONE
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.rewrite_arrow import OpenRange, RangeWriter, Rewritten
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, InvalidArgumentError

__all__ = ["KEYS_SCHEMA", "Layout", "clean_group", "read_keys"]

KEYS_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("position", pa.int64())])
_READ_AT_ONCE = 16 * 1024 * 1024
_POSITION_BITS = 63

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of a pass in groups, in offset order; other processes work by it."""

    groups: tuple[FileRange, ...]
    """Each is rewritten at once."""
    reads: tuple[FileRange, ...]
    """The same files in smaller pieces: the keys of each are read at once."""
    group_bits: int
    """The number of bits by which a position is shifted to get its group."""
    due_tombstones_end: int
    """Tombstones below this offset go."""
    compression: str
    """The topic's ``compression.type``."""

    @classmethod
    def of(cls, plan: CleanPlan, *, compression: str, file_bytes: int) -> Layout:
        """The layout of a pass over all that a plan says.

        Args:
            file_bytes: how large a rewritten file may become.
        Raises:
            InvalidArgumentError: positions don't fit in a long: more than 2**62 offsets.
        """
        units = [unit for unit in plan.units if unit.last_offset < plan.end_offset]
        groups = tuple(split_into_ranges(units, partition=plan.partition, size_bytes=file_bytes, leaves=plan.leaves))
        spans = (group.last_offset - group.first_offset for group in groups)
        bits = max((span.bit_length() for span in spans), default=0) + 1
        if bits + len(groups).bit_length() > _POSITION_BITS:
            raise InvalidArgumentError(
                f"partition {plan.partition}: {len(groups)} groups of files with offsets up to {plan.end_offset}; "
                "expected fewer than 2**62 offsets"
            )
        return cls(
            groups=groups,
            reads=tuple(split_into_ranges(units, partition=plan.partition, size_bytes=_READ_AT_ONCE)),
            group_bits=bits,
            due_tombstones_end=plan.due_tombstones_end,
            compression=compression,
        )

    def positions(self, offsets: Offsets, tombstones: npt.NDArray[np.bool_]) -> Offsets:
        """The positions of records."""
        firsts = np.array([group.first_offset for group in self.groups], np.int64)
        at = np.searchsorted(firsts, offsets, side="right") - 1
        found: Offsets = (at << self.group_bits) | ((offsets - firsts[at]) << 1) | tombstones
        return found

    def offsets(self, number: int, positions: Offsets) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """The offsets of records of a group, and which are tombstones; the reverse of :meth:`positions`."""
        places = positions & ((1 << self.group_bits) - 1)
        return (places >> 1) + self.groups[number].first_offset, (places & 1).astype(np.bool_)


def read_keys(log: DeltaLog, layout: Layout, number: int) -> Iterator[pa.RecordBatch]:
    """The keys of the records of ``layout.reads[number]`` that have one, of :data:`KEYS_SCHEMA`.

    Raises:
        ObjectNotFoundError: a file is gone: another process replaced it.
        CorruptRecordError, InvalidArgumentError, InvalidRecordError: a file can't be read, or rewritten as it is.
        StoreError.
    """
    found = layout.reads[number]
    opened = OpenRange.read(log, found)
    count = 0
    for piece in opened.pieces(["offset_delta", "key", TOMBSTONE], once=True):
        offsets = piece["offset_delta"].to_numpy() + opened.base_offset
        count += len(offsets)
        if len(offsets) and (offsets[0] < found.first_offset or offsets[-1] > found.last_offset):
            raise _corrupt(log, found, f"found offsets {offsets[0]} to {offsets[-1]}")
        has_key = piece["key"].is_valid()
        positions = layout.positions(offsets, piece[TOMBSTONE].to_numpy())
        keys = pa.table([piece["key"], pa.array(positions)], schema=KEYS_SCHEMA)
        yield from keys.filter(has_key).combine_chunks().to_batches()
    _check_count(log, found, count)


def clean_group(log: DeltaLog, layout: Layout, number: int, latest: Offsets) -> CleanedFiles:
    """Write ``layout.groups[number]`` anew where records go from it.

    Args:
        latest: the positions of its records that are the latest of their keys, in any order.
    Returns:
        As :func:`~sparklog.compaction.clean_arrow.clean_with_arrow` does; the ticks are of this process.
    Raises:
        As :func:`read_keys`.
    """
    group = layout.groups[number]
    began = log.clock.ticks_ms()
    offsets, tombstones = layout.offsets(number, np.sort(latest))
    due = tombstones & (offsets < layout.due_tombstones_end)
    kept = offsets[~due] if due.any() else offsets
    keyless = 0
    rewritten = []
    for changed in _changed(group, kept):
        within = kept[np.searchsorted(kept, changed.first_offset) : np.searchsorted(kept, changed.last_offset + 1)]
        done, lacks = _rewrite(log, changed, within, layout.compression, began)
        rewritten.append(done)
        keyless += lacks
    counts = Counts(
        records=group.record_count,
        superseded=group.record_count - keyless - len(offsets),
        keyless=keyless,
        tombstones_dropped=int(np.count_nonzero(due)),
        tombstones_kept=int(np.count_nonzero(tombstones)) - int(np.count_nonzero(due)),
    )
    return CleanedFiles(first_offset=group.first_offset, counts=counts, rewritten=tuple(rewritten))


def _changed(group: FileRange, kept: Offsets) -> Iterator[FileRange]:
    """The units that records go from; those together that stand next to each other."""
    run: list[FileUnit] = []
    for unit in file_units(group.segments):
        first, end = np.searchsorted(kept, [unit.first_offset, unit.last_offset + 1])
        if end - first != unit.record_count:
            run.append(unit)
        elif run:
            yield group.part(run)
            run = []
    if run:
        yield group.part(run)


def _rewrite(
    log: DeltaLog, file_range: FileRange, kept: Offsets, compression: str, began_ticks_ms: float
) -> tuple[Rewritten, int]:
    """A range as files that hold nothing but ``kept``, no file where that is empty; and how many records of it have no
    key."""
    opened = OpenRange.read(log, file_range)
    writer = RangeWriter.of(log, file_range, opened, compression)
    count = keyless = 0
    for piece in opened.pieces(once=True):
        offsets = piece["offset_delta"].to_numpy() + opened.base_offset
        count += len(offsets)
        keyless += piece["key"].null_count
        writer.write(piece.filter(pa.array(_are_among(offsets, kept))))
    _check_count(log, file_range, count)
    if writer.record_count != len(kept):
        raise _corrupt(log, file_range, f"{writer.record_count} of {len(kept)} records that stay are there")
    return Rewritten(range=file_range, files=writer.close(), began_ticks_ms=began_ticks_ms), keyless


def _are_among(offsets: Offsets, kept: Offsets) -> npt.NDArray[np.bool_]:
    """Mask of the ascending offsets that are among others, which ascend, too, and are many more."""
    if not len(offsets):
        return np.empty(0, np.bool_)
    first, end = np.searchsorted(kept, [offsets[0], offsets[-1] + 1])
    return np.isin(offsets, kept[first:end], assume_unique=True)


def _check_count(log: DeltaLog, file_range: FileRange, count: int) -> None:
    if count != file_range.record_count:
        raise _corrupt(log, file_range, f"found {count} records, the log tells of {file_range.record_count}")


def _corrupt(log: DeltaLog, file_range: FileRange, what: str) -> CorruptRecordError:
    offsets = f"offsets {file_range.first_offset} to {file_range.last_offset}"
    return CorruptRecordError(f"{log.table}, partition {file_range.partition}, {offsets}: {what}")
