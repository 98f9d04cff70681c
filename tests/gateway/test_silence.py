"""Waits for a client end when it says nothing, and not while a request comes."""

from __future__ import annotations

import asyncio

from sparklog.gateway.frame_reader import FrameReader
from sparklog.gateway.silence import Silence


class Loop(asyncio.SelectorEventLoop):
    """Its time goes on as it is told."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def time(self):
        return self.now_s

    async def until(self, now_s):
        """Let the time come, in steps of a second."""
        while self.now_s < now_s:
            self.now_s += 1
            for _ in range(3):
                await asyncio.sleep(0)


def play(test):
    loop = Loop()
    try:
        loop.run_until_complete(test(loop))
    finally:
        loop.close()


def begun(loop, size=None):
    """A wait, between requests or for a frame's bytes."""
    reader = FrameReader()
    silence = Silence(reader, loop, wait_s=600, within_frame_s=30)
    reading = reader.readexactly(4) if size is None else reader.read_frame(bytes(8), size)
    return reader, silence, loop.create_task(silence.bound(reading, within_frame=size is not None))


def why(waiting):
    assert waiting.done()
    error = waiting.exception()
    assert isinstance(error, asyncio.TimeoutError)
    return str(error)


def feed(reader, size):
    reader.room(memoryview(bytearray(65_536)))
    reader.received(size, memoryview(bytes(65_536)))


def test_between_requests_a_client_may_be_silent_for_long():
    async def test(loop):
        _, _, waiting = begun(loop)
        await loop.until(599)
        assert not waiting.done()
        await loop.until(602)
        assert why(waiting) == "it was idle for too long"

    play(test)


def test_within_a_request_it_may_not():
    async def test(loop):
        for size in (1_000, 100 << 20):
            began_s = loop.now_s
            _, _, waiting = begun(loop, size)
            await loop.until(began_s + 29)
            assert not waiting.done()
            await loop.until(began_s + 62)
            assert why(waiting) == "it fell silent within a request"

    play(test)


def test_a_frame_that_begins_long_after_the_one_before_is_looked_after():
    async def test(loop):
        reader, silence, waiting = begun(loop)
        await loop.until(500)
        feed(reader, 4)
        await waiting
        waiting = loop.create_task(silence.bound(reader.read_frame(bytes(8), 1_000), within_frame=True))
        await loop.until(565)
        assert why(waiting) == "it fell silent within a request"

    play(test)


def test_a_request_that_comes_slowly_is_waited_for_as_long_as_for_any():
    async def test(loop):
        for size in (1_000, 100 << 20):
            began_s = loop.now_s
            reader, _, waiting = begun(loop, size)
            for seconds in range(25, 600, 25):
                await loop.until(began_s + seconds)
                assert not waiting.done()
                feed(reader, 1)
            await loop.until(began_s + 602)
            assert why(waiting) == "it was idle for too long"

    play(test)


def test_nothing_ends_while_nobody_waits_for_the_client():
    async def test(loop):
        reader, silence, waiting = begun(loop)
        feed(reader, 4)
        await waiting
        await loop.until(10_000)
        assert reader.exception() is None
        silence.end()

    play(test)
