"""kafka-python's settings as sparklog's: most are the same; this module translates those that differ."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparklog.config import ResetPolicy
from sparklog.config.settings import LONG_MAX
from sparklog.kafka.coordinator.assignors import strategy_of
from sparklog.kafka.enums import IsolationLevel
from sparklog.kafka.errors import KafkaConfigurationError
from sparklog.kafka.partitioner import DefaultPartitioner, StickyPartitioner

__all__ = ["admin_settings", "close_all", "config_of", "consumer_settings", "producer_settings"]

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LOGGER = logging.getLogger(__name__)
_IDEMPOTENT_IN_FLIGHT = 5

_ASKS_FOR_NOTHING: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "allow_auto_create_topics": (False,),
        "proxy_url": (None,),
        "sasl_kerberos_domain_name": (None,),
        "sasl_kerberos_name": (None,),
        "sasl_kerberos_service_name": (None, "kafka"),
        "sasl_mechanism": (None,),
        "sasl_oauth_token_provider": (None,),
        "sasl_plain_password": (None,),
        "sasl_plain_username": (None,),
        "security_protocol": ("PLAINTEXT",),
        "socks5_proxy": (None,),
        "ssl_cafile": (None,),
        "ssl_certfile": (None,),
        "ssl_check_hostname": (True, False),
        "ssl_ciphers": (None,),
        "ssl_context": (None,),
        "ssl_crlfile": (None,),
        "ssl_keyfile": (None,),
        "ssl_password": (None,),
    }
)
"""Settings that are refused, but for these values: they are what sparklog does anyway."""

_CONSUMER_ONLY = ("default_offset_commit_callback", "enable_incremental_fetch_sessions")
_IN_FLIGHT = "max_in_flight_requests_per_connection"


def producer_settings(configs: Mapping[str, object]) -> dict[str, Any]:
    """Settings for :class:`~sparklog.producer.Producer`, which refuses by name what it doesn't know."""
    settings = _without(configs)
    if type(settings.get("partitioner")) in (DefaultPartitioner, StickyPartitioner):
        del settings["partitioner"]  # the producer's own is the same, and fast
    in_flight = settings.get(_IN_FLIGHT, _IDEMPOTENT_IN_FLIGHT)
    if isinstance(in_flight, int) and in_flight > _IDEMPOTENT_IN_FLIGHT and "enable_idempotence" not in settings:
        _LOGGER.warning("idempotence is switched off: %s=%s", _IN_FLIGHT, in_flight)
        settings["enable_idempotence"] = False
    return settings


def consumer_settings(configs: Mapping[str, object]) -> dict[str, Any]:
    """Settings for :class:`~sparklog.consumer.Consumer`, which refuses by name what it doesn't know."""
    settings = _without(configs, _IN_FLIGHT, *_CONSUMER_ONLY)
    if settings.get("group_id") is None:
        settings.pop("enable_auto_commit", None)  # there is nobody to commit for
    if settings.get("partition_assignment_strategy") is not None:
        settings["partition_assignment_strategy"] = strategy_of(settings["partition_assignment_strategy"])
    if "isolation_level" in settings:
        settings["isolation_level"] = _isolation_level(settings["isolation_level"])
    reset = settings.get("auto_offset_reset")
    if reset in ("smallest", "largest"):
        settings["auto_offset_reset"] = "earliest" if reset == "smallest" else "latest"
    timeout_ms = settings.get("consumer_timeout_ms")
    if isinstance(timeout_ms, int | float) and timeout_ms < 0:
        settings["consumer_timeout_ms"] = math.inf
    return settings


def admin_settings(configs: Mapping[str, object]) -> dict[str, Any]:
    """Settings for :class:`~sparklog.admin.Admin`, which refuses by name what it doesn't know."""
    return _without(configs, _IN_FLIGHT)


def config_of(root: object, parsed: DataclassInstance, given: Mapping[str, object]) -> dict[str, Any]:
    """A client's attribute ``config``: every setting, as it was given or else with its default.

    What is accepted and has no meaning is there if it was given; credentials of the store never are. The values are
    those that a program would give: text for ``auto_offset_reset``, and ``inf`` where nothing ends the wait.

    Args:
        root: of the cluster, as ``bootstrap_servers``.
        parsed: the settings as sparklog understands them, with their defaults.
        given: by the program.
    Source: kafka-python: ``DEFAULT_CONFIG``, updated with what was given.
    """
    found: dict[str, Any] = {"bootstrap_servers": root}
    for field in fields(parsed):
        value = getattr(parsed, field.name)
        if isinstance(value, ResetPolicy):
            value = value.kind
        found[field.name] = math.inf if field.name == "consumer_timeout_ms" and value == LONG_MAX else value
    return found | {name.replace(".", "_"): value for name, value in given.items()}


def _without(configs: Mapping[str, object], *ignored: str) -> dict[str, Any]:
    """The settings that mean something, or are to be refused."""
    return {
        name: value
        for name, value in configs.items()
        if name not in ignored and not any(value is one or value == one for one in _ASKS_FOR_NOTHING.get(name, ()))
    }


def _isolation_level(value: object) -> str:
    try:
        return IsolationLevel.build_from(value).name.lower()
    except ValueError as error:
        raise KafkaConfigurationError(f"isolation_level={value!r}: {error}") from None


def close_all(serializers: Iterable[object]) -> None:
    """Close those of a user's serializers and deserializers that can be, as kafka-python does."""
    for one in serializers:
        close = getattr(one, "close", None)
        if callable(close):
            close()
