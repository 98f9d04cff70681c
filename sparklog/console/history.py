"""How figures moved over the looks of one process: for small lines beside numbers. Kept in memory alone."""

from __future__ import annotations

from array import array
from itertools import pairwise

from sparklog.observe import ClusterFigures

__all__ = ["History"]

_MOST_LOOKS = 120


class History:
    """Lag of groups and log ends of topics, look by look. One thread adds, others read."""

    def __init__(self) -> None:
        self.before: ClusterFigures | None = None
        """The figures of the look before the newest."""
        self._newest: ClusterFigures | None = None
        self._lags: dict[str, tuple[array[float], array[float]]] = {}
        self._ends: dict[str, tuple[array[float], array[float]]] = {}

    def add(self, figures: ClusterFigures) -> None:
        """Keep what a look has found, and forget topics and groups that are gone."""
        lags = {one.group_id: float(sum(part.lag for part in one.partitions)) for one in figures.groups}
        ends = {
            f"{one.topic_id} {one.name}": float(sum(part.log_end_offset for part in one.partitions))
            for one in figures.topics
        }
        self._lags = {name: _longer(self._lags.get(name), figures.now_ms, lag) for name, lag in lags.items()}
        self._ends = {name: _longer(self._ends.get(name), figures.now_ms, end) for name, end in ends.items()}
        self.before, self._newest = self._newest, figures

    def lags(self, group: str) -> list[tuple[float, float]]:
        """Time (ms since the epoch) and lag in records, oldest first."""
        return _pairs(self._lags.get(group))

    def rates(self, topic_id: str, name: str) -> list[tuple[float, float]]:
        """Time (ms since the epoch) and records a second since the look before, oldest first."""
        points = _pairs(self._ends.get(f"{topic_id} {name}"))
        return [
            (now_ms, (end - before_end) / ((now_ms - before_ms) / 1_000))
            for (before_ms, before_end), (now_ms, end) in pairwise(points)
            if now_ms > before_ms
        ]


def _longer(
    known: tuple[array[float], array[float]] | None, now_ms: float, value: float
) -> tuple[array[float], array[float]]:
    times, values = known or (array("d"), array("d"))
    return (
        array("d", [*times[1 - _MOST_LOOKS :], now_ms]),
        array("d", [*values[1 - _MOST_LOOKS :], value]),
    )


def _pairs(known: tuple[array[float], array[float]] | None) -> list[tuple[float, float]]:
    return [] if known is None else list(zip(*known, strict=True))
