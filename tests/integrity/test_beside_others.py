"""A cluster that is at work while it is checked: between any two store calls of the check others act, and none of what
they do is taken for damage."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from sparklog.clock import SystemClock
from sparklog.compaction import OptimizePolicy, Step, maintain
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.integrity import Report, check_cluster
from sparklog.log import Cluster, create_topic, delete_records, delete_topic, sequence_topic
from sparklog.log.state import load_state
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.base import ObjectInfo
from sparklog.testing import ManualClock, WrappedStore
from tests.integrity.support import a_full_world, a_plain_world, commit_offset
from tests.support import DAY_MS, a_writer, append, unsequenced_file
from tests.txn.support import ANN, Driver, a_cluster, a_world, take, with_generation

T = TypeVar("T")


class BusyStore(WrappedStore):
    """A store on which others act before every so many calls that pass through it; they use the store below."""

    def __init__(self, store: ObjectStore, act: Callable[[], object], *, every: int = 1) -> None:
        super().__init__(store)
        self._act = act
        self._every = every
        self._calls = 0
        self._lock = threading.RLock()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self._calls += 1
            if self._calls % self._every == 0:
                self._act()
            return call()


class Others:
    """Everything that others may do, one step after another, in an order that a seed decides."""

    def __init__(self, cluster: Cluster, clock: ManualClock, seed: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._transaction = self._transactions()
        self._writers = {topic: a_writer(cluster.topic_log(topic), topic=topic) for topic in ("t", "keyed", "cut")}
        self._commits = self._offsets()
        self.counts: dict[str, int] = {}

    def act(self) -> None:
        steps = [self._append] * 6 + [self._go_on] * 6 + [self._commit] * 2 + [self._rarely, self._foreign, self._again]
        step = self._random.choice(steps)
        step()
        self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
        self._clock.advance(1)

    def _append(self) -> None:
        topic = self._random.choice([*self._writers])
        append(self._writers[topic], f"{next(self._numbers)}", "b", partition=self._random.randrange(2))

    def _go_on(self) -> None:
        next(self._transaction)

    def _commit(self) -> None:
        next(self._commits)

    def _transactions(self) -> Iterator[None]:
        driver = Driver(self._cluster, transactional_id="busy").init()
        while True:
            driver.begin()
            driver.send("t", "x", partition=0)
            yield
            driver.send("u", "y")
            yield
            if self._random.random() < 0.3:
                driver.abort()
                continue
            driver.commit()
            yield
            driver.complete()
            yield

    def _offsets(self) -> Iterator[None]:
        at = TopicPartition("t", 0)
        while True:
            append(self._writers["t"], "to be read")
            end = load_state(self._cluster.topic_log("t")).head.log_end_offsets[0]
            commit_offset(self._cluster, at, end)
            yield

    def _rarely(self) -> None:
        topic = self._random.choice(["t", "keyed", "cut"])
        log = self._cluster.topic_log(topic)
        steps = [Step.SEQUENCE, Step.COMPACT, Step.OPTIMIZE]
        maintain(self._cluster, [topic], steps=steps, policy=OptimizePolicy(min_files=2))
        if topic == "cut":
            start, end = (getattr(load_state(log).head, name)[0] for name in ("log_start_offsets", "log_end_offsets"))
            delete_records(log, topic, {0: (start + end) // 2})

    def _foreign(self) -> None:
        log = self._cluster.topic_log("cut")
        unsequenced_file(log, "foreign")
        sequence_topic(log)

    def _again(self) -> None:
        log = self._cluster.topic_log("again")
        delete_topic(log, "again")
        create_topic(log, "again", num_partitions=1 + self._random.randrange(3))
        append(a_writer(log, topic="again"), "anew")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_others_do_meanwhile_is_no_damage(seed: int) -> None:
    memory, clock, cluster = a_full_world()
    others = Others(cluster, clock, seed)
    busy = a_cluster(BusyStore(memory, others.act, every=7), clock)
    report = check_cluster(busy, deep=seed == 1)
    assert [str(one) for one in (*report.errors, *report.warnings)] == []
    assert sum(others.counts.values()) > 20
    assert report.counts.topics == 7
    after = check_cluster(cluster, deep=True)
    assert [str(one) for one in (*after.errors, *after.warnings)] == []


@pytest.mark.parametrize("at", range(2, 15, 3))
def test_what_is_vacuumed_and_cleaned_meanwhile_is_no_damage(at: int) -> None:
    """Files go a week after they were removed: here the check sleeps for as long between two calls."""
    memory, clock, cluster, log = a_plain_world()
    writer = a_writer(log)
    calls = itertools.count(1)
    deleted: list[int] = []

    def act() -> None:
        if next(calls) != at:
            return
        delete_records(log, "t", {0: 4})
        for number in range(10):
            append(writer, f"{number}")
            clock.advance(DAY_MS)
        report = maintain(cluster, ["t"], steps=[Step.VACUUM])
        deleted.extend(one.vacuum.files_deleted for one in report.topics if one.vacuum is not None)
        write_checkpoint(log)
        append(writer, "later")
        clean_log(log, retention_ms=DAY_MS)

    report = check_cluster(a_cluster(BusyStore(memory, act), clock), ["t"])
    assert deleted == [2]
    assert [str(one) for one in (*report.errors, *report.warnings)] == []


@pytest.mark.slow
def test_what_is_damaged_is_found_beside_others() -> None:
    memory, clock, cluster = a_full_world()
    others = Others(cluster, clock, 7)
    gone = load_state(cluster.topic_log("in")).require_whole().index.partition(0)[0].path
    memory.delete([f"topics/in/{gone}"])
    report = check_cluster(a_cluster(BusyStore(memory, others.act, every=11), clock))
    assert [(one.code.value, one.subject.topic) for one in report.errors] == [("file-missing", "in")]


def test_threads_that_never_stop() -> None:
    cluster = a_cluster(MemoryStore(), SystemClock())
    for topic in ("t", "u", "in"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=2)
    with_generation(cluster, "g", ANN)
    take(cluster, ANN)
    stop = threading.Event()
    errors: list[BaseException] = []
    done = {"appends": 0, "transactions": 0, "maintained": 0}

    def run(work: Callable[[], None]) -> threading.Thread:
        def loop() -> None:
            try:
                while not stop.wait(0.01):
                    work()
            except BaseException as error:  # told below
                errors.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    writer = a_writer(cluster.topic_log("t"))
    driver = Driver(cluster).init()

    def append_one() -> None:
        append(writer, "one", partition=1)
        done["appends"] += 1

    def transact() -> None:
        driver.begin()
        driver.send("t", "x")
        driver.send("u", "x")
        driver.commit()
        done["transactions"] += 1

    def look_after() -> None:
        maintain(cluster, ["t", "u"], policy=OptimizePolicy(min_files=4))
        done["maintained"] += 1

    threads = [run(work) for work in (append_one, transact, look_after)]
    try:
        reports = [check_cluster(cluster, deep=False)]
        while len(reports) < 1_000 and not (errors or (_has_grown(reports) and min(done.values()) > 0)):
            reports.append(check_cluster(cluster, deep=bool(len(reports) % 2)))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    for report in reports:
        assert [str(one) for one in (*report.errors, *report.warnings)] == []
    assert _has_grown(reports)
    assert min(done.values()) > 0


def _has_grown(reports: Sequence[Report]) -> bool:
    return reports[-1].counts.entries > reports[0].counts.entries


def test_an_entry_that_a_listing_missed_while_it_was_created_is_no_hole() -> None:
    """As a folder may be listed: of what is created meanwhile it shows a later entry, and not the one before."""

    class Hasty(WrappedStore):
        misses = 1

        def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            found = [*super().list(prefix, after=after)]
            if prefix.startswith("transactions/tx") and self.misses and len(found) > 3:
                self.misses -= 1
                del found[-2]
            return iter(found)

    memory, clock, cluster = a_world()
    driver = Driver(cluster, topics=("t",)).init()
    for value in "abc":
        driver.begin()
        driver.send("t", value)
        driver.commit()
        driver.complete()
    hasty = Hasty(memory)
    assert check_cluster(a_cluster(hasty, clock)).errors == ()
    assert hasty.misses == 0
    hasty.misses = 100
    assert {found.code.value for found in check_cluster(a_cluster(hasty, clock)).errors} == {"transaction-log-gap"}
