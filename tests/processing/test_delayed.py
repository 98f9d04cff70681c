"""Delayed records: each is delivered once, not before its time, unless it was cancelled; whoever dies when."""

from __future__ import annotations

import gc
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import Admin, NewTopic, Producer
from sparklog.compaction import maintain
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTypeError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    SparklogError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.log.topic import delete_topic
from sparklog.processing.dead_letters import replay
from sparklog.processing.delayed import (
    DelayedError,
    DelayMover,
    MoverTakenOverError,
    delayed_topics,
    read_schedule,
)
from sparklog.processing.delayed_topic import DelayedTopic
from sparklog.processing.moves import letter_of
from sparklog.processing.schedule import Schedule
from sparklog.producer.delayed_records import CancelAll, Ended, Waiting
from sparklog.storage import MemoryStore
from sparklog.testing import Call, Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from sparklog.testing.history import Recorder
from tests.consumer.support import a_cluster
from tests.depth import by_depth, each_nth
from tests.histories import judge, note_promised
from tests.processing.support import records
from tests.producer.test_typed_sending import ROW, read
from tests.producer.test_typed_sending import a_topic as a_typed_topic
from tests.support import T0_MS

MINUTE_MS = 60_000


def a_world(*, partitions: int = 2) -> tuple[MemoryStore, ManualClock, Cluster]:
    """A topic that takes delays; the mover's clock is of the tests, the clients' is the machine's."""
    store = MemoryStore()
    cluster = a_cluster(store)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", partitions, configs={"delay": True})])
    return store, ManualClock(start_ms=T0_MS), cluster


def schedule(cluster: Cluster, *values: str, at_ms: int, key: bytes | None = None) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.send("t", value.encode(), key, deliver_at=at_ms)


def delivered(cluster: Cluster) -> list[str]:
    return sorted(record.value.decode() for record in records(cluster, "t"))


def a_mover(cluster: Cluster, clock: ManualClock, **options: Any) -> DelayMover:
    return DelayMover(cluster, "t", max_outage_s=0, clock=clock, **options)


def test_a_record_is_delivered_at_its_time_and_not_before():
    _, clock, cluster = a_world()
    schedule(cluster, "a", at_ms=T0_MS + MINUTE_MS)
    schedule(cluster, "b", at_ms=T0_MS + 2 * MINUTE_MS)
    with a_mover(cluster, clock) as mover:
        clock.advance(MINUTE_MS - 1)
        assert mover.run_once() == 0
        assert delivered(cluster) == []
        clock.advance(1)
        assert mover.run_once() == 1
        assert delivered(cluster) == ["a"]
        assert mover.metrics()["records-waiting"] == 1
        clock.advance(MINUTE_MS)
        assert mover.run_until_done() == 1
        assert mover.run_until_done() == 0
        assert mover.metrics() == {
            "records-waiting": 0,
            "records-delivered-total": 2,
            "records-cancelled-total": 0,
            "records-dead-lettered-total": 0,
            "records-of-deleted-topics-total": 0,
            "partitions-stopped": 0,
        }
    assert delivered(cluster) == ["a", "b"]


def test_it_is_delivered_as_it_was_sent():
    _, clock, cluster = a_world()
    with Producer(cluster) as producer:
        producer.send("t", b"v", b"k", [("a", b"1"), ("b", None)], 1, 1_000, deliver_at=T0_MS)
        producer.send("t", None, b"k", deliver_at=T0_MS)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 2
    found = {record.value: record for record in records(cluster, "t")}
    first, last = found[b"v"], found[None]
    assert (first.key, first.headers, first.partition) == (b"k", [("a", b"1"), ("b", None)], 1)
    assert first.timestamp == 1_000
    assert (last.key, last.headers) == (b"k", [])
    assert last.timestamp > 1_700_000_000_000  # when it was delivered


def test_the_earliest_is_delivered_first_in_batches():
    _, clock, cluster = a_world(partitions=1)
    for number in (5, 3, 9, 1, 7):
        schedule(cluster, str(number), at_ms=T0_MS + number)
    clock.advance(8)
    with a_mover(cluster, clock, batch_size=2) as mover:
        assert [mover.run_once() for _ in range(3)] == [2, 2, 0]
    assert [record.value for record in records(cluster, "t")] == [b"1", b"3", b"5", b"7"]


def test_what_is_cancelled_before_its_time_is_never_delivered():
    _, clock, cluster = a_world()
    schedule(cluster, "a", "b", at_ms=T0_MS + MINUTE_MS, key=b"k")
    schedule(cluster, "other", at_ms=T0_MS + MINUTE_MS, key=b"l")
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 0  # it knows them
        clock.advance(MINUTE_MS - 1)
        with Producer(cluster) as producer:
            producer.cancel_delayed("t", b"k").get()
        schedule(cluster, "later", at_ms=T0_MS + MINUTE_MS, key=b"k")
        clock.advance(1)
        assert mover.run_once() == 2
        assert mover.metrics()["records-cancelled-total"] == 3
    with a_mover(cluster, clock) as other:
        assert other.run_once() == 0
    assert delivered(cluster) == ["later", "other"]
    assert read_schedule(cluster, "t") == []


def test_a_second_mover_takes_over_and_the_first_ends_with_an_error():
    _, clock, cluster = a_world()
    schedule(cluster, *"abc", at_ms=T0_MS)
    first, second = a_mover(cluster, clock, batch_size=1), a_mover(cluster, clock)
    assert first.run_once() == 1
    assert second.run_once() == 2
    schedule(cluster, "d", at_ms=T0_MS)
    with pytest.raises(MoverTakenOverError, match="another mover of topic 't'"):
        first.run_once()
    assert second.run_once() == 1
    first.close()
    second.close()
    assert delivered(cluster) == [*"abcd"]


@pytest.mark.parametrize("difference_ms", [-MINUTE_MS, MINUTE_MS])
def test_clocks_that_differ_move_the_time_and_deliver_nothing_twice(difference_ms):
    """A mover whose clock is wrong delivers early or late; the one that takes over knows what was delivered."""
    _, clock, cluster = a_world()
    schedule(cluster, "a", at_ms=T0_MS + MINUTE_MS // 2)
    wrong = ManualClock(start_ms=T0_MS + difference_ms)
    with a_mover(cluster, wrong) as mover:
        assert mover.run_once() == (1 if difference_ms > 0 else 0)
    clock.advance(MINUTE_MS)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == (0 if difference_ms > 0 else 1)
    assert delivered(cluster) == ["a"]


def test_a_record_that_the_topic_refuses_becomes_a_dead_letter():
    """Nothing is skipped, and nobody waits. ✗ It stops the mover; it is passed over, or delivered to nowhere."""
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, "x" * 200, at_ms=T0_MS, key=b"k")
    schedule(cluster, "a", at_ms=T0_MS)
    with Admin(cluster) as admin:
        admin.alter_configs({"t": {"max.message.bytes": 150}})
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 2
        assert mover.metrics()["records-dead-lettered-total"] == 1
        assert mover.run_once() == 0
        assert mover.stopped == {}
    assert delivered(cluster) == ["a"]
    [record] = records(cluster, "dlq.t")
    letter = letter_of(record)
    assert (letter.key, letter.value, letter.origin.topic) == (b"k", b"x" * 200, "t")
    assert re.match(r"the record of delayed\.t-0, offset 0, id \w+, can't be delivered to topic 't': a", letter.message)
    with Admin(cluster) as admin:
        admin.alter_configs({"t": {"max.message.bytes": 1_000}})
    assert replay(cluster, "dlq.t", execute=True).to == {"t": 1}
    assert delivered(cluster) == ["a", "x" * 200]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_record_larger_than_its_topic_takes_by_now_becomes_a_dead_letter_whole(is_there):
    """✗ The topic of dead letters takes no more than the topic does, and the record waits for ever."""
    _, clock, cluster = a_world(partitions=1)
    with Admin(cluster) as admin:
        if is_there:
            admin.create_topics([NewTopic("dlq.t", 3, configs={"max.message.bytes": 1_000})])
        for number in range(2):
            schedule(cluster, f"{number}" * (100_000 + 200_000 * number), at_ms=T0_MS + number)
        admin.alter_configs({"t": {"max.message.bytes": 150}})
    clock.advance(10)
    with a_mover(cluster, clock) as mover:
        assert mover.run_until_done() == 2
        assert mover.stopped == {}
    assert sorted(len(record.value) for record in records(cluster, "dlq.t")) == [100_000, 300_000]


def test_a_record_that_can_be_no_dead_letter_either_stops_its_partition_alone():
    _, clock, cluster = a_world(partitions=2)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("dlq.t", 1, configs={"cleanup.policy": "compact"})])
    with Producer(cluster) as producer:
        for number in range(8):
            value = b"x" * 200 if number == 4 else b"%d" % number
            producer.send("t", value, None, deliver_at=T0_MS + number)
    [bad] = [place for place, record in read_schedule(cluster, "t") if len(record.value or b"") > 100]
    with Admin(cluster) as admin:
        admin.alter_configs({"t": {"max.message.bytes": 150}})
    clock.advance(100)
    stays = {
        str(place.deliver_at_ms - T0_MS)
        for place, _ in read_schedule(cluster, "t")
        if place.partition == bad.partition and place.deliver_at_ms > bad.deliver_at_ms
    }
    with a_mover(cluster, clock) as mover:
        mover.run_until_done()
        assert delivered(cluster) == sorted({*"0123567"} - stays)
        assert [*mover.stopped] == [bad.partition]
        told = str(mover.stopped[bad.partition])
        assert f"offset {bad.offset}, id {bad.id.decode()}, can't be delivered" in told
        assert "dlq.t" in told
        with Admin(cluster) as admin:
            admin.alter_configs({"t": {"max.message.bytes": 1_000}})
        assert mover.run_once() == 0
        clock.advance(MINUTE_MS)
        assert mover.run_until_done() == 1 + len(stays)
        assert mover.stopped == {}
    assert len(delivered(cluster)) == 8


def test_a_topic_that_is_gone_stops_the_mover():
    _, clock, cluster = a_world()
    schedule(cluster, "a", at_ms=T0_MS)
    delete_topic(cluster.topic_log("t"), "t")
    with a_mover(cluster, clock) as mover, pytest.raises(DelayedError, match="topic 't' was deleted"):
        mover.run_once()
    assert len(read_schedule(cluster, "t")) == 1


def test_delayed_records_go_with_their_topic():
    _, clock, cluster = a_world()
    schedule(cluster, "a", at_ms=T0_MS)
    with a_mover(cluster, clock, batch_size=1) as mover:
        assert mover.run_once() == 1
        with Admin(cluster) as admin:
            admin.delete_topics(["t"])
            assert admin.list_topics() == []
            assert mover.run_once() == 0
            admin.create_topics([NewTopic("t", 1, configs={"delay": True})])
        schedule(cluster, "b", at_ms=T0_MS)
        assert mover.run_once() == 1
    assert delivered(cluster) == ["b"]


def test_records_of_a_topic_that_was_deleted_are_not_delivered_to_a_later_one():
    """As an earlier version deletes it, or one that dies in between. ✗ The mover goes by the name."""
    _, clock, cluster = a_world(partitions=1)
    open_since_before = Producer(cluster)
    open_since_before.send("t", b"old", deliver_at=T0_MS).get()
    delete_topic(cluster.topic_log("t"), "t")
    create_topic(cluster.topic_log("t"), "t", configs={"delay": True})
    schedule(cluster, "new", at_ms=T0_MS)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 2
        metrics = mover.metrics()
        assert (metrics["records-delivered-total"], metrics["records-of-deleted-topics-total"]) == (1, 1)
        assert mover.run_once() == 0
    open_since_before.close()
    assert delivered(cluster) == ["new"]
    assert read_schedule(cluster, "t") == []


def test_a_producer_that_was_open_before_delays_for_the_topic_that_is_there():
    _, clock, cluster = a_world(partitions=1)
    with Producer(cluster) as producer:
        producer.send("t", b"a", deliver_at=T0_MS).get()
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", configs={"delay": True})
        producer._pipelines.get("t").topic._refreshed_ticks_ms = float("-inf")  # a second later
        producer.send("t", b"b", deliver_at=T0_MS).get()
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 2
    assert delivered(cluster) == ["b"]


def test_a_record_of_an_earlier_version_names_no_topic_id_and_is_delivered():
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, "a", at_ms=T0_MS + MINUTE_MS)
    with Producer(cluster) as producer:
        producer.send("delayed.t", b"b", b"id", [("__delay.deliver_at", b"1")], partition=0)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 1
    assert delivered(cluster) == ["b"]


def test_what_a_larger_producer_has_sent_is_delivered():
    """✗ The mover's own max_request_size refuses it."""
    _, clock, cluster = a_world(partitions=1)
    with Admin(cluster) as admin:
        admin.alter_configs({"t": {"max.message.bytes": 3_000_000}})
    with Producer(cluster, max_request_size=3_000_000) as producer:
        producer.send("t", b"x" * 2_999_990, deliver_at=T0_MS).get()
        with Admin(cluster) as admin:
            admin.alter_configs({"t": {"max.message.bytes": 4_000_000}})
            assert admin.describe_topics(["delayed.t"])[0].config["max.message.bytes"] == 3_065_536
    with Producer(cluster, max_request_size=4_000_000) as producer:
        producer.send("t", b"y" * 3_999_990, deliver_at=T0_MS).get()  # the delay topic takes more by itself
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 2
    assert records(cluster, "t")[0].value == b"x" * 2_999_990


@pytest.mark.parametrize("error", [StoreReplacedError, CommitStateUnknownError, KafkaTimeoutError])
def test_a_store_that_is_away_for_a_while_is_waited_for(monkeypatch, error):
    """✗ ``StoreReplacedError``, as while a folder isn't mounted, ends the mover at once."""
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, "a", at_ms=T0_MS)
    follow, left = DelayedTopic.follow, [error("it is away")] * 2

    def failing(topic: DelayedTopic) -> None:
        if left:
            raise left.pop()
        follow(topic)

    monkeypatch.setattr(DelayedTopic, "follow", failing)
    with DelayMover(cluster, "t", max_outage_s=30, clock=clock) as mover:
        assert mover.run_once() == 1
    assert delivered(cluster) == ["a"]
    left.append(error("it is away"))
    with a_mover(cluster, clock) as mover, pytest.raises(error, match="away"):
        mover.run_once()


def test_a_record_that_somebody_else_wrote_is_named_and_stops_its_partition_alone():
    _, clock, cluster = a_world(partitions=2)
    with Producer(cluster) as producer:
        for number in range(8):
            producer.send("t", b"%d" % number, b"%d" % number, deliver_at=T0_MS)
    own = {place.id: place.partition for place, _ in read_schedule(cluster, "t")}
    with a_mover(cluster, clock) as mover:
        with Producer(cluster) as producer:
            producer.send("delayed.t", b"what is this", b"key", partition=0)
        assert mover.run_until_done() == [*own.values()].count(1)
        assert [*mover.stopped] == [0]
        assert re.search(r"delayed\.t-0, offset \d, is no delayed record", str(mover.stopped[0]))
        with pytest.raises(CorruptRecordError, match=r"delayed\.t-0, offset \d, is no delayed"):
            read_schedule(cluster, "t")


def test_before_anything_is_delayed_there_is_nothing_to_do():
    _, clock, cluster = a_world()
    assert delayed_topics(cluster) == []
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 0
        schedule(cluster, "a", at_ms=T0_MS)
        assert mover.run_once() == 1
    assert delayed_topics(cluster) == ["t"]
    refused: list[dict[str, Any]] = [{"batch_size": 0}, {"poll_interval_s": 0}, {"max_outage_s": -1}]
    for options in refused:
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            DelayMover(cluster, "t", **options)


def test_what_is_done_is_removed_from_the_beginning_and_what_waits_is_kept():
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, *"abc", at_ms=T0_MS)
    schedule(cluster, "late", at_ms=T0_MS + 60 * MINUTE_MS)
    with a_mover(cluster, clock) as mover:
        mover.run_until_done()
        clock.advance(6 * MINUTE_MS)
        mover.run_once()
    with Admin(cluster) as admin:
        [described] = admin.describe_topics(["delayed.t"])
    assert described.log_start_offsets == (3,)
    clock.advance(60 * MINUTE_MS)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 1
    assert delivered(cluster) == ["a", "b", "c", "late"]


def test_what_waits_in_a_delay_topic_that_was_made_anew_meanwhile_is_kept(monkeypatch):
    """✗ Seed 210 of the simulated workers: the later one lost as many records as the mover had read of the earlier."""
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, "old", at_ms=T0_MS)
    deliver = DelayMover._deliver

    def deliver_slowly(self: DelayMover, *given: Any) -> Any:
        done = deliver(self, *given)
        monkeypatch.undo()
        with Admin(cluster) as admin:
            admin.delete_topics(["t"])
            admin.create_topics([NewTopic("t", 1, configs={"delay": True})])
        schedule(cluster, "new", at_ms=T0_MS + MINUTE_MS)
        return done

    monkeypatch.setattr(DelayMover, "_deliver", deliver_slowly)
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 1
        clock.advance(MINUTE_MS)
        assert [mover.run_once(), mover.run_once()] == [0, 1]  # it begins anew first
    assert delivered(cluster) == ["new"]


def test_maintenance_keeps_what_waits():
    """Records that end others replace them, as they have their keys."""
    _, clock, cluster = a_world(partitions=1)
    schedule(cluster, *"abc", at_ms=T0_MS)
    schedule(cluster, "late", at_ms=T0_MS + 90 * 24 * 60 * MINUTE_MS, key=b"k")
    with a_mover(cluster, clock) as mover:
        mover.run_until_done()
    with Admin(cluster) as admin:
        admin.alter_configs({"delayed.t": {"min.cleanable.dirty.ratio": 0, "segment.ms": 1}})
    schedule(cluster, "later", at_ms=T0_MS + 90 * 24 * 60 * MINUTE_MS)
    maintain(cluster, ["delayed.t"])
    assert len(records(cluster, "delayed.t")) < 8
    with a_mover(cluster, clock) as mover:
        assert mover.run_once() == 0
        clock.advance(91 * 24 * 60 * MINUTE_MS)
        assert mover.run_once() == 2
    assert delivered(cluster) == ["a", "b", "c", "late", "later"]


def is_write(call: Call) -> bool:
    return call.op in ("put", "create", "delete")


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients that died unclosed
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_killed_at_any_write(kind):
    wanted = [*"abcde"]
    for number in each_nth(range(30), 6):
        store, clock, cluster = a_world()
        schedule(cluster, *wanted, at_ms=T0_MS)
        schedule(cluster, "cancelled", at_ms=T0_MS, key=b"k")
        with Producer(cluster) as producer:
            producer.cancel_delayed("t", b"k").get()
        faulty = FaultyStore(store, Fault(kind=kind, when=is_write, skip=number))
        first = a_mover(a_cluster(faulty, retry_ms=1_000), clock, batch_size=2)
        with suppress(SimulatedCrash, SparklogError):
            first.run_until_done()
        with a_mover(cluster, clock, batch_size=2) as second:
            second.run_until_done()
            assert second.run_until_done() == 0
        assert delivered(cluster) == wanted, number
        del first
        gc.collect()  # its clients died unclosed, of which Python warns


@pytest.mark.slow
def test_movers_that_are_killed_deliver_each_record_once(tmp_path):
    root = f"{tmp_path}/cluster"
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 2, configs={"delay": True})])
    command = [sys.executable, "-m", "sparklog", "delayed", "run", "--batch-size", "7", "--poll-interval-ms", "5"]
    delays = random.Random(17)
    total, recorder = 0, Recorder()
    for _ in range(by_depth(gate=3, nightly=6)):
        now_ms = int(time.time() * 1_000)
        with Producer(cluster) as producer:
            for number in range(total, total + 60):
                producer.send("t", b"%d" % number, deliver_at=now_ms + number % 60 * 10)
        for number in range(total, total + 60):  # as if of a client of its own: no order is promised
            note_promised(recorder, f"client {number}", "t", [number])
        before, total = total, total + 60
        with subprocess.Popen([*command, "--cluster", root]) as mover:
            deadline = time.monotonic() + 60
            while len(records(cluster, "t")) <= before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(delays.uniform(0, 0.3))
            mover.kill()
    with DelayMover(cluster, "t") as mover:
        while len(read_schedule(cluster, "t")):
            mover.run_until_done()
    assert Counter(int(record.value) for record in records(cluster, "t")) == Counter(range(total))
    judge(recorder, cluster, "t", count=total)


# The schedule


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["wait", "end", "cancel"]), st.integers(0, 5), st.integers(0, 20)), max_size=40
    )
)
def test_a_schedule_is_what_waits(steps):
    """Against a list that is searched through."""
    made, expected, ends = Schedule(), dict[bytes, tuple[int, int, bytes]](), set[bytes]()
    for offset, (what, which, due_ms) in enumerate(steps):
        name, key = b"%d" % offset, b"k%d" % (which % 3)
        if what == "wait":
            found: Waiting | Ended | CancelAll = Waiting(
                id=name, deliver_at_ms=due_ms, key=key, value=b"", headers=[], partition=None, timestamp_ms=None
            )
            expected[name] = (due_ms, offset, key)
        elif what == "cancel":
            found = CancelAll(id=name, key=key)
            gone = [each for each, (_, _, own) in expected.items() if own == key]
            ends |= {name, *gone}
            for each in gone:
                del expected[each]
        else:
            ended = b"%d" % max(0, offset - 1 - which)
            found = Ended(id=ended)
            expected.pop(ended, None)
            ends.discard(ended)
        made.apply(found, partition=0, offset=offset)
        due = sorted((at, number, each) for each, (at, number, _) in expected.items() if at <= 10)
        assert [place.id for place in made.due(10, most=3)] == [each for _, _, each in due[:3]]
        assert {place.id for place in made.cancelled(most=1_000)} == ends
        assert [place.id for place in made.waiting()] == [
            each for _, _, each in sorted((at, number, each) for each, (at, number, _) in expected.items())
        ]
        left = [number for _, number, _ in expected.values()] + [int(each) for each in ends]
        assert made.first_offset(0, 1_000) == min(left, default=1_000)
    assert len(made) == len(expected)


def test_to_a_typed_topic_bytes_are_delayed_and_become_columns_when_delivered():
    cluster = a_typed_topic(configs={"delay": True})
    with Producer(cluster) as producer:
        with pytest.raises(InvalidTypeError, match=r"waits as bytes; encode it in the topic's value\.format"):
            producer.send("t", ROW, deliver_at=T0_MS)
        producer.send("t", json.dumps(ROW).encode(), deliver_at=T0_MS).get()
    with a_mover(cluster, ManualClock(start_ms=T0_MS)) as mover:
        assert mover.run_once() == 1
    assert [record.value for record in read(cluster)] == [ROW]


def test_a_value_that_is_refused_when_it_is_due_is_a_dead_letter():
    """Its schema has changed meanwhile. ✗ It stops the mover."""
    cluster = a_typed_topic(configs={"delay": True})
    good = json.dumps(ROW).encode()
    with Producer(cluster) as producer:
        for number in range(3):
            producer.send("t", good, b"k%d" % number, deliver_at=T0_MS + number).get()
        [place, *_] = [place for place, _ in read_schedule(cluster, "t")]
        [(_, waiting), *_] = read_schedule(cluster, "t")
        headers = [("__delay.deliver_at", b"%d" % T0_MS), ("__delay.topic_id", (waiting.topic_id or "").encode())]
        producer.send("delayed.t", b"no JSON", b"other", headers, partition=0).get()
    assert place.partition == 0
    with a_mover(cluster, ManualClock(start_ms=T0_MS + 10)) as mover:
        assert mover.run_until_done() == 4
    assert [record.value for record in read(cluster)] == [ROW] * 3
    [letter] = map(letter_of, records(cluster, "dlq.t"))
    assert re.search(r"delayed\.t-0, offset 3, id other, can't be .* no JSON", letter.message)


def test_values_of_a_schema_that_was_set_while_the_mover_was_open_are_delivered():
    cluster = a_typed_topic(configs={"delay": True})
    with a_mover(cluster, ManualClock(start_ms=T0_MS)) as mover:
        for added in ({}, {"later": 1}):
            if added:
                with Admin(cluster) as admin:
                    [described] = admin.describe_topics(["t"])
                    schema = described.value_schemas[-1].arrow.append(pa.field("later", pa.int64()))
                    admin.alter_value_schema("t", schema)
            with Producer(cluster) as producer:
                producer.send("t", json.dumps({**ROW, **added}).encode(), deliver_at=T0_MS).get()
            assert mover.run_once() == 1
        assert mover.metrics()["records-dead-lettered-total"] == 0
    assert [record.value["later"] for record in read(cluster)] == [None, 1]


# What the topic would refuse


def refusing(**topic: Any) -> Cluster:
    cluster = a_cluster(MemoryStore())
    configs = {"delay": True, **topic.pop("configs", {})}
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 1, configs=configs, **topic)])
    return cluster


HOUR_MS = 3_600_000
LATER_MS = int(time.time() * 1_000) + 24 * HOUR_MS


@pytest.mark.parametrize(
    ("topic", "record", "error"),
    [
        ({"configs": {"cleanup.policy": "compact"}}, {"value": b"x"}, InvalidRecordError),
        ({"configs": {"cleanup.policy": "compact,delete"}}, {"value": b"x"}, InvalidRecordError),
        ({"value_schema": pa.schema([("id", pa.int64())])}, {"value": b"oops"}, InvalidRecordError),
        ({"value_schema": pa.schema([("id", pa.int64())])}, {"value": b'{"other":1}'}, InvalidRecordError),
        (
            {"configs": {"message.timestamp.before.max.ms": HOUR_MS}},
            {"value": b"x", "timestamp_ms": 1},
            InvalidTimestampError,
        ),
        (
            {"configs": {"message.timestamp.before.max.ms": HOUR_MS}},
            {"value": b"x", "timestamp_ms": LATER_MS - 2 * HOUR_MS},
            InvalidTimestampError,
        ),
        (
            {"configs": {"message.timestamp.after.max.ms": HOUR_MS}},
            {"value": b"x", "timestamp_ms": LATER_MS + 2 * HOUR_MS},
            InvalidTimestampError,
        ),
        ({}, {"value": b"x", "partition": 7}, UnknownTopicOrPartitionError),
        ({"configs": {"max.message.bytes": 100}}, {"value": b"x" * 101}, MessageSizeTooLargeError),
    ],
)
def test_what_the_topic_would_refuse_when_it_is_due_is_refused_when_it_is_sent(topic, record, error):
    """✗ It is acknowledged, and nobody can ever deliver it."""
    cluster = refusing(**topic)
    with Producer(cluster) as producer, pytest.raises(error, match="topic 't'"):
        producer.send("t", key=None, **record, deliver_at=LATER_MS)


def test_what_the_topic_will_take_when_it_is_due_is_taken():
    """✗ Timestamps are compared with the time of sending."""
    cluster = refusing(configs={"message.timestamp.after.max.ms": HOUR_MS, "message.timestamp.before.max.ms": HOUR_MS})
    with Producer(cluster) as producer:
        producer.send("t", b"a", timestamp_ms=LATER_MS, deliver_at=LATER_MS).get()
        producer.send("t", None, b"k", deliver_at=LATER_MS).get()
        producer.send("t", b"far", deliver_at=2**63 - 1).get()
    typed = refusing(value_schema=pa.schema([("id", pa.int64())]), configs={"value.on.error": "keep"})
    with Producer(typed) as producer:
        producer.send("t", b"kept as it is", deliver_at=LATER_MS).get()
        with Admin(typed) as admin:
            admin.alter_value_schema("t", pa.schema([("id", pa.int64()), ("b", pa.int64())]))
            admin.alter_configs({"t": {"value.on.error": "reject"}})
        producer.send("t", b'{"id":1,"b":2}', deliver_at=LATER_MS).get()
