"""Producer settings: Kafka's names with underscores, Kafka's defaults unless docs/semantics.md says why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.config.clients import (
    ClientSetting,
    callables,
    from_text,
    number,
    optional,
    read_settings,
    serializer,
    setting,
    settings_of,
    text,
)
from sparklog.config.settings import INT_MAX, LONG_MAX, boolean, one_of
from sparklog.errors import InvalidConfigurationError

__all__ = ["ACKS_ALL", "PRODUCER_SETTINGS", "REMOTE_BUFFER_MEMORY", "ProducerConfig", "Serialize"]

ACKS_ALL = -1
REMOTE_BUFFER_MEMORY = 134_217_728
"""The default of ``buffer_memory`` on object stores. A record is in the buffer until its commit, at least two requests
after its ``send``: at 50 ms each, 32 MiB, the default of Kafka and on folders, would be full long before that."""
_IDEMPOTENT_IN_FLIGHT = 5

Serialize = Callable[[str, "list[tuple[str, bytes | None]]", Any], Any]
"""A function of topic, headers and data, which returns the serialized data."""


def _acks(value: object) -> int:
    known = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
    if isinstance(value, bool) or str(value) not in known:
        raise ValueError("expected 0, 1 or all")
    return known[str(value)]


def _partitioner(value: object) -> Any:
    is_object = callable(getattr(value, "partition", None)) and not isinstance(value, type | str | bytes | bytearray)
    is_function = callable(value) and not callable(getattr(value, "partition", None))
    if value is None or is_object or is_function:
        return value
    raise ValueError(
        "expected a function of (key bytes, all partitions, available partitions), or an object with a method partition"
    )


def _compression(value: object) -> str:
    return "none" if value is None else str(from_text(one_of("none", "gzip", "snappy", "lz4", "zstd"))(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer. Times in milliseconds, sizes in bytes."""

    acks: int = setting(_acks, ACKS_ALL)
    """When a record counts as sent. 0: at once, errors are only counted; 1: once it is in the log; ``all`` (-1): once
    it is in the log and, on a local file system, fsynced."""
    batch_size: int = setting(number(0, INT_MAX), 1_048_576)
    """Once a topic has gathered this many bytes, they are sent without waiting for ``linger_ms``."""
    buffer_memory: int = setting(number(0, LONG_MAX), 33_554_432)
    """The most bytes of records that aren't committed yet; beyond it ``send`` waits. On object stores the default is
    :data:`REMOTE_BUFFER_MEMORY`."""
    client_id: str | None = setting(optional(text), None)
    compression_type: str = setting(_compression, "none")
    """Compression of Parquet pages; a topic's ``compression.type`` other than ``producer`` takes precedence."""
    delivery_timeout_ms: int = setting(number(0, INT_MAX), 120_000)
    """The longest time until a record's result, from its batch's first record on; at least ``linger_ms +
    request_timeout_ms``."""
    enable_idempotence: bool = setting(optional(from_text(boolean)), None)
    """Appends are idempotent in any case. By default true unless ``acks`` or ``retries`` contradict it."""
    group_commit: bool = setting(from_text(boolean), True)
    """Sparklog's own: if many producers share a topic, they publish each other's uploads (decision 0019)."""
    interceptors: tuple[Any, ...] = setting(callables("on_send"), ())
    key_serializer: Serialize | None = setting(serializer("serialize"), None)
    linger_ms: int = setting(number(0, INT_MAX), 5)
    """How long a record waits for others, so that they are sent together."""
    max_block_ms: int = setting(number(0, LONG_MAX), 60_000)
    """The longest time that a call waits for buffer memory, for opening a topic, or for a transaction."""
    max_in_flight_requests_per_connection: int = setting(number(1, INT_MAX), 5)
    """The number of simultaneous uploads for a topic. The order of records doesn't depend on it."""
    max_request_size: int = setting(number(0, INT_MAX), 1_048_576)
    """The most bytes of one record."""
    partitioner: Any = setting(_partitioner, None)
    """A function of (key bytes, all partitions, available partitions), or an object with a method ``partition``."""
    request_timeout_ms: int = setting(number(0, INT_MAX), 30_000)
    """Only a part of the lower bound of ``delivery_timeout_ms``: stores have their own time-outs."""
    retries: int = setting(number(0, INT_MAX, infinity=INT_MAX), INT_MAX)
    """How often one store call is repeated. Creating a log entry is repeated until ``delivery_timeout_ms``."""
    retry_backoff_max_ms: int = setting(number(0, LONG_MAX), 1_000)
    """The longest wait between two attempts of one store call."""
    retry_backoff_ms: int = setting(number(0, LONG_MAX), 100)
    """The first wait between two attempts of one store call."""
    transaction_timeout_ms: int = setting(number(1, INT_MAX), 60_000)
    """The longest time that a transaction may be open; a later commit is refused."""
    transactional_id: str | None = setting(optional(text), None)
    """The name by which a producer's transactions are fenced and recovered. None: no transactions."""
    value_serializer: Serialize | None = setting(serializer("serialize"), None)

    @classmethod
    def parse(cls, given: Mapping[str, object], *, is_remote: bool = False) -> ProducerConfig:
        """Read settings that a user gave by Kafka's names, with dots or underscores.

        Args:
            is_remote: whether the store is on another machine; some defaults depend on this.
        Raises:
            InvalidConfigurationError: see :func:`read_settings`; or settings that contradict one another.
        Source: Kafka ``ProducerConfig.postProcessAndValidateIdempotenceConfigs``,
            ``KafkaProducer.configureDeliveryTimeout``.
        """
        values = read_settings("producer", PRODUCER_SETTINGS, given)
        names = {name.replace(".", "_") for name in given}
        if is_remote and "buffer_memory" not in names:
            values["buffer_memory"] = REMOTE_BUFFER_MEMORY
        _check_transactional(values)
        values["enable_idempotence"] = _idempotence(values)
        least_ms = values["linger_ms"] + values["request_timeout_ms"]
        if values["delivery_timeout_ms"] < least_ms:
            if "delivery_timeout_ms" in names:
                raise InvalidConfigurationError(
                    f"delivery_timeout_ms={values['delivery_timeout_ms']}: expected at least linger_ms + "
                    f"request_timeout_ms = {least_ms}"
                )
            values["delivery_timeout_ms"] = least_ms
        return cls(**values)


def _check_transactional(values: dict[str, Any]) -> None:
    """Check the settings that a transactional id requires. ``acks=1``, which Kafka refuses, is allowed: its
    transactions survive any failure of processes, but a power loss of a local file system may undo them."""
    if values["transactional_id"] is None:
        return
    for name in ("acks", "retries"):
        if values[name] == 0:
            raise InvalidConfigurationError(f"{name}=0 contradicts transactional_id: expected 1 or more")
    if values["enable_idempotence"] is False:
        raise InvalidConfigurationError("enable_idempotence=false contradicts transactional_id: expected true")
    if values["client_id"] is None:
        values["client_id"] = f"producer-{values['transactional_id']}"


def _idempotence(values: Mapping[str, Any]) -> bool:
    """Whether the producer is idempotent in Kafka's sense; sparklog's appends are idempotent in any case."""
    asked: bool | None = values["enable_idempotence"]
    if asked is False:
        return False
    contradictions = []
    if values["retries"] == 0:
        contradictions.append("retries=0")
    if values["acks"] != ACKS_ALL:
        contradictions.append(f"acks={values['acks']}")
    if asked and contradictions:
        raise InvalidConfigurationError(
            f"enable_idempotence=true contradicts {' and '.join(contradictions)}: expected retries of 1 or more "
            "and acks=all"
        )
    in_flight = values["max_in_flight_requests_per_connection"]
    if not contradictions and in_flight > _IDEMPOTENT_IN_FLIGHT:
        raise InvalidConfigurationError(
            f"max_in_flight_requests_per_connection={in_flight}: expected at most {_IDEMPOTENT_IN_FLIGHT} "
            "with idempotence"
        )
    return not contradictions


PRODUCER_SETTINGS: Mapping[str, ClientSetting] = settings_of(ProducerConfig)
"""The settings by name. Defaults: Apache Kafka 4.3 ProducerConfig, but for batch_size (16384 there); on a folder."""
