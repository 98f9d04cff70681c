"""Asking where a group stands in partitions that the application assigned: again and again, but not too often."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

import pytest

from sparklog.config import ConsumerConfig
from sparklog.consumer.committed_positions import CommittedPositions
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.subscription import HELD
from sparklog.errors import SparklogError, StoreUnavailableError, UnstableOffsetCommitError
from sparklog.groups.offsets.rows import Rows
from sparklog.model import TopicPartition
from sparklog.testing import ManualClock
from tests.consumer.support import tp


class Questions:
    """What was asked of the group's offset table; a test answers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[Future[Rows]] = []
        fetch_state = FetchState(self.clock)
        fetch_state.assignment.replace({tp(): HELD})
        self.restoring = CommittedPositions(fetch_state, self.clock, ConsumerConfig.parse({}), self.fetch)
        self.restoring.ask()

    def fetch(self, _: Collection[TopicPartition]) -> Future[Rows]:
        self.asked.append(Future())
        return self.asked[-1]

    def rests_ms(self) -> float:
        """How long it is until it is asked again."""
        count = len(self.asked)
        for waited_ms in range(0, 5_001, 50):
            assert self.restoring.answer() is None
            if len(self.asked) > count:
                return waited_ms
            self.clock.advance(50)
        raise AssertionError("it isn't asked again")


@pytest.mark.parametrize("error", [UnstableOffsetCommitError("a transaction"), StoreUnavailableError("away")])
def test_rows_that_could_not_be_read_are_asked_for_again_with_a_growing_back_off(error: SparklogError):
    questions = Questions()
    rests = []
    for _ in range(6):
        questions.asked[-1].set_exception(error)
        if isinstance(error, UnstableOffsetCommitError):
            assert questions.restoring.answer() is None
        else:
            with pytest.raises(StoreUnavailableError):
                questions.restoring.answer()
        rests.append(questions.rests_ms())
    assert rests == [100, 200, 400, 800, 1_000, 1_000]
    questions.asked[-1].set_result({})
    assert questions.restoring.answer() == {}


def test_an_answer_stays_until_it_was_taken_up():
    """✗ Ctrl-C comes between the answer and its use: nobody asks again, and the partitions never begin."""
    questions = Questions()
    questions.asked[0].set_result({})
    assert questions.restoring.answer() == questions.restoring.answer() == {}
    questions.restoring.forget()
    assert questions.restoring.answer() is None
    assert len(questions.asked) == 1
