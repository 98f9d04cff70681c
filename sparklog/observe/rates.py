"""Rates of records and commits between two looks at a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.observe.figures import ClusterFigures, GroupFigures, GroupPartitionFigures, TopicFigures

__all__ = ["GroupTopicRate", "TopicRate", "group_rates", "topic_rates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRate:
    """A topic, and what is produced to it. Rates are None where there is no earlier look at the same topic."""

    name: str
    partition_count: int
    record_count: int
    size_bytes: int | None
    """None where its files aren't known yet, as their number is."""
    file_count: int | None
    has_older_totals: bool
    """Are records, bytes and files as of an older version than the topic's newest?"""
    is_record_count_by_offsets: bool
    """Are records counted by the offsets that may be read, as nothing is known of its files yet?"""
    records_per_s: float | None
    commits_per_s: float | None
    commit_age_ms: int | None
    """How long ago the newest commit was made; None: it doesn't say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopicRate:
    """A group in one topic, and how fast it commits."""

    group_id: str
    topic: str
    member_count: int
    """Members of the group, whatever they read."""
    lag: int
    lag_ms: int | None
    """The greatest of its partitions'."""
    records_per_s: float | None
    """Offsets committed a second; None where there is no earlier look at the group. Less than 0 after a reset."""


def topic_rates(before: ClusterFigures | None, now: ClusterFigures) -> list[TopicRate]:
    """Every topic, those with most records a second first, then by name."""
    earlier = {} if before is None else {one.name: one for one in before.topics}
    found = [_topic_rate(earlier.get(one.name), one, _seconds(before, now), now.now_ms) for one in now.topics]
    return sorted(found, key=lambda one: (-(one.records_per_s or 0), one.name))


def group_rates(before: ClusterFigures | None, now: ClusterFigures) -> list[GroupTopicRate]:
    """Every group in every topic that it has committed in, those with most lag first, then by name."""
    earlier = {} if before is None else {at: _committed(ours) for at, (_, ours) in _by_topic(before).items()}
    seconds = _seconds(before, now)
    found = []
    for at, (group, ours) in _by_topic(now).items():
        known = earlier.get(at)
        read = _committed(ours) - (known or 0)
        found.append(
            GroupTopicRate(
                group_id=group.group_id,
                topic=ours[0].partition.topic,
                member_count=group.member_count,
                lag=sum(one.lag for one in ours),
                lag_ms=max((one.lag_ms for one in ours if one.lag_ms is not None), default=None),
                records_per_s=None if known is None or seconds is None else read / seconds,
            )
        )
    return sorted(found, key=lambda one: (-one.lag, one.group_id, one.topic))


def _by_topic(figures: ClusterFigures) -> dict[tuple[str, str], tuple[GroupFigures, list[GroupPartitionFigures]]]:
    """The partitions of each group in each topic, by the names of both; none is empty."""
    found: dict[tuple[str, str], tuple[GroupFigures, list[GroupPartitionFigures]]] = {}
    for group in figures.groups:
        for one in group.partitions:
            found.setdefault((group.group_id, one.partition.topic), (group, []))[1].append(one)
    return found


def _committed(partitions: Iterable[GroupPartitionFigures]) -> int:
    return sum(one.committed_offset for one in partitions)


def _seconds(before: ClusterFigures | None, now: ClusterFigures) -> float | None:
    elapsed_ms = 0 if before is None else now.now_ms - before.now_ms
    return elapsed_ms / 1_000 if elapsed_ms > 0 else None


def _topic_rate(before: TopicFigures | None, now: TopicFigures, seconds: float | None, now_ms: int) -> TopicRate:
    records = commits = None
    if before is not None and before.topic_id == now.topic_id and seconds is not None:
        records = (_end(now) - _end(before)) / seconds
        commits = (now.delta_version - before.delta_version) / seconds
    return TopicRate(
        name=now.name,
        partition_count=len(now.partitions),
        record_count=now.record_count,
        size_bytes=None if now.totals is None else now.totals.size_bytes,
        file_count=None if now.totals is None else now.totals.file_count,
        has_older_totals=now.has_older_totals,
        is_record_count_by_offsets=now.totals is None,
        records_per_s=records,
        commits_per_s=commits,
        commit_age_ms=None if now.commit_ms is None else max(0, now_ms - now.commit_ms),
    )


def _end(topic: TopicFigures) -> int:
    return sum(one.log_end_offset for one in topic.partitions)
