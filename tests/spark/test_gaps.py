"""Spark's INSERT comes through beside a producer that commits without a pause (rule F5)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.log.cluster import open_cluster
from sparklog.log.state import open_state
from tests.support import contents, entry_lines

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def insert_despite_listings(spark: Any, statement: str) -> None:
    """A listing of a local folder may miss an entry that is created meanwhile; then Spark refuses the table."""
    for _ in range(10):
        try:
            spark.sql(statement)
        except Exception as error:  # of the JVM
            if "DELTA_VERSIONS_NOT_CONTIGUOUS" not in str(error):
                raise
        else:
            return
    pytest.fail("ten listings missed an entry")


def test_an_insert_comes_through_beside_a_producer_that_never_pauses(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When gaps are left, and how they grow, ``tests/log/test_gaps.py`` plays; here is the engine they are for."""
    monkeypatch.setattr("sparklog.log.gaps._LOOK_EVERY_MS", 500.0)
    monkeypatch.setattr("sparklog.log.gaps.WAITING_GAPS_MS", (2_000.0, 8_000.0))
    root = tmp_path / "data"
    with Admin(root) as admin:
        admin.create_topics([NewTopic("orders", 3)])
    insert = f"INSERT INTO delta.`{root}/topics/orders` (key, value) VALUES ('ann', 'beside')"
    log = open_cluster(root).topic_log("orders")
    stop = threading.Event()

    def produce() -> None:
        with Producer(root, linger_ms=0, acks=1) as producer:
            while not stop.wait(0.01):
                producer.send("orders", b"own")

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        insert_despite_listings(spark, insert)  # without gaps it goes on for as long as the producer
        end = open_state(log).position.version
    finally:
        stop.set()
        producing.join()
    infos = [entry_lines(log, version)[0]["commitInfo"].get("sparklog") for version in range(1, end + 1)]
    (found,) = [number for number, info in enumerate(infos) if info is None]
    assert any(info is not None and info.get("gap_ms", 0) >= 2_000 for info in infos[:found])
    with Admin(root) as admin:
        admin.sequence("orders")
    values = [value for rows in contents(log, topic="orders").values() for _, value in rows]
    assert [value for value in values if value != "own"] == ["beside"]
