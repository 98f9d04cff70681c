"""Setting a group back, or forward: which offsets it would have. Pure.

Source: Kafka ``ConsumerGroupCommand.prepareOffsetsToReset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sparklog.errors import InvalidArgumentError
from sparklog.model import TopicPartition

__all__ = ["Kind", "OffsetReset", "PartitionBounds", "ResetTo", "plan_reset"]


Kind = Literal["earliest", "latest", "current", "offset", "shift", "time"]

_NUMBERED = frozenset({"offset", "shift", "time"})


@dataclass(frozen=True, slots=True)
class ResetTo:
    """The target of a reset of a group: ``ResetTo("earliest")``, ``ResetTo("shift", -10)``, …

    ``earliest`` is the log start and ``latest`` the log end; ``current`` what is committed now, or the log end where
    nothing is; ``offset`` one offset in every partition; ``shift`` so many records forward, or back where it is
    negative; ``time`` the first record that isn't older, or the log end where there is none.

    Raises ``InvalidArgumentError`` for what has no meaning.
    """

    kind: Kind
    number: int = 0
    """The offset for ``offset``, the number of records for ``shift``, milliseconds since the epoch for ``time``; else
    0."""

    def __post_init__(self) -> None:
        kind, number = str(self.kind), _as_given(self.number)
        if kind not in get_args(Kind):
            raise InvalidArgumentError(f"reset to {self.kind!r}: expected one of {', '.join(get_args(Kind))}")
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidArgumentError(f"reset to {kind}: got {number!r}, expected a whole number")
        if kind != "shift" and number < 0:
            raise InvalidArgumentError(f"reset to {kind}: got {number}, expected 0 or more")
        if kind not in _NUMBERED and number != 0:
            raise InvalidArgumentError(f"reset to {kind}: got {number}, expected no number")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBounds:
    """A partition, as far as a reset has to know it."""

    committed: int | None
    """None where the group has committed nothing."""
    log_start_offset: int
    log_end_offset: int
    offset_for_time: int | None = None
    """The offset of the first record that isn't older than the time asked for; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """The reset of one partition: its offset before and after."""

    partition: TopicPartition
    current_offset: int | None
    """Committed before; None where nothing was."""
    new_offset: int
    asked_offset: int
    """``new_offset``, unless that would be outside of the log: then the nearer end of it was taken."""


def plan_reset(
    to: ResetTo | Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, PartitionBounds]
) -> list[OffsetReset]:
    """The offsets that a group would have committed after a reset, in the order of ``partitions``.

    Args:
        to: a place for all of them, or an offset for each.
    Raises:
        InvalidArgumentError: a shift of a partition for which nothing is committed; no offset for one of them, or a
            negative one.
    """
    return [_reset(to, partition, bounds) for partition, bounds in partitions.items()]


def _reset(
    to: ResetTo | Mapping[TopicPartition, int], partition: TopicPartition, bounds: PartitionBounds
) -> OffsetReset:
    asked = _offset_of(to, partition, bounds) if isinstance(to, ResetTo) else _given_offset(to, partition)
    is_kept = isinstance(to, ResetTo) and to.kind == "current"
    within = min(max(asked, bounds.log_start_offset), bounds.log_end_offset)
    return OffsetReset(
        partition=partition,
        current_offset=bounds.committed,
        new_offset=asked if is_kept else within,
        asked_offset=asked,
    )


def _offset_of(to: ResetTo, partition: TopicPartition, bounds: PartitionBounds) -> int:
    if to.kind == "shift":
        if bounds.committed is None:
            raise InvalidArgumentError(f"{_name(partition)} can't be shifted: the group has committed nothing for it")
        return bounds.committed + to.number
    offset = {
        "earliest": bounds.log_start_offset,
        "current": bounds.committed,
        "offset": to.number,
        "time": bounds.offset_for_time,
    }.get(to.kind)
    return bounds.log_end_offset if offset is None else offset


def _given_offset(offsets: Mapping[TopicPartition, int], partition: TopicPartition) -> int:
    offset = offsets.get(partition)
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise InvalidArgumentError(f"reset {_name(partition)}: got {offset!r}, expected an offset, 0 or more")
    return offset


def _as_given(value: object) -> object:
    """Give the value the type ``object``: a caller without types may have given anything."""
    return value


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
