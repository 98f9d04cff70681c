"""The flights as a typed topic: values are columns of its table, and the same questions are answered by columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sparklog.sql
from sparklog import Admin, NewTopic, Producer

__all__ = ["CARRIERS", "TOPIC", "ask_duckdb", "produce"]

TOPIC = "flights_typed"
CARRIERS = """
select carrier, count(*) as flights, count(*) filter (dep_time is null) as cancelled,
       round(avg(arr_delay), 1) as "mean delay (min)"
from flights_typed group by all order by flights desc, carrier limit 5
"""
"""The question that the demo asks of JSON, by columns."""


def produce(root: Path, rows: pa.Table, *, partitions: int) -> None:
    """Send the flights as columns; the schema is that of the rows themselves."""
    values = rows.drop_columns("departure")
    with Admin(root) as admin:
        new = NewTopic(TOPIC, num_partitions=partitions, configs={"retention.ms": -1}, value_schema=values.schema)
        admin.create_topics([new])
    keys = pc.if_else(pc.equal(rows["tailnum"], ""), None, rows["tailnum"])
    with Producer(root) as producer:
        producer.send_batch(TOPIC, values.append_column("key", keys).append_column("timestamp", rows["departure"]))
        producer.flush()


def ask_duckdb(root: Path) -> list[tuple[Any, ...]]:
    """The answer by DuckDB, as ``sparklog sql`` gives it."""
    with sparklog.sql.connect(root, [TOPIC]) as connection:
        return connection.execute(CARRIERS).fetchall()
