"""The live data files of a topic, as its log lists them, newest first."""

from __future__ import annotations

from typing import Any

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.segments import Segment
from sparklog.paths import check_topic_name
from sparklog.sql.dataset import load_living

__all__ = ["newest_files", "plain_file"]


def newest_files(cluster: Cluster, topic: str, partition: int | None = None) -> tuple[int, list[Segment]]:
    """The version of the topic, and its live files, those written last first: loads the topic's log, and no file.

    Args:
        partition: None for all.
    Raises:
        UnknownTopicOrPartitionError.
    """
    state = load_living(cluster.topic_log(check_topic_name(topic)), topic)
    if partition is not None and partition >= state.head.partition_count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has no partition {partition}; it has 0 to {state.head.partition_count - 1}"
        )
    found = state.require_whole().index.by_path.values()
    kept = [one for one in found if partition is None or one.partition == partition]
    kept.sort(key=lambda one: (-one.modification_ms, one.path))
    return state.head.delta_version, kept


def plain_file(one: Segment) -> dict[str, Any]:
    """A file as JSON has it. Offsets are None where they weren't given yet, or the writer gave no statistics."""
    has_offsets = one.base_offset is not None and one.has_stats
    return {
        "path": one.path,
        "partition": one.partition,
        "first_offset": one.first_offset if has_offsets else None,
        "last_offset": one.last_offset if has_offsets else None,
        "records": one.record_count,
        "bytes": one.size_bytes,
        "written_ms": one.modification_ms,
        "oldest_ms": one.min_timestamp_ms,
        "newest_ms": one.max_timestamp_ms,
    }
