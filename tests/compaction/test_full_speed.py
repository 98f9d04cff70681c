"""Producers append at full speed, in threads and on a disk, while every job runs again and again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparklog.compaction import OptimizePolicy, Step, maintain
from sparklog.log import TopicWriter, open_cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from tests.compaction.support import append_pairs, live, pairs_of


@pytest.mark.slow
def test_no_append_fails_and_the_jobs_get_through(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    log = cluster.topic_log("t")
    create_topic(log, "t", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
    is_over = threading.Event()
    sent: dict[str, list[str]] = {"x": [], "y": []}
    failed: list[BaseException] = []

    def produce(name: str) -> None:
        writer = TopicWriter(log, "t")
        while not is_over.is_set():
            value = str(len(sent[name]))
            try:
                append_pairs(writer, [(f"{name}{len(sent[name]) % 10}", value)], timestamp_ms=cluster.clock.now_ms())
            except BaseException as error:  # told below
                failed.append(error)
                return
            sent[name].append(value)
        writer.close()

    threads = [threading.Thread(target=produce, args=(name,)) for name in sent]
    for thread in threads:
        thread.start()
    dropped = 0
    steps = [Step.RETENTION, Step.COMPACT, Step.OPTIMIZE]
    try:
        for number in range(200):
            if number >= 3 and dropped:
                break
            report = maintain(cluster, steps=steps, policy=OptimizePolicy(min_files=4), full=True)
            assert report.failures == []
            [topic] = report.topics
            assert topic.compact is not None
            dropped += sum(found.counts.dropped for found in topic.compact.partitions)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert dropped > 0
    count = sum(map(len, sent.values()))
    assert load_state(log).head.log_end_offsets == (count,)
    left = pairs_of(log)
    assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
    last = {key: value for _, key, value in left}
    expected = {f"{name}{int(value) % 10}": value for name, values in sent.items() for value in values}
    assert last == expected
    assert len(live(log)) < count
