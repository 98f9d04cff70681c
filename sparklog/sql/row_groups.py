"""Which row groups of a file a filter rules out, by the bounds in the file's footer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.sql.file_bounds import between, not_ruled_out

__all__ = ["groups_to_read"]


def groups_to_read(metadata: Any, schema: pa.Schema, filter: Any, columns: Mapping[str, str]) -> list[int]:
    """The numbers of the row groups that may have rows for which the filter holds.

    Args:
        metadata: the file's footer.
        schema: of the columns, at least those of the filter.
        filter: an expression; None for all.
        columns: the name of the column that each path of a leaf in the file is.
    """
    numbers = list(range(metadata.num_row_groups))
    if filter is None or len(numbers) < 2 or not columns:
        return numbers
    known = [_known(metadata.row_group(number), schema, columns) for number in numbers]
    return not_ruled_out(known, schema, filter)


def _known(group: Any, schema: pa.Schema, columns: Mapping[str, str]) -> Any:
    """An expression of what holds for every row of a row group."""
    known = pc.scalar(True)
    for number in range(group.num_columns):
        chunk = group.column(number)
        name = columns.get(chunk.path_in_schema)
        statistics = chunk.statistics
        if name is None or statistics is None or not statistics.has_min_max:
            continue
        low, high = (_scalar(bound, schema.field(name).type) for bound in (statistics.min, statistics.max))
        known &= between(ds.field(name), low, high)
    return known


def _scalar(bound: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A bound as a scalar of the column's type; None where it has another, as in files of some writers."""
    try:
        return pa.scalar(bound, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
