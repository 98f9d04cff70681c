"""The offset table: what is read and written, what it costs, what other engines see and do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparklog.clock import SystemClock
from sparklog.delta.actions import Action, AddFile, Protocol, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.delta.snapshot import load_snapshot
from sparklog.errors import (
    CommitFailedError,
    CorruptLogError,
    InvalidArgumentError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    SparklogError,
    StoreUnavailableError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from sparklog.groups.offsets import offset_table
from sparklog.groups.offsets.changes import DeleteAll, DeleteOffsets
from sparklog.groups.offsets.offset_files import FORMAT_PROPERTY, FORMAT_VERSION, decode_rows, encode_rows
from sparklog.groups.offsets.offset_maintenance import sweep
from sparklog.groups.offsets.offset_state import load_state
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Stamp
from sparklog.model import TopicPartition
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore
from tests.groups.offsets.support import (
    ANN,
    BOB,
    EVE,
    HOUR_MS,
    P0,
    P1,
    P2,
    a_cluster,
    a_fence,
    a_row,
    a_table,
    change,
    check_whole,
    commit,
    do,
    offsets_of,
    take,
    unowned,
)
from tests.support import T0_MS, OvertakenStore, foreign_entry, resealed, versions_of

NEW_OFFSETS = itertools.count()
T0 = datetime(2100, 1, 1, tzinfo=UTC)
PENDING_COLUMNS = [
    f"pending_{name}" for name in ("transactional_id", "producer_epoch", "entry", "offset", "metadata", "leader_epoch")
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def filled(memory: MemoryStore, clock: ManualClock, *, stamp: Stamp = ANN) -> OffsetTable:
    """A table in which a member has taken P0 and P1 and committed 5 of P0."""
    table = a_table(memory, clock)
    do(table, take(stamp, P0, P1), commit(stamp, {P0: 5}, metadata="meta"))
    return table


# --- reading and writing


def test_a_table_that_isnt_there_has_no_rows_and_isnt_created_by_looking(memory: MemoryStore) -> None:
    table = a_table(memory)
    assert table.fetch() == table.fetch() == {}
    assert do(table, DeleteOffsets(partitions=[P0])) == {}
    assert list(memory.list("")) == []


def test_what_is_committed_is_read_by_everybody(memory: MemoryStore, clock: ManualClock) -> None:
    reader = a_table(memory, clock)
    assert reader.fetch() == {}
    filled(memory, clock)
    expected = {P0: a_row(5, metadata="meta"), P1: a_row(None)}
    assert reader.fetch() == a_table(memory, clock).fetch() == expected
    assert check_whole(memory, clock) == expected


def test_rows_survive_the_way_through_a_file() -> None:
    rows = {
        TopicPartition("ü", 2**31 - 1): a_row(2**63 - 1, stamp=Stamp(2**63 - 1, "é"), metadata="\x00 ü"),
        TopicPartition("a.b-c", 0): a_row(None, stamp=Stamp(0, ""), topic_id=""),
        P0: a_row(0),
    }
    assert decode_rows("x", encode_rows(rows)) == rows
    assert decode_rows("x", encode_rows({})) == {}


@pytest.mark.parametrize("count", [1, 32, 33])
def test_few_rows_and_many_are_written_alike(count: int) -> None:
    rows = {TopicPartition("t", number): a_row(number, metadata="é" * (number % 3)) for number in range(count)}
    data = encode_rows(rows)
    assert decode_rows("x", data) == rows
    by_hand = pq.read_metadata(pa.BufferReader(data)).created_by.startswith("sparklog")
    assert by_hand == (count <= 32)


@pytest.mark.parametrize("count", [1, 33])
def test_a_number_out_of_range_is_refused_by_arrow(count: int) -> None:
    rows = {TopicPartition("t", number): a_row(2**63) for number in range(count)}
    with pytest.raises((OverflowError, pa.ArrowInvalid)):
        encode_rows(rows)


def test_several_changes_are_one_commit_and_one_refused_hinders_no_other(
    memory: MemoryStore, clock: ManualClock
) -> None:
    table = filled(memory, clock)
    before = load_state(table.log).position.version
    done = change(
        table,
        commit(BOB, {P0: 9}),
        commit(ANN, {P1: 7}),
        unowned({P2: 1}),
        take(BOB, P0),
        commit(BOB, {P0: 9}),
    )
    assert [type(error) for error in done.errors] == [
        CommitFailedError,
        type(None),
        UnknownMemberIdError,
        type(None),
        type(None),
    ]
    assert offsets_of(done.rows) == {P0: 9, P1: 7}
    assert a_table(memory, clock).fetch() == done.rows
    assert load_state(table.log).position.version == before + 1


def test_a_table_may_become_empty_and_be_filled_again(memory: MemoryStore, clock: ManualClock) -> None:
    table = filled(memory, clock)
    assert do(table, DeleteAll(generation=2)) == a_table(memory, clock).fetch() == a_fence(2)
    do(table, take(EVE, P2))
    assert check_whole(memory, clock).keys() == {P2, *a_fence(2)}


def test_a_name_that_no_group_may_have_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        OffsetTable(a_cluster(), "")


# --- what may be told


def test_a_refusal_is_never_told_of_rows_that_are_out_of_date(memory: MemoryStore, clock: ManualClock) -> None:
    stale, other = filled(memory, clock), a_table(memory, clock)
    do(other, take(BOB, P0))
    assert stale.fetch()[P0].stamp == BOB
    do(other, DeleteAll(generation=9))
    do(other, take(Stamp(10, "ann"), P0))
    assert offsets_of(do(stale, commit(Stamp(10, "ann"), {P0: 8})))[P0] == 8


def test_done_already_is_never_told_of_rows_that_are_out_of_date(memory: MemoryStore, clock: ManualClock) -> None:
    stale, other = filled(memory, clock), a_table(memory, clock)
    do(other, DeleteOffsets(partitions=[P0, P1]))
    assert do(stale, take(ANN, P0)) == {P0: a_row(None)}
    do(other, take(BOB, P0))
    assert isinstance(change(stale, take(ANN, P0)).errors[0], SparklogError)


def test_a_commit_that_loses_the_race_is_decided_again(memory: MemoryStore, clock: ManualClock) -> None:
    """Rule L4: the winner has taken the partition."""
    table = filled(memory, clock)
    other = a_table(memory, clock)
    slow = a_table(OvertakenStore(memory, lambda: do(other, take(BOB, P0))), clock)
    slow.fetch()
    done = change(slow, commit(ANN, {P0: 9}), commit(ANN, {P1: 9}))
    assert [type(error) for error in done.errors] == [CommitFailedError, type(None)]
    assert table.fetch() == done.rows == {P0: a_row(5, stamp=BOB, metadata="meta"), P1: a_row(9)}


def test_losing_races_past_the_deadline_is_a_time_out_of_which_nothing_is_stored(
    memory: MemoryStore, clock: ManualClock
) -> None:
    other = a_table(memory, clock)

    def others_act() -> None:
        do(other, unowned({P2: clock.now_ms()}))
        clock.advance(10)

    slow = a_table(OvertakenStore(memory, others_act, times=100), clock)
    with pytest.raises(KafkaTimeoutError, match="losing"):
        change(slow, unowned({P0: 1}), timeout_ms=100)
    assert set(other.fetch()) == {P2}


# --- what it costs


def counted(memory: MemoryStore, clock: ManualClock) -> tuple[OffsetTable, CountingStore]:
    store = CountingStore(memory)
    return a_table(store, clock), store


def test_the_cost_of_each_call(memory: MemoryStore, clock: ManualClock) -> None:
    table, store = counted(memory, clock)

    def costs(call: Callable[[], object]) -> dict[str, int]:
        store.reset()
        call()
        return store.counts()

    look_for_a_table = {"get": 1, "list": 1}
    assert costs(table.fetch) == look_for_a_table
    assert costs(table.fetch) == {"get": 1}
    assert costs(lambda: do(table, take(ANN, P0))) == {"put": 1, "create": 1}
    for offset in range(3):
        assert costs(partial(do, table, commit(ANN, {P0: offset}))) == {"put": 1, "create": 1}
    assert costs(table.fetch) == {"get": 1}
    assert costs(lambda: change(table, commit(BOB, {P0: 9}))) == {"get": 1}
    assert costs(lambda: do(table, commit(ANN, {P0: 2}))) == {"get": 1}

    other, theirs = counted(memory, clock)
    assert costs(lambda: do(other, commit(ANN, {P0: 7}))) == {}
    opening = {"get": 3, "list": 1}  # the hint of a checkpoint, what follows it, the newest entry, its file
    assert theirs.counts() == {**opening, "sync": 1, "put": 1, "create": 1}
    assert costs(table.fetch) == {"get": 1 + 4 + 1}
    do(other, commit(ANN, {P0: 8}))
    assert costs(lambda: do(table, commit(ANN, {P0: 9}))) == {"put": 2, "create": 2, "get": 2, "sync": 2}

    for offset in range(20):
        do(other, commit(ANN, {P0: offset}))
    assert costs(table.fetch) == {"get": 1 + 4 + 3, "list": 1}
    clock.advance(61_000)
    assert costs(table.fetch) == {"get": 2, "list": 1}  # rule L1: and its own entry, and the marks of cleanups
    clock.advance(61_000)
    assert costs(lambda: do(table, commit(ANN, {P0: 77}))) == {"get": 2, "list": 1, "sync": 1, "put": 1, "create": 1}


@pytest.mark.slow
def test_nothing_costs_more_as_a_table_ages(memory: MemoryStore, clock: ManualClock) -> None:
    table, store = counted(memory, clock)
    do(table, take(ANN, P0))
    sizes: list[int] = []
    costs: list[dict[str, int]] = []
    for offset in range(250):
        do(table, commit(ANN, {P0: offset}))
        if table.maintenance_due:
            sizes.append(len(files(table)))
            table.maintain()
        if offset in (5, 249):
            store.reset()
            do(table, commit(ANN, {P0: 1_000 + offset}))
            opened = a_table(store, clock)
            opened.fetch()
            opened.fetch()
            costs.append(store.counts())
    assert costs == [{"put": 1, "create": 1, "get": 4, "list": 1}] * 2
    assert len(sizes) == 2


# --- maintenance


def files(table: OffsetTable) -> list[str]:
    return [name for name in table.log.store.list_names(f"{table.log.table}/") if name.endswith(".parquet")]


def grow(table: OffsetTable, count: int, *, step_ms: float = 0) -> int:
    """Commit ``count`` times, maintaining whatever is due; returns how often it was."""
    maintained = 0
    clock = table.log.clock
    assert isinstance(clock, ManualClock)
    for _ in range(count):
        clock.advance(step_ms)
        do(table, unowned({P0: next(NEW_OFFSETS)}))
        if table.maintenance_due:
            table.maintain()
            maintained += 1
    return maintained


@pytest.mark.slow
def test_the_commit_that_crosses_the_threshold_writes_a_checkpoint_and_cleans_up(
    memory: MemoryStore, clock: ManualClock
) -> None:
    table = a_table(memory, clock)
    assert grow(table, 100, step_ms=HOUR_MS / 2) == 1
    assert not table.maintenance_due
    assert load_state(table.log).checkpoint_version == 99
    assert len(files(table)) == 3  # the live one, and those replaced less than an hour ago
    assert len(versions_of(table.log)) == 3  # so is the log
    assert grow(table, 100, step_ms=HOUR_MS / 2) == 1
    assert len(files(table)) == 3
    check_whole(memory, clock)


def test_maintenance_that_somebody_else_did_already_costs_one_look(memory: MemoryStore, clock: ManualClock) -> None:
    one, store = a_table(memory, clock), CountingStore(memory)
    grow(one, 95)
    other = a_table(store, clock)
    for _ in range(14):
        other.fetch()  # and never sees the checkpoint
        grow(one, 1)
    do(other, unowned({P0: 0}))
    assert other.maintenance_due
    store.reset()
    other.maintain()
    assert store.counts() == {"get": 1}


def test_who_closes_waits_for_no_delay_before_maintenance(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(memory, clock)
    grow(table, 98)
    do(table, unowned({P0: next(NEW_OFFSETS)}))
    do(table, unowned({P0: next(NEW_OFFSETS)}))
    monkeypatch.setattr("sparklog.groups.offsets.offset_table._MAX_DELAY_MS", 10**10)  # days
    table.maintain_aside()
    assert table.close()
    assert load_state(table.log).checkpoint_version == 99


def test_maintenance_that_fails_is_logged_and_done_later(
    memory: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Fault(kind=FaultKind.READ_ONLY, ops=["create"], path="checkpoint")
    table = a_table(FaultyStore(memory, broken), clock)
    assert grow(table, 109) == 1
    assert "maintenance of groups/g/offsets failed" in caplog.text
    assert load_state(table.log).checkpoint_version == -1
    assert grow(table, 1) == 1
    assert load_state(table.log).checkpoint_version == 109


@pytest.mark.parametrize("fails", [False, True])
def test_maintenance_rests_as_long_as_it_should_whatever_is_committed_beside_it(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """✗ A commit beside it finds it due again. So it is done once more, has nothing to do, and takes a moment: the rest
    is over after twenty of those. Or it fails, and each tenth commit tries again."""
    table = a_table(memory, clock)

    def slowly(_: DeltaLog, version: int, *, sweeps: bool) -> int:
        do(table, unowned({P0: next(NEW_OFFSETS)}))
        clock.advance(7_000)
        if fails:
            raise StoreUnavailableError("away")
        return version

    def is_due(*, version: int, checkpoint_version: int, live_file_count: int) -> bool:
        return version - checkpoint_version >= 3

    monkeypatch.setattr(offset_table, "maintain_offsets", slowly)
    monkeypatch.setattr(offset_table, "checkpoint_due", is_due)
    assert grow(table, 3) == 1
    assert grow(table, 9) == 0
    clock.advance(20 * 7_000)
    assert grow(table, 1) == 1


def test_a_reader_whose_file_was_swept_reads_the_newest(memory: MemoryStore, clock: ManualClock) -> None:
    table = filled(memory, clock)

    def two_hours_pass() -> None:
        for offset in (8, 9):
            do(table, commit(ANN, {P0: offset}))
            clock.advance(HOUR_MS)
        assert sweep(table.log) == 1

    store = InterruptedStore(memory)
    store.interrupt(two_hours_pass, at=3, after=False)  # the hint, the listing, the entry, the file
    assert offsets_of(a_table(store, clock).fetch()) == {P0: 9, P1: None}


def test_a_file_that_somebody_else_deleted_is_told(memory: MemoryStore, clock: ManualClock) -> None:
    table = filled(memory, clock)
    memory.delete([f"{table.log.table}/{load_state(table.log).live[0].path}"])
    with pytest.raises(ObjectNotFoundError, match="deleted by somebody else"):
        load_state(table.log)


# --- other engines


def a_local_table(folder: Path) -> tuple[OffsetTable, str]:
    table = a_table(LocalStore(folder))
    do(table, take(ANN, P0, P1), commit(ANN, {P0: 5}, metadata="meta"))
    return table, f"{folder}/groups/g/offsets"


@pytest.mark.slow
def test_any_delta_engine_reads_the_table(tmp_path: Path) -> None:
    table, uri = a_local_table(tmp_path)
    for offset in range(100):
        do(table, commit(ANN, {P0: offset}, metadata="meta"))
    table.maintain()
    do(table, commit(ANN, {P1: 7}))
    tables = [DeltaTable(uri).to_pyarrow_table(), polars.read_delta(uri).to_arrow()]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("offsets", DeltaTable(uri).to_pyarrow_dataset())
        tables.append(connection.sql("SELECT * FROM offsets").to_arrow_table())
    for seen in tables:
        rows = seen.sort_by("partition").cast(DeltaTable(uri).to_pyarrow_table().schema).to_pylist()
        times = [row.pop("commit_timestamp").timestamp() * 1_000 for row in rows]
        assert times == [row.commit_timestamp_ms for row in table.fetch().values()]
        pending = {name: row.pop(name) for row in rows for name in [*row] if name.startswith("pending_")}
        assert pending == dict.fromkeys(PENDING_COLUMNS)
        same = {"topic": "t", "topic_id": "id", "leader_epoch": -1, "owner_generation": 1, "owner_member": "ann"}
        assert rows == [
            {**same, "partition": 0, "offset": 99, "metadata": "meta"},
            {**same, "partition": 1, "offset": 7, "metadata": ""},
        ]
    protocol = DeltaTable(uri).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


@pytest.mark.slow
def test_a_checkpoint_carries_no_names_of_the_files_that_every_commit_replaced(tmp_path: Path) -> None:
    table, uri = a_local_table(tmp_path)
    for offset in range(100):
        do(table, commit(ANN, {P0: offset}))
    table.maintain()
    [checkpoint] = Path(uri, "_delta_log").glob("*.checkpoint.parquet")
    assert pq.read_metadata(checkpoint).num_rows == 4  # protocol, metaData, add, the writer's txn


def test_what_another_engine_changes_is_honoured(tmp_path: Path) -> None:
    table, uri = a_local_table(tmp_path)
    stale = a_table(LocalStore(tmp_path))
    stale.fetch()

    DeltaTable(uri).update(updates={"offset": "42"}, predicate="partition = 0")
    assert offsets_of(table.fetch()) == offsets_of(a_table(LocalStore(tmp_path)).fetch()) == {P0: 42, P1: None}

    DeltaTable(uri).delete("partition = 1")
    done = change(table, commit(ANN, {P1: 1}), commit(ANN, {P0: 43}))
    assert isinstance(done.errors[0], CommitFailedError)
    assert offsets_of(done.rows) == offsets_of(stale.fetch()) == {P0: 43}

    write_deltalake(uri, DeltaTable(uri).to_pyarrow_table().set_column(2, "partition", [[2]]), mode="append")
    assert offsets_of(stale.fetch()) == {P0: 43, P2: 43}
    assert len(load_state(table.log).live) == 2
    DeltaTable(uri).optimize.compact()
    assert offsets_of(do(stale, take(BOB, P0, P2), commit(BOB, {P2: 44}))) == {P0: 43, P2: 44}
    assert DeltaTable(uri).file_uris() == [f"{uri}/{load_state(table.log).live[0].path}"]
    write_deltalake(uri, DeltaTable(uri).to_pyarrow_table().slice(0, 0), mode="overwrite")
    assert table.fetch() == {}


def foreign(table: OffsetTable, columns: pa.Table, *, live: bool = False, actions: Sequence[Action] = ()) -> None:
    """Another engine replaces the table's content, or adds to it."""
    sink = pa.BufferOutputStream()
    pq.write_table(columns, sink)
    foreign_bytes(table, bytes(sink.getvalue()), keep=live, actions=actions)


def foreign_bytes(table: OffsetTable, data: bytes, *, keep: bool = False, actions: Sequence[Action] = ()) -> None:
    state = load_state(table.log)
    table.log.store.put(f"{table.log.table}/part-0.parquet", data)
    removed = [] if keep else [RemoveFile(path=file.path, deletion_ms=T0_MS) for file in state.live]
    add = AddFile(path="part-0.parquet", partition_values={}, size_bytes=len(data), modification_ms=T0_MS)
    lines = [action.to_json() for action in (*actions, *removed, add)]
    foreign_entry(table.log, state.position.version + 1, lines)


def theirs(**columns: object) -> pa.Table:
    """Columns as another engine may write them: wider types, some left out."""
    given = {"topic": ["t"], "partition": pa.array([0], pa.int64()), "commit_timestamp": [T0], **columns}
    return pa.table({name: values for name, values in given.items() if values is not None})


def test_a_row_that_another_engine_wrote_needs_a_topic_a_partition_and_a_time(
    memory: MemoryStore, clock: ManualClock
) -> None:
    table = filled(memory, clock)
    foreign(table, theirs(offset=pa.array([3], pa.int32())))
    assert table.fetch() == {P0: a_row(3, stamp=Stamp(0, ""), topic_id="")}
    assert do(table, take(ANN, P0, topic_id="")) == {P0: a_row(3, topic_id="")}
    check_whole(memory, clock)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (theirs(partition=None), "no column partition"),
        (theirs(partition=["zero"]), "column partition is of type string, expected int32"),
        (theirs(offset=pa.array([2**40], pa.int64()), leader_epoch=[2**40]), "column leader_epoch"),
        (theirs(partition=pa.nulls(1, pa.int32())), "row without one of topic, partition, commit_timestamp"),
        (theirs(topic=pa.nulls(1, pa.string())), "row without one of"),
        (theirs(offset=[-1]), "has offset -1"),
        (theirs(note=["hello"]), "unknown columns note"),
        (theirs(topic=["t", "t"], partition=[0, 0], commit_timestamp=[T0, T0]), "several rows of .*t.*, partition=0"),
    ],
)
def test_rows_that_make_no_sense_are_told_by_name(
    memory: MemoryStore, clock: ManualClock, columns: pa.Table, message: str
) -> None:
    table = filled(memory, clock)
    foreign(table, columns)
    for call in (table.fetch, a_table(memory, clock).fetch, lambda: do(table, take(BOB, P0))):
        with pytest.raises(CorruptLogError, match=f"offset file groups/g/offsets/part-0.parquet.*{message}"):
            call()


def test_a_partition_in_two_files_a_file_that_is_none_and_another_table_are_told(
    memory: MemoryStore, clock: ManualClock
) -> None:
    table = filled(memory, clock)
    before = versions_of(table.log)[-1]
    metadata = load_snapshot(table.log)
    assert metadata is not None

    def refused(message: str) -> None:
        with pytest.raises(CorruptLogError, match=message):
            a_table(memory, clock).fetch()
        memory.delete([entry_path(table.log.table, before + 1)])

    foreign(table, theirs(), live=True)
    refused("a row of TopicPartition.topic='t', partition=0., which another live file has too")
    foreign_bytes(table, b"PAR1 not")
    refused(r"corrupt offset file groups/g/offsets/part-0.parquet \(8 bytes\)")
    foreign(table, theirs(), actions=[replace(metadata.metadata, configuration={})])
    refused("no offset table of sparklog: sparklog.offsets.format.version has format None")
    foreign(table, theirs(), actions=[replace(metadata.metadata, partition_columns=("topic",))])
    refused("is partitioned by topic")
    assert offsets_of(table.fetch()) == {P0: 5, P1: None}


def test_a_table_of_a_newer_sparklog_is_left_alone(memory: MemoryStore, clock: ManualClock) -> None:
    table = filled(memory, clock)
    path = entry_path(table.log.table, 0)
    entry = memory.read(path).decode()
    assert FORMAT_PROPERTY in entry
    newer = entry.replace(f'"offsets_format":{FORMAT_VERSION}', f'"offsets_format":{FORMAT_VERSION + 1}')
    assert newer != entry
    memory.put(path, resealed(newer.encode()))
    expected = f"format {FORMAT_VERSION + 1}; this sparklog knows up to {FORMAT_VERSION}"
    with pytest.raises(UnsupportedVersionError, match=expected):
        a_table(memory, clock).fetch()


def test_a_table_that_asks_for_a_newer_delta_writer_is_read_and_not_written(
    memory: MemoryStore, clock: ManualClock
) -> None:
    table = filled(memory, clock)
    foreign(table, theirs(offset=[9]), actions=[Protocol(min_reader_version=1, min_writer_version=7)])
    assert offsets_of(table.fetch()) == {P0: 9}
    assert isinstance(change(table, commit(ANN, {P0: 1})).errors[0], CommitFailedError)
    with pytest.raises(UnsupportedVersionError, match="writer version 7"):
        do(table, take(ANN, P0))


@pytest.mark.parametrize(("feature", "is_written"), [("changeDataFeed", True), ("checkpointProtection", False)])
def test_its_log_is_cleaned_every_hour_so_nothing_of_it_is_protected(
    memory: MemoryStore, clock: ManualClock, feature: str, is_written: bool
) -> None:
    table = filled(memory, clock)
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=(feature,))
    foreign(table, theirs(offset=[9]), actions=[listed])
    assert offsets_of(table.fetch()) == {P0: 9}
    if is_written:
        do(table, take(ANN, P0))
    else:
        with pytest.raises(UnsupportedVersionError, match=feature):
            do(table, take(ANN, P0))


# --- many


@pytest.mark.slow
def test_threads_that_commit_at_once_lose_nothing() -> None:
    cluster = a_cluster(MemoryStore(), SystemClock())

    def work(number: int) -> None:
        table = OffsetTable(cluster, "g")
        for offset in range(1, 11):
            do(table, unowned({TopicPartition("t", number): offset}))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    table = OffsetTable(cluster, "g")
    assert offsets_of(table.fetch()) == {TopicPartition("t", number): 10 for number in range(6)}
    assert load_state(table.log).position.version == 59
