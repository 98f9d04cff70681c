"""A golden cluster of transactions, in each state in which a process can have left one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparklog import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.log import open_cluster
from sparklog.storage import LocalStore
from sparklog.testing import Fault, FaultKind, FaultyStore, SimulatedCrash

__all__ = ["write"]

_LONG_MS = 900_000
"""A time-out that isn't over at the cluster's date."""
_SHORT_MS = 60_000
"""One that is."""
IN, OUT = "in", "out"
GROUP = "loop"


def write(root: Path) -> list[object]:
    """Transactions of every state; the producers and consumers that have to live until the process ends."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        admin.create_topics(
            [
                NewTopic(IN, 1, configs={"retention.ms": -1}),
                NewTopic(OUT, 2, configs={"retention.ms": -1}),
                NewTopic("typed", 1, value_schema="id BIGINT, name STRING", configs={"retention.ms": -1}),
                NewTopic("gone", 1),
            ]
        )
        with Producer(cluster) as producer:
            for number in range(10):
                producer.send(IN, b"in %d" % number)
        _ended(cluster)
        _in_doubt(cluster, admin)
        held = [_loops(cluster, root), *_open(cluster), *_prepared(root)]
    return held


def _begun(cluster: Any, name: str, *, timeout_ms: int = _LONG_MS, acks: Any = "all") -> Producer:
    producer = Producer(cluster, transactional_id=name, transaction_timeout_ms=timeout_ms, acks=acks)
    producer.init_transactions()
    return producer


def _fill(producer: Producer, what: str) -> None:
    """A transaction with a record in each partition of ``out``."""
    producer.begin_transaction()
    for partition in (0, 1):
        producer.send(OUT, f"{what} {partition}".encode(), partition=partition)


def _ended(cluster: Any) -> None:
    """Committed and aborted ones, of several epochs, with and without fsync, in a typed topic."""
    for epoch in range(2):
        producer = _begun(cluster, "committed/é%", acks=1 if epoch else "all")
        _fill(producer, f"committed {epoch}")
        producer.send("typed", {"id": epoch, "name": "committed"})
        producer.commit_transaction()
        producer.close()
    producer = _begun(cluster, "aborted")
    _fill(producer, "committed before an abort")
    producer.commit_transaction()
    _fill(producer, "aborted")
    producer.abort_transaction()
    producer.close()


def _in_doubt(cluster: Any, admin: Admin) -> None:
    """One that an administrator aborted; and one whose topic was deleted."""
    producer = _begun(cluster, "aborted-by-admin")
    _fill(producer, "aborted by an administrator")
    producer.flush(60)
    admin.abort_transaction("aborted-by-admin")
    producer.close()
    producer = _begun(cluster, "topic-gone")
    producer.begin_transaction()
    producer.send("gone", b"gone")
    producer.commit_transaction()
    producer.close()
    admin.delete_topics(["gone"])


def _loops(cluster: Any, root: Path) -> object:
    """Offsets that a transaction committed, and offsets that one decided but hasn't carried out."""
    consumer = Consumer(IN, cluster=cluster, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False)
    while not (found := consumer.poll(timeout_ms=500)):
        pass
    assert sum(map(len, found.values())) == 10
    at = TopicPartition(IN, 0)
    producer = _begun(cluster, "loop")
    _fill(producer, "looped")
    producer.send_offsets_to_transaction({at: OffsetAndMetadata(4, "of a transaction")}, consumer.group_metadata())
    producer.commit_transaction()
    producer.close()
    store = FaultyStore(LocalStore(root), *_after_its_decision("loop-decided"))
    decided = _begun(open_cluster(store), "loop-decided")
    _fill(decided, "looped, decided")
    decided.send_offsets_to_transaction({at: OffsetAndMetadata(7, "decided")}, consumer.group_metadata())
    _crashes(decided, is_commit=True)
    return consumer, decided


def _open(cluster: Any) -> list[object]:
    """Open as their writers stop: one that may go on, and one whose time is over."""
    held: list[object] = []
    for name, timeout_ms in (("open", _LONG_MS), ("open-timed-out", _SHORT_MS)):
        producer = _begun(cluster, name, timeout_ms=timeout_ms)
        _fill(producer, f"{name}, committed before")
        producer.commit_transaction()
        _fill(producer, f"{name}, never committed")
        producer.flush(60)
        held.append(producer)
    return held


def _after_its_decision(name: str) -> list[Fault]:
    """The first two entries of an id's log are its epoch's, and the decision."""
    path = f"transactions/{name}/"
    return [Fault(kind=FaultKind.CRASH_AFTER, ops=("create",), path=path, skip=1)]


def _prepared(root: Path) -> list[object]:
    """Decided, and carried out nowhere."""
    held: list[object] = []
    for name, is_commit in (("prepared-commit", True), ("prepared-abort", False)):
        producer = _begun(open_cluster(FaultyStore(LocalStore(root), *_after_its_decision(name))), name)
        _fill(producer, name)
        producer.flush(60)
        _crashes(producer, is_commit=is_commit)
        held.append(producer)
    return held


def _crashes(producer: Producer, *, is_commit: bool) -> None:
    try:
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    except SimulatedCrash:
        return
    raise AssertionError("it didn't crash where it should")
