"""The live files of a loaded table as segments, and their statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparklog.delta.actions import AddFile
from sparklog.delta.snapshot import Snapshot
from sparklog.log.data.segments import Segment, SegmentIndex, segment_of_row

__all__ = ["add_of_segment", "segments_of_snapshot", "statistics_of_snapshot"]


def segments_of_snapshot(snapshot: Snapshot) -> list[Segment]:
    """The segments of the files that were live at the checkpoint."""
    if snapshot.file_rows is not None:
        return [segment_of_row(row) for row in snapshot.file_rows]
    if snapshot.files is None:
        return []
    from sparklog.log.data.segment_columns import segments_of_table  # loads Arrow, as the checkpoint did

    return segments_of_table(snapshot.files)


def statistics_of_snapshot(snapshot: Snapshot, index: SegmentIndex) -> dict[str, str | Mapping[str, Any]]:
    """The statistics of the live files by path, as the log has them, perhaps as JSON."""
    found: dict[str, str | Mapping[str, Any]] = {}
    if snapshot.files is not None:
        found = dict(zip(snapshot.files["path"].to_pylist(), snapshot.files["stats"].to_pylist(), strict=True))
    found |= {row["path"]: row["stats"] for row in snapshot.file_rows or ()}
    for entry in snapshot.tail:
        found |= {action.path: action.stats or {} for action in entry.actions if isinstance(action, AddFile)}
    return {path: stats for path, stats in found.items() if stats and path in index.by_path}


def add_of_segment(segment: Segment, stats: str | Mapping[str, Any] | None) -> AddFile:
    """The action that adds a segment's file once more.

    Args:
        stats: of the file, as :func:`statistics_of_snapshot` has them; None: its writer gave none.
    """
    return AddFile(
        path=segment.path,
        partition_values=segment.partition_values(),
        size_bytes=segment.size_bytes,
        modification_ms=segment.modification_ms,
        stats=json.loads(stats) if isinstance(stats, str) else stats,
    )
