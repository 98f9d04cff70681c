"""The share consumer: many members read records of one partition, and acknowledge each of them (KIP-932)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from sparklog.clock import Clock
from sparklog.config import ShareConsumerConfig
from sparklog.consumer.arguments import check_count, check_partition, check_timeout, opened_cluster
from sparklog.consumer.sharing.runtime import Acknowledged, Found, ShareRuntime
from sparklog.consumer.single_thread_guard import SingleThreadGuard
from sparklog.errors import IllegalStateError, InvalidArgumentError, InvalidConfigurationError, SparklogError
from sparklog.groups.sharing.changes import AcknowledgeType
from sparklog.log import Cluster
from sparklog.log.key_lengths import check_share_group_lengths
from sparklog.metrics import ClientMetrics, by_group
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.paths import check_topic_name, encode_id

__all__ = ["ShareConsumer"]

_CLOSE_MS = 30_000.0


class ShareConsumer:
    """Takes records of topics as a member of a share group, and acknowledges each.

    The members of a group share the records of every partition, so there may be more members than partitions. A record
    that is returned is locked for this member. It is delivered again, to any member, if it is released or isn't
    acknowledged before its lock ends; at most ``group_share_delivery_count_limit`` times. So records are delivered at
    least once, and out of order after a record was delivered again.

    With ``share_acknowledgement_mode="implicit"`` the next :meth:`poll`, :meth:`commit_sync` or :meth:`commit_async`
    accepts all records that the last poll returned and that were not passed to :meth:`acknowledge`. With ``explicit``
    each record must be acknowledged before the next poll.

    Only one thread at a time may use a share consumer; others may call :meth:`wakeup` and :meth:`metrics`. It has no
    background thread: its heartbeats are sent when it polls or commits. Calls raise ``IllegalStateError`` after
    :meth:`close`, and in a forked child process.

    Args:
        topics: the topics to subscribe to.
        cluster: the root of an existing cluster (a path or URI), or an open cluster.
        storage_options: credentials and endpoint of the store, if ``cluster`` is a URI.
        clock: by default the cluster's.
        settings: Kafka's share consumer settings with underscores; see :class:`sparklog.config.ShareConsumerConfig`.
            ``group_id`` is required.

    Raises:
        InvalidConfigurationError: a setting is unknown or not allowed; the message names it.
        InvalidArgumentError: there is no cluster at the root.
    Source: names and semantics of Java's ``KafkaShareConsumer``.
    """

    def __init__(
        self,
        *topics: str,
        cluster: str | Path | Cluster,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        config = ShareConsumerConfig.parse(settings)
        try:
            encode_id(config.group)
        except InvalidArgumentError as error:
            raise InvalidConfigurationError(f"group_id={config.group!r}: {error}") from None
        for topic in topics:
            check_topic_name(topic)
        opened, self._owns_store = opened_cluster(cluster, storage_options, clock, config.default_api_timeout_ms)
        self._guard = SingleThreadGuard()
        self._runtime = ShareRuntime(opened, config)
        self._is_implicit = config.share_acknowledgement_mode == "implicit"
        if topics:
            self.subscribe(topics)

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics, and no others. They must exist at the next poll.

        Raises:
            InvalidTopicError, TypeError.
        """
        with self._guard:
            if isinstance(topics, str):
                raise TypeError(f"topics: got {topics!r}, expected a list of names")
            wanted = [check_topic_name(topic) for topic in topics]
            for topic in wanted:
                check_share_group_lengths(self._runtime.cluster.store, self._runtime.config.group, topic)
            self._runtime.subscribe(wanted)

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        with self._guard:
            return set(self._runtime.topics)

    def unsubscribe(self) -> None:
        """End the subscription and leave the group; records that aren't acknowledged are released."""
        with self._guard:
            self._runtime.close(_CLOSE_MS)
            self._runtime.subscribe(())

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Found:
        """Acquire records, by partition; empty if there are none within ``timeout_ms``. Each record has a
        ``delivery_count``, which is 1 at its first delivery.

        Acknowledgements that are pending are sent by the same request.

        Args:
            timeout_ms: how long to wait if there are no records; 0 doesn't wait.
            max_records: the most records to return; by default ``max_poll_records``.
        Raises:
            IllegalStateError: nothing is subscribed, or records of the last poll weren't acknowledged (``explicit``).
            UnknownTopicOrPartitionError: a topic doesn't exist.
            RecordDeserializationError: a deserializer failed; the record was released, so it is delivered again, up to
                the limit of deliveries.
            WakeupError: another thread called :meth:`wakeup`.
            CorruptRecordError, CommitStateUnknownError, StoreError, CorruptLogError, UnsupportedVersionError.
        """
        with self._guard:
            limit = self._runtime.config.max_poll_records if max_records is None else max_records
            check_count("max_records", limit)
            check_timeout(timeout_ms)
            if not self._runtime.topics:
                raise IllegalStateError("nothing is subscribed: call subscribe first")
            self._begin()
            unmarked = self._runtime.deliveries.unmarked_count
            if unmarked:
                raise IllegalStateError(
                    f"{unmarked} records of the last poll weren't acknowledged; with "
                    "share_acknowledgement_mode=explicit each must be before the next poll"
                )
            records = self._runtime.poll(limit, timeout_ms)
        self._runtime.deliveries.show()  # the last step: what an interrupted poll has acquired is given back
        return records

    def acknowledge(
        self,
        record: ConsumerRecord | TopicPartition,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        offset: int | None = None,
    ) -> None:
        """Acknowledge a record of the last poll. The next poll or commit sends the acknowledgement.

        Args:
            record: the record that :meth:`poll` returned; or, for a record that couldn't be deserialized, its
                partition, with ``offset``.
            type: ``ACCEPT``: processed; ``RELEASE``: deliver it again; ``REJECT``: never deliver it again; ``RENEW``:
                still being processed, lock it for another lock duration.
        Raises:
            IllegalStateError: the record isn't locked by the last poll, or it was acknowledged already.
            TypeError.
        """
        with self._guard:
            if not isinstance(type, AcknowledgeType):
                raise TypeError(f"type: got {type!r}, expected an AcknowledgeType")
            if isinstance(record, ConsumerRecord):
                partition, offset = TopicPartition(record.topic, record.partition), record.offset
            else:
                partition = check_partition(record)
            if offset is None:
                raise TypeError("acknowledge: expected a record, or a partition and an offset")
            self._runtime.deliveries.mark(partition, offset, type)

    def commit_sync(self, timeout_ms: float | None = None) -> dict[TopicPartition, SparklogError | None]:
        """Send pending acknowledgements, and wait for the outcome.

        Args:
            timeout_ms: by default ``default_api_timeout_ms``.
        Returns:
            For each partition None on success, or an error. ``InvalidRecordStateError``: too late, the records are
            delivered again; ``KafkaTimeoutError``: not done, the next call sends them again;
            ``CommitStateUnknownError``: the outcome is unknown, the next call determines it.
        Raises:
            StoreError, CorruptLogError, UnsupportedVersionError.
        """
        with self._guard:
            check_timeout(0 if timeout_ms is None else timeout_ms)
            self._begin()
            return self._runtime.commit(timeout_ms)

    def commit_async(self) -> None:
        """Let the next poll or commit send pending acknowledgements. The callback is called with the outcome."""
        with self._guard:
            self._begin()

    def set_acknowledgement_commit_callback(self, callback: Acknowledged | None) -> None:
        """Set ``callback(outcomes)``, which is called inside later calls, in their thread, with the result that
        :meth:`commit_sync` describes; None removes it."""
        with self._guard:
            self._runtime.on_acknowledged = callback

    def acquisition_lock_timeout_ms(self) -> int:
        """How long a returned record is locked, in milliseconds."""
        return self._runtime.config.share_record_lock_duration_ms

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's share consumer metrics by group and name; docs/monitoring.md lists them. From any thread."""
        self._guard.check_process()
        return by_group(self._client_metrics().groups)

    def _client_metrics(self) -> ClientMetrics:
        return ClientMetrics(
            kind="consumer",
            client_id=self._runtime.config.client_id,
            is_closed=self._guard.is_closed or self._guard.is_forked,
            groups=[*self._runtime.metrics.groups(), *self._runtime.cluster.store.counts.groups()],
        )

    def wakeup(self) -> None:
        """Make the poll that waits now, or else the next one, raise ``WakeupError``. From any thread."""
        self._runtime.wake()

    def close(self, timeout_ms: float | None = None) -> None:
        """Send pending acknowledgements, release all other records, and leave the group. A second call does nothing.

        Args:
            timeout_ms: bound for all of this; 30 s by default.
        Raises:
            StoreError: records that couldn't be released stay locked until their locks end.
        """
        if self._guard.is_closed or self._guard.is_forked:
            return
        check_timeout(0 if timeout_ms is None else timeout_ms)
        with self._guard:
            self._guard.is_closed = True
            try:
                self._runtime.close(_CLOSE_MS if timeout_ms is None else timeout_ms)
            finally:
                if self._owns_store:
                    self._runtime.cluster.store.close()

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ShareConsumer can't be pickled or copied: make one where it is used")

    def _begin(self) -> None:
        """Acknowledge the records of the last poll as the mode requires; release those of a poll that failed."""
        self._runtime.deliveries.release_unshown()
        if self._is_implicit:
            self._runtime.deliveries.mark_rest(AcknowledgeType.ACCEPT)
