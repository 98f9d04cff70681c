"""Maintenance of a typed topic: a tombstone has no value and no columns, and no job loses a column."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.compaction import encoding
from sparklog.compaction.clean_arrow import CleanPass, clean_with_arrow
from sparklog.compaction.clean_shuffled import Layout, clean_group, read_keys
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.encoding import DataFileWriter
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.retention import retain_topic
from sparklog.delta.actions import AddFile
from sparklog.integrity import check_cluster
from sparklog.log import create_topic
from sparklog.log.data.encode import decode_file
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_streaming import open_segments
from sparklog.log.data.schema import data_schema
from sparklog.log.data.value_columns import DATA
from sparklog.log.state import load_state
from sparklog.log.topic import alter_value_schema
from sparklog.producer import Producer
from sparklog.schemas import value_schema
from sparklog.testing import ManualClock
from tests.compaction.support import live
from tests.producer.support import a_cluster
from tests.producer.test_typed_sending import SCHEMA, WIDER
from tests.support import DAY_MS, T0_MS


def a_topic(**configs):
    cluster = a_cluster(clock=ManualClock(start_ms=T0_MS))
    log = cluster.topic_log("t")
    create_topic(log, "t", value_schema=SCHEMA, configs=configs)
    return cluster, log


def send(cluster, *pairs):
    """A file for each key and value."""
    with Producer(cluster, acks=1, linger_ms=0) as producer:
        for key, value in pairs:
            producer.send("t", value, key=key).get()


def contents(log):
    """Offset, key and value of every record, from the files."""
    values = load_state(log).head.values
    pieces = [
        piece.to_pylist()
        for segment in live(log)
        for piece in open_segments(log, [segment], None, start_offset=0, piece_bytes=10**6, values=values).pieces
    ]
    return [(row["offset"], row["key"], row[DATA] or row["value"]) for piece in pieces for row in piece]


def clean_shuffled(log, plan, compression, file_bytes):
    """A pass as Spark does it, without Spark."""
    layout = Layout.of(plan, compression=compression, file_bytes=file_bytes)
    found = pa.Table.from_batches([b for number in range(len(layout.reads)) for b in read_keys(log, layout, number)])
    latest = found.group_by("key").aggregate([("position", "max")])["position_max"].to_numpy()
    pieces = [
        clean_group(log, layout, number, latest[latest >> layout.group_bits == number])
        for number in range(len(layout.groups))
    ]
    return CleanPass(
        end_offset=plan.end_offset, due_tombstones_end=plan.due_tombstones_end, pieces=(piece for piece in pieces)
    )


A = {"id": 1}
B = {"id": 2, "total": 2.5, "tags": ["x"]}
EMPTY: dict[str, object] = {}
FULL_B = {"id": 2, "total": 2.5, "tags": ["x"]}


@pytest.mark.parametrize("clean", [clean_with_arrow, clean_shuffled])
def test_compaction_keeps_typed_values_and_drops_due_tombstones_alone(clean):
    cluster, log = a_topic(**{"cleanup.policy": "compact"})
    send(cluster, (b"a", A), (b"b", A), (b"b", B), (b"a", None), (b"e", EMPTY), (b"n", A))
    compact_topic(log, "t", now_ms=T0_MS, clean=clean)
    assert [(key, value) for _, key, value in contents(log)][:3] == [
        (b"b", FULL_B),
        (b"a", None),
        (b"e", {"id": None, "total": None, "tags": None}),
    ]
    compact_topic(log, "t", now_ms=T0_MS + 2 * DAY_MS, clean=clean)
    send(cluster, (b"m", A))
    compact_topic(log, "t", now_ms=T0_MS + 5 * DAY_MS, clean=clean)
    assert [key for _, key, _ in contents(log)] == [b"b", b"e", b"n", b"m"]
    assert list(check_cluster(cluster, deep=True).findings) == []


def test_optimize_merges_files_of_all_schemas_and_of_before_there_were_any():
    cluster = a_cluster(clock=ManualClock(start_ms=T0_MS))
    log = cluster.topic_log("t")
    create_topic(log, "t")
    send(cluster, (b"a", b'{"id": 0}'))
    alter_value_schema(log, "t", SCHEMA)
    send(cluster, (b"a", A), (b"b", None))
    alter_value_schema(log, "t", WIDER)
    send(cluster, (b"c", {"id": 3, "note": "n"}), (b"d", A))
    before = contents(log)
    report = optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01))
    assert len(live(log)) < 5, report
    assert contents(log) == before
    assert [value["id"] if value else None for _, _, value in contents(log)[1:]] == [1, None, 3, 1]
    assert list(check_cluster(cluster, deep=True).findings) == []


def test_merged_files_have_statistics_of_the_values():
    cluster, log = a_topic()
    send(cluster, (b"a", A), (b"b", B), (b"c", A), (b"d", A))
    optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01))
    [added] = [
        action for action in log.read_entry(load_state(log).position.version).actions if getattr(action, "stats", None)
    ]
    assert added.stats["minValues"][DATA] == {"id": 1, "total": 2.5}
    assert added.stats["maxValues"][DATA] == {"id": 2, "total": 2.5}
    assert added.stats["nullCount"][DATA] == {"id": 0, "total": added.stats["numRecords"] - 1}


@pytest.mark.parametrize("step", ["merging", "cleaning", "cleaning by shuffle"])
def test_rewritten_files_have_statistics_of_the_leaves_that_the_topic_names(step):
    cluster, log = a_topic(**{"value.index": "total", "cleanup.policy": "compact"})
    with Producer(cluster) as producer:
        producer.send_batch("t", pa.table({"key": [b"a", b"z"], "id": [1, 2], "total": [2.5, 2.5]}))
    send(cluster, (b"a", B), (b"b", B), (b"c", B), (b"d", B))
    sent = load_state(log).position.version
    if step == "merging":
        optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01))
    else:
        compact_topic(log, "t", now_ms=T0_MS, clean=clean_with_arrow if step == "cleaning" else clean_shuffled)
    versions = range(sent + 1, load_state(log).position.version + 1)
    actions = [action for version in versions for action in log.read_entry(version).actions]
    found = [(one.stats or {})["minValues"][DATA] for one in actions if isinstance(one, AddFile)]
    assert found
    assert all(one == {"total": 2.5} for one in found)


def test_files_that_other_engines_wrote_anew_are_merged_with_those_of_producers():
    """As after an UPDATE: Spark writes times as INT96, Rust's engines texts of another width."""
    cluster = a_cluster(clock=ManualClock(start_ms=T0_MS))
    log = cluster.topic_log("t")
    fields = [
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("stops", pa.list_(pa.struct([("x", pa.date32())]))),
    ]
    create_topic(log, "t", value_schema=value_schema(pa.schema(fields)))
    at = datetime(2024, 5, 1, tzinfo=UTC)
    row = {"at": at, "note": "n", "stops": [{"x": date(2024, 5, 1)}, None]}
    send(cluster, *((b"k", row) for _ in range(6)))
    before = contents(log)
    changed = live(log)[2:4]
    for segment, is_spark in zip(changed, (True, False), strict=True):
        path = object_path(log.table, segment.path)
        table = decode_file(path, log.store.read(path))
        kind = pa.struct(
            [
                ("at", pa.timestamp("us", "UTC")),
                ("note", pa.large_string()),
                ("stops", pa.large_list(fields[2][1].value_type)),
            ]
        )
        if not is_spark:
            found = table["data"].combine_chunks()
            columns = [found.field(number).cast(field.type) for number, field in enumerate(kind)]
            table = table.set_column(
                table.schema.get_field_index("data"), "data", pa.StructArray.from_arrays(columns, fields=list(kind))
            )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, use_deprecated_int96_timestamps=is_spark)
        log.store.put(path, sink.getvalue().to_pybytes())
    [merged] = optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01)).ranges
    assert merged.error == ""
    assert contents(log) == before


def test_retention_removes_typed_files():
    cluster, log = a_topic(**{"retention.ms": 1_000, "segment.ms": 1})
    send(cluster, (b"a", A), (b"b", B))
    retain_topic(log, "t", now_ms=T0_MS + DAY_MS)
    assert load_state(log).head.log_start_offsets[0] > 0
    assert [value for _, _, value in contents(log)] in ([], [FULL_B])


def groups_of(values, count):
    """The rows of each row group of a merged file with so many records of such values."""
    writer = DataFileWriter(compression="snappy", with_headers=False, values=values)
    data = pa.array([{field.name: number for field in values} for number in range(count)], values)
    records = pa.table(
        {
            field.name: data
            if field.name == DATA
            else pa.array(range(count), field.type)
            if field.name == "offset_delta"
            else pa.nulls(count, field.type)
            for field in data_schema(values)
        }
    )
    for start in range(0, count, 300):
        writer.write(records.slice(start, 300))
    data, _ = writer.close()
    metadata = pq.read_metadata(pa.BufferReader(data))
    return records.nbytes, [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_merged_files_have_small_row_groups_for_queries_to_skip(monkeypatch):
    monkeypatch.setattr(encoding, "_TYPED_GROUP_BYTES", 20_000)
    monkeypatch.setattr(encoding, "_COLUMN_BYTES", 1_000)
    size, rows = groups_of(pa.struct([("id", pa.int64())]), 3_000)
    assert len(rows) == round(size / 20_000) > 3
    assert sum(rows) == 3_000
    assert max(rows) - min(rows) <= len(rows)  # alike
    monkeypatch.setattr(encoding, "ROW_GROUP_BYTES", size // 2)
    _, flushed = groups_of(pa.struct([("id", pa.int64())]), 3_000)
    assert sum(flushed) == 3_000
    assert max(flushed) <= max(rows) * 3 // 2


def test_row_groups_of_many_columns_are_larger(monkeypatch):
    monkeypatch.setattr(encoding, "_TYPED_GROUP_BYTES", 20_000)
    monkeypatch.setattr(encoding, "_COLUMN_BYTES", 1_000)
    size, rows = groups_of(pa.struct([(f"f{number}", pa.int64()) for number in range(100)]), 3_000)
    assert len(rows) == round(size / 100_000)
