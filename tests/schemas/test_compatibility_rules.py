"""Whatever decides how bytes are read is part of compatibility: case by case, with the verdicts of Avro's specification
and of Confluent's registry beside ours. ``docs/typed_topics.md``, Evolution, has the reasons for those that differ."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.schemas import ValueSchema, check, value_schema

pytest.importorskip("google.protobuf")
pytest.importorskip("fastavro")

from tests.schemas.messages import schema_of

YES, NO = True, False
STRICTER = "stricter than the registry"
LOOSER = "looser than the registry"


def enum(*symbols: str, default: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": [*symbols], **({"default": default} if default else {}), **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    given = [
        each if isinstance(each, dict) else {"name": each[0], "type": each[1], **dict(each[2:])} for each in fields
    ]
    return {"type": "record", "name": name, "fields": given, **more}


def one(kind: Any, **more: Any) -> dict[str, Any]:
    return record({"name": "n", "type": "long"}, {"name": "x", "type": kind, **more})


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


N = {"name": "n", "type": "long"}
MICROS, MILLIS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis"))


def money(scale: int, base: Any = "bytes", **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": "decimal", "precision": 9, "scale": scale, **more}


AVRO = [  # title, old, new, may readers by new have values of old, and those by old values of new, what differs
    ("the same", one("int"), one("int"), YES, YES, ""),
    ("int to long", one("int"), one("long"), NO, NO, STRICTER),
    ("string to bytes", one("string"), one("bytes"), NO, NO, STRICTER),
    ("long to int", one("long"), one("int"), NO, NO, ""),
    ("symbol added", one(enum("A")), one(enum("A", "B")), YES, NO, ""),
    ("symbol added, default before", one(enum("A", default="A")), one(enum("A", "B")), YES, YES, ""),
    ("symbol removed", one(enum("A", "B")), one(enum("A")), NO, YES, ""),
    ("symbol removed, default", one(enum("A", "B")), one(enum("A", default="A")), YES, YES, ""),
    ("symbol renamed", one(enum("A", "B")), one(enum("A", "C")), NO, NO, ""),
    ("symbol renamed, defaults", one(enum("A", "B", default="A")), one(enum("A", "C", default="A")), YES, YES, ""),
    ("symbols in another order", one(enum("A", "B")), one(enum("B", "A")), YES, YES, ""),
    ("symbol removed in a union", one(optional(enum("A", "B"))), one(optional(enum("A"))), NO, YES, ""),
    ("symbol removed in a list", one({"type": "array", "items": enum("A", "B")}),
     one({"type": "array", "items": enum("A")}), NO, YES, ""),
    ("symbol removed in a map", one({"type": "map", "values": enum("A", "B")}),
     one({"type": "map", "values": enum("A")}), NO, YES, ""),
    ("symbol removed in a record", one(record(("e", enum("A", "B")), name="I")),
     one(record(("e", enum("A")), name="I")), NO, YES, ""),
    ("symbol removed in a type used twice", record(("a", enum("A", "B")), ("b", optional("E"))),
     record(("a", enum("A")), ("b", optional("E"))), NO, YES, ""),
    ("symbol removed in a type that is named within another", record(("a", enum("A", "B")), ("b", {"type": "E"})),
     record(("a", enum("A")), ("b", {"type": "E"})), NO, YES, ""),
    ("symbol removed, default, named within another", record(("a", enum("A", "B")), ("b", {"type": "E"})),
     record(("a", enum("A", default="A")), ("b", {"type": "E"})), YES, YES, ""),
    ("default that is no symbol", one(enum("A", "B")), one(enum("A", default="Z")), NO, YES, ""),
    ("enumeration to string", one(enum("A")), one("string"), NO, NO, ""),
    ("string to enumeration", one("string"), one(enum("A")), NO, NO, ""),
    ("string to enumeration with default", one("string"), one(enum("A", default="A")), NO, NO, ""),
    ("enumeration renamed", one(enum("A")), one({**enum("A"), "name": "E2"}), NO, NO, ""),
    ("enumeration renamed, alias", one(enum("A")), one({**enum("A", aliases=["E"]), "name": "E2"}), YES, NO, ""),
    ("enumeration in another namespace", one(enum("A")), one(enum("A", namespace="a.b")), YES, YES, ""),
    ("fixed grows", one(fixed(2)), one(fixed(3)), NO, NO, ""),
    ("fixed shrinks", one(fixed(2)), one(fixed(1)), NO, NO, ""),
    ("fixed shrinks in a list", one({"type": "array", "items": fixed(2)}),
     one({"type": "array", "items": fixed(1)}), NO, NO, ""),
    ("fixed to bytes", one(fixed(2)), one("bytes"), NO, NO, ""),
    ("bytes to fixed", one("bytes"), one(fixed(2)), NO, NO, ""),
    ("fixed renamed", one(fixed(2)), one({**fixed(2), "name": "G"}), NO, NO, ""),
    ("duration to fixed", one(fixed(12, logicalType="duration")), one(fixed(12)), YES, YES, ""),
    ("record renamed", one("int"), {**one("int"), "name": "S"}, NO, NO, ""),
    ("record renamed, alias", one("int"), {**one("int"), "name": "S", "aliases": ["old.R"]}, YES, NO, ""),
    ("inner record renamed", one(record(N, name="I")), one(record(N, name="J")), NO, NO, ""),
    ("decimal, other scale", one(money(2)), one(money(3)), NO, NO, ""),
    ("decimal, bytes to fixed", one(money(2)), one(money(2, "fixed", name="F", size=4)), NO, NO, ""),
    ("decimal, fixed of another size", one(money(2, "fixed", name="F", size=4)),
     one(money(2, "fixed", name="F", size=5)), NO, NO, ""),
    ("micros to millis", one(MICROS), one(MILLIS), NO, YES, STRICTER),
    ("millis to micros", one(MILLIS), one(MICROS), YES, NO, STRICTER),
    ("uuid to string", one({"type": "string", "logicalType": "uuid"}), one("string"), YES, YES, ""),
    ("null allowed", one("string"), one(optional("string")), YES, NO, ""),
    ("null taken away", one(optional("string")), one("string"), NO, YES, ""),
    ("null taken away, default", one(optional("string")), one("string", default="x"), NO, YES, ""),
    ("null at the other end", one(["null", "int"]), one(["int", "null"]), YES, YES, ""),
    ("a branch more", one(optional("string")), one(optional(enum("A"))), NO, NO, ""),
    ("nullable field added, default null", record(N), one(optional("int"), default=None), YES, YES, ""),
    ("nullable field added, no default", record(N), one(optional("int")), YES, YES, LOOSER),
    ("nullable field added, default", record(N), one(["int", "null"], default=5), NO, YES, STRICTER),
    ("field added, default", record(N), one("int", default=5), NO, YES, STRICTER),
    ("field added, no default", record(N), one("int"), NO, YES, ""),
    ("nullable field left out", one(optional("int"), default=None), record(N), YES, YES, ""),
    ("field left out, default", one("int", default=5), record(N), YES, YES, ""),
    ("field left out, no default", one("int"), record(N), YES, NO, ""),
    ("fields in another order", record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int")), YES, YES, ""),
    ("field renamed, alias", one("int"), record(N, {"name": "y", "type": optional("int"), "aliases": ["x"]}), NO, NO,
     STRICTER),
    ("alias of a field that stays", record(("a", "int"), ("b", "int")),
     record({"name": "a", "type": "int", "aliases": ["b"]}, ("b", "int")), NO, YES, ""),
    ("alias of a field that leaves", record(("a", "int"), ("b", optional("int"))),
     record({"name": "a", "type": "int", "aliases": ["b"]}), NO, YES, ""),
    ("alias of no field", one("int"), one("int", aliases=["z"]), YES, YES, ""),
    ("new field of an alias's name", one("int", aliases=["z"]),
     record(N, {"name": "x", "type": "int"}, {"name": "z", "type": optional("int"), "default": None}), YES, NO, ""),
    ("doc and properties", one("int"), one({"type": "int", "connect.type": "int16"}, doc="d"), YES, YES, ""),
]  # fmt: skip

PROTOBUF = [
    ("the same", "string a = 1;", "string a = 1;", YES, YES, ""),
    ("swapped", "string a = 1; string b = 2;", "string a = 2; string b = 1;", NO, NO, STRICTER),
    ("moved", "string a = 1;", "string a = 2;", NO, NO, STRICTER),
    ("renamed", "string a = 1;", "string b = 1;", NO, NO, STRICTER),
    ("number taken by a new field", "string a = 1; int64 n = 2;", "string b = 1; int64 n = 2;", NO, NO, STRICTER),
    ("number taken by another type", "string a = 1;", "int64 b = 1;", NO, NO, ""),
    ("another order", "string a = 1; string b = 2;", "string b = 2; string a = 1;", YES, YES, ""),
    ("added", "string a = 1;", "string a = 1; string b = 2;", YES, YES, ""),
    ("left out", "string a = 1; string b = 2;", "string a = 1;", YES, YES, ""),
    ("left out and reserved", "string a = 1; string b = 2;", 'string a = 1; reserved 2; reserved "b";', YES, YES, ""),
    ("reserved number used", "string a = 1; reserved 2, 5 to 7;", "string a = 1; string b = 6;", NO, NO, STRICTER),
    ("reserved end used", "string a = 1; reserved 5 to 7;", "string a = 1; string b = 7;", NO, NO, STRICTER),
    ("beyond what is reserved", "string a = 1; reserved 5 to 7;", "string a = 1; string b = 8;", YES, YES, ""),
    ("reserved name used", 'string a = 1; reserved "b";', "string a = 1; string b = 2;", NO, NO, STRICTER),
    ("swapped in a message", "message N { string a = 1; string b = 2; } N n = 1;",
     "message N { string a = 2; string b = 1; } N n = 1;", NO, NO, STRICTER),
    ("swapped in a list of messages", "message N { string a = 1; string b = 2; } repeated N n = 1;",
     "message N { string a = 2; string b = 1; } repeated N n = 1;", NO, NO, STRICTER),
    ("swapped in a map of messages", "message N { string a = 1; string b = 2; } map<string, N> n = 1;",
     "message N { string a = 2; string b = 1; } map<string, N> n = 1;", NO, NO, STRICTER),
    ("swapped in a message of a message",
     "message O { message N { string a = 1; string b = 2; } N n = 1; } O o = 1;",
     "message O { message N { string a = 2; string b = 1; } N n = 1; } O o = 1;", NO, NO, STRICTER),
    ("swapped in a oneof", "oneof o { string a = 1; string b = 2; }", "oneof o { string a = 2; string b = 1; }",
     NO, NO, STRICTER),
    ("reserved in a message", "message N { string a = 1; reserved 2; } N n = 1;",
     "message N { string a = 1; string b = 2; } N n = 1;", NO, NO, STRICTER),
    ("number taken by a map", "map<string, string> a = 1; int64 n = 2;", "map<string, string> b = 1; int64 n = 2;",
     NO, NO, STRICTER),
    ("another message, same numbers", "message N { string a = 1; } N n = 1;", "message O { string a = 1; } O n = 1;",
     YES, YES, LOOSER),
    ("int32 to sint32", "int32 a = 1;", "sint32 a = 1;", NO, NO, ""),
    ("int32 to sfixed32", "int32 a = 1;", "sfixed32 a = 1;", NO, NO, ""),
    ("int64 to sint64", "int64 a = 1;", "sint64 a = 1;", NO, NO, ""),
    ("int64 to sfixed64", "int64 a = 1;", "sfixed64 a = 1;", NO, NO, ""),
    ("uint32 to fixed32", "uint32 a = 1;", "fixed32 a = 1;", NO, NO, ""),
    ("uint64 to fixed64", "uint64 a = 1;", "fixed64 a = 1;", NO, NO, ""),
    ("uint32 to int64", "uint32 a = 1;", "int64 a = 1;", YES, NO, STRICTER),
    ("int64 to uint32", "int64 a = 1;", "uint32 a = 1;", NO, YES, STRICTER),
    ("int32 to int64", "int32 a = 1;", "int64 a = 1;", NO, NO, STRICTER),
    ("string to bytes", "string a = 1;", "bytes a = 1;", NO, NO, STRICTER),
    ("map key sint64", "map<int64, string> a = 1;", "map<sint64, string> a = 1;", NO, NO, ""),
    ("map value sint64", "map<string, int64> a = 1;", "map<string, sint64> a = 1;", NO, NO, ""),
    ("list of sint32", "repeated int32 a = 1;", "repeated sint32 a = 1;", NO, NO, ""),
    ("string to wrapper", "string a = 1;", "StringValue a = 1;", NO, NO, ""),
    ("wrapper to int64", "Int64Value a = 1;", "int64 a = 1;", NO, NO, ""),
    ("wrapper of uint32 to one of int64", "UInt32Value a = 1;", "Int64Value a = 1;", NO, NO, ""),
    ("singular to repeated", "string a = 1;", "repeated string a = 1;", NO, NO, STRICTER),
    ("plain to optional", "string a = 1;", "optional string a = 1;", YES, YES, ""),
    ("string to enumeration", "string a = 1;", "enum E { A = 0; } E a = 1;", NO, NO, ""),
    ("enumeration to string", "enum E { A = 0; } E a = 1;", "string a = 1;", NO, NO, ""),
    ("value added", "enum E { A = 0; } E e = 1;", "enum E { A = 0; B = 1; } E e = 1;", YES, YES, ""),
    ("value removed", "enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; } E e = 1;", YES, YES, ""),
    ("value renamed", "enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; C = 1; } E e = 1;", NO, NO, STRICTER),
    ("value with a second name", "enum E { A = 0; B = 1; } E e = 1;",
     "enum E { option allow_alias = true; A = 0; B = 1; C = 1; } E e = 1;", YES, YES, ""),
    ("second name in front", "enum E { A = 0; B = 1; } E e = 1;",
     "enum E { option allow_alias = true; A = 0; C = 1; B = 1; } E e = 1;", NO, NO, STRICTER),
    ("values swapped", "enum E { A = 0; B = 1; C = 2; } E e = 1;", "enum E { A = 0; B = 2; C = 1; } E e = 1;",
     NO, NO, STRICTER),
    ("value moved", "enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; B = 2; } E e = 1;", NO, NO, STRICTER),
    ("values swapped in a list", "enum E { A = 0; B = 1; C = 2; } repeated E e = 1;",
     "enum E { A = 0; B = 2; C = 1; } repeated E e = 1;", NO, NO, STRICTER),
    ("values swapped in a map", "enum E { A = 0; B = 1; C = 2; } map<string, E> e = 1;",
     "enum E { A = 0; B = 2; C = 1; } map<string, E> e = 1;", NO, NO, STRICTER),
    ("reserved value used", "enum E { A = 0; reserved 1; } E e = 1;", "enum E { A = 0; B = 1; } E e = 1;",
     NO, NO, STRICTER),
    ("reserved value name used", 'enum E { A = 0; reserved "B"; } E e = 1;', "enum E { A = 0; B = 1; } E e = 1;",
     NO, NO, STRICTER),
    ("enumeration renamed", "enum E { A = 0; } E e = 1;", "enum F { A = 0; } F e = 1;", YES, YES, ""),
    ("oneof around one", "string a = 1; string b = 2;", "oneof o { string a = 1; } string b = 2;", YES, YES, ""),
    ("oneof around two", "string a = 1; string b = 2;", "oneof o { string a = 1; string b = 2; }", NO, YES, ""),
    ("into a oneof", "oneof o { string a = 1; } string b = 2;", "oneof o { string a = 1; string b = 2; }", NO, NO, ""),
    ("oneof dissolved", "oneof o { string a = 1; string b = 2; }", "string a = 1; string b = 2;", YES, NO, ""),
    ("oneof renamed", "oneof o { string a = 1; string b = 2; }", "oneof q { string a = 1; string b = 2; }",
     YES, YES, ""),
    ("added to a oneof", "oneof o { string a = 1; string b = 2; }",
     "oneof o { string a = 1; string b = 2; string c = 3; }", YES, NO, ""),
    ("left out of a oneof", "oneof o { string a = 1; string b = 2; string c = 3; }",
     "oneof o { string a = 1; string b = 2; }", NO, YES, ""),
    ("oneof around two in a message", "message N { string a = 1; string b = 2; } N n = 1;",
     "message N { oneof o { string a = 1; string b = 2; } } N n = 1;", NO, YES, ""),
]  # fmt: skip

PROTO2 = [
    ("required added", "optional string a = 1;", "optional string a = 1; required string b = 2;", NO, NO, ""),
    ("optional to required", "optional string a = 1;", "required string a = 1;", NO, YES, ""),
    ("required to optional", "required string a = 1;", "optional string a = 1;", YES, NO, ""),
    ("required left out", "required string a = 1; optional string b = 2;", "optional string b = 2;", NO, NO, ""),
    ("required in a message", "message N { optional string a = 1; } optional N n = 1;",
     "message N { required string a = 1; } optional N n = 1;", NO, YES, ""),
    ("closed value removed", "enum E { A = 0; B = 1; } optional E e = 1;", "enum E { A = 0; } optional E e = 1;",
     YES, YES, ""),
]  # fmt: skip


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": {"type": "integer"}, **properties}}


TEXT = {"type": "string"}
JSON = [
    ("the same", thing(x=TEXT), thing(x=TEXT), YES, YES, ""),
    ("property added", thing(), thing(x=TEXT), YES, YES, ""),
    ("property added and required", thing(), {**thing(x=TEXT), "required": ["x"]}, YES, YES, LOOSER),
    ("property added, default", thing(), thing(x={**TEXT, "default": "a"}), NO, YES, STRICTER),
    ("property left out", thing(x=TEXT), thing(), YES, YES, ""),
    ("integer to number", thing(x={"type": "integer"}), thing(x={"type": "number"}), NO, NO, STRICTER),
    ("number to integer", thing(x={"type": "number"}), thing(x={"type": "integer"}), NO, NO, ""),
    ("string to date", thing(x=TEXT), thing(x={**TEXT, "format": "date"}), NO, NO, STRICTER),
    ("null allowed", thing(x=TEXT), thing(x={"type": ["string", "null"]}), YES, YES, ""),
    ("null taken away", thing(x={"type": ["string", "null"]}), thing(x=TEXT), YES, YES, LOOSER),
    ("value taken from enum", thing(x={"enum": ["a", "b"]}), thing(x={"enum": ["a"]}), YES, YES, LOOSER),
    ("string to enum", thing(x=TEXT), thing(x={"enum": ["a"]}), YES, YES, LOOSER),
    ("object to map", thing(x={"type": "object", "properties": {"a": TEXT}}),
     thing(x={"type": "object", "additionalProperties": TEXT}), NO, NO, STRICTER),
    ("type changed in an object", thing(x={"type": "object", "properties": {"a": TEXT}}),
     thing(x={"type": "object", "properties": {"a": {"type": "integer"}}}), NO, NO, ""),
    ("type changed in a list", thing(x={"type": "array", "items": TEXT}),
     thing(x={"type": "array", "items": {"type": "integer"}}), NO, NO, ""),
    ("names in another case", thing(x=TEXT), thing(X=TEXT), NO, NO, STRICTER),
]  # fmt: skip

TABLE = [
    *(pytest.param(value_schema(old), value_schema(new), back, ahead, id=f"avro: {title}")
      for title, old, new, back, ahead, _ in AVRO),
    *(pytest.param(schema_of(old), schema_of(new), back, ahead, id=f"proto3: {title}")
      for title, old, new, back, ahead, _ in PROTOBUF),
    *(pytest.param(schema_of(old, "proto2"), schema_of(new, "proto2"), back, ahead, id=f"proto2: {title}")
      for title, old, new, back, ahead, _ in PROTO2),
    *(pytest.param(value_schema(old), value_schema(new), back, ahead, id=f"json: {title}")
      for title, old, new, back, ahead, _ in JSON),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "back", "ahead"), TABLE)
def test_a_change_is_compatible_in_these_directions(old: ValueSchema, new: ValueSchema, back: bool, ahead: bool):
    """Values that are stored are read by the newest schema in every mode, so that FORWARD asks what FULL asks."""
    for suffix in ("", "_TRANSITIVE"):
        verdict = check(new, [old], f"BACKWARD{suffix}")
        assert verdict.compatible is back, str(verdict)
        for mode in ("FORWARD", "FULL"):
            verdict = check(new, [old], f"{mode}{suffix}")
            assert verdict.compatible is (back and ahead), str(verdict)
    if not back and not ahead:
        return
    alone = {reason for reason in check(new, [old], "FULL").reasons if "(FULL)" in reason}
    assert bool(alone) is not ahead, alone


@pytest.mark.parametrize(("old", "new", "back", "ahead"), TABLE)
def test_a_frame_changes_nothing_but_avro_s_order(old: ValueSchema, new: ValueSchema, back: bool, ahead: bool):
    language = old.source.language if old.source is not None else "json"
    for value_format in (f"{language}-confluent", *([] if language == "avro" else [language])):
        assert check(new, [old], value_format=value_format).compatible is back
    if not back:
        assert not check(new, [old], value_format=language).compatible


UNFRAMED = [  # what Avro without a frame refuses besides, as its bytes don't tell their schema
    ("field added behind", record(N), one(optional("int"), default=None), YES),
    ("field left out behind", one(optional("int"), default=None), record(N), YES),
    ("field added in front", record(N), record(("x", optional("int"), ("default", None)), N), NO),
    ("field left out in front", record(("x", "int"), N), record(N), NO),
    ("fields in another order", record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int")), NO),
    ("null allowed", one("long"), one(optional("long")), NO),
    ("null at the other end", one(["null", "int"]), one(["int", "null"]), NO),
    ("symbol added behind", one(enum("A")), one(enum("A", "B")), YES),
    ("symbol removed behind, default", one(enum("A", "B")), one(enum("A", default="A")), YES),
    ("symbol added in front", one(enum("A")), one(enum("B", "A")), NO),
    ("symbols in another order", one(enum("A", "B")), one(enum("B", "A")), NO),
    ("symbol added in front in a list", one({"type": "array", "items": enum("A")}),
     one({"type": "array", "items": enum("B", "A")}), NO),
    ("field added behind in a record", record(("i", record(N, name="I"))),
     record(("i", record(N, ("x", optional("int"), ("default", None)), name="I"))), NO),
    ("millis to micros", one(MILLIS), one(MICROS), NO),
    ("uuid to string", one({"type": "string", "logicalType": "uuid"}), one("string"), YES),
    ("record and types renamed, aliases", record(("e", enum("A"))),
     record(("e", {**enum("A", aliases=["E"]), "name": "G"}), name="S", aliases=["R"]), YES),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "ok"), [case[1:] for case in UNFRAMED], ids=[case[0] for case in UNFRAMED])
def test_avro_without_a_frame_keeps_its_layout(old, new, ok):
    verdict = check(value_schema(new), [value_schema(old)], value_format="avro")
    assert verdict.compatible is ok
    if not ok:
        assert "bytes of avro don't tell their schema" in str(verdict)
    assert check(value_schema(new), [value_schema(old)], value_format="avro-confluent").compatible


def test_columns_that_avro_writes_keep_their_layout_too():
    first, wider = value_schema("a BIGINT, b STRING"), value_schema("a BIGINT, b STRING, c DOUBLE")
    moved = value_schema("b STRING, a BIGINT")
    assert check(wider, [first], value_format="avro").compatible
    assert not check(moved, [first], value_format="avro").compatible
    for value_format in ("json", "avro-confluent"):
        assert check(moved, [first], value_format=value_format).compatible


@pytest.mark.parametrize(
    ("olds", "new", "reason"),
    [
        (["string a = 1; int64 n = 2;", "int64 n = 2;"], "int64 n = 2; string b = 1;",
         "number 1, which is a in schema 1"),
        (["string a = 1; int64 n = 2;", "int64 n = 2;"], "int64 n = 2; string a = 3;", "number 3, but 1 in schema 1"),
        (["int64 n = 2; reserved 9;", "int64 n = 2;"], "int64 n = 2; string a = 9;", "which schema 1 reserves"),
        (["enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; } E e = 1;"], "enum E { A = 0; C = 1; } E e = 1;",
         "is C, but B in schema 1"),
        (["message N { string a = 1; } N n = 1; int64 k = 2;", "int64 k = 2;"],
         "message N { string b = 1; } N n = 1; int64 k = 2;", "field n.b: number 1, which is a in schema 1"),
    ],
)  # fmt: skip
def test_a_number_is_kept_for_ever_whatever_came_between(olds, new, reason):
    verdict = check(schema_of(new), [schema_of(each) for each in olds])
    assert reason in str(verdict)
    assert len(verdict.reasons) == 1


def test_a_symbol_that_was_left_out_once_must_still_be_read():
    first, second = one(enum("A", "B", default="A")), one(enum("A", default="A"))
    without = one(enum("A"))
    assert not check(value_schema(without), [value_schema(first), value_schema(second)]).compatible


NEXT = {"name": "y", "type": optional("int"), "default": None}
HISTORIES = [  # two schemas of which today's check refuses the second, and a third that goes on with it
    ("numbers swapped", [schema_of("string a = 1; string b = 2;"), schema_of("string a = 2; string b = 1;")],
     schema_of("string a = 2; string b = 1; string c = 3;"), schema_of("string a = 4; string b = 1;")),
    ("value renamed", [schema_of("enum E { A = 0; } E e = 1;"), schema_of("enum E { B = 0; } E e = 1;")],
     schema_of("enum E { B = 0; C = 1; } E e = 1;"), schema_of("enum E { C = 0; } E e = 1;")),
    ("fixed shrinks", [value_schema(one(fixed(2))), value_schema(one(fixed(1)))],
     value_schema(record(N, ("x", fixed(1)), NEXT)), value_schema(one(fixed(3)))),
    ("string to enumeration", [value_schema(one("string")), value_schema(one(enum("A")))],
     value_schema(record(N, ("x", enum("A")), NEXT)), value_schema(one("string"))),
    ("symbol removed", [value_schema(one(enum("A", "B"))), value_schema(one(enum("A")))],
     value_schema(record(N, ("x", enum("A")), NEXT)), value_schema(one(enum("C")))),
    ("record renamed", [value_schema(one("int")), value_schema({**one("int"), "name": "S"})],
     value_schema({**one("int", doc="d"), "name": "S"}), value_schema({**one("int"), "name": "T"})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("olds", "third", "worse"), [case[1:] for case in HISTORIES], ids=[case[0] for case in HISTORIES]
)
@pytest.mark.parametrize("mode", ["BACKWARD", "FULL", "FULL_TRANSITIVE"])
def test_what_was_allowed_once_hinders_no_later_schema(olds, third, worse, mode):
    assert not check(olds[1], olds[:1]).compatible
    assert check(third, olds, mode).compatible
    assert check(olds[1], olds, mode).compatible
    assert not check(worse, olds, mode).compatible
