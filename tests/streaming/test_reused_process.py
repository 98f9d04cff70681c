"""Objects of a process that Spark hands on are exempted from collections, once; those of other processes never."""

import gc
from itertools import count

import pytest

from sparklog.streaming import reused_process
from sparklog.streaming.reused_process import work_begins


@pytest.fixture
def frozen(monkeypatch):
    """How many more objects are exempted than now; of those that are, some may go meanwhile."""
    monkeypatch.setattr(reused_process, "_CALLS", count())
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    before = gc.get_freeze_count()
    return lambda: gc.get_freeze_count() - before


def test_objects_are_exempted_once_when_work_begins_again(frozen, monkeypatch):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    work_begins()
    assert frozen() <= 0  # what is imported on first use isn't there yet, and nobody has collected
    work_begins()
    first = frozen()
    assert first > 1_000
    later: list[list[int]] = [[] for _ in range(1_000)]
    work_begins()
    assert frozen() <= first
    assert all(map(gc.is_tracked, later))


def test_a_process_that_ends_with_its_work_or_is_the_users_is_left_alone(frozen):
    for _ in range(3):
        work_begins()
    assert frozen() <= 0
