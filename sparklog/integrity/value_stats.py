"""The statistics of a typed topic's values, as the log has them: do the rows of a file contradict them? Engines skip a
file by them, and would leave out records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import load_snapshot
from sparklog.iso_times import parse_date
from sparklog.log.data.segments import parse_timestamp
from sparklog.log.data.value_columns import DATA, Leaf, leaf_name, leaves_of
from sparklog.log.data.value_stats import ValueStats
from sparklog.log.head import TopicHead

__all__ = ["LoggedValues", "contradictions"]

_EPOCH = date(1970, 1, 1)
_SURE_DIGITS = 15
"""A number of JSON with more digits isn't exact once Python has read it as a float. Source: IEEE 754, ``DBL_DIG``."""

Side = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedValues:
    """The statistics of the values of a typed topic's files."""

    type: pa.StructType
    """The type of the column ``data``."""
    stats: Mapping[str, Mapping[str, Any]]
    """By path, as in the log."""

    @classmethod
    def load(cls, log: DeltaLog, head: TopicHead) -> LoggedValues | None:
        """Load the topic's table; None for an untyped topic. Raises as
        :func:`~sparklog.delta.snapshot.load_snapshot`."""
        snapshot = load_snapshot(log) if head.values is not None else None
        if head.values is None or snapshot is None:
            return None
        found: dict[str, Mapping[str, Any]] = {}
        files = snapshot.files
        for batch in files.select(["path", "stats"]).to_batches() if files is not None else ():
            for path, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if text:
                    found[path] = json.loads(text)
        for entry in snapshot.tail:
            for action in entry.actions:
                if isinstance(action, AddFile):
                    found[action.path] = action.stats or {}
        return cls(type=head.values, stats=found)

    def leaves(self, path: str) -> dict[Leaf, pa.DataType]:
        """The leaves that the log has statistics of, and their types, in one file."""
        sides = self.sides(path)
        return {leaf: kind for leaf, kind in leaves_of(self.type) if any(_has(side, leaf) for side in sides)}

    def sides(self, path: str) -> tuple[Side, Side, Side]:
        stats = self.stats.get(path, {})
        sides = (stats.get(side) for side in ("minValues", "maxValues", "nullCount"))
        low, high, nulls = (side.get(DATA) if isinstance(side, dict) else None for side in sides)
        return low or {}, high or {}, nulls or {}


def contradictions(logged: LoggedValues, path: str, seen: ValueStats) -> Iterator[tuple[str, str]]:
    """The contradictions between the rows of a file and what the log says of it.

    Bounds may be wider than the values: engines cut texts and times.
    """
    low, high, nulls = logged.sides(path)
    for leaf, kind in logged.leaves(path).items():
        null_count, bounds = seen.facts(leaf)
        name = leaf_name(leaf)
        if _has(nulls, leaf) and _get(nulls, leaf) != null_count:
            yield f"{null_count} nulls of {name}", f"{_get(nulls, leaf)}"
        if bounds is None:
            continue
        least, greatest = (_number(_get(side, leaf), kind) for side in (low, high))
        if least is not None and bounds[0] < least:
            yield f"{name} from {_shown(bounds[0], kind)} on", f"from {_get(low, leaf)} on"
        if greatest is not None and bounds[1] > greatest + _slack(kind):
            yield f"{name} up to {_shown(bounds[1], kind)}", f"up to {_get(high, leaf)}"


def _has(side: Side, leaf: Leaf) -> bool:
    return _get(side, leaf) is not None


def _get(side: Any, leaf: Leaf) -> Any:
    for name in leaf:
        if not isinstance(side, Mapping):
            return None
        side = side.get(name)
    return side


def _number(logged: Any, kind: pa.DataType) -> Any:
    """A bound as :class:`ValueStats` has it; None where there is none, or it isn't exact."""
    try:
        if logged is None or pa.types.is_string(kind):
            return logged if isinstance(logged, str) else None
        if pa.types.is_timestamp(kind):
            return parse_timestamp(str(logged)) * 1000
        if pa.types.is_date(kind):
            return (parse_date(str(logged)) - _EPOCH).days
        if pa.types.is_float32(kind):
            return float(np.float32(logged))
        if pa.types.is_decimal(kind):
            found = Decimal(repr(logged))
            return found if isinstance(logged, int) or len(found.as_tuple().digits) <= _SURE_DIGITS else None
        return logged if isinstance(logged, int | float) else None
    except (TypeError, ValueError, ArithmeticError):
        return None


def _slack(kind: pa.DataType) -> Any:
    """How much a value may be above its maximum: times are cut at milliseconds. Source: Delta protocol, "Per-file
    Statistics"."""
    if pa.types.is_string(kind):
        return ""
    return 999 if pa.types.is_timestamp(kind) else 0


def _shown(bound: Any, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"{bound} µs"
    return f"day {bound}" if pa.types.is_date(kind) else repr(bound)
