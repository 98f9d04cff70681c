"""Statistics of a data file's records, as its ``add`` action has them, gathered piece by piece as the file is
written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.log.data.record_reading import milliseconds
from sparklog.log.data.segments import can_format_timestamp, format_timestamp
from sparklog.log.data.value_columns import DATA, Leaf
from sparklog.log.data.value_stats import ValueStats, merged_stats

__all__ = ["FileStats"]

_NUMBERS = ("offset_delta", "producer_id", "sequence")


class FileStats:
    """Number of records, and of ``offset_delta``, ``timestamp``, ``producer_id`` and ``sequence`` the bounds and nulls.

    Timestamps are rounded down to the millisecond.
    """

    def __init__(self, values: pa.StructType | None = None, leaves: Sequence[Leaf] = ()) -> None:
        """
        Args:
            values: the type of the records' ``data``; None where they have no such column.
            leaves: those of the values that are counted.
        """
        self.record_count = 0
        self._type = values
        self._values = ValueStats(leaves)
        self._nulls = dict.fromkeys((*_NUMBERS, "timestamp"), 0)
        self._bounds: dict[str, tuple[int, int]] = {}

    def add(self, records: pa.Table) -> None:
        """Count the next records: a table with the four columns in the topic's types, and any others."""
        self.record_count += records.num_rows
        if self._type is not None:
            self._values.add(records[DATA], records.num_rows)
        for name in self._nulls:
            column = records[name]
            self._nulls[name] += column.null_count
            found = pc.min_max(milliseconds(column) if name == "timestamp" else column).as_py()
            if found["min"] is not None:
                low, high = self._bounds.get(name, (found["min"], found["max"]))
                self._bounds[name] = (min(low, found["min"]), max(high, found["max"]))

    @property
    def offset_deltas(self) -> tuple[int, int] | None:
        """The least and the greatest; None where no record has one."""
        return self._bounds.get("offset_delta")

    def to_delta(self) -> dict[str, Any]:
        """The statistics as Delta's ``add`` has them; without timestamps where one can't be a date (rule F1, foreign
        files)."""

        def side(at: int) -> dict[str, Any]:
            return {
                name: format_timestamp(bounds[at]) if name == "timestamp" else bounds[at]
                for name, bounds in self._bounds.items()
                if name != "timestamp" or all(map(can_format_timestamp, bounds))
            }

        stats = {
            "numRecords": self.record_count,
            "minValues": side(0),
            "maxValues": side(1),
            "nullCount": dict(self._nulls),
        }
        return stats if self._type is None else merged_stats(stats, self._values.to_delta(self._type))
