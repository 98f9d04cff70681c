"""Workers of share groups: each record by itself, given back for another try, moved to the dead letters in the end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sparklog import Admin, NewTopic, ShareConsumer
from sparklog.errors import HandlerError, InvalidArgumentError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, open_cluster
from sparklog.processing import Batch, DeadLetter, Fixed, Record, Retry, Send, State
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, SimulatedCrash
from sparklog.testing.processing import AppDriver
from tests.consumer.support import a_cluster
from tests.depth import each_nth
from tests.processing.support import a_world, an_app, done, records, running, send, texts, wait_for

NUMBERS = [str(number) for number in range(20)]
FAST = {"share_heartbeat_interval_ms": 50, "share_session_timeout_ms": 60_000}


def a_share_app(cluster, **settings):
    return an_app(cluster, **{"group_type": "share", "consumer": FAST, **settings})


def lag(cluster):
    """Records that aren't settled; -1: the group hasn't begun."""
    with Admin(cluster) as admin:
        if "g" not in admin.list_share_groups():
            return -1
        rows = admin.describe_share_groups(["g"])[0].partitions
    return sum(row.lag for row in rows) if rows else -1


def headers(record):
    return {name: value.decode() for name, value in record.headers}


def total(app, name):
    return app.metrics()["processing-metrics"][name]


@pytest.mark.slow
def test_more_workers_than_partitions_share_the_records():
    cluster = a_world("in", "out")
    send(cluster, "in", NUMBERS)
    apps = [a_share_app(cluster) for _ in range(3)]
    for app in apps:
        app.subscriber("in", concurrency=2, value_type=str)(lambda record: Send("out", record.value))
    with running(*apps):
        wait_for(lambda: sum(total(app, "records-processed-total") for app in apps) == 20, *apps)
    assert Counter(texts(cluster, "out")) == Counter(NUMBERS)
    assert lag(cluster) == 0


@pytest.mark.slow
def test_a_record_that_failed_is_given_back_and_holds_up_no_other():
    cluster, seen = a_world("in"), []
    send(cluster, "in", ["bad", "good"])
    app = a_share_app(cluster)

    @app.subscriber("in", retry=Retry(attempts=3, backoff=Fixed(0)))
    def handle(record: Record[str]) -> None:
        seen.append((record.value, record.attempt, record.raw.delivery_count))
        if record.value == "bad" and record.attempt < 3:
            raise ValueError("not yet")

    with running(app):
        done(app, 2)
        assert total(app, "records-released-total") == 2
    assert [each for each in seen if each[0] == "bad"] == [("bad", 1, 1), ("bad", 2, 2), ("bad", 3, 3)]
    assert ("good", 1, 1) in seen
    assert lag(cluster) == 0


@pytest.mark.slow
def test_a_record_waits_under_a_lock_that_is_renewed():
    cluster, seen = a_world("in"), []
    send(cluster, "in", ["bad"])
    app = a_share_app(cluster, consumer={**FAST, "share_record_lock_duration_ms": 1_500})

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(3)))
    def handle(record: Record[str]) -> None:
        seen.append((record.attempt, record.raw.delivery_count))
        if record.attempt == 1:
            raise ValueError

    with running(app):
        done(app, 1)
    assert seen == [(1, 1), (2, 2)]


@pytest.mark.slow
def test_what_no_try_mends_is_moved_and_never_delivered_again():
    cluster = a_world("in", "dlq.in")
    told: list[DeadLetter] = []
    send(cluster, "in", ['{"a":1}', "poison"])
    app = a_share_app(cluster, on_dead_letter=told.append)

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0)), dead_letter=True)
    def handle(record: Record[dict[str, int]]) -> None:
        raise ValueError("odd")

    with running(app):
        done(app, 2)
    letters = {record.value: headers(record) for record in records(cluster, "dlq.in")}
    assert letters[b'{"a":1}']["__dlq.errors.delivery.count"] == "2"
    assert letters[b'{"a":1}']["__dlq.errors.group"] == "g"
    assert letters[b"poison"]["__dlq.errors.delivery.count"] == "1"
    assert all(isinstance(letter, DeadLetter) for letter in told)
    assert len(told) == 2
    assert lag(cluster) == 0


def delivered_often(cluster: Cluster) -> None:
    """Five consumers take a record, and don't settle it."""
    send(cluster, "in", ["deadly"])
    settings: dict[str, Any] = {
        "group_id": "g",
        "share_auto_offset_reset": "earliest",
        "group_share_delivery_count_limit": 100,
    }
    for _ in range(5):
        with ShareConsumer("in", cluster=cluster, share_acknowledgement_mode="explicit", **settings) as consumer:
            assert consumer.poll(1_000)


@pytest.mark.slow
def test_what_was_delivered_too_often_holds_up_no_other_record():
    """Without a dead-letter topic. ✗ Each worker ends as soon as it gets the record."""
    cluster, calls = a_world("in"), []
    delivered_often(cluster)
    app = a_share_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> None:
        calls.append(record.value)

    app.start()
    wait_for(lambda: app.health().stopped)
    send(cluster, "in", ["good", "also good"])
    wait_for(lambda: lag(cluster) == 1)
    with pytest.raises(HandlerError, match=r"in-0, offset 0, .*delivered 6 times"):
        app.stop()
    assert calls == ["good", "also good"]


@pytest.mark.slow
def test_what_was_delivered_too_often_is_moved_without_a_call():
    """Workers die of it: nobody has settled it, and its locks end."""
    cluster = a_world("in", "dlq.in")
    delivered_often(cluster)
    app = a_share_app(cluster)
    calls: list[object] = []
    app.subscriber("in", dead_letter=True)(calls.append)
    with running(app):
        done(app, 1)
    assert calls == []
    [letter] = records(cluster, "dlq.in")
    assert headers(letter)["__dlq.errors.delivery.count"] == "6"
    assert "delivered 6 times, of which 5 are allowed" in headers(letter)["__dlq.errors.message"]


def test_without_a_place_to_go_the_worker_stops_before_the_record():
    cluster = a_world("in")
    send(cluster, "in", ["bad"])
    app = a_share_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> None:
        raise ValueError("odd")

    app.start()
    with pytest.raises(HandlerError, match=r"offset 0, after 1 try.*nothing is skipped"):
        wait_for(lambda: False, app)
    assert app.health().state is State.FAILED
    with ShareConsumer("in", cluster=cluster, group_id="g") as consumer:
        assert [record.delivery_count for found in consumer.poll(5_000).values() for record in found] == [2]


def test_a_missing_dead_letter_topic_stops_the_worker():
    cluster, begun = a_world("in", "dlq.in"), threading.Event()
    send(cluster, "in", ["bad"])
    app = a_share_app(cluster)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        with Admin(cluster) as admin:
            admin.delete_topics(["dlq.in"])
        begun.set()
        raise ValueError("odd")

    app.start()
    with pytest.raises(HandlerError, match=r"offset 0, can't be sent to topic 'dlq.in'"):
        wait_for(lambda: False, app)
    assert begun.is_set()
    assert lag(cluster) == 1
    later = a_share_app(cluster)
    later.subscriber("in", dead_letter=True)(handle)
    later.start()
    with pytest.raises(UnknownTopicOrPartitionError, match="create it"):
        wait_for(lambda: False, later)


@pytest.mark.slow
def test_what_a_topic_refuses_when_it_is_stored_goes_to_the_dead_letters():
    """Topic settings are checked as a batch is written, after ``send``."""
    cluster = a_world("in", "dlq.in")
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("out", 1, topic_configs={"cleanup.policy": "compact"})])
    send(cluster, "in", ["good", "bad", "also good"])
    app = a_share_app(cluster)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value, key=None if record.value == "bad" else record.value)

    with running(app):
        done(app, 3)
    assert texts(cluster, "out") == ["good", "also good"]
    [letter] = records(cluster, "dlq.in")
    assert letter.value == b"bad"
    assert "expected a record with a key" in headers(letter)["__dlq.errors.message"]
    assert lag(cluster) == 0


@pytest.mark.slow
def test_what_others_have_sent_counts_when_a_record_stops_the_worker():
    """Else each start of the worker would send it again."""
    cluster, gate = a_world("in", "out"), threading.Barrier(2)
    send(cluster, "in", ["good", "bad"])
    app = a_share_app(cluster)

    @app.subscriber("in", concurrency=2)
    def handle(record: Record[str]) -> Send:
        gate.wait(60)
        return Send("out" if record.value == "good" else "nowhere", record.value)

    app.start()
    with pytest.raises(HandlerError, match=r"offset 1, can't be sent to topic 'nowhere'"):
        wait_for(lambda: False, app)
    assert texts(cluster, "out") == ["good"]
    assert lag(cluster) == 1


def test_the_end_waits_for_a_handler_and_begins_no_other():
    cluster, begun, may_end = a_world("in"), threading.Event(), threading.Event()
    send(cluster, "in", ["0", "1"])
    app = a_share_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> None:
        begun.set()
        may_end.wait(60)

    app.start()
    assert begun.wait(60)
    stopper = threading.Thread(target=app.stop)
    stopper.start()
    wait_for(lambda: app.health().state is State.DRAINING, app)
    may_end.set()
    stopper.join(60)
    assert app.health().state is State.STOPPED
    assert total(app, "handler-calls-total") == 1
    assert lag(cluster) == 1


def a_worker(cluster):
    short = {"share_record_lock_duration_ms": 100, "share_session_timeout_ms": 200}
    app = a_share_app(cluster, consumer={**FAST, **short}, patience_s=5, drain_timeout_s=0.2)

    @app.subscriber("in", dead_letter=True, concurrency=4, retry=Retry(attempts=2, backoff=Fixed(0)))
    def handle(record: Record[str]) -> Send:
        if record.value == "7":
            raise ValueError("odd")
        return Send("out", record.value)

    return app


def is_write(call):
    return call.op in ("put", "create", "delete")


def is_settled(cluster):
    return lag(cluster) == 0


def has_more(cluster, there):
    return len(records(cluster, "out")) > there


def has_ended(faulty, cluster):
    return faulty.crashed or is_settled(cluster)


def check_nothing_is_lost(cluster):
    assert set(texts(cluster, "out")) == set(NUMBERS) - {"7"}
    assert set(texts(cluster, "dlq.in")) == {"7"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients that died unclosed
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_killed_at_any_write_the_next_worker_loses_nothing(kind):
    for number in each_nth(range(16), 8):
        store = MemoryStore()
        cluster = a_world("in", "out", "dlq.in", store=store)
        send(cluster, "in", NUMBERS)
        faulty = FaultyStore(store, Fault(kind=kind, when=is_write, skip=number))
        first = a_worker(a_cluster(faulty, retry_ms=1_000))
        first.start()
        wait_for(partial(has_ended, faulty, cluster))
        with suppress(SimulatedCrash, SparklogError):  # whatever it ended with: it is dead
            first.stop()
        second = a_worker(cluster)
        with running(second):
            wait_for(partial(is_settled, cluster), second)
        check_nothing_is_lost(cluster)


PROGRAM = """
import sys
from sparklog.processing import App, Record, Send

short = {"share_record_lock_duration_ms": 300, "share_heartbeat_interval_ms": 50, "share_session_timeout_ms": 600}
limits = {"max_poll_records": 5, "group_share_delivery_count_limit": 100}
app = App(sys.argv[1], group_id="g", group_type="share", consumer={**short, **limits}, commit_interval_ms=1)

@app.subscriber("in", dead_letter=True, concurrency=2)
def handle(record: Record[str]) -> Send:
    if record.value == "7":
        raise ValueError("odd")
    return Send("out", record.value)

app.run()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_that_are_killed_by_the_kernel_lose_nothing(tmp_path):
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("in", 2), NewTopic("out"), NewTopic("dlq.in")])
    cluster = open_cluster(tmp_path)
    chance = random.Random(17)
    for number in range(3):
        there = len(records(cluster, "out"))
        send(cluster, "in", [str(each) for each in range(100 * number, 100 * number + 100)])
        with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)]) as program:
            wait_for(partial(has_more, cluster, there))
            time.sleep(chance.uniform(0, 0.1))  # the moment is to be any
            program.kill()
    app = a_worker(cluster)
    with running(app):
        wait_for(partial(is_settled, cluster), app)
    assert set(texts(cluster, "out")) == {str(each) for each in range(300)} - {"7"}
    assert set(texts(cluster, "dlq.in")) == {"7"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED])
def test_bad_days_of_the_store_lose_nothing(kind):
    store = MemoryStore()
    cluster = a_world("in", "out", "dlq.in", store=store)
    send(cluster, "in", NUMBERS)
    faulty = FaultyStore(store, Fault(kind=kind, when=is_write, chance=0.1, times=None), seed=1)
    app = a_worker(a_cluster(faulty, retry_ms=1_000))
    with running(app):
        wait_for(partial(is_settled, cluster), app)
    check_nothing_is_lost(cluster)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order_by": "key"}, "a share group has no order"),
        ({"retry": Retry(topics=True)}, "a share group delivers a record again by itself"),
        ({"retry": Retry(attempts=32_767)}, "a share group delivers up to 32766 times"),
    ],
)
def test_what_a_share_group_hasnt_is_refused(options, message):
    app = a_share_app(a_world("in"))
    with pytest.raises(InvalidArgumentError, match=message):
        app.subscriber("in", **options)(lambda record: None)


def test_batches_transactional_ids_and_the_driver_are_refused():
    cluster = a_world("in")
    app = a_share_app(cluster)

    def handle(batch: Batch[str]) -> None: ...

    with pytest.raises(InvalidArgumentError, match="each record by itself"):
        app.subscriber("in")(handle)
    with pytest.raises(InvalidArgumentError, match="plays consumer groups"):
        AppDriver(app)
    with pytest.raises(InvalidArgumentError, match="in no transaction"):
        a_share_app(cluster, transactional_id="t")
    with pytest.raises(InvalidArgumentError, match="group_type"):
        a_share_app(cluster, group_type="shared")
