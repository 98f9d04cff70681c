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
"""The default of ``buffer_memory`` on object stores. A record is in the buffer until its commit, two requests after its
``send`` at the soonest: at 50 ms each, 32 MiB, Kafka's default and that of folders, are full long before."""
_IDEMPOTENT_IN_FLIGHT = 5

Serialize = Callable[[str, "list[tuple[str, bytes | None]]", Any], Any]
"""Called with topic, headers and data."""


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
    """0: not waited for; 1: in the log; -1: in the log and fsynced on a local file system."""
    batch_size: int = setting(number(0, INT_MAX), 1_048_576)
    """Bytes of a topic: that much gathered doesn't wait for ``linger_ms``."""
    buffer_memory: int = setting(number(0, LONG_MAX), 33_554_432)
    """Where the store is another machine's the default is :data:`REMOTE_BUFFER_MEMORY`."""
    client_id: str | None = setting(optional(text), None)
    compression_type: str = setting(_compression, "none")
    delivery_timeout_ms: int = setting(number(0, INT_MAX), 120_000)
    enable_idempotence: bool = setting(optional(from_text(boolean)), None)
    group_commit: bool = setting(from_text(boolean), True)
    """Where many producers share a topic, let others publish what is uploaded here, and publish what they upload."""
    interceptors: tuple[Any, ...] = setting(callables("on_send"), ())
    key_serializer: Serialize | None = setting(serializer("serialize"), None)
    linger_ms: int = setting(number(0, INT_MAX), 5)
    max_block_ms: int = setting(number(0, LONG_MAX), 60_000)
    max_in_flight_requests_per_connection: int = setting(number(1, INT_MAX), 5)
    max_request_size: int = setting(number(0, INT_MAX), 1_048_576)
    partitioner: Any = setting(_partitioner, None)
    request_timeout_ms: int = setting(number(0, INT_MAX), 30_000)
    retries: int = setting(number(0, INT_MAX, infinity=INT_MAX), INT_MAX)
    retry_backoff_max_ms: int = setting(number(0, LONG_MAX), 1_000)
    retry_backoff_ms: int = setting(number(0, LONG_MAX), 100)
    transaction_timeout_ms: int = setting(number(1, INT_MAX), 60_000)
    transactional_id: str | None = setting(optional(text), None)
    value_serializer: Serialize | None = setting(serializer("serialize"), None)

    @classmethod
    def parse(cls, given: Mapping[str, object], *, is_remote: bool = False) -> ProducerConfig:
        """Read settings that a user gave by Kafka's names, with dots or underscores.

        Args:
            is_remote: is the store another machine's? Some defaults depend on that.
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
    """Check the settings that a producer with a transactional id can't do without. ``acks=1``, which Kafka refuses, is
    allowed: whatever happens to processes its transactions survive, but a power loss of a local file system may undo
    them."""
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
    """Whether the producer is idempotent in Kafka's sense; sparklog's appends are so in any case."""
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
