"""The event loop that remote stores' requests share."""

import asyncio
import os
import threading

import pytest

from sparklog.storage import _event_loop
from sparklog.storage._event_loop import run_in_loop


async def one():
    return 1


def no_thread(thread):
    raise RuntimeError("can't start new thread")


def in_thread(call, results):
    def run():
        try:
            results.append(call())
        except RuntimeError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.fixture(autouse=True)
def without_loop(monkeypatch):
    """As in a process that has made no request yet."""
    monkeypatch.setattr(_event_loop, "_LOOPS", {})
    yield
    for loop in _event_loop._LOOPS.values():
        loop.call_soon_threadsafe(loop.stop)


def test_a_loop_whose_thread_cannot_be_started_is_nobodys(monkeypatch):
    def both():
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            coroutine = one()
            with pytest.raises(RuntimeError, match="can't start new thread"):
                run_in_loop(coroutine)
            coroutine.close()
        return run_in_loop(one())

    results = list[object]()
    thread = in_thread(both, results)
    thread.join(60)
    assert results == [1]


def test_threads_that_begin_at_once_share_a_loop():
    count, results = 8, list[object]()
    barrier = threading.Barrier(count)

    async def running():
        return asyncio.get_running_loop()

    def ask():
        barrier.wait(60)
        return run_in_loop(running())

    threads = [in_thread(ask, results) for _ in range(count)]
    for thread in threads:
        thread.join(60)
    assert len(results) == count
    assert {*results} == {_event_loop._LOOPS[os.getpid()]}
