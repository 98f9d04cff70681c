"""What a gateway tells of itself by HTTP, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.gateway.connection import ByteBudget
from sparklog.gateway.figures import GatewayFigures, GatewayProbe
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire, batch, fetching, produce


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value(text, name):
    return float(re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[0])


@pytest.fixture
def running(tmp_path):
    Admin(str(tmp_path)).create_topics([NewTopic("jobs", 1)])
    with Producer(str(tmp_path)) as producer:
        producer.send("jobs", b"x").get(60)
    command = [sys.executable, "-m", "sparklog", "gateway", "-c", str(tmp_path), "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([*command, "--metrics-port", "0"], **options) as process:
        try:
            out: Any = process.stdout
            err: Any = process.stderr
            servers, metrics = out.readline().split()[-1], err.readline()
            yield process, servers, int(re.findall(r":(\d+)/metrics", metrics)[0]), str(tmp_path)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_gateway_counts_and_once_stopped_answers_what_it_was_asked(running):
    process, servers, port, root = running
    with closing(Wire(servers)) as client, closing(Wire(servers)) as idle:
        assert client.call("Metadata", 1, {"topics": None})["brokers"]
        assert client.call("Fetch", 12, {**fetching(0), "session_epoch": 0})["session_id"]
        client.call("Metadata", 1, {"topics": [{"name": "none"}, {"name": "jobs"}, {"name": "no"}]})
        status, text = get(port, "/metrics")
        assert status == 200
        assert value(text, "sparklog_gateway_connections") == 2
        assert value(text, 'sparklog_gateway_requests_total{api="Metadata"}') == 2
        unknown = 'sparklog_gateway_errors_total{api="Metadata",error="UNKNOWN_TOPIC_OR_PARTITION"}'
        assert value(text, unknown) == 2
        assert text.count("sparklog_gateway_errors_total{") == 1
        assert value(text, "sparklog_gateway_fetch_sessions") == 1
        assert value(text, "sparklog_gateway_received_bytes_total") > 20
        assert value(text, "sparklog_gateway_queued_bytes") == 0
        assert value(text, 'sparklog_store_requests_total{kind="get"}') > 0
        assert value(text, "sparklog_store_races_lost_total") == 0
        assert get(port, "/healthz") == (200, '{"status": "ok", "error": null}\n')
        assert get(port, "/readyz")[0] == 200
        assert get(port, "/none")[0] == 404
        for name, version, body in (
            ("Fetch", 4, fetching(1, max_wait_ms=60_000, min_bytes=100_000)),
            ("Produce", 3, produce(batch(b"y"))),
        ):
            before = received = value(get(port, "/metrics")[1], "sparklog_gateway_received_bytes_total")
            client.send(name, version, body)
            while received == before:  # until it is being read
                received = value(get(port, "/metrics")[1], "sparklog_gateway_received_bytes_total")
        process.send_signal(signal.SIGTERM)
        assert idle.is_closed()
        assert get(port, "/readyz") == (503, '{"status": "failed", "error": "the gateway is draining"}\n')
        with Producer(root) as producer:
            producer.send("jobs", os.urandom(100_000)).get(60)
        assert client.receive()  # the Fetch, once there is what it waits for
        assert client.receive()  # the Produce, behind it
        assert client.is_closed()
        assert process.wait(60) == 0


def test_connections_that_wait_for_room_are_counted():
    async def play():
        figures = GatewayFigures()
        budget = ByteBudget(100, figures)
        await budget.take(90)
        waiting = [asyncio.ensure_future(budget.take(size)) for size in (20, 80)]
        await asyncio.sleep(0)
        assert (figures.connections_waiting, figures.queued_bytes) == (2, 90)
        waiting.pop().cancel()
        await budget.give_back(90)
        await waiting[0]
        assert (figures.connections_waiting, figures.queued_bytes) == (0, 20)

    asyncio.run(play())


def probe(store):
    figures = GatewayFigures()
    return GatewayProbe(open_cluster(store), figures), figures


def test_a_store_that_is_away_makes_a_gateway_unready_but_alive(monkeypatch):
    store = AwayStore(MemoryStore(f"memory://away-{uuid.uuid4().hex}"))
    found, _ = probe(store)
    monkeypatch.setattr("sparklog.gateway.figures._LOOK_MS", 50.0)
    assert found.respond("/readyz").status == 200
    store.is_away = True
    time.sleep(0.1)
    answer = found.respond("/readyz")
    assert answer.status == 503
    assert json.loads(answer.body)["error"]
    assert found.respond("/healthz").status == 200
    store.is_away = False
    time.sleep(0.1)
    assert found.respond("/readyz").status == 200


def test_a_loop_that_stands_still_and_a_gateway_that_drains_say_so():
    found, figures = probe(MemoryStore(f"memory://still-{uuid.uuid4().hex}"))
    figures.turned_s -= 11
    assert b"hasn't turned" in found.respond("/healthz").body
    figures.is_draining = True
    assert found.respond("/readyz").status == 503
