"""Bytes of files and entries that changed at rest, as consumers and a check see them: no record changes or is lost."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog import Consumer, Producer, TopicPartition
from sparklog.errors import CorruptRecordError, SparklogError
from sparklog.integrity import check_cluster
from sparklog.log import create_topic, open_cluster
from sparklog.log.data.encode import decode_file
from sparklog.storage import MemoryStore
from tests.depth import each_nth

AT = TopicPartition("t", 0)
SENT = [(b"k", b"amount=100"), (None, b"amount=200"), (b"q", b"amount=300")]


def a_topic(compression: str) -> MemoryStore:
    store = MemoryStore()
    cluster = open_cluster(store)
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster, compression_type=compression, linger_ms=1_000) as producer:
        for key, value in SENT:
            producer.send("t", value, key)
        producer.flush()
    return store


def read(store: MemoryStore) -> list[tuple[bytes | None, bytes | None]] | SparklogError:
    """All records of the topic, or the error that a consumer raises."""
    try:
        with Consumer(cluster=open_cluster(store)) as consumer:
            consumer.assign([AT])
            consumer.seek(AT, 0)
            return [(each.key, each.value) for each in consumer.poll(10_000).get(AT, [])]
    except SparklogError as error:
        return error


def flips(data: bytes) -> list[bytes]:
    """One bit of each byte changed; in the gate of one in 12."""
    return [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in each_nth(range(len(data)), 12)]


def path_of(store: MemoryStore, part: str) -> str:
    """The newest object of the topic's with that in its name."""
    return sorted(each.path for each in store.list("topics/t/") if part in each.path)[-1]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_changed_byte_of_a_file_is_never_another_record(compression: str) -> None:
    """✗ One flip of ten is a wrong key or value, or one record fewer, without an error."""
    store = a_topic(compression)
    assert read(store) == SENT
    path = path_of(store, ".parquet")
    whole = store.read(path)
    refused = 0
    for changed in flips(whole):
        store.put(path, changed)
        found = read(store)
        assert isinstance(found, CorruptRecordError) or found == SENT
        refused += found != SENT
    assert refused > 0
    at = whole.rindex(b"k") if compression == "none" else len(whole) // 8
    store.put(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert check_cluster(open_cluster(store), deep=True).errors


def test_a_changed_byte_of_an_entry_is_never_a_record_less() -> None:
    """✗ An entry whose number of records changed is passed over, and its records are."""
    store = a_topic("none")
    path = path_of(store, ".json")
    for changed in flips(store.read(path)):
        store.put(path, changed)
        found = read(store)
        assert isinstance(found, SparklogError) or found == SENT


def test_a_footer_whose_row_group_has_very_many_rows_asks_for_no_memory() -> None:
    """✗ Arrow asks for 274 GB, and where the system overcommits the process is killed."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"number": pa.array([1, 2, 3], pa.int64())}), sink, store_schema=False)
    data = sink.getvalue()
    rows, many = b"\x16\x06", b"\x16" + b"\x80" * 5 + b"\x10"  # field 3 of Thrift, as 64 bits: 3, 2**38
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    at = footer.rindex(rows)
    changed = footer[:at] + many + footer[at + len(rows) :]
    damaged = data[: -8 - len(footer)] + changed + len(changed).to_bytes(4, "little") + b"PAR1"
    found = pq.read_metadata(io.BytesIO(damaged))
    assert (found.num_rows, found.row_group(0).num_rows) == (3, 2**38)
    with pytest.raises(CorruptRecordError, match="row group 0 has"):
        decode_file("f", damaged)
