"""Checksums of what is stored: CRC-32, as zlib and Parquet have it."""

from __future__ import annotations

import zlib
from typing import Any

from sparklog._native import CORE

__all__ = ["crc32"]

_SMALL = 4_096
"""Of fewer bytes, zlib takes no longer than the core."""


def crc32(data: Any, before: int = 0) -> int:
    """The CRC-32 of bytes, or a buffer, that follow others of which it was ``before``."""
    return zlib.crc32(data, before) if CORE is None or len(data) < _SMALL else CORE.crc32(data, before)
