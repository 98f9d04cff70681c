"""Carrying out what was decided: by anybody, twice, at once, and behind whatever came in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import (
    CommitFailedError,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    ProducerFencedError,
    SparklogError,
    StoreReplacedError,
    TransactionAbortableError,
)
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import Cluster, TopicWriter, create_topic, delete_topic
from sparklog.log.publishing import Marker, publish_transaction
from sparklog.log.state import load_state, open_state
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.testing.scheduler import Scheduler
from sparklog.txn.committing import learn
from sparklog.txn.entries import (
    Contents,
    TopicFiles,
    TransactionEntry,
    append_entry,
)
from sparklog.txn.forward import finish, roll_forward
from sparklog.txn.states import TransactionState
from tests.depth import by_depth
from tests.overlapping import SlowStore, overlapping
from tests.support import DAY_MS, append, no_checkpoints
from tests.txn.support import (
    ANN,
    BOB,
    ID,
    IN,
    TIMEOUT_MS,
    Driver,
    a_cluster,
    a_log,
    a_world,
    committed,
    contents,
    group_rows,
    newest_entry,
    soon,
    states,
    take,
    values,
)

S = TransactionState


def decided(cluster: Cluster) -> Driver:
    """A transaction over two topics and a group, decided and not carried out; its producer is gone."""
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "a")
    driver.send("t", "b", partition=1)
    driver.send("u", "c")
    driver.send_offset(6)
    named = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    driver.session.commit(named, deadline=driver.deadline)
    assert values(cluster, "t") == []
    return driver


DONE = {"t": ["a", "b"], "u": ["c"], "g": 6}


def finish_newest(cluster: Cluster) -> TransactionEntry | None:
    newest, position = a_log(cluster).open_newest()
    assert newest is not None
    return finish(cluster, a_log(cluster), newest, position, timeout_ms=TIMEOUT_MS)


def others_append(cluster: Cluster, topic: str, count: int) -> None:
    writer = TopicWriter(cluster.topic_log(topic), topic, checkpoints=no_checkpoints())
    for _ in range(count):
        append(writer, "other")


def test_whoever_meets_a_decision_carries_it_out_once() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    for _ in range(2):
        entry = newest_entry(cluster)
        done = finish_newest(cluster) if entry and entry.state.is_prepared else entry
        assert done is not None
        assert done.state is S.COMPLETE_COMMIT
        assert contents(cluster) == DONE
    assert group_rows(cluster)[IN].pending is None


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_helper_sees_a_marker_however_many_commits_lie_behind_it(is_checkpointed: bool) -> None:
    """✗ of L5: it opens the topic from the newest commit alone, and appends the transaction again."""
    _, _, cluster = a_world()
    driver = decided(cluster)
    marker = driver.session.commit({}, deadline=driver.deadline)
    driver.writers["t"].publish(driver.files["t"], marker, known_version=0, deadline=driver.deadline)
    others_append(cluster, "t", 3)
    if is_checkpointed:
        write_checkpoint(cluster.topic_log("t"))
    assert not marker.is_in(open_state(cluster.topic_log("t")))
    assert marker.is_in(load_state(cluster.topic_log("t")))
    finish_newest(cluster)
    assert contents(cluster) == {**DONE, "t": ["a", "other", "other", "other", "b"]}


def test_a_producer_that_opened_from_the_newest_commit_knows_its_own_marker() -> None:
    """Its writer was opened before the decision, and followed the log from there (rule L5)."""
    _, _, cluster = a_world()
    driver = decided(cluster)
    finish_newest(cluster)
    others_append(cluster, "t", 3)
    others_append(cluster, "u", 1)
    driver.commit()  # its own, late
    driver.complete()
    assert contents(cluster) == {"t": ["a", "other", "other", "other", "b"], "u": ["c", "other"], "g": 6}
    found = driver.writers["t"].publish(
        driver.files["t"], Marker(transactional_id=ID, number=2), known_version=0, deadline=driver.deadline
    )
    assert found.base_offsets == (0, 0)


def forgets(writer: TopicWriter) -> None:
    writer.refresh()
    writer.state.forget_others(writer.producer_id)


@pytest.mark.slow
@pytest.mark.parametrize("then", [TopicWriter.refresh, learn, forgets], ids=lambda then: then.__name__)
@pytest.mark.parametrize("is_cleaned", [False, True], ids=["followed the log", "lost its position"])
def test_a_producer_that_knows_its_topics_anew_publishes_nothing_twice(
    then: Callable[[TopicWriter], None], is_cleaned: bool
) -> None:
    """✗ of L5: it sleeps behind its decision until a helper's commits were cleaned, is asked for the topic's
    partitions, which it learns from the newest commit alone, and carries out the decision once more."""
    _, clock, cluster = a_world()
    driver = decided(cluster)
    finish_newest(cluster)
    for topic in ("t", "u"):
        others_append(cluster, topic, 1)
        if is_cleaned:
            clock.advance(2 * DAY_MS)
            others_append(cluster, topic, 2)
            write_checkpoint(cluster.topic_log(topic))
            assert clean_log(cluster.topic_log(topic), retention_ms=DAY_MS)
        then(driver.writers[topic])
    before = contents(cluster)
    driver.commit()
    assert contents(cluster) == before


def test_a_marker_that_is_greater_means_done_and_a_gap_is_none() -> None:
    """Rule L7: numbers of aborts, and of transactions without this topic, are no commits here."""
    _, _, cluster = a_world()
    driver = decided(cluster)
    state, files = load_state(cluster.topic_log("t")), driver.files["t"]
    topic_id = state.head.topic_id
    for number, is_new in ((40, True), (39, False), (2, False), (40, False), (41, True)):
        marker = Marker(transactional_id=ID, number=number)
        before = state.position.version
        _, done = publish_transaction(state, topic_id, files, marker, deadline=soon(cluster), sync=False)
        state = done.state
        assert (state.position.version > before) is is_new


def test_a_topic_that_vanished_is_skipped_and_the_rest_is_carried_out() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    delete_topic(cluster.topic_log("t"), "t")
    newest = newest_entry(cluster)
    assert newest is not None
    assert roll_forward(cluster, a_log(cluster), newest, timeout_ms=TIMEOUT_MS).skipped == {"t"}
    finish_newest(cluster)
    assert values(cluster, "u") == ["c"]
    assert committed(cluster) == 6
    assert newest_entry(cluster).state is S.COMPLETE_COMMIT  # type: ignore[union-attr]


def test_a_topic_that_was_made_anew_gets_nothing() -> None:
    _, _, cluster = a_world()
    decided(cluster)
    delete_topic(cluster.topic_log("t"), "t")
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    finish_newest(cluster)
    assert contents(cluster) == {**DONE, "t": []}


def test_a_topic_whose_folder_is_away_has_the_records_once_it_is_back() -> None:
    """✗ It is taken for a deleted one: the transaction is complete without its records."""
    memory, _, cluster = a_world()
    decided(cluster)
    away = {found.path: memory.read(found.path) for found in memory.list("topics/t/_delta_log/")}
    memory.delete(away)
    with pytest.raises(StoreReplacedError, match=r"transaction \d of .* is committed, .* log of topics/t at"):
        finish_newest(cluster)
    assert values(cluster, "u") == ["c"]
    assert newest_entry(cluster).state is S.PREPARE_COMMIT  # type: ignore[union-attr]
    for path, data in away.items():
        memory.put(path, data)
    finish_newest(cluster)
    assert contents(cluster) == DONE
    assert newest_entry(cluster).state is S.COMPLETE_COMMIT  # type: ignore[union-attr]


def test_a_topic_created_again_after_its_folder_was_removed_gets_nothing() -> None:
    memory, _, cluster = a_world()
    decided(cluster)
    memory.delete([found.path for found in [*memory.list("topics/t/")]])
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    finish_newest(cluster)
    assert contents(cluster) == {**DONE, "t": []}


@pytest.mark.parametrize("count", [1, 20])
def test_topics_are_carried_out_side_by_side(count: int) -> None:
    """Twenty take as long as one. ✗ Whoever takes a partition waits for one topic after the other."""
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        cluster = a_cluster(memory, clock)
        topics = [f"t{number}" for number in range(count)]
        for topic in topics:
            create_topic(cluster.topic_log(topic), topic, num_partitions=1)
        driver = Driver(cluster, topics=topics).init()
        driver.begin()
        for topic in topics:
            driver.send(topic, "a")
        named = {
            topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files))
            for topic, files in driver.named
        }
        driver.session.commit(named, deadline=driver.deadline)
        slow = a_cluster(SlowStore(memory, clock, latency_ms=20.0), clock)
        entry = newest_entry(cluster)
        assert entry is not None
        began = clock.now
        roll_forward(slow, a_log(slow), entry, timeout_ms=TIMEOUT_MS)
        assert clock.now - began <= 8 * 20  # of which one is for the file, which another process has uploaded
        assert all(values(cluster, topic) == ["a"] for topic in topics)


def test_an_abort_forgets_the_offsets_and_publishes_nothing() -> None:
    _, _, cluster = a_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "a")
    driver.send_offset(6)
    newest, position = a_log(cluster).open_newest()
    assert newest is not None
    contents_of_it = Contents(groups={"g": frozenset({IN})})
    append_entry(
        a_log(cluster),
        position,
        newest.follow(S.PREPARE_ABORT, contents=contents_of_it, now_ms=0),
        tokens=set(),
        deadline=soon(cluster),
    )
    assert group_rows(cluster)[IN].pending is not None
    finish_newest(cluster)
    assert group_rows(cluster)[IN].pending is None
    assert contents(cluster) == {"t": [], "u": [], "g": 5}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_two_helpers_carry_out_one_decision_once_wherever_the_one_is_overtaken(after: bool) -> None:
    at = 0
    while True:
        memory, clock, cluster = a_world()
        decided(cluster)
        slow = InterruptedStore(memory)

        def another(cluster: Cluster = cluster) -> None:
            if states(cluster)[-1] == "PrepareCommit":
                finish_newest(cluster)

        slow.interrupt(another, at=at, after=after)
        newest, position = a_log(cluster).open_newest()
        assert newest is not None
        through = a_cluster(slow, clock)
        finish(through, a_log(through), newest, position, timeout_ms=TIMEOUT_MS)
        assert contents(cluster) == DONE
        assert states(cluster) == ["Empty", "PrepareCommit", "CompleteCommit"]
        if slow.call_count <= at:
            return
        at += 5 if after else 4


def test_an_id_costs_what_its_docstring_says() -> None:
    """A transaction over two topics and a group: one create decides, one says that it is carried out; each topic takes
    one create and one PUT for its file, the group two of each."""
    memory, clock, _ = a_world()
    counting = CountingStore(memory)
    driver = Driver(a_cluster(counting, clock)).init()
    for offset in (6, 7):
        counting.reset()
        driver.begin()
        driver.send("t", "a")
        driver.send("u", "a")
        driver.send_offset(offset)
        driver.commit()
        driver.complete()
    counts = counting.counts()
    assert counts.pop("sync_all", 0) == 0
    counts.pop("sync", None)
    assert counts == {"put": 4, "create": 6}


def test_the_log_of_an_id_stays_short_however_many_transactions_it_has() -> None:
    _, clock, cluster = a_world()
    session = Driver(cluster, topics=()).init().session
    for number in range(1_000):
        session.begin(ticks_ms=clock.ticks_ms())
        session.commit({}, deadline=soon(cluster))
        session.complete(deadline=soon(cluster))
        clock.advance(2_000)
        assert session.decider.number == 2 * number + 4
    session.wait_for_maintenance()
    left = a_log(cluster).numbers()
    assert left == list(range(left[0], 2_002))
    assert 600 <= len(left) < 1_200  # those of ten minutes, and up to 500 that wait for the next cleaning


@pytest.mark.slow
def test_so_does_the_log_of_an_id_whose_producers_live_for_few_transactions() -> None:
    """✗ Each begins to count anew, and none ever cleans."""
    _, clock, cluster = a_world()
    for _ in range(250):
        session = Driver(cluster, topics=()).init().session
        session.begin(ticks_ms=clock.ticks_ms())
        session.commit({}, deadline=soon(cluster))
        session.complete(deadline=soon(cluster))
        session.wait_for_maintenance()
        clock.advance(60_000)
    assert len(a_log(cluster).numbers()) < 100


# --- the rules of the session (T3, T5)


def test_a_committed_transaction_may_be_committed_again_and_not_be_aborted() -> None:
    _, _, cluster = a_world()
    driver = decided(cluster)
    with pytest.raises(InvalidTxnStateError):
        driver.session.abort(deadline=driver.deadline)
    for _ in range(2):
        driver.commit()
    assert contents(cluster) == DONE
    with pytest.raises(InvalidTxnStateError):
        driver.session.abort(deadline=driver.deadline)
    driver.complete()
    driver.complete()
    assert states(cluster) == ["Empty", "PrepareCommit", "CompleteCommit"]


def test_a_commit_that_others_carried_out_while_its_producer_slept_is_a_success() -> None:
    """Even where a newer producer has begun since: what was decided stays so."""
    _, _, cluster = a_world()
    driver = decided(cluster)
    Driver(cluster).init()
    driver.commit()
    driver.complete()
    assert contents(cluster) == DONE
    driver.begin()
    driver.send("t", "zombie")
    with pytest.raises(ProducerFencedError):
        driver.commit()
    assert contents(cluster) == DONE


def test_a_zombies_offsets_dont_abort_the_newer_holder_of_its_id() -> None:
    """Both read with the same consumer; the zombie is told that it is fenced."""
    _, _, cluster = a_world()
    zombie = Driver(cluster).init()
    zombie.begin()
    newer = Driver(cluster).init()
    newer.begin()
    newer.send("t", "new")
    newer.send_offset(6)
    zombie.send("t", "zombie")
    with pytest.raises(ProducerFencedError):
        zombie.send_offset(9)
    newer.commit()
    newer.complete()
    assert contents(cluster) == {"t": ["new"], "u": [], "g": 6}


def test_of_two_ids_that_commit_one_partitions_offsets_the_first_is_aborted() -> None:
    """The same member, two producers: it owns the partition, so the second need not wait for the first (T2)."""
    _, _, cluster = a_world()
    first, second = Driver(cluster).init(), Driver(cluster, "other").init()
    first.begin()
    first.send("t", "first")
    first.send_offset(6)
    second.begin()
    second.send("t", "second")
    second.send_offset(7)
    with pytest.raises(TransactionAbortableError, match="'other' commits offsets of the same partitions"):
        first.commit()
    second.commit()
    first.abort()
    assert contents(cluster) == {"t": ["second"], "u": [], "g": 7}


# --- every interleaving


def play(seed: int) -> None:
    """A producer, the partition's next owner with the same id, and two helpers, in an order that a seed decides."""
    memory, clock, cluster = a_world()
    scheduler = Scheduler(seed)
    told: dict[str, object] = {}

    def one_transaction(name: str, offset: int, member: Stamp, seen: Cluster) -> None:
        try:
            driver = Driver(seen, member=member).init()
            driver.begin()
            driver.send("t", name)
            driver.send("u", name)
            driver.send_offset(offset)
            driver.commit()
            told[name] = True
            driver.complete()
        except (
            TransactionAbortableError,
            ProducerFencedError,
            CommitFailedError,
            ConcurrentTransactionsError,
        ) as error:
            told.setdefault(name, error)

    def the_next_owner(seen: Cluster) -> None:
        row = take(seen, BOB)[IN]
        assert row.pending is None
        told["bob"] = row.committed.offset if row.committed else None
        one_transaction("bobs", 100, BOB, seen)

    def a_helper(seen: Cluster) -> None:
        for _ in range(3):
            newest, position = a_log(seen).open_newest()
            if newest is not None and newest.state.is_prepared:
                finish(seen, a_log(seen), newest, position, timeout_ms=TIMEOUT_MS)

    tasks: dict[str, Callable[[Cluster], None]] = {
        "anns": partial(one_transaction, "anns", 50, ANN),
        "bob": the_next_owner,
        "helper 1": a_helper,
        "helper 2": a_helper,
    }
    for name, task in tasks.items():
        scheduler.spawn(name, partial(task, a_cluster(scheduler.store(memory), clock)))
    scheduler.run()
    last = Driver(cluster, member=BOB).init()  # finishes what is left
    row = take(cluster, BOB)[IN]
    seen = contents(cluster)
    assert seen["t"] == [name for name in ("anns", "bobs") if name in seen["t"]]
    assert sorted(seen["t"]) == sorted(seen["u"])
    for name in ("anns", "bobs"):
        assert (name in seen["t"]) >= (told[name] is True)
    assert told["bob"] == (50 if "anns" in seen["t"] else 5), (told, seen)
    assert row.pending is None
    assert seen["g"] == (100 if "bobs" in seen["t"] else told["bob"])
    assert isinstance(last.session.header.producer_epoch, int)


@pytest.mark.slow
def test_any_interleaving_is_all_or_nothing() -> None:
    for seed in range(12):
        play(seed)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=60, nightly=800), suppress_health_check=[HealthCheck.differing_executors])
@given(seed=st.integers(0, 2**32 - 1))
def test_any_of_very_many_interleavings_is(seed: int) -> None:
    play(seed)


def test_sparklogs_errors_of_transactions_say_what_is_to_be_done() -> None:
    """Source: Kafka's ``Errors``: fatal, to be answered by an abort, or to be tried again."""
    assert ProducerFencedError.fatal
    assert TransactionAbortableError.requires_abort
    assert ConcurrentTransactionsError.retriable
    assert not InvalidTxnStateError.retriable
    assert not InvalidTxnStateError.requires_abort
    assert issubclass(TransactionAbortableError, SparklogError)
