"""A column that another engine added stops neither compaction nor merging; what it holds is lost by neither."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.compaction import Outcome, maintain
from sparklog.compaction.clean_arrow import Clean, clean_with_arrow
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.delta.log import DeltaLog
from sparklog.integrity import Code, check_cluster
from sparklog.log.state import load_state
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_pairs, live, pairs_of
from tests.compaction.test_clean_shuffled import clean_shuffled
from tests.support import T0_MS, a_topic, a_writer, foreign_commit, foreign_entry, foreign_file, foreign_records
from tests.txn.support import a_cluster

POLICY = OptimizePolicy(min_files=2, growth=1.1)


def add_column(log: DeltaLog, name: str) -> None:
    """As another engine's ``mergeSchema`` does."""
    metadata = load_state(log).require_whole().metadata
    schema = json.loads(metadata.schema_string)
    schema["fields"].append({"name": name, "type": "string", "nullable": True, "metadata": {}})
    foreign_commit(log, replace(metadata, schema_string=json.dumps(schema)))


def add_file(log: DeltaLog, key: str, base_offset: int, **columns: pa.Array) -> None:
    """A file with a record of this key, no value, and columns of others."""
    table = foreign_records("x").set_column(2, "key", pa.array([key.encode()], pa.binary()))
    table = table.set_column(3, "value", pa.array([None], pa.binary()))
    for name, column in columns.items():
        table = table.append_column(name, column)
    foreign_commit(log, foreign_file(log, table, base_offset=base_offset))


def a_topic_with_a_misspelt_column(column: pa.Array) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """Two keys that come again; between them a file of another engine that meant ``value``."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    append_pairs(a_writer(log), [("a", "1"), ("b", "1")])
    add_column(log, "valeu")
    add_file(log, "c", 2, valeu=column)
    for pair in (("a", "2"), ("c", "2"), ("newest", "x")):
        append_pairs(a_writer(log), [pair])
    return memory, clock, log


NOTHING, SOMETHING = pa.array([None], pa.string()), pa.array(["12"])


@pytest.mark.parametrize("clean", [clean_with_arrow, clean_shuffled], ids=["in memory", "shuffled"])
def test_a_topic_whose_table_has_another_column_is_compacted(clean: Clean) -> None:
    _, _, log = a_topic_with_a_misspelt_column(NOTHING)
    [told] = compact_topic(log, "t", now_ms=T0_MS, clean=clean).partitions
    assert (told.outcome, told.counts.superseded) == (Outcome.DONE, 2)
    assert pairs_of(log) == [(1, "b", "1"), (3, "a", "2"), (4, "c", "2"), (5, "newest", "x")]


def test_and_its_small_files_are_merged() -> None:
    _, _, log = a_topic_with_a_misspelt_column(NOTHING)
    before = pairs_of(log)
    [merged] = optimize_topic(log, "t", policy=POLICY).ranges
    assert (merged.outcome, merged.files_before) == (Outcome.DONE, 4)
    assert pairs_of(log) == before


@pytest.mark.parametrize("clean", [clean_with_arrow, clean_shuffled], ids=["in memory", "shuffled"])
def test_a_file_with_values_in_such_a_column_is_left_as_it_is_and_told(clean: Clean) -> None:
    memory, clock, log = a_topic_with_a_misspelt_column(SOMETHING)
    before = live(log)
    odd = before[1].path
    [told] = compact_topic(log, "t", now_ms=T0_MS, clean=clean).partitions
    assert (told.outcome, told.retriable) == (Outcome.FAILED, False)
    assert odd in told.error
    assert "column 'valeu' holds values" in told.error
    assert "set to null, by an UPDATE in SQL" in told.error
    assert live(log) == before
    report = maintain(a_cluster(memory, clock), policy=OptimizePolicy(min_files=2, max_files=2, growth=1.1))
    assert [odd in line for line in report.failures] == [True, True]
    optimized = report.topics[0].optimize
    assert optimized is not None
    assert [one.outcome for one in optimized.ranges] == [Outcome.FAILED, Outcome.DONE]  # the others are merged


def test_once_the_values_are_null_it_goes_on() -> None:
    memory, clock, log = a_topic_with_a_misspelt_column(SOMETHING)
    odd = live(log)[1]
    add_file(log, "c", 2, valeu=NOTHING)  # as an UPDATE writes it
    removed: dict[str, Any] = {"path": odd.path, "deletionTimestamp": T0_MS, "dataChange": True}
    foreign_entry(log, load_state(log).position.version + 1, [{"remove": removed}])
    report = maintain(a_cluster(memory, clock), policy=POLICY)
    assert report.failures == []
    assert (1, "b", "1") in pairs_of(log)
    assert len(pairs_of(log)) == 4


def test_the_check_tells_of_columns_and_of_what_they_hold() -> None:
    memory, clock, log = a_topic_with_a_misspelt_column(SOMETHING)
    report = check_cluster(a_cluster(memory, clock))
    [found] = [one for one in report.findings if one.code is Code.COLUMNS_UNKNOWN]
    assert found in report.warnings
    assert "valeu (string)" in found.seen
    assert "write its records again under the right name" in found.expected
    deep = check_cluster(a_cluster(memory, clock), deep=True)
    [found] = [one for one in deep.findings if one.code is Code.COLUMN_VALUES]
    assert (found.subject.path, found.seen) == (
        live(log)[1].path,
        "1 values in column 'valeu', which a topic doesn't have",
    )
    assert deep.errors == ()
    memory, clock, _ = a_topic_with_a_misspelt_column(NOTHING)
    deep = check_cluster(a_cluster(memory, clock), deep=True)
    assert [one.code for one in deep.warnings] == [Code.COLUMNS_UNKNOWN]


@pytest.mark.parametrize("odd", ["{", "[]", '{"fields": [{}]}', None])
def test_a_table_that_lacks_columns_is_told(odd: str | None) -> None:
    memory, clock, log = a_topic_with_a_misspelt_column(NOTHING)
    metadata = load_state(log).require_whole().metadata
    schema = json.loads(metadata.schema_string)
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in ("headers", "valeu")]
    foreign_commit(log, replace(metadata, schema_string=json.dumps(schema) if odd is None else odd))
    report = check_cluster(a_cluster(memory, clock))
    [found] = [one for one in report.errors if one.code is Code.COLUMNS_MISSING]
    assert ("headers" in found.seen) is (odd is None)
