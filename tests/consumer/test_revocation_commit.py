"""The automatic commit before partitions are given up: how long it is waited for, and what is told of it."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

import pytest

from sparklog.config import ResetPolicy
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.revocation_commit import RevocationCommit
from sparklog.errors import CommitFailedError
from sparklog.groups.offsets.rows import Rows
from sparklog.model import TopicPartition
from sparklog.testing import ManualClock
from tests.consumer.support import tp

TIMEOUT_MS = 50.0


class Commits:
    """What was begun to be committed; nothing of it is done by itself."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fetch_state = FetchState(self.clock)
        self.fetch_state.assignment.replace({tp(number): ResetPolicy("earliest") for number in (0, 1, 2)})
        self.begun: list[tuple[list[TopicPartition], Future[Rows]]] = []
        self.commit = RevocationCommit(self.fetch_state, self.clock, self.begin, timeout_ms=TIMEOUT_MS)

    def begin(self, partitions: Collection[TopicPartition]) -> Future[Rows]:
        self.begun.append((sorted(partitions), Future()))
        return self.begun[-1][1]

    def is_over(self, *numbers: int) -> bool:
        return self.commit.is_over([tp(number) for number in numbers])

    @property
    def leaving(self) -> list[TopicPartition]:
        return [state.partition for state in self.fetch_state.assignment if state.is_leaving]


def test_partitions_are_given_up_once_their_commit_is_done():
    commits = Commits()
    assert not commits.is_over(0)
    assert not commits.is_over(0)
    ((partitions, future),) = commits.begun
    assert partitions == commits.leaving == [tp(0)]
    future.set_result({})
    assert commits.is_over(0)


def test_partitions_that_must_go_too_are_committed_as_well():
    commits = Commits()
    assert not commits.is_over(0)
    commits.begun[0][1].set_result({})
    assert not commits.is_over(0, 1)
    assert [partitions for partitions, _ in commits.begun] == [[tp(0)], [tp(0), tp(1)]]
    assert commits.leaving == [tp(0), tp(1)]


def test_a_commit_that_takes_too_long_is_not_waited_for_nor_told_as_failed(caplog: pytest.LogCaptureFixture):
    """✗ The log says that a commit failed which lands a moment later."""
    commits = Commits()
    assert not commits.is_over(0)
    commits.clock.advance(TIMEOUT_MS - 1)
    assert not commits.is_over(0)
    commits.clock.advance(1)
    assert commits.is_over(0)
    assert "may still be carried out" in caplog.text
    assert "failed" not in caplog.text


def test_a_commit_that_failed_is_told_so_and_the_partitions_are_given_up(caplog: pytest.LogCaptureFixture):
    commits = Commits()
    assert not commits.is_over(0)
    commits.begun[0][1].set_exception(CommitFailedError("taken"))
    assert commits.is_over(0)
    assert "failed: taken" in caplog.text


def test_records_fetched_ahead_of_partitions_that_go_are_dropped_and_positions_stay():
    commits = Commits()
    assignment = commits.fetch_state.assignment
    state = assignment.get(tp(0))
    assert state is not None
    assignment.seek(state, 7)
    epoch, state.fetch_offset = state.epoch, 9
    assert not commits.is_over(0)
    assert (state.position, state.fetch_offset) == (7, 7)
    assert state.epoch != epoch  # what is under way for it is thrown away
