"""The roster of a group: the folder of its members' objects, which one listing shows (rule G4, one listing)."""

from __future__ import annotations

import logging

from sparklog.clock import Clock
from sparklog.errors import CorruptLogError
from sparklog.groups.membership.liveness import LivenessTracker, MemberMarks
from sparklog.groups.membership.member_state import MemberState, decode_member, encode_member
from sparklog.paths import decode_id, group_members, member_heartbeat_in, member_state_in
from sparklog.storage import ObjectStore

__all__ = ["Roster", "list_members", "list_members_in", "read_members", "read_members_in"]

_LOGGER = logging.getLogger("sparklog.groups")


class Roster:
    """A group's members as one process sees them, and that process's own objects; owned by one thread.

    Args:
        folder: the members'; by default that of a consumer group.
    """

    def __init__(
        self, store: ObjectStore, clock: Clock, group: str, *, heartbeat_interval_ms: float, folder: str = ""
    ) -> None:
        self.tracker = LivenessTracker(heartbeat_interval_ms=heartbeat_interval_ms)
        self._store = store
        self._clock = clock
        self._folder = folder or group_members(group)
        self._heartbeats = 0

    def write_state(self, state: MemberState) -> None:
        """Write a member's state. One PUT, which the others also take for a heartbeat."""
        self._store.put(member_state_in(self._folder, state.member_id), encode_member(state))

    def write_heartbeat(self, member_id: str) -> None:
        """Write a member's heartbeat. One PUT; never the same bytes twice, so its ETag changes too."""
        self._heartbeats += 1
        self._store.put(member_heartbeat_in(self._folder, member_id), b"%d" % self._heartbeats)

    def refresh(self) -> None:
        """List the members. One LIST, and a GET for each member whose state was written since the last listing."""
        began = self._clock.ticks_ms()
        listed = list_members_in(self._store, self._folder)
        changed = self.tracker.update(listed, now_ticks_ms=self._clock.ticks_ms(), began_ticks_ms=began)
        for member_id, state in read_members_in(self._store, self._folder, changed).items():
            self.tracker.set_state(member_id, state)

    def delete(self, *member_ids: str) -> None:
        """Delete members' objects: they have left, or are dead. One request for all, none where there is no member."""
        paths = [path_of(self._folder, i) for i in member_ids for path_of in (member_state_in, member_heartbeat_in)]
        if paths:
            self._store.delete(paths)
        for member_id in member_ids:
            self.tracker.remove(member_id)


def list_members(store: ObjectStore, group: str) -> dict[str, MemberMarks]:
    """Every member's marks, by member id. One LIST."""
    return list_members_in(store, group_members(group))


def list_members_in(store: ObjectStore, folder: str) -> dict[str, MemberMarks]:
    """The same, of the folder of a group's members."""
    objects: dict[str, dict[str, str]] = {}
    for listed in store.list(folder):
        part, _, name = listed.path[len(folder) :].partition("/")
        objects.setdefault(decode_id(part), {})[name] = f"{listed.etag} {listed.modified_ms}"
    return {
        member_id: MemberMarks(state=names.get("state.json"), heartbeat=names.get("heartbeat"))
        for member_id, names in objects.items()
    }


def read_members(store: ObjectStore, group: str, member_ids: list[str]) -> dict[str, MemberState | None]:
    """The states of members; None for one that is gone, or whose object can't be understood."""
    return read_members_in(store, group_members(group), member_ids)


def read_members_in(store: ObjectStore, folder: str, member_ids: list[str]) -> dict[str, MemberState | None]:
    """The same, of the folder of a group's members."""
    paths = [member_state_in(folder, member_id) for member_id in member_ids]
    states: dict[str, MemberState | None] = {}
    for member_id, path, data in zip(member_ids, paths, store.read_many(paths) if paths else (), strict=True):
        try:
            states[member_id] = None if data is None else decode_member(path, data)
        except CorruptLogError as error:  # it is no member; the others go on without it
            _LOGGER.warning("%s", error)
            states[member_id] = None
    return states
