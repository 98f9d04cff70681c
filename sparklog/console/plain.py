"""Figures as JSON has them. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sparklog.compaction.last_runs import RunSummary, words
from sparklog.observe import ClusterFigures, GroupFigures, TopicFigures, TransactionFigures

__all__ = ["plain_group", "plain_maintenance", "plain_topic", "plain_transaction"]


def plain_topic(one: TopicFigures) -> dict[str, Any]:
    """A topic: sums over its partitions, and each of them."""
    return {
        "name": one.name,
        "topic_id": one.topic_id,
        "version": one.delta_version,
        "files_version": one.files_version,
        "commit_ms": one.commit_ms,
        "cleanup_policy": one.cleanup_policy,
        "retention_ms": one.retention_ms,
        "is_typed": one.value_schema_id > 0,
        "unsequenced_files": one.unsequenced_count,
        "records": sum(part.record_count for part in one.partitions),
        "bytes": sum(part.size_bytes for part in one.partitions),
        "files": sum(part.file_count for part in one.partitions),
        "partitions": [
            {
                "partition": number,
                "log_start_offset": part.log_start_offset,
                "log_end_offset": part.log_end_offset,
                "records": part.record_count,
                "bytes": part.size_bytes,
                "files": part.file_count,
                "oldest_ms": part.oldest_ms,
                "newest_ms": part.newest_ms,
            }
            for number, part in enumerate(one.partitions)
        ],
    }


def plain_group(one: GroupFigures) -> dict[str, Any]:
    """A group: its lag, in all and in each partition."""
    return {
        "group": one.group_id,
        "members": one.member_count,
        "pending_offsets": one.pending_count,
        "lag": sum(part.lag for part in one.partitions),
        "lag_ms": max((part.lag_ms for part in one.partitions if part.lag_ms is not None), default=None),
        "partitions": [
            {
                "topic": part.partition.topic,
                "partition": part.partition.partition,
                "committed_offset": part.committed_offset,
                "commit_ms": part.commit_ms,
                "lag": part.lag,
                "lag_ms": part.lag_ms,
                "member_id": part.member_id,
            }
            for part in one.partitions
        ],
    }


def plain_transaction(one: TransactionFigures, *, now_ms: int) -> dict[str, Any]:
    """A transactional id."""
    return {
        "transactional_id": one.transactional_id,
        "state": one.state.value,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "since_ms": one.since_ms,
        "timeout_ms": one.timeout_ms,
        "is_overdue": one.is_overdue(now_ms=now_ms),
    }


def plain_maintenance(figures: ClusterFigures) -> dict[str, Any]:
    """The steps of maintenance that are due in each topic, and its newest runs."""
    return {
        "now_ms": figures.now_ms,
        "noted_ms": figures.maintained_ms,
        "due": [
            {
                "topic": one.name,
                "steps": [step for step in one.due_ms if one.is_due(step, now_ms=figures.now_ms)],
                "merge_files": one.merge_file_count,
                "merge_bytes": one.merge_bytes,
                "error": one.maintenance_error,
            }
            for one in figures.topics
            if one.maintenance_error or any(one.is_due(step, now_ms=figures.now_ms) for step in one.due_ms)
        ],
        "runs": [_plain_run(one) for one in figures.runs],
        "runs_error": figures.runs_error,
    }


def _plain_run(run: RunSummary) -> dict[str, Any]:
    return {
        **asdict(run),
        "words": words(run),
        "topics": [
            {"topic": one.topic, "failed": one.failed, "words": words(one.work), "work": asdict(one.work)}
            for one in run.topics
        ],
    }
