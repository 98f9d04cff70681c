"""Emptiness of a group: judged from outside and at once, and ensured by an empty generation (rule G5,
administrators).

A member judges others by watching them; an administrator has no time for that and compares times that the *store* gave:
of a member's objects, and of an object written just now. A wrong judgement is harmless: what follows is fenced by an
empty generation, and a member that was only slow finds itself out of the group and joins again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from functools import partial

from sparklog.errors import StoreUnavailableError
from sparklog.groups.membership.generation_numbers import (
    first_position,
    greatest_stamp,
    not_to_be_taken,
    read_rows,
)
from sparklog.groups.membership.generations import (
    Generation,
    GenerationLog,
    GenerationPlan,
    encode_generation,
    generation_log,
)
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.proposals import empty_plan
from sparklog.groups.membership.roster import read_members
from sparklog.log import Cluster
from sparklog.log.store_time import store_time_ms
from sparklog.paths import decode_id, group_members, group_probes
from sparklog.storage import ObjectInfo
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position
from sparklog.storage.retrying import DEFAULT_RETRY_MS

__all__ = ["SeenNow", "StoreNow", "empty_generation", "empty_since_ms", "living_of", "members_now", "members_seen"]

_ATTEMPTS = 5


class StoreNow:
    """The store's time, asked for once, by whichever thread needs it first: it judges whether members live, and may be
    as old as the call that it is for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._now_ms: int | None = None

    def ms(self, group: str, seen_ms: int) -> int:
        """Milliseconds since the epoch. The first call is a PUT, a LIST and a DELETE, in the folder of ``group``.

        Args:
            seen_ms: has no effect.
        """
        with self._lock:
            if self._now_ms is None:
                self._now_ms = store_time_ms(self._cluster, f"{group_probes(group)}{uuid.uuid4().hex}")
            return self._now_ms


class SeenNow:
    """The time for who only looks, and so writes nothing: this machine's, unless an object of the store is newer.

    Where this clock is ahead of the store's by more than a session, members that live look dead; nothing may be
    deleted or set by this time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._clock = cluster.clock
        self._now_ms = self._clock.now_ms()

    def ms(self, group: str, seen_ms: int) -> int:
        """Milliseconds since the epoch.

        Args:
            seen_ms: the newest time of an object in the store, of which the caller knows.
        """
        self._now_ms = max(self._now_ms, seen_ms)
        return self._now_ms


def members_now(cluster: Cluster, group: str) -> dict[str, MemberState]:
    """The members that were seen to live within their sessions, by id. A PUT, two LISTs, a DELETE, a GET each."""
    return _members_by(cluster, group, StoreNow(cluster))


def members_seen(cluster: Cluster, group: str) -> dict[str, MemberState]:
    """The same by this machine's time, for who writes nothing. A LIST, a GET each."""
    return _members_by(cluster, group, SeenNow(cluster))


def _members_by(cluster: Cluster, group: str, now: StoreNow | SeenNow) -> dict[str, MemberState]:
    return living_of(cluster, group, cluster.store.list(group_members(group)), now)


def living_of(
    cluster: Cluster, group: str, listed: Iterable[ObjectInfo], now: StoreNow | SeenNow
) -> dict[str, MemberState]:
    """The living ones of the members whose objects were listed, by id. A GET each, and the time where there are any."""
    folder = group_members(group)
    written: dict[str, int] = {}
    for file in listed:
        member_id = decode_id(file.path[len(folder) :].partition("/")[0])
        written[member_id] = max(written.get(member_id, 0), file.modified_ms)
    if not written:
        return {}
    now_ms = now.ms(group, max(written.values()))
    states = read_members(cluster.store, group, sorted(written))
    return {
        member_id: state
        for member_id, state in states.items()
        if state is not None and now_ms - written[member_id] <= state.session_timeout_ms
    }


def empty_generation(cluster: Cluster, group: str, refusal: Exception, *, deleted: bool = False) -> int:
    """The number of the group's newest generation if it is empty, else of an empty one that is created here.

    0 for a group that never had one. A member that acts upon an older generation can't write anything any more that
    was written under this number (rule G1, stamps).

    Args:
        deleted: the generation has to say, too, that the group is deleted.
    Raises:
        refusal: the group has members that live.
        StoreUnavailableError: other generations came again and again.
    """
    log = generation_log(cluster, group)
    for _ in range(_ATTEMPTS):
        rows = read_rows(cluster, group)  # before the generations: one is created before its stamps
        newest, position = log.open_newest()
        living = members_now(cluster, group)
        if living:
            raise refusal
        used = greatest_stamp(rows)
        if newest is None:
            if used == 0:
                return 0
            first = first_position(log, position, used)
            if first is None:
                continue
            position = first
        elif not newest.plan.members and (newest.plan.deleted or not deleted) and not_to_be_taken(newest, rows) is None:
            log.flush(newest.version)
            return newest.version
        plan = empty_plan(newest, now_ms=cluster.clock.now_ms(), deleted=deleted)
        number = _create_empty(cluster, log, position, plan, beyond=used)
        if number is not None:
            return number
    raise StoreUnavailableError(f"group {group!r} changed under {_ATTEMPTS} attempts to find it empty; try again")


def _create_empty(
    cluster: Cluster, log: GenerationLog, position: Position, plan: GenerationPlan, *, beyond: int
) -> int | None:
    """Create an empty generation whose number is above ``beyond``, and those before it alike; None: others came."""
    deadline = cluster.clock.deadline_in(DEFAULT_RETRY_MS)
    encode = partial(encode_generation, plan)
    while True:
        try:
            outcome = log.create_next(position, encode, tokens=set(), deadline=deadline, sync=True)
        except PositionLost:
            return None
        if not isinstance(outcome, Created):
            return None
        position = outcome.position
        if position.version > beyond:
            return position.version


def empty_since_ms(log: GenerationLog, newest: Generation | None) -> int | None:
    """The time since which a group's newest generation says that nobody is in it, by the store's own time; None where
    it says otherwise. Its own time is by its proposer's clock. A LIST.

    None, too, where others came meanwhile, so that it was cleaned.
    """
    if newest is None or newest.plan.members:
        return None
    path = log.path_of(newest.version)
    listed = log.store.list(log.folder, after=log.path_of(newest.version - 1))
    return next((file.modified_ms for file in listed if file.path == path), None)
