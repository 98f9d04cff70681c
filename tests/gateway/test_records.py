"""Record batches: byte for byte as kafka-python writes them, there and back, and refused where they are wrong."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.gateway.records import (
    BatchError,
    batch_headers,
    decode_batches,
    decode_rows,
    encode_batches,
    is_plain,
)
from sparklog.gateway.records.batches import UnsupportedCodecError, UnsupportedMagicError, batch_with_header
from sparklog.gateway.records.compression import compress, decompress
from sparklog.gateway.records.crc32c import crc32c, crc32c_numpy
from sparklog.gateway.records.decoding import decode_batches_pure
from sparklog.gateway.records.encoding import encode_records_pure
from sparklog.log.data.schema import HEADERS

LIMIT = 1 << 20
CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def table(records, first=5):
    rows = [None if r[3] is None else [{"key": k, "value": v} for k, v in r[3]] for r in records]
    return pa.table(
        {
            "offset": pa.array(range(first, first + len(records)), pa.int64()),
            "timestamp": pa.array([r[0] for r in records], pa.int64()),
            "key": pa.array([r[1] for r in records], pa.binary()),
            "value": pa.array([r[2] for r in records], pa.binary()),
            "headers": pa.array(rows, HEADERS),
        }
    )


def encoded(records, **options):
    return b"".join(encode_batches(table(records), **options))


def decoded(data, limit=LIMIT):
    return decode_batches([*batch_headers(data)], limit_bytes=limit)


@given(RECORDS, st.sampled_from([*CODECS]), st.sampled_from([1, 300, 10**6]))
@settings(deadline=None)
def test_records_come_back_as_they_were(records, codec, batch_bytes):
    data = encoded(records, codec=codec, batch_bytes=batch_bytes)
    assert decoded(data).to_pylist() == table(records).to_pylist()


@given(RECORDS)
@settings(deadline=None)
def test_bytes_are_those_of_kafka_python(records):
    pytest.importorskip("kafka.record")
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, (time, key, value, headers) in enumerate(records):
        builder.append(number, timestamp=time, key=key, value=value, headers=headers or [])
    theirs = bytes(builder.build())
    ours = b"".join(encode_batches(table(records, first=0)))
    assert decoded(theirs).to_pylist() == table(records, first=0).to_pylist()
    assert ours[:12] + ours[21:] == theirs[:12] + theirs[21:]
    assert ours == theirs[:12] + ours[12:16] + theirs[16:]  # but for the leader's epoch: 0 of a log, -1 of a producer


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_aiokafka_compressed_is_read(codec):
    default = pytest.importorskip("aiokafka.record.default_records")
    if codec in ("snappy", "lz4", "zstd"):
        pytest.importorskip("cramjam")
    builder = default.DefaultRecordBatchBuilder(2, CODECS[codec], False, -1, -1, -1, 1 << 20)
    for number in range(100):
        builder.append(number, 1_000 + number, b"key", b"value" * 100, [("a", b"b")])
    assert decoded(bytes(builder.build())).column("value").to_pylist() == [b"value" * 100] * 100


@given(RECORDS, st.data())
@settings(deadline=None)
def test_changed_records_are_refused_or_other_records(records, data):
    """Whatever the bytes are: an error, or a table; never more memory than the limit allows."""
    (header,) = batch_headers(encoded(records))
    raw = bytearray(header.records)
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    changed = batch_with_header(type(header)(**{n: getattr(header, n) for n in header.__slots__} | {"records": raw}))
    try:
        found = decoded(changed)
        found.validate(full=True)
        assert found.num_rows == len(records)
    except BatchError:
        pass


def outcome(decode, headers):
    """The records, or what is wrong with them."""
    try:
        return decode(headers, limit_bytes=LIMIT).to_pylist()
    except BatchError as error:
        return str(error)


@given(RECORDS, st.data())
@settings(deadline=None)
def test_whole_and_changed_records_are_read_alike_by_the_core_and_in_pure_python(records, data):
    headers = [*batch_headers(encoded(records, batch_bytes=data.draw(st.sampled_from([1, 300, 10**6]))))]
    assert outcome(decode_batches, headers) == outcome(decode_batches_pure, headers) == table(records).to_pylist()
    place = data.draw(st.integers(0, len(headers) - 1))
    raw = bytearray(headers[place].records)
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1]))] + data.draw(st.sampled_from([b"", b"\0"]))
    changes = {"records": memoryview(raw), "attributes": data.draw(st.sampled_from([0, 8]))}
    changes["count"] = data.draw(st.sampled_from([0, headers[place].count, headers[place].count + 1]))
    headers[place] = replace(headers[place], **changes)
    assert outcome(decode_batches, headers) == outcome(decode_batches_pure, headers)


@pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")
def test_a_batch_whose_records_have_headers_is_copied_once(monkeypatch):
    copied = []

    def copy(part: memoryview) -> bytes:
        copied.append(len(part))
        return bytes(part)

    monkeypatch.setattr("sparklog.gateway.records.decoding.bytes", copy, raising=False)
    records = [(7, b"k", b"v", [("h", b"1")])] * 3
    headers = [*batch_headers(encoded(records)), *batch_headers(encoded(records))]
    assert decode_batches(headers, limit_bytes=LIMIT)["headers"].null_count == 0
    assert len(copied) == 2


@pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")
def test_an_event_loop_reads_no_more_than_a_few_headers():
    record = (7, b"k", b"v", [("h", b"1")])
    few, many = ([*batch_headers(encoded([record] * count))] for count in (1_000, 1_001))
    found = decode_rows(few, 3, limit_bytes=LIMIT)
    assert found is not None
    assert found.table["headers"].null_count == 0
    assert decode_rows(many, 3, limit_bytes=LIMIT) is None
    assert decode_batches(many, limit_bytes=LIMIT)["headers"].null_count == 0


@given(RECORDS)
@settings(deadline=None)
def test_the_core_writes_the_records_that_pure_python_writes(records):
    given = table(records * 2).slice(len(records))
    (header,) = batch_headers(b"".join(encode_batches(given)))
    times, offsets = given["timestamp"].to_numpy(), given["offset"].to_numpy()
    assert bytes(header.records) == bytes(encode_records_pure(given, times, offsets))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 1_023, 1_024, 1_535, 1_536, 1_537, 4_607, 5_001, 100_003])
def test_checksums_are_the_same_by_all_ways(size):
    data = random.Random(size).randbytes(size)
    found = {crc32c(data), crc32c_numpy(data)} | ({CORE.crc32c(data, True)} if CORE is not None else set())
    assert len(found) == 1


def test_a_flipped_bit_is_found_by_the_checksum():
    data = bytearray(encoded([(1, b"k", b"v", None)]))
    data[-1] ^= 1
    with pytest.raises(BatchError, match="checksum"):
        decoded(data)


def test_half_a_batch_is_refused():
    data = encoded([(1, b"k", b"v", None)])
    for size in (1, 11, 60, len(data) - 1, len(data) + 3):
        with pytest.raises(BatchError):
            decoded((data + b"abc")[:size])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic):
    message = struct.pack(">qiIbb", 0, 14, 0, magic, 0) + b"\xff" * 8
    with pytest.raises(UnsupportedMagicError, match=f"message format v{magic}: expected v2"):
        decoded(message)


def test_an_unknown_compression_is_refused():
    (header,) = batch_headers(encoded([(1, b"k", b"v", None)]))
    values = {name: getattr(header, name) for name in header.__slots__}
    with pytest.raises(UnsupportedCodecError):
        decoded(batch_with_header(type(header)(**values | {"attributes": 5})))
    flags = type(header)(**values | {"attributes": 16 | 32})
    assert flags.is_transactional
    assert flags.is_control


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_decompression_bomb_is_bounded(codec):
    bomb = compress(bytes(50 << 20), codec)
    with pytest.raises(BatchError, match="once decompressed"):
        decompress(memoryview(bomb), codec, limit_bytes=LIMIT)
    with pytest.raises(BatchError):
        decompress(memoryview(b"\xff" * 40), codec, limit_bytes=LIMIT)


def test_snappy_of_java_is_read():
    """Frames as xerial's snappy-java writes them, of two blocks."""
    blocks = [compress(b"one" * 50, "snappy"), compress(b"two" * 50, "snappy")]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
    assert decompress(memoryview(framed), "snappy", limit_bytes=LIMIT) == b"one" * 50 + b"two" * 50
    with pytest.raises(BatchError, match="once decompressed"):
        decompress(memoryview(framed), "snappy", limit_bytes=200)
    with pytest.raises(BatchError, match="a snappy block of"):
        decompress(memoryview(framed[:-1]), "snappy", limit_bytes=LIMIT)


def test_gzip_of_several_members_is_read():
    data = memoryview(gzip.compress(b"a") + gzip.compress(b"b"))
    assert decompress(data, "gzip", limit_bytes=LIMIT) == b"ab"


def test_a_count_beyond_the_bytes_is_refused():
    (header,) = batch_headers(encoded([(1, b"k", b"v", None)]))
    values = {name: getattr(header, name) for name in header.__slots__}
    many = batch_with_header(type(header)(**values | {"count": 2**31 - 1, "last_offset_delta": 2**31 - 1}))
    with pytest.raises(BatchError, match="2147483647 records in"):
        decoded(many)


def test_log_append_time_is_that_of_the_batch():
    (header,) = batch_headers(encoded([(1, b"k", b"v", None), (2, b"k", b"v", None)]))
    values = {name: getattr(header, name) for name in header.__slots__}
    data = batch_with_header(type(header)(**values | {"attributes": 8, "max_timestamp_ms": 77}))
    assert decoded(data)["timestamp"].to_pylist() == [77, 77]


@pytest.mark.parametrize("size", [0, 1, 3, 9, 1_023, 1_024, 1_025, 4_096, 100_001])
def test_the_checksum_is_crc32c(size):
    crc = pytest.importorskip("kafka.record._crc32c").crc
    data = random.Random(size).randbytes(size)
    assert crc32c_numpy(data) == crc(data)
    assert crc32c_numpy(b"123456789") == 0xE3069283  # RFC 3720's polynomial; the check value of the catalogue of CRCs
    assert size == 0 or crc32c_numpy(data) != zlib.crc32(data)


def test_a_hundred_batches_of_a_partition_are_read_elsewhere_than_in_the_event_loop():
    one = encoded([(1_000, None, b"v", None)])
    assert is_plain(one * 100) is (CORE is not None)
    assert not is_plain(one * 101)
    assert not is_plain(encoded([(1_000, None, b"v", None)], codec="lz4"))
