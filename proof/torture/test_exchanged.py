"""Rounds in which what lies under a cluster is exchanged, and what is excused in them."""

from __future__ import annotations

import multiprocessing
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from proof.torture.exchanged_rounds import excuse, play_exchanged
from proof.torture.exchanging import Absence, FolderGround
from proof.torture.proxy import FaultyProxy
from proof.torture.rounds import Outcome
from proof.torture.servers import find_azurite, find_versitygw
from sparklog.model import TopicPartition
from sparklog.testing.history import (
    Acknowledged,
    AnomalyKind,
    FinalRead,
    History,
    Isolation,
    Polled,
    ProducerOpened,
    Send,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
    Unknown,
    check,
)
from sparklog.testing.history import Outcome as TransactionOutcome

real = pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")
PLACE = TopicPartition("in", 0)


def clean(outcome: Outcome) -> None:
    assert outcome.faults == (), str(outcome)
    assert sum(count for name, count in outcome.torments.items() if name.startswith("exchange: ")) >= 3, str(outcome)


@real
@pytest.mark.deep  # in each run the tests of tests/storage with folders that are moved, and a round of `make proof`
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3], ids=["folders", "a link"])
def test_a_folder_that_is_exchanged_keeps_every_acknowledged_record_in_its_cluster(tmp_path: Path, seed: int):
    clean(play_exchanged(seed, tmp_path / "round", "folder", span_s=10))


@real
@pytest.mark.s3
@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["s3", "azurite"])
def test_a_prefix_that_is_exchanged_keeps_what_was_acknowledged_outside_of_the_bound(tmp_path: Path, store: str):
    pytest.importorskip("obstore")
    if (find_versitygw if store == "s3" else find_azurite)() is None:
        pytest.skip("there is no such server")
    clean(play_exchanged(4, tmp_path / "round", store, span_s=12))


def test_the_place_is_what_the_ground_says_after_each_exchange(tmp_path: Path):
    ground = FolderGround(tmp_path, is_linked=False)
    for name in ("blue", "green"):
        (tmp_path / "folders" / name / "cluster.json").write_text(name)
    ground.settle()
    assert (ground.place / "cluster.json").read_text() == "blue"
    ground._swap()
    assert (ground.place / "cluster.json").read_text() == "green"
    assert [Path(ground.root_of(name), "cluster.json").read_text() for name in ("blue", "green")] == ["blue", "green"]
    ground._swap()
    ground.end()
    assert [(away.name, away.is_noticed) for away in ground.absences] == [("blue", True), ("green", True)]


def test_a_place_that_clients_make_anew_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ground = FolderGround(tmp_path, is_linked=False)
    (tmp_path / "folders" / "blue" / "topics").mkdir()
    ground.settle()
    monkeypatch.setattr("proof.torture.exchanging.time.sleep", lambda _: (ground.place / "topics").mkdir(parents=True))
    ground._move(__import__("random").Random(1), "", None)
    assert len(ground.faults) == 1
    assert (ground.place / "topics").is_dir()


def a_history(*, acknowledged_at: int) -> History:
    return History(
        [
            ProducerOpened(0, 0, "p", True, None),
            Send(1, 0, "p", "a", "in", 0),
            Acknowledged(2, acknowledged_at, "p", "a", PLACE, 0),
            Polled(3, acknowledged_at, "c", PLACE, (0,), ("a",), 1),
            FinalRead(4, 100_000, "final", PLACE, Isolation.READ_COMMITTED, 0, 0, (), ()),
        ]
    )


def test_what_was_acknowledged_after_the_bound_isnt_excused():
    away = [Absence(name="blue", topic=None, began_ms=1_000, ended_ms=60_000)]
    within = excuse(a_history(acknowledged_at=3_000), away, 5.0)
    assert [type(event) for event in within] == [ProducerOpened, Send, Unknown, Polled, FinalRead]
    beyond = excuse(a_history(acknowledged_at=30_000), away, 5.0)
    assert [one.kind for one in check(beyond).anomalies] == [AnomalyKind.LOST_WRITE]


@pytest.mark.parametrize(("topic", "is_fine"), [("in", True), ("out", False)])
def test_the_part_of_a_transaction_that_went_with_its_topic_is_excused(topic: str, is_fine: bool):
    away = [Absence(name="blue", topic=topic, began_ms=1_000, ended_ms=60_000)]
    other = TopicPartition("out", 0)
    history = History(
        [
            ProducerOpened(0, 0, "p", True, "tx"),
            TransactionBegun(1, 1_500, "p", "tx-1"),
            Send(2, 1_500, "p", "a", "in", 0, None, "tx-1"),
            Send(3, 1_500, "p", "b", "out", 0, None, "tx-1"),
            TransactionEnding(4, 1_500, "p", "tx-1", True),
            Acknowledged(5, 1_600, "p", "a", PLACE, 0),
            Acknowledged(6, 1_600, "p", "b", other, 0),
            TransactionEnded(7, 1_700, "p", "tx-1", TransactionOutcome.COMMITTED, ""),
            FinalRead(8, 100_000, "final", PLACE, Isolation.READ_COMMITTED, 0, 0, (), ()),
            FinalRead(9, 100_000, "final", other, Isolation.READ_COMMITTED, 0, 1, (0,), ("b",)),
        ]
    )
    assert bool(check(excuse(history, away, 5.0)).anomalies) is not is_fine


@pytest.fixture
def backend() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_proxy_answers_most_and_loses_refuses_and_repeats_some(backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FaultyProxy, "pause", lambda self: None)
    proxy = FaultyProxy(backend, 1)
    answered = 0
    try:
        for _ in range(300):
            with suppress(OSError), urllib.request.urlopen(f"{proxy.url}/x", timeout=10) as answer:
                answered += answer.read() == b"ok"
    finally:
        proxy.close()
    assert 240 < answered < 300
    assert set(proxy.counts) >= {"lost answer", "lost request", "refused", "repeated", "delayed"}


def test_nothing_is_under_way_while_the_proxy_holds_requests(backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FaultyProxy, "fate", lambda self: "")
    proxy = FaultyProxy(backend, 1)
    try:
        with proxy.held(), pytest.raises(OSError, match="timed out"):
            urllib.request.urlopen(f"{proxy.url}/x", timeout=0.2)
        with urllib.request.urlopen(f"{proxy.url}/x", timeout=10) as answer:
            assert answer.read() == b"ok"
    finally:
        proxy.close()
