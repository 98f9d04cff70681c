"""Names that a store accepts: one rule for every store, so that what works on one works on all."""

from __future__ import annotations

import re

from sparklog.errors import InvalidArgumentError

__all__ = ["check_path", "check_prefix", "check_range", "is_path"]

# A part that is empty, "." or ".." (so also a leading or trailing slash), a backslash, NUL, or half a surrogate pair.
_ILLEGAL = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\\\0\ud800-\udfff]")
_UNUSUAL_STARTS = ("", "/", ".")


def is_path(path: str) -> bool:
    """May ``path`` name an object?"""
    is_usual = path.isascii() and not ("//" in path or "/." in path or "\\" in path or "\0" in path or "\n" in path)
    if is_usual and path[:1] not in _UNUSUAL_STARTS:  # so plain searches decide, in a tenth of the expression's time:
        return path[-1] != "/"  # each row of a listing is asked for
    return _ILLEGAL.search(path) is None


def check_path(path: str) -> str:
    """Return ``path`` if it may name an object.

    Raises:
        InvalidArgumentError: absolute, a part that is empty, ``.`` or ``..``, a backslash, NUL, or not to be written
            as UTF-8.
    """
    if not is_path(path):
        raise InvalidArgumentError(
            f"invalid path {path!r}: expected a relative one, parts joined by '/', none of them empty, '.' or '..', "
            "without backslash or NUL"
        )
    return path


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if it is a folder: empty for the root, else a path and a ``/``.

    Raises:
        InvalidArgumentError: it doesn't end with ``/``, or isn't a path before it.
    """
    if prefix:
        if not prefix.endswith("/"):
            raise InvalidArgumentError(f"invalid prefix {prefix!r}: expected a folder, ending with '/'")
        check_path(prefix[:-1])
    return prefix


def check_range(path: str, start: int, end: int) -> None:
    """Raise ``InvalidArgumentError`` unless ``0 <= start <= end``."""
    if not 0 <= start <= end:
        raise InvalidArgumentError(f"invalid range of {path}: start={start}, end={end}, expected 0 <= start <= end")
