"""Workers with their threads, clients and a store in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from sparklog import Admin, NewTopic
from sparklog.errors import (
    HandlerError,
    IllegalStateError,
    InvalidArgumentError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.processing import App, Batch, DeadLetter, Fixed, Limits, Record, Retry, Send, State
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.consumer.support import a_cluster
from tests.processing.support import (
    FAST,
    LONG_S,
    a_world,
    an_app,
    committed,
    done,
    records,
    running,
    send,
    texts,
    wait_for,
)

NUMBERS = [str(number) for number in range(50)]


@pytest.mark.slow
def test_what_handlers_send_is_there_once():
    cluster = a_world("in", "out", partitions=2)
    send(cluster, "in", [f"{number % 7}:{number}" for number in range(200)], keyed=True)
    app = an_app(cluster)

    @app.subscriber("in", concurrency=4, order_by="key")
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value, key=record.key)

    with running(app):
        done(app, 200)
        health = app.health()
        assert (health.state, health.is_alive, health.is_ready, health.assigned) == (State.RUNNING, True, True, 2)
    assert app.health().state is State.STOPPED
    found = texts(cluster, "out")
    assert Counter(found) == Counter(f"{number % 7}:{number}" for number in range(200))
    for key in range(7):
        own = [int(text[2:]) for text in found if text.startswith(f"{key}:")]
        assert own == sorted(own)
    assert committed(cluster, "in") == 200


def test_offsets_alone_are_committed_without_transactions():
    cluster = a_world("in")
    send(cluster, "in", NUMBERS)
    app, seen = an_app(cluster), list[str]()
    app.subscriber("in", value_type=str)(lambda record: seen.append(record.value))
    with running(app):
        done(app, 50)
    assert seen == NUMBERS
    assert committed(cluster, "in") == 50
    assert app.metrics()["processing-metrics"]["transactions-total"] == 0
    with Admin(cluster) as admin:
        assert admin.list_transactions() == []


def test_a_slow_key_holds_up_no_other():
    cluster = a_world("in", "out")
    send(cluster, "in", ["slow:0", *(f"{number}:x" for number in range(30)), "slow:1"], keyed=True)
    app, go_on, seen = an_app(cluster), threading.Event(), list[str]()

    @app.subscriber("in", concurrency=4, order_by="key")
    def handle(record: Record[str]) -> Send:
        if record.value == "slow:0":
            assert go_on.wait(LONG_S)
        seen.append(record.value)
        return Send("out", record.value)

    with running(app):
        wait_for(lambda: len(seen) == 30, app)
        assert committed(cluster, "in") == 0  # nothing of it may be visible before what comes first
        assert texts(cluster, "out") == []
        go_on.set()
        done(app, 32)
    assert seen.index("slow:0") < seen.index("slow:1")
    assert texts(cluster, "out")[0] == "slow:0"


@pytest.mark.slow
def test_a_partition_reads_ahead_no_more_than_its_limit():
    cluster = a_world("in")
    send(cluster, "in", NUMBERS)
    app, go_on, most = (
        an_app(cluster, limits=Limits(records=4), consumer={**FAST, "max_poll_records": 2}),
        threading.Event(),
        0,
    )

    @app.subscriber("in")
    def handle(record: Record[str]) -> None:
        assert go_on.wait(LONG_S)

    with running(app):
        wait_for(lambda: app.health().in_flight >= 4, app)
        time.sleep(0.1)
        most = app.health().in_flight
        go_on.set()
        done(app, 50)
    assert most <= 6


@pytest.mark.slow
def test_two_workers_share_the_partitions_and_hand_over_between_two_records():
    cluster = a_world("in", "out", partitions=4)
    apps = [an_app(cluster), an_app(cluster)]
    seen = [Counter[str](), Counter[str]()]
    for number, app in enumerate(apps):

        @app.subscriber("in", concurrency=2, order_by="key")
        def handle(record: Record[str], own: Counter[str] = seen[number]) -> Send:
            time.sleep(0.002)
            own[record.value] += 1
            return Send("out", record.value, key=record.key)

    sent = [f"{number % 13}:{number}" for number in range(300)]
    send(cluster, "in", sent[:150], keyed=True)
    with running(apps[0]):
        wait_for(lambda: sum(seen[0].values()) > 20, apps[0])
        with running(apps[1]):  # in the middle of the work of the first
            send(cluster, "in", sent[150:], keyed=True)
            wait_for(lambda: [app.health().assigned for app in apps] == [2, 2], *apps)
            wait_for(lambda: committed(cluster, "in") >= 300, *apps)
    found = texts(cluster, "out")
    assert Counter(found) == Counter(sent)
    for key in range(13):
        own = [int(text.partition(":")[2]) for text in found if text.startswith(f"{key}:")]
        assert own == sorted(own)


def test_a_handler_that_outlasts_the_hand_over_counts_once():
    cluster = a_world("in", "out")
    send(cluster, "in", ["a"])
    go_on, tries = threading.Event(), list[int]()
    first, second = an_app(cluster, drain_timeout_s=0), an_app(cluster)

    @first.subscriber("in")
    def hangs(record: Record[str]) -> Send:
        tries.append(1)
        assert go_on.wait(LONG_S)
        return Send("out", "first")

    @second.subscriber("in")
    def works(record: Record[str]) -> Send:
        tries.append(2)
        return Send("out", "second")

    first.start()
    wait_for(lambda: tries, first)
    first.stop()
    with running(second):
        done(second, 1)
        go_on.set()
    assert tries == [1, 2]
    assert texts(cluster, "out") == ["second"]


def test_async_handlers_run_side_by_side_in_one_loop():
    cluster = a_world("in", "out")
    send(cluster, "in", [f"{number}:x" for number in range(8)], keyed=True)
    app, loops, at_once = an_app(cluster), set[object](), list[int]()

    @app.subscriber("in", concurrency=8, order_by="key")
    async def handle(record: Record[str]) -> list[Send]:
        loops.add(asyncio.get_running_loop())
        at_once.append(1)
        while len(at_once) < 8:
            await asyncio.sleep(0.001)
        return [Send("out", record.value)]

    with running(app):
        done(app, 8)
    assert len(loops) == 1
    assert sorted(texts(cluster, "out")) == [f"{number}:x" for number in range(8)]


def test_batches_are_committed_whole():
    cluster = a_world("in", "out")
    send(cluster, "in", NUMBERS)
    app = an_app(cluster)

    @app.subscriber("in", batch_size=20)
    def handle(batch: Batch[int]) -> Send:
        return Send("out", {"sum": sum(batch.values), "count": len(batch)})

    with running(app):
        done(app, 50)
    assert sum(eval(text)["sum"] for text in texts(cluster, "out")) == sum(range(50))


def test_poison_and_failing_records_are_moved_and_told():
    cluster = a_world("in", "out", partitions=2)
    letters = list[DeadLetter]()

    def tell(letter: DeadLetter) -> None:
        letters.append(letter)
        raise ValueError("the hook fails, too")

    app = an_app(cluster, on_dead_letter=tell)

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0.01), topics=True), dead_letter=True)
    def handle(record: Record[int]) -> Send:
        if record.value % 10 == 0:
            raise ValueError("ten")
        return Send("out", str(record.value))

    assert app.create_topics() == ["in-retry-10ms", "dlq.in"]
    assert app.create_topics() == []
    send(cluster, "in", [*NUMBERS, "poison"])
    with running(app):
        done(app, 56)
    assert sorted(texts(cluster, "dlq.in")) == ["0", "10", "20", "30", "40", "poison"]
    assert len(texts(cluster, "out")) == 45
    assert Counter(letter.attempts for letter in letters) == {2: 5, 1: 1}
    metrics = app.metrics()["processing-metrics"]
    assert (metrics["records-dead-lettered-total"], metrics["records-delayed-total"]) == (6, 5)


def test_a_missing_dead_letter_topic_stops_the_worker_at_its_start():
    cluster = a_world("in")
    app = an_app(cluster)
    app.subscriber("in", dead_letter=True, value_type=bytes)(lambda record: None)
    app.start()
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'dlq.in' \(dead letters of .* go there\); create it"):
        wait_for(lambda: False, app)


@pytest.mark.slow
def test_a_dead_letter_topic_that_is_deleted_stops_the_worker_before_the_record():
    cluster = a_world("in", "dlq.in")
    app = an_app(cluster)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        raise ValueError(record.value)

    app.start()
    send(cluster, "in", ["a"])
    done(app, 1)
    with Admin(cluster) as admin:
        admin.delete_topics(["dlq.in"])
    send(cluster, "in", ["b"])
    with pytest.raises(HandlerError, match=r"made of in-0, offset 1, can't be sent to topic 'dlq.in': .* deleted"):
        wait_for(lambda: False, app)
    assert committed(cluster, "in") == 1
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("dlq.in")])
    again = an_app(cluster)
    again.subscriber("in", dead_letter=True)(handle)
    with running(again):
        done(again, 1)
    assert texts(cluster, "dlq.in") == ["b"]


@pytest.mark.slow
def test_a_dead_letter_topic_that_cant_be_written_stops_its_partition():
    store = MemoryStore()
    cluster = a_world("in", "dlq.in", store=store)
    send(cluster, "in", ["a"])
    read_only = Fault(kind=FaultKind.READ_ONLY, path="topics/dlq.in", times=None)
    app = an_app(a_cluster(FaultyStore(store, read_only), retry_ms=100), patience_s=0.5)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        raise ValueError(record.value)

    app.start()
    with pytest.raises(SparklogError, match="read-only") as error:
        wait_for(lambda: False, app)
    assert isinstance(error.value, HandlerError)
    assert committed(cluster, "in") == 0
    assert texts(cluster, "dlq.in") == []


def test_an_output_that_is_too_large_goes_to_the_dead_letters():
    cluster = a_world("in", "out", "dlq.in")
    send(cluster, "in", ["a", "b"])
    app = an_app(cluster)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> Send:
        return Send("out", b"x" * 2_000_000 if record.value == "a" else b"y")

    with running(app):
        done(app, 2)
    assert texts(cluster, "out") == ["y"]
    [letter] = records(cluster, "dlq.in")
    assert dict(letter.headers)["__dlq.errors.exception"] == b"sparklog.errors.MessageSizeTooLargeError"


def test_a_dead_letter_that_is_too_large_is_only_a_pointer():
    cluster = a_world("in", "dlq.in")
    send(cluster, "in", ["x" * 1_048_400])
    app = an_app(cluster)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        raise ValueError

    with running(app):
        done(app, 1)
    [letter] = records(cluster, "dlq.in")
    assert letter.value is None
    assert dict(letter.headers)["__dlq.errors.value.omitted"] == b"true"


@pytest.mark.slow
def test_a_handler_that_hangs_ends_the_worker():
    cluster = a_world("in", "out")
    send(cluster, "in", ["a", "hang", "b"])
    app, go_on = an_app(cluster, handler_timeout_s=0.3), threading.Event()

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        if record.value == "hang":
            go_on.wait(LONG_S)
        return Send("out", record.value)

    app.start()
    with pytest.raises(HandlerError, match=r"working on in-0, offset 1, for longer than handler_timeout_s=0\.3"):
        wait_for(lambda: False, app)
    health = app.health()
    assert (health.state, health.is_alive) == (State.FAILED, False)
    go_on.set()
    assert committed(cluster, "in") == 1
    assert texts(cluster, "out") == ["a"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("bad")])
def test_an_error_without_a_place_to_go_ends_the_worker_before_its_record(error):
    cluster = a_world("in", "out")
    send(cluster, "in", ["a", "b"])
    app = an_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        if record.value == "b":
            raise error
        return Send("out", record.value)

    app.start()
    with pytest.raises(HandlerError, match="offset 1") as found:
        wait_for(lambda: False, app)
    assert found.value.__cause__ is error
    assert committed(cluster, "in") == 1
    assert texts(cluster, "out") == ["a"]


def test_calls_in_the_wrong_order_are_refused():
    app = an_app(a_world("in"))
    with pytest.raises(IllegalStateError, match="there is no handler"):
        app.start()
    with pytest.raises(IllegalStateError, match="hasn't been started"):
        app.health()
    app.stop()
    app.subscriber("in")(print)
    with app:
        with pytest.raises(IllegalStateError, match="started before"):
            app.start()
        with pytest.raises(IllegalStateError, match="has been started"):
            app.subscriber("other")(print)
    with pytest.raises(InvalidArgumentError, match="commit_interval_ms=0"):
        App("x", group_id="g", commit_interval_ms=0)


PROGRAM = """
import sys
from sparklog.processing import App, Record, Send

app = App(sys.argv[1], group_id="g")

@app.subscriber("in")
def handle(record: Record[str]) -> Send:
    print(record.value, flush=True)
    return Send("out", record.value)

app.run()
print("ended", app.health().state.value, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_gracefully(number, tmp_path):
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("in"), NewTopic("out")])
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as program:
        assert program.stdout is not None
        from sparklog import Producer

        with Producer(str(tmp_path)) as producer:
            producer.send("in", b"a")
        assert program.stdout.readline() == "a\n"
        program.send_signal(number)
        assert program.stdout.read() == "ended stopped\n"
        assert program.wait(LONG_S) == 0
    from sparklog.log import open_cluster

    assert texts(open_cluster(tmp_path), "out") == ["a"]
