"""Changes of a group's offsets: their rules, as values. Each takes the rows and gives the new ones, without I/O.

A change is decided anew on every version that comes before it (rule L4, decide again), so it holds what the caller knew
and compares it with what the rows say by then: that is what fences a consumer that was paused and wakes up (rule G1,
stamps).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sparklog.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidArgumentError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = [
    "GENERATION_FENCE",
    "MAX_METADATA_BYTES",
    "Change",
    "CommitOffsets",
    "CommitUnowned",
    "DeleteAll",
    "DeleteOffsets",
    "ExpireOffsets",
    "TakePartitions",
]

MAX_METADATA_BYTES = 4_096
"""Source: Kafka ``offset.metadata.max.bytes``."""

SAME_COMMIT_MS = 3_600_000
"""A commit of what is committed already writes nothing if the row is younger: an idle consumer that commits every five
seconds would write a table version each time. Offsets expire after days, so an hour is near enough."""

GENERATION_FENCE = TopicPartition("", 0)
"""The key of the group's own row, of no topic: there once rows were deleted that fenced somebody. Nobody takes a
partition without a row in the generation of its stamp, or an older one: a member that slept until after the group was
deleted would bring a row back, and commit to it (rule G1, stamps)."""

_MAX_OFFSET = 2**63 - 1
_MAX_LEADER_EPOCH = 2**31 - 1


class Change(Protocol):
    """Something to be done to the rows, all or nothing."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows afterwards; the very same object where there is nothing to do. Pure: ``rows`` stay as they are.

        Args:
            now_ms: wall time, for ``commit_timestamp_ms``.
        Raises:
            SparklogError: the rows don't allow it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """A member commits offsets of partitions that it has taken.

    What a transaction left pending is overtaken: of two commits the later one counts, as in Kafka.

    Raises:
        CommitFailedError: a partition's row doesn't hold exactly the member's stamp, or is gone (rule G1, stamps).
        OffsetMetadataTooLargeError, InvalidArgumentError.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    """None: nothing is committed any more."""
    stamps: Mapping[TopicPartition, Stamp]
    """With which the member took the partitions; keeping one over several generations keeps its stamp."""
    topic_ids: Mapping[TopicPartition, str]
    """The ids of the topics that the offsets are of; a partition that isn't there keeps the id that its row has."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        after: dict[TopicPartition, OffsetRow] = {}
        for partition, committed in self.offsets.items():
            check_offset(partition, committed)
            row, expected = rows.get(partition), self.stamps.get(partition)
            if row is None or row.stamp != expected:
                wanted = committed.offset if committed else "none"
                raise CommitFailedError(
                    f"offset {wanted} of {_name(partition)} wasn't committed: the partition is owned by "
                    f"{_owner(row.stamp if row else None)}, expected {_owner(expected)}"
                )
            topic_id = self.topic_ids.get(partition, row.topic_id)
            if _is_news(row, topic_id, committed, now_ms):
                after[partition] = replace(
                    row, topic_id=topic_id, committed=committed, commit_timestamp_ms=now_ms, pending=None
                )
        return {**rows, **after} if after else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartitions:
    """A member takes partitions that it believes to be free: from now on only its stamp commits (rule G1, stamps).

    A committed offset stays, unless it is of another topic of the same name; so does a pending one, which the new owner
    has decided before it reads the committed offset (rule T2, hand-over).

    Raises:
        IllegalGenerationError: a newer generation has taken one, or another member of the same.
    """

    topic_ids: Mapping[TopicPartition, str]
    """The partitions, and the ids of their topics."""
    stamp: Stamp

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        after: dict[TopicPartition, OffsetRow] = {}
        fence = rows.get(GENERATION_FENCE)
        for partition, topic_id in self.topic_ids.items():
            row = rows.get(partition)
            if row is not None and row.stamp != self.stamp and _is_owned_after(row.stamp, self.stamp.generation):
                raise IllegalGenerationError(
                    f"{_name(partition)} wasn't taken by {_owner(self.stamp)}: it is owned by {_owner(row.stamp)}"
                )
            if row is None and fence is not None and self.stamp.generation <= fence.stamp.generation:
                raise IllegalGenerationError(
                    f"{_name(partition)} wasn't taken by {_owner(self.stamp)}: offsets were deleted since, expected a "
                    f"generation after {fence.stamp.generation}"
                )
            if row is None or row.topic_id != topic_id or (row.committed is None and row.stamp != self.stamp):
                after[partition] = OffsetRow(
                    topic_id=topic_id,
                    stamp=self.stamp,
                    committed=None,
                    commit_timestamp_ms=now_ms,
                    pending=row.pending if row is not None and row.topic_id == topic_id else None,
                )
            elif row.stamp != self.stamp:
                after[partition] = replace(row, stamp=self.stamp)
        return {**rows, **after} if after else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitUnowned:
    """Offsets are committed by who is no member: a consumer that assigns partitions itself, or an administrator.

    Raises:
        UnknownMemberIdError: the group has members: a row, whichever, was taken in a generation newer than the empty
            one that the caller knows. Source: Kafka ``ClassicGroup.validateOffsetCommit``, generation -1.
        UnstableOffsetCommitError: a transaction has left an offset of one of these partitions pending.
        OffsetMetadataTooLargeError, InvalidArgumentError.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    """None: nothing is committed any more."""
    topic_ids: Mapping[TopicPartition, str]
    """The topic ids, as in :class:`CommitOffsets`; empty for a new row that isn't there."""
    generation: int
    """The group's empty generation; 0 for a group that never had one."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        member = member_since(rows, self.generation)
        if member is not None:
            raise UnknownMemberIdError(
                f"offsets weren't committed without a member: the group has members: {_name(member)} is owned by "
                f"{_owner(rows[member].stamp)}, expected none after the empty generation {self.generation}"
            )
        stamp = Stamp(self.generation, "")
        after: dict[TopicPartition, OffsetRow] = {}
        for partition, committed in self.offsets.items():
            check_offset(partition, committed)
            row = rows.get(partition)
            check_nothing_pending(partition, row)
            topic_id = self.topic_ids.get(partition, row.topic_id if row else "")
            if row is None and committed is None:
                continue
            if row is None or row.stamp != stamp or _is_news(row, topic_id, committed, now_ms):
                after[partition] = OffsetRow(
                    topic_id=topic_id, stamp=stamp, committed=committed, commit_timestamp_ms=now_ms
                )
        return {**rows, **after} if after else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Forget partitions; those that aren't there are no error. Who owns one of them can't commit it any more.

    Raises:
        UnstableOffsetCommitError: a transaction has left an offset of one pending.
    """

    partitions: Collection[TopicPartition]

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        for partition in self.partitions:
            check_nothing_pending(partition, rows.get(partition))
        return _without(rows, self.partitions, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAll:
    """Forget everything, as the group is deleted.

    Raises:
        NonEmptyGroupError: a row was taken in a generation newer than the empty one that the caller made (rule G5,
            administrators).
        UnstableOffsetCommitError: a transaction has left an offset pending.
    """

    generation: int
    """The group's empty generation."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        member = member_since(rows, self.generation)
        if member is not None:
            raise NonEmptyGroupError(
                f"offsets weren't deleted: {_name(member)} is owned by {_owner(rows[member].stamp)}, "
                f"expected none after the empty generation {self.generation}"
            )
        for partition, row in rows.items():
            check_nothing_pending(partition, row)
        return _without(rows, rows, now_ms, through=self.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets:
    """Forget rows that were judged too old, but none that was committed or taken since."""

    seen: Rows
    """The rows to be forgotten, as they were judged."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out."""
        gone = [partition for partition, row in self.seen.items() if rows.get(partition) == row]
        return _without(rows, gone, now_ms)


def check_offset(partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
    """May this be committed?

    Raises:
        InvalidArgumentError: the offset is no int from 0 to 2**63 - 1, the leader epoch none from -1 to 2**31 - 1, or
            the metadata no text.
        OffsetMetadataTooLargeError: the metadata is longer than 4,096 bytes as UTF-8.
    """
    if committed is None:
        return
    _check_number(f"offset to commit for {_name(partition)}", committed.offset, 0, _MAX_OFFSET)
    _check_number(f"leader_epoch to commit for {_name(partition)}", committed.leader_epoch, -1, _MAX_LEADER_EPOCH)
    try:
        size = len(committed.metadata.encode())
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(
            f"metadata to commit for {_name(partition)}: got {committed.metadata!r:.100}, expected text ({error})"
        ) from error
    if size > MAX_METADATA_BYTES:
        raise OffsetMetadataTooLargeError(
            f"metadata to commit for {_name(partition)}: {size} bytes, expected at most {MAX_METADATA_BYTES}"
        )


def check_nothing_pending(partition: TopicPartition, row: OffsetRow | None) -> None:
    """Raises ``UnstableOffsetCommitError`` where a transaction may still move the offset: whoever changes it without
    owning the partition has that transaction decided before."""
    if row is not None and row.pending is not None:
        pending = row.pending
        raise UnstableOffsetCommitError(
            f"transaction {pending.decider.number} of transactional id {pending.decider.transactional_id!r} may move "
            f"the offset of {_name(partition)} to {pending.committed.offset}: it must be decided before"
        )


def _check_number(what: str, number: object, least: int, most: int) -> None:
    if not isinstance(number, int) or not least <= number <= most:
        raise InvalidArgumentError(f"{what}: got {number!r}, expected an int from {least} to {most}")


def _is_news(row: OffsetRow, topic_id: str, committed: OffsetAndMetadata | None, now_ms: int) -> bool:
    is_same = row.committed == committed and row.topic_id == topic_id and row.pending is None
    return not is_same or now_ms - row.commit_timestamp_ms >= SAME_COMMIT_MS


def member_since(rows: Rows, generation: int) -> TopicPartition | None:
    """A partition that a member has taken although the group was empty as of ``generation``."""
    owned = (partition for partition, row in rows.items() if _is_owned_after(row.stamp, generation))
    return next((partition for partition in owned if partition != GENERATION_FENCE), None)


def _is_owned_after(stamp: Stamp, generation: int) -> bool:
    return stamp.generation > generation or (stamp.generation == generation and stamp.member != "")


def _without(rows: Rows, partitions: Collection[TopicPartition], now_ms: int, *, through: int = 0) -> Rows:
    """The rows but for some; the generation fence rises to what these fenced until now.

    Args:
        through: the fence rises to this generation at least.
    """
    gone = {
        partition: rows[partition] for partition in partitions if partition in rows and partition != GENERATION_FENCE
    }
    fenced = max((_fenced(row.stamp) for row in gone.values()), default=0)
    fenced = max(fenced, through)
    before = rows[GENERATION_FENCE].stamp.generation if GENERATION_FENCE in rows else 0
    if not gone and fenced <= before:
        return rows
    kept = {partition: row for partition, row in rows.items() if partition not in gone}
    if fenced > before:
        stamp = Stamp(fenced, "")
        kept[GENERATION_FENCE] = OffsetRow(topic_id="", stamp=stamp, committed=None, commit_timestamp_ms=now_ms)
    return kept


def _fenced(stamp: Stamp) -> int:
    """The newest generation in which nobody could take a partition whose row has this stamp. In the stamp's own the
    member could, since it had done so before."""
    return stamp.generation - 1 if stamp.member else stamp.generation


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _owner(stamp: Stamp | None) -> str:
    if stamp is None:
        return "nobody"
    return f"{f'member {stamp.member!r}' if stamp.member else 'no member'} of generation {stamp.generation}"
