"""The memory that topics may take while they are loaded side by side: many small ones at once, few large ones."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.arrow import is_arrow_loaded, pa
from sparklog.interrupts import EventCount

__all__ = ["ROOM", "LoadingRoom", "has_room", "needed_bytes"]

_ROOM_BYTES = 128 * 2**20
_MUCH_BYTES = 2**20
"""From here on memory is given back to the system."""
_EMPTY_CHECKPOINT_BYTES = 16_384
"""About the size of a checkpoint of hardly any file."""
_CHECKPOINT_TIMES = 120
_ENTRIES_TIMES = 4
"""Memory for each byte of a checkpoint and of entries. Measured, with paths that can't be compressed: 2.6 KB a file
while eight topics of 10,000 files are loaded, of which the checkpoint has 21 bytes; 1.6 KB where an entry has it."""


def needed_bytes(checkpoint_bytes: int, entry_bytes: int) -> int:
    """About the memory that loading a topic takes, by the sizes of the objects of its log that are read for it."""
    return _CHECKPOINT_TIMES * max(0, checkpoint_bytes - _EMPTY_CHECKPOINT_BYTES) + _ENTRIES_TIMES * entry_bytes


def has_room(loads: Iterable[tuple[object, int]], load: object, room_bytes: int) -> bool:
    """Is there room for a load beside those that came before it? The first one always has it.

    Args:
        loads: each with what it needs, in the order in which they came; this one among them.
    """
    before = 0
    for one, need in loads:
        if one is load:
            return before == 0 or before + need <= room_bytes
        before += need
    return True


class LoadingRoom:
    """Has loads wait for those that came before them. For several threads; without a lock, which an interrupt could
    leave held. As no load waits for a later one, no wait is for ever where loads end."""

    def __init__(self, room_bytes: int = _ROOM_BYTES) -> None:
        self._room_bytes = room_bytes
        self._loads: dict[object, int] = {}
        self._changed = EventCount()

    def enter(self, load: object, need_bytes: int) -> None:
        """Wait for room. Whoever entered already keeps its turn, and may need more."""
        self._loads[load] = need_bytes
        self._changed.wait_for(lambda: has_room(list(self._loads.items()), load, self._room_bytes))

    def leave(self, load: object) -> None:
        """Give the room back, if the load has some or waits for it; by the thread that loaded."""
        need = self._loads.get(load)
        if need is None:
            return
        if need >= _MUCH_BYTES and is_arrow_loaded():  # Arrow keeps what was freed, for each thread apart
            pa.default_memory_pool().release_unused()
        self._loads.pop(load, None)
        self._changed.notify_all()


ROOM = LoadingRoom()
"""The room of this process."""
