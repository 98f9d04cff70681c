"""What all tests of simulated worlds share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_of_killed_processes_is_left() -> Iterator[None]:
    """Clients that a world has killed are finalized before and after each world: within another one they would wait for
    locks that nobody gives back."""
    _collect()
    yield
    _collect()


def _collect() -> None:
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
