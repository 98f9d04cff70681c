"""A golden cluster of a gateway: its users, numbered batches of Kafka's producers, their transactions."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import confluent_kafka

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.gateway import users
from sparklog.gateway.user_changes import added, removed
from sparklog.gateway.user_log import change_users, open_user_log
from sparklog.gateway.users import Rules, new_user
from sparklog.log import open_cluster
from tests.gateway.test_idempotence import sent
from tests.gateway.test_server import Wire

__all__ = ["write"]


def write(root: Path) -> list[object]:
    """All that only gateways write; the gateway runs until the process ends."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("jobs", 2, configs={"retention.ms": -1})])
    with mock.patch.object(users, "_ITERATIONS", 4_096):
        log, deadline = open_user_log(cluster), cluster.clock.deadline_in(60_000)
        for user in (
            new_user("ann", "pencil", Rules(("*",), ("*",), ("*",), ("*",), admin=True)),
            new_user("bob", "apple", Rules(read=("jobs",))),
            new_user("carl", "pear", Rules(write=("jobs",))),
        ):
            change_users(log, added(user), deadline=deadline)
        change_users(log, removed("carl"), deadline=deadline)
    gateway = sparklog.gateway.serve(cluster, zone="eu:1/a")
    servers = gateway.__enter__()
    client = Wire(servers)
    assert sent(client, b"a", b"b", sequence=0) == 0
    assert sent(client, b"c", sequence=2) == 2
    assert sent(client, b"d", sequence=0, producer_id=6, epoch=1) == 3
    client.close()
    _kafkas_producers(servers)
    return [gateway]


def _kafkas_producers(servers: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for number in range(6):
        producer.produce("jobs", f"idempotent {number}", f"k{number}", partition=1, headers={"h": b"v"})
    assert producer.flush(60) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "wire"})
    producer.init_transactions(60)
    for is_commit in (True, False):
        producer.begin_transaction()
        producer.produce("jobs", f"transaction, {'committed' if is_commit else 'aborted'}", partition=1)
        if is_commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
