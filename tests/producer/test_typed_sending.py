"""Sending to a typed topic: dicts, bytes and tables become columns, and what can't is refused with the reason."""

import json
import uuid
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparklog._native import CORE
from sparklog.consumer import Consumer
from sparklog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
)
from sparklog.log import create_topic
from sparklog.log.data.value_columns import DATA
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic, alter_value_schema
from sparklog.producer.typed_values import ERROR_HEADER
from sparklog.schemas import value_schema
from tests.producer.support import a_cluster, a_producer

FIELDS = [("id", pa.int64()), ("total", pa.float64()), ("tags", pa.list_(pa.string()))]
SCHEMA = value_schema(pa.schema(FIELDS))
WIDER = value_schema(pa.schema([*FIELDS, ("note", pa.string())]))
CLASHING = value_schema(pa.schema([("id", pa.int64()), ("timestamp", pa.string())]))
ROW = {"id": 7, "total": 12.5, "tags": ["a"]}


def a_topic(schema=SCHEMA, **options):
    cluster = a_cluster()
    create_topic(cluster.topic_log("t"), "t", value_schema=schema, **options)
    return cluster


def read(cluster, **settings):
    """All records, as Python has them."""
    settings = {"value_format": "python", "auto_offset_reset": "earliest", **settings}
    head = load_state(cluster.topic_log("t")).head
    found: list[Any] = []
    count = sum(head.log_end_offsets) - sum(head.log_start_offsets)
    with Consumer("t", cluster=cluster, **settings) as consumer:
        while len(found) < count:
            found += [record for records in consumer.poll(timeout_ms=60_000).values() for record in records]
    return found


def values(cluster, **settings):
    return [record.value for record in read(cluster, **settings)]


def stats(cluster):
    """The statistics of all live files, with their own columns left out."""
    log = cluster.topic_log("t")
    whole = load_state(log)
    found = [action for number in range(whole.position.version + 1) for action in log.read_entry(number).actions]
    return [
        {side: one.get(DATA) for side, one in action.stats.items() if side != "numRecords"}
        for action in found
        if hasattr(action, "stats")
    ]


def test_dicts_become_columns_and_come_back():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        sent = [producer.send("t", ROW, key=b"k"), producer.send("t", {"id": 8}), producer.send("t", None, key=b"k")]
        assert [future.get().offset for future in sent] == [0, 1, 2]
    assert values(cluster) == [ROW, {"id": 8, "total": None, "tags": None}, None]
    [found] = stats(cluster)
    assert found["minValues"] == {"id": 7, "total": 12.5}
    assert found["maxValues"] == {"id": 8, "total": 12.5}
    assert found["nullCount"] == {"id": 1, "total": 2}


@pytest.mark.parametrize(
    ("row", "told"),
    [({"id": "seven"}, r"id.*'seven'"), ({"idd": 7}, "idd"), (7, "int")],
)
def test_what_the_schema_does_not_allow_is_refused_at_send(row, told):
    with a_producer(a_topic()) as producer, pytest.raises(SparklogError, match=told):
        producer.send("t", row)


def test_a_dict_that_is_changed_after_send_is_stored_as_it_was():
    cluster = a_topic()
    with a_producer(cluster, linger_ms=50) as producer:
        row: dict[str, Any] = {"id": 1, "tags": ["a"]}
        producer.send("t", row)
        row["id"] = 2
        row["tags"].append("b")
        producer.send("t", row)
    assert [(value["id"], value["tags"]) for value in values(cluster)] == [(1, ["a"]), (2, ["a", "b"])]


def test_bytes_are_decoded_by_the_topics_format():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", json.dumps(ROW).encode())
    assert values(cluster) == [ROW]
    [as_bytes] = values(cluster, value_format="bytes")
    assert json.loads(as_bytes) == ROW


def test_bytes_that_cant_be_decoded_fail_alone():
    cluster = a_topic()
    with a_producer(cluster, linger_ms=50) as producer:
        sent = [producer.send("t", value) for value in (b'{"id": 1}', b"{no", b'{"id": 3}', ROW)]
        with pytest.raises(InvalidRecordError, match="topic 't', schema 1: "):
            sent[1].get()
        assert [sent[at].get().offset for at in (0, 2, 3)] == [0, 1, 2]
    assert [value["id"] for value in values(cluster)] == [1, 3, 7]


def test_bytes_that_cant_be_decoded_are_kept_where_the_topic_says_so():
    cluster = a_topic(configs={"value.on.error": "keep"})
    with a_producer(cluster, linger_ms=50) as producer:
        for value in (b'{"id": 1}', b"{no"):
            producer.send("t", value, headers=[("h", b"1")])
    first, second = read(cluster)
    assert first.value["id"] == 1
    assert second.value == b"{no"
    assert first.headers == [("h", b"1")]
    assert [name for name, _ in second.headers] == ["h", ERROR_HEADER]


def test_a_table_has_the_fields_as_columns():
    cluster = a_topic()
    table = pa.table({"total": [1.5, None], "id": pa.array([1, 2], pa.int32()), "key": [b"a", b"b"]})
    with a_producer(cluster) as producer:
        assert producer.send_batch("t", table).get() is not None
    assert values(cluster) == [{"id": 1, "total": 1.5, "tags": None}, {"id": 2, "total": None, "tags": None}]
    assert [record.key for record in read(cluster)] == [b"a", b"b"]


def test_a_table_may_have_values_as_structs_or_bytes():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({"value": [ROW, None]}))
        producer.send_batch("t", pa.table({"value": [json.dumps(ROW).encode()]}))
    assert values(cluster) == [ROW, None, ROW]


def test_a_field_named_as_a_records_column_has_a_prefix_in_tables():
    cluster = a_topic(CLASHING)
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({"id": [1], "value_timestamp": ["noon"], "timestamp": [5]}))
    [record] = read(cluster)
    assert record.value == {"id": 1, "timestamp": "noon"}
    assert record.timestamp == 5


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"idd": [1]}, r"columns idd; expected id, total, tags"),
        ({"key": [b"k"]}, r"columns key; expected id"),
        ({"id": ["x"]}, r"column id: got string, expected long"),
        ({"value": [{"idd": 1}]}, r"fields idd; expected id"),
    ],
)
def test_a_table_that_cant_be_the_topics_is_refused_whole(table, told):
    with a_producer(a_topic()) as producer, pytest.raises(InvalidArgumentError, match=told):
        producer.send_batch("t", pa.table(table))


def test_a_value_beyond_the_size_limit_is_refused():
    cluster = a_topic(configs={"max.message.bytes": 1_000})
    with a_producer(cluster) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", {"tags": ["x" * 999, "y"], "id": 1})
        with pytest.raises(MessageSizeTooLargeError, match="row 1"):
            producer.send_batch("t", pa.table({"tags": [["x"], ["x" * 999, "y"]], "id": [1, 2]}))


def test_an_untyped_topic_takes_no_dict():
    cluster = a_cluster()
    create_topic(cluster.topic_log("t"), "t")
    told = "value: got dict, expected bytes .*, or give the topic a schema"
    with a_producer(cluster) as producer, pytest.raises(SparklogError, match=told):
        producer.send("t", ROW)


def test_a_producer_that_knows_the_topic_as_untyped_looks_before_it_refuses_values():
    cluster = a_cluster()
    create_topic(cluster.topic_log("t"), "t")
    with a_producer(cluster) as by_dicts, a_producer(cluster) as by_tables:
        by_dicts.send("t", b'{"id":1}').get()
        by_tables.send("t", b'{"id":2}').get()
        with pytest.raises(InvalidArgumentError, match="columns id"):
            by_tables.send_batch("t", pa.table({"id": [3]}))
        alter_value_schema(cluster.topic_log("t"), "t", SCHEMA)
        assert by_dicts.send("t", {"id": 3}).get().offset == 2
        by_tables.send_batch("t", pa.table({"id": [4]})).get()
    assert [value["id"] for value in values(cluster)] == [1, 2, 3, 4]


def test_a_producer_that_knows_an_older_schema_goes_on():
    """Its files stay valid, whatever was added: nothing is decided again but the version."""
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW).get()
        alter_value_schema(cluster.topic_log("t"), "t", WIDER)
        assert producer.send("t", {"id": 8}).get().offset == 1
        assert producer.send("t", {"id": 9, "note": "new"}).get().offset == 2
    assert [value.get("note", "-") for value in values(cluster)] == [None, None, "new"]


@pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")
def test_dicts_are_packed_by_the_schema_that_was_the_newest_when_they_were_sent():
    """Some wait in a batch while the schema evolves, and the batch is committed by the newer one."""
    cluster = a_topic()
    with a_producer(cluster, linger_ms=60_000) as producer:
        producer.send("t", ROW)
        queue = producer._pipelines.get("t").queue
        packer = queue._gatherer.packer
        assert packer is not None
        alter_value_schema(cluster.topic_log("t"), "t", WIDER)
        producer.send("t", {"id": 2})
        producer._pipelines.get("t").topic.refresh()
        assert queue._gatherer.packer is not packer
        producer.send("t", {"id": 3, "note": "new"})  # waits as a dict: the batch has values of the older schema
        producer.send("t", None)
        producer.send("t", b'{"id": 4}')
    found = values(cluster)
    assert [value and (value["id"], value["note"]) for value in found] == [
        (7, None),
        (2, None),
        (3, "new"),
        None,
        (4, None),
    ]


@pytest.mark.parametrize("value", [{"id": 8, "total": 1.5}, {"id": np.int64(8), "total": 1.5}, "table"])
def test_a_field_that_is_left_out_while_values_wait_is_stored_all_the_same(value):
    cluster = a_topic()
    table = pa.table({"id": [8], "total": [1.5]})
    with a_producer(cluster, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        producer.send("t", value) if isinstance(value, dict) else producer.send_batch("t", table)
        alter_value_schema(cluster.topic_log("t"), "t", value_schema("total DOUBLE"))
        producer._pipelines.get("t").topic.refresh()
        producer.flush()
    assert [row["total"] for row in values(cluster)] == [1.5]
    [row] = values(cluster, value_schema_id=1)
    assert row["id"] == 8


def test_bytes_of_before_the_topic_was_typed_are_read_by_its_format():
    cluster = a_cluster()
    log = cluster.topic_log("t")
    create_topic(log, "t")
    with a_producer(cluster) as producer:
        producer.send("t", b'{"id": 1}').get()
        producer.send("t", b"other").get()
        alter_value_schema(log, "t", SCHEMA)
        producer.send("t", b'{"id": 3}').get()  # it learns of the schema by its own commit
        producer.send("t", {"id": 4}).get()
    found = values(cluster)
    assert [value if isinstance(value, bytes) else value["id"] for value in found] == [1, b"other", 3, 4]
    assert values(cluster, value_format="bytes")[:3] == [b'{"id": 1}', b"other", b'{"id": 3}']


def test_a_transaction_carries_the_statistics_of_its_files():
    cluster = a_topic()
    with a_producer(cluster, transactional_id="x", acks="all") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", ROW)
        producer.commit_transaction()
    assert values(cluster) == [ROW]
    [found] = stats(cluster)
    assert found["minValues"] == {"id": 7, "total": 12.5}


def test_the_index_setting_chooses_the_leaves_with_statistics():
    cluster = a_topic()
    alter_topic(cluster.topic_log("t"), "t", {"value.index": "total"})
    with a_producer(cluster) as producer:
        producer.send("t", ROW)
    [found] = stats(cluster)
    assert found["nullCount"] == {"total": 0}


def test_a_text_of_a_table_that_is_no_utf_8_is_refused_when_it_is_given():
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    reason = pytest.raises(InvalidArgumentError, match=r"column tags.element: a text that isn't valid UTF-8")
    with a_producer(a_topic()) as producer, reason:
        producer.send_batch("t", pa.table({"tags": pa.ListArray.from_arrays([0, 1], bad)}))


def test_statistics_of_zeros_hold_both_zeros():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({"total": [0.0, -0.0]}))
    [found] = stats(cluster)
    assert (str(found["minValues"]["total"]), str(found["maxValues"]["total"])) == ("-0.0", "0.0")


def test_what_was_sent_by_a_schema_keeps_the_fields_that_the_next_one_leaves_out():
    cluster = a_topic()
    with a_producer(cluster, linger_ms=60_000) as producer:
        producer.send("t", ROW)
        producer.send("t", ROW, headers=[("h", b"1")])
        producer.send_batch("t", pa.table({"id": [7], "total": [12.5], "tags": [["a"]]}))
        alter_value_schema(cluster.topic_log("t"), "t", value_schema("id BIGINT"))
        producer.partitions_for("t")  # it knows the newest schema before it writes
        producer.send("t", {"id": 8})
        producer.flush()
    assert values(cluster) == [{"id": 7}, {"id": 7}, {"id": 7}, {"id": 8}]
    assert values(cluster, value_schema_id=1) == [ROW, ROW, ROW, {"id": 8, "total": None, "tags": None}]


def test_a_table_of_a_schema_that_the_producer_does_not_know_yet_is_taken():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW).get()
        alter_value_schema(cluster.topic_log("t"), "t", WIDER)
        producer.send_batch("t", pa.table({"id": [8], "note": ["n"]}))
    assert [row["note"] for row in values(cluster)] == [None, "n"]


@dataclass
class Row:
    id: Any
    total: Any = None
    tags: Any = None


class Color(Enum):
    RED = "red"


@pytest.mark.slow
def test_typed_records_keep_headers_times_and_partitions():
    cluster = a_topic(num_partitions=3)
    sent: list[tuple[Any, Any, dict[str, Any]]] = []
    with a_producer(cluster) as producer:
        for number, value in enumerate([ROW, Row(7, 12.5, ["a"]), {"id": None}, None, b'{"id": 3}', Row(5)]):
            ways: list[dict[str, Any]] = [
                {"headers": [("h", b"1"), ("h", None)]},
                {"timestamp_ms": 1_000 + number},
                {"partition": number % 3},
                {"headers": (), "timestamp_ms": 5, "partition": 2},
                {},
            ]
            for options in ways:
                future = producer.send("t", value, key=b"k%d" % number, **options)
                sent.append((future, value, options))
    found = {(record.partition, record.offset): record for record in read(cluster)}
    assert len(found) == len(sent)
    for future, value, options in sent:
        told = future.get()
        record = found[told.partition, told.offset]
        bare = {"id": 3, "total": None, "tags": None} if isinstance(value, bytes) else value
        full = None if bare is None else {**dict.fromkeys(ROW), **(vars(bare) if isinstance(bare, Row) else bare)}
        assert record.value == full
        assert list(record.headers or ()) == list(options.get("headers", ()))
        assert record.timestamp == told.timestamp
        assert record.timestamp == options.get("timestamp_ms", record.timestamp)
        assert record.partition == options.get("partition", record.partition)
        assert told.serialized_header_size == (2 * 1 + 1 if options.get("headers") else -1)


@pytest.mark.parametrize("options", [{}, {"headers": [("h", b"1")]}, {"timestamp_ms": 5}])
@pytest.mark.parametrize(
    ("value", "match"),
    [
        (Row("x"), "id"),
        (Row(2**63), "id"),
        ({"id": 1, "other": 2}, "other"),
        (Row(1, tags=[1]), "tags"),
        (Row, "expected a dict, a dataclass"),
    ],
)
def test_what_the_schema_refuses_names_the_field_whatever_is_sent_with_it(value, match, options):
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW, **options)
        with pytest.raises((InvalidRecordError, InvalidTypeError), match=match):
            producer.send("t", value, **options)
    assert load_state(cluster.topic_log("t")).head.log_end_offsets == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"headers": [("h", b"1")]}])
def test_dataclasses_whose_fields_arent_plain_are_taken_all_the_same(options):
    cluster = a_topic(value_schema("id STRING, total DOUBLE, tags STRUCT<id: BIGINT>"))
    with a_producer(cluster) as producer:
        producer.send("t", Row(Color.RED, 1, Inner(4)), **options)
        producer.send("t", Row(uuid.UUID(int=1), None, {"id": 5}), **options)
    assert values(cluster) == [
        {"id": "red", "total": 1.0, "tags": {"id": 4}},
        {"id": "00000000-0000-0000-0000-000000000001", "total": None, "tags": {"id": 5}},
    ]


class Level(IntEnum):
    HIGH = 3


def test_members_of_an_int_enumeration_are_sent_as_integers():
    cluster = a_topic(value_schema("id BIGINT, total DOUBLE"))
    with a_producer(cluster) as producer:
        producer.send("t", {"id": Level.HIGH, "total": Level.HIGH})
        producer.send("t", {"id": Level.HIGH})
        with pytest.raises(InvalidRecordError, match=r"field id: got True \(bool\), expected long"):
            producer.send("t", {"id": True})
    assert values(cluster) == [{"id": 3, "total": 3.0}, {"id": 3, "total": None}]


@dataclass
class Inner:
    id: int


def test_the_key_of_a_value_that_isnt_plain_is_serialized_once():
    @dataclass
    class Order:
        id: int
        note: Any

    cluster, serialized = a_topic(WIDER), []

    def serialize(key: str) -> bytes:
        serialized.append(key)
        return key.encode()

    with a_producer(cluster, key_serializer=serialize) as producer:
        producer.send("t", Order(1, "plain"), key="a", headers=[("h", b"1")])
        producer.send("t", Order(2, uuid.UUID(int=0)), key="b", headers=[("h", b"2")])
    assert serialized == ["a", "b"]
    assert [(one.key, one.headers) for one in read(cluster)] == [(b"a", [("h", b"1")]), (b"b", [("h", b"2")])]


def test_a_record_with_headers_that_is_too_large_is_refused_with_its_size():
    cluster = a_topic(configs={"max.message.bytes": 200})
    with a_producer(cluster) as producer:
        producer.send("t", {"tags": ["x" * 100]}, headers=[("h", b"1" * 50)]).get()
        with pytest.raises(MessageSizeTooLargeError, match="a record of 2"):
            producer.send("t", {"tags": ["x" * 100]}, headers=[("h", b"1" * 110)])


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"tags": ' + b"[" * 50_000,
        b'{"id": ' * 50_000,
        b'{"id": ' + b"9" * 100_000 + b"}",
        b'{"tags": ["\xff"]}',
    ],
    ids=["lists", "lists in a field", "objects", "a number", "no UTF-8"],
)
def test_malicious_json_fails_alone(raw):
    cluster = a_topic()
    with a_producer(cluster) as producer:
        good, bad = producer.send("t", b'{"id": 1}'), producer.send("t", raw)
        producer.flush()
        with pytest.raises(InvalidRecordError):
            bad.get()
        assert good.get().offset == 0
    assert load_state(cluster.topic_log("t")).head.log_end_offsets == (1,)


def file_rows(cluster):
    """The number of records of each file that was ever added."""
    log = cluster.topic_log("t")
    entries = [log.read_entry(number) for number in range(load_state(log).position.version + 1)]
    return [action.stats["numRecords"] for entry in entries for action in entry.actions if hasattr(action, "stats")]


@pytest.mark.parametrize("way", ["plain", "detailed", "table"])
def test_bytes_of_few_fields_of_many_count_what_their_columns_take(way):
    cluster = a_topic(
        value_schema(pa.schema([(f"f{number}", pa.int64()) for number in range(1_000)])), num_partitions=1
    )
    count = 4_200 if way == "table" else 400
    buffer_memory = 33_554_432 if way == "table" else 262_144
    with a_producer(cluster, linger_ms=60_000, batch_size=65_536, buffer_memory=buffer_memory) as producer:
        if way == "table":
            producer.send_batch("t", pa.table({"value": [b"{}"] * count}))
        for number in range(0 if way == "table" else count):
            producer.send("t", b"{}", headers=[("n", str(number).encode())] if way == "detailed" else None)
        producer.flush()
    rows = file_rows(cluster)
    assert sum(rows) == count
    assert max(rows) <= count // 2  # 984 columns beyond the first 16, of two bytes each
    with Consumer("t", cluster=cluster, value_format="python", auto_offset_reset="earliest") as consumer:
        [[first]] = consumer.poll(timeout_ms=10_000, max_records=1).values()
    assert first.value == {f"f{number}": None for number in range(1_000)}


def test_bytes_of_few_fields_count_as_they_are():
    with a_producer(a_topic()) as producer:
        producer.send("t", b'{"id": 1}').get(60)
        encoding = producer._pipelines.get("t").topic.value_encoding
        assert encoding is not None
        assert encoding.decoded_bytes == 0
