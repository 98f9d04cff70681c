"""Reading a client's settings: known ones are parsed, those of connections have no effect, all others are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from sparklog.config.settings import to_text, whole_number
from sparklog.errors import InvalidConfigurationError

__all__ = [
    "NO_EFFECT",
    "REFUSED",
    "ClientSetting",
    "OfData",
    "anything",
    "callables",
    "from_text",
    "number",
    "optional",
    "read_settings",
    "serializer",
    "setting",
    "settings_of",
    "text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSetting:
    """One setting of a client."""

    name: str
    """Kafka's name, with underscores."""
    parse: Callable[[object], Any]
    """Converts the value that a user gave. Raises ``ValueError``, whose message says what was expected."""
    default: Any


_PARSE = "parse"
_SOCKETS = "there are no connections to brokers"
_METADATA = "a commit learns of every change at once"

NO_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "api_version",
                "api_version_auto_timeout_ms",
                "bootstrap_timeout_ms",
                "client_dns_lookup",
                "client_rack",
                "connections_max_idle_ms",
                "kafka_client",
                "receive_buffer_bytes",
                "receive_message_max_bytes",
                "reconnect_backoff_max_ms",
                "reconnect_backoff_ms",
                "selector",
                "send_buffer_bytes",
                "socket_connection_setup_timeout_max_ms",
                "socket_connection_setup_timeout_ms",
                "socket_options",
            ),
            _SOCKETS,
        ),
        "metadata_max_age_ms": _METADATA,
        "metadata_max_idle_ms": _METADATA,
        "enable_metrics_push": "metrics are read by metrics()",
        "metric_group_prefix": "metrics are read by metrics()",
        "metric_reporters": "metrics are read by metrics()",
        "metrics_enabled": "metrics are always kept",
        "metrics_num_samples": "two windows of 30 s, as Kafka's default",
        "metrics_sample_window_ms": "two windows of 30 s, as Kafka's default",
        "metrics_recording_level": "all metrics are kept",
    }
)
"""Settings that are accepted, so that code written for Kafka runs, and have no effect here, with the reason."""

_STORE = "access is given by the store's credentials: pass storage_options"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "allow_auto_create_topics": "topics are created by Admin.create_topics or `sparklog topics create`",
        "proxy_url": _STORE,
        "security_protocol": _STORE,
        "socks5_proxy": _STORE,
    }
)
_REFUSED_PREFIXES = ("sasl_", "ssl_")


def read_settings(kind: str, known: Mapping[str, ClientSetting], given: Mapping[str, object]) -> dict[str, Any]:
    """Parse settings, and return the value of every known one.

    Args:
        kind: ``producer``, ``consumer`` or ``admin``, for error messages.
        given: values by Kafka's names, with dots or with underscores.
    Raises:
        InvalidConfigurationError: a setting is unknown, given twice, or refused, or its value isn't allowed; the
            message names the setting.
    """
    values = {name: setting.default for name, setting in known.items()}
    seen: dict[str, str] = {}
    for spelling, value in given.items():
        name = spelling.replace(".", "_")
        if name in seen:
            raise InvalidConfigurationError(f"{kind} setting {name} is given twice: as {seen[name]} and {spelling}")
        seen[name] = spelling
        if name in known:
            try:
                values[name] = known[name].parse(value)
            except (ValueError, TypeError) as error:
                raise InvalidConfigurationError(f"{name}={value!r}: {error}") from None
        elif name not in NO_EFFECT and not _is_harmless(name, value):
            raise InvalidConfigurationError(_why_not(kind, name, known))
    return values


def _is_harmless(name: str, value: object) -> bool:
    """Whether a refused setting has a value that requires nothing, such as ``PLAINTEXT``."""
    if name == "security_protocol":
        return value in (None, "PLAINTEXT")
    if name in REFUSED or name.startswith(_REFUSED_PREFIXES):
        return value is None or (name == "allow_auto_create_topics" and value is False)
    return False


def _why_not(kind: str, name: str, known: Mapping[str, ClientSetting]) -> str:
    if name in REFUSED:
        return f"{kind} setting {name} is not supported: {REFUSED[name]}"
    if name.startswith(_REFUSED_PREFIXES):  # its value may be a secret
        return f"{kind} setting {name} is not supported: {_STORE}"
    return f"unknown {kind} setting {name!r}; known: {', '.join(sorted(known))}"


def setting(parse: Callable[[object], Any], default: Any) -> Any:
    """Return a dataclass field of a client's configuration; the field's name is the setting's.

    Args:
        parse: converts what a user gave to the field's value; raises ``ValueError`` that says what was expected.
        default: the value if the setting isn't given, before the client's rules for settings that depend on others.
    """
    return field(default=default, metadata={_PARSE: parse})


def settings_of(config: type) -> Mapping[str, ClientSetting]:
    """The settings of a client, by name: the fields of its configuration, each made by :func:`setting`."""
    return MappingProxyType(
        {
            known.name: ClientSetting(name=known.name, parse=known.metadata[_PARSE], default=known.default)
            for known in fields(config)
        }
    )


def from_text(parse: Callable[[str], Any], *, infinity: int | None = None) -> Callable[[object], Any]:
    """Return a parser of values that may be given as text or as Python values.

    Args:
        infinity: the value for ``float("inf")``; None: infinity isn't allowed.
    """

    def of(value: object) -> Any:
        if infinity is not None and value == math.inf:
            return infinity
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, bool | int | float | str):
            parse("")  # says what is expected
            raise ValueError(f"got {type(value).__name__}, expected text or number")
        return parse(to_text(value).strip())

    return of


def number(low: int, high: int, *, infinity: int | None = None) -> Callable[[object], Any]:
    """Return a parser of whole numbers, both bounds inclusive; for ``infinity`` see :func:`from_text`."""
    return from_text(whole_number(low, high), infinity=infinity)


def optional(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    """Return a parser that also accepts None."""
    return lambda value: None if value is None else parse(value)


def anything(value: object) -> Any:
    """Accept any value; it is checked where it is used."""
    return value


def text(value: object) -> str:
    """Accept a text that isn't empty. Raises ``ValueError``."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text that isn't empty")
    return value


def callables(method: str) -> Callable[[object], Any]:
    """Return a parser of a list of objects that have a method named ``method``."""

    def of(value: object) -> tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(callable(getattr(one, method, None)) for one in value):
            raise ValueError(f"expected a list of objects with a method {method}")
        return tuple(value)

    return of


class OfData:
    """Adapts a function of the data to a function of topic, headers and data."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, topic: str, headers: Any, data: Any) -> Any:
        return self.function(data)


def serializer(method: str) -> Callable[[object], Any]:
    """Return a parser that accepts None, a function of the data, or an object with ``method(topic, headers, data)``
    (kafka-python 3). The parsed value is None or a function of topic, headers and data."""

    def of(value: object) -> Any:
        if value is None:
            return None
        bound = getattr(value, method, None)
        if callable(bound):
            if isinstance(value, type):
                raise ValueError(f"expected an instance of {value.__name__}, not the class")
            return bound
        if callable(value):
            return OfData(value)
        raise ValueError(f"expected a function of the data or an object with a method {method}")

    return of
