"""The paths of data files, as a log names them and as a store does. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote

from sparklog.errors import InvalidArgumentError

__all__ = ["is_absolute", "object_path"]

_NO_NAMES = frozenset(("", ".", ".."))
# A URI with a scheme. In a relative one no colon comes before the first slash but percent-encoded (RFC 3986, 4.2).
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def is_absolute(path: str) -> bool:
    """Is a path of the log a URI with a scheme, which need not lie in the table's folder?"""
    return _ABSOLUTE.match(path) is not None


def object_path(table: str, path: str) -> str:
    """The path of a data file in the store. Raises ``InvalidArgumentError`` for a path outside of the table."""
    decoded = unquote(path) if "%" in path else path
    if (":" in path and is_absolute(path)) or not _NO_NAMES.isdisjoint(decoded.split("/")):
        raise InvalidArgumentError(
            f"{table}: data file {path} lies outside of the table, which sparklog doesn't support"
        )
    return f"{table}/{decoded}"
