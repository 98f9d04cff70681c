"""The example of a flow says itself whether what it shows is so; that of FastAPI is called as by a client."""

from __future__ import annotations

import json
import time

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
    deadline = time.monotonic() + 30
    with Consumer(topic, cluster=root, auto_offset_reset="earliest") as consumer:
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                found += [json.loads(record.value)["id"] for record in records]
        found += [
            json.loads(each.value)["id"] for records in consumer.poll(timeout_ms=300).values() for each in records
        ]
    return found
