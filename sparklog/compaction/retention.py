"""Retention: which files of a partition are too old or too many (pure), and the commits that remove them.

As in Kafka what goes is always a prefix of the partition, whole files, and the log start moves to the end of the last
that went, never further and never back (rule L6, start and end). Nothing is read but the log: a file's largest
timestamp stands there.

Kafka deletes by segments of up to a gigabyte, of which the newest is written to; a file here is whole from the start.
So the newest may go like any other, as Kafka's does once it is too old: it rolls a new segment first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sparklog.compaction.file_ranges import FileUnit, unreadable_files
from sparklog.compaction.topic_access import check_removal, commit_job, is_gone, made_durable, strict_config
from sparklog.delta.actions import RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.commit import Commit
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.delay_topics import is_delay_table
from sparklog.log.head import TopicHead
from sparklog.log.state import TopicState, load_state

__all__ = [
    "ExpiredFiles",
    "RetentionReport",
    "RetentionRules",
    "plan_retention",
    "retain_state",
    "retain_topic",
    "retention_due_ms",
    "retention_rules",
]

UNLIMITED = -1
DEFAULT_TIMEOUT_MS = 60_000.0
_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")
_MOST_FILES = 4_096
"""Removed by one commit: an entry of a megabyte, which every follower reads."""
_LEAST_FILES = 64
"""Where producers are faster: a short entry is written sooner, and loses fewer races."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The rules by which a topic's settings say how long records stay."""

    deletes: bool
    """Does ``cleanup.policy`` hold ``delete``? If not, only what lies below the log start goes."""
    retention_ms: int
    """-1: no limit."""
    retention_bytes: int
    """Per partition; -1: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredFiles:
    """The files that retention takes from one partition."""

    partition: int
    below_start: tuple[Segment, ...]
    """Wholly below the log start already: ``delete_records``, or a file that was merged since."""
    too_many: tuple[Segment, ...]
    """By ``retention.bytes``."""
    too_old: tuple[Segment, ...]
    """By ``retention.ms``."""
    log_start_offset: int
    """Afterwards; never below what it was."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All, in offset order."""
        return self.below_start + self.too_many + self.too_old


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """The report on retention in one topic: what was done, or would be."""

    topic: str
    removed_files: int
    removed_bytes: int
    log_start_offsets: Mapping[int, tuple[int, int]]
    """By partition whose log start offset moved: the old one and the new one."""
    delta_version: int
    dry_run: bool
    unreadable: tuple[str, ...] = ()
    """Paths of live files that can't be read: nothing from there on was removed."""


def retention_rules(state: TopicState) -> RetentionRules:
    """The rules of a topic; a delay topic keeps what waits for any time (decision 0099).

    Raises ``InvalidConfigurationError``, which names the property that isn't understood."""
    config = strict_config(state.log.table, state.require_whole().metadata, _SETTINGS)
    keeps_all = is_delay_table(state.log.table)
    return RetentionRules(
        deletes="delete" in str(config["cleanup.policy"]).split(","),
        retention_ms=UNLIMITED if keeps_all else config.integer("retention.ms"),
        retention_bytes=UNLIMITED if keeps_all else config.integer("retention.bytes"),
    )


def plan_retention(
    segments: Sequence[Segment],
    rules: RetentionRules,
    *,
    partition: int,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    most_files: int = _MOST_FILES,
) -> ExpiredFiles:
    """Choose the files of a partition that go: first those below the log start, then while the rest is too large, then
    those whose newest record is too old. Each walk begins at the oldest that is left and stops at the first that stays.

    Args:
        segments: of the partition, in offset order.
        end_offset: files from here on stay; they are new since the job began.
        now_ms: the time by which records are judged.
        most_files: no more than these, but at least one unit; the next plan takes the rest.
    Source: Kafka ``UnifiedLog.deleteOldSegments``.
    """
    walk = _Walk(segments, end_offset=end_offset, most_files=most_files)
    below_start = walk.take(lambda unit: unit.last_offset < log_start_offset)
    too_many: list[Segment] = []
    too_old: list[Segment] = []
    if rules.deletes and rules.retention_bytes != UNLIMITED:
        too_many = walk.take(lambda unit: walk.left_bytes - unit.size_bytes >= rules.retention_bytes)
    if rules.deletes and rules.retention_ms != UNLIMITED:
        too_old = walk.take(lambda unit: now_ms - unit.largest_timestamp_ms > rules.retention_ms)
    expired = too_many + too_old
    ends = [log_start_offset, *(segment.last_offset + 1 for segment in expired)]
    return ExpiredFiles(
        partition=partition,
        below_start=tuple(below_start),
        too_many=tuple(too_many),
        too_old=tuple(too_old),
        log_start_offset=max(ends),
    )


class _Walk:
    """A walk over a partition's units, from the oldest on."""

    def __init__(self, segments: Sequence[Segment], *, end_offset: int, most_files: int) -> None:
        self._units = map(FileUnit.of, overlapping(segments))  # as far as it walks: producers win while it plans
        self._next = next(self._units, None)
        self._end_offset = end_offset
        self._room = most_files
        self.left_bytes = sum(segment.size_bytes for segment in segments)

    def take(self, goes: Callable[[FileUnit], bool]) -> list[Segment]:
        """The files of the units that go, up to the first that stays."""
        taken: list[Segment] = []
        while (unit := self._next) is not None and self._room > 0:
            if not unit.is_known or unit.last_offset >= self._end_offset or not goes(unit):
                break
            taken += unit.segments
            self._next = next(self._units, None)
            self._room -= len(unit.segments)
            self.left_bytes -= unit.size_bytes
        return taken


def retain_topic(
    log: DeltaLog, topic: str, *, now_ms: int, dry_run: bool = False, timeout_ms: float = DEFAULT_TIMEOUT_MS
) -> RetentionReport:
    """Remove what a topic's settings don't keep any longer, and what lies below the log start.

    Only the log changes: readers that are at work go on, and vacuum deletes the files later. Many files go in several
    commits, the oldest first; each is whole in itself. Safe to run twice at once and to kill at any point.

    Args:
        now_ms: the time by which records are judged.
        timeout_ms: for each commit.
    Raises:
        InvalidConfigurationError: a setting isn't understood; nothing was removed.
        PolicyViolationError: the table is append-only.
        UnknownTopicOrPartitionError, KafkaTimeoutError, CommitStateUnknownError, StoreError, …: what was removed
            before is right; do it again.
    """
    return retain_state(load_state(log), topic, now_ms=now_ms, dry_run=dry_run, timeout_ms=timeout_ms)[0]


def retain_state(
    state: TopicState,
    topic: str,
    *,
    now_ms: int,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    done_below: Mapping[int, int] = MappingProxyType({}),
) -> tuple[RetentionReport, TopicState]:
    """Apply retention to a topic that is loaded, as :func:`retain_topic` does. Returns the state to go on with, too.
    Where nothing is to be removed, no store is called.

    Args:
        done_below: by partition, the offset below which nothing is needed any more; of a delay topic.
    """
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    before = state.head
    if dry_run:
        most_files = len(state.require_whole().index)
        plans = _plans(state, before.log_end_offsets, now_ms=now_ms, most_files=most_files, done_below=done_below)
        removed = [(segment.path, segment.size_bytes) for plan in plans for segment in plan.segments]
        starts = [*before.log_start_offsets]
        for plan in plans:
            starts[plan.partition] = plan.log_start_offset
        return _report(topic, removed, before, tuple(starts), state, dry_run=True), state
    removed = []
    with made_durable(state.log) as committing:
        while True:
            step = _Step(before, now_ms, committing, done_below)
            done = commit_job(state, step.decide, timeout_ms=timeout_ms)
            state = done.state
            if done.commit is None:
                break
            removes = [action for action in done.commit.actions if isinstance(action, RemoveFile)]
            removed += [(action.path, action.size_bytes) for action in removes]
    starts_now = before.log_start_offsets if is_gone(state, before.topic_id) else state.head.log_start_offsets
    return _report(topic, removed, before, starts_now, state, dry_run=False), state


def retention_due_ms(state: TopicState, *, now_ms: int) -> int | None:
    """The time at which retention will remove something if nothing is appended until then: the store's time, ``now_ms``
    or earlier where it would now. None: it won't."""
    rules = retention_rules(state)
    if _plans(state, state.head.log_end_offsets, now_ms=now_ms, most_files=1):
        return now_ms
    if is_delay_table(state.log.table) and state.head.live_file_count:
        return now_ms  # what was delivered isn't seen in the topic
    if not rules.deletes or rules.retention_ms == UNLIMITED:
        return None
    index = state.require_whole().index
    oldest = (next(map(FileUnit.of, overlapping(index.partition(number))), None) for number in index.partitions())
    return min(
        (unit.largest_timestamp_ms + rules.retention_ms + 1 for unit in oldest if unit and unit.is_known), default=None
    )


class _Step:
    """One of retention's commits."""

    def __init__(
        self, before: TopicHead, now_ms: int, committing: Callable[[], None], done_below: Mapping[int, int]
    ) -> None:
        self._before = before
        self._done_below = done_below
        self._now_ms = now_ms
        self._committing = committing
        self._most_files = 2 * _MOST_FILES

    def decide(self, state: TopicState) -> Commit | None:
        """Plans anew (rule L4, decide again), for fewer files with each race that was lost."""
        if is_gone(state, self._before.topic_id):
            return None
        self._most_files = max(_LEAST_FILES, self._most_files // 2)
        plans = _plans(
            state,
            self._before.log_end_offsets,
            now_ms=self._now_ms,
            most_files=self._most_files,
            done_below=self._done_below,
        )
        gone = [segment for plan in plans for segment in plan.segments]
        if not plans:
            return None
        starts = [*state.head.log_start_offsets]
        for plan in plans:
            starts[plan.partition] = plan.log_start_offset
        head = replace(
            state.head,
            log_start_offsets=tuple(starts),
            live_file_count=max(0, state.head.live_file_count - len(gone)),
        )
        deletion_ms = state.log.clock.now_ms()
        removes = [
            RemoveFile(
                path=segment.path,
                deletion_ms=deletion_ms,
                partition_values=segment.partition_values(),
                size_bytes=segment.size_bytes,
            )
            for segment in gone
        ]
        self._committing()
        return Commit(actions=removes, head=head, operation="RETENTION")


def _plans(
    state: TopicState,
    end_offsets: Sequence[int],
    *,
    now_ms: int,
    most_files: int,
    done_below: Mapping[int, int] = MappingProxyType({}),
) -> list[ExpiredFiles]:
    """The plans of the partitions that lose something."""
    whole = state.require_whole()
    rules = retention_rules(state)
    found = []
    room = most_files
    for partition in whole.index.partitions():
        if room <= 0 or partition >= len(end_offsets):
            break
        start = state.head.log_start_offsets[partition]
        done = done_below.get(partition, 0) if rules.deletes else 0
        plan = plan_retention(
            whole.index.partition(partition),
            rules,
            partition=partition,
            log_start_offset=max(start, min(done, end_offsets[partition])),
            end_offset=end_offsets[partition],
            now_ms=now_ms,
            most_files=room,
        )
        if plan.segments or plan.log_start_offset > start:
            found.append(plan)
            room -= len(plan.segments)
    if found:
        check_removal(state.log.table, whole.metadata)
    return found


def _report(
    topic: str,
    removed: Sequence[tuple[str, int]],
    before: TopicHead,
    starts: Sequence[int],
    state: TopicState,
    *,
    dry_run: bool,
) -> RetentionReport:
    moved = zip(before.log_start_offsets, starts, strict=False)  # partitions may have been added
    return RetentionReport(
        topic=topic,
        removed_files=len(removed),
        removed_bytes=sum(size for _, size in removed),
        log_start_offsets={number: (old, new) for number, (old, new) in enumerate(moved) if new != old},
        delta_version=state.position.version,
        dry_run=dry_run,
        unreadable=unreadable_files(state.require_whole().index) if retention_rules(state).deletes else (),
    )
