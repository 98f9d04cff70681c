"""A gateway whose store is away when it starts: it listens, isn't ready, and serves once the store comes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import pytest

from sparklog import Admin, NewTopic
from sparklog.cli import gateway as command
from sparklog.cli.signals import ended_by_signals
from sparklog.errors import (
    InvalidConfigurationError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.gateway import users as users_module
from sparklog.gateway.figures import GatewayProbe
from sparklog.gateway.opening import Opening
from sparklog.gateway.server import Gateway
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.user_changes import added
from sparklog.gateway.user_log import USERS_TIMEOUT_MS, change_users, open_user_log
from sparklog.gateway.users import Rules, new_user
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from tests.gateway.test_fetch import until_fetched, until_stored
from tests.gateway.test_figures import get
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, produced
from tests.scripted_server import OK_HEADERS, Reply, scripted_server, xml_error

STORAGE_ERROR, TIMED_OUT, NO_COORDINATOR = 56, 7, 15


@pytest.fixture
def away():
    store = AwayStore(MemoryStore(f"memory://opening-{uuid.uuid4().hex}"))
    store.is_away = True
    return store


def wait_until(is_so):
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextmanager
def serving(opening, **settings: Any):
    """A gateway as the command runs it, in a thread; its address, and its answers by HTTP."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_loop(call):
        return asyncio.run_coroutine_threadsafe(call, loop).result(60)

    gateway = Gateway(opening.cluster, GatewaySettings(**settings), users=opening.users)
    opening.start()
    gateway.wait_for(opening)
    try:
        host, port = on_loop(gateway.listen("127.0.0.1", 0))
        opening.done.add_done_callback(
            lambda done: done.exception() or loop.call_soon_threadsafe(gateway.opened, done.result())
        )
        yield f"{host}:{port}", gateway.probe()
    finally:
        opening.stop()
        on_loop(gateway.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def is_ready(probe: GatewayProbe) -> bool:
    return probe.respond("/readyz").status == 200


@pytest.mark.slow
def test_clients_are_told_to_ask_again_until_the_store_comes_and_are_served_then(away):
    away.is_away = False
    Admin(open_cluster(away)).create_topics([NewTopic("jobs", 1)])
    away.is_away = True
    short: dict[str, Any] = {"look_timeout_ms": 200, "delivery_timeout_ms": 600, "offset_commit_timeout_ms": 200}
    with serving(Opening(away), **short) as (servers, probe), closing(Wire(servers)) as client:
        assert client.call("ApiVersions", 0, {})["error_code"] == 0
        brokers = client.call("Metadata", 9, {"topics": []})
        assert brokers["brokers"]
        assert brokers["cluster_id"] is None
        assert client.call("Metadata", 9, {"topics": [{"name": "jobs"}]})["topics"][0]["error_code"] == STORAGE_ERROR
        assert client.call("DescribeCluster", 0, {})["error_code"] == STORAGE_ERROR
        assert fetched(client.call("Fetch", 4, fetching(0)))["error_code"] == STORAGE_ERROR
        assert produced(client.call("Produce", 9, produce(batch(b"early"))))["error_code"] in (STORAGE_ERROR, TIMED_OUT)
        keys = {"key_type": 0, "coordinator_keys": ["g"]}
        assert client.call("FindCoordinator", 4, keys)["coordinators"][0]["error_code"] in (0, NO_COORDINATOR)
        assert probe.respond("/healthz").status == 200
        ready = probe.respond("/readyz")
        assert (ready.status, b"the store is away" in ready.body) == (503, True)
        assert b"sparklog_gateway_cluster_open 0" in probe.respond("/metrics").body
        away.is_away = False
        wait_until(lambda: is_ready(probe))
        assert b"sparklog_gateway_cluster_open 1" in probe.respond("/metrics").body
        found = asked_at_last(lambda: client.call("Metadata", 9, {"topics": [{"name": "jobs"}]}), "topics")
        assert (found["topics"][0]["error_code"], len(found["cluster_id"])) == (0, 32)
        assert client.call("DescribeCluster", 0, {})["cluster_id"] == found["cluster_id"]
        until_stored(client, b"late")
        until_fetched(client, {b"late"})  # what was refused is nowhere


def asked_at_last(ask, field):
    """The first answer without an error: a busy machine may take longer than the gateway's bounds."""
    while (answer := ask())[field][0]["error_code"] == STORAGE_ERROR:
        pass
    return answer


def test_nothing_is_written_before_the_cluster_is_known(away):
    """The cluster may be of a newer version: what clients ask for meanwhile must not come to it."""
    asked = []
    call = away._call

    def counted(kind, path, make):
        asked.append((kind, path))
        return call(kind, path, make)

    away._call = counted
    opening = Opening(away)
    with serving(opening, look_timeout_ms=100, auto_create_topics=True) as (servers, _), closing(Wire(servers)) as one:
        one.call("Metadata", 9, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True})
        assert {path for _, path in asked} == {"cluster.json"}


@pytest.mark.parametrize("error", [StorePermissionError("no such key"), StoreError("no such bucket")], ids=str)
def test_what_trying_again_does_not_help_against_ends_it(away, error):
    def refuse(kind, path, make):
        raise error

    away._call = refuse
    opening = Opening(away)
    opening.start()
    assert opening.done.exception(60) is error
    assert opening.reason is not None
    opening.stop()


def test_a_panic_of_the_stores_library_ends_it(away):
    class PanicError(BaseException):
        pass

    def panic(kind, path, make):
        raise PanicError("a bug")

    away._call = panic
    opening = Opening(away)
    opening.start()
    assert "a bug" in str(opening.done.exception(60))
    opening.stop()


def test_a_store_that_comes_without_users_ends_it(away):
    opening = Opening(away, has_stored_users=True)
    opening.start()
    away.is_away = False
    assert isinstance(opening.done.exception(60), InvalidConfigurationError)
    opening.stop()


def test_who_stops_while_the_store_is_away_waits_for_nothing(away):
    opening = Opening(away)
    opening.start()
    wait_until(lambda: opening.reason is not None and "away" in opening.reason)
    opening.stop()
    assert not opening.done.done()
    with pytest.raises(StoreError) as found:
        opening.cluster.store.read("cluster.json")
    assert not isinstance(found.value, StoreUnavailableError)


@pytest.mark.slow
def test_users_in_a_store_that_is_away_are_disconnected_and_come_in_later(away, monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)
    away.is_away = False
    cluster = open_cluster(away)
    deadline = cluster.clock.deadline_in(USERS_TIMEOUT_MS)
    change_users(open_user_log(cluster), added(new_user("ann", "pencil", Rules(read=("*",)))), deadline=deadline)
    away.is_away = True
    opening = Opening(away, has_stored_users=True)
    with serving(opening, allow_plain_without_tls=True) as (servers, probe):
        with closing(Wire(servers)) as client:
            client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})
            client.send("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})
            assert client.is_closed()  # a failed authentication would be final for clients
        assert b'sparklog_gateway_disconnects_total{reason="unavailable"} 1' in probe.respond("/metrics").body
        away.is_away = False
        wait_until(lambda: is_ready(probe))
        with closing(Wire(servers)) as client:
            client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})
            assert client.call("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})["error_code"] == 0


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_opening_that_ends_as_the_gateway_begins_to_listen_is_not_missed(away, monkeypatch, is_refused):
    """✗ The gateway is never ready, or runs on though the store refuses for good."""
    monkeypatch.setattr(command, "_OPEN_S", 0.0)
    opening = Opening(away)
    listen, opened = Gateway.listen, Gateway.opened

    def refuse(kind, path, make):
        raise StorePermissionError("no such key")

    async def slowly(self, host, port):
        address = await listen(self, host, port)
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()
        opening.done.add_done_callback(lambda _: loop.call_soon_threadsafe(is_done.set))
        away.is_away = False
        if is_refused:
            away._call = refuse
        await is_done.wait()
        return address

    def then_end(self, found):
        opened(self, found)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Gateway, "listen", slowly)
    monkeypatch.setattr(Gateway, "opened", then_end)
    opening.start()
    expected = pytest.raises(StorePermissionError) if is_refused else nullcontext()
    with expected, ended_by_signals() as ending:
        run = command._run(opening, GatewaySettings(), ("127.0.0.1", 0), None, {"tls": None}, None, ending)
        asyncio.run(asyncio.wait_for(run, 60))


COMMAND = [sys.executable, "-m", "sparklog", "gateway", "--listen", "127.0.0.1:0", "--metrics-port", "0"]
KEYS = ("--storage-option", "key=k", "--storage-option", "secret=s", "--storage-option")


def started(*options):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([*COMMAND, *options], **pipes)


@pytest.mark.slow
def test_the_command_listens_while_nobody_answers_and_serves_once_the_store_is_there():
    with scripted_server() as server:
        is_there = threading.Event()
        store = MemoryStore()
        open_cluster(store)
        cluster_file = store.read("cluster.json")

        def answer(request):
            if not is_there.is_set():
                return xml_error(503, "SlowDown")
            assert request.path == "/bucket/root/cluster.json"
            if "range" not in {name.lower() for name in request.headers}:
                return Reply(body=cluster_file)
            size = len(cluster_file)
            return Reply(206, cluster_file[:1], {**OK_HEADERS, "Content-Range": f"bytes 0-0/{size}"})

        server.answer = answer
        with started("-c", "s3://bucket/root", *KEYS, f"endpoint_url={server.url}") as process:
            try:
                servers = process.stdout.readline().split()[-1]
                told = ""
                while "/metrics" not in told:
                    told = process.stderr.readline()
                    assert told
                port = int(re.findall(r":(\d+)/metrics", told)[0])
                assert get(port, "/healthz")[0] == 200
                status, body = get(port, "/readyz")
                assert (status, "SlowDown" in body) == (503, True)
                with closing(Wire(servers)) as client:
                    assert client.call("Metadata", 9, {"topics": []})["cluster_id"] is None
                    is_there.set()
                    wait_until(lambda: get(port, "/readyz")[0] == 200)
                    assert client.call("Metadata", 9, {"topics": []})["cluster_id"]
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(403, "InvalidAccessKeyId"), (404, "NoSuchBucket")])
def test_the_command_ends_where_the_store_refuses_for_good(status, code):
    with scripted_server() as server:
        server.answer = lambda _: xml_error(status, code)
        with started("-c", "s3://bucket/root", *KEYS, f"endpoint_url={server.url}") as process:
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "sparklog: error: " in err
    assert code in err
