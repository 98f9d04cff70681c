"""Frames are read as they were sent, however their bytes come."""

from __future__ import annotations

import asyncio
import struct
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.gateway import frame_reader
from sparklog.gateway.frame_reader import FrameReader, new_protocol


class Transport(asyncio.Transport):
    """Receives nothing while it is paused; what is lost can't go on, as with TLS in Python 3.10."""

    def __init__(self):
        super().__init__()
        self.is_paused = False
        self.is_lost = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        if self.is_lost:
            raise AttributeError("'NoneType' object has no attribute 'resume_reading'")
        self.is_paused = False

    def is_closing(self):
        return True


class Client:
    """The protocol of a connection, and what the system would do with it."""

    def __init__(self):
        self.readers: list[FrameReader] = []
        self.transport = Transport()
        self.protocol = new_protocol(lambda reader, writer: self.readers.append(reader))()
        self.protocol.connection_made(self.transport)
        self.reader: FrameReader = self.readers[0]

    def room(self):
        """Where the system is to receive."""
        return memoryview(self.protocol.get_buffer(-1))

    async def send(self, data, piece):
        """Bytes, ``piece`` at a time, as long as the reader takes them; the loop turns between."""
        left = memoryview(data)
        while left:
            if not self.transport.is_paused:
                room = self.room()
                size = min(len(room), piece, len(left))
                room[:size] = left[:size]
                self.protocol.buffer_updated(size)
                left = left[size:]
            await asyncio.sleep(0)

    async def read(self):
        """As a connection does."""
        head = self.reader.head()
        if head is None and await self.reader.has_come(4):
            head = self.reader.head()
        if head is not None:
            size, key = head
            frame = self.reader.take_frame(size)
            if frame is None:
                frame = await self.reader.read_frame((await self.reader.readexactly(12))[4:], size)
            assert (len(frame), int.from_bytes(frame[:2], "big")) == (size, key)
            return frame
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.read_frame(await self.reader.readexactly(8), size)


def frames(sizes):
    return [bytes(number % 251 for number in range(size)) for size in sizes]


def joined(all_frames):
    return b"".join(struct.pack(">i", len(one)) + one for one in all_frames)


@given(
    st.lists(st.sampled_from([8, 9, 20, 3_000, 65_536, 70_000, 200_000]), min_size=1, max_size=5),
    st.sampled_from([7_001, 65_536, 1_000_000]),
    st.sampled_from([0, 69_000, 4_194_304]),
)
@settings(max_examples=60, deadline=None)
def test_frames_come_as_they_were_sent_in_whatever_pieces(sizes, piece, direct_bytes):
    async def play():
        client, sent = Client(), frames(sizes)
        sending = asyncio.ensure_future(client.send(joined(sent), piece))
        found = [await asyncio.wait_for(client.read(), 60) for _ in sent]
        await sending
        assert [bytes(one) for one in found] == sent
        assert all(one.readonly for one in found)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(frame_reader, "_DIRECT_BYTES", direct_bytes)
        asyncio.run(play())


@given(st.lists(st.sampled_from([8, 9, 20, 300]), min_size=1, max_size=20), st.integers(1, 50), st.booleans())
@settings(max_examples=60, deadline=None)
def test_small_frames_come_in_whatever_pieces(sizes, piece, is_cut):
    async def play():
        client, sent = Client(), frames(sizes)
        sending = asyncio.ensure_future(client.send(joined(sent) + bytes(3 * is_cut), piece))
        found = [await asyncio.wait_for(client.read(), 60) for _ in sent]
        assert [bytes(one) for one in found] == sent
        await sending
        end = asyncio.ensure_future(client.reader.has_come(4))
        await asyncio.sleep(0)
        assert not end.done()
        client.protocol.eof_received()
        assert await asyncio.wait_for(end, 60) is False

    asyncio.run(play())


def test_whoever_waits_for_bytes_is_told_how_the_connection_was_lost():
    async def play():
        client = Client()
        waiting = asyncio.ensure_future(client.reader.has_come(4))
        await asyncio.sleep(0)
        client.protocol.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(play())


def test_a_large_frame_is_received_into_its_own_memory():
    async def play():
        client, (sent,) = Client(), frames([1_000_000])
        reading = asyncio.ensure_future(client.read())
        await client.send(joined([sent])[:500_000], 65_536)
        room = client.room()
        assert len(room) == 500_004
        room[:] = joined([sent])[500_000:]
        client.protocol.buffer_updated(len(room))
        frame = await asyncio.wait_for(reading, 60)
        assert frame == sent
        assert frame.obj is room.obj

    asyncio.run(play())


def test_memory_for_a_very_large_frame_isnt_taken_before_it_comes():
    async def play():
        client = Client()
        client.room()[:12] = struct.pack(">iq", 100_000_000, 0)
        client.protocol.buffer_updated(12)
        reading = asyncio.ensure_future(client.read())
        await asyncio.sleep(0)
        assert len(client.room()) == 65_536  # what all connections share
        reading.cancel()

    asyncio.run(play())


@pytest.mark.parametrize("sent", [0, 1, 100_000])
def test_a_client_that_goes_within_a_frame_ends_the_wait(sent):
    async def play():
        client = Client()
        reading = asyncio.ensure_future(client.read())
        await client.send(joined(frames([200_000]))[: 12 + sent], 65_536)
        assert not reading.done()
        client.protocol.eof_received()
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(reading, 60)

    asyncio.run(play())


def test_a_client_that_goes_directly_behind_a_large_frame_has_sent_it():
    async def play():
        client, (sent,) = Client(), frames([200_000])
        reading = asyncio.ensure_future(client.read())
        await client.send(joined([sent])[:100_000], 65_536)
        room = client.room()
        room[:] = joined([sent])[100_000:]
        client.protocol.buffer_updated(len(room))
        client.protocol.eof_received()
        assert await asyncio.wait_for(reading, 60) == sent

    asyncio.run(play())


def test_a_frame_that_isnt_here_as_a_whole_isnt_taken():
    async def play():
        reader, sent = FrameReader(), frames([20])
        for number, byte in enumerate(joined(sent)):
            assert reader.head() == ((20, 1) if number >= 12 else None)
            assert reader.head() is None or reader.take_frame(20) is None
            reader.feed_data(bytes([byte]))
        assert not reader.at_eof()
        assert reader.take_frame(20) == sent[0]
        reader.feed_data(joined(sent))
        reader.set_exception(TimeoutError())
        assert reader.head() is None  # whoever reads is to hear of the error

    asyncio.run(play())


def test_a_client_that_went_before_its_frame_was_asked_for_ends_the_wait():
    async def play():
        client = Client()
        await client.send(joined(frames([200_000]))[:50_000], 65_536)
        client.protocol.eof_received()
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(client.read(), 60)

    asyncio.run(play())


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_error_within_a_frame_ends_the_wait(is_lost):
    async def play():
        client = Client()
        reading = asyncio.ensure_future(client.read())
        await client.send(joined(frames([200_000]))[:50_000], 65_536)
        if is_lost:
            client.protocol.connection_lost(ConnectionResetError("reset"))
        else:
            client.reader.set_exception(TimeoutError())
        with pytest.raises(ConnectionResetError if is_lost else asyncio.TimeoutError):
            await asyncio.wait_for(reading, 60)
        client.reader.feed_eof()  # and nobody waits any more

    asyncio.run(play())


def test_what_comes_after_a_wait_was_given_up_harms_nobody():
    async def play():
        client = Client()
        reading = asyncio.ensure_future(client.read())
        data = joined(frames([200_000]))
        await client.send(data[:50_000], 65_536)
        reading.cancel()
        await asyncio.wait([reading])
        await client.send(data[50_000:100_000], 10_000)
        assert await client.reader.readexactly(50_000) == data[50_000:100_000]

    asyncio.run(play())


def test_a_client_that_is_faster_than_its_requests_are_read_is_held_up():
    async def play():
        client, sent = Client(), frames([60_000] * 6)
        sending = asyncio.ensure_future(client.send(joined(sent), 65_536))
        while not client.transport.is_paused:
            await asyncio.sleep(0)
        assert [await asyncio.wait_for(client.read(), 60) for _ in sent] == sent
        await sending

    asyncio.run(play())


@pytest.mark.parametrize("is_whole", [True, False])
def test_requests_that_had_come_are_read_though_their_client_has_gone(is_whole):
    async def play():
        client, sent = Client(), frames([60_000] * 3)
        data = joined(sent)[: None if is_whole else -1]
        for start in range(0, len(data), 65_536):  # at once, before anybody reads
            piece = data[start : start + 65_536]
            client.room()[: len(piece)] = piece
            client.protocol.buffer_updated(len(piece))
        assert client.transport.is_paused
        client.transport.is_lost = True
        client.protocol.connection_lost(None)
        whole = sent if is_whole else sent[:2]
        assert [await asyncio.wait_for(client.read(), 60) for _ in whole] == whole
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(client.read(), 60)

    asyncio.run(play())


@pytest.mark.parametrize("size", [200_000, 5_000_000])
def test_the_first_byte_of_the_next_frame_keeps_no_memory_of_the_one_before(size):
    async def play():
        client, (sent, following) = Client(), frames([size, 20])
        data = joined([sent, following])
        begun, rest = data[: size + 5], data[size + 5 :]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(frame_reader, "_DIRECT_BYTES", 0)  # so that it comes among what is read ahead
            reading = asyncio.ensure_future(client.read())
            await client.send(begun, 65_536)
            assert await asyncio.wait_for(reading, 60) == sent
        assert sys.getsizeof(client.reader._ahead) < 65_536
        await client.send(rest, 65_536)
        assert await asyncio.wait_for(client.read(), 60) == following

    asyncio.run(play())


@pytest.mark.parametrize("ends_at_once", [True, False], ids=["before", "while it is read"])
def test_the_error_of_a_request_that_breaks_off_keeps_none_of_its_memory(ends_at_once):
    """✗ Its room was another client's already: 300 producers that were killed together took 1.2 GB for a moment."""
    size = 1_000_000

    async def play():
        reader = FrameReader()
        if ends_at_once:
            reader.feed_eof()
        tracemalloc.start()
        try:
            reading = asyncio.ensure_future(reader.read_frame(bytes(8), size))
            await asyncio.sleep(0)
            reader.feed_eof()
            await asyncio.wait([reading])
            assert isinstance(reading.exception(), asyncio.IncompleteReadError)
            assert tracemalloc.get_traced_memory()[0] < size // 2
        finally:
            tracemalloc.stop()

    asyncio.run(play())
