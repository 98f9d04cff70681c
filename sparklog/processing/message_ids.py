"""Ids of messages, and the texts that stand for them in an inbox, which every database compares byte for byte. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Protocol

__all__ = ["ID_HEADER", "MOST_CHARACTERS", "HasHeaders", "digest", "message_id", "stored_text"]

ID_HEADER = "id"
MOST_CHARACTERS = 255
_PLAIN = re.compile(r"[0-9a-z_.:/-]+")
"""Texts of these characters alone are equal under no collation unless their bytes are."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]| \Z")
"""Characters that a database can't store, or doesn't compare: PostgreSQL has no NUL, MariaDB pads with spaces."""


class HasHeaders(Protocol):
    """A record, as a consumer or a handler has it."""

    @property
    def topic(self) -> str:
        """The record's topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def headers(self) -> Any:
        """(name, bytes or None) of each header."""


def message_id(record: HasHeaders) -> str:
    """The id of a record's message: its first header ``id`` with a value, else ``topic-partition-offset``.

    The outbox's own header comes first, whatever others an application adds. With the header a message that was sent
    twice is one; without, only a record that was read twice. An id of more than 255 characters, or one that is no
    UTF-8, stands as its SHA-256.
    """
    for name, value in record.headers or ():
        if name == ID_HEADER and value:
            try:
                text: str = value.decode()
            except UnicodeDecodeError:
                return digest(value)
            return text if len(text) <= MOST_CHARACTERS else digest(value)
    return f"{record.topic}-{record.partition}-{record.offset}"


def stored_text(text: str, *, is_exact: bool) -> str:
    """The text that stands for an id, or for a group, in a table: itself, or its SHA-256 where it might be taken for
    another.

    Args:
        is_exact: the table's collation tells all characters apart, but for spaces at the end.
    """
    is_safe = _UNSAFE.search(text) is None and (is_exact or _PLAIN.fullmatch(text) is not None)
    return text if is_safe else digest(text.encode("utf-8", "surrogatepass"))


def digest(data: bytes) -> str:
    """The text that stands for an id that isn't stored as it is."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
