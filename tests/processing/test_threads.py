"""The event loop of handlers that are async."""

from __future__ import annotations

import pytest

from sparklog.processing.threads import LoopThread
from sparklog.workers import Worker


async def one() -> int:
    return 1


def no_thread(worker: Worker) -> None:
    raise RuntimeError("can't start new thread")


def test_a_loop_whose_thread_cannot_be_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread()
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "start", no_thread)
        coroutine = one()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            loop.run(coroutine)
        coroutine.close()
    assert loop.run(one()) == 1
    loop.stop()
