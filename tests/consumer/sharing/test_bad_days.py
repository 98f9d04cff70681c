"""Share consumers on bad days: crashes, lost answers and interrupts at each call. Nothing is lost, and an
acknowledgement that was reported as done counts."""

from contextlib import suppress

import pytest

from sparklog import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from sparklog.errors import CommitStateUnknownError, SparklogError, StoreError
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from tests.depth import each_nth
from tests.support import T0_MS

P0 = TopicPartition("t", 0)
SETTINGS = {"group_id": "g", "share_auto_offset_reset": "earliest", "share_heartbeat_interval_ms": 1_000}
RECORDS = 6


@pytest.fixture
def clock():
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def memory(clock):
    store = MemoryStore(clock=clock)
    cluster = open_cluster(store, clock=clock)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 1)])
    with Producer(cluster) as producer:
        for number in range(RECORDS):
            producer.send("t", b"%d" % number)
    return store


def member(store, clock, **settings):
    return ShareConsumer("t", cluster=open_cluster(store, clock=clock), **{**SETTINGS, **settings})


def work(consumer, done, *, polls=5):
    """Accept records two by two; ``done`` has those whose acknowledgement was reported as done."""
    consumer.set_acknowledgement_commit_callback(lambda outcomes: None)
    for _ in range(polls):
        offsets = [record.offset for records in consumer.poll(max_records=2).values() for record in records]
        if consumer.commit_sync(1_000) == {P0: None}:
            done += offsets


def drained(store, clock):
    """Records that another member gets once every lock is over: offset to delivery count."""
    consumer = member(store, clock, share_acknowledgement_mode="explicit")
    found = {}
    for _ in range(40):
        for records in consumer.poll().values():
            for record in records:
                found[record.offset] = record.delivery_count
                consumer.acknowledge(record)
        clock.advance(1_900)
    consumer.close()
    return found


@pytest.mark.parametrize("fault", each_nth(crashes(40), 2), ids=lambda fault: f"{fault.kind.name}-{fault.at}")
def test_a_member_that_dies_at_any_call_loses_no_record(memory, clock, fault):
    store = FaultyStore(memory, fault, clock=clock)
    done: list[int] = []
    with suppress(SimulatedCrash):  # later calls than there are
        work(member(store, clock), done)
    again = drained(memory, clock)
    assert not set(done) & again.keys()
    in_doubt = set(range(RECORDS)) - {*done, *again}
    assert len(in_doubt) <= 2  # those of the commit that was under way: it may have counted


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.FALSE_REFUSAL])
@pytest.mark.parametrize("at", each_nth(range(12, 40), 3))
def test_an_answer_that_is_lost_changes_nothing(memory, clock, kind, at):
    consumer = member(FaultyStore(memory, Fault(kind=kind, at=at), clock=clock), clock)
    done: list[int] = []
    with suppress(StoreError):
        work(consumer, done, polls=8)
    work(consumer, done, polls=8)
    consumer.close()
    again = drained(memory, clock)
    assert not set(done) & again.keys()
    assert {*done, *again} == set(range(RECORDS))


def test_a_store_that_is_away_while_acknowledgements_are_sent(memory, clock):
    """They are unknown, and settled once it is back."""
    is_away: list[bool] = []
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), when=lambda call: bool(is_away))
    away = Fault(kind=FaultKind.THROTTLED, when=lambda call: bool(is_away), times=None)
    consumer = member(FaultyStore(memory, lost, away, clock=clock), clock)
    assert len(consumer.poll(max_records=2)[P0]) == 2
    is_away.append(True)
    [error] = consumer.commit_sync(2_000).values()
    assert isinstance(error, CommitStateUnknownError)
    is_away.clear()
    assert consumer.commit_sync() == {P0: None}
    consumer.close()
    assert drained(memory, clock).keys() == {2, 3, 4, 5}


def test_a_poll_that_fails_gives_back_what_it_had_acquired(memory, clock, monkeypatch):
    consumer = member(memory, clock)

    def fail(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(consumer._runtime), "_records", fail)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(max_records=2)
    found = consumer.poll(max_records=2)[P0] + consumer.poll(max_records=2)[P0]
    # Nobody has seen the first two: they aren't accepted.
    assert [(record.offset, record.delivery_count) for record in found] == [(2, 1), (3, 1), (0, 2), (1, 2)]


def test_a_member_that_sleeps_beyond_a_cleanup(memory, clock):
    """What it acknowledges then is refused or unknown, and its records are delivered again."""
    sleeper = member(memory, clock, share_acknowledgement_mode="explicit")
    given = sleeper.poll(max_records=2)[P0]
    again = drained(memory, clock)
    assert again == {**dict.fromkeys(range(RECORDS), 1), 0: 2, 1: 2}
    for record in given:
        sleeper.acknowledge(record, AcknowledgeType.ACCEPT)
    clock.advance(3_600_000)
    [error] = sleeper.commit_sync().values()
    assert isinstance(error, SparklogError)
    assert sleeper.poll() == {}


def test_a_renewal_whose_answer_was_lost_counts_under_its_own_number(memory, clock):
    """Others have gone on meanwhile: the lock is the number of the entry that renewed it, not the newest."""
    is_away: list[bool] = []
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), when=lambda call: bool(is_away))
    away = Fault(kind=FaultKind.THROTTLED, when=lambda call: bool(is_away), times=None)
    consumer = member(FaultyStore(memory, lost, away, clock=clock), clock, share_acknowledgement_mode="explicit")
    [record, _] = consumer.poll(max_records=2)[P0]
    other = member(memory, clock)
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    consumer.acknowledge(P0, AcknowledgeType.ACCEPT, offset=1)
    is_away.append(True)
    [error] = consumer.commit_sync(2_000).values()
    assert isinstance(error, CommitStateUnknownError)
    [error] = consumer.commit_sync(2_000).values()  # it still isn't known
    assert isinstance(error, CommitStateUnknownError)
    is_away.clear()
    assert len(other.poll(max_records=2)[P0]) == 2
    assert other.commit_sync() == {P0: None}
    partition = consumer._runtime._open["t"].partitions[0]
    partition.look()
    assert consumer.commit_sync() == {P0: None}
    consumer.acknowledge(record)
    assert consumer.commit_sync() == {P0: None}
    consumer.close()
    other.close()
    assert drained(memory, clock).keys() == {4, 5}
