"""Any values of any schema come back equal in Spark, from the table and from ``format("sparklog")``. Other engines have
a test of their own: ``tests/sql/test_typed_values_everywhere.py``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.schemas import ValueSchema
from tests.depth import by_depth
from tests.schemas.test_values import same, schemas_and_rows
from tests.sql.test_typed_values_everywhere import EXTREME_SCHEMA, EXTREMES, write

pytestmark = pytest.mark.spark


def values(frame: Any) -> list[Any]:
    return [row for batch in frame.toArrow().to_batches() for row in batch.to_pylist(maps_as_pydicts="strict")]


@pytest.fixture(scope="module")
def utc(spark: Any) -> Any:
    """Times come in the session's zone, and those of the years 1 and 9999 can't be shown in every one."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@settings(max_examples=by_depth(gate=1, nightly=8))
@example((EXTREME_SCHEMA, EXTREMES), False)
@given(schemas_and_rows(), st.booleans())
def test_any_values_come_back_equal_in_spark(utc: Any, found: tuple[ValueSchema, list[Any]], as_table: bool) -> None:
    schema, rows = found
    rows = [*rows, dict.fromkeys(schema.arrow.names), None]
    fields = [row or dict.fromkeys(schema.arrow.names) for row in rows]
    with TemporaryDirectory() as root:
        write(Path(root), schema, rows, as_table=as_table)
        table = utc.read.format("delta").load(f"{root}/topics/t").orderBy("base_offset", "offset_delta")
        assert same([row["data"] for row in values(table.select("data"))], rows)
        source = utc.read.format("sparklog").option("subscribe", "t").load(root).orderBy("offset")
        assert same(values(source.select(*schema.arrow.names)), fields)
