"""Records to the bytes of a data file and back."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecordError, InvalidArgumentError
from sparklog.log.data.encode import decode_file, encode_batch
from sparklog.log.data.producer_stamp import ProducerStamp, next_sequence
from sparklog.log.data.record_reading import conform
from sparklog.log.data.schema import DATA_SCHEMA, HEADERS, TIMESTAMP
from tests.depth import by_depth
from tests.support import T0_MS

STAMP = ProducerStamp(producer_id=2**63 - 1, producer_epoch=32_767, base_sequence=0)
NEWEST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def a_batch(*, count=2, **columns):
    """A table of records; a column that isn't given is made up."""
    made_up = {"timestamp": pa.array(range(T0_MS, T0_MS + count), pa.int64()), "value": pa.array([b"v"] * count)}
    return pa.table({**made_up, **columns})


def stored(records, *, stamp=STAMP, compression="none"):
    """The records as a reader of their file sees them."""
    found = decode_file("f.parquet", encode_batch(records, stamp, compression=compression).data)
    return pa.table({name: conform("f.parquet", found, name) for name in DATA_SCHEMA.names})


def header_lists():
    header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
    return st.none() | st.lists(header, max_size=3)


@given(
    st.lists(
        st.tuples(
            st.integers(0, NEWEST_MS),
            st.none() | st.binary(max_size=4),
            st.none() | st.binary(max_size=4),
            header_lists(),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=by_depth(gate=20, nightly=100))
@example([(0, None, None, None)])
@example([(0, b"", b"", []), (1, b"k", b"v", [{"key": "a", "value": None}, {"key": "a", "value": b""}])])
def test_what_is_encoded_is_decoded(rows):
    times, keys, values, headers = zip(*rows, strict=True)
    records = pa.table(
        {
            "timestamp": pa.array(times, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    batch = encode_batch(records, STAMP)
    found = decode_file("f.parquet", batch.data)
    assert ("headers" in found.column_names) == any(header is not None for header in headers)
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [1000 * time for time in times]
    assert found["key"].to_pylist() == list(keys)
    assert found["value"].to_pylist() == list(values)
    assert conform("f.parquet", found, "headers").to_pylist() == list(headers)
    assert found["offset_delta"].to_pylist() == list(range(len(rows)))
    assert (batch.record_count, batch.last_offset_delta) == (len(rows), len(rows) - 1)
    assert (batch.min_timestamp_ms, batch.max_timestamp_ms) == (min(times), max(times))


def test_a_file_holds_the_topics_columns_and_the_producers_stamp():
    headers = pa.array([[], None, None], HEADERS)
    found = decode_file("f.parquet", encode_batch(a_batch(count=3, headers=headers), ProducerStamp(7, 5, 100)).data)
    assert found.schema.names == DATA_SCHEMA.names
    assert [field.type for field in found.schema] == [field.type for field in DATA_SCHEMA]
    assert found.select(["producer_id", "producer_epoch", "sequence"]).to_pylist() == [
        {"producer_id": 7, "producer_epoch": 5, "sequence": sequence} for sequence in (100, 101, 102)
    ]


def test_columns_that_are_left_out_are_null_and_others_are_not_stored():
    batch = encode_batch(pa.table({"timestamp": pa.array([1]), "colour": pa.array(["red"])}), STAMP)
    found = decode_file("f.parquet", batch.data)
    assert found.schema.names == [name for name in DATA_SCHEMA.names if name != "headers"]
    assert [found[name].null_count for name in ("key", "value")] == [1, 1]


def test_headers_keep_their_order_duplicate_names_and_nulls():
    headers = [
        [
            {"key": "b", "value": b"1"},
            {"key": "a", "value": None},
            {"key": "b", "value": b""},
            {"key": "", "value": b""},
        ],
        [],
        None,
    ]
    assert stored(a_batch(count=3, headers=pa.array(headers, HEADERS)))["headers"].to_pylist() == headers


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[("k", b"v")], []], pa.map_(pa.string(), pa.binary())),
        pa.array([[{"key": "k", "value": b"v"}], []], pa.large_list(HEADERS.value_type)),
        pa.array(
            [[{"value": b"v", "key": "k"}], []], pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
        ),
        pa.array(
            [[{"key": "k", "value": "v"}], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
        ),
    ],
    ids=["map", "large list", "other order", "text values"],
)
def test_headers_of_a_like_type_are_accepted(headers):
    assert stored(a_batch(headers=headers))["headers"].to_pylist() == [[{"key": "k", "value": b"v"}], []]


@pytest.mark.parametrize("headers", [pa.array([[], []]), pa.array([[], None]), pa.nulls(2)])
def test_records_that_have_no_headers_may_say_so_in_any_way(headers):
    assert stored(a_batch(headers=headers))["headers"].to_pylist() == headers.to_pylist()


@pytest.mark.parametrize(
    "headers",
    [
        pa.array(["k=v", None]),
        pa.array([b"v", None]),
        pa.array([["k"], None]),
        pa.array([[{"key": None, "value": b"v"}], None], HEADERS),
        pa.array([[None], None], HEADERS),
        pa.array([[None], [None]]),
        pa.array([[{"k": "name", "v": b"v"}], None]),
        pa.array([[{"key": "name", "val": b"v"}], None]),
        pa.array([[{"key": "name"}], None]),
        pa.array([[{"key": "name", "value": b"v", "more": 1}], None]),
    ],
)
def test_headers_without_a_key_or_of_another_type_are_refused(headers):
    with pytest.raises(InvalidArgumentError, match="column headers"):
        encode_batch(a_batch(headers=headers), STAMP)


# Source: Kafka DefaultRecordBatch.incrementSequence
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**33))
@example(2**31 - 1, 1)
@example(2**31 - 1, 0)
def test_sequences_wrap_to_zero(sequence, count):
    assert next_sequence(sequence, count) == (sequence + count) % 2**31


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (2**31 - 3, [2**31 - 3, 2**31 - 2, 2**31 - 1]),
        (2**31 - 2, [2**31 - 2, 2**31 - 1, 0]),
        (2**31 - 1, [2**31 - 1, 0, 1]),
    ],
)
def test_the_sequences_of_a_batch_wrap_to_zero(base, expected):
    assert stored(a_batch(count=3), stamp=ProducerStamp(7, 0, base))["sequence"].to_pylist() == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("ms"),
        pa.timestamp("us"),
        pa.timestamp("ns"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("ns", "+05:30"),
    ],
    ids=str,
)
def test_timestamps_of_any_unit_and_zone_are_the_same_moment(kind):
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    given_times = pa.array([1_700_000_000], pa.timestamp("s", "UTC")).cast(pa.timestamp(kind.unit, "UTC"))
    given_times = given_times.cast(pa.int64()).cast(kind)  # for a naive column: its wall time is UTC
    batch = encode_batch(a_batch(count=1, timestamp=given_times), STAMP)
    assert decode_file("f", batch.data)["timestamp"].to_pylist() == [moment]
    assert (batch.min_timestamp_ms, batch.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_000)


@pytest.mark.parametrize("kind", [pa.int16(), pa.int32(), pa.uint32(), pa.uint64(), pa.int64()], ids=str)
def test_whole_numbers_of_any_width_are_milliseconds(kind):
    batch = encode_batch(a_batch(timestamp=pa.array([3, 7], kind)), STAMP)
    assert (batch.min_timestamp_ms, batch.max_timestamp_ms) == (3, 7)


def test_least_and_greatest_timestamp_are_rounded_down_to_milliseconds():
    batch = encode_batch(a_batch(timestamp=pa.array([5_999, 1_999], pa.timestamp("us", "UTC"))), STAMP)
    assert (batch.min_timestamp_ms, batch.max_timestamp_ms) == (1, 5)
    assert decode_file("f", batch.data)["timestamp"].cast(pa.int64()).to_pylist() == [5_999, 1_999]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1, None], pa.int64()),
        pa.array([None, None], pa.timestamp("ms")),
        pa.nulls(2),
        pa.array([-1, 1], pa.int64()),
        pa.array([-1, 1], pa.timestamp("us")),
        pa.array([NEWEST_MS + 1, 1], pa.int64()),
        pa.array([2**63 - 1, 1], pa.int64()),
        pa.array([-(2**63), 1], pa.int64()),
        pa.array([2**64 - 1, 1], pa.uint64()),
        pa.array([1.5, 2.5]),
        pa.array(["2023-01-01", "soon"]),
        pa.array([True, False]),
        pa.array([1, 2], pa.timestamp("ns")),  # finer than the table holds
    ],
    ids=str,
)
def test_a_timestamp_that_is_null_negative_too_late_or_none_is_refused(times):
    with pytest.raises(InvalidArgumentError, match="timestamp"):
        encode_batch(a_batch(timestamp=times), STAMP)


def test_records_without_a_timestamp_are_refused():
    with pytest.raises(InvalidArgumentError, match="column timestamp: not there"):
        encode_batch(pa.table({"value": [b"v"]}), STAMP)


def test_no_records_are_refused():
    with pytest.raises(InvalidArgumentError, match="at least one record"):
        encode_batch(a_batch(count=2).slice(0, 0), STAMP)


def test_a_column_that_is_there_twice_is_refused():
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([b"a"]), pa.array([b"b"])], names=["timestamp", "key", "key"])
    with pytest.raises(InvalidArgumentError, match="column key: there are 2"):
        encode_batch(twice, STAMP)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["k", None]),
        pa.array(["k", None], pa.large_string()),
        pa.array([b"k", None], pa.large_binary()),
        pa.array([b"k", None], pa.binary(1)),
        pa.array([b"k", None], pa.binary_view()),
        pa.array(["k", None]).dictionary_encode(),
        pa.array([b"k", None]).dictionary_encode(),
    ],
    ids=lambda keys: str(keys.type),
)
def test_text_and_bytes_of_any_layout_are_accepted(keys):
    found = stored(a_batch(key=keys, value=keys))
    assert found["key"].to_pylist() == found["value"].to_pylist() == [b"k", None]


@pytest.mark.parametrize("column", ["key", "value"])
@pytest.mark.parametrize(
    "cells", [pa.array([1, 2]), pa.array([1.5, 2.5]), pa.array([True, False]), pa.array([[b"k"], None])]
)
def test_what_is_neither_text_nor_bytes_is_refused_by_name(column, cells):
    with pytest.raises(InvalidArgumentError, match=f"column {column}: got"):
        encode_batch(a_batch(**{column: cells}), STAMP)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("none", "UNCOMPRESSED"),
        ("uncompressed", "UNCOMPRESSED"),
        ("gzip", "GZIP"),
        ("snappy", "SNAPPY"),
        ("lz4", "LZ4"),
        ("zstd", "ZSTD"),
    ],
)
def test_kafkas_codecs_compress_the_pages(name, codec):
    records = a_batch(count=100)
    batch = encode_batch(records, STAMP, compression=name)
    values = pq.read_metadata(pa.BufferReader(batch.data)).row_group(0).column(DATA_SCHEMA.names.index("value"))
    assert values.compression == codec
    assert decode_file("f", batch.data)["value"].to_pylist() == [b"v"] * 100


@pytest.mark.parametrize("name", ["brotli", "GZIP", "", "producer"])
def test_an_unknown_codec_is_refused_by_name(name):
    with pytest.raises(InvalidArgumentError, match=f"compression '{name}'"):
        encode_batch(a_batch(), STAMP, compression=name)


def test_chunked_tables_slices_and_record_batches_are_encoded_alike():
    whole = a_batch(count=6, key=pa.array([b"0", None, b"2", b"3", b"", b"5"]))
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 3), whole.slice(4, 0), whole.slice(4)])
    assert chunked["key"].num_chunks > 1
    batch = whole.to_batches()[0]
    expected = stored(whole)
    assert stored(chunked) == stored(batch) == expected
    assert stored(whole.slice(2, 3)).drop(["offset_delta", "sequence"]) == expected.slice(2, 3).drop(
        ["offset_delta", "sequence"]
    )
    assert stored(batch.slice(2, 3))["offset_delta"].to_pylist() == [0, 1, 2]


def test_a_file_carries_parquet_statistics_of_what_readers_search_by():
    data = encode_batch(a_batch(timestamp=pa.array([9, 4], pa.int64())), ProducerStamp(7, 1, 20)).data
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    found = {column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))}
    bounds = {name: (found[name].min, found[name].max) for name in ("offset_delta", "producer_id", "sequence")}
    assert bounds == {"offset_delta": (0, 1), "producer_id": (7, 7), "sequence": (20, 21)}
    assert (found["timestamp"].min.timestamp(), found["timestamp"].max.timestamp()) == (0.004, 0.009)
    assert found["value"] is None  # no use for them, and values may be large or secret


@pytest.mark.parametrize("cut", [0, 3, 4, 100, -1], ids=lambda cut: f"first {cut} bytes")
def test_a_truncated_file_is_refused_by_name(cut):
    data = encode_batch(a_batch(), STAMP).data[:cut]
    with pytest.raises(CorruptRecordError, match=rf"corrupt data file topics/t/x\.parquet \({len(data)} bytes\)"):
        decode_file("topics/t/x.parquet", data)


def test_a_time_after_2262_that_spark_wrote_as_int96_is_that_time():
    moments = pa.array([datetime(2500, 1, 1, tzinfo=UTC)], TIMESTAMP)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"timestamp": moments}), sink, use_deprecated_int96_timestamps=True)
    found = decode_file("f.parquet", sink.getvalue().to_pybytes())
    assert found["timestamp"].cast(pa.timestamp("us")).to_pylist() == [datetime(2500, 1, 1)]


def test_texts_of_values_that_repeat_are_written_as_a_dictionary():
    count = 400
    texts = {
        "few": [f"kind-{number % 5}" for number in range(count)],
        "each": [f"note-{number}" for number in range(count)],
        "rare": ["same" if number == 7 else None for number in range(count)],
    }
    place = pa.StructArray.from_arrays([pa.array(texts["few"])], ["town"])
    values = pa.StructArray.from_arrays([*(pa.array(one) for one in texts.values()), place], [*texts, "place"])
    records = a_batch(count=count, data=values, schema_id=pa.array([1] * count, pa.int32()))
    for size, expected in ((count, {"data.few", "data.place.town"}), (100, set())):  # of few records nobody knows
        data = encode_batch(records.slice(0, size), STAMP).data
        group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        encoded = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
        assert {path for path in encoded if path.startswith("data.")} == expected
        assert decode_file("f", data)["data"].combine_chunks().equals(values.slice(0, size))
