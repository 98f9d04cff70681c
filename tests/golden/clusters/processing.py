"""A golden cluster of workers: dead letters, delayed records, positions of an outbox; an inbox in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.log import open_cluster
from sparklog.outbox import Relay, create_table, send
from sparklog.processing import App, Record, Retry, Send, inbox
from sparklog.processing.dead_letters import letters_of, replay
from sparklog.processing.delayed import DelayMover
from tests.processing.support import done, running

__all__ = ["DATABASE", "write"]

DATABASE = "app.db"
"""Beside the cluster's folder."""
_FAR_MS = 30 * 86_400_000


def write(root: Path) -> list[object]:
    """What workers, the mover of delayed records and the relay of an outbox leave."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        forever = {"retention.ms": -1}
        admin.create_topics([NewTopic("orders", 2, configs=forever), NewTopic("done", 2, configs=forever)])
        admin.create_topics([NewTopic("later", 1, configs={**forever, "delay": True})])
        admin.create_topics([NewTopic("outbox.event.order", 1, configs=forever)])
    _work(cluster)
    _delay(cluster)
    engine = sa.create_engine(f"sqlite:///{root.parent / DATABASE}")
    _relay(cluster, engine)
    _note_in_inbox(cluster, engine)
    engine.dispose()
    return []


def _work(cluster: Any) -> None:
    """A worker with dead letters, one of which was replayed."""
    with Producer(cluster) as producer:
        for number in range(8):
            producer.send("orders", b"%d" % number, b"k%d" % number, partition=number % 2)
    app = App(cluster, group_id="workers", commit_interval_ms=1, drain_timeout_s=5, transactional_id="worker-1")

    @app.subscriber("orders", retry=Retry(attempts=2), dead_letter=True)
    def handle(record: Record[str]) -> Send:
        if int(record.value) % 4 == 3:
            raise ValueError(f"no {record.value}")
        return Send("done", record.value, key=record.key)

    app.create_topics()
    with running(app):
        done(app, 8)
    assert len([each for piece in letters_of(cluster, "dlq.orders") for each in piece]) == 2
    replay(cluster, "dlq.orders", to="done", most=1, execute=True)


def _delay(cluster: Any) -> None:
    """Delivered, waiting, cancelled."""
    now_ms = cluster.clock.now_ms()
    with Producer(cluster) as producer:
        producer.send("later", b"at once", b"a", deliver_at=now_ms + 1)
        producer.send("later", b"in a month", b"b", deliver_at=now_ms + _FAR_MS)
        producer.send("later", b"in two months", b"c", deliver_at=now_ms + 2 * _FAR_MS)
    cluster.clock.sleep_ms(50)
    with DelayMover(cluster, "later") as mover:
        assert mover.run_until_done() == 1


def _relay(cluster: Any, engine: sa.Engine) -> None:
    """Rows that were sent, and one that waits."""
    create_table(engine)
    for first, last in ((0, 5), (5, 8)):
        with engine.begin() as connection:
            for number in range(first, last):
                send(connection, "outbox.event.order", str(number), f"k{number % 2}", type="Placed")
        with Relay(cluster, engine) as relay:
            assert relay.run_until_empty() == last - first
    with engine.begin() as connection:
        send(connection, "outbox.event.order", "8", "k0", type="Placed")


def _note_in_inbox(cluster: Any, engine: sa.Engine) -> None:
    inbox.create_table(engine)
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("outbox.event.order", 0)])
        found: list[Any] = []
        while len(found) < 8:
            found += [one for records in consumer.poll(timeout_ms=500).values() for one in records]
    for record in found[:4]:
        with engine.begin() as connection, inbox.once(connection, record, group="billing"):
            pass
