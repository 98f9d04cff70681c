"""A store that doesn't answer: every page says so soon, none holds up another, and the console ends when it is told."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Any, TypeVar

import pytest

from sparklog.console import backend as backend_module
from sparklog.console.opening import SharedOpening
from sparklog.console.streaming import StreamedResponse
from sparklog.console.threads import Threads, result_of
from sparklog.errors import (
    InvalidArgumentError,
    SparklogError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from sparklog.log import Cluster
from sparklog.storage import MemoryStore
from sparklog.storage.request_counts import Activity, silent_ms
from sparklog.testing import ManualClock, WrappedStore
from tests.console.support import a_cluster, a_topic, backend_of, console
from tests.console.test_pages import text_of
from tests.console.test_streaming import Waiting, answered
from tests.support import T0_MS

T = TypeVar("T")
LONG_S = 60.0


class SilentStore(WrappedStore):
    """Answers no call below a path until it is let go on."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.silent_below: str | None = None
        self.goes_on = threading.Event()

    def read_many(self, paths: list[str]) -> list[bytes | None]:  # type: ignore[override]
        for path in paths:
            self._wait(path)
        return [*self._store.read_many(paths)]

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._wait(path)
        return call()

    def _wait(self, path: str) -> None:
        if self.silent_below is not None and path.startswith(self.silent_below):
            assert self.goes_on.wait(LONG_S)


@contextmanager
def silent(store: SilentStore, below: str) -> Iterator[None]:
    store.goes_on.clear()
    store.silent_below = below
    try:
        yield
    finally:
        store.silent_below = None
        store.goes_on.set()


class Opener:
    """Opens a cluster once it is let go on, and fails as often as it is told."""

    def __init__(self, *errors: SparklogError) -> None:
        self.goes_on = threading.Event()
        self.calls = 0
        self._errors = [*errors]

    def __call__(self) -> Cluster:
        self.calls += 1
        assert self.goes_on.wait(LONG_S)
        if self._errors:
            raise self._errors.pop(0)
        return a_cluster()


def test_one_attempt_to_open_is_for_all_who_ask_and_none_waits_for_it_long() -> None:
    opener = Opener()
    opening = SharedOpening(opener, wait_ms=0)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="hasn't answered for 0 s"):
            opening.cluster()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(opening.cluster, patiently=True) for _ in range(2)]
        opener.goes_on.set()
        found = {id(one.result(LONG_S)) for one in waiting}
    assert opener.calls == 1
    assert found == {id(opening.cluster())} == {id(opening.opened)}


def test_a_failed_attempt_is_the_answer_for_some_seconds_and_its_reason_is_kept() -> None:
    clock = ManualClock(start_ms=T0_MS)
    opener = Opener(StoreUnavailableError("slow down"), InvalidArgumentError("no cluster"))
    opener.goes_on.set()
    opening = SharedOpening(opener, wait_ms=0, clock=clock)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="slow down"):
            opening.cluster(patiently=True)
    assert opener.calls == 1
    opener.goes_on.clear()
    clock.sleep_ms(3_000)
    with pytest.raises(StoreUnavailableError, match="hasn't answered for 0 s: slow down"):
        opening.cluster()
    opener.goes_on.set()
    with pytest.raises(InvalidArgumentError, match="no cluster"):
        opening.cluster(patiently=True)
    clock.sleep_ms(3_000)
    assert opening.cluster(patiently=True) is opening.opened
    assert opener.calls == 3


@pytest.mark.parametrize(
    ("activity", "expected"),
    [
        (Activity(), 0),  # nothing was asked
        (Activity(answered_ms=11_000), 0),  # whoever waits, computes
        (Activity(answered_ms=500), 0),
        (Activity(oldest_call_ms=16_000), 4_000),
        (Activity(oldest_call_ms=500), 10_000),  # what was before the wait doesn't count
        (Activity(oldest_call_ms=16_000, answered_ms=11_000), 4_000),  # computed in between
        (Activity(oldest_call_ms=11_000, answered_ms=19_000), 1_000),  # another call was answered
        (Activity(answered_ms=11_000, failing_since_ms=15_000), 5_000),  # between two attempts
        (Activity(oldest_call_ms=19_900, failing_since_ms=15_000), 5_000),  # repeated
        (Activity(oldest_call_ms=11_000, failing_since_ms=15_000), 9_000),
    ],
)
def test_a_store_is_silent_as_long_as_it_is_asked_in_vain(activity: Activity, expected: float) -> None:
    assert silent_ms(activity, since_ms=10_000, now_ms=20_000) == expected


def test_a_page_that_computes_for_long_does_not_wait_for_the_store() -> None:
    """A topic with very many files takes seconds to be read, in which the store is asked nothing."""
    looked, has_checked = threading.Semaphore(0), threading.Event()
    with console(a_cluster(), silence_timeout_ms=1) as client:
        backend = backend_of(client)
        asked = backend._asked

        def look() -> Activity:
            if not has_checked.is_set():  # a busy machine may take longer for the one call than a store may
                return Activity()
            looked.release()
            return asked()

        backend._asked = look  # type: ignore[method-assign]

        def compute() -> str:
            backend.check_store()
            has_checked.set()
            for _ in range(3):
                assert looked.acquire(timeout=LONG_S)
            return "done"

        assert asyncio.run(backend.answer(compute, backend.page_threads)) == "done"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/topics/orders", "/api/topics/orders", "/topics/orders/records", "/topics/orders/tail"]
)
def test_a_page_does_not_wait_for_a_silent_store(path: str) -> None:
    store = SilentStore()
    cluster = a_cluster(store)
    a_topic(cluster)
    with console(cluster, silence_timeout_ms=50) as client:
        with silent(store, "topics/"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert "the store hasn" in answer.text
        if "tail" not in path:
            patiently(client, path)


@pytest.mark.slow
def test_statements_ask_a_silent_store_before_anything_is_begun() -> None:
    store = SilentStore()
    cluster = a_cluster(store)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    with console(cluster, silence_timeout_ms=50) as client, silent(store, ""):
        for path in ("/sql?q=select+1", "/api/sql?q=select+1"):
            assert client.get(path).status_code == 503
        asked = client.post("/mcp", json={**call, "params": {"name": "sql", "arguments": {"query": "select 1"}}})
        assert asked.status_code == 503


@pytest.mark.slow
def test_pages_that_hang_do_not_hold_up_the_overview() -> None:
    store = SilentStore()
    cluster = a_cluster(store)
    a_topic(cluster)
    hanging = (silent(store, "topics/"), ThreadPoolExecutor(40))
    with console(cluster, silence_timeout_ms=1) as client, hanging[0], hanging[1] as threads:
        answers = [threads.submit(client.get, "/topics/orders") for _ in range(40)]
        assert {one.result(LONG_S).status_code for one in answers} == {503}
        assert "orders" in text_of(patiently(client, "/"))  # the forty went, their threads hang
        for path in ("/metrics", "/api/topics"):
            patiently(client, path)


def patiently(client: Any, path: str) -> str:
    """The page, which is asked for again while it is 503: a busy machine may be slower than a store may be."""
    answers = (client.get(path) for _ in range(50))
    page: str = next(answer.text for answer in answers if answer.status_code == 200)
    return page


def test_before_the_cluster_is_open_pages_say_why() -> None:
    opener = Opener()
    with console(a_cluster(), looks=False) as client:
        backend = backend_of(client)
        backend._opening = SharedOpening(opener, wait_ms=0)
        page = client.get("/topics/orders")
        assert page.status_code == 503
        assert "the store hasn&#39;t answered" in page.text
        assert client.get("/").status_code == 503
        backend._opening = SharedOpening(opener, wait_ms=0)
        opener.goes_on.set()
        backend._opening.cluster(patiently=True)
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("writes", [False, True])
def test_the_end_of_the_console_ends_the_wait_for_what_hangs(monkeypatch: pytest.MonkeyPatch, writes: bool) -> None:
    """Of a change nobody knows then whether it was made."""
    monkeypatch.setattr(backend_module, "_GRACE_MS", 0.0)
    goes_on = threading.Event()
    with console(a_cluster()) as client:
        backend = backend_of(client)

        def hang() -> None:
            backend.end_jobs()
            assert goes_on.wait(LONG_S)

        awaited = backend.carry_out(hang) if writes else backend.answer(hang, backend.page_threads)
        expected: type[StoreError] = StoreOutcomeUnknownError if writes else StoreUnavailableError
        try:
            with pytest.raises(expected, match="ending"):
                asyncio.run(awaited)
        finally:
            goes_on.set()


def test_a_place_is_given_back_by_an_answer_that_came_too_late() -> None:
    """Else searches would be refused for ever once a store was away."""
    store, closed = SilentStore(), threading.Event()
    job = Waiting()
    job.close = closed.set  # type: ignore[method-assign]
    cluster = a_cluster(store)

    def late() -> StreamedResponse:
        cluster.store.list_names("topics/")
        return StreamedResponse(job, media_type="text/plain")

    with console(cluster, silence_timeout_ms=1) as client:
        backend = backend_of(client)
        with silent(store, "topics/"):
            with pytest.raises(StoreUnavailableError):
                asyncio.run(backend.answer(late, backend.page_threads))
            assert not closed.is_set()
        assert closed.wait(LONG_S)


def test_a_streamed_answer_whose_work_hangs_ends_and_closes_it_later() -> None:
    goes_on, closed = threading.Event(), threading.Event()

    class Hanging:
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            assert goes_on.wait(LONG_S)
            yield b"b"

        def cancel(self) -> None:
            """It hears nothing."""

        def close(self) -> None:
            closed.set()

    over = StoreUnavailableError("over")
    sent = answered(StreamedResponse(Hanging(), media_type="text/plain", gives_up=lambda: over), leaves_after=None)
    assert sent[-1]["more_body"] is True
    assert not closed.is_set()
    goes_on.set()
    assert closed.wait(LONG_S)


def test_no_more_threads_than_allowed_make_calls_and_who_waits_may_go() -> None:
    goes_on, begun = threading.Event(), threading.Semaphore(0)
    threads = Threads("test", 2)
    made = []

    def call(number: int) -> int:
        made.append(number)
        begun.release()
        assert goes_on.wait(LONG_S)
        return number

    async def run() -> None:
        futures = [threads.submit(partial(call, number)) for number in range(4)]
        assert begun.acquire(timeout=LONG_S)
        assert begun.acquire(timeout=LONG_S)
        with pytest.raises(StoreUnavailableError):
            await result_of(futures[2], lambda: StoreUnavailableError("gone"))
        assert len(made) == 2
        goes_on.set()
        assert await result_of(futures[3], lambda: None) == 3
        assert sorted(made) == [0, 1, 3]

    asyncio.run(run())


@pytest.mark.slow
def test_the_command_listens_and_ends_though_the_store_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:  # takes connections, and says nothing
        options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{hole.getsockname()[1]}"}
        command = [sys.executable, "-m", "sparklog", "-c", "s3://bucket/prefix", "ui", "--listen", "127.0.0.1:0"]
        environment = {**os.environ, "SPARKLOG_STORAGE_OPTIONS": json.dumps(options)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stderr is not None
                lines = [process.stderr.readline(), process.stderr.readline()]
                assert "WARNING sparklog.console: the store is unavailable" in lines[0]
                connection = HTTPConnection(lines[1].removeprefix("open http://").rstrip("/\n"), timeout=LONG_S)
                for path in ("/topics/orders", "/"):
                    connection.request("GET", path)
                    response = connection.getresponse()
                    assert response.status == 503
                    assert "the store hasn" in response.read().decode()
                connection.close()
                process.terminate()
                assert "Traceback" not in process.stderr.read()
                assert process.wait(LONG_S) == 0
            finally:
                process.kill()
