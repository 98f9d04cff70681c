"""What somebody looks for becomes SQL as literals alone, whatever it is."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.console.statements import TopicShape, blob_literal, parse_time_ms, text_literal, wanted
from sparklog.errors import InvalidArgumentError
from sparklog.sql.search import FieldCondition

SHAPE = TopicShape(name='a "topic"', partition_count=4)
NASTY = ["'", "''", "'; drop table x; --", "\\", "\\x00", "\0", "a\nb", "ä€😀", "\u202e", "' || 'x", "$$", "%s", ""]
CONNECTION = duckdb.connect()


@given(st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_text_is_a_literal_of_itself(text: str) -> None:
    assert CONNECTION.execute(f"select {text_literal(text)}").fetchall() == [(text,)]


@given(st.binary())
def test_bytes_are_a_literal_of_themselves(data: bytes) -> None:
    assert CONNECTION.execute(f"select {blob_literal(data)}").fetchall() == [(data,)]


@pytest.mark.parametrize("text", NASTY[:-1])
def test_no_text_of_a_form_gets_out_of_its_literal(text: str) -> None:
    view = "(select 0 as partition, 0 as \"offset\", now() as timestamp, ''::blob as key, ''::blob as value, "
    view += "[{'key': 'h', 'value': ''::blob}] as headers)"
    for form in (
        {"mode": "key", "key": text},
        {"mode": "header", "header": text, "header_value": text},
        {"mode": "text", "text": text},
        {"mode": "field", "field": "a", "value": text},
        {"mode": "field", "field": "a", "value": text, "comparison": "contains"},
        {"mode": "field", "field": "a", "value": text, "comparison": "<"},
    ):
        statement = wanted(form, SHAPE).statement
        assert len(duckdb.extract_statements(statement)) == 1
        assert CONNECTION.execute(statement.replace('"a ""topic"""', view)).fetchall() == []


def test_a_path_of_json_is_one_path() -> None:
    search = wanted({"mode": "field", "field": "a'b.c", "value": "1"}, SHAPE).search
    assert """'$."a''b"."c"'""" in search.where
    for name in ('a"b', "a\\b", "...", ""):
        with pytest.raises(InvalidArgumentError):
            wanted({"mode": "field", "field": name, "value": "1"}, SHAPE)


def test_a_field_of_typed_values_is_compared_as_its_type() -> None:
    values = pa.struct([("key", pa.int64()), ("a", pa.struct([("b", pa.string())]))])
    shape = TopicShape(name="t", partition_count=1, values=values)
    asked = wanted({"mode": "field", "field": "key", "comparison": ">", "value": "7"}, shape)
    assert asked.search.field == FieldCondition(leaf=("key",), comparison=">", text="7")
    assert "\"value_key\" > '7'" in asked.statement
    asked = wanted({"mode": "field", "field": "a.b", "comparison": "contains", "value": "x"}, shape)
    assert asked.search.where == 'contains(cast("a"."b" as varchar), \'x\')'
    with pytest.raises(InvalidArgumentError, match="no field"):
        wanted({"mode": "field", "field": "a.c", "comparison": "contains", "value": "x"}, shape)


def test_only_the_partition_that_the_key_belongs_to() -> None:
    asked = wanted({"mode": "key", "key": "user-1", "home": "1"}, SHAPE).search
    assert asked.partitions is not None
    assert len(asked.partitions) == 1


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("", None),
        ("1577836800000", 1_577_836_800_000),
        ("2020-01-01", 1_577_836_800_000),
        ("2020-01-01T00:00Z", 1_577_836_800_000),
        ("2020-01-01T01:00+01:00", 1_577_836_800_000),
        ("-99999", -99_999),
    ],
)
def test_times_are_read(text: str, time_ms: int | None) -> None:
    assert parse_time_ms(text, "since") == time_ms


@pytest.mark.parametrize("text", ["now", "2020-13-01", "9" * 30, "1e9", "9" * 18, "253402300800000"])
def test_no_time_is_told(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="since: got"):
        parse_time_ms(text, "since")
