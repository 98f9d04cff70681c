"""The fetcher's thread: it runs fetch rounds, and waits while there is nothing to do."""

from __future__ import annotations

from sparklog.clock import Clock
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.fetcher import Fetcher
from sparklog.workers import RestartableWorker, error_for_another_thread

__all__ = ["FetcherThread"]

_ABSENT_MS = 1_000.0
"""A consumer that hasn't polled for so long is busy: nothing new is looked for until it comes back."""


class FetcherThread:
    """Runs a fetcher's rounds until it is stopped."""

    def __init__(self, fetcher: Fetcher, fetch_state: FetchState, clock: Clock) -> None:
        self._fetcher = fetcher
        self._fetch_state = fetch_state
        self._clock = clock
        self._worker = RestartableWorker("fetcher", self._run)

    @property
    def is_running(self) -> bool:
        """Was it started, and not ended by what is no ``Exception``, or by a defect?"""
        return self._worker.is_running

    def start(self) -> None:
        """Begin, or begin anew, unless it is running. Raises ``RuntimeError`` where no thread can be started."""
        self._worker.start()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended after it was stopped. True: it has."""
        return self._worker.join(timeout_s)

    def _run(self) -> None:
        try:
            self._do_rounds()
        except BaseException as error:  # a library's panic, say: a poll raises it, none waits for records in vain
            with self._fetch_state.lock:
                self._fetch_state.errors[""] = error_for_another_thread(error)
                self._fetch_state.notify()
                self._worker.note_failure()
            return
        self._fetcher.close()

    def _do_rounds(self) -> None:
        fetch_state = self._fetch_state
        until_ticks_ms = self._clock.ticks_ms()
        while not fetch_state.is_stopped:
            try:
                is_busy = self._fetcher.round(until_ticks_ms)
            except Exception as error:
                is_busy = False
                with fetch_state.lock:
                    fetch_state.errors[""] = error
                    fetch_state.notify()
            with fetch_state.lock:
                is_idle = not is_busy or "" in fetch_state.errors
                until_ticks_ms = self._rest() if is_idle else self._clock.ticks_ms()

    def _rest(self) -> float:
        """Wait until there is something to do. Under the lock.

        Returns:
            The time by which topics must be due to be looked at now. It may lie ahead of the fetcher's clock: this
            waits by the machine's, and that one need not have come as far.
        """
        fetch_state, fetcher = self._fetch_state, self._fetcher
        while not fetch_state.is_stopped and ("" in fetch_state.errors or not fetcher.has_news):
            now = self._clock.ticks_ms()
            is_absent = not fetch_state.waits and now - fetch_state.last_wait_ticks_ms > _ABSENT_MS
            if is_absent or not fetcher.has_work:
                fetch_state.is_parked = True
                fetch_state.fetcher_condition.wait()
                fetch_state.is_parked = False
                continue
            due = fetcher.next_due_ticks_ms()
            if due <= now or fetcher.has_announced:
                return now
            fetch_state.is_waiting_for_room = fetcher.is_limited
            was_notified = fetch_state.fetcher_condition.wait((due - now) / 1000)
            fetch_state.is_waiting_for_room = False
            if not was_notified:
                return max(due, self._clock.ticks_ms())
        return self._clock.ticks_ms()
