"""The admin client. There is no broker to ask: every change is an entry in the log of a topic, group or transactional
id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from sparklog.admin import topic_changes
from sparklog.admin.connection import ClusterConnection
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
from sparklog.log.sequencing.sequencing import SequencingResult, sequence_topic
from sparklog.log.topic import TopicDescription
from sparklog.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from sparklog.paths import check_topic_name
from sparklog.storage import ObjectStore
from sparklog.txn import description as transactions
from sparklog.txn.deciding import deciding_for
from sparklog.txn.description import TransactionDescription, TransactionListing
from sparklog.txn.recovery import Recovered, abort_transaction, recover_transactions
from sparklog.txn.states import TransactionState

__all__ = ["Admin"]


class Admin(ValueSchemaCalls, ShareGroupCalls):
    """Creates, describes, changes and deletes topics; describes, sets and deletes consumer groups; describes, aborts
    and recovers transactions.

    A call that is about several topics or groups checks its arguments first, then does up to 32 at once. Each is tried,
    whatever becomes of the others, but for those that haven't begun when the store fails or time is up. The error of
    the first that failed is raised; its message ends with which others were done, failed too, or were not tried.

    Holds no threads and may be used from several. It can't be pickled.

    Args:
        cluster: root URI (``./data``, ``s3://bucket/prefix``, …), store or opened cluster. The first call looks for it.
        storage_options: credentials and endpoint of an S3 store; never logged.
        create: whether :meth:`create_topics` makes the cluster where there is none; no other call does.
        settings: Kafka's, by name: ``default_api_timeout_ms``, …; see :class:`~sparklog.config.AdminConfig`.
    Raises:
        InvalidArgumentError: the URI can't be one.
        InvalidConfigurationError: an unknown setting; named.
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
        """Create topics; a name alone stands for one partition and default settings.

        Args:
            timeout_ms: bound for each topic; ``default_api_timeout_ms`` unless given. So in the other calls.
            validate_only: only raise what creating would raise; the result is then empty.
        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError, StoreError.
            UnsafeStoreError: there was no cluster, and the store can't hold one.
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

        Costs one listing, and one look at the newest commit of each, 32 at a time: that shows which are deleted.
        """
        return topic_names(self._cluster())

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Topics as of their newest commits, in the order of their names as given; all of them for None, without those
        that are deleted meanwhile.

        Raises ``UnknownTopicOrPartitionError``.
        """
        return described(self._cluster(), None if topics is None else checked_names(topics))

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete topics. Their readers and writers fail from now on; vacuum deletes their files later.

        Raises ``UnknownTopicOrPartitionError``.
        """
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        topic_changes.delete_topics(cluster, checked_names(topics), timeout_ms=bound_ms)

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Raise the number of partitions of topics to the given totals. Keys go to other partitions then, as in Kafka.

        Raises:
            InvalidPartitionsError: not more than there are now.
            UnknownTopicOrPartitionError.
        """
        counts = topic_changes.checked_partition_counts(topic_partitions)
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        if validate_only:
            topic_changes.check_growth(self.describe_topics(counts), counts)
            return {}
        return topic_changes.add_partitions(cluster, counts, timeout_ms=bound_ms)

    def describe_configs(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Every setting of topics, by topic and name. Raises ``UnknownTopicOrPartitionError``."""
        return {topic.name: config_entries(topic.config) for topic in self.describe_topics(topics)}

    def alter_configs(
        self,
        configs: Mapping[str, Mapping[str, object]],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Set some settings of topics; None takes one back to its default, and what isn't named stays as it is.

        Source: Kafka ``Admin.incrementalAlterConfigs``.
        Raises:
            InvalidConfigurationError: unknown, not allowed, or in contradiction to another of the topic's settings.
            UnknownTopicOrPartitionError.
        """
        described = {topic.name: topic for topic in self.describe_topics(configs)}
        for name, changes in configs.items():
            described[name].config.with_changes(changes)
        if validate_only:
            return {}
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        return topic_changes.alter_settings(cluster, configs, timeout_ms=bound_ms)

    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition; -1 (``HIGH_WATERMARK``) for all that are there.

        Returns:
            Each partition's low watermark: its log start offset afterwards. One commit per topic.
        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError.
            PolicyViolationError: the topic's ``cleanup.policy`` is without delete.
        """
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        return topic_changes.delete_records_before(cluster, records_to_delete, timeout_ms=bound_ms)

    def sequence(self, topic: str, *, timeout_ms: float | None = None) -> SequencingResult:
        """Assign offsets to rows that other Delta writers added without them: only then readers see these rows.

        This call isn't needed: consumers and producers of the topic that detect such files do the same, soon
        afterwards. It shows when it is done, or why it isn't: a file that can't be sequenced
        stays as it is, and hinders no other.

        Args:
            timeout_ms: bound for the commit, once the files are read and copied.
        Returns:
            How many files and records have offsets now and had none; path and reason of each file that was refused.
        Raises:
            UnknownTopicOrPartitionError, NotATopicError, KafkaTimeoutError, StoreError.
        """
        check_topic_name(topic)
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        return sequence_topic(cluster.topic_log(topic), timeout_ms=bound_ms, sync=True)

    def list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by time: the first record not older than so many milliseconds since the epoch, or what
        ``LATEST`` (-1), ``EARLIEST`` (-2) and ``MAX_TIMESTAMP`` (-3) stand for.

        Offset and timestamp are -1 where there is no such record; the timestamp is -1 of latest and earliest.

        Raises:
            InvalidArgumentError: another negative number.
            UnknownTopicOrPartitionError.
        """
        asked = {at: check_spec(spec) for at, spec in specs.items()}
        return partition_offsets(self._connection, asked)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition: records below it have been removed."""
        return self._offsets(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log end offset of each partition: that of the next record to be appended."""
        return self._offsets(partitions, LATEST)

    def list_groups(self) -> list[str]:
        """The names of the consumer groups, sorted: those that have members, offsets, or had members.

        Costs a LIST, and for each group a LIST and a GET, or two LISTs and a GET where it never had members, 32 groups
        at a time: that shows which are deleted.
        """
        return group_names(self._cluster())

    def list_group_states(self) -> list[GroupListing]:
        """The consumer groups of :meth:`list_groups`, each with its state. Source: Kafka ``Admin.listGroups``.

        Costs what :meth:`list_groups` does for a group without members, and little less than describing it for one that
        has some; no topic is looked at. One that can't be understood is ``Unknown``, and has an ``error``.
        """
        return group_listings(self._cluster())

    def describe_groups(self, groups: Iterable[str] | None = None) -> list[GroupDescription]:
        """Groups as of now, in the order of their names as given; all of them for None.

        A name that no group has is no error: its state is ``Dead``, as in Kafka. Who is alive is judged by the store's
        clock, from outside: a member that died counts until its session has ended. One that can't be understood is
        ``Unknown``, and has an ``error``.

        Raises ``InvalidArgumentError``: a name that no group may have.
        """
        cluster = self._cluster()
        names = None if groups is None else [check_group(group) for group in listed(groups)]
        return administration.describe_groups(cluster, names)

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, sorted by partition; a partition without a commit isn't in the result.

        Offsets of a topic that was deleted since aren't returned, nor as those of a topic that was created anew.
        A group that doesn't exist has committed nothing.

        Args:
            partitions: whose offsets to return; all by default.
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
        """Commit offsets for a group that has no members, all or none. Creates the group if it isn't there.

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
        """Set the offsets at which a group without members continues. One outside of a log is moved to its nearer end.

        Args:
            to: ``ResetTo("earliest")``, ``ResetTo("shift", -10)``, …, or an offset for each partition.
            partitions: by default all for which the group has committed something, or those that ``to`` names.
            dry_run: only return the result, and raise the errors of the real change.
        Returns:
            What becomes of each partition, sorted.
        Raises:
            GroupIdNotFoundError: no partitions are given, and there is no such group.
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError, InvalidArgumentError, KafkaTimeoutError.
        Source: Kafka ``ConsumerGroupCommand.resetOffsets``.
        """
        [described] = self.describe_groups([group])
        plan = plan_group_reset(self._cluster(), described, to, partitions)
        if plan and not dry_run:
            offsets = {reset.partition: OffsetAndMetadata(reset.new_offset) for reset in plan}
            self.alter_group_offsets(group, offsets, timeout_ms=timeout_ms)
        return plan

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forget what a group has committed for partitions, all or none.

        A partition without a committed offset is no error. A group without members may be left without offsets.

        Raises:
            GroupIdNotFoundError: there is no such group.
            GroupSubscribedToTopicError: a member subscribes to one of the topics.
            KafkaTimeoutError.
        """
        wanted, bound_ms = checked_partitions(partitions), self._bound_ms(timeout_ms)
        administration.delete_offsets(
            self._cluster(), check_group(group), wanted, self._deciding(bound_ms), timeout_ms=bound_ms
        )

    def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups that have no members, with their offsets. A name that is used again is a new group.

        Raises:
            GroupIdNotFoundError: there is no such group.
            NonEmptyGroupError: it has members.
            KafkaTimeoutError.
        """
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        names = dict.fromkeys(check_group(group) for group in listed(groups))
        deciding = self._deciding(bound_ms)
        each(names, lambda group, _: administration.delete_group(cluster, group, deciding, timeout_ms=bound_ms))

    def remove_group_members(self, group: str, members: Iterable[str]) -> list[str]:
        """Remove members from a group, so that the others get their partitions at once; returns their member ids.

        For static members that were closed for good, and would otherwise stay until their sessions end. One
        that still runs joins again.

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
        """The transactional ids, sorted: all, or those in some states or of some producers.

        Costs two listings, and a look at the newest entry of each, 32 at a time: a LIST and a GET. *Ongoing* means
        that a transaction may be open: a producer has the id and hasn't closed, or it died.

        Args:
            state_filter: states, or their names as Kafka writes them: ``Ongoing``, ``PrepareCommit``, …
        Raises ``InvalidArgumentError``: a name that no state has.
        """
        states = None if state_filter is None else {transactions.check_state(state) for state in listed(state_filter)}
        producer_ids = None if producer_id_filter is None else set(producer_id_filter)
        return transactions.list_transactions(self._cluster(), states=states, producer_ids=producer_ids)

    def describe_transactions(self, transactional_ids: Iterable[str] | None = None) -> list[TransactionDescription]:
        """Transactional ids as of now, in the order of their names as given; all of them for None.

        One whose log can't be understood has no state, and an ``error``.

        Raises:
            TransactionalIdNotFoundError: no producer ever used the id.
            InvalidArgumentError: a name that no id may have.
        """
        names = None if transactional_ids is None else list(map(check_transactional_id, listed(transactional_ids)))
        return transactions.describe_transactions(self._cluster(), names)

    def abort_transaction(self, transactional_id: str, *, timeout_ms: float | None = None) -> None:
        """Abort the transaction of an id: none that was open when this was called can be committed afterwards.

        Its producer gets a ``TransactionAbortableError`` that names the cause; it stays usable. Whether one is open
        is unknown: where none is, a live producer's next transaction is aborted. To be rid of the producer,
        too, start another with the same id.

        Raises:
            TransactionalIdNotFoundError: no producer ever used the id.
            InvalidTxnStateError: the transaction is committed already.
            ConcurrentTransactionsError, KafkaTimeoutError: call it again.
        """
        bound_ms = self._bound_ms(timeout_ms)
        abort_transaction(self._cluster(), check_transactional_id(transactional_id), timeout_ms=bound_ms)

    def recover_transactions(self, *, timeout_ms: float | None = None) -> list[Recovered]:
        """Finish every transaction that is decided, and abort those that are past their ``transaction_timeout_ms``.

        This call isn't needed for correctness: the next producer with the same id, consumers that are idle
        and new owners of partitions do the same for what concerns them.

        Args:
            timeout_ms: bound for each step of each transaction.
        Returns:
            What became of each id, sorted. One that can't be finished has an ``error``, and hinders no other.
        """
        bound_ms = self._bound_ms(timeout_ms)
        return recover_transactions(self._cluster(), timeout_ms=bound_ms)

    def close(self) -> None:
        """Close the connections to a store that this admin opened; any other call is an error afterwards."""
        self._connection.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Admin can't be pickled: make one in each process")

    def _cluster(self, *, create: bool = False) -> Cluster:
        return self._connection.cluster(create=create)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        return {at: looked_up.offset for at, looked_up in self.list_offsets(dict.fromkeys(partitions, spec)).items()}

    def _deciding(self, timeout_ms: float) -> Deciding:
        """The way to decide transactions that left offsets of a group pending."""
        return deciding_for(self._cluster(), reason="an administrator changed its group", timeout_ms=timeout_ms)

    def _bound_ms(self, timeout_ms: float | None) -> float:
        if timeout_ms is None:
            return self._config.default_api_timeout_ms
        if timeout_ms < 0:
            raise InvalidArgumentError(f"timeout_ms={timeout_ms}: expected 0 or more")
        return timeout_ms
