"""kafka-python's ``KafkaConsumer``: sparklog's consumer with that name, its settings and its methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, NoReturn

from sparklog.config import ConsumerConfig
from sparklog.consumer import Consumer
from sparklog.kafka.bootstrap import check_root, reaching
from sparklog.kafka.commits import CommitFuture, answering, log_failure, without_nulls
from sparklog.kafka.errors import IncompatibleBrokerVersion, KafkaConfigurationError
from sparklog.kafka.settings import close_all, config_of, consumer_settings
from sparklog.kafka.structs import ConsumerGroupMetadata, MemberState
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.paths import check_topic_name

__all__ = ["ConsumerRecord", "KafkaConsumer"]


class KafkaConsumer(Consumer):
    """Reads records. Other calls are those of :class:`~sparklog.consumer.Consumer`, ``poll_batches`` included.

    Args:
        topics: to subscribe to.
        bootstrap_servers: root URI of a cluster, or a list of exactly one.
        storage_options: access to its store.
        configs: kafka-python's settings, see docs/kafka_python.md.
    Attributes:
        config: every setting by name, as given or with its default; a dict of this consumer's own, that changes
            nothing. ``DEFAULT_CONFIG`` has the defaults.
    Raises:
        NoBrokersAvailable: there is no cluster, or its store doesn't answer.
        KafkaConfigurationError: an unknown setting, or one that isn't allowed; named.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = config_of(None, ConsumerConfig.parse({}), {"enable_auto_commit": True})
    _is_open = False

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: object = None,
        storage_options: Mapping[str, Any] | None = None,
        **configs: object,
    ) -> None:
        root, settings = check_root(bootstrap_servers), consumer_settings(configs)
        callback = configs.get("default_offset_commit_callback")
        if callback is not None and not callable(callback):
            raise KafkaConfigurationError(f"default_offset_commit_callback={callback!r}: expected a function")
        self._on_commit: Callable[[Any, Any], object] = log_failure if callback is None else callback
        self.config = config_of(root, ConsumerConfig.parse(settings), configs)
        for topic in topics:
            check_topic_name(topic)
        with reaching(root, storage_options):
            super().__init__(*topics, cluster=root, storage_options=storage_options, **settings)
        self._runtime.call_after_auto_commits(answering(self._on_commit))
        self._deserializers = [configs.get(name) for name in ("key_deserializer", "value_deserializer")]
        self._is_open = True

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Do nothing: the cluster was opened when the consumer was made."""

    def bootstrap_connected(self) -> bool:
        """Whether the consumer is open."""
        return self._is_open

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Poll as :meth:`Consumer.poll <sparklog.consumer.Consumer.poll>`; ``update_offsets`` can't be false."""
        if not update_offsets:
            raise IncompatibleBrokerVersion("poll(update_offsets=False) is not supported: seek back to read again")
        return super().poll(timeout_ms, max_records)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        return super().partitions_for_topic(topic) or set()

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Metrics as those of :meth:`Consumer.metrics <sparklog.consumer.Consumer.metrics>`; there are no raw ones."""
        if raw:
            raise IncompatibleBrokerVersion("metrics(raw=True) is not supported: leave raw out")
        return super().metrics()

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit as :meth:`Consumer.commit <sparklog.consumer.Consumer.commit>`; metadata and leader epoch may be
        None."""
        super().commit(None if offsets is None else without_nulls(offsets), timeout_ms)

    def commitSync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:  # noqa: N802
        """Commit as :meth:`commit`; the name is that of Kafka's Java consumer."""
        self.commit(offsets)

    def commitAsync(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802
        """Raises ``IncompatibleBrokerVersion``: Java's callback has other arguments than :meth:`commit_async`'s."""
        raise IncompatibleBrokerVersion(
            "commitAsync is not supported: call commit_async(offsets, callback), whose callback is given the offsets "
            "and an OffsetCommitResponse or an exception"
        )

    def commit_async(  # type: ignore[override] # kafka-python's future
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> CommitFuture:
        """Commit as :meth:`Consumer.commit_async <sparklog.consumer.Consumer.commit_async>`.

        Args:
            callback: ``callback(offsets, response)``, where the response is an exception or an
                :class:`~sparklog.kafka.commits.OffsetCommitResponse`; ``default_offset_commit_callback`` by default.
        """
        with self._guard:
            commits = self._runtime.commits_for("commit_async")
            wanted = commits.consumed() if offsets is None else without_nulls(offsets)
            done = super().commit_async(wanted, answering(self._on_commit if callback is None else callback))
        return CommitFuture(done, wanted)

    def group_metadata(self) -> ConsumerGroupMetadata:  # type: ignore[override] # kafka-python's has a state, too
        """This member; without a ``group_id`` one of no group."""
        if self._runtime.config.group_id is None:
            return ConsumerGroupMetadata()
        mine = super().group_metadata()
        joined = MemberState.STABLE if mine.generation_id >= 0 else MemberState.REBALANCING
        return ConsumerGroupMetadata(*mine, joined if mine.member_id else MemberState.UNJOINED)

    def close(  # type: ignore[override] # kafka-python's order of arguments
        self, autocommit: bool = True, timeout_ms: float | None = None
    ) -> None:
        """End the consumer and leave its group; again does nothing.

        With ``enable_auto_commit`` the positions are committed first, unless ``autocommit`` is false.
        """
        try:
            self._close(timeout_ms, auto_commit=autocommit)
        finally:
            if self._is_open:
                self._is_open = False
                close_all(self._deserializers)

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(autocommit=kind is None)
