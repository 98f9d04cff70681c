"""Bytes of data files that changed at rest: no reader returns another record, nor fewer, without an error."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog._native import CORE
from sparklog.delta import parquet_seals
from sparklog.delta.parquet_seals import SEAL_KEY, close_sealed, is_sealed
from sparklog.errors import CorruptRecordError
from sparklog.log.data.encode import decode_file, encode_batch
from sparklog.log.data.few_rows import FewRows, decode_few_records
from sparklog.log.data.plain_reading import read_plain_rows
from sparklog.log.data.plain_runs import PlainRun
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.sql.core_reading import read_columns
from sparklog.storage.local import LocalStore
from tests.log.test_plain_reading import MOST, a_file, a_segment
from tests.log.test_plain_runs import read, records

STAMP = ProducerStamp(producer_id=7, producer_epoch=0, base_sequence=5)
FEW = FewRows(range(3), [1_000, 2_000, 3_000], [b"k", None, b"q"], [b"amount=100", b"amount=200", None])
needs_core = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")


def flips(data: bytes):
    """Each byte changed, with whether it is one of the mark by which a seal is found: then there is none."""
    seal = data.rindex(SEAL_KEY)
    for at in range(len(data)):
        yield (
            data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :],
            seal - 2 <= at < seal + len(SEAL_KEY) + 2 + 12,
        )


@pytest.mark.parametrize("is_pure", [False, True])
def test_a_flipped_byte_of_few_records_is_never_served(is_pure, monkeypatch):
    if is_pure:
        monkeypatch.setattr(parquet_seals, "CORE", None)
    elif CORE is None:
        pytest.skip("the native core isn't compiled")
    data = encode_batch(FEW, STAMP).data
    whole = decode_file("f", data)
    served = decode_few_records(data, 0)
    assert served is not None
    assert served.values == FEW.values
    for changed, is_of_seal in flips(data):
        assert decode_few_records(changed, 0) is None
        try:
            found = decode_file("f", changed)
        except CorruptRecordError:
            continue
        assert is_of_seal
        assert found.equals(whole)


@needs_core
def test_a_flipped_byte_of_many_records_is_never_served(tmp_path):
    data = a_file(20)
    store = LocalStore(tmp_path)
    for number, (changed, _) in enumerate(flips(data)):
        assert read_plain_rows(changed, 20, 0, MOST) is None
        if number % 7:
            continue
        store.put("f", changed)
        run = PlainRun()
        assert run.add("f", a_segment(changed, 20), MOST)
        (found,) = read(store, run)
        assert found.rows is None
        assert bytes(found.other) == changed
    store.put("f", data)
    (found,) = read(store, run)
    assert len(records(found)) == 20


@needs_core
@pytest.mark.parametrize("carries_stats", [False, True])
def test_a_flipped_byte_of_typed_values_is_never_served(tmp_path, carries_stats):
    rows = pa.table(
        {
            "timestamp": pa.array([1_000, 2_000, 3_000] * 10, pa.int64()),
            "value": pa.nulls(30, pa.binary()),
            "data": pa.array([{"n": 1, "t": "x"}, {"n": None, "t": "y"}, {"n": 3, "t": None}] * 10),
            "schema_id": pa.array([1] * 30, pa.int32()),
        }
    )
    data = bytes(encode_batch(rows, STAMP, leaves=[("n",), ("t",)], carries_stats=carries_stats).data)
    assert is_sealed(data)
    whole = decode_file("f", data)
    assert whole["data"].to_pylist() == rows["data"].to_pylist()
    folder = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    wanted = {"n": ("data.n", pa.int64())}
    for changed, is_of_seal in flips(data):
        (tmp_path / "f").write_bytes(changed)
        read_by_core = read_columns(folder, [("f", 30)], wanted)
        if read_by_core is not None:
            assert read_by_core["n"].to_pylist() == [1, None, 3] * 10
        try:
            found = decode_file("f", changed)
        except CorruptRecordError:
            continue
        assert is_of_seal
        assert found.equals(whole)


@needs_core
def test_files_of_versions_without_seals_are_read_by_arrow_alone():
    data = a_file(20)
    at = data.rindex(SEAL_KEY)
    older = data[:at] + b"someother.name" + data[at + len(SEAL_KEY) :]
    assert read_plain_rows(older, 20, 0, MOST) is None
    assert decode_file("f", older).num_rows == 20


@needs_core
@pytest.mark.parametrize("has_sums", [True, False])
def test_the_core_reads_columns_of_sealed_files_whose_pages_have_checksums(tmp_path, has_sums):
    table = pa.table({"timestamp": pa.array(range(5), pa.int64())})
    sink = io.BytesIO()
    writer = pq.ParquetWriter(
        sink, table.schema, write_page_checksum=has_sums, use_dictionary=False, compression="none"
    )
    writer.write_table(table)
    (tmp_path / "f").write_bytes(close_sealed(writer, sink))
    folder = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    found = read_columns(folder, [("f", 5)], {"t": ("timestamp", pa.int64())})
    assert (None if found is None else found["t"].to_pylist()) == ([0, 1, 2, 3, 4] if has_sums else None)
