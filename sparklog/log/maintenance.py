"""What a client does for its topics beside its own work, in the background: checkpoints (design section 4, rule L11),
and offsets for what other engines wrote without (rule F2)."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparklog.delta.checkpoint import checkpoint_due, checkpoint_threshold, write_next_checkpoint
from sparklog.delta.listing import CheckpointHint, read_checkpoint_hint
from sparklog.delta.log import DeltaLog
from sparklog.log.sequencing import sequence_state, sequence_topic
from sparklog.log.state import TopicState, load_state, open_state

__all__ = ["Checkpoints", "Sequencing"]

_LOGGER = logging.getLogger(__name__)
_MAX_DELAY_MS = 500.0
_REST = 4
"""After a checkpoint a writer rests for so many times as long as it took: however fast it commits, checkpoints take a
small part of its time …"""
_MAX_LATE = 1.5
"""… but for no more than so many times the versions after which one is due: at twice as many the next is there."""
_MAX_FAILURES = 5
"""After so many failures in a row nobody tries again until the next commit that makes a checkpoint due."""
_MAX_SEQUENCING_DELAY_MS = 1_000.0
_FILES_PER_DELAY = 20_000
_FAILURE_REST_MS, _LONGEST_FAILURE_REST_MS = 1_000.0, 300_000.0
_REFUSAL_REST_MS, _LONGEST_REFUSAL_REST_MS = 60_000.0, 3_600_000.0
_MAX_STREAK = 12

Run = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Committed:
    """What a process knows of a topic after its newest commit."""

    log: DeltaLog
    version: int
    checkpoint_version: int
    """The newest checkpoint as its state knows it; -1 for none."""
    live_file_count: int
    has_unsequenced: bool


class Checkpoints:
    """Writes a topic's checkpoints when they are due, one at a time, away from the caller's thread.

    After a checkpoint it rests, so that a fast writer doesn't spend its time on them, but no longer than until half as
    many versions more follow as make one due. What became due meanwhile is written after the rest, also if nobody
    commits any more, and by :meth:`close`. So whoever stops leaves at most twice as many versions behind.

    A checkpoint that fails is logged and tried again: it only makes opening slower.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_DELAY_MS) -> None:
        """
        Args:
            run: starts the work, which then doesn't wait for what becomes due later; by default a thread that does.
            max_delay_ms: the longest random wait before the work, so that several writers don't do it at once.
        """
        self._background = _Background("sparklog-checkpoint", run)
        self._stays = run is None
        self._max_delay_ms = max_delay_ms
        self._newest: _Committed | None = None
        self._known = CheckpointHint()
        """The newest checkpoint that this process has seen or written."""
        self._rest_until_ticks_ms = 0.0
        self._is_closing = False
        self._woken = threading.Event()
        """Ends the rest."""

    def after_commit(self, state: TopicState) -> None:
        """Start a checkpoint if this process's newest commit made one due. Costs no store call when it didn't."""
        newest = self._newest = _Committed(
            log=state.log,
            version=state.position.version,
            checkpoint_version=state.checkpoint_version,
            live_file_count=state.head.live_file_count,
            has_unsequenced=state.head.unsequenced_count > 0,
        )
        if not self._is_due(newest):
            return
        is_urgent = self._is_late(_MAX_LATE)
        if is_urgent:
            self._woken.set()
        is_resting = newest.log.clock.ticks_ms() < self._rest_until_ticks_ms
        if self._stays or is_urgent or not is_resting:  # who stays is at it until the rest is over
            self._background.start(lambda: self._work(newest), f"checkpoint of {newest.log.table}")

    def close(self, timeout_ms: float = 60_000) -> None:
        """Write a checkpoint if one is due, and wait for it, and for one that is under way."""
        newest = self._newest
        if newest is None:
            return
        ticks_ms = newest.log.clock.ticks_ms
        deadline = ticks_ms() + timeout_ms
        self._is_closing = True
        self._woken.set()
        try:
            for _ in range(2):  # who was just ending as it was started didn't begin anew
                if self._is_late():
                    self._background.start(self._work, f"checkpoint of {newest.log.table}")
                self._background.close(max(0.0, deadline - ticks_ms()))
        finally:
            self._is_closing = False

    def _threshold(self, newest: _Committed) -> int:
        return checkpoint_threshold(newest.live_file_count, self._other_rows(newest))

    def _other_rows(self, newest: _Committed) -> int:
        return max(0, self._known.row_count - newest.live_file_count)

    def _known_version(self, newest: _Committed) -> int:
        return max(newest.checkpoint_version, self._known.version)

    def _is_due(self, newest: _Committed) -> bool:
        """Is it for this commit to start a checkpoint (rule L11)?"""
        return checkpoint_due(
            version=newest.version,
            checkpoint_version=self._known_version(newest),
            live_file_count=newest.live_file_count,
            other_row_count=self._other_rows(newest),
        )

    def _is_late(self, times: float = 1.0) -> bool:
        """Do at least so many times the versions follow the newest checkpoint after which one is due?"""
        newest = self._newest
        if newest is None:
            return False
        return newest.version - self._known_version(newest) >= times * self._threshold(newest)

    def _work(self, due: _Committed | None = None) -> None:
        """Write a checkpoint, and after a rest the next as long as one is due.

        Args:
            due: the commit that made the first due, if others don't write it; None: it is due whoever made it so.
        """
        if due is not None:
            due.log.clock.sleep_ms(random.uniform(0, self._max_delay_ms))  # noqa: S311 - spreads writers, no secret
        failures = 0
        while True:
            is_last = self._is_closing or not self._stays
            failures = 0 if self._try_to_write(due) else failures + 1
            if is_last or failures == _MAX_FAILURES:
                return
            self._rest(_FAILURE_REST_MS * 2 ** (failures - 1) if failures else 0.0)
            due = None
            if not self._is_late():
                return

    def _rest(self, least_ms: float) -> None:
        """Wait until the rest after the newest checkpoint is over, and at least so long; less where it is urgent."""
        newest = self._newest
        self._woken.clear()
        if newest is None or self._is_closing or (self._is_late(_MAX_LATE) and not least_ms):
            return
        spread_ms = random.uniform(0, self._max_delay_ms)  # noqa: S311 - spreads writers, no secret
        left_ms = self._rest_until_ticks_ms - newest.log.clock.ticks_ms()
        self._woken.wait((max(0.0, left_ms, least_ms) + spread_ms) / 1000)

    def _try_to_write(self, due: _Committed | None) -> bool:
        newest = due or self._newest
        if newest is None:
            return True
        log = newest.log
        began = log.clock.ticks_ms()
        try:
            self._known = read_checkpoint_hint(log)
            if self._is_due(due) if due is not None else self._is_late():
                if newest.has_unsequenced:  # rule F2: a checkpoint forgets the order of foreign commits
                    sequence_topic(log)
                self._known = write_next_checkpoint(log) or self._known
                ended = log.clock.ticks_ms()
                self._rest_until_ticks_ms = ended + _REST * (ended - began)
            return True
        except Exception as error:  # nobody waits for this thread: whatever it is, it is told and tried again later
            _LOGGER.warning("checkpoint of %s failed, opening it stays slower until the next: %s", log.table, error)
            return False


@dataclass(frozen=True, slots=True)
class _Look:
    """What came of the newest look at a topic's files without offsets."""

    until_version: int = -1
    """What was added up to it was seen."""
    again_ticks_ms: float = float("-inf")
    """When to look again though nothing was added since; infinite where nothing is left to do."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Files that were left as they are, and why: they aren't read again before that time."""
    failed: bool = False
    """Nothing was found out: whatever is added, nobody looks before that time."""
    streak: int = 0
    """Looks in a row that left something to do."""

    def is_due(self, state: TopicState, ticks_ms: float) -> bool:
        is_new = state.unsequenced_version > self.until_version and not self.failed
        return is_new or ticks_ms >= self.again_ticks_ms

    def after_failure(self, ticks_ms: float) -> _Look:
        rest_ms = min(_FAILURE_REST_MS * 2**self.streak, _LONGEST_FAILURE_REST_MS)
        return _Look(self.until_version, ticks_ms + rest_ms, self.refused, True, min(self.streak + 1, _MAX_STREAK))

    def after(self, until_version: int, refused: Mapping[str, str], ticks_ms: float) -> _Look:
        if not refused:
            return _Look(until_version, float("inf"))
        if refused.keys() <= self.refused.keys() and ticks_ms < self.again_ticks_ms:  # good files came beside bad ones
            return _Look(until_version, self.again_ticks_ms, refused, False, self.streak)
        rest_ms = min(_REFUSAL_REST_MS * 2**self.streak, _LONGEST_REFUSAL_REST_MS)
        return _Look(until_version, ticks_ms + rest_ms, refused, False, min(self.streak + 1, _MAX_STREAK))


class Sequencing:
    """Gives offsets to files that other engines wrote without, wherever a client meets them (rule F2): one topic at a
    time, away from the caller's thread, after a random wait and another look, so that of many clients few do it.

    A failure is logged and tried again after a second, two, four, … up to five minutes. A file that can't be sequenced
    is logged, and read again after a minute, two, four, … up to an hour.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_SEQUENCING_DELAY_MS) -> None:
        """
        Args:
            run: starts the work; by default in a thread of its own.
            max_delay_ms: the longest random wait before the work; with 20,000 live files twice as long, and so on.
        """
        self._background = _Background("sparklog-sequencing", run)
        self._max_delay_ms = max_delay_ms
        self._looks: dict[str, _Look] = {}
        """By table. Only the work that is under way changes it."""
        self._closed = threading.Event()

    def meet(self, state: TopicState) -> None:
        """Start sequencing if this topic is seen to have files without offsets. Calls no store, and doesn't wait."""
        if not state.head.unsequenced_count or state.head.deleted or self._closed.is_set():
            return
        log = state.log
        if self._looks.get(log.table, _Look()).is_due(state, log.clock.ticks_ms()):
            # In proportion to what loading the table takes: until the first has done it, others that wake begin, too.
            longest_ms = self._max_delay_ms * (1 + state.head.live_file_count / _FILES_PER_DELAY)
            self._background.start(lambda: self._work(log, longest_ms), f"sequencing of {log.table}")

    def close(self, timeout_ms: float = 60_000) -> None:
        """Wait for what is under way; what hasn't begun isn't done any more."""
        self._closed.set()
        self._background.close(timeout_ms)

    def _work(self, log: DeltaLog, longest_ms: float) -> None:
        look = self._looks.get(log.table, _Look())
        try:
            if self._closed.wait(random.uniform(0, longest_ms) / 1000):  # noqa: S311 - spreads clients, no secret
                return
            self._looks[log.table] = self._look(log, look)
        except Exception as error:  # nobody waits for this thread: whatever it is, it is told and tried again later
            self._looks[log.table] = look = look.after_failure(log.clock.ticks_ms())
            _LOGGER.warning(
                "sequencing of %s failed; again in %.0f s at the earliest: %s",
                log.table,
                (look.again_ticks_ms - log.clock.ticks_ms()) / 1000,
                error,
            )

    def _look(self, log: DeltaLog, look: _Look) -> _Look:
        state = open_state(log)
        version = state.position.version
        if state.head.deleted or not state.head.unsequenced_count:  # another did it meanwhile
            return _Look(version, float("inf"))
        if state.whole is None:
            state = load_state(log)
            version = state.position.version
        is_early = log.clock.ticks_ms() < look.again_ticks_ms
        result = sequence_state(state, refused_before=look.refused if is_early else {})
        return look.after(version, result.refused, log.clock.ticks_ms())


class _Background:
    """One piece of work at a time, away from the caller's thread."""

    def __init__(self, name: str, run: Run | None) -> None:
        self._name = name
        self._run = run or self._in_thread
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None], what: str) -> None:
        """Start it, unless something is under way."""
        if not self._busy.acquire(blocking=False):
            return

        def run() -> None:
            try:
                work()
            finally:
                self._busy.release()

        try:
            self._run(run)
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            self._busy.release()
            _LOGGER.warning("%s can't be started: %s", what, error)

    def close(self, timeout_ms: float) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=self._name, daemon=True)
        thread.start()
        self._thread = thread  # only one that was started can be joined
