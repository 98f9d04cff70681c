"""Clusters that an earlier sparklog wrote are read, continued, maintained and checked by the code of today."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import sparklog.gateway
from sparklog.compaction import maintain
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.integrity import Severity, check_cluster
from sparklog.log import Cluster
from sparklog.processing.delayed import DelayMover
from tests.gateway.test_idempotence import sent
from tests.gateway.test_server import Wire
from tests.golden.features import features_of
from tests.golden.going_on import go_on
from tests.golden.stock import take_stock
from tests.golden.worlds import GOLDEN, golden_names, open_dated, read_golden

for _needed in ("fastavro", "google.protobuf", "sqlalchemy"):
    pytest.importorskip(_needed)

NAMES = golden_names()
MOST_BYTES = 2_000_000
DAY_MS = 86_400_000
FEATURES = {
    "file cluster.json in the root",
    "topics: checkpoint",
    "topics: mark of a cleanup",
    "topics: commitInfo files",
    "topics: commitInfo group_commit",
    "topics: commitInfo producer_batches",
    "topics: commitInfo value_schema",
    "topics: data in announced",
    "topics: entry of another engine",
    "topics: file without offsets",
    *(f"topics: operation {name}" for name in ("WRITE", "COMPACT", "OPTIMIZE", "RETENTION", "SEQUENCE")),
    *(f"topics: operation {name}" for name in ("CREATE TOPIC", "DELETE TOPIC", "CREATE PARTITIONS", "DELETE RECORDS")),
    *(f"topics: operation {name}" for name in ("SET TOPIC CONFIG", "SET VALUE SCHEMA")),
    *(f"topics: txn {name}" for name in ("#", "announced", "batches", "txn", "sparklog.start.#", "sparklog.end.#")),
    *(f"topics: txn sparklog.cleaner.{name}.#.#" for name in ("offset", "horizon", "horizon_ms", "tombstones")),
    *(f"topics: value.format {name}" for name in ("json", "avro", "protobuf")),
    *(f"topics: value.format {name}-confluent" for name in ("json", "avro", "protobuf")),
    *(f"transaction {name}, format 1" for name in ("Empty", "PrepareCommit", "PrepareAbort")),
    *(f"transaction {name}, format 1" for name in ("CompleteCommit", "CompleteAbort")),
    "transaction PrepareCommit, format 2, unsynced",
    "file # in transactions-open",
    *(f"share group: state {letter}" for letter in "KQRV"),
    "file state.json in groups",
    "file heartbeat in groups",
    "file #.json in groups",
    "file #.json in gateway-users",
    "file notes.json in maintenance",
    "file runs.json in maintenance",
}


def errors_of(cluster: Cluster) -> list[str]:
    return [str(found) for found in check_cluster(cluster, deep=True).findings if found.severity is Severity.ERROR]


@pytest.mark.slow
def test_the_golden_clusters_have_every_feature_and_are_small(tmp_path: Path) -> None:
    found: set[str] = set()
    for name in NAMES:
        golden = read_golden(name)
        features = features_of(golden.unpack(tmp_path / name))
        assert features == golden.manifest["features"]
        found |= features.keys()
    assert not FEATURES - found
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) <= MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_golden_cluster_is_read_as_it_was_written_and_is_whole(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    cluster, _ = open_dated(golden.unpack(tmp_path), golden.date_ms)
    assert errors_of(cluster) == []
    assert take_stock(cluster) == golden.expected


@pytest.mark.slow
def test_pure_python_reads_golden_clusters_by_the_clock_of_today(tmp_path: Path) -> None:
    all_golden = [read_golden(name) for name in NAMES]
    roots = [str(golden.unpack(tmp_path / golden.name)) for golden in all_golden]
    command = [sys.executable, "-m", "tests.golden.stock", *roots]
    environment = {**os.environ, "SPARKLOG_PURE": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    core, *stocks = map(json.loads, found)
    assert core.startswith("pure Python")
    assert stocks == [golden.expected for golden in all_golden]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_clients_of_today_go_on_with_a_golden_cluster_and_maintenance_loses_nothing(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    root = golden.unpack(tmp_path)
    cluster, clock = open_dated(root, golden.date_ms)
    go_on(golden, cluster, clock, root)
    for _ in range(2):  # what the first leaves, the second is told by
        report = maintain(cluster, full=True)
        assert report.failures == []
    assert errors_of(cluster) == []
    after = take_stock(cluster)["topics"]
    for topic, before in golden.expected["topics"].items():
        assert after[topic]["id"] == before["id"]
        assert after[topic]["schemas"] == before["schemas"]
        assert_kept(before, after[topic], is_compacted="compact" in before["configs"].get("cleanup.policy", ""))
    if name == "transactions":
        assert_decided(golden.expected["topics"]["out"], after["out"])


def assert_kept(before: Mapping[str, Any], after: Mapping[str, Any], *, is_compacted: bool) -> None:
    """Every record is there, unchanged; of a compacted topic the newest of each key."""
    for partition, rows in before["records"].items():
        there = after["records"][partition]
        if is_compacted:
            assert [row for row in newest([*rows, *there]).values() if row not in there] == []
            assert [row for row in there if row not in rows and row[0] < before["ends"][int(partition)]] == []
        else:
            assert there[: len(rows)] == rows
        end = before["ends"][int(partition)]
        assert [row[0] for row in there if row[0] >= end] == [*range(end, after["ends"][int(partition)])]


def newest(rows: list[Any]) -> dict[Any, Any]:
    """The newest record of each key."""
    return {row[2]: row for row in sorted(rows)}


def assert_decided(before: Mapping[str, Any], after: Mapping[str, Any], *, now: bool = True) -> None:
    """What was decided when its process died is there once; what wasn't is nowhere."""
    new = [row[3] for number, rows in after["records"].items() for row in rows[len(before["records"][number]) :]]
    decided = [f"{name} {partition}" for name in ("prepared-commit", "looped, decided") for partition in (0, 1)]
    assert sorted(value for value in new if not value.startswith("now ") and value != "after") == sorted(decided)
    assert any(value.startswith("now ") for value in new) is now


EXPIRED_TOPICS = {"groups": {"shared"}, "processing": {"dlq.orders"}, "topics": {"brief"}}
"""Those whose ``retention.ms`` isn't -1: docs/operations.md, Retention."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_year_later_maintenance_removes_only_what_the_docs_say_expires(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    root = golden.unpack(tmp_path)
    cluster, clock = open_dated(root, golden.date_ms + 400 * DAY_MS)
    before = take_stock(cluster)
    assert before == golden.expected  # nothing expires before maintenance
    for _ in range(3):
        report = maintain(cluster, full=True)
        assert report.failures == []
        clock.advance(9 * DAY_MS)  # removed files, markers and tombstones are kept for up to 8 days more
    assert errors_of(cluster) == []
    after = take_stock(cluster)
    assert after["topics"].keys() == before["topics"].keys()
    for topic, there in after["topics"].items():
        assert_only_expired(before["topics"][topic], there, topic in EXPIRED_TOPICS.get(name, ()))
    assert after["groups"] == {}  # docs/operations.md, Steps: offsets go a week after their time, then the group
    assert after["share_groups"] == before["share_groups"]
    assert after["users"] == before["users"]
    assert after["delayed"] == before["delayed"]
    assert after["outbox"] == before["outbox"]
    assert not any(after["dead_letters"].values())  # their topic has Kafka's retention, a week
    assert_ids_expired(before["transactions"], after["transactions"])
    if name == "topics":  # the announced upload that was never published is vacuumed
        assert (
            features_of(root)["topics: data in announced"]
            == golden.manifest["features"]["topics: data in announced"] - 1
        )
    if name == "transactions":
        assert_decided(golden.expected["topics"]["out"], after["topics"]["out"], now=False)
    EXPIRES.get(name, lambda cluster: None)(cluster)


def assert_only_expired(before: Mapping[str, Any], after: Mapping[str, Any], is_expired: bool) -> None:
    for partition, rows in before["records"].items():
        there = after["records"][partition]
        if is_expired:
            assert there == []
            assert after["starts"] == after["ends"] == before["ends"]
        elif "compact" in before["configs"].get("cleanup.policy", ""):
            last = {key: row for key, row in newest(rows).items() if row[3] is not None or row is rows[-1]}
            assert [row for row in there if row not in rows] == []
            assert [row for row in last.values() if row not in there] == []
            assert [row for row in there[:-1] if row[3] is None] == []  # the newest file is never compacted
        else:
            assert there[: len(rows)] == rows


def assert_ids_expired(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """docs/operations.md: decided transactions are finished, open ones aborted, ids unused for a week expire. An id's
    log stays, and its epoch only grows."""
    assert after.keys() == before.keys()
    assert {one["state"] for one in after.values()} <= {"Empty"}
    assert all(one["producer_epoch"] == before[name]["producer_epoch"] + 1 for name, one in after.items())


def delayed_records_are_due(cluster: Cluster) -> None:
    with DelayMover(cluster, "later") as mover:
        assert mover.run_until_done() == 2


def producers_are_forgotten(cluster: Cluster) -> None:
    """docs/gateway.md: a topic remembers a producer for 8 days; in the log, until the next checkpoint."""
    assert write_checkpoint(cluster.topic_log("jobs")) is not None
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        assert sent(client, b"c", sequence=2) == 4
        client.close()


EXPIRES: Mapping[str, Callable[[Cluster], None]] = {
    "processing": delayed_records_are_due,
    "gateway": producers_are_forgotten,
}
