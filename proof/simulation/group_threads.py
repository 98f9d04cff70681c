"""A world whose actors have threads: any interleaving of their store calls, in the order of simulated time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Mapping

from sparklog.testing import SimulatedCrash
from tests.groups.support import Actor, Player, World


class ThreadedWorld(World):
    """Exactly one thread moves at any time: the same seed gives the same order. To be closed."""

    def __init__(self, seed: int = 0, *, topics: Mapping[str, int] | None = None) -> None:
        super().__init__(seed, topics=topics)
        self._threads: dict[Actor, _ActorThread] = {}
        self._back = _locked()
        self.is_closing = False
        self._failure: BaseException | None = None

    def close(self) -> None:
        """End the threads, wherever they stand."""
        self.is_closing = True
        for thread in self._threads.values():
            thread.go.release()
            thread.join()

    def __enter__(self) -> ThreadedWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_until(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, actor, ticket = heapq.heappop(self._events)
            if ticket == actor.ticket:
                self._reach(at)
                if actor.is_busy:
                    self._let_go_on(actor)
                else:
                    self._turn(actor)
        self._reach(until)

    def take_turn(self, actor: Actor) -> None:
        if not actor.calls_store:
            super().take_turn(actor)
            return
        if actor not in self._threads:
            self._threads[actor] = _ActorThread(self, actor)
            self._threads[actor].start()
        self._let_go_on(actor)

    def stall(self, duration_ms: float) -> None:
        if not self.running:
            self.now += duration_ms
            return
        actor, until = self.running[-1], self.now + duration_ms
        while True:
            self._go_on_at(actor, max(until, actor.player.awake_at))
            self._back.release()
            self._threads[actor].go.acquire()
            if actor.player.is_dead or self.is_closing:
                raise SimulatedCrash(actor.player.name)
            if self.now >= actor.player.awake_at:
                return

    def wake(self, player: Player) -> None:
        super().wake(player)
        for actor in (*player.actors, player.keeper):
            if actor.is_busy:
                self._go_on_at(actor, self.now)

    def _go_on_at(self, actor: Actor, at: float) -> None:
        actor.ticket = next(self._numbers)
        heapq.heappush(self._events, (at, actor.ticket, actor, actor.ticket))

    def _let_go_on(self, actor: Actor) -> None:
        self.running = [actor] if actor.is_busy else []
        self._threads[actor].go.release()
        self._back.acquire()
        self.running = []
        if self._failure is not None:
            raise self._failure

    def do_turn(self, actor: Actor) -> None:
        """In the actor's thread."""
        try:
            super().take_turn(actor)
        except BaseException as error:  # told by whoever lets time pass
            self._failure = error
        if not self.is_closing:
            self._back.release()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class _ActorThread(threading.Thread):
    def __init__(self, world: ThreadedWorld, actor: Actor) -> None:
        super().__init__(daemon=True)
        self.go = _locked()
        self._world = world
        self._actor = actor

    def run(self) -> None:
        while not self._world.is_closing:
            self.go.acquire()
            if not self._world.is_closing:
                self._world.do_turn(self._actor)
