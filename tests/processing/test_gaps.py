"""Records that others have deleted before a worker read them: it commits the offset behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparklog import Admin, Consumer, NewTopic, TopicPartition
from sparklog.clock import SystemClock
from sparklog.log import Cluster, open_cluster
from sparklog.processing import Record, Send
from sparklog.processing.frontier import Entry
from sparklog.processing.retries import Retry
from sparklog.processing.subscriber import make_subscriber
from sparklog.processing.work import Limits, Work
from tests.processing.support import an_app, running, send, texts, until
from tests.processing.test_frontier import a_record

OFFSET = "base_offset + offset_delta"
AT = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "c")
    Admin(root).create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    return root


def delete(root: str, where: str | None) -> None:
    DeltaTable(f"{root}/topics/in").delete(where)


def lag(root: str) -> list[int | None]:
    return [row.lag for row in Admin(root).describe_groups(["g"])[0].partitions if row.partition.topic == "in"]


@pytest.mark.parametrize("sends", [False, True], ids=["offsets alone", "in transactions"])
@pytest.mark.parametrize("where", [f"{OFFSET} >= 7", f"{OFFSET} in (3, 9)", None])
def test_a_worker_commits_the_offset_behind_deleted_records(root, where, sends):
    cluster = open_cluster(root)
    send(cluster, "in", [str(number) for number in range(10)])
    delete(root, where)
    app, seen = an_app(cluster), list[str]()

    @app.subscriber("in", value_type=str)
    def handle(record: Record[str]) -> Send | None:
        seen.append(record.value)
        return Send("out", record.value) if sends else None

    with running(app):
        until(lambda: lag(root) == [0])
    kept = [number for number in range(10) if where is not None and not _is_deleted(number, where)]
    assert seen == [str(number) for number in kept]
    assert texts(cluster, "out") == (seen if sends else [])


def _is_deleted(number: int, where: str) -> bool:
    return number >= 7 if ">=" in where else number in (3, 9)


def test_a_worker_that_had_committed_before_goes_on_behind_them(root):
    cluster = open_cluster(root)
    send(cluster, "in", ["a", "b", "c"])
    _worked(cluster, root, ["a", "b", "c"])
    send(cluster, "in", ["d", "e"])
    delete(root, f"{OFFSET} >= 3")
    assert lag(root) == [2]
    _worked(cluster, root, [])
    send(cluster, "in", ["f"])
    _worked(cluster, root, ["f"])


def _worked(cluster: Cluster, root: str, expected: list[str]) -> None:
    app, seen = an_app(cluster), list[str]()
    app.subscriber("in", value_type=str)(lambda record: seen.append(record.value))
    with running(app):
        until(lambda: lag(root) == [0] and len(seen) >= len(expected))
    assert seen == expected


# --- the rules alone


def a_work() -> Work:
    subscriber = make_subscriber(
        lambda record: None,
        ("t",),
        retry=Retry(attempts=1),
        dead_letter=None,
        concurrency=1,
        order_by=None,
        batch_size=1,
        value_type=bytes,
        decode=None,
    )
    return Work([subscriber], group_id="g", clock=SystemClock(), limits=Limits(), run_async=_never)


def _never(*_: object) -> None:
    raise AssertionError


def entries_of(work: Work) -> list[Entry]:
    return [*work.frontiers[AT]._entries]


def test_nothing_behind_a_record_that_is_not_done_is_passed():
    work = a_work()
    work.feed({AT: [a_record(5), a_record(6)]}, gap_ends={AT: 10})
    first, second = entries_of(work)
    assert not work.collect().passed
    first.is_done = True
    assert work.collect().committable[AT].offset == 6
    second.is_done = True
    assert work.collect().committable[AT].offset == 10
    assert work.pending.count == 2


def test_later_records_take_the_place_of_a_gap():
    work = a_work()
    work.feed({AT: [a_record(5)]}, gap_ends={AT: 10})
    work.feed({AT: [a_record(10)]})
    first, second = entries_of(work)
    first.is_done = True
    assert work.collect().committable[AT].offset == 6
    second.is_done = True
    assert work.collect().committable[AT].offset == 11


def test_a_gap_alone_is_due_and_given_back_like_records():
    work = a_work()
    work.feed({}, gap_ends={AT: 10})
    taken = work.collect()
    assert (taken.count, taken.gaps, taken.committable[AT].offset) == (0, 1, 10)
    taken = work.take()
    work.feed({AT: [a_record(10)]})
    entries_of(work)[0].is_done = True
    work.collect()
    work.give_back(taken)
    assert (work.pending.count, work.pending.committable[AT].offset) == (1, 11)


def test_a_gap_of_a_partition_that_was_taken_away_is_forgotten():
    work = a_work()
    work.feed({}, gap_ends={AT: 10})
    work.collect()
    work.drop([AT])
    assert not work.collect().passed


# --- the consumer's side


def test_each_gap_is_told_once(root):
    cluster = open_cluster(root)
    send(cluster, "in", ["a", "b", "c"])
    delete(root, f"{OFFSET} >= 1")
    at = TopicPartition("in", 0)
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([at])
        assigned, seen = consumer._runtime.assigned, list[bytes]()
        while consumer.position(at) < 3:
            assert not assigned.take_gap_ends()
            seen += [record.value for record in consumer.poll(100).get(at, [])]
        assert seen == [b"a"]
        assert assigned.take_gap_ends() == {at: 3}
        assert assigned.take_gap_ends() == {}
        assert consumer.metrics()["consumer-fetch-manager-metrics.in-0"]["records-lag"] == 0
        consumer.seek(at, 1)
        consumer.poll(100)
        consumer.seek(at, 0)
        assert assigned.take_gap_ends() == {}
