"""Names of OpenTelemetry's messaging conventions, version 1.44. They are "in development": their names may change yet.

Sources: opentelemetry.io/docs/specs/semconv/messaging, "Messaging spans", "Messaging metrics", "Kafka".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.model import TopicPartition

__all__ = [
    "BUCKETS_S",
    "CONSUMED_MESSAGES",
    "ERROR_TYPE",
    "MESSAGE_COUNT",
    "OFFSET",
    "OPERATION_DURATION",
    "PARTITION_ID",
    "PROCESS_DURATION",
    "SCHEMA_URL",
    "SENT_MESSAGES",
    "Attributes",
    "attributes",
    "error_type",
    "of_partitions",
    "span_name",
]

Attributes = Mapping[str, str | int]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "sparklog"
"""A system that isn't among the known ones has a name of its own; ``kafka`` would say that a broker was asked."""

SENT_MESSAGES = "messaging.client.sent.messages"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
OPERATION_DURATION = "messaging.client.operation.duration"
PROCESS_DURATION = "messaging.process.duration"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

ERROR_TYPE = "error.type"
MESSAGE_COUNT = "messaging.batch.message_count"
PARTITION_ID = "messaging.destination.partition.id"
OFFSET = "messaging.sparklog.message.offset"
_DESTINATION = "messaging.destination.name"

_TYPES = {"send": "send", "poll": "receive", "process": "process", "commit": "settle"}


def attributes(
    operation: str,
    *,
    topic: str | None = None,
    client_id: str | None = None,
    group_id: str | None = None,
    cluster_id: str | None = None,
) -> dict[str, str | int]:
    """The attributes of an operation: ``send``, ``poll``, ``process``, ``commit``, or a transaction's call."""
    found: dict[str, str | int] = {"messaging.system": SYSTEM, "messaging.operation.name": operation}
    optional = {
        "messaging.operation.type": _TYPES.get(operation),
        _DESTINATION: topic,
        "messaging.client.id": client_id,
        "messaging.consumer.group.name": group_id,
        "messaging.sparklog.cluster.id": cluster_id,
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def of_partitions(partitions: Collection[TopicPartition]) -> dict[str, str | int]:
    """The topic, and the partition, where there is only one."""
    found: dict[str, str | int] = {}
    topics = {partition.topic for partition in partitions}
    if len(topics) == 1:
        found[_DESTINATION] = next(iter(topics))
    if len(partitions) == 1:
        found[PARTITION_ID] = str(next(iter(partitions)).partition)
    return found


def span_name(found: Attributes) -> str:
    """The operation, and the topic where there is one."""
    return " ".join(str(found[name]) for name in ("messaging.operation.name", _DESTINATION) if name in found)


def error_type(error: BaseException) -> str:
    """The name of an error's class."""
    return type(error).__qualname__
