"""Columns of small files, which the compiled core reads many files at a time, beside what Arrow reads of them."""

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog import Admin, NewTopic, Producer
from sparklog._native import CORE
from sparklog.delta.parquet_reading import open_parquet
from sparklog.log.data.encode import write_parquet
from sparklog.log.data.schema import TIMESTAMP
from sparklog.model import TopicPartition
from sparklog.sql import connect, core_reading
from sparklog.sql.core_reading import read_columns
from tests.depth import by_depth

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

core: Any = CORE
DAY = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = pa.struct(
    [
        ("id", pa.int64()),
        ("total", pa.float64()),
        ("at", TIMESTAMP),
        ("text", pa.string()),
        ("small", pa.int32()),
        ("ratio", pa.float32()),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("place", pa.struct([("town", pa.string())])),
    ]
)
SCHEMA = pa.schema([("timestamp", TIMESTAMP), ("key", pa.binary()), ("data", FIELDS)])
READ = ("id", "total", "at", "text", "small", "ratio", "day")
WANTED = {name: (f"data.{name}", FIELDS.field(name).type) for name in READ} | {"timestamp": ("timestamp", TIMESTAMP)}
OPTIONS = {"store_schema": False, "use_dictionary": ["data.text"]}


def a_row(number, text):
    return {
        "id": number,
        "total": number / 4,
        "at": DAY + timedelta(seconds=number),
        "text": text,
        "small": number % 100,
        "ratio": number / 8,
        "day": (DAY + timedelta(days=number % 1_000)).date(),
        "flag": bool(number % 2),
        "place": {"town": text},
    }


def some_table(rows, *, fields=FIELDS, times=None):
    """A file's columns, from a struct for each row; None for one without values."""
    stamps = [DAY] * len(rows) if times is None else times
    schema = SCHEMA.set(2, pa.field("data", fields))
    return pa.table({"timestamp": stamps, "key": [b"k"] * len(rows), "data": rows}, schema)


class Folder:
    """Files, and what there is to read of them."""

    def __init__(self, path):
        self.path = path
        self.filesystem = pafs.SubTreeFileSystem(str(path), pafs.LocalFileSystem())
        self.files = []

    def add(self, table, **options):
        name = f"{len(self.files)}.parquet"
        pq.write_table(table, self.path / name, **{"compression": "none", **OPTIONS, **options})
        self.files.append((name, table.num_rows))
        return self.path / name

    def by_core(self, wanted=WANTED):
        return read_columns(self.filesystem, self.files, wanted)

    def by_arrow(self, wanted=WANTED):
        tables = [open_parquet((self.path / name).read_bytes()).read() for name, _ in self.files]
        whole = pa.concat_tables(tables).combine_chunks().flatten()
        return {name: whole.column(path).combine_chunks() for name, (path, _) in wanted.items()}

    def check(self, wanted=WANTED):
        found, expected = self.by_core(wanted), self.by_arrow(wanted)
        assert found is not None
        for name, column in found.items():
            column.validate(full=True)
            if pa.types.is_dictionary(column.type):
                assert len(column.dictionary.unique()) == len(column.dictionary)
                column = column.cast(pa.string())
            assert column.equals(expected[name]), name
            assert column.null_count == expected[name].null_count


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def many(count, first=0, texts=7):
    return [a_row(number, f"text-{number % texts}") for number in range(first, first + count)]


_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "12345678", "123456789", "ä" * 20]), st.text(max_size=3))
_ROWS = st.lists(
    st.one_of(
        st.none(),
        st.builds(a_row, st.integers(0, 10_000), _TEXTS),
        st.builds(
            lambda row, gone: row | dict.fromkeys(gone),
            st.builds(a_row, st.integers(0, 99), _TEXTS),
            st.sets(st.sampled_from(READ)),
        ),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.tuples(_ROWS, st.integers(1, 40)), min_size=1, max_size=4), page=st.sampled_from([1, 200, 2**20])
)
def test_the_core_reads_what_arrow_reads(tmp_path, files, page):
    folder = Folder(tmp_path)
    for rows, times in files:
        rows = rows * times  # runs, and bits of many rows
        stamps = [None if number % 5 == 4 else DAY + timedelta(seconds=number) for number in range(len(rows))]
        table = some_table(rows, times=stamps)
        folder.add(table, data_page_size=page, write_batch_size=50, max_rows_per_page=50 if page < 2**20 else 20_000)
    folder.check()


@pytest.mark.parametrize("texts", [1, 2, 3, 255, 256, 257, 4_000])
def test_dictionaries_of_any_size_are_joined(folder, texts):
    for first in (0, 3_000, 90_000):
        folder.add(some_table(many(5_000, first, texts)))
    folder.check()


def test_a_file_that_sparklog_writes_is_read(folder):
    for first in (0, 500):
        table = some_table(many(500, first))
        path = folder.add(table)
        path.write_bytes(write_parquet(table, compression="none"))
    folder.check({name: WANTED[name] for name in ("text", "id")})


def test_columns_come_in_any_order_and_each_alone(folder):
    folder.add(some_table(many(100)))
    folder.check(dict(reversed(WANTED.items())))
    for name in WANTED:
        folder.check({name: WANTED[name]})


def test_a_large_footer_is_read_whole(folder):
    table = some_table(many(100)).replace_schema_metadata({"much": "x" * 20_000})
    path = folder.add(table, store_schema=True)
    assert open_parquet(path.read_bytes()).metadata.serialized_size > 20_000
    folder.check()


class TestWhatIsLeftToArrow:
    @pytest.mark.parametrize(
        "options",
        [
            {"compression": "zstd"},
            {"use_dictionary": False},
            {"use_dictionary": True},  # numbers, too
            {"row_group_size": 50},
            {"data_page_version": "2.0"},
            {"use_dictionary": False, "column_encoding": {"data.id": "DELTA_BINARY_PACKED"}},
            {"dictionary_pagesize_limit": 100},  # the dictionary is given up in the middle
            {"use_deprecated_int96_timestamps": True},
            {"coerce_timestamps": "ms"},
        ],
    )
    def test_files_of_other_forms(self, folder, options):
        folder.add(some_table(many(3_000, texts=2_000)))
        folder.add(some_table(many(3_000, texts=2_000)), **options)
        assert folder.by_core() is None
        folder.files = folder.files[1:]
        assert folder.by_core() is None

    def test_files_of_another_schema(self, folder):
        folder.add(some_table(many(50)))
        fields = pa.struct([*FIELDS, pa.field("more", pa.int64())])
        folder.add(some_table([{**row, "more": 1} for row in many(50)], fields=fields))
        assert folder.by_core() is None
        folder.files = folder.files[1:]
        folder.check()

    @pytest.mark.parametrize(
        "wanted",
        [
            {"flag": ("data.flag", pa.bool_())},
            {"key": ("key", pa.binary())},
            {"place": ("data.place", FIELDS.field("place").type)},
            {"town": ("data.place.town", pa.string())},
            {"gone": ("data.gone", pa.int64())},
            {"id": ("data.id", pa.int32())},
            {"id": ("data.id", pa.float64())},
            {"at": ("data.at", pa.timestamp("us"))},
            {"text": ("data.text", pa.binary())},
            {},
        ],
    )
    def test_columns_that_are_others(self, folder, wanted):
        folder.add(some_table(many(50)))
        assert folder.by_core(wanted) is None

    def test_a_name_that_two_columns_have(self, folder):
        fields = pa.struct([pa.field("a.b", pa.int64()), pa.field("a", pa.struct([pa.field("b", pa.int64())]))])
        folder.add(some_table([{"a.b": 1, "a": {"b": 2}}] * 50, fields=fields), use_dictionary=False)
        assert folder.by_core({"x": ("data.a.b", pa.int64())}) is None

    def test_files_that_are_not_as_the_log_says(self, folder):
        path = folder.add(some_table(many(50)))
        [(name, count)] = folder.files
        for other in (count + 1, count - 1, 0, None, -1, 2**31, 10**18, 2**63):
            assert read_columns(folder.filesystem, [(name, other)], WANTED) is None
        for gone in ("gone.parquet", "a\0b"):
            assert read_columns(folder.filesystem, [(gone, count)], WANTED) is None
        data = path.read_bytes()
        for other_data in (b"", data[:-1], data[1:], b"PAR1", b"PAR1\0\0\0\0PAR1", data[:-8] + b"\xff\xff\xff\x7fPAR1"):
            path.write_bytes(other_data)
            assert folder.by_core() is None
        path.unlink()
        path.mkdir()
        assert folder.by_core() is None

    def test_everything_in_pure_python(self, folder):
        folder.add(some_table(many(50)))
        with mock.patch.object(core_reading, "CORE", None):
            assert folder.by_core() is None


@settings(max_examples=by_depth(gate=200, nightly=400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_wrong_bytes_is_read_within_its_bounds_or_left_to_arrow(tmp_path, data):
    folder = Folder(tmp_path)
    path = folder.add(some_table([None, *many(60, texts=5)]), max_rows_per_page=20)
    file = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(file)
    for column in (folder.by_core() or {}).values():
        if pa.types.is_dictionary(column.type):
            assert len(column.dictionary.unique()) == len(column.dictionary)
            column.indices.validate(full=True)
            assert (column.indices.drop_null().to_numpy() < len(column.dictionary)).all()
        else:
            column.validate(full=True)


def test_the_core_refuses_what_makes_no_sense(folder):
    path = os.fsencode(folder.add(some_table(many(50))))
    schema = core.file_schema(path)
    room = (bytearray(400), bytearray(7))
    read = partial(core.read_columns, (path,), (50,), schema)
    assert read(((2, 2, 8),), (room,))
    for leaves, outs in [
        ((), ()),
        (((2, 2, 8),), (room, room)),
        (((2, 2, 8), (2, 2, 8)), (room, room)),
        (((3, 2, 8), (2, 2, 8)), (room, room)),
        (((-1, 2, 8),), (room,)),
        (((2, 3, 8),), (room,)),
        (((2, 0, 8),), (room,)),
        (((2, 2, 2),), (room,)),
        (((2, 2, 8),), ((bytearray(399), bytearray(7)),)),
        (((2, 2, 8),), ((bytearray(400), bytearray(6)),)),
        (tuple((number, 2, 8) for number in range(33)), (room,) * 33),
    ]:
        with pytest.raises(ValueError, match=r"leaf|columns|bytes"):
            read(leaves, outs)
    for count in (0, -1, 2**31):
        with pytest.raises(ValueError, match="rows"):
            core.read_columns((path,), (count,), schema, ((2, 2, 8),), (room,))
    with pytest.raises(ValueError, match="2 files, 1 counts"):
        core.read_columns((path, path), (50,), schema, ((2, 2, 8),), (room,))
    with pytest.raises(BufferError):
        read(((2, 2, 8),), ((bytes(400), bytearray(7)),))
    with pytest.raises(ValueError, match="null byte"):
        core.file_schema(b"a\0b")
    assert read(((99, 2, 8),), (room,)) is None
    assert core.read_columns((path,), (50,), schema[:-1] + b"\1", ((2, 2, 8),), (room,)) is None
    assert core.file_schema(os.fsencode(Path(folder.path) / "gone")) is None


QUESTIONS = [
    "SELECT text, count(*), sum(id) FROM t GROUP BY 1",
    "SELECT count(*), count(text), min(text), max(text) FROM t",
    'SELECT sum(id), max("timestamp") IS NULL FROM t',
    "SELECT topic, timestamp_type, max(total) FROM t GROUP BY ALL",
    "SELECT count(*) FROM t WHERE id > 150",
    "SELECT text, count(*) FROM t WHERE text > 'x1' GROUP BY 1",
    "SELECT partition, text, count(*) FROM t GROUP BY ALL",
    "SELECT text, more, count(*) FROM t GROUP BY ALL",
]


def test_duckdb_gives_the_same_answers_with_the_core_and_without(tmp_path):
    root = str(tmp_path)
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", 2, value_schema="id BIGINT, text STRING, total DOUBLE")])
        with Producer(root, linger_ms=60_000) as producer:
            for first in (0, 100):
                for number in range(first, first + 100):
                    text = None if number % 11 == 3 else f"x{number % 3}"
                    producer.send("t", {"id": number, "text": text, "total": number / 2}, partition=number % 2)
                producer.flush()
            admin.alter_value_schema("t", "id BIGINT, text STRING, total DOUBLE, more INT")
        with Producer(root, linger_ms=60_000) as producer:
            for number in range(200, 300):
                producer.send("t", {"id": number, "text": f"x{number % 5}", "more": number % 2}, partition=number % 2)
            producer.flush()
        admin.delete_records({TopicPartition("t", 0): 10})
    used = []
    read = core_reading.read_columns

    def noting(*arguments):
        found = read(*arguments)
        used.append(found is not None)
        return found

    def answers():
        with connect(root, ["t"]) as connection:
            return [sorted(map(str, connection.execute(text).fetchall())) for text in QUESTIONS]

    with mock.patch("sparklog.sql.segment_rows.read_columns", noting):
        found = answers()
    with mock.patch.object(core_reading, "CORE", None):
        expected = answers()
    assert found == expected
    assert used
