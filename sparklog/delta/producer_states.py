"""States of producers in a checkpoint, of which there may be hundreds of thousands: who doesn't ask decodes none.

Each producer leaves a ``txn`` action (rule L7, producer state). Where there are many of them, they have the last row
group of a checkpoint for themselves, and its footer says so. Whoever loads the table keeps that row group's bytes, and
decodes them once an append, whose position was lost, asks for its own.
"""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.delta.actions import SetTransaction

__all__ = ["LEAST_STATES", "STATES_GROUP_KEY", "CheckpointStates", "states_mask"]

STATES_GROUP_KEY = b"sparklog.producer_states"
"""In the metadata of a footer: the number of the first row group that has nothing but states of producers."""
LEAST_STATES = 1_000
"""Fewer stay among the other ``txn`` actions: a row group costs some kilobytes."""
_NAME = r"^[0-9]{15,19}$"
"""Ids of producers are random numbers of 63 bits; one of ten thousand is shorter, and stays among the others."""
_IS_STATE = re.compile(_NAME)


def states_mask(transactions: pa.StructArray) -> pa.Array:
    """Which ``txn`` actions are states of producers, by their names."""
    return pc.match_substring_regex(transactions.field("appId"), _NAME)


class CheckpointStates:
    """The states of producers that a file of a checkpoint has in row groups of their own."""

    def __init__(self, data: bytes, file: pq.ParquetFile, first_group: int) -> None:
        """
        Args:
            data: all bytes of the file, of which the end is kept.
        """
        metadata = file.metadata
        self._groups = [*range(first_group, metadata.num_row_groups)]
        self.count = sum(metadata.row_group(group).num_rows for group in self._groups)
        """How many there are."""
        start = min(_start_of(metadata.row_group(group)) for group in self._groups)
        is_most = start < len(data) // 2
        self._end = _FileEnd(memoryview(data)[start:] if is_most else data[start:], start)  # to copy it takes as long
        self._decoded: pa.StructArray | None = None

    def find(self, app_id: str) -> SetTransaction | None:
        """The action with this id; None: there is none. The first call decodes all."""
        if _IS_STATE.match(app_id) is None:
            return None
        if self._decoded is None:
            file = pq.ParquetFile(pa.PythonFile(self._end, mode="r"), page_checksum_verification=True)
            found = file.read_row_groups(self._groups, columns=["txn"], use_threads=False).column(0)
            self._decoded = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
        at = pc.index(self._decoded.field("appId"), app_id).as_py()
        if at < 0:
            return None
        row = self._decoded[at].as_py()
        return SetTransaction(app_id=app_id, version=row["version"], last_updated_ms=row["lastUpdated"] or 0)


def _start_of(group: pq.RowGroupMetaData) -> int:
    columns = [group.column(number) for number in range(group.num_columns)]
    return min(int(min(one.data_page_offset, one.dictionary_page_offset or one.data_page_offset)) for one in columns)


class _FileEnd(io.RawIOBase):
    """The end of a file, in the places that it has in the whole file. What is before it, which belongs to no row group
    that is read, is zeros: Arrow reads some of it with a short footer."""

    def __init__(self, data: bytes | memoryview, start: int) -> None:
        super().__init__()
        self._data = data
        self._start = start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._start + len(self._data)}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._start + len(self._data)
        stop = end if size < 0 else min(end, self._at + size)
        zeros = bytes(max(0, min(stop, self._start) - self._at))
        found = zeros + bytes(self._data[max(0, self._at - self._start) : max(0, stop - self._start)])
        self._at += len(found)
        return found
