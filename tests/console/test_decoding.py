"""Any bytes have a form that people can read, and masks let nothing through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.console.decoding import DECODINGS, plain_record, shown, shown_record
from sparklog.console.masks import HIDDEN, Masks
from sparklog.console.rendering import sparkline
from sparklog.console.wire_formats import NamedSchema, protobuf_fields
from sparklog.errors import InvalidArgumentError
from sparklog.schemas import value_schema
from sparklog.sql.search import FoundRecord


@given(st.binary(), st.sampled_from(DECODINGS), st.booleans(), st.integers(0, 5))
def test_any_bytes_are_shown(data: bytes, how: str, pretty: bool, more: int) -> None:
    found = shown(data, size=len(data) + more, how=how, pretty=pretty)
    assert found.kind in ("json", "protobuf", "text", "hex")
    found.text.encode()
    assert found.is_cut or more == 0


@pytest.mark.parametrize(
    ("data", "how", "kind", "text"),
    [
        (b'{"a":1}', "auto", "json", '{"a": 1}'),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b"12", "auto", "text", "12"),
        (b"12", "json", "json", "12"),
        (b"a\x00b", "auto", "hex", "61 00 62"),
        (b"a\x00b", "text", "text", "a\x00b"),
        (b"\xff", "text", "hex", "ff"),
        ("ä".encode(), "hex", "hex", "c3 a4"),
        (b'"\\ud800"', "json", "json", '"\\ud800"'),
        (b"[" * 5_000, "auto", "text", "[" * 5_000),
        (b"[" * 100 + b"]" * 100, "auto", "text", "[" * 100 + "]" * 100),
        (b"", "auto", "text", ""),
        (None, "auto", "null", "null"),
        ({"a": b"\xff", "b": float("nan")}, "auto", "typed", '{"a_base64": "/w==", "b": null}'),
    ],
)
def test_forms(data: Any, how: str, kind: str, text: str) -> None:
    found = shown(data, size=len(data or b""), how=how)
    assert (found.kind, found.text) == (kind, text)


def test_a_character_that_was_cut_is_left_out() -> None:
    found = shown("aä".encode()[:2], size=3)
    assert (found.kind, found.text, found.is_cut) == ("text", "a", True)


def test_an_unknown_form_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match="decode=x"):
        shown(b"", size=0, how="x")


SECRET = "5ecret"
MASKS = Masks(frozenset(["ssn"]))


@given(
    st.recursive(
        st.one_of(st.integers(), st.text("abc"), st.none()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc"), inner, max_size=3)),
    ),
    st.sampled_from(["ssn", "SSN", "Ssn"]),
)
def test_masks_hide_at_any_depth(value: Any, name: str) -> None:
    hidden = {"x": [value, {name: {"deep": SECRET}, "y": value}], name: SECRET}
    assert SECRET not in json.dumps(MASKS.of_value(hidden))
    data = json.dumps(hidden).encode()
    record = FoundRecord(0, 0, 0, data, data, [(name, SECRET.encode()), ("h", data)], len(data), len(data))
    for how in DECODINGS:
        assert SECRET not in repr(shown_record(record, how=how, masks=MASKS))
    assert SECRET not in json.dumps(plain_record("t", record, masks=MASKS))


@given(st.binary())
def test_what_is_no_json_is_hidden_where_anything_is(data: bytes) -> None:
    data = b"\xff" + data
    found = shown(data, size=len(data), masks=MASKS)
    assert (found.kind, found.text[:6]) == ("hidden", "hidden")
    record = FoundRecord(0, 0, 0, None, data, [], -1, len(data))
    assert plain_record("t", record, masks=MASKS)["value"] == HIDDEN
    cut = FoundRecord(0, 0, 0, None, b"{}", [], -1, 3)
    assert plain_record("t", cut, masks=MASKS)["value"] == HIDDEN


def test_a_sparkline_stays_in_its_field() -> None:
    assert sparkline([]) == sparkline([(1, 1)]) == ""
    assert sparkline([(0, 0), (50, 10), (100, 5)]) == "0.0,19.0 45.0,1.0 90.0,10.0"
    assert sparkline([(0, 0), (0, 0)]) == "0.0,19.0 0.0,19.0"


AVRO = value_schema(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
    }
)
AVRO_BYTES = b"\x0e\x04hi"
"""7 as zigzag, and a text of two bytes. Source: Avro 1.12, "Binary encoding"."""
FRAMED = b"\0\0\0\0\x11" + AVRO_BYTES


@pytest.mark.parametrize(("data", "note"), [(AVRO_BYTES, ""), (FRAMED, "perhaps framed, schema 17")])
def test_a_value_is_shown_by_a_schema_that_was_named(data: bytes, note: str) -> None:
    named = NamedSchema(AVRO)
    found = shown(data, size=len(data), schema=named)
    assert (found.kind, json.loads(found.text), found.note) == ("avro", {"id": 7, "note": "hi"}, note)
    assert shown(data, size=len(data), how="hex", schema=named).kind == "hex"
    assert (
        json.loads(shown(data, size=len(data), masks=Masks(frozenset({"note"})), schema=named).text)["note"] == HIDDEN
    )
    assert shown(data[:-1], size=len(data), schema=named).kind == "hex"  # cut
    record = a_record()._replace(value=data, value_size=len(data))
    assert plain_record("t", record, schema=named)["value"] == {"id": 7, "note": "hi"}


@given(st.binary(max_size=40))
def test_bytes_of_no_schema_are_shown_as_they_are(data: bytes) -> None:
    named = NamedSchema(AVRO)
    if named.value_of(data) is None:
        assert shown(data, size=len(data), schema=named) == shown(data, size=len(data))


def test_a_frame_is_told_and_json_in_it_is_read() -> None:
    assert shown(FRAMED, size=len(FRAMED)).note == "perhaps framed, schema 17"
    framed = b'\0\0\0\0\x11{"a": 1}'
    found = shown(framed, size=len(framed))
    assert (found.kind, found.text, found.note) == ("json", '{"a": 1}', "perhaps framed, schema 17")
    record = a_record()._replace(key=framed, key_size=len(framed))
    assert HIDDEN in shown_record(record, masks=Masks(frozenset({"a"})))["key"].text
    masked_key = plain_record("t", record, masks=Masks(frozenset({"a"})))["key"]
    assert json.loads(masked_key) == {"a": HIDDEN}


def test_a_key_that_was_cut_is_hidden_where_fields_are_masked() -> None:
    """Nobody knows whether it was JSON."""
    record = a_record()._replace(key=b'{"a": "secret", "b', key_size=1_000)
    assert "secret" not in shown_record(record, masks=Masks(frozenset({"a"})))["key"].text
    assert plain_record("t", record, masks=Masks(frozenset({"a"})))["key"] == HIDDEN
    assert "secret" in shown_record(record)["key"].text


# Field 1 is 150, field 2 "testing", field 3 a message with 150 in its field 1. Source: Protobuf, "Encoding".
MESSAGE = bytes.fromhex("08 96 01 12 07 74 65 73 74 69 6e 67 1a 03 08 96 01")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (MESSAGE, {"1": 150, "2": "testing", "3": {"1": 150}}),
        (b"\0\0\0\0\x11\0" + MESSAGE, {"1": 150, "2": "testing", "3": {"1": 150}}),
        (b"\0\0\0\0\x11\x02\x02" + MESSAGE[:3], {"1": 150}),  # the second message of its file
        (b"\x08\x01\x08\x02\x08\x03", {"1": [1, 2, 3]}),
        (b"\x0d\x01\0\0\0\x11\x02\0\0\0\0\0\0\0", {"1": 1, "2": 2}),
        (b"\x0a\x02\xff\xfe", {"1": "ff fe"}),
    ],
)
def test_a_protobuf_message_without_a_schema_has_numbers_for_names(data: bytes, expected: dict[str, Any]) -> None:
    found = shown(data, size=len(data), how="protobuf")
    assert (found.kind, json.loads(found.text)) == ("protobuf", expected)
    assert found.note.startswith("by numbers of fields")
    assert shown(data, size=len(data), how="protobuf", masks=Masks(frozenset({"1"}))).kind == "hidden"


@given(st.binary())
def test_what_is_no_message_is_told_by_none(data: bytes) -> None:
    found = protobuf_fields(data)
    assert found is None or (found and all(name.isdecimal() for name in found))


def test_a_message_of_many_layers_is_no_endless_work() -> None:
    data = b""
    for _ in range(200):
        data = b"\x0a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    assert protobuf_fields(data) is not None


def a_record() -> FoundRecord:
    return FoundRecord(
        partition=0, offset=0, timestamp_ms=0, key=None, value=b"", headers=[], key_size=-1, value_size=0
    )
