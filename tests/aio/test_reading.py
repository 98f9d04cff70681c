"""Several tasks that read from one consumer for asyncio, by partition or all: every record to one of them, in order."""

import asyncio
import uuid
from typing import Any

import pytest

from sparklog import Admin as SyncAdmin
from sparklog import NewTopic, TopicPartition
from sparklog.aio import Consumer, Producer
from sparklog.errors import IllegalStateError, RecordDeserializationError

pytestmark = pytest.mark.slow
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def uri():
    uri = f"memory://{uuid.uuid4().hex}"
    SyncAdmin(uri).create_topics([NewTopic("t", 3)])
    return uri


def reader(uri, **settings):
    return Consumer("t", cluster=uri, auto_offset_reset="earliest", **settings)


async def fill(uri, counts, begin=0):
    async with Producer(uri) as producer:
        for partition, count in counts.items():
            for number in range(begin, begin + count):
                await producer.send("t", b"%d" % number, partition=partition)


def offsets(found):
    return {partition.partition: [record.offset for record in records] for partition, records in found.items()}


async def within(coroutine, seconds=60):
    return await asyncio.wait_for(coroutine, seconds)


def test_each_of_two_tasks_gets_its_partitions_records_as_soon_as_they_are_there(uri):
    async def main():
        async with reader(uri) as consumer:
            first, second = (asyncio.create_task(consumer.getone(partition)) for partition in (P0, P1))
            await asyncio.sleep(0.05)
            await fill(uri, {1: 1})
            assert (await within(second)).partition == 1
            assert not first.done()
            await fill(uri, {0: 1})
            assert (await within(first)).partition == 0

    asyncio.run(main())


def test_a_pause_is_the_users_alone(uri):
    async def main():
        await fill(uri, {0: 2, 1: 2, 2: 2})
        async with reader(uri) as consumer:
            assert offsets(await consumer.getmany(P1, timeout_ms=60_000)) == {1: [0, 1]}
            assert consumer.paused() == set()
            waiting = asyncio.create_task(consumer.getmany(P1, timeout_ms=60_000))
            await asyncio.sleep(0.02)
            consumer.pause(P0)
            assert consumer.paused() == {P0}
            await fill(uri, {1: 1})
            assert offsets(await within(waiting)) == {1: [2]}
            assert consumer.paused() == {P0}
            assert offsets(await consumer.getmany(timeout_ms=60_000)) == {2: [0, 1]}
            consumer.resume(P0)
            assert offsets(await consumer.getmany(timeout_ms=60_000)) == {0: [0, 1]}

    asyncio.run(main())


def test_records_of_a_partition_that_is_paused_before_they_are_taken_wait(uri):
    async def main():
        await fill(uri, {0: 4})
        async with reader(uri, group_id="g", enable_auto_commit=False) as consumer:
            assert (await within(consumer.getone())).offset == 0
            consumer.pause(P0)
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert await consumer.position(P0) == 1
            consumer.resume(P0)
            assert (await within(waiting)).offset == 1
            consumer.seek(P0, 3)
            assert (await within(consumer.getone())).offset == 3

    asyncio.run(main())


def test_tasks_that_iterate_share_the_records(uri):
    async def main():
        await fill(uri, {0: 50, 1: 50, 2: 50})
        seen: list[Any] = []

        async def iterate(consumer):
            while len(seen) < 150:  # on a busy machine an iteration may end before all are there
                async for record in consumer:
                    seen.append(record)
                    await asyncio.sleep(0)

        async with reader(uri, consumer_timeout_ms=1_000, max_poll_records=7) as consumer:
            await asyncio.gather(*(iterate(consumer) for _ in range(3)))
        for partition in range(3):
            assert [record.offset for record in seen if record.partition == partition] == list(range(50))

    asyncio.run(main())


def test_cancelled_readers_leave_every_record_to_the_others(uri):
    async def main():
        seen: list[Any] = []

        async def read_on(consumer, *partitions):
            while True:
                for records in (await consumer.getmany(*partitions, timeout_ms=200, max_records=3)).values():
                    seen.extend(records)

        async with reader(uri, group_id="g", enable_auto_commit=False) as consumer:
            tasks = [asyncio.create_task(read_on(consumer, *those)) for those in ((P0,), (P0, P1), (), ())]
            for round_ in range(10):
                await fill(uri, {0: 5, 1: 5, 2: 5}, begin=5 * round_)
                tasks.pop(round_ % len(tasks)).cancel()
                tasks.append(asyncio.create_task(read_on(consumer)))
                await asyncio.sleep(0.002 * round_)
            while len(seen) < 150:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await consumer.commit()
            assert [await consumer.committed(partition) for partition in (P0, P1, P2)] == [50, 50, 50]
        for partition in range(3):
            assert [record.offset for record in seen if record.partition == partition] == list(range(50))

    asyncio.run(within(main(), 60))


def test_batches_and_records_take_turns_and_lose_nothing(uri):
    async def main():
        await fill(uri, {0: 30, 1: 30, 2: 30})
        seen: list[tuple[int, int]] = []

        async def batches(consumer):
            for _ in range(8):
                for partition, batch in (await consumer.poll_batches(100, max_records=5)).items():
                    seen.extend((partition.partition, offset) for offset in batch.column("offset").to_pylist())

        async def ones(consumer):
            for _ in range(8):
                record = await consumer.getone()
                seen.append((record.partition, record.offset))

        async with reader(uri, consumer_timeout_ms=500, max_poll_records=20) as consumer:
            cancelled = asyncio.create_task(consumer.poll_batches(60_000, max_records=5))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.gather(batches(consumer), ones(consumer), ones(consumer))
            while len(seen) < 90:  # on a busy machine an iteration may end before all are there
                seen += [(record.partition, record.offset) async for record in consumer]
        assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(30)]

    asyncio.run(within(main(), 60))


def test_an_error_reaches_one_task_and_the_others_go_on(uri):
    def refuse(data):
        if data == b"1":
            raise ValueError("on purpose")
        return data

    async def main():
        async with reader(uri, value_deserializer=refuse) as consumer:
            tasks = [asyncio.create_task(consumer.getone(partition)) for partition in (P0, P1)]
            await asyncio.sleep(0.02)
            await fill(uri, {0: 1}, begin=1)
            with pytest.raises(RecordDeserializationError, match="t-0 at offset 0"):
                await within(tasks[0])
            await fill(uri, {1: 1})
            assert (await within(tasks[1])).partition == 1

    asyncio.run(main())


def test_closing_ends_all_that_wait_and_iterate(uri):
    async def main():
        consumer = reader(uri)
        await consumer.start()

        async def iterate():
            return [record async for record in consumer]

        waiting = [
            asyncio.create_task(one)
            for one in (consumer.getone(P0), consumer.getmany(timeout_ms=60_000), consumer.poll_batches(60_000))
        ]
        iterating = asyncio.create_task(iterate())
        await asyncio.sleep(0.05)
        await within(consumer.close())
        for task in waiting:
            with pytest.raises(IllegalStateError, match="closed"):
                await within(task)
        assert await within(iterating) == []

    asyncio.run(main())


def test_a_listener_is_refused_records_and_may_start_a_task_that_reads(uri):
    errors: list[Exception] = []
    tasks: list[asyncio.Task[Any]] = []

    async def main():
        await fill(uri, {0: 1})
        async with Consumer(cluster=uri, group_id="g", auto_offset_reset="earliest") as consumer:

            class Listener:
                async def on_partitions_assigned(self, assigned):
                    tasks.append(asyncio.create_task(consumer.getone(P0)))
                    try:
                        await consumer.getone()
                    except IllegalStateError as error:
                        errors.append(error)

                def on_partitions_revoked(self, revoked):
                    """Nothing."""

            consumer.subscribe(["t"], listener=Listener())
            while not errors:
                assert await consumer.getmany(P1, timeout_ms=100) == {}
            assert "listener" in str(errors[0])
            assert (await within(tasks[0])).offset == 0

    asyncio.run(within(main(), 60))


def test_partitions_that_nobody_reads_leave_room_for_one_that_is_read(uri):
    async def main():
        async with Producer(uri) as producer:
            for _ in range(20):
                for partition in (0, 1):
                    await producer.send("t", b"x" * 1_000, partition=partition)
                await producer.flush()
        async with reader(uri, fetch_max_bytes=4_000, max_partition_fetch_bytes=4_000) as consumer:
            assert offsets(await consumer.getmany(P0, timeout_ms=60_000, max_records=1)) == {0: [0]}
            await asyncio.sleep(0.1)  # the others fill the buffer
            await fill(uri, {2: 1})
            assert offsets(await consumer.getmany(P2, timeout_ms=60_000)) == {2: [0]}
            found = 1
            while found < 20:
                found += len((await consumer.getmany(P0, timeout_ms=60_000))[P0])
            assert (await within(consumer.getone(P1))).offset == 0

    asyncio.run(within(main(), 60))
