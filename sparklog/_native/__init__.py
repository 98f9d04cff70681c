"""The compiled core, where there is one: ``core.pyx`` says what it does. Without it the same is done in pure Python.

The choice is made once, at import: ``SPARKLOG_PURE=1`` in the environment asks for pure Python. A core that was
compiled from another source than lies beside it isn't used.
"""

from __future__ import annotations

import ctypes
import logging
import os
import zlib
from pathlib import Path
from types import ModuleType

__all__ = ["CORE", "DESCRIPTION"]

_LOGGER = logging.getLogger("sparklog")
_TRIED = bytes(range(256)) * 5


def _choose() -> tuple[ModuleType | None, str]:
    """The compiled module, or None; and which it is, in a few words."""
    if os.environ.get("SPARKLOG_PURE", "") not in ("", "0"):
        return None, "pure Python, as SPARKLOG_PURE asks for"
    try:
        from sparklog._native import core
    except ImportError as error:
        return None, f"pure Python: {error}"
    from sparklog._native.build_core import SOURCE, checksum

    source = Path(SOURCE)
    if source.exists() and checksum(source) != core.CHECKSUM:
        return None, "pure Python: the native core was compiled from another source; compile it anew"
    return core, "native core"


def _isal_crc32() -> int | None:
    """The address of ISA-L's CRC-32 in the library of the package ``isal``; None where it isn't to be found: there is
    no such package for some platforms, and its library may keep its functions to itself."""
    try:
        from isal import isal_zlib

        crc32 = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (ImportError, OSError, AttributeError):
        return None
    crc32.restype, crc32.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64)
    is_right = crc32(crc32(0, _TRIED[:5], 5), _TRIED[5:], len(_TRIED) - 5) == zlib.crc32(_TRIED)
    return ctypes.cast(crc32, ctypes.c_void_p).value if is_right else None


CORE, DESCRIPTION = _choose()
"""The module, or None; and which core runs, for people."""
if CORE is not None and (_ADDRESS := _isal_crc32()) is not None:
    CORE.use_crc32(_ADDRESS)
if CORE is None:
    _LOGGER.debug("%s", DESCRIPTION)
