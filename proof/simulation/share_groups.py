"""Share groups in simulated time: members, each a client of its own, at one store, under crashes, naps, lost answers,
clocks that jump, and cleanups of the logs. A seed plays the same again.

    python -m proof.simulation.share_groups --count 0..2000
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from unittest import mock

from sparklog import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from sparklog.clock import Clock
from sparklog.consumer.sharing import member, runtime, shared_topic
from sparklog.errors import IllegalStateError, InvalidRecordStateError, SparklogError
from sparklog.groups.admin import share_groups
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.parallel import attempt
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Fault, FaultKind, FaultyStore, Scheduler, SimulatedCrash, WrappedStore

__all__ = ["Played", "play"]

T = TypeVar("T")
At = tuple[int, int]
LOCK_MS, INTERVAL_MS = 1_500, 200
PARTITIONS, RECORDS = 2, 40
_AT_ONCE = 4
_LIVES, _ROUNDS = 4, 9
_HOUR_MS = 3_600_000.0


@dataclass(slots=True)
class World:
    """The time that is true, and what chance decides."""

    random: random.Random
    scheduler: Scheduler
    now_ms: float = 0.0


class WorldClock(Clock):
    """One process's clock: the true time, and a part of its own that may jump forward."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ahead_ms = world.random.uniform(0, _HOUR_MS)

    def now_ms(self) -> int:
        return int(1_700_000_000_000 + self._world.now_ms)

    def ticks_ms(self) -> float:
        return self._world.now_ms + self._ahead_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._world.now_ms += duration_ms / 3
        self._world.scheduler.switch()

    def jump(self) -> None:
        self._ahead_ms += _HOUR_MS


class WorldStore(WrappedStore):
    """Another store, each call of which takes some time, and lets others go on.

    Args:
        interrupts: the chance that Ctrl-C ends a call, before it or after it.
    """

    def __init__(self, store: ObjectStore, world: World, *, interrupts: float = 0.0) -> None:
        super().__init__(store)
        self._world = world
        self._interrupts = interrupts

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._world.scheduler.switch()
        self._world.now_ms += self._world.random.expovariate(1 / 10)
        draw = self._world.random.random()
        if draw < self._interrupts / 2:
            raise KeyboardInterrupt
        found = call()
        if draw < self._interrupts:
            raise KeyboardInterrupt
        return found


@dataclass(slots=True)
class Played:
    """What happened, and what was promised and not kept."""

    got: dict[At, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The delivery counts that were shown, in the order of the polls' returns."""
    accepting: dict[At, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The outcomes of acceptances, by record: ``pending`` until one is known."""
    accepted: dict[At, str] = field(default_factory=dict)
    accepted_count: dict[At, int] = field(default_factory=dict)
    """The delivery count under which it was accepted. Counts number the acquisitions of a record, so a poll that was
    slow to return may still show a lower one afterwards, whose lock is over; a higher one was acquired afterwards."""
    met: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Member:
    """One process: a share consumer that takes, accepts and gives back."""

    def __init__(self, world: World, memory: ObjectStore, played: Played, name: str) -> None:
        self._world, self._played, self._name = world, played, name
        self._chance = world.random
        self._clock = WorldClock(world)
        faults = [
            Fault(kind=kind, chance=0.02, times=4)
            for kind in (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED, FaultKind.FALSE_REFUSAL)
        ]
        if self._chance.random() < 0.5:
            kind = self._chance.choice((FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER))
            faults.append(Fault(kind=kind, at=self._chance.randrange(20, 160)))
        store = FaultyStore(WorldStore(memory, world, interrupts=0.008), *faults, seed=self._chance.randrange(10**9))
        self._cluster = Cluster(cluster_id="c", store=RetryingStore(store, clock=self._clock), clock=self._clock)
        self._is_in_hand: Callable[[At], bool] = lambda at: True
        self._counts: dict[At, int] = {}
        """The delivery counts of records in hand."""
        self._shown: dict[At, float] = {}
        """Records in hand, and the true time at which the poll began that returned them."""

    def live(self) -> None:
        try:
            with self._consumer() as consumer:
                for _ in range(_ROUNDS):
                    try:
                        self._round(consumer)
                    except (SparklogError, KeyboardInterrupt) as error:
                        self._played.met[type(error).__name__] += 1
                        if isinstance(error, IllegalStateError):
                            self._played.problems.append(f"{self._name} has records that no poll returned: {error}")
        except SimulatedCrash:
            self._played.met["crashes"] += 1
        except (SparklogError, KeyboardInterrupt):
            self._played.met["failed to close"] += 1

    def _consumer(self) -> ShareConsumer:
        consumer = ShareConsumer(
            "t",
            cluster=self._cluster,
            group_id="g",
            client_id=self._name,
            share_auto_offset_reset="earliest",
            share_acknowledgement_mode="explicit",
            share_record_lock_duration_ms=LOCK_MS,
            share_heartbeat_interval_ms=INTERVAL_MS,
            share_session_timeout_ms=2 * LOCK_MS,
            group_share_delivery_count_limit=1_000,
            default_api_timeout_ms=3_000,
        )
        consumer.set_acknowledgement_commit_callback(self._told)
        locks = consumer._runtime.deliveries._locks
        self._is_in_hand = lambda at: at[1] in locks.get(TopicPartition("t", at[0]), ())
        return consumer

    def _round(self, consumer: ShareConsumer) -> None:
        began = self._world.now_ms
        for at, records in consumer.poll(500, max_records=self._chance.randint(1, 5)).items():
            for record in records:
                self._show((at.partition, record.offset), record.delivery_count or 0, began)
                self._mark(consumer, at, record.offset)
        self._nap()
        if self._chance.random() < 0.7:
            consumer.commit_sync(2_000)

    def _show(self, at: At, count: int, began: float) -> None:
        played = self._played
        if at in played.accepted and count > played.accepted_count[at]:
            played.problems.append(
                f"{at} was accepted by {played.accepted[at]}, and delivered to {self._name} afterwards"
            )
        if count in played.got[at]:
            played.problems.append(f"{at} was delivered twice with the count {count}")
        played.got[at].append(count)
        self._shown[at], self._counts[at] = began, count

    def _mark(self, consumer: ShareConsumer, at: TopicPartition, offset: int) -> None:
        gives_back = self._chance.random() < 0.15
        consumer.acknowledge(at, AcknowledgeType.RELEASE if gives_back else AcknowledgeType.ACCEPT, offset=offset)
        if gives_back:
            self._shown.pop((at.partition, offset))
        else:
            self._played.accepting[at.partition, offset].add(f"pending {self._name}")

    def _nap(self) -> None:
        draw = self._chance.random()
        if draw < 0.25:  # perhaps longer than its locks, while the others go on
            self._played.met["naps"] += 1
            lasts = self._chance.choice((0.3 * LOCK_MS, 0.3 * LOCK_MS, 1.5 * LOCK_MS, 200_000.0, _HOUR_MS))
            until = self._world.now_ms + lasts
            while self._world.now_ms < until:
                before = self._world.now_ms
                self._world.scheduler.switch()
                if self._world.now_ms - before < 1:  # nobody else is left
                    self._world.now_ms += 30_000
        elif draw < 0.35:
            self._played.met["jumps"] += 1
            self._clock.jump()

    def _told(self, outcomes: dict[TopicPartition, SparklogError | None]) -> None:
        for partition, error in outcomes.items():
            for at, began in [*self._shown.items()]:
                if at[0] == partition.partition:
                    self._told_of(at, began, error)

    def _told_of(self, at: At, began: float, error: SparklogError | None) -> None:
        """Note the outcome of an acceptance; one error is for all of a partition, so a refusal may be another's."""
        played, pending = self._played, f"pending {self._name}"
        if error is None:
            played.accepting[at] -= {pending}
            played.accepting[at].add("accepted")
            if at in played.accepted:
                played.problems.append(f"{at} was accepted by {played.accepted[at]} and by {self._name}")
            self._note_accepted(at)
            del self._shown[at]
        elif isinstance(error, InvalidRecordStateError):
            played.met["refused"] += 1
            offsets = str(error).split(" of ")[0]
            if any(
                _within(at[1], part) for part in offsets.removeprefix("acknowledged too late: offsets ").split(", ")
            ):
                played.accepting[at] -= {pending}
                played.accepting[at].add("refused")
                if self._world.now_ms - began < LOCK_MS:
                    played.problems.append(f"{at} was taken away from {self._name} before its lock was over")
            else:
                played.accepting[at] -= {pending}
                played.accepting[at].add("accepted")
                self._note_accepted(at)
            del self._shown[at]
        else:
            played.met["unknown"] += 1
            if "never be known" in str(error) and not self._is_in_hand(at):
                played.accepting[at] -= {pending}
                played.accepting[at].add("unknown")
                del self._shown[at]

    def _note_accepted(self, at: At) -> None:
        self._played.accepted[at], self._played.accepted_count[at] = self._name, self._counts[at]


def _within(offset: int, part: str) -> bool:
    first, _, last = part.partition(" to ")
    return int(first) <= offset <= int(last or first)


def play(seed: int) -> Played:
    """Play a seed; what was promised is in :attr:`Played.problems` where it wasn't kept."""
    chance, played = random.Random(seed), Played()
    scheduler = Scheduler(chance.randrange(10**9))
    world = World(random=chance, scheduler=scheduler)
    director = WorldClock(world)
    memory = MemoryStore(clock=director)
    cluster = Cluster(cluster_id="c", store=RetryingStore(memory, clock=director), clock=director)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS)])
    with Producer(cluster) as producer:
        for number in range(_AT_ONCE):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
    living = ["abc"[: chance.randint(2, 3)]]

    def produce() -> None:
        for first in range(_AT_ONCE, RECORDS, _AT_ONCE):
            director.sleep_ms(chance.expovariate(1 / LOCK_MS))
            with Producer(cluster) as producer:
                for number in range(first, first + _AT_ONCE):
                    producer.send("t", b"%d" % number, partition=number % PARTITIONS)

    def lives(name: str) -> None:
        for life in range(_LIVES):
            Member(world, memory, played, f"{name}{life}").live()
        living.append(name)

    def clean() -> None:
        store = RetryingStore(WorldStore(memory, world), clock=director)
        while len(living) <= len(living[0]):
            share_groups.clean_share_groups(Cluster(cluster_id="c", store=store, clock=director))
            director.sleep_ms(100_000 if world.now_ms > 60_000 else 3_000)

    numbers = itertools.count()
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(member, "uuid4", side_effect=numbers))
        patches.enter_context(mock.patch.object(runtime, "parallel_results", _results_in_turn))
        for module in (shared_topic, share_groups):
            patches.enter_context(mock.patch.object(module, "parallel_map", _in_turn))
        scheduler.spawn("producer", produce)
        for name in living[0]:
            scheduler.spawn(name, partial(lives, name))
        scheduler.spawn("cleaner", clean)
        scheduler.run()
        _drain(world, memory, played)
    _check(played)
    return played


def _results_in_turn(call: Callable[[Any], T], items: Iterable[Any]) -> list[T | Exception]:
    return [attempt(call, item) for item in items]


def _in_turn(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    return [call(item) for item in items]


def _drain(world: World, memory: ObjectStore, played: Played) -> None:
    """A last member takes what is left, once all locks are over."""
    clock = WorldClock(world)
    cluster = Cluster(cluster_id="c", store=RetryingStore(memory, clock=clock), clock=clock)
    with ShareConsumer(
        "t",
        cluster=cluster,
        group_id="g",
        share_auto_offset_reset="earliest",
        share_heartbeat_interval_ms=INTERVAL_MS,
        group_share_delivery_count_limit=1_000,
    ) as consumer:
        for _ in range(40):
            for at, records in consumer.poll().items():
                for record in records:
                    place = (at.partition, record.offset)
                    if place in played.accepted:
                        played.problems.append(f"{place} was accepted by {played.accepted[place]}, and is left")
                    played.got[place].append(record.delivery_count or 0)
                    played.accepting[place].add("accepted")
            consumer.commit_sync()
            world.now_ms += 1_000
    left = share_groups.describe_share_group(cluster, "g").partitions
    if any(row.lag for row in left):
        played.problems.append(f"not all is done with: {left}")


def _check(played: Played) -> None:
    for number in range(RECORDS):
        at = (number % PARTITIONS, number // PARTITIONS)
        if not played.got[at]:
            played.problems.append(f"{at} is done with, and was never delivered")
        elif played.accepting[at] <= {"refused"}:
            played.problems.append(f"{at} is done with; its acceptances: {sorted(played.accepting[at])}")
        if played.got[at] and max(played.got[at]) < len(played.got[at]):
            played.problems.append(f"{at} was delivered with the counts {played.got[at]}")


def main() -> int:
    """Play seeds; 1 where one found something."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.share_groups", description=__doc__)
    parser.add_argument("--count", default="0..500", help="first and last seed, the last exclusive")
    logging.getLogger("sparklog").setLevel(logging.ERROR)  # it tells of each member that others remove
    first, last = map(int, parser.parse_args().count.split(".."))
    met: Counter[str] = Counter()
    bad = 0
    for seed in range(first, last):
        played = play(seed)
        met += played.met
        for problem in played.problems:
            print(f"seed {seed}: {problem}")
        bad += bool(played.problems)
    print(f"{last - first} seeds, {bad} with problems; met {dict(sorted(met.items()))}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
