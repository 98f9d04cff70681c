"""A search hands out records in order, reads no file that the log rules out, and stops when it has enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.admin import Admin
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError
from sparklog.log import Cluster, open_cluster
from sparklog.log.append import TopicWriter
from sparklog.log.topic import create_topic
from sparklog.model import TopicPartition
from sparklog.producer import Producer
from sparklog.schemas import value_schema
from sparklog.sql import query
from sparklog.sql.dataset import load_living
from sparklog.sql.search import FieldCondition, FoundRecord, Search, TopicSearch
from sparklog.sql.topic_files import topic_files
from sparklog.storage import LocalStore, MemoryStore
from tests.support import T0_MS, a_writer, records, within


@pytest.fixture
def cluster() -> Cluster:
    return open_cluster(MemoryStore())


def topic(cluster: Cluster, *, partitions: int = 2) -> TopicWriter:
    log = cluster.topic_log("t")
    create_topic(log, "t", num_partitions=partitions)
    return a_writer(log, topic="t")


def append(writer: TopicWriter, *values: str | bytes, at: int, partition: int = 0) -> None:
    """Append with the values as keys, at so many seconds after the beginning, a millisecond apart."""
    table = records(*values, timestamp_ms=T0_MS + 1_000 * at)
    writer.append(writer.upload([(partition, table)]), deadline=within(writer, 60_000))


def found(cluster: Cluster, **search: Any) -> list[FoundRecord]:
    return [one for some in TopicSearch(cluster, "t", Search(**search)) for one in some]


def values(cluster: Cluster, **search: Any) -> list[bytes]:
    return [one.value for one in found(cluster, **search)]


def test_the_newest_come_first_over_partitions(cluster: Cluster) -> None:
    writer = topic(cluster)
    append(writer, "a", "b", at=0)
    append(writer, "c", at=0, partition=1)  # as old as a
    append(writer, "d", at=5, partition=1)
    append(writer, "e", at=3)
    assert values(cluster) == [b"d", b"e", b"b", b"a", b"c"]
    assert values(cluster, limit=3) == [b"d", b"e", b"b"]
    assert values(cluster, newest_first=False) == [b"a", b"c", b"b", b"e", b"d"]


def test_it_stops_when_it_has_enough(cluster: Cluster) -> None:
    writer = topic(cluster)
    for second in range(10):
        append(writer, f"{second}", at=second)
    search = TopicSearch(cluster, "t", Search(limit=2))
    assert [one.value for some in search for one in some] == [b"9", b"8"]
    assert (search.progress.file_count, search.progress.read_count, search.progress.is_done) == (10, 2, True)


def test_by_offset_they_come_in_order(cluster: Cluster) -> None:
    writer = topic(cluster)
    append(writer, "a", "b", at=9)
    append(writer, "c", "d", at=1)
    at: dict[str, Any] = {"partitions": frozenset([0]), "newest_first": False}
    assert values(cluster, first_offset=1, **at) == [b"b", b"c", b"d"]
    assert values(cluster, first_offset=2, limit=1, **at) == [b"c"]
    search = TopicSearch(cluster, "t", Search(first_offset=3, **at))
    assert search.progress.skipped_count == 1
    assert values(cluster, first_offset=4, **at) == []


def test_a_key_is_found(cluster: Cluster) -> None:
    writer = topic(cluster)
    append(writer, "a", "b", at=0)
    append(writer, "b", at=1, partition=1)
    append(writer, b"\xff\x00'; drop", at=2)
    assert [(one.partition, one.offset) for one in found(cluster, key=b"b")] == [(1, 0), (0, 1)]
    assert values(cluster, key=b"\xff\x00'; drop") == [b"\xff\x00'; drop"]
    assert values(cluster, key=b"b", partitions=frozenset([0])) == [b"b"]


def test_times_skip_files(cluster: Cluster) -> None:
    writer = topic(cluster)
    for second in range(10):
        append(writer, f"{second}", at=second)
    search = TopicSearch(cluster, "t", Search(since_ms=T0_MS + 2_000, until_ms=T0_MS + 4_000))
    assert search.progress.skipped_count == 8
    assert [one.value for some in search for one in some] == [b"3", b"2"]


def test_a_condition_in_sql_holds(cluster: Cluster) -> None:
    writer = topic(cluster)
    append(writer, "a", "b", "c", at=0)
    assert values(cluster, where="decode(value) in ('a', 'c')") == [b"c", b"a"]
    assert values(cluster, where="decode(value) in ('a', 'c')", limit=1) == [b"c"]
    with pytest.raises(InvalidArgumentError, match="Binder Error"):
        found(cluster, where="nonsense = 1")
    with pytest.raises(InvalidArgumentError):
        found(cluster, where="exists (select * from read_text('/etc/passwd'))")


def test_deleted_records_are_not_found(cluster: Cluster) -> None:
    writer = topic(cluster)
    append(writer, "a", "b", "c", at=0)
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    assert values(cluster) == [b"c"]


def test_fields_of_typed_values_skip_files(cluster: Cluster) -> None:
    fields = pa.schema([("total", pa.int64()), ("at", pa.struct([("x", pa.float64())]))])
    create_topic(cluster.topic_log("t"), "t", value_schema=value_schema(fields))
    for number in range(5):
        with Producer(cluster=cluster) as producer:
            producer.send("t", {"total": number, "at": {"x": number / 2}})
    search = TopicSearch(cluster, "t", Search(field=FieldCondition(leaf=("total",), comparison=">", text="3")))
    assert search.progress.skipped_count == 4
    assert [one.value["total"] for some in search for one in some] == [4]
    nested = FieldCondition(leaf=("at", "x"), comparison="=", text="0.5")
    assert [one.value["total"] for one in found(cluster, field=nested)] == [1]
    for leaf, text, says in (
        (("total",), "abc", "is int64"),
        (("no",), "1", "no field"),
        (("total", "x"), "1", "no f"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            found(cluster, field=FieldCondition(leaf=leaf, comparison="=", text=text))


def test_a_long_value_is_cut_and_its_size_told(cluster: Cluster) -> None:
    append(topic(cluster), "x" * 5_000, at=0)
    [one] = found(cluster, most_bytes=10)
    assert (one.value, one.value_size, one.key, one.key_size) == (b"x" * 10, 5_000, b"x" * 10, 5_000)


def test_a_cancelled_search_ends(cluster: Cluster) -> None:
    writer = topic(cluster)
    for second in range(5):
        append(writer, f"{second}", at=second)
    search = TopicSearch(cluster, "t", Search())
    steps = iter(search)
    next(steps)
    search.cancel()
    assert list(steps) == []
    assert not search.progress.is_done


def test_an_older_version_is_searched_as_it_was(cluster: Cluster) -> None:
    writer = topic(cluster, partitions=1)
    for second, value in enumerate("abc"):
        append(writer, value, at=second)
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    then = [
        [one.value for some in TopicSearch(cluster, "t", Search(), version=version) for one in some]
        for version in range(5)
    ]
    assert then == [[], [b"a"], [b"b", b"a"], [b"c", b"b", b"a"], [b"c"]]
    with pytest.raises(InvalidArgumentError, match="the newest is 4"):
        TopicSearch(cluster, "t", Search(), version=5)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_file_of_an_older_version_that_was_deleted_since_is_told(kind: str, tmp_path: Path) -> None:
    cluster = open_cluster(MemoryStore() if kind == "memory" else LocalStore(tmp_path))
    append(topic(cluster, partitions=1), "a", at=0)
    Admin(cluster).delete_records({TopicPartition("t", 0): 1})
    log = cluster.topic_log("t")
    [path] = [one.path for one in cluster.store.list(f"{log.table}/partition=0/")]
    cluster.store.delete([path])
    said = f"topic 't' as of version 1: data file {path} isn't there: files of that version were deleted since"
    with pytest.raises(ObjectNotFoundError) as missing:
        list(TopicSearch(cluster, "t", Search(), version=1))
    assert str(missing.value) == said
    assert found(cluster) == []
    for columns in ("value", "timestamp", "count(*) filter (key is null)"):
        with (
            pytest.raises((InvalidArgumentError, ObjectNotFoundError)) as caught,
            query(cluster, f"select {columns} from t", versions={"t": 1}) as result,
        ):
            list(result)
        assert str(caught.value) == said
    if kind == "folder":  # the log answers; what isn't a folder or a bucket is copied
        with query(cluster, "select count(*) as n from t", versions={"t": 1}) as result:
            assert [row for batch in result for row in batch.to_pylist()] == [{"n": 1}]


def test_a_file_that_cannot_be_read_is_named(cluster: Cluster) -> None:
    append(topic(cluster), "a", at=0)
    log = cluster.topic_log("t")
    [file] = topic_files(log, load_living(log, "t"))
    cluster.store.put(file.path, b"no Parquet")
    with pytest.raises(CorruptRecordError, match=file.path):
        found(cluster)


@pytest.mark.s3
def test_files_in_a_bucket_are_searched(s3_uri: str, s3_options: dict[str, Any]) -> None:
    cluster = open_cluster(s3_uri, storage_options=s3_options)
    writer = topic(cluster)
    for second in range(12):
        append(writer, f"{second}", at=second, partition=second % 2)
    assert values(cluster, limit=2) == [b"11", b"10"]
    assert values(cluster, key=b"7") == [b"7"]
    assert values(cluster, where="decode(value) in ('3', '10')") == [b"10", b"3"]
    log = cluster.topic_log("t")
    cluster.store.delete([one.path for one in topic_files(log, load_living(log, "t"))])
    with pytest.raises(ObjectNotFoundError, match="files of that version were deleted since"):
        found(cluster)


def test_files_of_a_folder_are_searched(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path / "a folder: 100%")
    writer = topic(cluster)
    for second in range(40):
        append(writer, f"{second}", at=second, partition=second % 2)
    assert values(cluster) == [b"%d" % second for second in reversed(range(40))]
    assert values(cluster, where="decode(value) < '2'", limit=3) == [b"19", b"18", b"17"]
    log = cluster.topic_log("t")
    cluster.store.delete([one.path for one in topic_files(log, load_living(log, "t"))])
    with pytest.raises(ObjectNotFoundError, match="as of version 40: data file"):
        found(cluster)


@pytest.mark.parametrize(
    ("search", "kept"),
    [
        ({}, 4),
        ({"partitions": frozenset([1])}, 1),
        ({"since_ms": T0_MS + 5_000}, 2),  # the file that ends there may have a record of that millisecond
        ({"since_ms": T0_MS + 5_001}, 1),
        ({"until_ms": T0_MS + 5_000}, 2),
        ({"until_ms": T0_MS + 5_001}, 3),
        ({"since_ms": T0_MS + 1, "until_ms": T0_MS + 9_000}, 2),
        ({"first_offset": 1, "newest_first": False}, 2),
    ],
)
def test_files_are_ruled_out_by_what_the_log_says_without_an_expression_for_each(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, search: dict[str, Any], kept: int
) -> None:
    writer = topic(cluster)
    append(writer, "a", at=0)
    append(writer, "b", at=5)
    append(writer, "c", at=9)
    append(writer, "d", at=1, partition=1)
    monkeypatch.setattr("sparklog.sql.search.not_ruled_out", None)
    progress = TopicSearch(cluster, "t", Search(key=b"a", **search)).progress
    assert progress.file_count - progress.skipped_count == kept
