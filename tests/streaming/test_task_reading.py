"""The batches that a task of Spark reads, and the columns that are the same in all of them; without Spark."""

from dataclasses import replace

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.streaming import task_reading
from sparklog.streaming.resolving import plan_batch
from sparklog.streaming.source_options import source_options
from sparklog.streaming.task_reading import SOURCE_SCHEMA, read_task
from sparklog.testing import ManualClock
from tests.support import T0_MS, a_writer, records, within

CONSTANT = ["topic", "partition", "timestampType"]


@pytest.fixture
def log():
    """A topic of which one partition has commits of 3, 5, 2 and 9 records."""
    clock = ManualClock(start_ms=T0_MS)
    cluster = open_cluster(MemoryStore(clock=clock), clock=clock)
    Admin(cluster).create_topics([NewTopic("t", 1)])
    writer = a_writer(cluster.topic_log("t"), topic="t")
    for values in ("abc", "defgh", "ij", "klmnopqrs"):
        writer.append(writer.upload([(0, records(*values))]), deadline=within(writer, 1_000))
    return cluster.topic_log("t")


@pytest.fixture
def task(log):
    [whole] = plan_batch(open_cluster(log.store), source_options({"path": "/c", "subscribe": "t"}, streaming=False))
    return whole


def read(log, task, monkeypatch, columns, *, rows):
    monkeypatch.setattr(task_reading, "_BATCH_ROWS", rows)
    return [*read_task(log, task, columns)]


def test_columns_that_are_the_same_in_all_records_are_made_once(log, task, monkeypatch):
    batches = read(log, task, monkeypatch, SOURCE_SCHEMA.names, rows=9)
    assert [batch.num_rows for batch in batches] == [10, 9]  # 3 + 5 + 2: files are put together, none is cut
    for name in CONSTANT:
        places = {batch.column(name).buffers()[-1].address for batch in batches}
        assert len(places) == 1, name


def test_a_batch_that_is_longer_than_those_before_has_all_of_its_constants(log, task, monkeypatch):
    batches = read(log, task, monkeypatch, SOURCE_SCHEMA.names, rows=1)
    assert [batch.num_rows for batch in batches] == [3, 5, 2, 9]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(SOURCE_SCHEMA, check_metadata=True)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [*enumerate(bytes([c]) for c in b"abcdefghijklmnopqrs")]
    assert {tuple(row[name] for name in CONSTANT) for row in rows} == {("t", 0, 0)}


@pytest.mark.parametrize("columns", [["topic"], ["partition", "value", "topic"], CONSTANT])
def test_columns_come_as_asked_and_in_that_order(log, task, monkeypatch, columns):
    batches = read(log, task, monkeypatch, columns, rows=9)
    assert [batch.schema.names for batch in batches] == [columns, columns]
    assert [batch.num_rows for batch in batches] == [10, 9]
    assert batches[0].to_pylist()[9] == {
        name: {"topic": "t", "partition": 0, "timestampType": 0, "value": b"j"}[name] for name in columns
    }


def test_a_range_that_ends_within_a_file_is_cut(log, task, monkeypatch):
    batches = read(log, replace(task, start=1, end=12), monkeypatch, ["offset", "topic"], rows=9)
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [*range(1, 12)]
    assert sum(len(batch.column("topic")) for batch in batches) == 11
