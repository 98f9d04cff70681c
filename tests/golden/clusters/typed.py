"""A golden cluster of typed topics, in each format."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from deltalake import write_deltalake

from sparklog import Admin, NewTopic, Producer
from sparklog.log import open_cluster
from sparklog.schemas import value_schema
from tests.schemas.messages import a_file, message_of

__all__ = ["write"]

ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("total", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string())])),
    ]
)
WIDER = pa.schema([*ARROW, ("note", pa.string())])
AVRO_FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "total", "type": "double"}]
AVRO = {"type": "record", "name": "Order", "fields": AVRO_FIELDS}
WIDER_AVRO = {**AVRO, "fields": [*AVRO_FIELDS, {"name": "note", "type": ["null", "string"], "default": None}]}


def write(root: Path) -> list[object]:
    """Topics of each format, each with a second schema."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        for value_format in ("json", "json-confluent"):
            _json(cluster, admin, value_format)
        for value_format in ("avro", "avro-confluent"):
            _avro(cluster, admin, value_format)
        for value_format in ("protobuf", "protobuf-confluent"):
            _protobuf(cluster, admin, value_format)
        _kept(cluster, admin)
        _of_others(root, cluster, admin)
        _became_typed(cluster, admin)
    return []


def _topic(admin: Admin, name: str, schema: Any, **configs: object) -> None:
    settings = {"retention.ms": -1, **{key.replace("_", "."): value for key, value in configs.items()}}
    admin.create_topics([NewTopic(name, 1, value_schema=schema, configs=settings)])


def _framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def _json(cluster: Any, admin: Admin, value_format: str) -> None:
    is_framed = value_format.endswith("confluent")
    _topic(admin, value_format, ARROW, value_format=value_format)
    row: dict[str, Any] = {"id": 1, "total": 1.5, "tags": ["a", None], "place": {"city": "Köln"}}
    with Producer(cluster) as producer:
        producer.send(value_format, row, b"k").get(60)
        as_bytes = json.dumps({"id": 2, "at": "2026-01-02T03:04:05.000006Z", "price": "12.34"}).encode()
        producer.send(value_format, _framed(1, as_bytes) if is_framed else as_bytes).get(60)
        producer.send(value_format, None, b"k").get(60)
        admin.alter_value_schema(value_format, WIDER)
        producer.send(value_format, {"id": 3, "note": "n"}).get(60)


def _avro(cluster: Any, admin: Admin, value_format: str) -> None:
    is_framed = value_format.endswith("confluent")

    def encoded(schema: Any, number: int, **row: Any) -> bytes:
        file = BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(schema), row)
        return _framed(number, file.getvalue()) if is_framed else file.getvalue()

    _topic(admin, value_format, value_schema(AVRO).with_registry_id(4_711), value_format=value_format)
    with Producer(cluster) as producer:
        producer.send(value_format, encoded(AVRO, 4_711, id=1, total=1.5)).get(60)
        admin.alter_value_schema(value_format, value_schema(WIDER_AVRO).with_registry_id(4_712))
        producer.send(value_format, {"id": 2, "total": 2.5, "note": None}).get(60)
        producer.send(value_format, encoded(WIDER_AVRO, 4_712, id=3, total=3.5, note="n")).get(60)


def _message(*names: str) -> Any:
    file = a_file("golden", package="golden")
    order = file.message_type.add(name="Order")
    for number, name in enumerate(("id", *names), 1):
        order.field.add(name=name, number=number, type=3 if name == "id" else 9, label=1)
    return message_of(file, "golden.Order")


def _protobuf(cluster: Any, admin: Admin, value_format: str) -> None:
    frame = (lambda number, data: _framed(number, b"\0" + data)) if value_format.endswith("confluent") else None
    narrow, wide = _message("name"), _message("name", "note")
    _topic(admin, value_format, value_schema(narrow), value_format=value_format)
    with Producer(cluster) as producer:
        data = narrow(id=1, name="one").SerializeToString()
        producer.send(value_format, data if frame is None else frame(1, data)).get(60)
        admin.alter_value_schema(value_format, value_schema(wide))
        data = wide(id=2, name="two", note="n").SerializeToString()
        producer.send(value_format, data if frame is None else frame(2, data)).get(60)
        producer.send(value_format, {"id": 3, "name": "three"}).get(60)


def _kept(cluster: Any, admin: Admin) -> None:
    """Bytes that stay beside the columns, and bytes that can't be decoded."""
    _topic(admin, "kept", "id BIGINT, name STRING", value_bytes="keep", value_on_error="keep", value_index="id")
    with Producer(cluster) as producer:
        producer.send("kept", b'{"name": "n",  "id": 1}').get(60)
        producer.send("kept", b"not json").get(60)
        producer.send("kept", {"id": 2, "name": None}).get(60)


def _of_others(root: Path, cluster: Any, admin: Admin) -> None:
    """Rows of another engine with the fields of the schema."""
    _topic(admin, "foreign", "id BIGINT, name STRING")
    with Producer(cluster) as producer:
        producer.send("foreign", {"id": 1, "name": "of sparklog"}).get(60)
    rows = pa.table(
        {"data": pa.array([{"id": 2, "name": "of another"}], pa.struct([("id", pa.int64()), ("name", pa.string())]))}
    )
    write_deltalake(str(root / "topics" / "foreign"), rows, mode="append", schema_mode="merge")
    admin.sequence("foreign")


def _became_typed(cluster: Any, admin: Admin) -> None:
    """A topic that has records of before it had a schema; compacted."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
    admin.create_topics([NewTopic("became-typed", 1, configs=settings)])
    with Producer(cluster) as producer:
        producer.send("became-typed", b'{"id": 1}', b"a").get(60)
        admin.alter_value_schema("became-typed", "id BIGINT")
        producer.send("became-typed", {"id": 2}, b"a").get(60)
        producer.send("became-typed", None, b"b").get(60)
