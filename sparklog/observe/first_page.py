"""The topics that a first look loads before all others: those that an overview shows without being asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sparklog.observe.figures import ClusterFigures

__all__ = ["FIRST_ROWS", "evenly_mixed", "topics_to_load_first"]

T = TypeVar("T")

FIRST_ROWS = 100
"""The rows of an overview's first page: topics by name, and the groups with the most lag."""
_MOST_TOPICS = 200
"""Loading one reads all entries since its checkpoint: what nobody waits for comes later."""


def topics_to_load_first(part: ClusterFigures) -> list[str]:
    """The topics of which a first page lacks something that their newest commits don't state: what maintenance would do
    in the first ones, and since when records have been waiting that the groups with the most lag read next.

    Args:
        part: by newest commits.
    """
    shown = [topic.name for topic in part.topics[:FIRST_ROWS] if not topic.has_files]
    groups = sorted(
        part.groups, key=lambda group: (-sum(partition.lag for partition in group.partitions), group.group_id)
    )
    waiting = [
        partition.partition.topic
        for group in groups[:FIRST_ROWS]
        for partition in group.partitions
        if partition.lag_ms is None
    ]
    return [*dict.fromkeys([*shown, *waiting])][:_MOST_TOPICS]


def evenly_mixed(*lists: Sequence[T]) -> list[tuple[int, T]]:
    """The elements of several lists, each with its list's number; those of a list in its order, and spread over all."""
    ranked = [
        (place / len(some), number, item_of_list)
        for number, some in enumerate(lists)
        for place, item_of_list in enumerate(some)
    ]
    return [(number, item_of_list) for _, number, item_of_list in sorted(ranked, key=lambda item: item[:2])]
