"""Values in Protobuf: messages of every kind of field become columns and come back, and bad ones fail alone."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidConfigurationError
from sparklog.schemas import (
    SchemaError,
    UnwritableError,
    decode,
    encode,
    protobuf_values,
    python_rows_to_struct,
    schema_of_file,
    struct_to_python,
    unmet_demands,
    value_schema,
)
from tests.depth import by_depth
from tests.schemas.messages import MESSAGE, OPTIONAL, REPEATED, REQUIRED, TYPES, a_file, message_of, orders

pytest.importorskip("google.protobuf")

Order: Any = message_of(orders(), "shop.Order")
SCHEMA = value_schema(Order)
NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123_456, tzinfo=datetime.UTC)


def an_order(**fields):
    full = {"f_int64": -(2**63), "f_uint64": 2**64 - 1, "f_string": "a\0é", "f_double": -0.0, "f_bytes": b"\xff"}
    return Order(**{**full, **fields})


def rows(messages, value_format="protobuf"):
    raws = pa.array([each if each is None else each.SerializeToString() for each in messages], pa.binary())
    column, errors = decode(value_format, SCHEMA, raws)
    assert errors == {}
    return column, struct_to_python(column)


def test_every_kind_of_field_becomes_a_column():
    order = an_order(color=1, places=[{"city": "Ulm"}, {}], tags=["a", ""], colors=[0, 7], card="4")
    order.place.SetInParent()
    order.at.FromDatetime(NOON)
    order.limit.value = 0
    order.counts[2**64 - 1] = 1
    order.by_name["x"].city = "Bonn"
    _, [row, empty, none] = rows([order, Order(), None])
    assert none is None
    assert (row["f_int64"], row["f_uint64"], row["f_string"], row["f_bytes"]) == (
        -(2**63), decimal.Decimal(2**64 - 1), "a\0é", b"\xff",
    )  # fmt: skip
    assert str(row["f_double"]) == "-0.0"
    assert (row["color"], row["colors"]) == ("GREEN", ["RED", "7"])
    assert (row["place"], row["places"]) == ({"city": ""}, [{"city": "Ulm"}, {"city": ""}])
    assert (row["tags"], row["at"], row["limit"]) == (["a", ""], NOON, 0)
    assert (row["card"], row["cash"], row["note"]) == ("4", None, None)
    assert (row["counts"], row["by_name"]) == ({2**64 - 1: 1}, {"x": {"city": "Bonn"}})
    assert (empty["f_int64"], empty["color"], empty["tags"], empty["counts"]) == (0, "RED", [], {})
    assert (empty["place"], empty["at"], empty["limit"], empty["card"]) == (None, None, None, None)


@pytest.mark.parametrize("value_format", ["protobuf", "protobuf-confluent"])
def test_messages_come_back_equal(value_format):
    order = an_order(color=1, places=[{"city": "Ulm"}, {}], tags=["a"], colors=[0, 7], cash=0, note="", counts={1: 2})
    order.at.FromDatetime(NOON)
    order.limit.value = 7
    order.by_name["x"].city = "Bonn"
    column, _ = rows([order, None, Order()])
    again = encode(value_format, SCHEMA, column, schema_id=7)
    found, errors = decode(value_format, SCHEMA, again)
    assert errors == {}
    assert found.equals(column)
    if value_format == "protobuf":
        assert [raw if raw is None else Order.FromString(raw) for raw in again.to_pylist()] == [order, None, Order()]


def test_confluents_framing_says_where_the_message_is_in_its_file():
    [raw] = encode("protobuf-confluent", SCHEMA, rows([Order()])[0], schema_id=7).to_pylist()
    assert raw[:7] == b"\0\0\0\0\7\2\2"  # one index, 1, as zigzag varints
    other = value_schema(message_of(orders(), "shop.Other"))
    column, _ = python_rows_to_struct(other, [{"x": 0}])
    [raw] = encode("protobuf-confluent", other, column, schema_id=7).to_pylist()
    assert raw == b"\0\0\0\0\7\0"
    nested = value_schema(message_of(orders(), "shop.Order.Place"))
    column, _ = python_rows_to_struct(nested, [{"city": ""}])
    [raw] = encode("protobuf-confluent", nested, column, schema_id=7).to_pylist()
    assert raw == b"\0\0\0\0\7\4\2\0"
    _, errors = decode("protobuf-confluent", SCHEMA, pa.array([raw], pa.binary()))
    assert "another message" in errors[0]


def test_fields_that_the_schema_does_not_have_are_passed_over():
    raw = Order(f_int32=5).SerializeToString() + b"\xf8\x07\x01"  # field 127
    column, errors = decode("protobuf", SCHEMA, pa.array([raw], pa.binary()))
    assert errors == {}
    assert struct_to_python(column)[0]["f_int32"] == 5  # type: ignore[index]


def test_bad_messages_fail_alone():
    late = Order()
    late.at.seconds = 2**40
    negative = Order()
    negative.at.nanos = -1
    good = Order(f_int32=5).SerializeToString()
    bad = [b"\xff" * 40, b"\x52\x05a", b"\x3a\x01\xff", late.SerializeToString(), negative.SerializeToString()]
    raws = [good, *bad, None, good]
    column, errors = decode("protobuf", SCHEMA, pa.array(raws, pa.binary()))
    assert [*errors] == [1, 2, 3, 4, 5]
    assert "year 9999" in errors[4]
    assert [row and row["f_int32"] for row in struct_to_python(column)] == [5, *[None] * 6, 5]


def test_many_bad_messages_among_many_are_found_each():
    late = Order()
    late.at.seconds = 2**40
    raws = [Order(f_int32=at).SerializeToString() for at in range(2_000)]
    wrong = sorted(random.Random(7).sample(range(2_000), 200))
    for at in wrong:
        raws[at] = late.SerializeToString() if at % 2 else b"\xff"
    column, errors = decode("protobuf", SCHEMA, pa.array(raws, pa.binary()))
    assert sorted(errors) == wrong
    assert [row and row["f_int32"] for row in struct_to_python(column)] == [
        None if at in set(wrong) else at for at in range(2_000)
    ]


def times() -> Any:
    """A message with times everywhere: ``shop.Times``."""
    file = a_file("times", package="shop")
    file.dependency.append("google/protobuf/timestamp.proto")
    times = file.message_type.add(name="Times")
    entry = times.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=TYPES["string"], label=OPTIONAL)
    entry.field.add(name="value", number=2, type=MESSAGE, label=OPTIONAL, type_name=".google.protobuf.Timestamp")
    part = times.nested_type.add(name="Part")
    for message in (part, times):
        for number, (name, label) in enumerate((("at", OPTIONAL), ("all", REPEATED)), 1):
            kind = ".google.protobuf.Timestamp"
            message.field.add(name=name, number=number, type=MESSAGE, label=label, type_name=kind)
    for number, (name, label) in enumerate((("part", OPTIONAL), ("parts", REPEATED)), 3):
        times.field.add(name=name, number=number, type=MESSAGE, label=label, type_name=".shop.Times.Part")
    times.field.add(name="by_name", number=5, type=MESSAGE, label=REPEATED, type_name=".shop.Times.ByNameEntry")
    return message_of(file, "shop.Times")


SECONDS = st.sampled_from([0, 1, 2**40])
PARTS = st.fixed_dictionaries({}, optional={"at": SECONDS, "all": st.lists(SECONDS, max_size=2)})
VALUES_OF_TIMES = st.fixed_dictionaries(
    {},
    optional={
        "at": SECONDS,
        "all": st.lists(SECONDS, max_size=2),
        "part": PARTS,
        "parts": st.lists(PARTS, max_size=2),
        "by_name": st.dictionaries(st.sampled_from("ab"), SECONDS, max_size=2),
    },
)
Times = times()


def _fill(message: Any, given: Any) -> Any:
    for name, value in given.items():
        if name == "at":
            message.at.seconds = value
        elif name == "all":
            for seconds in value:
                message.all.add(seconds=seconds)
        elif name == "part":
            _fill(message.part, value).SetInParent()
        elif name == "parts":
            for part in value:
                _fill(message.parts.add(), part)
        else:
            for key, seconds in value.items():
                message.by_name[key].seconds = seconds
    return message


@settings(max_examples=by_depth(gate=40, nightly=200), deadline=None)
@given(st.lists(VALUES_OF_TIMES, max_size=6))
def test_messages_with_times_that_are_none_are_refused_as_each_alone(given):
    schema = value_schema(Times)
    raws = [_fill(Times(), one).SerializeToString() for one in given]
    column, errors = decode("protobuf", schema, pa.array(raws, pa.binary()))
    column.validate(full=True)
    for place, raw in enumerate(raws):
        alone, wrong = decode("protobuf", schema, pa.array([raw], pa.binary()))
        assert struct_to_python(column[place : place + 1]) == struct_to_python(alone)
        assert errors.get(place) == wrong.get(0)


def test_many_times_that_are_none_take_no_more_passes_than_one(monkeypatch):
    passes = []
    struct = protobuf_values._struct

    def noting(*given: Any) -> Any:
        passes.append(1)
        return struct(*given)

    monkeypatch.setattr(protobuf_values, "_struct", noting)
    raws = [_fill(Times(), {"at": 2**40 if at % 10 else 1}).SerializeToString() for at in range(2_000)]
    column, errors = decode("protobuf", value_schema(Times), pa.array(raws, pa.binary()))
    assert (len(errors), column.null_count) == (1_800, 1_800)
    assert len(passes) < 10


def test_a_deep_message_and_one_of_a_huge_length_are_refused():
    nested = b""
    for _ in range(200):
        nested = b"\xaa\x01" + bytes([len(nested) & 0x7F]) + nested[:127]
    raws = [b"\x4a\xff\xff\xff\xff\x07", b"\x0b" * 100_000, b"\xaa\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
    _, errors = decode("protobuf", SCHEMA, pa.array(raws, pa.binary()))
    assert [*errors] == [0, 1, 2]
    decode("protobuf", SCHEMA, pa.array([nested], pa.binary()))  # whatever it is, it ends


def test_a_required_field_must_be_there():
    file = a_file("old", syntax="proto2")
    file.message_type.add(name="Old").field.add(name="id", number=1, type=TYPES["int64"], label=REQUIRED)
    schema = value_schema(message_of(file, "Old"))
    _, errors = decode("protobuf", schema, pa.array([b"", b"\x08\x05"], pa.binary()))
    assert [*errors] == [0]
    assert "id is required" in errors[0]
    column, _ = python_rows_to_struct(schema, [{"id": 1}, {}])
    assert unmet_demands(schema, column) == {1: "field id: null, but the format's schema has no null for it"}
    with pytest.raises(UnwritableError) as caught:
        encode("protobuf", schema, column)
    assert caught.value.place == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"color": "BLUE"}, "field color: got BLUE, expected one of RED, GREEN"),
        ({"f_uint32": -1}, "field f_uint32: got -1, expected 0 or more"),
        (
            {"f_uint64": decimal.Decimal(2**64)},
            "field f_uint64: got 18446744073709551616, expected",
        ),
        ({"tags": [None]}, "field tags.element: null"),
        ({"colors": ["BLUE"]}, "field colors.element: got BLUE"),
        ({"card": "4", "cash": 1}, "oneof pay: more than one"),
        ({"by_name": {"x": None}}, "field by_name.value: null"),
        ({"limit": decimal.Decimal(-1)}, "field limit: got -1"),
    ],
)
def test_what_no_message_can_hold_is_told(row, reason):
    column, errors = python_rows_to_struct(SCHEMA, [{}, row, None])
    assert errors == {}
    found = unmet_demands(SCHEMA, column)
    assert [*found] == [1]
    assert reason in found[1]


def test_a_schema_of_something_else_has_no_messages():
    with pytest.raises(InvalidConfigurationError, match="wasn't made of a Protobuf message"):
        encode("protobuf", value_schema("id BIGINT"), pa.array([], pa.struct([("id", pa.int64())])))


def test_a_descriptor_set_is_a_schema(tmp_path):
    from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

    known = [
        descriptor_pb2.FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb)
        for each in (timestamp_pb2, wrappers_pb2)
    ]
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[*known, orders()]).SerializeToString())
    assert schema_of_file(f"{file}#shop.Order") == SCHEMA
    with pytest.raises(SchemaError, match="Other, Order in its last file"):
        schema_of_file(file)
    with pytest.raises(SchemaError, match=r"no message 'shop\.Missing'"):
        schema_of_file(f"{file}#shop.Missing")
    lone = a_file("lone", package="p")
    lone.message_type.add(name="Lone").field.add(name="id", number=1, type=TYPES["int64"], label=OPTIONAL)
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[lone]).SerializeToString())
    assert schema_of_file(file).arrow.names == ["id"]
    file.write_bytes(b"\xff" * 10)
    with pytest.raises(SchemaError, match="no FileDescriptorSet"):
        schema_of_file(file)
