"""Values that were written by one schema and are read by another that may follow it, for any two schemas of Avro,
Protobuf and JSON Schema: equal, or the default, never an error, never another field's value."""

from __future__ import annotations

import copy
import decimal
import io
import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.log.data.value_columns import conform_values
from sparklog.log.typed_records import ValueReading
from sparklog.log.value_bytes import ValueBytes
from sparklog.log.value_schemas import TopicSchemas
from sparklog.schemas import (
    SchemaError,
    ValueSchema,
    check,
    decode,
    encode,
    python_rows_to_struct,
    struct_to_python,
    unmet_demands,
)
from sparklog.schemas import value_schema as schema_from
from sparklog.schemas.protobuf_schema import descriptor_of, is_map, is_repeated, message_class
from tests.depth import by_depth
from tests.schemas.messages import schema_of

pytest.importorskip("google.protobuf")
fastavro = pytest.importorskip("fastavro")

SEEDS = range(by_depth(gate=60, nightly=2_000))
NAMES = "abcdef"


class Drawn:
    """Random schemas of a language, random changes of them, and random values."""

    def __init__(self, seed: Any) -> None:
        self.random = random.Random(seed)

    def zeros(self, found: Any) -> frozenset[str]:
        """The names that stand for 0 in a schema."""
        return frozenset()

    def some(self, most: int = 3) -> int:
        return self.random.randint(0, most)

    def chance(self, part: float) -> bool:
        return self.random.random() < part


class AvroSchemas(Drawn):
    """Avro records as Python objects, with every kind of type, default and alias."""

    language = "avro"

    def schema(self) -> dict[str, Any]:
        self.count = 0
        return self.record("R", 2)

    def made(self, found: dict[str, Any]) -> ValueSchema:
        return schema_from(found)

    def name(self) -> str:
        self.count += 1
        return f"T{self.count}"

    def record(self, name: str, depth: int) -> dict[str, Any]:
        names = self.random.sample(NAMES, 1 + self.some())
        return {"type": "record", "name": name, "fields": [self.field(each, depth) for each in names]}

    def field(self, name: str, depth: int) -> dict[str, Any]:
        kind = self.kind(depth)
        field: dict[str, Any] = {"name": name, "type": kind}
        if self.chance(0.5):
            field["type"] = ["null", kind]
            if self.chance(0.7):
                field["default"] = None
        elif kind == "int" and self.chance(0.5):
            field["default"] = 7
        if self.chance(0.1):
            field["aliases"] = [self.random.choice(NAMES)]
        return field

    def kind(self, depth: int) -> Any:
        plain = ["int", "long", "double", "string", "bytes", "boolean", "enum", "fixed", "micros", "millis", "decimal"]
        word = self.random.choice([*plain, *(["record", "array", "map"] if depth else [])])
        if word == "enum":
            symbols = self.random.sample("ABCDE", 1 + self.some())
            more = {"default": self.random.choice(symbols)} if self.chance(0.5) else {}
            return {"type": "enum", "name": self.name(), "symbols": symbols, **more}
        if word == "fixed":
            return {"type": "fixed", "name": self.name(), "size": 1 + self.some(2)}
        if word in ("micros", "millis"):
            return {"type": "long", "logicalType": f"timestamp-{word}"}
        if word == "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": self.some(2)}
        if word == "record":
            return self.record(self.name(), depth - 1)
        if word in ("array", "map"):
            element = self.kind(depth - 1)
            element = ["null", element] if self.chance(0.3) else element
            return {"type": word, "items" if word == "array" else "values": element}
        return word

    def changed(self, found: dict[str, Any]) -> dict[str, Any]:
        new = copy.deepcopy(found)
        for _ in range(1 + self.some(2)):
            self.change(self.random.choice([*self.parts(new)]))
        return new

    def parts(self, kind: Any) -> list[Any]:
        if isinstance(kind, list):
            return [part for each in kind for part in self.parts(each)]
        if not isinstance(kind, dict):
            return []
        inner = [each["type"] for each in kind.get("fields", ())]
        inner += [kind[word] for word in ("items", "values") if word in kind]
        return [kind, *(part for each in inner for part in self.parts(each))]

    def change(self, kind: dict[str, Any]) -> None:
        if kind["type"] == "record":
            self.change_fields(kind["fields"])
        elif kind["type"] == "enum":
            if self.chance(0.5) and len(kind["symbols"]) > 1:
                kind["symbols"].remove(self.random.choice(kind["symbols"]))
            else:
                kind["symbols"] += [each for each in "ABCDE" if each not in kind["symbols"]][:1]
            self.random.shuffle(kind["symbols"])
            kind.pop("default", None)
            if self.chance(0.5):
                kind["default"] = self.random.choice(kind["symbols"])
        elif kind["type"] == "fixed":
            kind["size"] = 1 + self.some(2)
        elif str(kind.get("logicalType", "")).startswith("timestamp"):
            kind["logicalType"] = self.random.choice(["timestamp-micros", "timestamp-millis"])

    def change_fields(self, fields: list[Any]) -> None:
        at = self.random.randrange(len(fields))
        field = fields[at]
        word = self.random.choice(["leave", "add", "null", "kind", "move", "default", "alias", "name"])
        free = [each for each in NAMES if each not in [one["name"] for one in fields]]
        if word == "leave" and len(fields) > 1:
            fields.pop(at)
        elif word == "add" and free:
            fields.insert(self.random.randint(0, len(fields)), self.field(self.random.choice(free), 0))
        elif word == "null":
            is_union = isinstance(field["type"], list)
            field["type"] = field["type"][1] if is_union else ["null", field["type"]]
            field.pop("default", None)
        elif word == "kind":
            field["type"] = self.kind(0)
            field.pop("default", None)
        elif word == "move":
            self.random.shuffle(fields)
        elif word == "alias":
            field["aliases"] = [self.random.choice(NAMES)]
        elif word == "name" and free:
            field["name"] = self.random.choice(free)
        elif field["type"] == "int":
            field["default"] = 5

    def value(self, found: dict[str, Any]) -> Any:
        return self.of_kind(found, {})

    def of_kind(self, kind: Any, names: dict[str, Any]) -> Any:
        if isinstance(kind, list):
            return None if self.chance(0.3) else self.of_kind(kind[1], names)
        if isinstance(kind, str):
            return _plain(self.random, kind)
        word = kind.get("logicalType") or kind["type"]
        if word == "record":
            return {each["name"]: self.of_kind(each["type"], names) for each in kind["fields"]}
        if word == "enum":
            return self.random.choice(kind["symbols"])
        if word == "fixed":
            return self.random.randbytes(kind["size"])
        if word == "array":
            return [self.of_kind(kind["items"], names) for _ in range(self.some(2))]
        if word == "map":
            return {each: self.of_kind(kind["values"], names) for each in self.random.sample("xyz", self.some(2))}
        if word == "decimal":
            return decimal.Decimal(self.random.randint(-(10**8), 10**8)).scaleb(-kind["scale"])
        milliseconds = self.random.randint(-(10**12), 10**13)
        return _moment(milliseconds * 1000 + (self.some(999) if word == "timestamp-micros" else 0))

    def agrees(self, writer: Any, reader: Any, row: Any, raw: bytes) -> bool:
        """Is what we give the same as what Avro's own resolution makes of the writer's bytes?"""
        target = io.BytesIO()
        old, new = (fastavro.parse_schema(copy.deepcopy(each)) for each in (writer, _nullable(reader)))
        fastavro.schemaless_writer(target, old, row)
        target.seek(0)
        return bool(fastavro.schemaless_reader(target, old, new) == fastavro.schemaless_reader(io.BytesIO(raw), new))

    @staticmethod
    def is_default(value: Any, found: Any) -> bool:
        """Values are stored as they were written."""
        return False


def _nullable(kind: Any) -> Any:
    """A schema in which null is the default of all fields that may be null, as it is in a topic."""
    if isinstance(kind, list):
        return [_nullable(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    found = {name: _nullable(each) if name in ("type", "items", "values") else each for name, each in kind.items()}
    if "fields" in kind:
        found["fields"] = [
            {**({"default": None} if isinstance(each["type"], list) else {}), **_nullable(each)}
            for each in kind["fields"]
        ]
    return found


def _moment(microseconds: int) -> Any:
    return pa.scalar(microseconds, pa.timestamp("us", "UTC")).as_py()


def _plain(draw: random.Random, kind: str) -> Any:
    if kind == "int":
        return draw.choice([0, 1, -1, 2**31 - 1, -(2**31)])
    if kind == "long":
        return draw.choice([0, 1, -1, 2**63 - 1, -(2**63), 300])
    if kind == "double":
        return draw.choice([0.0, 1.5, -2.25, 1e300])
    if kind == "boolean":
        return draw.choice([True, False])
    text = draw.choice(["", "a", "\u00e9\u00e9", "longer text"])
    return text.encode() if kind == "bytes" else text


class ProtobufSchemas(Drawn):
    """Messages as lists of fields: (name, number, label, type), a type being a word, an enumeration or a message."""

    language = "protobuf"
    SCALARS = (
        "int32",
        "sint32",
        "sfixed32",
        "int64",
        "uint32",
        "fixed32",
        "sint64",
        "uint64",
        "string",
        "bytes",
        "bool",
    )

    def schema(self) -> list[Any]:
        return self.message(2)

    def zeros(self, found: list[Any]) -> frozenset[str]:
        enums = [(name, kind) for name, _, _, kind in found if isinstance(kind, dict)]
        names = frozenset(f"{name.upper()}_{each}" for name, kind in enums for each in kind if kind[each] == 0)
        return names.union(*(self.zeros(kind) for _, _, _, kind in found if isinstance(kind, list)))

    def message(self, depth: int) -> list[Any]:
        names = self.random.sample(NAMES, 1 + self.some())
        numbers = self.random.sample(range(1, 8), len(names))
        return [self.field(name, number, depth) for name, number in zip(names, numbers, strict=True)]

    def field(self, name: str, number: int, depth: int) -> list[Any]:
        return [name, number, self.random.choice(["", "optional", "repeated", "map", "oneof"]), self.kind(depth)]

    def kind(self, depth: int) -> Any:
        if self.chance(0.25):
            return {name: number for number, name in enumerate(self.random.sample("ABCDE", 2 + self.some(2)))}
        if depth and self.chance(0.3):
            return self.message(depth - 1)
        return self.random.choice(self.SCALARS)

    def made(self, found: list[Any]) -> ValueSchema:
        made: ValueSchema = schema_of(self.text(found))
        return made

    def text(self, fields: list[Any]) -> str:
        parts, together = [], []
        for name, number, label, kind in fields:
            word = kind if isinstance(kind, str) else f"T{name}"
            if isinstance(kind, dict):
                values = sorted(kind.items(), key=lambda each: each[1] != 0)
                named = " ".join(f"{name.upper()}_{each} = {at};" for each, at in values)
                parts.append(f"enum {word} {{ {named} }}")
            elif isinstance(kind, list):
                parts.append(f"message {word} {{ {self.text(kind)} }}")
            if label == "oneof":
                together.append(f"{word} {name} = {number};")
            else:
                label = "map<string, " if label == "map" else f"{label} "
                parts.append(f"{label}{word}{'>' if label.startswith('map') else ''} {name} = {number};")
        return " ".join([*parts, *(["oneof o {", *together, "}"] if together else [])])

    def changed(self, found: list[Any]) -> list[Any]:
        new = copy.deepcopy(found)
        for _ in range(1 + self.some(2)):
            self.change(new)
        return new

    def change(self, fields: list[Any]) -> None:
        at = self.random.randrange(len(fields))
        _, number, _, kind = field = fields[at]
        if not isinstance(kind, str) and self.chance(0.6):
            self.change_kind(kind)
            return
        free = [each for each in NAMES if each not in [one[0] for one in fields]]
        numbers = [each for each in range(1, 8) if each not in [one[1] for one in fields]]
        word = self.random.choice(["leave", "add", "name", "number", "swap", "label", "kind"])
        if word == "leave" and len(fields) > 1:
            fields.pop(at)
        elif word == "add" and free:
            fields.append(self.field(self.random.choice(free), self.random.choice(numbers), 0))
        elif word == "name" and free:
            field[0] = self.random.choice(free)
        elif word == "number":
            field[1] = self.random.choice(numbers)
        elif word == "swap":
            other = fields[at - 1]
            field[1], other[1] = other[1], number
        elif word == "label":
            field[2] = self.random.choice(["", "optional", "repeated", "map", "oneof"])
        else:
            field[3] = self.kind(0)

    def change_kind(self, kind: Any) -> None:
        if isinstance(kind, list):
            self.change(kind)
            return
        values = [*kind]
        word = self.random.choice(["leave", "add", "rename", "swap"])
        if word == "leave" and len(values) > 1:
            del kind[self.random.choice([each for each in values if kind[each]])]
        elif word == "add":
            kind[next(each for each in "ABCDEF" if each not in kind)] = max(kind.values()) + 1
        elif word == "rename" and "G" not in kind:
            kind["G"] = kind.pop(self.random.choice(values))
        elif word == "swap":
            one, other = self.random.choice(values), self.random.choice(values)
            kind[one], kind[other] = kind[other], kind[one]

    def value(self, found: list[Any]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        set_in_oneof = self.random.choice([each[0] for each in found if each[2] == "oneof"] or [""])
        for name, _, label, kind in found:
            if label == "oneof" and name != set_in_oneof:
                continue
            if label == "repeated":
                row[name] = [self.of_kind(name, kind) for _ in range(self.some(2))]
            elif label == "map":
                row[name] = {key: self.of_kind(name, kind) for key in self.random.sample("xyz", self.some(2))}
            elif label == "" or self.chance(0.7):
                row[name] = self.of_kind(name, kind)
        return row

    def of_kind(self, name: str, kind: Any) -> Any:
        if isinstance(kind, dict):
            return f"{name.upper()}_{self.random.choice([*kind])}"
        if isinstance(kind, list):
            return self.value(kind)
        if kind == "uint64":
            return decimal.Decimal(self.random.choice([0, 1, 2**64 - 1]))
        if kind in ("uint32", "fixed32"):
            return self.random.choice([0, 1, 2**32 - 1])
        plain = {"bool": "boolean", "string": "string", "bytes": "bytes"}
        return _plain(self.random, plain.get(kind, "int" if kind.endswith("32") else "long"))

    def agrees(self, writer: Any, reader: Any, row: Any, raw: bytes) -> bool:
        """Is what we give the same as what Protobuf's own library makes of the writer's bytes?"""
        old, new = self.made(writer), self.made(reader)
        column, _ = python_rows_to_struct(old, [row])
        [sent] = encode("protobuf", old, column).to_pylist()
        parse = message_class(descriptor_of(new)).FromString
        return _same_message(parse(sent), parse(raw))

    @staticmethod
    def is_default(value: Any, found: Any) -> bool:
        """A name that the reader doesn't have is its number; a plain field of proto3 isn't written where it is 0, and
        is null for a reader that has it as ``optional``."""
        return (isinstance(value, str) and str(found).isdigit()) or (found is None and not value)


def _same_message(one: Any, other: Any) -> bool:
    """Whether fields are set isn't compared: one without presence, which isn't written where it is 0, may get some."""
    for field in one.DESCRIPTOR.fields:
        values = getattr(one, field.name), getattr(other, field.name)
        if field.message_type is None:
            if values[0] != values[1]:
                return False
        elif is_map(field):
            kind = field.message_type.fields_by_name["value"].message_type
            if {*values[0]} != {*values[1]}:
                return False
            if any(not _same(values[0][key], values[1][key], kind) for key in values[0]):
                return False
        elif is_repeated(field):
            if len(values[0]) != len(values[1]) or not all(map(_same_message, *values)):
                return False
        elif not _same_message(*values):
            return False
    return True


def _same(one: Any, other: Any, kind: Any) -> bool:
    return one == other if kind is None else _same_message(one, other)


class JsonSchemas(Drawn):
    """JSON Schemas as Python objects."""

    language = "json"

    def schema(self) -> dict[str, Any]:
        return self.object(2)

    def made(self, found: dict[str, Any]) -> ValueSchema:
        return schema_from(found)

    def object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(NAMES, 1 + self.some())
        return {"type": "object", "properties": {name: self.kind(depth) for name in names}}

    def kind(self, depth: int) -> dict[str, Any]:
        word = self.random.choice(
            ["integer", "number", "string", "boolean", "date-time", *["object", "array", "map"][: 3 * depth]]
        )
        if word == "object":
            return self.object(depth - 1)
        if word == "array":
            return {"type": "array", "items": self.kind(depth - 1)}
        if word == "map":
            return {"type": "object", "additionalProperties": self.kind(depth - 1)}
        found: dict[str, Any] = {"type": "string", "format": word} if word == "date-time" else {"type": word}
        if self.chance(0.2):
            found = self.random.choice([{"anyOf": [found, {"const": None}]}, {"allOf": [found]}])
        if self.chance(0.05):
            found["default"] = "x"
        return found

    def changed(self, found: dict[str, Any]) -> dict[str, Any]:
        new = copy.deepcopy(found)
        for _ in range(1 + self.some(2)):
            self.change(new["properties"])
        return new

    def change(self, properties: dict[str, Any]) -> None:
        name = self.random.choice([*properties])
        inner = properties[name].get("properties")
        if inner and self.chance(0.6):
            self.change(inner)
        elif self.chance(0.4) and len(properties) > 1:
            del properties[name]
        else:
            properties[self.random.choice(NAMES)] = self.kind(1)

    def value(self, found: dict[str, Any]) -> Any:
        if self.chance(0.15):
            return None
        for word in ("anyOf", "allOf"):
            if word in found:
                return self.value(found[word][0])
        if "properties" in found:
            return {name: self.value(each) for name, each in found["properties"].items()}
        if "items" in found:
            return [self.value(found["items"]) for _ in range(self.some(2))]
        if "additionalProperties" in found:
            return {each: self.value(found["additionalProperties"]) for each in self.random.sample("xyz", self.some(2))}
        if "format" in found:
            return _moment(self.random.randint(-(10**15), 10**15))
        return _plain(self.random, {"integer": "long", "number": "double"}.get(found["type"], found["type"]))

    def agrees(self, writer: Any, reader: Any, row: Any, raw: bytes) -> bool:
        """JSON has its names in itself: fields that the reader lacks are left out, those that are null, too."""
        column, errors = decode("json", self.made(reader), pa.array([raw]))
        [found] = struct_to_python(column)
        return errors == {} and is_as_written(row, found, self.is_default)

    @staticmethod
    def is_default(value: Any, found: Any) -> bool:
        """There are no defaults."""
        return False


def head_of(schemas: list[ValueSchema], value_format: str) -> Any:
    """What a reading asks of a topic that has had these schemas, whatever their order was allowed by."""
    texts = [TopicSchemas.of(each) for each in schemas]
    sources = tuple(each.sources[0] if each.sources else "" for each in texts)
    found = TopicSchemas(tuple(each.texts[0] for each in texts), sources)

    return SimpleNamespace(schemas=found, config={"value.format": value_format})


def stored(schemas: list[ValueSchema], value_format: str, by: int, rows: list[Any]) -> pa.RecordBatch:
    """Records of a table, that were written by one of the schemas."""
    column, errors = python_rows_to_struct(schemas[by - 1], rows)
    assert errors == {}
    assert unmet_demands(schemas[by - 1], column) == {}
    physical = head_of(schemas, value_format).schemas.physical
    return pa.record_batch({"value": pa.nulls(len(rows), pa.binary()), "data": conform_values(column, physical)})


def read(schemas: list[ValueSchema], value_format: str, by: int, records: pa.RecordBatch) -> list[bytes]:
    """The bytes that a consumer of bytes is given."""
    reading = ValueReading.of(head_of(schemas, value_format), by)
    assert reading is not None
    return list(reading.as_bytes(records).column("value").to_pylist())


def is_as_written(
    value: Any,
    found: Any,
    is_default: Any,
    zeros: frozenset[str] = frozenset(),
    sent_zeros: frozenset[str] = frozenset(),
) -> bool:
    """Is a value that was read the one that was written, with nothing for fields that the writer lacks, or the names of
    ``zeros``, and without those that the reader lacks? The names of ``sent_zeros`` are 0 for the writer."""
    if isinstance(value, dict) and isinstance(found, dict):
        common = [name for name in value if name in found]
        others = [each for name, each in found.items() if name not in value]
        is_empty = not any(each and each not in zeros for each in others)
        return is_empty and all(
            is_as_written(value[name], found[name], is_default, zeros, sent_zeros) for name in common
        )
    if isinstance(value, list) and isinstance(found, list):
        both = zip(value, found, strict=True)
        return len(value) == len(found) and all(
            is_as_written(one, other, is_default, zeros, sent_zeros) for one, other in both
        )
    written = None if isinstance(value, str) and value in sent_zeros else value
    return bool(value == found) or bool(is_default(value, found)) or bool(is_default(written, found))


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("schemas", [AvroSchemas, ProtobufSchemas, JsonSchemas])
def test_values_of_one_schema_are_those_of_another_that_may_follow(schemas):
    followed = 0
    for seed in SEEDS:
        draw = schemas(f"{schemas.language} {seed}")
        source = draw.schema()
        changed = draw.changed(source)
        try:
            both = [draw.made(source), draw.made(changed)]
        except SchemaError:  # a random change that makes none
            continue
        for value_format in (f"{draw.language}-confluent", draw.language):
            for mode in ("BACKWARD", "FULL"):
                if check(both[1], both[:1], mode, value_format=value_format).compatible:
                    followed += 1
                    _check_readers(draw, source, changed, both, value_format, is_full=mode == "FULL")
    assert followed > len(SEEDS) / 3


def test_a_name_of_0_is_null_for_a_reader_with_presence():
    source, changed = [["b", 6, "", {"B": 0, "E": 1}]], [["b", 6, "oneof", {"B": 0}]]
    draw = ProtobufSchemas("names of 0")
    both = [draw.made(source), draw.made(changed)]
    assert check(both[1], both[:1], "BACKWARD", value_format="protobuf").compatible
    _check_readers(draw, source, changed, both, "protobuf", is_full=False)


def _check_readers(
    draw: Any, source: Any, changed: Any, both: list[ValueSchema], value_format: str, *, is_full: bool
) -> None:
    where = f"{value_format}, {'FULL' if is_full else 'BACKWARD'}: {source} -> {changed}"
    sent = [draw.value(source) or {} for _ in range(4)]
    _check_read(draw, source, changed, sent, read(both, value_format, 2, stored(both, value_format, 1, sent)), where)
    if is_full:
        rows = [draw.value(changed) or {} for _ in range(4)]
        _check_read(
            draw, changed, source, rows, read(both, value_format, 1, stored(both, value_format, 2, rows)), where
        )
    column, _ = python_rows_to_struct(both[0], sent)
    raws = ValueBytes(value_format, (both[0],)).encode(column, 1)  # by a producer that doesn't know the newer one
    found, errors = ValueBytes(value_format, tuple(both)).decode(raws, both[1].struct_type)
    for at, (row, value) in enumerate(zip(sent, struct_to_python(found), strict=True)):
        is_right = is_as_written(row, value, draw.is_default, draw.zeros(changed), draw.zeros(source))
        assert at in errors or is_right, f"{where}: sent {row}, stored {value}"


def _check_read(draw: Any, writer: Any, reader: Any, rows: list[Any], raws: list[bytes], where: str) -> None:
    framing = 0 if "-confluent" not in where else 6 if draw.language == "protobuf" else 5
    for row, raw in zip(rows, raws, strict=True):
        assert draw.agrees(writer, reader, row, raw[framing:]), f"{where}: {row} as {raw!r}"
