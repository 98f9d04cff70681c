"""Files that a filter rules out by what the log tells of each: none with a record that it holds for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.sql.file_bounds import ColumnBounds, FileBounds
from tests.depth import by_depth

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("partition", pa.int32())])
NUMBER, TEXT, PARTITION = (pc.field(name) for name in SCHEMA.names)


def bounds_of(files: list[pa.Table], unknown: frozenset[int] = frozenset()) -> FileBounds:
    """The bounds of files, as statistics tell of them; nothing of those that are unknown."""

    def side(name: str, function: Any) -> pa.Array:
        values = [None if at in unknown else function(file[name]).as_py() for at, file in enumerate(files)]
        return pa.array(values, SCHEMA.field(name).type)

    columns = [
        ColumnBounds(pc.field(name), side(name, pc.min), side(name, pc.max), is_constant=name == "partition")
        for name in SCHEMA.names
    ]
    return FileBounds(columns, len(files))


def file_of(partition: int, rows: list[tuple[int | None, str | None]]) -> pa.Table:
    numbers, texts = zip(*rows, strict=True)
    return pa.table([pa.array(numbers, pa.int64()), pa.array(texts), [partition] * len(rows)], SCHEMA)


NUMBERS, TEXTS = st.integers(-3, 3), st.sampled_from(["", "a", "b", "bb"])
FILES = st.lists(
    st.builds(
        file_of, st.integers(0, 2), st.lists(st.tuples(st.none() | NUMBERS, st.none() | TEXTS), min_size=1, max_size=3)
    ),
    max_size=60,
)


def _comparisons(field: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        values.map(lambda value: field > value)
        | values.map(lambda value: field <= value)
        | values.map(lambda value: field == value)
        | st.lists(values, min_size=1, max_size=2).map(field.isin)
        | st.just(field.is_null())
        | st.just(field.is_valid())
    )


SIMPLE = _comparisons(NUMBER, NUMBERS) | _comparisons(TEXT, TEXTS) | _comparisons(PARTITION, st.integers(0, 2))
FILTERS = st.recursive(
    SIMPLE,
    lambda one: (
        st.builds(lambda a, b: a & b, one, one) | st.builds(lambda a, b: a | b, one, one) | one.map(lambda a: ~a)
    ),
    max_leaves=3,
)


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@given(FILES, FILTERS, st.frozensets(st.integers(0, 60), max_size=20))
def test_no_file_with_a_record_that_is_asked_for_is_ruled_out(files, condition, unknown):
    bounds = bounds_of(files, unknown)
    wanted = [at for at, file in enumerate(files) if file.filter(condition).num_rows]
    left = bounds.places_left(SCHEMA, condition)
    assert {*wanted} <= {*left}
    assert left == sorted(left)
    assert bounds.places_left(SCHEMA, condition) == left  # a second time, by what was made the first time


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (NUMBER == 20_005, [2_000]),
        ((NUMBER >= 50) & (NUMBER < 70), [5, 6]),
        ((PARTITION == 1) & (NUMBER < 50_010), [5_000]),
        (TEXT > "x", []),
        (PARTITION.is_null(), []),
    ],
    ids=str,
)
def test_of_many_files_few_are_looked_at_one_by_one(condition, left):
    count = 10_000
    low = pa.array(range(0, 10 * count, 10))
    texts, partitions = pa.repeat("a", count), pa.array([at * 2 // count for at in range(count)], pa.int32())
    bounds = FileBounds(
        [
            ColumnBounds(NUMBER, low, pc.add(low, 9)),
            ColumnBounds(TEXT, texts, texts),
            ColumnBounds(PARTITION, partitions, partitions, is_constant=True),
        ],
        count,
    )
    assert bounds.places_left(SCHEMA, condition) == left
    assert len(bounds._made) <= 300
