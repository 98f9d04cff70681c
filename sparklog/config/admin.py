"""Admin settings: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sparklog.config.clients import ClientSetting, number, optional, read_settings, setting, text
from sparklog.config.settings import INT_MAX, LONG_MAX

__all__ = ["ADMIN_SETTINGS", "AdminConfig"]

# Defaults: Apache Kafka 4.3 AdminClientConfig.
ADMIN_SETTINGS: Mapping[str, ClientSetting] = MappingProxyType(
    dict(
        (
            setting("client_id", optional(text), None),
            setting("default_api_timeout_ms", number(0, INT_MAX), 60_000),
            setting("request_timeout_ms", number(0, INT_MAX), 30_000),
            setting("retries", number(0, INT_MAX, infinity=INT_MAX), INT_MAX),
            setting("retry_backoff_max_ms", number(0, LONG_MAX), 1_000),
            setting("retry_backoff_ms", number(0, LONG_MAX), 100),
        )
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """What an admin was told. Times in milliseconds."""

    client_id: str | None
    default_api_timeout_ms: int
    """Bound of the commits of one call to one topic, where the call gives none of its own."""
    request_timeout_ms: int
    """Kept, as the next three: a store repeats its requests by rules of its own, within 30 s."""
    retries: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> AdminConfig:
        """Read settings that a user gave by Kafka's names. Raises as :func:`read_settings`."""
        return cls(**read_settings("admin", ADMIN_SETTINGS, given))
