"""Topic settings: Kafka's names, types, defaults and bounds.

A topic's settings are properties of its Delta table, ``sparklog.`` before Kafka's name (``docs/storage_format.md``,
Properties). ``docs/semantics.md`` describes what each setting means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sparklog.config.settings import (
    INT_MAX,
    LONG_MAX,
    Setting,
    Value,
    boolean,
    one_of,
    ratio,
    to_text,
    whole_number,
)
from sparklog.errors import InvalidConfigurationError

__all__ = ["TOPIC_SETTINGS", "TopicConfig", "setting_names"]

_LOGGER = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings that may contradict one another."""
COMPATIBILITY_MODES = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
"""Source: Confluent Schema Registry, without NONE, since a field name keeps its type for ever."""


def _cleanup_policy(text: str) -> str:
    parts = [part.strip() for part in text.split(",")] if text else []
    if len(set(parts)) != len(parts) or not set(parts) <= {"compact", "delete"}:
        raise ValueError("expected delete, compact, both joined by a comma, or nothing (keep for ever)")
    return ",".join(parts)


def _setting(name: str, parse: Callable[[str], Value], default: Value, *, provided_by_store: bool = False) -> Setting:
    return Setting(name=name, parse=parse, default=default, provided_by_store=provided_by_store)


# Defaults: Apache Kafka 4.3 TopicConfig / LogConfig. Sparklog's own are log.retention.ms (protocol rule L3, cleanup)
# and foreign.gap.interval.ms (rule F5, gaps), delay (decision 0033), and those of
# typed topics, value.* (decision 0027).
TOPIC_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            _setting("cleanup.policy", _cleanup_policy, "delete"),
            _setting(
                "compression.type",
                one_of("producer", "none", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
                "producer",
            ),
            _setting("delete.retention.ms", whole_number(0, LONG_MAX), _DAY_MS),
            _setting("file.delete.delay.ms", whole_number(0, LONG_MAX), 60_000),
            _setting("max.compaction.lag.ms", whole_number(1, LONG_MAX), LONG_MAX),
            _setting("max.message.bytes", whole_number(0, INT_MAX), 1_048_588),
            _setting("message.timestamp.after.max.ms", whole_number(0, LONG_MAX), 3_600_000),
            _setting("message.timestamp.before.max.ms", whole_number(0, LONG_MAX), LONG_MAX),
            _setting("message.timestamp.type", one_of("CreateTime", "LogAppendTime"), "CreateTime"),
            _setting("min.cleanable.dirty.ratio", ratio, 0.5),
            _setting("min.compaction.lag.ms", whole_number(0, LONG_MAX), 0),
            _setting("min.insync.replicas", whole_number(1, INT_MAX), 1, provided_by_store=True),
            _setting("retention.bytes", whole_number(-1, LONG_MAX), -1),
            _setting("retention.ms", whole_number(-1, LONG_MAX), 7 * _DAY_MS),
            _setting("segment.bytes", whole_number(1_048_576, INT_MAX), 1_073_741_824),
            _setting("segment.jitter.ms", whole_number(0, LONG_MAX), 0),
            _setting("segment.ms", whole_number(1, LONG_MAX), 7 * _DAY_MS),
            _setting("unclean.leader.election.enable", boolean, False, provided_by_store=True),
            _setting("delay", boolean, False),
            _setting("foreign.gap.interval.ms", whole_number(-1, LONG_MAX), -1),
            _setting("log.retention.ms", whole_number(600_000, LONG_MAX), _DAY_MS),
            _setting("value.bytes", one_of("drop", "keep"), "drop"),
            _setting("value.compatibility", one_of(*COMPATIBILITY_MODES), "BACKWARD"),
            _setting(
                "value.format",
                one_of("json", "json-confluent", "avro", "avro-confluent", "protobuf", "protobuf-confluent"),
                "json",
            ),
            _setting("value.index", str.strip, ""),
            _setting("value.on.error", one_of("reject", "keep"), "reject"),
        )
    }
)

_NO_BROKER = "it configures a broker's files, replicas or network, which sparklog doesn't have"
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "flush.messages": "acks=all makes every commit durable",
        "flush.ms": "acks=all makes every commit durable",
        "remote.storage.enable": "a topic already lives in the object store",
        "local.retention.ms": "a topic already lives in the object store",
        "local.retention.bytes": "a topic already lives in the object store",
        "remote.log.copy.disable": "a topic already lives in the object store",
        "remote.log.delete.on.disable": "a topic already lives in the object store",
        "index.interval.bytes": _NO_BROKER,
        "segment.index.bytes": _NO_BROKER,
        "preallocate": _NO_BROKER,
        "leader.replication.throttled.replicas": _NO_BROKER,
        "follower.replication.throttled.replicas": _NO_BROKER,
        "compression.gzip.level": "set the level in the producer",
        "compression.lz4.level": "set the level in the producer",
        "compression.zstd.level": "set the level in the producer",
    }
)


PROPERTY_PREFIX = "sparklog."
"""The prefix of a setting's table property; the setting's name follows."""


def setting_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert names of table properties among the given names to names of settings.

    Raises ``InvalidConfigurationError``: a setting is given under both names.
    """
    named: dict[str, Any] = {}
    for name, value in given.items():
        bare = name.removeprefix(PROPERTY_PREFIX)
        if bare in named:
            raise InvalidConfigurationError(f"{bare} and {PROPERTY_PREFIX}{bare} are one setting; expected one of them")
        named[bare] = value
    return named


def _known(name: str) -> Setting:
    if name in _REFUSED:
        raise InvalidConfigurationError(f"{name} is not supported: {_REFUSED[name]}")
    if name not in TOPIC_SETTINGS:
        raise InvalidConfigurationError(f"unknown topic setting {name!r}; known: {', '.join(sorted(TOPIC_SETTINGS))}")
    return TOPIC_SETTINGS[name]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings: the explicit ones, and Kafka's default for every other."""

    explicit: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "explicit", MappingProxyType(dict(self.explicit)))

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> TopicConfig:
        """Read settings that a user gave by Kafka's names, or by those of their table properties.

        Raises:
            InvalidConfigurationError: a setting is unknown or not supported, its value isn't allowed, or it
                contradicts another one; the message names the setting.
        """
        config = cls({name: _known(name).parse_value(value) for name, value in setting_names(given).items()})
        config.check()
        return config

    def check(self) -> None:
        """Raise ``InvalidConfigurationError`` if settings contradict one another.

        Source: Kafka ``LogConfig.validateValues``.
        """
        low, high = (self.integer(name) for name in _LAGS)
        if low > high:
            raise InvalidConfigurationError(f"min.compaction.lag.ms={low} is greater than max.compaction.lag.ms={high}")

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, before: TopicConfig | None = None, prefix: str = PROPERTY_PREFIX
    ) -> TopicConfig:
        """Read the settings among a table's properties; those of a newer sparklog are ignored.

        Any user may set a property by SQL, and a mistake must not stop a topic: a value that isn't allowed is logged,
        and the setting keeps its value of ``before``, or its default.
        """
        earlier = before.explicit if before else {}
        explicit: dict[str, Value] = {}
        for key, value in properties.items():
            name = key.removeprefix(prefix)
            if name == key or name not in TOPIC_SETTINGS:
                continue
            try:
                explicit[name] = TOPIC_SETTINGS[name].parse_value(value)
            except InvalidConfigurationError as error:
                _LOGGER.warning("table property %s is not used: %s", key, error)
                explicit |= {name: earlier[name]} if name in earlier else {}
        config = cls(explicit)
        try:
            config.check()
        except InvalidConfigurationError as error:
            _LOGGER.warning("table properties %s are not used: %s", " and ".join(prefix + n for n in _LAGS), error)
            config = cls(
                {name: value for name, value in explicit.items() if name not in _LAGS}
                | {name: earlier[name] for name in _LAGS if name in earlier}
            )
        return config

    def to_properties(self, *, prefix: str = PROPERTY_PREFIX) -> dict[str, str]:
        """The explicit settings as table properties."""
        return {prefix + name: to_text(value) for name, value in self.explicit.items()}

    def with_changes(self, changes: Mapping[str, object]) -> TopicConfig:
        """Return these settings with some changed; None resets a setting to its default."""
        explicit = dict(self.explicit)  # those of a newer sparklog stay as they are
        for name, value in setting_names(changes).items():
            setting = _known(name)
            if value is None:
                explicit.pop(name, None)
            else:
                explicit[name] = setting.parse_value(value)
        changed = TopicConfig(explicit)
        changed.check()
        return changed

    def __getitem__(self, name: str) -> Value:
        return self.explicit.get(name, TOPIC_SETTINGS[name].default)

    def integer(self, name: str) -> int:
        """The value of a setting that is a whole number."""
        return int(self[name])

    def all(self) -> dict[str, Value]:
        """Every setting with its value, which is the default unless it is set."""
        return {name: self[name] for name in TOPIC_SETTINGS}
