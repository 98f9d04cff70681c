"""A store whose clock is hours ahead or behind, or is set meanwhile: nothing that was acknowledged goes early."""

from __future__ import annotations

import pytest

from sparklog.clock import Clock
from sparklog.compaction import maintain
from sparklog.errors import TransactionTimedOutError
from sparklog.log import Cluster, create_topic
from sparklog.log.state import load_state
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.recovery import recover_transactions
from tests.compaction.support import append_at
from tests.support import DAY_MS, T0_MS, a_writer
from tests.txn.support import ANN, TIMEOUT_MS, Driver, a_cluster, committed, data_files, take, values

HOUR_MS = 3_600_000
RETENTION_MS = HOUR_MS
HOURS = [-10, 10]
"""Of the store's clock, relative to the clients'."""


class StoreClock(Clock):
    """The clients' clock, but for the wall's time."""

    def __init__(self, clients: ManualClock, ahead_ms: int) -> None:
        self._clients = clients
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clients.now_ms() + self.ahead_ms

    def ticks_ms(self) -> float:
        return self._clients.ticks_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._clients.sleep_ms(duration_ms)


def a_skewed_world(hours: int, **configs: object) -> tuple[ManualClock, StoreClock, Cluster]:
    """A cluster with a topic of one partition, in a store whose clock is some hours ahead."""
    clock = ManualClock(start_ms=T0_MS)
    store_clock = StoreClock(clock, hours * HOUR_MS)
    cluster = a_cluster(MemoryStore(clock=store_clock), clock)
    create_topic(cluster.topic_log("t"), "t", configs=configs)
    return clock, store_clock, cluster


def maintain_all(cluster: Cluster) -> None:
    assert maintain(cluster, full=True).failures == []


@pytest.mark.parametrize("hours", HOURS)
def test_retention_takes_a_record_once_it_is_old_by_both_clocks(hours: int) -> None:
    clock, _, cluster = a_skewed_world(hours, **{"retention.ms": RETENTION_MS})
    append_at(a_writer(cluster.topic_log("t")), T0_MS, "a")
    maintain_all(cluster)
    clock.advance(RETENTION_MS)
    maintain_all(cluster)
    assert values(cluster, "t") == ["a"]
    clock.advance(1 + max(0, -hours) * HOUR_MS)
    maintain_all(cluster)
    assert load_state(cluster.topic_log("t")).head.log_start_offsets == (1,)
    assert len(data_files(cluster, "t")) == 1  # a reader may have it open


@pytest.mark.parametrize("hours", HOURS)
def test_a_transaction_is_timed_out_by_its_age_and_not_by_the_stores_hour(hours: int) -> None:
    clock, _, cluster = a_skewed_world(hours)
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    driver.send("t", "a")
    clock.advance(TIMEOUT_MS)
    assert [one.action.value for one in recover_transactions(cluster)] == ["nothing"]
    driver.commit()
    driver.complete()
    assert values(cluster, "t") == ["a"]


@pytest.mark.parametrize("hours", HOURS)
def test_a_transaction_commits_whole_or_not_at_all_if_the_stores_clock_is_set(hours: int) -> None:
    """Set forward, it makes the transaction look old: with offsets it is timed out, as its producer is told."""
    _, store_clock, cluster = a_skewed_world(0)
    create_topic(cluster.topic_log("in"), "in")
    take(cluster, ANN)
    first, second, third = (Driver(cluster, name, topics=("t",)).init() for name in ("first", "second", "third"))
    for driver in (first, second, third):
        driver.begin()
        driver.send("t", driver.transactional_id)
    third.send_offset(7)
    first.commit()
    first.complete()
    store_clock.ahead_ms = hours * HOUR_MS
    maintain_all(cluster)
    second.commit()
    second.complete()
    if hours > 0:
        with pytest.raises(TransactionTimedOutError):
            third.commit()
        assert (values(cluster, "t"), committed(cluster)) == (["first", "second"], None)
    else:
        third.commit()
        third.complete()
        assert (values(cluster, "t"), committed(cluster)) == (["first", "second", "third"], 7)


@pytest.mark.parametrize("hours", HOURS)
def test_a_sweep_spares_what_was_uploaded_before_the_stores_clock_was_set(hours: int) -> None:
    """By seven days at least: an upload that isn't committed yet is hours old at most."""
    clock, store_clock, cluster = a_skewed_world(0, **{"retention.ms": -1})
    writer = a_writer(cluster.topic_log("t"))
    left = "topics/t/partition=0/left.parquet"
    cluster.store.put(left, b"")
    clock.advance(6 * DAY_MS)
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    driver.send("t", "a")
    store_clock.ahead_ms = hours * HOUR_MS
    maintain_all(cluster)
    assert cluster.store.exists(left)
    if hours < 0:
        driver.commit()
        driver.complete()
        assert values(cluster, "t") == ["a"]
    clock.advance(2 * DAY_MS)
    maintain_all(cluster)
    assert not cluster.store.exists(left)
    append_at(writer, clock.now_ms(), "b")
    assert values(cluster, "t")[-1] == "b"
