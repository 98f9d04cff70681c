"""Files of any size are rewritten in bounded memory, and no file that is written is larger than the topic wants."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.compaction import OptimizePolicy, Outcome
from sparklog.compaction.clean_arrow import Clean, CleanPass, clean_with_arrow
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.encoding import DataFileWriter
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.rewrite_arrow import RangeWriter, RewrittenFile
from sparklog.compaction.sorting import by_offset
from sparklog.delta.log import DeltaLog
from sparklog.integrity import check_cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.state import load_state
from sparklog.paths import new_data_file
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock, WrappedStore
from tests.arrow_memory import arrow_peak
from tests.compaction.support import a_segment, append_pairs, live, stored
from tests.compaction.test_clean_shuffled import clean_shuffled
from tests.support import T0_MS, a_log, a_topic, a_writer, foreign_commit
from tests.txn.support import a_cluster

KIB = 1024
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}


SCALED = {
    "encoding.ROW_GROUP_BYTES": 16 * KIB,
    "open_range.ROW_GROUP_BYTES": 16 * KIB,
    "open_range._WHOLE_BYTES": 32 * KIB,
    "open_range._WINDOW_BYTES": 64 * KIB,
    "open_range._BUFFER_BYTES": 2 * KIB,
    "open_range._PIECE_BYTES": 4 * KIB,
    "open_range._SCAN_ROWS": 64,
    "open_range.RUN_BYTES": 32 * KIB,
    "sorting._PIECE_BYTES": 4 * KIB,
    "sorting._BATCH_BYTES": 2 * KIB,
    "keys._WAITING_ROWS": 256,
    "clean_arrow._LEARNED_AT_ONCE": 16 * KIB,
    "clean_arrow._JUDGED_AT_ONCE": 10,
    "clean_arrow._JUDGED_BYTES": 64 * KIB,
    "rewrite_arrow._LEAST_FILE_BYTES": KIB,
}
"""About a thousandth of all sizes by which a file is large."""


@pytest.fixture
def scaled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SCALED.items():
        monkeypatch.setattr(f"sparklog.compaction.{name}", value)


def rows(deltas: Sequence[int], *, keys: int = 10, value_bytes: int = 100, seed: int = 1) -> pa.Table:
    """Records of other engines: with these offset deltas, in this order; a tenth are tombstones, some lack a key."""
    chance = random.Random(seed)
    count = len(deltas)
    key = [None if chance.random() < 0.05 else f"k{chance.randrange(keys)}".encode() for _ in range(count)]
    value = [None if chance.random() < 0.1 else chance.randbytes(value_bytes) for _ in range(count)]
    return pa.table(
        {
            "offset_delta": pa.array(deltas, pa.int64()),
            "timestamp": pa.array(np.full(count, T0_MS * 1000), pa.timestamp("us", "UTC")),
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
        }
    )


def add_file(log: DeltaLog, table: pa.Table, base_offset: int, **options: Any) -> str:
    """Commit a file as another engine would that knows offsets; its path in the store."""
    sink = pa.BufferOutputStream()
    # Pages of a megabyte are the least that is read at once; here they are as small as all else.
    small = {"data_page_size": 4 * KIB, "dictionary_pagesize_limit": 16 * KIB, "write_batch_size": 16}
    pq.write_table(table, sink, **small, **options)
    data = sink.getvalue().to_pybytes()
    path = new_data_file(0)
    log.store.put(object_path(log.table, path), data)
    deltas = table["offset_delta"].to_pylist()
    time = "2100-01-01T00:00:00.000Z"
    add = RewrittenFile(
        path=path,
        partition=0,
        base_offset=base_offset,
        size_bytes=len(data),
        modification_ms=T0_MS,
        stats={
            "numRecords": len(deltas),
            "minValues": {"offset_delta": min(deltas), "timestamp": time},
            "maxValues": {"offset_delta": max(deltas), "timestamp": time},
            "nullCount": {},
        },
    ).to_add(data_change=True)
    foreign_commit(log, add)
    return object_path(log.table, path)


def orders(count: int) -> dict[str, list[int]]:
    chance = random.Random(count)
    shuffled, nearly = [*range(count)], [*range(count)]
    chance.shuffle(shuffled)
    nearly[count // 2], nearly[count // 2 + 1] = nearly[count // 2 + 1], nearly[count // 2]
    return {"in order": [*range(count)], "in no order": shuffled, "nearly": nearly, "backwards": [*range(count)][::-1]}


class Ranged(WrappedStore):
    """A store that hands out no large object as a whole, nor a large part of one."""

    def __init__(self, store: MemoryStore, most_bytes: int) -> None:
        super().__init__(store)
        self.most_bytes = most_bytes
        self.read_bytes = 0

    def read(self, path: str) -> bytes:
        data = super().read(path)
        assert len(data) <= self.most_bytes, path
        return data

    def read_range(self, path: str, start: int, end: int) -> bytes:
        data = super().read_range(path, start, end)
        assert len(data) <= self.most_bytes, path
        self.read_bytes += len(data)
        return data


def a_large_topic(table: pa.Table, **options: Any) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """A compacted topic of a large file and a small newest one."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs=COMPACTED)
    add_file(log, table, 0, **options)
    append_pairs(a_writer(log), [("newest", "x")])
    return memory, clock, log


def compacted(log: DeltaLog, clean: Clean = clean_with_arrow, **more: Any) -> list[dict[str, Any]]:
    """What is left, without the newest file."""
    [told] = compact_topic(log, "t", now_ms=T0_MS, clean=clean, **more).partitions
    assert (told.outcome, told.error) == (Outcome.DONE, "")
    return stored(log)[:-1]


# The result is the same


@pytest.mark.slow
@pytest.mark.parametrize("clean", [clean_with_arrow, clean_shuffled], ids=["in memory", "shuffled"])
@pytest.mark.parametrize(
    ("order", "options"),
    [
        ("in order", {"compression": "none"}),
        ("in no order", {"row_group_size": 100}),
        ("nearly", {"use_dictionary": False}),
        ("backwards", {}),
    ],
)
def test_a_large_file_is_compacted_as_a_small_one_and_never_read_as_a_whole(
    order: str, options: dict[str, Any], clean: Clean, scaled_down: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows(orders(500)[order], keys=100, value_bytes=250)
    memory, clock, log = a_large_topic(table, **options)
    ranged = Ranged(memory, 64 * KIB)  # of which Arrow reads the end of any file
    left = compacted(a_log(ranged, clock), clean, target_bytes=8 * KIB)
    assert ranged.read_bytes > 100_000
    monkeypatch.undo()
    assert left == compacted(a_large_topic(table)[2])
    assert 50 < len(left) < 120
    files = live(log)
    assert len(files) > 3
    assert max(one.size_bytes for one in files) <= 8 * KIB + 2 * KIB  # and what a file has beside its records
    assert check_cluster(a_cluster(memory, clock), deep=True).errors == ()


def test_files_that_overlap_and_are_large_are_put_in_order(scaled_down: None) -> None:
    def topic() -> DeltaLog:
        log = a_topic(configs=COMPACTED)
        add_file(log, rows(range(0, 600, 2), keys=100, seed=1), 0)
        add_file(log, rows([*range(1, 600, 2)][::-1], keys=100, seed=2), 0)
        append_pairs(a_writer(log), [("newest", "x")])
        return log

    log = topic()
    assert len([*live(log)]) == 3
    left = compacted(log, target_bytes=8 * KIB)
    offsets = [row["offset"] for row in left]
    assert offsets == sorted(set(offsets))
    before = sorted(stored(topic()), key=lambda row: int(row["offset"]))[:-1]
    last = {row["key"]: row["offset"] for row in before if row["key"] is not None}
    assert sorted(last.values()) == offsets


@pytest.mark.slow
@pytest.mark.parametrize("key_bytes", [400, 1_500])
def test_keys_that_do_not_fit_in_memory_end_a_pass_within_a_large_file(key_bytes: int, scaled_down: None) -> None:
    table = rows(range(900), keys=300)
    ends: list[int] = []

    def narrow(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        found = clean_with_arrow(log, plan, compression, file_bytes, key_bytes=key_bytes)
        ends.append(found.end_offset)
        return found

    _, _, log = a_large_topic(table)
    left = compacted(log, narrow, target_bytes=16 * KIB)
    assert ends == sorted(set(ends))
    assert (len(ends) > 2, ends[-1]) == (True, 900)
    assert left == compacted(a_large_topic(table)[2])


@pytest.mark.slow
def test_tombstones_whose_keys_do_not_fit_in_memory_go_in_several_runs(scaled_down: None) -> None:
    """No tombstone goes before what it deletes, though only some of them are known at a time."""
    count = 400
    _, _, log = a_large_topic(rows(range(count), keys=count))
    now_ms = T0_MS

    def narrow(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        return clean_with_arrow(log, plan, compression, file_bytes, key_bytes=100)

    last = {row["key"]: row["value"] for row in stored(log)}
    left = []
    for _ in range(6):
        compact_topic(log, "t", now_ms=now_ms, clean=narrow, target_bytes=16 * KIB)
        seen = {row["key"]: row["value"] for row in stored(log)}
        assert seen.items() <= last.items()
        assert {key for key, value in last.items() if key is not None and value is not None} <= seen.keys()
        left.append(sum(value is None for value in seen.values()))
        now_ms += 2 * 86_400_000
    assert left == sorted(left, reverse=True)
    assert (left[0] > 10, left[-1]) == (True, 0)
    assert len({*left}) > 2


def test_merged_files_are_no_larger_than_wanted_though_other_pages_take_more_room(scaled_down: None) -> None:
    log = a_topic(configs={"compression.type": "uncompressed"})
    for number in range(9):
        table = rows(range(60))
        same = table.set_column(3, "value", pa.array([b"x" * 400] * 60, pa.binary()))
        add_file(log, same, 60 * number, compression="zstd")
    before = stored(log)
    policy = OptimizePolicy(min_files=4, target_bytes=64 * KIB)
    [merged] = optimize_topic(log, "t", policy=policy).ranges
    assert (merged.outcome, merged.files_before) == (Outcome.DONE, 8)
    assert merged.files_after == len(live(log)) - 1 > 2
    assert max(one.size_bytes for one in live(log)) <= 66 * KIB
    assert stored(log) == before
    head = load_state(log).head
    assert (head.live_file_count, head.log_end_offsets) == (len(live(log)), (540,))


# Memory


@pytest.mark.slow
@pytest.mark.parametrize("order", ["in order", "in no order"])
def test_memory_does_not_grow_with_the_size_of_a_file(order: str, scaled_down: None) -> None:
    peaks = []
    for count in (1_000, 4_000):
        _, _, log = a_large_topic(rows(orders(count)[order], keys=200, value_bytes=200), use_dictionary=False)
        with arrow_peak() as peak:
            compacted(log, target_bytes=32 * KIB)
            peaks.append(peak())
    decoded = 4_000 * 230
    assert peaks[1] < decoded / 3
    assert peaks[1] < 1.6 * peaks[0]


# The parts


@pytest.mark.parametrize("seed", range(5))
def test_runs_that_are_spilled_are_merged_in_order(seed: int) -> None:
    chance = random.Random(seed)
    numbers = chance.sample(range(10_000), 2_000)
    at, pieces = 0, []
    while at < len(numbers):
        size = chance.randrange(1, 300)
        pieces.append(rows(numbers[at : at + size], seed=at))
        at += size
    expected = pa.concat_tables(pieces).sort_by("offset_delta")
    for run_bytes in (10**9, 20_000, 1_000):
        found = [*by_offset(iter(pieces), run_bytes=run_bytes)]
        assert pa.concat_tables(found) == expected
    assert [*by_offset(iter(()))] == []


def test_what_was_spilled_is_deleted_however_the_reader_ends(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = by_offset(iter([rows(range(100)), rows(range(100, 200))]), run_bytes=1_000)
    next(found)
    assert [*tmp_path.iterdir()]
    found.close()  # type: ignore[attr-defined]
    assert not [*tmp_path.iterdir()]

    def failing() -> Iterator[pa.Table]:
        yield rows(range(100))
        raise OSError("odd")

    with pytest.raises(OSError, match="odd"):
        [*by_offset(failing(), run_bytes=1_000)]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("most_bytes", [3_000, 5_000, 20_000, 10**6])
def test_records_are_divided_into_files_that_are_numbered_on_their_own(most_bytes: int, scaled_down: None) -> None:
    log = a_topic()
    deltas = sorted(random.Random(7).sample(range(5_000), 800))
    table = rows(deltas).append_column("producer_id", pa.nulls(800, pa.int64()))
    full = pa.table(
        {
            name: table[name] if name in table.column_names else pa.nulls(800, DATA_SCHEMA.field(name).type)
            for name in DATA_SCHEMA.names
        },
        schema=DATA_SCHEMA,
    )
    found = FileRange(partition=0, segments=(a_segment(100, 5_000),), file_bytes=most_bytes)
    writer = RangeWriter(log, found, codec="snappy", with_headers=False)
    for first in range(0, 800, 130):
        writer.write(full.slice(first, 130))
    files = writer.close()
    assert writer.record_count == 800
    assert (len(files) == 1) == (most_bytes == 10**6)
    assert max(one.size_bytes for one in files) <= most_bytes + 2_500
    read = []
    for one in files:
        data = pq.read_table(pa.BufferReader(log.store.read(object_path(log.table, one.path))))
        numbers = data["offset_delta"].to_numpy()
        assert (one.stats["minValues"]["offset_delta"], one.stats["maxValues"]["offset_delta"]) == (
            numbers[0],
            numbers[-1],
        )
        read += (numbers + one.base_offset - 100).tolist()
    assert read == deltas
    assert [one.base_offset for one in files[1:]] == [100 + read[number] for number in starts_of(files)[1:]]


def starts_of(files: Sequence[RewrittenFile]) -> list[int]:
    """The number of the first record of each file."""
    counts = [one.stats["numRecords"] for one in files]
    return [sum(counts[:number]) for number in range(len(counts))]


def test_a_record_that_is_larger_than_a_file_may_be_has_a_file_of_its_own(scaled_down: None) -> None:
    log = a_topic()
    full = pa.table({name: pa.nulls(3, DATA_SCHEMA.field(name).type) for name in DATA_SCHEMA.names}, schema=DATA_SCHEMA)
    full = full.set_column(0, DATA_SCHEMA.field(0), pa.array([0, 1, 2], pa.int64()))
    full = full.set_column(
        3, DATA_SCHEMA.field(3), pa.array([b"x", random.Random(1).randbytes(50_000), b"y"], pa.binary())
    )
    writer = RangeWriter(
        log, FileRange(partition=0, segments=(a_segment(0, 3),), file_bytes=3_000), codec="none", with_headers=False
    )
    writer.write(full)
    assert [one.stats["numRecords"] for one in writer.close()] == [1, 1, 1]
    assert DataFileWriter(compression="none", with_headers=False).encoded_bytes < 10
