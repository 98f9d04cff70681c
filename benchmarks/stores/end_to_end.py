"""From ``send`` to ``poll`` over an object store: records, transactions over two topics, and groups that settle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.extent import Extent
from benchmarks.harness import Running, percentile, print_table, progress
from benchmarks.latency import receive_sparklog, send_sparklog
from benchmarks.peers import sparklog_topic
from benchmarks.produce import TOPIC
from benchmarks.stores.delayed_s3 import INSTANT, PROFILES, STANDARD_20_50, DelayedS3, Profile
from benchmarks.stores.figures import COST_HEADING, cost_cells
from benchmarks.stores.latency_proxy import control
from benchmarks.transactions import TOPICS, commit_sparklog, receive_committed_sparklog

__all__ = ["groups", "records_end_to_end", "transactions_end_to_end"]

RATES = (50, 1_000)
TRANSACTION_RATE = 2.0
GROUP_PROCESSES = 5


def records_end_to_end(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """50 and 1,000 records a second, one partition, without linger."""
    seconds = extent.of(4, 12, 12)
    rows, figures = [], {}
    for rate in extent.of(RATES, RATES[:1], RATES):
        for profile in PROFILES if extent.is_full else (STANDARD_20_50,):
            progress(f"end to end, {rate}/s, {profile.name}")
            warm_up = 2 * rate
            samples, row = _measure(
                s3,
                profile,
                send_sparklog,
                receive_sparklog,
                [TOPIC],
                count=warm_up + rate * seconds,
                rate=rate,
                warm_up=warm_up,
            )
            rows.append([f"{rate:,}/s, {profile.name}", *row])
            figures[f"{profile.name}: end to end at {rate}/s, p50"] = percentile(samples, 50)
            figures[f"{profile.name}: end to end at {rate}/s, p99"] = percentile(samples, 99)
    progress("")
    print(
        f"End to end for {seconds} s, two processes, no linger; requests and $ of a million records, of both "
        "processes, with their opening"
    )
    print_table(["", "p50 ms", "p99 ms", "max ms", "producer CPU %", "consumer CPU %", *COST_HEADING], rows)
    return figures


def transactions_end_to_end(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Transactions of a record to each of two topics, until a ``read_committed`` consumer has both."""
    count = extent.of(6, 24, 40)
    rows, figures = [], {}
    for profile in PROFILES if extent.is_full else (STANDARD_20_50,):
        progress(f"transactions, {profile.name}")
        samples, row = _measure(
            s3,
            profile,
            commit_sparklog,
            receive_committed_sparklog,
            TOPICS,
            count=count,
            rate=TRANSACTION_RATE,
            warm_up=4,
        )
        rows.append([profile.name, *row])
        figures[f"{profile.name}: transaction over two topics, p50"] = percentile(samples, 50)
    progress("")
    print(
        f"{count} transactions over two topics, {TRANSACTION_RATE:g} a second, from their begin to poll; requests and "
        "$ of a million of them, of both processes, with their opening"
    )
    print_table(["", "p50 ms", "p99 ms", "max ms", "producer CPU %", "consumer CPU %", *COST_HEADING], rows)
    return figures


def _measure(
    s3: DelayedS3,
    profile: Profile,
    send: Callable[..., Any],
    receive: Callable[..., Any],
    topics: Any,
    *,
    count: int,
    rate: float,
    warm_up: int,
) -> tuple[list[float], list[str]]:
    """The times of records, and a row's cells without its name."""
    s3.use(INSTANT)
    root = s3.new_root()
    for topic in topics:
        sparklog_topic(root, topic, partitions=1)
    s3.use(profile)
    before = control(s3.endpoint)
    with Running(receive, root=root, count=count, rate=rate, warm_up=warm_up) as receiver:
        receiver.hear()
        with Running(send, root=root, count=count, acks=1, rate=rate) as sender:
            sent = sender.result()
        answer = receiver.result()
    requests = {name: number - before[name] for name, number in control(s3.endpoint).items()}
    sent_cpu_s = sent[0] if isinstance(sent, list) else sent
    samples, seconds = answer["samples"], count / rate
    figures = [percentile(samples, 50), percentile(samples, 99), max(samples)]
    cpu = [f"{100 * cpu_s / seconds:.1f}" for cpu_s in (sent_cpu_s, answer["cpu_s"])]
    return samples, [*(f"{ms:.0f}" for ms in figures), *cpu, *cost_cells(requests, count / 1_000_000, profile.prices)]


def groups(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Members that join a new group together, a partition for each, until all have theirs."""
    members = extent.of(10, 50, 50)
    rows = []
    for profile in (STANDARD_20_50,) if extent.is_quick else PROFILES:
        progress(f"a group of {members}, {profile.name}")
        s3.use(INSTANT)
        root = s3.new_root()
        sparklog_topic(root, TOPIC, partitions=members)
        with ExitStack() as stack:
            joining = [
                stack.enter_context(Running(join, root=root, members=members // GROUP_PROCESSES))
                for _ in range(GROUP_PROCESSES)
            ]
            for each in joining:
                each.hear()
            s3.use(profile)
            before, began = control(s3.endpoint), time.monotonic()
            for each in joining:
                each.say("join")
            for each in joining:
                each.hear()
            settled_s = time.monotonic() - began
            requests = {name: number - before[name] for name, number in control(s3.endpoint).items()}
            for each in joining:
                each.say("leave")
            cpu_s = sum(each.result() for each in joining)
        cost = cost_cells(requests, members, profile.prices)
        rows.append([f"{members}, {profile.name}", f"{settled_s:.1f}", f"{cpu_s:.1f}", *cost])
    progress("")
    print("Members that join a new group at once, until each has its partition; requests and $ of a member")
    print_table(["", "s", "CPU s of all", *COST_HEADING], rows)
    return {}


def join(root: str, *, members: int) -> float:
    """Join when told to, say when each member has exactly one partition, leave when told to; the CPU seconds until
    then."""
    from sparklog.consumer import Consumer

    shares = [0] * members
    may_leave = threading.Event()

    def poll(number: int) -> None:
        consumer = Consumer(TOPIC, cluster=root, group_id="bench", enable_auto_commit=False)
        while not may_leave.is_set():
            consumer.poll(timeout_ms=100)
            shares[number] = len(consumer.assignment())
        consumer.close()

    threads = [threading.Thread(target=poll, args=(number,), daemon=True) for number in range(members)]
    print("ready", flush=True)
    input()
    cpu_s = time.process_time()
    for thread in threads:
        thread.start()
    while shares != [1] * members:
        time.sleep(0.02)
        if not all(thread.is_alive() for thread in threads):
            raise SystemExit("a member of the group has failed")
    cpu_s = time.process_time() - cpu_s
    print("settled", flush=True)
    input()
    may_leave.set()
    for thread in threads:
        thread.join()
    return cpu_s
