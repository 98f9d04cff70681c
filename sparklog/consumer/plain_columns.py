"""Columns of plain records as the compiled core takes them, looked up once for all parts of a batch: to slice a batch,
and to ask its columns for their buffers, takes ten microseconds, as long as to make seventy records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparklog._native import CORE
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.few_rows import FewRows, Rows

__all__ = ["PlainColumns"]

_COLUMNS = 5
"""Offset, timestamp, key, value, headers: a typed topic's records have more."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainColumns:
    """The columns of a batch in which no record has headers."""

    offsets: npt.NDArray[np.int64]
    places: tuple[tuple[Any, ...], ...]
    """The buffers of offsets, timestamps, keys and values, each with the place of its first value in them."""

    @classmethod
    def of(cls, rows: Rows) -> PlainColumns | None:
        """The columns of a batch; None: its records have headers or are none, or something else makes them."""
        if isinstance(rows, CopiedRows):
            return cls(*rows.places())
        if CORE is None or isinstance(rows, FewRows) or rows.num_columns != _COLUMNS:
            return None
        count, (*columns, headers) = rows.num_rows, rows.columns
        if not count or headers.null_count < count:
            return None
        places = tuple((*column.buffers(), column.offset) for column in columns)
        first = columns[0].offset
        return cls(np.frombuffer(places[0][1], np.int64, count=first + count)[first:], places)

    def from_row(self, start: int) -> tuple[tuple[Any, ...], ...]:
        """The columns from a row on."""
        return tuple((*column[:-1], column[-1] + start) for column in self.places)
