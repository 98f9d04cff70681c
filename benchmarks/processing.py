"""Workers of ``sparklog.processing``: what they add to a loop of polls, keys side by side, dead letters."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.extent import Extent
from benchmarks.harness import Usage, median, print_table, progress, run, used
from benchmarks.peers import expect, sparklog_count, sparklog_topic
from benchmarks.report import add_target

__all__ = ["processing"]

_ROUNDS = 3
_PARTITIONS = 6
_HANDLER_S = 0.010
_Case = tuple[Callable[..., Usage], dict[str, int]]


def processing(extent: Extent) -> None:
    """Each in a process of its own, on a folder; medians of three rounds, of handlers that sleep one in a usual run."""
    count = extent.of(60_000, 300_000, 600_000)
    calls = extent.of(50, 200, 400)  # of each lane, so that joining the group weighs as much with eight as with one
    letters = extent.of(1_000, 10_000, 10_000)
    print(f"Workers, records of 100 bytes on a folder, {_PARTITIONS} partitions; medians of {_ROUNDS} rounds")
    loop, worker = _in_turn([(poll_loop, {"count": count}), (handle_all, {"count": count})])
    lanes: list[_Case] = [(slow_calls, {"count": calls * n, "at_once": n}) for n in (1, 8)]
    one, eight = _in_turn(lanes, rounds=extent.of(1, 1, _ROUNDS))  # two seconds of sleep in each lane
    [buried] = _in_turn([(bury_all, {"count": letters})])
    rows = [
        (name, f"{usage.records:,}", f"{usage.per_second:,.0f}", f"{usage.cpu_s_per_million:.2f}")
        for name, usage in (
            ("a loop of polls with commits", loop),
            ("a worker, a handler that does nothing", worker),
            ("handlers of 10 ms, one at a time", one),
            ("handlers of 10 ms, 8 keys side by side", eight),
            ("dead letters", buried),
        )
    ]
    print_table(["", "records", "records/s", "CPU µs a record"], rows)
    added_us = worker.cpu_s_per_million - loop.cpu_s_per_million
    wall_us = (worker.wall_s - loop.wall_s) / count * 1e6
    print(f"a worker adds {added_us:.2f} µs of CPU a record, {wall_us:.2f} µs of time")
    print(
        f"8 keys are {eight.per_second / one.per_second:.2f} × one; {letters:,} dead letters took {buried.wall_s:.2f} s"
    )
    add_target("µs of CPU that a worker adds to a record", 5, added_us, is_at_most=True)
    add_target("8 keys by handlers of 10 ms, times one", 7.5, eight.per_second / one.per_second)
    add_target("seconds for 10,000 dead letters", 2, buried.wall_s * 10_000 / letters, is_at_most=True)


def poll_loop(root: str, *, count: int) -> Usage:
    from sparklog import Consumer

    _fill(root, count)
    seen = 0
    with (
        Consumer("in", cluster=root, group_id="g", auto_offset_reset="earliest", max_poll_records=5_000) as consumer,
        used(count) as usage,
    ):
        while seen < count:
            for records in consumer.poll(200).values():
                for _ in records:
                    seen += 1
    return usage


def handle_all(root: str, *, count: int) -> Usage:
    _fill(root, count)
    return _work(root, count, lambda record: None)


def slow_calls(root: str, *, count: int, at_once: int) -> Usage:
    _fill(root, count, keys=at_once)
    return _work(root, count, lambda record: time.sleep(_HANDLER_S), concurrency=at_once, order_by="key")


def bury_all(root: str, *, count: int) -> Usage:
    def refuse(record) -> None:  # type: ignore[no-untyped-def]  # bytes, as an annotation isn't given
        raise ValueError("odd")

    _fill(root, count)
    sparklog_topic(root, "dlq.in", partitions=_PARTITIONS)
    usage = _work(root, count, refuse, dead_letter=True)
    expect("dead letters", sparklog_count(root, "dlq.in"), count)
    return usage


def _work(root: str, count: int, handler: Callable[[Any], Any], **options: Any) -> Usage:
    """Run a worker until everything is committed; from its start, joining the group included."""
    from sparklog.processing import App

    app = App(root, group_id="g")
    app.subscriber("in", **options)(handler)
    with used(count) as usage:
        app.start()
        while app.metrics()["processing-metrics"]["records-processed-total"] < count:
            if app.health().error is not None:
                break
            time.sleep(0.01)
    app.stop()
    return usage


def _fill(root: str, count: int, *, keys: int = 0) -> None:
    from sparklog import Producer

    partitions = 1 if keys else _PARTITIONS
    sparklog_topic(root, "in", partitions=partitions)
    with Producer(root) as producer:
        for number in range(count):
            key = b"%d" % (number % keys) if keys else None
            producer.send("in", b"x" * 100, key, partition=number % partitions)


def _in_turn(cases: list[_Case], *, rounds: int = _ROUNDS) -> list[Usage]:
    usages: list[list[Usage]] = [[] for _ in cases]
    for number in range(rounds):
        for found, (function, arguments) in zip(usages, cases, strict=True):
            progress(f"round {number + 1} of {rounds}: {function.__name__}")
            with tempfile.TemporaryDirectory() as folder:
                found.append(Usage(**run(function, root=f"{folder}/cluster", **arguments)))
    progress("")
    return [median(found) for found in usages]
