"""``merge_ingest`` on S3, beside a Python client that writes to the same partitions."""

from __future__ import annotations

import threading

import pytest

import sparklog.spark as ss
from sparklog.storage import open_store
from tests.depth import by_depth
from tests.spark.spark_support import a_cluster, put
from tests.support import a_writer, append, contents

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

SCHEMA = "producer_id BIGINT, producer_epoch SMALLINT, sequence INT, partition INT, value BINARY"


def test_rows_are_stored_once_beside_a_python_client(spark, s3_uri, s3_options):
    cluster = a_cluster(open_store(s3_uri, s3_options))
    put(cluster, (0, "x"))
    rows = [(7, 0, number, number % 2, f"row{number}".encode()) for number in range(10)]
    written: list[str] = []
    stop = threading.Event()

    def write() -> None:
        writer = a_writer(cluster.topic_log("t"))
        # Fewer than the ingest tries to come first: on a busy machine each of them may find it at work.
        while len(written) < 8 and not stop.wait(0.5 + len(written) / 10):
            append(writer, f"ours{len(written)}")
            written.append(f"ours{len(written)}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for end, inserted in by_depth(gate=[(10, 10)], nightly=[(6, 6), (10, 4)]):
            frame = spark.createDataFrame([*rows[:end], rows[0]], SCHEMA)
            done = ss.merge_ingest(frame, s3_uri, "t", storage_options=s3_options)
            assert (done.inserted, done.duplicates) == (inserted, end + 1 - inserted)
    finally:
        stop.set()
        thread.join()
    found = contents(cluster.topic_log("t"))
    for records in found.values():
        assert [offset for offset, _ in records] == list(range(len(records)))
    values = [value for records in found.values() for _, value in records]
    assert sorted(values) == sorted(["x", *written, *(value.decode() for *_, value in rows)])
