"""Consumers of a local folder, whose files one call of the core reads for a round: they get what they get otherwise."""

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from sparklog._native import CORE
from sparklog.consumer import read_plans
from sparklog.consumer.fetch_state import FetchState
from sparklog.errors import SparklogError
from sparklog.log import Cluster
from sparklog.log.data.plain_runs import read_plain_runs
from sparklog.producer import Producer
from sparklog.storage import LocalStore
from tests.consumer.support import Rounds, a_cluster, a_consumer, take, tp, with_topic

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

COUNTS = [20, 60, 3, 40, 30]
"""Records of each file of a partition; one holds few records, and has another form."""


def filled(folder: Path, partitions: int = 2) -> Cluster:
    cluster = with_topic(a_cluster(LocalStore(folder)), partitions=partitions)
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        for file, count in enumerate(COUNTS):
            for number in range(count):
                for partition in range(partitions):
                    key = b"%d" % number if number % 3 else None
                    producer.send("t", key=key, value=b"%d.%d" % (file, number) * 50, partition=partition)
            producer.flush()
    return cluster


def files(folder: Path) -> list[Path]:
    """Data files of partition 0, in their order."""
    found = [path for path in folder.rglob("*.parquet") if "partition=0" in str(path)]
    return sorted(found, key=lambda path: pq.ParquetFile(path).read(["value"])["value"][0].as_py())


def got(cluster: Cluster, count: int) -> tuple[list[Any], str]:
    """What a consumer gets of both partitions; and by which error it ends."""
    found: list[Any] = []
    with a_consumer(cluster) as consumer:
        consumer.assign([tp(), tp(1)])
        consumer.seek(tp(), 5)  # within a file
        try:
            while len(found) < count:
                for records in consumer.poll(timeout_ms=2_000, max_records=37).values():
                    found += records
        except SparklogError as error:
            return sorted(found, key=lambda record: (record.partition, record.offset)), repr(error)
    return sorted(found, key=lambda record: (record.partition, record.offset)), ""


def test_all_files_are_read_without_another_call(tmp_path):
    cluster = filled(tmp_path)
    count = 2 * sum(COUNTS) - 5
    with mock.patch.object(read_plans, "read_plain_runs", return_value=None):
        expected = got(cluster, count)
    assert len(expected[0]) == count
    cluster = a_cluster(LocalStore(tmp_path))
    local: Any = cluster.store
    while not isinstance(local, LocalStore):
        local = local._store
    with mock.patch.object(local, "read_buffers", side_effect=local.read_buffers) as read:
        assert got(cluster, count) == expected
    paths = [path for call in read.call_args_list for path in call.args[0]]
    assert len(paths) == 2  # of few records each
    assert len(set(paths)) == 2


def test_they_are_counted_once(tmp_path):
    filled(tmp_path)
    counts = []
    for is_used in (False, True):
        cluster = a_cluster(LocalStore(tmp_path))
        reader = Rounds(cluster)
        with mock.patch.object(read_plans, "read_plain_runs", read_plain_runs if is_used else lambda *_: None):
            reader.assign(tp(), tp(1))
            reader.run()
        assert len(reader.take(tp())) == sum(COUNTS)
        counts.append(cluster.store.counts.by_kind()["get"])
    assert (counts[0].requests, counts[0].bytes) == (counts[1].requests, counts[1].bytes)


def test_small_files_become_one_chunk(tmp_path):
    reader = Rounds(filled(tmp_path))
    reader.assign(tp())
    with mock.patch.object(read_plans, "read_plain_runs", side_effect=read_plain_runs) as read:
        reader.run()
    runs = [[run.counts for run in call.args[1]] for call in read.call_args_list]
    assert [[20, 60], [40, 30]] in runs


@pytest.mark.parametrize("what", ["gone", "cut off", "damaged", "empty"])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_file_that_cannot_be_read_ends_in_the_same_error_after_the_same_records(tmp_path, what, place):
    cluster = filled(tmp_path)
    path = files(tmp_path)[place]
    data = path.read_bytes()
    path.unlink()
    if what == "damaged":
        at = data.index(b"%d.1" % place)
        path.write_bytes(data[: at - 4] + b"\xff\xff\xff\x7f" + data[at:])
    elif what != "gone":
        path.write_bytes(data[:-9] if what == "cut off" else b"")
    with mock.patch.object(read_plans, "read_plain_runs", return_value=None):
        expected = got(cluster, 2 * sum(COUNTS) - 5)
    found = got(a_cluster(LocalStore(tmp_path)), 2 * sum(COUNTS) - 5)
    assert found[1] == expected[1] != ""
    of_first = [[record for record in records if record.partition == 0] for records, _ in (found, expected)]
    assert of_first[0] == of_first[1][: len(of_first[0])] or of_first[1] == of_first[0][: len(of_first[1])]


def test_a_fetcher_is_told_of_room_where_memory_was_given_back(tmp_path):
    cluster = filled(tmp_path, partitions=1)
    with a_consumer(cluster) as consumer:
        consumer.assign([tp()])
        first = take(consumer, 1, max_records=1)
        with mock.patch.object(FetchState, "notify_room", autospec=True, side_effect=FetchState.notify_room) as told:
            found = take(consumer, 19, max_records=1)
            assert told.call_count == 0  # the chunk has 80 records
            found += take(consumer, sum(COUNTS) - 20, max_records=10)
            assert 0 < told.call_count < 5
    assert [record.offset for record in first + found] == [*range(sum(COUNTS))]
