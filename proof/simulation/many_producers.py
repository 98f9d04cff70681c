"""How long records wait where several producers share a topic, in simulated time: the real producers, each in a process
of its own, on a store that answers as late as an object store does.

    python -m proof.simulation.many_producers 1 2 8 32 [--seconds 20] [--every-ms 50] [--alone] [--old 1] [--warm]
        [--processes 8]

GET and LIST take 20 ms, PUT and create 50 ms, each times U(0.85, 1.25), one of 200 3 to 10 times as long; CPU takes no
time. Each producer sends one record each ``--every-ms``. Prints the time from ``send`` to the acknowledgement, and the
requests for each file. The times of the first five seconds stand apart, and their requests aren't counted: group commit
switches itself on in them. With ``--warm`` each has sent a record before, alone, and all begin at once.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from unittest import mock

from proof.simulation.cluster import world as worlds
from proof.simulation.cluster.threads import Thread, simulated
from proof.simulation.cluster.world import World
from sparklog import parallel
from sparklog.log import Cluster, create_topic
from sparklog.producer import Producer
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import WrappedStore

__all__ = ["Figures", "SimulatedExecutor", "measure"]

T = TypeVar("T")
_READ_MS, _WRITE_MS = 20.0, 50.0
_START_MS = 5_000.0
_WARM_EVERY_MS = 500.0


class _SleepingStore(WrappedStore):
    """Half of the time that a call takes passes before it, half after it."""

    def __init__(self, store: ObjectStore, world: World, counts: Counter[str], takes_ms: Mapping[str, float]) -> None:
        super().__init__(store)
        self._world = world
        self._counts = counts
        self._takes_ms = takes_ms

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return self._at_once("get", len(paths), lambda: self._store.read_many(paths))

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._at_once("put", len(objects), lambda: self._store.put_many(objects, sync=sync))

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        return self._at_once(op, 1, call)

    def _at_once(self, op: str, count: int, call: Callable[[], T]) -> T:
        """Requests side by side, which take as long as the longest of them."""
        if op not in self._takes_ms or not count:
            return call()
        self._counts[op] += count
        took_ms = max(self._draw_ms(op) for _ in range(count))
        self._world.pause(took_ms / 2)
        try:
            return call()
        finally:
            self._world.pause(took_ms / 2)

    def _draw_ms(self, op: str) -> float:
        draw = self._world.random
        is_slow = draw.random() < 1 / 200
        return self._takes_ms[op] * draw.uniform(0.85, 1.25) * (draw.uniform(3, 10) if is_slow else 1)


class _Future:
    """The result of a call in a simulated thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread = Thread(target=self._run, name="parallel")
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # for whoever asks for the result
            self._error = error

    def result(self, timeout: float | None = None) -> Any:
        self.thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> bool:
        return False


class SimulatedExecutor:
    """As ``ThreadPoolExecutor``, with as many simulated threads as there are calls."""

    def __init__(self, *_: object) -> None:
        self._futures: list[_Future] = []

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._futures:
            future.thread.join()

    def submit(self, call: Callable[..., object], *given: Any) -> _Future:
        self._futures.append(_Future(partial(call, *given)))
        return self._futures[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured."""

    count: int
    first_ms: Sequence[float]
    """How long each record waited that was sent in the first five seconds."""
    later_ms: Sequence[float]
    """And each that was sent after them."""
    old_ms: Sequence[float]
    """Of these, those of producers without group commit, where others have it."""
    requests: Counter[str]
    """After the first five seconds."""
    errors: Counter[str]

    def __str__(self) -> str:
        files = max(1, self.requests["put"])
        each = ", ".join(f"{op} {self.requests[op] / files:.2f}" for op in ("put", "create", "get", "list"))
        said = (
            f"{self.count:3} producers: p50 / p99 / max {_spread(self.later_ms)} ms, in the first seconds "
            f"{_spread(self.first_ms)}; for each of {files:,} files: {each}, together "
            f"{self.requests.total() / files:.1f}"
        )
        said += f"; without group commit {_spread(self.old_ms)}" if self.old_ms else ""
        return said + (f"; errors {dict(self.errors)}" if self.errors else "")


def _spread(values_ms: Sequence[float]) -> str:
    values = sorted(values_ms) or [0.0]
    return " / ".join(f"{values[int(part * (len(values) - 1))]:,.0f}" for part in (0.5, 0.99, 1.0))


def measure(
    count: int,
    *,
    seconds: float,
    every_ms: float,
    seed: int,
    old: int = 0,
    read_ms: float = _READ_MS,
    list_ms: float = _READ_MS,
    write_ms: float = _WRITE_MS,
    warm: bool = False,
    processes: int | None = None,
) -> Figures:
    """Let ``count`` producers send, the first ``old`` of them without group commit.

    Args:
        warm: before all begin at once, each has sent a record alone.
        processes: so many have the producers among them; None: each has its own.
    """
    begin_ms = count * _WARM_EVERY_MS if warm else 0.0
    world = World(seed, start_ms=1_700_000_000_000)
    memory = MemoryStore(clock=world.process("store").clock)
    takes_ms = {"get": read_ms, "list": list_ms, "put": write_ms, "create": write_ms}
    requests, errors = Counter[str](), Counter[str]()
    waited: list[tuple[int, float, float]] = []
    ended: list[int] = []

    homes = [world.process(f"producers{number}") for number in range(processes or count)]
    clusters: dict[int, Cluster] = {}

    def send(number: int) -> None:
        process = homes[number % len(homes)]
        process.kept.append(world.spawn(process, "main", lambda: live(number)))

    def live(number: int) -> None:
        assert world.current is not None
        process = world.current.process
        store = _SleepingStore(memory, world, requests, takes_ms)
        cluster = clusters.setdefault(
            id(process),
            Cluster(cluster_id="c", store=RetryingStore(store, clock=process.clock), clock=process.clock),
        )
        producer = Producer(cluster, acks=1, linger_ms=0, group_commit=number >= old)
        process.kept.append(producer)
        producer.partitions_for("t")
        if warm:
            world.pause(number * _WARM_EVERY_MS)
            producer.send("t", b"x" * 100)
            producer.flush()
            world.pause(begin_ms - world.now)
        at_ms = world.now + every_ms * number / count
        while at_ms < begin_ms + seconds * 1_000:
            world.pause(at_ms - world.now)
            sent_ms = world.now
            future = producer.send("t", b"x" * 100)
            future.add_callback(lambda _, sent_ms=sent_ms: waited.append((number, sent_ms, world.now - sent_ms)))
            future.add_errback(lambda error: errors.update([type(error).__name__]))
            at_ms += every_ms
        producer.close()
        ended.append(number)

    def direct() -> None:
        clock = world.process("director").clock
        store = RetryingStore(memory, clock=clock)
        create_topic(Cluster(cluster_id="c", store=store, clock=clock).topic_log("t"), "t", num_partitions=1)
        for number in range(count):
            send(number)
        world.pause(begin_ms + _START_MS)
        requests.clear()
        while len(ended) < count:
            world.pause(100)

    with _running(world):
        world.run(world.process("director"), direct)
    for name, error in world.broken:
        raise RuntimeError(f"thread {name} ended") from error
    later = [(number, ms) for number, sent_ms, ms in waited if sent_ms >= begin_ms + _START_MS]
    return Figures(
        count=count,
        first_ms=[ms for _, sent_ms, ms in waited if begin_ms <= sent_ms < begin_ms + _START_MS],
        later_ms=[ms for _, ms in later],
        old_ms=[ms for number, ms in later if number < old < count],
        requests=requests,
        errors=errors,
    )


@contextmanager
def _running(world: World) -> Iterator[None]:
    has_threads = mock.patch.object(parallel, "ThreadPoolExecutor", SimulatedExecutor)
    has_no_end = mock.patch.object(worlds, "_MOST_EVENTS", 10**9)
    with simulated(world), has_threads, has_no_end:
        yield


def main() -> None:
    """Measure each number of producers."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.many_producers", description=__doc__)
    parser.add_argument("producers", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every-ms", type=float, default=50.0)
    parser.add_argument("--read-ms", type=float, default=_READ_MS)
    parser.add_argument("--list-ms", type=float, default=_READ_MS)
    parser.add_argument("--write-ms", type=float, default=_WRITE_MS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="all without group commit")
    parser.add_argument("--processes", type=int, help="so many for all producers; by default one for each")
    parser.add_argument("--warm", action="store_true", help="each has sent a record alone before")
    parser.add_argument("--old", type=int, default=0, help="so many of them without group commit")
    options = parser.parse_args()
    for count in options.producers:
        figures = measure(
            count,
            seconds=options.seconds,
            every_ms=options.every_ms,
            seed=options.seed,
            old=count if options.alone else options.old,
            read_ms=options.read_ms,
            list_ms=options.list_ms,
            write_ms=options.write_ms,
            warm=options.warm,
            processes=options.processes,
        )
        print(figures, flush=True)


if __name__ == "__main__":
    main()
