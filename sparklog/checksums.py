"""Checksums of what is stored: CRC-32, as zlib and Parquet have it.

An entry of a log, which is JSON, has a checksum of all of its bytes among its own fields: eight hexadecimal digits,
which count as zeros. Older entries have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform: slower, and the same
    from zlib import crc32

__all__ = ["EMPTY_SUM", "SUM_FIELD", "check_sum", "crc32", "with_sum"]

SUM_FIELD = "crc32"
EMPTY_SUM = "00000000"
"""The value of :data:`SUM_FIELD` before it is known."""
_MARK = b'"crc32":"'
_DIGITS = EMPTY_SUM.encode()


def with_sum(data: bytes) -> bytes:
    """An entry with its checksum, for which it has :data:`EMPTY_SUM`, before all that others have a say in."""
    at = data.index(_MARK) + len(_MARK)
    return b"%b%08x%b" % (data[:at], crc32(data), data[at + len(_DIGITS) :])


def check_sum(data: bytes, fields: Mapping[str, Any]) -> None:
    """Compare an entry with the checksum that it states, if it states one.

    Args:
        fields: those of the entry, among which the checksum is.
    Raises:
        ValueError: they differ; says how.
    """
    if SUM_FIELD not in fields:
        return
    at = data.find(_MARK) + len(_MARK)
    end = at + len(_DIGITS)
    found = f"{crc32(data[end:], crc32(_DIGITS, crc32(data[:at]))):08x}"
    if fields[SUM_FIELD] != found or data[at:end] != found.encode():
        raise ValueError(f"its bytes have changed: their checksum is {found}, and it states {fields[SUM_FIELD]!r:.100}")
