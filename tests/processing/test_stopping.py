"""Ends of a worker that begin in a handler, or while one is at work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from sparklog.errors import HandlerError
from sparklog.log import Cluster
from sparklog.processing import Batch, DeadLetter, Fixed, Record, Retry, State, worker
from sparklog.processing.handling import HandlerCancelledError
from sparklog.processing.threads import LoopThread
from sparklog.processing.worker import AppSettings
from tests.processing.support import LONG_S, a_world, an_app, committed, done, running, send, texts, wait_for

KINDS = ["consumer", "share"]


def a_worker(cluster, kind, **settings):
    return an_app(cluster, group_type=kind, **({} if kind == "consumer" else {"consumer": {}}), **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wraps", [False, True])
def test_a_stop_while_an_async_handler_is_at_work_is_a_clean_one(kind, wraps):
    """✗ The worker cancels the handler, and takes that for its failure."""
    cluster, begun = a_world("in"), threading.Event()
    send(cluster, "in", ["a", "b"])
    app = a_worker(cluster, kind, drain_timeout_s=0.1)

    @app.subscriber("in")
    async def handle(record: Record[str]) -> None:
        begun.set()
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError as error:
            if wraps:
                raise ValueError("interrupted") from error
            raise

    app.start()
    assert begun.wait(LONG_S)
    app.stop()
    time.sleep(0.1)  # the handler's thread may be at its end still
    assert app.health().error is None
    assert app.health().state is State.STOPPED
    if kind == "consumer":
        assert committed(cluster, "in") == 0


def test_a_stop_while_an_async_handler_of_batches_is_at_work_is_a_clean_one():
    cluster, begun = a_world("in"), threading.Event()
    send(cluster, "in", ["a", "b"])
    app = an_app(cluster, drain_timeout_s=0.1)

    @app.subscriber("in")
    async def handle(batch: Batch[str]) -> None:
        begun.set()
        await asyncio.sleep(LONG_S)

    app.start()
    assert begun.wait(LONG_S)
    app.stop()
    assert app.health().error is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_task_that_a_handler_awaits_is_an_error_of_the_handler(kind):
    """✗ It ends the worker, as SystemExit does, though there are retries and a dead-letter topic."""
    cluster, tries = a_world("in", "dlq.in"), []
    send(cluster, "in", ["a", "b"])
    app = a_worker(cluster, kind)

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0.01)), dead_letter=True)
    async def handle(record: Record[str]) -> None:
        tries.append(record.value)
        if record.value == "a":
            task = asyncio.ensure_future(asyncio.sleep(LONG_S))
            task.cancel()
            await task

    with running(app):
        done(app, 2)
    assert texts(cluster, "dlq.in") == ["a"]
    assert tries.count("a") == 2


def test_a_cancelled_task_is_an_error_of_a_handler_of_batches():
    cluster = a_world("in", "dlq.in")
    send(cluster, "in", ["a", "b"])
    app = an_app(cluster)

    @app.subscriber("in", dead_letter=True)
    async def handle(batch: Batch[str]) -> None:
        if "a" in batch.values:
            raise asyncio.CancelledError

    with running(app):
        done(app, 2)
    assert texts(cluster, "dlq.in") == ["a"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_by_a_handler_does_not_wait_for_itself(kind, is_async):
    """✗ It waits for drain_timeout_s, and its record isn't committed."""
    cluster = a_world("in")
    send(cluster, "in", ["a"])
    app = a_worker(cluster, kind, drain_timeout_s=LONG_S)
    took = []

    def stop() -> None:
        began = time.monotonic()
        app.stop()
        took.append(time.monotonic() - began)

    def handle(record: Record[str]) -> None:
        stop()

    async def handle_async(record: Record[str]) -> None:
        await asyncio.to_thread(stop)

    app.subscriber("in")(handle_async if is_async else handle)
    app.run()
    assert took[0] < LONG_S / 2
    assert app.metrics()["processing-metrics"]["records-processed-total"] == 1


def test_a_stop_by_the_hook_of_dead_letters_does_not_wait_for_itself():
    """✗ It waits for ever."""
    cluster = a_world("in", "dlq.in")
    send(cluster, "in", ["a"])

    def tell(letter: DeadLetter) -> None:
        app.stop()

    app = an_app(cluster, on_dead_letter=tell)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        raise ValueError("odd")

    app.run()
    assert committed(cluster, "in") == 1


def test_an_async_handler_that_would_begin_after_the_end_is_left_out():
    loop = LoopThread()
    loop.stop()
    with pytest.raises(HandlerCancelledError):
        loop.run(asyncio.sleep(0))


def test_a_handler_that_fails_for_good_still_ends_its_worker():
    cluster = a_world("in")
    send(cluster, "in", ["a"])
    app = an_app(cluster)

    @app.subscriber("in")
    async def handle(record: Record[str]) -> None:
        raise ValueError("odd")

    app.start()
    with pytest.raises(HandlerError, match="odd"):
        wait_for(lambda: False, app)


def test_a_signal_while_the_cluster_is_opened_ends_the_worker(monkeypatch):
    """✗ It is forgotten, and the worker runs until it is killed."""
    cluster = a_world("in")
    app = an_app(cluster)

    @app.subscriber("in")
    def handle(record: Record[str]) -> None: ...

    def slowly(settings: AppSettings) -> tuple[Cluster, bool]:
        os.kill(os.getpid(), signal.SIGTERM)
        return cluster, False

    monkeypatch.setattr(worker, "opened", slowly)
    app.run()
    assert app.health().state is State.STOPPED
