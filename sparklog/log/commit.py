"""The commit loop: decide, create the next version, and on losing the race apply what won and decide again.

Every commit to a topic goes through :func:`commit`. What it writes is decided by a pure function of the state; the
create-only put of one log entry is the commit point (design section 4; rules L1, L2, L4, L9).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparklog._version import __version__
from sparklog.delta.actions import Action, Entry, encode_entry
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog, PositionLost, Taken, new_token
from sparklog.delta.position import Position, advance
from sparklog.errors import CommitStateUnknownError, CorruptLogError, KafkaTimeoutError, StoreError
from sparklog.log.head import TopicHead, offset_actions
from sparklog.log.state import TopicState, load_state
from sparklog.storage.retrying import retry

__all__ = ["Commit", "Committed", "catch_up", "commit", "create_first"]

_LOSSES_BEFORE_YIELDING = 2
_MAX_YIELD_ROUND_TRIPS = 16
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
    token: str,
    deadline_ticks_ms: float,
    sync: bool,
    prepare: Callable[[], None] = lambda: None,
) -> Committed:
    """Commit what ``decide`` wants, at whichever version is free. Never gives up because others were faster.

    Args:
        token: of this commit, fresh and random; the same in all its attempts.
        sync: fsync, before this returns, the new entry and every object before it (rule L9).
        prepare: called before each decision; may do I/O.
    Raises:
        KafkaTimeoutError: the deadline passed; nothing was and nothing will be committed.
        CommitStateUnknownError: the deadline passed while an attempt may still be carried out.
        StoreError: the store refuses for good; and whatever ``decide`` raises.
    """
    log = state.log
    lost_races = 0
    while True:
        prepare()
        wanted = decide(state)
        if wanted is None:
            return Committed(state=state, commit=None, lost_races=lost_races, round_trip_ms=0.0)
        if lost_races and log.clock.ticks_ms() >= deadline_ticks_ms:
            raise KafkaTimeoutError(f"timed out after losing {lost_races} races for the next version of {log.table}")
        if sync:
            _sync_what_came_before(state, deadline_ticks_ms=deadline_ticks_ms)
        wanted = replace(wanted, head=replace(wanted.head, delta_version=state.position.version + 1))
        data, entry = _encode(log, state.head, wanted, token=token)
        began = log.clock.ticks_ms()
        try:
            outcome = log.create_next(state.position, data, token=token, deadline_ticks_ms=deadline_ticks_ms, sync=sync)
        except PositionLost as lost:
            state = _reload_unsettled(log, lost)
            lost_races += 1
            continue
        if not isinstance(outcome, Taken):
            state.apply(entry, outcome.position, synced=sync)
            round_trip_ms = log.clock.ticks_ms() - began
            return Committed(state=state, commit=wanted, lost_races=lost_races, round_trip_ms=round_trip_ms)
        lost_races += 1
        try:
            winner = outcome.entry
            state.apply(winner, advance(state.position, version=winner.version, token=winner.token))
            if lost_races >= _LOSSES_BEFORE_YIELDING:
                round_trip_ms = log.clock.ticks_ms() - began
                _yield_to_others(state, wait_ms=round_trip_ms * min(lost_races, _MAX_YIELD_ROUND_TRIPS))
        except PositionLost:
            state = load_state(log)
            lost_races += 1


def create_first(log: DeltaLog, wanted: Commit, *, deadline_ticks_ms: float) -> bool:
    """Create version 0 of a log where there is none, durably.

    False: something is there, or what became of ours can only be told by opening it.

    A log whose version 0 was cleaned away is seen by the listing; one whose version 0 is cleaned after the listing, by
    the rule of trust (L1): version -1 can't be verified.
    """
    began = log.clock.ticks_ms()
    if list_log(log) is not None:
        return False
    token = new_token()
    data, _ = _encode(log, None, wanted, token=token)
    nowhere = Position(version=-1, token="", anchor_ticks_ms=began)
    try:
        outcome = log.create_next(nowhere, data, token=token, deadline_ticks_ms=deadline_ticks_ms, sync=True)
    except PositionLost:
        return False
    return not isinstance(outcome, Taken)


def catch_up(state: TopicState, *, ahead: int) -> list[Entry]:
    """Read and apply up to ``ahead`` entries beyond the state. Raises ``PositionLost`` (rule L1)."""
    look = state.log.look(state.position, ahead=ahead)
    for entry in look.entries:
        state.apply(entry, advance(look.position, version=entry.version, token=entry.token))
    state.position = look.position
    return list(look.entries)


def _reload_unsettled(log: DeltaLog, lost: PositionLost) -> TopicState:
    """The state that decides whether our entry is in the log; until it is loaded, nobody knows."""
    try:
        return load_state(log)
    except (StoreError, CorruptLogError) as error:
        raise CommitStateUnknownError(
            f"whether {lost} was created is unknown, and {log.table} can't be loaded to find out: {error}"
        ) from error


def _yield_to_others(state: TopicState, *, wait_ms: float) -> None:
    """Wait up to ``wait_ms`` at random, then go to the tail: several writers that all try again at once lose as often
    as there are others, and each loss costs two requests (rule L11)."""
    state.log.clock.sleep_ms(random.uniform(0, wait_ms))  # noqa: S311 - spreads writers, no secret
    ahead = _FIRST_AHEAD
    while len(catch_up(state, ahead=ahead)) == ahead:
        ahead = min(ahead * 2, _MAX_AHEAD)


def _sync_what_came_before(state: TopicState, *, deadline_ticks_ms: float) -> None:
    store, unsynced = state.log.store, state.unsynced
    if unsynced is None:
        retry(store.sync_all, clock=state.log.clock, deadline_ticks_ms=deadline_ticks_ms)
    elif unsynced:
        retry(lambda: store.sync(unsynced), clock=state.log.clock, deadline_ticks_ms=deadline_ticks_ms)
    state.unsynced = []


def _encode(log: DeltaLog, before: TopicHead | None, wanted: Commit, *, token: str) -> tuple[bytes, Entry]:
    actions = (*wanted.actions, *offset_actions(before, wanted.head))
    info = wanted.head.to_info()
    data = encode_entry(
        actions=actions,
        token=token,
        info=info,
        operation=wanted.operation,
        blind_append=wanted.blind_append,
        timestamp_ms=log.clock.now_ms(),
        version=__version__,
    )
    return data, Entry(version=wanted.head.delta_version, token=token, actions=actions, info=info)
