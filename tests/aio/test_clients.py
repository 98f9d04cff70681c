"""The clients for asyncio: what is awaited, what a cancelled call leaves behind, closing, loops, listeners."""

import asyncio
import os
import threading
import uuid
from typing import Any

import pyarrow as pa
import pytest

from sparklog import TopicPartition
from sparklog.aio import Admin, Consumer, Producer
from sparklog.errors import IllegalStateError, InvalidArgumentError, InvalidConfigurationError
from sparklog.storage import MemoryStore

pytestmark = pytest.mark.slow
P0 = TopicPartition("t", 0)


@pytest.fixture
def uri():
    from sparklog import Admin as SyncAdmin

    uri = f"memory://{uuid.uuid4().hex}"
    SyncAdmin(uri).create_topics(["t"])
    return uri


def reader(uri, **settings):
    return Consumer("t", cluster=uri, auto_offset_reset="earliest", **settings)


async def fill(uri, count, begin=0):
    async with Producer(uri) as producer:
        for number in range(begin, begin + count):
            await producer.send("t", b"%d" % number)


def numbers(found):
    return [int(record.value) for records in found.values() for record in records]


async def read(consumer, count):
    seen: list[int] = []
    while len(seen) < count:
        seen += numbers(await consumer.getmany(timeout_ms=1000))
    return seen


def test_admin_calls_are_awaited(uri):
    async def main():
        async with Admin(uri) as admin:
            await admin.create_topics(["u"])
            assert await admin.list_topics() == ["t", "u"]
            with pytest.raises(AttributeError, match="no_such_call"):
                _ = admin.no_such_call

    asyncio.run(main())


def test_futures_are_those_of_asyncio(uri):
    async def main():
        async with Producer(uri) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(50)]
            called: list[Any] = []
            sent[0].add_done_callback(called.append)
            found = await asyncio.gather(*sent)
            done, _ = await asyncio.wait(sent)
            assert [one.offset for one in found] == list(range(50))
            assert done == set(sent)
            assert called == [sent[0]]
            table = await (await producer.send_batch("t", pa.table({"value": [b"x"] * 3})))
            assert table.offsets.to_pylist() == [50, 51, 52]
            assert (await producer.send_and_wait("t", b"y")).offset == 53
            await producer.flush()
            assert "producer-metrics" in producer.metrics()

    asyncio.run(main())


def test_one_thread_beside_the_loop(uri):
    async def main():
        async with Producer(uri) as producer, reader(uri) as consumer:
            await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(100)))
            await producer.flush()
            await read(consumer, 100)
            names = [thread.name for thread in threading.enumerate() if thread.name == "sparklog-aio"]
            assert len(names) == 2

    asyncio.run(main())


def test_a_cancelled_poll_loses_nothing(uri):
    async def main():
        async with reader(uri, group_id="g") as consumer:
            seen = []
            for round_ in range(6):
                polls = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
                await asyncio.sleep(0.01 * round_)
                polls.cancel()
                await fill(uri, 5, begin=5 * round_)
                try:
                    seen += numbers(await polls)
                except asyncio.CancelledError:
                    continue
            seen += await read(consumer, 30 - len(seen))
            assert seen == list(range(30))
            await consumer.commit()
            assert await consumer.committed(P0) == 30

    asyncio.run(main())


def test_what_a_cancelled_poll_found_is_in_no_commit(uri):
    async def main():
        await fill(uri, 10)
        async with reader(uri, group_id="g", enable_auto_commit=False) as consumer:
            assert numbers(await consumer.poll(60_000, max_records=3)) == [0, 1, 2]
            task = asyncio.create_task(consumer.poll(60_000, max_records=3))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()  # before it may have seen what was found
            with pytest.raises(asyncio.CancelledError):
                await task
            await consumer.commit()
            assert await consumer.committed(P0) == 3
            assert await read(consumer, 7) == list(range(3, 10))

    asyncio.run(main())


def test_other_calls_pass_a_poll(uri):
    async def main():
        async with reader(uri, group_id="g") as consumer:
            await fill(uri, 2)
            await read(consumer, 2)
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.05)
            await asyncio.wait_for(consumer.commit(), 60)
            assert await consumer.end_offsets([P0]) == {P0: 2}
            consumer.seek(P0, 1)
            assert (await waiting).offset == 1
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)
            with pytest.raises(IllegalStateError, match="another task"):
                consumer.subscribe(["t"])
            waiting.cancel()

    asyncio.run(main())


def test_iteration_and_getone_move_one_record(uri):
    async def main():
        await fill(uri, 5)
        async with reader(uri, consumer_timeout_ms=60_000) as consumer:
            assert (await consumer.getone()).offset == 0
            assert await consumer.position(P0) == 1
            found: list[int] = []
            async for record in consumer:
                found.append(record.offset)
                if len(found) == 4:
                    break
            assert found == [1, 2, 3, 4]
            consumer.seek_to_beginning()
            consumer.pause(P0)
            assert await consumer.poll(50) == {}
            consumer.resume(P0)
            assert sum(len(batch) for batch in (await consumer.poll_batches(60_000)).values()) == 5

    asyncio.run(main())


def test_close_ends_polls(uri):
    async def main():
        consumer = reader(uri)
        await consumer.start()
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0.05)
        await consumer.close()
        await consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await waiting
        with pytest.raises(IllegalStateError, match="closed"):
            await consumer.poll()

    asyncio.run(main())


def test_sending_keeps_no_argument_for_a_function_within():
    """Each that it kept would cost every record a cell: together they took a third of a call."""
    assert Producer.send.__code__.co_cellvars == ()


def test_a_full_buffer_blocks_no_loop_and_a_cancelled_send_is_sent(uri):
    async def main():
        async with Producer(uri, buffer_memory=20_000, linger_ms=100, max_request_size=10_000) as producer:
            tasks = [asyncio.create_task(producer.send("t", b"%04d" % number * 500)) for number in range(40)]
            await asyncio.sleep(0.01)
            tasks[-1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with reader(uri) as consumer:
            values: list[int] = []
            while len(values) < 40:
                found = await consumer.poll(1000)
                values += [int(record.value[:4]) for records in found.values() for record in records]
            assert values == list(range(40))

    asyncio.run(main())


def test_the_buffer_is_as_large_as_the_store_asks_for_or_as_given(uri, monkeypatch):
    async def main(given, expected):
        async with Producer(uri, **given) as producer:
            await producer.send_and_wait("t", b"v")
            assert producer.metrics()["producer-metrics"]["buffer-total-bytes"] == expected

    asyncio.run(main({}, 2**25))
    monkeypatch.setattr(MemoryStore, "is_remote", True)
    asyncio.run(main({}, 2**27))
    asyncio.run(main({"buffer_memory": 2**25}, 2**25))


def test_records_are_delayed_and_cancelled(uri):
    async def main():
        async with Admin(uri) as admin:
            await admin.alter_configs({"t": {"delay": True}})
        async with Producer(uri) as producer:
            sent = await producer.send_and_wait("t", b"v", b"k", deliver_at=4_102_444_800_000)
            assert sent.topic == "delayed.t"
            assert (await (await producer.cancel_delayed("t", b"k"))).topic == "delayed.t"
        async with reader(uri) as consumer:
            assert await consumer.getmany(timeout_ms=100) == {}

    asyncio.run(main())


def test_transactions_commit_and_abort(uri):
    async def main():
        async with Producer(uri, transactional_id="x") as producer:
            async with producer.transaction():
                assert (await producer.send_and_wait("t", b"1")).offset == -1
            aborted = []

            async def fail():
                async with producer.transaction():
                    aborted.append(await producer.send("t", b"2"))
                    raise RuntimeError("on purpose")

            with pytest.raises(RuntimeError, match="on purpose"):
                await fail()
            with pytest.raises(Exception, match="abort"):
                await aborted[0]
            await producer.begin_transaction()
            await producer.send("t", b"3")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            await producer.commit_transaction()  # joins the first
        async with reader(uri) as consumer:
            assert await read(consumer, 2) == [1, 3]

    asyncio.run(main())


def test_a_listener_may_await_the_consumer(uri):
    calls: list[Any] = []
    consumers: list[Consumer] = []

    class Listener:
        async def on_partitions_assigned(self, assigned):
            await asyncio.sleep(0.01)
            calls.append(("assigned", await consumers[0].committed(P0), threading.current_thread().name))
            consumers[0].seek(P0, 2)

        def on_partitions_revoked(self, revoked):
            calls.append(("revoked", set(revoked)))

    async def main():
        await fill(uri, 4)
        async with Consumer(cluster=uri, group_id="g") as consumer:
            consumers.append(consumer)
            consumer.subscribe(["t"], listener=Listener())
            assert await read(consumer, 2) == [2, 3]

    asyncio.run(main())
    assert calls == [("assigned", None, "MainThread"), ("revoked", {P0})]


def test_an_error_of_a_listener_is_raised_by_the_poll(uri):
    class Listener:
        async def on_partitions_assigned(self, assigned):
            raise ValueError("on purpose")

        def on_partitions_revoked(self, revoked):
            """Nothing."""

    async def main():
        await fill(uri, 1)
        async with Consumer(cluster=uri, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"], listener=Listener())
            with pytest.raises(ValueError, match="on purpose"):
                await consumer.getone()
            assert (await consumer.getone()).offset == 0

    asyncio.run(main())


def test_two_members_share_partitions():
    async def main():
        uri = f"memory://{uuid.uuid4().hex}"
        async with Admin(uri) as admin:
            from sparklog import NewTopic

            await admin.create_topics([NewTopic("t", 2)])
        async with reader(uri, group_id="g") as one, reader(uri, group_id="g") as other:
            for _ in range(1_000):
                await asyncio.gather(one.poll(50), other.poll(50))
                if len(one.assignment()) == len(other.assignment()) == 1:
                    break
            assert one.assignment() | other.assignment() == {P0, TopicPartition("t", 1)}
            assert not one.assignment() & other.assignment()

    asyncio.run(main())


def test_wrong_use_is_refused(uri):
    with pytest.raises(InvalidConfigurationError, match="no_such"):
        Producer(uri, no_such=1)
    producer = Producer(uri)

    async def not_started():
        with pytest.raises(IllegalStateError, match="isn't started"):
            await producer.send("t", b"")

    asyncio.run(not_started())

    async def other_loop():
        with pytest.raises(IllegalStateError, match="event loop"):
            await producer.start()

    asyncio.run(other_loop())

    async def no_cluster():
        with pytest.raises(InvalidArgumentError):
            await Consumer("t", cluster=f"memory://{uuid.uuid4().hex}").start()

    asyncio.run(no_cluster())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(uri):
    producer = Producer(uri)
    producer._thread._process = -1  # as in a child

    async def main():
        with pytest.raises(IllegalStateError, match="forked"):
            await producer.start()

    asyncio.run(main())
