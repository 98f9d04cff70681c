"""Options that the stores of all clouds have, and the settings of obstore's HTTP client."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from sparklog.errors import InvalidConfigurationError

__all__ = [
    "CLIENT_OPTIONS",
    "NO_RETRIES",
    "HiddenOptions",
    "check_endpoint",
    "check_printable",
    "client_options",
    "flag_option",
    "make",
    "panics_told",
    "refuse_unknown",
    "seconds_option",
    "take_options",
    "text_option",
    "without_values",
]

NO_RETRIES = {"max_retries": 0}
"""sparklog repeats requests itself: a resend below it would hide that an attempt's answer was lost."""

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5.0, 30.0
_LONGEST_REQUEST = "1h"
"""obstore's bound of a whole request is half a minute by default: too short for a large file on a slow line. A request
is bounded by ``read_timeout``: to the answer's beginning, with the upload, and between any two pieces of the answer."""
_LONGEST_S = 86_400.0
_TIMEOUTS = ("connect_timeout", "read_timeout")
_FLAGS: Mapping[Any, bool] = {
    **dict.fromkeys((1, "true", "yes", "on", "1"), True),
    **dict.fromkeys((0, "false", "no", "off", "0"), False),
}
"""Python takes ``True`` for 1, and ``False`` for 0."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NO_HOST = re.compile(r"[\s<>\"{}|\\^`#?@]")
_OF_LINES = {"service_account_key"}
"""Options whose text may have several lines."""
_PANICS = {
    "header": "key, token, region or another value that a request's header carries",
    "Header": "key, token, region or another value that a request's header carries",
    "url": "endpoint_url, proxy_url, addressing_style or the bucket's name",
    "Url": "endpoint_url, proxy_url, addressing_style or the bucket's name",
    "Uri": "endpoint_url, proxy_url, addressing_style or the bucket's name",
}
"""Words of panics, and what they are about."""
_SUSPECTS = "key, token, region, endpoint_url or another option"
CLIENT_OPTIONS = frozenset({*_TIMEOUTS, "proxy_url", "verify"})
"""Options that every cloud's store has: time-outs in seconds; ``verify`` is False, or a file with certificates."""


class HiddenOptions(Mapping[str, Any]):
    """Options whose text shows only their names, since values may be secrets."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._value_of = {**options}.__getitem__  # whose text doesn't show the values, as that of a mapping would
        self._names = tuple(options)

    def __getitem__(self, name: str) -> Any:
        return self._value_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"HiddenOptions({', '.join(map(str, self._names))})"


def client_options(given: Mapping[str, Any], *, endpoint: str | None) -> dict[str, Any]:
    """``client_options`` of obstore for options of :data:`CLIENT_OPTIONS`.

    Args:
        endpoint: of the cloud's store; only one that begins with ``http://`` is spoken to without TLS.
    Raises:
        InvalidConfigurationError: a value can't be used; names the option, never its value.
    """
    seconds = {"connect_timeout": _CONNECT_TIMEOUT_S, "read_timeout": _READ_TIMEOUT_S}
    seconds = {name: seconds_option(given, name, default=default) for name, default in seconds.items()}
    client: dict[str, Any] = {name: f"{math.ceil(value * 1000)}ms" for name, value in seconds.items()}
    if endpoint:
        check_endpoint(endpoint)
    client |= {"timeout": _LONGEST_REQUEST, "http1_only": True, "allow_http": bool(endpoint and _is_plain(endpoint))}
    if proxy_url := text_option(given, "proxy_url"):
        check_endpoint(proxy_url, name="storage_options proxy_url")
        client["proxy_url"] = proxy_url
    verify = given.get("verify")
    if isinstance(verify, str | os.PathLike):
        client["root_certificate"] = _certificates(os.fspath(verify))
    elif not flag_option(given, "verify", default=True, expected="true, false, or a file with certificates"):
        client["allow_invalid_certificates"] = True
    return client


def text_option(given: Mapping[str, Any], name: str) -> str | None:
    """An option that is text; None where it isn't given, or is empty. Raises ``InvalidConfigurationError``: it isn't
    text, or has a line's end or another control character, which no request can carry."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidConfigurationError(f"storage_options {name}: expected text, got {type(value).__name__}")
    if value and name not in _OF_LINES:
        check_printable(value, f"storage_options {name}")
    return value or None


def check_printable(value: str, name: str) -> None:
    """Raise ``InvalidConfigurationError`` if a value has a control character; it is named, and not shown."""
    if _CONTROL.search(value):
        raise InvalidConfigurationError(
            f"{name}: expected no control characters; a value that was read from a file may end with a line's end"
        )


def check_endpoint(endpoint: str, *, name: str = "storage_options endpoint_url") -> None:
    """Raise ``InvalidConfigurationError`` unless a server's URL can be one; it isn't shown, as it may hold a
    password."""
    check_printable(endpoint, name)
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidConfigurationError(f"{name}: expected a URL such as http://host:9000: {error}") from None
    if not host or _NO_HOST.search(host) or " " in endpoint:
        raise InvalidConfigurationError(f"{name}: expected a URL such as http://host:9000, with a host")


@contextmanager
def panics_told(what: str) -> Iterator[None]:
    """Within: a panic of a library that is written in Rust, which is no ``Exception``, becomes an
    ``InvalidConfigurationError``: all that is known to end in one is an option that such a library takes unchecked.

    Args:
        what: is reached by the library, for the message.
    """
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ not in ("PanicException", "RustPanic"):  # of a call, of a coroutine
            raise
        said = str(panic)
        about = next((names for words, names in _PANICS.items() if words in said), _SUSPECTS)
        raise InvalidConfigurationError(
            f"{what}: obstore broke off over {about}, in storage_options, the environment or a profile: "
            f"{_first_line(said)}"
        ) from None


def _first_line(text: str) -> str:
    """A panic's message without the value that it may repeat."""
    return text.partition("\n")[0].partition(": ")[0][:100]


def flag_option(given: Mapping[str, Any], name: str, *, default: bool = False, expected: str = "true or false") -> bool:
    """An option that is true or false, also as a number or a word. Raises ``InvalidConfigurationError``: it is
    neither."""
    value = given.get(name)
    if value is None:
        return default
    known = _FLAGS.get(value.strip().lower() if isinstance(value, str) else value) if _is_plain_value(value) else None
    if known is None:
        raise InvalidConfigurationError(f"storage_options {name}: expected {expected}")
    return known


def without_values(said: str, options: Mapping[Any, Any]) -> str:
    """A library's message without the values of options, which may be secrets."""
    for value in sorted({*_texts(options)}, key=len, reverse=True):
        if len(value) > 3:
            said = said.replace(value, "…")
    return said


def _texts(value: object) -> Iterator[str]:
    """The texts in an option's value, which may be a mapping itself."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _is_plain_value(value: object) -> bool:
    return isinstance(value, str | bool | int | float)


def seconds_option(given: Mapping[str, Any], name: str, *, default: float) -> float:
    """An option that is a number of seconds. Raises ``InvalidConfigurationError``: it isn't, or is out of bounds."""
    value = given.get(name)
    if value is None:
        return default
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidConfigurationError(
            f"storage_options {name}: expected seconds, a number greater than 0, and a day at most"
        )
    return seconds


def take_options(given: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options that have one of ``names``, without those that are None, and the others."""
    wanted = frozenset(names)
    taken = {name: value for name, value in given.items() if name in wanted and value is not None}
    return taken, {name: value for name, value in given.items() if name not in wanted}


def refuse_unknown(unknown: Iterable[str], *, hint: str = "") -> None:
    """Raise ``InvalidConfigurationError`` with the names of options that are left, if any are."""
    names = sorted(map(str, unknown))
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
        with panics_told("the store can't be opened"):
            return store_class(config=config, retry_config=NO_RETRIES, **options)
    except InvalidConfigurationError:
        raise
    except Exception as error:
        said = without_values(str(error).partition("\n\nDebug source:")[0], config)
        raise InvalidConfigurationError(f"storage_options: obstore says {said}") from None


def _is_plain(endpoint: str) -> bool:
    return endpoint.lower().startswith("http://")


def _certificates(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise InvalidConfigurationError(f"storage_options verify: {error.strerror}: {file}") from None
