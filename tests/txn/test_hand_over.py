"""An offset counts only once its transaction's records are in their topics (rule T2): whoever goes on behind the offset
writes behind the records, whoever died, slept or was refused in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import Protocol
from sparklog.errors import (
    KafkaTimeoutError,
    SparklogError,
    StorePermissionError,
    UnstableOffsetCommitError,
    UnsupportedVersionError,
)
from sparklog.groups.offsets.changes import CommitUnowned, TakePartitions
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster, delete_topic
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.testing.scheduler import Scheduler
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.entries import TopicFiles
from sparklog.txn.recovery import recover_transactions
from tests.depth import by_depth
from tests.support import T0_MS, copy_of, foreign_commit
from tests.txn.support import (
    ANN,
    BOB,
    IN,
    TIMEOUT_MS,
    Driver,
    a_cluster,
    a_world,
    committed,
    group_rows,
    states,
    take,
    values,
)


def decided(cluster: Cluster, *, topics: tuple[str, ...] = ("t", "u")) -> Driver:
    """Ann's producer has committed output ``a`` with offset 6, and died before anybody could see either."""
    driver = Driver(cluster, "anns").init()
    driver.begin()
    for topic in topics:
        driver.send(topic, "a")
    driver.send_offset(6)
    named = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    driver.session.commit(named, deadline=driver.deadline)
    return driver


def go_on(cluster: Cluster, *, topics: tuple[str, ...] = ("t", "u")) -> None:
    """Bob's producer makes output ``b`` of the next input."""
    driver = Driver(cluster, "bobs", topics=topics, member=BOB).init()
    driver.begin()
    for topic in topics:
        driver.send(topic, "b")
    driver.send_offset(7)
    driver.commit()
    driver.complete()


def offset_in(rows: Rows) -> int | None:
    """What a reader of these rows takes for committed."""
    row = rows[IN]
    return row.committed.offset if row.committed else None


def is_visible(cluster: Cluster) -> bool:
    return values(cluster, "t")[:1] == ["a"]


@contextmanager
def a_commit_thread(cluster: Cluster) -> Iterator[OffsetCommitThread]:
    deciding = deciding_for(cluster, reason="its partitions moved", timeout_ms=TIMEOUT_MS)
    commit_thread = OffsetCommitThread(cluster, "g", deciding)
    try:
        yield commit_thread
    finally:
        commit_thread.stop()
        assert commit_thread.join(60)


def taken(commit_thread: OffsetCommitThread) -> Future[Rows]:
    return commit_thread.take(TakePartitions(topic_ids={IN: "in-id"}, stamp=BOB), timeout_ms=TIMEOUT_MS)


def refused(cluster: Cluster, *paths: str) -> Cluster:
    """The same cluster to somebody who may not write below these paths."""
    faults = [Fault(kind=FaultKind.READ_ONLY, path=path, times=None) for path in paths]
    return a_cluster(FaultyStore(cluster.store, *faults), cluster.clock)


# --- whoever goes on behind the offset


def test_outputs_keep_the_order_of_their_inputs_though_the_first_producer_died() -> None:
    """✗ Bob goes on behind the offset, and publishes b; recovery publishes a behind it, for good."""
    _, _, cluster = a_world()
    decided(cluster)
    with a_commit_thread(cluster) as commit_thread:
        assert offset_in(taken(commit_thread).result()) == 6
    assert is_visible(cluster)
    go_on(cluster)
    recover_transactions(cluster)
    assert values(cluster, "t") == values(cluster, "u") == ["a", "b"]
    assert states(cluster, "anns") == ["Empty", "PrepareCommit", "CompleteCommit"]


def test_whoever_reads_the_committed_offset_to_go_on_there_finds_the_records_too() -> None:
    """A consumer that assigns partitions itself is handed nothing over: it reads where to go on."""
    _, _, cluster = a_world()
    decided(cluster)
    with a_commit_thread(cluster) as commit_thread:
        for waits in (True, False):
            assert offset_in(commit_thread.fetch([IN], timeout_ms=TIMEOUT_MS, waits=waits).result()) == 6
            assert is_visible(cluster)
    assert group_rows(cluster)[IN].pending is not None  # who reads changes no row
    assert states(cluster, "anns") == ["Empty", "PrepareCommit"]


def test_whoever_only_looks_writes_nothing() -> None:
    """Administration, SQL: they may have no right to."""
    _, _, cluster = a_world()
    decider = decided(cluster).session._offsets._decider
    assert decider is not None
    counting = CountingStore(cluster.store)
    looked = deciding_for(a_cluster(counting, cluster.clock), reason="", timeout_ms=TIMEOUT_MS).look(decider)
    assert looked == {"g": frozenset({IN})}
    assert counting.counts().keys() == {"get", "list"}
    assert not is_visible(cluster)


def test_who_commits_offsets_without_a_member_does_so_behind_the_records() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    change = CommitUnowned(offsets={IN: OffsetAndMetadata(7)}, topic_ids={}, generation=9)
    with a_commit_thread(cluster) as commit_thread:
        commit_thread.change(change, timeout_ms=TIMEOUT_MS).result()
    assert is_visible(cluster)
    assert committed(cluster) == 7


def test_another_producer_sends_offsets_of_the_partition_behind_the_records() -> None:
    """The same member, two producers."""
    _, _, cluster = a_world()
    decided(cluster)
    driver = Driver(cluster, "second").init()
    driver.begin()
    driver.send_offset(7)
    assert is_visible(cluster)
    driver.send("t", "b")
    driver.commit()
    assert values(cluster, "t") == ["a", "b"]


# --- bad days


def a_decided_world() -> MemoryStore:
    """To be copied."""
    memory, _, cluster = a_world()
    decided(cluster, topics=("t",))
    return memory


def copied(memory: MemoryStore) -> tuple[MemoryStore, ManualClock, Cluster]:
    clock = ManualClock(start_ms=T0_MS)
    copy = copy_of(memory)
    return copy, clock, a_cluster(copy, clock)


@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.LOST_ANSWER])
def test_a_hand_over_that_fails_at_any_write_counts_no_offset_before_its_records(kind: FaultKind) -> None:
    world = a_decided_world()
    for number in range(20):
        memory, clock, cluster = copied(world)
        faulty = FaultyStore(memory, Fault(kind=kind, ops=["put", "create"], skip=number), clock=clock)
        with suppress(SparklogError, SimulatedCrash):
            take(a_cluster(faulty, clock), BOB)
        assert is_visible(cluster) or group_rows(cluster)[IN].pending is not None
        assert offset_in(take(cluster, BOB)) == 6  # whoever tries again
        assert is_visible(cluster)
        if sum(call.op in ("put", "create") for call in faulty.calls) <= number:
            assert number >= 5
            return
    pytest.fail("a hand-over has no end")


@pytest.mark.parametrize("who", ["recovery", "another owner"])
def test_others_may_carry_it_out_at_any_call_of_a_hand_over(who: str) -> None:
    world = a_decided_world()
    for at in range(0, 60, 3):
        memory, clock, cluster = copied(world)

        def meanwhile(cluster: Cluster = cluster) -> None:
            if who == "recovery":
                recover_transactions(cluster)
            else:
                take(cluster, BOB)

        slow = InterruptedStore(memory)
        slow.interrupt(meanwhile, at=at, after=bool(at % 2))
        assert offset_in(take(a_cluster(slow, clock), BOB)) == 6
        assert values(cluster, "t") == ["a"]
        if slow.call_count <= at:
            assert at > 15
            return
    pytest.fail("a hand-over has no end")


def play(seed: int) -> None:
    """The producer that decided and was only slow, the partition's next owner, and two who recover, all at once."""
    memory, clock, cluster = a_world()
    driver = decided(cluster, topics=("t",))
    scheduler = Scheduler(seed)

    def owner(seen: Cluster) -> None:
        if offset_in(take(seen, BOB)) == 6:
            go_on(seen, topics=("t",))

    def producer(seen: Cluster) -> None:
        driver.cluster = seen
        driver.commit()
        driver.complete()

    tasks: dict[str, Callable[[Cluster], object]] = {
        "owner": owner,
        "producer": producer,
        "recovery": recover_transactions,
        "another recovery": recover_transactions,
    }
    for name, task in tasks.items():
        scheduler.spawn(name, partial(task, a_cluster(scheduler.store(memory), clock)))
    scheduler.run()
    assert values(cluster, "t") == ["a", "b"]


def test_any_interleaving_keeps_the_order() -> None:
    for seed in range(4):
        play(seed)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=50, nightly=400), suppress_health_check=[HealthCheck.differing_executors])
@given(seed=st.integers(0, 2**32 - 1))
def test_any_of_very_many_interleavings_does(seed: int) -> None:
    play(seed)


# --- topics that can't be written to


def test_a_topic_that_is_gone_holds_no_hand_over_up() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    delete_topic(cluster.topic_log("u"), "u")
    assert offset_in(take(cluster, BOB)) == 6
    assert is_visible(cluster)


def test_a_topic_that_refuses_holds_no_hand_over_up_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _, _, cluster = a_world()
    decided(cluster)
    with caplog.at_level(logging.WARNING, "sparklog.txn"):
        assert offset_in(take(refused(cluster, "topics/t/_delta_log"), BOB)) == 6
    assert "transaction 2 of transactional id 'anns' is committed, and topic t refuses its records" in caplog.text
    assert values(cluster, "t") == []
    assert values(cluster, "u") == ["a"]
    recover_transactions(cluster)
    assert values(cluster, "t") == ["a"]


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_store_that_is_away_is_tried_again_and_the_offset_counts_afterwards(is_handed_over: bool) -> None:
    memory, clock, cluster = a_world()
    decided(cluster)
    is_away = [True]
    fault = Fault(kind=FaultKind.THROTTLED, path="topics/t/", when=lambda _: is_away[0], times=None)

    def ask(commit_thread: OffsetCommitThread) -> Rows:
        return (taken(commit_thread) if is_handed_over else commit_thread.fetch([IN], timeout_ms=TIMEOUT_MS)).result()

    with a_commit_thread(a_cluster(FaultyStore(memory, fault, clock=clock), clock)) as commit_thread:
        with pytest.raises(UnstableOffsetCommitError, match="its records aren't in all of its topics yet"):
            ask(commit_thread)
        assert values(cluster, "u") == ["a"]  # what can be carried out is
        assert committed(cluster) == 5
        is_away[0] = False
        assert offset_in(ask(commit_thread)) == 6
    assert is_visible(cluster)


def test_only_the_id_whose_topic_refuses_is_blocked_until_that_is_mended() -> None:
    """The others of the transaction are carried out, in topics and in groups. ✗ They wait behind the one."""
    _, _, cluster = a_world()
    decided(cluster)
    foreign_commit(cluster.topic_log("t"), Protocol(min_reader_version=1, min_writer_version=99))
    with pytest.raises(UnsupportedVersionError, match="'anns' is committed, and can't be carried out in topic 't'"):
        Driver(cluster, "anns", topics=()).init()
    assert values(cluster, "u") == ["a"]
    assert committed(cluster) == 6
    take(cluster, BOB)
    go_on(cluster, topics=("u",))  # another id, and the next owner
    assert values(cluster, "u") == ["a", "b"]
    foreign_commit(cluster.topic_log("t"), Protocol(min_reader_version=1, min_writer_version=2))
    Driver(cluster, "anns", topics=()).init()
    assert values(cluster, "t") == ["a"]
    assert states(cluster, "anns") == ["Empty", "PrepareCommit", "CompleteCommit", "Empty"]


def test_a_group_that_refuses_hinders_no_other() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    found = recover_transactions(refused(cluster, "groups/g/"))
    assert isinstance(found[0].error, StorePermissionError)
    assert "in group 'g'" in str(found[0].error)
    assert values(cluster, "t") == values(cluster, "u") == ["a"]
    assert committed(cluster) == 5
    recover_transactions(cluster)
    assert committed(cluster) == 6


def test_a_group_that_refuses_hinders_no_other_of_its_producer() -> None:
    memory, clock, cluster = a_world()
    for group in ("a", "z"):
        taken_in = TakePartitions(topic_ids={IN: "in-id"}, stamp=ANN)
        OffsetTable(cluster, group).change([taken_in], deadline=clock.deadline_in(None))
    is_refused = [False]
    fault = Fault(kind=FaultKind.READ_ONLY, path="groups/g/", when=lambda _: is_refused[0], times=None)
    driver = Driver(a_cluster(FaultyStore(memory, fault), clock), "anns").init()
    driver.begin()
    driver.send("t", "a")
    for group in ("a", "g", "z"):
        metadata = ConsumerGroupMetadata(group, ANN.generation, ANN.member)
        driver.session.add_offsets({IN: OffsetAndMetadata(6)}, metadata, deadline=driver.deadline)
    is_refused[0] = True
    for _ in range(2):
        with pytest.raises(StorePermissionError, match="groups/g/"):
            driver.commit()
        settled = [OffsetTable(cluster, group).fetch()[IN].pending is None for group in ("a", "g", "z")]
        assert settled == [True, False, True]
    is_refused[0] = False
    driver.commit()
    assert committed(cluster) == 6


def test_a_time_out_of_one_topic_is_told_rather_than_what_another_refuses() -> None:
    """It passes; what is refused is told the next time."""
    memory, clock, cluster = a_world()
    decided(cluster)
    faults = [
        Fault(kind=FaultKind.READ_ONLY, path="topics/t/_delta_log", times=None),
        Fault(kind=FaultKind.THROTTLED, path="topics/u/", times=None),
    ]
    [found] = recover_transactions(a_cluster(FaultyStore(memory, *faults, clock=clock), clock))
    assert found.error is not None
    assert found.error.retriable or isinstance(found.error, KafkaTimeoutError)
    assert committed(cluster) == 5  # its records may be on their way
