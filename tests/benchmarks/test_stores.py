"""The proxy that delays and counts, prices and targets: what the benchmark of object stores rests on."""

from __future__ import annotations

import http.client
import select
import socket
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from benchmarks.extent import Extent
from benchmarks.harness import PROXY_VARIABLE, Running, used
from benchmarks.peers import sparklog_count, sparklog_topic
from benchmarks.produce import BATCH, TOPIC
from benchmarks.report import Report
from benchmarks.stores import delayed_s3, suite
from benchmarks.stores.figures import TARGETS, add_targets, cost_cells
from benchmarks.stores.http_messages import answer_needs, message_needs, operation_of
from benchmarks.stores.latency_proxy import LatencyProxy, _is_open, control, serve
from benchmarks.stores.prices import EXPRESS, STANDARD, Prices, dollars, prices_of
from benchmarks.stores.sustained import send_batch_sustained, send_sustained
from tests.scripted_server import HANG_UP, Reply, ScriptedServer, scripted_server

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def proxy(server: ScriptedServer) -> Iterator[str]:
    with Running(serve, host="127.0.0.1", port=server.server.server_port) as process:
        yield f"http://127.0.0.1:{process.hear()}"


@pytest.mark.parametrize(
    ("request_line", "operation"),
    [
        (b"PUT /b/k HTTP/1.1", "PUT"),
        (b"GET /b/k HTTP/1.1", "GET"),
        (b"HEAD /b/k HTTP/1.1", "GET"),
        (b"GET /b?list-type=2&prefix=k HTTP/1.1", "LIST"),
        (b"GET /b/k?prefix=1 HTTP/1.1", "GET"),
        (b"DELETE /b/k HTTP/1.1", "DELETE"),
        (b"POST /b?delete HTTP/1.1", "DELETE"),
        (b"POST /b/k?uploads HTTP/1.1", "POST"),
    ],
)
def test_a_request_is_counted_as_it_is_billed(request_line, operation):
    assert operation_of(request_line + b"\r\nHost: h\r\n\r\n") == operation


@pytest.mark.parametrize(
    "message",
    [b"PUT /b/k HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"GET /b/k HTTP/1.1\r\nHost: h\r\n\r\n", CHUNKED],
    ids=["length", "no body", "chunked"],
)
def test_a_message_ends_where_its_head_says(message):
    assert message_needs(message + b"of the next") == len(message)
    needs = [message_needs(message[:end]) for end in range(len(message))]
    assert all(size is None or size > end for end, size in enumerate(needs))


def test_an_answer_to_head_has_no_body():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert answer_needs(head, is_head=True) == len(head)
    assert answer_needs(head, is_head=False) == len(head) + 5


def test_the_proxy_delays_by_method_and_counts_on_one_connection(server, proxy):
    server.replies = [Reply(body=b"a"), Reply(body=b"bc"), Reply(404), Reply()]
    control(proxy, "?get_ms=20&put_ms=60&tail=0")
    client = http.client.HTTPConnection(urlsplit(proxy).netloc)
    answers = []
    for method, path in (("PUT", "/b/k"), ("GET", "/b/k"), ("GET", "/b?list-type=2"), ("DELETE", "/b/k")):
        began = time.monotonic()
        client.request(method, path, body=b"x" * 100_000 if method == "PUT" else None)
        answer = client.getresponse()
        answers.append(
            (
                answer.status,
                answer.read(),
                time.monotonic() - began >= (0.02 if path == "/b/k" and method == "GET" else 0.06),
            )
        )
    client.close()
    assert answers == [(200, b"a", True), (200, b"bc", True), (404, b"", True), (200, b"", True)]
    counts = control(proxy)
    assert {name: counts[name] for name in ("PUT", "GET", "LIST", "DELETE", "POST", "lost")} == {
        "PUT": 1,
        "GET": 1,
        "LIST": 1,
        "DELETE": 1,
        "POST": 0,
        "lost": 0,
    }
    assert counts["uploaded_bytes"] > 100_000
    assert server.connections == 1
    assert server.requests[0].body == b"x" * 100_000


def test_where_the_server_hangs_up_so_does_the_proxy(server, proxy):
    server.replies = [HANG_UP]
    client = http.client.HTTPConnection(urlsplit(proxy).netloc)
    client.request("PUT", "/b/k", body=b"x")
    with pytest.raises(http.client.RemoteDisconnected):
        client.getresponse()
    client.close()
    counts = control(proxy)
    assert (counts["PUT"], counts["lost"]) == (1, 1)


@pytest.mark.parametrize("is_reset", [True, False])
def test_an_idle_connection_that_the_server_has_ended_isnt_open(is_reset):
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as idle,
    ):
        accepted, _ = listening.accept()
        assert _is_open(idle)
        if is_reset:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        select.select([idle], [], [], 60)
        assert not _is_open(idle)


def test_requests_of_a_measured_block_are_its_own(server, proxy, monkeypatch):
    monkeypatch.setenv(PROXY_VARIABLE, proxy)
    client = http.client.HTTPConnection(urlsplit(proxy).netloc)

    def get() -> None:
        client.request("GET", "/b/k")
        client.getresponse().read()

    get()
    with used(2) as usage:
        get()
        get()
    client.close()
    assert usage.requests is not None
    assert (usage.requests["GET"], usage.requests.get("PUT", 0)) == (2, 0)


def test_the_tail_is_heavy_and_the_same_each_time():
    def delays() -> list[float]:
        proxy = LatencyProxy("127.0.0.1", 0)
        proxy.put_ms, proxy.has_tail = 50.0, True
        return sorted(proxy.delay_s("PUT") for _ in range(10_000))

    first = delays()
    assert first == delays()
    assert first[5_000] == pytest.approx(0.05)
    assert 0.1 < first[9_900] < 0.25
    assert 0.4 < first[9_990] <= first[-1] <= 1.0


def test_puts_and_lists_cost_more_than_gets_and_deletions_nothing():
    requests = {"PUT": 1_000, "POST": 1_000, "LIST": 1_000, "GET": 1_000, "DELETE": 1_000, "uploaded_bytes": 2**30}
    assert dollars(requests, STANDARD) == pytest.approx(3 * 0.005 + 0.0004)
    assert dollars(requests, EXPRESS) == pytest.approx(3 * 0.00113 + 0.00003 + 0.0032)
    assert cost_cells(requests, 1_000, Prices(name="one", put_per_1000=1, get_per_1000=0)) == ["2", "1", "1", "0.003"]


def test_prices_are_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("SPARKLOG_BENCH_PRICES", '{"S3 standard": {"put_per_1000": 7}}')
    assert prices_of(STANDARD).put_per_1000 == 7
    assert prices_of(STANDARD).get_per_1000 == STANDARD.get_per_1000
    assert prices_of(EXPRESS) == EXPRESS


def test_each_target_of_stores_is_in_the_table_at_the_end(capsys):
    rate, latency = "20/50 ms: send, share of the folder's rate", "20/50 ms: 32 producers on a topic, p99"
    report = Report({})
    with report.section("stores") as section:
        add_targets({rate: 79.0, latency: 500.0}, quick=True)
    rows = {row[0]: row[1:] for row in (target.row() for target in section.targets)}
    assert len(rows) == len(TARGETS)
    assert rows.pop(f"{rate}, %") == ["≥ 80", "79.00", "not met"]
    assert rows.pop(f"{latency}, ms") == ["≤ 500", "500.00", "met"]
    assert {row[1] for row in rows.values()} == {"not measured"}
    assert "quick" in capsys.readouterr().out


def test_without_versitygw_there_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(delayed_s3, "find_versitygw", lambda: None)
    suite.stores(Extent.QUICK)
    assert capsys.readouterr().out.startswith("Object stores are left out: there is no versitygw: go install ")


@pytest.mark.slow
def test_a_sustained_rate_is_of_the_records_in_the_middle(tmp_path):
    for name, work, size, count in (
        ("send", send_sustained, {"count": 2_000}, 2_000),
        ("send_batch", send_batch_sustained, {"batches": 2}, 2 * BATCH),
    ):
        root = str(tmp_path / name)
        sparklog_topic(root, TOPIC)
        usage = work(root, value_size=10, **size)
        assert (usage.records, usage.requests) == (count, None)
        assert usage.wall_s >= 0
        assert sparklog_count(root, TOPIC) > count
