"""Damage to transactions, each kind planted: it is found, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.delta.actions import SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path
from sparklog.integrity import Code, check_cluster
from sparklog.log import Cluster, delete_topic
from sparklog.log.publishing import Marker, publish_transaction
from sparklog.log.state import load_state
from sparklog.paths import transaction_entry
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.cleaning import KEEP_MS
from sparklog.txn.entries import TopicFiles, append_entry
from sparklog.txn.states import TransactionState
from tests.compaction.support import live
from tests.integrity.support import (
    a_full_world,
    codes,
    edit_entry,
    found,
    infos,
    seen,
    uploaded,
)
from tests.support import a_writer, append, resealed
from tests.txn.support import ID, TIMEOUT_MS, Driver, a_log, a_world


def a_quiet_world(transactions: int = 2) -> tuple[MemoryStore, ManualClock, Cluster, Driver]:
    """Topics ``t`` and ``u`` after transactions of two records each; each takes two entries."""
    memory, clock, cluster = a_world()
    driver = Driver(cluster).init()
    for number in range(transactions):
        clock.advance(1_000)
        driver.begin()
        driver.send("t", f"{number}")
        driver.send("u", f"{number}")
        driver.send_offset(number)
        driver.commit()
        driver.complete()
    driver.session.close()
    return memory, clock, cluster, driver


def edit(cluster: Cluster, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    path = transaction_entry(ID, number)
    body = json.loads(cluster.store.read(path))
    change(body)
    cluster.store.put(path, resealed(json.dumps(body).encode()))


def add_entry(cluster: Cluster, state: TransactionState) -> None:
    """The next entry of the id's log, without doing what it says."""
    newest, position = a_log(cluster).open_newest()
    assert newest is not None
    entry = newest.follow(state, contents=newest.contents, now_ms=cluster.clock.now_ms())
    append_entry(a_log(cluster), position, entry, tokens=set(), deadline=cluster.clock.deadline_in(TIMEOUT_MS))


def test_transactions_that_are_whole_are_counted() -> None:
    _, _, cluster, _ = a_quiet_world(3)
    report = check_cluster(cluster)
    assert codes(report) == set()
    assert (report.counts.transactional_ids, report.counts.transactions) == (1, 3)


def test_a_missing_entry_is_found() -> None:
    memory, _, cluster, _ = a_quiet_world()
    memory.delete([transaction_entry(ID, 3)])
    assert found(cluster) == {"transaction-log-gap"}


def test_what_a_cleaning_that_was_killed_left_is_no_gap() -> None:
    """It deletes in no order what nobody needs any more (rule T6)."""
    memory, clock, cluster, driver = a_quiet_world(3)
    clock.advance(KEEP_MS)
    driver.begin()
    driver.send("t", "x")
    driver.commit()
    driver.complete()
    memory.delete([transaction_entry(ID, number) for number in (2, 4, 5)])
    assert found(cluster) == set()
    memory.delete([transaction_entry(ID, 8)])  # which is young
    assert found(cluster) == {"transaction-log-gap"}


def test_a_garbled_entry_is_found() -> None:
    memory, _, cluster, _ = a_quiet_world()
    memory.put(transaction_entry(ID, 3), b"{")
    assert found(cluster) == {"transaction-unreadable"}


def test_an_entry_that_does_not_follow_is_found() -> None:
    _, _, cluster, _ = a_quiet_world()
    edit(cluster, 5, lambda body: body.update(state="CompleteAbort"))
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-step"}
    assert seen(report, Code.TRANSACTION_STEP) == ["entry 5 is CompleteAbort"]
    edit(cluster, 5, lambda body: body.update(state="CompleteCommit", previous="another"))
    assert found(cluster) == {"transaction-step"}
    edit(cluster, 5, lambda body: body.update(previous=newest_before(cluster), producer_epoch=9))
    assert found(cluster) == {"transaction-step"}


def newest_before(cluster: Cluster) -> str:
    entry = a_log(cluster).read_entry(4)
    assert entry is not None
    return entry.token


def test_a_decision_that_is_left_lying_is_a_warning() -> None:
    """Its producer died between two topics."""
    _, clock, cluster, _ = a_quiet_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "half")
    driver.send("u", "half")
    named = {topic: named_files(driver, topic) for topic in ("t", "u")}
    marker = driver.session.commit(named, deadline=driver.deadline)
    driver.writers["t"].publish(driver.files["t"], marker, known_version=0, deadline=driver.deadline)
    assert found(cluster) == set()  # it is under way
    clock.advance(6_000)
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-unfinished"}
    assert seen(report, Code.TRANSACTION_UNFINISHED)[0].startswith("transaction 7 was committed 6 s ago")


def named_files(driver: Driver, topic: str) -> TopicFiles:
    return TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(driver.files[topic]))


def test_a_commit_that_was_called_complete_too_early_is_found() -> None:
    """The worst there is: half of a transaction."""
    _, _, cluster, _ = a_quiet_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "half")
    driver.send("u", "half")
    named = {topic: named_files(driver, topic) for topic in ("t", "u")}
    marker = driver.session.commit(named, deadline=driver.deadline)
    driver.writers["t"].publish(driver.files["t"], marker, known_version=0, deadline=driver.deadline)
    add_entry(cluster, TransactionState.COMPLETE_COMMIT)
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-not-visible"}
    assert [one.subject.topic for one in report.errors] == ["u"]


def test_a_commit_that_a_topic_skipped_is_found_behind_a_later_one() -> None:
    _, _, cluster, _ = a_quiet_world(3)
    version = next(v for v in range(1, 4) if marker_number(cluster, "u", v) == 4)

    def forget(lines: list[dict[str, Any]]) -> None:
        lines[:] = [line for line in lines if not line.get("txn", {}).get("appId", "").startswith("txn:")]
        lines[0]["commitInfo"]["sparklog"]["actions"] -= 1

    edit_entry(cluster.topic_log("u"), version, forget)
    assert found(cluster) == {"transaction-not-visible"}


def marker_number(cluster: Cluster, topic: str, version: int) -> int:
    entry = cluster.topic_log(topic).read_entry(version)
    assert entry is not None
    found = [one for one in entry.actions if isinstance(one, SetTransaction) and one.app_id == f"txn:{ID}"]
    return found[0].version if found else -1


def test_what_an_aborted_transaction_left_in_a_topic_is_found() -> None:
    _, _, cluster, _ = a_quiet_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.abort()
    log = cluster.topic_log("t")
    state = load_state(log)
    marker = Marker(transactional_id=ID, number=7)
    files = [uploaded(log, "never")]
    publish_transaction(state, state.head.topic_id, files, marker, deadline=driver.deadline, sync=False)
    driver.session.close()
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-not-committed"}
    assert "whose entry is PrepareAbort" in seen(report, Code.TRANSACTION_NOT_COMMITTED)[0]


def test_what_no_entry_decided_is_found() -> None:
    _, _, cluster, driver = a_quiet_world()
    log = cluster.topic_log("t")
    for name, number in ((ID, 90), ("nobody", 2)):
        state = load_state(log)
        publish_transaction(
            state,
            state.head.topic_id,
            [uploaded(log, "never")],
            Marker(transactional_id=name, number=number),
            deadline=driver.deadline,
            sync=False,
        )
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-not-committed"}
    assert [one.subject.transactional_id for one in report.errors] == [ID, "nobody"]


def test_records_that_differ_from_what_was_decided_are_found() -> None:
    _, _, cluster, _ = a_quiet_world()
    edit(cluster, 4, lambda body: body["topics"]["t"]["files"][0].__setitem__(2, 5))
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-differs"}


def test_a_transaction_that_is_there_twice_is_found() -> None:
    _, _, cluster, driver = a_quiet_world()
    log = cluster.topic_log("t")
    state = load_state(log)
    state.transactions.clear()  # as a helper would that doesn't know the marker (rule L5)
    again = [uploaded(log, "1")]
    marker = Marker(transactional_id=ID, number=4)
    publish_transaction(state, state.head.topic_id, again, marker, deadline=driver.deadline, sync=False)
    assert found(cluster) == {"transaction-differs"}


def test_a_transaction_whose_topic_is_gone_is_told() -> None:
    _, _, cluster, _ = a_quiet_world()
    delete_topic(cluster.topic_log("u"), "u")
    assert found(cluster) == set()
    assert "transaction-topic-gone" in infos(cluster)


def test_a_session_past_its_time_out_is_a_warning() -> None:
    _, clock, cluster, _ = a_quiet_world()
    driver = Driver(cluster).init()
    driver.begin()
    clock.advance(TIMEOUT_MS + TIMEOUT_MS // 2)
    assert found(cluster) == set()
    clock.advance(1)
    assert found(cluster) == {"transaction-timed-out"}
    driver.session.close()
    assert found(cluster) == set()


def test_transactions_whose_entries_and_versions_were_cleaned_are_not_missed() -> None:
    memory, _, cluster, _ = a_quiet_world(4)
    log = cluster.topic_log("t")
    write_checkpoint(log)
    memory.delete([transaction_entry(ID, number) for number in range(1, 5)])
    append(a_writer(log), "later")
    memory.delete([entry_path(log.table, version) for version in range(4)])
    assert found(cluster) == set()


def test_a_stray_entry_is_nothing() -> None:
    memory, clock, cluster, _ = a_quiet_world(4)
    stray = memory.read(transaction_entry(ID, 2))
    memory.delete([transaction_entry(ID, number) for number in range(1, 6)])
    clock.advance(1_000)
    for number in (2, 5):
        memory.put(transaction_entry(ID, number), stray)
        assert found(cluster) == set()


@pytest.mark.slow
def test_damage_beside_all_else_is_found_alone() -> None:
    _, _, cluster = a_full_world()
    log = cluster.topic_log("t")
    path = live(log, 1)[0].path
    cluster.store.delete([f"topics/t/{path}"])
    assert found(cluster) == {"file-missing"}
    [finding] = check_cluster(cluster).errors
    assert (finding.subject.topic, finding.subject.partition) == ("t", 1)
