"""The plan of compaction by key: when a partition is due, up to where it may be cleaned, what is remembered. Pure.

Kafka's words: below the *first dirty offset* every key is there once at most, but for those that came again since;
*cleanable* is what lies between it and the newest file, which plays the active segment, or the first file that is
younger than ``min.compaction.lag.ms``. A newest file with a record that is older than ``max.compaction.lag.ms`` is
cleanable, too, which goes beyond Kafka: the setting erases in a partition to which nobody writes any more.

A tombstone, a key with a null value, must stay until whoever began to read before it was first met had the time of
``delete.retention.ms`` to come to it. The table remembers up to where tombstones were first met by when (the
*horizon*); a pass that begins long enough after that drops those, and sets the horizon anew. One that was met between
two horizons counts from the later: it may stay twice as long, never too short.

Source of the rules: Kafka ``LogCleanerManager.cleanableOffsets``, ``grabFilthiestCompactedLog``, ``LogToClean``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sparklog.compaction.file_ranges import FileUnit, file_units
from sparklog.compaction.topic_access import strict_config
from sparklog.delta.actions import FAR_FUTURE_MS, Metadata, SetTransaction
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import Leaf
from sparklog.log.head import cleaner_app_id
from sparklog.log.state import TopicState

__all__ = [
    "CleanPlan",
    "CleanerRules",
    "CleanerState",
    "Reason",
    "cleaner_rules",
    "compaction_due_ms",
    "plan_cleaning",
    "plan_partition",
    "plan_topic",
]

_SETTINGS = (
    "cleanup.policy",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "segment.bytes",
)

_FIELDS = ("offset", "horizon", "horizon_ms", "tombstones")


class Reason(str, Enum):
    """The reason why a partition is to be cleaned."""

    NONE = "none"
    """It isn't."""
    DIRTY = "dirty"
    """More than ``min.cleanable.dirty.ratio`` of its bytes are."""
    OLD = "old"
    """A record has waited for longer than ``max.compaction.lag.ms``."""
    TOMBSTONES = "tombstones"
    """There are some that may go now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerState:
    """The state of one partition's compaction, which the topic's table remembers."""

    first_dirty_offset: int = 0
    """Up to here (exclusive) it was cleaned; never decreases while the topic lives."""
    horizon_offset: int = 0
    """Up to here (exclusive) every tombstone was met …"""
    horizon_ms: int = 0
    """… by this time of the store, milliseconds since the epoch."""
    tombstone_count: int = 0
    """How many the last pass left below the first dirty offset."""

    @classmethod
    def of(cls, transactions: Mapping[str, SetTransaction], topic_id: str, partition: int) -> CleanerState:
        """The state that a table's ``txn`` actions hold. A topic of the same name that was deleted had another id."""
        actions = (transactions.get(cleaner_app_id(name, topic_id, partition)) for name in _FIELDS)
        offset, horizon, horizon_ms, tombstones = (0 if txn is None else txn.version for txn in actions)
        return cls(first_dirty_offset=offset, horizon_offset=horizon, horizon_ms=horizon_ms, tombstone_count=tombstones)

    def to_actions(self, topic_id: str, partition: int) -> list[SetTransaction]:
        """The ``txn`` actions that remember it; they don't expire."""
        values = (self.first_dirty_offset, self.horizon_offset, self.horizon_ms, self.tombstone_count)
        return [
            SetTransaction(
                app_id=cleaner_app_id(name, topic_id, partition), version=value, last_updated_ms=FAR_FUTURE_MS
            )
            for name, value in zip(_FIELDS, values, strict=True)
        ]

    def due_tombstones_end(self, *, now_ms: int, delete_retention_ms: int) -> int:
        """Tombstones below this offset may go; 0 where none may yet."""
        return self.horizon_offset if now_ms - self.horizon_ms >= delete_retention_ms else 0

    def after_pass(
        self, *, end_offset: int, tombstone_count: int, due_tombstones_end: int, now_ms: int
    ) -> CleanerState:
        """The state after a pass.

        Args:
            end_offset: up to where it cleaned (exclusive).
            tombstone_count: how many it left below.
            due_tombstones_end: below here it left none.
            now_ms: the store's time at its end.
        """
        is_horizon_used = due_tombstones_end >= self.horizon_offset or self.tombstone_count == 0
        return CleanerState(
            first_dirty_offset=max(self.first_dirty_offset, end_offset),
            horizon_offset=end_offset if is_horizon_used else self.horizon_offset,
            horizon_ms=now_ms if is_horizon_used else self.horizon_ms,
            tombstone_count=tombstone_count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerRules:
    """A topic's settings that concern compaction."""

    compacts: bool
    """Does ``cleanup.policy`` hold ``compact``?"""
    min_lag_ms: int
    max_lag_ms: int
    min_dirty_ratio: float
    """0 … 1."""
    delete_retention_ms: int
    segment_bytes: int
    """How large a rewritten file may become."""


def cleaner_rules(table: str, metadata: Metadata) -> CleanerRules:
    """The rules of a topic. Raises ``InvalidConfigurationError``, which names the property that isn't understood."""
    config = strict_config(table, metadata, _SETTINGS)
    return CleanerRules(
        compacts="compact" in str(config["cleanup.policy"]).split(","),
        min_lag_ms=config.integer("min.compaction.lag.ms"),
        max_lag_ms=config.integer("max.compaction.lag.ms"),
        min_dirty_ratio=float(config["min.cleanable.dirty.ratio"]),
        delete_retention_ms=config.integer("delete.retention.ms"),
        segment_bytes=config.integer("segment.bytes"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """The plan of a pass over one partition."""

    partition: int
    state: CleanerState
    """The cleaner's state as the plan was made."""
    reason: Reason
    units: tuple[FileUnit, ...]
    """All that may be rewritten, from the log start on."""
    first_dirty_offset: int
    end_offset: int
    """Exclusive; what lies beyond stays as it is."""
    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int | None
    """The smallest timestamp of a record that waits to be cleaned; None where none does."""
    tombstones_due: int
    """About how many tombstones may go."""
    due_tombstones_end: int
    """The offset below which tombstones are due."""
    due_later_ms: int | None = None
    """The store's time at which something may become due though nothing is appended; None: at no time."""
    leaves: tuple[Leaf, ...] = ()
    """The leaves of a typed topic's values that rewritten files have statistics of."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the bytes that may be cleaned or are clean, 0 … 1. Source: Kafka
        ``LogToClean.cleanableRatio``."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


def plan_cleaning(
    segments: Sequence[Segment],
    rules: CleanerRules,
    state: CleanerState,
    *,
    partition: int,
    log_start_offset: int,
    now_ms: int,
    leaves: tuple[Leaf, ...] = (),
) -> CleanPlan:
    """The plan of a pass over a partition; its ``reason`` says whether one is due.

    Args:
        segments: of the partition, in offset order.
        now_ms: the store's time.
        leaves: those of a typed topic's values that rewritten files have statistics of.
    """
    first_dirty = max(state.first_dirty_offset, log_start_offset)
    every = file_units(segments)
    held_back = [unit for unit in every[-1:] if not _may_clean_newest(unit, rules, first_dirty, now_ms=now_ms)]
    closed = every[: len(every) - len(held_back)]
    units = [unit for unit in closed if unit.last_offset >= log_start_offset or not unit.is_known]
    clean = [unit for unit in units if unit.last_offset < first_dirty]
    # else it isn't known which keys the clean part holds, and which records they supersede
    is_understood = all(unit.is_known for unit in clean)
    waiting = units[len(clean) :] if is_understood else []
    dirty = _cleanable(waiting, rules, now_ms=now_ms)
    due_end = state.due_tombstones_end(now_ms=now_ms, delete_retention_ms=rules.delete_retention_ms)
    plan = CleanPlan(
        partition=partition,
        state=state,
        reason=Reason.NONE,
        units=(*clean, *dirty) if is_understood else (),
        first_dirty_offset=first_dirty,
        end_offset=max([first_dirty, *(unit.last_offset + 1 for unit in dirty)]),
        clean_bytes=sum(unit.size_bytes for unit in clean),
        dirty_bytes=sum(unit.size_bytes for unit in dirty),
        oldest_dirty_ms=min((unit.smallest_timestamp_ms for unit in dirty), default=None),
        tombstones_due=state.tombstone_count if due_end > log_start_offset else 0,
        due_tombstones_end=due_end,
        leaves=leaves,
    )
    later_ms = _due_later_ms(plan, rules, waiting[len(dirty) :], held_back)
    return replace(plan, reason=_reason(plan, rules, now_ms=now_ms), due_later_ms=later_ms)


def _may_clean_newest(newest: FileUnit, rules: CleanerRules, first_dirty: int, *, now_ms: int) -> bool:
    """May the newest file be rewritten: was it cleaned before, or has one of its records waited for too long?"""
    is_clean = newest.last_offset < first_dirty
    return newest.is_known and (is_clean or now_ms - newest.smallest_timestamp_ms > rules.max_lag_ms)


def _due_later_ms(
    plan: CleanPlan, rules: CleanerRules, held: Sequence[FileUnit], newest: Sequence[FileUnit]
) -> int | None:
    """The next moment at which time alone may make something due.

    Args:
        held: the units that aren't cleanable yet, from the first on.
        newest: the newest file, if it may not be rewritten yet.
    """
    moments = [unit.smallest_timestamp_ms + rules.max_lag_ms + 1 for unit in newest if unit.is_known]
    if held and held[0].is_known:
        moments.append(held[0].largest_timestamp_ms + rules.min_lag_ms)
    if plan.oldest_dirty_ms is not None:
        moments.append(plan.oldest_dirty_ms + rules.max_lag_ms + 1)
    if plan.state.tombstone_count and plan.units:
        moments.append(plan.state.horizon_ms + rules.delete_retention_ms)
    return min(moments, default=None) if rules.compacts else None


def _cleanable(dirty: Sequence[FileUnit], rules: CleanerRules, *, now_ms: int) -> list[FileUnit]:
    """The dirty units up to the first that is too young, or can't be read."""
    cleanable: list[FileUnit] = []
    for unit in dirty:
        is_young = rules.min_lag_ms > 0 and now_ms - unit.largest_timestamp_ms < rules.min_lag_ms
        if is_young or not unit.is_known:
            break
        cleanable.append(unit)
    return cleanable


def _reason(plan: CleanPlan, rules: CleanerRules, *, now_ms: int) -> Reason:
    if not rules.compacts:
        return Reason.NONE
    if plan.oldest_dirty_ms is not None and now_ms - plan.oldest_dirty_ms > rules.max_lag_ms:
        return Reason.OLD
    if plan.dirty_bytes and plan.dirty_ratio > rules.min_dirty_ratio:
        return Reason.DIRTY
    return Reason.TOMBSTONES if plan.tombstones_due and plan.units else Reason.NONE


def compaction_due_ms(state: TopicState, *, now_ms: int) -> int | None:
    """The time at which a partition will be due for compaction if nothing is appended until then: the store's time,
    ``now_ms`` where one is due now. None: none will."""
    rules = cleaner_rules(state.log.table, state.require_whole().metadata)
    plans = plan_topic(state, rules, now_ms=now_ms) if rules.compacts else []
    if any(plan.reason is not Reason.NONE for plan in plans):
        return now_ms
    return min((plan.due_later_ms for plan in plans if plan.due_later_ms is not None), default=None)


def plan_topic(state: TopicState, rules: CleanerRules, *, now_ms: int) -> list[CleanPlan]:
    """The plans of all partitions that have files."""
    index = state.require_whole().index
    return [
        plan_partition(state, rules, partition, now_ms=now_ms)
        for partition in index.partitions()
        if partition < state.head.partition_count
    ]


def plan_partition(state: TopicState, rules: CleanerRules, partition: int, *, now_ms: int) -> CleanPlan:
    """The plan of one partition."""
    return plan_cleaning(
        state.require_whole().index.partition(partition),
        rules,
        CleanerState.of(state.transactions, state.head.topic_id, partition),
        partition=partition,
        log_start_offset=state.head.log_start_offsets[partition],
        now_ms=now_ms,
        leaves=state.head.leaves,
    )
