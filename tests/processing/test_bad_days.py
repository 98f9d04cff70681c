"""Bad days of workers: slow handlers, memory that runs out, two versions at once, clocks that differ, replays again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from sparklog import Admin, NewTopic
from sparklog.log import open_cluster
from sparklog.processing import App, Fixed, Record, Retry, Send
from sparklog.processing.dead_letters import letters_of, replay
from sparklog.testing import ManualClock
from sparklog.testing.history import Recorder
from sparklog.testing.processing import AppDriver
from tests.histories import judge_worker, note_promised
from tests.processing.support import (
    FAST,
    LONG_S,
    a_world,
    an_app,
    committed,
    done,
    outputs,
    records,
    running,
    send,
    texts,
    wait_for,
)

NUMBERS = [str(number) for number in range(60)]


@pytest.mark.slow
def test_a_handler_that_takes_longer_than_max_poll_keeps_its_partitions():
    """The worker polls beside it. ✗ It is thrown out of the group, and another handles the record again."""
    cluster = a_world("in", "out")
    send(cluster, "in", ["slow", "b"])
    consumer = {**FAST, "max_poll_interval_ms": 4_000}
    app, calls = an_app(cluster, consumer=consumer), []

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        calls.append(record.value)
        if record.value == "slow":
            time.sleep(5)
        return Send("out", record.value)

    with running(app):
        done(app, 2)
        assert app.health().is_alive
    assert calls == ["slow", "b"]
    assert texts(cluster, "out") == ["slow", "b"]


PROGRAM = """
import os, resource, signal, subprocess, sys
from sparklog.processing import App, Record, Retry, Send

app = App(sys.argv[1], group_id="g", consumer={"session_timeout_ms": 3_000, "heartbeat_interval_ms": 50})

@app.subscriber("in", retry=Retry(attempts=2), dead_letter=True)
def handle(record: Record[str]) -> Send:
    if record.value == "memory":
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2**34, before[1]))
        try:
            bytearray(2**35)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    if record.value == "greedy child":
        limit = "import resource as r; r.setrlimit(r.RLIMIT_AS, (2**30, 2**30))"
        take = f"{limit}; taken = [bytearray(2**26) for _ in range(64)]"
        subprocess.run([sys.executable, "-c", take], check=True, stderr=subprocess.DEVNULL)
    if record.value == "killed child":  # the kernel kills what takes too much
        kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        subprocess.run([sys.executable, "-c", kill], check=True)
    return Send("out", record.value)

app.run()
"""


@pytest.mark.slow
def test_memory_that_runs_out_is_an_error_of_the_record(tmp_path):
    """In the worker a MemoryError; a handler's child ends by one, or is killed: other records go on."""
    with Admin(str(tmp_path)) as admin:
        admin.create_topics(["in", "out", "dlq.in"])
    cluster = open_cluster(tmp_path)
    send(cluster, "in", ["a", "memory", "greedy child", "killed child", "b"])
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)]) as program:
        try:
            wait_for(lambda: len(records(cluster, "dlq.in")) == 3 and len(records(cluster, "out")) == 2)
            program.terminate()
            assert program.wait(60) == 0
        finally:
            program.kill()
    assert texts(cluster, "out") == ["a", "b"]
    found = [dict(letter.headers)["__dlq.errors.exception"] for letter in records(cluster, "dlq.in")]
    assert found == [b"MemoryError", b"subprocess.CalledProcessError", b"subprocess.CalledProcessError"]
    told = [str(dict(letter.headers)["__dlq.errors.message"]) for letter in records(cluster, "dlq.in")]
    assert "exit status 1" in told[1]
    assert "SIGKILL" in told[2]


@pytest.mark.slow
def test_a_hand_over_waits_for_a_slow_handler_no_longer_than_a_poll_may_take():
    """The wait is inside of a poll. \u2717 It takes drain_timeout_s, and costs the worker all of its partitions."""
    cluster = a_world("in", "out", partitions=2)
    send(cluster, "in", NUMBERS, keyed=True)
    consumer = {**FAST, "max_poll_interval_ms": 1_000}
    go_on, busy = threading.Event(), threading.Semaphore(0)

    def a_worker() -> App:
        app = an_app(cluster, consumer=consumer, drain_timeout_s=60)

        @app.subscriber("in", concurrency=2)
        def handle(record: Record[str]) -> Send:
            busy.release()
            go_on.wait(60)
            return Send("out", record.value)

        return app

    with running(first := a_worker()):
        for _ in range(2):  # in both partitions
            assert busy.acquire(timeout=LONG_S)
        try:
            with running(second := a_worker()):
                wait_for(lambda: (first.health().assigned, second.health().assigned) == (1, 1), first, second)
                go_on.set()
                wait_for(lambda: len(records(cluster, "out")) >= len(NUMBERS), first, second)
        finally:
            go_on.set()
    assert Counter(texts(cluster, "out")) == Counter(NUMBERS)


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_worker_that_is_killed_by_the_kernel_is_followed_by_another(tmp_path, is_killed):
    """What the one that died had begun is done by the next, once in topics: so says the checker of histories."""
    recorder = Recorder()
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("in", 2), NewTopic("out"), NewTopic("dlq.in")])
    cluster = open_cluster(tmp_path)
    send(cluster, "in", NUMBERS, keyed=True)
    note_promised(recorder, "first", "in", NUMBERS)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)]) as program:
        wait_for(lambda: records(cluster, "out"))
        (program.kill if is_killed else program.terminate)()
    more = [str(number) for number in range(60, 80)]
    send(cluster, "in", more, keyed=True)
    note_promised(recorder, "second", "in", more)
    app = an_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value)

    with running(app):
        wait_for(lambda: committed(cluster, "in") == 80 and len(records(cluster, "out")) >= 80, app)
    assert Counter(texts(cluster, "out")) == Counter(str(number) for number in range(80))
    judge_worker(recorder, cluster, inputs="in", outputs="out", group="g", count=80)


def a_version(cluster, number: int) -> App:
    """A worker of the first version fails at each tenth record, one of the second doesn't; its delays are others."""
    app = an_app(cluster)
    retry = Retry(attempts=2, backoff=Fixed(0.001 * number), topics=True)

    @app.subscriber("in", retry=retry, dead_letter=True)
    def handle(record: Record[str]) -> Send:
        time.sleep(0.002)
        if number == 1 and record.value.endswith("0"):
            raise ValueError(record.value)
        return Send("out", record.value)

    return app


@pytest.mark.slow
def test_two_versions_of_a_worker_at_once_give_each_record_one_outcome():
    """Each reads its own delay topics; who comes after both tells of what is left in the others'."""
    cluster = a_world("in", "out", "dlq.in", "in-retry-1ms", "in-retry-2ms", partitions=2)
    send(cluster, "in", NUMBERS, keyed=True)
    old, new = a_version(cluster, 1), a_version(cluster, 2)
    with running(old):
        wait_for(lambda: committed(cluster, "in") > 5, old)
        with running(new):
            send(cluster, "in", [f"1{number}" for number in NUMBERS], keyed=True)
            everything = 2 * len(NUMBERS)
            wait_for(lambda: len(records(cluster, "out")) + len(records(cluster, "dlq.in")) >= everything, old, new)
    found = Counter([*texts(cluster, "out"), *texts(cluster, "dlq.in")])
    assert found == Counter([*NUMBERS, *(f"1{number}" for number in NUMBERS)])
    assert set(texts(cluster, "dlq.in")) <= {each for each in found if each.endswith("0")}


@pytest.mark.slow
def test_records_that_an_earlier_version_left_in_its_delay_topic_are_told_of(caplog):
    cluster = a_world("in", "out", "dlq.in", "in-retry-1h", "in-retry-2ms", "in-retry-lists")
    earlier = an_app(cluster)

    @earlier.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(3_600), topics=True), dead_letter=True)
    def fail(record: Record[str]) -> None:
        raise ValueError(record.value)

    with running(earlier):
        wait_for(lambda: len(earlier.health().state.value) and earlier.health().is_ready, earlier)
        send(cluster, "in", ["a"])
        wait_for(lambda: committed(cluster, "in") == 1, earlier)
    with caplog.at_level(logging.WARNING), running(a_version(cluster, 2)):
        wait_for(lambda: "in-retry-1h" in caplog.text)
    assert "1 records wait in 'in-retry-1h'" in caplog.text
    assert "lists" not in caplog.text


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000, 10**12])
def test_a_clock_that_differs_lets_no_record_wait_longer_than_its_delay(ahead_ms):
    """The one who moved a record was ahead. ✗ It waits for the difference of the clocks, and what is behind it."""
    app, calls = App("./unused", group_id="g"), []

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(60), topics=True), dead_letter=True)
    def handle(record: Record[str]) -> None:
        calls.append(record.value)

    clock = ManualClock(start_ms=2 * 10**12)
    driver = AppDriver(app, clock=clock)
    due = str(clock.now_ms() + 60_000 + ahead_ms).encode()
    driver.send("in-retry-1m", "a", headers=[("retry_topic-attempts", b"1"), ("retry_topic-backoff-timestamp", due)])
    driver.run()
    assert calls == (["a"] if ahead_ms < 0 else [])
    driver.advance(60_000)
    assert calls == ["a"]


@pytest.mark.slow
def test_a_letter_of_a_replay_is_a_new_one_and_replayed_once_too():
    cluster = a_world("in", "out", "dlq.in")
    send(cluster, "in", ["a", "b"])
    mended: set[str] = set()

    def a_worker() -> App:
        app = an_app(cluster)

        @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0.001)), dead_letter=True)
        def handle(record: Record[str]) -> Send:
            if record.value not in mended:
                raise ValueError(f"{record.value}, try {record.attempt}")
            return Send("out", record.value)

        return app

    for replayed, mend in ((2, "a"), (1, "b"), (0, "")):
        with running(app := a_worker()):
            done(app, replayed or 1) if replayed else None
        mended.add(mend)
        assert replay(cluster, "dlq.in", execute=True).to == ({"in": replayed} if replayed else {})
    with running(app := a_worker()):
        wait_for(lambda: sorted(texts(cluster, "out")) == ["a", "b"], app)
    letters = [each.letter for piece in letters_of(cluster, "dlq.in", replayed=True) for each in piece]
    assert [(each.value, each.origin.offset, each.attempts) for each in letters] == [
        (b"a", 0, 2),
        (b"b", 1, 2),
        (b"b", 3, 2),
    ]
    assert dict(letters[2].headers)["__dlq.replayed.offset"] == b"1"
    outputs(cluster)
    assert replay(cluster, "dlq.in", execute=True).to == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_worker_goes_on_when_the_folder_of_its_cluster_is_back(kind, tmp_path, caplog):
    """It was unmounted for a moment. ✗ The worker ends at once."""
    root = tmp_path / "cluster"
    with Admin(str(root)) as admin:
        admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    app = an_app(open_cluster(root), group_type=kind, consumer=FAST if kind == "consumer" else {})

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value)

    with running(app):
        send(open_cluster(root), "in", ["a"])
        done(app, 1)
        root.rename(tmp_path / "away")
        wait_for(lambda: "is gone" in caplog.text, app)
        (tmp_path / "away").rename(root)
        send(open_cluster(root), "in", ["b"])
        done(app, 2)
    assert texts(open_cluster(root), "out") == ["a", "b"]
