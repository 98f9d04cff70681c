"""Work whose answer nobody waits for any more ends, and gives its place back."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from sparklog.console.jobs import TailJob
from sparklog.console.masks import NO_MASKS, Masks
from sparklog.console.streaming import StreamedResponse, in_chunks
from sparklog.errors import InvalidArgumentError
from tests.console.support import a_cluster, a_topic, backend_of, console, produce


class Waiting:
    """A job that yields, and then finds nothing until it is cancelled."""

    def __init__(self, *parts: bytes, fails: bool = False) -> None:
        self._parts = parts
        self._fails = fails
        self.cancelled = threading.Event()
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        if self._fails:
            raise InvalidArgumentError("no")
        yield from self._parts
        assert self.cancelled.wait(60)

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.is_closed = True


def answered(response: StreamedResponse, *, leaves_after: int | None) -> list[dict[str, Any]]:
    """What is sent to a client that goes away after so many messages, or stays."""

    async def run() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        left = anyio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == leaves_after:
                left.set()

        with anyio.fail_after(60):
            await response({"type": "http"}, receive, send)
        return sent

    return anyio.run(run)


def test_it_ends_when_the_client_goes_away() -> None:
    job = Waiting(b"a", b"b")
    sent = answered(StreamedResponse(job, media_type="text/plain"), leaves_after=3)
    assert [message.get("body") for message in sent] == [None, b"a", b"b", b""]
    assert (job.cancelled.is_set(), job.is_closed) == (True, True)


def test_it_ends_when_time_is_up() -> None:
    job = Waiting(b"a")
    answered(StreamedResponse(job, media_type="text/plain", timeout_ms=50), leaves_after=None)
    assert job.is_closed


def test_an_error_before_the_first_part_is_raised_and_nothing_was_sent() -> None:
    job = Waiting(fails=True)
    with pytest.raises(InvalidArgumentError):
        answered(StreamedResponse(job, media_type="text/plain"), leaves_after=None)
    assert job.is_closed


def test_an_error_within_ends_the_answer_and_its_text_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            raise InvalidArgumentError("Could not convert '5ecret'")

    caplog.set_level(logging.DEBUG)
    job = Failing()
    sent = answered(StreamedResponse(job, media_type="text/plain"), leaves_after=None)
    assert sent[-1]["more_body"] is True  # so the client knows that it isn't all
    assert "InvalidArgumentError" in caplog.text
    assert "5ecret" not in caplog.text
    assert job.is_closed


@pytest.mark.slow
def test_a_console_that_ends_ends_its_statements() -> None:
    with console(a_cluster()) as client:
        backend = backend_of(client)
        timer = threading.Timer(0.3, backend.stop)
        timer.start()
        query = {"q": "select max(hash(range)) from range(100000000000)"}
        assert client.get("/api/sql", params=query).json()["message"] == "the query was cancelled"


def test_texts_are_joined_and_an_empty_one_sends_them() -> None:
    assert list(in_chunks(iter(["a", "b", "", "c", "\ud800"]), clock=lambda: 0.0)) == [b"ab", b"c?"]
    assert list(in_chunks(iter(["x" * 20_000, "y"]), clock=lambda: 0.0)) == [b"x" * 20_000, b"y"]


@pytest.mark.slow
def test_a_topic_is_followed_until_it_is_cancelled() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b"before")
    given_back = threading.Event()
    job = TailJob(
        cluster, "orders", partition=None, how="auto", masks=Masks(frozenset(["h"])), give_back=lambda: given_back.set()
    )
    events = iter(job)
    assert next(events) == b'event: begun\ndata: {"partitions": [0]}\n\n'
    produce(cluster, b"<b>\n\ndata: x", key=b"k", headers=[("h", b"5ecret")])
    event = next(event for event in events if not event.startswith(b": still here")).decode()
    assert event.count("\n") == 3  # nothing in a record ends a line
    data = json.loads(event.partition("data: ")[2])
    assert (data["offset"], data["value"]["kind"], data["headers"][0]["value"]["text"]) == (1, "hidden", "•••")
    job.cancel()
    assert list(events) == []
    job.close()
    assert given_back.is_set()


def test_a_partition_that_is_not_there_cannot_be_followed() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    for topic, partition in (("orders", 1), ("nope", None)):
        job = TailJob(cluster, topic, partition=partition, how="auto", masks=NO_MASKS, give_back=lambda: None)
        with pytest.raises(InvalidArgumentError, match="isn't there"):
            next(iter(job))
        job.close()
