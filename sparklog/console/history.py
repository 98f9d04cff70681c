"""How figures moved over the looks of one process: for small lines beside numbers. Kept in memory alone."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping
from itertools import pairwise

from sparklog.observe import ClusterFigures
from sparklog.observe.spending import DAY_MS, heartbeats_a_day, look_requests, written_between
from sparklog.prices import Requests

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
        self._written: deque[tuple[float, Mapping[str, Requests]]] = deque(maxlen=_MOST_LOOKS)
        """Between two looks each: how long that was, ms, and the requests by what they were for."""

    def add(self, figures: ClusterFigures) -> None:
        """Keep what a look has found, and forget topics and groups that are gone."""
        lags = {one.group_id: float(sum(part.lag for part in one.partitions)) for one in figures.groups}
        ends = {
            f"{one.topic_id} {one.name}": float(sum(part.log_end_offset for part in one.partitions))
            for one in figures.topics
        }
        self._lags = {name: _longer(self._lags.get(name), figures.now_ms, lag) for name, lag in lags.items()}
        self._ends = {name: _longer(self._ends.get(name), figures.now_ms, end) for name, end in ends.items()}
        if self._newest is not None and figures.now_ms > self._newest.now_ms:
            self._written.append((figures.now_ms - self._newest.now_ms, written_between(self._newest, figures)))
        self.before, self._newest = self._newest, figures

    def requests_a_day(self, figures: ClusterFigures, *, interval_ms: float) -> tuple[dict[str, Requests], float]:
        """Requests a day by what they are for, as the looks so far show them, and over how many ms these were; nothing
        before the second look.

        Args:
            interval_ms: between two looks of this console.
        """
        written = [*self._written]
        elapsed_ms = sum(took_ms for took_ms, _ in written)
        if not elapsed_ms:
            return {}, 0.0
        rows: dict[str, Requests] = {}
        for _, found in written:
            for name, requests in found.items():
                rows[name] = rows.get(name, Requests()).plus(requests)
        return {
            **{name: requests.times(DAY_MS / elapsed_ms) for name, requests in rows.items()},
            "heartbeats of members": heartbeats_a_day(figures),
            "looks of this console": look_requests(figures).times(DAY_MS / interval_ms),
        }, elapsed_ms

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
