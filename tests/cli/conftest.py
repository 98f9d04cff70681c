"""Commands run in the tests' own process, whose malloc they leave as it is."""

from __future__ import annotations

import pytest

from sparklog import freed_memory
from sparklog.freed_memory import Keeping


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Keeping]:
    """What commands wanted to keep of the memory that they free."""
    wanted: list[Keeping] = []
    monkeypatch.setattr(freed_memory, "share_freed_memory", wanted.append)
    return wanted
