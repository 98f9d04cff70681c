"""Facts about a foreign file's records that are needed before they can be copied: gathered in one pass, in bounded
memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.file_stats import FileStats
from sparklog.log.data.value_columns import DATA, Leaf
from sparklog.log.sequencing.foreign_source import ForeignSource

__all__ = ["MAX_OFFSET_DELTA", "Numbers", "Scan", "scan_file"]

MAX_OFFSET_DELTA = 2**48
"""Greater numbers aren't kept: they would soon use up the offsets of a log that never restarts (rule L8, one log)."""

_NARROW = ("offset_delta", "timestamp", "headers", "producer_id", "sequence")
_NUMBERS_AT_ONCE = 2**22
"""The count of numbers whose distinctness is checked together: 32 MiB, and as much to sort them."""
_SAMPLED_NUMBERS = 65_536
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""The factor of multiplicative hashing by the golden ratio. Source: Knuth, The Art of Computer Programming, 6.4."""

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The offset deltas as the writer gave them: distinct, none missing, each from 0 to 2⁴⁸."""

    ascending: bool
    """Are they so in the order of the rows?"""
    sample: I64
    """Up to 131,072 of them, evenly spaced over the rows, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The facts about a file's records that a scan finds."""

    stats: FileStats
    """The statistics of the records as they are in the file."""
    is_timed: bool
    """Has every record a timestamp?"""
    has_headers: bool
    numbers: Numbers | None
    """None where they can't be used."""


def scan_file(source: ForeignSource, *, keys_required: bool, all_columns: bool, leaves: Sequence[Leaf] = ()) -> Scan:
    """Go through a file's records.

    Args:
        keys_required: the topic is compacted by keys.
        all_columns: decode every column, as nobody will decode the file after this.
        leaves: those of a typed topic's values that are counted, where every column is decoded.
    Raises:
        InvalidRecordError: no record; values in a column that no topic has; a timestamp, a header or a missing key that
            a record can't have.
        CorruptRecordError, ObjectNotFoundError, StoreError.
    """
    source.check_columns()
    names = [
        name for name in source.schema.names if all_columns or name in _NARROW or (keys_required and name == "key")
    ]
    values = source.schema.field(DATA).type if DATA in names else None
    stats, numbers = FileStats(values, leaves), _NumbersSeen(source.record_count)
    is_timed, has_headers, null_key_count = True, False, 0
    for piece in source.pieces(names):
        stats.add(piece)
        numbers.add(piece["offset_delta"])
        timestamps = piece["timestamp"]
        _check_timestamps(timestamps)
        is_timed = is_timed and timestamps.null_count == 0
        has_headers = has_headers or piece["headers"].null_count < piece.num_rows
        null_key_count += piece["key"].null_count if keys_required else 0
    if stats.record_count == 0:
        raise InvalidRecordError("it holds no record")
    if null_key_count:
        raise InvalidRecordError(f"{null_key_count} of its records have no key, and the topic is compacted by keys")
    return Scan(stats=stats, is_timed=is_timed, has_headers=has_headers, numbers=numbers.result(source))


class _NumbersSeen:
    """The offset deltas of a file, looked at piece by piece."""

    def __init__(self, record_count: int) -> None:
        self._step = max(1, record_count // _SAMPLED_NUMBERS)
        self._count = 0
        self._usable = True
        self._ascending = True
        self._last = -1
        self._sample: list[I64] = []

    def add(self, deltas: pa.ChunkedArray) -> None:
        if not self._usable or deltas.null_count:
            self._usable = False
            return
        numbers: I64 = deltas.to_numpy()
        self._usable = int(numbers.min()) >= 0 and int(numbers.max()) <= MAX_OFFSET_DELTA
        self._ascending = self._ascending and int(numbers[0]) > self._last and bool((np.diff(numbers) > 0).all())
        self._last = int(numbers[-1])
        self._sample.append(numbers[-self._count % self._step :: self._step].copy())
        self._count += len(numbers)

    def result(self, source: ForeignSource) -> Numbers | None:
        if not self._usable or not (self._ascending or _are_distinct(source, self._count)):
            return None
        return Numbers(ascending=self._ascending, sample=np.sort(np.concatenate(self._sample)))


def _are_distinct(source: ForeignSource, count: int) -> bool:
    """Is no number there twice? Exact, in bounded memory: each pass looks at those that share a part of their hash."""
    passes = -(-count // _NUMBERS_AT_ONCE)
    for number in range(passes):
        hashes = [
            _of_pass(piece["offset_delta"].to_numpy(), number, passes) for piece in source.pieces(["offset_delta"])
        ]
        together = np.concatenate(hashes)
        together.sort()
        if (together[1:] == together[:-1]).any():
            return False
    return True


def _of_pass(numbers: I64, number: int, passes: int) -> I64:
    hashed = (numbers.astype(np.uint64) * _HASH_FACTOR) >> np.uint64(40)
    of_pass: I64 = numbers[hashed % np.uint64(passes) == np.uint64(number)]
    return of_pass


def _check_timestamps(timestamps: pa.ChunkedArray) -> None:
    bounds = pc.min_max(timestamps.cast(pa.int64())).as_py()
    if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] // 1000 > MAX_TIMESTAMP_MS):
        raise InvalidRecordError(
            f"its timestamps run from {bounds['min']} to {bounds['max']} µs, expected 0 to {MAX_TIMESTAMP_MS} ms"
        )
