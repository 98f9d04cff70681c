"""Micro-batches of a streaming query, committed to two topics, and a bad day at each store call of the driver.

The driver dies there, an answer or a request is lost there, or it sleeps there while another driver takes the query
over, a helper finishes what is decided, or a sweep goes through the topics. The query is started again as Spark does
it: from the first batch on that it hasn't noted to be done. In the end every batch is in both topics, whole and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import pytest

from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    ProducerFencedError,
    SparklogError,
    TransactionTimedOutError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, TopicWriter, create_topic, delete_topic
from sparklog.log.producer_state import new_producer_id
from sparklog.log.uploads import check_uploads
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.batches import MOST_QUERIES, is_committed, with_batch
from sparklog.txn.cleaning import clean_transaction_log
from sparklog.txn.committing import UploadCommitter
from sparklog.txn.entries import BatchTarget, QueryBatch, TopicFiles
from sparklog.txn.forward import finish
from sparklog.txn.orphans import sweep_orphans
from sparklog.txn.recovery import recover_transactions
from tests.depth import each_nth
from tests.support import DAY_MS, T0_MS, copy_of, foreign_vacuum, no_checkpoints, records
from tests.txn.support import Driver, a_cluster, a_log, newest_entry, states, values

HOUR_MS = 3_600_000
ID = "spark-q"
CHANGES = ("put", "create", "delete", "sync", "sync_all")
all_of_it = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
"""Quick tests take each seventh of the places where something goes wrong."""
T = TypeVar("T")


def every(step: int, places: Sequence[T]) -> Sequence[T]:
    """What a test walks over, see :data:`all_of_it`; in the gate one of eight of all."""
    return places[::step] if step > 1 else each_nth(places, 8)


@dataclass
class Query:
    """One run of a streaming query, as Spark runs it; ``noted`` is its checkpoint, which all runs share."""

    cluster: Cluster
    """As the driver sees the store."""
    tasks: Cluster
    """As the tasks do: they are other processes."""
    run_id: str = "run 1"
    query_id: str = "q"
    target: BatchTarget | None = None
    noted: list[int] = field(default_factory=lambda: [0])
    committer: UploadCommitter = field(init=False)

    def __post_init__(self) -> None:
        self.committer = UploadCommitter(self.cluster, ID, holder=self.run_id)

    def upload(self, batch_id: int) -> dict[str, TopicFiles]:
        """What two tasks have written for a batch: two files of ``t``, one of ``u``."""
        found = {}
        for topic, parts in (("t", [(0, "a"), (1, "b")]), ("u", [(0, "c")])):
            writer = TopicWriter(self.tasks.topic_log(topic), topic, sync=True, checkpoints=no_checkpoints())
            writer.adopt(producer_id=new_producer_id(), producer_epoch=0)
            staged = writer.upload([(partition, records(f"{batch_id}{name}")) for partition, name in parts])
            found[topic] = TopicFiles(topic_id=writer.topic_id, files=tuple(file.facts for file in staged))
        return found

    def commit(self, batch_id: int) -> bool:
        batch = QueryBatch(query_id=self.query_id, batch_id=batch_id, target=self.target)
        is_new = self.committer.commit(self.upload(batch_id), batch=batch)
        if batch_id not in self.noted:  # as Spark's commit log: created, never overwritten
            self.noted.append(batch_id)
        return is_new

    def go_on(self, last: int) -> None:
        for batch_id in range(max(self.noted) + 1, last + 1):
            self.commit(batch_id)


def contents(cluster: Cluster) -> dict[str, list[str]]:
    return {"t": values(cluster, "t"), "u": values(cluster, "u")}


def batches(*numbers: int) -> dict[str, list[str]]:
    """What the topics hold after these batches."""
    return {"t": [f"{n}a" for n in numbers] + [f"{n}b" for n in numbers], "u": [f"{n}c" for n in numbers]}


@cache
def the_world() -> MemoryStore:
    """Two topics, and a query that has one batch behind it."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for topic, partitions in (("t", 2), ("u", 1)):
        create_topic(cluster.topic_log(topic), topic, num_partitions=partitions)
    assert Query(cluster, cluster, run_id="run 0", noted=[]).commit(0)
    return memory


def prepared() -> tuple[MemoryStore, ManualClock, Cluster]:
    clock = ManualClock(start_ms=0)
    memory = copy_of(the_world())
    clock.advance(max(found.modified_ms for found in memory.list("")))
    memory._clock = clock
    return memory, clock, a_cluster(memory, clock)


@cache
def calls() -> tuple[str, ...]:
    """Of a driver that begins, commits batch 1 and, with what it knows by then, batch 2."""
    memory, clock, cluster = prepared()
    store = FaultyStore(memory)
    Query(a_cluster(store, clock), cluster).go_on(2)
    return tuple(call.op for call in store.calls)


def finish_what_is_decided(cluster: Cluster) -> None:
    newest, position = a_log(cluster, ID).open_newest()
    if newest is not None and newest.state.is_prepared:
        finish(cluster, a_log(cluster, ID), newest, position, timeout_ms=HOUR_MS)


def all_or_nothing(cluster: Cluster) -> None:
    seen = contents(cluster)
    numbers = [int(value[:-1]) for value in seen["u"]]
    assert seen == batches(*numbers)
    assert numbers == list(range(len(numbers)))


def starts_again(cluster: Cluster, noted: list[int], last: int = 3) -> None:
    """A new run goes on from the checkpoint: all of it is there, once."""
    all_or_nothing(cluster)
    query = Query(cluster, cluster, run_id="the last run", noted=noted)
    query.go_on(last)
    assert contents(cluster) == batches(*range(last + 1))
    assert states(cluster, ID)[-1] == "CompleteCommit"


# --- dying


@pytest.mark.slow
@pytest.mark.parametrize("helped", [True, False])
def test_a_driver_started_again_after_death_at_any_store_call_has_each_batch_once(helped: bool) -> None:
    places = [
        fault
        for fault in crashes(len(calls()))
        if fault.kind is FaultKind.CRASH_BEFORE or calls()[fault.at or 0] in CHANGES
    ]
    assert len(places) >= 30
    for fault in each_nth(places, 8):
        memory, clock, cluster = prepared()
        query = Query(a_cluster(FaultyStore(memory, fault), clock), cluster)
        with pytest.raises(SimulatedCrash):
            query.go_on(2)
        if helped:
            finish_what_is_decided(cluster)
            starts_again(cluster, query.noted)
        else:  # the next driver finishes it, before it looks at which batches are there
            again = Query(cluster, cluster, run_id="run 2", noted=query.noted)
            again.go_on(max(query.noted) + 1)
            starts_again(cluster, query.noted)


@pytest.mark.slow
def test_drivers_that_die_one_after_the_other_get_on() -> None:
    """Each dies a few calls further than the one before, many of them while they carry out what another decided."""
    memory, clock, cluster = prepared()
    noted = [0]
    for at in range(0, 60, 4):
        fault = Fault(kind=FaultKind.CRASH_AFTER if at % 8 else FaultKind.CRASH_BEFORE, at=at // 2)
        with pytest.raises(SimulatedCrash):
            Query(a_cluster(FaultyStore(memory, fault), clock), cluster, run_id=f"run {at}", noted=noted).go_on(99)
        finish_what_is_decided(cluster)
        all_or_nothing(cluster)
    assert len(noted) > 1
    starts_again(cluster, noted, last=max(noted) + 2)


# --- answers and requests that get lost


def troubles() -> Iterator[Fault]:
    """Each names its call by its kind: calls for two topics are made side by side, in any order."""
    lost = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.THROTTLED)
    for number, op in enumerate(calls()):
        if op in ("sync", "sync_all"):
            continue  # an fsync that fails is no passing refusal
        kinds = (*lost, FaultKind.OWN_SUCCESS) if op == "create" else lost if op in CHANGES else (FaultKind.THROTTLED,)
        yield from (Fault(kind=kind, ops=(op,), skip=calls()[:number].count(op)) for kind in kinds)


@pytest.mark.slow
@all_of_it
def test_a_lost_answer_or_request_changes_nothing(step: int) -> None:
    for fault in every(step, [*troubles()]):
        memory, clock, cluster = prepared()
        query = Query(a_cluster(FaultyStore(memory, fault, clock=clock), clock), cluster)
        query.go_on(2)
        assert contents(cluster) == batches(0, 1, 2)
        starts_again(cluster, query.noted)


@pytest.mark.slow
@all_of_it
def test_a_store_that_refuses_for_longer_than_the_driver_waits_leaves_all_or_nothing(step: int) -> None:
    kinds = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED, FaultKind.DISK_FULL)
    places = [(at, op, kind) for at, op in enumerate(calls()) if op in ("create", "put") for kind in kinds]
    # Of the last batch: all of it is there by then, and whoever comes next says so.
    completion = max(at for at, op in enumerate(calls()) if op == "create")
    for at, op, kind in every(step, places):
        memory, clock, cluster = prepared()
        fault = Fault(kind=kind, times=None, ops=(op,), skip=calls()[:at].count(op))
        query = Query(a_cluster(FaultyStore(memory, fault, clock=clock), clock), cluster)
        with nullcontext() if at == completion else pytest.raises(SparklogError):
            query.go_on(2)
        finish_what_is_decided(cluster)
        starts_again(cluster, query.noted)


# --- sleeping


def another_driver(cluster: Cluster, noted: list[int]) -> None:
    """Somebody started the query again, on another machine."""
    Query(cluster, cluster, run_id="run 2", noted=noted).go_on(max(noted) + 2)


def another_driver_at_the_same_batch(cluster: Cluster, noted: list[int]) -> None:
    Query(cluster, cluster, run_id="run 2", noted=noted).go_on(max(noted) + 1)


def a_week_and_a_sweep(cluster: Cluster, noted: list[int]) -> None:
    cluster.clock.sleep_ms(8 * DAY_MS)
    for topic in ("t", "u"):
        sweep_orphans(cluster, topic, dry_run=False)


def an_hour_and_a_recovery(cluster: Cluster, noted: list[int]) -> None:
    cluster.clock.sleep_ms(HOUR_MS)
    assert [done.error for done in recover_transactions(cluster, timeout_ms=HOUR_MS)] == [None]


def an_hour_and_a_cleaning(cluster: Cluster, noted: list[int]) -> None:
    another_driver(cluster, noted)
    cluster.clock.sleep_ms(HOUR_MS)
    newest = newest_entry(cluster, ID)
    assert newest is not None
    clean_transaction_log(a_log(cluster, ID), newest)


@pytest.mark.slow
@pytest.mark.parametrize(
    "meanwhile",
    [
        another_driver,
        another_driver_at_the_same_batch,
        a_week_and_a_sweep,
        an_hour_and_a_recovery,
        an_hour_and_a_cleaning,
    ],
    ids=lambda meanwhile: meanwhile.__name__,
)
@all_of_it
def test_a_driver_that_sleeps_at_any_store_call_harms_nobody(
    meanwhile: Callable[[Cluster, list[int]], None], step: int
) -> None:
    places = [(at, after) for at, op in enumerate(calls()) for after in ((False, True) if op in CHANGES else (False,))]
    for at, after in every(step, places):
        memory, clock, cluster = prepared()
        store = InterruptedStore(memory)
        query = Query(a_cluster(store, clock), cluster)
        store.interrupt(lambda c=cluster, q=query: meanwhile(c, q.noted), at=at, after=after)  # type: ignore[misc]
        with suppress(SparklogError):
            query.go_on(2)
        finish_what_is_decided(cluster)
        starts_again(cluster, query.noted, last=max(query.noted) + 1)


def test_a_sleeper_that_another_driver_has_overtaken_is_fenced() -> None:
    memory, clock, cluster = prepared()
    asleep = Query(a_cluster(memory, clock), cluster)
    asleep.go_on(1)
    another_driver(cluster, asleep.noted)
    with pytest.raises(ProducerFencedError, match=ID):
        asleep.commit(2)
    assert contents(cluster) == batches(0, 1, 2, 3)


def test_a_sleeper_that_finds_its_batch_in_a_new_process_disturbs_nobody() -> None:
    memory, clock, cluster = prepared()
    at_work = Query(a_cluster(memory, clock), cluster)
    at_work.go_on(1)
    slept = Query(a_cluster(memory, clock), cluster, run_id="slept")
    assert slept.commit(1) is False
    with pytest.raises(IllegalStateError, match="batch 1 is committed already"):
        slept.commit(0)
    at_work.commit(2)
    assert contents(cluster) == batches(0, 1, 2)


def test_processes_of_one_run_take_the_id_from_each_other_and_none_is_fenced() -> None:
    memory, clock, cluster = prepared()
    one, other = (Query(a_cluster(memory, clock), cluster) for _ in range(2))
    other.noted = one.noted
    for number in range(1, 7):
        (one, other)[number % 2].commit(number)
    assert contents(cluster) == batches(*range(7))


# --- which batches are there


def test_a_batch_that_is_run_again_changes_nothing() -> None:
    _, _, cluster = prepared()
    assert not Query(cluster, cluster).commit(0)
    query = Query(cluster, cluster, run_id="run 2")
    assert query.commit(1)
    assert not query.commit(1)
    assert contents(cluster) == batches(0, 1)


def test_a_batch_before_the_newest_is_refused() -> None:
    _, _, cluster = prepared()
    Query(cluster, cluster).go_on(2)
    with pytest.raises(IllegalStateError, match="micro-batch 1 of query q: batch 2 is committed already"):
        Query(cluster, cluster, run_id="run 2").commit(1)
    assert contents(cluster) == batches(0, 1, 2)


def test_another_query_with_the_same_id_begins_anew_and_the_first_is_still_known() -> None:
    _, _, cluster = prepared()
    assert Query(cluster, cluster, run_id="run 2", query_id="new checkpoint").commit(0)
    assert not Query(cluster, cluster, run_id="run 3").commit(0)
    assert Query(cluster, cluster, run_id="run 4").commit(1)
    assert contents(cluster) == batches(0, 0, 1)


def test_the_newest_batch_outlives_epochs_aborts_and_the_cleaning_of_the_log() -> None:
    _, clock, cluster = prepared()
    producer = Driver(cluster, transactional_id=ID).init()  # an ordinary producer with the query's id
    producer.begin()
    producer.send("u", "by a producer")
    producer.abort()
    for _ in range(3):
        clock.advance(HOUR_MS)
        Driver(cluster, transactional_id=ID).init()
        newest = newest_entry(cluster, ID)
        assert newest is not None
        clean_transaction_log(a_log(cluster, ID), newest)
    assert "PrepareCommit" not in states(cluster, ID)
    assert not Query(cluster, cluster, run_id="run 9").commit(0)
    assert contents(cluster) == batches(0)


def test_the_newest_batch_is_known_after_the_last_epoch_of_a_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, cluster = prepared()
    monkeypatch.setattr("sparklog.txn.entries.MAX_EPOCH", 0)
    before = newest_entry(cluster, ID)
    assert Query(cluster, cluster, run_id="run 2").commit(1)
    after = newest_entry(cluster, ID)
    assert before is not None
    assert after is not None
    assert before.header.producer_id != after.header.producer_id
    assert after.batches == (QueryBatch(query_id="q", batch_id=1),)
    with pytest.raises(IllegalStateError, match="batch 1 is committed already"):
        Query(cluster, cluster, run_id="run 3").commit(0)
    assert not Query(cluster, cluster, run_id="run 3").commit(1)


def test_of_many_queries_the_newest_are_remembered() -> None:
    known: tuple[QueryBatch, ...] = ()
    for number in range(MOST_QUERIES + 3):
        known = with_batch(known, QueryBatch(query_id=f"q{number}", batch_id=number))
        known = with_batch(known, QueryBatch(query_id=f"q{number}", batch_id=number + 1))
    assert [batch.batch_id for batch in known] == list(range(4, MOST_QUERIES + 4))
    assert is_committed(known, QueryBatch(query_id="q3", batch_id=4))
    assert not is_committed(known, QueryBatch(query_id="q2", batch_id=3))


# --- where the rows of a batch go


TO_T, TO_U = BatchTarget(topic="t"), BatchTarget(topic="u")


def named(*topics: str) -> BatchTarget:
    """Of a query whose rows name their topics."""
    return BatchTarget(topics=frozenset(topics))


def a_batch(number: int, target: BatchTarget | None) -> QueryBatch:
    return QueryBatch(query_id="q", batch_id=number, target=target)


@pytest.mark.parametrize(
    ("before", "number", "now", "message"),
    [
        (TO_T, 7, TO_U, r"micro-batch 7 of query q goes to topic 'u', but its number 7 was committed to topic 't'"),
        (TO_T, 8, TO_U, r"goes to topic 'u', but its number 7 was committed to topic 't'.*transactionalId of its own"),
        (TO_T, 6, TO_U, r"goes to topic 'u', but its number 7"),
        (TO_T, 8, named("t"), r"goes to the topics that its rows name, but its number 7 was committed to topic 't'"),
        (named("t"), 8, TO_T, r"goes to topic 't', but its number 7 was committed to the topics that its rows name"),
        (named("t"), 7, named("t", "u"), r"with rows for topics t; now it has rows for u, which would be lost"),
        (named(*"abcdefg"), 7, named("z"), r"topics a, b, c, d, e and 2 more; now it has rows for z"),
    ],
)
def test_a_copy_of_a_query_that_writes_elsewhere_is_refused(
    before: BatchTarget, number: int, now: BatchTarget, message: str
) -> None:
    with pytest.raises(IllegalStateError, match=message):
        is_committed((a_batch(7, before),), a_batch(number, now))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (TO_T, TO_T),
        (named("t", "u"), named("t", "u")),
        (named("t", "u"), named("u")),  # a plan that gives other rows when it is run again, which are as good
        (None, TO_T),  # committed by an older sparklog
        (TO_T, None),
    ],
)
def test_a_query_that_writes_where_it_wrote_goes_on(before: BatchTarget | None, now: BatchTarget | None) -> None:
    assert is_committed((a_batch(7, before),), a_batch(7, now))
    assert not is_committed((a_batch(7, before),), a_batch(8, now))


def test_from_batch_to_batch_rows_may_name_other_topics() -> None:
    assert not is_committed((a_batch(7, named("t")),), a_batch(8, named("u")))


def test_numbers_of_an_application_are_skipped_up_to_the_newest() -> None:
    known = (a_batch(7, TO_T),)
    found = [is_committed(known, a_batch(number, TO_T), skip_older=True) for number in (0, 6, 7, 8, 100)]
    assert found == [True, True, True, False, False]
    with pytest.raises(IllegalStateError, match=r"txnVersion 7 of txnAppId 'q' was committed with rows for topics t;"):
        is_committed((a_batch(7, named("t")),), a_batch(7, named("u")), skip_older=True)


def test_a_copy_that_is_refused_disturbs_nobody() -> None:
    """It is refused before it takes the id: the query that it was copied of isn't fenced."""
    memory, clock, cluster = prepared()
    ours = Query(a_cluster(memory, clock), cluster, target=TO_T)
    ours.go_on(1)
    before = states(cluster, ID)
    copied = Query(a_cluster(memory, clock), cluster, run_id="copy", target=TO_U, noted=[0])
    for number in (1, 2):
        with pytest.raises(IllegalStateError, match="goes to topic 'u'"):
            copied.commit(number)
    assert states(cluster, ID) == before
    ours.commit(2)
    assert contents(cluster) == batches(0, 1, 2)


def test_a_copy_that_comes_first_is_noticed_by_the_query_itself() -> None:
    """The batch's number is taken, for rows that are elsewhere: nothing is lost without a word."""
    memory, clock, cluster = prepared()
    ours = Query(a_cluster(memory, clock), cluster, target=TO_T)  # its batch 0 is of an older sparklog
    copied = Query(a_cluster(memory, clock), cluster, run_id="copy", target=TO_U, noted=[0])
    assert copied.commit(1)
    with pytest.raises(IllegalStateError, match="goes to topic 't', but its number 1 was committed to topic 'u'"):
        ours.commit(1)


# --- what is refused before anything is decided


def refused(cluster: Cluster, topics: dict[str, TopicFiles], error: type[SparklogError], message: str) -> None:
    before = states(cluster, ID), contents(cluster)
    committer = UploadCommitter(cluster, ID, holder="run 1")
    with pytest.raises(error, match=message):
        committer.commit(topics, batch=QueryBatch(query_id="q", batch_id=1))
    assert not committer.may_be_committed
    assert (states(cluster, ID)[:-1], contents(cluster)) == before
    assert states(cluster, ID)[-1] == "Empty"


def test_files_that_may_be_swept_are_refused() -> None:
    _, clock, cluster = prepared()
    topics = Query(cluster, cluster).upload(1)
    clock.advance(DAY_MS + 1)
    refused(cluster, topics, TransactionTimedOutError, "was uploaded 24.0 hours ago")


def test_files_that_another_engines_vacuum_has_taken_are_refused() -> None:
    _, _, cluster = prepared()
    query = Query(cluster, cluster)
    query.commit(1)
    topics = query.upload(2)
    gone = topics["u"].files[0].path
    foreign_vacuum(cluster.topic_log("u"), gone=[gone])
    before = states(cluster, ID)
    with pytest.raises(TransactionTimedOutError, match=f"{gone} was uploaded 0 minutes ago and is gone"):
        query.committer.commit(topics, batch=QueryBatch(query_id="q", batch_id=2))
    assert not query.committer.may_be_committed
    assert states(cluster, ID) == before
    query.commit(2)
    assert contents(cluster) == batches(0, 1, 2)


def test_files_from_machines_whose_clocks_say_nothing_of_their_age_are_refused() -> None:
    """How old a file is, two clocks tell: of the machine that uploaded it and of the one that commits it."""
    memory, clock, cluster = prepared()
    for ahead_ms, is_refused in ((DAY_MS, False), (DAY_MS + 1, True)):
        ahead = a_cluster(memory, ManualClock(start_ms=clock.now_ms() + ahead_ms))
        topics = Query(ahead, ahead).upload(1)
        if is_refused:
            refused(cluster, topics, TransactionTimedOutError, "uploaded 24.0 hours from now")
        else:
            for topic, named in topics.items():
                check_uploads(cluster.topic_log(topic), named.files, (), retention_ms=7 * DAY_MS)


def test_files_of_a_topic_that_was_deleted_are_refused() -> None:
    _, _, cluster = prepared()
    topics = Query(cluster, cluster).upload(1)
    delete_topic(cluster.topic_log("u"), "u")
    before = states(cluster, ID)
    with pytest.raises(UnknownTopicOrPartitionError, match="'u' was deleted"):
        UploadCommitter(cluster, ID).commit(topics, batch=QueryBatch(query_id="q", batch_id=1))
    create_topic(cluster.topic_log("u"), "u", num_partitions=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted while records were written"):
        UploadCommitter(cluster, ID).commit(topics, batch=QueryBatch(query_id="q", batch_id=1))
    assert states(cluster, ID) == [*before, "Empty", "Empty"]
    assert values(cluster, "t") == batches(0)["t"]


def test_a_partition_that_isnt_there_is_refused() -> None:
    _, _, cluster = prepared()
    topics = Query(cluster, cluster).upload(1)
    wrong = TopicFiles(topic_id=topics["u"].topic_id, files=topics["t"].files)
    refused(cluster, {"t": topics["t"], "u": wrong}, InvalidArgumentError, "is of partition 1; 'u' has 1")


def test_a_topic_without_files_is_refused() -> None:
    _, _, cluster = prepared()
    topics = Query(cluster, cluster).upload(1)
    for nothing in ({}, {**topics, "u": TopicFiles(topic_id="", files=())}):
        with pytest.raises(IllegalStateError, match="expected one file or more for each"):
            UploadCommitter(cluster, ID).commit(nothing)
    assert len(states(cluster, ID)) == 3


def test_a_batch_that_is_readable_is_done_though_its_completion_can_t_be_written() -> None:
    memory, clock, cluster = prepared()
    fault = Fault(kind=FaultKind.THROTTLED, ops=("create",), path="transactions/", skip=2, times=1_000)
    query = Query(a_cluster(FaultyStore(memory, fault, clock=clock), clock), cluster)
    assert query.commit(1)
    assert states(cluster, ID)[-1] == "PrepareCommit"
    starts_again(cluster, query.noted)


# --- what it costs


def test_a_batch_costs_a_get_and_a_create_for_each_topic_and_two_creates() -> None:
    memory, clock, cluster = prepared()
    store = FaultyStore(memory)
    query = Query(a_cluster(store, clock), cluster)
    query.go_on(1)
    before = len(store.calls)
    query.go_on(2)
    found = [call.op for call in store.calls[before:]]
    assert sorted(op for op in found if not op.startswith("sync")) == ["create"] * 4 + ["get"] * 2
