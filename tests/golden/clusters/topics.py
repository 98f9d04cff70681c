"""A golden cluster of untyped topics, in each state that a topic can be in."""

from __future__ import annotations

import time
from pathlib import Path
from unittest import mock

import pyarrow as pa
from deltalake import write_deltalake

from sparklog import Admin, NewTopic, Producer, TopicPartition
from sparklog.compaction import OptimizePolicy, compact_topic, maintain
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.log import Cluster, TopicWriter, open_cluster
from sparklog.log.announced import group
from sparklog.storage import LocalStore
from tests.consumer.remote_store import RemoteStore
from tests.support import records, within

__all__ = ["write"]

HOUR_MS = 3_600_000
_MERGE_ALL = OptimizePolicy(target_bytes=100_000, min_files=3, growth=1.1)


def write(root: Path) -> list[object]:
    """Every kind of untyped topic; what has to live until the process ends."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        _plain(cluster, admin)
        _compacted(cluster, admin)
        _brief(cluster, admin)
        _deleted(cluster, admin)
        _foreign(root, cluster, admin)
        _carried(root, admin)
        _long(cluster, admin)
        _merged(cluster, admin)
        report = maintain(cluster, ["plain"], full=True)
        assert not report.failures, report.failures
        maintain(cluster, steps=())  # which notes what it found
        _fed_by_strangers(root)
        return [_shared(cluster, admin)]


def _plain(cluster: Cluster, admin: Admin) -> None:
    """Keys, values and headers of all kinds, each codec, more partitions than at first, a changed setting, a raised
    start."""
    admin.create_topics([NewTopic("plain", 3, configs={"retention.ms": -1, "max.message.bytes": 1_000_000})])
    now_ms = cluster.clock.now_ms()
    for acks, codec in (("all", "none"), (1, "gzip"), (1, "zstd"), (1, "snappy"), (1, "lz4")):
        with Producer(cluster, acks=acks, compression_type=codec) as producer:
            for number in range(4):
                name = f"{codec} {number}"
                key = None if number % 2 else f"key of {name}".encode()
                producer.send("plain", name.encode(), key, partition=number % 3, timestamp_ms=now_ms + number)
    with Producer(cluster) as producer:
        producer.send("plain", None, b"no value", partition=0)
        producer.send("plain", b"", b"", partition=0)
        producer.send("plain", b"\xff\x00", b"\xfe", partition=1)
        producer.send("plain", b"h", headers=[("a", b"1"), ("a", None), ("", b""), ("é", b"\xff")], partition=1)
        table = pa.table(
            {"key": [b"t1", None], "value": [b"of a table", None], "partition": pa.array([2, 2], pa.int32())}
        )
        producer.send_batch("plain", table).get(60)
    admin.create_partitions({"plain": 4})
    admin.alter_configs({"plain": {"max.message.bytes": 900_000, "compression.type": "zstd"}})
    with Producer(cluster) as producer:
        for number in range(4):
            producer.send("plain", b"after growth %d" % number, partition=number)
    admin.delete_records({TopicPartition("plain", 0): 3})


def _compacted(cluster: Cluster, admin: Admin) -> None:
    """Tombstones, two passes, and what came since."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 24 * HOUR_MS}
    admin.create_topics([NewTopic("compacted", 2, configs=settings)])
    for turn in range(3):
        with Producer(cluster) as producer:
            for number in range(12):
                value = None if (number + turn) % 5 == 0 else b"turn %d of %d" % (turn, number)
                producer.send("compacted", value, b"k%d" % (number % 6), partition=number % 2)
                producer.flush(60)
        if turn < 2:
            compact_topic(cluster.topic_log("compacted"), "compacted", now_ms=cluster.clock.now_ms())


def _brief(cluster: Cluster, admin: Admin) -> None:
    """Of which retention removed something, and kept something."""
    admin.create_topics([NewTopic("brief", 1, configs={"retention.ms": HOUR_MS})])
    now_ms = cluster.clock.now_ms()
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, 0):
        with Producer(cluster) as producer:
            producer.send("brief", b"%d hours old" % (age_ms // HOUR_MS), timestamp_ms=now_ms - age_ms)
    maintain(cluster, ["brief"])


def _deleted(cluster: Cluster, admin: Admin) -> None:
    """One that is gone, and one that was created again under its name."""
    admin.create_topics([NewTopic("gone", 1), NewTopic("again", 2)])
    with Producer(cluster) as producer:
        for topic in ("gone", "again"):
            for number in range(3):
                producer.send(topic, b"first life %d" % number, partition=0)
    admin.delete_topics(["gone", "again"])
    admin.create_topics([NewTopic("again", 1, configs={"retention.ms": -1})])
    with Producer(cluster) as producer:
        producer.send("again", b"second life")


def _foreign(root: Path, cluster: Cluster, admin: Admin) -> None:
    """Rows that another engine wrote, and that have offsets."""
    admin.create_topics([NewTopic("foreign", 2, configs={"retention.ms": -1})])
    with Producer(cluster) as producer:
        producer.send("foreign", b"of sparklog", b"s", partition=0)
    rows = pa.table({"key": ["ann", "bob", None], "value": ["1", "2", "3"]})
    write_deltalake(str(root / "topics" / "foreign"), rows, mode="append", schema_mode="merge")
    admin.sequence("foreign")
    with Producer(cluster) as producer:
        producer.send("foreign", b"after it", b"s", partition=0)


def _fed_by_strangers(root: Path) -> None:
    """Rows to which nobody has given offsets: nobody reads the topic from now on."""
    rows = pa.table({"key": ["carl"], "value": ["without an offset"]})
    write_deltalake(str(root / "topics" / "foreign"), rows, mode="append", schema_mode="merge")


def _carried(root: Path, admin: Admin) -> None:
    """Entries that carry the bytes of small files, as on an object store."""
    admin.create_topics([NewTopic("carried", 1, configs={"retention.ms": -1})])
    far = open_cluster(RemoteStore(LocalStore(root)))
    with Producer(far, group_commit=False) as producer:
        for number in range(3):
            producer.send("carried", b"carried %d" % number).get(60)


def _long(cluster: Cluster, admin: Admin) -> None:
    """So many commits that there are checkpoints; entries below the first of them are deleted, under a mark."""
    admin.create_topics([NewTopic("long", 1, configs={"retention.ms": -1})])
    log = cluster.topic_log("long")
    impatient = open_cluster(cluster.store, tail_trust_ms=1).topic_log("long")
    with Producer(cluster, acks=1, group_commit=False) as producer:
        for number in range(70):
            producer.send("long", b"%d" % number).get(60)
            if number == 40:
                write_checkpoint(log)
    time.sleep(0.05)
    cleaned = clean_log(impatient, retention_ms=10)
    assert cleaned is not None
    assert cleaned.deleted_count > 30, cleaned
    with Producer(cluster) as producer:
        producer.send("long", b"after the cleanup")


def _merged(cluster: Cluster, admin: Admin) -> None:
    """Small files that were merged, and what came since."""
    admin.create_topics([NewTopic("merged", 2, configs={"retention.ms": -1})])
    with Producer(cluster, acks=1, group_commit=False) as producer:
        for number in range(10):
            producer.send("merged", b"%d" % number, headers=[("n", b"%d" % number)], partition=number % 2).get(60)
        maintain(cluster, ["merged"], policy=_MERGE_ALL)
        for number in range(10, 14):
            producer.send("merged", b"%d" % number, partition=number % 2).get(60)


def _shared(cluster: Cluster, admin: Admin) -> object:
    """Announced uploads: one that its owner published, one that another did, one that nobody will."""
    admin.create_topics([NewTopic("shared", 1, configs={"retention.ms": -1})])
    now_ms = cluster.clock.now_ms()

    def one(value: str) -> list[tuple[int, pa.Table]]:
        return [(0, records(value, timestamp_ms=now_ms))]

    with mock.patch.object(group, "is_on", return_value=True):
        writers = [TopicWriter(cluster.topic_log("shared"), "shared", group_commit=True) for _ in range(3)]
        for number, writer in enumerate(writers):
            writer.append(writer.upload(one(f"first {number}")), deadline=within(writer, 60_000))
        for writer in writers:
            writer.refresh()
        first, second, third = writers
        theirs = first.upload(one("announced"), announce=True)
        mine = second.upload(one("of its includer"), announce=True)
        included = second.append(mine, deadline=within(second, 60_000))
        found = first.append(theirs, deadline=within(first, 60_000))
        assert found.delta_version == included.delta_version
        third.refresh()
        [left] = third.upload(one("never published"), announce=True)
        assert left.path.startswith("announced/"), left.path
    return writers
