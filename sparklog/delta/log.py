"""A table's log: a log of create-only entries in its ``_delta_log`` folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.delta.actions import Entry, decode_entry
from sparklog.delta.checkpoint_content import CheckpointReader
from sparklog.delta.names import cleanup_marks_folder, entry_path
from sparklog.delta.recent_entries import RecentEntries
from sparklog.storage.entry_log import EntryLog

__all__ = ["DeltaLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLog(EntryLog[Entry]):
    """One table's log folder, and the clock that positions in it are judged by."""

    table: str
    """The table's folder, relative to the store's root."""
    recent: RecentEntries = field(default_factory=RecentEntries, compare=False, repr=False)
    """The entries that were created, or read while others were created, through this object a moment ago."""
    read_checkpoint: CheckpointReader | None = field(default=None, compare=False, repr=False)
    """Reads checkpoints; by Arrow, in this process, for None."""

    def path_of(self, version: int) -> str:
        return entry_path(self.table, version)

    def decode(self, version: int, data: bytes) -> Entry:
        return decode_entry(version, self.path_of(version), data)

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
