"""Deciding another's transaction (rule T1): exactly the entry that its rows name, whatever lies under that name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparklog.errors import CorruptLogError, InvalidTxnStateError, ProducerFencedError, TransactionAbortableError
from sparklog.groups.offsets.rows import Decider
from sparklog.log import Cluster
from sparklog.storage import ObjectInfo
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.testing import CountingStore
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.cleaning import KEEP_MS, clean_transaction_log
from sparklog.txn.deciding import abort_if_open, decide, entry_in_place, read_decision
from sparklog.txn.entries import TransactionLog, append_entry, encode_transaction
from sparklog.txn.forward import finish
from sparklog.txn.states import TransactionState
from tests.txn.support import ID, TIMEOUT_MS, Driver, a_cluster, a_log, a_world, newest_entry, states, values

S = TransactionState
WHY = "a helper"


def a_session(cluster=None) -> Driver:
    """A producer that has an epoch, and whose transaction is to be decided by entry 2."""
    driver = Driver(cluster or a_world()[2]).init()
    driver.begin()
    assert driver.session.decider == Decider(ID, 0, 2)
    return driver


def ask(driver: Driver, number: int = 2, epoch: int = 0) -> bool:
    return have_decided(driver.cluster, Decider(ID, epoch, number))


def have_decided(cluster: Cluster, decider: Decider) -> bool:
    decide(cluster, decider, reason=WHY, timeout_ms=TIMEOUT_MS)
    decision = read_decision(a_log(cluster), decider)
    assert decision is not None
    return decision.is_committed


def commit_some(driver: Driver, count: int = 1) -> None:
    for _ in range(count):
        driver.begin()
        driver.send("t", "x")
        driver.commit()
        driver.complete()


def test_an_open_transaction_is_aborted_and_its_producer_finds_the_reason() -> None:
    driver = a_session()
    driver.send("t", "never")
    driver.send_offset(6)
    assert read_decision(a_log(driver.cluster), driver.session.decider) is None
    assert ask(driver) is False
    assert ask(driver) is False  # as often as one likes
    assert states(driver.cluster) == ["Empty", "PrepareAbort"]
    with pytest.raises(TransactionAbortableError, match="was aborted by another: a helper"):
        driver.commit()
    driver.abort()
    assert states(driver.cluster) == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert values(driver.cluster, "t") == []
    driver.begin()
    driver.send("t", "again")
    driver.commit()
    assert values(driver.cluster, "t") == ["again"]


def test_a_committed_one_stays_committed_however_late_somebody_asks() -> None:
    driver = a_session()
    driver.send("t", "a")
    driver.commit()
    assert ask(driver) is True
    driver.complete()
    commit_some(driver, 3)
    assert ask(driver) is True
    assert states(driver.cluster) == ["Empty", *["PrepareCommit", "CompleteCommit"] * 4]


def test_a_slow_helper_doesnt_abort_the_next_innocent_transaction() -> None:
    """✗ of T1: it saw transaction 2 open, slept until that had been committed, and 4 was open."""
    driver = a_session()
    driver.send("t", "a")

    def meanwhile() -> None:
        driver.commit()
        driver.complete()
        driver.begin()
        driver.send("t", "b")

    slow = InterruptedStore(driver.cluster.store)
    slow.interrupt(meanwhile, at=0, after=True)  # its look at which entries there are
    assert have_decided(a_cluster(slow, driver.cluster.clock), Decider(ID, 0, 2))
    assert slow.call_count > 1
    driver.commit()
    driver.complete()
    assert values(driver.cluster, "t") == ["a", "b"]
    assert states(driver.cluster) == ["Empty", *["PrepareCommit", "CompleteCommit"] * 2]


@pytest.mark.parametrize("at", range(8))
def test_a_helper_that_sleeps_at_any_call_aborts_nothing_but_what_it_was_asked_for(at: int) -> None:
    driver = a_session()
    driver.send("t", "a")
    outcome: list[str] = []

    def meanwhile() -> None:
        try:
            driver.commit()
            outcome.append("committed")
        except TransactionAbortableError:
            driver.abort()
        driver.complete()
        driver.begin()
        driver.send("t", "b")

    slow = InterruptedStore(driver.cluster.store)
    slow.interrupt(meanwhile, at=at, after=False)
    helper = a_cluster(slow, driver.cluster.clock)
    decided = have_decided(helper, Decider(ID, 0, 2))
    if slow.call_count <= at:
        meanwhile()
    driver.commit()
    assert decided is bool(outcome)
    assert values(driver.cluster, "t") == ["a", "b"] if outcome else ["b"]


def test_the_number_of_a_newer_epoch_decides_that_nothing_was_committed() -> None:
    """A zombie's rows may appear after its successor has begun."""
    driver = a_session()
    newer = Driver(driver.cluster).init()
    assert ask(driver) is False
    newer.begin()
    assert newer.session.decider == Decider(ID, 1, 3)
    newer.send("t", "x")
    newer.commit()
    assert ask(driver, number=3, epoch=1) is True
    assert ask(driver, number=3, epoch=0) is False  # the entry commits another's transaction
    with pytest.raises(ProducerFencedError, match="began epoch 1 of producer"):
        driver.commit()


def test_a_decision_cant_be_asked_for_before_its_log_is_there() -> None:
    driver = a_session()
    with pytest.raises(CorruptLogError, match="entry 4 is to decide a transaction, but its log ends at 1"):
        ask(driver, number=4)
    with pytest.raises(CorruptLogError, match="is of epoch 0, but a transaction of epoch 5 is to be decided"):
        ask(driver, epoch=5)
    assert states(driver.cluster) == ["Empty"]


def test_what_is_decided_cant_be_aborted() -> None:
    driver = a_session()
    driver.send("t", "a")
    driver.commit()
    newest = newest_entry(driver.cluster)
    assert newest is not None
    with pytest.raises(InvalidTxnStateError, match="PrepareCommit can't become PrepareAbort"):
        abort_if_open(a_log(driver.cluster), newest, ticks_ms=0, reason=WHY, timeout_ms=TIMEOUT_MS)


# --- cleaned numbers


def cleaned(driver: Driver) -> int:
    """Commit, wait and clean, so that all but the newest entries are gone; returns the oldest that is left."""
    commit_some(driver, 2)
    driver.cluster.clock.sleep_ms(KEEP_MS)
    commit_some(driver)
    newest = newest_entry(driver.cluster)
    assert newest is not None
    left = newest.version - 2  # it was the newest a moment ago
    assert clean_transaction_log(a_log(driver.cluster), newest) == left - 1 >= 4
    return left


def test_a_number_that_was_cleaned_away_is_of_a_transaction_that_wasnt_committed() -> None:
    """Its rows were settled before its entry was cleaned, had it been committed (rule T6)."""
    driver = a_session()
    left = cleaned(driver)
    for number in range(1, left):
        assert entry_in_place(a_log(driver.cluster), number) is None
        assert ask(driver, number=number) is False
    assert ask(driver, number=left + 1) is True
    assert len(states(driver.cluster)) == 3  # nothing was created


@pytest.mark.parametrize("number", [2, 3, 4])
def test_what_a_stalled_process_created_under_a_cleaned_number_counts_for_nothing(number: int) -> None:
    """Also right below what is left: the entry after it names another token."""
    driver = a_session()
    log = a_log(driver.cluster)
    before = log.read_entry(1)
    assert before is not None
    left = cleaned(driver)
    assert left == 5
    stray = replace(before.follow(S.PREPARE_COMMIT, now_ms=0), version=number)
    log.store.create(log.path_of(number), encode_transaction(stray, "stray"))
    assert entry_in_place(log, number) is None
    assert ask(driver, number=number) is False
    commit_some(driver)  # and it is in nobody's way
    assert values(driver.cluster, "t") == ["x"] * 4


def test_a_helper_that_slept_until_all_it_saw_was_cleaned_creates_nothing() -> None:
    driver = a_session()
    helper_saw = newest_entry(driver.cluster)
    assert helper_saw is not None
    cleaned(driver)
    log = a_log(driver.cluster)
    assert abort_if_open(log, helper_saw, ticks_ms=0, reason=WHY, timeout_ms=TIMEOUT_MS) is None
    assert log.read_entry(2) is None
    assert ask(driver) is False
    commit_some(driver)
    assert values(driver.cluster, "t") == ["x"] * 4


@pytest.mark.parametrize("is_superseded", [True, False], ids=["a newer epoch", "the same epoch"])
def test_a_producer_whose_number_was_cleaned_away_knows_nothing_was_committed(
    is_superseded: bool,
) -> None:
    """It had tried nothing before it slept."""
    driver = a_session()
    log = a_log(driver.cluster)
    if is_superseded:
        cleaned(Driver(driver.cluster).init())
    else:
        for _ in range(3):
            newest, position = log.open_newest()
            assert newest is not None
            reason = "an administrator"
            abort_if_open(log, newest, ticks_ms=driver.cluster.clock.ticks_ms(), reason=reason, timeout_ms=TIMEOUT_MS)
            newest, position = log.open_newest()
            assert newest is not None
            finish(driver.cluster, log, newest, position, timeout_ms=TIMEOUT_MS)
            driver.cluster.clock.sleep_ms(KEEP_MS / 2)
        newest, _ = log.open_newest()
        assert newest is not None
        assert clean_transaction_log(log, newest) > 1
    driver.begin()
    driver.send("t", "zombie")
    before = states(driver.cluster)
    with pytest.raises(ProducerFencedError if is_superseded else TransactionAbortableError):
        driver.commit()
    assert "zombie" not in values(driver.cluster, "t")
    assert states(driver.cluster) == before  # nothing was created
    if not is_superseded:
        driver.abort()
        commit_some(driver)
        assert values(driver.cluster, "t") == ["x"]


def test_the_newest_entry_is_in_its_place_and_so_is_one_whose_successor_fits() -> None:
    driver = a_session()
    log = a_log(driver.cluster)
    assert entry_in_place(log, 1) == newest_entry(driver.cluster)
    assert entry_in_place(log, 2) is None
    commit_some(driver)
    assert [entry.version for number in (1, 2, 3) if (entry := entry_in_place(log, number))] == [1, 2, 3]
    assert entry_in_place(log, 4) is None


def cleaned_but(driver: Driver, left: int) -> TransactionLog:
    """Entries 5 to 7 are left, and one of those before: whoever cleaned was killed, and deletes in no order."""
    commit_some(driver, 2)
    log = a_log(driver.cluster)
    data = log.store.read(log.path_of(left))
    driver.cluster.clock.sleep_ms(KEEP_MS)
    commit_some(driver)
    newest = newest_entry(driver.cluster)
    assert newest is not None
    assert clean_transaction_log(log, newest) == 4
    log.store.put(log.path_of(left), data)
    return log


def test_a_stray_behind_an_entry_that_a_killed_cleaning_left_counts_for_nothing() -> None:
    """T6. ✗ A row waits for entry 3; a stalled process creates it behind entry 2, and the one before it seems to show
    that it is in its place."""
    driver = a_session()
    log = cleaned_but(driver, 2)
    before = log.read_entry(2)
    assert before is not None
    stray = replace(before.follow(S.COMPLETE_COMMIT, now_ms=0), state=S.PREPARE_COMMIT)
    log.store.create(log.path_of(3), encode_transaction(stray, "stray"))
    assert entry_in_place(log, 3) is None
    assert ask(driver, number=3) is False
    commit_some(driver)
    assert values(driver.cluster, "t") == ["x"] * 4


@pytest.mark.parametrize("left", [1, 2, 3])
def test_what_a_killed_cleaning_left_is_not_taken_for_the_end_of_the_log(left: int) -> None:
    driver = a_session()
    log = cleaned_but(driver, left)
    assert entry_in_place(log, left) is None
    assert ask(driver, number=left) is False
    assert ask(driver, number=left + 1) is False
    assert len(log.numbers()) == 4  # nothing was created


@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_a_sleeper_on_an_entry_left_by_a_killed_cleaning_knows_the_log_went_on(left: int) -> None:
    """L1, T6. ✗ It finds its own entry there, takes it for the log's end, and what it creates behind it for decided."""
    driver = a_session()
    log = cleaned_but(driver, left)
    slept_on = log.read_entry(left)
    assert slept_on is not None
    position = Position(version=left, token=slept_on.token, anchor_ticks_ms=-1e9)
    with pytest.raises(PositionLost):
        log.look(position)
    follows = S.COMPLETE_COMMIT if slept_on.state is S.PREPARE_COMMIT else S.PREPARE_COMMIT
    entry = slept_on.follow(follows, now_ms=0)
    with pytest.raises(PositionLost):
        append_entry(log, position, entry, tokens=set(), deadline=log.clock.deadline_in(None))
    assert ask(driver, number=6) is True


# --- cost


class ListedNames(CountingStore):
    """Counts the names that listings give, too."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for found in super().list(prefix, after=after):
            self._count("names", 1)
            yield found


@pytest.mark.parametrize("behind", [0, 40])
def test_reading_a_decision_costs_the_same_however_long_the_log_is(behind: int) -> None:
    driver = a_session()
    commit_some(driver)
    decider = Decider(ID, 0, 2)
    commit_some(driver, behind)
    counting = ListedNames(driver.cluster.store)
    log = a_log(a_cluster(counting, driver.cluster.clock))
    found = read_decision(log, decider)
    assert found is not None
    assert (found.is_committed, found.is_finished) == (True, True)
    assert counting.counts() == {"get": 2}

    driver.begin()
    open_decider = driver.session.decider
    counting.reset()
    assert read_decision(log, open_decider) is None
    assert counting.counts() == {"get": 2, "list": 1, "names": 1}

    driver.send("t", "x")
    driver.commit()
    counting.reset()
    found = read_decision(log, open_decider)
    assert found is not None
    assert (found.is_committed, found.is_finished) == (True, False)
    assert counting.counts() == {"get": 2, "list": 1, "names": 2}


def test_deciding_an_open_transaction_costs_five_requests() -> None:
    driver = a_session()
    counting = CountingStore(driver.cluster.store)
    decide(a_cluster(counting, driver.cluster.clock), driver.session.decider, reason=WHY, timeout_ms=TIMEOUT_MS)
    counts = counting.counts()
    counts.pop("sync", None)
    assert counts == {"get": 3, "list": 1, "create": 1}
    assert states(driver.cluster) == ["Empty", "PrepareAbort"]
