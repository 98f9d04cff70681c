"""The sweep deletes what no log will ever name, and nothing that anybody may still name, however long he sleeps."""

from __future__ import annotations

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import (
    CorruptLogError,
    StorePermissionError,
    TransactionTimedOutError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_topic, delete_topic
from sparklog.log.topic import delete_records
from sparklog.paths import transaction_entry
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.txn.entries import TopicFiles
from sparklog.txn.orphans import ORPHAN_AGE_MS, find_orphans, sweep_orphans
from sparklog.txn.recovery import recover_transactions
from tests.support import DAY_MS, a_log, a_writer, append, copy_of, entry_lines, records, within
from tests.txn.support import (
    TIMEOUT_MS,
    Driver,
    Overtaken,
    a_cluster,
    a_world,
    contents,
    data_files,
    newest_entry,
    states,
    values,
)

OLD_MS = ORPHAN_AGE_MS + 1


def prepare(driver: Driver) -> None:
    """The commit point alone."""
    topics = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    driver.session.commit(topics, deadline=driver.deadline)


def sending(cluster: Cluster, transactional_id: str = "tx") -> Driver:
    driver = Driver(cluster, transactional_id, topics=("t",)).init()
    driver.begin()
    driver.send("t", "a")
    return driver


def leave_a_file(cluster: Cluster, name: str = "left") -> str:
    """What a writer leaves that died between its upload and its commit; its path."""
    path = f"topics/t/partition=0/{name}.parquet"
    cluster.store.put(path, b"")
    return path


def sweep(cluster: Cluster, topic: str = "t") -> list[str]:
    return [orphan.path for orphan in sweep_orphans(cluster, topic, dry_run=False)]


def found(cluster: Cluster, topic: str = "t") -> list[str]:
    return [orphan.path for orphan in find_orphans(cluster, topic)]


# What is an orphan


def test_a_file_is_an_orphan_once_it_is_older_than_seven_days() -> None:
    memory, clock, cluster = a_world()
    append(a_writer(cluster.topic_log("t")), "live")
    live = data_files(cluster, "t")
    memory.put("topics/t/partition=0/left.parquet", b"12345")
    for path in ("notes.txt", "_change_data/x.parquet", "partition=0/.hidden.parquet"):
        memory.put(f"topics/t/{path}", b"")
    clock.advance(ORPHAN_AGE_MS)
    memory.put("topics/t/partition=0/young.parquet", b"")
    assert found(cluster) == sweep(cluster) == []
    clock.advance(1)
    [orphan] = find_orphans(cluster, "t")
    assert (orphan.path, orphan.size_bytes, orphan.age_ms) == ("topics/t/partition=0/left.parquet", 5, OLD_MS)
    before = {one.path for one in memory.list("")}
    assert sweep_orphans(cluster, "t", dry_run=True) == [orphan]
    assert {one.path for one in memory.list("")} == before
    assert sweep(cluster) == [orphan.path]
    after = {one.path for one in memory.list("")}
    assert before - after == {orphan.path}
    assert after - before == {"topics/t/_delta_log/00000000000000000002.json"}
    assert data_files(cluster, "t") - live == {
        "topics/t/partition=0/young.parquet",
        "topics/t/_change_data/x.parquet",
        "topics/t/partition=0/.hidden.parquet",
    }
    assert values(cluster, "t") == ["live"]


def test_the_logs_of_stages_that_ingests_left_go_and_no_other_log() -> None:
    memory, clock, cluster = a_world()
    stage = f"topics/t/ingest-{'0a1b' * 8}"
    left = [f"{stage}/_delta_log/{name}" for name in ("00000000000000000000.json", ".0.json.crc")]
    kept = ["topics/t/other/_delta_log/00000000000000000000.json", f"{stage}/notes.txt"]
    for path in (*left, f"{stage}/partition=0/x.parquet", *kept):
        memory.put(path, b"x")
    clock.advance(OLD_MS)
    entries = {one.path for one in memory.list("topics/t/_delta_log/")}
    assert sorted(sweep(cluster)) == sorted([*left, f"{stage}/partition=0/x.parquet"])
    assert {one.path for one in memory.list("topics/t/")} >= {*kept, *entries}


def test_age_is_told_by_the_store_and_not_by_whoever_sweeps() -> None:
    memory, clock, _ = a_world()
    memory.put("topics/t/partition=0/left.parquet", b"")
    ahead = a_cluster(memory, ManualClock(start_ms=clock.now_ms() + 30 * DAY_MS))
    assert found(ahead) == sweep(ahead) == []
    clock.advance(OLD_MS)
    assert len(sweep(a_cluster(memory, ManualClock(start_ms=0)))) == 1


def test_a_dry_run_goes_by_its_own_clock() -> None:
    """To learn the store's time takes a write, which not everybody may do that asks."""
    memory, clock, _ = a_world()
    memory.put("topics/t/partition=0/left.parquet", b"")
    read_only = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, times=None))
    ahead = a_cluster(read_only, ManualClock(start_ms=clock.now_ms() + OLD_MS))
    assert len(sweep_orphans(ahead, "t", dry_run=True)) == 1
    assert sweep_orphans(a_cluster(read_only, clock), "t", dry_run=True) == []


def test_transactional_ids_are_asked_where_something_is_old_and_nowhere_else() -> None:
    memory, clock, cluster = a_world()
    sending(cluster)
    append(a_writer(cluster.topic_log("t")), "live")
    clock.advance(OLD_MS)
    append(a_writer(cluster.topic_log("u"), topic="u"), "young")

    def asked(topic: str) -> int:
        store = FaultyStore(memory)
        find_orphans(a_cluster(store, clock), topic)
        return sum(call.path.startswith("transactions/") for call in store.calls)

    assert asked("u") == 0
    assert asked("t") > 0


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_removed_file_stays_as_long_as_a_reader_may_need_it(with_checkpoint: bool) -> None:
    _, clock, cluster = a_world()
    log = cluster.topic_log("t")
    writer = a_writer(log)
    append(writer, "a")
    [removed] = data_files(cluster, "t")
    clock.advance(30 * DAY_MS)
    append(writer, "b")
    delete_records(log, "t", {0: 1})
    if with_checkpoint:
        write_checkpoint(log)
    clock.advance(ORPHAN_AGE_MS)
    assert found(cluster) == sweep(cluster) == []
    clock.advance(1)
    assert sweep(cluster) == [removed]
    append(writer, "c")
    assert len(data_files(cluster, "t")) == 2


def test_the_files_of_a_deleted_topic_go_and_those_of_its_successor_stay() -> None:
    _, clock, cluster = a_world()
    log = cluster.topic_log("t")
    append(a_writer(log), "old")
    files = data_files(cluster, "t")
    delete_topic(log, "t")
    clock.advance(OLD_MS)
    assert set(sweep(cluster)) == files
    create_topic(log, "t")
    append(a_writer(log), "new")
    clock.advance(OLD_MS)
    assert sweep(cluster) == []
    assert values(cluster, "t") == ["new"]
    with pytest.raises(UnknownTopicOrPartitionError):
        sweep(cluster, "nosuch")


# Transactions


def test_the_files_of_transactions_that_were_aborted_or_died_go() -> None:
    _, clock, cluster = a_world()
    aborted = sending(cluster, "aborted")
    aborted.session.abort(deadline=aborted.deadline)  # and dies before it deletes its files
    dead = sending(cluster, "dead")
    assert len(data_files(cluster, "t")) == 2
    clock.advance(OLD_MS)
    assert len(sweep(cluster)) == 2
    assert data_files(cluster, "t") == set()
    with pytest.raises(TransactionTimedOutError):
        prepare(dead)
    assert states(cluster, "dead") == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert states(cluster, "aborted")[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert values(cluster, "t") == []


def test_a_file_that_an_unfinished_commit_names_is_never_an_orphan() -> None:
    _, clock, cluster = a_world()
    driver = sending(cluster)
    driver.send("t", "b", partition=1)
    prepare(driver)
    clock.advance(30 * DAY_MS)
    assert found(cluster) == []
    assert states(cluster)[-1] == "PrepareCommit"
    assert sweep(cluster) == []
    assert states(cluster)[-1] == "CompleteCommit"
    assert values(cluster, "t") == ["a", "b"]
    clock.advance(30 * DAY_MS)
    assert sweep(cluster) == []
    assert values(cluster, "t") == ["a", "b"]


def test_the_sweep_stops_where_a_commit_of_any_id_and_topic_can_not_be_finished() -> None:
    memory, clock, cluster = a_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("u", "a")
    prepare(driver)
    memory.put("topics/t/partition=0/left.parquet", b"")
    clock.advance(OLD_MS)
    faulty = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, path="topics/u/", times=None))
    before = data_files(cluster, "t")
    with pytest.raises(StorePermissionError, match=r"orphans aren't swept: transactional id 'tx' can't be finished"):
        sweep(a_cluster(faulty, clock))
    memory.put(transaction_entry("bad", 1), b"{")
    with pytest.raises(CorruptLogError, match="'bad' can't be finished"):
        sweep(cluster)
    assert data_files(cluster, "t") == before
    memory.delete([transaction_entry("bad", 1)])
    assert sweep(cluster) == ["topics/t/partition=0/left.parquet"]


# Whoever decided before the sweep, and sleeps


def test_a_writer_that_slept_in_its_create_past_the_sparing_uploads_again() -> None:
    memory, clock, cluster = a_world()
    swept: list[str] = []

    def a_week_passes() -> None:
        clock.advance(OLD_MS - DAY_MS / 2)
        swept.extend(sweep(cluster))

    writer = a_writer(a_log(Overtaken(memory, "_delta_log", a_week_passes), clock))
    files = writer.upload([(0, records("slept"))])
    clock.advance(DAY_MS / 2)
    writer.append(files, deadline=within(writer, 30 * DAY_MS))
    assert len(swept) == 1
    assert values(cluster, "t") == ["slept"]
    assert data_files(cluster, "t").isdisjoint(swept)


def test_a_writer_that_slept_after_the_sweep_looked_is_spared() -> None:
    """Its file is young when the sweep learns the time; a week later the sweep itself wakes up."""
    memory, clock, cluster = a_world()
    memory.put("topics/t/partition=0/left.parquet", b"")
    clock.advance(OLD_MS)
    writer = a_writer(cluster.topic_log("t"))
    files = writer.upload([(0, records("young"))])

    class Slow(WrappedStore):
        def list(self, prefix, *, after=""):
            if prefix == "topics/t/":
                clock.advance(OLD_MS)
            return super().list(prefix, after=after)

    assert sweep(a_cluster(Slow(memory), clock)) == ["topics/t/partition=0/left.parquet"]
    writer.append(files, deadline=within(writer, 30 * DAY_MS))
    assert values(cluster, "t") == ["young"]


def test_a_producer_that_slept_in_its_commit_finds_its_transaction_aborted() -> None:
    memory, clock, cluster = a_world()

    def a_week_passes() -> None:
        clock.advance(OLD_MS)
        assert len(sweep(cluster)) == 1

    driver = sending(a_cluster(Overtaken(memory, "transactions/tx/", a_week_passes, skip=1), clock))
    with pytest.raises(TransactionTimedOutError):
        prepare(driver)
    assert values(cluster, "t") == []


def test_so_does_one_that_had_survived_an_abort_for_being_idle() -> None:
    """The abort that makes it wait is not the newest entry's: the sweep has to take the next number once more."""
    memory, clock, cluster = a_world()

    def a_week_passes() -> None:
        clock.advance(OLD_MS)
        assert len(sweep(cluster)) == 1

    # Its creates: the epoch, and, as it finds that the abort has taken two numbers, the one in which it sleeps.
    driver = Driver(
        a_cluster(Overtaken(memory, "transactions/tx/", a_week_passes, skip=1), clock), topics=("t",)
    ).init()
    clock.advance(2 * TIMEOUT_MS)
    assert [one.action.value for one in recover_transactions(cluster)] == ["timed out"]
    driver.begin()
    driver.send("t", "a")
    with pytest.raises(TransactionTimedOutError):
        prepare(driver)
    assert values(cluster, "t") == []
    assert data_files(cluster, "t") == set()


def test_dead_sessions_do_not_make_their_logs_grow() -> None:
    _, clock, cluster = a_world()
    sending(cluster)
    for number in range(5):
        leave_a_file(cluster, str(number))
        clock.advance(OLD_MS)
        assert sweep(cluster)
    assert states(cluster) == ["CompleteAbort", "PrepareAbort", "CompleteAbort"]
    entry = newest_entry(cluster)
    assert entry is not None
    assert entry.version == 11


# The entry that the sweep commits


def test_the_entry_of_the_sweep_changes_nothing() -> None:
    _, clock, cluster = a_world()
    log = cluster.topic_log("t")
    append(a_writer(log), "a")
    before = contents(cluster)
    leave_a_file(cluster)
    clock.advance(OLD_MS)
    assert len(sweep(cluster)) == 1
    [info] = entry_lines(log, 2)
    assert (info["commitInfo"]["operation"], info["commitInfo"]["isBlindAppend"]) == ("VACUUM START", False)
    assert contents(cluster) == before
    write_checkpoint(log)
    append(a_writer(log), "b")
    assert values(cluster, "t") == ["a", "b"]


def test_a_sweep_may_be_killed_anywhere() -> None:
    memory, clock, cluster = a_world()
    prepare(sending(cluster))
    sending(cluster, "dead")
    clock.advance(OLD_MS)
    memory.put("now", b"")  # so late it is by the copy's times, too
    calls = 0
    while True:
        copy = copy_of(memory)
        faulty = FaultyStore(copy, Fault(kind=FaultKind.CRASH_AFTER, at=calls))
        try:
            sweep(a_cluster(faulty, clock_of(clock)))
        except BaseException as crash:
            assert type(crash).__name__ == "SimulatedCrash"  # noqa: PT017
        survivor = a_cluster(copy, clock_of(clock))
        sweep(survivor)
        assert values(survivor, "t") == ["a"]
        assert len(data_files(survivor, "t")) == 1
        if not faulty.crashed:
            break
        calls += 7
    assert calls > 20


def clock_of(clock: ManualClock) -> ManualClock:
    return ManualClock(start_ms=clock.now_ms())
