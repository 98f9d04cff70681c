"""A transaction over two topics and a group, with a fault at each of its store calls.

The process dies there, its answer or its request is lost there, or it sleeps there for an hour while others act. After
recovery everything is visible once or nothing is, the group's offset agrees with it, what was acknowledged stays, and
the id and the group go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import (
    CommitFailedError,
    ConcurrentTransactionsError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import Cluster, TopicWriter
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.cleaning import clean_transaction_log
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.forward import finish
from sparklog.txn.session import TIMED_OUT
from tests.depth import each_nth
from tests.support import DAY_MS, copy_of, no_checkpoints, records, within
from tests.txn.support import (
    BOB,
    IN,
    TIMEOUT_MS,
    Driver,
    a_cluster,
    a_log,
    a_world,
    contents,
    group_rows,
    newest_entry,
    take,
)

HOUR_MS = 3_600_000
EVE = Stamp(3, "eve")
BEFORE = {"t": ["t0"], "u": ["u0"], "g": 6}
AFTER = {"t": ["t0", "t1", "t2"], "u": ["u0", "u1"], "g": 7}
CHANGES = ("put", "create", "delete", "sync", "sync_all")


@dataclass
class Story:
    """What a process does, and how far it got."""

    name: str
    ends: Callable[[Driver], None]
    may_commit: bool
    told: bool = False
    """Was it told that all of it is done?"""

    def play(self, cluster: Cluster) -> None:
        driver = Driver(cluster).init()
        driver.begin()
        driver.send("t", "t1")
        driver.send_offset(7)
        driver.send("u", "u1")
        driver.send("t", "t2")
        self.ends(driver)
        self.told = True
        driver.complete()
        driver.session.close()


def a_story(name: str) -> Story:
    return {
        "commit": Story("commit", Driver.commit, may_commit=True),
        "abort": Story("abort", Driver.abort, may_commit=False),
    }[name]


@cache
def the_world() -> MemoryStore:
    """A world in which the id has one transaction behind it."""
    memory, _, cluster = a_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "t0")
    driver.send("u", "u0")
    driver.send_offset(6)
    driver.commit()
    driver.complete()
    return memory


def prepared() -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock(start_ms=0)
    memory = copy_of(the_world())
    clock.advance(max(found.modified_ms for found in memory.list("")))
    memory._clock = clock
    return memory, clock


@cache
def calls_of(name: str) -> tuple[str, ...]:
    memory, clock = prepared()
    store = FaultyStore(memory)
    a_story(name).play(a_cluster(store, clock))
    return tuple(call.op for call in store.calls)


# --- who comes next


def a_new_producer(cluster: Cluster) -> None:
    """With the same id; then the partition's next owner."""
    Driver(cluster).init()
    take(cluster, BOB)


def the_next_owner(cluster: Cluster) -> None:
    """Of the partition; then somebody who finishes what is decided."""
    before = take(cluster, BOB)
    assert before[IN].pending is None
    newest, position = a_log(cluster).open_newest()
    if newest is not None and newest.state.is_prepared:
        finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)
    assert group_rows(cluster) == before, "what the owner was told isn't true any more"


def two_helpers(cluster: Cluster) -> None:
    """Both roll forward what they saw at the same time, the one before and after each call of the other."""
    newest, position = a_log(cluster).open_newest()
    if newest is not None and newest.state.is_prepared:
        for _ in range(2):
            finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)
    take(cluster, BOB)


RECOVERIES: list[Callable[[Cluster], None]] = [a_new_producer, the_next_owner, two_helpers]


def check(
    story: Story,
    cluster: Cluster,
    *,
    recover: Callable[[Cluster], None],
    again: Sequence[Callable[[Cluster], None]] = (),
) -> None:
    """Recover; all or nothing; recovering again changes nothing; and everything goes on."""
    recover(cluster)
    seen = contents(cluster)
    assert group_rows(cluster)[IN].pending is None
    assert seen in ([AFTER] if story.told and story.may_commit else [BEFORE, AFTER] if story.may_commit else [BEFORE])
    for one in again:
        one(cluster)
        assert contents(cluster) == seen
    following = Driver(cluster, member=EVE).init()
    take(cluster, EVE)
    following.begin()
    following.send("t", "next")
    following.send("u", "next")
    following.send_offset(8)
    following.commit()
    following.complete()
    assert contents(cluster) == {"t": [*seen["t"], "next"], "u": [*seen["u"], "next"], "g": 8}


# --- dying


def crashes_in(name: str) -> Iterator[Fault]:
    """Before every call, and after every call that changes something: after a read is before the next call."""
    ops = calls_of(name)
    return (f for f in crashes(len(ops)) if f.kind is FaultKind.CRASH_BEFORE or ops[f.at or 0] in CHANGES)


def dies(
    name: str, fault: Fault, recover: Callable[[Cluster], None], again: Sequence[Callable[[Cluster], None]] = ()
) -> None:
    memory, clock = prepared()
    story = a_story(name)
    with pytest.raises(SimulatedCrash):
        story.play(a_cluster(FaultyStore(memory, fault), clock))
    check(story, a_cluster(memory, clock), recover=recover, again=again)


@pytest.mark.parametrize("recover", RECOVERIES, ids=lambda recover: recover.__name__)
def test_a_producer_that_dies_leaves_all_or_nothing(recover: Callable[[Cluster], None]) -> None:
    """Each deed is died at here, before or after it and with one of the recoveries; all of it is below, and slow."""
    deeds = [fault for fault in crashes_in("commit") if calls_of("commit")[fault.at or 0] in CHANGES]
    for number, fault in enumerate(deeds):
        if RECOVERIES[number % 3] is recover:
            dies("commit", fault, recover)


@pytest.mark.slow
@pytest.mark.parametrize("recover", RECOVERIES, ids=lambda recover: recover.__name__)
@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_producer_that_dies_at_any_store_call_leaves_all_or_nothing(
    name: str, recover: Callable[[Cluster], None]
) -> None:
    for fault in each_nth(crashes_in(name), 6):
        dies(name, fault, recover, again=RECOVERIES)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("recover", RECOVERIES, ids=lambda recover: recover.__name__)
def test_whoever_recovers_may_die_at_any_store_call_too(recover: Callable[[Cluster], None]) -> None:
    for at in each_nth((at for at, op in enumerate(calls_of("commit")) if op in ("create", "put")), 8):
        for fault in each_nth((one for one in crashes(1_000) if one.kind is FaultKind.CRASH_AFTER), 3):
            memory, clock = prepared()
            story = a_story("commit")
            with pytest.raises(SimulatedCrash):
                story.play(a_cluster(FaultyStore(memory, Fault(kind=FaultKind.CRASH_AFTER, at=at)), clock))
            try:
                recover(a_cluster(FaultyStore(memory, fault), clock))
            except SimulatedCrash:
                check(story, a_cluster(memory, clock), recover=RECOVERIES[at % 3])
            else:
                break


# --- answers and requests that get lost


def troubles_in(name: str) -> Iterator[Fault]:
    """Each names its call by its kind: calls for two topics are made side by side, in any order."""
    lost = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.THROTTLED)
    for number, op in enumerate(calls_of(name)):
        if op in ("sync", "sync_all"):
            continue  # an fsync that fails is no passing refusal
        kinds = (*lost, FaultKind.OWN_SUCCESS) if op == "create" else lost if op in CHANGES else (FaultKind.THROTTLED,)
        yield from (Fault(kind=kind, ops=(op,), skip=calls_of(name)[:number].count(op)) for kind in kinds)


def suffers(name: str, fault: Fault) -> None:
    memory, clock = prepared()
    story = a_story(name)
    story.play(a_cluster(FaultyStore(memory, fault, clock=clock), clock))
    cluster = a_cluster(memory, clock)
    assert contents(cluster) == (AFTER if story.may_commit else BEFORE)
    assert group_rows(cluster)[IN].pending is None
    assert cluster.store.list_names("transactions-open/") == []
    check(story, cluster, recover=a_new_producer)


def test_a_lost_answer_or_request_changes_nothing() -> None:
    for fault in [*troubles_in("commit")][::11]:
        suffers("commit", fault)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_passing_fault_at_any_store_call_changes_nothing(name: str) -> None:
    for fault in each_nth(troubles_in(name), 6):
        suffers(name, fault)


# --- sleeping


def nobody(cluster: Cluster) -> None:
    """An hour of silence."""


def somebody_with_the_same_id(cluster: Cluster) -> None:
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "other")
    driver.send("u", "other")
    driver.commit()
    driver.complete()


def the_partitions_next_owner(cluster: Cluster) -> None:
    take(cluster, BOB)


def an_observer_of_the_time(cluster: Cluster) -> None:
    """Finishes what is decided, and aborts what is open for too long."""
    newest, position = a_log(cluster).open_newest()
    if newest is not None and newest.state.is_prepared:
        finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)
    elif newest is not None:
        ticks_ms = cluster.clock.ticks_ms()
        abort_if_open(a_log(cluster), newest, ticks_ms=ticks_ms, reason=TIMED_OUT, timeout_ms=TIMEOUT_MS)
        newest, position = a_log(cluster).open_newest()
        assert newest is not None
        finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)


def everybody_and_a_cleaner(cluster: Cluster) -> None:
    """Two days, after which nothing of what the sleeper knew is left in any log."""
    an_observer_of_the_time(cluster)
    take(cluster, BOB)
    clock = cluster.clock
    writers = {}
    for topic in ("t", "u"):
        writers[topic] = TopicWriter(cluster.topic_log(topic), topic, checkpoints=no_checkpoints())
    for _ in range(4):
        clock.sleep_ms(DAY_MS / 2)
        for writer in writers.values():
            writer.append(writer.upload([(0, records("other"))]), deadline=within(writer, 1e12))
    for topic, writer in writers.items():
        write_checkpoint(cluster.topic_log(topic))
        writer.append(writer.upload([(0, records("other"))]), deadline=within(writer, 1e12))
        clean_log(cluster.topic_log(topic), retention_ms=DAY_MS)
    for _ in range(2):
        newest, position = a_log(cluster).open_newest()
        if newest is not None and newest.state.is_open:
            abort_if_open(
                a_log(cluster), newest, ticks_ms=clock.ticks_ms(), reason="by an administrator", timeout_ms=TIMEOUT_MS
            )
        newest, position = a_log(cluster).open_newest()
        assert newest is not None
        finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)
        clock.sleep_ms(HOUR_MS)
    newest = newest_entry(cluster)
    assert newest is not None
    assert clean_transaction_log(a_log(cluster), newest) > 0


MEANWHILE: list[Callable[[Cluster], None]] = [
    nobody,
    somebody_with_the_same_id,
    the_partitions_next_owner,
    an_observer_of_the_time,
    everybody_and_a_cleaner,
]
LEGAL = (
    TransactionAbortableError,
    ProducerFencedError,
    CommitFailedError,
    ConcurrentTransactionsError,
    KafkaTimeoutError,
)
"""What a sleeper may be told. A commit whose outcome isn't known any more is a time-out, too."""


def sleeps(name: str, at: int, after: bool, meanwhile: Callable[[Cluster], None]) -> type[BaseException] | None:
    memory, clock = prepared()
    cluster = a_cluster(memory, clock)
    story = a_story(name)
    offsets_seen: list[int] = []

    def an_hour() -> None:
        clock.advance(HOUR_MS)
        meanwhile(cluster)
        row = group_rows(cluster)[IN]
        if row.stamp == BOB:
            assert row.pending is None
            assert row.committed is not None
            offsets_seen.append(row.committed.offset)

    store = InterruptedStore(memory)
    store.interrupt(an_hour, at=at, after=after)
    told: type[BaseException] | None = None
    try:
        story.play(a_cluster(store, clock))
    except SparklogError as error:
        told = type(error)
    assert told is None or issubclass(told, LEGAL)
    for recover in RECOVERIES:
        recover(cluster)
    seen = contents(cluster)
    own = {topic: [value for value in seen[topic] if value != "other"] for topic in ("t", "u")}
    is_there = own["t"] == AFTER["t"]
    assert own == {topic: (AFTER if is_there else BEFORE)[topic] for topic in ("t", "u")}
    assert seen["g"] == (7 if is_there else 6)
    assert not offsets_seen or offsets_seen[-1] == seen["g"], "what the partition's next owner read changed under it"
    if story.told:
        assert is_there == story.may_commit
    assert not is_there or story.may_commit
    if told is not None and issubclass(told, (TransactionAbortableError, ProducerFencedError)):
        assert not is_there or story.told, f"told {told.__name__}, and it was committed"
    assert group_rows(cluster)[IN].pending is None
    others = {topic: seen[topic].count("other") for topic in ("t", "u")}
    assert others["t"] == others["u"] in (0, 1, 5)
    return told


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda meanwhile: meanwhile.__name__)
def test_a_producer_that_sleeps_for_an_hour_leaves_all_or_nothing(meanwhile: Callable[[Cluster], None]) -> None:
    ops = calls_of("commit")
    deeds = [at for at, op in enumerate(ops) if op in ("create", "put")]
    for place, at in enumerate(deeds):
        if MEANWHILE[(place + place // 5) % 5] is meanwhile or ops[at : at + 2] == ("create", "sync_all"):
            sleeps("commit", at, place % 2 == 0, meanwhile)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda meanwhile: meanwhile.__name__)
@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_producer_may_sleep_at_any_store_call(name: str, meanwhile: Callable[[Cluster], None], after: bool) -> None:
    calls = range(len(calls_of(name)))  # who sleeps at the last one has done all before
    told = {sleeps(name, at, after, meanwhile) for at in {*each_nth(calls, 4), calls[-1]}}
    assert None in told
    if meanwhile is nobody:
        assert told == ({None, TransactionTimedOutError} if name == "commit" else {None})
