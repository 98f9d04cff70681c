"""Any values of any schema come back equal by every way out of a typed topic: consumers, DuckDB, deltalake, Polars.
Spark has a test of its own: ``tests/spark/test_typed_values_in_spark.py``."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.integrity import check_cluster
from sparklog.log.cluster import open_cluster
from sparklog.schemas import ValueSchema, decode, value_schema
from sparklog.sql import query
from tests.depth import by_depth
from tests.schemas.test_values import same, schemas_and_rows

pytestmark = pytest.mark.slow

EXTREME_SCHEMA = value_schema(
    "i BIGINT, b TINYINT, d DOUBLE, f FLOAT, p DECIMAL(38,9), s STRING, r BINARY, at TIMESTAMP, day DATE, ok BOOLEAN, "
    "place STRUCT<city: STRING, inner: STRUCT<x: INT>>, l ARRAY<ARRAY<DOUBLE>>, m MAP<BIGINT, STRUCT<x: DATE>>"
)
UTC = UTC
EXTREMES: list[Any] = [
    {
        "i": -(2**63),
        "b": -128,
        "d": -0.0,
        "f": -math.inf,
        "p": Decimal("-99999999999999999999999999999.999999999"),
        "s": "\0\U0010ffffé",
        "r": b"",
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "day": date(1582, 10, 10),
        "ok": False,
        "place": {"city": None, "inner": {"x": None}},
        "l": [],
        "m": {},
    },
    {
        "i": 2**63 - 1,
        "b": 127,
        "d": math.nan,
        "f": math.nan,
        "p": Decimal("0.000000001"),
        "s": "",
        "r": b"\0\xff",
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "day": date(9999, 12, 31),
        "ok": True,
        "place": {"city": "", "inner": None},
        "l": [None, [], [None, 5e-324]],
        "m": {-1: None, 2**63 - 1: {"x": date(1, 1, 1)}},
    },
]
"""What differs from engine to engine: ends of ranges, zeros, dates before 1582, what is empty beside what is null."""


FLAT_SCHEMA = value_schema(
    "i BIGINT, b TINYINT, d DOUBLE, f FLOAT, s STRING, r BINARY, at TIMESTAMP, day DATE, ok BOOLEAN"
)
FLAT: list[Any] = [{name: row[name] for name in FLAT_SCHEMA.arrow.names} for row in EXTREMES]
"""Without what Arrow's writer writes (decision 0068)."""


def write(root: Path, schema: ValueSchema, rows: list[Any], *, as_table: bool) -> None:
    """The rows as values at offsets 0, 1, …: as dicts, each in a file of its own, or as one table."""
    Admin(str(root)).create_topics([NewTopic("t", 1, value_schema=schema.arrow)])
    with Producer(str(root)) as producer:
        if as_table:
            producer.send_batch("t", pa.table({"value": pa.array(rows, schema.struct_type)}))
        for row in () if as_table else rows:
            producer.send("t", row, key=b"k").get()


def python_values(table: pa.Table, name: str = "data") -> list[Any]:
    return list(table[name].to_pylist(maps_as_pydicts="strict"))


def consumed(root: Path, count: int, **settings: Any) -> list[Any]:
    with Consumer("t", cluster=str(root), auto_offset_reset="earliest", **settings) as consumer:
        return [record.value for record in islice(consumer, count)]


def polled(root: Path, count: int) -> list[Any]:
    found: list[Any] = []
    with Consumer("t", cluster=str(root), auto_offset_reset="earliest") as consumer:
        while len(found) < count:
            for batch in consumer.poll_batches(timeout_ms=1_000).values():
                found += batch["value"].to_pylist(maps_as_pydicts="strict")
    return found


def in_duckdb(root: Path, schema: ValueSchema) -> list[Any]:
    names = ", ".join(f'"{name}"' for name in schema.arrow.names)
    with query(str(root), f'SELECT {names} FROM t ORDER BY "offset"') as result:
        return [row for batch in result for row in batch.to_pylist(maps_as_pydicts="strict")]


def in_order(table: pa.Table) -> pa.Table:
    offsets = pc.add(table["base_offset"], table["offset_delta"])
    return table.take(pc.sort_indices(offsets))


@settings(max_examples=by_depth(gate=6, nightly=20))
@example((EXTREME_SCHEMA, EXTREMES), False)
@example((EXTREME_SCHEMA, EXTREMES), True)
@example((FLAT_SCHEMA, FLAT), False)
@example((FLAT_SCHEMA, FLAT * 200), True)
@given(schemas_and_rows(), st.booleans())
def test_any_values_come_back_equal_by_every_way_out(found: tuple[ValueSchema, list[Any]], as_table: bool) -> None:
    schema, rows = found
    rows = [*rows, dict.fromkeys(schema.arrow.names), None]
    fields = [row or dict.fromkeys(schema.arrow.names) for row in rows]
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, schema, rows, as_table=as_table)
        for is_merged in (False, True):
            if is_merged:
                log = open_cluster(str(root)).topic_log("t")
                optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01))
            table = str(root / "topics" / "t")
            assert same(consumed(root, len(rows), value_format="python"), rows)
            given_bytes = pa.array(consumed(root, len(rows)), pa.binary())
            assert same(decode("json", schema, given_bytes)[0].to_pylist(maps_as_pydicts="strict"), rows)
            assert same(polled(root, len(rows)), rows)
            assert same(in_duckdb(root, schema), fields)
            assert same(python_values(in_order(deltalake.DeltaTable(table).to_pyarrow_dataset().to_table())), rows)
            assert same(python_values(in_order(pl.read_delta(table, use_pyarrow=True).to_arrow())), rows)
            assert check_cluster(open_cluster(str(root)), deep=True).errors == ()
