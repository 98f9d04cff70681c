"""aiokafka's settings as kafka-python's, which :mod:`sparklog.kafka.settings` maps: only what differs is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparklog.kafka.errors import KafkaConfigurationError
from sparklog.kafka.partitioner import Partitioner

__all__ = ["consumer_configs", "producer_configs"]


def producer_configs(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for :class:`sparklog.kafka.KafkaProducer`. Raises ``KafkaConfigurationError``."""
    found = _common(configs)
    found.pop("send_backoff_ms", None)
    if "max_batch_size" in found:
        if "batch_size" in found:
            raise KafkaConfigurationError("max_batch_size, batch_size: they are the same; expected one of them")
        found["batch_size"] = found.pop("max_batch_size")
    partitioner = found.get("partitioner")
    if callable(partitioner) and not hasattr(partitioner, "partition"):
        found["partitioner"] = _Called(partitioner)
    return found


def consumer_configs(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for :class:`sparklog.kafka.KafkaConsumer`. Raises ``KafkaConfigurationError``."""
    found = _common(configs)
    found.pop("rebalance_timeout_ms", None)
    found.pop("consumer_timeout_ms", None)  # aiokafka's ends no iteration
    if found.get("max_poll_records", 0) is None:
        del found["max_poll_records"]
    return found


def _common(configs: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(configs)
    if found.pop("loop", None) is not None:
        raise KafkaConfigurationError("loop: not supported; a client belongs to the loop that it is started in")
    if found.get("sasl_mechanism") == "PLAIN":  # aiokafka's default, which asks for nothing
        del found["sasl_mechanism"]
    return found


class _Called(Partitioner):
    """A function ``(key_bytes, all_partitions, available_partitions)`` as kafka-python's partitioner."""

    def __init__(self, function: Callable[[Any, list[int], list[int]], int]) -> None:
        self._function = function

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        return self._function(serialized_key, partitions, partitions)
