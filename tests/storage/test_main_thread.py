import os
import signal
import threading

import pytest

from sparklog.storage import _main_thread
from sparklog.storage._main_thread import run_interruptibly


def idle_threads():
    return _main_thread._IDLE.get(os.getpid(), [])


def test_the_main_threads_calls_are_made_by_one_thread_that_is_kept(monkeypatch):
    monkeypatch.setattr(_main_thread, "_IDLE", {})
    makers = {run_interruptibly(threading.get_ident) for _ in range(3)}
    assert len(makers) == 1
    assert threading.get_ident() not in makers
    assert len(idle_threads()) == 1


def test_another_thread_makes_its_calls_itself():
    makers = []
    thread = threading.Thread(target=lambda: makers.append(run_interruptibly(threading.get_ident)))
    thread.start()
    thread.join()
    assert makers == [thread.ident]


def test_an_error_is_the_callers_and_the_thread_is_kept():
    def fail():
        raise ValueError("no")

    run_interruptibly(lambda: None)
    before = len(idle_threads())
    with pytest.raises(ValueError, match="no"):
        run_interruptibly(fail)
    assert len(idle_threads()) == before


def test_who_was_interrupted_does_not_wait_for_the_old_call():
    ended, over = threading.Event(), list[bool]()
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - on a busy machine it may come before the call
        timer.start()
        run_interruptibly(lambda: over.append(ended.wait(60)))
    assert run_interruptibly(lambda: 1) == 1
    assert over == []
    ended.set()
    timer.join()
