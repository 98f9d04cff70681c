"""One world of workers from its beginning to its end, and what is wrong with it.

The clients are sparklog's own, with all of their threads, in the simulated world of :mod:`proof.simulation.cluster`.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any
from unittest import mock

import sqlalchemy as sa

from proof.simulation.cluster.threads import simulated
from proof.simulation.cluster.weather import Weather, forecast
from proof.simulation.cluster.world import Process, Stuck, World
from proof.simulation.workers.inputs import DELAYED, Delayed, Inputs
from proof.simulation.workers.judging import judge, judge_history
from proof.simulation.workers.lives import EFFECTS, ROLES, Life, replay_some
from sparklog.admin import Admin, NewTopic
from sparklog.consumer import Consumer, poll_schedule, runtime
from sparklog.log import Cluster
from sparklog.log.topic import delete_topic
from sparklog.processing import Send, dead_letters, delayed, inbox, worker
from sparklog.producer import Producer
from sparklog.producer.delayed_records import delay_topic
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import SimulatedCrash
from tests.support import T0_MS

__all__ = ["Play", "Played", "play"]

_PATCHES: tuple[tuple[ModuleType, str, object], ...] = (
    (runtime, "_LONGEST_WAIT_MS", 2_000.0),
    (poll_schedule, "_RECENT_WAIT_MS", (200.0, 1_000.0)),
    (poll_schedule, "_SHORTEST_WAIT_MS", 100.0),
    (worker, "_IDLE_POLL_MS", 1_000.0),
    (worker, "_BUSY_POLL_MS", 20.0),
    (delayed, "_TRIM_MS", 5_000.0),
)
"""Who waits looks less often: simulated time passes as fast as there is nothing to do."""
_LOOK_MS = 1_000.0
_PAUSES_MS = (5_000.0, 5_000.0, 10_000.0, 20_000.0, 40_000.0, 80_000.0)
"""Of calm, until all is as it must be: letters are replayed after each, and sessions and transactions time out."""
_QUIET_MS = 6_000.0
"""Afterwards nothing more comes."""
_NAPS_MS = (3_000.0, 8_000.0, 15_000.0)
_SOON = {"retention.ms": 1_000}
"""What an operator has set by mistake: what waits is kept all the same."""
_RETRIES = "in-retry-2s"


@dataclass(slots=True)
class Played:
    """What came of a seed."""

    problems: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


class Play:
    """A world, its processes, and the director, who starts and ends them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, start_ms=T0_MS)
        draw = self.world.random
        expected = replace(forecast(draw), skews=False, drifts=False, night=0.0)
        self.weather = Weather(self.world, expected)
        self.world.preempts = expected.preempts
        self.memory = MemoryStore(clock=self.world.process("store").clock)
        self.deaths = draw.choice([0.0, 0.005, 0.02])
        """How likely a process is killed between two calls of the store."""
        self.ends = draw.choice([0.0, 0.02, 0.05])
        """How likely one is stopped, or killed, with each look."""
        self.inputs = Inputs()
        self.topic_life = 0
        self.is_between_topics = False
        """Is the topic of delayed records being deleted and made anew?"""
        self.problems: list[str] = []
        self.engine = sa.create_engine(
            "sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False}
        )
        self._director = self.world.process("director")
        self.weather.spared.add(self._director)
        self._lives: dict[str, Life] = {}
        self._number = 0
        self._clients: list[Any] = []

    def cluster(self, process: Process) -> Cluster:
        """The cluster as a process sees it."""
        store = self.weather.store(self.memory, process, is_folder=False)
        return Cluster(cluster_id="c", store=RetryingStore(store, clock=process.clock), clock=process.clock)

    def violate(self, text: str) -> None:
        """Note what must not be."""
        self.problems.append(text)

    def was_without_topic(self, topic_life: int) -> bool:
        """Was there no topic of delayed records for a moment since it had had so many lives?"""
        return self.is_between_topics or self.topic_life != topic_life

    def refused(self, number: int, key: bytes | None) -> Send:
        """An output that its topic refuses."""
        return [
            Send("nowhere", b"x", key=key),
            Send("keyed", b"x"),
            Send("narrow", b"x" * 3_000, key=key),
            Send("narrow", b"x", partition=99),
        ][number % 4]

    def run(self) -> None:
        """All of it."""
        inbox.create_table(self.engine)
        EFFECTS.create(self.engine)
        with ExitStack() as stack:
            for module, name, value in _PATCHES:
                stack.enter_context(mock.patch.object(module, name, value))
            stack.enter_context(
                mock.patch.object(dead_letters, "_RECORDS_A_TRANSACTION", self.world.random.choice([1, 2, 3, 20]))
            )
            stack.enter_context(mock.patch.object(sys, "unraisablehook", _tell))
            for client in (Consumer, Producer):
                stack.enter_context(self._kept(client))
            stack.enter_context(simulated(self.world))
            try:
                try:
                    self.world.run(self._director, self._direct)
                finally:
                    self._clients.clear()
            except Stuck as stuck:
                self.violate(f"{stuck}")
            except Exception as error:
                self.violate(f"the end: {error!r}\n{traceback.format_exc()}")
        self.problems += [f"thread {name} ended with {error!r}" for name, error in self.world.broken]
        self.engine.dispose()

    def _kept(self, client: type[Consumer] | type[Producer]) -> AbstractContextManager[object]:
        """Within: nothing of a process is collected before the world has ended."""
        begin = client.__init__

        def kept(made: Any, *given: Any, **settings: Any) -> None:
            begin(made, *given, **settings)
            self._clients.append(made)

        return mock.patch.object(client, "__init__", kept)

    # The director.

    def _direct(self) -> None:
        world, draw = self.world, self.world.random
        cluster = self.cluster(self._director)
        self._make_topics(cluster)
        self.weather.is_calm = False
        until = world.now + draw.choice([10_000.0, 25_000.0])
        makes_anew_at = until * draw.random() if draw.random() < 0.6 else None
        for role in ROLES:
            if role not in ("work1", "move1") or draw.random() < 0.4:
                self._begin(role)
        while world.now < until:
            world.pause(_LOOK_MS)
            if draw.random() < 0.7:
                self._send(cluster)
            if makes_anew_at is not None and world.now >= makes_anew_at:
                makes_anew_at = None
                self._make_anew(cluster)
            for role in [*self._lives]:
                self._look_after(role)
        self._end(cluster)

    def _make_topics(self, cluster: Cluster) -> None:
        with Admin(cluster) as admin:
            admin.create_topics(
                [
                    *(NewTopic(name, 2) for name in ("in", "in-out", "dlq.in", "seq", "seq-out", "dlq.seq")),
                    NewTopic(_RETRIES, 2, configs=_SOON),
                    NewTopic(DELAYED, 2, configs={"delay": True}),
                    NewTopic("keyed", 1, configs={"cleanup.policy": "compact"}),
                    NewTopic("narrow", 1, configs={"max.message.bytes": 1_000}),
                ]
            )

    def _send(self, cluster: Cluster) -> None:
        """Inputs, and records to be delivered later; nothing befalls their producer."""
        draw = self.world.random
        with Producer(cluster) as producer:
            for _ in range(draw.randint(1, 5)):
                made = self.inputs.draw(draw, draw.choice(["in", "in", "seq"]))
                partition = None if made.key else 0
                headers = [("id", made.message_id.encode())]
                producer.send(made.topic, made.value, key=made.key, headers=headers, partition=partition)
            for _ in range(draw.choice([0, 0, 1, 3])):
                at_ms = cluster.clock.now_ms() + draw.choice([0, 1_000, 4_000, 12_000])
                value = f"{self.topic_life}:{len(self.inputs.delayed)}"
                producer.send(DELAYED, value.encode(), key=draw.choice([b"a", b"b", None]), deliver_at=at_ms)
                self.inputs.delayed.append(Delayed(value, at_ms, self.topic_life))
        if self.inputs.delayed and self.inputs.delayed[-1].life == self.topic_life and draw.random() < 0.2:
            with Admin(cluster) as admin:
                admin.alter_configs({delay_topic(DELAYED): _SOON})

    def _make_anew(self, cluster: Cluster) -> None:
        """Delete the topic of delayed records, and create another one; the administrator may die in between, and leave
        what waits."""
        self.world.counts["topics made anew"] += 1
        self.is_between_topics = True
        with Admin(cluster) as admin:
            if self.world.random.random() < 0.7:
                delete_topic(cluster.topic_log(DELAYED), DELAYED, timeout_ms=60_000)
            else:
                admin.delete_topics([DELAYED])
            self.world.pause(self.world.random.choice([0.0, 3_000.0]))
            admin.create_topics([NewTopic(DELAYED, self.world.random.choice([1, 2]), configs={"delay": True})])
        self.topic_life += 1
        self.is_between_topics = False

    def _begin(self, role: str) -> None:
        self._number += 1
        life = self._lives[role] = Life(self, role, self._number)
        self.world.counts[f"lives of {role}"] += 1
        self.world.spawn(life.process, "main", life.live)

    def _look_after(self, role: str) -> None:
        draw, life = self.world.random, self._lives[role]
        if life.process.is_dead:
            if draw.random() < 0.5:
                self._begin(role)
        elif draw.random() < self.ends:
            if draw.random() < 0.5:
                self.world.counts["stops"] += 1
                life.is_asked_to_stop = True
            else:
                self.world.counts["kills"] += 1
                life.process.die()
        elif draw.random() < self.weather.expected.nap:
            self.world.counts["naps"] += 1
            life.process.freeze(draw.choice(_NAPS_MS))

    def _end(self, cluster: Cluster) -> None:
        """No more trouble: everything comes to its end, and is judged."""
        world = self.world
        self.weather.is_calm = True
        for role in ("replay", "move1", "maintain"):
            if role in self._lives:
                self._lives[role].is_asked_to_stop = True
        self._wake()
        operator = Life(self, "operator", 0)
        self.weather.spared.add(operator.process)
        problems = ["nothing was judged"]
        for pause_ms in _PAUSES_MS:
            world.pause(pause_ms)
            for role in ("work0", "move0"):
                if self._lives[role].process.is_dead:
                    self._begin(role)
            if self._lives["replay"].process.is_dead:
                replay_some(operator, all_but="hopeless")
            problems = judge(self, cluster)
            if not problems:
                break
        if not problems:
            world.pause(_QUIET_MS)
            problems = judge(self, cluster)
        for life in self._lives.values():
            life.is_asked_to_stop = True
        until = world.now + 60_000
        while world.now < until and not all(life.process.is_dead for life in self._lives.values()):
            world.pause(500)
        for life in self._lives.values():
            if not life.process.is_dead:
                self.violate(f"{life.process.name} doesn't stop")
        self.problems += problems or judge_history(self, cluster)

    def _wake(self) -> None:
        """Whoever is frozen wakes up, perhaps long after others have taken over, or never."""
        world = self.world
        asleep = [life for life in self._lives.values() if life.process.asleep_until > world.now]
        for life in asleep:
            if world.random.random() < 0.5:
                life.process.die()
        latest = max((life.process.asleep_until for life in asleep if not life.process.is_dead), default=world.now)
        world.counts["woken in the calm"] += latest > world.now
        world.pause(latest - world.now)


def _tell(what: Any) -> None:
    """Generators of a process that is dead close nothing any more; all else is told as ever."""
    if not isinstance(what.exc_value, SimulatedCrash):
        sys.__unraisablehook__(what)


def play(seed: int) -> Played:
    """Play a seed to its end."""
    was_enabled = gc.isenabled()
    gc.disable()  # what is weakly referred to goes at the same moments each time
    try:
        made = Play(seed)
        made.run()
    finally:
        if was_enabled:
            gc.enable()
    return Played(made.problems, made.world.counts)
