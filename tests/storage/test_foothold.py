"""Folders that are held open for footholds, and how a store lets go of its own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.storage.foothold import Foothold, HeldFolder, hold, release, use


@pytest.fixture
def collected_soon() -> Iterator[Callable[[], None]]:
    """Once it is called, Python collects garbage when it has made some twenty objects; not before."""
    thresholds = gc.get_threshold()
    gc.disable()

    def begin() -> None:
        gc.set_threshold(gc.get_count()[0] + 20, *thresholds[1:])
        gc.enable()

    yield begin
    gc.set_threshold(*thresholds)
    gc.enable()


def test_a_store_lets_go_while_footholds_are_collected(tmp_path: Path, collected_soon: Callable[[], None]) -> None:
    """✗ RuntimeError: OrderedDict mutated during iteration, from the close of another client."""
    store, other = object(), object()
    mine = Foothold()
    hold(mine, HeldFolder(str(tmp_path), store))
    for _ in range(50):
        garbage = Foothold()
        hold(garbage, HeldFolder(str(tmp_path), other))
        garbage.known = [garbage]  # type: ignore[assignment]  # a cycle, as that of an error with its trace
    del garbage
    collected_soon()
    release(store)
    assert use(mine) is None
