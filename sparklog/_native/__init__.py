"""The compiled core, where there is one: ``core.pyx`` says what it does. Without it the same is done in pure Python.

The choice is made once, at import: ``SPARKLOG_PURE=1`` in the environment asks for pure Python. A core that was
compiled from another source than lies beside it isn't used.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import ModuleType

__all__ = ["CORE", "DESCRIPTION"]

_LOGGER = logging.getLogger("sparklog")


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


CORE, DESCRIPTION = _choose()
"""The module, or None; and which core runs, for people."""
if CORE is None:
    _LOGGER.debug("%s", DESCRIPTION)
