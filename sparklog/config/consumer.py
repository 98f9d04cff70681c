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
    settings_of,
    text,
)
from sparklog.config.settings import INT_MAX, LONG_MAX, boolean, one_of
from sparklog.errors import InvalidConfigurationError

__all__ = ["CONSUMER_SETTINGS", "ConsumerConfig", "Deserialize", "ResetPolicy", "check_value_format", "reset_policy"]

Deserialize = Callable[[str, "list[tuple[str, bytes | None]]", Any], Any]
"""Called with topic, headers and data."""

_DURATION = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS = MappingProxyType({"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000})


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """Policies for a consumer without a valid position (``auto_offset_reset``)."""

    kind: str
    """``earliest``, ``latest``, ``none`` or ``by_duration``."""
    duration_ms: int = 0
    """With ``by_duration``: how long ago the first record to read may be."""


def reset_policy(value: object) -> ResetPolicy:
    """The policy that a text names.

    Source: Kafka ``AutoOffsetResetStrategy.fromString``; the smallest and the largest are librdkafka's words.
    """
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


def check_value_format(values: Mapping[str, Any]) -> None:
    """Raises ``InvalidConfigurationError``: two settings say what becomes of a value."""
    if values["value_format"] == "python" and values["value_deserializer"] is not None:
        raise InvalidConfigurationError("value_format=python: expected no value_deserializer beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer. Times in milliseconds, sizes in bytes."""

    auto_commit_interval_ms: int = setting(number(0, INT_MAX), 5_000)
    auto_offset_reset: ResetPolicy = setting(reset_policy, ResetPolicy("latest"))
    check_crcs: bool = setting(from_text(boolean), True)
    """Kept; Parquet pages are read without checksums."""
    client_id: str | None = setting(optional(text), None)
    consumer_timeout_ms: int = setting(number(0, LONG_MAX, infinity=LONG_MAX), LONG_MAX)
    """Iteration ends after so long without a record."""
    default_api_timeout_ms: int = setting(number(0, INT_MAX), 60_000)
    enable_auto_commit: bool = setting(optional(from_text(boolean)), None)
    exclude_internal_topics: bool = setting(from_text(boolean), True)
    """Kept; there are no internal topics."""
    fetch_max_bytes: int = setting(number(0, INT_MAX), 52_428_800)
    """Bound of what is fetched ahead over all partitions."""
    fetch_max_wait_ms: int = setting(number(0, INT_MAX), 500)
    """How often a topic is looked at that has been quiet for long; more than 25 of them share 25 looks in that time.
    What ``fetch_min_bytes`` waits for isn't waited for any longer. 0: without a rest."""
    fetch_min_bytes: int = setting(number(0, INT_MAX), 1)
    group_id: str | None = setting(optional(text), None)
    group_instance_id: str | None = setting(optional(text), None)
    """Makes the consumer a static member: it may come back within its session without a rebalance."""
    group_protocol: str = setting(from_text(one_of("classic", "consumer")), "classic")
    """Kept; members always hand partitions over one by one, as with ``consumer``."""
    heartbeat_interval_ms: int = setting(number(1, INT_MAX), 3_000)
    """How often a member shows that it lives; less than ``session_timeout_ms``."""
    interceptors: tuple[Any, ...] = setting(callables("on_consume"), ())
    isolation_level: str = setting(from_text(one_of("read_uncommitted", "read_committed")), "read_uncommitted")
    """Both levels read the same: nothing uncommitted is ever in a log."""
    key_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    max_partition_fetch_bytes: int = setting(number(0, INT_MAX), 1_048_576)
    """Bound of what is fetched ahead of one partition; a larger first record is still returned."""
    max_poll_interval_ms: int = setting(number(1, INT_MAX), 300_000)
    """A member that doesn't poll for so long leaves its group."""
    max_poll_records: int = setting(number(1, INT_MAX), 500)
    metadata_max_age_ms: int = setting(number(0, LONG_MAX), 300_000)
    """How often topics are looked for that match a pattern."""
    partition_assignment_strategy: Any = setting(anything, None)
    """None, or what ``sparklog.groups.assignors.assignor_of`` understands, one or a list."""
    request_timeout_ms: int = setting(number(0, INT_MAX), 30_000)
    retry_backoff_max_ms: int = setting(number(0, LONG_MAX), 1_000)
    retry_backoff_ms: int = setting(number(0, LONG_MAX), 100)
    session_timeout_ms: int = setting(number(1, INT_MAX), 45_000)
    """A member that wasn't seen to live for so long is taken for dead by the others."""
    value_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    value_format: str = setting(from_text(one_of("bytes", "python")), "bytes")
    """Sparklog's own: what a typed topic's values are: ``bytes`` of its ``value.format``, or ``python``: dicts. Values
    of other topics are bytes."""

    value_schema_id: int | None = setting(optional(number(1, INT_MAX)), None)
    """Sparklog's own: the schema by which typed topics are read; None: the newest of each."""

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> ConsumerConfig:
        """Read settings that a user gave by Kafka's names, with dots or underscores.

        Raises:
            InvalidConfigurationError: see :func:`read_settings`; or settings that contradict one another.
        Source: Kafka ``ConsumerConfig.maybeOverrideEnableAutoCommit``.
        """
        values = read_settings("consumer", CONSUMER_SETTINGS, given)
        check_value_format(values)
        group_id, auto_commit = values["group_id"], values["enable_auto_commit"]
        if auto_commit and group_id is None:
            raise InvalidConfigurationError("enable_auto_commit=true: expected a group_id beside it")
        if group_id is None and values["group_instance_id"] is not None:
            raise InvalidConfigurationError("group_instance_id: expected a group_id beside it")
        values["enable_auto_commit"] = group_id is not None and auto_commit is not False
        if values["heartbeat_interval_ms"] >= values["session_timeout_ms"]:
            raise InvalidConfigurationError(
                f"heartbeat_interval_ms={values['heartbeat_interval_ms']}: expected less than "
                f"session_timeout_ms={values['session_timeout_ms']}, at most a third of it is best"
            )
        return cls(**values)


CONSUMER_SETTINGS: Mapping[str, ClientSetting] = settings_of(ConsumerConfig)
"""The settings by name. Defaults: Apache Kafka 4.3 ConsumerConfig."""
