"""A table's log: a log of create-only entries in its ``_delta_log`` folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparklog.delta.actions import Entry, decode_entry
from sparklog.delta.checkpoint_content import CheckpointReader
from sparklog.delta.names import cleanup_marks_folder, entry_path, log_folder
from sparklog.delta.recent_entries import RecentEntries
from sparklog.delta.shared_reads import SharedReads
from sparklog.storage.entry_log import EntryLog, Look
from sparklog.storage.foothold import Foothold
from sparklog.storage.position import Position

__all__ = ["DeltaLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLog(EntryLog[Entry]):
    """One table's log folder, and the clock that positions in it are judged by."""

    table: str
    """The table's folder, relative to the store's root."""
    recent: RecentEntries = field(default_factory=RecentEntries, compare=False, repr=False)
    """The entries that were created, or read while others were created, through this object a moment ago."""
    shared: SharedReads | None = field(default=None, compare=False, repr=False)
    """Entries that the writers of this process read, for each other; None: each reads for itself."""
    read_checkpoint: CheckpointReader | None = field(default=None, compare=False, repr=False)
    """Reads checkpoints; by Arrow, in this process, for None."""
    before_load: Callable[[int, int], object] | None = field(default=None, compare=False, repr=False)
    """Called before the table is loaded as a whole, with the bytes of the checkpoint and of the entries that are to be
    read: may wait for memory."""

    @property
    def folder(self) -> str:
        return log_folder(self.table)

    def path_of(self, version: int) -> str:
        return entry_path(self.table, version)

    def decode(self, version: int, data: bytes) -> Entry:
        return decode_entry(version, self.path_of(version), data)

    def look(self, position: Position, *, ahead: int = 1) -> Look[Entry]:
        """Read up to ``ahead`` entries beyond ``position``, as any log does, and share what was found."""
        shared = self.shared
        if shared is None:
            return EntryLog.look(self, position, ahead=ahead)
        began, version = self.clock.ticks_ms(), position.version + 1
        shared.begin(version, began)
        try:
            data = self.store.read_many(self.paths_beyond(position, ahead))
            look = self.look_at(position, data, began_ticks_ms=began)
            for entry, one in zip(look.entries, data, strict=False):
                if one is not None:
                    shared.add(entry, one, began_ticks_ms=began)
            if len(look.entries) < len(data):
                absent = version + len(look.entries)
                shared.add_absence(absent, began_ticks_ms=began, ended_ticks_ms=self.clock.ticks_ms())
            return look
        finally:
            shared.end(version)

    def shared_look(self, position: Position, *, ended_from_ticks_ms: float = math.inf) -> Look[Entry] | None:
        """Look at what others of this process have found beyond ``position``: as good as a look of one's own, which is
        answered late. None: nothing that is to be believed. No request, and a GET when trust ran out.

        A look that began before the newest one that found nothing, whosever, counts for nothing.

        Args:
            ended_from_ticks_ms: that there is no entry counts only by a look that ended then or later.
        Raises:
            PositionLost: as :meth:`look`.
        """
        if self.shared is None:
            return None
        now, anchor, version = self.clock.ticks_ms(), position.anchor_ticks_ms, position.version + 1
        found = self.shared.entries_from(version, since_ticks_ms=anchor, now_ticks_ms=now)
        if found:
            entries, data = [one.entry for one in found], [one.data for one in found]
            return self.look_of(position, entries, data, tail_seen_at=None)
        seen_at = self.shared.absence(version, after_ticks_ms=anchor, ended_from_ticks_ms=ended_from_ticks_ms)
        return None if seen_at is None else self.look_of(position, [], [], tail_seen_at=seen_at)

    def looked_for_since(self, position: Position, *, within_ms: float) -> float | None:
        """Since when another of this process asks for the entry beyond ``position``; None: none does now, or one for
        longer than ``within_ms``."""
        if self.shared is None:
            return None
        since = self.clock.ticks_ms() - within_ms
        return self.shared.under_way_since(position.version + 1, since_ticks_ms=since)

    def hold(self) -> Foothold:
        """Hold the log's folder, before the log is read, for :meth:`check_held`. Raises ``StoreError``."""
        return self.store.hold_folder(self.folder, self.foothold)

    def check_held(self, place: Foothold) -> None:
        """Before a file that isn't the next entry is written to the log's folder, or deleted there: is it the folder
        that :meth:`hold` found? Raises ``StoreReplacedError`` (rule L17, ground)."""
        self.store.check_held(self.folder, place)

    def known_lately(self) -> Mapping[int, bytes]:
        """Entries that were created or read through this object less than half of ``tail_trust_ms`` ago, by version: a
        read would find the same bytes."""
        return self.recent.young(now_ticks_ms=self.clock.ticks_ms(), keep_ms=self.tail_trust_ms / 2)

    def _note_created(self, version: int, data: bytes) -> None:
        self.recent.add_created(version, data, now_ticks_ms=self.clock.ticks_ms(), keep_ms=self.tail_trust_ms / 2)

    def _note_read(self, version: int, data: bytes) -> None:
        self.recent.add_read(version, data, now_ticks_ms=self.clock.ticks_ms(), keep_ms=self.tail_trust_ms / 2)

    @property
    def cleanup_marks(self) -> str:
        return cleanup_marks_folder(self.table)
