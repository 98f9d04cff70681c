"""How long records wait where several producers share a topic: real producers on a store in memory that sleeps as an
object store answers.

    python -m benchmarks.many_producers 1 2 8 32 [--seconds 20] [--every-ms 50]

GET and LIST take 20 ms, PUT and create 50 ms, each times U(0.85, 1.25), one of 200 3 to 10 times as long. Each producer
sends one record each ``--every-ms``. Prints the time from ``send`` to the acknowledgement, and requests of each flush.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sparklog import Admin, NewTopic, Producer
from sparklog.log import open_cluster
from sparklog.producer import writable_topic
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore

T = TypeVar("T")
TAKES_MS = {"get": 20.0, "list": 20.0, "put": 50.0, "create": 50.0}


class SleepingStore(WrappedStore):
    """Answers as late as an object store does. Half of the time passes before the call, half after it."""

    def __init__(self, seed: int) -> None:
        super().__init__(MemoryStore())
        self.is_sleeping = False
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(256)

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return [*self._threads.map(super()._read_or_none, paths)] if len(paths) > 1 else super().read_many(paths)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        list(self._threads.map(lambda one: self.put(one[0], one[1], sync=sync), objects.items()))

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if not self.is_sleeping or op not in TAKES_MS:
            return call()
        with self._lock:
            self.counts[op] += 1
            takes_ms = TAKES_MS[op] * self._random.uniform(0.85, 1.25)
            if self._random.random() < 1 / 200:
                takes_ms *= self._random.uniform(3, 10)
        time.sleep(takes_ms / 2_000)
        answer = call()
        time.sleep(takes_ms / 2_000)
        return answer


def measure(count: int, *, seconds: float, every_ms: float, seed: int) -> str:
    """The latencies and requests of ``count`` producers, as a line."""
    store = SleepingStore(seed)
    cluster = open_cluster(store)
    Admin(cluster).create_topics([NewTopic("t", num_partitions=1)])
    producers = [Producer(cluster, group_commit=True) for _ in range(count)]
    for producer in producers:
        producer.partitions_for("t")
    latencies: list[float] = []
    errors: Counter[str] = Counter()
    store.is_sleeping = True
    began = time.monotonic()
    warm = began + min(5.0, seconds / 4)

    def fail(error: BaseException) -> None:
        errors[type(error).__name__] += 1

    def send(producer: Producer, offset_s: float) -> None:
        at = began + offset_s
        while at < began + seconds:
            time.sleep(max(0.0, at - time.monotonic()))
            sent = time.monotonic()

            def note(_: object, sent: float = sent) -> None:
                if sent > warm:
                    latencies.append(time.monotonic() - sent)

            producer.send("t", b"x" * 100).add_callback(note).add_errback(fail)
            at += every_ms / 1_000
        producer.flush()

    threads = [
        threading.Thread(target=send, args=(producer, number * every_ms / 1_000 / count))
        for number, producer in enumerate(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    store.is_sleeping = False
    for producer in producers:
        producer.close()
    latencies.sort()
    at = [latencies[int(part * (len(latencies) - 1))] * 1_000 for part in (0.5, 0.99, 1.0)]
    flushes = store.counts["put"]
    requests = ", ".join(f"{op} {store.counts[op] / flushes:.2f}" for op in ("put", "create", "get", "list"))
    total = sum(store.counts.values()) / flushes
    return (
        f"{count:3} producers: p50 {at[0]:.0f}, p99 {at[1]:.0f}, max {at[2]:.0f} ms; for each of {flushes} files: "
        f"{requests}, together {total:.1f}; {len(latencies)} records, {took:.0f} s, errors {dict(errors)}"
    )


def main() -> None:
    """Measure each number of producers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("producers", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every-ms", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without group commit, as before it")
    options = parser.parse_args()
    if options.alone:
        writable_topic.announces = lambda config: False
    for count in options.producers:
        print(measure(count, seconds=options.seconds, every_ms=options.every_ms, seed=options.seed), flush=True)


if __name__ == "__main__":
    main()
