"""Records that ``send`` gathers, in pure Python: what ``sparklog/_native/core.pyx`` does where it is compiled.

Here the buffer's lock guards what the compiled core changes in one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Accumulator", "FutureBase", "Gatherer", "columns_of", "few_of", "take_columns"]

_ROW_WIDTH = 4
"""Values of a record in :attr:`Accumulator.rows`: key, value, when it was sent (ns), details or None."""


class FutureBase:
    """The attributes of a future. Whoever makes one sets them: a call of ``__init__`` is a tenth of what ``send``
    costs."""

    __slots__ = ("_batch", "_index")

    _batch: Any
    _index: int
    """The place of its record in the batch."""


class Accumulator:
    """The records of a batch."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        """``_ROW_WIDTH`` values a record, one record after the other: ``rows += …`` adds a record whole or not at all,
        whenever an interrupt comes. (A list of tuples would be as safe, and take 60 bytes more a record.)"""
        self.size_bytes = 0
        """Bytes that they count against the buffer."""
        self.room_bytes = 0
        """How large it may grow by records that ask nobody."""
        self._taken_count = 0

    @property
    def count(self) -> int:
        """Records that were added, also once they are taken."""
        return len(self.rows) // _ROW_WIDTH or self._taken_count

    def append(self, key: bytes | None, value: bytes | None, now_ns: int, details: Any, size_bytes: int) -> int | None:
        """Add a record. Returns its place; None: there is no room. The lock is held."""
        rows = self.rows
        place = len(rows) // _ROW_WIDTH
        size_after = self.size_bytes + size_bytes
        if size_after > self.room_bytes:
            return None
        self.size_bytes = size_after
        rows += (key, value, now_ns, details)  # no interrupt can part this
        return place

    def take(self) -> list[Any]:
        """The values of all records, once."""
        rows = self.rows  # an abort may drop them meanwhile
        self.drop()
        return rows

    def drop(self) -> None:
        """Give the records' memory back: nobody will take them."""
        self._taken_count = self.count
        self.room_bytes = 0
        self.rows = []


class Gatherer:
    """Adds plain records to whichever batch is open, and returns their futures."""

    def __init__(
        self, future_type: type[Any], clock: Callable[[], int], lock: threading.Lock, overhead_bytes: int
    ) -> None:
        """
        Args:
            future_type: made without arguments; a :class:`FutureBase`.
            clock: returns nanoseconds since 1970.
            lock: guards the open batch.
            overhead_bytes: that a record counts beside its key and value.
        """
        self.open: Any = None
        """The batch that records are added to, or None."""
        self.max_record_bytes = 0
        """Most bytes of key and value together."""
        self.packer: Any = None
        """Packs values that are dicts, in the compiled core alone."""
        self.overhead_bytes = overhead_bytes
        """Bytes that a record counts beside its key and value."""
        self._future_type = future_type
        self._clock = clock
        self._lock = lock

    def add_plain(self, key: object, value: object) -> Any:
        """Add a record of bytes or None, as of now. This is what ``send`` costs: every line counts.

        Returns:
            Its future; None: it is something else, or too large, or no batch is open that has room.
        """
        if type(value) is bytes and type(key) is bytes:
            size = len(value) + len(key)
        elif (value is None or type(value) is bytes) and (key is None or type(key) is bytes):
            size = (len(value) if value else 0) + (len(key) if key else 0)
        else:
            return None
        if size > self.max_record_bytes:
            return None
        size += self.overhead_bytes
        clock = self._clock
        with self._lock:
            batch = self.open
            if batch is not None:
                records = batch.records
                size_after = records.size_bytes + size
                if size_after <= records.room_bytes:
                    rows = records.rows
                    future = self._future_type()
                    future._batch = batch
                    future._index = len(rows) // _ROW_WIDTH
                    now_ns = clock()
                    records.size_bytes = size_after
                    rows += (key, value, now_ns, None)  # no interrupt can part this
                    return future
        return None

    def add_detailed(self, key: bytes | None, value: object, details: object, size: int, memory_bytes: int) -> Any:
        """Add nothing, and return None: dicts are packed by the compiled core alone."""
        return None


def take_columns(
    records: Accumulator,
) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
    """The result of :func:`columns_of` of records, which are taken."""
    return columns_of(records.take())


def columns_of(taken: list[Any]) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
    """Records that were taken: timestamps (int64 ms), keys and values (binary), the details of those that have some, by
    place; and the values that the compiled core has packed, null for all others: None here."""
    keys, values, times_ns, details = (taken[at::_ROW_WIDTH] for at in range(_ROW_WIDTH))
    given: dict[int, Any] = {}
    if details.count(None) < len(details):
        given = {index: detail for index, detail in enumerate(details) if detail is not None}
    times = pa.array(np.array(times_ns, np.int64) // 1_000_000)
    return times, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), given, None


def few_of(taken: list[Any]) -> tuple[list[int], list[bytes | None], list[bytes | None]] | None:
    """Records that were taken, a few: timestamps (ms), keys and values; None where there are none, or one is more than
    these."""
    keys, values, times_ns, details = (taken[at::_ROW_WIDTH] for at in range(_ROW_WIDTH))
    if not keys or details.count(None) < len(details):
        return None
    return [time_ns // 1_000_000 for time_ns in times_ns], keys, values
