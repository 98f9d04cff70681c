"""The thread that runs a member's heartbeat rounds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sparklog.errors import SparklogError
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.membership import Membership
from sparklog.logs import about
from sparklog.workers import RestartableWorker, error_for_another_thread

__all__ = ["HeartbeatThread"]

_LOGGER = logging.getLogger("sparklog.groups")
_RETRY_MS = 1_000.0


class HeartbeatThread:
    """Runs one heartbeat round after the other until it is stopped; at once when it is woken.

    Args:
        on_heartbeat: called after each round in which the others could see that the member lives.
    """

    def __init__(self, rounds: HeartbeatRounds, membership: Membership, *, on_heartbeat: Callable[[], object]) -> None:
        self._rounds = rounds
        self._membership = membership
        self._on_heartbeat = on_heartbeat
        self._lock = threading.RLock()
        """Taken as it is: ``with`` a condition, an interrupt could leave it held."""
        self._condition = threading.Condition(self._lock)
        self._is_woken = False
        self._is_stopped = False
        self._worker = RestartableWorker("heartbeat", self._run)

    @property
    def is_running(self) -> bool:
        """Was it started, and not ended by what is no ``Exception``, or by a defect?"""
        return self._worker.is_running

    def start(self) -> None:
        """Begin, or begin anew, unless it is running. Raises ``RuntimeError`` where no thread can be started."""
        self._worker.start()

    def wake(self) -> None:
        """Do a round at once. From any thread."""
        with self._lock:
            self._is_woken = True
            self._condition.notify()

    def stop(self) -> None:
        """End as soon as the current round is done. From any thread."""
        with self._lock:
            self._is_stopped = True
            self._condition.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended after it was stopped. True: it has."""
        return self._worker.join(timeout_s)

    def _run(self) -> None:
        try:
            self._do_rounds()
        except BaseException as error:  # a library's panic, say: the next poll raises it, and the one after begins anew
            self._membership.fail(error_for_another_thread(error))
            self._worker.note_failure()

    def _do_rounds(self) -> None:
        while not self._is_stopped:
            wait_ms = self._run_round()
            with self._lock:
                if not (self._is_woken or self._is_stopped):
                    self._condition.wait(wait_ms / 1_000)
                self._is_woken = False

    def _run_round(self) -> float:
        interval_ms = float(self._membership.settings.heartbeat_interval_ms)
        try:
            wait_ms = self._rounds.run_round()
            if self._membership.member_id:
                self._on_heartbeat()
            return wait_ms
        except SparklogError as error:
            # One failed heartbeat is nothing: the session goes on, and ends by itself where this lasts.
            group = self._membership.settings.group_id
            _LOGGER.info("group %s: a round failed: %s", group, error, extra=about(group=group))
            if not error.retriable:
                self._membership.fail(error)
        except Exception as error:  # of an assignor that isn't ours; the application's next poll raises it
            self._membership.fail(error)
        return min(interval_ms, _RETRY_MS)
