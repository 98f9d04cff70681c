"""Changes of several topics at once, and the checks before them: create, delete, add partitions, alter settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from sparklog.admin.connection import ClusterConnection
from sparklog.admin.many import by_topic, check_once, each, listed, partition_of
from sparklog.admin.values import NewPartitions, NewTopic, check_partition_count
from sparklog.errors import (
    InvalidArgumentError,
    InvalidPartitionsError,
    InvalidTopicError,
    NotATopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import Cluster
from sparklog.log.delay_topics import DELAY_PREFIX, check_may_grow
from sparklog.log.topic import (
    TopicDescription,
    alter_topic,
    create_partitions,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
)
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import check_topic_name

__all__ = [
    "add_partitions",
    "alter_settings",
    "check_growth",
    "check_names_are_free",
    "checked_new_topics",
    "checked_partition_counts",
    "create_topics",
    "delete_records_before",
    "delete_topics",
]


def checked_new_topics(new_topics: Iterable[NewTopic | str]) -> dict[str, NewTopic]:
    """The topics to be created, by name. Raises what creating them would raise on any cluster."""
    topics = [NewTopic(topic) if isinstance(topic, str) else topic for topic in listed(new_topics)]
    for topic in topics:
        if not isinstance(topic, NewTopic):
            raise InvalidArgumentError(f"got {topic!r} for a topic to create, expected NewTopic or a name")
        topic.check()
    check_once([topic.name for topic in topics])
    return {topic.name: topic for topic in topics}


def check_names_are_free(connection: ClusterConnection, topics: Collection[str], *, may_lack_cluster: bool) -> None:
    """Raise ``TopicAlreadyExistsError`` for the first name that a topic has.

    Args:
        may_lack_cluster: no cluster is no error: there is no topic in it.
    """
    try:
        cluster = connection.cluster()
    except InvalidArgumentError:
        if not may_lack_cluster:
            raise
        return

    def is_free(name: str) -> bool:
        try:
            describe_topic(cluster.topic_log(name), name)
        except UnknownTopicOrPartitionError:
            return True
        return False

    for name, free in zip(topics, parallel_map(is_free, topics), strict=True):
        if not free:
            raise TopicAlreadyExistsError(f"topic {name!r} already exists")


def create_topics(
    cluster: Cluster, topics: Mapping[str, NewTopic], *, timeout_ms: float
) -> dict[str, TopicDescription]:
    """Create topics, given by name. ``timeout_ms`` bounds each of them; so in the other functions."""

    def create(name: str, topic: NewTopic) -> TopicDescription:
        partition_count, configs = topic.partition_count(), topic.settings()
        return create_topic(
            cluster.topic_log(name),
            name,
            num_partitions=partition_count,
            configs=configs,
            value_schema=topic.parsed_schema(),
            timeout_ms=timeout_ms,
        )

    return each(topics, create)


def delete_topics(cluster: Cluster, topics: Iterable[str], *, timeout_ms: float) -> None:
    """Delete topics, and with each the topic of its delayed records; a name that is given twice counts once."""
    names = dict.fromkeys(topics)

    def delete(name: str, _: None) -> None:
        delete_topic(cluster.topic_log(name), name, timeout_ms=timeout_ms)
        # What is left of them is never delivered to a later topic of the name (decision 0099): this saves their room.
        if DELAY_PREFIX + name not in names:
            _delete_if_there(cluster, DELAY_PREFIX + name, timeout_ms=timeout_ms)

    each(names, delete)


def _delete_if_there(cluster: Cluster, name: str, *, timeout_ms: float) -> None:
    with suppress(UnknownTopicOrPartitionError, InvalidTopicError, NotATopicError):
        delete_topic(cluster.topic_log(name), name, timeout_ms=timeout_ms)


def checked_partition_counts(topic_partitions: Mapping[str, int | NewPartitions]) -> dict[str, int]:
    """The total numbers of partitions that are asked for, by topic.

    Raises ``InvalidTopicError``, ``InvalidPartitionsError``.
    """
    counts = {
        check_topic_name(name): asked.total_count if isinstance(asked, NewPartitions) else asked
        for name, asked in topic_partitions.items()
    }
    for name, count in counts.items():
        check_partition_count(name, count)
    return counts


def check_growth(topics: Iterable[TopicDescription], counts: Mapping[str, int]) -> None:
    """Raise ``InvalidPartitionsError`` for the first topic that has as many partitions already, or more."""
    for topic in topics:
        check_may_grow(topic.name)
        if counts[topic.name] <= topic.partition_count:
            raise InvalidPartitionsError(
                f"topic {topic.name!r} has {topic.partition_count} partitions, asked for {counts[topic.name]}: "
                "partitions only grow"
            )


def add_partitions(cluster: Cluster, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, TopicDescription]:
    """Let topics grow to a total number of partitions each."""
    return each(
        counts, lambda name, count: create_partitions(cluster.topic_log(name), name, count, timeout_ms=timeout_ms)
    )


def alter_settings(
    cluster: Cluster, changes: Mapping[str, Mapping[str, object]], *, timeout_ms: float
) -> dict[str, TopicDescription]:
    """Set some settings of topics, given by topic and name; None takes one back to its default."""
    return each(
        changes, lambda name, settings: alter_topic(cluster.topic_log(name), name, settings, timeout_ms=timeout_ms)
    )


def delete_records_before(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout_ms: float
) -> dict[TopicPartition, int]:
    """Delete the records below an offset of each partition; returns their log start offsets afterwards."""
    after = each(
        by_topic(offsets),
        lambda name, of_topic: delete_records(cluster.topic_log(name), name, of_topic, timeout_ms=timeout_ms),
    )
    return {at: after[at.topic].log_start_offsets[at.partition] for at in map(partition_of, offsets)}
