"""What the clients of today do with a golden cluster, from where those of its time stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import sparklog.gateway
from sparklog import AcknowledgeType, Admin, Consumer, OffsetAndMetadata, Producer, ShareConsumer, TopicPartition
from sparklog.gateway.user_changes import added
from sparklog.gateway.user_log import change_users, open_user_log
from sparklog.gateway.users import Rules, new_user
from sparklog.log import Cluster
from sparklog.outbox import Relay
from sparklog.processing import App, Record, Send, inbox
from sparklog.processing.dead_letters import replay
from sparklog.processing.delayed import DelayMover
from tests.gateway.test_idempotence import sent
from tests.gateway.test_server import Wire
from tests.golden.worlds import DatedClock, Golden
from tests.processing.support import done, running

__all__ = ["DATABASE", "GOES_ON", "go_on"]

DATABASE = "app.db"
_LONG_S = 60.0
_INTERNAL = ("delayed.", "dlq.", "outbox.relay.")
_COMPONENTS = ("delayed-", "dlq-replay-", "outbox-relay-", "worker-")
"""Beginnings of topics and transactional ids that not everybody writes with."""


def go_on(golden: Golden, cluster: Cluster, clock: DatedClock, root: Path) -> None:
    """Each part of the cluster goes on; asserts what it finds."""
    GOES_ON.get(golden.name, lambda *given: None)(cluster, clock, root)
    _groups_go_on(golden, cluster, clock)
    _transactions_go_on(golden, cluster)
    _topics_go_on(cluster)


def _topics_go_on(cluster: Cluster) -> None:
    """Each partition takes a record, under the next offset."""
    with Admin(cluster) as admin, Producer(cluster) as producer:
        for described in admin.describe_topics(admin.list_topics()):
            if described.name.startswith(_INTERNAL):
                continue
            value: Any = {"id": 77} if described.value_schemas else b"after"
            if described.config["value.format"] in ("avro", "avro-confluent"):
                value["total"] = 7.0
            for partition, end in enumerate(described.log_end_offsets):
                sent = producer.send(described.name, value, b"after", partition=partition)
                assert sent.get(_LONG_S).offset == end, described


def _transactions_go_on(golden: Golden, cluster: Cluster) -> None:
    """Each transactional id begins its next epoch, commits, and aborts."""
    for name in golden.expected["transactions"]:
        if name.startswith(_COMPONENTS):
            continue
        topic = "jobs" if golden.name == "gateway" else "out"
        with Producer(cluster, transactional_id=name) as producer:
            producer.init_transactions()
            for word in ("now", "never"):
                producer.begin_transaction()
                producer.send(topic, f"{word} {name}".encode(), partition=0)
                if word == "now":
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()


def _groups_go_on(golden: Golden, cluster: Cluster, clock: DatedClock) -> None:
    """Each group reads on from its committed offsets, as a member that waits for those which died."""
    for group, offsets in golden.expected["groups"].items():
        committed = {_place(name): offset for name, (offset, _) in offsets.items()}
        if committed and group != "workers" and not group.startswith("dlq-"):
            _group_goes_on(cluster, clock, group, committed)


def _group_goes_on(cluster: Cluster, clock: DatedClock, group: str, committed: Mapping[TopicPartition, int]) -> None:
    found: dict[TopicPartition, list[int]] = {}
    with Consumer(
        cluster=cluster,
        group_id=group,
        group_instance_id="instance-1" if group.startswith("static") else None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe({at.topic for at in committed})

        def poll() -> None:
            for at, records in consumer.poll(timeout_ms=200).items():
                found.setdefault(at, []).extend(record.offset for record in records)

        _until(lambda: len(consumer.assignment()) > 0, poll, clock, advance_ms=10_000)
        ends = consumer.end_offsets(consumer.assignment())
        _until(lambda: all(consumer.position(at) >= end for at, end in ends.items()), poll)
        for at, end in ends.items():
            assert found.get(at, []) == [*range(committed.get(at, 0), end)], (group, at)
        consumer.commit({at: OffsetAndMetadata(end, "") for at, end in ends.items()})


def _place(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _until(
    condition: Callable[[], bool],
    act: Callable[[], object],
    clock: DatedClock | None = None,
    *,
    advance_ms: float = 0,
    most: int = 10,
) -> None:
    """Act until it is so; with a clock, let some time pass after each second of waiting."""
    until, moved = time.monotonic() + _LONG_S, time.monotonic()
    while not condition():
        assert time.monotonic() < until, condition
        act()
        if clock is not None and most and time.monotonic() > moved + 0.6:
            clock.advance(advance_ms)
            moved, most = time.monotonic(), most - 1


def _foreign_rows(cluster: Cluster, clock: DatedClock, root: Path) -> None:
    """Rows that nobody had given offsets to get the next ones."""
    with Admin(cluster) as admin:
        ends = [described.log_end_offsets for described in admin.describe_topics(["foreign"])]
        admin.sequence("foreign")
        after = [described.log_end_offsets for described in admin.describe_topics(["foreign"])]
    assert sum(map(sum, after)) == sum(map(sum, ends)) + 1


def _share_group(cluster: Cluster, clock: DatedClock, root: Path) -> None:
    """What was released, and what its members had in hand, is delivered once more; what was dealt with isn't."""
    member = ShareConsumer("shared", cluster=cluster, group_id="share", share_acknowledgement_mode="explicit")
    found: dict[int, int] = {}

    def poll() -> None:
        for records in member.poll(timeout_ms=200).values():
            for record in records:
                found[record.offset] = record.delivery_count or 0
                member.acknowledge(record, AcknowledgeType.ACCEPT)
        member.commit_sync()

    _until(lambda: len(found) == 4, poll, clock, advance_ms=31_000)
    assert found == {3: 3, 7: 2, 8: 1, 9: 1}
    member.close()
    with Admin(cluster) as admin:
        assert admin.list_share_group_offsets("share") == {TopicPartition("shared", 0): 10}


def _gateway(cluster: Cluster, clock: DatedClock, root: Path) -> None:
    """A gateway knows the batches that its predecessor stored, and the users."""
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        assert sent(client, b"c", sequence=2) == 2
        assert sent(client, b"d", sequence=0, producer_id=6, epoch=1) == 3
        assert sent(client, b"f", sequence=4) == 45
        assert sent(client, b"e", sequence=3) == 4
        assert sent(client, b"late", sequence=0, producer_id=6, epoch=0) == 47
        client.close()
    user = new_user("dora", "plum", Rules(read=("*",)))
    users = change_users(open_user_log(cluster), added(user), deadline=clock.deadline_in(20_000)).users
    assert sorted(users) == ["ann", "bob", "dora"]


def _workers(cluster: Cluster, clock: DatedClock, root: Path) -> None:
    """A worker, a replay of dead letters, a mover, a relay and an inbox."""
    seen = []
    app = App(cluster, group_id="workers", commit_interval_ms=1, drain_timeout_s=5, transactional_id="worker-1")

    @app.subscriber("orders", dead_letter=True)
    def handle(record: Record[str]) -> Send:
        seen.append(record.value)
        return Send("done", record.value, key=record.key)

    with Producer(cluster) as producer:
        for number in (8, 9):
            producer.send("orders", b"%d" % number, partition=number % 2)
    with running(app):
        done(app, 2)
    assert sorted(seen) == ["8", "9"]
    assert replay(cluster, "dlq.orders", to="done", execute=True).to == {"done": 1}
    assert replay(cluster, "dlq.orders", to="done", execute=True).to == {}
    with DelayMover(cluster, "later") as mover:
        assert mover.run_until_done() == 0
    engine = sa.create_engine(f"sqlite:///{root.parent / DATABASE}")
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 1
    _inbox(cluster, engine)
    engine.dispose()


def _inbox(cluster: Cluster, engine: sa.Engine) -> None:
    """Has what it had dealt with, and deals with the others."""
    at = TopicPartition("outbox.event.order", 0)
    found: list[Any] = []
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([at])
        _until(lambda: len(found) == 9, lambda: found.extend(consumer.poll(timeout_ms=500).get(at, [])))
    assert [record.value for record in found] == [b"%d" % number for number in range(9)]
    known = []
    for record in found:
        try:
            with engine.begin() as connection, inbox.once(connection, record, group="billing"):
                pass
        except inbox.AlreadyProcessedError:
            known.append(record.offset)
    assert known == [0, 1, 2, 3]


GOES_ON: Mapping[str, Callable[[Cluster, DatedClock, Path], None]] = {
    "topics": _foreign_rows,
    "groups": _share_group,
    "gateway": _gateway,
    "processing": _workers,
}
"""What only one of the clusters has, by its name."""
