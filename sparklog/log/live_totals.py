"""The running totals of a topic's live files, which each commit of ours carries (rule L16, totals). Pure.

With them the newest commit alone states how much a topic holds: a reader of a thousand topics needn't read all of
their commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sparklog.delta.actions import Action, AddFile, RemoveFile
from sparklog.log.data.segments import Segment, SegmentIndex, is_sequenced, segment_of_add

__all__ = ["EMPTY", "TOTALS_INFO", "LiveTotals", "totals_after", "totals_of", "totals_of_info"]

TOTALS_INFO = "totals"
"""In ``commitInfo.sparklog``: the totals after the entry; absent where its writer doesn't know them."""


class LiveTotals(NamedTuple):
    """The totals of a topic's live files: of those with offsets, which readers see."""

    file_count: int
    size_bytes: int
    record_count: int
    oldest_ms: int | None
    """The smallest timestamp of a record, ms since the epoch; None where no file states one."""

    def to_info(self) -> list[int | None]:
        """The totals as a commit carries them."""
        return [*self]

    def __str__(self) -> str:
        oldest = "no time" if self.oldest_ms is None else f"{self.oldest_ms} ms the oldest"
        return f"{self.file_count} files, {self.size_bytes} bytes, {self.record_count} records, {oldest}"


EMPTY = LiveTotals(0, 0, 0, None)
"""The totals of a new topic."""


def totals_of(segments: Iterable[Segment]) -> LiveTotals:
    """The totals of live files; those that no offset was given to don't count."""
    return _plus(EMPTY, [one for one in segments if is_sequenced(one)])


def totals_of_info(totals: Any) -> LiveTotals | None:
    """The totals that a commit carries; None where it carries none, or a later version means something else by them."""
    if not isinstance(totals, list) or len(totals) != len(EMPTY):
        return None
    count, size, records, oldest = totals
    if type(count) is type(size) is type(records) is int and (oldest is None or type(oldest) is int):
        return LiveTotals(count, size, records, oldest)
    return None


def totals_after(
    before: LiveTotals | None,
    index: SegmentIndex | None,
    actions: Sequence[Action],
    new_files: LiveTotals | None = None,
) -> LiveTotals | None:
    """The totals after a commit of ours; None where they aren't known.

    Args:
        before: of the version that the commit follows; None: not known, then they are counted anew.
        index: the live files of that version; None where only the newest commit is known.
        actions: of the commit. One that removes files knows the live ones; without, it adds new ones alone.
        new_files: the totals of what the actions do, if all of that is to add files that aren't live; None: see there.
    """
    if before is not None and new_files is not None:
        return _together(before, new_files)
    if before is None:
        if index is None:
            return None
        before = totals_of(index.by_path.values())
    adds = [action for action in actions if isinstance(action, AddFile)]
    removed = {action.path for action in actions if isinstance(action, RemoveFile)}
    if not adds and not removed:
        return before
    added = [segment for segment in (segment_of_add(add, -1) for add in adds) if is_sequenced(segment)]
    if not all(segment.has_stats for segment in added):  # another engine's: what is in it, whoever loads the topic sees
        return None
    if index is None:
        return None if removed else _plus(before, added)
    replaced = removed.union(add.path for add in adds)
    gone = [one for path in replaced if (one := index.by_path.get(path)) is not None and is_sequenced(one)]
    return _plus(_minus(before, gone, index) if gone else before, added)


def _together(totals: LiveTotals, others: LiveTotals) -> LiveTotals:
    count, size, records, oldest = totals
    other_count, other_size, other_records, other_oldest = others
    if oldest is None or (other_oldest is not None and other_oldest < oldest):
        oldest = other_oldest
    return LiveTotals(count + other_count, size + other_size, records + other_records, oldest)


def _plus(totals: LiveTotals, added: Iterable[Segment]) -> LiveTotals:
    count, size, records, oldest = totals
    for one in added:
        count += 1
        size += one.size_bytes
        records += one.record_count or 0
        time = one.min_timestamp_ms
        if time is not None and (oldest is None or time < oldest):
            oldest = time
    return LiveTotals(count, size, records, oldest)


def _minus(totals: LiveTotals, gone: Sequence[Segment], index: SegmentIndex) -> LiveTotals:
    oldest_ms = totals.oldest_ms
    if any(one.min_timestamp_ms == oldest_ms for one in gone):
        paths = {one.path for one in gone}
        oldest_ms = totals_of(one for path, one in index.by_path.items() if path not in paths).oldest_ms
    return LiveTotals(
        totals.file_count - len(gone),
        totals.size_bytes - sum(one.size_bytes for one in gone),
        totals.record_count - sum(one.record_count or 0 for one in gone),
        oldest_ms,
    )
