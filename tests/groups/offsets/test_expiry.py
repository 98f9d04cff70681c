"""Kafka's rule for when committed offsets are too old."""

from __future__ import annotations

import pytest

from sparklog.groups.offsets.changes import ExpireOffsets
from sparklog.groups.offsets.expiry import DEFAULT_RETENTION_MS, expired
from sparklog.groups.offsets.rows import Rows
from sparklog.model import TopicPartition
from tests.groups.offsets.support import P0, P1, a_row
from tests.support import DAY_MS, T0_MS

OTHER = TopicPartition("other", 0)
ROWS: Rows = {P0: a_row(at_ms=T0_MS), P1: a_row(None, at_ms=T0_MS + DAY_MS), OTHER: a_row(at_ms=T0_MS)}
WEEK_MS = 7 * DAY_MS


def gone(
    age_ms: int,
    *,
    empty_since_ms: int | None = None,
    subscribed_topics: frozenset[str] | None = None,
    has_generations: bool = True,
) -> set[TopicPartition]:
    found = expired(
        ROWS,
        now_ms=T0_MS + age_ms,
        empty_since_ms=empty_since_ms,
        subscribed_topics=subscribed_topics,
        has_generations=has_generations,
    )
    assert ExpireOffsets(seen=found).apply(ROWS, 0) == {p: row for p, row in ROWS.items() if p not in found}
    return set(found)


def test_offsets_are_kept_for_a_week() -> None:
    """Kafka's ``offsets.retention.minutes`` is 10080."""
    assert DEFAULT_RETENTION_MS == WEEK_MS == 10_080 * 60_000


@pytest.mark.parametrize(
    ("age_ms", "partitions"),
    [(WEEK_MS - 1, set()), (WEEK_MS, {P0, OTHER}), (WEEK_MS + DAY_MS - 1, {P0, OTHER}), (WEEK_MS + DAY_MS, set(ROWS))],
)
def test_a_group_without_members_ever_counts_from_the_commit(age_ms: int, partitions: set[TopicPartition]) -> None:
    assert gone(age_ms, has_generations=False) == partitions


@pytest.mark.parametrize(
    ("empty_since_ms", "age_ms", "partitions"),
    [
        (T0_MS + 3 * DAY_MS, WEEK_MS + DAY_MS, set()),
        (T0_MS + 3 * DAY_MS, WEEK_MS + 3 * DAY_MS - 1, set()),
        (T0_MS + 3 * DAY_MS, WEEK_MS + 3 * DAY_MS, set(ROWS)),
        (T0_MS - 30 * DAY_MS, WEEK_MS - 1, set()),  # committed by an administrator since
        (T0_MS - 30 * DAY_MS, WEEK_MS, {P0, OTHER}),
    ],
)
def test_an_empty_group_counts_from_when_it_became_empty_or_from_a_later_commit(
    empty_since_ms: int, age_ms: int, partitions: set[TopicPartition]
) -> None:
    assert gone(age_ms, empty_since_ms=empty_since_ms) == partitions


def test_a_group_with_members_forgets_only_topics_that_nobody_subscribes_to() -> None:
    assert gone(100 * DAY_MS, subscribed_topics=frozenset({"t"})) == {OTHER}
    assert gone(WEEK_MS - 1, subscribed_topics=frozenset()) == set()


def test_a_group_between_two_assignments_forgets_nothing() -> None:
    assert gone(100 * DAY_MS) == set()
