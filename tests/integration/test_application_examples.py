"""The example of a flow says itself whether what it shows is so; that of FastAPI is called as by a client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparklog import Consumer

pytestmark = pytest.mark.slow


def test_order_payment_and_mail_happen_once_whatever_fails(capsys):
    from examples.order_flow import __main__ as example

    example.main()
    told = capsys.readouterr().out
    assert "3 workers killed: 147 payments, 147 of them different" in told
    assert "147 charges" in told
    assert "147 mails" in told
    assert "dead letters: [0, 1, 2]" in told


def test_an_order_and_its_message_are_both_there_or_neither(tmp_path):
    testclient = pytest.importorskip("fastapi.testclient", reason="needs fastapi and httpx")
    from examples.outbox_fastapi.app import TOPIC, make_app

    root, database = f"{tmp_path}/cluster", f"sqlite:///{tmp_path}/shop.db"
    for run in range(2):  # the second begins where the first ended
        with testclient.TestClient(make_app(root, database)) as client:
            placed = [client.post("/orders", json={"customer": f"c-{n}", "total": n + 1}) for n in range(5)]
            assert [answer.status_code for answer in placed] == [201] * 5
            assert [answer.json()["id"] for answer in placed] == [run * 5 + n for n in range(1, 6)]
            assert client.post("/orders", json={"customer": "nobody", "total": 1}).status_code == 422
            assert client.post("/orders", json={"customer": "ann", "total": -1}).status_code == 422
            found = messages(root, TOPIC, (run + 1) * 5)
        assert sorted(found) == list(range(1, (run + 1) * 5 + 1))


def messages(root: str, topic: str, count: int) -> list[int]:
    """The orders that were told of, once there are so many."""
    found: list[int] = []
    deadline = time.monotonic() + 60
    with Consumer(topic, cluster=root, auto_offset_reset="earliest") as consumer:
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                found += [json.loads(record.value)["id"] for record in records]
        found += [
            json.loads(each.value)["id"] for records in consumer.poll(timeout_ms=300).values() for each in records
        ]
    return found


@contextmanager
def served(app: object) -> Iterator[str]:
    """The address of an application that a server serves in a thread."""
    uvicorn = pytest.importorskip("uvicorn")
    config = uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="events-server")
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_events_reach_whoever_reads_and_whoever_comes_back(tmp_path):
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    from examples.events_fastapi.app import Readers, make_app

    def events(lines: Iterator[str], count: int) -> list[tuple[str, str]]:
        """So many ids and texts."""
        found, event_id = [], ""
        for line in lines:
            event_id = line.removeprefix("id: ") if line.startswith("id: ") else event_id
            if line.startswith("data: "):
                found.append((event_id, json.loads(line.removeprefix("data: "))["text"]))
            if len(found) == count and (count or event_id):
                return [*found, (event_id, "")] if not count else found
        raise AssertionError(f"the stream ended after {found}")

    readers = Readers()
    with (
        served(make_app(f"{tmp_path}/cluster", readers)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):

        def publish(*texts: str) -> None:
            for text in texts:
                assert client.post("/events", json={"room": text[0], "text": text}).status_code == 201

        publish("a0")
        with client.stream("GET", "/events") as first, client.stream("GET", "/events") as second:
            lines, others = first.iter_lines(), second.iter_lines()
            events(lines, 0)
            events(others, 0)
            publish("a1", "b1", "c1", "a2")
            seen = events(lines, 4)
            assert sorted(text for _, text in seen) == ["a1", "a2", "b1", "c1"]
            assert [text for _, text in seen if text[0] == "a"] == ["a1", "a2"]
            assert sorted(text for _, text in events(others, 4)) == ["a1", "a2", "b1", "c1"]
        deadline = time.monotonic() + 60
        while readers.count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert readers.count == 0, "a client that went away is still served"
        publish("b2", "c2")
        with client.stream("GET", "/events", headers={"Last-Event-ID": seen[1][0]}) as again:
            left = sorted([*(text for _, text in seen[2:]), "b2", "c2"])
            assert sorted(text for _, text in events(again.iter_lines(), 4)) == left
        assert client.get("/events", headers={"Last-Event-ID": "x:y"}).status_code == 400
