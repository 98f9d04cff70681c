"""Offsets of groups that are part of a transaction: pending until it is decided, then committed or forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklog.clock import Deadline
from sparklog.errors import (
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    UnstableOffsetCommitError,
)
from sparklog.groups.admin.emptiness import empty_generation
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import PendOffsets, SettlePending, settle_pending
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, Stamp
from sparklog.log.cluster import Cluster
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.txn.deciding import decide, was_lost

__all__ = ["TransactionOffsets"]


class TransactionOffsets:
    """The open transaction's offsets, in the tables of their groups. Owned by one thread at a time."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, sync: bool = True) -> None:
        """Reads nothing yet.

        Args:
            timeout_ms: how long deciding another's transaction may take, whose offsets are in the way.
            sync: fsync offsets, as pending and as they count: False where the decision isn't fsynced either.
        """
        self._sync = sync
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._tables: dict[str, OffsetTable] = {}
        self._groups: dict[str, set[TopicPartition]] = {}
        """Partitions that the open transaction has written pending offsets of, or may have."""
        self._decider: Decider | None = None
        """The decider by which the rows in the groups name the open transaction."""

    @property
    def is_empty(self) -> bool:
        """Has the open transaction certainly written no offsets to any group?"""
        return not self._groups

    def groups(self) -> dict[str, frozenset[TopicPartition]]:
        """The partitions of each group whose offsets are part of the transaction."""
        return {group: frozenset(partitions) for group, partitions in self._groups.items()}

    def begin_transaction(self) -> None:
        """Forget the offsets of an earlier transaction."""
        self._groups, self._decider = {}, None

    def open_table(self, group: str) -> OffsetTable:
        """The offset table of a group; reads nothing yet. Raises ``InvalidArgumentError`` for a name that no group may
        have."""
        table = self._tables.get(group)
        if table is None:
            table = self._tables[group] = OffsetTable(self._cluster, group)
        return table

    def add_pending(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        metadata: ConsumerGroupMetadata,
        decider: Decider,
        *,
        deadline: Deadline,
    ) -> None:
        """Write offsets as pending, for the partitions' owner alone (rule G1, stamps).

        Args:
            decider: the entry that will decide the transaction.
        Raises:
            SparklogError: see :meth:`TransactionSession.add_offsets`.
        """
        group = metadata.group_id
        table = self.open_table(group)
        self._decider = decider
        change = PendOffsets(
            offsets=offsets,
            decider=decider,
            owner=self._owner(metadata, offsets),
            topic_ids=TopicCatalog(self._cluster).ids_of(offsets.keys()) if not metadata.member_id else {},
        )
        self._groups.setdefault(group, set()).update(offsets)
        changed = table.change([change], deadline=deadline, sync=self._sync)
        if isinstance(changed.errors[0], UnstableOffsetCommitError):
            # A producer with another id left them, and the partitions' owner is ours: it must not wait.
            settle_pending(table, changed.rows, offsets, self._decide_other, deadline=deadline)
            changed = table.change([change], deadline=deadline, sync=self._sync)
        table.maintain_aside()
        if changed.errors[0] is not None:
            raise changed.errors[0].with_traceback(None)

    def settle(
        self, *, is_committed: bool, deadline: Deadline, when_published: Callable[[], object] = lambda: None
    ) -> None:
        """Let the pending offsets count, or forget them. May be repeated. A group that fails stops no other.

        Args:
            when_published: see :meth:`TransactionSession.settle_groups`.
        Raises:
            SparklogError: the first error, once all groups were tried.
        """
        failed: SparklogError | None = None
        for group in [*self._groups]:
            try:
                if self._decider is not None:
                    table = self.open_table(group)
                    committed = frozenset(self._groups[group]) if is_committed else frozenset[TopicPartition]()
                    change = SettlePending(decider=self._decider, committed=committed)
                    table.change([change], deadline=deadline, before_commit=when_published, sync=self._sync)
                    table.maintain_aside()
                del self._groups[group]
            except SparklogError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Wait for maintenance of the tables that is under way, for a minute at most."""
        for table in self._tables.values():
            table.close()

    def _decide_other(self, other: Decider) -> CommittedPartitions:
        if other.transactional_id == self._transactional_id:  # ours would be dead: it is of a newer producer
            if was_lost(self._cluster, other):
                return {}
            raise ProducerFencedError(
                f"another producer with transactional_id {other.transactional_id!r} wrote {other}"
            )
        reason = f"transactional id {self._transactional_id!r} commits offsets of the same partitions"
        return decide(self._cluster, other, reason=reason, timeout_ms=self._timeout_ms)

    def _owner(self, metadata: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Stamp:
        if metadata.member_id:
            return Stamp(metadata.generation_id, metadata.member_id)
        refusal = TransactionAbortableError(
            f"group {metadata.group_id!r} has members: offsets of {len(offsets)} partitions can't be part of a "
            "transaction without a member; hand in the consumer's group_metadata()"
        )
        return Stamp(empty_generation(self._cluster, metadata.group_id, refusal), "")
