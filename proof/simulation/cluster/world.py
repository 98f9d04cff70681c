"""Simulated time, and the actors that share it: each has a thread, exactly one moves, a seed decides the order.

Time passes only where an actor waits; who waits for the shortest time goes on first. An actor belongs to a process:
a process that dies takes all of its actors with it, one that is frozen stops them all, and each process has clocks of
its own.
"""

from __future__ import annotations

import _thread
import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.testing import SimulatedCrash

__all__ = ["DAY_MS", "HOUR_MS", "Actor", "Happened", "Process", "Stuck", "World"]

HOUR_MS = 3_600_000.0
DAY_MS = 24 * HOUR_MS
_JITTER_MS = 0.05
"""Who is notified goes on so much later at most: in any order with others."""
_MOST_EVENTS = 400_000
"""A run with more turns than this doesn't come to an end."""


class Stuck(Exception):
    """Everybody waits for somebody else, or the run has no end."""


class Happened(NamedTuple):
    """A line of the trace."""

    at_ms: float
    who: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{_time(self.at_ms)}  {self.who:<26} {self.what:<14} {self.detail}"


def _time(ms: float) -> str:
    days, rest = divmod(ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, 60_000)
    return f"{int(days):3d}d {int(hours):02d}:{int(minutes):02d}:{rest / 1000:09.6f}"


class Process:
    """What dies together, sleeps together, and has one pair of clocks."""

    def __init__(self, world: World, name: str, *, skew_ms: float = 0.0, rate: float = 1.0) -> None:
        self.name = name
        self.world = world
        self.is_dead = False
        self.asleep_until = 0.0
        self.rate = rate
        """Its clocks' milliseconds for each of the world's."""
        self.clock = ProcessClock(self, skew_ms)
        self.actors: list[Actor] = []
        self.kept: list[object] = []
        """Clients of it: nothing of a process is collected before the world has ended."""

    def __repr__(self) -> str:
        return f"Process({self.name!r})"

    def die(self) -> None:
        """End it here: its actors unwind in their own threads, and touch nothing any more."""
        if not self.is_dead:
            self.is_dead = True
            self.asleep_until = 0.0
            for actor in self.actors:
                if not actor.is_done and actor is not self.world.current:
                    self.world.schedule(actor, self.world.now)

    def freeze(self, duration_ms: float) -> None:
        """None of its actors moves for so long."""
        self.asleep_until = max(self.asleep_until, self.world.now + duration_ms)


class ProcessClock(Clock):
    """The clocks of one process: both run at its rate, the wall's is set wrong."""

    def __init__(self, process: Process, skew_ms: float) -> None:
        self._process = process
        self._wall_ms = process.world.start_ms + skew_ms

    def now_ms(self) -> int:
        return int(self._wall_ms + self.ticks_ms())

    def ticks_ms(self) -> float:
        return self._process.world.now * self._process.rate

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms > 0:
            self._process.world.pause(duration_ms / self._process.rate)


class Actor:
    """A thread of a process."""

    __slots__ = ("error", "go", "is_done", "joiners", "name", "process", "ticket", "was_told", "work")

    def __init__(self, process: Process, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.process = process
        self.work = work
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.ticket = -1
        self.is_done = False
        self.was_told = False
        """Did a notification end its wait?"""
        self.joiners: list[Actor] = []
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        return f"Actor({self.name!r})"


class World:
    """Everybody who acts, and the time.

    Args:
        seed: decides all that is drawn.
        start_ms: the wall time at which the world begins.
    """

    def __init__(self, seed: int, *, start_ms: float) -> None:
        self.random = random.Random(seed)
        self.start_ms = start_ms
        self.now = 0.0
        """Milliseconds since the world began."""
        self.trace: list[Happened] = []
        self.is_traced = False
        self.counts: Counter[str] = Counter()
        self.current: Actor | None = None
        self.switches = 0
        self.processes: list[Process] = []
        self.preempts = 0.0
        """How likely it is that another actor goes on where one takes a lock."""
        self.has_ended = False
        self.broken: list[tuple[str, BaseException]] = []
        """Threads that an error ended, while their process lived."""
        self._main_actor: Actor | None = None
        self._events: list[tuple[float, int, Actor]] = []
        self._numbers = count()
        self._main = _thread.allocate_lock()
        self._main.acquire()
        self._failure: BaseException | None = None

    def note(self, what: str, detail: str = "", *, who: str | None = None) -> None:
        """Add a line to the trace, if there is one."""
        if self.is_traced:
            actor = self.current
            name = who or ("" if actor is None else f"{actor.process.name}/{actor.name}")
            self.trace.append(Happened(self.now, name, what, detail))

    def process(self, name: str, *, skew_ms: float = 0.0, rate: float = 1.0) -> Process:
        """Add a process."""
        made = Process(self, name, skew_ms=skew_ms, rate=rate)
        self.processes.append(made)
        return made

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Actor:
        """Let a new actor begin about now."""
        actor = Actor(process, name, work)
        process.actors.append(actor)
        self.schedule(actor, self.now + self.random.random() * _JITTER_MS)
        _run_in_thread(self, actor)
        return actor

    def schedule(self, actor: Actor, at: float) -> None:
        """Let an actor go on at a time, and at no other."""
        actor.ticket = next(self._numbers)
        heapq.heappush(self._events, (at, actor.ticket, actor))

    # For the current actor.

    def pause(self, duration_ms: float) -> None:
        """Let time pass."""
        actor = self._living()
        at = self.now + max(0.0, duration_ms)
        if self._is_first(actor, at):
            self.now = at
            return
        self.schedule(actor, at)
        self._give_way(actor)

    def block(self, timeout_ms: float | None) -> bool:
        """Wait to be told, or for a time by the process's clock. True: told."""
        actor = self._living()
        actor.was_told = False
        if timeout_ms is None:
            actor.ticket = next(self._numbers)
        else:
            self.schedule(actor, self.now + max(0.0, timeout_ms) / actor.process.rate)
        self._give_way(actor)
        return actor.was_told

    def tell(self, actor: Actor) -> None:
        """End another's :meth:`block`."""
        actor.was_told = True
        self.schedule(actor, self.now + self.random.random() * _JITTER_MS)

    def check_living(self) -> None:
        """Raise ``SimulatedCrash`` in an actor whose process is dead."""
        self._living()

    def may_switch(self) -> None:
        """A point between two store calls where another thread may go on."""
        if self.preempts and self.random.random() < self.preempts:
            self.pause(self.random.random() * _JITTER_MS)

    def _is_first(self, actor: Actor, at: float) -> bool:
        """Would this one go on next, if it were scheduled for then? Most often it would."""
        if (self._events and self._events[0][0] <= at) or actor.process.asleep_until > at or self._failure is not None:
            return False
        actor.ticket = next(self._numbers)  # what it was scheduled for before is over
        return actor.ticket <= _MOST_EVENTS

    def _living(self) -> Actor:
        actor = self.current
        if actor is None:
            raise Stuck("only actors may wait")
        if actor.process.is_dead:
            raise SimulatedCrash(f"{actor.process.name} is dead")
        return actor

    def _give_way(self, actor: Actor) -> None:
        following = self._next()
        if following is not actor:
            self.switches += 1
            if following is None:
                self._main.release()
            else:
                following.go.release()
            actor.go.acquire()
        if actor.process.is_dead:
            raise SimulatedCrash(f"{actor.process.name} is dead")

    def _next(self) -> Actor | None:
        """Who goes on now; None where nobody can."""
        events = self._events
        while events and self._failure is None:
            at, number, actor = heapq.heappop(events)
            if number != actor.ticket or actor.is_done:
                continue
            asleep_until = actor.process.asleep_until
            if asleep_until > at:
                heapq.heappush(events, (asleep_until, number, actor))
                continue
            if next(self._numbers) > _MOST_EVENTS:
                self._failure = Stuck(f"more than {_MOST_EVENTS} turns: this has no end")
                break
            self.now = max(self.now, at)
            self.current = actor
            return actor
        if self._failure is None:
            self._failure = Stuck("everybody waits for somebody else")
        self.current = None
        return None

    # From outside.

    def run(self, process: Process, work: Callable[[], object]) -> None:
        """Play until ``work`` has ended, then end all others. Raises what it raised."""
        main = self._main_actor = self.spawn(process, "main", work)
        try:
            following = self._next()
            if following is not None:
                following.go.release()
                self._main.acquire()
        finally:
            self._end()
        if main.error is not None and not isinstance(main.error, SimulatedCrash):
            raise main.error
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        """Let every actor unwind."""
        self.has_ended = True
        for process in self.processes:
            process.is_dead = True
        for actor in self.actors():
            if not actor.is_done:
                self.current = actor
                actor.go.release()
                self._main.acquire()
        self.current = None

    def actors(self) -> Iterator[Actor]:
        """All that ever were."""
        for process in [*self.processes]:
            yield from [*process.actors]

    def live(self, actor: Actor) -> None:
        """In an actor's thread: all of its life."""
        actor.go.acquire()
        try:
            if not actor.process.is_dead:
                actor.work()
        except SimulatedCrash:
            pass
        except BaseException as error:
            actor.error = error
            if not actor.process.is_dead:
                self.broken.append((f"{actor.process.name}/{actor.name}", error))
        actor.is_done = True
        if self.has_ended:
            self._main.release()
            return
        for joiner in actor.joiners:
            self.tell(joiner)
        if actor is self._main_actor:
            self.current = None
            self._main.release()
            return
        following = self._next()
        if following is None:
            self._main.release()
        else:
            following.go.release()


class _Thread(threading.Thread):
    """Lives for many actors, one after the other: to start a thread costs more than most actors do."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.life: Callable[[], None] = lambda: None

    def run(self) -> None:
        PARTICIPANTS.add(_thread.get_ident())
        while True:
            self.go.acquire()
            self.life()
            self.life = lambda: None
            _IDLE.append(self)


_IDLE: deque[_Thread] = deque()
PARTICIPANTS: set[int] = set()
"""Idents of the real threads that take part in worlds: those of actors, and whoever plays a world. Others, which a test
may have left behind, must not wait or draw in its actors' names."""


def _run_in_thread(world: World, actor: Actor) -> None:
    try:
        thread = _IDLE.popleft()
    except IndexError:
        thread = _Thread()
        thread.start()
    thread.life = lambda: world.live(actor)
    thread.go.release()
