"""One workload on sparklog, through a gateway and on a real Kafka: no history shows what may not be."""

from __future__ import annotations

import pytest

from benchmarks.kafka_broker import FETCH_TIMEOUT_S, Broker
from proof.parity.player import Player
from proof.parity.sparklog_player import SparklogPlayer
from proof.parity.workload import run_workload
from sparklog.testing.history import History, check

SEED = 11


def play(player: Player) -> History:
    try:
        return run_workload(player, seed=SEED)
    finally:
        player.close()


def assert_clean(history: History, *, contiguous_transactions: bool) -> None:
    verdict = check(history, contiguous_transactions=contiguous_transactions)
    verdict.raise_if_any()
    verdict.require(clients=8, sends=300, acknowledged=120, committed=20, aborted=6, polled=400)
    verdict.require(assignments=5, seeks=1, offset_commits=10, required=200, final_records=300, inputs=100)


@pytest.mark.slow
def test_the_workload_on_sparklog_is_clean() -> None:
    assert_clean(play(SparklogPlayer()), contiguous_transactions=True)


@pytest.mark.slow
def test_the_workload_through_a_gateway_is_clean() -> None:
    pytest.importorskip("confluent_kafka")
    from proof.parity.gateway_player import GatewayPlayer, serve_cluster

    with serve_cluster() as served:
        assert_clean(play(GatewayPlayer(served)), contiguous_transactions=True)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(FETCH_TIMEOUT_S + 300)
def test_the_workload_on_kafka_is_clean(broker: Broker) -> None:
    from proof.parity.kafka_player import KafkaPlayer

    assert_clean(play(KafkaPlayer(broker)), contiguous_transactions=False)
