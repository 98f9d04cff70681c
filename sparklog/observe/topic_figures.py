"""The figures of a topic, from what its log says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparklog.compaction.due import note_of
from sparklog.compaction.plan_optimize import merge_ranges
from sparklog.compaction.steps import Step
from sparklog.delta.snapshot import Newest
from sparklog.errors import InvalidConfigurationError
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead
from sparklog.log.live_totals import LiveTotals
from sparklog.log.state import TopicState
from sparklog.observe.figures import NO_FILES, SMALL_FILE_BYTES, PartitionFigures, TopicFigures

__all__ = ["CHECKED_STEPS", "head_figures", "topic_figures", "with_head"]

CHECKED_STEPS = (Step.SEQUENCE, Step.RETENTION, Step.COMPACT, Step.OPTIMIZE, Step.VACUUM)
"""The steps of maintenance that are due by what a topic's log says; of vacuum, the checkpoint alone."""
_PLANNED_APART = Step.OPTIMIZE
_FOREVER_MS = 2**62


def topic_figures(state: TopicState, name: str, *, commit_ms: int | None, now_ms: int) -> TopicFigures:
    """The figures of a topic.

    Args:
        state: whole.
        commit_ms: when its newest commit was made, ms since the epoch; None: that isn't known.
        now_ms: the time by which retention and compaction are judged.
    """
    head, index = state.head, state.require_whole().index
    partitions = tuple(
        _partition(start, end, index.partition(number))
        for number, (start, end) in enumerate(zip(head.log_start_offsets, head.log_end_offsets, strict=True))
    )
    figures = TopicFigures(
        name=name,
        topic_id=head.topic_id,
        partitions=partitions,
        totals=_sum(partitions),
        totals_version=head.delta_version,
        delta_version=head.delta_version,
        files_version=head.delta_version,
        commit_ms=commit_ms,
        checkpoint_version=state.checkpoint_version,
        checkpoint_ms=state.checkpoint_ms,
        unsequenced_count=head.unsequenced_count,
        cleanup_policy=str(head.config["cleanup.policy"]),
        retention_ms=head.config.integer("retention.ms"),
        value_schema_id=head.value_schema_id,
    )
    try:
        ranges = merge_ranges(state)
        due_ms = _due_ms(state, is_merge_due=bool(ranges), now_ms=now_ms)
    except InvalidConfigurationError as error:
        return replace(figures, maintenance_error=str(error))
    return replace(
        figures,
        merge_file_count=sum(len(one.segments) for one in ranges),
        merge_bytes=sum(one.size_bytes for one in ranges),
        due_ms=due_ms,
    )


def head_figures(head: TopicHead, name: str, *, commit_ms: int | None, newest: Newest) -> TopicFigures:
    """The figures of a topic of which the newest commit alone is known: of its files the totals, if that carries them;
    partitions have as many records as offsets."""
    return TopicFigures(
        name=name,
        topic_id=head.topic_id,
        partitions=tuple(
            PartitionFigures(log_start_offset=start, log_end_offset=end, record_count=end - start)
            for start, end in zip(head.log_start_offsets, head.log_end_offsets, strict=True)
        ),
        delta_version=head.delta_version,
        files_version=NO_FILES,
        totals=head.totals,
        totals_version=NO_FILES if head.totals is None else head.delta_version,
        commit_ms=commit_ms,
        checkpoint_version=newest.checkpoint_version,
        checkpoint_ms=newest.checkpoint_ms,
        unsequenced_count=head.unsequenced_count,
        cleanup_policy=str(head.config["cleanup.policy"]),
        retention_ms=head.config.integer("retention.ms"),
        value_schema_id=head.value_schema_id,
    )


def with_head(figures: TopicFigures, head: TopicHead, *, commit_ms: int | None) -> TopicFigures:
    """The figures of a topic whose newer commits nobody here has read but the newest: ends, starts and settings are
    that one's, totals too where it carries them, files by partition stay as they were known."""
    unknown = PartitionFigures(log_start_offset=0, log_end_offset=0)
    known = (*figures.partitions, *(unknown for _ in range(head.partition_count - len(figures.partitions))))
    partitions = [
        replace(one, log_start_offset=start, log_end_offset=end)
        for one, start, end in zip(known, head.log_start_offsets, head.log_end_offsets, strict=False)
    ]
    return replace(
        figures,
        topic_id=head.topic_id,
        partitions=tuple(partitions),
        totals=head.totals or figures.totals,
        totals_version=head.delta_version if head.totals else figures.totals_version,
        delta_version=head.delta_version,
        commit_ms=commit_ms,
        unsequenced_count=head.unsequenced_count,
        cleanup_policy=str(head.config["cleanup.policy"]),
        retention_ms=head.config.integer("retention.ms"),
        value_schema_id=head.value_schema_id,
    )


def _partition(start: int, end: int, segments: Sequence[Segment]) -> PartitionFigures:
    oldest = [one.min_timestamp_ms for one in segments if one.min_timestamp_ms is not None]
    newest = [one.max_timestamp_ms for one in segments if one.max_timestamp_ms is not None]
    return PartitionFigures(
        log_start_offset=start,
        log_end_offset=end,
        record_count=sum(one.record_count or 0 for one in segments),
        size_bytes=sum(one.size_bytes for one in segments),
        file_count=len(segments),
        small_file_count=sum(one.size_bytes < SMALL_FILE_BYTES for one in segments),
        oldest_ms=min(oldest, default=None),
        newest_ms=max(newest, default=None),
    )


def _sum(partitions: Sequence[PartitionFigures]) -> LiveTotals:
    return LiveTotals(
        file_count=sum(one.file_count for one in partitions),
        size_bytes=sum(one.size_bytes for one in partitions),
        record_count=sum(one.record_count for one in partitions),
        oldest_ms=min((one.oldest_ms for one in partitions if one.oldest_ms is not None), default=None),
    )


def _due_ms(state: TopicState, *, is_merge_due: bool, now_ms: int) -> Mapping[str, int]:
    """By step: from when on it has something to do; at most a day from now: then it is to be looked at again."""
    steps = [step for step in CHECKED_STEPS if step is not _PLANNED_APART]
    note = note_of(state, steps, policy=None, now_ms=now_ms, search_ms=_FOREVER_MS)
    found = {step.value: due_ms for step, due_ms in note.due_ms.items()}
    return {**found, _PLANNED_APART.value: now_ms} if is_merge_due else found
