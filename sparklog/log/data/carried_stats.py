"""Statistics of values that a data file carries in its own footer, for whoever publishes the file without having read
its records (rule L14, announced uploads). Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import DATA, Leaf

__all__ = ["STATS_KEY", "carried_stats", "footer_entry"]

STATS_KEY = b"sparklog.value.stats"
"""The key in the footer's metadata."""
_MOST_BYTES = 64 * 1024
_MOST_CHARACTERS = 64
"""The longest text that is a bound: an owner cuts texts at 32, and a time has fewer than 30."""
_SIDES = ("minValues", "maxValues", "nullCount")


def footer_entry(value_stats: Mapping[str, Mapping[str, Any]]) -> dict[bytes, bytes]:
    """The entry of a file's footer for statistics as Delta has them; empty where there are none, or too many."""
    text = json.dumps(value_stats, separators=(",", ":")).encode()
    return {STATS_KEY: text} if value_stats and len(text) <= _MOST_BYTES else {}


def carried_stats(
    metadata: Mapping[bytes, bytes] | None, leaves: Sequence[tuple[Leaf, pa.DataType]], record_count: int
) -> dict[str, dict[str, Any]]:
    """The statistics that a footer carries, as far as they are sound, whoever wrote it: of these leaves, each bound of
    its leaf's type, the least not above the greatest, and not more nulls than records. Of all else nothing is taken.

    Args:
        metadata: of the file's footer.
        leaves: the indexed ones, with their types.
    """
    text = (metadata or {}).get(STATS_KEY, b"")
    if not 0 < len(text) <= _MOST_BYTES:
        return {}
    try:
        given = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {}
    stated = {side: _part(_part(given, side), DATA) for side in _SIDES}
    found: dict[str, dict[str, Any]] = {side: {} for side in _SIDES}
    bounded = {leaf for leaf, low, high in value_bounds(_part(given, None), leaves) if _are_in_order(low, high)}
    for leaf, _ in leaves:
        low, high, nulls = (_at(stated[side], leaf) for side in _SIDES)
        if type(nulls) is int and 0 <= nulls <= record_count:
            _put(found["nullCount"], leaf, nulls)
            if leaf in bounded and nulls < record_count and _is_plain(low) and _is_plain(high):
                _put(found["minValues"], leaf, low)
                _put(found["maxValues"], leaf, high)
    return {side: {DATA: of_leaves} for side, of_leaves in found.items() if of_leaves}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no bound")


def _part(given: Any, name: str | None) -> Mapping[str, Any]:
    part = given.get(name) if name is not None and isinstance(given, Mapping) else given
    return part if isinstance(part, Mapping) else {}


def _at(given: Any, leaf: Leaf) -> Any:
    for name in leaf:
        given = given.get(name) if isinstance(given, Mapping) else None
    return given


def _put(into: dict[str, Any], leaf: Leaf, value: Any) -> None:
    for name in leaf[:-1]:
        into = into.setdefault(name, {})
    into[leaf[-1]] = value


def _is_plain(bound: Any) -> bool:
    """May a commit have it as it is? JSON has no infinity, which Python reads from ``1e999``."""
    return len(bound) <= _MOST_CHARACTERS if isinstance(bound, str) else math.isfinite(bound)


def _are_in_order(low: pa.Scalar | None, high: pa.Scalar | None) -> bool:
    if low is None or high is None:
        return False
    if pa.types.is_timestamp(low.type):  # the last millisecond that Python has, rounded up, is none that it has
        return bool(low.value <= high.value)
    return bool(low.as_py() <= high.as_py())
