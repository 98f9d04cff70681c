"""Which transactional ids have something open or undecided, for few requests."""

from __future__ import annotations

import pytest

from sparklog import Admin
from sparklog.log import create_topic
from sparklog.observe import ClusterFigures, ClusterWatch, TransactionFigures
from sparklog.txn.states import TransactionState
from tests.observe.support import Watched, watched
from tests.observe.test_cluster_watch import LISTINGS
from tests.txn.support import ID, TIMEOUT_MS, Driver, a_world


@pytest.fixture
def here() -> Watched:
    return watched()


def the_one(figures: ClusterFigures) -> TransactionFigures:
    (found,) = figures.transactions
    assert found.transactional_id == ID
    return found


def test_a_transaction_is_open_decided_and_complete(here: Watched) -> None:
    for name in ("t", "u"):
        create_topic(here.cluster.topic_log(name), name)
    watch = ClusterWatch(here.cluster)
    assert watch.look().transactions == ()
    driver = Driver(here.cluster).init()
    driver.begin()
    opened = the_one(watch.look())
    assert opened.state is TransactionState.ONGOING
    driver.session.commit({}, deadline=driver.deadline)
    decided = the_one(watch.look())
    assert decided.state is TransactionState.PREPARE_COMMIT
    assert not decided.is_overdue(now_ms=here.clock.now_ms())
    assert decided.is_overdue(now_ms=here.clock.now_ms() + 60_001)
    driver.session.complete(deadline=driver.deadline)
    here.requests()
    assert the_one(watch.look()).state in (TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT)


def test_an_open_transaction_is_overdue_where_offsets_wait_for_it() -> None:
    _, clock, cluster = a_world()
    watch = ClusterWatch(cluster)
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "a")
    clock.advance(2 * TIMEOUT_MS)
    idle = the_one(watch.look())
    assert (idle.state, idle.pending_count) == (TransactionState.ONGOING, 0)
    assert not idle.is_overdue(now_ms=clock.now_ms() + 100 * TIMEOUT_MS)
    driver.begin()
    driver.send_offset(6)
    opened = the_one(watch.look())
    assert (opened.state, opened.pending_count) == (TransactionState.ONGOING, 1)
    assert not opened.is_overdue(now_ms=clock.now_ms() + TIMEOUT_MS)
    assert opened.is_overdue(now_ms=clock.now_ms() + 2 * TIMEOUT_MS)
    driver.commit()
    driver.complete()
    clock.advance(2 * TIMEOUT_MS)
    done = the_one(watch.look())
    assert done.pending_count == 0
    assert not done.is_overdue(now_ms=clock.now_ms())


def test_an_id_in_which_nothing_may_be_open_costs_nothing(here: Watched) -> None:
    create_topic(here.cluster.topic_log("t"), "t")
    create_topic(here.cluster.topic_log("u"), "u")
    Driver(here.cluster).init()
    watch = ClusterWatch(here.cluster)
    watch.look()
    here.requests()
    watch.look()
    assert here.requests() == 1 + 2 + LISTINGS
    here.clock.advance(3 * TIMEOUT_MS)
    with Admin(here.cluster) as admin:
        admin.recover_transactions()
    watch.look()
    for marker in [*here.memory.list("transactions-open/")]:
        here.memory.delete([marker.path])
    watch.look()
    here.requests()
    assert not the_one(watch.look()).is_overdue(now_ms=here.clock.now_ms())
    assert here.requests() == 2 + LISTINGS


def test_an_id_whose_log_cannot_be_read_is_named(here: Watched) -> None:
    create_topic(here.cluster.topic_log("t"), "t")
    create_topic(here.cluster.topic_log("u"), "u")
    Driver(here.cluster).init()
    for entry in [*here.memory.list("transactions/")]:
        here.memory.put(entry.path, b"{torn")
    figures = ClusterWatch(here.cluster).look()
    assert figures.transactions == ()
    assert [(one.kind, one.name) for one in figures.problems] == [("transaction", ID)]
    assert len(figures.topics) == 2
