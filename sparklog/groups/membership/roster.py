"""The folder of a group's members: writing one's own objects, and seeing everybody's in one listing (rule G4)."""

from __future__ import annotations

import logging

from sparklog.clock import Clock
from sparklog.errors import CorruptLogError
from sparklog.groups.membership.liveness import Marks, Watch
from sparklog.groups.membership.member_state import MemberState, decode_member, encode_member
from sparklog.paths import decode_id, group_members, member_heartbeat, member_state
from sparklog.storage import ObjectStore

__all__ = ["Roster", "read_members"]

_LOGGER = logging.getLogger("sparklog.groups")


class Roster:
    """A group's members as one process sees them; owned by one thread."""

    def __init__(self, store: ObjectStore, clock: Clock, group: str, *, heartbeat_interval_ms: float) -> None:
        self.watch = Watch(heartbeat_interval_ms=heartbeat_interval_ms)
        self._store = store
        self._clock = clock
        self._group = group
        self._beats = 0

    def write(self, state: MemberState) -> None:
        """Describe oneself. One PUT, which the others also take for a heartbeat."""
        self._store.put(member_state(self._group, state.member_id), encode_member(state))

    def beat(self, member_id: str) -> None:
        """Show that one lives. One PUT; never the same bytes twice, so its ETag changes too."""
        self._beats += 1
        self._store.put(member_heartbeat(self._group, member_id), b"%d" % self._beats)

    def look(self) -> None:
        """See who is there. One LIST, and a GET for each member that has described itself anew."""
        began = self._clock.ticks_ms()
        listed = list_members(self._store, self._group)
        changed = self.watch.look(listed, now_ticks_ms=self._clock.ticks_ms(), began_ticks_ms=began)
        for member_id, state in read_members(self._store, self._group, changed).items():
            self.watch.read(member_id, state)

    def delete(self, *member_ids: str) -> None:
        """Delete members' objects: they have left, or are dead. One request for all, none where there is no member."""
        paths = [name(self._group, one) for one in member_ids for name in (member_state, member_heartbeat)]
        if paths:
            self._store.delete(paths)
        for member_id in member_ids:
            self.watch.forget(member_id)


def list_members(store: ObjectStore, group: str) -> dict[str, Marks]:
    """Every member's marks, by member id. One LIST."""
    folder = group_members(group)
    found: dict[str, dict[str, str]] = {}
    for listed in store.list(folder):
        part, _, name = listed.path[len(folder) :].partition("/")
        found.setdefault(decode_id(part), {})[name] = f"{listed.etag} {listed.modified_ms}"
    return {
        member_id: Marks(state=names.get("state.json"), heartbeat=names.get("heartbeat"))
        for member_id, names in found.items()
    }


def read_members(store: ObjectStore, group: str, member_ids: list[str]) -> dict[str, MemberState | None]:
    """What members say of themselves; None for one that is gone, or whose object can't be understood."""
    paths = [member_state(group, member_id) for member_id in member_ids]
    found: dict[str, MemberState | None] = {}
    for member_id, path, data in zip(member_ids, paths, store.read_many(paths) if paths else (), strict=True):
        try:
            found[member_id] = None if data is None else decode_member(path, data)
        except CorruptLogError as error:  # it is no member; the others go on without it
            _LOGGER.warning("%s", error)
            found[member_id] = None
    return found
