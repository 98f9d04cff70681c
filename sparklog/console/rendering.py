"""Pages from templates. Whatever a record, a name or an error holds is escaped: the environment does it for all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sparklog.compaction.last_runs import words

__all__ = ["ENVIRONMENT", "STATIC", "sparkline"]

STATIC = Path(__file__).parent / "static"
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
_AGES = (("d", 86_400), ("h", 3_600), ("min", 60))
_WIDTH, _HEIGHT = 90, 20
NOTHING = "–"


def _count(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _size(size_bytes: int | None) -> str:
    if size_bytes is None or size_bytes < 0:
        return NOTHING
    return next((f"{size_bytes / unit:.1f} {name}" for name, unit in _UNITS if size_bytes >= unit), f"{size_bytes} B")


def _duration(duration_ms: float | None) -> str:
    if duration_ms is None:
        return NOTHING
    seconds = duration_ms / 1_000
    if seconds <= -1:  # somebody's clock goes before ours
        return f"{_duration(-duration_ms)} ahead"
    seconds = max(0.0, seconds)
    for name, unit in _AGES:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _ago(age_ms: float | None) -> str:
    if age_ms is not None and age_ms <= -1_000:  # by a clock that goes before ours, or forged
        return f"{_duration(-age_ms)} ahead of this clock"
    return NOTHING if age_ms is None else f"{_duration(age_ms)} ago"


def _dollars(amount: float) -> str:
    return "less than $0.01" if 0 < amount < 0.01 else f"${amount:,.2f}"


def _time(time_ms: int | None) -> str:
    if time_ms is None or time_ms < 0:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1_000:03d}Z"


def _retention(retention_ms: int) -> str:
    return "for ever" if retention_ms < 0 else _duration(retention_ms)


def _topic_url(topic: str, rest: str = "", **query: object) -> str:
    return _with_query(f"/topics/{quote(topic, safe='')}{rest}", query)


def _named_url(page: str, name: str, **query: object) -> str:
    return _with_query(page, {"id": name, **query})


def _with_query(path: str, query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def sparkline(points: Sequence[tuple[float, float]]) -> str:
    """The points of a line in a field of 90 by 20, as SVG's ``polyline`` has them; empty for fewer than two."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1.0
    width = (last - first) or 1.0
    return " ".join(
        f"{(at - first) / width * _WIDTH:.1f},{_HEIGHT - 1 - max(0.0, value) / top * (_HEIGHT - 2):.1f}"
        for at, value in points
    )


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "count": _count,
        "size": _size,
        "duration": _duration,
        "ago": _ago,
        "time": _time,
        "retention": _retention,
        "dollars": _dollars,
        "sparkline": sparkline,
        "words": words,
    }
    found.globals |= {"topic_url": _topic_url, "named_url": _named_url, "with_query": _with_query}
    return found


ENVIRONMENT: Any = _environment()
"""The templates of all pages."""
