"""The files of a loaded table as segments, and what an entry changes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.delta.actions import AddFile, Entry, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Snapshot
from sparklog.log.data.segments import Segment, SegmentIndex, segment_of_add, segment_of_row
from sparklog.log.foreign_rewrites import gives_offsets, judge, rewrites_of

__all__ = ["add_of_segment", "added_segments", "apply_files", "file_statistics", "live_files"]


def live_files(log: DeltaLog, snapshot: Snapshot) -> SegmentIndex:
    """The files of a loaded table; what other engines did since its checkpoint is judged (rule F6, moved records)."""
    files = (_complete(log, segment) for segment in _checkpointed(snapshot))
    index = SegmentIndex.of(files, rewrites=rewrites_of(snapshot.transactions), table=log.table)
    for entry in snapshot.tail:
        added = added_segments(log, entry)
        if gives_offsets(entry):
            index.rewrites = judge(index.rewrites, entry, added, index.by_path)
        apply_files(index, entry, added)
    return index


def added_segments(log: DeltaLog, entry: Entry) -> list[Segment]:
    """The files that an entry adds; those without statistics are looked into."""
    adds = [action for action in entry.actions if isinstance(action, AddFile)]
    return [_complete(log, segment_of_add(add, entry.version, table=log.table)) for add in adds]


def apply_files(index: SegmentIndex, entry: Entry, added: Sequence[Segment]) -> None:
    """Apply the files that an entry removes and adds; a path that it both removes and adds is there afterwards."""
    index.remove_all(action.path for action in entry.actions if isinstance(action, RemoveFile))
    for segment in added:
        index.add(segment)


def file_statistics(snapshot: Snapshot, index: SegmentIndex) -> dict[str, str | Mapping[str, Any]]:
    """The statistics of live files by path, as the log has them, perhaps as JSON."""
    found: dict[str, str | Mapping[str, Any]] = {}
    if snapshot.files is not None:
        found = dict(zip(snapshot.files["path"].to_pylist(), snapshot.files["stats"].to_pylist(), strict=True))
    found |= {row["path"]: row["stats"] for row in snapshot.file_rows or ()}
    for entry in snapshot.tail:
        found |= {action.path: action.stats or {} for action in entry.actions if isinstance(action, AddFile)}
    return {path: stats for path, stats in found.items() if stats and path in index.by_path}


def _checkpointed(snapshot: Snapshot) -> list[Segment]:
    """The segments of the files that were live at the checkpoint."""
    if snapshot.file_rows is not None:
        return [segment_of_row(row) for row in snapshot.file_rows]
    if snapshot.files is None:
        return []
    from sparklog.log.data.segment_columns import segments_of_table  # loads Arrow, as the checkpoint did

    return segments_of_table(snapshot.files)


def _complete(log: DeltaLog, segment: Segment) -> Segment:
    if segment.has_stats or segment.base_offset is None:
        return segment
    from sparklog.log.data.record_reading import complete_stats  # loads Arrow, for files of other engines alone

    return complete_stats(log, segment)


def add_of_segment(segment: Segment, stats: str | Mapping[str, Any] | None) -> AddFile:
    """The action that adds a segment's file once more.

    Args:
        stats: of the file, as :func:`file_statistics` has them; None: its writer gave none.
    """
    return AddFile(
        path=segment.path,
        partition_values=segment.partition_values(),
        size_bytes=segment.size_bytes,
        modification_ms=segment.modification_ms,
        stats=json.loads(stats) if isinstance(stats, str) else stats,
    )
