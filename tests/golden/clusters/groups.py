"""A golden cluster of groups: native ones, share groups, and those of Kafka's clients through a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

import sparklog.gateway
from sparklog import (
    AcknowledgeType,
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from sparklog.log import open_cluster

__all__ = ["write"]

JOBS = "jobs"
_RECORDS = 24
_PARTITIONS = 3


def write(root: Path) -> list[object]:
    """Groups of every kind; the members that have to live until the process ends."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(JOBS, _PARTITIONS, configs={"retention.ms": -1}), NewTopic("shared", 1)])
        admin.create_topics([NewTopic("gone", 1)])
        with Producer(cluster) as producer:
            for number in range(_RECORDS):
                producer.send(JOBS, b"job %d" % number, b"k%d" % number, partition=number % _PARTITIONS)
            for number in range(10):
                producer.send("shared", b"shared %d" % number)
            producer.send("gone", b"gone")
        held = [*_native(cluster, admin), *_share(cluster)]
        _through_a_gateway(root)
    return held


def _member(cluster: Any, group: str, **settings: Any) -> Consumer:
    given = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    return Consumer(cluster=cluster, group_id=group, **given)


def _until(condition: Callable[[], bool], *members: Consumer) -> None:
    while not condition():
        for member in members:
            member.poll(timeout_ms=50)


def _native(cluster: Any, admin: Admin) -> list[object]:
    """Closed, left by a crash, static, by a pattern, assigned by hand, reset, deleted, of a topic that is gone."""
    first, second = (
        _member(cluster, "closed"),
        _member(cluster, "closed", partition_assignment_strategy="roundrobin,range"),
    )
    for one in (first, second):
        one.subscribe([JOBS])
    _until(lambda: min(len(first.assignment()), len(second.assignment())) >= 1, first, second)
    for number in range(_PARTITIONS):
        at = TopicPartition(JOBS, number)
        owner = first if at in first.assignment() else second
        owner.commit({at: OffsetAndMetadata(number + 1, f"noted {number}")})
    second.close()
    first.close()
    static = _member(cluster, "static/é%", group_instance_id="instance-1")
    static.subscribe(pattern="^jo.*")
    _until(lambda: len(static.assignment()) == _PARTITIONS, static)
    static.commit({TopicPartition(JOBS, 0): OffsetAndMetadata(5, "")})
    by_hand = _member(cluster, "by-hand")
    by_hand.assign([TopicPartition(JOBS, 1)])
    by_hand.commit({TopicPartition(JOBS, 1): OffsetAndMetadata(2, "by hand")})
    by_hand.close()
    for group in ("deleted", "topic-gone"):
        leaving = _member(cluster, group)
        topic = "gone" if group == "topic-gone" else JOBS
        leaving.assign([TopicPartition(topic, 0)])
        leaving.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "")})
        leaving.close()
    admin.delete_groups(["deleted"])
    admin.delete_topics(["gone"])
    admin.alter_group_offsets("altered", {TopicPartition(JOBS, 2): OffsetAndMetadata(6, "altered")})
    crashed = _member(cluster, "crashed", session_timeout_ms=6_000)
    crashed.subscribe([JOBS])
    _until(lambda: len(crashed.assignment()) == _PARTITIONS, crashed)
    crashed.commit({TopicPartition(JOBS, 0): OffsetAndMetadata(3, "before the crash")})
    return [static, crashed]


def _share(cluster: Any) -> list[object]:
    """Records that were accepted, rejected, released, and that somebody has in hand."""
    member = ShareConsumer(
        "shared",
        cluster=cluster,
        group_id="share",
        share_auto_offset_reset="earliest",
        share_acknowledgement_mode="explicit",
    )
    answers = [AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE]
    found: list[Any] = []
    while len(found) < 7:
        found += [one for records in member.poll(timeout_ms=500, max_records=7).values() for one in records]
    for record in found:
        member.acknowledge(record, answers[record.offset % 4])
    assert not any(member.commit_sync().values())
    found = []
    while not found:
        found = [one for records in member.poll(timeout_ms=500, max_records=2).values() for one in records]
    return [member, found]


def _through_a_gateway(root: Path) -> None:
    with sparklog.gateway.serve(root, group_initial_rebalance_delay_ms=0) as servers:
        for group, settings in (("wire-classic", {}), ("wire-consumer", {"group.protocol": "consumer"})):
            given = {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
            member = confluent_kafka.Consumer(given)
            member.subscribe([JOBS])
            _read_half(member)
            member.close()


def _read_half(member: Any) -> None:
    """All, of which the offsets of half are committed."""
    count, until = 0, time.monotonic() + 60
    while count < _RECORDS and time.monotonic() < until:
        count += len(member.consume(100, 0.2))
    assert count == _RECORDS, count
    places = [
        confluent_kafka.TopicPartition(JOBS, number, 4, metadata=f"wire {number}") for number in range(_PARTITIONS)
    ]
    member.commit(offsets=places, asynchronous=False)
