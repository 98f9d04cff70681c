"""Answers of kafka-python's admin client: dicts with the keys of Kafka's responses."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sparklog.admin import ConfigEntry, NewTopic, TopicDescription
from sparklog.admin.values import config_entries
from sparklog.config import TopicConfig
from sparklog.config.settings import to_text
from sparklog.errors import SparklogError
from sparklog.kafka.enums import ConfigFilterType, ConfigSourceType, ConfigType
from sparklog.kafka.errors import code_of

__all__ = [
    "CreatePartitionsResponse",
    "CreatePartitionsTopicResult",
    "config_answer",
    "config_answers",
    "created_answer",
    "is_shown",
    "topic_answer",
    "unknown_topic_answer",
]

_STORE = 0
"""The node that leads every partition and holds its only replica: the store. It isn't among the brokers."""
_INTS = frozenset({"max.message.bytes", "min.insync.replicas", "segment.bytes"})
_LISTS = frozenset({"cleanup.policy"})
_TYPES: Mapping[type, ConfigType] = {
    bool: ConfigType.BOOLEAN,
    int: ConfigType.LONG,
    float: ConfigType.DOUBLE,
    str: ConfigType.STRING,
}


@dataclass(frozen=True, slots=True)
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    """The result for each topic."""

    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The same as dicts and lists."""
        return asdict(self)


def created_answer(asked: NewTopic, made: TopicDescription | None, error: SparklogError | None) -> dict[str, Any]:
    """The result for a topic to create; ``made`` is None with an error, and where it was only checked."""
    answer: dict[str, Any] = {
        "name": asked.name,
        "topic_id": uuid.UUID(made.topic_id) if made else None,
        "error_code": code_of(error) if error else 0,
        "error_message": str(error) if error else None,
        "topic_config_error_code": 0,
        "num_partitions": -1 if error else made.partition_count if made else asked.partition_count(),
        "replication_factor": -1 if error else 1,
    }
    if made:
        answer["configs"] = {
            name: {key: entry[key] for key in ("value", "read_only", "config_source", "is_sensitive")}
            for name, entry in config_answers(made.config).items()
        }
    return answer


def topic_answer(topic: TopicDescription) -> dict[str, Any]:
    """A topic. The store, as node 0, leads every partition and is its only replica."""
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": uuid.UUID(topic.topic_id),
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": partition,
                "leader_id": _STORE,
                "leader_epoch": -1,
                "replica_nodes": [_STORE],
                "isr_nodes": [_STORE],
                "offline_replicas": [],
            }
            for partition in range(topic.partition_count)
        ],
        "authorized_operations": None,
    }


def unknown_topic_answer(asked: str | uuid.UUID, error: SparklogError) -> dict[str, Any]:
    """A topic that isn't there."""
    is_name = isinstance(asked, str)
    return {
        "error_code": code_of(error),
        "name": asked if is_name else None,
        "topic_id": None if is_name else asked,
        "is_internal": False,
        "partitions": [],
        "authorized_operations": None,
    }


def config_answers(config: TopicConfig) -> dict[str, dict[str, Any]]:
    """Every setting of a topic, without synonyms."""
    return {name: config_answer(name, entry) for name, entry in config_entries(config).items()}


def config_answer(name: str, entry: ConfigEntry, *, include_synonyms: bool = False) -> dict[str, Any]:
    """A setting of a topic."""
    source = ConfigSourceType.DEFAULT_CONFIG if entry.is_default else ConfigSourceType.DYNAMIC_TOPIC_CONFIG
    synonyms = [{"name": name, "value": to_text(entry.default), "source": ConfigSourceType.DEFAULT_CONFIG.name}]
    if not entry.is_default:
        synonyms.insert(0, {"name": name, "value": to_text(entry.value), "source": source.name})
    kind = ConfigType.LIST if name in _LISTS else ConfigType.INT if name in _INTS else _TYPES[type(entry.default)]
    return {
        "value": to_text(entry.value),
        "read_only": False,
        "config_source": source.name,
        "is_default": entry.is_default,
        "is_sensitive": False,
        "synonyms": synonyms if include_synonyms else [],
        "config_type": kind.name,
        "documentation": "provided by the store" if entry.provided_by_store else None,
    }


def is_shown(entry: ConfigEntry, config_filter: ConfigFilterType) -> bool:
    """Does the filter let a setting through?"""
    if config_filter in (ConfigFilterType.ALL, ConfigFilterType.DYNAMIC):
        return True
    if config_filter == ConfigFilterType.STATIC:
        return False
    return entry.is_default == (config_filter == ConfigFilterType.DEFAULT)
