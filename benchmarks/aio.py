"""The clients for asyncio beside the synchronous ones: the same records, in a folder, one client after the other."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.extent import Extent
from benchmarks.harness import Case, Goal, Usage, compare, empty_files, run, run_passes, used
from benchmarks.peers import arrow_batch, expect, records, some_records, sparklog_count, sparklog_topic
from benchmarks.produce import BATCH, TOPIC, send_batch_sparklog, send_sparklog

_VALUE_SIZE = 100
_AT_ONCE = 5_000
"""Records that are sent before their offsets are waited for."""
_WANTED = 0.8
"""Times as fast as the synchronous client."""


def send_batch_aio(root: str, *, batches: int, value_size: int) -> Usage:
    from sparklog.aio import Producer

    table = arrow_batch(some_records(BATCH, value_size))

    async def main() -> Usage:
        async with Producer(root, acks=1) as producer:
            await producer.partitions_for(TOPIC)
            with used(batches * BATCH) as usage:
                for _ in range(batches):
                    await producer.send_batch(TOPIC, table)
                await producer.flush()
        return usage

    usage = asyncio.run(main())
    expect("records in the topic", sparklog_count(root, TOPIC), batches * BATCH)
    return usage


def send_aio(root: str, *, count: int, value_size: int, waits: bool = False) -> Usage:
    """``send`` of ``count`` records; with ``waits`` for the offsets of each 5,000 before the next are sent."""
    from sparklog.aio import Producer

    given = list(records(count, value_size))

    async def main() -> Usage:
        async with Producer(root, acks=1) as producer:
            await producer.partitions_for(TOPIC)
            with used(count) as usage:
                sent = []
                for key, value in given:
                    future = await producer.send(TOPIC, value, key)
                    if waits:
                        sent.append(future)
                        if len(sent) == _AT_ONCE:
                            expect("offsets", len({(await one).offset for one in sent}) > 0, True)
                            sent = []
                await producer.flush()
        return usage

    usage = asyncio.run(main())
    expect("records in the topic", sparklog_count(root, TOPIC), count)
    return usage


def send_and_get(root: str, *, count: int, value_size: int) -> Usage:
    """The synchronous ``send``, waiting for the offsets of each 5,000 before the next are sent."""
    from sparklog.producer import Producer

    given = list(records(count, value_size))
    with Producer(root, acks=1) as producer:
        producer.partitions_for(TOPIC)
        with used(count) as usage:
            sent = []
            for key, value in given:
                sent.append(producer.send(TOPIC, value=value, key=key))
                if len(sent) == _AT_ONCE:
                    expect("offsets", len({one.get().offset for one in sent}) > 0, True)
                    sent = []
            producer.flush()
    expect("records in the topic", sparklog_count(root, TOPIC), count)
    return usage


def read(root: str, *, count: int, has_batches: bool) -> Usage:
    from sparklog.consumer import Consumer

    seen = 0
    with used(count) as usage:
        consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest", max_poll_records=5_000)
        while seen < count:
            if has_batches:
                seen += sum(batch.num_rows for batch in consumer.poll_batches(timeout_ms=1_000).values())
            else:
                seen += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
    consumer.close()
    expect("records", seen, count)
    return usage


def read_aio(root: str, *, count: int, has_batches: bool) -> Usage:
    from sparklog.aio import Consumer

    async def main() -> tuple[int, Usage]:
        seen = 0
        with used(count) as usage:
            consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest", max_poll_records=5_000)
            await consumer.start()
            while seen < count:
                if has_batches:
                    seen += sum(batch.num_rows for batch in (await consumer.poll_batches(timeout_ms=1_000)).values())
                else:
                    seen += sum(map(len, (await consumer.poll(timeout_ms=1_000)).values()))
        await consumer.close()
        return seen, usage

    seen, usage = asyncio.run(main())
    expect("records", seen, count)
    return usage


def aio(extent: Extent) -> None:
    """What a call by way of the event loop costs."""
    batches = extent.of(4, 4, 12)
    count = batches * BATCH
    size = {"value_size": _VALUE_SIZE}
    writing: list[tuple[str, Callable[..., Usage], Callable[..., Usage], dict[str, Any]]] = [
        ("send_batch", send_batch_sparklog, send_batch_aio, {"batches": batches, **size}),
        ("send", send_sparklog, send_aio, {"count": count, **size}),
        ("send, offsets of 5,000 awaited", send_and_get, partial(send_aio, waits=True), {"count": count // 5, **size}),
    ]
    for name, synchronous, by_asyncio, settings in writing:
        _compare(name, partial(_write, synchronous, settings), partial(_write, by_asyncio, settings))
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/cluster"
        sparklog_topic(root, TOPIC)
        run(send_batch_sparklog, root=root, batches=3 * batches, **size)
        for name, has_batches, passes in (("poll_batches", True, 10), ("poll", False, 6)):  # a second of poll, or more
            given: dict[str, Any] = {
                "root": root,
                "count": 3 * count,
                "has_batches": has_batches,
                "passes": extent.of(1, passes, passes),
            }
            _compare(name, partial(run_passes, read, **given), partial(run_passes, read_aio, **given))


def _compare(name: str, synchronous: Callable[[], Usage], by_asyncio: Callable[[], Usage]) -> None:
    cases = [Case(f"{name}, synchronous", synchronous, is_peer=True), Case(f"{name}, asyncio", by_asyncio)]
    compare(cases, [Goal(f"asyncio, {name}", name, _WANTED, _WANTED)])


def _write(function: Callable[..., Usage], settings: dict[str, Any]) -> Usage:
    given = dict(settings)
    if isinstance(function, partial):
        given.update(function.keywords)
        function = function.func
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/cluster"
        sparklog_topic(root, TOPIC)
        usage = _run(function, {"root": root, **given})
        empty_files(folder)
    return usage


def _run(function: Callable[..., Usage], given: dict[str, Any]) -> Usage:
    return Usage(**run(function, **given))
