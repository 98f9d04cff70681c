"""Flat with age: one record sent and received, on a topic with 20,000 commits and on one with hardly any."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

from benchmarks.extent import Extent
from benchmarks.harness import Running, percentile, print_table, progress
from benchmarks.log import TOPIC, grow, growing_topic, old_age
from benchmarks.report import add_target
from sparklog.log.cluster import open_cluster
from sparklog.log.topic import create_topic
from sparklog.model import TopicPartition

WARM_UP = 50
PATIENCE_S = 10
VALUE = b"v" * 100


def round_trips(root: str) -> None:
    """Send and receive a record for each line of standard input; print the milliseconds that it took."""
    from sparklog.consumer import Consumer
    from sparklog.producer import Producer

    with Producer(root, acks=1, linger_ms=0) as producer:
        consumer, partition = Consumer(cluster=root), TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, consumer.end_offsets([partition])[partition])
        print("ready", flush=True)
        for _ in iter(sys.stdin.readline, "end\n"):
            began = time.perf_counter()
            offset = producer.send(TOPIC, value=VALUE).get(timeout=PATIENCE_S).offset
            while offset not in [r.offset for records in consumer.poll(timeout_ms=1000).values() for r in records]:
                if time.perf_counter() > began + PATIENCE_S:
                    raise SystemExit(f"offset {offset} didn't come within {PATIENCE_S} s")
            print((time.perf_counter() - began) * 1000, flush=True)
        consumer.close()


def age(extent: Extent) -> None:
    """The two topics take turns, record by record, so that noise of the machine meets both."""
    commits, samples = old_age(extent), extent.of(100, 1_000, 1_000)
    with tempfile.TemporaryDirectory() as young, growing_topic() as old:
        create_topic(open_cluster(young).topic_log(TOPIC), TOPIC)
        progress(f"making a topic of {commits:,} commits")
        grow(open_cluster(old), to_version=commits)
        progress("sending and receiving")
        times: dict[str, list[float]] = {young: [], old: []}
        with Running(round_trips, root=young) as on_young, Running(round_trips, root=old) as on_old:
            for running in (on_young, on_old):
                running.hear()
            turns = [(young, on_young), (old, on_old)]
            for _ in range(WARM_UP + samples):
                turns.reverse()
                for root, running in turns:
                    running.say("go")
                    times[root].append(float(running.hear()))
            for running in (on_young, on_old):
                running.say("end")
                running.result()
        progress("")
        print(f"One record sent and received, {samples:,} times in turn; producer and consumer in one process, acks=1")
        names = {young: "new topic", old: f"topic of {commits:,} commits"}
        ages = {root: each[WARM_UP:] for root, each in times.items()}
        base = statistics.median(ages[young])
        name = f"one record sent and received at an age of {commits:,} commits: p50, × new"
        add_target(name, 1.1, statistics.median(ages[old]) / base, is_at_most=True)
        print_table(
            ["", "p50 ms", "p99 ms", "p50 × new"],
            [
                [
                    names[root],
                    f"{statistics.median(each):.2f}",
                    f"{percentile(each, 99):.2f}",
                    f"{statistics.median(each) / base:.2f}",
                ]
                for root, each in ages.items()
            ],
        )
