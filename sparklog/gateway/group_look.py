"""Reading a group in the store: its members, by the store's own times (rule G5, administrators)."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.errors import UnknownMemberIdError
from sparklog.gateway.group_stay import ASSIGNOR
from sparklog.groups.admin.administration import remove_members
from sparklog.groups.admin.description import actual_members
from sparklog.groups.admin.emptiness import StoreNow, living_of
from sparklog.groups.membership.generations import generation_log
from sparklog.log import Cluster
from sparklog.paths import decode_id, group_members

__all__ = ["GroupLook", "look_at_group", "remove_dead"]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group's members as of one moment."""

    coordinator: str = ""
    """The address of the gateway that coordinates it, ``host:port``; empty where none does."""
    consumers: tuple[str, ...] = ()
    """Members that are no gateways."""
    dead: tuple[str, ...] = ()
    """Members that were silent for longer than their sessions."""


def look_at_group(cluster: Cluster, group: str) -> GroupLook:
    """Look at a group's members. A LIST; where there are any, also a PUT, two LISTs, a DELETE, and a GET for each."""
    listed = list(cluster.store.list(group_members(group)))
    if not listed:
        return GroupLook()
    folder = group_members(group)
    ids = {decode_id(file.path[len(folder) :].partition("/")[0]) for file in listed}
    living = living_of(cluster, group, listed, StoreNow(cluster))
    newest, _ = generation_log(cluster, group).open_newest()
    members = actual_members(newest, living)
    gateways = sorted(member_id for member_id, state in members.items() if ASSIGNOR in state.assignors)
    return GroupLook(
        coordinator=members[gateways[0]].host if gateways else "",
        consumers=tuple(sorted(members.keys() - set(gateways))),
        dead=tuple(sorted(ids - living.keys())),
    )


def remove_dead(cluster: Cluster, group: str, dead: tuple[str, ...]) -> None:
    """Put members out that are dead by the store's times, so that nobody waits for their sessions to end."""
    for member_id in dead:
        try:
            remove_members(cluster, group, [member_id])
        except UnknownMemberIdError:  # others have done so
            continue
