"""Every scenario shows on a real Kafka what its file says: so sparklog, compared with the file, is compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import pytest

from benchmarks.kafka_broker import FETCH_TIMEOUT_S, Broker
from proof.parity.scenario import Scenario, load

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(FETCH_TIMEOUT_S + 300)]

SCENARIOS = [pytest.param(one, id=f"{path.stem}: {one.title}") for path, one in load()]


@pytest.fixture(scope="module")
def played(broker: Broker) -> Mapping[Scenario, Future[list[tuple[str, ...]]]]:
    from proof.parity.kafka_player import play_on_kafka  # needs confluent-kafka

    return play_on_kafka(broker, [one for _, one in load()])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kafka_shows_what_the_file_says(
    scenario: Scenario, played: Mapping[Scenario, Future[list[tuple[str, ...]]]], broker: Broker
) -> None:
    from proof.parity.kafka_player import play_on_kafka

    expected = [step.kafka for step in scenario.steps]
    first = played[scenario]
    if first.exception() is None and first.result() == expected:
        return
    # A broker that plays many at once beside other work may be too slow for a scenario's time-outs: once more, alone.
    print(f"at first: {first.exception() or first.result()}")
    assert play_on_kafka(broker, [scenario])[scenario].result() == expected
