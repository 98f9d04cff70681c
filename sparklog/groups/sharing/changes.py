"""The changes of a share group's partition: acknowledging, ending locks, acquiring. Pure (rules S1 to S4).

A change is a frozen value that can be applied to whatever state is the newest, again and again (rule L4, decide again).
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sparklog.groups.sharing.states import Lock, RecordState, SharePartition, StateRange, empty_partition, overwritten

__all__ = [
    "AcknowledgeType",
    "Acknowledgement",
    "Acquisition",
    "ShareChange",
    "ShareDecision",
    "ShareFacts",
    "StaleTopic",
    "decide",
]


class StaleTopic(Exception):  # noqa: N818 - a signal between our own modules, never shown to a caller
    """The newest entry names another topic of that name than is known: look at the topic again, then decide."""


class AcknowledgeType(enum.Enum):
    """The outcome of a delivery. Source: Java ``AcknowledgeType``, with the numbers of the protocol."""

    ACCEPT = 1
    """Processed."""
    RELEASE = 2
    """Not processed: deliver it again, unless that was done as often as is allowed."""
    REJECT = 3
    """Can't be processed: never deliver it again."""
    RENEW = 4
    """Still being processed: hold it for another lock duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The outcome of records that one lock holds."""

    first: int
    """Offset (inclusive)."""
    last: int
    """Offset (inclusive)."""
    lock: int
    """The lock under which they were delivered: the number of the entry that acquired or renewed them."""
    kind: AcknowledgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """The records that a member would have now."""

    member: str
    lock_ms: float
    max_records: int
    """1 or more."""
    max_open: int
    """Offsets in flight that aren't done with, above which nothing new is acquired. Source: Kafka
    ``group.share.partition.max.record.locks``."""
    read_from: int
    """The first offset that the member has read (inclusive) …"""
    read_until: int
    """… up to here (exclusive)."""
    runs: Sequence[tuple[int, int]]
    """First and last offsets (both inclusive) of the records that it found there, ascending. What lies between isn't
    there: compaction has removed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFacts:
    """The facts to be known of the topic."""

    topic_id: str
    log_start_offset: int
    as_of: int
    """The newest entry of the share partition's log that was known when this was read of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChange:
    """All that a member wants at once: one entry does it."""

    acknowledgements: Sequence[Acknowledgement] = ()
    over: Collection[int] = ()
    """Locks whose time is over, or whose member is gone."""
    acquisition: Acquisition | None = None
    delivery_limit: int = 5
    """Source: Kafka ``group.share.delivery.count.limit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDecision:
    """The content of an entry, and what it means once it is created."""

    partition: SharePartition
    accepted: tuple[bool, ...]
    """For each acknowledgement: does it count? If not, the records aren't held by that lock any more."""
    number: int = 0
    """The number of that entry, and so of the lock of what was acquired or renewed."""
    acquired: tuple[StateRange, ...] = ()
    """The records that the member has got: nothing of it may be shown before the entry is created (rule S3)."""


def decide(partition: SharePartition, change: ShareChange, facts: ShareFacts, *, number: int) -> ShareDecision:
    """The state after a change, as the entry ``number`` would hold it. Where nothing changes, the same object.

    In this order: a topic that was made anew, and what retention has deleted, ends what was in flight; acknowledgements
    count while the records are held by exactly their lock; then locks are taken back; then records are acquired.

    Raises:
        StaleTopic: the state is of another topic, and which of the two is the newer one isn't known.
    """
    state = _as_of_log(partition, facts, number)
    state, accepted = _acknowledge(state, change.acknowledgements, limit=change.delivery_limit, number=number)
    state = _take_back(state, change.over, limit=change.delivery_limit)
    acquired: tuple[StateRange, ...] = ()
    if change.acquisition is not None:
        state, acquired = _acquire(state, change.acquisition, number=number)
    return ShareDecision(partition=state, accepted=accepted, number=number, acquired=acquired)


def _as_of_log(partition: SharePartition, facts: ShareFacts, number: int) -> SharePartition:
    """Archive what lies below the log start; of a topic that was deleted nothing is in flight (rule L8, one log).

    Two topics of one name have no order that their ids would show: the one that was seen later, by somebody who knew of
    the other, is the newer one.
    """
    if partition.topic_id != facts.topic_id:
        if facts.as_of != number - 1:
            raise StaleTopic(f"topic id {facts.topic_id}, expected {partition.topic_id} or a newer one")
        return empty_partition(facts.topic_id, facts.log_start_offset)
    if facts.log_start_offset <= partition.start_offset:
        return partition
    if facts.log_start_offset >= partition.end_offset:
        return empty_partition(facts.topic_id, facts.log_start_offset)
    gone = partition.within(partition.start_offset, facts.log_start_offset - 1)
    return overwritten(partition, [_final(part) for part in gone])


def _acknowledge(
    state: SharePartition, acknowledgements: Sequence[Acknowledgement], *, limit: int, number: int
) -> tuple[SharePartition, tuple[bool, ...]]:
    """Apply acknowledgements in their order; returns which of them count, too.

    Those that have no offset in common change the state together: each change copies it, and there may be an
    acknowledgement for each record.
    """
    accepted: list[bool] = []
    changes: list[StateRange] = []
    changed: list[tuple[int, int]] = []
    locks: dict[int, Lock] = {}
    for each in acknowledgements:
        if _has_common_offset(changed, each):
            state = overwritten(state, changes, locks=locks)
            changes, changed, locks = [], [], {}
        accepted.append(state.holds(each.first, each.last, each.lock))
        if accepted[-1] and each.first <= each.last:
            changes += [_acknowledged(part, each.kind, limit, number) for part in state.within(each.first, each.last)]
            insort(changed, (each.first, each.last))
            if each.kind is AcknowledgeType.RENEW:
                locks[number] = state.locks[each.lock]
    return overwritten(state, changes, locks=locks) if changes else state, tuple(accepted)


def _has_common_offset(ranges: Sequence[tuple[int, int]], acknowledgement: Acknowledgement) -> bool:
    """Whether one of these ranges, ascending and without common offsets, has an offset that is acknowledged."""
    at = bisect_right(ranges, acknowledgement.last, key=lambda offsets: offsets[0])
    return at > 0 and ranges[at - 1][1] >= acknowledgement.first


def _acknowledged(part: StateRange, kind: AcknowledgeType, limit: int, number: int) -> StateRange:
    if kind is AcknowledgeType.RENEW:
        return replace(part, lock=number)
    if kind is AcknowledgeType.ACCEPT:
        return _final(part, RecordState.ACKNOWLEDGED)
    if kind is AcknowledgeType.REJECT:
        return _final(part)
    return _released(part, limit)


def _take_back(state: SharePartition, over: Collection[int], *, limit: int) -> SharePartition:
    held = [each for each in state.ranges if each.lock and each.lock in over]
    return overwritten(state, [_released(each, limit) for each in held]) if held else state


def _acquire(
    state: SharePartition, wanted: Acquisition, *, number: int
) -> tuple[SharePartition, tuple[StateRange, ...]]:
    """Lock what is available, the oldest first, and then what nobody has had yet."""
    changes: list[StateRange] = []
    left = wanted.max_records
    for each in state.ranges:
        if each.state is RecordState.AVAILABLE:
            left -= _lock(changes, wanted, each.first, each.last, left, number, each.delivery_count + 1)
    room = min(left, wanted.max_open - state.open_count)
    if wanted.read_from <= state.end_offset < wanted.read_until:
        _lock(changes, wanted, state.end_offset, wanted.read_until - 1, room, number, 1)
    got = tuple(each for each in changes if each.state is RecordState.ACQUIRED)
    if not changes:
        return state, ()
    lock = Lock(member=wanted.member, duration_ms=wanted.lock_ms)
    return overwritten(state, changes, locks={number: lock}), got


def _lock(
    changes: list[StateRange], wanted: Acquisition, first: int, last: int, most: int, number: int, count: int
) -> int:
    """Lock up to ``most`` records of those from ``first`` to ``last`` that were read; what isn't there is acknowledged
    on the way. Returns how many were locked."""
    at, last = max(first, wanted.read_from), min(last, wanted.read_until - 1)
    taken = 0
    for index in range(bisect_left(wanted.runs, at, key=lambda run: run[1]), len(wanted.runs)):
        run_first, run_last = wanted.runs[index]
        low, high = max(run_first, at), min(run_last, last)
        if low > high:
            break
        if taken >= most:
            return taken
        if low > at:
            changes.append(_gap(at, low - 1))
        high = min(high, low + most - taken - 1)
        changes.append(StateRange(first=low, last=high, state=RecordState.ACQUIRED, delivery_count=count, lock=number))
        taken += high - low + 1
        at = high + 1
    if taken < most and at <= last:
        changes.append(_gap(at, last))
    return taken


def _gap(first: int, last: int) -> StateRange:
    return StateRange(first=first, last=last, state=RecordState.ACKNOWLEDGED, delivery_count=0)


def _final(part: StateRange, state: RecordState = RecordState.ARCHIVED) -> StateRange:
    return replace(part, state=state, delivery_count=0, lock=0)


def _released(part: StateRange, limit: int) -> StateRange:
    if part.delivery_count >= limit:
        return _final(part)
    return replace(part, state=RecordState.AVAILABLE, lock=0)
