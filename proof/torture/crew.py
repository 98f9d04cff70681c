"""The processes of a round, and what is done to them."""

from __future__ import annotations

import heapq
import itertools
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess

from proof.torture.life import Place, Told, live
from proof.torture.plan import APP_ROLES, Act, Job, Plan, Role, Torment
from proof.torture.roles import ROLES
from proof.torture.servers import Server
from proof.torture.versions import OtherProcess, OtherVersion

__all__ = ["OTHER_VERSION", "THIS_VERSION", "Crew", "begin"]

OTHER_VERSION, THIS_VERSION = "processes of the other version", "processes of this version"
"""What is counted where two versions take part."""

_END_S = 60.0
"""How long a process may take to close what it has."""
_TICK_S = 0.02
_EXITS = (0, -signal.SIGKILL, -signal.SIGTERM)
"""The last: it was told to end before it began."""


def begin(told: Told) -> None:
    """What a process of a round runs."""
    if told.role in ROLES:
        live(told, ROLES[told.role])
    elif told.role in APP_ROLES:
        from proof.torture.app_roles import ROLES_OF_APPS  # needs SQLAlchemy

        live(told, ROLES_OF_APPS[told.role])
    else:
        from proof.torture.wire_roles import WIRE_ROLES  # needs confluent-kafka

        live(told, WIRE_ROLES[told.role])


@dataclass(slots=True)
class _Running:
    job: Job
    name: str
    process: BaseProcess | OtherProcess
    is_asleep: bool = False


class Crew:
    """Starts, kills, stops and restarts a round's processes as its plan says; in the end none is left.

    Args:
        other: another version, of which about every second process is; None: all are of this one. Planted faults are
            its alone.
    """

    def __init__(self, plan: Plan, place: Place, server: Server | None, *, other: OtherVersion | None = None) -> None:
        self._plan = plan
        self._place = place
        self._server = server
        self._other = other
        self._jobs = {job.name: job for job in plan.jobs}
        self._lives: Counter[str] = Counter()
        self._running: list[_Running] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ties = itertools.count()
        self._context = multiprocessing.get_context("forkserver")
        apps = ["proof.torture.app_roles"] if plan.has_apps else []
        self._context.set_forkserver_preload(["proof.torture.crew", *apps])
        self.counts: Counter[str] = Counter()
        """Acts that had a victim; and processes of another version."""
        self.defects: list[str] = []

    def work(self, is_enough: Callable[[], bool], *, at_most_s: float) -> None:
        """Let all run and carry out what is planned; longer than planned until there ``is_enough``, within a bound."""
        began = time.monotonic()
        for job in self._plan.jobs:
            self._start(job)
        for torment in self._plan.torments:
            self._later(torment.at_ms / 1_000, lambda torment=torment: self._do(torment))  # type: ignore[misc]
        looked = 0.0
        while True:
            now = time.monotonic()
            if now - began > at_most_s:
                break
            if now - began > self._plan.span_ms / 1_000 and now - looked > 1:
                looked = now
                if is_enough():
                    break
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            self._restart_who_ended()
            time.sleep(_TICK_S)

    def end(self) -> None:
        """Wake all up, let those that slept do what harm they can, and end all: by a signal to close, or by SIGKILL."""
        self._due = []
        if self._server is not None and self._server.process.poll() is not None:
            self._server.restart()
        for running in self._running:
            self._wake(running)
        time.sleep(0.5)
        gateways = [one for one in self._running if one.job.role is Role.GATEWAY]
        self._end([one for one in self._running if one.job.role is not Role.GATEWAY])
        self._end(gateways)  # librdkafka's commit of offsets waits for one without a bound
        self._running = []

    def _end(self, those: list[_Running]) -> None:
        for number, running in enumerate(those):
            if (self._plan.seed + number) % 3 == 0:
                running.process.kill()
            else:
                running.process.terminate()
        deadline = time.monotonic() + _END_S
        for running in those:
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.exitcode is None:
                self.defects.append(f"{running.name}: didn't end within {_END_S:.0f} s, see {self._place.errors}")
                self._signal(running, signal.SIGUSR1)
                time.sleep(1)
            self._reap(running)

    def kill_all(self) -> None:
        """Whatever happened: leave nothing running."""
        for running in self._running:
            running.process.kill()
            running.process.join()
        self._running = []

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + after_s, next(self._ties), act))

    def _start(self, job: Job) -> None:
        number = self._lives[job.name]
        self._lives[job.name] += 1
        told = Told(
            place=self._place,
            seed=self._plan.seed,
            job=job.name,
            number=number,
            role=job.role,
            planted=self._plan.planted,
            is_sharing=self._plan.is_sharing,
        )
        process = self._begun(told)
        self._running.append(_Running(job, process.name, process))

    def _begun(self, told: Told) -> BaseProcess | OtherProcess:
        name = f"{told.job}.{told.number}"
        if self._other is not None:
            if random.Random(f"version {told.seed} {name}").random() < 0.5:
                self.counts[OTHER_VERSION] += 1
                return self._other.start(told)
            self.counts[THIS_VERSION] += 1
            told = replace(told, planted=())
        process = self._context.Process(target=begin, args=(told,), name=name)
        process.start()
        return process

    def _do(self, torment: Torment) -> None:
        if torment.act is Act.KILL_SERVER:
            self._kill_server(torment.lasts_ms)
            return
        victims = [one for one in self._running if not torment.job or one.job.name == torment.job]
        if torment.act is not Act.KILL_ALL:
            victims = victims[-1:]  # of two lives of a job the later
        for victim in victims:
            self._torment(victim, torment)

    def _torment(self, victim: _Running, torment: Torment) -> None:
        if victim.process.exitcode is not None or (torment.act not in (Act.KILL, Act.KILL_ALL) and victim.is_asleep):
            return
        self.counts[torment.act.value] += 1
        if torment.act in (Act.KILL, Act.KILL_ALL):
            self.counts["kills"] += 1
            victim.process.kill()
            victim.process.join()
            self._reap(victim)
            self._running.remove(victim)
            if not any(one.job == victim.job for one in self._running):
                self._start(victim.job)
        elif torment.act is Act.LEAVE:
            victim.process.terminate()
        else:
            self.counts["stops"] += 1
            self._signal(victim, signal.SIGSTOP)
            victim.is_asleep = True
            self._later(torment.lasts_ms / 1_000, lambda: self._wake(victim))
            if torment.act is Act.REPLACE:
                self._start(victim.job)

    def _kill_server(self, away_ms: float) -> None:
        server = self._server
        if server is None or not server.survives_kill or server.process.poll() is not None:
            return
        self.counts["server kills"] += 1
        server.kill()
        self._later(away_ms / 1_000, lambda: None if server.process.poll() is None else server.restart())

    def _wake(self, running: _Running) -> None:
        if running.is_asleep:
            running.is_asleep = False
            self._signal(running, signal.SIGCONT)

    def _restart_who_ended(self) -> None:
        """Who left, was fenced or gave up is followed by another, unless there is one already."""
        for running in [one for one in self._running if one.process.exitcode is not None]:
            self._reap(running)
            self._running.remove(running)
            if not any(one.job == running.job for one in self._running):
                self._start(running.job)

    def _reap(self, running: _Running) -> None:
        if running.process.exitcode is None:
            running.process.kill()
        running.process.join()
        if running.process.exitcode not in _EXITS:
            self.defects.append(f"{running.name}: ended with exit code {running.process.exitcode}")

    @staticmethod
    def _signal(running: _Running, number: signal.Signals) -> None:
        if running.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(running.process.pid, number)
