"""Workers, replays, movers and the inbox in simulated time; planted faults are found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from proof.simulation.workers.play import play
from sparklog.compaction import retention
from sparklog.processing import delayed_topic, inbox, message_ids
from sparklog.processing.commits import Commits
from sparklog.processing.replay_position import ReplayPosition
from sparklog.processing.work import Station
from sparklog.producer.delayed_records import Waiting, parse_delayed
from tests.depth import by_depth

Plant = Callable[[], AbstractContextManager[object]]
_SEEDS = 40


pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""Processes that are killed close nothing."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Workers tell of what befalls them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(3_600)
def test_each_input_has_its_effect_once() -> None:
    met: Counter[str] = Counter()
    seeds = by_depth(gate=3, nightly=200)
    for seed in range(seeds):
        played = play(seed)
        assert played.problems == [], f"seed {seed}"
        met += played.met
    expected = {"replayed", "maintenances"}
    if seeds > 100:
        expected |= {"crashes", "deaths in a handler", "kills", "lost answers", "naps", "stops", "topics made anew"}
    assert expected <= set(met), met


def the_replay_position_forgets_what_lies_beyond_a_poll() -> AbstractContextManager[object]:
    after = ReplayPosition.after

    def forgetful(self: Any, replayed: Any, passed: Any, **options: Any) -> Any:
        offsets = list(passed)
        found = after(self, replayed, offsets, **options)
        return ReplayPosition(found.offset, tuple(each for each in found.ranges if each[0] <= offsets[-1]))

    return mock.patch.object(ReplayPosition, "after", forgetful)


def retention_drops_what_waits() -> AbstractContextManager[object]:
    return mock.patch.object(retention, "is_delay_table", return_value=False)


def delayed_records_go_to_any_topic_of_the_name() -> AbstractContextManager[object]:
    def parse(*given: Any) -> Any:
        found = parse_delayed(*given)
        return replace(found, topic_id=None) if isinstance(found, Waiting) else found

    return mock.patch.object(delayed_topic, "parse_delayed", parse)


def refused_outputs_are_skipped() -> AbstractContextManager[object]:
    return mock.patch.object(Station, "refuse", return_value=())


def the_inbox_takes_two_messages_for_one() -> AbstractContextManager[object]:
    return mock.patch.object(inbox, "message_id", lambda record: message_ids.message_id(record).lower().strip())


def offsets_are_committed_before_the_outputs() -> AbstractContextManager[object]:
    fill = Commits._fill_transaction

    def early(self: Any, taken: Any) -> Any:
        self._consumer.commit(taken.committable)
        return fill(self, taken)

    return mock.patch.object(Commits, "_fill_transaction", early)


FIRST_FOUND: dict[Plant, int] = {
    the_replay_position_forgets_what_lies_beyond_a_poll: 1,
    retention_drops_what_waits: 1,
    delayed_records_go_to_any_topic_of_the_name: 0,
    refused_outputs_are_skipped: 0,
    the_inbox_takes_two_messages_for_one: 0,
    offsets_are_committed_before_the_outputs: 0,
}
"""The first seed that finds each, as the worlds are today."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", FIRST_FOUND, ids=lambda plant: plant.__name__)
def test_planted_faults_are_found(plant: Plant) -> None:
    first = FIRST_FOUND[plant]
    with plant():
        found = next((seed for seed in range(first, first + _SEEDS) if play(seed).problems), None)
    assert found is not None
    print(f"found by seed {found}")
