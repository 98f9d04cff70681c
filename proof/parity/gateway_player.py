"""Scenarios on sparklog through a gateway, by the client that plays them on a real Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sparklog.gateway
from benchmarks.kafka_broker import Broker
from proof.parity.kafka_player import KafkaPlayer, Played, play_at_once
from proof.parity.scenario import Scenario
from proof.parity.sparklog_player import maintain_now
from sparklog.log import Cluster, open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import Call, Fault, FaultKind, FaultyStore

__all__ = ["GatewayPlayer", "ServedCluster", "play_through_gateway", "serve_cluster"]


def play_through_gateway(scenarios: Collection[Scenario]) -> dict[Scenario, Played]:
    """Play scenarios through one gateway, several at a time."""
    with serve_cluster() as served:
        return play_at_once(lambda: GatewayPlayer(served), scenarios)


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """A cluster in memory, and the gateway that serves it."""

    bootstrap: str
    cluster: Cluster
    may_commit: threading.Event = field(default_factory=threading.Event)
    """Unset: no commit of a topic is made, so Produce isn't answered."""


@contextmanager
def serve_cluster() -> Iterator[ServedCluster]:
    """Serve a cluster of its own as long as the block lasts."""
    may_commit = threading.Event()
    may_commit.set()

    def holds(call: Call) -> bool:
        may_commit.wait()
        return False

    held = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), path="/_delta_log/", when=holds, times=None)
    cluster = open_cluster(FaultyStore(MemoryStore(), held))
    with sparklog.gateway.serve(cluster, auto_create_topics=False) as bootstrap:
        yield ServedCluster(bootstrap, cluster, may_commit)


class GatewayPlayer(KafkaPlayer):
    """On a gateway that others may use at the same time."""

    quiet_s = 0.3

    def __init__(self, served: ServedCluster) -> None:
        super().__init__(Broker(served.bootstrap, 0))
        self._served = served

    def compact(self, topic: str, remaining: int) -> None:
        maintain_now(self._served.cluster, self._there(topic))

    def hold_answers(self) -> None:
        self._served.may_commit.clear()

    def release_answers(self) -> None:
        self._served.may_commit.set()

    def outlast(self, transaction_timeout_ms: int) -> None:
        time.sleep(transaction_timeout_ms / 1000 + 0.05)
