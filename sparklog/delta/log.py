"""A table's log: a log of create-only entries in its ``_delta_log`` folder."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.delta.actions import Entry, decode_entry
from sparklog.delta.names import cleanup_marks_folder, entry_path
from sparklog.storage.entry_log import EntryLog

__all__ = ["DeltaLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLog(EntryLog[Entry]):
    """One table's log folder, and the clock that positions in it are judged by."""

    table: str
    """The table's folder, relative to the store's root."""

    def path_of(self, version: int) -> str:
        return entry_path(self.table, version)

    def decode(self, version: int, data: bytes) -> Entry:
        return decode_entry(version, self.path_of(version), data)

    @property
    def cleanup_marks(self) -> str:
        return cleanup_marks_folder(self.table)
