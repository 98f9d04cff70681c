"""Background work of a client for its topics, beside its own: checkpoints (rule L11, fairness),
and offsets for what other engines wrote without (rule F2, sequencing)."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparklog.clock import Clock, Deadline
from sparklog.delta.checkpoint import checkpoint_due, checkpoint_threshold, found_cut, write_next_checkpoint
from sparklog.delta.listing import CheckpointHint, read_checkpoint_hint
from sparklog.delta.log import DeltaLog
from sparklog.log.claims import Claim, OthersClaim, take_claim
from sparklog.log.reloading import reload_state
from sparklog.log.sequencing.sequencing import sequence_state, sequence_topic, whole_and_current
from sparklog.log.state import TopicState, load_state, open_state
from sparklog.paths import sequencing_claim
from sparklog.storage.retrying import retry
from sparklog.workers import Background, Run

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
MAX_CLIENT_BYTES = 2**30
"""Clients leave what another engine committed at once to maintenance if it is larger: to copy it would take a client's
network and one of its cores for longer than half a minute, unasked."""
_CLAIMED_REST_MS = 5_000.0
_LONGEST_POSTPONEMENT_MS = 60_000.0
"""A checkpoint waits no longer for another client that sequences."""
_CLOSING_MS = 5_000.0
"""A copy that isn't done so long after its client was closed is given up."""


class _Committed(NamedTuple):
    """The knowledge that a process has of a topic after its newest commit."""

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

    Files without offsets are sequenced before. While another client is at it, the checkpoint waits: up to a minute, and
    not where this process closes.

    A checkpoint that fails is logged and tried again: it only makes opening slower. One that finds that nobody can open
    the log makes commits fail until it is whole again: :meth:`whole`.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_DELAY_MS) -> None:
        """
        Args:
            run: starts the work, which then doesn't wait for what becomes due later; by default a thread that does.
            max_delay_ms: the longest random wait before the work, so that several writers don't do it at once.
        """
        self._background = Background("checkpoint", run)
        self._stays = run is None
        self._max_delay_ms = max_delay_ms
        self._newest: _Committed | None = None
        self._known = CheckpointHint()
        """The newest checkpoint that this process has seen or written."""
        self._rest_until_ticks_ms = 0.0
        self._claim: OthersClaim | None = None
        """The claim of the client that sequences; None: nobody does, as far as is known."""
        self._claimed_since_ticks_ms = 0.0
        self._claimed_until_ticks_ms = float("-inf")
        """Before that nobody looks whether that client goes on."""
        self._is_cut = False
        """Did the newest checkpoint find that nobody can open the log, and no look since that it is whole again?"""
        self._is_closing = False
        self._woken = threading.Event()
        """Ends the rest, and the wait before the first checkpoint."""

    def after_commit(self, state: TopicState, *, created: bool = True) -> None:
        """Start a checkpoint if this process's newest commit made one due. Costs no store call when it didn't.

        Args:
            created: did this process create the entry? Off: another one did, which published what this one had
                announced or decided, and the checkpoint is for that one.
        """
        # What entries carry depends on it.
        state.checkpoint_version = max(state.checkpoint_version, self._known.version)
        newest = self._newest = _Committed(
            log=state.log,
            version=state.position.version,
            checkpoint_version=state.checkpoint_version,
            live_file_count=state.head.live_file_count,
            has_unsequenced=state.head.unsequenced_count > 0,
        )
        if not self._is_due(newest) or self._claimed_ms(newest.log):
            return
        is_urgent = self._is_late(_MAX_LATE)
        if is_urgent:
            self._woken.set()
        is_resting = newest.log.clock.ticks_ms() < self._rest_until_ticks_ms
        if created and (self._stays or is_urgent or not is_resting):  # who stays is at it until the rest is over
            self._background.start(lambda: self._work(newest), f"checkpoint of {newest.log.table}")

    def whole(self, state: TopicState, deadline: Deadline) -> TopicState:
        """The state to commit on: the same, unless a checkpoint has found its log cut. Then it is loaded anew, as long
        as that fails (rule L17, ground): whoever went on would acknowledge what nobody can read.

        Raises:
            StoreReplacedError, CorruptLogError: the log is cut still.
            NotATopicError, UnsupportedVersionError, StoreError.
        """
        if not self._is_cut:
            return state
        loaded = retry(lambda: reload_state(state), deadline=deadline)
        self._is_cut = False
        return loaded

    def close(self, timeout_ms: float = 60_000) -> None:
        """Write a checkpoint if one is due, and wait for it, and for one that is under way."""
        newest = self._newest
        if newest is None:
            return
        deadline = newest.log.clock.deadline_in(timeout_ms)
        self._is_closing = True
        self._woken.set()
        try:
            for _ in range(2):  # who was just ending as it was started didn't begin anew
                if self._is_late():
                    self._background.start(self._work, f"checkpoint of {newest.log.table}")
                self._background.close(deadline.left_ms)
        finally:
            self._is_closing = False

    def _threshold(self, newest: _Committed) -> int:
        return checkpoint_threshold(newest.live_file_count, self._other_rows(newest))

    def _other_rows(self, newest: _Committed) -> int:
        return max(0, self._known.row_count - newest.live_file_count)

    def _known_version(self, newest: _Committed) -> int:
        return max(newest.checkpoint_version, self._known.version)

    def _is_due(self, newest: _Committed) -> bool:
        """Is it for this commit to start a checkpoint (rule L11, fairness)?"""
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
            self._delay(due.log.clock)
        failures = 0
        while True:
            is_last = self._is_closing or not self._stays
            failures = 0 if self._try_to_write(due) else failures + 1
            if is_last or failures == _MAX_FAILURES:
                return
            claimed_ms = 0.0 if self._newest is None else self._claimed_ms(self._newest.log)
            self._rest(_FAILURE_REST_MS * 2 ** (failures - 1) if failures else claimed_ms)
            due = None
            if not self._is_late():
                return

    def _delay(self, clock: Clock) -> None:
        """Wait by chance, so that several writers don't do it at once; not where whoever closes waits for it."""
        delay_ms = random.uniform(0, self._max_delay_ms)  # noqa: S311 - spreads writers, no secret
        if not self._stays:
            clock.sleep_ms(delay_ms)
            return
        self._woken.clear()
        if not self._is_closing:
            self._woken.wait(delay_ms / 1000)

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
                if newest.has_unsequenced and not self._sequence(log):
                    return True
                self._known = write_next_checkpoint(log) or self._known
                self._claim = None
                ended = log.clock.ticks_ms()
                self._rest_until_ticks_ms = ended + _REST * (ended - began)
            return True
        except Exception as error:  # nobody waits for this thread: whatever it is, it is told and tried again later
            self._is_cut = self._is_cut or found_cut(log, newest.version, error)
            what = "sends fail until it is whole again" if self._is_cut else "opening it stays slower until the next"
            _LOGGER.warning("checkpoint of %s failed, %s: %s", log.table, what, error)
            return False

    def _sequence(self, log: DeltaLog) -> bool:
        """Sequence before a checkpoint forgets the order of foreign commits (rule F2, sequencing). False: another
        client is at it, and the checkpoint is to wait for that."""
        now = log.clock.ticks_ms()
        claim = take_claim(log.store, log.clock, sequencing_claim(log.table), self._claim)
        if isinstance(claim, OthersClaim):
            self._claimed_since_ticks_ms = now if self._claim is None else self._claimed_since_ticks_ms
            if now - self._claimed_since_ticks_ms < _LONGEST_POSTPONEMENT_MS and not self._is_closing:
                self._claim, self._claimed_until_ticks_ms = claim, now + _CLAIMED_REST_MS
                return False
            sequence_topic(log, limit_bytes=MAX_CLIENT_BYTES)
            return True
        try:
            sequence_state(load_state(log), limit_bytes=MAX_CLIENT_BYTES, before_piece=claim.renew)
        finally:
            claim.release()
        return True

    def _claimed_ms(self, log: DeltaLog) -> float:
        """The time to wait before looking whether the other client still sequences; 0: nobody is known to."""
        return max(0.0, self._claimed_until_ticks_ms - log.clock.ticks_ms())


@dataclass(frozen=True, slots=True)
class _Look:
    """The result of the newest look at a topic's files without offsets."""

    until_version: int = -1
    """The version up to which added files were seen."""
    again_ticks_ms: float = float("-inf")
    """When to look again though nothing was added since; infinite where nothing is left to do."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Files that were left as they are, and why: they aren't read again before that time."""
    failed: bool = False
    """Nothing was found out: whatever is added, nobody looks before that time."""
    streak: int = 0
    """Looks in a row that left something to do."""
    claim: OthersClaim | None = None
    """The claim of another client that is doing the work."""
    claimed_until_ticks_ms: float = float("-inf")
    """Before that nobody looks whether that client goes on."""

    def is_due(self, state: TopicState, ticks_ms: float) -> bool:
        if ticks_ms < self.claimed_until_ticks_ms:
            return False
        is_new = state.unsequenced_version > self.until_version and not self.failed
        return is_new or ticks_ms >= self.again_ticks_ms

    def after_failure(self, ticks_ms: float) -> _Look:
        rest_ms = min(_FAILURE_REST_MS * 2**self.streak, _LONGEST_FAILURE_REST_MS)
        return _Look(self.until_version, ticks_ms + rest_ms, self.refused, True, min(self.streak + 1, _MAX_STREAK))

    def after_claim(self, claim: OthersClaim, ticks_ms: float) -> _Look:
        return replace(self, claim=claim, claimed_until_ticks_ms=ticks_ms + _CLAIMED_REST_MS)

    def after(self, until_version: int, refused: Mapping[str, str], ticks_ms: float) -> _Look:
        if not refused:
            return _Look(until_version, float("inf"))
        if refused.keys() <= self.refused.keys() and ticks_ms < self.again_ticks_ms:  # good files came beside bad ones
            return _Look(until_version, self.again_ticks_ms, refused, False, self.streak)
        rest_ms = min(_REFUSAL_REST_MS * 2**self.streak, _LONGEST_REFUSAL_REST_MS)
        return _Look(until_version, ticks_ms + rest_ms, refused, False, min(self.streak + 1, _MAX_STREAK))


class _GivenUp(Exception):  # noqa: N818 - a signal within this module
    """A copy isn't finished, as the client was closed."""


class Sequencing:
    """Gives offsets to files that other engines wrote without, wherever a client meets them (rule F2, sequencing): one
    topic at a time, away from the caller's thread, after a random wait and another look. Of many clients one does it:
    it claims the work, and the others look every five seconds whether it is done, or its claim was left. What another
    engine committed at once is left to maintenance if it is larger than 1 GiB, which is logged.

    A failure is logged and tried again after a second, two, four, … up to five minutes. A file that can't be sequenced
    is logged, and read again after a minute, two, four, … up to an hour.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_SEQUENCING_DELAY_MS) -> None:
        """
        Args:
            run: starts the work; by default in a thread of its own.
            max_delay_ms: the longest random wait before the work; with 20,000 live files twice as long, and so on.
        """
        self._background = Background("sequencing", run)
        self._max_delay_ms = max_delay_ms
        self._looks: dict[str, _Look] = {}
        """By table. Only the work that is under way changes it."""
        self._closed = threading.Event()
        self._closing_since_ticks_ms = float("inf")

    def start_if_needed(self, state: TopicState) -> None:
        """Start sequencing if this topic is seen to have files without offsets. Calls no store, and doesn't wait."""
        if not state.head.unsequenced_count or state.head.deleted or self._closed.is_set():
            return
        log = state.log
        if self._looks.get(log.table, _Look()).is_due(state, log.clock.ticks_ms()):
            # In proportion to what loading the table takes: until the first has done it, others that wake begin, too.
            longest_ms = self._max_delay_ms * (1 + state.head.live_file_count / _FILES_PER_DELAY)
            self._background.start(lambda: self._work(log, longest_ms), f"sequencing of {log.table}")

    def close(self, timeout_ms: float = 60_000) -> None:
        """Wait for what is under way; what hasn't begun isn't done any more, and a copy that isn't done after five
        seconds is given up."""
        self._closed.set()
        self._background.close(timeout_ms)

    def _work(self, log: DeltaLog, longest_ms: float) -> None:
        look = self._looks.get(log.table, _Look())
        try:
            if self._closed.wait(random.uniform(0, longest_ms) / 1000):  # noqa: S311 - spreads clients, no secret
                return
            self._looks[log.table] = self._look(log, look)
        except _GivenUp as reason:
            _LOGGER.info("sequencing of %s was given up: %s", log.table, reason)
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
        claim = take_claim(log.store, log.clock, sequencing_claim(log.table), look.claim)
        if isinstance(claim, OthersClaim):
            return look.after_claim(claim, log.clock.ticks_ms())
        try:
            state = whole_and_current(state)  # who held the claim before may have done it a moment ago
            version = state.position.version
            is_early = log.clock.ticks_ms() < look.again_ticks_ms
            result = sequence_state(
                state,
                refused_before=look.refused if is_early else {},
                limit_bytes=MAX_CLIENT_BYTES,
                before_piece=lambda: self._go_on(log, claim),
            )
        finally:
            claim.release()
        left = {**result.refused, **result.postponed}
        return look.after(version, left, log.clock.ticks_ms())

    def _go_on(self, log: DeltaLog, claim: Claim) -> None:
        """Before each piece of a file: announce that the work goes on, unless the client was closed meanwhile."""
        claim.renew()
        if not self._closed.is_set():
            return
        now = log.clock.ticks_ms()
        self._closing_since_ticks_ms = min(self._closing_since_ticks_ms, now)
        if now - self._closing_since_ticks_ms > _CLOSING_MS:
            raise _GivenUp(f"the client was closed; another one will sequence {log.table}")
