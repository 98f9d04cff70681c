"""What a writer does for its topic beside its own work: checkpoints in the background (design section 4, rule L11)."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from sparklog.delta.checkpoint import checkpoint_due, checkpoint_threshold, write_checkpoint
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.log.sequencing import sequence_topic
from sparklog.log.state import TopicState

__all__ = ["Checkpoints"]

_LOGGER = logging.getLogger(__name__)
_MAX_DELAY_MS = 500.0
_REST = 20
"""After a checkpoint a writer rests for so many times as long as it took: however fast it commits, checkpoints take a
small part of its time …"""
_MAX_LATE = 10
"""… but for no more than so many times the versions after which one is due."""


class Checkpoints:
    """Writes a topic's checkpoints when they are due, one at a time, away from the caller's thread.

    A checkpoint that fails is logged and tried again when the next is due: it only makes opening slower.
    """

    def __init__(
        self, *, run: Callable[[Callable[[], None]], None] | None = None, max_delay_ms: float = _MAX_DELAY_MS
    ) -> None:
        """
        Args:
            run: starts the work; by default in a thread of its own.
            max_delay_ms: the longest random wait before the work, so that several writers don't do it at once.
        """
        self._run = run or self._in_thread
        self._max_delay_ms = max_delay_ms
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known_version = -1
        self._rest_until_ticks_ms = 0.0

    def after_commit(self, state: TopicState) -> None:
        """Start a checkpoint if this process's newest commit made one due. Costs no store call when it didn't."""
        known = max(state.checkpoint_version, self._known_version)
        version, live = state.position.version, state.head.live_file_count
        if not checkpoint_due(version=version, checkpoint_version=known, live_file_count=live):
            return
        is_resting = state.log.clock.ticks_ms() < self._rest_until_ticks_ms
        if is_resting and version - known < _MAX_LATE * checkpoint_threshold(live):
            return
        if self._busy.acquire(blocking=False):
            log, unsequenced = state.log, state.head.unsequenced_count > 0
            try:
                self._run(lambda: self._work(log, version, live, sequence_first=unsequenced))
            except RuntimeError as error:  # no more threads, or the interpreter is shutting down
                self._busy.release()
                _LOGGER.warning("checkpoint of %s can't be started: %s", log.table, error)

    def close(self, timeout_ms: float = 60_000) -> None:
        """Wait for a checkpoint that is under way."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="sparklog-checkpoint", daemon=True)
        thread.start()
        self._thread = thread  # only one that was started can be joined

    def _work(self, log: DeltaLog, version: int, live: int, *, sequence_first: bool) -> None:
        try:
            log.clock.sleep_ms(random.uniform(0, self._max_delay_ms))  # noqa: S311 - spreads writers, no secret
            began = log.clock.ticks_ms()
            self._known_version = read_hint(log)
            if checkpoint_due(version=version, checkpoint_version=self._known_version, live_file_count=live):
                if sequence_first:  # rule F2: a checkpoint forgets the order of foreign commits
                    sequence_topic(log)
                self._known_version = write_checkpoint(log) or self._known_version
                ended = log.clock.ticks_ms()
                self._rest_until_ticks_ms = ended + _REST * (ended - began)
        except Exception as error:  # nobody waits for this thread: whatever it is, it is told and tried again later
            _LOGGER.warning("checkpoint of %s failed, opening it stays slower until the next: %s", log.table, error)
        finally:
            self._busy.release()
