"""What befalls calls to the store: how long they take, how they fail, and what becomes of whoever makes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from proof.simulation.cluster.world import DAY_MS, Process, World
from sparklog.errors import StoreError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.storage import CreateResult, ObjectStore
from sparklog.testing import SimulatedCrash, WrappedStore

__all__ = ["Forecast", "Weather", "WeatheredStore", "forecast"]

T = TypeVar("T")

_WRITES = frozenset({"put", "create", "delete"})
_FLUSHES = frozenset({"sync", "sync_all"})
_LONGEST_NAP_MS = 600_000.0
_FAIR = 0.03
"""How many worlds are without trouble: there nothing is excused by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How likely it is, with each call to the store, that something befalls it."""

    latency_ms: float
    """What a call takes on average."""
    slow: float = 0.0
    """It takes seconds."""
    crash: float = 0.0
    """Its process dies, before or after the effect."""
    lost_answer: float = 0.0
    """Carried out, and nobody learns of it."""
    lost_request: float = 0.0
    """Not carried out, and nobody knows."""
    late: float = 0.0
    """Nobody learns of it, and it is carried out later."""
    refused: float = 0.0
    """409 or 503: not carried out."""
    own_success: float = 0.0
    """Created, and told that it exists."""
    nap: float = 0.0
    """Its process is frozen for seconds or minutes, before or after the effect."""
    night: float = 0.0
    """With each look of the director: somebody is frozen, in a call, for hours or days."""
    outages: float = 0.0
    """With each look of the director: a process doesn't reach the store for a while, or nobody does."""
    skews: bool = False
    """Wall clocks are wrong, by up to ten hours."""
    drifts: bool = False
    """Clocks run faster or slower."""
    preempts: float = 0.0

    @property
    def is_fair(self) -> bool:
        """Does nothing befall anybody, but that clocks are wrong and threads interrupted?"""
        return self == self.calmed()

    def calmed(self) -> Forecast:
        """The same without what befalls anybody."""
        return Forecast(latency_ms=self.latency_ms, skews=self.skews, drifts=self.drifts, preempts=self.preempts)


def forecast(draw: random.Random) -> Forecast:
    """Each kind of trouble is there or not: where everything goes wrong at once, nothing gets far enough."""

    def maybe(chance: float, low: float, high: float) -> float:
        return draw.uniform(low, high) if draw.random() < chance else 0.0

    drawn = Forecast(
        latency_ms=draw.choice([0.3, 3.0, 10.0, 30.0]),
        slow=maybe(0.3, 0.002, 0.03),
        crash=maybe(0.6, 0.002, 0.015),
        lost_answer=maybe(0.4, 0.002, 0.04),
        lost_request=maybe(0.3, 0.002, 0.03),
        late=maybe(0.25, 0.002, 0.03),
        refused=maybe(0.3, 0.005, 0.05),
        own_success=maybe(0.25, 0.01, 0.1),
        nap=maybe(0.35, 0.001, 0.01),
        night=maybe(0.15, 0.01, 0.1),
        outages=maybe(0.2, 0.005, 0.05),
        skews=draw.random() < 0.3,
        drifts=draw.random() < 0.25,
        preempts=maybe(0.3, 0.01, 0.2),
    )
    return drawn.calmed() if draw.random() < _FAIR else drawn


class Fate:
    """What a process meets in a create mostly, the one call that decides something."""

    def __init__(self, what: str, duration_ms: float, after: int, place: str) -> None:
        self.what = (what, duration_ms)
        self._place = place
        self._left = after
        """Calls that are spared first."""

    def comes(self, path: str) -> bool:
        """Is it this call?"""
        if not path.startswith(self._place):
            return False
        self._left -= 1
        return self._left < 0


class Weather:
    """The troubles of one world; calm in the end."""

    def __init__(self, world: World, expected: Forecast) -> None:
        self.world = world
        self.expected = expected
        self.is_calm = True
        self.cut_until = 0.0
        self.cuts: dict[Process, float] = {}
        self.fates: dict[Process, Fate] = {}
        """What processes meet soon."""
        self.night_until = 0.0
        """Until then somebody sleeps, and nobody is in a hurry."""
        self.nights_left = 2
        self.spared: set[Process] = set()
        """Processes that nothing befalls."""
        self._network = world.process("network")

    def store(self, store: ObjectStore, process: Process, *, is_folder: bool) -> WeatheredStore:
        """``store`` as a process sees it. Only where it is a folder there is something to flush."""
        return WeatheredStore(store, process, self, is_folder=is_folder)

    def call(self, process: Process, op: str, path: str, call: Callable[[], T]) -> T:
        """Carry out one call of a process, as luck will have it."""
        world, expected = self.world, self.expected
        draw = world.random
        world.check_living()
        world.pause(draw.expovariate(1 / expected.latency_ms))
        if self.is_calm or process in self.spared:
            answer = self._carry_out(op, path, call)
        else:
            answer = self._in_troubled_times(process, op, path, call, draw)
        if draw.random() < 0.3:
            world.pause(draw.expovariate(1 / expected.latency_ms))
        return answer

    def _in_troubled_times(self, process: Process, op: str, path: str, call: Callable[[], T], draw: random.Random) -> T:
        world, expected = self.world, self.expected
        if expected.slow and draw.random() < expected.slow:
            world.counts["slow calls"] += 1
            world.pause(draw.uniform(500, 15_000))
        luck = draw.random()
        if world.now < max(self.cut_until, self.cuts.get(process, 0.0)):
            self._fail_perhaps(op, path, call)
        if process in self.fates and (op == "create" or draw.random() < 0.02) and self.fates[process].comes(path):
            fate, duration_ms = self.fates.pop(process).what
            if fate == "crash":
                luck = 0.0
            elif fate == "outage":
                self.cut(process, duration_ms)
                self._fail_perhaps(op, path, call)
            else:
                return self._sleep_in_call(process, op, path, call, duration_ms)
        for kind in ("crash", "nap", "lost_answer", "lost_request", "late", "refused", "own_success"):
            luck -= getattr(expected, kind)
            if luck < 0:
                break
        else:
            return self._carry_out(op, path, call)
        is_after = draw.random() < 0.5
        if kind == "crash":
            if is_after:
                self._lose(op, path, call)
            self._crash(process, op, path, is_after=is_after)
        if kind == "nap":
            duration_ms = draw.choice([3_000.0, 15_000.0, 70_000.0, 200_000.0]) * draw.uniform(0.5, 1.5)
            return self._sleep_in_call(process, op, path, call, duration_ms)
        if kind == "refused":
            world.counts["refused calls"] += 1
            if op == "create" and draw.random() < 0.3:  # somebody in between sent it twice
                world.counts["false refusals"] += 1
                self._lose(op, path, call)
            world.note("refused", f"{op} {path}")
            raise StoreUnavailableError(f"{op} {path}: refused (simulated)")
        if kind == "own_success":
            if op != "create":
                return self._carry_out(op, path, call)
            world.counts["own successes"] += 1
            self._lose(op, path, call)
            return CreateResult.EXISTS  # type: ignore[return-value]
        world.counts[kind.replace("_", " ") + "s"] += 1
        if kind == "lost_answer":
            self._lose(op, path, call)
        elif kind == "late" and op in _WRITES:
            delay_ms = draw.choice([20.0, 200.0, 5_000.0, 60_000.0]) * draw.random()
            world.spawn(self._network, "late", lambda: self._arrive(delay_ms, op, path, call))
        self._fail(op, path, kind.replace("_", " "))

    def cut(self, process: Process | None, duration_ms: float) -> None:
        """Keep a process, or everybody, from the store."""
        self.world.counts["outages"] += 1
        self.world.note("outage", f"of {'everybody' if process is None else process.name}, {duration_ms / 1000:.0f} s")
        if process is None:
            self.cut_until = self.world.now + duration_ms
        else:
            self.cuts[process] = self.world.now + duration_ms

    def _fail_perhaps(self, op: str, path: str, call: Callable[[], object]) -> NoReturn:
        if self.world.random.random() < 0.3:
            self._lose(op, path, call)
        self._fail(op, path, "cut off")

    def _fail(self, op: str, path: str, why: str) -> NoReturn:
        """Nobody knows whether it was carried out."""
        self.world.note(why, f"{op} {path}")
        error = StoreOutcomeUnknownError if op in _WRITES else StoreUnavailableError
        raise error(f"{op} {path}: {why} (simulated)")

    def plan_night(self, process: Process, *, after: int = 0) -> None:
        """Let a process sleep for days, and others know."""
        if self.nights_left > 0:
            self.nights_left -= 1
            choice = self.world.random.choice
            duration_ms = choice([20 * 60_000.0, DAY_MS / 8, 1.2 * DAY_MS, 2.5 * DAY_MS, 9 * DAY_MS])
            self.fates[process] = Fate("night", duration_ms, after, "")

    def plan(self, process: Process, what: str, duration_ms: float = 0.0, *, after: int = 0, place: str = "") -> None:
        """Let a process meet ``crash``, ``outage`` or ``nap``, in a call for an object in the folder ``place``."""
        self.fates[process] = Fate(what, duration_ms, after, place)

    def _sleep_in_call(self, process: Process, op: str, path: str, call: Callable[[], T], duration_ms: float) -> T:
        if self.world.random.random() < 0.5:
            self._sleep(process, duration_ms)
            return self._carry_out(op, path, call)
        answer = self._carry_out(op, path, call)
        self._sleep(process, duration_ms)
        return answer

    def _sleep(self, process: Process, duration_ms: float) -> None:
        """Freeze the current actor's process."""
        world = self.world
        is_night = duration_ms > _LONGEST_NAP_MS
        world.counts["nights" if is_night else "naps"] += 1
        world.note("sleeps", f"{duration_ms / 1000:.0f} s")
        if is_night:
            self.night_until = max(self.night_until, world.now + duration_ms)
        process.freeze(duration_ms)
        world.pause(duration_ms)

    def _crash(self, process: Process, op: str, path: str, *, is_after: bool) -> NoReturn:
        self.world.counts["crashes"] += 1
        self.world.note("crash", f"{'after' if is_after else 'before'} {op} {path}")
        process.die()
        raise SimulatedCrash(f"{process.name} crashed at {op} {path}")

    def _lose(self, op: str, path: str, call: Callable[[], object]) -> None:
        with suppress(StoreError):  # whatever the answer would have been, nobody gets it
            self._carry_out(op, path, call)

    def _arrive(self, delay_ms: float, op: str, path: str, call: Callable[[], object]) -> None:
        self.world.pause(delay_ms)
        self._lose(op, path, call)

    def _carry_out(self, op: str, path: str, call: Callable[[], T]) -> T:
        world = self.world
        if not world.is_traced:
            return call()
        try:
            answer = call()
        except StoreError as error:
            world.note(op, f"{path} {type(error).__name__}")
            raise
        told = f" {answer.value}" if isinstance(answer, CreateResult) else ""
        world.note(op, path + told)
        return answer


class WeatheredStore(WrappedStore):
    """A store as one process sees it."""

    def __init__(self, store: ObjectStore, process: Process, weather: Weather, *, is_folder: bool) -> None:
        super().__init__(store)
        self._process = process
        self._weather = weather
        self._is_folder = is_folder

    def delete(self, paths: Iterable[str]) -> None:
        """One by one, in any order, and perhaps not all of them: so a bulk delete may be carried out."""
        shuffled = [*paths]
        if self._weather.world.current is not None:
            self._weather.world.random.shuffle(shuffled)
        super().delete(shuffled)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self._weather.world.current is None:  # what an engine reads by itself, outside of the world
            return call()
        if op in _FLUSHES and not self._is_folder:
            return call()
        return self._weather.call(self._process, op, path, call)

    def close(self) -> None:
        """The store is everybody's."""
