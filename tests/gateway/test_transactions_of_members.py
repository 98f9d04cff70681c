"""Consume, transform, produce: a group's member commits its offsets with what it sends."""

from __future__ import annotations

import time
import uuid

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer, TopicPartition


@pytest.mark.slow
def test_offsets_of_a_member_count_with_the_transaction_or_not_at_all():
    confluent = pytest.importorskip("confluent_kafka")
    cluster = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(cluster).create_topics([NewTopic("jobs", 2), NewTopic("bills", 1)])
    with Producer(cluster) as producer:
        for number in range(20):
            producer.send("jobs", b"%d" % number, partition=number % 2)
    with sparklog.gateway.serve(cluster) as servers:
        reading = {"bootstrap.servers": servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = confluent.Consumer({**reading, "enable.auto.commit": False})
        writer = confluent.Producer({"bootstrap.servers": servers, "transactional.id": "billing"})
        writer.init_transactions(60)
        consumer.subscribe(["jobs"])
        for is_committed in (False, True):
            writer.begin_transaction()
            taken = 0
            until = time.monotonic() + 60
            while taken < 20 and time.monotonic() < until:
                for record in consumer.consume(20, 0.2):
                    writer.produce("bills", record.value())
                    taken += 1
            at = consumer.position(consumer.assignment())
            writer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 20)
            (writer.commit_transaction if is_committed else writer.abort_transaction)(20)
            found = Admin(cluster).list_group_offsets("billing")
            assert sum(max(one.offset, 0) for one in found.values()) == (20 if is_committed else 0)
            for partition in consumer.assignment():
                consumer.seek(confluent.TopicPartition(partition.topic, partition.partition, 0))
        consumer.close()
    assert Admin(cluster).end_offsets([TopicPartition("bills", 0)]).popitem()[1] == 20
