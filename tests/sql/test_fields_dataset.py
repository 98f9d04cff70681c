"""Fields of values as columns of a dataset: the rows of any filter, of the row groups that may have some."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sql.fields_dataset import FieldsDataset, field_column

UTC = datetime.timezone.utc
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("total", pa.float64()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("place", pa.struct([("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
    ]
)
COUNT = 60


def a_value(number: int) -> Any:
    if number % 13 == 0:
        return None
    return {
        "id": number,
        "total": float("nan") if number % 7 == 0 else number / 2,
        "note": None if number % 5 == 0 else f"n{number:03}",
        "at": NOON + datetime.timedelta(minutes=number),
        "price": None if number % 3 == 0 else f"{number}.25",
        "place": {"zip": number % 4},
        "tags": ["x"] * (number % 3),
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two files of 30 rows each, in row groups of ten; of the second it is known that its ids are 31 and more."""
    folder = tmp_path_factory.mktemp("fields")
    rows = [a_value(number) for number in range(1, COUNT + 1)]
    values = [
        row and {**row, "price": row["price"] and pa.scalar(row["price"]).cast(KIND.field("price").type).as_py()}
        for row in rows
    ]
    table = pa.table({"place_of": pa.array(range(1, COUNT + 1)), "data": pa.array(values, KIND)})
    for number in range(2):
        pq.write_table(table.slice(number * 30, 30), folder / f"{number}.parquet", row_group_size=10)
    format_, files = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [format_.make_fragment(str(folder / f"{number}.parquet"), files) for number in range(2)]
    structs = ds.FileSystemDataset(fragments, table.schema, format_, files)
    ids = ds.field(field_column("id"))
    known = [(ids <= 30) | ids.is_null(), (ids >= 31) | ids.is_null()]
    return FieldsDataset.of(structs, known)


def rows_of(dataset: Any, filter: Any, columns: list[str] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dataset.scanner(columns=columns, filter=filter).to_table().to_pylist()
    return found


def test_fields_are_columns_in_place_of_the_struct(dataset):
    assert dataset.schema.names == ["place_of", *(field_column(field.name) for field in KIND)]
    [row] = rows_of(dataset, ds.field("place_of") == 1)
    assert row[field_column("place")] == {"zip": 1}
    assert row[field_column("tags")] == ["x"]
    [none] = rows_of(dataset, ds.field("place_of") == 13)
    assert {value for name, value in none.items() if name != "place_of"} == {None}
    assert dataset.scanner(columns=[]).count_rows() == COUNT
    assert len(rows_of(dataset, None)) == COUNT


FILTERS = {
    "id": st.integers(-1, COUNT + 2),
    "note": st.integers(0, COUNT).map(lambda number: f"n{number:03}"),
    "at": st.integers(-1, COUNT + 2).map(lambda number: NOON + datetime.timedelta(minutes=number)),
    "total": st.integers(0, 40).map(float),
}


@st.composite
def filters(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(FILTERS)))
    field, bound = ds.field(field_column(name)), pa.scalar(draw(FILTERS[name]), KIND.field(name).type)
    compared = {"<": field < bound, "<=": field <= bound, ">": field > bound, ">=": field >= bound, "=": field == bound}
    return draw(st.sampled_from([*compared.values(), field != bound, field.is_null(), ~(field < bound)]))


@given(filters(), filters(), st.booleans())
def test_any_filter_has_the_rows_that_it_has_of_all(dataset, one, other, both):
    filter = (one & other) if both else (one | other)
    everything = dataset.scanner().to_table()
    expected = everything.filter(filter)["place_of"].to_pylist()
    assert [row["place_of"] for row in rows_of(dataset, filter, ["place_of"])] == expected


def test_files_and_row_groups_are_left_out(dataset):
    filter = ds.field(field_column("at")) == pa.scalar(NOON + datetime.timedelta(minutes=25), KIND.field("at").type)
    kept = [
        [group.id for part in dataset._row_groups(each, filter) for group in part.row_groups]
        for each in dataset.by_path.values()
    ]
    assert kept == [[2], []]
    assert [fragment.path[-9:] for fragment in dataset.get_fragments(filter=ds.field(field_column("id")) > 40)] == [
        "1.parquet"
    ]
    assert [row["place_of"] for row in rows_of(dataset, filter)] == [25]
