"""Consumer settings: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sparklog.config.clients import (
    ClientSetting,
    anything,
    callables,
    from_text,
    number,
    optional,
    read_settings,
    serializer,
    setting,
    text,
)
from sparklog.config.settings import INT_MAX, LONG_MAX, boolean, one_of
from sparklog.errors import InvalidConfigurationError

__all__ = ["CONSUMER_SETTINGS", "ConsumerConfig", "Deserialize", "ResetPolicy"]

Deserialize = Callable[[str, "list[tuple[str, bytes | None]]", Any], Any]
"""Of topic, headers and data."""

_DURATION = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS = MappingProxyType({"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000})


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """What a consumer does without a valid position (``auto_offset_reset``)."""

    kind: str
    """``earliest``, ``latest``, ``none`` or ``by_duration``."""
    duration_ms: int = 0
    """With ``by_duration``: how long ago the first record to read may be."""


def _reset_policy(value: object) -> ResetPolicy:
    """Source: Kafka ``AutoOffsetResetStrategy.fromString``; the smallest and the largest are librdkafka's words."""
    expected = "expected earliest, latest, none or by_duration:<ISO 8601 duration, as P3D or PT1H30M>"
    if not isinstance(value, str):
        raise ValueError(expected)
    if value in ("earliest", "latest", "none"):
        return ResetPolicy(value)
    kind, _, duration = value.partition(":")
    found = _DURATION.fullmatch(duration)
    if kind != "by_duration" or found is None or not any(found.groups()):
        raise ValueError(expected)
    spans = {unit: float(number) for unit, number in found.groupdict().items() if number is not None}
    return ResetPolicy("by_duration", int(sum(number * _UNITS_MS[unit] for unit, number in spans.items())))


# Defaults: Apache Kafka 4.3 ConsumerConfig.
CONSUMER_SETTINGS: Mapping[str, ClientSetting] = MappingProxyType(
    dict(
        (
            setting("auto_commit_interval_ms", number(0, INT_MAX), 5_000),
            setting("auto_offset_reset", _reset_policy, ResetPolicy("latest")),
            setting("check_crcs", from_text(boolean), True),
            setting("client_id", optional(text), None),
            setting("consumer_timeout_ms", number(0, LONG_MAX, infinity=LONG_MAX), LONG_MAX),
            setting("default_api_timeout_ms", number(0, INT_MAX), 60_000),
            setting("enable_auto_commit", optional(from_text(boolean)), None),
            setting("exclude_internal_topics", from_text(boolean), True),
            setting("fetch_max_bytes", number(0, INT_MAX), 52_428_800),
            setting("fetch_max_wait_ms", number(0, INT_MAX), 500),
            setting("fetch_min_bytes", number(0, INT_MAX), 1),
            setting("group_id", anything, None),
            setting("group_instance_id", anything, None),
            setting("group_protocol", from_text(one_of("classic", "consumer")), "classic"),
            setting("heartbeat_interval_ms", number(0, INT_MAX), 3_000),
            setting("interceptors", callables("on_consume"), ()),
            setting("isolation_level", from_text(one_of("read_uncommitted", "read_committed")), "read_uncommitted"),
            setting("key_deserializer", serializer("deserialize"), None),
            setting("max_partition_fetch_bytes", number(0, INT_MAX), 1_048_576),
            setting("max_poll_interval_ms", number(1, INT_MAX), 300_000),
            setting("max_poll_records", number(1, INT_MAX), 500),
            setting("partition_assignment_strategy", anything, None),
            setting("request_timeout_ms", number(0, INT_MAX), 30_000),
            setting("retry_backoff_max_ms", number(0, LONG_MAX), 1_000),
            setting("retry_backoff_ms", number(0, LONG_MAX), 100),
            setting("session_timeout_ms", number(0, INT_MAX), 45_000),
            setting("value_deserializer", serializer("deserialize"), None),
        )
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """What a consumer was told. Times in milliseconds, sizes in bytes."""

    auto_commit_interval_ms: int
    auto_offset_reset: ResetPolicy
    check_crcs: bool
    """Kept; Parquet pages are read without checksums."""
    client_id: str | None
    consumer_timeout_ms: int
    """Iteration ends after so long without a record."""
    default_api_timeout_ms: int
    enable_auto_commit: bool
    exclude_internal_topics: bool
    """Kept; there are no internal topics."""
    fetch_max_bytes: int
    """Bound of what is fetched ahead over all partitions."""
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    heartbeat_interval_ms: int
    interceptors: tuple[Any, ...]
    isolation_level: str
    """Both levels read the same: nothing uncommitted is ever in a log."""
    key_deserializer: Deserialize | None
    max_partition_fetch_bytes: int
    """Bound of what is fetched ahead of one partition; a larger first record is still returned."""
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: Any
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    session_timeout_ms: int
    value_deserializer: Deserialize | None

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> ConsumerConfig:
        """Read settings that a user gave by Kafka's names, with dots or underscores.

        Raises:
            InvalidConfigurationError: see :func:`read_settings`; or settings that contradict one another.
        Source: Kafka ``ConsumerConfig.maybeOverrideEnableAutoCommit``.
        """
        values = read_settings("consumer", CONSUMER_SETTINGS, given)
        for name in ("group_id", "group_instance_id", "partition_assignment_strategy"):
            if values[name] is not None:
                raise InvalidConfigurationError(
                    f"{name}={values[name]!r} is not supported: consumer groups aren't there yet"
                )
        if values["enable_auto_commit"]:
            raise InvalidConfigurationError("enable_auto_commit=true: expected a group_id beside it")
        values["enable_auto_commit"] = False
        return cls(**values)
