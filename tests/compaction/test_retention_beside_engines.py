"""Retention beside another engine's long work on another partition: that work commits in the end, for a log start moves
by a ``txn`` action, never by a ``metaData`` (rule L6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sparklog.clock import SystemClock
from sparklog.compaction.retention import retain_topic
from sparklog.delta.log import DeltaLog
from sparklog.log.follow import TopicFollower
from sparklog.log.topic import alter_topic, delete_records
from sparklog.storage import open_store
from tests.compaction.support import append_at
from tests.support import T0_MS, a_topic, a_writer, contents, entry_lines

HOUR_MS = 3_600_000
GIVEN = {0: [(0, "old"), (1, "older"), (2, "new")], 1: [(0, "a"), (1, "b")]}


def a_topic_of_two(folder: Path) -> DeltaLog:
    """Partition 0 has a file that is too old and one that is not; partition 1, the other engine's, one that is not."""
    log = a_topic(open_store(folder), SystemClock(), num_partitions=2, configs={"retention.ms": HOUR_MS})
    writer = a_writer(log)
    append_at(writer, T0_MS - 2 * HOUR_MS, "old", "older")
    append_at(writer, T0_MS, "new")
    append_at(writer, T0_MS, "a", "b", partition=1)
    assert contents(log) == GIVEN
    return log


def cached_cluster(log: DeltaLog) -> DeltaTable:
    """The table as the other engine reads it now, however long its work takes."""
    return DeltaTable(f"{log.store.uri.removeprefix('file://')}/{log.table}")


def merge(table: DeltaTable) -> None:
    source = pa.table({"key": pa.array([b"b"], pa.binary()), "value": pa.array([b"B"], pa.binary())})
    predicate = "target.partition = 1 AND target.key = source.key"
    merging = table.merge(source, predicate, source_alias="source", target_alias="target")
    assert merging.when_matched_update({"value": "source.value"}).execute()["num_target_rows_updated"] == 1


def update(table: DeltaTable) -> None:
    predicate = "partition = 1 AND value = X'62'"
    assert table.update(updates={"value": "X'42'"}, predicate=predicate)["num_updated_rows"] == 1


def delete(table: DeltaTable) -> None:
    assert table.delete("partition = 1 AND value = X'61'")["num_deleted_rows"] == 1


UPDATED = [(0, "a"), (1, "B")]
OPERATIONS: dict[str, tuple[Callable[[DeltaTable], None], list[tuple[int, str]]]] = {
    "merge": (merge, UPDATED),
    "update": (update, UPDATED),
    "delete": (delete, [(1, "b")]),
}
"""What another engine does to partition 1, and what is in there afterwards."""


def retain(log: DeltaLog) -> None:
    assert retain_topic(log, "t", now_ms=T0_MS).log_start_offsets == {0: (0, 2)}


def delete_some(log: DeltaLog) -> None:
    assert delete_records(log, "t", {0: 2}).log_start_offsets == (2, 0)


def delete_within_a_file(log: DeltaLog) -> None:
    assert delete_records(log, "t", {0: 1}).log_start_offsets == (1, 0)


MOVES = {"retention": (retain, 2), "delete_records": (delete_some, 2), "within a file": (delete_within_a_file, 1)}
"""What moves the log start of partition 0, and where to."""


def kinds_of(log: DeltaLog, version: int) -> set[str]:
    return {kind for line in entry_lines(log, version) for kind in line}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("move", MOVES)
def test_another_engines_change_of_a_partition_outlives_a_log_start_moved_elsewhere(
    tmp_path: Path, move: str, operation: str
) -> None:
    log = a_topic_of_two(tmp_path)
    (move_start, start), (operate, expected) = MOVES[move], OPERATIONS[operation]
    early = cached_cluster(log)
    move_start(log)
    operate(early)  # would raise CommitFailedError
    assert early.version() == 5
    assert kinds_of(log, 4) <= {"commitInfo", "txn", "remove"}
    assert contents(log) == {0: [row for row in GIVEN[0] if row[0] >= start], 1: expected}
    head = TopicFollower(log, "t").head
    assert (head.log_start_offsets, head.log_end_offsets) == ((start, 0), (3, 2))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_changed_setting_does_fail_it(tmp_path: Path, operation: str) -> None:
    """What retention would do if a log start were a property of the table."""
    log = a_topic_of_two(tmp_path)
    early = cached_cluster(log)
    alter_topic(log, "t", {"retention.bytes": 1})
    assert "metaData" in kinds_of(log, early.version() + 1)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        OPERATIONS[operation][0](early)
    assert contents(log) == GIVEN


@pytest.mark.parametrize("operation", OPERATIONS)
def test_records_that_it_read_and_that_retention_took_meanwhile_do_not_come_back(
    tmp_path: Path, operation: str
) -> None:
    log = a_topic_of_two(tmp_path)
    early = cached_cluster(log)
    delete_records(log, "t", {1: 2})
    with pytest.raises(CommitFailedError, match="deleted data this operation read"):
        OPERATIONS[operation][0](early)
    assert contents(log) == GIVEN | {1: []}
