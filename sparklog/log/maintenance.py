"""What a client does for its topics beside its own work, in the background: checkpoints (design section 4, rule L11),
and offsets for what other engines wrote without (rule F2)."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparklog.delta.checkpoint import checkpoint_due, checkpoint_threshold, write_checkpoint
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.log.sequencing import sequence_state, sequence_topic
from sparklog.log.state import TopicState, load_state, open_state

__all__ = ["Checkpoints", "Sequencing"]

_LOGGER = logging.getLogger(__name__)
_MAX_DELAY_MS = 500.0
_REST = 20
"""After a checkpoint a writer rests for so many times as long as it took: however fast it commits, checkpoints take a
small part of its time …"""
_MAX_LATE = 10
"""… but for no more than so many times the versions after which one is due."""
_MAX_SEQUENCING_DELAY_MS = 1_000.0
_FILES_PER_DELAY = 20_000
_FAILURE_REST_MS, _LONGEST_FAILURE_REST_MS = 1_000.0, 300_000.0
_REFUSAL_REST_MS, _LONGEST_REFUSAL_REST_MS = 60_000.0, 3_600_000.0
_MAX_STREAK = 12

Run = Callable[[Callable[[], None]], None]


class Checkpoints:
    """Writes a topic's checkpoints when they are due, one at a time, away from the caller's thread.

    A checkpoint that fails is logged and tried again when the next is due: it only makes opening slower.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_DELAY_MS) -> None:
        """
        Args:
            run: starts the work; by default in a thread of its own.
            max_delay_ms: the longest random wait before the work, so that several writers don't do it at once.
        """
        self._background = _Background("sparklog-checkpoint", run)
        self._max_delay_ms = max_delay_ms
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
        log, unsequenced = state.log, state.head.unsequenced_count > 0
        self._background.start(
            lambda: self._work(log, version, live, sequence_first=unsequenced), f"checkpoint of {log.table}"
        )

    def close(self, timeout_ms: float = 60_000) -> None:
        """Wait for a checkpoint that is under way."""
        self._background.close(timeout_ms)

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


_WORK = "work"


class _Background:
    """One piece of work at a time, away from the caller's thread."""

    def __init__(self, name: str, run: Run | None) -> None:
        self._name = name
        self._run = run or self._in_thread
        self._under_way: dict[str, object] = {}
        """At most one; the dict's own calls say who is first."""
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None], what: str) -> None:
        """Start it, unless something is under way."""
        own = object()

        def end() -> None:
            if self._under_way.get(_WORK) is own:
                self._under_way.pop(_WORK, None)

        def run() -> None:
            try:
                work()
            finally:
                end()

        try:
            if self._under_way.setdefault(_WORK, own) is own:
                self._run(run)
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            end()
            _LOGGER.warning("%s can't be started: %s", what, error)
        except BaseException:  # an interrupt: if the work has begun, it goes on
            end()
            raise

    def close(self, timeout_ms: float) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=self._name, daemon=True)
        thread.start()
        self._thread = thread  # only one that was started can be joined
