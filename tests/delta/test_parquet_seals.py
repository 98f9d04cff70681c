"""Seals of Parquet files: no bit of a file can change without being noticed, whoever reads it."""

import io
import random
import sys
import zlib
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog._native import CORE, _isal_crc32
from sparklog.checksums import crc32
from sparklog.delta import parquet_seals
from sparklog.delta.flat_parquet import NotFlatError, read_flat
from sparklog.delta.flat_writing import write_flat
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.parquet_seals import SEAL_KEY, WRITER_OPTIONS, close_sealed, is_sealed

TABLE = pa.table({"number": [1, 2, 3], "text": ["one", None, "three"]})
KINDS = {"number": "long", "text": "string"}
WRONG = (pa.ArrowException, OSError, ValueError)


def by_arrow(table: pa.Table = TABLE, **options) -> bytes:
    sink = io.BytesIO()
    writer = pq.ParquetWriter(
        sink, table.schema, **WRITER_OPTIONS, use_dictionary=False, write_statistics=False, **options
    )
    writer.write_table(table)
    return close_sealed(writer, sink)


def by_hand() -> bytes:
    return write_flat(KINDS, [TABLE["number"].to_pylist(), TABLE["text"].to_pylist()])


@pytest.fixture(params=["core", "pure"])
def either_core(request, monkeypatch):
    if request.param == "pure":
        monkeypatch.setattr(parquet_seals, "CORE", None)
    elif CORE is None:
        pytest.skip("the native core isn't compiled")


@pytest.mark.parametrize("make", [by_arrow, by_hand])
def test_a_file_has_a_seal_and_checksums_of_its_pages(make, either_core):
    data = make()
    assert is_sealed(data)
    assert open_parquet(data).read().to_pydict() == TABLE.to_pydict()
    footer = pq.read_metadata(io.BytesIO(data))
    assert int(footer.metadata[SEAL_KEY][:12], 16) == len(data)
    page = bytearray(data)
    page[data.index(b"three")] ^= 1  # it isn't opened whole, so the checksum of the page is what is wrong
    with pytest.raises(pa.ArrowInvalid, match=r"column text, .* has checksum"):
        open_parquet(pa.BufferReader(bytes(page))).read()


@pytest.mark.parametrize("make", [by_arrow, by_hand])
def test_each_bit_that_changes_is_found(make, either_core):
    data = make()
    seal = data.rindex(SEAL_KEY)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        is_of_seal = seal - 2 <= at < seal + len(SEAL_KEY) + 2 + 12
        assert not is_sealed(changed)
        assert is_sealed(changed) is False or at >= len(data) - 8 or is_of_seal  # else it has lost its seal
        try:
            found = open_parquet(bytes(changed)).read().to_pydict()
        except WRONG:
            continue
        assert is_of_seal
        assert found == TABLE.to_pydict()


def test_a_flipped_byte_of_a_small_flat_file_is_left_to_arrow_which_refuses_it(either_core):
    data = by_hand()
    at = data.index(b"three")
    changed = data[:at] + b"T" + data[at + 1 :]
    with pytest.raises(NotFlatError):
        read_flat(changed, KINDS)
    with pytest.raises(pa.ArrowException, match="changed since it was written"):
        open_parquet(changed)


def test_both_cores_make_the_same_seals(monkeypatch):
    if CORE is None:
        pytest.skip("the native core isn't compiled")
    core = by_arrow()
    monkeypatch.setattr(parquet_seals, "CORE", None)
    assert by_arrow() == core


def test_a_copied_seal_is_no_seal_of_the_copy():
    sink = io.BytesIO()
    table = pq.read_table(io.BytesIO(by_arrow(store_schema=False)))
    pq.write_table(table.set_column(0, table.schema.field(0), [[7, 8, 9]]), sink)
    assert SEAL_KEY in pq.read_metadata(sink).metadata  # Arrow copies the metadata of the file that it has read
    assert is_sealed(sink.getvalue()) is None
    assert open_parquet(sink.getvalue()).read()["number"].to_pylist() == [7, 8, 9]


def test_values_that_look_like_a_seal_are_none():
    table = pa.table({"text": ["\x18\x0esparklog.crc32\x18\x1c" + "0" * 28]})
    data = by_arrow(table)
    assert is_sealed(data)
    assert open_parquet(data).read().to_pydict() == table.to_pydict()


@pytest.mark.parametrize("rows", [4, 2**38, -1])
def test_a_footer_with_another_number_of_rows_in_a_row_group_asks_for_no_memory(rows, monkeypatch):
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    footer = pq.read_metadata(sink)

    class Group:
        num_rows, num_columns = rows, 1

        def column(self, _: int) -> object:
            return footer.row_group(0).column(0)

    class Damaged:
        num_rows, num_row_groups, schema = footer.num_rows, 1, footer.schema

        def row_group(self, _: int) -> object:
            return Group()

    monkeypatch.setattr("sparklog.delta.parquet_reading.pq.read_metadata", lambda _: Damaged())
    with pytest.raises(pa.ArrowInvalid, match="row group 0 has"):
        open_parquet(sink.getvalue())


def test_a_file_of_another_number_of_rows_than_the_log_states_is_refused():
    with pytest.raises(pa.ArrowInvalid, match="3 rows, and the log states 4"):
        open_parquet(by_arrow(), rows=4)


def test_the_core_sums_by_the_library_where_there_is_one():
    pytest.importorskip("isal")
    assert _isal_crc32() is not None, "else files are summed at a tenth of its speed"
    assert crc32.__module__ == "isal.isal_zlib"


@pytest.mark.parametrize("missing", ["the package", "its function"])
def test_without_the_library_nothing_is_taken(missing, monkeypatch):
    module = None if missing == "the package" else SimpleNamespace(__file__=None)  # None: this process's own functions
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", module)
    monkeypatch.setitem(sys.modules, "isal", SimpleNamespace(isal_zlib=module) if module else None)
    assert _isal_crc32() is None


def test_the_cores_checksum_is_zlibs():
    if CORE is None:
        pytest.skip("the native core isn't compiled")
    draw = random.Random(1)
    for size in [*range(200), 4_096, 300_001]:
        data, before = draw.randbytes(size), draw.getrandbits(32)
        assert CORE.crc32(data, before) == CORE.crc32(data, before, True) == zlib.crc32(data, before)
