"""Worlds in which log entries carry the bytes of small files (decision 0045), as on a store of another machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from sparklog.consumer.segment_fetcher import SegmentFetcher
from sparklog.log import appending

__all__ = ["carries", "carrying"]


def carries(seed: int) -> bool:
    """Do entries carry files in the world of a seed? In each third one."""
    return seed % 3 == 1


@contextmanager
def carrying(counts: Counter[str]) -> Iterator[None]:
    """Whatever the store, entries carry files. ``counts``: gets how many of them readers held."""
    hold = SegmentFetcher.hold

    def hold_and_count(self: Any, *given: Any) -> bool:
        is_held = hold(self, *given)
        counts["files held that the log carried"] += is_held
        return is_held

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(appending, "is_worth_while", return_value=True))
        stack.enter_context(mock.patch.object(SegmentFetcher, "hold", hold_and_count))
        yield
