"""Reading a topic's records as a dataset: which files, row groups and columns are read, and which rows are left out."""

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import CorruptRecordError
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.sql import connect, core_reading, segment_rows, topic_dataset
from sparklog.sql.column_use import columns_used
from sparklog.sql.row_groups import groups_to_read

DDL = "id BIGINT, valid STRING, place STRUCT<zip: INT, town: STRING>"


@pytest.fixture
def cluster(tmp_path):
    """One topic with two partitions; in each two files with 50 records each."""
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("t", 2, value_schema=DDL)])
    with Producer(str(tmp_path), linger_ms=60_000) as producer:  # each flush writes one file of a partition
        for first in (0, 50):
            for partition in (0, 1):
                for number in range(first, first + 50):
                    value = {"id": number, "valid": f"v{number}", "place": {"zip": number % 3, "town": "x"}}
                    producer.send("t", value, partition=partition, key=b"k")
            producer.flush()
    return open_cluster(tmp_path)


@pytest.fixture
def columns_read(monkeypatch):
    """Collects the columns of each file that is read, all by Arrow."""
    monkeypatch.setattr(core_reading, "CORE", None)
    found = []
    read = segment_rows._read_columns

    def noting(file, columns, groups, **options):
        found.append((*columns, groups))
        return read(file, columns, groups, **options)

    monkeypatch.setattr(segment_rows, "_read_columns", noting)
    return found


def test_a_dataset_has_the_columns_of_a_view(cluster):
    dataset = topic_dataset(cluster, "t")
    columns = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert dataset.schema.names == [*columns, "id", "valid", "place"]
    assert isinstance(dataset, ds.Dataset)
    table = dataset.to_table()
    assert table.schema == dataset.schema
    assert table.num_rows == dataset.count_rows() == 200
    assert dataset.count_rows(filter=ds.field("id") < 10) == 20
    assert dataset.head(3, columns=["id"]).num_rows == 3
    assert dataset.to_table(columns={"twice": ds.field("id") * 2}, filter=ds.field("id") == 7)["twice"].to_pylist() == [
        14,
        14,
    ]


def test_a_scanner_that_arrow_makes_by_itself_fails_loudly(cluster):
    with pytest.raises(FileNotFoundError):
        ds.Scanner.from_dataset(topic_dataset(cluster, "t")).to_table()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT sum(id) FROM t", {"data.id"}),
        ("SELECT sum(id) FROM t WHERE valid > 'v'", {"data.id", "data.valid"}),
        ("SELECT sum(id) FROM t WHERE id IS NOT NULL", {"data.id"}),
        ("SELECT max(place.town) FROM t", {"data.place"}),
        ("SELECT max(\"offset\") FROM t WHERE key = 'k'", {"offset_delta", "key"}),
        ("SELECT partition, sum(id) FROM t GROUP BY 1", {"data.id"}),
        ("SELECT count(*) FROM t", set()),
        ("SELECT count(*), max(topic) FROM t WHERE partition = 1", set()),
    ],
)
def test_columns_that_a_query_does_not_need_are_not_read(cluster, columns_read, text, read):
    with connect(cluster) as connection:
        assert connection.execute(text).fetchone() is not None
    assert {name for *names, _ in columns_read for name in names} == read


def test_counts_need_no_file(cluster, tmp_path):
    for path in (tmp_path / "topics" / "t").rglob("partition=*/*.parquet"):
        path.unlink()
    with connect(cluster) as connection:
        assert connection.execute("SELECT partition, count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall() == [
            (0, 100),
            (1, 100),
        ]


def test_deleted_records_are_left_out_of_all_columns(cluster, columns_read):
    with Admin(cluster) as admin:
        admin.delete_records({TopicPartition("t", 0): 60, TopicPartition("t", 1): 50})
    with connect(cluster) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(90,)]
        assert connection.execute("SELECT min(id) FROM t WHERE partition = 0").fetchall() == [(60,)]
    assert columns_read == [("offset_delta", None), ("data.id", "offset_delta", None)]


def test_offsets_skip_files(cluster, columns_read):
    with connect(cluster) as connection:
        assert connection.execute('SELECT id FROM t WHERE "offset" = 70 AND partition = 1').fetchall() == [(70,)]
    assert len(columns_read) == 1


def test_row_groups_of_larger_files_are_skipped_by_their_bounds(cluster, columns_read, monkeypatch, tmp_path):
    for name in ("_SMALL_FILE_BYTES", "_SMALL_FILTERED_BYTES"):
        monkeypatch.setattr(segment_rows, name, 0)
    for path in (tmp_path / "topics" / "t").rglob("partition=*/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None), path, row_group_size=10)
    with connect(cluster) as connection:
        assert connection.execute("SELECT id FROM t WHERE id = 77").fetchall() == [(77,), (77,)]
        assert columns_read == [("data.id", (2,))] * 2
        columns_read.clear()
        assert connection.execute("SELECT count(*) FROM t WHERE place.zip >= 0").fetchall() == [(200,)]
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(200,)]


def in_row_groups_of(tmp_path, rows):
    """Write each file again, in row groups of so many rows, with dictionaries."""
    for path in (tmp_path / "topics" / "t").rglob("partition=*/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None), path, row_group_size=rows)


@pytest.mark.parametrize("small_bytes", [0, 2**20])
def test_texts_that_are_dictionaries_are_read_of_many_row_groups(
    cluster, columns_read, monkeypatch, tmp_path, small_bytes
):
    for name in ("_SMALL_FILE_BYTES", "_SMALL_FILTERED_BYTES"):
        monkeypatch.setattr(segment_rows, name, small_bytes)
    in_row_groups_of(tmp_path, 10)
    with connect(cluster) as connection:
        found = connection.execute("SELECT valid, count(*), sum(id) FROM t GROUP BY valid").fetchall()
        where = connection.execute("SELECT count(*) FROM t WHERE valid >= 'v'").fetchall()
    assert sorted(found) == sorted((f"v{number}", 2, 2 * number) for number in range(100))
    assert where == [(200,)]


def test_row_groups_in_a_row_are_read_together_up_to_a_number_of_rows_and_bytes(
    cluster, columns_read, monkeypatch, tmp_path
):
    for name in ("_SMALL_FILE_BYTES", "_SMALL_FILTERED_BYTES"):
        monkeypatch.setattr(segment_rows, name, 0)
    in_row_groups_of(tmp_path, 10)
    monkeypatch.setattr(segment_rows, "_BATCH_ROWS", 25)
    with connect(cluster) as connection:
        assert connection.execute("SELECT sum(id) FROM t").fetchall() == [(9900,)]
        assert sorted(columns_read) == [("data.id", part) for part in [(0, 1), (2, 3), (4,)] for _ in range(4)]
        columns_read.clear()
        apart = "SELECT sum(id) FROM t WHERE id < 10 OR id >= 20 AND id < 40"
        assert connection.execute(apart).fetchall() == [(2 * sum([*range(10), *range(20, 40)]),)]
        assert sorted(columns_read) == [("data.id", part) for part in [(0,), (2, 3)] for _ in range(2)]
        columns_read.clear()
        monkeypatch.setattr(segment_rows, "_JOINED_BYTES", 1)
        assert connection.execute("SELECT sum(id) FROM t").fetchall() == [(9900,)]
    assert sorted(columns_read) == [("data.id", (group,)) for group in range(5) for _ in range(4)]


def test_small_files_are_read_together_up_to_a_size(cluster, monkeypatch):
    monkeypatch.setattr(segment_rows, "_JOINED_BYTES", 1)
    dataset = topic_dataset(cluster, "t")
    schema = pa.schema([dataset.schema.field("id")])
    batches = list(segment_rows.read_batches(dataset.source, dataset.segments, schema, None))
    assert [len(batch) for batch in batches] == [50, 50, 50, 50]


def test_files_are_read_together_up_to_a_number_of_rows(cluster, monkeypatch):
    monkeypatch.setattr(segment_rows, "_JOINED_ROWS", 120)
    dataset = topic_dataset(cluster, "t")
    schema = pa.schema([dataset.schema.field("id")])
    batches = list(segment_rows.read_batches(dataset.source, dataset.segments, schema, None))
    assert [len(batch) for batch in batches] == [100, 100]


def test_no_thread_stays_when_a_query_is_left(cluster, monkeypatch):
    monkeypatch.setattr(segment_rows, "_JOINED_ROWS", 0)
    dataset = topic_dataset(cluster, "t")
    batches = segment_rows.read_batches(dataset.source, [*dataset.segments] * 50, dataset.schema, None)
    next(batches)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("sparklog-sql")]
    assert ours
    batches.close()
    for thread in ours:
        thread.join(60)
        assert not thread.is_alive()


def test_records_without_a_number_are_refused_by_name(cluster, tmp_path):
    [path, *_] = (tmp_path / "topics" / "t" / "partition=0").glob("*.parquet")
    table = pq.read_table(path, partitioning=None)
    nulls = pa.nulls(len(table), pa.int64())
    pq.write_table(table.set_column(table.schema.get_field_index("offset_delta"), "offset_delta", nulls), path)
    with pytest.raises(CorruptRecordError, match=f"{path.name}: {len(table)} of its records have no offset_delta"):
        topic_dataset(cluster, "t").to_table(columns=["offset"])


SCHEMA = pa.schema([("id", pa.int64()), ("valid", pa.string()), ("s", pa.struct([("id", pa.int64())])), ("is", "bool")])


@pytest.mark.parametrize(
    ("columns", "where", "used"),
    [
        (None, None, ["id", "valid", "s", "is"]),
        ([], None, []),
        (["valid"], None, ["valid"]),
        (["s"], ds.field("valid") == "id", ["valid", "s"]),
        (["s"], ds.field("id").is_valid(), ["id", "s"]),
        ([], ds.field("s", "id") > 1, ["s"]),
        ({"x": ds.field("id") + 1}, ds.field("is"), ["id", "is"]),
        ({"x": pc.scalar(1)}, None, []),
    ],
)
def test_the_columns_that_expressions_use(columns, where, used):
    assert columns_used(SCHEMA, columns, where) == used


def test_a_name_that_arrow_writes_otherwise_is_read_all_the_same():
    schema = pa.schema([("a\n'\"\\b", pa.int64()), ("c", pa.int64())])
    assert "a\n'\"\\b" in columns_used(schema, ["c"], ds.field("a\n'\"\\b") == 1)


def test_row_groups_without_bounds_are_read(tmp_path):
    table = pa.table({"id": [1, 2, 3, None], "at": [1, 2, 3, 4]})
    for statistics, found in ((True, [1, 3]), (False, [0, 1, 2, 3])):
        pq.write_table(table, tmp_path / "f", row_group_size=1, write_statistics=statistics)
        metadata = pq.read_metadata(tmp_path / "f")
        where = ds.field("id") == 2  # a group of nulls alone has no bounds
        assert groups_to_read(metadata, table.schema, where, {"id": "id"}) == found
        assert groups_to_read(metadata, table.schema, None, {"id": "id"}) == [0, 1, 2, 3]
        assert groups_to_read(metadata, table.schema, where, {}) == [0, 1, 2, 3]
