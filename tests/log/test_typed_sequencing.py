"""What other engines write to a typed topic: structs and bytes get their offsets, and what would be lost is refused."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog import Admin, Consumer, NewTopic
from sparklog.delta.actions import AddFile
from sparklog.log.cluster import open_cluster
from sparklog.log.data.value_columns import DATA
from sparklog.log.state import load_state
from tests.producer.test_typed_sending import ROW, SCHEMA

NOW = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path):
    Admin(str(tmp_path)).create_topics([NewTopic("t", value_schema=SCHEMA, num_partitions=1)])
    return tmp_path


def write(root, **columns):
    write_deltalake(str(root / "topics" / "t"), pa.table(columns), mode="append", schema_mode="merge")


def values(root):
    with Consumer(
        "t",
        cluster=str(root),
        value_format="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=300,
    ) as consumer:
        return [record.value for record in consumer]


def test_structs_of_other_engines_become_records(root):
    kind = pa.struct(list(SCHEMA.arrow))
    write(root, key=[b"a", b"b"], data=pa.array([ROW, None], kind))
    assert Admin(str(root)).sequence("t").record_count == 2
    assert values(root) == [ROW, None]


@pytest.mark.parametrize("is_copied", [True, False])
def test_sequenced_files_have_statistics_of_the_leaves_that_the_topic_names(tmp_path, is_copied):
    settings = {"value.index": "total"}
    Admin(str(tmp_path)).create_topics([NewTopic("t", value_schema=SCHEMA, num_partitions=1, configs=settings)])
    numbered = {"partition": [0, 0], "offset_delta": [0, 1], "timestamp": [NOW, NOW]} if is_copied else {}
    write(tmp_path, **numbered, data=pa.array([ROW, None], pa.struct(list(SCHEMA.arrow))))
    Admin(str(tmp_path)).sequence("t")
    log = open_cluster(str(tmp_path)).topic_log("t")
    entry = log.read_entry(load_state(log).position.version)
    [stats] = [one.stats or {} for one in (entry.actions if entry else ()) if isinstance(one, AddFile)]
    assert stats["nullCount"][DATA] == {"total": 1}
    assert stats["minValues"][DATA] == {"total": ROW["total"]}


def test_bytes_of_other_engines_are_read_by_the_topics_format(root):
    write(root, value=[b'{"id": 7}'])
    Admin(str(root)).sequence("t")
    assert [value["id"] for value in values(root)] == [7]


def test_a_field_that_no_schema_has_is_refused_by_name(root):
    write(root, key=[b"a"], data=pa.array([{"id": 1, "idd": 2}], pa.struct([("id", pa.int64()), ("idd", pa.int64())])))
    result = Admin(str(root)).sequence("t")
    [reason] = result.refused.values()
    assert "fields that no schema of the topic has: idd" in reason


FAR = pa.array([5_000_000], pa.int32()).cast(pa.date32())
NOT_UNICODE = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (FAR, "data.field: a date before year 1 or after year 9999"),
        (pa.ListArray.from_arrays([0, 1], FAR), "data.field.element: a date before year 1 or after year 9999"),
        (pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC")), "data.field: a timestamp before year 1 or"),
        (NOT_UNICODE, "data.field: a text that isn't valid UTF-8"),
    ],
)
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_value_that_would_stop_each_consumer_is_refused_and_hinders_no_other_file(
    tmp_path, column, reason, is_copied
):
    schema = pa.schema([("field", column.type), ("id", pa.int64())])
    Admin(str(tmp_path)).create_topics([NewTopic("t", value_schema=schema, num_partitions=1)])
    numbered = {"partition": [0], "offset_delta": [0], "timestamp": [NOW]} if is_copied else {}
    write(tmp_path, **numbered, data=pa.StructArray.from_arrays([column, pa.array([1])], ["field", "id"]))
    write(tmp_path, data=pa.array([{"id": 2}], pa.struct([("id", pa.int64())])))
    result = Admin(str(tmp_path)).sequence("t")
    assert result.sequenced_count == 1
    [seen] = result.refused.values()
    assert reason in seen
    assert values(tmp_path) == [{"field": None, "id": 2}]


def test_a_field_that_another_engine_added_may_be_null_everywhere(root):
    """As in every file of Spark's, once somebody has added the field to the table."""
    kind = pa.struct([*SCHEMA.arrow, ("extra", pa.int32()), ("place", pa.struct([("city", pa.string())]))])
    write(root, data=pa.array([ROW, None], kind))
    assert Admin(str(root)).sequence("t").refused == {}
    assert values(root) == [ROW, None]
    write(root, data=pa.array([{**ROW, "extra": 1}], kind))
    [reason] = Admin(str(root)).sequence("t").refused.values()
    assert "fields that no schema of the topic has: extra; expected" in reason
    Admin(str(root)).alter_value_schema("t", pa.schema([*SCHEMA.arrow, ("extra", pa.int32())]))
    assert Admin(str(root)).sequence("t").refused == {}
    assert [value and value["extra"] for value in values(root)] == [None, None, 1]
