"""One world from its beginning to its end, and what is wrong with it."""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

from proof.simulation.cluster import group_worlds
from proof.simulation.cluster.carrying import carries, carrying
from proof.simulation.cluster.group_promises import Holders
from proof.simulation.cluster.group_worlds import draw_group_world, is_group_world
from proof.simulation.cluster.hand_overs import HandOvers
from proof.simulation.cluster.handing import draw_handing, hands_over, plan_trouble
from proof.simulation.cluster.life import Job, Life
from proof.simulation.cluster.operating import Operating, draw_operating, is_operating
from proof.simulation.cluster.planted import PLANTED
from proof.simulation.cluster.power import Power, draw_dark, is_dark
from proof.simulation.cluster.replacing import Replacing, draw_replacing, is_replacing
from proof.simulation.cluster.roles import RESTLESS, ROLES
from proof.simulation.cluster.settling import await_settled_group, settle
from proof.simulation.cluster.shape import JobPlan, Shape, TopicPlan, draw_shape
from proof.simulation.cluster.sharing import draw_sharing, is_accompanied, is_sharing, sharing
from proof.simulation.cluster.threads import simulated
from proof.simulation.cluster.unsynced import draw_unsynced
from proof.simulation.cluster.watching import Watch, WatchedStore
from proof.simulation.cluster.weather import Weather, forecast
from proof.simulation.cluster.world import Happened, Process, Stuck, World
from sparklog.compaction import due
from sparklog.consumer import poll_schedule, runtime
from sparklog.delta import checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError
from sparklog.groups.membership import heartbeat_rounds
from sparklog.log import Cluster, create_topic
from sparklog.log.state import load_state
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.ground import Ground
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import SimulatedCrash
from sparklog.testing.history import Event, Recorder
from sparklog.txn import cleaning
from tests.support import T0_MS, foreign_commit

__all__ = ["Play", "Played", "play"]

_LONGEST_MS = 300_000.0
"""Of troubled times, nights not counted."""
_LOOK_MS = 700.0
"""Between two looks of the director."""
_MOST_MS = 600_000.0
"""Of calm until everybody has ended: more than the longest flush and the delivery that it waits for."""
_LATE_MS = 60_000.0
"""What is still on its way in the end arrives within."""
_POWER_LOSS = 0.1
"""How likely, with each look of the director, where the power fails at all."""
_LAST_POWER_LOSS = 0.6
_OUTAGES_MS = (2_000.0, 10_000.0, 40_000.0, 130_000.0)
_NAPS_MS = (5_000.0, 20_000.0, 90_000.0)
_RARER: tuple[tuple[ModuleType, str, object], ...] = (
    (runtime, "_LONGEST_WAIT_MS", 2_000.0),
    (poll_schedule, "_RECENT_WAIT_MS", (200.0, 1_000.0)),
    (poll_schedule, "_SHORTEST_WAIT_MS", 20.0),
)
"""Who waits looks less often: simulated time passes as fast as there is nothing to do."""
_SELDOM: tuple[tuple[ModuleType, str, object], ...] = (
    (poll_schedule, "_RECENT_WAIT_MS", (3_000.0, 5_000.0)),
    (poll_schedule, "_SHORTEST_WAIT_MS", 2_000.0),
)
"""Where nobody reads records, topics are looked at for new partitions only."""
_SOONER: tuple[tuple[ModuleType, str, object], ...] = (
    (checkpoint, "_MIN_TAIL", 8),
    (due, "_TAIL", 4),
    (cleaning, "_CLEAN_EVERY", 3),
    (cleaning, "_CLEAN_EVERY_MS", 1_000),
    (heartbeat_rounds, "_CLEAN_EVERY", 4),
)
"""What is due after hundreds of entries is due after some, in worlds with checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a seed."""

    seed: int
    violations: list[str]
    counts: Counter[str]
    cpu_s: float
    trace: list[Happened] = field(default_factory=list)


class _Recorder(Recorder):
    """What clients do and see is part of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(now_ms=lambda: int(world.start_ms + world.now))
        self._world = world
        self.on_event: Callable[[Event], object] | None = None

    @property
    def next_order(self) -> int:
        return self._order

    def record(self, event: Callable[..., Event], *fields: Any) -> None:
        super().record(event, *fields)
        if self.on_event is not None:
            self.on_event(self._events[-1])
        if self._world.is_traced:
            self._world.note(f"* {getattr(event, '__name__', event)}", " ".join(map(_text, fields)))


def _text(value: object) -> str:
    if isinstance(value, TopicPartition):
        return f"{value.topic}-{value.partition}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return str(value)


class Play:
    """A world, its shape and its troubles, and the director, who starts processes, kills them and ends it all."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.world = World(seed, start_ms=T0_MS)
        self.world.is_traced = is_traced
        draw = self.world.random
        expected = forecast(draw)
        self.shape: Shape = draw_shape(draw, has_nights=expected.night > 0)
        if self.shape.takes_over:
            expected = replace(expected, nap=0.02, crash=expected.crash / 4)
        self.is_group_world = is_group_world(seed)
        if self.is_group_world:
            self.shape, expected = draw_group_world(seed, self.shape, expected)
        self.seed = seed
        self.is_sharing = is_sharing(seed)
        self.is_accompanied = self.is_sharing and is_accompanied(seed)
        if self.is_sharing:
            self.shape, expected = draw_sharing(seed, self.shape, expected)
        if is_replacing(seed):
            self.shape, expected = draw_replacing(seed, self.shape, expected)
        if is_operating(seed):
            self.shape, expected = draw_operating(seed, self.shape, expected)
        is_operated = is_replacing(seed) or is_operating(seed)
        is_ordinary = not (self.is_group_world or self.is_sharing or is_operated)
        self.is_fair = expected.is_fair and not is_operated
        """Does nothing befall anybody?"""
        if self.is_fair:
            self.shape = replace(self.shape, kills=0.0)
            self.world.counts["fair worlds"] += 1
        dark = is_dark(seed) and is_ordinary and not self.is_fair
        if dark:
            self.shape, expected = draw_dark(seed, self.shape, expected)
            self.shape = draw_unsynced(seed, self.shape)
        self.hands_over = hands_over(seed) and is_ordinary and not (self.is_fair or dark)
        if self.hands_over:
            self.shape, expected = draw_handing(seed, self.shape, expected)
            self.world.counts["worlds of hand-overs"] += 1
        self.weather = Weather(self.world, expected)
        self.world.preempts = expected.preempts
        self.memory = MemoryStore(clock=self.world.process("store").clock)
        self.power = Power(self.memory, self.world.counts) if dark else None
        self.recorder = _Recorder(self.world)
        self.replacing = Replacing(self, seed) if is_replacing(seed) else None
        self.operator = Operating(self, seed) if is_operating(seed) else self.replacing
        """Who changes what is there behind the clients' backs."""
        if self.replacing is not None:
            self.recorder.on_event = self.replacing.see_event
        self.violations: list[str] = []
        self.transaction_timeout_ms = draw.choice([10_000, 60_000, 60_000]) if not self.shape.takes_over else 60_000
        self.session_timeout_ms = draw.choice([6_000, 6_000, 15_000])
        self.strategy = draw.choice(["range", "cooperative-sticky", "cooperative-sticky"])
        self.is_over = False
        self.foreign_values: dict[str, str] = {}
        """Committed for certain by another engine, and to which topic."""
        self.steady_commits: dict[TopicPartition, tuple[list[int], list[int]]] = {}
        """The numbers of commits with fsync beside transactions without: those asked for, and those told."""
        self.jobs = [Job(plan) for plan in self.shape.jobs]
        self.topic_names = [plan.name for plan in self.shape.topics]
        self.output = "c" if "c" in self.topic_names else "a"
        """Of loops."""
        self._restarts = draw.choice([0.3, 0.3, 0.03]) if not self.hands_over else 0.03
        """How likely the dead are started again, with each look."""
        self._shift_until = 0.0
        self._director = self.world.process("director")
        self.weather.spared.add(self._director)
        violate = self.violate if self.operator is None else lambda text: None  # a log may have two contents there
        self.watch = Watch(violate, now_ms=lambda: self.world.now, counts=self.world.counts)
        self.hand_overs = HandOvers(
            lambda: self.recorder.next_order, lambda: self.world.current.process.name if self.world.current else ""
        )
        onlooker = self.world.process("onlooker").clock
        self.holders = Holders(
            Cluster(cluster_id="c", store=RetryingStore(self.memory, clock=onlooker), clock=onlooker),
            current=lambda: self.world.current.process if self.world.current else None,
            violate=self.violate,
        )

    def cluster(self, process: Process) -> Cluster:
        """The cluster as a process sees it."""
        watched: ObjectStore = WatchedStore(self.memory, process.name, self.watch)
        store: ObjectStore = self.weather.store(watched, process, is_folder=self.power is not None)
        if self.power is not None:
            store = self.power.store(store, self._lose_power)
        if self.operator is not None:
            known = RetryingStore(self.operator.store(store, process.name), clock=process.clock)
            known.ground = Ground(known, self.operator.cluster_id)
            trust_ms = self.operator.tail_trust_ms
            return Cluster(
                cluster_id=self.operator.cluster_id, store=known, clock=process.clock, tail_trust_ms=trust_ms
            )
        return Cluster(cluster_id="c", store=RetryingStore(store, clock=process.clock), clock=process.clock)

    def topic(self, name: str) -> TopicPlan:
        """What was planned of a topic."""
        return next(plan for plan in self.shape.topics if plan.name == name)

    def violate(self, text: str) -> None:
        """Note what must not be."""
        self.violations.append(text)
        self.world.note("VIOLATION", text)

    def run(self) -> None:
        """All of it."""
        try:
            with self._patched(), simulated(self.world):
                try:
                    self.world.run(self._director, self._direct)
                finally:
                    self._let_go()
            self.watch.check_course()
        except Stuck as stuck:
            self.violate(f"{stuck}")
        except Exception as error:
            self.violate(f"the end: {error!r}\n{traceback.format_exc()}")
        for name, broken in self.world.broken:
            self.violate(f"thread {name} ended with {broken!r}")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.watch.watching())
            stack.enter_context(self.hand_overs.watching())
            if self.is_sharing:
                stack.enter_context(sharing(self.seed, self.world.counts))
            if carries(self.seed) and not self.is_group_world:
                stack.enter_context(carrying(self.world.counts))
            if self.is_group_world:
                self.watch.on_rows = self.holders.see_rows
                stack.enter_context(self.holders.watching())
                stack.enter_context(group_worlds.cheap_rows())
            seldom = _SELDOM if self.is_group_world else ()
            for place, name, value in (*_RARER, *seldom, *(_SOONER if self.shape.checkpoints else ())):
                stack.enter_context(mock.patch.object(place, name, value))
            yield

    # The director.

    def _direct(self) -> None:
        world, draw = self.world, self.world.random
        cluster = self.cluster(self._director)
        for plan in self.shape.topics:
            log = cluster.topic_log(plan.name)
            create_topic(log, plan.name, num_partitions=plan.partitions, configs=plan.configs)
            if self.shape.deletes_soon:
                self._delete_soon(log)
        if self.power is not None:
            self.power.settle()
        if self.operator is not None:
            self.operator.begin(cluster)
        if self.is_group_world:
            group_worlds.fill_topics(cluster)
        self.weather.is_calm = False
        for job in self.jobs:
            self._begin(job, draw.choice([0.0, draw.uniform(0, 3_000)]))
        busy_ms = 0.0
        longest_ms = group_worlds.TROUBLED_MS if self.is_group_world else _LONGEST_MS
        if self.operator is not None:
            longest_ms = self.operator.lasts_ms
        while busy_ms < longest_ms and not all(job.is_done and job.lives[-1].is_over for job in self.jobs):
            is_night = world.now < self.weather.night_until
            world.pause(60_000.0 if is_night else _LOOK_MS)
            busy_ms += _LOOK_MS
            if self.operator is not None:
                self.operator.look()
            if is_night:
                self._send_to_bed()
                self._begin_shift()
            else:
                self._trouble()
            if self.power is not None and draw.random() < _POWER_LOSS:
                self.power.plan(draw)
            for job in [*self.jobs]:
                self._look_after(job, is_night=is_night)
        if self.power is not None and draw.random() < _LAST_POWER_LOSS:
            self._lose_power()
        self._heal()
        if self.operator is not None and self.operator.is_spoilt:
            self.world.counts["spoilt within the bound"] += 1
        elif not self.is_group_world:
            settle(self, self.cluster(self._director))

    @staticmethod
    def _delete_soon(log: DeltaLog) -> None:
        metadata = load_state(log).require_whole().metadata
        configuration = {**metadata.configuration, "delta.deletedFileRetentionDuration": "interval 1 days"}
        foreign_commit(log, replace(metadata, configuration=configuration))

    def _begin(self, job: Job, delay_ms: float = 0.0) -> None:
        life = Life(self, job)
        self._plan(life, 6.0, after=self.world.random.randint(0, 14))
        self.world.spawn(life.process, "main", partial(self._live, life, delay_ms))

    def _live(self, life: Life, delay_ms: float) -> None:
        """All of a life."""
        try:
            life.rest(delay_ms)
            ROLES[life.job.plan.role](life)
        except SimulatedCrash:
            raise
        except SparklogError as error:
            life.check("the life ends", error)
        finally:
            life.is_over = True
        life.process.die()  # it has come to its end; so do its threads

    def _trouble(self) -> None:
        """Let something happen to those who live."""
        draw = self.world.random
        for job in self.jobs:
            if draw.random() < 0.3:
                self._plan(job.lives[-1], 1.0, after=0)
        if draw.random() < self.weather.expected.outages / 5:
            self.weather.cut(None, draw.choice(_OUTAGES_MS))

    def _plan(self, life: Life, scale: float, *, after: int) -> None:
        """Let a life meet something, where that is to be expected."""
        draw, weather = self.world.random, self.weather
        expected, process, role = weather.expected, life.process, life.job.plan.role
        if role in ("foreign", "administer", "night"):  # an engine that sleeps for days breaks a log by itself
            return
        if self.is_group_world:
            if role == "member":
                group_worlds.plan_trouble(weather, process, draw, session_timeout_ms=self.session_timeout_ms)
        elif self.hands_over:
            if role == "loop":
                plan_trouble(weather, process, draw, session_timeout_ms=self.session_timeout_ms)
        elif draw.random() < scale * expected.night:
            weather.plan_night(process, after=after)
        elif draw.random() < scale * expected.outages:
            weather.plan(process, "outage", draw.choice(_OUTAGES_MS), after=after)
        elif draw.random() < 10 * scale * expected.nap:
            # A member for so long that others take over, and its transaction may still be in time.
            if role in ("consume", "loop") and draw.random() < 0.7:
                longer_ms = self.session_timeout_ms * draw.uniform(1.2, 4)
                place = draw.choice(["groups/", "groups/", "transactions/", "topics/"])
                weather.plan(process, "nap", longer_ms, after=after // 2, place=place)
            else:
                weather.plan(process, "nap", draw.choice(_NAPS_MS), after=after)
        elif draw.random() < 10 * scale * expected.crash:
            weather.plan(process, "crash", after=after)

    def _look_after(self, job: Job, *, is_night: bool) -> None:
        world, draw = self.world, self.world.random
        life = job.lives[-1]
        if self.operator is not None and life.process.is_dead and not self.operator.is_open():
            return
        if life.process.is_dead:
            if not job.is_done and draw.random() < self._restarts and not (is_night and job.plan.role in RESTLESS):
                world.counts["restarts"] += 1
                self._begin(job)
        elif draw.random() < self.shape.kills:
            self._kill(life)
        elif draw.random() < self.weather.expected.nap:
            duration_ms = draw.choice(_NAPS_MS)
            world.counts["naps"] += 1
            world.note("asleep", f"{life.name} for {duration_ms / 1000:.0f} s")
            life.process.freeze(duration_ms)

    def _lose_power(self) -> None:
        """All processes die at once, and what nobody has flushed is lost."""
        if self.power is None:
            return
        self.world.note("power loss")
        for job in self.jobs:
            for life in job.lives:
                life.process.die()
        for path, what in self.power.fail(self.world.random).items():
            self.world.note(what, path)
        self.watch.begin_anew(self.power.objects())

    def _kill(self, life: Life) -> None:
        self.world.note("killed", life.name)
        self.world.counts["kills"] += 1
        life.process.die()

    def _send_to_bed(self) -> None:
        """Who would look at its topics a hundred thousand times until the morning sleeps, or is ended."""
        until = self.weather.night_until
        for job in self.jobs:
            life = job.lives[-1]
            if job.plan.role in RESTLESS and not life.process.is_dead and life.process.asleep_until < until:
                if self.world.random.random() < 0.5:
                    life.process.freeze(until - self.world.now)
                else:
                    self._kill(life)

    def _begin_shift(self) -> None:
        """While somebody sleeps for days, others do what may be his undoing."""
        if self.shape.checkpoints and self._shift_until < self.weather.night_until:
            self._shift_until = self.weather.night_until
            number = sum(job.plan.role == "night" for job in self.jobs)
            self.jobs.append(Job(JobPlan(name=f"night{number}", role="night", steps=1)))
            self._begin(self.jobs[-1])

    def _heal(self) -> None:
        """No more trouble: whoever lives may end well, or is killed."""
        world, draw = self.world, self.world.random
        self.weather.is_calm = True
        world.note("calm")
        if self.is_group_world:
            await_settled_group(self, self.cluster(self._director))
        self.is_over = True
        lives = [job.lives[-1] for job in self.jobs]
        alive = [life for life in lives if not life.process.is_dead]
        latest = max((max(life.process.asleep_until, life.rests_until) for life in alive), default=0.0)
        if any(life.job.plan.role == "night" for life in alive):  # it goes on until its night is over, whoever sleeps
            latest = max(latest, self.weather.night_until)
        world.pause(max(0.0, latest - world.now) + 1.0)
        for life in lives:
            if not life.process.is_dead and draw.random() < 0.3:
                self._kill(life)
        until = world.now + _MOST_MS
        while world.now < until and not all(life.process.is_dead for life in lives):
            world.pause(300.0)
        for life in lives:
            if not life.process.is_dead:
                self.violate(f"{life.name}: didn't end within {_MOST_MS / 60_000:.0f} minutes of calm")
                self._kill(life)
        world.pause(_LATE_MS)

    def _let_go(self) -> None:
        """Nobody is left to close what the dead have opened."""
        for process in self.world.processes:
            for client in process.kept:
                if hasattr(client, "_ended"):
                    client._ended = client._ended or SparklogError("its world has ended")
            process.kept.clear()


def play(seed: int, *, is_traced: bool = False, planted: str | None = None) -> Played:
    """Play one seed to its end, with one of ``PLANTED`` if it is named."""
    began = time.process_time()
    was_enabled = gc.isenabled()
    gc.disable()  # what is weakly referred to goes at the same moments each time
    try:
        with PLANTED[planted].plant() if planted else nullcontext():
            made = Play(seed, is_traced=is_traced)
            made.run()
    finally:
        if was_enabled:
            gc.enable()
    counts = made.world.counts
    counts["switches"] = made.world.switches
    return Played(
        seed=seed,
        violations=made.violations,
        counts=counts,
        cpu_s=time.process_time() - began,
        trace=made.world.trace,
    )
