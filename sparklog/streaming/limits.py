"""Limits of a micro-batch: where each topic is cut, so that no commit is split, or only as the query allows.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.log.data.segments import Segment, overlapping

__all__ = ["Backlog", "Cut", "choose_cuts", "cut_between_files", "record_count"]


@dataclass(frozen=True, slots=True)
class Cut:
    """An end of a micro-batch in one topic: between two commits, unless the query lets them be split."""

    delta_version: int
    """The version of the newest commit that lies wholly before it; -1 where that isn't known."""
    ends: Mapping[int, int]
    """The first offset behind it, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The records of a topic that are still to be read."""

    offsets: Mapping[int, int]
    """The next to read, by partition."""
    cuts: Sequence[Cut]
    """In the order of the log; the last one is the end of it. Not empty."""
    delta_version: int = -1
    """The version of the newest commit that lies wholly before ``offsets``; -1 where that isn't known."""

    @property
    def size(self) -> int:
        """The number of offsets to read; gaps count, so there may be fewer records."""
        return record_count(self.offsets, self.cuts[-1].ends)


def record_count(starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """The number of offsets between two cuts."""
    return sum(max(0, end - starts.get(partition, end)) for partition, end in ends.items())


def choose_cuts(
    backlogs: Mapping[str, Backlog], max_offsets: int | None, *, splits_large_commits: bool = False
) -> dict[str, Cut]:
    """Choose where to end in each topic, so that about ``max_offsets`` are read of all of them.

    The limit is shared in proportion to what there is to read. Of each topic that has something at least one commit is
    read, however large it is, so that none waits for ever: then it may be more. If commits may be split, one that
    is larger than its topic's share is cut, and at least one record is read.
    """
    total = sum(backlog.size for backlog in backlogs.values())
    if max_offsets is None or total <= max_offsets:
        return {topic: backlog.cuts[-1] for topic, backlog in backlogs.items()}
    chosen = {}
    for topic, backlog in backlogs.items():
        budget = max_offsets * backlog.size // total
        cut = _last_within(backlog, budget)
        chosen[topic] = _cut_within(backlog, cut, max(1, budget)) if splits_large_commits else cut
    return chosen


def _last_within(backlog: Backlog, budget: int) -> Cut:
    chosen: Cut | None = None
    for cut in backlog.cuts:
        count = record_count(backlog.offsets, cut.ends)
        if count == 0:
            continue
        if chosen is not None and count > budget:
            break
        chosen = cut
        if count >= budget:
            break
    return chosen or backlog.cuts[-1]


def _cut_within(backlog: Backlog, end: Cut, budget: int) -> Cut:
    """A cut before ``end`` with ``budget`` offsets, wherever in a commit that is; ``end`` where there aren't more.

    Each partition has its share in proportion to what it has. Source: Spark ``KafkaMicroBatchStream.rateLimit``; the
    shares are rounded so that their sum is the budget, though.
    """
    total = record_count(backlog.offsets, end.ends)
    if total <= budget:
        return end
    ends, before = {}, 0
    for partition, limit in end.ends.items():
        size = max(0, limit - backlog.offsets.get(partition, limit))
        share = budget * (before + size) // total - budget * before // total
        ends[partition] = limit - size + share
        before += size
    return Cut(backlog.delta_version, ends)


def cut_between_files(
    offsets: Mapping[int, int], end: Cut, segments: Mapping[int, Iterable[Segment]], budget: int
) -> Cut:
    """A cut before ``end``, for records whose commit no log names any more.

    Each partition has its share of ``budget`` in proportion to what it has, and ends with a file.

    Args:
        segments: those with records from ``offsets`` on, by first offset.
    """
    total = max(1, record_count(offsets, end.ends))
    ends: dict[int, int] = {}
    for partition, limit in end.ends.items():
        at = start = offsets.get(partition, limit)
        share = budget * (limit - start) // total
        for together in overlapping(segments.get(partition, ())):
            behind = min(limit, max(segment.last_offset for segment in together) + 1)
            if behind - start > share and at > start:
                break
            at = max(at, behind)
            if at - start >= share or at >= limit:
                break
        else:
            at = limit
        ends[partition] = at
    if ends == dict(end.ends):
        return end
    return Cut(-1, ends)
