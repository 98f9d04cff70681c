"""kafka-python's ``KafkaProducer``: sparklog's producer with that name, its settings and its methods."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from sparklog.config import ProducerConfig
from sparklog.kafka.bootstrap import check_root, reaching
from sparklog.kafka.commits import without_nulls
from sparklog.kafka.errors import IllegalArgumentError, IncompatibleBrokerVersion
from sparklog.kafka.settings import close_all, config_of, producer_settings
from sparklog.kafka.structs import ConsumerGroupMetadata
from sparklog.model import ConsumerGroupMetadata as OurGroupMetadata
from sparklog.model import OffsetAndMetadata, RecordMetadata, TopicPartition
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["FutureRecordMetadata", "KafkaProducer", "RecordMetadata"]

_FORGOTTEN_TIMEOUT_S = 10.0
"""kafka-python's is 1 s, which a commit to an object store may well need for itself."""


class KafkaProducer(Producer):
    """Sends records. Other calls are those of :class:`~sparklog.producer.Producer`, ``send_batch`` included.

    As in kafka-python, one that nobody closed is closed when it is collected or the process ends.

    Args:
        bootstrap_servers: root URI of a cluster, or a list of exactly one.
        storage_options: access to its store.
        configs: kafka-python's settings, see docs/kafka_python.md.
    Attributes:
        config: every setting by name, as given or with its default; a dict of this producer's own, that changes
            nothing. ``DEFAULT_CONFIG`` has the defaults on a folder.
    Raises:
        NoBrokersAvailable: there is no cluster, or its store doesn't answer.
        KafkaConfigurationError: an unknown setting, or one that isn't allowed; named.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = config_of(None, ProducerConfig.parse({}), {})
    _is_open = False

    def __init__(
        self,
        *,
        bootstrap_servers: object = None,
        storage_options: Mapping[str, Any] | None = None,
        **configs: object,
    ) -> None:
        root, settings = check_root(bootstrap_servers), producer_settings(configs)
        with reaching(root, storage_options):
            super().__init__(root, storage_options=dict(storage_options or {}) or None, **settings)
        self.config = config_of(root, self._config, configs)
        self._serializers = [configs.get(name) for name in ("key_serializer", "value_serializer")]
        self._is_open = True
        _OPEN.add(self)

    def bootstrap_connected(self) -> bool:
        """Whether the producer is open."""
        return self._is_open

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Close as :meth:`Producer.close <sparklog.producer.Producer.close>`. ``null_logger`` has no effect."""
        super().close(timeout)
        if not self._is_open:
            return
        self._is_open = False
        _OPEN.discard(self)
        close_all(self._serializers)

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Metrics as those of :meth:`Producer.metrics <sparklog.producer.Producer.metrics>`; there are no raw ones."""
        if raw:
            raise IncompatibleBrokerVersion("metrics(raw=True) is not supported: leave raw out")
        return super().metrics()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | OurGroupMetadata | str,
    ) -> None:
        """Send offsets as :meth:`Producer.send_offsets_to_transaction
        <sparklog.producer.Producer.send_offsets_to_transaction>`.

        Args:
            offsets: metadata and leader epoch may be None.
            group_metadata: of the consumer; or the name of a group that has no members, whose consumers assign
                partitions themselves.
        """
        given: object = offsets
        plain = without_nulls(offsets) if isinstance(given, Mapping) else offsets  # what isn't one is refused below
        super().send_offsets_to_transaction(plain, _our_metadata(group_metadata))

    @classmethod
    def max_usable_produce_magic(cls, api_version: object) -> NoReturn:
        """Raises ``IncompatibleBrokerVersion``: records are Parquet."""
        raise IncompatibleBrokerVersion("max_usable_produce_magic is not supported: there are no message formats")

    def __enter__(self) -> KafkaProducer:
        return self

    def __del__(self) -> None:
        # In a thread: whoever happens to collect this may hold a lock of the very same producer.
        if self._is_open:
            with contextlib.suppress(RuntimeError):  # the interpreter ends
                threading.Thread(target=self.close, args=(_FORGOTTEN_TIMEOUT_S,), name="sparklog-closing").start()


def _our_metadata(given: object) -> OurGroupMetadata:
    """Raises ``IllegalArgumentError``, as kafka-python ValueError; what isn't metadata is refused by the producer."""
    if isinstance(given, str):
        return OurGroupMetadata(given)
    if not isinstance(given, ConsumerGroupMetadata):
        return given  # type: ignore[return-value]
    if given.generation_id > 0 and not given.member_id:
        raise IllegalArgumentError(f"group_metadata: generation_id={given.generation_id} without a member_id")
    return OurGroupMetadata(given.group_id or "", given.generation_id, given.member_id, given.group_instance_id)


_OPEN: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


@atexit.register
def _close_open() -> None:
    for producer in list(_OPEN):
        producer.close(_FORGOTTEN_TIMEOUT_S)
