"""The plan of merging: which small files of a partition are worth being merged. Pure.

A merge costs as much as it reads, so a record must not be rewritten again and again while its partition grows. Files
are merged when the result is as large as wanted, or several times as large as the largest file in it: a record is then
rewritten a number of times that is the logarithm of the sizes, whatever the order and the number of runs.

The newest file of a partition stays as it is. It plays Kafka's active segment: compaction by key doesn't touch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sparklog.compaction.file_ranges import DEFAULT_FILE_BYTES, FileRange, FileUnit, file_units
from sparklog.compaction.plan_cleaning import CleanerState
from sparklog.compaction.topic_access import strict_config
from sparklog.config import TopicConfig
from sparklog.errors import InvalidArgumentError
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import Leaf
from sparklog.log.state import TopicState

__all__ = [
    "SETTINGS",
    "TARGET_BYTES",
    "OptimizePolicy",
    "is_optimize_due",
    "merge_ranges",
    "plan_optimize",
    "plan_topic",
    "policy_of",
]

SETTINGS = ("cleanup.policy", "compression.type", "segment.bytes", "segment.ms", "retention.bytes", "retention.ms")
"""The topic settings that merging goes by."""

TARGET_BYTES = DEFAULT_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePolicy:
    """The policy that says which files are worth being merged."""

    target_bytes: int = TARGET_BYTES
    """How large files should become, 1 or more. One of half the size is large enough, and is never touched."""
    min_files: int = 8
    """Fewer aren't merged, 2 or more; unless they make a file that is large enough."""
    max_files: int = 1_000
    """Merged at once: the commit names each of them."""
    max_span_ms: int = 2**63 - 1
    """Between the oldest and the newest record of a merged file: retention deletes whole files."""
    growth: float = 4.0
    """A merged file that isn't large enough yet is at least so many times as large as the largest in it; more than
    1."""

    def __post_init__(self) -> None:
        bounds = (("target_bytes", 1), ("min_files", 2), ("max_files", self.min_files), ("max_span_ms", 0))
        for name, least in bounds:
            if getattr(self, name) < least:
                raise InvalidArgumentError(f"{name}: got {getattr(self, name)}, expected {least} or more")
        if not self.growth > 1:
            raise InvalidArgumentError(f"growth: got {self.growth}, expected more than 1")

    def for_topic(self, config: TopicConfig) -> OptimizePolicy:
        """The policy within what a topic's settings allow: files no larger than ``segment.bytes``, and no longer than
        ``segment.ms``; so that retention can go by files, neither more than a tenth of what it keeps."""
        limits = {name: config.integer(name) for name in ("segment.bytes", "segment.ms")}
        if "delete" in str(config["cleanup.policy"]).split(","):
            kept_bytes, kept_ms = config.integer("retention.bytes"), config.integer("retention.ms")
            limits = {
                "segment.bytes": _tenth(kept_bytes, limits["segment.bytes"]),
                "segment.ms": _tenth(kept_ms, limits["segment.ms"]),
            }
        return replace(
            self,
            target_bytes=min(self.target_bytes, max(1, limits["segment.bytes"])),
            max_span_ms=min(self.max_span_ms, limits["segment.ms"]),
        )


def _tenth(kept: int, limit: int) -> int:
    """A tenth of what retention keeps, but no more than ``limit``; ``limit`` where it keeps everything."""
    return limit if kept < 0 else min(limit, kept // 10)


def plan_optimize(
    segments: Sequence[Segment],
    policy: OptimizePolicy,
    *,
    partition: int,
    boundary_offset: int = 0,
    leaves: tuple[Leaf, ...] = (),
) -> list[FileRange]:
    """The ranges of a partition that are worth being merged, each into one file, in offset order.

    Args:
        segments: of the partition, in offset order.
        boundary_offset: no range lies on both sides of it: what is compacted by key stays apart from what isn't.
        leaves: those of a typed topic's values that merged files have statistics of.
    """
    ranges = []
    for run in _runs(file_units(segments)[:-1], policy, boundary_offset):
        for chunk, is_full in _chunks(run, policy):
            for units in _worthwhile(chunk, policy, is_full=is_full):
                files = tuple(segment for unit in units for segment in unit.segments)
                found = FileRange(partition=partition, segments=files, file_bytes=policy.target_bytes, leaves=leaves)
                ranges.append(found)
    return ranges


def _runs(units: Iterable[FileUnit], policy: OptimizePolicy, boundary_offset: int) -> Iterator[list[FileUnit]]:
    """Small units that stand next to each other."""
    run: list[FileUnit] = []
    for unit in units:
        is_small = unit.has_stats and unit.size_bytes < policy.target_bytes / 2
        if run and (not is_small or run[-1].last_offset < boundary_offset <= unit.last_offset):
            yield run
            run = []
        if is_small:
            run.append(unit)
    if run:
        yield run


def _chunks(run: Sequence[FileUnit], policy: OptimizePolicy) -> Iterator[tuple[list[FileUnit], bool]]:
    """The run in pieces that may make a file each; True with one that would be too large with the next unit."""
    chunk: list[FileUnit] = []
    size = files = oldest_ms = newest_ms = 0
    for unit in run:
        is_full = size + unit.size_bytes > policy.target_bytes
        span_ms = max(newest_ms, unit.largest_timestamp_ms) - min(oldest_ms, unit.smallest_timestamp_ms)
        is_too_much = is_full or files + len(unit.segments) > policy.max_files or span_ms > policy.max_span_ms
        if chunk and is_too_much:
            yield chunk, is_full
            chunk, size, files = [], 0, 0
        if not chunk:
            oldest_ms, newest_ms = unit.smallest_timestamp_ms, unit.largest_timestamp_ms
        chunk.append(unit)
        size += unit.size_bytes
        files += len(unit.segments)
        oldest_ms = min(oldest_ms, unit.smallest_timestamp_ms)
        newest_ms = max(newest_ms, unit.largest_timestamp_ms)
    if chunk:
        yield chunk, False


def _worthwhile(chunk: list[FileUnit], policy: OptimizePolicy, *, is_full: bool) -> Iterator[list[FileUnit]]:
    """The parts of a chunk that are worth being merged, oldest first."""
    size = sum(unit.size_bytes for unit in chunk)
    if is_full and size >= policy.target_bytes / 2 and _file_count(chunk) > 1:
        yield chunk
        return
    waiting = [chunk]
    while waiting:
        part = waiting.pop()
        if _file_count(part) < policy.min_files:
            continue
        largest = max(range(len(part)), key=lambda at, part=part: part[at].size_bytes)  # type: ignore[misc]
        if _grows(part, policy):
            yield part
        else:  # what stands beside the largest may be worth it without it
            waiting += [part[largest + 1 :], part[:largest]]


def _grows(units: Sequence[FileUnit], policy: OptimizePolicy) -> bool:
    """Would merging grow files enough, both in bytes and in records? A few large records outweigh many small ones, and
    the other way round."""
    return all(
        sum(sizes) >= policy.growth * max(sizes)
        for sizes in ([unit.size_bytes for unit in units], [unit.record_count for unit in units])
    )


def _file_count(units: Iterable[FileUnit]) -> int:
    return sum(len(unit.segments) for unit in units)


def plan_topic(state: TopicState, policy: OptimizePolicy) -> list[FileRange]:
    """The ranges of a whole topic, partition by partition."""
    index = state.require_whole().index
    ranges = []
    for partition in index.partitions():
        cleaner = CleanerState.of(state.transactions, state.head.topic_id, partition)
        ranges += plan_optimize(
            index.partition(partition),
            policy,
            partition=partition,
            boundary_offset=cleaner.first_dirty_offset,
            leaves=state.head.leaves,
        )
    return ranges


def is_optimize_due(state: TopicState, policy: OptimizePolicy | None = None) -> bool:
    """Are there files that are worth being merged? Raises ``InvalidConfigurationError``."""
    return bool(merge_ranges(state, policy))


def merge_ranges(state: TopicState, policy: OptimizePolicy | None = None) -> list[FileRange]:
    """The ranges of files that are worth being merged, of a whole state. Raises ``InvalidConfigurationError``."""
    return plan_topic(state, policy_of(state, policy)[0])


def policy_of(state: TopicState, policy: OptimizePolicy | None) -> tuple[OptimizePolicy, str]:
    """The policy within what the topic's settings allow, and its ``compression.type``."""
    config = strict_config(state.log.table, state.require_whole().metadata, SETTINGS)
    return (policy or OptimizePolicy()).for_topic(config), str(config["compression.type"])
