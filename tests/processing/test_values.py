from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

import pyarrow as pa
import pytest

from sparklog.errors import InvalidTypeError
from sparklog.processing.values import decoder_of, encode


class Kind(enum.Enum):
    BOOK = "book"


@dataclass
class Line:
    name: str
    count: int = 1


@dataclass
class Order:
    id: int
    total: float
    lines: list[Line] = field(default_factory=list)
    kind: Kind | None = None
    at: datetime | None = None
    state: Literal["open", "paid"] = "open"
    pair: tuple[int, str] | None = None
    tags: dict[str, int] = field(default_factory=dict)


FULL = Order(
    id=1,
    total=2.5,
    lines=[Line("pen", 3)],
    kind=Kind.BOOK,
    at=datetime(2026, 1, 31, tzinfo=UTC),
    state="paid",
    pair=(1, "a"),
    tags={"x": 1},
)


def decode(kind: Any, data: bytes) -> Any:
    function = decoder_of(kind)
    return data if function is None else function(data)


@pytest.mark.parametrize("kind", [bytes, pa.Table, pa.RecordBatch])
def test_bytes_stay_as_they_are(kind):
    assert decode(kind, b"\xff") == b"\xff"


def test_a_dataclass_is_made_of_json_and_back():
    sent = encode(FULL)
    assert sent is not None
    assert decode(Order, sent) == FULL
    assert decode(Order, b'{"id": 1, "total": 2, "unknown": 3}') == Order(1, 2.0)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (str, b"\xc3\xa4", "ä"),
        (dict, b'{"a": 1}', {"a": 1}),
        (Any, b"[1, null]", [1, None]),
        (list[int], b"[1, 2]", [1, 2]),
        (int | None, b"null", None),
        (tuple[int, ...], b"[1, 2]", (1, 2)),
        (dict[str, int], b'{"1": 2}', {"1": 2}),
        (dict[int, int], b'{"1": 2, "-3": 4}', {1: 2, -3: 4}),
        (dict[int | str, int], b'{"1": 2, "x": 4}', {1: 2, "x": 4}),
        (dict[float, int], b'{"1": 2, "2.5": 4}', {1.0: 2, 2.5: 4}),
        (dict[bool, int], b'{"true": 2}', {True: 2}),
        (dict[Kind, int], b'{"book": 2}', {Kind.BOOK: 2}),
        (dict[Literal["a", 1], int], b'{"a": 2, "1": 3}', {"a": 2, 1: 3}),
        (dict[date, int], b'{"2026-01-31": 2}', {date(2026, 1, 31): 2}),
        (dict[int, dict[int, int]], b'{"1": {"2": 3}}', {1: {2: 3}}),
    ],
)
def test_values_of_json(kind, data, value):
    assert decode(kind, data) == value


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (Order, b"{", "Expecting"),
        (Order, b"[]", "value: got list, expected an object for Order"),
        (Order, b'{"id": "1", "total": 1}', r"value\.id: got str, expected int"),
        (Order, b'{"id": true, "total": 1}', r"value\.id: got bool, expected int"),
        (Order, b'{"total": 1}', "missing 1 required positional argument: 'id'"),
        (Order, b'{"id": 1, "total": 1, "lines": [{"name": 1}]}', r"value\.lines\[0\]\.name: got int, expected str"),
        (Order, b'{"id": 1, "total": 1, "state": "new"}', r"value\.state: got 'new', expected one of 'open', 'paid'"),
        (Order, b'{"id": 1, "total": 1, "kind": "cup"}', "cup"),
        (str, b"\xff", "utf-8"),
    ],
)
def test_what_doesnt_fit_is_named(kind, data, message):
    with pytest.raises(ValueError, match=message):
        decode(kind, data)


def test_pydantic_models_are_made_and_sent():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", id=(int, ...))
    assert decode(model, b'{"id": 1}') == model(id=1)
    assert encode(model(id=1)) == b'{"id":1}'
    assert encode({"order": model(id=1)}) == b'{"order":{"id":1}}'
    with pytest.raises(ValueError, match="id"):
        decode(model, b"{}")


@pytest.mark.parametrize("kind", [object, set, bytearray, list[object]])
def test_types_that_no_bytes_make_are_refused(kind):
    with pytest.raises(InvalidTypeError, match="can't be made"):
        decoder_of(kind)


@pytest.mark.parametrize(
    ("value", "data"), [(None, None), (b"\xff", b"\xff"), ("ä", b"\xc3\xa4"), ({"a": 1}, b'{"a":1}'), (3, b"3")]
)
def test_values_are_encoded(value, data):
    assert encode(value) == data


def test_what_json_doesnt_know_is_refused():
    with pytest.raises(InvalidTypeError, match=r"type dict can't be sent: .* set is nothing that JSON knows"):
        encode({"a": {1}})
    assert json.loads(encode([FULL]) or b"")[0]["kind"] == "book"


@pytest.mark.parametrize("data", [b'{"x": 1}', b'{"true": 1}', b'{"1.5": 1}', b'{"1": 1, " 1": 2}', b'{"": 1}'])
def test_keys_that_are_no_numbers_are_refused(data):
    with pytest.raises(ValueError, match=r"^value: (the key '.*': expected int|several of its keys are one)"):
        decode(dict[int, int], data)


@pytest.mark.parametrize("kind", [dict[Line, int], dict[tuple[int, int], int], list[dict[dict[str, int], int]]])
def test_types_that_no_key_of_json_can_have_are_refused_at_once(kind):
    with pytest.raises(InvalidTypeError, match=r"^keys of type"):
        decoder_of(kind)
