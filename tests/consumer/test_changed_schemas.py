"""What was accepted stays readable by every consumer, natively and by the wire: after a change that is compatible, and
in topics whose history has one that an earlier version allowed."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.errors import InvalidConfigurationError, RecordDeserializationError
from sparklog.log.value_schemas import TopicSchemas
from sparklog.schemas import Verdict, value_schema
from tests.gateway.test_server import Wire, fetched, fetching, values
from tests.schemas.messages import message_of_schema, schema_of

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

TP = TopicPartition("jobs", 0)


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": [*symbols], **more}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "e", "type": kind}, {"name": "n", "type": "long"}]}


@pytest.fixture
def cluster():
    return f"memory://changed-{uuid.uuid4().hex}"


def create(cluster: str, schema: Any, value_format: str, **config: str) -> None:
    config = {"value.format": value_format, **{name.replace("_", "."): value for name, value in config.items()}}
    Admin(cluster).create_topics([NewTopic("jobs", 1, value_schema=schema, topic_configs=config)])


def change(cluster: str, schema: Any, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Let a topic have a schema; with ``monkeypatch`` as an earlier version did, which didn't look at some changes."""
    if monkeypatch is None:
        Admin(cluster).alter_value_schema("jobs", schema)
        return
    with pytest.raises(InvalidConfigurationError, match="isn't compatible"):
        Admin(cluster).alter_value_schema("jobs", schema)
    with monkeypatch.context() as context:
        context.setattr(TopicSchemas, "verdict", lambda *_: Verdict(True))
        Admin(cluster).alter_value_schema("jobs", schema)


def send(cluster: str, *rows: Any) -> None:
    with Producer(cluster) as producer:
        for row in rows:
            producer.send("jobs", row)


def read(cluster: str, **options: Any) -> list[Any]:
    """The values that a native consumer is given."""
    with Consumer(cluster=cluster, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TP])
        found: list[Any] = []
        while consumer.position(TP) < consumer.end_offsets([TP])[TP]:
            found += [record.value for some in consumer.poll(2_000).values() for record in some]
        return found


def fetch(cluster: str) -> list[bytes]:
    """The values that a client of Kafka is given."""
    with sparklog.gateway.serve(cluster) as servers:
        wire = Wire(servers)
        answer = fetched(wire.call("Fetch", 11, fetching(0)))
        wire.close()
    assert answer["error_code"] == 0
    return list(values(answer["records"]))


def of_avro(raw: bytes, *schemas: Any) -> Any:
    """A value, by the schema whose id is in its frame."""
    assert raw[:1] == b"\0"
    schema = schemas[int.from_bytes(raw[1:5], "big") - 1]
    return fastavro.schemaless_reader(io.BytesIO(raw[5:]), fastavro.parse_schema(schema))


@pytest.mark.parametrize("kind", ["plain", "union", "list", "map", "record"])
def test_a_symbol_that_was_taken_away_is_the_default(cluster, kind):
    def made(inner: Any) -> Any:
        return record({
            "plain": inner,
            "union": ["null", inner],
            "list": {"type": "array", "items": ["null", inner]},
            "map": {"type": "map", "values": inner},
            "record": {"type": "record", "name": "I", "fields": [
                {"name": "i", "type": inner}, {"name": "j", "type": "E"}]},
        }[kind])  # fmt: skip

    def value(symbol: str) -> Any:
        inner = {"list": [symbol, None], "map": {"k": symbol}, "record": {"i": symbol, "j": symbol}}
        return {"e": inner.get(kind, symbol), "n": 1}

    old, new = made(enum("U", "A", "B")), made(enum("U", "A", default="U"))
    create(cluster, value_schema(old), "avro-confluent")
    send(cluster, value("B"), value("A"))
    change(cluster, value_schema(new))
    send(cluster, value("A"))
    for raws in (read(cluster), fetch(cluster)):
        assert [of_avro(raw, old, new) for raw in raws] == [value("U"), value("A"), value("A")]
        assert {raw[4] for raw in raws} == {2}
    assert [row["e"] for row in read(cluster, value_format="python")] == [value(each)["e"] for each in "BAA"]


def test_a_symbol_that_was_added_is_the_default_of_readers_of_before(cluster):
    old, new = record(enum("U", "A", default="U")), record(enum("U", "A", "B", default="U"))
    create(cluster, value_schema(old), "avro-confluent", value_compatibility="FULL")
    change(cluster, value_schema(new))
    send(cluster, {"e": "B", "n": 1}, {"e": "A", "n": 2})
    assert [of_avro(raw, old, new)["e"] for raw in read(cluster, value_schema_id=1)] == ["U", "A"]
    assert [of_avro(raw, old, new)["e"] for raw in read(cluster)] == ["B", "A"]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("int", 5, 5),
        ("bytes", "\u00ff", b"\xff"),
        (fixed(2), "ab", b"ab"),
        (enum("A", "B"), "B", "B"),
        ({"type": "array", "items": "bytes"}, ["\u00fe"], [b"\xfe"]),
        ({"type": "map", "values": "int"}, {"k": 1}, {"k": 1}),
        ({"type": "record", "name": "I", "fields": [{"name": "b", "type": "bytes"}]}, {"b": "\u0001"}, {"b": b"\x01"}),
        (["int", "null"], 7, None),
    ],
)
def test_readers_of_before_have_their_default_for_a_field_that_was_left_out(cluster, kind, default, value):
    fields = [{"name": "n", "type": "long"}, {"name": "x", "type": kind, "default": default}]
    old, new = ({"type": "record", "name": "R", "fields": each} for each in (fields, fields[:1]))
    create(cluster, value_schema(old), "avro-confluent", value_compatibility="FULL")
    change(cluster, value_schema(new))
    send(cluster, {"n": 1})
    [raw] = read(cluster, value_schema_id=1)
    assert of_avro(raw, old) == {"n": 1, "x": value}


HISTORIES = [
    ("symbol removed", enum("A", "B"), enum("A"), "B", "A"),
    ("symbol renamed", enum("NEW", "PAID"), enum("CREATED", "PAID"), "NEW", "PAID"),
    ("fixed shrinks", fixed(2), fixed(1), b"ab", b"c"),
    ("bytes become fixed", "bytes", fixed(2), b"abc", b"ab"),
    ("string becomes an enumeration", "string", enum("A"), "whatever", "A"),
]


@pytest.mark.parametrize(("old", "new", "first", "second"), [each[1:] for each in HISTORIES])
def test_a_history_of_before_is_read_by_the_schema_in_the_frame(cluster, monkeypatch, old, new, first, second):
    """✗ Each record of before was an error, and no client of Kafka's read beyond the first."""
    old, new = record(old), record(new)
    create(cluster, value_schema(old), "avro-confluent")
    send(cluster, {"e": first, "n": 1}, {"e": first, "n": 2})
    change(cluster, value_schema(new), monkeypatch)
    send(cluster, {"e": second, "n": 3})
    wanted = [{"e": first, "n": 1}, {"e": first, "n": 2}, {"e": second, "n": 3}]
    for raws in (read(cluster), fetch(cluster)):
        assert [of_avro(raw, old, new) for raw in raws] == wanted
        assert [raw[4] for raw in raws] == [1, 1, 2]
    assert read(cluster, value_format="python") == wanted
    wider = {**new, "fields": [*new["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}
    change(cluster, value_schema(wider))
    send(cluster, {"e": second, "n": 4, "more": 5})
    assert [of_avro(raw, old, new, wider)["n"] for raw in read(cluster)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("old", "new", "first", "second"), [each[1:] for each in HISTORIES if each[0] != "symbol renamed"]
)
def test_a_history_of_before_stops_nobody_without_a_frame(cluster, monkeypatch, old, new, first, second):
    """The bytes are those that were sent; a reader by the newest schema finds no value in them."""
    old, new = record(old), record(new)
    create(cluster, value_schema(old), "avro")
    send(cluster, {"e": first, "n": 1})
    change(cluster, value_schema(new), monkeypatch)
    send(cluster, {"e": second, "n": 3})
    for raws in (read(cluster), fetch(cluster)):
        assert fastavro.schemaless_reader(io.BytesIO(raws[0]), fastavro.parse_schema(old)) == {"e": first, "n": 1}
        assert fastavro.schemaless_reader(io.BytesIO(raws[1]), fastavro.parse_schema(new)) == {"e": second, "n": 3}


def test_a_symbol_that_was_renamed_is_no_other_symbol_without_a_frame(cluster, monkeypatch):
    """The place of the old symbol is that of a new one: bytes of it would be read as that."""
    create(cluster, value_schema(record(enum("NEW", "PAID"))), "avro")
    send(cluster, {"e": "NEW", "n": 1}, {"e": "PAID", "n": 2})
    change(cluster, value_schema(record(enum("CREATED", "PAID"))), monkeypatch)
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        with pytest.raises(RecordDeserializationError, match="'NEW' is not in list"):
            consumer.poll(2_000)
        consumer.seek(TP, 1)
        assert [record.offset for some in consumer.poll(2_000).values() for record in some] == [1]
    assert [row["e"] for row in read(cluster, value_format="python")] == ["NEW", "PAID"]


MESSAGE_HISTORIES = [  # syntax, old, new, what becomes of B, was it ever allowed
    ("proto3", "enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; C = 1; } E e = 1;", False),
    ("proto3", "enum E { A = 0; B = 1; } E e = 1;", "enum E { A = 0; } E e = 1;", True),
    ("proto3", "enum E { A = 0; B = -1; } E e = 1;", "enum E { A = 0; } E e = 1;", True),
    ("proto3", "enum E { A = 0; B = 1; } repeated E e = 1;", "enum E { A = 0; } repeated E e = 1;", True),
    ("proto3", "enum E { A = 0; B = 1; } map<string, E> e = 1;", "enum E { A = 0; } map<string, E> e = 1;", True),
    ("proto3", "message N { enum E { A = 0; B = 1; } E e = 1; } N e = 1;",
     "message N { enum E { A = 0; } E e = 1; } N e = 1;", True),
    ("proto2", "enum E { A = 0; B = 1; } optional E e = 1;", "enum E { A = 0; } optional E e = 1;", True),
    ("proto2", "enum E { A = 0; B = 1; } repeated E e = 1;", "enum E { A = 0; } repeated E e = 1;", True),
    ("proto2", "enum E { A = 0; B = 1; } map<string, E> e = 1;", "enum E { A = 0; } map<string, E> e = 1;", True),
]  # fmt: skip


@pytest.mark.parametrize("value_format", ["protobuf", "protobuf-confluent"])
@pytest.mark.parametrize(("syntax", "old", "new", "is_allowed"), MESSAGE_HISTORIES)
def test_a_name_that_the_message_no_longer_has_is_its_number(
    cluster, monkeypatch, syntax, old, new, is_allowed, value_format
):
    """✗ Consumers of bytes got ``invalid literal for int()``."""
    first, second = schema_of(old, syntax), schema_of(new, syntax)

    def value(name: str) -> Any:
        return {"e": {"k": name} if "map<" in old else ["A", name] if "repeated" in old else inner(name)}

    def inner(name: str) -> Any:
        return {"e": name} if "message" in old else name

    create(cluster, first, value_format)
    send(cluster, value("B"))
    [before] = read(cluster)
    change(cluster, second, None if is_allowed else monkeypatch)
    send(cluster, value("A"))
    framing = 6 if "confluent" in value_format else 0
    for raws in (read(cluster), fetch(cluster)):
        assert len(raws) == 2
        parsed = message_of_schema(first).FromString(raws[0][framing:])
        assert parsed == message_of_schema(first).FromString(before[framing:])
        assert framing == 0 or raws[0][4] == 2


def test_numbers_that_were_swapped_once_are_read_by_columns(cluster, monkeypatch):
    first, second = schema_of("string a = 1; string b = 2;"), schema_of("string a = 2; string b = 1;")
    create(cluster, first, "protobuf")
    send(cluster, {"a": "x", "b": "y"})
    change(cluster, second, monkeypatch)
    send(cluster, {"a": "v", "b": "w"})
    third = schema_of("string a = 2; string b = 1; int64 c = 3;")
    change(cluster, third)
    assert read(cluster, value_format="python") == [{"a": "x", "b": "y", "c": None}, {"a": "v", "b": "w", "c": None}]
    assert [message_of_schema(third).FromString(raw).a for raw in read(cluster)] == ["x", "v"]


def test_bytes_that_are_kept_are_given_where_the_reader_s_schema_reads_them(cluster):
    """✗ Avro without a frame was given as it was sent, whatever the newest schema read in it."""
    old = record("string")
    new = {**old, "fields": [*old["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}
    create(cluster, value_schema(old), "avro", value_bytes="keep")

    def written(schema: Any, row: Any) -> bytes:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(schema), row)
        return target.getvalue()

    send(cluster, written(old, {"e": "a", "n": 1}))
    change(cluster, value_schema(new))
    send(cluster, written(new, {"e": "b", "n": 2, "more": 3}))
    wanted = [{"e": "a", "n": 1, "more": None}, {"e": "b", "n": 2, "more": 3}]
    for raws in (read(cluster), fetch(cluster)):
        assert [fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(new)) for raw in raws] == wanted
    older = [
        fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(old))
        for raw in read(cluster, value_schema_id=1)
    ]
    assert older == [{"e": "a", "n": 1}, {"e": "b", "n": 2}]


def test_bytes_of_a_producer_of_before_are_never_other_fields(cluster):
    """✗ 100 landed in ``credit`` in place of ``debit``."""
    first = schema_of("string debit = 1; string credit = 2;")
    create(cluster, first, "protobuf")
    raw = message_of_schema(first)(debit="100", credit="7").SerializeToString()
    for text in ("string debit = 2; string credit = 1;", "string fee = 1; string credit = 2;", "string debit = 3;"):
        with pytest.raises(InvalidConfigurationError, match="number"):
            change(cluster, schema_of(text))
        assert not Admin(cluster).check_value_schema("jobs", schema_of(text)).compatible
    send(cluster, raw)
    assert read(cluster, value_format="python") == [{"debit": "100", "credit": "7"}]


def test_avro_without_a_frame_keeps_the_order_of_its_fields(cluster):
    """✗ Bytes of a producer of before were read as other values."""
    create(cluster, value_schema(record("long")), "avro")
    moved = {**record("long"), "fields": record("long")["fields"][::-1]}
    with pytest.raises(InvalidConfigurationError, match="bytes of avro don't tell their schema"):
        change(cluster, value_schema(moved))
    assert "value.format=avro-confluent" in str(Admin(cluster).check_value_schema("jobs", value_schema(moved)))
    Admin(cluster).alter_configs({"jobs": {"value.format": "avro-confluent"}})
    change(cluster, value_schema(moved))
