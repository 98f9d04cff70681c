"""A queue of one task that puts and one that takes."""

from __future__ import annotations

import asyncio

from sparklog.gateway.bounded_queue import BoundedQueue


def test_what_is_put_comes_in_its_order_and_no_more_than_the_limit_waits():
    async def play():
        queue: BoundedQueue[int] = BoundedQueue(3)

        async def put_all():
            for number in range(20):
                await queue.put(number)

        putting = asyncio.ensure_future(put_all())
        await asyncio.sleep(0)
        assert queue.first == 0
        assert queue.take_first() == 0
        found = [0]
        while len(found) < 20:
            found.append(await asyncio.wait_for(queue.get(), 60))
            await asyncio.sleep(0)
        assert found == [*range(20)]
        assert queue.first is None
        await putting

    asyncio.run(play())


def test_who_waits_goes_on_when_there_is_something_or_room():
    async def play():
        queue: BoundedQueue[int] = BoundedQueue(2)
        getting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        await queue.put(1)
        assert await asyncio.wait_for(getting, 60) == 1
        await queue.put(2)
        await queue.put(3)
        putting = asyncio.ensure_future(queue.put(4))
        await asyncio.sleep(0)
        assert not putting.done()
        assert queue.take_all() == [2, 3]
        await asyncio.wait_for(putting, 60)
        assert queue.take_all() == [4]

    asyncio.run(play())


def test_the_last_item_needs_no_room():
    async def play():
        queue: BoundedQueue[int | None] = BoundedQueue(1)
        await queue.put(1)
        queue.put_last(None)
        assert [await queue.get(), await queue.get()] == [1, None]
        getting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.put_last(None)
        assert await asyncio.wait_for(getting, 60) is None

    asyncio.run(play())


def test_a_wait_that_is_given_up_loses_nothing():
    async def play():
        queue: BoundedQueue[int] = BoundedQueue(1)
        getting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        getting.cancel()
        await asyncio.wait([getting])
        await queue.put(1)
        assert queue.first == 1
        putting = asyncio.ensure_future(queue.put(2))
        await asyncio.sleep(0)
        putting.cancel()
        await asyncio.wait([putting])
        assert await queue.get() == 1
        assert queue.first is None

    asyncio.run(play())
