"""Programs as people write them with aiokafka; the import is all that was changed."""

import asyncio
import inspect
import json
import time
import uuid

import aiokafka
import pyarrow as pa
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder as BatchBuilderOfAiokafka

from sparklog import Admin, NewTopic
from sparklog.aio import kafka
from sparklog.aio.kafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from sparklog.aio.kafka.batch_builder import BatchBuilder
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
            batch = await consumer.getmany(timeout_ms=60_000)
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


def test_batches_that_the_application_fills(server):
    async def main():
        async with AIOKafkaProducer(
            bootstrap_servers=server, max_batch_size=300, value_serializer=lambda value: json.dumps(value).encode()
        ) as producer:
            batch = producer.create_batch()
            appended = []
            while (
                record := batch.append(timestamp=1_000, key=b"k", value={"n": 1}, headers=[("h", b"x")])
            ) is not None:
                appended.append(record)
            assert [one.offset for one in appended] == list(range(batch.record_count()))
            assert 1 < len(appended) < 10
            assert batch.closed()
            assert batch.size() <= 300
            found = await (await producer.send_batch(batch, "in", partition=0))
            assert (found.topic, found.partition, found.offset) == ("in", 0, 0)
            await producer.send_and_wait("in", {"n": 2})
            large = producer.create_batch()
            assert large.append(timestamp=None, key=None, value="x" * 1_000) is not None
            assert large.append(timestamp=None, key=None, value="x") is None
            table = pa.table({"value": [b"null"]})
            assert (await (await producer.send_batch("in", table))).record_count == 1
            with pytest.raises(KafkaError, match="no records"):
                await producer.send_batch(producer.create_batch(), "in", partition=0)
            with pytest.raises(KafkaError, match="partition"):
                await producer.send_batch(large, "in")
            with pytest.raises(KafkaError, match="bytes"):
                producer.create_batch().append(timestamp=None, key=7, value=None)
            bad: list[tuple[dict[str, object], str]] = [
                ({"timestamp": 1.5}, "timestamp_ms"),
                ({"timestamp": -1}, "timestamp_ms"),
                ({"headers": [(b"h", b"x")]}, "headers"),
            ]
            for given, name in bad:
                with pytest.raises(KafkaError, match=name):
                    producer.create_batch().append(**{"timestamp": None, "key": None, "value": 1, **given})
            one = producer.create_batch()
            assert one.append(timestamp=None, key=memoryview(b"k"), value=None, headers=None) is not None
            with pytest.raises(KafkaError, match="partition='0'"):
                await producer.send_batch(one, "in", partition="0")
            with pytest.raises(KafkaError, match="partition"):
                await producer.send_batch(one, "in", partition=7)
        async with AIOKafkaConsumer(
            "in", bootstrap_servers=server, auto_offset_reset="earliest", group_id="g"
        ) as consumer:
            partition = TopicPartition("in", 0)
            records = [await consumer.getone() for _ in range(len(appended) + 2)]
            assert [one.value for one in records] == [b'{"n": 1}'] * len(appended) + [b'{"n": 2}', b"null"]
            assert {(one.key, one.timestamp, tuple(one.headers)) for one in records[: len(appended)]} == {
                (b"k", 1_000, (("h", b"x"),))
            }
            now_ms = time.time() * 1000
            assert now_ms - 60_000 < (consumer.last_poll_timestamp(partition) or 0) <= now_ms

    asyncio.run(main())


def test_every_public_name_of_aiokafka_is_there_with_its_arguments():
    missing = []
    for theirs, ours in [
        (aiokafka.AIOKafkaProducer, AIOKafkaProducer),
        (aiokafka.AIOKafkaConsumer, AIOKafkaConsumer),
        (BatchBuilderOfAiokafka, BatchBuilder),
    ]:
        for name, method in inspect.getmembers(theirs, inspect.isfunction):
            if name.startswith("_") and name not in ("__aenter__", "__aexit__", "__aiter__", "__anext__"):
                continue
            mine = getattr(ours, name, None)
            if mine is None:
                missing.append(name)
                continue
            if inspect.iscoroutinefunction(method) != inspect.iscoroutinefunction(mine):
                missing.append(f"{name} awaited")
            known = inspect.signature(mine).parameters.values()
            known_names = [one.name for one in known if one.kind is not one.VAR_POSITIONAL]
            expected = inspect.signature(method).parameters.values()
            for parameter in () if name.startswith("__") else expected:
                if parameter.kind is not parameter.VAR_POSITIONAL and parameter.name not in known_names:
                    missing.append(f"{name}({parameter.name})")
    missing += sorted({*aiokafka.__all__} - {*kafka.__all__})
    assert missing == NOT_THERE


NOT_THERE = ["AIOKafkaClient"]
"""Names of aiokafka that are missing here; docs/asyncio.md says so."""
