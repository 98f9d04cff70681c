"""Numbered batches of clients that move between gateways: kept once and in order, and planted faults are found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import pytest

from proof.simulation.numbered_producers import play
from sparklog.log import append, producer_batches
from sparklog.log.append import TopicWriter
from sparklog.log.producer_batches import ProducerBatches, Verdict
from tests.depth import by_depth

Plant = Callable[[], AbstractContextManager[object]]
_SEEDS = 400


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Gateways that die tell of it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(900)
def test_batches_are_stored_once_and_in_order() -> None:
    met: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(by_depth(gate=20, nightly=1_000)):
        played = play(seed)
        assert played.problems == [], f"seed {seed}"
        met += played.met
        acknowledged += len(played.acknowledged)
    assert acknowledged > 400
    assert {"crashes", "moves", "lost answers", "unknown", "sent together"} <= set(met), met


def test_a_seed_gives_the_same_each_time() -> None:
    assert play(3).acknowledged == play(3).acknowledged


def nothing_is_judged() -> AbstractContextManager[object]:
    return mock.patch.object(ProducerBatches, "judge", lambda self, batches, **_: [Verdict() for _ in batches])


def nothing_is_loaded() -> AbstractContextManager[object]:
    def load(state: Any, batches: ProducerBatches, **_: object) -> Any:
        batches.is_complete = True
        return state

    return mock.patch.object(append, "load_batches", load)


def refusals_need_no_look() -> AbstractContextManager[object]:
    learn = TopicWriter._learn_batches

    def learn_once(self: Any, *given: Any) -> None:
        if not self._batches.is_complete:
            learn(self, *given)

    return mock.patch.object(TopicWriter, "_learn_batches", learn_once)


def nobody_must_begin_at_0() -> AbstractContextManager[object]:
    return mock.patch.object(ProducerBatches, "knows_all", return_value=lambda partition: False)


@contextmanager
def the_first_is_not_noted() -> Iterator[None]:
    """And of an unknown producer any batch is taken: either rule is enough here."""
    with nobody_must_begin_at_0(), mock.patch.object(ProducerBatches, "note_seen", return_value=None):
        yield


def one_batch_is_known() -> AbstractContextManager[object]:
    return mock.patch.object(producer_batches, "_KEPT", 1)


FIRST_FOUND: dict[Plant, int] = {
    nothing_is_judged: 0,
    nothing_is_loaded: 16,
    refusals_need_no_look: 2,
    the_first_is_not_noted: 0,
    one_batch_is_known: 6,
}
"""The first seed that finds each, as the worlds are today."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", FIRST_FOUND, ids=lambda plant: plant.__name__)
def test_planted_faults_are_found(plant: Plant) -> None:
    first = FIRST_FOUND[plant]
    with plant():
        found = next((seed for seed in range(first, first + _SEEDS) if play(seed).problems), None)
    assert found is not None
    print(f"found by seed {found}")
