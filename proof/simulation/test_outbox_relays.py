"""Relays that die at any call, on databases that are set back: each row once; planted faults are found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from proof.simulation.outbox_relays import play
from sparklog import Producer
from sparklog.outbox import relay as relay_module
from sparklog.outbox.memory import Memory
from sparklog.outbox.positions import key_of, position_topic
from sparklog.outbox.relay import Relay
from sparklog.outbox.settling import Sent
from tests.depth import by_depth

Plant = Callable[[], AbstractContextManager[object]]
_SEEDS = 60


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Relays tell of rows that come back."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_each_row_is_sent_once_and_in_order() -> None:
    met: Counter[str] = Counter()
    for seed in range(by_depth(gate=30, nightly=1_000)):
        played = play(seed)
        assert played.problems == [], f"seed {seed}"
        met += played.met
    assert {"death", "lost answer", "restored", "mixed up", "refused"} <= set(met), met


def rows_are_known_by_ids_alone() -> AbstractContextManager[object]:
    def tell(self: Sent, found: Any) -> Any:
        return list(found), []

    return mock.patch.object(Sent, "tell", tell)


def earlier_batches_are_forgotten() -> AbstractContextManager[object]:
    return mock.patch.object(Memory, "batch_of", return_value=None)


@contextmanager
def a_relay_begins_without_settling() -> Iterator[object]:
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(relay_module, "settle_newest"))
        yield stack.enter_context(earlier_batches_are_forgotten())


def tables_are_not_told_apart() -> AbstractContextManager[object]:
    return mock.patch.object(relay_module, "check_place")


def the_position_is_sent_before_the_transaction() -> AbstractContextManager[object]:
    commit = Relay._commit

    def early(relay: Any, opened: Any, rows: Any, sent: Any, counter: Any) -> Any:
        position, data = relay._position(opened, sent, counter)
        with Producer(relay._cluster) as producer:
            key = key_of(relay.name, position.number)
            producer.send(position_topic(relay.name), data, key)
        return commit(relay, opened, rows, sent, counter)

    return mock.patch.object(Relay, "_commit", early)


FIRST_FOUND: dict[Plant, int] = {
    rows_are_known_by_ids_alone: 10,
    earlier_batches_are_forgotten: 38,
    a_relay_begins_without_settling: 7,
    tables_are_not_told_apart: 8,
    the_position_is_sent_before_the_transaction: 0,
}
"""The first seed that finds each, as the worlds are today."""


@pytest.mark.parametrize("plant", FIRST_FOUND, ids=lambda plant: plant.__name__)
def test_planted_faults_are_found(plant: Plant) -> None:
    first = FIRST_FOUND[plant]
    with plant():
        found = next((seed for seed in range(first, first + _SEEDS) if play(seed).problems), None)
    assert found is not None
    print(f"found by seed {found}")
