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
"""A function of topic, headers and data, which returns the deserialized data."""

_DURATION = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS = MappingProxyType({"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000})


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """The position at which a consumer begins if it has no valid one (``auto_offset_reset``)."""

    kind: str
    """``earliest``, ``latest``, ``none`` or ``by_duration``."""
    duration_ms: int = 0
    """With ``by_duration``: the greatest age in milliseconds of the first record to read."""


def reset_policy(value: object) -> ResetPolicy:
    """Parse a policy. Raises ``ValueError``.

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
    """Check that only one setting determines how values are deserialized. Raises ``InvalidConfigurationError``."""
    if values["value_format"] == "python" and values["value_deserializer"] is not None:
        raise InvalidConfigurationError("value_format=python: expected no value_deserializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer. Times in milliseconds, sizes in bytes."""

    auto_commit_interval_ms: int = setting(number(0, INT_MAX), 5_000)
    """Time between two commits by ``enable_auto_commit``."""
    auto_offset_reset: ResetPolicy = setting(reset_policy, ResetPolicy("latest"))
    """Where to begin without a valid position: ``earliest``, ``latest``, ``none`` (an error) or
    ``by_duration:<ISO 8601 duration>``."""
    check_crcs: bool = setting(from_text(boolean), True)
    """Has no effect: checksums are always compared."""
    client_id: str | None = setting(optional(text), None)
    consumer_timeout_ms: int = setting(number(0, LONG_MAX, infinity=LONG_MAX), LONG_MAX)
    """Iteration ends after this time without a record. The default, the greatest value, means never."""
    default_api_timeout_ms: int = setting(number(0, INT_MAX), 60_000)
    """Time-out of calls that wait for the store, if they are called without one."""
    enable_auto_commit: bool = setting(optional(from_text(boolean)), None)
    """Commit positions in the background. By default true with a ``group_id``, false without one."""
    exclude_internal_topics: bool = setting(from_text(boolean), True)
    """Has no effect: there are no internal topics."""
    fetch_max_bytes: int = setting(number(0, INT_MAX), 52_428_800)
    """The most bytes that are fetched ahead, over all partitions."""
    fetch_max_wait_ms: int = setting(number(0, INT_MAX), 500)
    """The longest time between two polls of a topic's log, if the topic has been quiet for long. More than 25 quiet
    topics share 25 polls in this time. Also the longest wait for ``fetch_min_bytes``. 0: polls follow one another
    without a pause."""
    fetch_min_bytes: int = setting(number(0, INT_MAX), 1)
    """Fewer bytes are returned only after ``fetch_max_wait_ms``."""
    group_id: str | None = setting(optional(text), None)
    """The consumer group. None: the consumer is in no group, and commits nothing."""
    group_instance_id: str | None = setting(optional(text), None)
    """Makes the consumer a static member: it may restart within ``session_timeout_ms`` without a rebalance."""
    group_protocol: str = setting(from_text(one_of("classic", "consumer")), "classic")
    """Has no effect: rebalances are always incremental, as with ``consumer``."""
    heartbeat_interval_ms: int = setting(number(1, INT_MAX), 3_000)
    """Time between two heartbeats of a member; must be less than ``session_timeout_ms``."""
    interceptors: tuple[Any, ...] = setting(callables("on_consume"), ())
    isolation_level: str = setting(from_text(one_of("read_uncommitted", "read_committed")), "read_uncommitted")
    """Both levels return the same records, since a log contains only committed ones."""
    key_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    max_partition_fetch_bytes: int = setting(number(0, INT_MAX), 1_048_576)
    """The most bytes that are fetched ahead of one partition; a larger first record is still returned."""
    max_poll_interval_ms: int = setting(number(1, INT_MAX), 300_000)
    """A member that doesn't poll for this long leaves its group."""
    max_poll_records: int = setting(number(1, INT_MAX), 500)
    """The most records that one poll returns."""
    metadata_max_age_ms: int = setting(number(0, LONG_MAX), 300_000)
    """Time between two searches for topics that match a subscribed pattern."""
    partition_assignment_strategy: Any = setting(anything, None)
    """An assignor or a list of them, each by Kafka's name, by its Java class or as an ``Assignor``; None: range."""
    request_timeout_ms: int = setting(number(0, INT_MAX), 30_000)
    """Has no effect: stores have their own time-outs."""
    retry_backoff_max_ms: int = setting(number(0, LONG_MAX), 1_000)
    """The longest wait between two attempts; see ``retry_backoff_ms``."""
    retry_backoff_ms: int = setting(number(0, LONG_MAX), 100)
    """How long a topic isn't polled after an error, and the first wait between two reads of committed offsets."""
    session_timeout_ms: int = setting(number(1, INT_MAX), 45_000)
    """A member without a heartbeat for this long is removed from the group by the other members."""
    value_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    value_format: str = setting(from_text(one_of("bytes", "python")), "bytes")
    """Sparklog's own: the type of a typed topic's values: ``bytes`` in the topic's ``value.format``, or ``python``:
    dicts. Values of other topics are bytes."""

    value_schema_id: int | None = setting(optional(number(1, INT_MAX)), None)
    """Sparklog's own: the id of the schema by which typed topics are read; None: the newest schema of each topic."""

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
            raise InvalidConfigurationError("enable_auto_commit=true: expected a group_id")
        if group_id is None and values["group_instance_id"] is not None:
            raise InvalidConfigurationError("group_instance_id: expected a group_id")
        values["enable_auto_commit"] = group_id is not None and auto_commit is not False
        if values["heartbeat_interval_ms"] >= values["session_timeout_ms"]:
            raise InvalidConfigurationError(
                f"heartbeat_interval_ms={values['heartbeat_interval_ms']}: expected less than "
                f"session_timeout_ms={values['session_timeout_ms']}, at most a third of it is best"
            )
        return cls(**values)


CONSUMER_SETTINGS: Mapping[str, ClientSetting] = settings_of(ConsumerConfig)
"""The settings by name. Defaults: Apache Kafka 4.3 ConsumerConfig."""
