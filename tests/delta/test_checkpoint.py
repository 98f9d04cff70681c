"""Checkpoints: when one is due, and that writing one changes nothing that is read, whatever happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparklog.delta.checkpoint import check_checkpoint, checkpoint_due, checkpoint_threshold, write_checkpoint
from sparklog.delta.checkpoint_content import CheckpointContent
from sparklog.delta.checkpoint_writing import NotUnderstoodError, next_checkpoint
from sparklog.delta.listing import CheckpointHint, list_log, read_checkpoint_hint, read_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.errors import CorruptLogError, ObjectNotFoundError
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import T0_MS, a_log, a_topic, a_writer, append, contents, copy_of, foreign_entry, split_checkpoint

COMMITS = 2
CALLS = 1 + 1 + (COMMITS + 1) + 1 + 1 + 1 + 1 + 1
"""The store calls of a checkpoint: hint, listing, entries, listing again, sync of its own entry, create, hint again,
put of the hint."""


def a_table(commits: int = COMMITS) -> MemoryStore:
    memory = MemoryStore(clock=ManualClock(start_ms=T0_MS))
    writer = a_writer(a_topic(memory, num_partitions=2))
    for number in range(commits):
        append(writer, f"a{number}", f"b{number}", partition=number % 2)
    return memory


def newest_checkpoint(log: DeltaLog) -> int:
    listing = list_log(log)
    assert listing is not None
    return listing.checkpoint_version


@pytest.mark.parametrize(
    ("live_files", "threshold"), [(0, 100), (1, 100), (2_000, 100), (2_019, 100), (2_020, 101), (120_000, 6_000)]
)
def test_the_threshold_is_a_twentieth_of_the_live_files_and_at_least_a_hundred(live_files: int, threshold: int) -> None:
    assert checkpoint_threshold(live_files) == threshold  # rule L11, fairness: max(100, live files / 20)


@pytest.mark.parametrize(
    ("live_files", "others", "threshold"), [(0, 20_000, 100), (0, 600_000, 3_000), (20_000, 40_000, 1_200)]
)
def test_what_a_checkpoint_holds_beside_live_files_counts_for_a_tenth_of_them(
    live_files: int, others: int, threshold: int
) -> None:
    assert checkpoint_threshold(live_files, others) == threshold
    known = {"checkpoint_version": 0, "live_file_count": live_files, "other_row_count": others}
    assert [checkpoint_due(version=threshold + n, **known) for n in (-1, 0)] == [False, True]


@pytest.mark.parametrize(
    ("version", "checkpoint_version", "live_files", "due"),
    [
        (0, -1, 0, False),
        (98, -1, 0, False),
        (99, -1, 0, True),  # the hundredth version
        (100, -1, 0, False),  # only the commit that crosses the threshold
        (108, -1, 0, False),
        (109, -1, 0, True),  # who crossed it may have died: again at every tenth of it
        (119, -1, 0, True),
        (599, 500, 0, False),
        (600, 500, 0, True),
        (601, 500, 0, False),
        (600, 500, 4_000, False),
        (700, 500, 4_000, True),
        (710, 500, 4_000, False),
        (720, 500, 4_000, True),
        (500, 500, 0, False),
        (499, 500, 0, False),  # somebody was faster
    ],
)
def test_a_checkpoint_is_due_at_the_threshold_and_at_every_tenth_of_it_after_that(
    version: int, checkpoint_version: int, live_files: int, due: bool
) -> None:
    assert checkpoint_due(version=version, checkpoint_version=checkpoint_version, live_file_count=live_files) is due


def test_a_checkpoint_is_of_the_newest_version_and_the_hint_names_it() -> None:
    log = a_log(a_table())
    before = contents(log)
    assert write_checkpoint(log) == COMMITS
    assert newest_checkpoint(log) == read_hint(log) == COMMITS
    assert contents(log) == before


def test_a_version_is_checkpointed_once() -> None:
    log = a_log(a_table())
    write_checkpoint(log)
    store = CountingStore(log.store)
    assert write_checkpoint(a_log(store)) is None
    assert not {"put", "create"} & store.counts().keys()


def test_where_there_is_no_log_nothing_is_written() -> None:
    store = CountingStore(MemoryStore())
    assert write_checkpoint(a_log(store)) is None
    assert not {"put", "create"} & store.counts().keys()


def test_a_checkpoint_costs_the_calls_that_are_walked_through_below() -> None:
    store = FaultyStore(a_table())
    write_checkpoint(a_log(store))
    assert len(store.calls) == CALLS
    # Its own entry survives a power loss before it is there, and it is named only when it is there.
    assert [call.op for call in store.calls[-4:]] == ["sync", "create", "get", "put"]
    assert store.calls[-4].path == entry_path("topics/t", COMMITS)


def test_a_checkpoint_that_another_wrote_meanwhile_isnt_replaced() -> None:
    memory = a_table()
    other = a_log(copy_of(memory))
    write_checkpoint(other)
    bytes_of_other = other.store.read(checkpoint_path(other.table, COMMITS))
    store = InterruptedStore(memory)
    store.interrupt(
        lambda: memory.put(checkpoint_path(other.table, COMMITS), bytes_of_other), at=CALLS - 3, after=False
    )
    write_checkpoint(a_log(store))
    assert memory.read(checkpoint_path(other.table, COMMITS)) == bytes_of_other
    assert read_hint(a_log(memory)) == COMMITS


def test_the_hint_isnt_moved_back() -> None:
    memory = a_table()
    store = InterruptedStore(memory)

    def another_is_further() -> None:
        log = a_log(memory)
        append(a_writer(log), "newer")
        assert write_checkpoint(log) == COMMITS + 1

    store.interrupt(another_is_further, at=CALLS - 3, after=True)  # ours is written, but not yet named
    assert write_checkpoint(a_log(store)) == COMMITS
    assert read_hint(a_log(memory)) == COMMITS + 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(crashes(CALLS)), ids=lambda fault: f"{fault.kind.name}-{fault.at}")
def test_a_crash_at_any_call_leaves_a_table_that_opens_and_reads_the_same(fault: Fault) -> None:
    memory = a_table()
    before = contents(a_log(memory))
    with pytest.raises(SimulatedCrash):
        write_checkpoint(a_log(FaultyStore(memory, fault)))
    log = a_log(memory)
    assert contents(log) == before
    assert read_hint(log) <= newest_checkpoint(log)
    writer = a_writer(log)  # from the newest entry alone
    assert append(writer, "goes on").base_offsets == (before[0][-1][0] + 1,)
    assert write_checkpoint(log) == COMMITS + 1


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS])
@pytest.mark.parametrize("call", range(CALLS - 3, CALLS))
def test_a_lost_answer_is_no_lost_checkpoint(kind: FaultKind, call: int) -> None:
    memory = a_table()
    before = contents(a_log(memory))
    assert write_checkpoint(a_log(FaultyStore(memory, Fault(kind=kind, at=call)))) == COMMITS
    log = a_log(memory)
    assert newest_checkpoint(log) == read_hint(log) == COMMITS
    assert contents(log) == before


@pytest.mark.slow
@pytest.mark.parametrize("further", [False, True], ids=["of the same version", "of a newer version"])
@pytest.mark.parametrize("call", range(CALLS))
def test_two_checkpoints_at_once_are_as_good_as_one(call: int, further: bool) -> None:
    memory = a_table()

    def another() -> None:
        if further:
            append(a_writer(a_log(memory)), "newer", partition=1)
        write_checkpoint(a_log(memory))

    store = InterruptedStore(memory)
    store.interrupt(another, at=call, after=False)
    write_checkpoint(a_log(store))
    log = a_log(memory)
    assert newest_checkpoint(log) == COMMITS + further
    # Between the last look at the hint and its put another may move it on: that costs a longer listing, no more.
    assert read_hint(log) == COMMITS + (further and call != CALLS - 1)
    assert {partition: len(seen) for partition, seen in contents(log).items()} == {0: 2, 1: 2 + further}


def test_a_log_with_a_gap_isnt_checkpointed() -> None:
    memory = a_table()
    memory.delete([entry_path("topics/t", 1)])
    with pytest.raises(CorruptLogError, match="version 1 is missing"):
        write_checkpoint(a_log(memory))
    assert not [found.path for found in memory.list("") if "checkpoint" in found.path]


def without_header(data: bytes) -> bytes:
    """A checkpoint of the live files alone."""
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(table.filter(table["add"].is_valid()), sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@pytest.mark.parametrize("damage", [lambda data: b"x" * len(data), without_header])
def test_the_next_checkpoint_is_made_without_one_that_cant_be_read(damage: Callable[[bytes], bytes]) -> None:
    memory = a_table()
    log = a_log(memory)
    append(a_writer(log), "c")
    before = contents(log)
    write_checkpoint(log)
    path = checkpoint_path(log.table, COMMITS + 1)
    memory.put(path, damage(memory.read(path)))
    foreign_entry(log, COMMITS + 2, [])
    assert write_checkpoint(a_log(memory)) == COMMITS + 2
    memory.delete([path, *(entry_path(log.table, version) for version in range(COMMITS + 2))])
    assert contents(a_log(memory)) == before


@pytest.mark.parametrize("kind", ["metaData", "protocol"])
def test_a_checkpoint_without_a_header_isnt_whole_whatever_the_tail_has(kind: str) -> None:
    memory = a_table()
    log = a_log(memory)
    header = [json.loads(line) for line in memory.read(entry_path(log.table, 0)).splitlines()]
    before = contents(log)
    write_checkpoint(log)
    path = checkpoint_path(log.table, COMMITS)
    rows = pq.read_table(pa.BufferReader(memory.read(path)))
    sink = pa.BufferOutputStream()
    pq.write_table(rows.filter(pc.and_(rows[kind].is_null(), rows["add"].is_null())), sink)  # its live files are lost
    memory.put(path, sink.getvalue().to_pybytes())
    foreign_entry(log, COMMITS + 1, [action for action in header if kind in action])
    assert write_checkpoint(a_log(memory)) == COMMITS + 1
    memory.delete([path, *(entry_path(log.table, version) for version in range(COMMITS + 1))])
    assert contents(a_log(memory)) == before


def test_the_header_of_the_checkpoint_before_isnt_read() -> None:
    def refuse(parts: Mapping[str, bytes]) -> CheckpointContent:
        raise AssertionError(f"{parts.keys()} are read, of which nothing is needed")

    log = a_log(a_table())
    write_checkpoint(log)
    append(a_writer(log), "c")
    assert write_checkpoint(replace(log, read_checkpoint=refuse)) == COMMITS + 1


def test_a_line_that_holds_more_than_one_action_is_left_to_deltalake() -> None:
    line = b'{"txn":{"appId":"a","version":1}}'
    with pytest.raises(NotUnderstoodError, match="more than one action in a line"):
        next_checkpoint({}, [b"%b %b" % (line, line)], now_ms=0)


def test_checkpoints_keep_what_accepted_features_put_into_a_log() -> None:
    """Domains, but those that were removed, and the listed features; not the rows that were changed."""
    memory = a_table()
    log = a_log(memory)
    features = ["changeDataFeed", "checkpointProtection", "domainMetadata"]

    def domain(name: str, *, removed: bool = False) -> dict[str, Any]:
        return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}

    asked = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}
    cdc = {"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}
    foreign_entry(log, COMMITS + 1, [asked, cdc, domain("kept"), domain("removed")])
    assert write_checkpoint(log) == COMMITS + 1
    foreign_entry(log, COMMITS + 2, [domain("removed", removed=True)])
    append(a_writer(log), "more")
    assert write_checkpoint(log) == COMMITS + 3
    rows = pq.read_table(pa.BufferReader(memory.read(checkpoint_path(log.table, COMMITS + 3)))).to_pylist()
    domains = [row["domainMetadata"] for row in rows if row["domainMetadata"]]
    assert [(one["domain"], one["removed"]) for one in domains] == [("kept", False)]
    assert [row["protocol"]["writerFeatures"] for row in rows if row["protocol"]] == [features]
    assert "cdc" not in rows[0]
    assert contents(a_log(memory))[0][-1] == (2, "more")


def test_what_deltalake_refuses_to_checkpoint_is_raised_as_a_corrupt_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(table: DeltaTable) -> None:
        raise DeltaError("out of range: 10000-01-01")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", refuse)
    log = a_log(a_table())
    foreign_entry(log, COMMITS + 1, [{"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}])
    with pytest.raises(CorruptLogError, match=rf"no checkpoint of version {COMMITS + 1}: out of range: 10000-01-01"):
        write_checkpoint(log)
    assert newest_checkpoint(log) == -1


def test_the_hint_is_what_delta_readers_expect() -> None:
    log = a_log(a_table())
    write_checkpoint(log)
    hint = json.loads(log.store.read(last_checkpoint_path(log.table)))
    data = log.store.read(checkpoint_path(log.table, COMMITS))
    rows = pq.read_metadata(pa.BufferReader(data)).num_rows
    # Source: Delta protocol, "Last Checkpoint File"
    assert hint == {"version": COMMITS, "size": rows, "sizeInBytes": len(data), "numOfAddFiles": COMMITS}
    assert read_checkpoint_hint(log) == CheckpointHint(version=COMMITS, row_count=rows)


# --- reading a checkpoint back before anything that it replaces is deleted


@pytest.mark.parametrize("parts", [1, 3])
def test_a_whole_checkpoint_reads_back(parts: int) -> None:
    log = a_log(a_table())
    write_checkpoint(log)
    paths = [checkpoint_path(log.table, COMMITS)] if parts == 1 else split_checkpoint(log, COMMITS, parts)
    check_checkpoint(log, paths, COMMITS)


def other_parquet(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": ["not a checkpoint"]}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-20], lambda data: b"\0" * len(data), other_parquet]
)
def test_a_damaged_checkpoint_doesnt_read_back_and_is_named(damage: Callable[[bytes], bytes]) -> None:
    log = a_log(a_table())
    write_checkpoint(log)
    path = checkpoint_path(log.table, COMMITS)
    log.store.put(path, damage(log.store.read(path)))
    with pytest.raises(CorruptLogError, match=path):
        check_checkpoint(log, [path], COMMITS)


def test_a_checkpoint_that_is_gone_doesnt_read_back() -> None:
    log = a_log(a_table())
    with pytest.raises(ObjectNotFoundError):
        check_checkpoint(log, [checkpoint_path(log.table, COMMITS)], COMMITS)


def test_a_checkpoint_that_lacks_the_part_with_the_protocol_doesnt_read_back() -> None:
    log = a_log(a_table())
    write_checkpoint(log)
    paths = split_checkpoint(log, COMMITS, 4)
    needed = [
        path
        for path in paths
        if pq.read_table(pa.BufferReader(log.store.read(path)))["protocol"].null_count
        < pq.read_metadata(pa.BufferReader(log.store.read(path))).num_rows
    ]
    with pytest.raises(CorruptLogError, match="protocol"):
        check_checkpoint(log, [path for path in paths if path not in needed], COMMITS)
