"""What holds for every test of the consumer."""

from __future__ import annotations

import math

import pytest

from sparklog.consumer import fetcher_thread


@pytest.fixture(autouse=True)
def fetchers_that_are_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fetcher takes the application for absent while a busy machine keeps a test from its next poll.

    One that did would rest, and a test that waits for what it reads ahead would wait in vain.
    """
    monkeypatch.setattr(fetcher_thread, "_ABSENT_MS", math.inf)
