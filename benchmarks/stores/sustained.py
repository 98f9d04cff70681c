"""How fast one producer sends for as long as it likes: neither the first upload nor the last flush counts.

An upload and the commit after it take 0.1 s and more on an object store: of a run of a second a tenth, and on a folder
next to nothing. So what counts goes from one record's acknowledgement to another's, and the producer sends before,
meanwhile and afterwards; it does so on each store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Usage, used
from benchmarks.peers import arrow_batch, expect, some_records, sparklog_count
from benchmarks.produce import BATCH, TOPIC

if TYPE_CHECKING:
    from sparklog.log import Cluster

__all__ = ["ALL_SENT", "send_batch_sustained", "send_sustained"]

BEFORE, AFTERWARDS = 0.25, 0.1
"""So many records, as parts of those that count, are sent before the first that counts, and after the last."""
ALL_SENT = BEFORE + 1 + AFTERWARDS


def send_sustained(root: str | Cluster, *, count: int, value_size: int) -> Usage:
    """``Producer.send``; the futures of two records are looked at."""
    given = cycle(some_records(100_000, value_size))

    def send(producer: Any, number: int) -> Any:
        for key, value in islice(given, number - 1):
            producer.send(TOPIC, value=value, key=key)
        key, value = next(given)
        return producer.send(TOPIC, value=value, key=key)

    return _sustained(root, send, before=int(count * BEFORE), count=count, afterwards=int(count * AFTERWARDS))


def send_batch_sustained(root: str | Cluster, *, batches: int, value_size: int) -> Usage:
    """``Producer.send_batch`` of Arrow tables that are there already."""
    table = arrow_batch(some_records(BATCH, value_size))

    def send(producer: Any, number: int) -> Any:
        for _ in range(number // BATCH - 1):
            producer.send_batch(TOPIC, table)
        return producer.send_batch(TOPIC, table)

    before, afterwards = (max(1, int(batches * part)) * BATCH for part in (BEFORE, AFTERWARDS))
    return _sustained(root, send, before=before, count=batches * BATCH, afterwards=afterwards)


def _sustained(
    root: str | Cluster, send: Callable[[Any, int], Any], *, before: int, count: int, afterwards: int
) -> Usage:
    """What the records in the middle take.

    Args:
        send: sends so many records, and returns the future of the last.
    """
    from sparklog.producer import Producer

    marks: list[tuple[float, float]] = []

    def mark(_: object) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    everything = before + count + afterwards
    with Producer(root, acks=1) as producer:
        producer.partitions_for(TOPIC)
        with used(everything) as whole:
            send(producer, before).add_callback(mark)
            send(producer, count).add_callback(mark)
            send(producer, afterwards)
            producer.flush()
    expect("records in the topic", sparklog_count(root, TOPIC), everything)
    (began_s, began_cpu_s), (ended_s, ended_cpu_s) = marks
    requests = None if whole.requests is None else {name: n * count / everything for name, n in whole.requests.items()}
    return Usage(count, ended_s - began_s, ended_cpu_s - began_cpu_s, requests)
