"""Offsets of partitions by time or by Kafka's special times. Source: Kafka ``ListOffsetsRequest``, ``OffsetSpec``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow.compute as pc

from sparklog.admin.connection import ClusterConnection
from sparklog.admin.many import by_topic, partition_of
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.groups.admin.resets import PartitionBounds
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import milliseconds, read_segment
from sparklog.log.follow import TopicFollower
from sparklog.log.head import TopicHead
from sparklog.log.topic import TopicDescription, describe_topic
from sparklog.model import OffsetAndTimestamp, TopicPartition
from sparklog.parallel import parallel_map

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "check_partition",
    "check_spec",
    "partition_offsets",
    "topic_bounds",
    "topic_offsets",
]

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


def check_partition(topic: str, partition_count: int, partition: int) -> None:
    """Raise ``UnknownTopicOrPartitionError`` unless the topic has the partition."""
    if not 0 <= partition < partition_count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has no partition {partition}; it has 0 to {partition_count - 1}"
        )


def partition_offsets(
    connection: ClusterConnection, specs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offset that each partition's spec asks for, as :func:`topic_offsets` finds it; up to 32 topics at once."""
    by_name = by_topic(specs)
    cluster = connection.cluster()
    looked_up = parallel_map(lambda name: topic_offsets(cluster, name, by_name[name]), by_name)
    offsets = dict(zip(by_name, looked_up, strict=True))
    return {at: offsets[at.topic][at.partition] for at in map(partition_of, specs)}


def topic_offsets(cluster: Cluster, topic: str, specs: Mapping[int, int]) -> dict[int, OffsetAndTimestamp]:
    """The offset that each partition's spec asks for; offset and timestamp are -1 where no record is.

    Start and end are in the topic's newest commit: a GET, a LIST and a GET. A time needs the whole table's statistics,
    which take four requests or more, and one data file for each partition.

    Args:
        specs: per partition milliseconds since the epoch, :data:`LATEST`, :data:`EARLIEST` or :data:`MAX_TIMESTAMP`.
    """
    log = cluster.topic_log(topic)
    follower = None if {LATEST, EARLIEST}.issuperset(specs.values()) else TopicFollower(log, topic)
    known: TopicDescription | TopicHead = describe_topic(log, topic) if follower is None else follower.head
    for partition in specs:
        check_partition(topic, known.partition_count, partition)
    bounds = {LATEST: known.log_end_offsets, EARLIEST: known.log_start_offsets}
    offsets = {
        partition: OffsetAndTimestamp(offset=bounds[spec][partition], timestamp=-1)
        for partition, spec in specs.items()
        if spec in bounds
    }
    if follower is not None:
        times = {partition: spec for partition, spec in specs.items() if spec >= 0}
        offsets.update({at: first or _UNKNOWN for at, first in follower.offsets_for_times(times).items()})
        for partition, spec in specs.items():
            if spec == MAX_TIMESTAMP:
                offsets[partition] = _max_timestamp(follower, partition) or _UNKNOWN
    return {partition: offsets[partition] for partition in specs}


def topic_bounds(
    cluster: Cluster, topic: str, partitions: Collection[int], *, since_ms: int | None
) -> dict[int, PartitionBounds]:
    """The bounds of a topic's partitions that a reset of a group needs; the group's committed offsets aren't among
    them.

    A GET, a LIST and a GET; with a time as in :func:`topic_offsets`.

    Args:
        since_ms: find the first record of each partition that isn't older, too.
    """
    log = cluster.topic_log(topic)
    follower = None if since_ms is None else TopicFollower(log, topic)
    known: TopicDescription | TopicHead = describe_topic(log, topic) if follower is None else follower.head
    for partition in partitions:
        check_partition(topic, known.partition_count, partition)
    first: Mapping[int, OffsetAndTimestamp | None] = {}
    if follower is not None and since_ms is not None:
        first = follower.offsets_for_times(dict.fromkeys(partitions, since_ms))
    return {
        partition: PartitionBounds(
            committed=None,
            log_start_offset=known.log_start_offsets[partition],
            log_end_offset=known.log_end_offsets[partition],
            offset_for_time=None if (record := first.get(partition)) is None else record.offset,
        )
        for partition in partitions
    }


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
            candidate = (greatest, -records["offset"][first].as_py())
            best = candidate if best is None else max(best, candidate)
    return None if best is None else OffsetAndTimestamp(offset=-best[1], timestamp=best[0])
