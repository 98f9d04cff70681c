"""Programs as people write them with aiokafka; the import is all that was changed."""

import asyncio
import json
import uuid

import pytest

from sparklog import Admin, NewTopic
from sparklog.aio.kafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from sparklog.aio.kafka.errors import ConsumerStoppedError, KafkaConfigurationError, KafkaError

pytestmark = pytest.mark.slow


@pytest.fixture
def server():
    uri = f"memory://{uuid.uuid4().hex}"
    Admin(uri).create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    return uri


def test_send_then_iterate(server):
    async def main():
        producer = AIOKafkaProducer(
            bootstrap_servers=server,
            value_serializer=lambda value: json.dumps(value).encode(),
            max_batch_size=16384,
            loop=None,
            partitioner=lambda key, every, available: every[0],
        )
        await producer.start()
        try:
            future = await producer.send("in", {"n": 0}, b"k", 0, 1_700_000_000_000, [("h", b"1")])
            assert (await future).timestamp == 1_700_000_000_000
            assert (await producer.send_and_wait("in", {"n": 1})).offset == 1
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            "in", bootstrap_servers=server, group_id="g", auto_offset_reset="earliest", max_poll_records=None
        )
        await consumer.start()
        try:
            seen = []
            async for message in consumer:
                seen.append((message.key, json.loads(message.value)))
                if len(seen) == 2:
                    break
            assert seen == [(b"k", {"n": 0}), (None, {"n": 1})]
            at = TopicPartition("in", 0)
            await consumer.commit({at: 1})
            assert await consumer.committed(at) == 1
            assert await consumer.seek_to_committed() == {at: 1}
            assert (await consumer.getone(at)).offset == 1
            assert await consumer.end_offsets([at]) == {at: 2}
            assert consumer.partitions_for_topic("in") == {0}
        finally:
            await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()

    asyncio.run(main())


def test_consume_transform_produce(server):
    async def main():
        async with AIOKafkaProducer(bootstrap_servers=server) as source:
            for number in range(5):
                await source.send("in", b"%d" % number)
        consumer = AIOKafkaConsumer(
            "in", bootstrap_servers=server, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with consumer, AIOKafkaProducer(bootstrap_servers=server, transactional_id="t") as producer:
            batch = await consumer.getmany(timeout_ms=10_000)
            async with producer.transaction():
                for records in batch.values():
                    for record in records:
                        await producer.send("out", record.value)
                offsets = {at: records[-1].offset + 1 for at, records in batch.items()}
                await producer.send_offsets_to_transaction(offsets, "g")
            at = TopicPartition("in", 0)
            assert await consumer.committed(at) == offsets[at]
            assert await consumer.end_offsets([TopicPartition("out", 0)]) == {TopicPartition("out", 0): offsets[at]}

    asyncio.run(main())


def test_listener_and_unsubscribe(server):
    calls = []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            calls.append("revoked")

        async def on_partitions_assigned(self, assigned):
            calls.append("assigned")

    async def main():
        async with AIOKafkaConsumer(bootstrap_servers=server, group_id="g") as consumer:
            consumer.subscribe(topics=["in"], listener=Listener())
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            consumer.unsubscribe()
            await consumer.topics()
            assert consumer.assignment() == set()

    asyncio.run(main())
    assert calls == ["assigned", "revoked"]


def test_what_is_refused(server):
    with pytest.raises(KafkaConfigurationError, match="localhost:9092"):
        AIOKafkaProducer(bootstrap_servers="localhost:9092")
    with pytest.raises(KafkaConfigurationError, match="loop"):
        AIOKafkaProducer(bootstrap_servers=server, loop=object())
    with pytest.raises(KafkaConfigurationError, match="security_protocol"):
        AIOKafkaConsumer("in", bootstrap_servers=server, security_protocol="SSL")
    with pytest.raises(KafkaError, match="send_batch"):
        AIOKafkaProducer(bootstrap_servers=server).create_batch()
