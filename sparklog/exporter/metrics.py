"""The metrics of a cluster: names, labels, and how each is read off a cluster's figures. Pure.

Names beginning with ``kafka_`` are those of kafka_exporter (danielqsj/kafka_exporter, "Metrics"), which dashboards and
alerts know. What has no counterpart begins with ``sparklog_``. Times are seconds since the epoch, durations seconds,
sizes bytes, as Prometheus wants them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparklog._version import __version__
from sparklog.observe import ClusterFigures, GroupFigures, PartitionFigures, TopicFigures
from sparklog.observe.topic_figures import CHECKED_STEPS
from sparklog.observe.watching import WatchStatus
from sparklog.txn.states import TransactionState

__all__ = ["CLUSTER_METRICS", "EXPORTER_METRICS", "Metric", "Row"]

Row = tuple[Sequence[str], float]
"""The values of the labels, and the metric's value."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metric(Generic[T]):
    """A metric, and how its rows are read off a value."""

    name: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[T], Iterable[Row]]
    kind: str = "gauge"
    """``gauge`` or ``counter``."""


def _single_row(value: Callable[[T], float | None]) -> Callable[[T], Iterable[Row]]:
    def rows(figures: T) -> Iterator[Row]:
        found = value(figures)
        if found is not None:
            yield (), found

    return rows


def _topics(value: Callable[[TopicFigures], float | None]) -> Callable[[ClusterFigures], Iterable[Row]]:
    def rows(figures: ClusterFigures) -> Iterator[Row]:
        for topic in figures.topics:
            found = value(topic)
            if found is not None:
                yield (topic.name,), found

    return rows


def _partitions(value: Callable[[PartitionFigures], float | None]) -> Callable[[ClusterFigures], Iterable[Row]]:
    def rows(figures: ClusterFigures) -> Iterator[Row]:
        for topic in figures.topics:
            for number, partition in enumerate(topic.partitions):
                found = value(partition)
                if found is not None:
                    yield (topic.name, str(number)), found

    return rows


def _groups(value: Callable[[GroupFigures], float]) -> Callable[[ClusterFigures], Iterable[Row]]:
    return lambda figures: (((group.group_id,), value(group)) for group in figures.groups)


def _group_partitions(name: str, factor: float = 1) -> Callable[[ClusterFigures], Iterable[Row]]:
    """A field of each partition of each group."""

    def rows(figures: ClusterFigures) -> Iterator[Row]:
        for group in figures.groups:
            for one in group.partitions:
                value = getattr(one, name)
                if value is not None:
                    labels = (group.group_id, one.partition.topic, str(one.partition.partition))
                    yield labels, value if factor == 1 else value * factor

    return rows


def _group_topics(name: str) -> Callable[[ClusterFigures], Iterable[Row]]:
    """The sum of a field over a topic's partitions, for each group."""

    def rows(figures: ClusterFigures) -> Iterator[Row]:
        for group in figures.groups:
            sums: Counter[str] = Counter()
            for one in group.partitions:
                sums[one.partition.topic] += getattr(one, name)
            for topic, value in sums.items():
                yield (group.group_id, topic), value

    return rows


def _of_disk(name: str) -> Callable[[ClusterFigures], float | None]:
    """A field of the disk, where there is one."""
    return lambda figures: None if figures.disk is None else getattr(figures.disk, name)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _checkpoint_ages(figures: ClusterFigures) -> Iterator[Row]:
    for topic in figures.topics:
        if topic.checkpoint_ms is not None:
            yield (topic.name,), max(0, figures.now_ms - topic.checkpoint_ms) / 1_000


def _due_steps(figures: ClusterFigures) -> Iterator[Row]:
    for topic in figures.topics:
        for step in CHECKED_STEPS:
            yield (topic.name, step.value), int(topic.is_due(step.value, now_ms=figures.now_ms))


def _transactional_ids(figures: ClusterFigures) -> Iterator[Row]:
    counts = Counter(one.state for one in figures.transactions)
    return (((state.value,), counts[state]) for state in TransactionState)


def _unfinished(figures: ClusterFigures) -> Iterator[Row]:
    for one in figures.transactions:
        if one.state is TransactionState.ONGOING or one.state.is_prepared:
            yield (one.transactional_id, one.state.value), one.since_ms / 1_000


def _overdue(figures: ClusterFigures) -> Iterator[Row]:
    for one in figures.transactions:
        if one.is_overdue(now_ms=figures.now_ms):
            yield (one.transactional_id, one.state.value), 1


def _info(figures: ClusterFigures) -> Iterator[Row]:
    yield (figures.cluster_id, figures.uri, __version__), 1


def _topic_info(figures: ClusterFigures) -> Iterator[Row]:
    for topic in figures.topics:
        yield (topic.name, topic.topic_id, topic.cleanup_policy, str(topic.value_schema_id)), 1


def _problems(figures: ClusterFigures) -> Iterator[Row]:
    return (((one.kind, one.name), 1) for one in figures.problems)


_BY_TOPIC = ("topic",)
_BY_PARTITION = ("topic", "partition")
_BY_GROUP = ("consumergroup",)
_BY_GROUP_TOPIC = ("consumergroup", "topic")
_BY_GROUP_PARTITION = ("consumergroup", "topic", "partition")
_CONSTANT = "Always {}: a store has no brokers and no replicas."

CLUSTER_METRICS: tuple[Metric[ClusterFigures], ...] = (
    Metric("kafka_brokers", _CONSTANT.format(1), (), _single_row(lambda _: 1)),
    Metric("kafka_topic_partitions", "Partitions.", _BY_TOPIC, _topics(lambda topic: len(topic.partitions))),
    Metric(
        "kafka_topic_partition_current_offset",
        "Log end offset: the next to be given.",
        _BY_PARTITION,
        _partitions(lambda one: one.log_end_offset),
    ),
    Metric(
        "kafka_topic_partition_oldest_offset",
        "Log start offset: the first that may be read.",
        _BY_PARTITION,
        _partitions(lambda one: one.log_start_offset),
    ),
    Metric("kafka_topic_partition_leader", _CONSTANT.format(0), _BY_PARTITION, _partitions(lambda _: 0)),
    Metric("kafka_topic_partition_replicas", _CONSTANT.format(1), _BY_PARTITION, _partitions(lambda _: 1)),
    Metric("kafka_topic_partition_in_sync_replica", _CONSTANT.format(1), _BY_PARTITION, _partitions(lambda _: 1)),
    Metric(
        "kafka_topic_partition_under_replicated_partition",
        _CONSTANT.format(0),
        _BY_PARTITION,
        _partitions(lambda _: 0),
    ),
    Metric(
        "kafka_consumergroup_current_offset",
        "Committed offset: the next that the group will read.",
        _BY_GROUP_PARTITION,
        _group_partitions("committed_offset"),
    ),
    Metric(
        "kafka_consumergroup_current_offset_sum",
        "Committed offsets of a topic's partitions.",
        _BY_GROUP_TOPIC,
        _group_topics("committed_offset"),
    ),
    Metric(
        "kafka_consumergroup_lag",
        "Offsets from the committed one to the log end.",
        _BY_GROUP_PARTITION,
        _group_partitions("lag"),
    ),
    Metric("kafka_consumergroup_lag_sum", "Lag of a topic's partitions.", _BY_GROUP_TOPIC, _group_topics("lag")),
    Metric(
        "sparklog_consumergroup_uncommitted_records",
        "Records in partitions of a topic that a living member subscribes to, for which nothing was ever committed.",
        _BY_GROUP_TOPIC,
        lambda figures: (
            ((group.group_id, topic), count) for group in figures.groups for topic, count in group.uncommitted.items()
        ),
    ),
    Metric("kafka_consumergroup_members", "Members that live.", _BY_GROUP, _groups(lambda group: group.member_count)),
    Metric(
        "sparklog_consumergroup_lag_seconds",
        "How long the oldest record that the group hasn't read has been waiting, by its timestamp; 0 without lag.",
        _BY_GROUP_PARTITION,
        _group_partitions("lag_ms", 0.001),
    ),
    Metric(
        "sparklog_consumergroup_commit_timestamp_seconds",
        "When the offset was committed, by the committer's clock.",
        _BY_GROUP_PARTITION,
        _group_partitions("commit_ms", 0.001),
    ),
    Metric(
        "sparklog_consumergroup_pending_offsets",
        "Offsets of transactions that aren't settled yet.",
        _BY_GROUP,
        _groups(lambda group: group.pending_count),
    ),
    Metric("sparklog_cluster_info", "The cluster.", ("cluster_id", "uri", "version"), _info),
    Metric(
        "sparklog_unreadable",
        "1 for each topic, group and transactional id that can't be read.",
        ("kind", "name"),
        _problems,
    ),
    Metric(
        "sparklog_maintenance_timestamp_seconds",
        "When maintenance last noted what it did, by the store's time; it does so once a day at least.",
        (),
        _single_row(lambda figures: _seconds(figures.maintained_ms)),
    ),
    Metric(
        "sparklog_disk_free_bytes",
        "Free space on the disk of a cluster in a local folder.",
        (),
        _single_row(_of_disk("free_bytes")),
    ),
    Metric(
        "sparklog_disk_size_bytes",
        "Size of the disk of a cluster in a local folder.",
        (),
        _single_row(_of_disk("size_bytes")),
    ),
    Metric(
        "sparklog_disk_free_inodes",
        "Files that can still be made on the disk of a cluster in a local folder; nothing where there is no limit.",
        (),
        _single_row(_of_disk("free_inodes")),
    ),
    Metric(
        "sparklog_disk_inodes",
        "Files that the disk of a cluster in a local folder can have; nothing where there is no limit.",
        (),
        _single_row(_of_disk("inodes")),
    ),
    Metric(
        "sparklog_maintenance_failed_runs_total",
        "Runs of sparklog maintain of which a step failed, in a topic or for the cluster.",
        (),
        _single_row(lambda figures: figures.failed_runs.total),
        "counter",
    ),
    Metric(
        "sparklog_topic_maintenance_failed_runs_total",
        "Runs of sparklog maintain of which a step failed in the topic; for those that failed last, 200 at most.",
        _BY_TOPIC,
        lambda figures: (((name,), count) for name, count in sorted(figures.failed_runs.by_topic.items())),
        "counter",
    ),
    Metric(
        "sparklog_topic_info",
        "A topic's id, cleanup.policy, and the newest schema of its values (0: untyped).",
        ("topic", "topic_id", "cleanup_policy", "value_schema_id"),
        _topic_info,
    ),
    Metric(
        "sparklog_topic_commits_total",
        "Commits to the topic's table since it was created.",
        _BY_TOPIC,
        _topics(lambda topic: topic.delta_version + 1),
        "counter",
    ),
    Metric(
        "sparklog_topic_commit_timestamp_seconds",
        "When the newest commit was made, by its writer's clock.",
        _BY_TOPIC,
        _topics(lambda topic: _seconds(topic.commit_ms)),
    ),
    Metric(
        "sparklog_topic_unsequenced_files",
        "Files of other engines that have no offsets yet.",
        _BY_TOPIC,
        _topics(lambda topic: topic.unsequenced_count),
    ),
    Metric(
        "sparklog_topic_uncheckpointed_commits",
        "Commits since the newest checkpoint.",
        _BY_TOPIC,
        _topics(lambda topic: topic.uncheckpointed_count),
    ),
    Metric(
        "sparklog_topic_checkpoint_age_seconds",
        "How long ago the newest checkpoint was written, by the store's time; nothing without one.",
        _BY_TOPIC,
        _checkpoint_ages,
    ),
    Metric(
        "sparklog_topic_unread_commits",
        "Newest commits whose files the exporter hasn't looked at yet: what it says of files is older.",
        _BY_TOPIC,
        _topics(lambda topic: topic.delta_version - topic.files_version),
    ),
    Metric(
        "sparklog_topic_mergeable_files",
        "Small files that maintenance would merge now.",
        _BY_TOPIC,
        _topics(lambda topic: topic.merge_file_count),
    ),
    Metric(
        "sparklog_topic_mergeable_bytes",
        "Size of the small files that maintenance would merge now.",
        _BY_TOPIC,
        _topics(lambda topic: topic.merge_bytes),
    ),
    Metric(
        "sparklog_topic_maintenance_due",
        "1: this step of sparklog maintain has something to do.",
        ("topic", "step"),
        _due_steps,
    ),
    Metric(
        "sparklog_topic_maintenance_blocked",
        "1: maintenance refuses this topic until one of its settings is mended.",
        _BY_TOPIC,
        _topics(lambda topic: int(bool(topic.maintenance_error))),
    ),
    Metric(
        "sparklog_topic_orphan_files",
        "Files that nobody needs, which maintenance would delete; where --orphans-every has them looked for.",
        _BY_TOPIC,
        lambda figures: (((one.topic,), one.file_count) for one in figures.orphans),
    ),
    Metric(
        "sparklog_topic_orphan_bytes",
        "Size of the files that nobody needs.",
        _BY_TOPIC,
        lambda figures: (((one.topic,), one.size_bytes) for one in figures.orphans),
    ),
    Metric(
        "sparklog_topic_orphans_timestamp_seconds",
        "When files that nobody needs were last looked for.",
        _BY_TOPIC,
        lambda figures: (((one.topic,), one.searched_ms / 1_000) for one in figures.orphans),
    ),
    Metric(
        "sparklog_partition_records",
        "Records in live files, according to their statistics.",
        _BY_PARTITION,
        _partitions(lambda one: one.record_count),
    ),
    Metric("sparklog_partition_bytes", "Size of live files.", _BY_PARTITION, _partitions(lambda one: one.size_bytes)),
    Metric("sparklog_partition_files", "Live files.", _BY_PARTITION, _partitions(lambda one: one.file_count)),
    Metric(
        "sparklog_partition_small_files",
        "Live files of less than 8 MiB.",
        _BY_PARTITION,
        _partitions(lambda one: one.small_file_count),
    ),
    Metric(
        "sparklog_partition_oldest_timestamp_seconds",
        "The smallest timestamp of a record.",
        _BY_PARTITION,
        _partitions(lambda one: _seconds(one.oldest_ms)),
    ),
    Metric(
        "sparklog_partition_newest_timestamp_seconds",
        "The largest timestamp of a record.",
        _BY_PARTITION,
        _partitions(lambda one: _seconds(one.newest_ms)),
    ),
    Metric(
        "sparklog_transactional_ids",
        "Transactional ids by state; Ongoing: a transaction may be open.",
        ("state",),
        _transactional_ids,
    ),
    Metric(
        "sparklog_transaction_since_timestamp_seconds",
        "Since when a transactional id may have a transaction open, or one is decided and not carried out.",
        ("transactional_id", "state"),
        _unfinished,
    ),
    Metric(
        "sparklog_transaction_overdue",
        "1: a group's offsets wait for a transaction that is past its time-out, or one is decided and not carried out.",
        ("transactional_id", "state"),
        _overdue,
    ),
)
"""Metrics of the newest look that succeeded."""

EXPORTER_METRICS: tuple[Metric[WatchStatus], ...] = (
    Metric(
        "sparklog_up",
        "Did the newest look reach the store, and did the store answer a call within the last two intervals?",
        (),
        _single_row(lambda status: int(status.is_up)),
    ),
    Metric(
        "sparklog_exporter_look_age_seconds",
        "How old all of these figures of the cluster are.",
        (),
        _single_row(lambda status: _seconds(status.age_ms)),
    ),
    Metric(
        "sparklog_exporter_look_seconds",
        "How long the newest look took that succeeded.",
        (),
        _single_row(lambda status: None if status.figures is None else status.figures.took_ms / 1_000),
    ),
    Metric(
        "sparklog_exporter_looks_total",
        "Looks at the cluster.",
        (),
        _single_row(lambda status: status.look_count),
        "counter",
    ),
    Metric(
        "sparklog_exporter_failed_looks_total",
        "Looks that failed: the store was away, or refused.",
        (),
        _single_row(lambda status: status.failed_count),
        "counter",
    ),
)
"""Metrics of the exporter itself, as of the scrape."""
