"""How much a micro-batch reads: where each topic is cut, so that no commit is split. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.log.segments import Segment, overlapping

__all__ = ["Backlog", "Cut", "choose_cuts", "cut_between_files", "record_count"]


@dataclass(frozen=True, slots=True)
class Cut:
    """A place between two commits of a topic."""

    delta_version: int
    """Of the commit before it; -1 where it isn't known to be between commits."""
    ends: Mapping[int, int]
    """The first offset behind it, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What there is to read of a topic."""

    offsets: Mapping[int, int]
    """The next to read, by partition."""
    cuts: Sequence[Cut]
    """In the order of the log; the last one is the end of it. Not empty."""

    @property
    def size(self) -> int:
        return record_count(self.offsets, self.cuts[-1].ends)


def record_count(starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """How many offsets lie between two places."""
    return sum(max(0, end - starts.get(partition, end)) for partition, end in ends.items())


def choose_cuts(backlogs: Mapping[str, Backlog], max_offsets: int | None) -> dict[str, Cut]:
    """Where to end in each topic, so that about ``max_offsets`` are read of all of them.

    The limit is shared in proportion to what there is to read. Of each topic that has something at least one commit is
    read, however large it is, so that none waits for ever: then it may be more.
    """
    total = sum(backlog.size for backlog in backlogs.values())
    if max_offsets is None or total <= max_offsets:
        return {topic: backlog.cuts[-1] for topic, backlog in backlogs.items()}
    return {topic: _last_within(backlog, max_offsets * backlog.size // total) for topic, backlog in backlogs.items()}


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


def cut_between_files(
    offsets: Mapping[int, int], end: Cut, segments: Mapping[int, Iterable[Segment]], budget: int
) -> Cut:
    """A cut before ``end``, for records of which no log tells any more which commit they came with.

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
