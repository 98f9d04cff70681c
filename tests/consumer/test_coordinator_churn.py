"""Members join, leave and stall in random order while producers send: every record is read once, in order.

Each consumer lives in a thread of its own, so what happens between two steps is the machine's choice; the seeds choose
who does what and when.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

import pytest

from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.storage import ObjectStore
from tests.consumer.group_support import FAST, Listener
from tests.consumer.remote_store import RemoteStore
from tests.consumer.support import a_cluster, a_consumer, send, tp, until, with_topic
from tests.depth import by_depth

PARTITIONS = 5
STRATEGIES: Sequence[str | None] = (None, "cooperative-sticky", "range", "sticky", "roundrobin")


class Owners:
    """Which members believe that a partition is theirs, between assigned and revoked: one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[TopicPartition, str] = {}
        self.clashes: list[tuple[TopicPartition, str, str]] = []

    def listener(self, name: str) -> Listener:
        def take(partitions: object) -> None:
            with self._lock:
                for partition in partitions:  # type: ignore[attr-defined]
                    if partition in self._owners:
                        self.clashes.append((partition, self._owners[partition], name))
                    self._owners[partition] = name

        def give(partitions: object) -> None:
            with self._lock:
                for partition in partitions:  # type: ignore[attr-defined]
                    self._owners.pop(partition, None)

        return Listener(assigned=take, revoked=give, lost=give)


class Churn:
    """A topic that is filled meanwhile, and the members that come and go."""

    def __init__(self, seed: int, strategy: str | None, *, duration_s: float, store: ObjectStore | None = None) -> None:
        self.cluster: Cluster = with_topic(a_cluster(store), partitions=PARTITIONS)
        self.chance = random.Random(seed)
        self.strategy = strategy
        self.settings = {} if store is None else {"max_partition_fetch_bytes": 1}
        """With files of a store of the test's own one by one, so that there are some to read ahead."""
        self.duration_s = duration_s
        self.owners = Owners()
        self.seen: dict[TopicPartition, list[int]] = defaultdict(list)
        """Offsets in the order in which members read them."""
        self.sent = [0] * PARTITIONS
        self.errors: list[BaseException] = []
        self.is_over = threading.Event()
        self._lock = threading.Lock()

    def produce(self) -> None:
        chance = random.Random(self.chance.random())
        ends = time.monotonic() + self.duration_s
        while time.monotonic() < ends:
            partition, count = chance.randrange(PARTITIONS), chance.randrange(1, 20)
            send(self.cluster, "x" * count, partition=partition)
            self.sent[partition] += count
            time.sleep(chance.uniform(0, 0.01))

    def consume(self, name: str, seed: float, life_s: float) -> None:
        try:
            self._consume(name, random.Random(seed), life_s)
        except BaseException as error:
            self.errors.append(error)

    def _consume(self, name: str, chance: random.Random, life_s: float) -> None:
        given = {
            **FAST,
            **self.settings,
            "session_timeout_ms": 30_000,
            "auto_commit_interval_ms": chance.choice((0, 20, 5_000)),
        }
        if self.strategy is not None:
            given["partition_assignment_strategy"] = self.strategy
        ends = time.monotonic() + life_s
        with a_consumer(self.cluster, group_id="g", max_poll_records=chance.choice((1, 7, 500)), **given) as consumer:
            consumer.subscribe(["t"], listener=self.owners.listener(name))
            while time.monotonic() < ends and not self.is_over.is_set():
                for partition, records in consumer.poll(timeout_ms=chance.choice((0, 5, 50))).items():
                    with self._lock:
                        self.seen[partition] += [record.offset for record in records]
                if chance.random() < 0.02:
                    time.sleep(chance.uniform(0, 0.1))
                if chance.random() < 0.01:
                    consumer.unsubscribe()
                    consumer.subscribe(["t"], listener=self.owners.listener(name))

    def count_seen(self) -> int:
        with self._lock:
            return sum(map(len, self.seen.values()))

    def run(self) -> None:
        producer = threading.Thread(target=self.produce)
        producer.start()
        threads: list[threading.Thread] = []
        ends, number = time.monotonic() + self.duration_s, 0
        while time.monotonic() < ends:
            threads = [thread for thread in threads if thread.is_alive()]
            if len(threads) < 4:
                life_s = self.chance.uniform(0.05, self.duration_s / 2)
                thread = threading.Thread(target=self.consume, args=(f"m{number}", self.chance.random(), life_s))
                thread.start()
                threads.append(thread)
                number += 1
            time.sleep(self.chance.uniform(0, 0.1))
        producer.join()
        last = threading.Thread(target=self.consume, args=("last", 0.5, 60))
        last.start()
        try:
            until(lambda: bool(self.errors) or self.count_seen() >= sum(self.sent))
        finally:
            self.is_over.set()
            for thread in [*threads, last]:
                thread.join()

    def check(self) -> None:
        assert self.errors == []
        assert self.owners.clashes == []
        for partition, count in enumerate(self.sent):
            assert self.seen[tp(partition)] == [*range(count)], f"partition {partition}"
        with a_consumer(self.cluster, group_id="g") as consumer:
            committed = [consumer.committed(tp(partition)) for partition in range(PARTITIONS)]
            assert [offset or 0 for offset in committed] == self.sent


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_every_record_is_read_once_and_in_order_while_members_come_and_go(seed: int):
    churn = Churn(seed, None, duration_s=0.6)
    churn.run()
    churn.check()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "strategy"), [*enumerate(STRATEGIES)])
def test_every_record_is_read_once_and_in_order_by_every_strategy(seed: int, strategy: str | None):
    churn = Churn(seed, strategy, duration_s=by_depth(gate=1, nightly=5))
    churn.run()
    churn.check()


@pytest.mark.slow
def test_every_record_is_read_once_and_in_order_where_members_read_ahead():
    store = RemoteStore()
    churn = Churn(1, None, duration_s=by_depth(gate=1, nightly=5), store=store)
    churn.run()
    churn.check()
    assert store.read_ahead
