"""The admin client: each call, bad input, and what it leaves alone."""

import pickle
from typing import Any

import pytest

from sparklog.admin import EARLIEST, HIGH_WATERMARK, LATEST, MAX_TIMESTAMP, Admin, ConfigEntry, NewPartitions, NewTopic
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    SparklogError,
    StorePermissionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import open_cluster, topic_names
from sparklog.log.topic import describe_topic
from sparklog.model import OffsetAndTimestamp, TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.support import T0_MS, a_writer, contents, foreign_commit, foreign_file, foreign_records, records, within


@pytest.fixture
def cluster():
    clock = ManualClock(start_ms=T0_MS)
    return open_cluster(MemoryStore(clock=clock), clock=clock)


@pytest.fixture
def admin(cluster):
    return Admin(cluster)


def fill(cluster, topic, *values, partition=0, timestamp_ms=T0_MS):
    writer = a_writer(cluster.topic_log(topic), topic=topic)
    files = writer.upload([(partition, records(*values, timestamp_ms=timestamp_ms))])
    writer.append(files, deadline=within(writer, 1_000))


# Creating and listing


def test_topics_are_created_listed_and_described(admin):
    created = admin.create_topics(
        [NewTopic("b", num_partitions=3, replication_factor=3, configs={"retention.ms": "5"}), NewTopic("a"), "c"]
    )
    assert list(created) == ["b", "a", "c"]
    assert admin.list_topics() == ["a", "b", "c"]
    assert admin.describe_topics() == [created["a"], created["b"], created["c"]]
    [b] = admin.describe_topics(["b"])
    assert (b.name, b.partition_count, dict(b.config.explicit)) == ("b", 3, {"retention.ms": 5})


@pytest.mark.parametrize(
    ("topic", "count", "settings"),
    [
        (NewTopic("t", -1, 1), 1, {}),
        (NewTopic("t", 2, 1, None, {"retention.ms": 5}), 2, {"retention.ms": 5}),
        (NewTopic("t", replica_assignments={0: [1, 2], 1: [2, 3]}), 2, {}),
        (NewTopic("t", topic_configs={"segment.ms": 6}), 1, {"segment.ms": 6}),
        (NewTopic("t", configs={"retention.ms": 5}, topic_configs={"segment.ms": 6}), 1, None),
    ],
)
def test_a_new_topic_may_be_spelled_as_in_kafka_python(admin, topic, count, settings):
    created = admin.create_topics([topic])["t"]
    assert created.partition_count == count
    assert dict(created.config.explicit) == (settings if settings is not None else {"retention.ms": 5, "segment.ms": 6})


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        ("a/b", InvalidTopicError, "'a/b'"),
        (NewTopic("ok", 0), InvalidPartitionsError, "'ok': got 0 partitions"),
        (NewTopic("ok", 10_001), InvalidPartitionsError, "10001"),
        (NewTopic("ok", True), InvalidPartitionsError, "True"),
        (NewTopic("ok", replica_assignments={1: [1]}), InvalidPartitionsError, "expected 0 to 0"),
        (NewTopic("ok", configs={"retention.mss": 1}), InvalidConfigurationError, "retention.mss"),
        (NewTopic("ok", configs={"retention.ms": "soon"}), InvalidConfigurationError, "retention.ms='soon'"),
        (NewTopic("ok", configs={"segment.ms": 1}, topic_configs={"segment.ms": 1}), InvalidArgumentError, "segment"),
        (7, InvalidArgumentError, "got 7"),
    ],
)
def test_one_bad_topic_among_many_is_named_and_none_is_created(admin, topic, error, message):
    for validate_only in (True, False):
        with pytest.raises(error, match=message):
            admin.create_topics([NewTopic("good"), topic], validate_only=validate_only)
    assert admin.list_topics() == []


def test_a_text_is_no_list_of_topics(admin):
    for call in (admin.create_topics, admin.describe_topics, admin.delete_topics):
        with pytest.raises(InvalidArgumentError, match="got the text 'orders', expected a list"):
            call("orders")
    with pytest.raises(InvalidArgumentError, match="given twice: a"):
        admin.create_topics(["a", "b", "a"])


def test_each_of_many_is_tried_and_the_first_failure_tells_of_the_others(admin):
    admin.create_topics(["b", "d"])
    with pytest.raises(TopicAlreadyExistsError, match=r"topic 'b' already exists \(done: a, c; also failed: d\)$"):
        admin.create_topics(["a", "b", "c", "d"])
    assert admin.list_topics() == ["a", "b", "c", "d"]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"\(done: a\)$"):
        admin.delete_topics(["nosuch", "a"])
    assert admin.list_topics() == ["b", "c", "d"]
    with pytest.raises(TopicAlreadyExistsError, match=r"exists$"):
        admin.create_topics(["b"])


def test_only_to_validate_creates_nothing(admin):
    admin.create_topics(["b"])
    assert admin.create_topics([NewTopic("a", 2)], validate_only=True) == {}
    with pytest.raises(TopicAlreadyExistsError, match="'b'"):
        admin.create_topics(["a", "b"], validate_only=True)
    assert admin.create_partitions({"b": 2}, validate_only=True) == {}
    with pytest.raises(InvalidPartitionsError, match="only grow"):
        admin.create_partitions({"b": 1}, validate_only=True)
    assert admin.alter_configs({"b": {"retention.ms": 5}}, validate_only=True) == {}
    with pytest.raises(InvalidConfigurationError, match="retention"):
        admin.alter_configs({"b": {"retention.ms": "x"}}, validate_only=True)
    assert [topic.delta_version for topic in admin.describe_topics()] == [0]


def test_creating_topics_makes_the_cluster_and_nothing_else_does():
    store = MemoryStore()
    admin = Admin(store)
    for look in (admin.list_topics, admin.describe_topics, lambda: admin.delete_topics(["t"])):
        with pytest.raises(InvalidArgumentError, match="no sparklog cluster at memory://"):
            look()
    assert admin.create_topics(["t"], validate_only=True) == {}
    assert list(store.list("")) == []
    for validate_only in (True, False):
        with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
            Admin(store, create=False).create_topics(["t"], validate_only=validate_only)
    admin.create_topics(["t"])
    assert admin.list_topics() == Admin(store, create=False).list_topics() == ["t"]


def test_an_admin_opens_a_folder(tmp_path):
    with Admin(tmp_path / "data") as admin:
        admin.create_topics(["t"])
    assert Admin(str(tmp_path / "data")).list_topics() == ["t"]
    with pytest.raises(InvalidArgumentError, match="unknown scheme ftp"):
        Admin("ftp://somewhere")
    with pytest.raises(InvalidConfigurationError, match="unknown admin setting 'linger_ms'"):
        Admin(tmp_path, linger_ms=5)


def test_deleted_topics_and_folders_that_are_no_topics_are_not_listed(admin, cluster):
    admin.create_topics(["a", "b", "c"])
    admin.delete_topics(["b", "b"])
    cluster.store.put("topics/not a topic/x", b"")
    cluster.store.put("topics/empty/x", b"")
    assert admin.list_topics() == topic_names(cluster) == ["a", "c"]
    with pytest.raises(UnknownTopicOrPartitionError, match="'b' was deleted"):
        admin.describe_topics(["a", "b"])
    admin.create_topics([NewTopic("b", 2)])
    assert admin.list_topics() == ["a", "b", "c"]


def test_a_topic_that_cannot_be_read_is_listed_and_describing_it_says_why(admin, cluster):
    admin.create_topics(["a", "b"])
    [entry] = [found.path for found in cluster.store.list("topics/a/") if found.path.endswith("0.json")]
    cluster.store.put(entry, b"no json")
    assert admin.list_topics() == ["a", "b"]
    with pytest.raises(CorruptLogError, match="topics/a"):
        admin.describe_topics(["a"])


def test_listing_costs_one_listing_and_a_look_at_each_topic():
    memory = MemoryStore()
    Admin(memory).create_topics([f"t{number}" for number in range(5)])
    store = CountingStore(memory)
    assert len(Admin(store).list_topics()) == 5
    assert store.counts()["list"] <= 1 + 5
    assert store.counts()["get"] <= 1 + 5 * 3


# Growing, settings, deleting


def test_partitions_grow(admin):
    admin.create_topics(["a", "b"])
    grown = admin.create_partitions({"a": 3, "b": NewPartitions(2, [[1]])})
    assert {name: topic.partition_count for name, topic in grown.items()} == {"a": 3, "b": 2}
    with pytest.raises(InvalidPartitionsError, match=r"'b' has 2 partitions, asked for 2.*\(done: a\)"):
        admin.create_partitions({"a": 4, "b": 2})
    for wrong in (-1, 0, "3", True, None):
        with pytest.raises(InvalidPartitionsError, match="'b': got"):
            admin.create_partitions({"a": 9, "b": wrong})
    assert admin.describe_topics(["a"])[0].partition_count == 4


def test_settings_are_described_and_altered_one_by_one(admin):
    admin.create_topics([NewTopic("t", configs={"retention.ms": 5})])
    admin.alter_configs({"t": {"segment.ms": "6"}})
    settings = admin.describe_configs(["t"])["t"]
    week = 7 * 86_400_000
    assert settings["retention.ms"] == ConfigEntry(value=5, default=week, is_default=False, provided_by_store=False)
    assert settings["segment.ms"].value == 6
    assert settings["min.insync.replicas"] == ConfigEntry(value=1, default=1, is_default=True, provided_by_store=True)
    assert list(settings) == sorted(settings)
    altered = admin.alter_configs({"t": {"retention.ms": None}})
    assert dict(altered["t"].config.explicit) == {"segment.ms": 6}


def test_a_bad_setting_of_one_topic_changes_no_other(admin):
    admin.create_topics(["a", "b"])
    with pytest.raises(InvalidConfigurationError, match="nosuch"):
        admin.alter_configs({"a": {"retention.ms": 5}, "b": {"nosuch": 1}})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.alter_configs({"a": {"retention.ms": 5}, "c": {"retention.ms": 5}})
    assert dict(admin.describe_topics(["a"])[0].config.explicit) == {}


def test_records_are_deleted_and_the_low_watermarks_told(admin, cluster):
    admin.create_topics([NewTopic("t", 2), "u"])
    fill(cluster, "t", "a", "b", "c")
    fill(cluster, "u", "a")
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    assert admin.delete_records({t0: 2, u0: HIGH_WATERMARK, t1: HIGH_WATERMARK}) == {t0: 2, u0: 1, t1: 0}
    assert admin.delete_records({("t", 0): 1}) == {t0: 2}
    assert admin.beginning_offsets([t0, u0]) == {t0: 2, u0: 1}
    assert admin.end_offsets([t0, t1]) == {t0: 3, t1: 0}
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0 before 4: expected 0 to 3"):
        admin.delete_records({t0: 4})
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7"):
        admin.delete_records({TopicPartition("t", 7): 0})
    admin.alter_configs({"t": {"cleanup.policy": "compact"}})
    with pytest.raises(PolicyViolationError, match=r"cleanup\.policy"):
        admin.delete_records({t0: 3})


# Offsets by time


def test_what_other_writers_added_is_sequenced_and_what_is_refused_is_told(admin, cluster):
    admin.create_topics([NewTopic("t", 2)])
    fill(cluster, "t", "a")
    log = cluster.topic_log("t")
    foreign_commit(log, foreign_file(log, foreign_records("b", "c")), foreign_file(log, foreign_records("d")))
    bad = foreign_file(log, foreign_records("e"), partition=9)
    foreign_commit(log, bad)
    result = admin.sequence("t")
    assert (result.sequenced_count, result.record_count) == (2, 3)
    assert result.refused == {bad.path: "its partition is 9, the topic has 0 to 1"}
    assert result.delta_version == admin.describe_topics(["t"])[0].delta_version
    assert contents(log)[0][0] == (0, "a")
    assert sorted(value for _, value in contents(log)[0]) == ["a", "b", "c", "d"]
    assert admin.sequence("t").sequenced_count == 0


def test_a_topic_that_is_not_there_is_not_sequenced(admin):
    with pytest.raises(UnknownTopicOrPartitionError, match="unknown topic"):
        admin.sequence("nosuch")
    admin.create_topics(["t"])
    admin.delete_topics(["t"])
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        admin.sequence("t")
    with pytest.raises(InvalidTopicError):
        admin.sequence("no topic")


def test_offsets_by_time_and_by_kafkas_special_times(admin, cluster):
    admin.create_topics([NewTopic("t", 2)])
    at, empty = TopicPartition("t", 0), TopicPartition("t", 1)
    fill(cluster, "t", "a", "b", timestamp_ms=T0_MS)  # T0, T0 + 1
    fill(cluster, "t", "c", "d", timestamp_ms=T0_MS + 100)
    fill(cluster, "t", "e", timestamp_ms=T0_MS + 50)
    fill(cluster, "t", "f", timestamp_ms=T0_MS + 101)
    for spec, offset, timestamp in (
        (EARLIEST, 0, -1),
        (LATEST, 6, -1),
        (0, 0, T0_MS),
        (T0_MS + 1, 1, T0_MS + 1),
        (T0_MS + 2, 2, T0_MS + 100),
        (T0_MS + 101, 3, T0_MS + 101),
        (T0_MS + 102, -1, -1),
        (MAX_TIMESTAMP, 3, T0_MS + 101),
    ):
        assert admin.list_offsets({at: spec}) == {at: OffsetAndTimestamp(offset=offset, timestamp=timestamp)}
    nothing = OffsetAndTimestamp(offset=-1, timestamp=-1)
    assert admin.list_offsets({empty: MAX_TIMESTAMP, at: 0}) == {
        empty: nothing,
        at: OffsetAndTimestamp(offset=0, timestamp=T0_MS),
    }
    admin.delete_records({at: 4})
    assert admin.list_offsets({at: MAX_TIMESTAMP})[at].offset == 5
    admin.delete_records({at: HIGH_WATERMARK})
    assert admin.list_offsets({at: MAX_TIMESTAMP}) == {at: nothing}


@pytest.mark.parametrize("spec", [-4, -5, True, 1.5, "latest", None])
def test_other_times_are_refused(admin, spec):
    admin.create_topics(["t"])
    with pytest.raises(InvalidArgumentError, match="expected milliseconds since the epoch"):
        admin.list_offsets({TopicPartition("t", 0): spec})


def test_offsets_of_what_is_not_there(admin):
    admin.create_topics(["t"])
    for topic, partition in (("t", 1), ("t", -1), ("nosuch", 0)):
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.end_offsets([TopicPartition(topic, partition)])


# Bad days


def test_a_read_only_store_refuses_changes_by_name(cluster):
    Admin(cluster).create_topics(["t"])
    store = FaultyStore(cluster.store, Fault(kind=FaultKind.READ_ONLY, ops=["create"], times=99))
    admin = Admin(store, clock=cluster.clock)
    with pytest.raises(StorePermissionError):
        admin.delete_topics(["t"])
    assert admin.list_topics() == ["t"]


def test_a_call_ends_at_its_time_out(cluster):
    Admin(cluster).create_topics(["t"])
    store = FaultyStore(cluster.store, Fault(kind=FaultKind.THROTTLED, ops=["create"], times=10**9))
    began = cluster.clock.ticks_ms()
    with pytest.raises(SparklogError, match="t") as caught:
        Admin(store, clock=cluster.clock, default_api_timeout_ms=5_000).alter_configs({"t": {"retention.ms": 5}})
    assert isinstance(caught.value, CommitStateUnknownError)
    assert 5_000 <= cluster.clock.ticks_ms() - began < 20_000
    with pytest.raises(InvalidArgumentError, match="timeout_ms=-1"):
        Admin(cluster).delete_topics(["t"], timeout_ms=-1)
    assert describe_topic(cluster.topic_log("t"), "t").delta_version == 0


def test_a_closed_admin_says_so_and_none_can_be_pickled(admin):
    with pytest.raises(TypeError, match="an Admin can't be pickled"):
        pickle.dumps(admin)
    admin.close()
    admin.close()
    with pytest.raises(IllegalStateError, match="closed"):
        admin.list_topics()


def test_keys_have_no_schema(admin):
    untyped_arguments: dict[str, Any] = {"key_schema": "id BIGINT"}
    with pytest.raises(TypeError, match="key_schema"):
        NewTopic("orders", **untyped_arguments)
    with pytest.raises(InvalidConfigurationError, match=r"key\.format"):
        admin.create_topics([NewTopic("orders", configs={"key.format": "json"})])
