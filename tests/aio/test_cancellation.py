"""Calls of the clients for asyncio whose caller is cancelled, at each place where a call waits; and ends in between."""

import asyncio
import contextlib
import threading
import uuid
from typing import Any

import pytest

from sparklog import Admin as SyncAdmin
from sparklog import Consumer as SyncConsumer
from sparklog import Producer as SyncProducer
from sparklog import TopicPartition
from sparklog.aio import Admin, Consumer, Producer
from sparklog.errors import IllegalStateError, StoreUnavailableError

pytestmark = pytest.mark.slow


@pytest.fixture
def uri():
    uri = f"memory://{uuid.uuid4().hex}"
    SyncAdmin(uri).create_topics(["t"])
    return uri


class Gate:
    """Holds the calls of a method up until it is opened; counts those that have ended."""

    def __init__(self, monkeypatch, owner, name):
        self.arrived, self.is_open = threading.Event(), threading.Event()
        self.ended: list[Any] = []
        method = getattr(owner, name)

        def held_up(this, *given, **kwargs):
            self.arrived.set()
            assert self.is_open.wait(60)
            result = method(this, *given, **kwargs)
            self.ended.append(this)
            return result

        monkeypatch.setattr(owner, name, held_up)

    async def cancel(self, call):
        """Begin a call, and cancel it while it is held up."""
        task = asyncio.ensure_future(call)
        await asyncio.to_thread(self.arrived.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def values(uri):
    """All that is in the topic's one partition."""
    found: list[Any] = []
    async with Consumer("t", cluster=uri, auto_offset_reset="earliest") as consumer:
        [end] = (await consumer.end_offsets([TopicPartition("t", 0)])).values()
        while len(found) < end:
            polled = await consumer.getmany(timeout_ms=60_000)
            found += [record.value for records in polled.values() for record in records]
    return found


def test_asking_whether_a_record_is_stored_flushes_nothing(uri):
    async def main():
        async with Producer(uri, transactional_id="x") as producer, producer.transaction():
            sent = await producer.send("t", b"a")
            flushed: list[bool] = []
            batch = sent._batch
            flush, batch.begin_flush = batch.begin_flush, lambda: flushed.append(True)
            assert not sent.done()
            with pytest.raises(asyncio.InvalidStateError):
                sent.result()
            with pytest.raises(asyncio.InvalidStateError):
                sent.exception()
            other = await producer.send("t", b"b")
            assert other.cancel()
            assert other.cancelled()
            assert flushed == []
            batch.begin_flush = flush
            assert (await sent).offset == -1
            assert sent.done()
            assert sent.exception() is None
            assert sent.result().topic == "t"
            assert not sent.cancel()
        assert sent.result().offset == 0
        assert await values(uri) == [b"a", b"b"]

    asyncio.run(main())


def test_a_wait_that_times_out_ends_no_other_and_can_be_made_again(uri):
    async def main():
        async with Producer(uri, linger_ms=60_000) as producer:
            sent = await producer.send("t", b"a")
            other = asyncio.ensure_future(asyncio.gather(sent))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_awaited(sent), 0.05)
            assert not sent.cancelled()
            await producer.flush()
            assert [one.offset for one in await other] == [0]
            sent = await producer.send("t", b"b")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sent, 0.05)  # which cancels the future itself before Python 3.12
            await producer.flush()
            assert (await sent).offset == 1

    asyncio.run(main())


async def _awaited(sent):
    return await sent


def test_a_transaction_is_aborted_that_began_for_a_cancelled_block(uri, monkeypatch):
    async def enter(producer):
        async with producer.transaction():
            pytest.fail("entered")

    async def main():
        async with Producer(uri, transactional_id="x") as producer:
            gate = Gate(monkeypatch, SyncProducer, "begin_transaction")
            await gate.cancel(enter(producer))
            gate.is_open.set()
            await producer.partitions_for("t")  # after what is in the thread
            with pytest.raises(IllegalStateError):
                await producer.send("t", b"in no transaction")
            async with producer.transaction():
                await producer.send("t", b"a")
            assert len(gate.ended) == 2
        assert await values(uri) == [b"a"]

    asyncio.run(main())


def test_a_cancelled_begin_is_joined_by_the_next_and_by_no_other_task(uri, monkeypatch):
    async def main():
        async with Producer(uri, transactional_id="x") as producer:
            gate = Gate(monkeypatch, SyncProducer, "begin_transaction")
            await gate.cancel(producer.begin_transaction())
            gate.is_open.set()
            await producer.begin_transaction()
            await producer.abort_transaction()
            assert len(gate.ended) == 1
            begun = await asyncio.gather(
                producer.begin_transaction(), producer.begin_transaction(), return_exceptions=True
            )
            assert [type(one) for one in begun] == [type(None), IllegalStateError]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "client"), [(Producer, SyncProducer), (lambda uri: Consumer("t", cluster=uri), SyncConsumer)]
)
def test_a_client_whose_start_is_cancelled_is_closed(uri, monkeypatch, make, client):
    async def enter():
        async with make(uri):
            pytest.fail("entered")

    async def main():
        opening = Gate(monkeypatch, client, "__init__")
        closed: list[Any] = []
        name = "close" if client is SyncProducer else "_close"
        close = getattr(client, name)

        def closing(this, *given, **kwargs):
            closed.append(this)
            close(this, *given, **kwargs)

        monkeypatch.setattr(client, name, closing)
        await opening.cancel(enter())
        opening.is_open.set()
        for _ in range(3_000):
            if closed:
                break
            await asyncio.sleep(0.01)
        assert closed == opening.ended

        opening.is_open.clear()
        opening.arrived.clear()
        later = make(uri)
        await opening.cancel(later.start())
        opening.is_open.set()
        await later.close()  # at once: the loop doesn't know yet that the client is open
        assert closed == opening.ended
        assert len(closed) == 2

        again = make(uri)
        opening.is_open.clear()
        opening.arrived.clear()
        await opening.cancel(again.start())
        opening.is_open.set()
        await again.start()
        assert again.metrics()
        await again.close()
        assert closed == opening.ended
        assert len(closed) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "owner", "name"),
    [
        (Producer, SyncProducer, "close"),
        (lambda uri: Consumer("t", cluster=uri), SyncConsumer, "_close"),
        (Admin, SyncAdmin, "close"),
    ],
)
def test_a_cancelled_close_goes_on_and_the_next_waits_for_it(uri, monkeypatch, make, owner, name):
    async def main():
        client = make(uri)
        if not isinstance(client, Admin):
            await client.start()
        gate = Gate(monkeypatch, owner, name)
        await gate.cancel(client.close())
        again = asyncio.ensure_future(client.close())
        await asyncio.sleep(0.02)
        assert not again.done()
        gate.is_open.set()
        await again
        assert len(gate.ended) == 1
        await client.close()

    asyncio.run(main())


def test_an_admin_call_that_is_cancelled_goes_on(uri, monkeypatch):
    async def main():
        async with Admin(uri) as admin:
            gate = Gate(monkeypatch, SyncAdmin, "create_topics")
            await gate.cancel(admin.create_topics(["u"]))
            gate.is_open.set()
            assert await admin.list_topics() == ["t", "u"]

    asyncio.run(main())


def test_a_block_that_is_cancelled_delivers_what_was_sent(uri):
    async def send_and_hang(begun):
        async with Producer(uri, linger_ms=60_000) as producer:
            for number in range(10):
                await producer.send("t", b"%d" % number)
            begun.set()
            await asyncio.Event().wait()

    async def main():
        begun = asyncio.Event()
        task = asyncio.create_task(send_and_hang(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await values(uri) == [b"%d" % number for number in range(10)]

    asyncio.run(main())


def test_a_loop_that_ends_before_a_record_is_stored_harms_nobody(uri):
    producer = Producer(uri, linger_ms=200)

    async def send():
        await producer.start()
        sent = await producer.send("t", b"a")
        sent.add_done_callback(lambda done: None)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(sent), 0.01)

    asyncio.run(send())
    inner = producer._producer
    assert inner is not None
    inner.close()
    assert asyncio.run(values(uri)) == [b"a"]


def test_a_poll_that_fails_after_it_took_records_gives_them_back(uri, monkeypatch):
    async def main():
        async with Producer(uri) as producer:
            for number in range(20):
                await producer.send("t", b"%d" % number)
        async with Consumer("t", cluster=uri, auto_offset_reset="earliest") as consumer:
            runtime = consumer._started()._runtime
            poll = runtime.poll
            failed: list[Any] = []

            def failing(*given, **kwargs):
                found = poll(*given, **kwargs)
                if found and not failed:
                    failed.append(found)
                    raise StoreUnavailableError("after records were taken (injected)")
                return found

            monkeypatch.setattr(runtime, "poll", failing)
            with pytest.raises(StoreUnavailableError, match="injected"):
                await asyncio.wait_for(consumer.getone(), 60)
            seen = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(20)]
            assert seen == [b"%d" % number for number in range(20)]
            assert failed

    asyncio.run(main())


def test_a_future_can_be_awaited_in_the_next_loop_once_its_own_is_closed(uri):
    producer = Producer(uri, linger_ms=60_000)

    async def send():
        await producer.start()
        return [await producer.send("t", b"%d" % number) for number in range(2)]

    async def time_out(sent):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(sent), 0.01)

    async def send_and_time_out():
        sent = await send()
        await time_out(sent[0])
        return sent

    async def await_all(sent, inner):
        flushing = asyncio.create_task(asyncio.to_thread(inner.flush))
        found = [(await one).offset for one in sent]
        await flushing
        return found

    sent = asyncio.run(send_and_time_out())
    inner = producer._producer
    assert inner is not None
    assert asyncio.run(await_all(sent, inner)) == [0, 1]
    inner.close()


def test_callbacks_are_called_beside_some_that_raise(uri):
    called: list[Any] = []

    def fail(sent):
        called.append("fail")
        raise ValueError("injected")

    def interrupt(sent):
        called.append("interrupt")
        raise KeyboardInterrupt

    async def main():
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context))
        async with Producer(uri) as producer:
            sent = await producer.send("t", b"a")
            sent.add_done_callback(fail)
            sent.add_done_callback(interrupt)
            sent.add_done_callback(interrupt)
            assert sent.remove_done_callback(interrupt) == 2
            sent.add_done_callback(called.append)
            await sent
            await asyncio.sleep(0)
            assert called == ["fail", sent]
            assert [str(one["exception"]) for one in told] == ["injected"]
            late = await producer.send("t", b"b")
            await late
            late.add_done_callback(interrupt)
            late.add_done_callback(called.append)
            await asyncio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert called[2] == "interrupt"
    assert called[3].result().offset == 1
