"""The commit loop: decide, create the next version, and on losing the race apply what won and decide again.

Every commit to a topic goes through :func:`commit`. What it writes is decided by a pure function of the state; the
create-only put of one log entry is the commit point (rules L1, trust; L2, unknown; L4, decide again; L9, fsync).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sparklog._version import __version__
from sparklog.delta.actions import Action, Entry, encode_entry
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    KafkaTimeoutError,
    NotATopicError,
    SparklogError,
    StoreError,
    UnsupportedVersionError,
)
from sparklog.log.gaps import ForeignGaps, wait_for_gap
from sparklog.log.head import TopicHead, offset_actions
from sparklog.log.state import GAP_INFO, TopicState, load_state
from sparklog.storage.entry_log import Look, PositionLost, Taken
from sparklog.storage.position import Position, advance
from sparklog.storage.retrying import retry

__all__ = ["Commit", "Committed", "apply_look", "catch_up", "commit", "create_first"]

T = TypeVar("T")

_LOSSES_BEFORE_YIELDING = 2
_LOSSES_BEFORE_SYNCING_LATE = 4
"""Who fsyncs what others wrote before it creates, loses to writers that don't: meanwhile they write more."""
_MAX_YIELD_ROUND_TRIPS = 16
_LONGEST_ROUND_TRIP_MS = 1_000.0
"""A create that took longer was a stall, not a round trip: nobody is to wait for as long again."""
_FIRST_AHEAD = 2
_MAX_AHEAD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a decision wants written."""

    actions: Sequence[Action]
    """Without those that record log starts and ends: they follow from ``head``."""
    head: TopicHead
    """The topic afterwards; ``delta_version`` is set by the loop."""
    operation: str
    """As Delta's history shows it."""
    blind_append: bool = False
    """Rule L13: true for producer commits alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """How a commit ended."""

    state: TopicState
    """What is known now; the state that was handed in isn't used any more."""
    commit: Commit | None
    """What was written, at ``state``'s version; None where the decision was that nothing is left to do."""
    lost_races: int
    round_trip_ms: float
    """How long the winning create took."""


Decide = Callable[[TopicState], "Commit | None"]
"""Pure; called anew after every version that is applied. None: nothing (more) to do. Raises to give up."""


def commit(
    state: TopicState,
    decide: Decide,
    *,
    deadline_ticks_ms: float,
    sync: bool,
    tokens: set[str] | None = None,
    prepare: Callable[[], bool] = lambda: False,
    gaps: ForeignGaps | None = None,
) -> Committed:
    """Commit what ``decide`` wants, at whichever version is free. Never gives up because others were faster.

    Args:
        sync: fsync, before this returns, the new entry and every object before it (rule L9).
        tokens: an empty set that gets the tokens of all attempts, for whoever must find the entry later.
        prepare: called before each create; may do I/O. True: decide again, what was decided on has changed.
        gaps: whether the entry asks for a gap for foreign writers (rule F5); without it, it doesn't. Gaps that others
            asked for are waited for in any case.
    Raises:
        KafkaTimeoutError: the deadline passed; nothing was and nothing will be committed.
        CommitStateUnknownError: the deadline passed while an attempt may still be carried out.
        UnsupportedVersionError, NotATopicError: another engine asks for a newer Delta reader or writer, or broke the
            topic's properties, as long as that lasts.
        StoreError: the store refuses for good; and whatever ``decide`` raises.
    """
    log = state.log
    tokens = set() if tokens is None else tokens
    lost_races = 0
    is_late = False

    def patiently(call: Callable[[], T]) -> T:
        return _until(deadline_ticks_ms, log, call)

    if state.unreadable is not None or state.unwritable is not None:  # does that last?
        try:
            patiently(partial(_go_to_tail, state))
        except PositionLost:
            state = patiently(partial(load_state, log))
    while True:
        if state.unreadable is not None:
            raise state.unreadable.with_traceback(None)
        wanted = decide(state)
        if wanted is None:
            if sync:  # it may be there by a lost attempt of ours, or by another who died before its fsync
                _sync_what_is_committed(state)
            return Committed(state=state, commit=None, lost_races=lost_races, round_trip_ms=0.0)
        if state.unwritable is not None:  # only now: what is done already, perhaps by a lost create of ours, is done
            raise state.unwritable.with_traceback(None)
        if lost_races and log.clock.ticks_ms() >= deadline_ticks_ms:
            raise KafkaTimeoutError(f"timed out after losing {lost_races} races for the next version of {log.table}")
        wait_for_gap(state, gaps, deadline_ticks_ms=deadline_ticks_ms)
        if patiently(prepare):
            continue
        is_late = sync and lost_races >= _LOSSES_BEFORE_SYNCING_LATE
        synced = sync and not is_late
        if synced:
            _sync_what_came_before(state)
        wanted = replace(wanted, head=replace(wanted.head, delta_version=state.position.version + 1))
        gap_ms = 0 if gaps is None else gaps.gap_ms(state)
        draft = _Draft(log, wanted, before=state.head, unrecorded_ends=state.unrecorded_ends, gap_ms=gap_ms)
        began = log.clock.ticks_ms()
        try:
            outcome = log.create_next(
                state.position, draft.encode, tokens=tokens, deadline_ticks_ms=deadline_ticks_ms, sync=synced
            )
        except PositionLost as lost:
            state = _reload_unsettled(log, lost, deadline_ticks_ms=deadline_ticks_ms)
            lost_races += 1
            continue
        round_trip_ms = min(log.clock.ticks_ms() - began, _LONGEST_ROUND_TRIP_MS)
        if not isinstance(outcome, Taken):
            state.apply(draft.entry(outcome.position), outcome.position, synced=synced)
            if is_late:
                _sync_what_is_committed(state)
            return Committed(state=state, commit=wanted, lost_races=lost_races, round_trip_ms=round_trip_ms)
        lost_races += 1
        winner = outcome.entry
        try:
            patiently(partial(state.apply, winner, advance(state.position, version=winner.version, token=winner.token)))
            if lost_races >= _LOSSES_BEFORE_YIELDING:
                patient_ms = max(0.0, deadline_ticks_ms - log.clock.ticks_ms())
                wait_ms = min(round_trip_ms * min(lost_races, _MAX_YIELD_ROUND_TRIPS), patient_ms)
                log.clock.sleep_ms(random.uniform(0, wait_ms))  # noqa: S311 - spreads writers, no secret
                patiently(partial(_go_to_tail, state))
        except PositionLost:
            state = patiently(partial(load_state, log))


def create_first(log: DeltaLog, wanted: Commit, *, deadline_ticks_ms: float) -> bool:
    """Create version 0 of a log where there is none, durably.

    False: something is there, or what became of ours can only be told by opening it.

    A log whose version 0 was cleaned away is seen by the listing; one whose version 0 is cleaned after the listing, by
    the rule of trust (L1): version -1 can't be verified.
    """
    began = log.clock.ticks_ms()
    if list_log(log) is not None:
        return False
    draft = _Draft(log, wanted, before=None)
    nowhere = Position(version=-1, token="", anchor_ticks_ms=began)
    try:
        outcome = log.create_next(nowhere, draft.encode, tokens=set(), deadline_ticks_ms=deadline_ticks_ms, sync=True)
    except PositionLost:
        return False
    return not isinstance(outcome, Taken)


def catch_up(state: TopicState, *, ahead: int) -> list[Entry]:
    """Read and apply up to ``ahead`` entries beyond the state. Raises as :func:`apply_look`."""
    return apply_look(state, state.log.look(state.position, ahead=ahead))


def apply_look(state: TopicState, look: Look[Entry]) -> list[Entry]:
    """Apply the entries that a look beyond the state has found; returns them.

    Raises:
        PositionLost: rule L1; or the table may be readable again.
        UnsupportedVersionError, NotATopicError: what another engine did to it can't be understood, as long as it lasts.
    """
    for entry in look.entries:  # the tail's anchor belongs to the last of them alone: applying one may fail
        state.end_gap()  # whoever was away for a while mustn't wait for gaps of the past
        state.apply(entry, advance(state.position, version=entry.version, token=entry.token))
    state.position = look.position
    if state.unreadable is not None:
        raise state.unreadable.with_traceback(None)
    return list(look.entries)


def _go_to_tail(state: TopicState) -> None:
    """Several writers that all try again at once lose as often as there are others, and each loss costs two requests
    (rule L11).

    Raises as :func:`apply_look`; what can't be understood, only where the tail is so: further on it may be mended."""
    ahead = _FIRST_AHEAD
    is_tail = False
    while not is_tail:
        before = state.position.version
        try:
            catch_up(state, ahead=ahead)
        except (UnsupportedVersionError, NotATopicError):
            if state.position.version - before < ahead:
                raise
        is_tail = state.position.version - before < ahead
        ahead = min(ahead * 2, _MAX_AHEAD)


def _until(deadline_ticks_ms: float, log: DeltaLog, call: Callable[[], T]) -> T:
    """Repeat ``call`` on retriable store errors until the deadline: none of our entries is under way meanwhile."""
    try:
        return retry(call, clock=log.clock, deadline_ticks_ms=deadline_ticks_ms)
    except StoreError as error:
        if not error.retriable:
            raise
        raise KafkaTimeoutError(f"timed out while reading {log.table}: {error}") from error


def _reload_unsettled(log: DeltaLog, lost: PositionLost, *, deadline_ticks_ms: float) -> TopicState:
    """The state that decides whether our entry is in the log; until it is loaded, nobody knows."""
    try:
        return retry(lambda: load_state(log), clock=log.clock, deadline_ticks_ms=deadline_ticks_ms)
    except SparklogError as error:
        raise CommitStateUnknownError(
            f"whether {lost} was created is unknown, and {log.table} can't be loaded to find out: {error}"
        ) from error


def _sync_what_came_before(state: TopicState) -> None:
    # Once: after a failed fsync the system may call the next one a success though the data is gone.
    _check_nothing_is_torn(state)
    if state.unsynced is None:
        state.log.store.sync_all()
    elif state.unsynced:
        state.log.store.sync(state.unsynced)
    state.unsynced = []


def _check_nothing_is_torn(state: TopicState) -> None:
    """Once after a topic was opened from its newest entry alone: a power loss may have left an earlier one without its
    bytes, and nothing behind that can be read. What is cleaned meanwhile isn't missed.

    Raises:
        CorruptLogError: names the entry.
    """
    if state.unread and state.log.store.may_tear:
        state.log.read_raw_entries(state.unread)
    state.unread = range(0)


def _sync_what_is_committed(state: TopicState) -> None:
    """What came before, and our own entry after it: acknowledged is what is durable, however late (rule L9)."""
    try:
        _sync_what_came_before(state)
    except StoreError as error:
        raise CommitStateUnknownError(
            f"version {state.position.version} of {state.log.table} is committed, but may not survive a power loss: "
            f"{error}"
        ) from error


class _Draft:
    """A commit that waits for its token."""

    def __init__(
        self,
        log: DeltaLog,
        wanted: Commit,
        *,
        before: TopicHead | None,
        unrecorded_ends: Collection[int] = (),
        gap_ms: int = 0,
    ) -> None:
        self._wanted = wanted
        self._timestamp_ms = log.clock.now_ms()
        self._info = wanted.head.to_info()
        if gap_ms:
            self._info[GAP_INFO] = gap_ms
        self._actions = (*wanted.actions, *offset_actions(before, wanted.head, unrecorded_ends))

    def encode(self, token: str) -> bytes:
        return encode_entry(
            actions=self._actions,
            token=token,
            info=self._info,
            operation=self._wanted.operation,
            blind_append=self._wanted.blind_append,
            timestamp_ms=self._timestamp_ms,
            version=__version__,
        )

    def entry(self, position: Position) -> Entry:
        return Entry(version=position.version, token=position.token, actions=self._actions, info=self._info)
