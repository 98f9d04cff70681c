"""Folders that a store knows, for many threads, where there are more than it remembers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.storage import _known_folders
from sparklog.storage._known_folders import KnownFolders

THREADS = 8


@pytest.fixture(autouse=True)
def threads_that_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_note_many_folders_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """✗ An exporter of 100,000 transactional ids: "dictionary changed size during iteration"."""
    monkeypatch.setattr(_known_folders, "_MOST_KNOWN", 16)
    known = KnownFolders(str(tmp_path), "shown")

    def note(thread: int) -> None:
        for number in range(2_000):
            known.note(f"transactions/id-{thread}-{number}")

    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(note, number) for number in range(THREADS)]:
            done.result()
    assert 0 < len(known._known) <= 16 + THREADS


def test_the_oldest_folders_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_known_folders, "_MOST_KNOWN", 16)
    known = KnownFolders(str(tmp_path), "shown")
    for number in range(40):
        known.note(f"transactions/id-{number}")
    assert len(known._known) <= 16
    assert "transactions/id-39" in known._known
    assert "transactions/id-0" not in known._known
