"""What producers left is finished by whoever comes by; what may still be open is left alone until it is too old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from sparklog.errors import (
    CorruptLogError,
    InvalidTxnStateError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    TransactionTimedOutError,
)
from sparklog.log import Cluster, delete_topic
from sparklog.log.publishing import Marker
from sparklog.paths import open_transactions, transaction_entry, transaction_marker
from sparklog.storage import CreateResult, ObjectStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.entries import TopicFiles
from sparklog.txn.recovery import BY_ADMINISTRATOR, RecoveryAction, abort_transaction, recover_transactions
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState
from tests.support import DAY_MS, T0_MS
from tests.txn.support import (
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
    states,
    values,
)

PREPARED = ["Empty", "PrepareCommit"]
BOUND_MS = TIMEOUT_MS + TIMEOUT_MS // 2
"""For so long a session may write nothing: whatever it has open is older than its time-out then."""
LONG_MS = BOUND_MS + 1
OLD = {"t": [], "u": [], "g": 5}
NEW = {"t": ["a"], "u": ["b"], "g": 7}


def prepare(driver: Driver) -> Marker:
    """The commit point alone: its producer dies right after it."""
    topics = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(files)) for topic, files in driver.named
    }
    return driver.session.commit(topics, deadline=driver.deadline)


def filled(
    cluster: Cluster, transactional_id: str = "tx", *, with_offset: bool = True, idles_ms: float = 0.0
) -> Driver:
    """A producer with an open transaction that would lead to NEW."""
    driver = Driver(cluster, transactional_id).init()
    cluster.clock.sleep_ms(idles_ms)
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


class Listed(WrappedStore):
    """Right after the first listing of a folder others act, once."""

    def __init__(self, store: ObjectStore, path: str, others_act: Callable[[], object]) -> None:
        super().__init__(store)
        self._path = path
        self._others_act: Callable[[], object] | None = others_act

    def list_names(self, prefix: str) -> Sequence[str]:
        names = super().list_names(prefix)
        if prefix == self._path and self._others_act is not None:
            act, self._others_act = self._others_act, None
            act()
        return names


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
        driver.session.abort(deadline=driver.deadline)
    assert group_rows(cluster)[IN].pending is not None
    assert recover(cluster) == {"tx": "aborted"}
    assert group_rows(cluster)[IN].pending is None
    assert contents(cluster) == OLD
    assert states(cluster) == ["Empty", "PrepareAbort", "CompleteAbort"]


def test_a_session_is_aborted_once_it_is_past_its_time_out_and_only_once() -> None:
    _, clock, cluster = a_world()
    driver = filled(cluster)
    clock.advance(BOUND_MS)
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


@pytest.mark.parametrize("idles_ms", [TIMEOUT_MS // 2, 2 * TIMEOUT_MS, DAY_MS])
def test_a_transaction_that_began_after_a_long_idle_is_as_old_as_it_is(idles_ms: int) -> None:
    """T4. ✗ Its session wrote nothing for two minutes; a second after it began, recovery takes it for one of two
    minutes."""
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    clock.advance(idles_ms)
    driver.begin()
    driver.send("t", "a")
    driver.send("u", "b")
    driver.send_offset(7)
    clock.advance(TIMEOUT_MS)
    assert recover(cluster) == {"tx": "nothing"}
    driver.commit()
    assert contents(cluster) == NEW
    driver.begin()
    driver.send("t", "never")
    clock.advance(LONG_MS)
    assert recover(cluster) == {"tx": "timed out"}


def test_a_marker_is_refreshed_after_a_long_idle_alone() -> None:
    memory, clock, _ = a_world()
    counting = CountingStore(memory)
    driver = Driver(a_cluster(counting, clock)).init()
    for idles_ms, refreshes in ((0, 0), (TIMEOUT_MS // 2, 0), (TIMEOUT_MS // 2 + 1, 1), (1_000, 0), (DAY_MS, 1)):
        clock.advance(idles_ms)
        counting.reset()
        driver.begin()
        assert counting.counts().get("put", 0) == refreshes
        driver.send("t", "a")
        driver.commit()
        driver.complete()


def test_a_producer_that_slept_in_its_commit_until_later_numbers_were_taken_goes_on() -> None:
    """Others completed what it had decided, and took its session for one that is past its time-out, again and again.
    ✗ It finds the newest entry to be an abort that isn't carried out, and can tell no group which entry decides."""
    memory, clock, cluster = a_world()

    def time_out() -> None:
        clock.advance(LONG_MS)
        recover(cluster)
        newest, position = a_log(cluster).open_newest()
        assert newest is not None
        ticks_ms = position.anchor_ticks_ms
        abort_if_open(a_log(cluster), newest, ticks_ms=ticks_ms, reason=TIMED_OUT, timeout_ms=TIMEOUT_MS)

    slow = InterruptedStore(memory)
    driver = filled(a_cluster(slow, clock))
    slow.interrupt(time_out, at=0, after=True)  # the create that decides
    driver.commit()
    driver.complete()
    assert contents(cluster) == NEW
    time_out()
    driver.begin()
    driver.send("t", "next")
    driver.send_offset(8)
    driver.commit()
    driver.complete()
    assert contents(cluster) == {"t": ["a", "next"], "u": ["b"], "g": 8}


def test_a_session_that_begins_or_closes_while_others_are_recovered_is_left_alone() -> None:
    """Markers are listed once, for all ids: before one is aborted its own is listed again."""
    changes: list[Callable[[Driver], None]] = [Driver.begin, lambda driver: driver.session.close()]
    for change in changes:
        memory, clock, cluster = a_world()
        driver = Driver(cluster).init()
        clock.advance(LONG_MS)
        late = Listed(memory, "transactions/tx/", partial(change, driver))
        assert recover(a_cluster(late, clock)) == {"tx": "nothing"}
        assert states(cluster) == ["Empty"]


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
    driver = filled(cluster, idles_ms=TIMEOUT_MS // 2)
    clock.advance(BOUND_MS - TIMEOUT_MS // 2)  # it is still in time by its own clock
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
