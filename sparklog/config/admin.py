"""Admin settings: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.config.clients import ClientSetting, number, optional, read_settings, setting, settings_of, text
from sparklog.config.settings import INT_MAX, LONG_MAX

__all__ = ["ADMIN_SETTINGS", "AdminConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """The settings of an admin client. Times in milliseconds."""

    client_id: str | None = setting(optional(text), None)
    default_api_timeout_ms: int = setting(number(0, INT_MAX), 60_000)
    """The longest time for the commits of one call to one topic, if the call has no ``timeout_ms``."""
    request_timeout_ms: int = setting(number(0, INT_MAX), 30_000)
    """Has no effect, like the next three: a store repeats its requests by its own rules, within 30 s."""
    retries: int = setting(number(0, INT_MAX, infinity=INT_MAX), INT_MAX)
    retry_backoff_max_ms: int = setting(number(0, LONG_MAX), 1_000)
    retry_backoff_ms: int = setting(number(0, LONG_MAX), 100)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> AdminConfig:
        """Read settings that a user gave by Kafka's names. Raises as :func:`read_settings`."""
        return cls(**read_settings("admin", ADMIN_SETTINGS, given))


ADMIN_SETTINGS: Mapping[str, ClientSetting] = settings_of(AdminConfig)
"""The settings by name. Defaults: Apache Kafka 4.3 AdminClientConfig."""
