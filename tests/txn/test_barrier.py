"""One barrier serves the sweeps of all topics: whatever a transaction may still publish afterwards is spared."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sparklog.errors import CorruptLogError, ProducerFencedError, TransactionTimedOutError
from sparklog.log import Cluster, create_topic
from sparklog.log.state import load_state
from sparklog.log.topic import delete_records
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, InterruptedStore, ManualClock, SimulatedCrash
from sparklog.txn.barrier import TransactionBarrier, look_at_ids, set_barrier
from sparklog.txn.entries import TopicFiles
from sparklog.txn.orphans import ORPHAN_AGE_MS, candidates_of, sweep_candidates
from sparklog.txn.overview import store_time_ms
from sparklog.txn.recovery import EXPIRATION_MS, Recovered, RecoveryAction, recover_transactions
from tests.support import DAY_MS, copy_of
from tests.txn.support import TIMEOUT_MS, Driver, Overtaken, a_cluster, a_world, data_files, states, values

OLD_MS = ORPHAN_AGE_MS + 1
TOPICS = ("t", "u")


class Sweep:
    """One run over several topics, step by step."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now_ms = store_time_ms(cluster)

    def set_barrier(self) -> TransactionBarrier:
        self.barrier = set_barrier(self.cluster, before_ms=self.now_ms, timeout_ms=TIMEOUT_MS)
        return self.barrier

    def topic(self, topic: str) -> list[str]:
        """Sweep one topic; the paths that went."""
        log = self.cluster.topic_log(topic)
        state = load_state(log)
        candidates = candidates_of(state, log.store.list(f"{log.table}/"), now_ms=self.now_ms)
        swept = sweep_candidates(
            state, topic, candidates, now_ms=self.now_ms, barrier=lambda: self.barrier, timeout_ms=TIMEOUT_MS
        )
        return [orphan.path for orphan in swept.orphans]


def decide(driver: Driver) -> None:
    """The commit point, and nothing that follows."""
    named = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    driver.session.commit(named, deadline=driver.deadline)


def sending(cluster: Cluster, name: str = "tx", *, timeout_ms: int = TIMEOUT_MS) -> Driver:
    """A producer with an open transaction of a record in each topic."""
    driver = Driver(cluster, name, topics=TOPICS)
    driver.session._timeout_ms = timeout_ms
    driver.init()
    driver.begin()
    for topic in TOPICS:
        driver.send(topic, name)
    return driver


def leave_files(cluster: Cluster) -> list[str]:
    """Something to be swept in each topic."""
    left = [f"topics/{topic}/partition=0/left.parquet" for topic in TOPICS]
    for path in left:
        cluster.store.put(path, b"")
    return left


def test_what_was_decided_long_ago_is_published_in_all_topics_before_any_is_swept() -> None:
    _, clock, cluster = a_world()
    decide(sending(cluster))
    left = leave_files(cluster)
    clock.advance(OLD_MS)
    sweep = Sweep(cluster)
    sweep.set_barrier()
    assert [sweep.topic(topic) for topic in TOPICS] == [[left[0]], [left[1]]]
    assert [values(cluster, topic) for topic in TOPICS] == [["tx"], ["tx"]]


def test_what_is_decided_after_the_barrier_is_spared_however_late_the_sweep() -> None:
    """The sweep sleeps for a week between two topics: ages are as of the time before the barrier."""
    _, clock, cluster = a_world()
    leave_files(cluster)
    clock.advance(OLD_MS)
    driver = Driver(cluster, topics=TOPICS).init()
    sweep = Sweep(cluster)
    sweep.set_barrier()
    driver.begin()
    driver.send("u", "young")
    assert len(sweep.topic("t")) == 1
    decide(driver)  # and sleeps before it carries it out
    clock.advance(2 * ORPHAN_AGE_MS)
    assert sweep.topic("u") == ["topics/u/partition=0/left.parquet"]
    recover_transactions(cluster)
    assert values(cluster, "u") == ["young"]


def test_what_is_decided_while_the_barrier_is_being_set_is_spared() -> None:
    """A producer that isn't past its time-out decides after the recovery came to its id."""
    memory, clock, cluster = a_world()
    left = leave_files(cluster)
    clock.advance(OLD_MS)
    driver = sending(cluster)
    interrupted = InterruptedStore(memory)
    sweep = Sweep(a_cluster(interrupted, clock))
    calls = FaultyStore(copy_of(memory))
    Sweep(a_cluster(calls, ManualClock(start_ms=clock.now_ms()))).set_barrier()
    interrupted.interrupt(lambda: decide(driver), at=len(calls.calls) - 6, after=False)
    sweep.set_barrier()
    assert states(cluster)[-1] == "PrepareCommit"
    assert [sweep.topic(topic) for topic in TOPICS] == [[path] for path in left]
    recover_transactions(cluster)
    assert [values(cluster, topic) for topic in TOPICS] == [["tx"], ["tx"]]


def test_a_producer_asleep_in_its_commit_finds_it_aborted_in_any_order_of_sweeps() -> None:
    memory, clock, cluster = a_world()

    def a_week_passes() -> None:
        clock.advance(OLD_MS)
        sweep = Sweep(cluster)
        sweep.set_barrier()
        assert [len(sweep.topic(topic)) for topic in ("u", "t")] == [1, 1]

    driver = sending(a_cluster(Overtaken(memory, "transactions/tx/", a_week_passes, skip=1), clock))
    with pytest.raises(TransactionTimedOutError):
        decide(driver)
    assert [values(cluster, topic) for topic in TOPICS] == [[], []]


def test_a_transaction_that_may_last_for_longer_than_a_week_keeps_its_files() -> None:
    _, clock, cluster = a_world()
    driver = sending(cluster, timeout_ms=20 * DAY_MS)
    left = leave_files(cluster)
    clock.advance(OLD_MS)
    sweep = Sweep(cluster)
    assert sweep.set_barrier().oldest_file_ms == 27 * DAY_MS + 1
    assert [sweep.topic(topic) for topic in TOPICS] == [[], []]
    decide(driver)
    recover_transactions(cluster)
    assert [values(cluster, topic) for topic in TOPICS] == [["tx"], ["tx"]]
    driver.complete()
    driver.session.close()
    clock.advance(OLD_MS)
    sweep = Sweep(cluster)
    sweep.set_barrier()
    assert [sweep.topic(topic) for topic in TOPICS] == [[left[0]], [left[1]]]


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_session_that_outlived_an_idle_abort_keeps_its_files_until_the_next(
    is_recovered: bool,
) -> None:
    """It sleeps in the create that follows the abort; its files were uploaded elsewhere, up to two days before."""
    memory, clock, cluster = a_world()

    def sweep_all() -> tuple[int, list[list[str]]]:
        sweep = Sweep(cluster)
        recovered = recover_transactions(cluster, expire_after_ms=EXPIRATION_MS) if is_recovered else None
        sweep.barrier = set_barrier(cluster, before_ms=sweep.now_ms, recovered=recovered, timeout_ms=TIMEOUT_MS)
        return sweep.barrier.oldest_file_ms, [sweep.topic(topic) for topic in TOPICS]

    def a_week_passes() -> None:
        clock.advance(ORPHAN_AGE_MS - DAY_MS)  # the files are eight days old, the abort is six
        assert sweep_all() == (8 * DAY_MS, [[], []])
        assert states(cluster)[-1] == "CompleteAbort"
        clock.advance(DAY_MS + 1)
        assert [path in swept for path, swept in zip(left, sweep_all()[1], strict=True)] == [True, True]

    # Its creates: the epoch, and the one behind the abort, in which it sleeps.
    slow = a_cluster(Overtaken(memory, "transactions/tx/", a_week_passes, skip=1), clock)
    driver = Driver(slow, topics=TOPICS).init()
    left = leave_files(cluster)
    clock.advance(2 * DAY_MS - 1)
    assert [one.action.value for one in recover_transactions(cluster)] == ["timed out"]
    driver.begin()
    driver.send("t", "x")
    with pytest.raises(ProducerFencedError if is_recovered else TransactionTimedOutError):
        decide(driver)


def test_what_the_barrier_publishes_and_others_remove_stays_for_begun_readers() -> None:
    _, clock, cluster = a_world()
    driver = sending(cluster)
    decide(driver)
    left = leave_files(cluster)
    clock.advance(OLD_MS)
    sweep = Sweep(cluster)
    log = cluster.topic_log("t")
    state = load_state(log)
    candidates = candidates_of(state, log.store.list(f"{log.table}/"), now_ms=sweep.now_ms)
    [(_, [published]), _] = driver.named
    assert {found.path for found in candidates} == {left[0], f"topics/t/{published.path}"}

    def barrier() -> TransactionBarrier:
        found = sweep.set_barrier()
        delete_records(log, "t", {0: 1})
        return found

    swept = sweep_candidates(state, "t", candidates, now_ms=sweep.now_ms, barrier=barrier, timeout_ms=TIMEOUT_MS)
    assert [orphan.path for orphan in swept.orphans] == [left[0]]
    assert f"topics/t/{published.path}" in data_files(cluster, "t")


def test_the_recovery_of_a_whole_cluster_is_asked_for_once_and_each_id_twice() -> None:
    memory, clock, cluster = a_world()
    for number in range(20):
        driver = Driver(cluster, f"id{number}", topics=()).init()
        driver.session.close()
    leave_files(cluster)
    clock.advance(OLD_MS)
    counting = CountingStore(memory)
    sweep = Sweep(a_cluster(counting, clock))
    sweep.set_barrier()
    of_barrier = counting.counts()
    assert of_barrier["get"] == 2 * 20
    assert of_barrier["list"] < 2 * 20 + 10
    counting.reset()
    for topic in TOPICS:
        assert len(sweep.topic(topic)) == 1
    assert sum(counting.counts().values()) < 40


def test_why_nothing_is_swept_is_told_of_the_topics_and_what_failed_of_the_id() -> None:
    _, _, cluster = a_world()
    failed = Recovered(
        transactional_id="tx", state=None, action=RecoveryAction.FAILED, error=CorruptLogError("entry 3 is torn")
    )
    barrier = set_barrier(cluster, before_ms=0, recovered=[failed], timeout_ms=TIMEOUT_MS)
    with pytest.raises(CorruptLogError, match=r"^orphans aren't swept: transactional id 'tx' .*: entry 3 is torn$"):
        barrier.check()
    assert str(failed.error) == "entry 3 is torn"


def test_a_barrier_may_be_killed_anywhere() -> None:
    memory, clock, cluster = a_world()
    decide(sending(cluster))
    sending(cluster, "dead")
    leave_files(cluster)
    clock.advance(OLD_MS)
    memory.put("now", b"")  # so late it is by the copy's times, too
    calls = 0
    while True:
        copy = copy_of(memory)
        faulty = FaultyStore(copy, Fault(kind=FaultKind.CRASH_AFTER, at=calls))
        with suppress(SimulatedCrash):
            Sweep(a_cluster(faulty, ManualClock(start_ms=clock.now_ms()))).set_barrier()
        survivor = a_cluster(copy, ManualClock(start_ms=clock.now_ms()))
        sweep = Sweep(survivor)
        sweep.set_barrier()
        for topic in TOPICS:
            assert len(sweep.topic(topic)) == 2
            assert values(survivor, topic) == ["tx"]
        if not faulty.crashed:
            break
        calls += 7
    assert calls > 20


def test_what_an_id_says_is_told_of_its_newest_entry() -> None:
    memory = MemoryStore(clock=(clock := ManualClock(start_ms=4_102_444_800_000)))
    cluster = a_cluster(memory, clock)
    for topic in TOPICS:
        create_topic(cluster.topic_log(topic), topic)
    decide(decided := sending(cluster, "decided"))
    sending(cluster, "open")
    sending(cluster, "closed").session.close()
    memory.put("transactions/broken/00000000000000000001.json", b"{")
    clock.advance(DAY_MS)
    seen = look_at_ids(cluster, now_ms=clock.now_ms())
    assert {name: one.oldest_file_ms for name, one in seen.items()} == {
        **dict.fromkeys(("decided", "open"), 3 * DAY_MS),
        **dict.fromkeys(("closed", "broken"), 0),
    }
    assert seen["broken"].error is not None
    paths = {topic: {f"topics/{topic}/{file.path}" for file in files} for topic, files in decided.named}
    assert seen["decided"].named == paths
    assert data_files(cluster, "t") > paths["t"]
    clock.advance(30 * DAY_MS)
    memory.delete(["transactions/broken/00000000000000000001.json"])
    recover_transactions(cluster, expire_after_ms=EXPIRATION_MS)
    recover_transactions(cluster, expire_after_ms=EXPIRATION_MS)
    clock.advance(DAY_MS)
    assert look_at_ids(cluster, now_ms=clock.now_ms())["closed"].expired_for_ms == DAY_MS
