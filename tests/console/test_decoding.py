"""Any bytes have a form that people can read, and masks let nothing through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.console.decoding import DECODINGS, HIDDEN, masked, plain_record, shown, shown_record
from sparklog.console.rendering import sparkline
from sparklog.errors import InvalidArgumentError
from sparklog.sql.search import FoundRecord


@given(st.binary(), st.sampled_from(DECODINGS), st.booleans(), st.integers(0, 5))
def test_any_bytes_are_shown(data: bytes, how: str, pretty: bool, more: int) -> None:
    found = shown(data, size=len(data) + more, how=how, pretty=pretty)
    assert found.kind in ("json", "text", "hex")
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
MASKS = frozenset(["ssn"])


@given(
    st.recursive(
        st.one_of(st.integers(), st.text("abc"), st.none()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc"), inner, max_size=3)),
    ),
    st.sampled_from(["ssn", "SSN", "Ssn"]),
)
def test_masks_hide_at_any_depth(value: Any, name: str) -> None:
    hidden = {"x": [value, {name: {"deep": SECRET}, "y": value}], name: SECRET}
    assert SECRET not in json.dumps(masked(hidden, MASKS))
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
