"""The rows of the overview: topics and groups filtered, sorted and cut to a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sparklog.observe import ClusterFigures, GroupFigures, TopicFigures
from sparklog.observe.rates import TopicRate, topic_rates
from sparklog.prices import Requests

__all__ = [
    "GroupRow",
    "Maintenance",
    "Page",
    "RequestRow",
    "TopicRow",
    "group_rows",
    "maintenance",
    "page_of",
    "page_of_groups",
    "page_of_topics",
    "request_rows",
    "topic_rows",
]

PAGE_ROWS = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic in short."""

    figures: TopicFigures
    rate: TopicRate
    oldest_ms: int | None
    due: tuple[str, ...]
    """The steps of maintenance that have something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in short."""

    figures: GroupFigures
    topics: tuple[str, ...]
    lag: int
    lag_ms: int | None
    """The greatest of its partitions' of which it is known."""
    has_unknown_lag: bool
    """Is there a partition with unread records whose waiting time is unknown?"""
    state: str
    """``active`` with members, ``empty`` without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows of many."""

    rows: Sequence[T]
    number: int
    """From 1."""
    page_count: int
    """1 or more."""
    row_count: int
    """The rows of all pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The work that maintenance would do now."""

    due: tuple[tuple[str, int], ...]
    """Topics with something to do, by step."""
    merge_file_count: int
    merge_bytes: int
    small_file_count: int
    unsequenced_count: int
    errors: tuple[tuple[str, str], ...]
    """Topics in which nothing can be planned, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """Requests a day, and what they cost."""

    name: str
    requests: Requests
    dollars: float


_TOPIC_KEYS: Mapping[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.figures.name,
    "rate": lambda row: (-(row.rate.records_per_s or 0), row.figures.name),
    "records": lambda row: (-row.rate.record_count, row.figures.name),
    "bytes": lambda row: (-(row.rate.size_bytes or 0), row.figures.name),
    "files": lambda row: (-(row.rate.file_count or 0), row.figures.name),
    "commit": lambda row: (-(row.figures.commit_ms or 0), row.figures.name),
}
_GROUP_KEYS: Mapping[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.figures.group_id,
    "lag": lambda row: (-row.lag, row.figures.group_id),
    "wait": lambda row: (-(row.lag_ms or 0), row.figures.group_id),
    "members": lambda row: (-row.figures.member_count, row.figures.group_id),
}


def topic_rows(before: ClusterFigures | None, now: ClusterFigures) -> list[TopicRow]:
    """Every topic, by name."""
    rates = {one.name: one for one in topic_rates(before, now)}
    return [
        TopicRow(
            figures=one,
            rate=rates[one.name],
            oldest_ms=None if one.totals is None else one.totals.oldest_ms,
            due=tuple(step for step in one.due_ms if one.is_due(step, now_ms=now.now_ms)),
        )
        for one in now.topics
    ]


def group_rows(now: ClusterFigures) -> list[GroupRow]:
    """Every group, by name."""
    return [
        GroupRow(
            figures=one,
            topics=tuple(dict.fromkeys(part.partition.topic for part in one.partitions)),
            lag=sum(part.lag for part in one.partitions),
            lag_ms=max((part.lag_ms for part in one.partitions if part.lag_ms is not None), default=None),
            has_unknown_lag=any(part.lag_ms is None for part in one.partitions),
            state="active" if one.member_count else "empty",
        )
        for one in now.groups
    ]


def maintenance(rows: Iterable[TopicRow]) -> Maintenance:
    """The work that maintenance would do in these topics."""
    rows = list(rows)
    steps = dict.fromkeys(step for row in rows for step in row.due)
    return Maintenance(
        due=tuple((step, sum(step in row.due for row in rows)) for step in steps),
        merge_file_count=sum(row.figures.merge_file_count for row in rows),
        merge_bytes=sum(row.figures.merge_bytes for row in rows),
        small_file_count=sum(part.small_file_count for row in rows for part in row.figures.partitions),
        unsequenced_count=sum(row.figures.unsequenced_count for row in rows),
        errors=tuple(
            (row.figures.name, row.figures.maintenance_error) for row in rows if row.figures.maintenance_error
        ),
    )


def request_rows(requests: Mapping[str, Requests]) -> list[RequestRow]:
    """A row for each use, and their sum; none where there is none."""
    total = Requests()
    for one in requests.values():
        total = total.plus(one)
    named = {**requests, "all of these": total} if requests else {}
    return [RequestRow(name=name, requests=one, dollars=one.dollars()) for name, one in named.items()]


def page_of_topics(rows: Sequence[TopicRow], *, text: str, sort: str, number: int) -> Page[TopicRow]:
    """The topics whose names hold a text, sorted; an unknown order is that of names."""
    kept = [row for row in rows if text.lower() in row.figures.name.lower()]
    return page_of(sorted(kept, key=_TOPIC_KEYS.get(sort, _TOPIC_KEYS["name"])), number)


def page_of_groups(rows: Sequence[GroupRow], *, text: str, sort: str, number: int) -> Page[GroupRow]:
    """The groups whose names hold a text, sorted; an unknown order is that of lag, most first."""
    kept = [row for row in rows if text.lower() in row.figures.group_id.lower()]
    return page_of(sorted(kept, key=_GROUP_KEYS.get(sort, _GROUP_KEYS["lag"])), number)


def page_of(rows: Sequence[T], number: int) -> Page[T]:
    """A page of rows; a number beyond the last page is the last."""
    page_count = max(1, -(-len(rows) // PAGE_ROWS))
    number = min(max(1, number), page_count)
    return Page(
        rows=rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS],
        number=number,
        page_count=page_count,
        row_count=len(rows),
    )
