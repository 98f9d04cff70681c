"""What watches the simulated worlds sees what it is to see."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from sparklog.paths import transaction_entry
from sparklog.storage import MemoryStore
from sparklog.txn.entries import Header, TransactionEntry, encode_transaction, first_entry, next_header
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState
from tests.simulation.cluster.watching import Watch, WatchedStore


class Log:
    """Of one transactional id, as processes write it before a watch."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()
        self.watch = Watch(self.told.append, now_ms=lambda: self.now_ms, counts=self.counts)
        self.store = MemoryStore()

    def create(self, who: str, entry: TransactionEntry) -> TransactionEntry:
        token = f"{who}{entry.version}"
        store = WatchedStore(self.store, who, self.watch)
        store.create(transaction_entry("x", entry.version), encode_transaction(entry, token))
        return replace(entry, token=token)


def an_epoch(log: Log, who: str, before: TransactionEntry | None = None) -> TransactionEntry:
    if before is None:
        return log.create(who, first_entry(Header(producer_id=1, producer_epoch=0, timeout_ms=1_000), now_ms=0))
    return log.create(who, before.follow(TransactionState.EMPTY, header=next_header(before.header), now_ms=0))


def test_whoever_lost_its_id_to_another_may_be_fenced_and_nobody_else():
    log = Log()
    first = an_epoch(log, "p")
    log.watch.check_fenced("p", "x")
    assert log.told == ["p was fenced, but nobody took x from it"]
    log.told.clear()
    an_epoch(log, "q", first)
    log.watch.check_fenced("p", "x")
    assert log.told == []


@pytest.mark.parametrize(("age_ms", "is_early"), [(998.0, True), (1_001.0, False)])
def test_a_time_out_before_its_time_is_told(age_ms, is_early):
    log = Log()
    first = an_epoch(log, "p")
    log.now_ms = age_ms
    log.create("r", first.follow(TransactionState.PREPARE_ABORT, reason=f"{TIMED_OUT} after …", now_ms=0))
    assert bool(log.told) is is_early


def test_an_entry_that_does_not_follow_is_told_and_a_stray_is_counted():
    log = Log()
    first = an_epoch(log, "p")
    second = an_epoch(log, "q", first)
    log.create("p", replace(second, version=3, previous="another"))
    assert log.told == ["transactions/x: entry 3 doesn't follow the one before it"]
    log.store.delete([transaction_entry("x", 1)])
    log.told.clear()
    an_epoch(log, "late")
    assert (log.told, log.counts["strays"]) == ([], 1)


def test_an_entry_that_is_created_again_is_told():
    log = Log()
    first = an_epoch(log, "p")
    log.store.delete([transaction_entry("x", 1)])
    log.create("q", first)
    assert log.told == [f"{transaction_entry('x', 1)} was the newest of its log, and is created again"]


def test_a_step_that_no_transaction_takes_is_told():
    log = Log()
    first = an_epoch(log, "p")
    log.create("p", replace(first, version=2, previous=first.token, state=TransactionState.COMPLETE_COMMIT))
    [told] = log.told
    assert told.startswith("transactions/x: a transaction that is Empty can't become CompleteCommit")
