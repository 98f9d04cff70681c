"""Producing to an object store: how fast a single producer is beside a folder, and many producers of one topic."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.extent import Extent
from benchmarks.harness import ROUNDS, Running, Usage, median, percentile, print_table, progress, run, used
from benchmarks.peers import PARTITIONS, expect, records, sparklog_count, sparklog_topic
from benchmarks.produce import BATCH, TOPIC
from benchmarks.stores.delayed_s3 import EXPRESS_5, INSTANT, PROFILES, STANDARD_20_50, DelayedS3, Profile
from benchmarks.stores.figures import COST_HEADING, cost_cells
from benchmarks.stores.latency_proxy import control
from benchmarks.stores.later_folder import send_batch_later, send_later
from benchmarks.stores.sustained import ALL_SENT, send_batch_sustained, send_sustained
from benchmarks.stores.unsigned import send_batch_unsigned, send_unsigned

__all__ = ["one_producer", "shared_topic", "small_commits"]

VALUE_SIZE = 100
SEND_BATCH_TIMES = 2
"""So many times the records of ``send`` go by ``send_batch``: both then take seconds, in which there are some dozens of
commits."""
FOLDER = Profile(name="folder", get_ms=0, put_ms=0)
LATER_FOLDER = Profile(name="folder, 20/50 ms later", get_ms=20, put_ms=50)
"""Without a server and a proxy that take CPU of the same machine."""
FOLDERS = (FOLDER, LATER_FOLDER)
UNSIGNED = Profile(name="20/50 ms, content unsigned", get_ms=20, put_ms=50)
"""As uploads are by default where TLS protects their content."""
FLUSH_RECORDS = 10
FLUSH_EVERY_S = 0.25
"""WarpStream's agents flush so often, too."""
PROCESSES = 8
"""At most; the producers of a process have threads of their own."""
WARM_UP_S = 5.0
"""Producers that meet for the first time learn of each other, and what each uploads, in their first seconds."""
OPEN_S = 300


def one_producer(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Records of 100 bytes, one by one and in tables, to a folder and to each profile, in the midst of more of them."""
    count = extent.of(200_000, 1_500_000, 1_500_000)
    counts = {"send": count, "send_batch": SEND_BATCH_TIMES * count}
    works: Mapping[str, tuple[Mapping[Profile, Callable[..., Usage]], dict[str, Any]]] = {
        "send": (_ways(send_sustained, send_later, send_unsigned), {"count": count}),
        "send_batch": (
            _ways(send_batch_sustained, send_batch_later, send_batch_unsigned),
            {"batches": counts["send_batch"] // BATCH},
        ),
    }
    profiles = (*FOLDERS, *PROFILES, UNSIGNED) if extent.is_full else (*FOLDERS, INSTANT, STANDARD_20_50)
    usages: dict[tuple[str, str], list[Usage]] = {}
    of_store: dict[tuple[str, str], float] = {}
    for number in range(extent.of(1, ROUNDS, ROUNDS)):
        for name, (ways, size) in works.items():
            for profile in profiles:
                if extent is Extent.USUAL and (name, profile) == ("send", INSTANT):  # it has no target
                    continue
                progress(f"round {number + 1}: {name}, {profile.name}")
                cpu_s = s3.cpu_s()
                delays = {"get_ms": profile.get_ms, "put_ms": profile.put_ms} if profile is LATER_FOLDER else {}
                work = ways.get(profile, ways[INSTANT])
                usage = _on_new_topic(s3, profile, work, value_size=VALUE_SIZE, **size, **delays)
                of_store[name, profile.name] = s3.cpu_s() - cpu_s
                usages.setdefault((name, profile.name), []).append(usage)
    progress("")
    print(
        f"One producer, {count:,} records of {VALUE_SIZE} bytes by send, {counts['send_batch']:,} by send_batch, "
        f"{PARTITIONS} partitions, with more sent before and after them; requests of a million records"
    )
    rows, figures = [], {}
    for name in works:
        medians = {
            profile: median(usages[name, profile.name]) for profile in profiles if (name, profile.name) in usages
        }
        folder, instant = medians[FOLDER], medians.get(INSTANT)
        for profile, usage in medians.items():
            share, cpu = usage.per_second / folder.per_second, usage.cpu_s / folder.cpu_s
            cost = cost_cells(None if profile in FOLDERS else usage.requests, counts[name] / 1_000_000, profile.prices)
            of_instant = "" if instant is None else f"{100 * usage.per_second / instant.per_second:.0f} %"
            speed = [f"{100 * share:.0f} %", of_instant]
            cells = [f"{usage.cpu_s_per_million:.2f}", f"{cpu:.2f}"]
            store_cpu_s = of_store[name, profile.name] / (ALL_SENT * counts[name]) * 1_000_000
            cells.append("" if profile in FOLDERS else f"{store_cpu_s:.2f}")
            rows.append([f"{name}, {profile.name}", f"{usage.per_second:,.0f}", *speed, *cells, *cost])
            figures[f"{profile.name}: {name}, share of the folder's rate"] = 100 * share
            figures[f"{profile.name}: CPU of {name} to the folder's"] = cpu
    columns = ["per s", "of folder", "of 0 ms", "CPU s per million", "× folder, CPU", "store's CPU s"]
    print_table(["", *columns, *COST_HEADING], rows)
    return figures


def _ways(
    at_once: Callable[..., Usage], later: Callable[..., Usage], unsigned: Callable[..., Usage]
) -> Mapping[Profile, Callable[..., Usage]]:
    """What sends, by profile; as to :data:`INSTANT` to those that aren't named."""
    return {INSTANT: at_once, LATER_FOLDER: later, UNSIGNED: unsigned}


def _on_new_topic(s3: DelayedS3, profile: Profile, work: Callable[..., Usage], **arguments: Any) -> Usage:
    with tempfile.TemporaryDirectory() as folder:
        s3.use(INSTANT)
        root = folder if profile in FOLDERS else s3.new_root()
        sparklog_topic(root, TOPIC)
        s3.use(profile)
        return Usage(**run(work, root=root, **arguments))


def small_commits(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Records that are sent one after the other, each when the one before is acknowledged."""
    rows, figures = [], {}
    cases = ((FOLDER, 1_000), (INSTANT, 1_000), (EXPRESS_5, 200), (STANDARD_20_50, 100))
    for profile, count in cases[: extent.of(4, 2, 4)]:
        count //= extent.of(5, 1, 1)
        usages = []
        for number in range(extent.of(1, ROUNDS, ROUNDS)):
            progress(f"round {number + 1}: small commits, {profile.name}")
            usages.append(_on_new_topic(s3, profile, commit_each, count=count))
        usage = median(usages)
        cost = cost_cells(usage.requests if profile is not FOLDER else None, count, profile.prices)
        cpu_ms, wall_ms = (1000 * seconds / count for seconds in (usage.cpu_s, usage.wall_s))
        rows.append([profile.name, f"{cpu_ms:.2f}", f"{wall_ms:.1f}", *cost])
        figures[f"{profile.name}: CPU of a small commit"] = cpu_ms
    progress("")
    print("A commit for each record, one after the other; requests of a commit, with background checkpoints")
    print_table(["", "CPU ms", "ms", *COST_HEADING], rows)
    return figures


def commit_each(root: str, *, count: int) -> Usage:
    """Send ``count`` records, and wait for each."""
    from sparklog.producer import Producer

    with Producer(root, acks=1, linger_ms=0) as producer:
        producer.send(TOPIC, value=b"the first opens the topic").get(60)
        with used(count) as usage:
            for key, value in records(count, VALUE_SIZE):
                producer.send(TOPIC, value=value, key=key).get(60)
    return usage


def shared_topic(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Many producers of one topic, each with a flush four times a second, as far as the topic lets it."""
    rows = []
    figures: dict[str, float] = {}
    for profile in PROFILES if extent.is_full else (STANDARD_20_50,):
        most = (128,) if extent.is_full and profile is STANDARD_20_50 else ()
        for producers in extent.of((1, 32), (32,), (1, 8, 32, *most)):
            progress(f"{producers} producers, {profile.name}")
            row, of_case = _writers(s3, profile, producers, seconds=extent.of(5.0, 10.0, 10.0))
            rows.append(row)
            name = f"{profile.name}: {producers} producers on a topic"
            figures |= {f"{name}, {figure}": value for figure, value in of_case.items()}
    progress("")
    print(
        f"Producers of one topic, each {FLUSH_RECORDS} records and a flush every {1000 * FLUSH_EVERY_S:.0f} ms, or "
        f"when the one before is done, after their first {WARM_UP_S:.0f} s; requests and $ of a flush, $ of a million "
        "flushes"
    )
    columns = ["first s: p50 ms", "p99 ms", "then: flushes per s", "p50 ms", "p99 ms", "max ms"]
    columns += ["least", "most of a producer", "CPU ms"]
    print_table(["", *columns, *COST_HEADING[:3], "$ per million"], rows)
    return figures


def _writers(
    s3: DelayedS3, profile: Profile, producers: int, *, seconds: float
) -> tuple[list[str], Mapping[str, float]]:
    s3.use(INSTANT)
    root = s3.new_root()
    sparklog_topic(root, TOPIC)
    with ExitStack() as stack:
        processes = min(producers, PROCESSES)
        works = [
            stack.enter_context(Running(flush_often, root=root, producers=producers // processes, seconds=seconds))
            for _ in range(processes)
        ]
        for work in works:
            work.hear()
        s3.use(profile)
        for work in works:
            work.say("begin")
        time.sleep(WARM_UP_S)
        before = control(s3.endpoint)
        answers = [work.result() for work in works]
    requests = {name: count - before[name] for name, count in control(s3.endpoint).items()}
    s3.use(INSTANT)
    first = [ms for answer in answers for each in answer["first_ms"] for ms in each]
    taken = [ms for answer in answers for each in answer["taken_ms"] for ms in each]
    counts = [count for answer in answers for count in answer["in_time"]]
    expect("records in the topic", sparklog_count(root, TOPIC), (len(first) + len(taken) + producers) * FLUSH_RECORDS)
    flushes = len(taken)
    cost = cost_cells(requests, flushes, profile.prices)
    cost[-1] = cost_cells(requests, flushes / 1_000_000, profile.prices)[-1]
    p50, p99 = percentile(taken, 50), percentile(taken, 99)
    cpu_ms = 1000 * sum(answer["cpu_s"] for answer in answers) / flushes
    row = [f"{producers}, {profile.name}", *(f"{percentile(first, share):.0f}" for share in (50, 99))]
    row += [f"{sum(counts) / seconds:.1f}", f"{p50:.0f}", f"{p99:.0f}", f"{max(taken):.0f}"]
    row += [f"{min(counts)}", f"{max(counts)}", f"{cpu_ms:.1f}", *cost]
    sent = sum(requests.get(operation, 0) for operation in ("PUT", "GET", "LIST", "DELETE", "POST"))
    fairness = 100 * min(counts) / max(max(counts), 1)
    return row, {"p50": p50, "p99": p99, "least of a producer to most": fairness, "requests of a flush": sent / flushes}


def flush_often(root: str, *, producers: int, seconds: float) -> dict[str, Any]:
    """Flush by each of ``producers``, of which each has a thread, from the moment that standard input says so.

    Returns:
        ``taken_ms``, by producer, from the first ``send`` to the return of ``flush``; ``in_time``, how many flushes of
        each were done when the time was over (one that is begun is waited for); ``cpu_s`` of all; each without the
        first ``WARM_UP_S``, whose times are ``first_ms``.
    """
    are_open, may_begin = threading.Barrier(producers + 1, timeout=OPEN_S), threading.Event()

    def wait(number: int) -> float:
        are_open.wait()
        may_begin.wait()
        return time.monotonic() + number * FLUSH_EVERY_S / producers

    with ThreadPoolExecutor(producers) as pool:
        works = [pool.submit(_flush_until, root, seconds, partial(wait, number)) for number in range(producers)]
        are_open.wait()
        print("ready", flush=True)
        input()
        may_begin.set()
        time.sleep(WARM_UP_S)
        cpu_s = time.process_time()
        answers = [work.result() for work in works]
    cpu_s = time.process_time() - cpu_s
    return {
        "first_ms": [first for first, _, _ in answers],
        "taken_ms": [taken for _, taken, _ in answers],
        "in_time": [count for _, _, count in answers],
        "cpu_s": cpu_s,
    }


def _flush_until(root: str, seconds: float, wait: Callable[[], float]) -> tuple[list[float], list[float], int]:
    """Flush once, ``wait``, which returns when to begin, and flush: to warm up, and then for so many seconds."""
    from sparklog.producer import Producer

    values = [value for _, value in records(FLUSH_RECORDS, VALUE_SIZE)]
    first_ms: list[float] = []
    taken_ms: list[float] = []
    in_time = 0
    with Producer(root, acks=1) as producer:

        def flush() -> None:
            sent = [producer.send(TOPIC, value=value) for value in values]
            producer.flush()
            for future in sent:
                future.get(0)

        flush()
        due = wait()
        warm = due + WARM_UP_S
        end = warm + seconds
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            flush()
            done = time.monotonic()
            (taken_ms if began >= warm else first_ms).append(1000 * (done - began))
            in_time += warm <= began and done <= end
            due = max(due + FLUSH_EVERY_S, done)
    return first_ms, taken_ms, in_time
