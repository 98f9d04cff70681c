"""Offsets to fetch next: for positions that aren't known yet, and for those that fell out of the log. No I/O, but for
the search of times in files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.config.consumer import ResetPolicy
from sparklog.consumer.assignment import Assignment, PartitionState
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.followed_topics import TopicView
from sparklog.consumer.subscription import EARLIEST, HELD
from sparklog.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import TopicFollower
from sparklog.logs import about
from sparklog.model import OffsetAndTimestamp

__all__ = ["TimestampSearch", "begin_at", "first_records", "is_out_of_range", "set_fetch_offset"]

_LOGGER = logging.getLogger("sparklog.consumer")


@dataclass(frozen=True, slots=True)
class TimestampSearch:
    """A search, in its files, for the offset at which a partition begins: it begins at a time."""

    state: PartitionState
    epoch: int
    duration_ms: int


def set_fetch_offset(
    assignment: Assignment, state: PartitionState, view: TopicView, *, policy: ResetPolicy
) -> TimestampSearch | None:
    """Change an assignment: give a partition the offset to fetch next, or an error, or leave it for a later look.

    Logs a warning where a position is reset.

    Args:
        view: the topic, seen after the partition was assigned or sought.
        policy: for a position that fell out of the log.
    Returns:
        A search that must give the offset first.
    """
    partition = state.partition
    if partition.partition >= view.partition_count:
        if view.caught_up and state.error is None:
            message = f"topic {partition.topic!r} has no partition {partition.partition}"
            expected = f"it has 0 to {view.partition_count - 1}"
            assignment.fail(state, UnknownTopicOrPartitionError(f"{message}; {expected}"))
        return None
    if state.begin == HELD and state.position is None:
        return None
    if state.topic_id not in (None, view.topic_id):  # another topic of this name: all its records are new
        assignment.begin_anew(state, policy if policy.kind == "none" else EARLIEST)
    state.topic_id = view.topic_id
    start, end = view.log_start_offsets[partition.partition], view.log_end_offsets[partition.partition]
    if is_out_of_range(state, view):
        message = f"offset {state.fetch_offset} of {partition.topic}-{partition.partition} is out of range"
        message += f": log start {start}, log end {end}"
        if policy.kind == "none":
            error = OffsetOutOfRangeError(message, topic_partition=partition, offset=state.fetch_offset)
            assignment.fail(state, error)
            return None
        _LOGGER.warning("%s; reset to %s", message, policy.kind, extra=about(**partition._asdict()))
        assignment.begin_anew(state, policy)
    return None if state.fetch_offset is not None else _begin(assignment, state, start, end, view)


def is_out_of_range(state: PartitionState, view: TopicView) -> bool:
    """Is the offset to fetch next outside of the log? Chunks fetched before the log start rose are returned first."""
    number = state.partition.partition
    if state.fetch_offset is None or state.chunks or state.error is not None or number >= view.partition_count:
        return False
    if state.fetch_offset < view.log_start_offsets[number]:
        return True
    return view.caught_up and state.fetch_offset > view.log_end_offsets[number]


def _begin(
    assignment: Assignment, state: PartitionState, start: int, end: int, view: TopicView
) -> TimestampSearch | None:
    begin = state.begin
    if begin.kind == "earliest":
        state.position = state.fetch_offset = start
    elif not view.caught_up or state.error is not None:
        return None
    elif begin.kind == "latest":
        state.position = state.fetch_offset = end
    elif begin.kind == "by_duration":
        return TimestampSearch(state, state.epoch, begin.duration_ms)
    elif begin.kind == "none":
        name = f"{state.partition.topic}-{state.partition.partition}"
        message = f"{name} has no position, and auto_offset_reset is none: seek, or set it"
        assignment.fail(state, NoOffsetForPartitionError(message, topic_partition=state.partition))
    return None


def first_records(
    follower: TopicFollower, searches: Sequence[TimestampSearch], now_ms: int
) -> list[tuple[TimestampSearch, OffsetAndTimestamp | SparklogError | None]]:
    """The first records of partitions of one topic since their times, or why they can't be read: the file of one
    partition may be broken."""
    since_ms = {search.state.partition.partition: max(0, now_ms - search.duration_ms) for search in searches}
    first: dict[int, OffsetAndTimestamp | SparklogError | None] = {}
    try:
        first.update(follower.offsets_for_times(since_ms))
    except SparklogError:
        for partition, at_ms in since_ms.items():
            try:
                first[partition] = follower.offset_for_time(partition, at_ms)
            except SparklogError as error:
                first[partition] = error
    return [(search, first[search.state.partition.partition]) for search in searches]


def begin_at(
    fetch_state: FetchState, search: TimestampSearch, found: OffsetAndTimestamp | SparklogError | None, *, end: int
) -> None:
    """Give a partition the offset that a search has found, or its error; where it found nothing, the log end."""
    state = search.state
    with fetch_state.lock:
        if state.epoch != search.epoch:
            return
        if isinstance(found, SparklogError):
            fetch_state.assignment.fail(state, found)
            return
        state.position = state.fetch_offset = end if found is None else found.offset
        fetch_state.notify()
