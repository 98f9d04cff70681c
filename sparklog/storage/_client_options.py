"""Options that the stores of all clouds have, and the settings of obstore's HTTP client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.errors import InvalidConfigurationError

__all__ = ["CLIENT_OPTIONS", "NO_RETRIES", "client_options", "make", "refuse_unknown", "take_options"]

NO_RETRIES = {"max_retries": 0}
"""sparklog repeats requests itself: a resend below it would hide that an attempt's answer was lost."""

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5.0, 30.0
_LONGEST_REQUEST = "1h"
"""obstore's bound of a whole request is half a minute by default: too short for a large file on a slow line. A request
is bounded by ``read_timeout``: to the answer's beginning, with the upload, and between any two pieces of the answer."""
_TIMEOUTS = ("connect_timeout", "read_timeout")
CLIENT_OPTIONS = frozenset({*_TIMEOUTS, "proxy_url", "verify"})
"""Options that every cloud's store has: time-outs in seconds; ``verify`` is False, or a file with certificates."""


def client_options(given: Mapping[str, Any], *, endpoint: str | None) -> dict[str, Any]:
    """``client_options`` of obstore for options of :data:`CLIENT_OPTIONS`.

    Args:
        endpoint: of the cloud's store; only one that begins with ``http://`` is spoken to without TLS.
    Raises:
        InvalidConfigurationError: a value can't be used; names the option, never its value.
    """
    seconds = {"connect_timeout": _CONNECT_TIMEOUT_S, "read_timeout": _READ_TIMEOUT_S}
    for name in _TIMEOUTS:
        if given.get(name) is not None:
            try:
                seconds[name] = float(given[name])
            except (TypeError, ValueError):
                raise InvalidConfigurationError(f"storage_options {name}: expected seconds, a number") from None
            if not 0 < seconds[name] < math.inf:
                raise InvalidConfigurationError(f"storage_options {name}: expected seconds, a number greater than 0")
    client: dict[str, Any] = {name: f"{round(value * 1000)}ms" for name, value in seconds.items()}
    client |= {"timeout": _LONGEST_REQUEST, "http1_only": True, "allow_http": bool(endpoint and _is_plain(endpoint))}
    if given.get("proxy_url"):
        client["proxy_url"] = given["proxy_url"]
    verify = given.get("verify")
    if verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        client["root_certificate"] = _certificates(verify)
    return client


def take_options(given: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options that have one of ``names``, without those that are None, and the others."""
    wanted = frozenset(names)
    taken = {name: value for name, value in given.items() if name in wanted and value is not None}
    return taken, {name: value for name, value in given.items() if name not in wanted}


def refuse_unknown(unknown: Iterable[str], *, hint: str = "") -> None:
    """Raise ``InvalidConfigurationError`` with the names of options that are left, if any are."""
    names = sorted(unknown)
    if names:
        raise InvalidConfigurationError(f"storage_options {', '.join(names)}: unknown{hint}")


def make(store_class: Any, *, config: Mapping[str, Any], **options: Any) -> Any:
    """A store of obstore.

    Args:
        config: the cloud's options by object_store's names.
        options: ``client_options`` and ``credential_provider``.
    Raises:
        InvalidConfigurationError: obstore refuses an option; its message is repeated without the values.
    """
    try:
        return store_class(config=config, retry_config=NO_RETRIES, **options)
    except Exception as error:
        said = str(error).partition("\n\nDebug source:")[0]
        for value in config.values():
            if isinstance(value, str) and len(value) > 3:
                said = said.replace(value, "…")
        raise InvalidConfigurationError(f"storage_options: obstore says {said}") from None


def _is_plain(endpoint: str) -> bool:
    return endpoint.lower().startswith("http://")


def _certificates(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise InvalidConfigurationError(f"storage_options verify: {error.strerror}: {file}") from None
