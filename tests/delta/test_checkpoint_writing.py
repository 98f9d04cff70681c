"""The checkpoints that we write ourselves: they say what deltalake's say, whatever is in the log."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.by_deltalake import checkpoint_by_deltalake
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.checkpoint_rows import CheckpointPartFile, live_files
from sparklog.delta.checkpoint_writing import EncodedCheckpoint, NotUnderstoodError, next_checkpoint
from sparklog.delta.names import checkpoint_path, entry_path
from sparklog.delta.snapshot import load_snapshot
from sparklog.errors import CorruptLogError
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.depth import by_depth
from tests.support import DAY_MS, a_log, a_topic, a_writer, append, contents, foreign_entry

NOW_MS = int(time.time() * 1_000)
"""deltalake asks the machine's clock what a checkpoint may forget."""
TABLE = "t"
SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("p", "integer"), ("v", "long"))
        ],
    }
)

Action = dict[str, Any]


def metadata(**configuration: str) -> Action:
    return {
        "metaData": {
            "id": "an-id",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA_STRING,
            "partitionColumns": ["p"],
            "configuration": {"delta.setTransactionRetentionDuration": "interval 8 days", **configuration},
            "createdTime": 5,
        }
    }


def protocol(reader: int = 1, writer: int = 2, **features: list[str]) -> Action:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}


def add(path: str, *, partition: str | None = "1", **more: object) -> Action:
    body = {"path": path, "partitionValues": {"p": partition}, "size": 7, "modificationTime": 8, "dataChange": True}
    return {"add": {**body, **more}}


def remove(path: str, *, age_ms: int | None = 0, **more: object) -> Action:
    when = {} if age_ms is None else {"deletionTimestamp": NOW_MS - age_ms}
    return {"remove": {"path": path, "dataChange": False, **when, **more}}


def txn(app_id: str, version: int, *, age_ms: int | None = 0) -> Action:
    when = {} if age_ms is None else {"lastUpdated": NOW_MS - age_ms}
    return {"txn": {"appId": app_id, "version": version, **when}}


def an_entry(*actions: Action, space: str = "") -> bytes:
    """As another engine may write it: ``commitInfo`` anywhere, and spaces in the JSON."""
    separators = (f",{space}", f":{space}")
    lines = [json.dumps(action, separators=separators) for action in (*actions, {"commitInfo": {"timestamp": 1}})]
    return "\n".join(lines).encode()


START = an_entry(protocol(), metadata())


def ours(entries: Sequence[bytes], before: Mapping[str, bytes] | None = None) -> EncodedCheckpoint:
    return next_checkpoint(before or {}, entries, now_ms=NOW_MS)


def theirs(entries: Sequence[bytes], first: int = 0, before: Mapping[str, bytes] | None = None) -> EncodedCheckpoint:
    """What deltalake writes of the same."""
    objects = {entry_path(TABLE, first + number): entry for number, entry in enumerate(entries)}
    return checkpoint_by_deltalake(TABLE, first + len(entries) - 1, {**(before or {}), **objects})


def said(checkpoint: EncodedCheckpoint) -> dict[str, Any]:
    """All that a checkpoint says: its actions by kind, without what is null or was left out on purpose."""
    found: dict[str, Any] = {}
    for row in pq.read_table(io.BytesIO(checkpoint.data)).to_pylist():
        ((kind, body),) = ((kind, body) for kind, body in row.items() if body is not None)
        body = {name: value for name, value in body.items() if value is not None}
        if kind == "remove":
            body = {name: body.get(name) for name in ("path", "deletionTimestamp", "dataChange")}
        for name in ("partitionValues", "tags", "configuration"):
            if name in body:
                body[name] = dict(body[name])
        if "format" in body:
            body["format"]["options"] = dict(body["format"]["options"])
        found.setdefault(kind, []).append(body)
    for kind, key in (("add", "path"), ("remove", "path"), ("txn", "appId")):
        found.setdefault(kind, []).sort(key=lambda body: body[key])
    return found


def one_file(checkpoint: EncodedCheckpoint, version: int) -> dict[str, bytes]:
    return {checkpoint_path(TABLE, version): checkpoint.data}


def in_two(checkpoint: EncodedCheckpoint, version: int) -> dict[str, bytes]:
    """The same in two parts, as Spark writes them."""
    table = pq.read_table(io.BytesIO(checkpoint.data))
    parts = {}
    for part, rows in enumerate((table.slice(0, 3), table.slice(3)), 1):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        path = f"{TABLE}/_delta_log/{version:020d}.checkpoint.{part:010d}.{2:010d}.parquet"
        parts[path] = sink.getvalue().to_pybytes()
    return parts


# --- whatever is in the log, our checkpoint says what deltalake's says

PATHS = st.sampled_from(["a", "b/c%20d", "é", "x" * 300, "p=1/f.parquet"])
STATS = st.sampled_from(
    [
        None,
        "",
        '{"numRecords":1}',
        '{"numRecords":3,"minValues":{"v":1},"maxValues":{"v":9},"nullCount":{"v":0},"tightBounds":true}',
        '{\n "numRecords": 2\n}',
    ]
)
AGES = st.sampled_from([0, DAY_MS, 6 * DAY_MS, 30 * DAY_MS, None])
ADDS = st.builds(
    lambda path, partition, stats, tags, change: add(
        path, partition=partition, stats=stats, tags=tags, dataChange=change
    ),
    PATHS,
    st.sampled_from(["1", "-2", None, ""]),
    STATS,
    st.sampled_from([None, {}, {"k": "v", "n": None}]),
    st.booleans(),
)
REMOVES = st.builds(
    lambda path, age_ms, more: remove(path, age_ms=age_ms, **more),
    PATHS,
    AGES,
    st.sampled_from([{}, {"extendedFileMetadata": True, "partitionValues": {"p": "1"}, "size": 5, "tags": {"k": "v"}}]),
)
TXNS = st.builds(
    lambda app_id, version, age_ms: txn(app_id, version, age_ms=age_ms),
    st.sampled_from("ab"),
    st.integers(0, 2**62),
    AGES,
)
NAMES = st.sampled_from([metadata(), metadata(x="y"), protocol(1, 1)])
RETENTIONS = st.sampled_from(
    [
        metadata(**{"delta.deletedFileRetentionDuration": "interval 2 days"}),
        metadata(**{"delta.setTransactionRetentionDuration": "interval 1 days"}),
    ]
)
"""What a checkpoint has forgotten stays forgotten, also where a later commit would have it kept for longer."""


def one_path_once(actions: list[Action]) -> list[Action]:
    """An entry names a file once. Source: Delta protocol, "Add File and Remove File"."""
    found: dict[str, Action] = {}
    for action in actions:
        ((kind, body),) = action.items()
        found[body.get("path") or body.get("appId") or kind] = action
    return list(found.values())


def histories(*kinds: st.SearchStrategy[Action]) -> st.SearchStrategy[list[bytes]]:
    """Entries of some actions each."""
    entries = st.builds(
        lambda actions, space: an_entry(*one_path_once(actions), space=space),
        st.lists(st.one_of(ADDS, ADDS, REMOVES, TXNS, *kinds), max_size=6),
        st.sampled_from(["", " "]),
    )
    return st.lists(entries, min_size=1, max_size=4)


def expected(entries: Sequence[bytes]) -> dict[str, Any]:
    """What a checkpoint of these has to say. Source: Delta protocol, "Action Reconciliation"."""
    files: dict[str, Action] = {}
    txns: dict[str, Action] = {}
    found: dict[str, Any] = {}
    for entry in entries:
        for line in entry.splitlines():
            ((kind, body),) = json.loads(line).items()
            body = {name: value for name, value in body.items() if value is not None}
            if kind in ("add", "remove"):
                files[body["path"]] = {kind: body}
            elif kind == "txn":
                txns[body["appId"]] = body
            elif kind != "commitInfo":
                found[kind] = [body]
    newest = [files[path] for path in sorted(files)]
    removed = [one["remove"] for one in newest if "remove" in one]
    return {
        **found,
        "add": [one["add"] for one in newest if "add" in one],
        "remove": [
            {name: body[name] for name in ("path", "deletionTimestamp", "dataChange")}
            for body in removed
            if body.get("deletionTimestamp", 0) > NOW_MS - 7 * DAY_MS
        ],
        "txn": [txns[name] for name in sorted(txns) if txns[name].get("lastUpdated", NOW_MS) > NOW_MS - 8 * DAY_MS],
    }


HISTORIES = histories(NAMES)
ALL_HISTORIES = histories(NAMES, RETENTIONS)
LAYOUTS = st.sampled_from([one_file, in_two])


@pytest.mark.slow
@settings(max_examples=10)
@given(HISTORIES, HISTORIES, LAYOUTS)
def test_a_checkpoint_says_what_the_log_says_from_whichever_checkpoint_it_is_made(
    first: list[bytes],
    then: list[bytes],
    laid_out: Callable[[EncodedCheckpoint, int], dict[str, bytes]],
) -> None:
    written = ours(then, laid_out(ours([START, *first]), len(first)))
    assert said(written) == expected([START, *first, *then])
    assert said(ours([], one_file(written, 9))) == said(written)
    assert written.row_count == pq.read_metadata(io.BytesIO(written.data)).num_rows
    assert written.add_count == len(said(written)["add"])


def check_against_deltalake(
    first: list[bytes], then: list[bytes], laid_out: Callable[[EncodedCheckpoint, int], dict[str, bytes]]
) -> None:
    first = [START, *first]
    for written in (theirs(first), ours(first)):
        before = laid_out(written, len(first) - 1)
        assert said(ours(then, before)) == said(theirs(then, len(first), before))


@pytest.mark.slow
@settings(max_examples=3)
@given(ALL_HISTORIES, ALL_HISTORIES, LAYOUTS)
def test_a_checkpoint_says_what_deltalakes_says(
    first: list[bytes], then: list[bytes], laid_out: Callable[[EncodedCheckpoint, int], dict[str, bytes]]
) -> None:
    check_against_deltalake(first, then, laid_out)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=12, nightly=30))
@given(ALL_HISTORIES, ALL_HISTORIES, LAYOUTS)
def test_many_checkpoints_say_what_deltalakes_say(
    first: list[bytes], then: list[bytes], laid_out: Callable[[EncodedCheckpoint, int], dict[str, bytes]]
) -> None:
    check_against_deltalake(first, then, laid_out)


def test_a_path_that_one_entry_removes_and_adds_is_live() -> None:
    for actions in ([remove("a"), add("a")], [add("a"), remove("a")]):
        found = said(ours([START, an_entry(*actions)]))
        assert ([body["path"] for body in found["add"]], found["remove"]) == (["a"], [])


# --- what is forgotten, and when


@pytest.mark.parametrize(
    ("retention", "kept"),
    [(None, 7), ("interval 2 days", 2), ("interval 1 week 1 hour", 7), ("a fortnight", 30)],
    ids=["by default", "shorter", "odd", "not understood"],
)
def test_a_removed_file_is_remembered_for_as_long_as_the_table_says(retention: str | None, kept: int) -> None:
    given = {} if retention is None else {"delta.deletedFileRetentionDuration": retention}
    ages = [0, 1, 2, 3, 6, 7, 8, 30]
    removals = [remove(str(days), age_ms=days * DAY_MS - 60_000) for days in ages]
    entries = [an_entry(protocol(), metadata(**given)), an_entry(*removals)]
    for written in (ours(entries), ours([an_entry()], one_file(ours(entries), 1))):
        assert sorted(int(body["path"]) for body in said(written)["remove"]) == [days for days in ages if days <= kept]


def test_a_removal_without_a_time_is_forgotten_at_once_unless_nothing_ever_is() -> None:
    for known, kept in ((metadata(), []), (metadata(**{"delta.deletedFileRetentionDuration": "?"}), ["a"])):
        found = said(ours([an_entry(protocol(), known), an_entry(remove("a", age_ms=None))]))
        assert [body["path"] for body in found["remove"]] == kept


@pytest.mark.parametrize(("retention", "kept"), [("interval 8 days", "abd"), ("?", "abcd"), (None, "abcd")])
def test_a_transaction_is_kept_as_long_as_the_table_says_or_without_a_time_for_ever(
    retention: str | None, kept: str
) -> None:
    """Rule L7."""
    settings = metadata()
    if retention is None:
        del settings["metaData"]["configuration"]["delta.setTransactionRetentionDuration"]
    else:
        settings = metadata(**{"delta.setTransactionRetentionDuration": retention})
    ages = {"a": 0, "b": 8 * DAY_MS - 60_000, "c": 8 * DAY_MS + 60_000, "d": None}
    entries = [an_entry(protocol(), settings), an_entry(*(txn(name, 1, age_ms=age) for name, age in ages.items()))]
    for written in (ours(entries), ours([an_entry()], one_file(ours(entries), 1))):
        assert [body["appId"] for body in said(written)["txn"]] == [*kept]


# --- what isn't understood, deltalake writes


def with_column(name: str, values: pa.Array) -> dict[str, bytes]:
    """A checkpoint that has another column."""
    table = pq.read_table(io.BytesIO(ours([START, an_entry(add("a"), add("b"))]).data))
    sink = pa.BufferOutputStream()
    pq.write_table(table.append_column(name, values), sink)
    return {checkpoint_path(TABLE, 1): sink.getvalue().to_pybytes()}


STRANGE: dict[str, Action] = {
    "domain": {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}},
    "cdc": {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}},
    "deletion vector": add(
        "a", deletionVector={"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    ),
    "row id": add("a", baseRowId=0),
    "removed row id": remove("a", baseRowId=0),
    "new reader": protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]),
    "new writer": protocol(1, 7, writerFeatures=["appendOnly"]),
    "number too large": txn("a", 2**70),
    "text for a number": add("a", size="7"),
}


@pytest.mark.parametrize("action", STRANGE.values(), ids=STRANGE)
def test_an_action_that_isnt_known_is_left_to_deltalake(action: Action) -> None:
    with pytest.raises(NotUnderstoodError):
        ours([START, an_entry(action)])


def test_a_field_that_is_null_is_no_field() -> None:
    assert said(ours([START, an_entry(add("a", deletionVector=None, baseRowId=None))]))["add"][0]["path"] == "a"


def test_an_unknown_column_of_the_last_checkpoint_is_left_to_deltalake_unless_empty() -> None:
    parsed = pa.array([None, None, {"numRecords": 1}, None], pa.struct([("numRecords", pa.int64())]))
    with pytest.raises(NotUnderstoodError, match=r"column stats_parsed\.numRecords of"):
        ours([], with_column("stats_parsed", parsed))
    assert said(ours([], with_column("stats_parsed", pa.nulls(4, parsed.type))))["add"]


@pytest.mark.parametrize(("texts", "is_understood"), [(2, True), (1, False), (0, False)])
def test_what_spark_repeats_in_its_own_types_is_left_out_where_the_text_is_there(
    texts: int, is_understood: bool
) -> None:
    """Source: Delta protocol, ``delta.checkpoint.writeStatsAsStruct``, ``writeStatsAsJson``."""
    stats = ['{"numRecords":1}'] * texts + [None] * (2 - texts)
    written = ours([START, an_entry(*(add(name, stats=text) for name, text in zip("ab", stats, strict=True)))])
    table = pq.read_table(io.BytesIO(written.data))
    adds = table["add"].combine_chunks()
    typed = {
        "partitionValues_parsed": pa.array([None, None, {"p": 1}, {"p": 1}], pa.struct([("p", pa.int32())])),
        "stats_parsed": pa.array([None, None, *[{"numRecords": 1}] * 2], pa.struct([("numRecords", pa.int64())])),
    }
    names = [*(field.name for field in adds.type), *typed]
    both = pa.StructArray.from_arrays([*adds.flatten(), *typed.values()], names, mask=adds.is_null())
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", both), sink)
    before = {checkpoint_path(TABLE, 1): sink.getvalue().to_pybytes()}
    if is_understood:
        assert said(ours([], before)) == said(written)
    else:
        with pytest.raises(NotUnderstoodError, match=r"column add\.stats_parsed\.numRecords"):
            ours([], before)


def test_a_checkpoint_without_metadata_is_left_to_deltalake() -> None:
    with pytest.raises(NotUnderstoodError):
        ours([an_entry(protocol())])


def test_deltalake_writes_the_checkpoint_of_what_isnt_understood() -> None:
    log = a_topic()
    append(a_writer(log), "a")
    write_checkpoint(log)
    foreign_entry(log, 2, [STRANGE["domain"]])
    append(a_writer(log), "b")
    assert write_checkpoint(log) == 3
    data = log.store.read(checkpoint_path(log.table, 3))
    assert b"parquet-rs" in data
    assert contents(log)[0] == [(0, "a"), (1, "b")]


# --- what it costs


def test_neither_writing_nor_reading_a_checkpoint_loads_deltalake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)  # whoever imports it fails
    log = a_topic()
    for value in "ab":
        append(a_writer(log), value)
        assert write_checkpoint(log) is not None
    assert contents(log)[0] == [(0, "a"), (1, "b")]


def test_live_files_are_read_without_those_that_were_removed() -> None:
    removals = [remove(f"r{number}") for number in range(100)]
    written = ours([START, an_entry(*(add(f"a{number}") for number in range(50)), *removals, txn("x", 1))])
    metadata = pq.read_metadata(io.BytesIO(written.data))
    leaves = {metadata.schema.column(number).path: number for number in range(len(metadata.schema))}
    having = {
        kind: [
            group
            for group in range(metadata.num_row_groups)
            if metadata.row_group(group).column(leaves[leaf]).statistics.null_count < metadata.row_group(group).num_rows
        ]
        for kind, leaf in (("add", "add.path"), ("remove", "remove.path"), ("txn", "txn.appId"))
    }
    assert having == {"txn": [0], "add": [1], "remove": [2]}
    assert live_files([CheckpointPartFile("c", written.data)])["path"].to_pylist() == [
        f"a{number}" for number in range(50)
    ]


def test_many_files_are_written_in_row_groups_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory at once is a row group."""
    monkeypatch.setattr("sparklog.delta.checkpoint_rows._BATCH_ROWS", 10)
    monkeypatch.setattr("sparklog.delta.checkpoint_writing._ROWS_PER_GROUP", 25)
    written = ours([START, an_entry(*(add(f"a{number}") for number in range(95)))])
    again = ours([an_entry(remove("a7"), add("b"))], one_file(written, 1))
    assert said(again)["add"] == sorted(
        (body for body in [*said(written)["add"], add("b")["add"]] if body["path"] != "a7"),
        key=lambda body: body["path"],
    )
    metadata = pq.read_metadata(io.BytesIO(again.data))
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [2, 29, 30, 30, 6, 1]


# --- damage


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"x" * len(data)])
def test_a_checkpoint_before_that_cant_be_read_is_named(damage: Callable[[bytes], bytes]) -> None:
    written = ours([START])
    with pytest.raises(CorruptLogError, match=checkpoint_path(TABLE, 0)):
        ours([], {checkpoint_path(TABLE, 0): damage(written.data)})


def test_a_text_that_is_no_utf8_is_named() -> None:
    log = a_topic(MemoryStore(), ManualClock())
    append(a_writer(log), "a")
    write_checkpoint(log)
    path = checkpoint_path(log.table, 1)
    table = pq.read_table(io.BytesIO(log.store.read(path)))
    ids = pa.array([b"\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
    txns = pa.StructArray.from_arrays([ids, pa.array([1] * table.num_rows)], ["appId", "version"])
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(table.schema.get_field_index("txn"), "txn", txns), sink)
    log.store.delete([entry_path(log.table, 0)])
    log.store.put(path, sink.getvalue().to_pybytes())
    with pytest.raises(CorruptLogError, match=path):
        load_snapshot(a_log(log.store))
    with pytest.raises(CorruptLogError, match=path):
        CheckpointPartFile(path, sink.getvalue().to_pybytes()).rows("txn", txns.type)
