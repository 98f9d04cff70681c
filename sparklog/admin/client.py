"""The admin client. There is no broker: every change is an entry in the log of a topic, a group or a transactional
id."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from sparklog.admin import topic_changes
from sparklog.admin.connection import ClusterConnection
from sparklog.admin.foreign_writes import ForeignWriteCalls
from sparklog.admin.group_resets import plan_group_reset
from sparklog.admin.many import (
    check_group,
    check_transactional_id,
    checked_names,
    checked_offsets,
    checked_partitions,
    described,
    each,
    listed,
)
from sparklog.admin.offsets import EARLIEST, LATEST, check_spec, partition_offsets
from sparklog.admin.share_groups import ShareGroupCalls
from sparklog.admin.value_schemas import ValueSchemaCalls
from sparklog.admin.values import ConfigEntry, NewPartitions, NewTopic, config_entries
from sparklog.clock import Clock
from sparklog.config import AdminConfig
from sparklog.errors import InvalidArgumentError
from sparklog.groups.admin import administration
from sparklog.groups.admin.description import GroupDescription, GroupListing
from sparklog.groups.admin.inspection import group_listings, group_names
from sparklog.groups.admin.resets import OffsetReset, ResetTo
from sparklog.groups.offsets.pending import Deciding
from sparklog.log.cluster import Cluster, topic_names
from sparklog.log.topic import TopicDescription
from sparklog.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from sparklog.storage import ObjectStore
from sparklog.txn import description as transactions
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.description import TransactionDescription, TransactionListing
from sparklog.txn.recovery import Recovered, abort_transaction, recover_transactions
from sparklog.txn.states import TransactionState

__all__ = ["Admin"]

_LEAST_MS = 1_000.0
"""The time that a request to the store has at least."""


class Admin(ForeignWriteCalls, ValueSchemaCalls, ShareGroupCalls):
    """Creates, describes, changes and deletes topics; describes, sets and deletes consumer groups; describes, aborts
    and recovers transactions.

    A call for several topics or groups checks its arguments first, then works on up to 32 of them at once. Each of them
    is tried even if others fail, except those that haven't begun when the store fails or time is up. The first error is
    raised; its message ends with the names of those that were done, also failed, or were not tried.

    An admin client has no threads of its own, and several threads may use it. It can't be pickled.

    Args:
        cluster: root URI (``./data``, ``s3://bucket/prefix``, …), store or open cluster. The first call opens it.
        storage_options: credentials and endpoint of an S3 store; never logged.
        create: whether :meth:`create_topics` creates the cluster if there is none; no other call does.
        settings: Kafka's, by name: ``default_api_timeout_ms``, …; see :class:`~sparklog.config.AdminConfig`.
    Raises:
        InvalidArgumentError: the URI is malformed.
        InvalidConfigurationError: a setting is unknown or not allowed; the message names it.
    """

    def __init__(
        self,
        cluster: str | Path | ObjectStore | Cluster,
        *,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        create: bool = True,
        **settings: object,
    ) -> None:
        self._config = AdminConfig.parse(settings)
        self._create = create
        self._connection = ClusterConnection(cluster, storage_options=storage_options, clock=clock)

    def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, timeout_ms: float | None = None, validate_only: bool = False
    ) -> dict[str, TopicDescription]:
        """Create topics; a plain name means one partition and default settings.

        Args:
            timeout_ms: bound for each topic; by default ``default_api_timeout_ms``, as in the other calls.
            validate_only: only raise the errors that creating would raise; the result is then empty.
        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError, StoreError.
            UnsafeStoreError: there is no cluster, and the store has no atomic create-only put, so none can be created.
        """
        topics = topic_changes.checked_new_topics(new_topics)
        if validate_only:
            topic_changes.check_names_are_free(self._connection, topics, may_lack_cluster=self._create)
            return {}
        bound_ms = self._bound_ms(timeout_ms)
        cluster = self._cluster(create=self._create)
        return topic_changes.create_topics(cluster, topics, timeout_ms=bound_ms)

    def list_topics(self) -> list[str]:
        """The names of the topics, sorted.

        Costs one listing, and one read of the newest commit of each, 32 at a time, which shows whether it is deleted.
        """
        return topic_names(self._cluster())

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Describe topics as of their newest commits, in the given order; None: all topics, without those that are
        deleted meanwhile.

        Raises ``UnknownTopicOrPartitionError``.
        """
        return described(self._cluster(), None if topics is None else checked_names(topics))

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete topics. From then on, reading and writing them fails; vacuum deletes their files later.

        Raises ``UnknownTopicOrPartitionError``.
        """
        cluster, bound_ms = self._bounded(timeout_ms)
        topic_changes.delete_topics(cluster, checked_names(topics), timeout_ms=bound_ms)

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Increase the number of partitions of topics to the given totals. As in Kafka, keys move to other partitions.

        Raises:
            InvalidPartitionsError: a total isn't greater than the present number.
            UnknownTopicOrPartitionError.
        """
        counts = topic_changes.checked_partition_counts(topic_partitions)
        cluster, bound_ms = self._bounded(timeout_ms)
        if validate_only:
            topic_changes.check_growth(self.describe_topics(counts), counts)
            return {}
        return topic_changes.add_partitions(cluster, counts, timeout_ms=bound_ms)

    def describe_configs(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        """All settings of topics, by topic and name. Raises ``UnknownTopicOrPartitionError``."""
        return {topic.name: config_entries(topic.config) for topic in self.describe_topics(topics)}

    def alter_configs(
        self,
        configs: Mapping[str, Mapping[str, object]],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Change some settings of topics; None resets a setting to its default, and settings that aren't named stay.

        Source: Kafka ``Admin.incrementalAlterConfigs``.
        Raises:
            InvalidConfigurationError: a setting is unknown, not allowed, or contradicts another one of the topic.
            UnknownTopicOrPartitionError.
        """
        described = {topic.name: topic for topic in self.describe_topics(configs)}
        for name, changes in configs.items():
            described[name].config.with_changes(changes)
        if validate_only:
            return {}
        cluster, bound_ms = self._bounded(timeout_ms)
        return topic_changes.alter_settings(cluster, configs, timeout_ms=bound_ms)

    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition; -1 (``HIGH_WATERMARK``): all present records.

        Returns:
            Each partition's low watermark, which is its new log start offset. Costs one commit per topic.
        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError.
            PolicyViolationError: the topic's ``cleanup.policy`` doesn't contain delete.
        """
        cluster, bound_ms = self._bounded(timeout_ms)
        return topic_changes.delete_records_before(cluster, records_to_delete, timeout_ms=bound_ms)

    def list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Find offsets by time: of the first record that isn't older than a time in milliseconds since the epoch, or
        for ``LATEST`` (-1), ``EARLIEST`` (-2) and ``MAX_TIMESTAMP`` (-3).

        Offset and timestamp are -1 if there is no such record; the timestamp is -1 for latest and earliest.

        Raises:
            InvalidArgumentError: a time is negative and none of these.
            UnknownTopicOrPartitionError.
        """
        asked = {at: check_spec(spec) for at, spec in specs.items()}
        return partition_offsets(self._connection, asked)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition. Records below it have been deleted."""
        return self._offsets(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log end offset of each partition, which the next record gets."""
        return self._offsets(partitions, LATEST)

    def list_groups(self) -> list[str]:
        """The names of the consumer groups, sorted: those that have offsets or members, or had members.

        Costs a LIST, and for each group a LIST and a GET, or two LISTs and a GET if it never had members, 32 groups
        at a time; this shows which groups are deleted.
        """
        return group_names(self._cluster())

    def list_group_states(self) -> list[GroupListing]:
        """The consumer groups of :meth:`list_groups`, each with its state. Source: Kafka ``Admin.listGroups``.

        Costs as much as :meth:`list_groups` for a group without members, and little less than describing it for a group
        with members; no topic is read. A group whose files can't be parsed is ``Unknown``, and has an ``error``.
        """
        return group_listings(self._cluster())

    def describe_groups(self, groups: Iterable[str] | None = None) -> list[GroupDescription]:
        """Describe groups as they are now, in the given order; None: all groups.

        A group that doesn't exist is no error: its state is ``Dead``, as in Kafka. A member that died is listed until
        its session ends, by this machine's clock. A group whose files can't be parsed is ``Unknown``, and has an
        ``error``.

        Raises ``InvalidArgumentError``: a name isn't allowed for groups.
        """
        cluster = self._cluster()
        names = None if groups is None else [check_group(group) for group in listed(groups)]
        return administration.describe_groups(cluster, names)

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, sorted by partition; a partition without a commit isn't in the result.

        Offsets of a topic that was deleted since aren't returned, even if a topic of the same name was created.
        A group that doesn't exist has no committed offsets.

        Args:
            partitions: the partitions whose offsets to return; by default all.
        """
        deciding = self._deciding(self._bound_ms(None))
        committed = administration.committed_offsets(self._cluster(), check_group(group), deciding)
        if partitions is None:
            return committed
        wanted = set(checked_partitions(partitions))
        return {partition: offset for partition, offset in committed.items() if partition in wanted}

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: float | None = None
    ) -> None:
        """Commit offsets for a group without members, all of them or none. Creates the group if it doesn't exist.

        Raises:
            UnknownMemberIdError: the group has members. Source: Kafka ``Admin.alterConsumerGroupOffsets``.
            UnknownTopicOrPartitionError, OffsetMetadataTooLargeError, InvalidArgumentError, KafkaTimeoutError.
        """
        bound_ms = self._bound_ms(timeout_ms)
        cluster, name, checked = self._cluster(), check_group(group), checked_offsets(offsets)
        administration.alter_offsets(cluster, name, checked, self._deciding(bound_ms), timeout_ms=bound_ms)

    def reset_group_offsets(
        self,
        group: str,
        to: ResetTo | Mapping[TopicPartition, int],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> list[OffsetReset]:
        """Set the offsets at which a group without members continues. An offset outside of a log is moved to its nearer
        end.

        Args:
            to: ``ResetTo("earliest")``, ``ResetTo("shift", -10)``, …, or an offset for each partition.
            partitions: by default those that ``to`` names, or else those with a committed offset of the group.
            dry_run: only return the result, and raise the errors that the change would raise.
        Returns:
            The change for each partition, sorted.
        Raises:
            GroupIdNotFoundError: no partitions are given, and the group doesn't exist.
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError, InvalidArgumentError, KafkaTimeoutError.
        Source: Kafka ``ConsumerGroupCommand.resetOffsets``.
        """
        [described] = administration.describe_groups(self._cluster(), [check_group(group)], by_store_time=not dry_run)
        plan = plan_group_reset(self._cluster(), described, to, partitions)
        if plan and not dry_run:
            offsets = {reset.partition: OffsetAndMetadata(reset.new_offset) for reset in plan}
            self.alter_group_offsets(group, offsets, timeout_ms=timeout_ms)
        return plan

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Delete the committed offsets of a group for partitions, all of them or none.

        A partition without a committed offset is no error. A group may have neither members nor offsets afterwards.

        Raises:
            GroupIdNotFoundError: the group doesn't exist.
            GroupSubscribedToTopicError: a member subscribes to one of the topics.
            KafkaTimeoutError.
        """
        wanted, bound_ms = checked_partitions(partitions), self._bound_ms(timeout_ms)
        administration.delete_offsets(
            self._cluster(), check_group(group), wanted, self._deciding(bound_ms), timeout_ms=bound_ms
        )

    def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups without members, with their offsets. A group with the same name later is a new group.

        Raises:
            GroupIdNotFoundError: a group doesn't exist.
            NonEmptyGroupError: a group has members.
            KafkaTimeoutError.
        """
        cluster, bound_ms = self._bounded(timeout_ms)
        names = dict.fromkeys(check_group(group) for group in listed(groups))
        deciding = self._deciding(bound_ms)
        each(names, lambda group, _: administration.delete_group(cluster, group, deciding, timeout_ms=bound_ms))

    def remove_group_members(self, group: str, members: Iterable[str]) -> list[str]:
        """Remove members from a group, so that the others get their partitions at once; returns their member ids.

        Intended for static members that won't return, and would stay until their sessions end. A member that still
        runs joins again.

        Args:
            members: member ids, or instance ids of static members.
        Raises:
            UnknownMemberIdError: the group has no such member; none is removed.
        Source: Kafka ``Admin.removeMembersFromConsumerGroup``.
        """
        return administration.remove_members(self._cluster(), check_group(group), listed(members))

    def list_transactions(
        self,
        state_filter: Iterable[TransactionState | str] | None = None,
        producer_id_filter: Iterable[int] | None = None,
    ) -> list[TransactionListing]:
        """List transactional ids, sorted: all, or those with given states or producers.

        Costs two listings, and for each id a LIST and a GET of its newest entry, 32 at a time. *Ongoing* means
        that a transaction may be open: a producer has the id and hasn't closed, or it died.

        Args:
            state_filter: states, or their names in Kafka: ``Ongoing``, ``PrepareCommit``, …
        Raises ``InvalidArgumentError``: there is no such state.
        """
        states = None if state_filter is None else {transactions.check_state(state) for state in listed(state_filter)}
        producer_ids = None if producer_id_filter is None else set(producer_id_filter)
        return transactions.list_transactions(self._cluster(), states=states, producer_ids=producer_ids)

    def describe_transactions(self, transactional_ids: Iterable[str] | None = None) -> list[TransactionDescription]:
        """Describe transactional ids as they are now, in the given order; None: all of them.

        An id whose log can't be parsed has no state, and an ``error``.

        Raises:
            TransactionalIdNotFoundError: no producer ever used the id.
            InvalidArgumentError: a name isn't allowed for transactional ids.
        """
        names = None if transactional_ids is None else list(map(check_transactional_id, listed(transactional_ids)))
        return transactions.describe_transactions(self._cluster(), names)

    def abort_transaction(self, transactional_id: str, *, timeout_ms: float | None = None) -> None:
        """Abort the transaction of an id: a transaction that is open at this call can't be committed afterwards.

        Its producer gets a ``TransactionAbortableError`` that names the cause, and stays usable. Whether a transaction
        is open is unknown: if none is, a running producer's next transaction is aborted. To stop the producer too,
        start another one with the same id.

        Raises:
            TransactionalIdNotFoundError: no producer ever used the id.
            InvalidTxnStateError: the transaction is already committed.
            ConcurrentTransactionsError, KafkaTimeoutError: call it again.
        """
        bound_ms = self._bound_ms(timeout_ms)
        abort_transaction(self._cluster(), check_transactional_id(transactional_id), timeout_ms=bound_ms)

    def recover_transactions(self, *, timeout_ms: float | None = None) -> list[Recovered]:
        """Finish every transaction that is decided, and abort those that exceed their ``transaction_timeout_ms``.

        This call isn't needed for correctness: the next producer with the same id, idle consumers and new owners of
        partitions do the same for transactions that concern them.

        Args:
            timeout_ms: bound for each step of each transaction.
        Returns:
            The outcome for each id, sorted. An id that can't be finished has an ``error``; the others are finished.
        """
        bound_ms = self._bound_ms(timeout_ms)
        return recover_transactions(self._cluster(), timeout_ms=bound_ms)

    def open_cluster(self) -> Cluster:
        """The cluster, for other clients beside this one, which closes it. Raises ``InvalidArgumentError``: there is
        none."""
        return self._cluster()

    def close(self) -> None:
        """Close the connections to the store, if this client opened them. Any other call afterwards is an error."""
        self._connection.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Admin can't be pickled: make one in each process")

    def _cluster(self, *, create: bool = False, bound_ms: float = math.inf) -> Cluster:
        """The cluster, whose store is waited for no longer than a request, or the call, may take."""
        within_ms = min(bound_ms, self._config.request_timeout_ms, self._config.default_api_timeout_ms)
        return self._connection.cluster(create=create, within_ms=max(within_ms, _LEAST_MS))

    def _bounded(self, timeout_ms: float | None) -> tuple[Cluster, float]:
        """The cluster and the bound for a call."""
        bound_ms = self._bound_ms(timeout_ms)
        return self._cluster(bound_ms=bound_ms), bound_ms

    def _offsets(self, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        return {at: looked_up.offset for at, looked_up in self.list_offsets(dict.fromkeys(partitions, spec)).items()}

    def _deciding(self, timeout_ms: float) -> Deciding:
        """Decides transactions that left offsets of a group pending."""
        return deciding_for(self._cluster(), reason="an administrator changed its group", timeout_ms=timeout_ms)

    def _bound_ms(self, timeout_ms: float | None) -> float:
        if timeout_ms is None:
            return self._config.default_api_timeout_ms
        if timeout_ms < 0:
            raise InvalidArgumentError(f"timeout_ms={timeout_ms}: expected 0 or more")
        return timeout_ms
