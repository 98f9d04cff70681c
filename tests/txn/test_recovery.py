"""What producers left is finished by whoever comes by; what may still be open is left alone until it is too old."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sparklog.errors import (
    CorruptLogError,
    InvalidTxnStateError,
    StoreUnavailableError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    TransactionTimedOutError,
)
from sparklog.log import Cluster, delete_topic
from sparklog.log.publishing import Marker
from sparklog.paths import open_transactions, transaction_entry, transaction_marker
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.txn.entries import TopicFiles
from sparklog.txn.recovery import BY_ADMINISTRATOR, Helper, RecoveryAction, abort_transaction, recover_transactions
from sparklog.txn.states import TransactionState
from tests.support import DAY_MS, T0_MS
from tests.txn.support import (
    IN,
    TIMEOUT_MS,
    Driver,
    a_cluster,
    a_world,
    committed,
    contents,
    group_rows,
    newest_entry,
    states,
    values,
)

PREPARED = ["Empty", "PrepareCommit"]
LONG_MS = TIMEOUT_MS + 1
OLD = {"t": [], "u": [], "g": 5}
NEW = {"t": ["a"], "u": ["b"], "g": 7}


def prepare(driver: Driver) -> Marker:
    """The commit point alone: its producer dies right after it."""
    topics = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    return driver.session.commit(topics, deadline_ticks_ms=driver.deadline)


def filled(cluster: Cluster, transactional_id: str = "tx", *, with_offset: bool = True) -> Driver:
    """A producer with an open transaction that would lead to NEW."""
    driver = Driver(cluster, transactional_id).init()
    driver.begin()
    driver.send("t", "a")
    driver.send("u", "b")
    if with_offset:
        driver.send_offset(7)
    return driver


def recover(cluster: Cluster, **how: float) -> dict[str, str]:
    """What was done, by id."""
    found = recover_transactions(cluster, **how)
    assert [one.transactional_id for one in found] == sorted(one.transactional_id for one in found)
    return {one.transactional_id: one.action.value for one in found}


def markers(cluster: Cluster, transactional_id: str = "tx") -> list[int]:
    return [int(name) for name in cluster.store.list_names(open_transactions(transactional_id))]


class Overtaken(WrappedStore):
    """Right before a create others act, once."""

    def __init__(self, store: ObjectStore, path: str, others_act: Callable[[], object]) -> None:
        super().__init__(store)
        self._path = path
        self._others_act: Callable[[], object] | None = others_act

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if self._path in path and self._others_act is not None:
            act, self._others_act = self._others_act, None
            act()
        return super().create(path, data, sync=sync)


def test_a_commit_that_was_left_is_carried_out_everywhere() -> None:
    _, _, cluster = a_world()
    prepare(filled(cluster))
    [found] = recover_transactions(cluster)
    assert (found.state, found.action, found.error) == (TransactionState.PREPARE_COMMIT, RecoveryAction.COMMITTED, None)
    assert contents(cluster) == NEW
    assert states(cluster) == [*PREPARED, "CompleteCommit"]
    assert recover(cluster) == {"tx": "nothing"}
    assert contents(cluster) == NEW


def test_an_abort_that_was_left_is_carried_out() -> None:
    _, _, cluster = a_world()
    driver = filled(cluster)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    driver.session.settle_groups = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        driver.session.abort(deadline_ticks_ms=driver.deadline)
    assert group_rows(cluster)[IN].pending is not None
    assert recover(cluster) == {"tx": "aborted"}
    assert group_rows(cluster)[IN].pending is None
    assert contents(cluster) == OLD
    assert states(cluster) == ["Empty", "PrepareAbort", "CompleteAbort"]


def test_a_session_is_aborted_once_it_is_past_its_time_out_and_only_once() -> None:
    _, clock, cluster = a_world()
    driver = filled(cluster)
    clock.advance(TIMEOUT_MS)
    assert recover(cluster) == {"tx": "nothing"}
    clock.advance(1)
    assert recover(cluster) == {"tx": "timed out"}
    entry = newest_entry(cluster)
    assert entry is not None
    assert entry.reason == f"timed out after {LONG_MS} ms without a decision, transaction_timeout_ms={TIMEOUT_MS}"
    clock.advance(DAY_MS)
    assert recover(cluster) == {"tx": "nothing"}
    assert recover(cluster, again_after_ms=2 * DAY_MS) == {"tx": "nothing"}
    with pytest.raises(TransactionTimedOutError):
        prepare(driver)
    assert contents(cluster) == OLD
    assert recover(cluster, again_after_ms=DAY_MS / 2) == {"tx": "timed out"}


def test_a_producer_that_was_only_idle_notices_nothing() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    clock.advance(LONG_MS)
    assert recover(cluster) == {"tx": "timed out"}
    driver.begin()
    driver.send("t", "a")
    driver.commit()
    driver.complete()
    assert values(cluster, "t") == ["a"]
    clock.advance(LONG_MS)  # its own commit is the newest decision now
    assert recover(cluster) == {"tx": "timed out"}


def test_a_session_that_closed_is_never_aborted() -> None:
    _, clock, cluster = a_world()
    Driver(cluster).init().session.close()
    clock.advance(DAY_MS)
    assert recover(cluster) == {"tx": "nothing"}
    assert states(cluster) == ["Empty"]


def test_age_is_told_by_the_store_and_not_by_whoever_looks() -> None:
    memory, clock, cluster = a_world()
    filled(cluster)
    ahead = a_cluster(memory, ManualClock(start_ms=T0_MS + DAY_MS))
    assert recover(ahead) == {"tx": "nothing"}
    clock.advance(LONG_MS)
    assert recover(a_cluster(memory, ManualClock(start_ms=T0_MS - DAY_MS))) == {"tx": "timed out"}
    assert not list(memory.list("probes/"))


def test_a_producer_that_decides_at_the_same_moment_wins_or_loses_as_a_whole() -> None:
    memory, clock, cluster = a_world()
    driver = filled(cluster)
    clock.advance(LONG_MS - 1)  # it is still in time by its own clock
    memory_later = Overtaken(memory, "transactions/tx/", lambda: prepare(driver))
    clock_of_helper = ManualClock(start_ms=T0_MS)
    helper = a_cluster(memory_later, clock_of_helper)
    entry = newest_entry(cluster)
    assert entry is not None
    [found] = recover_transactions(helper, timeout_ms=1_000)
    assert found.action is RecoveryAction.NOTHING  # not due yet
    clock.shift_wall(1)
    [found] = recover_transactions(helper, timeout_ms=1_000)
    assert found.action is RecoveryAction.COMMITTED
    assert contents(cluster) == NEW


def test_two_that_recover_at_once_do_it_once() -> None:
    memory, clock, cluster = a_world()
    prepare(filled(cluster))
    other = Overtaken(memory, "topics/u/", lambda: recover(cluster))
    assert recover(a_cluster(other, clock)) == {"tx": "committed"}
    assert contents(cluster) == NEW
    assert states(cluster) == [*PREPARED, "CompleteCommit"]


def test_markers_of_earlier_epochs_are_removed() -> None:
    memory, _, cluster = a_world()
    Driver(cluster).init()  # dies
    driver = Driver(cluster).init()
    assert markers(cluster) == [2]
    memory.put(transaction_marker("tx", 1), b"")  # as if it had died before it removed this
    recover(cluster)
    assert markers(cluster) == [2]
    driver.begin()
    driver.send("t", "a")
    driver.commit()
    driver.complete()
    memory.put(transaction_marker("tx", 1), b"")
    recover(cluster)
    assert markers(cluster) == [2]
    memory.delete([transaction_entry("tx", 1), transaction_entry("tx", 2)])
    recover(cluster)
    assert markers(cluster) == [2]  # its entry was cleaned: it may be the newest epoch's


def test_one_that_can_not_be_finished_hinders_no_other() -> None:
    memory, clock, cluster = a_world()
    prepare(filled(cluster, with_offset=False))
    for number in range(20):
        Driver(cluster, f"other {number}/ü").init()
    memory.put(transaction_entry("bad", 1), b"{")
    memory.put("transactions/%zz/x", b"")  # somebody else's folder
    faulty = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, path="topics/u/", times=None))
    found = {one.transactional_id: one for one in recover_transactions(a_cluster(faulty, clock))}
    assert len(found) == 22
    assert isinstance(found["bad"].error, CorruptLogError)
    assert found["bad"].state is None
    assert "read-only" in str(found["tx"].error)
    assert {found["bad"].action, found["tx"].action} == {RecoveryAction.FAILED}
    assert {one.action for name, one in found.items() if name.startswith("other")} == {RecoveryAction.NOTHING}
    assert recover(cluster)["tx"] == "committed"
    assert (values(cluster, "t"), values(cluster, "u")) == (["a"], ["b"])


def test_a_deleted_topic_is_skipped() -> None:
    _, _, cluster = a_world()
    prepare(filled(cluster))
    delete_topic(cluster.topic_log("u"), "u")
    assert recover(cluster) == {"tx": "committed"}
    assert (values(cluster, "t"), committed(cluster)) == (["a"], 7)


# An administrator


def test_an_administrator_aborts_what_is_open() -> None:
    _, _, cluster = a_world()
    driver = filled(cluster)
    abort_transaction(cluster, "tx")
    assert states(cluster) == ["Empty", "PrepareAbort", "CompleteAbort"]
    with pytest.raises(TransactionAbortableError, match=BY_ADMINISTRATOR):
        prepare(driver)
    driver.abort()
    assert contents(cluster) == OLD
    driver.begin()
    driver.send("t", "next")
    driver.commit()
    assert values(cluster, "t") == ["next"]


def test_an_administrator_can_not_abort_what_is_committed() -> None:
    _, _, cluster = a_world()
    with pytest.raises(TransactionalIdNotFoundError, match="'tx'"):
        abort_transaction(cluster, "tx")
    prepare(filled(cluster))
    with pytest.raises(InvalidTxnStateError, match="is committed"):
        abort_transaction(cluster, "tx")
    assert recover(cluster) == {"tx": "committed"}
    assert contents(cluster) == NEW


def test_an_administrator_who_comes_too_late_is_told_so() -> None:
    memory, clock, cluster = a_world()
    driver = filled(cluster)
    overtaken = a_cluster(Overtaken(memory, "transactions/tx/", lambda: prepare(driver)), clock)
    with pytest.raises(InvalidTxnStateError, match="is committed"):
        abort_transaction(overtaken, "tx")
    driver = Driver(cluster).init()  # finishes it
    overtaken = a_cluster(Overtaken(memory, "transactions/tx/", lambda: Driver(cluster).init()), clock)
    abort_transaction(overtaken, "tx")  # the newer producer has aborted it
    assert states(cluster)[-1] == "Empty"


# Idle consumers


def look(helper: Helper, clock: ManualClock) -> list[str]:
    return helper.look(clock.ticks_ms())


def test_a_helper_finishes_what_it_saw_unchanged_for_five_seconds() -> None:
    _, clock, cluster = a_world()
    prepare(filled(cluster))
    helper = Helper(cluster)
    assert look(helper, clock) == []
    clock.advance(4_999)
    assert look(helper, clock) == []
    clock.advance(1)
    assert look(helper, clock) == ["tx"]
    assert contents(cluster) == NEW
    clock.advance(30_000)
    assert look(helper, clock) == look(helper, clock) == []


def test_a_helper_leaves_a_producer_alone_that_goes_on() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    helper = Helper(cluster)
    for value in "abc":
        driver.begin()
        driver.send("t", value)
        prepare(driver)
        assert look(helper, clock) == []
        clock.advance(30_000)
        driver.commit()
        driver.complete()
    assert states(cluster) == ["Empty", *["PrepareCommit", "CompleteCommit"] * 3]
    driver.begin()
    driver.send("t", "d")
    prepare(driver)
    for expected in ([], ["tx"]):
        assert look(helper, clock) == expected
        clock.advance(5_000)
    assert values(cluster, "t") == ["a", "b", "c", "d"]


def test_a_helper_that_slept_for_days_begins_anew() -> None:
    memory, clock, cluster = a_world()
    driver = filled(cluster)
    helper = Helper(cluster)
    look(helper, clock)
    prepare(driver)
    memory.delete([transaction_entry("tx", 1)])  # what it stands on was cleaned
    clock.advance(DAY_MS)
    assert look(helper, clock) == []
    clock.advance(5_000)
    assert look(helper, clock) == ["tx"]


def test_a_look_costs_a_listing_and_a_get_for_each_session_that_may_be_open() -> None:
    memory, clock, cluster = a_world()
    for name in ("a", "b", "c"):
        Driver(cluster, name).init()
    Driver(cluster, "closed").init().session.close()
    counting = CountingStore(memory)
    helper = Helper(a_cluster(counting, clock))
    look(helper, clock)
    counting.reset()
    clock.advance(30_000)
    look(helper, clock)
    assert counting.counts() == {"list": 1, "get": 3}


def test_what_a_helper_can_not_do_is_logged_once_and_hinders_nothing(caplog: pytest.LogCaptureFixture) -> None:
    memory, clock, cluster = a_world()
    prepare(filled(cluster))
    memory.put(transaction_marker("bad", 1), b"")
    memory.put(transaction_entry("bad", 1), b"{")
    helper = Helper(cluster)
    with caplog.at_level(logging.WARNING, "sparklog.txn"):
        assert look(helper, clock) == []
        clock.advance(5_000)
        assert look(helper, clock) == ["tx"]
    assert [record.getMessage()[:44] for record in caplog.records] == ["looking after transactional id 'bad' failed:"]


def test_a_helper_raises_nothing_where_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(start_ms=T0_MS)
    faulty = FaultyStore(MemoryStore(clock=clock), Fault(kind=FaultKind.THROTTLED, times=None))
    with caplog.at_level(logging.WARNING, "sparklog.txn"):
        assert look(Helper(a_cluster(faulty, clock)), clock) == []
    assert StoreUnavailableError.__name__ in caplog.text
    assert clock.ticks_ms() == pytest.approx(Helper.PATIENCE_MS)


def test_of_many_sessions_a_helper_looks_at_some_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock, cluster = a_world()
    for name in "abcde":
        driver = Driver(cluster, name, topics=("t",)).init()
        driver.begin()
        driver.send("t", name)
        prepare(driver)
    monkeypatch.setattr(Helper, "MOST_IDS", 2)
    monkeypatch.setattr(Helper, "MOST_FINISHED", 1)
    helper = Helper(cluster)
    finished: list[str] = []
    for _ in range(12):
        found = look(helper, clock)
        assert len(found) <= 1
        finished += found
        clock.advance(5_000)
    assert sorted(finished) == list("abcde")
    assert sorted(values(cluster, "t")) == list("abcde")
