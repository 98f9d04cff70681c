"""A thread that reads a cluster periodically, so that displays of figures never wait for the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError
from sparklog.interrupts import EventCount
from sparklog.observe.cluster_watch import ClusterWatch
from sparklog.observe.figures import ClusterFigures
from sparklog.storage.request_counts import RequestCount, silent_ms
from sparklog.workers import Worker, error_for_another_thread

__all__ = ["WatchStatus", "Watching"]

_LOGGER = logging.getLogger("sparklog.observe")
_STALE_INTERVALS = 4
_LEAST_STALE_MS = 120_000.0
_SILENT_INTERVALS = 2
_LEAST_SILENT_MS = 5_000.0
_LONGEST_LOOK_MS = 900_000.0
"""The first look at very many topics takes minutes; one that takes longer hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """The state of a thread that looks, as of one moment."""

    figures: ClusterFigures | None
    """Found by the newest look that succeeded; None before the first."""
    error: Exception | None
    """Why the newest look failed; None where it didn't."""
    age_ms: float | None
    """How long ago the newest look ended that succeeded; None before the first."""
    is_alive: bool
    """Does the thread go on? A look that takes more than a quarter of an hour hangs."""
    is_fresh: bool
    """Are its figures not too old? Too old is more than four intervals, two minutes at least."""
    look_count: int
    failed_count: int
    part: ClusterFigures | None = None
    """Found by the first look, while that is under way; None before, after it, and where it wasn't requested."""
    asked: Mapping[str, RequestCount] = field(default_factory=dict)
    """Requests to the store by their kind, of all that use the cluster in this process; empty before the first look."""
    is_silent: bool = False
    """Has the store answered no call for two intervals, five seconds at least, though it was asked?"""

    @property
    def is_up(self) -> bool:
        """Did the newest look succeed, and does the store answer since?"""
        return self.error is None and self.figures is not None and not self.is_silent


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    figures: ClusterFigures | None = None
    error: Exception | None = None
    active_ticks_ms: float
    looked_ticks_ms: float | None = None
    look_count: int = 0
    failed_count: int = 0
    part: ClusterFigures | None = None


class Watching:
    """Looks at a cluster at intervals, in a thread of its own. Other methods may be called by any thread."""

    def __init__(
        self,
        open_watch: Callable[[], ClusterWatch],
        *,
        interval_ms: float,
        on_figures: Callable[[ClusterFigures], object] = lambda figures: None,
        on_part: Callable[[WatchStatus], object] = lambda status: None,
        tells_parts: bool = False,
        most_looks: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Starts nothing.

        Args:
            open_watch: called at the first look, and again as long as it fails.
            interval_ms: from the beginning of one look to that of the next.
            on_figures: called in the thread with what each look finds, before anybody else sees it.
            on_part: called in the thread when the first look has a part of its figures.
            tells_parts: publish parts of the figures while the first look is under way.
            most_looks: the thread ends after so many; None: once it is stopped.
        """
        self._open_watch = open_watch
        self._interval_ms = interval_ms
        self._on_figures = on_figures
        self._on_part = on_part
        self._tells_parts = tells_parts
        self._most_looks = most_looks
        self._clock = clock or SystemClock()
        self._watch: ClusterWatch | None = None
        self._state = _State(active_ticks_ms=self._clock.ticks_ms())
        self._is_stopped = False
        self._changed = EventCount()
        self._worker = Worker("watch", self._run)

    def start(self) -> None:
        """Begin, once."""
        self._worker.start()

    def stop(self, timeout_s: float | None = 5.0) -> None:
        """End; waits for a look that is under way, within the bound."""
        self._is_stopped = True
        self._changed.notify_all()
        self._worker.join(timeout_s)

    def wait_for_look(self, timeout_s: float | None, *, beyond: int = 0) -> bool:
        """Wait until more than ``beyond`` looks have ended. False: not within the time, or it was stopped before."""
        self._changed.wait_for(lambda: self._is_stopped or self._state.look_count > beyond, timeout_s)
        return self._state.look_count > beyond

    def wait_for_anything(self, timeout_s: float | None, *, first_page: bool = False) -> None:
        """Wait until there is a part, figures, or an error; until it is stopped, or for as
        long.

        Args:
            first_page: of a part, wait for all that an overview shows first.
        """

        def is_there() -> bool:
            state = self._state
            is_told = state.part is not None and (state.part.is_first_page_whole or not first_page)
            return self._is_stopped or state.look_count > 0 or is_told

        self._changed.wait_for(is_there, timeout_s)

    def status(self) -> WatchStatus:
        """The state as of now. Calls no store."""
        state, now = self._state, self._clock.ticks_ms()
        stale_ms = max(_LEAST_STALE_MS, _STALE_INTERVALS * self._interval_ms)
        age_ms = None if state.looked_ticks_ms is None else now - state.looked_ticks_ms
        asked = None if self._watch is None else self._watch.asked
        silence_ms = 0.0 if asked is None else silent_ms(asked.activity(), since_ms=0.0, now_ms=now)
        return WatchStatus(
            figures=state.figures,
            error=state.error,
            age_ms=age_ms,
            is_alive=not self._is_stopped and now - state.active_ticks_ms <= self._interval_ms + _LONGEST_LOOK_MS,
            is_fresh=age_ms is not None and age_ms <= stale_ms,
            look_count=state.look_count,
            failed_count=state.failed_count,
            part=state.part,
            asked={} if asked is None else asked.by_kind(),
            is_silent=silence_ms >= max(_LEAST_SILENT_MS, _SILENT_INTERVALS * self._interval_ms),
        )

    def look(self) -> None:
        """Look once, in the caller's thread: as the thread does repeatedly. Raises nothing: the status has errors."""
        before = self._state
        figures: ClusterFigures | None = None
        error: Exception | None = None
        try:
            if self._watch is None:
                self._watch = self._open_watch()
            figures = self._watch.look(on_part=self._tell_part) if self._tells_parts else self._watch.look()
            self._on_figures(figures)
        except SparklogError as caught:
            if before.error is None:
                _LOGGER.warning("the cluster can't be read: %s", caught)
            error = caught.with_traceback(None)
        except BaseException as caught:  # the thread goes on: what it shows is marked as old
            if not (self._worker.is_current or isinstance(caught, Exception)):
                raise  # of the caller: an interrupt
            _LOGGER.exception("reading the cluster failed unexpectedly")
            error = error_for_another_thread(caught).with_traceback(None)
        now = self._clock.ticks_ms()
        self._state = _State(
            figures=before.figures if error is not None else figures,
            error=error,
            active_ticks_ms=now,
            looked_ticks_ms=before.looked_ticks_ms if error is not None else now,
            look_count=before.look_count + 1,
            failed_count=before.failed_count + (error is not None),
            part=self._state.part if error is not None else None,
        )
        self._changed.notify_all()

    def _tell_part(self, part: ClusterFigures) -> None:
        self._state = replace(self._state, part=part)
        self._changed.notify_all()
        self._on_part(self.status())

    def _run(self) -> None:
        while not self._is_stopped:
            began = self._clock.ticks_ms()
            self.look()
            if self._state.look_count == self._most_looks:
                return
            left_ms = self._interval_ms - (self._clock.ticks_ms() - began)
            self._changed.wait_for(lambda: self._is_stopped, max(0.0, left_ms) / 1_000)
