"""What a client does for its topics beside its own work, in the background: checkpoints (design section 4, rule L11),
and offsets for what other engines wrote without (rule F2)."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparklog.delta.checkpoint import checkpoint_due, checkpoint_threshold, write_checkpoint
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.log.background import Background, Run
from sparklog.log.claims import Claim, OthersClaim, take_claim
from sparklog.log.sequencing import sequence_state, sequence_topic, whole_and_current
from sparklog.log.state import TopicState, open_state
from sparklog.paths import sequencing_claim

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
MAX_CLIENT_BYTES = 2**30
"""Clients leave what another engine committed at once to maintenance if it is larger: to copy it would take a client's
network and one of its cores for longer than half a minute, unasked."""
_CLAIMED_REST_MS = 5_000.0
_CLOSING_MS = 5_000.0
"""A copy that isn't done so long after its client was closed is given up."""


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
        self._background = Background("sparklog-checkpoint", run)
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
                    sequence_topic(log, limit_bytes=MAX_CLIENT_BYTES)
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
    claim: OthersClaim | None = None
    """Of another client, which is at it."""
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
    """Gives offsets to files that other engines wrote without, wherever a client meets them (rule F2): one topic at a
    time, away from the caller's thread, after a random wait and another look. Of many clients one does it: it claims
    the work, and the others look every five seconds whether it is done, or its claim was left. What another engine
    committed at once is left to maintenance if it is larger than 1 GiB, which is logged.

    A failure is logged and tried again after a second, two, four, … up to five minutes. A file that can't be sequenced
    is logged, and read again after a minute, two, four, … up to an hour.
    """

    def __init__(self, *, run: Run | None = None, max_delay_ms: float = _MAX_SEQUENCING_DELAY_MS) -> None:
        """
        Args:
            run: starts the work; by default in a thread of its own.
            max_delay_ms: the longest random wait before the work; with 20,000 live files twice as long, and so on.
        """
        self._background = Background("sparklog-sequencing", run)
        self._max_delay_ms = max_delay_ms
        self._looks: dict[str, _Look] = {}
        """By table. Only the work that is under way changes it."""
        self._closed = threading.Event()
        self._closing_since_ticks_ms = float("inf")

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
        """Before each piece of a file: tell others that the work goes on, unless the client was closed meanwhile."""
        claim.renew()
        if not self._closed.is_set():
            return
        now = log.clock.ticks_ms()
        self._closing_since_ticks_ms = min(self._closing_since_ticks_ms, now)
        if now - self._closing_since_ticks_ms > _CLOSING_MS:
            raise _GivenUp(f"the client was closed; another one will sequence {log.table}")
