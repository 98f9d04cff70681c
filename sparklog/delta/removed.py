"""Which files a table doesn't have any more, and since when: a reader that began earlier may still need them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.actions import RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import staged_log
from sparklog.errors import CorruptLogError

__all__ = ["removed_files"]


def removed_files(log: DeltaLog) -> dict[str, int]:
    """The removed files that the log remembers, by path, and when they were removed: milliseconds since the epoch.

    The later of what their remover told and of the store's time of its entry, where that is still there. A checkpoint
    forgets a removal after ``delta.deletedFileRetentionDuration``, 7 days unless the table says otherwise. Files that
    were added again are among them.

    Raises:
        CorruptLogError, StoreError.
    """
    found: dict[str, int] = {}
    with staged_log(log) as staged:
        if staged is None:
            return found
        for part in staged.listing.checkpoint_parts:
            found.update(
                _removed_in((staged.folder / "_delta_log" / part.path.rpartition("/")[2]).read_bytes(), part.path)
            )
        for entry, (_, listed) in zip(staged.entries, staged.listing.entries, strict=True):
            for action in entry.actions:
                if isinstance(action, RemoveFile):
                    found[action.path] = max(found.get(action.path, 0), action.deletion_ms, listed.modified_ms)
    return found


def _removed_in(checkpoint: bytes, path: str) -> dict[str, int]:
    try:
        file = pq.ParquetFile(pa.BufferReader(checkpoint))
        rows = file.read(columns=["remove.path", "remove.deletionTimestamp"], use_threads=False)
        removed = rows["remove"].to_pylist() if "remove" in rows.column_names else []
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(f"corrupt checkpoint {path}: {error}") from error
    return {row["path"]: row.get("deletionTimestamp") or 0 for row in removed if row and row["path"] is not None}
