"""Offsets of partitions by time or by Kafka's special times. Source: Kafka ``ListOffsetsRequest``, ``OffsetSpec``."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.reading import milliseconds, read_segment
from sparklog.log.topic import TopicDescription, describe_topic
from sparklog.model import OffsetAndTimestamp

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "check_partition", "check_spec", "topic_offsets"]

LATEST = -1
"""The log end offset."""
EARLIEST = -2
"""The log start offset."""
MAX_TIMESTAMP = -3
"""The first record with the greatest timestamp."""

_UNKNOWN = OffsetAndTimestamp(offset=-1, timestamp=-1)


def check_spec(spec: object) -> int:
    """Return ``spec`` if it is a time or one of the special ones. Raises ``InvalidArgumentError``."""
    if isinstance(spec, bool) or not isinstance(spec, int) or spec < MAX_TIMESTAMP:
        raise InvalidArgumentError(
            f"got {spec!r} for a time, expected milliseconds since the epoch, {LATEST} (latest), {EARLIEST} (earliest) "
            f"or {MAX_TIMESTAMP} (max timestamp)"
        )
    return spec


def check_partition(topic: TopicDescription, partition: int) -> None:
    """Raise ``UnknownTopicOrPartitionError`` unless the topic has the partition."""
    if not 0 <= partition < topic.partition_count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} has no partition {partition}; it has 0 to {topic.partition_count - 1}"
        )


def topic_offsets(cluster: Cluster, topic: str, specs: Mapping[int, int]) -> dict[int, OffsetAndTimestamp]:
    """What each partition's spec asks for; offset and timestamp are -1 where no record is.

    Start and end are in the topic's newest commit; a time needs the whole table's statistics and one data file.

    Args:
        specs: per partition milliseconds since the epoch, :data:`LATEST`, :data:`EARLIEST` or :data:`MAX_TIMESTAMP`.
    """
    log = cluster.topic_log(topic)
    described = describe_topic(log, topic)
    for partition in specs:
        check_partition(described, partition)
    bounds = {LATEST: described.log_end_offsets, EARLIEST: described.log_start_offsets}
    found = {
        partition: OffsetAndTimestamp(offset=bounds[spec][partition], timestamp=-1)
        for partition, spec in specs.items()
        if spec in bounds
    }
    if len(found) < len(specs):
        follower = TopicFollower(log, topic)
        for partition, spec in specs.items():
            if spec == MAX_TIMESTAMP:
                found[partition] = _max_timestamp(follower, partition) or _UNKNOWN
            elif spec >= 0:
                found[partition] = follower.offset_for_time(partition, spec) or _UNKNOWN
    return {partition: found[partition] for partition in specs}


def _max_timestamp(follower: TopicFollower, partition: int) -> OffsetAndTimestamp | None:
    """The first of the records with the greatest timestamp, from as few files as their statistics allow."""
    start = follower.head.log_start_offsets[partition]
    best: tuple[int, int] | None = None  # timestamp, and the negated offset
    segments = list(follower.segments(partition, start))
    for segment in sorted(segments, key=lambda segment: segment.max_timestamp_ms or 0, reverse=True):
        if best is not None and (segment.max_timestamp_ms or 0) < best[0]:
            break
        records = read_segment(follower.state.log, segment, start_offset=start, columns=("timestamp",))
        times = milliseconds(records["timestamp"])
        greatest = pc.max(times).as_py()
        if greatest is not None:
            first = pc.index(times, greatest).as_py()
            found = (greatest, -records["offset"][first].as_py())
            best = found if best is None else max(best, found)
    return None if best is None else OffsetAndTimestamp(offset=-best[1], timestamp=best[0])
