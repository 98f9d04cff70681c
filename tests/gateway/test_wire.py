"""The codec of Kafka's messages: against kafka-python byte for byte, there and back, and against malicious lengths."""

from __future__ import annotations

import contextlib
import importlib
import json
import uuid
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.gateway.wire import WireError, message
from sparklog.gateway.wire.fields import Field, Versions
from sparklog.gateway.wire.frames import read_request_header, response_frame
from sparklog.gateway.wire.primitives import Input, read_unsigned, write_unsigned
from tests.depth import by_depth

NAMES = [
    one["name"]
    for one in json.loads(resources.files("sparklog.gateway.wire").joinpath("definitions.json").read_text())["messages"]
]
INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values(field: Field, version: int) -> st.SearchStrategy:
    kind, nullable = field.kind, version in field.nullable
    if kind.startswith("[]"):
        found = st.lists(element(field, kind[2:], version), max_size=2)
    else:
        found = element(field, kind, version)
    return st.none() | found if nullable else found


def element(field: Field, kind: str, version: int) -> st.SearchStrategy:
    if kind in INTS:
        return st.integers(-(2 ** (INTS[kind] - 1)), 2 ** (INTS[kind] - 1) - 1)
    if kind.startswith("uint"):
        return st.integers(0, 2 ** int(kind[4:]) - 1)
    if field.fields and kind == field.kind.removeprefix("[]"):
        return struct(field.fields, version)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(st.characters(codec="utf-8"), max_size=5),
        "bytes": st.binary(max_size=5),
        "records": st.binary(max_size=5),
        "uuid": st.uuids(),
    }[kind]


def struct(fields, version) -> st.SearchStrategy:
    return st.fixed_dictionaries({f.name: values(f, version) for f in fields if version in f.versions})


@st.composite
def messages(draw):
    known = message(draw(st.sampled_from(NAMES)))
    version = draw(st.integers(known.versions.first, known.versions.last))
    return known, version, draw(struct(known.fields, version))


@given(messages())
@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
def test_a_message_comes_back_as_it_was(case):
    known, version, value = case
    assert known.decode(known.encode(value, version), version) == value


@given(messages(), st.data())
@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
def test_cut_or_changed_bytes_are_an_error_or_another_message(case, data):
    known, version, value = case
    encoded = known.encode(value, version)
    changed = bytearray(encoded[: data.draw(st.integers(0, len(encoded)))])
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        known.decode(changed, version)


def kafka_python(name: str):
    package = importlib.import_module("kafka.protocol")
    for module in ("metadata", "admin", "consumer", "producer", "sasl"):
        found = getattr(importlib.import_module(f"{package.__name__}.{module}"), name, None)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_kafka_python(name):
    pytest.importorskip("kafka.protocol.api_message")
    other = kafka_python(name)
    known = message(name)
    if other is None:
        pytest.skip(f"kafka-python has no {name}")
    compared = 0
    for version in range(known.versions.first, min(known.versions.last, other.max_version) + 1):
        value = example(known.fields, version)
        if name == "ApiVersionsResponse":
            value["error_code"] = 0  # else kafka-python takes it for version 0
        encoded = bytes(known.encode(value, version))
        decoded = other.decode(encoded, version=version)
        decoded._header = None  # which decode leaves out
        assert bytes(decoded.encode(version=version)) == encoded, version
        assert known.decode(bytes(decoded.encode(version=version)), version) == value
        compared += 1
    assert compared


def example(fields, version, depth=1):
    """A value in which every field is another one than its default."""
    found = {}
    for number, field in enumerate(fields):
        if version in field.versions:
            kind = field.kind.removeprefix("[]")
            one = {
                "bool": True,
                "string": f"text {depth}{number}",
                "bytes": b"bytes",
                "records": b"records",
                "uuid": uuid.UUID(int=depth * 100 + number),
                "float64": 1.5,
            }.get(kind, depth * 10 + number + 1 if kind.startswith(("int", "uint")) else None)
            if one is None:
                one = example(field.fields, version, depth + 1)
            found[field.name] = [one, one] if field.kind.startswith("[]") else one
    return found


@pytest.mark.parametrize(("name", "version"), [("MetadataRequest", 4), ("MetadataRequest", 12), ("FetchRequest", 12)])
def test_a_count_beyond_the_bytes_is_refused_before_memory_is_taken(name, version):
    known = message(name)
    value = {"topics": [{"name": "a", "topic": "a"}]}
    encoded = known.encode(value, version)
    at = encoded.rindex(b"\x02") if version == 12 else 3
    encoded[at] = 0x7F
    with pytest.raises(WireError, match=r"elements|bytes|null|varint"):
        known.decode(encoded, version)


def test_a_huge_array_is_refused():
    with pytest.raises(WireError, match="an array of 2147483647 elements at byte 4: 4 bytes are left"):
        message("MetadataRequest").decode(b"\x7f\xff\xff\xff" + b"\0" * 4, 4)
    with pytest.raises(WireError, match="an array of 4294967294 elements"):
        message("MetadataRequest").decode(b"\xff\xff\xff\xff\x0f" + b"\0" * 4, 12)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_come_back(number):
    out = bytearray()
    write_unsigned(out, number)
    assert read_unsigned(Input(out)) == number


@pytest.mark.parametrize("data", [b"\xff", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b""])
def test_a_varint_that_is_none_is_refused(data):
    with pytest.raises(WireError):
        read_unsigned(Input(data))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("2+", [2, 99], [1]), ("1-3", [1, 3], [0, 4]), ("4", [4], [3, 5]), ("none", [], [0]), (None, [], [0])],
)
def test_ranges_of_versions(text, inside, outside):
    versions = Versions.parse(text)
    assert all(one in versions for one in inside)
    assert not any(one in versions for one in outside)


def test_unknown_tagged_fields_are_passed_over():
    known = message("MetadataRequest")
    encoded = known.encode({"topics": None, "allow_auto_topic_creation": True}, 12)
    assert encoded[-1] == 0
    encoded[-1:] = b"\x01\x63\x03abc"
    assert known.decode(encoded, 12)["allow_auto_topic_creation"] is True


def test_a_request_header_ends_where_the_body_begins():
    known = message("MetadataRequest")
    for version, header in ((12, 2), (4, 1)):
        fields = {"request_api_key": 3, "request_api_version": version, "correlation_id": 7, "client_id": "me"}
        body = known.encode({"topics": None}, version)
        frame = read_request_header(memoryview(message("RequestHeader").encode(fields, header) + body), known)
        assert (frame.api_key, frame.api_version, frame.correlation_id, frame.client_id) == (3, version, 7, "me")
        assert bytes(frame.body) == bytes(body)


def test_the_header_of_a_response_is_flexible_but_for_api_versions():
    for name, version, head in (("MetadataResponse", 12, b"\0\0\0\x07\0"), ("ApiVersionsResponse", 3, b"\0\0\0\x07")):
        body = message(name).encode({}, version)
        frame = response_frame(message(name), version, 7, {})
        assert bytes(frame) == (len(head) + len(body)).to_bytes(4, "big") + head + body


def test_what_a_field_cannot_hold_is_named():
    with pytest.raises(WireError, match="correlation_id"):
        message("ResponseHeader").encode({"correlation_id": 2**40}, 0)
    with pytest.raises(WireError, match="version 0 to"):
        message("MetadataRequest").encode({}, 99)


@given(st.lists(st.integers(0, 40_000), max_size=6))
def test_a_frame_is_the_same_bytes_whether_its_pieces_are_copied_or_not(sizes):
    records = [bytes([number]) * size for number, size in enumerate(sizes)]
    part = {"partition_index": 1, "high_watermark": 5, "records": records}
    value = {"responses": [{"topic": "t", "partitions": [part, part]}]}
    found = response_frame(message("FetchResponse"), 12, 7, value)
    joined = b"".join(found.parts())
    assert len(joined) == found.size_bytes
    copied = message("FetchResponse").encode(value, 12)
    assert joined == (len(copied) + 5).to_bytes(4, "big") + b"\0\0\0\7\0" + bytes(copied)
    assert all(len(piece) for piece in found.parts())
