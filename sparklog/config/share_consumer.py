"""Settings of share consumers: Kafka's names with underscores, and Kafka's defaults.

In Kafka some of them are settings of the group or the broker. Here each member has its own: a member chooses how long
its locks last, and the other members read that in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.config.clients import (
    ClientSetting,
    from_text,
    number,
    optional,
    read_settings,
    serializer,
    setting,
    settings_of,
    text,
)
from sparklog.config.consumer import Deserialize, ResetPolicy, check_value_format, reset_policy
from sparklog.config.settings import INT_MAX, one_of
from sparklog.errors import InvalidConfigurationError

__all__ = ["SHARE_CONSUMER_SETTINGS", "ShareConsumerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig:
    """The settings of a share consumer. Times in milliseconds."""

    client_id: str | None = setting(optional(text), None)
    default_api_timeout_ms: int = setting(number(0, INT_MAX), 60_000)
    """Time-out of calls that wait for the store, if they are called without one."""
    group_id: str | None = setting(optional(text), None)
    """The share group; required."""
    group_share_delivery_count_limit: int = setting(number(1, 32_767), 5)
    """The most deliveries of a record. If it is released after that many, it is archived: not delivered again."""
    group_share_partition_max_record_locks: int = setting(number(1, 10_000), 2_000)
    """While this many records of a partition are in flight, no new ones are acquired."""
    isolation_level: str = setting(from_text(one_of("read_uncommitted", "read_committed")), "read_uncommitted")
    """Both levels return the same records, since a log contains only committed ones."""
    key_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    max_poll_records: int = setting(number(1, INT_MAX), 500)
    """The most records that one poll returns."""
    share_acknowledgement_mode: str = setting(from_text(one_of("implicit", "explicit")), "implicit")
    """``implicit``: the next poll accepts the records that the last one returned. ``explicit``: each record must be
    acknowledged before the next poll."""
    share_auto_offset_reset: ResetPolicy = setting(reset_policy, ResetPolicy("latest"))
    """Where a group begins in a partition: ``earliest``, ``latest`` or ``by_duration:<ISO 8601 duration>``."""
    share_heartbeat_interval_ms: int = setting(number(1, INT_MAX), 5_000)
    """Time between two heartbeats of a member, which it sends when it polls or commits; must be less than
    ``share_session_timeout_ms``."""
    share_record_lock_duration_ms: int = setting(number(1, INT_MAX), 30_000)
    """How long a record is locked. If it isn't acknowledged in this time, it is delivered again."""
    share_session_timeout_ms: int = setting(number(1, INT_MAX), 45_000)
    """A member without a heartbeat for this long is removed by the others; ``share_record_lock_duration_ms`` is used
    instead if it is longer."""
    value_deserializer: Deserialize | None = setting(serializer("deserialize"), None)
    value_format: str = setting(from_text(one_of("bytes", "python")), "bytes")
    """Sparklog's own; see :class:`~sparklog.config.ConsumerConfig`."""
    value_schema_id: int | None = setting(optional(number(1, INT_MAX)), None)
    """Sparklog's own; see :class:`~sparklog.config.ConsumerConfig`."""

    @property
    def group(self) -> str:
        """``group_id``, which :meth:`parse` requires."""
        return self.group_id or ""

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> ShareConsumerConfig:
        """Read settings that a user gave by Kafka's names, with dots or underscores.

        Raises:
            InvalidConfigurationError: see :func:`read_settings`; or settings that contradict one another.
        """
        values: dict[str, Any] = read_settings("share consumer", SHARE_CONSUMER_SETTINGS, given)
        if not values["group_id"]:
            raise InvalidConfigurationError("group_id: expected one, a share consumer is a member of a group")
        if values["share_auto_offset_reset"].kind == "none":
            raise InvalidConfigurationError("share_auto_offset_reset=none: expected earliest, latest or by_duration:…")
        check_value_format(values)
        if values["share_heartbeat_interval_ms"] >= values["share_session_timeout_ms"]:
            raise InvalidConfigurationError(
                f"share_heartbeat_interval_ms={values['share_heartbeat_interval_ms']}: expected less than "
                f"share_session_timeout_ms={values['share_session_timeout_ms']}"
            )
        return cls(**values)


SHARE_CONSUMER_SETTINGS: Mapping[str, ClientSetting] = settings_of(ShareConsumerConfig)
"""The settings by name. Defaults: Apache Kafka 4.3 ConsumerConfig, GroupConfig and GroupCoordinatorConfig."""
