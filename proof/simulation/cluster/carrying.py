"""Worlds in which log entries carry the bytes of small files (decision 0045), as on a store of another machine."""

from __future__ import annotations

from binascii import a2b_base64
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from sparklog.consumer import carried_ahead
from sparklog.consumer.segment_fetcher import SegmentFetcher
from sparklog.log import appending, carried_files
from sparklog.log.carried_files import CARRIED_INFO

__all__ = ["an_entry_carries_another_file", "carries", "carrying"]


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


def an_entry_carries_another_file() -> AbstractContextManager[object]:
    """Decision 0045: what an entry carries are the bytes of the file that was carried before, and nobody compares its
    size."""
    carrying, newest = carried_files.carrying, {"data": ""}

    def carry_another(wanted: Any, files: Any, **place: Any) -> Any:
        carries = carrying(wanted, files, **place)
        own = carries.info.get(CARRIED_INFO)
        if not own:
            return carries
        before, newest["data"] = newest["data"], next(iter(own.values()))
        return replace(carries, info={**carries.info, CARRIED_INFO: dict.fromkeys(own, before)}) if before else carries

    def whatever_its_size(entry: Any, path: str, *, size_bytes: int) -> bytes:
        return a2b_base64(entry.info[CARRIED_INFO][path])

    stack = ExitStack()
    stack.enter_context(mock.patch.object(appending, "carrying", carry_another))
    stack.enter_context(mock.patch.object(carried_ahead, "carried_file", whatever_its_size))
    return stack
