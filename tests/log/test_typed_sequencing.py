"""What other engines write to a typed topic: structs and bytes get their offsets, and what would be lost is refused."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog import Admin, Consumer, NewTopic
from tests.producer.test_typed_sending import ROW, SCHEMA


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


def test_bytes_of_other_engines_are_read_by_the_topics_format(root):
    write(root, value=[b'{"id": 7}'])
    Admin(str(root)).sequence("t")
    assert [value["id"] for value in values(root)] == [7]


def test_a_field_that_no_schema_has_is_refused_by_name(root):
    write(root, key=[b"a"], data=pa.array([{"id": 1, "idd": 2}], pa.struct([("id", pa.int64()), ("idd", pa.int64())])))
    result = Admin(str(root)).sequence("t")
    [reason] = result.refused.values()
    assert "fields that no schema of the topic has: idd" in reason
