"""Share consumers: what is delivered to whom, how often, and what acknowledgements do."""

import threading

import pytest

from sparklog import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from sparklog.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRecordStateError,
    InvalidTopicError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.support import T0_MS

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
P0 = TopicPartition("t", 0)


class Stage:
    """A topic, and members of one group on a clock that the test moves."""

    def __init__(self, *, partitions=1, **schema):
        self.clock = ManualClock(start_ms=T0_MS)
        self.cluster = open_cluster(MemoryStore(clock=self.clock), clock=self.clock)
        with Admin(self.cluster) as admin:
            admin.create_topics([NewTopic("t", partitions, **schema)])

    def send(self, *values, partition=0, topic="t"):
        with Producer(self.cluster) as producer:
            for value in values:
                producer.send(topic, value, partition=partition)

    def member(self, *topics, **settings):
        settings = {"share_auto_offset_reset": "earliest", "group_id": "g", **settings}
        return ShareConsumer(*(topics or ("t",)), cluster=self.cluster, **settings)

    def explicit(self, **settings):
        return self.member(share_acknowledgement_mode="explicit", **settings)


@pytest.fixture
def stage():
    return Stage()


def values(found):
    return [record.value for records in found.values() for record in records]


def counts(found):
    return [(record.offset, record.delivery_count) for records in found.values() for record in records]


def test_members_of_a_group_share_the_records_of_one_partition(stage):
    stage.send(b"a", b"b", b"c", b"d")
    first, second = stage.member(), stage.member()
    assert values(first.poll(max_records=2)) == [b"a", b"b"]
    assert values(second.poll(max_records=3)) == [b"c", b"d"]
    assert first.poll() == {} == second.poll()
    third = stage.member()
    assert third.poll() == {}
    assert values(stage.member(group_id="h").poll()) == [b"a", b"b", b"c", b"d"]


def test_the_next_poll_accepts_what_the_last_one_returned(stage):
    stage.send(b"a", b"b", b"c")
    member = stage.member()
    assert counts(member.poll(max_records=2)) == [(0, 1), (1, 1)]
    assert counts(member.poll()) == [(2, 1)]
    member.close()  # what wasn't accepted is released
    assert counts(stage.member().poll()) == [(2, 2)]


def test_a_commit_accepts_it_too_and_says_so(stage):
    stage.send(b"a")
    member = stage.member()
    seen: list[object] = []
    member.set_acknowledgement_commit_callback(seen.append)
    assert member.commit_sync() == {}
    member.poll()
    assert member.commit_sync() == {P0: None}
    assert seen == [{P0: None}]
    member.close()
    assert stage.member().poll() == {}


def test_acknowledgements_of_each_kind(stage):
    stage.send(b"accept", b"release", b"reject", b"renew")
    member = stage.explicit()
    for record in values_of(member.poll()):
        member.acknowledge(record, AcknowledgeType[record.value.decode().upper()])
    again = member.poll()
    assert counts(again) == [(1, 2)]
    stage.clock.advance(31_000)
    [released] = values_of(again)
    member.acknowledge(released)
    with pytest.raises(IllegalStateError, match="1 records of the last poll weren't acknowledged"):
        member.poll()  # the renewed one
    member.acknowledge(P0, offset=3)
    assert member.commit_sync() == {P0: None}
    member.close()
    assert stage.member().poll() == {}


def values_of(found):
    return [record for records in found.values() for record in records]


def test_a_record_is_delivered_as_often_as_is_allowed(stage):
    stage.send(b"poison", b"good")
    member = stage.explicit(group_share_delivery_count_limit=3)
    seen: list[tuple[bytes, int]] = []
    for _ in range(5):
        for record in values_of(member.poll()):
            seen.append((record.value, record.delivery_count))
            member.acknowledge(record, ACCEPT if record.value == b"good" else RELEASE)
    assert seen == [(b"poison", 1), (b"good", 1), (b"poison", 2), (b"poison", 3)]


def test_a_lock_that_is_over_is_taken_by_another_member(stage):
    stage.send(b"a", b"b")
    slow, other = stage.explicit(), stage.explicit()
    given = values_of(slow.poll())
    for _ in range(9):  # 27 s: other sees the lock for 27 s at most
        assert other.poll() == {}
        stage.clock.advance(3_000)
    stage.clock.advance(4_000)
    assert other.poll() == {}  # this look shows that it is over, or the next one
    stage.clock.advance(4_000)
    assert counts(other.poll()) == [(0, 2), (1, 2)]
    for record in given:
        slow.acknowledge(record)
    [(at, error)] = slow.commit_sync().items()
    assert at == P0
    assert isinstance(error, InvalidRecordStateError)
    assert "offsets 0 to 1 of t-0 are not held" in str(error)
    for record in (0, 1):
        other.acknowledge(P0, offset=record)
    assert other.commit_sync() == {P0: None}


def test_metrics_count_what_was_consumed_and_acknowledged(stage):
    stage.send(b"a", b"b", b"c")
    member, other = stage.explicit(), stage.explicit()
    none = member.metrics()
    assert none["consumer-share-metrics"]["last-poll-seconds-ago"] == -1
    assert none["consumer-share-fetch-manager-metrics"]["records-consumed-total"] == 0
    for record, kind in zip(values_of(member.poll(max_records=3)), (ACCEPT, REJECT, RELEASE), strict=True):
        member.acknowledge(record, kind)
    [late] = values_of(member.poll())
    for _ in range(12):  # its lock is over
        stage.clock.advance(4_000)
        taken = other.poll()
        if taken:
            break
    assert counts(taken) == [(2, 3)]
    member.acknowledge(late)
    assert isinstance(member.commit_sync()[P0], InvalidRecordStateError)
    groups = member.metrics()
    records = groups["consumer-share-fetch-manager-metrics"]
    assert (records["records-consumed-total"], records["fetch-total"]) == (4, 2)
    assert (records["records-per-request-avg"], records["records-per-request-max"]) == (2, 3)
    assert records["bytes-consumed-total"] == 2 * records["fetch-size-avg"] > 4
    assert (records["acknowledgements-send-total"], records["acknowledgements-error-total"]) == (4, 1)
    assert groups["consumer-share-coordinator-metrics"]["heartbeat-total"] == 2  # of the first poll and the commit
    assert groups["consumer-share-metrics"]["last-poll-seconds-ago"] >= 30
    member.close()
    assert member.metrics()["consumer-share-fetch-manager-metrics"]["records-consumed-total"] == 4


def test_a_lock_of_a_clock_that_jumps_is_not_over(stage):
    """A process that was suspended for an hour has seen nothing."""
    stage.send(b"a")
    slow, other = stage.explicit(), stage.explicit()
    slow.poll()
    assert other.poll() == {}
    stage.clock.advance(3_600_000)
    assert other.poll() == {}


def test_locks_of_a_member_that_left_or_died_go_at_once(stage):
    stage.send(b"a")
    gone, other = stage.explicit(share_record_lock_duration_ms=3_600_000), stage.explicit()
    gone.poll()
    other.poll()
    gone._runtime._member.leave()  # it dies later, somebody deleted its objects
    for _ in range(3):
        stage.clock.advance(5_000)
        found = other.poll()
        if found:
            break
    assert counts(found) == [(0, 2)]


def test_a_slow_member_holds_up_no_other_records(stage):
    """Its partition is served by whoever has nothing to do."""
    stage = Stage(partitions=2)
    slow, other = stage.explicit(), stage.explicit()
    slow.poll(), other.poll(), slow.poll()
    for partition in (0, 1):
        stage.send(*[b"%d" % n for n in range(6)], partition=partition)
    assert len(values(slow.poll(max_records=2))) == 2
    seen = 0
    for _ in range(12):
        stage.clock.advance(600)
        found = values_of(other.poll(max_records=2))
        seen += len(found)
        for record in found:
            other.acknowledge(record)
    assert seen == 10


@pytest.mark.parametrize(
    ("policy", "seen"), [("latest", [b"new"]), ("earliest", [b"old", b"new"]), ("by_duration:PT1H", [b"new"])]
)
def test_where_a_group_begins(stage, policy, seen):
    stage.send(b"old")
    stage.clock.advance(7_200_000)
    member = stage.member(share_auto_offset_reset=policy)
    found = values(member.poll())
    stage.send(b"new")
    assert found + values(member.poll()) == seen


def test_the_first_member_settles_where_the_group_begins(stage):
    stage.member(share_auto_offset_reset="latest").poll()
    stage.send(b"a")
    assert values(stage.member(share_auto_offset_reset="latest").poll()) == [b"a"]


def test_partitions_that_come_later_are_taken_from_their_beginning(stage):
    member = stage.member(share_auto_offset_reset="latest")
    member.poll()
    with Admin(stage.cluster) as admin:
        admin.create_partitions({"t": 2})
    stage.send(b"a", partition=1)
    assert values(member.poll(1_000)) == [b"a"]


def test_a_topic_made_anew_is_another_one(stage):
    stage.send(b"a", b"b")
    member = stage.explicit()
    old = values_of(member.poll(max_records=1))
    with Admin(stage.cluster) as admin:
        admin.delete_topics(["t"])
    with pytest.raises(UnknownTopicOrPartitionError):
        stage.member().poll()
    with Admin(stage.cluster) as admin:
        admin.create_topics([NewTopic("t", 1)])
    stage.send(b"c", b"d")
    member.acknowledge(old[0])
    seen = []
    for _ in range(4):
        stage.clock.advance(600)
        found = values_of(member.poll())
        seen += [(record.value, record.delivery_count) for record in found]
        for record in found:
            member.acknowledge(record)
    assert seen == [(b"c", 1), (b"d", 1)]


def test_a_topic_made_anew_with_fewer_partitions():
    stage = Stage(partitions=3)
    stage.send(b"a", partition=2)
    member = stage.explicit()
    [old] = values_of(member.poll())
    with Admin(stage.cluster) as admin:
        admin.delete_topics(["t"])
        admin.create_topics([NewTopic("t", 1)])
    stage.send(b"b")
    member.acknowledge(old)
    seen: list[bytes] = []
    for _ in range(5):
        stage.clock.advance(600)
        found = values_of(member.poll())
        seen += [record.value for record in found]
        for record in found:
            member.acknowledge(record)
    assert seen == [b"b"]


def test_what_retention_deleted_is_passed_over(stage):
    stage.send(b"a", b"b", b"c")
    member = stage.explicit()
    [first] = values_of(member.poll(max_records=1))
    with Admin(stage.cluster) as admin:
        admin.delete_records({P0: 2})
    member.acknowledge(first)
    assert values(member.poll()) == [b"c"]


def test_deserializers_and_a_record_that_fails(stage):
    stage.send(b"1", b"x", b"3")
    member = stage.explicit(value_deserializer=lambda data: int(data), group_share_delivery_count_limit=2)
    found = values_of(member.poll())
    assert [record.value for record in found] == [1, 3]
    for record in found:
        member.acknowledge(record)
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="offset 1"):
            member.poll()
    for _ in range(3):
        assert member.poll() == {}  # archived


def test_values_of_a_typed_topic():
    stage = Stage(value_schema="id BIGINT")
    stage.send({"id": 7})
    assert values(stage.member(value_format="python").poll()) == [{"id": 7}]
    assert values(stage.member(group_id="h").poll()) == [b'{"id":7}']


def test_more_records_than_may_be_in_flight(stage):
    stage.send(*[b"%d" % n for n in range(10)])
    members = [stage.explicit(group_share_partition_max_record_locks=4) for _ in range(2)]
    found = values_of(members[0].poll())
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert members[1].poll() == {}
    for record in found:
        members[0].acknowledge(record)
    assert len(values(members[0].poll())) == 4


def test_a_wakeup_ends_a_poll(stage):
    member = stage.member()
    member.wakeup()
    with pytest.raises(WakeupError):
        member.poll(10_000)
    threading.Timer(0.05, member.wakeup).start()
    with pytest.raises(WakeupError):
        member.poll(3_600_000_000)


def test_wrong_calls(stage):
    member = stage.member()
    stage.send(b"a")
    [record] = values_of(member.poll())
    member.acknowledge(record)
    member.poll()
    for call, error, text in (
        (lambda: member.acknowledge(record), IllegalStateError, "offset 0 of t-0 isn't in hand"),
        (lambda: member.acknowledge(P0), TypeError, "expected a record, or a partition and an offset"),
        (lambda: member.acknowledge(record, "accept"), TypeError, "expected an AcknowledgeType"),
        (lambda: member.subscribe("t"), TypeError, "expected a list of names"),
        (lambda: member.subscribe(["a b"]), InvalidTopicError, "a b"),
        (lambda: stage.member(group_id=""), InvalidConfigurationError, "group_id"),
        (lambda: stage.member(auto_offset_reset="x"), InvalidConfigurationError, "unknown share consumer setting"),
        (lambda: stage.member(share_auto_offset_reset="none"), InvalidConfigurationError, "expected earliest"),
        (lambda: stage.member("nosuch").poll(), UnknownTopicOrPartitionError, "nosuch"),
    ):
        with pytest.raises(error, match=text):
            call()
    member.unsubscribe()
    with pytest.raises(IllegalStateError, match="nothing is subscribed"):
        member.poll()
    member.close()
    member.close()
    with pytest.raises(IllegalStateError, match="closed"):
        member.poll()


def test_a_member_that_renews_locks_and_takes_no_more_keeps_them(stage):
    """It is at work for longer than its session: that it lives is seen by its commits."""
    stage.send(b"a")
    first, second = stage.explicit(), stage.explicit()
    [record] = first.poll()[P0]
    for _ in range(24):
        stage.clock.advance(5_000)
        first.acknowledge(record, RENEW)
        assert first.commit_sync() == {P0: None}
        assert second.poll() == {}
    first.acknowledge(record)
    assert first.commit_sync() == {P0: None}
