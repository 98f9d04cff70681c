"""Keys of a partition, by which superseded records are found: the latest offset of each key, and a look at a range
beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.log.data.murmur2 import murmur2_column

__all__ = ["Counts", "LatestOffsets", "judge"]

_WAITING_ROWS = 262_144
_SPLIT_BYTES = 16 * 1024 * 1024
"""With more than that, keys are kept in several tables: to aggregate one takes several times its size."""
_TABLES = 16
Mask = npt.NDArray[np.bool_]


class LatestOffsets:
    """The greatest offset of each key among the records that were added."""

    def __init__(self) -> None:
        self._tables = [pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})]
        """One; or more, of which the hash of a key chooses one."""
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, keys: pa.ChunkedArray, offsets: pa.ChunkedArray) -> None:
        """Add records, in any order; those without a key don't count."""
        table = pa.table({"key": keys, "offset": offsets}).drop_null()
        if table.num_rows:
            self._waiting.append(table)
            self._waiting_rows += table.num_rows
        if self._waiting_rows >= max(_WAITING_ROWS, self._row_count() // 2):
            self._settle()

    def exceeds(self, size_bytes: int) -> bool:
        """Do the keys and their offsets take more than so much memory? A quarter more is permitted: to count exactly
        costs as much as there are keys."""
        waiting_bytes = sum(int(table.nbytes) for table in self._waiting)
        if self._size_bytes() + waiting_bytes > size_bytes + size_bytes // 4:
            self._settle()  # some of what waits may be of the same keys
        return self._size_bytes() > size_bytes

    def __len__(self) -> int:
        """How many keys there are."""
        self._settle()
        return self._row_count()

    def of(self, keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """The greatest offset of each key; -1 for one that wasn't added, and for null."""
        self._settle()
        if len(self._tables) == 1:
            return _offsets_in(self._tables[0], keys)
        numbers = _table_numbers(keys)
        offsets = np.full(len(keys), -1, np.int64)
        for number, table in enumerate(self._tables):
            at = np.flatnonzero(numbers == number)
            offsets[at] = _offsets_in(table, keys.take(pa.array(at)))
        return offsets

    def _row_count(self) -> int:
        return sum(int(table.num_rows) for table in self._tables)

    def _size_bytes(self) -> int:
        return sum(int(table.nbytes) for table in self._tables)

    def _settle(self) -> None:
        if not self._waiting:
            return
        waiting = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        if len(self._tables) == 1 and self._size_bytes() + waiting.nbytes > _SPLIT_BYTES:
            self._tables = _split(self._tables[0])
        parts = _split(waiting) if len(self._tables) > 1 else [waiting]
        for number, part in enumerate(parts):
            self._tables[number] = _greatest(pa.concat_tables([self._tables[number], part]))


def _greatest(table: pa.Table) -> pa.Table:
    """The greatest offset of each key of a table."""
    grouped = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return pa.table({"key": grouped["key"], "offset": grouped["offset_max"]}).combine_chunks()


def _offsets_in(table: pa.Table, keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    at = pc.index_in(keys, value_set=table["key"], skip_nulls=True)
    offsets: npt.NDArray[np.int64] = pc.fill_null(pc.take(table["offset"], at), -1).to_numpy()
    return offsets


def _split(table: pa.Table) -> list[pa.Table]:
    numbers = _table_numbers(table["key"])
    return [table.filter(pa.array(numbers == number)).combine_chunks() for number in range(_TABLES)]


def _table_numbers(keys: pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """The number of the table that holds a key. It is computed from other bits of the hash than those by which it is in
    this partition of the topic."""
    hashes = [murmur2_column(chunk) for chunk in keys.chunks]
    found: npt.NDArray[np.uint32] = (np.concatenate(hashes) >> np.uint32(16)) % np.uint32(_TABLES)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of records that stay and of those that go."""

    records: int = 0
    """All."""
    superseded: int = 0
    """Dropped, as their keys came again."""
    keyless: int = 0
    """Dropped, as they have no key."""
    tombstones_dropped: int = 0
    tombstones_kept: int = 0

    @property
    def dropped(self) -> int:
        """The number of records that go, for whichever reason."""
        return self.superseded + self.keyless + self.tombstones_dropped

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            records=self.records + other.records,
            superseded=self.superseded + other.superseded,
            keyless=self.keyless + other.keyless,
            tombstones_dropped=self.tombstones_dropped + other.tombstones_dropped,
            tombstones_kept=self.tombstones_kept + other.tombstones_kept,
        )


def judge(
    records: pa.Table, offsets: npt.NDArray[np.int64], latest: LatestOffsets, *, due_tombstones_end: int
) -> tuple[Mask, Counts]:
    """Keep each record that has a key which isn't known at a greater offset, and is no tombstone that is due.

    Args:
        records: columns ``key`` and ``is_tombstone``.
        offsets: theirs.
        due_tombstones_end: tombstones below this offset go.
    Source: Kafka ``Cleaner.shouldRetainRecord``: a record without a key has no place in a compacted topic.
    """
    has_key = _mask(pc.is_valid(records["key"]))
    is_latest = has_key & (latest.of(records["key"]) <= offsets)
    tombstones = is_latest & _mask(records["is_tombstone"])
    due = tombstones & (offsets < due_tombstones_end)
    counts = Counts(
        records=records.num_rows,
        superseded=int(np.count_nonzero(has_key & ~is_latest)),
        keyless=int(np.count_nonzero(~has_key)),
        tombstones_dropped=int(np.count_nonzero(due)),
        tombstones_kept=int(np.count_nonzero(tombstones & ~due)),
    )
    return is_latest & ~due, counts


def _mask(column: pa.ChunkedArray) -> Mask:
    mask: Mask = column.to_numpy()
    return mask
