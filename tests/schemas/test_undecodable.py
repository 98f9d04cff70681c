"""Bytes that can't be decoded among many that can: these stay in the bulk path, which reads them by columns."""

import json

import pyarrow as pa
import pytest

from sparklog.schemas import formats, value_schema
from sparklog.schemas.formats import decode

SCHEMA = value_schema(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
COUNT = 2_000


@pytest.fixture
def read_alone(monkeypatch):
    """Collects the values that are read one by one."""
    found = []
    one_by_one = formats._one_by_one

    def noting(schema, read, values):
        found.extend(values.to_pylist())
        return one_by_one(schema, read, values)

    monkeypatch.setattr(formats, "_one_by_one", noting)
    return found


def test_a_tenth_that_is_no_json_costs_the_others_nothing(read_alone):
    values = [b"garbage" if at % 10 == 3 else json.dumps({"id": at, "tags": ["a"]}).encode() for at in range(COUNT)]
    found, errors = decode("json", SCHEMA, pa.array(values, pa.binary()))
    assert read_alone == [b"garbage"] * (COUNT // 10)
    assert [*errors] == [*range(3, COUNT, 10)]
    assert [row["id"] for at, row in enumerate(found.to_pylist()) if at not in errors] == [
        at for at in range(COUNT) if at % 10 != 3
    ]


def test_an_object_of_other_types_costs_those_around_it_alone(read_alone):
    values = [json.dumps({"id": at, "tags": ["a"]}).encode() for at in range(COUNT)]
    values[1_000] = b'{"id": "x"}'
    found, errors = decode("json", SCHEMA, pa.array(values, pa.binary()))
    assert len(read_alone) == formats._ROWS_AROUND
    assert [*errors] == [1_000]
    assert "id" in errors[1_000]
    assert found.to_pylist()[1_001] == {"id": 1_001, "tags": ["a"]}
