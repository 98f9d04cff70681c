"""The change feed of a topic's table, as another engine derives it from the commits of sparklog."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparklog.compaction import Outcome
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.retention import retain_topic
from sparklog.delta.actions import Protocol
from sparklog.delta.log import DeltaLog
from sparklog.integrity import check_cluster
from sparklog.log import open_cluster
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state
from sparklog.log.topic import delete_records
from sparklog.storage import LocalStore
from tests.compaction.support import append_pairs, pairs_of
from tests.support import (
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    foreign_commit,
    foreign_file,
    foreign_records,
    unsequenced_file,
)

POLICY = OptimizePolicy(min_files=2, max_files=4, growth=1.5)
KEYED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1"}


def with_feed(folder: Path, **properties: str) -> DeltaLog:
    open_cluster(folder)
    log = a_topic(LocalStore(folder), configs=KEYED)
    metadata = load_state(log).require_whole().metadata
    more = {f"delta.{name}": value for name, value in {"enableChangeDataFeed": "true", **properties}.items()}
    foreign_commit(
        log,
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "changeDataFeed")),
        replace(metadata, configuration={**metadata.configuration, **more}),
    )
    return log


def feed(folder: Path, since: int) -> list[tuple[str, int | None, bytes | None, bytes | None]]:
    """Kind, offset, key and value of each change, in the order of commits."""
    rows = pa.table(DeltaTable(folder / "topics" / "t").load_cdf(starting_version=since).read_all()).to_pylist()
    rows.sort(key=lambda row: row["_commit_version"])
    return [
        (
            row["_change_type"],
            None if row["base_offset"] is None else row["base_offset"] + row["offset_delta"],
            row["key"],
            row["value"],
        )
        for row in rows
    ]


def net(changes: list[tuple[str, int | None, bytes | None, bytes | None]]) -> list[tuple[int, str | None, str | None]]:
    """The records with offsets that are left of all changes, as ``pairs_of`` has them."""
    counts: Counter[tuple[int, str | None, str | None]] = Counter()
    for kind, offset, key, value in changes:
        if offset is not None:
            record = (offset, None if key is None else key.decode(), None if value is None else value.decode())
            counts[record] += -1 if kind == "delete" else 1
    assert set(counts.values()) <= {0, 1}
    return sorted(record for record, count in counts.items() if count)


def test_appends_are_inserted_and_what_is_merged_does_not_show(tmp_path: Path) -> None:
    log = with_feed(tmp_path)
    since = load_state(log).position.version
    writer = a_writer(log)
    for number in range(4):
        append_pairs(writer, [(f"k{number}", "v")])
    before = load_state(log).position.version
    assert optimize_topic(log, "t", policy=POLICY).ranges
    assert feed(tmp_path, since) == [("insert", number, b"k%d" % number, b"v") for number in range(4)]
    assert feed(tmp_path, before + 1) == []


def test_compaction_deletes_and_what_it_keeps_comes_again_under_its_offset(tmp_path: Path) -> None:
    log = with_feed(tmp_path)
    since = load_state(log).position.version
    writer = a_writer(log)
    append_pairs(writer, [("a", "1"), ("b", "1")])
    append_pairs(writer, [("a", "2"), ("c", "1")])
    append_pairs(writer, [("d", "1")])
    before = load_state(log).position.version
    compact_topic(log, "t", now_ms=T0_MS)
    assert [offset for offset, *_ in pairs_of(log)] == [1, 2, 3, 4]
    changes = feed(tmp_path, before + 1)
    assert ("delete", 0, b"a", b"1") in changes
    assert ("insert", 0, b"a", b"1") not in changes
    assert net(feed(tmp_path, since)) == pairs_of(log)


def test_retention_deletes_whole_files(tmp_path: Path) -> None:
    log = with_feed(tmp_path)
    writer = a_writer(log)
    append_pairs(writer, [("a", "1"), ("b", "1")])
    append_pairs(writer, [("c", "1")])
    delete_records(log, "t", {0: 2})
    retain_topic(log, "t", now_ms=T0_MS)
    kinds = Counter(kind for kind, *_ in feed(tmp_path, 1))
    assert kinds == {"insert": 3, "delete": 2}
    assert net(feed(tmp_path, 1)) == pairs_of(log) == [(2, "c", "1")]


@pytest.mark.parametrize("append_only", ["false", "true"])
def test_a_foreign_row_gets_its_offset_once(tmp_path: Path, append_only: str) -> None:
    """Where nothing may be removed the feed can't say that the row without an offset is gone."""
    log = with_feed(tmp_path, appendOnly=append_only)
    unsequenced_file(log, "x", "y")
    sequence_topic(log)
    changes = [(kind, offset, value) for kind, offset, _, value in feed(tmp_path, 1)]
    assert [one for one in changes if one[1] is not None] == [("insert", 0, b"x"), ("insert", 1, b"y")]
    gone = [] if append_only == "true" else [("delete", None, b"x"), ("delete", None, b"y")]
    assert sorted(one for one in changes if one[1] is None and one[0] == "delete") == gone
    assert a_log(log.store).table == log.table


def test_columns_that_spark_leaves_in_files_belong_to_no_record(tmp_path: Path) -> None:
    """Its ``MERGE`` and ``UPDATE`` write ``_change_type`` and ``__is_cdc`` beside the table's columns."""
    log = with_feed(tmp_path)
    append_pairs(a_writer(log), [("k0", "v"), ("k1", "v")])
    for number, base_offset in ((2, 2), (3, None)):
        rows = foreign_records("v").set_column(2, "key", pa.array([b"k%d" % number], pa.binary()))
        for name, value in (("_change_type", "insert"), ("__is_cdc", "false")):
            rows = rows.append_column(name, pa.array([value]))
        foreign_commit(log, foreign_file(log, rows, base_offset=base_offset))
    result = sequence_topic(log)
    assert (result.record_count, result.refused) == (1, {})
    append_pairs(a_writer(log), [("k0", "new"), ("k2", "new")])
    append_pairs(a_writer(log), [("k4", "v")])
    records = pairs_of(log)
    assert [key for _, key, _ in records] == ["k0", "k1", "k2", "k3", "k0", "k2", "k4"]
    [compacted] = compact_topic(log, "t", now_ms=T0_MS).partitions
    assert (compacted.outcome, compacted.counts.superseded) == (Outcome.DONE, 2)
    left = [records[number] for number in (1, 3, 4, 5, 6)]
    assert pairs_of(log) == left
    assert all(one.outcome is Outcome.DONE for one in optimize_topic(log, "t", policy=POLICY).ranges)
    assert pairs_of(log) == left
    assert [*check_cluster(open_cluster(tmp_path), deep=True).findings] == []


@pytest.mark.parametrize("folder", [f"ingest-{'0' * 32}", "partition=0"])
def test_the_column_of_ingests_belongs_to_no_record_of_their_files(folder: str) -> None:
    """Delta 4.4 writes a stage's partition columns into its files. A column of that name in another file is refused."""
    log = a_topic(configs=KEYED)
    append_pairs(a_writer(log), [("k0", "v"), ("k1", "v")])
    rows = foreign_records("v").set_column(2, "key", pa.array([b"k2"], pa.binary()))
    rows = rows.append_column("ingest_file", pa.array([0], pa.int32()))
    foreign_commit(log, foreign_file(log, rows, path=f"{folder}/a.parquet", base_offset=2))
    append_pairs(a_writer(log), [("k0", "new"), ("k2", "new")])
    append_pairs(a_writer(log), [("k4", "v")])
    [compacted] = compact_topic(log, "t", now_ms=T0_MS).partitions
    if folder == "partition=0":
        assert compacted.outcome is Outcome.FAILED
        assert "column 'ingest_file' holds values" in compacted.error
        return
    assert (compacted.outcome, compacted.counts.superseded) == (Outcome.DONE, 2)
    left = [(1, "k1", "v"), (3, "k0", "new"), (4, "k2", "new"), (5, "k4", "v")]
    assert pairs_of(log) == left
    assert all(one.outcome is Outcome.DONE for one in optimize_topic(log, "t", policy=POLICY).ranges)
    assert pairs_of(log) == left
