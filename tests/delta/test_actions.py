"""Entries of the log: what is written is read again, and what is damaged is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta.actions import (
    FAR_FUTURE_MS,
    Action,
    AddFile,
    Entry,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    decode_entry,
    encode_entry,
)
from sparklog.errors import CorruptLogError, UnsupportedVersionError

PATH = "topics/t/_delta_log/00000000000000000007.json"

ADD = AddFile(
    path="partition=0/a%20b.parquet",
    partition_values={"partition": "0", "base_offset": "17"},
    size_bytes=123,
    modification_ms=1_700_000_000_000,
    stats={"numRecords": 2, "minValues": {"offset_delta": 0}, "maxValues": {"offset_delta": 1}, "nullCount": {}},
)
EVERY_ACTION: tuple[Action, ...] = (
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(
        table_id="id",
        schema_string='{"type":"struct","fields":[]}',
        partition_columns=("partition", "base_offset"),
        configuration={"sparklog.partitions": "1"},
        created_ms=5,
        name="orders",
        description="naïve “text”",
    ),
    Metadata(table_id="id", schema_string="{}", partition_columns=(), configuration={}),
    ADD,
    AddFile(
        path="b",
        partition_values={"partition": "0", "base_offset": None},
        size_bytes=0,
        modification_ms=0,
        data_change=False,
    ),
    RemoveFile(
        path="c",
        deletion_ms=9,
        data_change=False,
        partition_values={"partition": "1", "base_offset": None},
        size_bytes=3,
    ),
    SetTransaction(app_id="sparklog.end.0", version=2**63 - 1, last_updated_ms=FAR_FUTURE_MS),
)


def encoded(actions: Sequence[Action] = EVERY_ACTION, *, info: Mapping[str, Any] | None = None) -> bytes:
    return encode_entry(
        actions=actions,
        token="abc",
        info=info or {"log_end_offsets": [1, 2]},
        operation="WRITE",
        blind_append=True,
        timestamp_ms=1_700_000_000_000,
        version="1.2.3",
    )


def lines(*objects: Any) -> bytes:
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in objects).encode()


def decoded(*objects: Any) -> Entry:
    return decode_entry(7, PATH, lines(*objects))


@pytest.mark.parametrize("action", EVERY_ACTION, ids=lambda action: type(action).__name__)
def test_every_action_is_read_as_it_was_written(action: Action) -> None:
    assert decode_entry(7, PATH, encoded([action])).actions == (action,)


texts = st.text(st.characters(), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)


@given(
    st.one_of(
        st.builds(SetTransaction, app_id=texts, version=numbers, last_updated_ms=numbers),
        st.builds(
            AddFile,
            path=texts,
            partition_values=st.dictionaries(texts, st.one_of(st.none(), texts), max_size=3),
            size_bytes=numbers,
            modification_ms=numbers,
            data_change=st.booleans(),
            stats=st.one_of(st.none(), st.dictionaries(texts, st.one_of(numbers, texts, st.none()), max_size=3)),
        ),
    )
)
def test_a_line_by_hand_is_the_one_of_the_encoder(action: AddFile | SetTransaction) -> None:
    assert action.to_line() == json.dumps(action.to_json(), separators=(",", ":"))


def test_an_entry_of_ours_is_read_with_its_token_its_info_and_its_actions_in_order() -> None:
    entry = decode_entry(7, PATH, encoded())
    assert (entry.version, entry.token, entry.actions) == (7, "abc", EVERY_ACTION)
    assert entry.info is not None
    assert entry.info["log_end_offsets"] == [1, 2]


def test_an_entry_of_ours_is_json_lines_with_commit_info_first_as_delta_wants_it() -> None:
    first, *rest = [json.loads(line) for line in encoded().splitlines()]
    assert first["commitInfo"]["operation"] == "WRITE"
    assert first["commitInfo"]["isBlindAppend"] is True
    assert first["commitInfo"]["engineInfo"] == "sparklog/1.2.3"
    assert [list(line) for line in rest] == [
        ["protocol"],
        ["metaData"],
        ["metaData"],
        ["add"],
        ["add"],
        ["remove"],
        ["txn"],
    ]
    assert isinstance(rest[3]["add"]["stats"], str)  # Delta: statistics are JSON inside a JSON string


# What deltalake 1.6.6 and delta-spark 4.4.0 write, shortened.
DELTALAKE = (
    {
        "add": {
            "path": "partition=0/base_offset=__HIVE_DEFAULT_PARTITION__/part-00000.snappy.parquet",
            "partitionValues": {"partition": "0", "base_offset": None},
            "size": 1018,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": '{"numRecords":1,"minValues":{"offset_delta":0},"maxValues":{"offset_delta":0},"nullCount":{}}',
            "tags": None,
            "baseRowId": None,
            "clusteringProvider": None,
        }
    },
    {
        "commitInfo": {
            "timestamp": 1_700_000_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "engineInfo": "delta-rs:py-1.6.6",
        }
    },
)
SPARK = (
    {
        "commitInfo": {
            "timestamp": 1_700_000_000_000,
            "operation": "DELETE",
            "readVersion": 6,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
            "txnId": "b5f5ac2f",
        }
    },
    {"txn": {"appId": "stream", "version": 3}},
    {"remove": {"path": "x.parquet", "dataChange": True, "extendedFileMetadata": False}},
    {"cdc": {"path": "_change_data/y.parquet", "partitionValues": {}, "size": 1, "dataChange": False}},
    {"domainMetadata": {"domain": "delta.clustering", "configuration": "{}", "removed": False}},
    {"somethingOfTheFuture": {"a": 1}},
)


def test_an_entry_of_deltalake_is_read() -> None:
    entry = decoded(*DELTALAKE)
    (add,) = entry.actions
    assert isinstance(add, AddFile)
    assert add.partition_values == {"partition": "0", "base_offset": None}
    assert add.stats is not None
    assert add.stats["numRecords"] == 1
    assert entry.info is None


def test_an_entry_of_spark_is_read_and_what_we_dont_model_is_passed_over() -> None:
    entry = decoded(*SPARK)
    assert entry.actions == (
        SetTransaction(app_id="stream", version=3, last_updated_ms=0),
        RemoveFile(path="x.parquet", deletion_ms=0, partition_values={}),
    )
    assert entry.commit_info["operation"] == "DELETE"


def test_an_entry_without_commit_info_and_one_of_unknown_actions_alone_are_read() -> None:
    assert decoded(DELTALAKE[0]).commit_info == {}
    assert decoded({"domainMetadata": {"domain": "x", "configuration": "", "removed": True}}).actions == ()


def test_fields_that_delta_lets_out_are_read_as_their_defaults() -> None:
    assert decoded({"metaData": {"id": "i", "schemaString": "{}", "partitionColumns": []}}).actions == (
        Metadata(table_id="i", schema_string="{}", partition_columns=(), configuration={}),
    )
    (add,) = decoded({"add": {**ADD.to_json()["add"], "stats": ""}}).actions
    assert isinstance(add, AddFile)
    assert add.stats is None
    nulls = {"deletionTimestamp": None, "partitionValues": None, "size": None}
    assert decoded({"remove": {"path": "x", "dataChange": True, **nulls}}).actions == (
        RemoveFile(path="x", deletion_ms=0),
    )


def test_features_of_a_newer_protocol_are_told() -> None:
    (protocol,) = decoded(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors", "rowTracking"],
            }
        }
    ).actions
    assert protocol == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=("deletionVectors", "rowTracking"),
    )


def test_the_token_of_a_foreign_entry_is_its_content() -> None:
    entry, same, other = decoded(*SPARK), decoded(*SPARK), decoded(*SPARK[:-1])
    assert entry.token == same.token != other.token


def test_lines_that_begin_with_spaces_or_a_mark_of_their_encoding_are_read_as_ever() -> None:
    line = b'{"txn":{"appId":"a","version":1}}'
    plain = decode_entry(1, "p", line).actions
    assert len(plain) == 1
    for odd in (b"  " + line + b"\r", b"\xef\xbb\xbf" + line):
        assert decode_entry(1, "p", odd).actions == plain


@pytest.mark.parametrize(
    "line", [b'{"txn":{"appId":"a","version":1}} {}', b'{"txn":{}}]', b'{"add":{"stats":"{} {}"}}']
)
def test_more_than_one_value_in_a_line_is_corrupt(line: bytes) -> None:
    with pytest.raises(CorruptLogError, match="line 1"):
        decode_entry(1, "p", line)


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n", b"{}"])
def test_an_entry_without_any_action_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=PATH):
        decode_entry(7, PATH, data)


ADD_BODY = ADD.to_json()["add"]


@pytest.mark.parametrize(
    "line",
    [
        '{"add":{"path":"x',
        "[1]",
        "5",
        "null",
        "\x00\x00\x00",
        {"add": None},
        {"add": {}},
        {"add": {**ADD_BODY, "path": 5}},
        {"add": {**ADD_BODY, "partitionValues": None}},
        {"add": {**ADD_BODY, "partitionValues": ["0"]}},
        {"add": {**ADD_BODY, "size": "123"}},
        {"add": {**ADD_BODY, "modificationTime": None}},
        {"add": {**ADD_BODY, "stats": '{"numRecords":'}},
        {"add": {**ADD_BODY, "stats": "[1]"}},
        {"add": {**ADD_BODY, "stats": "null"}},
        {"remove": {"deletionTimestamp": 1}},
        {"remove": {"path": "x", "partitionValues": "y"}},
        {"txn": {"appId": "a"}},
        {"txn": {"appId": "a", "version": "one"}},
        {"txn": {"appId": None, "version": 1}},
        {"metaData": {"id": "i"}},
        {"metaData": {"id": "i", "schemaString": "{}", "partitionColumns": [], "configuration": [1]}},
        {"protocol": {"minReaderVersion": 1}},
        {"protocol": {"minReaderVersion": "1", "minWriterVersion": 2}},
        {"commitInfo": None},
        {"commitInfo": ["sparklog"]},
    ],
    ids=str,
)
def test_a_line_that_is_no_action_is_named_with_its_entry(line: Any) -> None:
    with pytest.raises(CorruptLogError, match=rf"{PATH}: line 2 "):
        decoded({"txn": {"appId": "a", "version": 1}}, line)


def test_an_entry_that_is_no_text_is_corrupt() -> None:
    with pytest.raises(CorruptLogError, match=PATH):
        decode_entry(7, PATH, b"PAR1\xff\xfe\x00")


@pytest.mark.parametrize("kept", range(1, len(EVERY_ACTION) + 1))
def test_an_entry_of_ours_that_was_cut_at_the_end_of_a_line_is_recognised(kept: int) -> None:
    with pytest.raises(CorruptLogError, match=rf"{PATH}.*truncated"):
        decode_entry(7, PATH, b"".join(encoded().splitlines(keepends=True)[:kept]))


@pytest.mark.slow
@given(st.data())
def test_an_entry_of_ours_that_was_cut_anywhere_is_whole_or_corrupt(data: st.DataObject) -> None:
    actions = data.draw(st.lists(st.sampled_from(EVERY_ACTION), max_size=4))
    whole = encoded(actions)
    end = data.draw(st.integers(0, len(whole) - 1))
    try:
        entry = decode_entry(7, PATH, whole[:end])
    except CorruptLogError:
        return
    assert entry == decode_entry(7, PATH, whole)


@pytest.mark.parametrize(
    "ours", [5, "x", [], {}, {"format": 1, "actions": 0}, {"format": 1, "token": 5, "actions": 0}], ids=str
)
def test_a_part_of_ours_in_commit_info_that_is_garbled_is_corrupt(ours: Any) -> None:
    with pytest.raises(CorruptLogError, match=PATH):
        decoded({"commitInfo": {"sparklog": ours}})


def test_an_entry_of_a_newer_sparklog_says_to_upgrade_if_nothing_else_is_understood() -> None:
    with pytest.raises(UnsupportedVersionError, match=rf"{PATH}.*format 3.*upgrade"):
        decoded({"commitInfo": {"sparklog": {"format": 3, "new": True}}})
