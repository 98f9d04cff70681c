"""What sparklog's clients have of ``threading``, ``random`` and the like, in a simulated world.

Within :func:`simulated` the modules of sparklog see these in place of the real ones: locks, conditions, events,
threads and futures that wait in simulated time, random numbers that the seed decides.
"""

from __future__ import annotations

import concurrent.futures
import queue
import random as real_random
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import _base
from contextlib import contextmanager
from functools import lru_cache
from threading import get_ident as get_real_ident
from types import ModuleType, TracebackType
from typing import Any

from proof.simulation.cluster.world import PARTICIPANTS, Actor, Process, World

__all__ = ["simulated"]

_WORLD: list[World] = []
"""The one that is played, if any."""


def _world() -> World | None:
    """The world, as long as somebody in it acts, and its caller takes part."""
    if not _WORLD or get_real_ident() not in PARTICIPANTS:
        return None
    world = _WORLD[-1]
    return None if world.current is None else world


class Lock:
    """As ``threading.Lock``. Locks of a dead process, or beyond the world's end, are free for all."""

    is_reentrant = False

    def __init__(self) -> None:
        self.owner: Actor | None = None
        self.depth = 0
        self.waiting: deque[Actor] = deque()
        world = _world()
        self.process: Process | None = None if world is None or world.current is None else world.current.process

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        # Half of what the simulator itself costs is here: few calls, and most locks are free.
        world = _WORLD[-1] if _WORLD and get_real_ident() in PARTICIPANTS else None
        actor = None if world is None else world.current
        if world is None or actor is None:
            return True
        process = actor.process
        if self.process is not None and self.process.is_dead and self.process is not process:
            return True
        if process.is_dead:
            world.check_living()
        if self.owner is actor and self.is_reentrant:
            self.depth += 1
            return True
        if blocking and world.preempts:
            world.may_switch()
        if self.owner is not None and not self._wait(world, actor, blocking=blocking, timeout=timeout):
            return False
        self.owner, self.depth = actor, 1
        return True

    def _wait(self, world: World, actor: Actor, *, blocking: bool, timeout: float) -> bool:
        if not blocking:
            return False
        deadline = None if timeout < 0 else world.now + timeout * 1000 / actor.process.rate
        while self.owner is not None:
            left = None if deadline is None else deadline - world.now
            if left is not None and left <= 0:
                return False
            self.waiting.append(actor)
            world.block(None if left is None else left * actor.process.rate)
            if actor in self.waiting:
                self.waiting.remove(actor)
        return True

    def release(self) -> None:
        if not _WORLD or get_real_ident() not in PARTICIPANTS:
            return
        actor = _WORLD[-1].current
        if actor is None or self.owner is None:  # the world has ended, or its holder has died
            return
        if self.owner is not actor and (
            self.is_reentrant or actor.process.is_dead
        ):  # its caller doesn't hold it, and unwinds
            return
        self.depth -= 1
        if self.depth == 0:
            self.owner = None
            if self.waiting:
                _WORLD[-1].tell(self.waiting.popleft())

    def locked(self) -> bool:
        return self.owner is not None

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """As ``threading.RLock``."""

    is_reentrant = True


class Condition:
    """As ``threading.Condition``."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self._waiting: deque[Actor] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        world = _world()
        if world is None or world.current is None:
            raise RuntimeError("nobody waits outside of the world")
        actor, depth = world.current, self._lock.depth
        world.check_living()
        self._waiting.append(actor)
        self._lock.depth = 1
        self._lock.release()
        was_told = world.block(None if timeout is None else timeout * 1000)
        if actor in self._waiting:
            self._waiting.remove(actor)
        self._lock.acquire()
        self._lock.depth = depth
        return was_told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        world = _world()
        result = predicate()
        if result or world is None or world.current is None:
            return result
        rate = world.current.process.rate
        deadline = None if timeout is None else world.now + timeout * 1000 / rate
        while not result:
            left = None if deadline is None else (deadline - world.now) * rate / 1000
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        world = _world()
        while world is not None and n > 0 and self._waiting:
            actor = self._waiting.popleft()
            if not actor.is_done:
                world.tell(actor)
            n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """As ``threading.Event``."""

    def __init__(self) -> None:
        self._condition = Condition(Lock())
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        self._condition.notify_all()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._condition:
            return bool(self._condition.wait_for(lambda: self._flag, timeout))


class SimpleQueue:
    """As ``queue.SimpleQueue``."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._condition = Condition(Lock())

    def put(self, item: object) -> None:
        self._items.append(item)
        self._condition.notify()

    def empty(self) -> bool:
        return not self._items

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._condition:
            if block:
                self._condition.wait_for(lambda: self._items, timeout)
            if not self._items:
                raise queue.Empty
            return self._items.popleft()


class Thread:
    """As ``threading.Thread``: an actor of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self._target = target
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._actor: Actor | None = None

    @property
    def ident(self) -> int | None:
        return None if self._actor is None else id(self._actor)

    def start(self) -> None:
        world = _world()
        if world is None or world.current is None:
            raise RuntimeError("threads begin inside of the world")
        world.check_living()
        self._actor = world.spawn(world.current.process, self.name.removeprefix("sparklog-"), self.run)
        _THREADS[self._actor] = self

    def run(self) -> None:
        try:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)
        finally:
            if self._actor is not None:
                _THREADS.pop(self._actor, None)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.is_done

    def join(self, timeout: float | None = None) -> None:
        world, actor = _world(), self._actor
        if world is None or world.current is None or actor is None:
            return
        rate = world.current.process.rate
        deadline = None if timeout is None else world.now + timeout * 1000 / rate
        while not actor.is_done:
            left = None if deadline is None else (deadline - world.now) * rate
            if left is not None and left <= 0:
                return
            actor.joiners.append(world.current)
            world.block(left)
            if world.current in actor.joiners:
                actor.joiners.remove(world.current)


_THREADS: dict[Actor, Thread] = {}


class _Someone(Thread):
    """The thread of an actor that wasn't started as one."""


def current_thread() -> Thread:
    world = _world()
    if world is None or world.current is None:
        return _NOBODY
    actor = world.current
    if actor not in _THREADS:
        someone = _Someone(name=actor.name)
        someone._actor = actor
        _THREADS[actor] = someone
    return _THREADS[actor]


_NOBODY = _Someone(name="nobody")


def get_ident() -> int:
    world = _world()
    return 0 if world is None or world.current is None else id(world.current)


class InlineExecutor:
    """As ``ThreadPoolExecutor``: does what it is given at once, in the caller's thread."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def map(self, call: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([call(*item) for item in zip(*items, strict=False)])

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def _namespace(name: str, **values: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(values)
    return module


_THREADING = _namespace(
    "threading",
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    current_thread=current_thread,
    main_thread=lambda: None,  # nobody is interrupted by a signal
    get_ident=get_ident,
    enumerate=lambda: list(_THREADS.values()),
    local=threading.local,
    TIMEOUT_MAX=threading.TIMEOUT_MAX,
)


_OUTSIDE = real_random.Random()
"""The numbers of threads that take no part."""


def _generator() -> real_random.Random:
    return _WORLD[-1].random if get_real_ident() in PARTICIPANTS else _OUTSIDE


class _Random(real_random.Random):
    """One that an object makes for itself."""

    def __init__(self, seed: object = None) -> None:
        super().__init__(_generator().getrandbits(64) if seed is None else seed)  # type: ignore[arg-type]


_RANDOM = _namespace(
    "random",
    Random=_Random,
    uniform=lambda low, high: _generator().uniform(low, high),
    random=lambda: _generator().random(),
    choice=lambda items: _generator().choice(items),
)
_SECRETS = _namespace(
    "secrets",
    token_hex=lambda size=32: f"{_generator().getrandbits(8 * size):0{2 * size}x}",
    randbits=lambda bits: _generator().getrandbits(bits),
)
_UUID = _namespace("uuid", UUID=uuid.UUID, uuid4=lambda: uuid.UUID(int=_generator().getrandbits(128), version=4))


def _monotonic() -> float:
    world = _world()
    return 0.0 if world is None or world.current is None else world.current.process.clock.ticks_ms() / 1000


_TIME = _namespace("time", monotonic=_monotonic)
_QUEUE = _namespace("queue", SimpleQueue=SimpleQueue, Empty=queue.Empty)
_REPLACED: dict[str, ModuleType] = {
    "threading": _THREADING,
    "queue": _QUEUE,
    "random": _RANDOM,
    "secrets": _SECRETS,
    "uuid": _UUID,
    "time": _TIME,
}
_REAL_ROOMS = ("sparklog.testing", "sparklog.storage.memory", "sparklog.clock", "sparklog.spark", "sparklog.cli")


@lru_cache(maxsize=1)
def _targets(module_count: int) -> list[tuple[ModuleType, str, object]]:
    """What is to be replaced, where; searched for once for so many modules that are loaded."""
    found: list[tuple[ModuleType, str, object]] = [(_base, "threading", _THREADING)]
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("sparklog.") or name.startswith(_REAL_ROOMS):
            continue
        for attribute, replacement in _REPLACED.items():
            if vars(module).get(attribute) is sys.modules.get(attribute):
                found.append((module, attribute, replacement))
        if vars(module).get("ThreadPoolExecutor") is concurrent.futures.ThreadPoolExecutor:
            found.append((module, "ThreadPoolExecutor", InlineExecutor))
    return found


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Let sparklog live in this world."""
    targets = _targets(len(sys.modules))
    before = [(module, name, vars(module)[name]) for module, name, _ in targets]
    _WORLD.append(world)
    PARTICIPANTS.add(get_real_ident())
    try:
        for module, name, replacement in targets:
            setattr(module, name, replacement)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        PARTICIPANTS.discard(get_real_ident())
        _WORLD.pop()
        _THREADS.clear()
