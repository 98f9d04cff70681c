"""Reading many groups from outside, for administrators, with as few requests as possible.

Nothing here is trusted to be true a moment later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.errors import InvalidArgumentError, StoreUnavailableError, as_sparklog_error
from sparklog.groups.admin.description import (
    GroupListing,
    GroupState,
    actual_members,
    describe,
    group_exists,
    protocol_of,
)
from sparklog.groups.admin.emptiness import SeenNow, StoreNow, living_of
from sparklog.groups.membership.generations import Generation, generation_log
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.offsets.offset_state import has_committed, look_once, offset_log
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.paths import (
    GROUPS_FOLDER,
    decode_id,
    encode_id,
    group_folder,
    group_generations,
    group_members,
    group_offsets_table,
)
from sparklog.storage import ObjectInfo
from sparklog.storage.each_alone import each_alone

__all__ = ["InspectedGroup", "group_folders", "group_listings", "group_names", "inspect_group", "named_groups"]

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedGroup:
    """A group as it was seen."""

    newest: Generation | None
    members: Mapping[str, MemberState]
    """The members that live, as :func:`~sparklog.groups.admin.description.actual_members` has them."""
    rows: Rows

    @property
    def exists(self) -> bool:
        """Is there such a group?"""
        return group_exists(self.newest, self.members, self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """The content of a group's folder by one listing."""

    newest: Generation | None
    members: Sequence[ObjectInfo]
    """The members' objects."""
    has_offsets: bool


def group_folders(cluster: Cluster) -> list[str]:
    """The groups for which there is a folder, deleted ones among them, sorted. One LIST."""
    return sorted(name for name in map(_group_of, cluster.store.list_names(GROUPS_FOLDER)) if name is not None)


def group_names(cluster: Cluster) -> list[str]:
    """The groups of a cluster, sorted: those of :func:`named_groups`."""
    return [*named_groups(cluster)]


def named_groups(cluster: Cluster) -> dict[str, Exception | None]:
    """The groups of a cluster, sorted, each with why it can't be read, if it can't; deleted ones are left out.

    A LIST, and two or three requests for each group, 32 groups at a time: a LIST and a GET, since a deleted group's
    generations stay (rule L8, one log), or two LISTs and a GET where there are none. A group that was deleted, or whose
    log of offsets is long, costs a few more.

    Raises:
        StoreError: the store can't be read.
    """
    now = SeenNow(cluster)
    groups = group_folders(cluster)
    looks = each_alone(cluster.store, lambda group: _exists(cluster, group, now), groups)
    return {
        group: look if isinstance(look, Exception) else None
        for group, look in zip(groups, looks, strict=True)
        if look is not False
    }


def group_listings(cluster: Cluster) -> list[GroupListing]:
    """The groups of a cluster with their states, sorted; deleted ones are left out.

    As :func:`group_names`, and for a group with members what describing it costs, but for its topics. One that can't be
    read is ``Unknown``, with the error.

    Raises:
        StoreError: the store can't be read.
    """
    now = SeenNow(cluster)
    groups = group_folders(cluster)
    looks = each_alone(cluster.store, lambda group: _listing(cluster, group, now), groups)
    listings = (
        GroupListing(group_id=group, state=GroupState.UNKNOWN, protocol_type="", error=as_sparklog_error(look))
        if isinstance(look, Exception)
        else look
        for group, look in zip(groups, looks, strict=True)
    )
    return [listing for listing in listings if listing is not None]


def inspect_group(cluster: Cluster, group: str, now: StoreNow | SeenNow | None = None) -> InspectedGroup:
    """A group's members, its newest generation, then its rows. Two LISTs and three GETs, and a GET for each member.

    Args:
        now: the time by which members live; by default the store's, which is asked for by a write if there are any.

    A member that acts upon a generation is never judged by an older one.
    """
    folder = _look_into(cluster, group)
    newest, members = _members(cluster, group, folder, now or StoreNow(cluster))
    rows = look_once(offset_log(cluster, group)) if folder.has_offsets else {}
    return InspectedGroup(newest=newest, members=members, rows=rows)


def _members(
    cluster: Cluster, group: str, folder: _Folder, now: StoreNow | SeenNow
) -> tuple[Generation | None, dict[str, MemberState]]:
    """The newest generation, and the members that live."""
    newest, living = folder.newest, living_of(cluster, group, folder.members, now)
    acted_upon = max((state.generation for state in living.values()), default=0)
    if acted_upon > (newest.version if newest is not None else 0):  # it was created since the listing
        newest, _ = generation_log(cluster, group).open_newest()
    return newest, actual_members(newest, living)


def _look_into(cluster: Cluster, group: str) -> _Folder:
    """A group's generations and members in one listing, which ends where its offsets begin; and a GET."""
    log, offsets = generation_log(cluster, group), f"{group_offsets_table(group)}/"
    generations, members = group_generations(group), group_members(group)
    for _ in range(_ATTEMPTS):
        began, number, has_offsets = cluster.clock.ticks_ms(), 0, False
        member_files: list[ObjectInfo] = []
        for listed in cluster.store.list(group_folder(group)):
            if listed.path.startswith(generations):
                number = max(number, log.number_of(listed.path[len(generations) :]) or 0)
            elif listed.path.startswith(members):
                member_files.append(listed)
            elif listed.path >= offsets:
                has_offsets = listed.path.startswith(offsets)
                break
        newest = log.read_entry(number) if number else None
        is_young = cluster.clock.ticks_ms() - began <= cluster.tail_trust_ms  # else it may be another (rule L1, trust)
        if not number or (newest is not None and is_young):
            return _Folder(newest=newest, members=member_files, has_offsets=has_offsets)
    raise StoreUnavailableError(f"{cluster.store.uri}/{generations} was cleaned under {_ATTEMPTS} looks")


def _exists(cluster: Cluster, group: str, now: StoreNow | SeenNow) -> bool:
    folder = _look_into(cluster, group)
    if folder.newest is not None and not folder.newest.plan.deleted:
        return True
    if folder.has_offsets and has_committed(offset_log(cluster, group)):
        return True
    return bool(_members(cluster, group, folder, now)[1])


def _listing(cluster: Cluster, group: str, now: StoreNow | SeenNow) -> GroupListing | None:
    folder = _look_into(cluster, group)
    if not folder.members:
        is_there = folder.newest is not None and not folder.newest.plan.deleted
        if not (is_there or (folder.has_offsets and has_committed(offset_log(cluster, group)))):
            return None
        return GroupListing(
            group_id=group, state=GroupState.EMPTY, protocol_type=protocol_of(folder.newest, members={})
        )
    newest, members = _members(cluster, group, folder, now)
    rows = look_once(offset_log(cluster, group)) if folder.has_offsets else {}
    described = describe(group, newest, members, rows, {})
    if not described.exists:
        return None
    return GroupListing(group_id=group, state=described.state, protocol_type=described.protocol_type)


def _group_of(folder: str) -> str | None:
    """The group to which a folder belongs; None for a folder that isn't sparklog's."""
    group = decode_id(folder)
    try:
        return group if encode_id(group) == folder else None
    except InvalidArgumentError:
        return None
