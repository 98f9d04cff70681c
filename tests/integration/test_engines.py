"""The log is the table: deltalake, DuckDB and Polars read a topic as our own follower does, whatever was done to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from sparklog.clock import SystemClock
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import last_checkpoint_path
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import HEADERS
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.topic import create_topic, delete_records, delete_topic
from sparklog.storage import open_store
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    entry_lines,
    versions_of,
    within,
)

pytestmark = pytest.mark.slow

RECORD = ["partition", "offset", "timestamp", "key", "value", "headers"]
Rows = list[dict[str, Any]]


def location(log: DeltaLog) -> str:
    return f"{log.store.uri.removeprefix('file://')}/{log.table}"


def rows_of(table: pa.Table) -> Rows:
    """Records in the order of partition and offset, in one schema whatever the engine makes of ours."""
    kinds = [pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.binary(), pa.binary(), HEADERS]
    columns = [table[name].cast(kind) for name, kind in zip(RECORD, kinds, strict=True)]
    return list(
        pa.table(columns, names=RECORD).sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    )


def seen_by_us(log: DeltaLog) -> Rows:
    follower = TopicFollower(log, "t")
    tables = []
    for partition, start in enumerate(follower.head.log_start_offsets):
        table = follower.read(partition, start, max_records=10_000)
        tables.append(table.append_column("partition", pa.array([partition] * table.num_rows, pa.int32())))
    return rows_of(pa.concat_tables(tables))


SQL = """
    SELECT partition, base_offset + offset_delta AS "offset", timestamp, key, value, headers
    FROM topic WHERE base_offset IS NOT NULL
"""


def seen_by_deltalake(log: DeltaLog) -> Rows:
    table = DeltaTable(location(log)).to_pyarrow_table()
    table = table.filter(pc.is_valid(table["base_offset"]))
    offset = pc.add(table["base_offset"], table["offset_delta"])
    return rows_of(table.append_column("offset", offset))


def seen_by_duckdb(log: DeltaLog) -> Rows:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("topic", DeltaTable(location(log)).to_pyarrow_dataset())
        return rows_of(connection.sql(SQL).to_arrow_table())


def seen_by_polars(log: DeltaLog, *, use_pyarrow: bool = True) -> Rows:
    topic = polars.scan_delta(location(log), use_pyarrow=use_pyarrow)
    offset = (polars.col("base_offset") + polars.col("offset_delta")).alias("offset")
    return rows_of(topic.filter(polars.col("base_offset").is_not_null()).with_columns(offset).collect().to_arrow())


ENGINES: dict[str, Callable[[DeltaLog], Rows]] = {
    "deltalake": seen_by_deltalake,
    "duckdb": seen_by_duckdb,
    "polars": seen_by_polars,
}


def assert_all_agree(log: DeltaLog, *, count: int, dense: bool = True) -> Rows:
    """Every engine shows what we show: ``count`` records, and unless told otherwise no offset is left out."""
    ours = seen_by_us(log)
    assert len(ours) == count
    for name, seen in ENGINES.items():
        assert seen(log) == ours, name
    if dense:
        head = TopicFollower(log, "t").head
        bounds = zip(head.log_start_offsets, head.log_end_offsets, strict=True)
        offsets = [(partition, o) for partition, (start, end) in enumerate(bounds) for o in range(start, end)]
        assert [(row["partition"], row["offset"]) for row in ours] == offsets
    return ours


def assert_all_agree_also_after_a_checkpoint(log: DeltaLog, *, count: int, dense: bool = True) -> None:
    before = assert_all_agree(log, count=count, dense=dense)
    assert write_checkpoint(log) is not None
    assert assert_all_agree(log, count=count, dense=dense) == before


def a_local_topic(folder: Path, *, num_partitions: int = 2) -> DeltaLog:
    return a_topic(open_store(folder), SystemClock(), num_partitions=num_partitions)


EVERYTHING: dict[str, list[Any]] = {
    "key": [b"k", None, b"", b"\x00\xff", "schlüssel".encode()],
    "value": [b"v", b"", None, b"\xff" * 3, None],
    "headers": [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}],
        None,
        [],
        [{"key": "", "value": None}],
        [{"key": "ü", "value": b""}],
    ],
    "timestamp": [T0_MS, 0, 1, T0_MS - 1, 253_402_300_799_999],
}


def everything() -> pa.Table:
    """Records of every kind: nulls, empty bytes, headers that repeat, the first and the last timestamp."""
    columns = [
        pa.array(EVERYTHING["key"], pa.binary()),
        pa.array(EVERYTHING["value"], pa.binary()),
        pa.array(EVERYTHING["headers"], HEADERS),
        pa.array(EVERYTHING["timestamp"], pa.int64()),
    ]
    return pa.table(columns, names=list(EVERYTHING))


def foreign(*values: str, partition: int = 0, deltas: list[int | None] | None = None) -> pa.Table:
    """Records as another engine writes them: without a base offset and a producer."""
    count = len(values)
    columns: dict[str, Any] = {
        "partition": pa.array([partition] * count, pa.int32()),
        "base_offset": pa.nulls(count, pa.int64()),
        "offset_delta": pa.array(deltas or list(range(count)), pa.int64()),
        "timestamp": pa.array([T0_MS * 1_000 + number for number in range(count)], pa.timestamp("us", tz="UTC")),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([value.encode() for value in values], pa.binary()),
        "headers": pa.nulls(count, HEADERS),
        "producer_id": pa.nulls(count, pa.int64()),
        "producer_epoch": pa.nulls(count, pa.int16()),
        "sequence": pa.nulls(count, pa.int32()),
    }
    return pa.table(columns)


def live_files(log: DeltaLog) -> list[str]:
    return sorted(DeltaTable(location(log)).get_add_actions(flatten=True)["path"].to_pylist())


def ends(log: DeltaLog) -> tuple[int, ...]:
    return TopicFollower(log, "t").head.log_end_offsets


# --- topics as we write them


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_kind_are_read_the_same_in_every_compression(tmp_path: Path, compression: str) -> None:
    log = a_local_topic(tmp_path, num_partitions=1)
    writer = a_writer(log)
    writer.append(writer.upload([(0, everything())], compression=compression), deadline=within(writer, 60_000))
    ours = assert_all_agree(log, count=5)
    assert {name: [row[name] for row in ours] for name in ("key", "value", "headers")} == {
        name: EVERYTHING[name] for name in ("key", "value", "headers")
    }
    assert [row["timestamp"].timestamp() * 1_000 for row in ours] == EVERYTHING["timestamp"]


def test_a_topic_is_read_the_same_through_everything_that_we_do_to_it(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path, num_partitions=3)
    assert_all_agree(log, count=0)
    one, other = a_writer(log), a_writer(log)
    for number in range(3):
        one.append(one.upload([(0, everything()), (1, everything())]), deadline=within(one, 60_000))
        append(other, f"x{number}", f"y{number}", partition=number % 2)
    assert_all_agree_also_after_a_checkpoint(log, count=36)
    append(one, "after the checkpoint", partition=2)
    assert_all_agree(log, count=37)

    delete_records(log, "t", {0: 5, 1: -1})
    assert_all_agree_also_after_a_checkpoint(log, count=37 - 5 - 17)

    delete_topic(log, "t")
    assert all(seen(log) == [] for seen in ENGINES.values())
    create_topic(log, "t", num_partitions=2)
    append(a_writer(log), "of the new topic", partition=1)
    assert_all_agree_also_after_a_checkpoint(log, count=1)


def test_a_log_start_within_a_file_is_where_other_engines_must_begin(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path, num_partitions=1)
    append(a_writer(log), "a", "b", "c")
    delete_records(log, "t", {0: 2})
    start = DeltaTable(location(log)).transaction_version("sparklog.start.0")
    assert start == 2
    for seen in ENGINES.values():
        assert [row for row in seen(log) if row["offset"] >= start] == seen_by_us(log)


def test_a_topic_is_read_the_same_after_its_log_was_cleaned(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    for number in range(4):
        append(writer, f"a{number}", partition=number % 2)
    write_checkpoint(log)
    hint = log.store.read(last_checkpoint_path(log.table))
    append(writer, "b")
    write_checkpoint(log)
    append(writer, "c")
    age_log(log)
    result = clean_log(log, retention_ms=DAY_MS)
    assert result is not None
    assert versions_of(log) == [5, 6]
    assert_all_agree(log, count=6)
    log.store.put(last_checkpoint_path(log.table), hint)  # names a checkpoint that was cleaned
    assert_all_agree(log, count=6)


def age_log(log: DeltaLog) -> None:
    """Let everything but the newest entry be two days older."""
    folder = Path(location(log)) / "_delta_log"
    for path in sorted(folder.iterdir())[:-2]:  # the newest entry and _last_checkpoint
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - 2 * DAY_MS * 1_000_000))


def test_our_commits_show_in_deltalakes_history_and_our_ends_as_transactions(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), "a", "b", partition=1)
    table = DeltaTable(location(log))
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "CREATE TOPIC"]
    assert [table.transaction_version(f"sparklog.end.{partition}") for partition in (0, 1)] == [0, 2]
    write_checkpoint(log)
    assert DeltaTable(location(log)).transaction_version("sparklog.end.1") == 2


@pytest.mark.xfail(
    reason="Polars 2.1 takes partition values from the paths of files instead of Delta's log (cf. polars issue 20238): "
    "base_offset is null. With use_pyarrow=True it reads them from the log."
)
def test_polars_own_reader_reads_the_same(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), "a", "b", partition=1)
    assert seen_by_polars(log, use_pyarrow=False) == seen_by_us(log)


# --- files that another engine wrote (L13, F1)


def bytes_of(log: DeltaLog, paths: list[str]) -> list[bytes]:
    return [log.store.read(object_path(log.table, path)) for path in paths]


def test_a_foreign_file_is_invisible_until_a_sequencing_publishes_a_copy_of_it(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    append(writer, "ours")
    write_deltalake(location(log), foreign("x", "y"), mode="append")
    write_deltalake(location(log), foreign("z", partition=1), mode="append")
    assert_all_agree(log, count=1)
    files = live_files(log)

    done = sequence_topic(log)
    assert done.sequenced_count == 2
    kinds = [kind for line in entry_lines(log, done.delta_version) for kind in line]
    assert sorted(kinds) == ["add", "add", "commitInfo", "remove", "remove", "txn", "txn"]
    published = live_files(log)
    assert len(published) == 3
    assert len(set(files) & set(published)) == 1  # ours
    assert sorted(bytes_of(log, published)) == sorted(bytes_of(log, files))
    append(writer, "ours again")
    assert contents(log) == {0: [(0, "ours"), (1, "x"), (2, "y"), (3, "ours again")], 1: [(0, "z")]}
    assert set(published) < set(live_files(log))
    assert DeltaTable(location(log)).to_pyarrow_table().num_rows == 5  # no file counts twice
    assert_all_agree_also_after_a_checkpoint(log, count=5)
    assert DeltaTable(location(log)).to_pyarrow_table().num_rows == 5
    assert len(live_files(log)) == 4


def test_a_foreign_file_behind_a_checkpoint_is_published_once(tmp_path: Path) -> None:
    # The checkpoint holds the old path; the tail removes it and adds the new one.
    log = a_local_topic(tmp_path)
    write_deltalake(location(log), foreign("x", "y"), mode="append")
    write_checkpoint(log)
    sequence_topic(log)
    assert_all_agree_also_after_a_checkpoint(log, count=2)
    assert DeltaTable(location(log)).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("checkpoint_first", [False, True])
def test_vacuum_takes_a_foreign_file_that_was_published_and_spares_its_copy(
    tmp_path: Path, checkpoint_first: bool
) -> None:
    log = a_local_topic(tmp_path)
    write_deltalake(location(log), foreign("x", "y"), mode="append")
    (old,) = live_files(log)
    sequence_topic(log)
    if checkpoint_first:
        write_checkpoint(log)
    gone = DeltaTable(location(log)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert gone == [old]
    assert_all_agree(log, count=2)


# Whatever read the unsequenced files before a sequencing, and commits after it: rule L13, decision 0003
LATE: dict[str, Callable[[DeltaTable], object]] = {
    "optimize": lambda table: table.optimize.compact(),
    "optimize of the partition": lambda table: table.optimize.compact([("partition", "=", "0")]),
    "z-order": lambda table: table.optimize.z_order(["value"]),
    "delete": lambda table: table.delete("base_offset IS NULL AND value = X'6131'"),
    "delete of whole files": lambda table: table.delete("base_offset IS NULL"),
    "update": lambda table: table.update(updates={"key": "value"}, predicate="base_offset IS NULL"),
}


@pytest.mark.parametrize("operate", LATE.values(), ids=LATE)
@pytest.mark.parametrize("deltas", [[0, 1], [None, None]], ids=["kept", "renumbered"])
def test_what_deltalake_read_before_a_sequencing_it_cant_commit_after_it(
    tmp_path: Path, operate: Callable[[DeltaTable], object], deltas: list[int | None]
) -> None:
    """Found in review: it removed files that had offsets by then, and added their rows again without."""
    log = a_local_topic(tmp_path)
    append(a_writer(log), "ours")
    for name in "abc":
        write_deltalake(location(log), foreign(f"{name}0", f"{name}1", deltas=deltas), mode="append")
    early = DeltaTable(location(log))
    assert sequence_topic(log).sequenced_count == 3
    readable = assert_all_agree(log, count=7)
    with pytest.raises(CommitFailedError, match="a concurrent transaction deleted data this operation read"):
        operate(early)
    assert assert_all_agree(log, count=7) == readable
    assert sequence_topic(log).sequenced_count == 0
    operate(DeltaTable(location(log)))  # run again, it sees no unsequenced file and does no harm
    sequence_topic(log)
    assert assert_all_agree(log, count=7) == readable


@pytest.mark.parametrize("operate", LATE.values(), ids=LATE)
def test_a_deltalake_commit_before_a_sequencing_under_way_waits_for_the_next(
    tmp_path: Path, operate: Callable[[DeltaTable], object]
) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), "ours")
    for name in "abc":
        write_deltalake(location(log), foreign(f"{name}0", f"{name}1"), mode="append")
    left: list[bytes] = []

    def overtake() -> None:
        operate(DeltaTable(location(log)))
        left.extend(DeltaTable(location(log)).to_pyarrow_table()["value"].to_pylist())

    assert sequence_topic(a_log(OvertakenStore(log.store, overtake), log.clock)).sequenced_count < 3
    sequence_topic(log)
    assert sorted(row["value"] for row in assert_all_agree(log, count=len(left))) == sorted(left)


@pytest.mark.parametrize(
    "deltas", [[None, None, None], [0, 0, 1], [0, None, 1], [-1, 0, 1]], ids=["null", "double", "some null", "negative"]
)
def test_a_foreign_file_whose_numbers_are_no_good_is_rewritten_with_numbers(
    tmp_path: Path, deltas: list[int | None]
) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), "ours")
    write_deltalake(location(log), foreign("x", "y", "z", deltas=deltas), mode="append")
    files = live_files(log)
    sequence_topic(log)
    published = live_files(log)
    assert len(set(files) - set(published)) == len(set(published) - set(files)) == 1
    assert contents(log)[0] == [(0, "ours"), (1, "x"), (2, "y"), (3, "z")]
    assert_all_agree_also_after_a_checkpoint(log, count=4)


def test_foreign_numbers_in_any_order_and_with_gaps_are_kept(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), *"abcdef")
    write_deltalake(location(log), foreign("third", "first", deltas=[7, 5]), mode="append")
    sequence_topic(log)
    assert contents(log)[0][6:] == [(11, "first"), (13, "third")]  # rule F1: by offset, not by row
    assert append(a_writer(log), "ours").base_offsets == (14,)
    assert_all_agree_also_after_a_checkpoint(log, count=9, dense=False)


# --- other engines' own commits on our table


def test_rows_that_deltalake_deletes_are_gone_and_the_others_keep_their_offsets(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    append(writer, "a", "b", "c")
    append(writer, "d", "e")
    follower = TopicFollower(log, "t")
    DeltaTable(location(log)).delete("base_offset = 0 AND offset_delta = 1")
    while follower.poll():
        pass
    assert contents(log)[0] == [(0, "a"), (2, "c"), (3, "d"), (4, "e")]
    assert follower.read(0, 0)["offset"].to_pylist() == [0, 2, 3, 4]
    append(writer, "f")
    assert ends(log) == (6, 0)
    assert_all_agree_also_after_a_checkpoint(log, count=5, dense=False)


def test_the_end_stays_when_deltalake_deletes_the_newest_records(tmp_path: Path) -> None:
    # Rule L6, found on paper: a user's DELETE removed the newest file and its offsets were given again.
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    append(writer, "a", "b")
    append(writer, "c", "d")
    DeltaTable(location(log)).delete("base_offset = 2")
    assert ends(log) == (4, 0)
    write_checkpoint(log)
    assert ends(log) == (4, 0)
    DeltaTable(location(log)).delete()
    assert ends(log) == (4, 0)
    assert append(a_writer(log), "e").base_offsets == (4,)
    assert_all_agree_also_after_a_checkpoint(log, count=1, dense=False)


def test_files_that_deltalake_compacts_keep_every_offset(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    append(writer, "a", "b", "c", "d")
    # Two files of one base offset: what an engine leaves that updates rows one by one.
    place(log, as_sequenced(foreign("e", "f"), base_offset=4))
    place(log, as_sequenced(foreign("g", "h", deltas=[2, 3]), base_offset=4))
    follower = TopicFollower(log, "t")
    before = assert_all_agree(log, count=8)
    assert DeltaTable(location(log)).optimize.compact()["numFilesRemoved"] == 2
    while follower.poll():
        pass
    assert follower.read(0, 0)["offset"].to_pylist() == list(range(8))
    assert assert_all_agree(log, count=8) == before
    assert ends(log) == (8, 0)
    assert append(writer, "i").base_offsets == (8,)


def place(log: DeltaLog, rows: pa.Table) -> None:
    """Append rows that have offsets, as a tool that gives offsets does (rule F6, moved records)."""
    said = Transaction("sparklog.judged", DeltaTable(location(log)).version() + 1)
    properties = CommitProperties(app_transactions=[said])
    write_deltalake(location(log), rows, mode="append", commit_properties=properties)


def as_sequenced(records: pa.Table, *, base_offset: int) -> pa.Table:
    column = pa.array([base_offset] * records.num_rows, pa.int64())
    return records.set_column(records.schema.get_field_index("base_offset"), "base_offset", column)


def test_foreign_files_that_were_compacted_before_they_were_published_lose_no_record(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    write_deltalake(location(log), foreign("a", "b"), mode="append")
    write_deltalake(location(log), foreign("c", "d"), mode="append")
    DeltaTable(location(log)).optimize.compact()  # one file now, with every number twice
    assert_all_agree(log, count=0)
    sequence_topic(log)
    assert sorted(value for _, value in contents(log)[0]) == ["a", "b", "c", "d"]
    assert_all_agree_also_after_a_checkpoint(log, count=4)


def test_a_setting_that_deltalake_changes_is_ours_too_and_appends_go_on(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    writer = a_writer(log)
    append(writer, "a")
    DeltaTable(location(log)).alter.set_table_properties({"sparklog.retention.ms": "1234"}, raise_if_not_exists=False)
    append(writer, "b")
    assert writer.head.config.integer("retention.ms") == 1234
    assert_all_agree(log, count=2)


def test_a_checkpoint_that_deltalake_writes_is_as_good_as_ours(tmp_path: Path) -> None:
    log = a_local_topic(tmp_path)
    append(a_writer(log), "a", "b")
    DeltaTable(location(log)).create_checkpoint()
    append(a_writer(log), "c")
    follower = TopicFollower(log, "t")
    assert follower.state.checkpoint_version == 1
    assert_all_agree(log, count=3)
