"""Arguments and results of the admin client's calls. Frozen; names are kafka-python's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog import schemas
from sparklog.config import TOPIC_SETTINGS, TopicConfig, Value
from sparklog.errors import InvalidArgumentError, InvalidPartitionsError
from sparklog.log.topic import MAX_PARTITIONS
from sparklog.paths import check_topic_name
from sparklog.schemas import ValueSchema

__all__ = ["ConfigEntry", "NewPartitions", "NewTopic", "check_partition_count", "config_entries"]

DEFAULT_PARTITION_COUNT = 1
"""Kafka's ``num.partitions``."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created: its name, 1 to 10,000 partitions, and Kafka's topic settings by name."""

    name: str
    num_partitions: int = DEFAULT_PARTITION_COUNT
    """1 to 10,000; -1 for the default, which is 1."""
    replication_factor: int = -1
    """Accepted and ignored: the store decides how many copies of the data exist."""
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """By partition. Only the number of partitions is used, since there are no brokers."""
    configs: Mapping[str, object] | None = None
    """Kafka's topic settings by name."""
    topic_configs: Mapping[str, object] | None = None
    """kafka-python's name for ``configs``; a setting may be in only one of them."""
    value_schema: Any = None
    """The schema of a typed topic: an Arrow schema, or another one that :func:`sparklog.schemas.value_schema` takes.
    None: values are bytes."""

    def parsed_schema(self) -> ValueSchema | None:
        """The schema of the values; None for an untyped topic. Raises ``InvalidArgumentError``: not a valid schema."""
        return None if self.value_schema is None else schemas.value_schema(self.value_schema)

    def partition_count(self) -> int:
        """The number of partitions asked for. Raises ``InvalidPartitionsError``."""
        count = DEFAULT_PARTITION_COUNT if self.num_partitions == -1 else self.num_partitions
        if self.replica_assignments:
            assigned = len(self.replica_assignments)
            if set(self.replica_assignments) != set(range(assigned)):
                raise InvalidPartitionsError(
                    f"topic {self.name!r}: replica_assignments of partitions {sorted(self.replica_assignments)}, "
                    f"expected 0 to {assigned - 1}"
                )
            count = assigned
        return check_partition_count(self.name, count)

    def settings(self) -> dict[str, object]:
        """Merge ``configs`` and ``topic_configs``. Raises ``InvalidArgumentError``."""
        configs, topic_configs = dict(self.configs or {}), dict(self.topic_configs or {})
        twice = sorted(configs.keys() & topic_configs.keys())
        if twice:
            raise InvalidArgumentError(f"topic {self.name!r}: {', '.join(twice)} in both configs and topic_configs")
        return {**configs, **topic_configs}

    def check(self) -> None:
        """Raise the errors that creating the topic would raise on any cluster: of name, partitions and settings."""
        check_topic_name(self.name)
        self.partition_count()
        TopicConfig.parse(self.settings())
        self.parsed_schema()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The total number of partitions that a topic is to have, including those that exist now."""

    total_count: int
    """The total number of partitions, including those that exist now."""
    new_assignments: Sequence[Sequence[int]] | None = None
    """Accepted and ignored: there are no brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of a topic."""

    value: Value
    """The value that was set, or the default."""
    default: Value
    is_default: bool
    """True: the setting was not set."""
    provided_by_store: bool
    """True: the setting is recorded as in Kafka, and has no effect: the object store provides what it requires."""


def check_partition_count(topic: str, count: object) -> int:
    """Return ``count`` if a topic may have this number of partitions. Raises ``InvalidPartitionsError``."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidPartitionsError(f"topic {topic!r}: got {count!r} partitions, expected 1 to {MAX_PARTITIONS}")
    return count


def config_entries(config: TopicConfig) -> dict[str, ConfigEntry]:
    """Every setting of a topic, by name."""
    return {
        name: ConfigEntry(
            value=config[name],
            default=setting.default,
            is_default=name not in config.explicit,
            provided_by_store=setting.provided_by_store,
        )
        for name, setting in sorted(TOPIC_SETTINGS.items())
    }
