"""Random schedules of what befalls a group: joins, leaves, crashes, pauses, a slow store, an unreachable store, static
members that restart, other subscriptions, topics that grow. A seed decides all of it, so a failing one replays.

``python -m proof.simulation.group_schedules FROM COUNT [--threads]`` plays any number of them on all cores.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, NoReturn
from unittest import mock

from proof.simulation.cluster.threads import InlineExecutor
from proof.simulation.group_threads import ThreadedWorld
from sparklog import parallel
from sparklog.errors import FencedInstanceIdError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.groups.offsets import offset_commit, offset_state
from sparklog.groups.offsets.rows import OffsetRow, Rows
from sparklog.log.topic import describe_topic
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import SimulatedCrash
from tests.groups.support import HOUR_MS, INTERVAL_MS, SESSION_MS, Player, World

TROUBLED_MS = 45_000.0
LONG_MS = 100_000.0
"""Longer than any session, and than a position in a log is trusted (L1)."""
SETTLES_WITHIN_MS = SESSION_MS + 4 * INTERVAL_MS
"""After the last session of those who died in troubled times."""
WRITES = ("put", "create", "delete")
_CHUNK = 10
"""Schedules that a process is given at once."""
_TELL_EVERY = 500
TOPICS = {"t": 4, "u": 2}


@dataclass
class Odds:
    """How likely it is, with each store call, that it goes wrong."""

    stall: float = 0.10
    trouble: float = 0.004
    pause: float = 0.0006
    crash: float = 0.0006


class Schedule:
    """One schedule: a world, and what happens in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = world.random
        draw = self.draw
        self.odds = Odds()
        self.is_troubled = True
        self.cut_until = 0.0
        """Until then nobody reaches the store."""
        self.cuts: dict[Player, float] = {}
        """Until then one player doesn't reach it, or its calls are slow."""
        self.slow: dict[Player, float] = {}
        eager = draw.random() < 0.2
        self.assignors = ("range",) if eager else ("cooperative-sticky",)
        self.is_eager = eager
        self.instances = ("i0", "i1") if draw.random() < 0.4 else ()
        self.started = 0

    def run(self) -> World:
        world, draw = self.world, self.draw
        for _ in range(draw.randint(1, 4)):
            self.join()
        actions: list[tuple[Callable[[], object], int]] = [
            (self.join, 4),
            (self.leave, 2),
            (self.crash, 2),
            (self.restart, 2),
            (self.pause, 4),
            (self.cut_one, 2),
            (self.cut_all, 1),
            (self.slow_one, 2),
            (self.resubscribe, 2),
            (self.grow, 1),
            (self.hang, 2),
        ]
        names, weights = [act for act, _ in actions], [weight for _, weight in actions]
        end = world.now + TROUBLED_MS
        while world.now < end:
            world.run(draw.expovariate(1 / 2_500))
            draw.choices(names, weights)[0]()
        self.heal()
        world.settle(at_most_ms=SETTLES_WITHIN_MS)
        world.run(2 * INTERVAL_MS)
        if not world.is_settled():
            world.note(f"settled, and then not any more\n{world.describe()}")
        for player in world.players:
            for error in player.raised:
                if not isinstance(error, FencedInstanceIdError):
                    world.note(f"{player.name} was told {error!r}")
        return world

    # What happens.

    def someone(self) -> Player | None:
        living = self.world.living
        return self.draw.choice(living) if living else None

    def join(self, instance_id: str | None = None) -> None:
        if len(self.world.living) >= 5:
            return
        if instance_id is None and self.instances and self.draw.random() < 0.5:
            instance_id = self.draw.choice(self.instances)
        self.started += 1
        pattern = "[tu]" if self.draw.random() < 0.1 else None
        topics = () if pattern else self.draw.choice([("t",), ("t", "u"), ("t",), ("u",)])
        player = self.world.player(
            f"p{self.started}",
            *topics,
            pattern=pattern,
            instance_id=instance_id,
            assignors=self.assignors,
            is_eager=self.is_eager,
            skew_ms=self.draw.uniform(-HOUR_MS, HOUR_MS),
            max_poll_ms=30_000,
        )
        player.store.trouble = lambda op, path, call: self.call(player, op, path, call)

    def leave(self) -> None:
        player = self.someone()
        if player is not None:
            player.leave()

    def crash(self) -> None:
        player = self.someone()
        if player is not None:
            player.crash()

    def restart(self) -> None:
        """A consumer starts again, or a second with its instance id starts beside it."""
        player = self.someone()
        if player is not None:
            if self.draw.random() < 0.8:
                player.crash()
            self.join(player.instance_id)

    def pause(self) -> None:
        player = self.someone()
        if player is not None:
            player.pause(self.draw.choice([2_000, SESSION_MS, 2 * SESSION_MS, HOUR_MS]))

    def cut_one(self) -> None:
        player = self.someone()
        if player is not None:
            self.cuts[player] = self.world.now + self.draw.uniform(500, 2 * SESSION_MS)

    def cut_all(self) -> None:
        self.cut_until = self.world.now + self.draw.uniform(500, 2 * SESSION_MS)

    def slow_one(self) -> None:
        player = self.someone()
        if player is not None:
            self.slow[player] = self.world.now + self.draw.uniform(2_000, 2 * SESSION_MS)

    def resubscribe(self) -> None:
        player = self.someone()
        if player is not None:
            player.subscribe(*self.draw.choice([("t",), ("u",), ("t", "u")]))

    def grow(self) -> None:
        topic = self.draw.choice(sorted(TOPICS))
        if self.world.topics[topic] < 8:
            self.world.grow_topic(topic, self.world.topics[topic] + 1)
            self.report_topics()

    def report_topics(self) -> None:
        """As a consumer's reading does."""
        found = {topic: (topic_id(topic), partition_count) for topic, partition_count in self.world.topics.items()}
        for player in self.world.players:
            player.membership.report_topics(found)

    def hang(self) -> None:
        player = self.someone()
        if player is not None:
            player.is_polling = False

    def heal(self) -> None:
        """No more trouble: whoever lives gets on."""
        world = self.world
        self.is_troubled = False
        for player in world.players:
            player.is_polling = True
            world.wake(player)
        self.report_topics()
        world.run(SESSION_MS + 2 * INTERVAL_MS)  # for so long those who died may be taken for members
        while not world.living:  # those who lived may have found out that they are fenced
            self.join()
            world.run(2 * INTERVAL_MS)

    # Store calls.

    def call(self, player: Player, op: str, path: str, call: Callable[[], object]) -> object:
        """A store call of a player, and what becomes of it."""
        if not self.is_troubled:
            return call()
        world, draw, odds = self.world, self.draw, self.odds
        luck = draw.random()
        if luck < odds.crash:
            if draw.random() < 0.5:
                call()
            raise SimulatedCrash(player.name)
        if luck < odds.crash + odds.pause and len(world.running) == 1:
            late = draw.random() < 0.5
            answer = call() if late else None
            player.sleep(draw.choice([SESSION_MS, 2 * SESSION_MS, LONG_MS]))
            return answer if late else call()
        is_cut = world.now < max(self.cut_until, self.cuts.get(player, 0.0))
        if is_cut or luck > 1 - odds.trouble:
            if draw.random() < 0.3:
                call()
            self._fail(op, path)
        if world.now < self.slow.get(player, 0.0):
            world.stall(draw.uniform(100, 3_000))
        elif draw.random() < odds.stall:
            world.stall(draw.uniform(1, 300))
        answer = call()
        if draw.random() < odds.stall / 2:
            world.stall(draw.uniform(1, 300))
        return answer

    def _fail(self, op: str, path: str) -> NoReturn:
        if op in WRITES:
            raise StoreOutcomeUnknownError(f"{op} {path}: nobody knows (injected)")
        raise StoreUnavailableError(f"{op} {path}: unavailable (injected)")


@cache
def _templates() -> tuple[dict[str, bytes], dict[str, str]]:
    """The objects of the topics, and their ids: made once."""
    world = World(topics=TOPICS)
    objects = {found.path: world.memory.read(found.path) for found in world.memory.list("")}
    return objects, {topic: describe_topic(world.admin.topic_log(topic), topic).topic_id for topic in TOPICS}


def topic_id(topic: str) -> str:
    return _templates()[1][topic]


def run_schedule(seed: int, *, threads: bool = False) -> World:
    """One schedule, to its end; the world has its violations."""
    objects, _ = _templates()
    world: World = ThreadedWorld(seed, topics={}) if threads else World(seed, topics={})
    for path, data in objects.items():
        MemoryStore.put(world.memory, path, data)
    world.topics.update(TOPICS)
    try:
        with cheap_rows(), mock.patch.object(parallel, "ThreadPoolExecutor", InlineExecutor):
            Schedule(world).run()
    except AssertionError as error:
        world.note(str(error))
    finally:
        if isinstance(world, ThreadedWorld):
            world.close()
    return world


class Played(NamedTuple):
    """What became of a schedule."""

    seed: int
    violations: list[str]
    cpu_s: float


def play(seed: int, *, threads: bool = False) -> Played:
    """One schedule; an error that nothing in it should raise is a violation, too."""
    began = time.process_time()
    try:
        violations = run_schedule(seed, threads=threads).violations
    except Exception:
        violations = [traceback.format_exc()]
    return Played(seed, violations, time.process_time() - began)


def play_many(seeds: Iterable[int], *, threads: bool = False, processes: int | None = None) -> Iterator[Played]:
    """Schedules in the order of their seeds, on all cores."""
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    with ProcessPoolExecutor(processes, context, logging.disable, (logging.CRITICAL,)) as pool:
        yield from pool.map(partial(play, threads=threads), seeds, chunksize=_CHUNK)


@contextmanager
def cheap_rows() -> Iterator[None]:
    """Offset files hold but a number here, for which the rows are remembered: Parquet takes most of the time."""
    known: dict[bytes, Rows] = {}

    def encode_rows(rows: Rows) -> bytes:
        number = b"%d" % len(known)
        known[number] = dict(rows)
        return number

    def decode_rows(path: str, data: bytes) -> dict[TopicPartition, OffsetRow]:
        return dict(known[data])

    with (
        mock.patch.object(offset_commit, "encode_rows", encode_rows),
        mock.patch.object(offset_state, "decode_rows", decode_rows),
    ):
        yield


def main(arguments: list[str]) -> int:
    """Play schedules and print what they break; 1 if any did."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.group_schedules", description=__doc__)
    parser.add_argument("first", metavar="FROM", type=int, help="the first seed")
    parser.add_argument("count", metavar="COUNT", type=int)
    parser.add_argument("--threads", action="store_true", help="any interleaving of the members' store calls")
    options = parser.parse_args(arguments)
    cpu_s, broken = 0.0, []
    seeds = range(options.first, options.first + options.count)
    for number, played in enumerate(play_many(seeds, threads=options.threads, processes=os.cpu_count()), start=1):
        cpu_s += played.cpu_s
        if played.violations:
            broken.append(played.seed)
            print(f"seed {played.seed}:", *played.violations, sep="\n  ", flush=True)
        if number % _TELL_EVERY == 0 or number == options.count:
            print(f"{number} schedules, {cpu_s:.0f} s of CPU, {len(broken)} with violations {broken or ''}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
