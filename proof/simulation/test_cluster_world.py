"""The simulated world itself: who moves when, what a death ends, and that waiting for ever is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from proof.simulation.cluster import threads
from proof.simulation.cluster.group_promises import Holders, _Member
from proof.simulation.cluster.settling import await_settled_group
from proof.simulation.cluster.threads import Condition, Event, Lock, Thread, simulated
from proof.simulation.cluster.weather import Forecast, Weather
from proof.simulation.cluster.world import Process, Stuck, World
from sparklog.errors import StoreOutcomeUnknownError
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.storage import CreateResult, MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock


def run(world: World, work: Callable[[], object]) -> None:
    with simulated(world):
        world.run(world.process("p"), work)


def a_cluster() -> Cluster:
    clock = ManualClock()
    return Cluster(cluster_id="c", store=RetryingStore(MemoryStore(), clock=clock, retry_ms=0), clock=clock)


def test_time_passes_only_where_everybody_waits():
    world = World(1, start_ms=0)
    seen: list[tuple[str, float]] = []

    def tick(name: str, every_ms: float) -> None:
        for _ in range(3):
            world.pause(every_ms)
            seen.append((name, world.now))

    def both() -> None:
        made = [Thread(target=partial(tick, *one), name=one[0]) for one in (("slow", 1_000_000.0), ("fast", 10.0))]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()

    run(world, both)
    assert [name for name, _ in seen] == ["fast"] * 3 + ["slow"] * 3
    assert 3_000_000 <= world.now < 3_000_001


def test_a_real_thread_that_takes_no_part_neither_waits_nor_draws_for_an_actor():
    world = World(3, start_ms=0)
    lock, condition = Lock(), Condition()
    found: list[object] = []

    def intrude() -> None:
        with lock:  # which an actor holds
            found.append(Event().wait(1))
        found.extend([threads._RANDOM.random(), threads._SECRETS.token_hex(8), threads._UUID.uuid4()])
        condition.notify_all()
        found.append(threads.get_ident())

    def act() -> None:
        with lock:
            before, owner = world.random.getstate(), lock.owner
            assert owner is not None
            condition._waiting.append(owner)  # as one that waits to be notified by another actor
            stranger = threading.Thread(target=intrude)
            stranger.start()
            stranger.join()
            assert (world.random.getstate(), lock.owner, [*condition._waiting]) == (before, owner, [owner])
            assert (found[0], len(found), found[-1]) == (False, 5, 0)
            assert threads.get_ident() != 0

    run(world, act)


def test_a_lock_has_one_owner_across_calls_that_take_time():
    world = World(2, start_ms=0)
    inside: list[str] = []

    def work(lock: Lock, name: str) -> None:
        for _ in range(5):
            with lock:
                inside.append(name)
                world.pause(world.random.random())
                assert inside.pop() == name

    def all_of_them() -> None:
        lock = Lock()
        made = [Thread(target=partial(work, lock, name), name=name) for name in "abc"]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()

    run(world, all_of_them)
    assert world.broken == []


def test_a_wait_ends_with_its_time_by_the_clock_of_the_process():
    world = World(3, start_ms=0)
    fast = world.process("fast", rate=2.0)
    took: list[float] = []

    def wait() -> None:
        condition = Condition()
        with condition:
            assert not condition.wait(1.0)
        took.append(world.now)
        assert fast.clock.ticks_ms() == pytest.approx(1_000, abs=1)

    with simulated(world):
        world.run(fast, wait)
    assert took == [pytest.approx(500, abs=1)]


def test_everybody_waiting_for_somebody_else_is_noticed():
    with pytest.raises(Stuck, match="everybody waits"):
        run(World(4, start_ms=0), lambda: Event().wait())


def test_a_death_ends_every_thread_of_its_process_wherever_it_stands():
    world = World(5, start_ms=0)
    ended: list[str] = []

    def stand(name: str, wait: Callable[[], object]) -> None:
        try:
            wait()
        finally:
            ended.append(name)

    def victim() -> None:
        lock = Lock()
        lock.acquire()
        for name, wait in (("event", Event().wait), ("lock", lock.acquire), ("time", partial(world.pause, 1e9))):
            Thread(target=partial(stand, name, wait), name=name).start()
        world.pause(1e9)

    def director() -> None:
        process = world.process("victim")
        world.spawn(process, "main", victim)
        world.pause(10.0)
        assert ended == []
        process.die()
        world.pause(1.0)
        assert sorted(ended) == ["event", "lock", "time"]

    run(world, director)
    assert world.broken == []


def test_who_is_frozen_goes_on_afterwards():
    world = World(6, start_ms=0)

    def sleeper() -> None:
        world.pause(5.0)
        assert world.now >= 50_000

    def director() -> None:
        process = world.process("sleeper")
        actor = world.spawn(process, "main", sleeper)
        world.pause(1.0)
        process.freeze(50_000.0)
        world.pause(49_000.0)
        assert not actor.is_done
        world.pause(2_000.0)
        assert actor.is_done

    run(world, director)
    assert world.broken == []


def test_a_create_that_comes_late_takes_the_name_from_whoever_was_told_nothing():
    world = World(7, start_ms=0)
    weather = Weather(world, Forecast(latency_ms=1.0, late=1.0))
    weather.is_calm = False
    memory = MemoryStore(clock=world.process("store").clock)

    def create() -> None:
        assert world.current is not None
        store = weather.store(memory, world.current.process, is_folder=False)
        with pytest.raises(StoreOutcomeUnknownError):
            store.create("x", b"late")
        world.pause(60_000.0)
        assert memory.create("x", b"second") is CreateResult.EXISTS

    run(world, create)
    assert memory.read("x") == b"late"


def test_random_names_and_numbers_come_from_the_seed():
    def draw(seed: int) -> list[object]:
        found: list[object] = []
        with simulated(World(seed, start_ms=0)):
            found += [threads._UUID.uuid4(), threads._SECRETS.token_hex(8), threads._RANDOM.Random().random()]
        return found

    assert draw(1) == draw(1) != draw(2)


@pytest.mark.parametrize(("rates", "is_told"), [((1.0, 1.0), True), ((0.9, 1.1), False), ((1.1, 0.9), False)])
def test_a_sleeper_is_judged_by_the_fastest_clock_of_its_group(rates, is_told):
    world = World(8, start_ms=0)
    told: list[str] = []
    holders = Holders(a_cluster(), current=lambda: None, violate=told.append)
    partition = TopicPartition("t", 0)
    for name, rate in zip(("sleeper", "taker"), rates, strict=True):
        membership: Any = SimpleNamespace(
            member_id=name,
            settings=SimpleNamespace(group_id="g", instance_id=None, session_timeout_ms=6_000),
            reconciliation=SimpleNamespace(held={partition: SimpleNamespace(is_handed=True)}),
            _beat_ticks_ms=0.0 if name == "sleeper" else 5_900.0 * rate,
        )
        holders._members.append(_Member(world.process(name, rate=rate), membership))

    def take() -> None:
        world.pause(5_900.0)
        holders._check(holders._members[1].membership)

    run(world, take)
    assert bool(told) == is_told


def test_a_group_is_judged_once_nobody_falls_asleep_any_more():
    world = World(9, start_ms=0)
    asked: list[float] = []

    def why_unsettled(group: str, counts: object) -> str:
        asked.append(world.now)
        return ""

    def sleep_twice(process: Process) -> None:
        process.freeze(200_000.0)
        world.pause(15_000.0)  # of a call that began before
        process.freeze(22_000.0)

    def direct() -> None:
        process = world.process("member")
        life = SimpleNamespace(process=process, rests_until=0.0)
        holders = SimpleNamespace(why_unsettled=why_unsettled, living=lambda group: [life])
        world.spawn(process, "main", partial(sleep_twice, process))
        world.pause(1.0)
        play: Any = SimpleNamespace(
            world=world,
            jobs=[SimpleNamespace(lives=[life])],
            session_timeout_ms=6_000,
            topic_names=[],
            holders=holders,
            violate=pytest.fail,
        )
        await_settled_group(play, a_cluster())
        assert asked[0] > process.asleep_until > 220_000.0

    run(world, direct)
    assert world.broken == []
