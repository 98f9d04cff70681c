"""Merging small files: the same records in fewer files, while everybody goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.encoding import DataFileWriter
from sparklog.compaction.optimize import OptimizeReport, optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.rewrite_arrow import rewrite_with_arrow
from sparklog.consumer import Consumer
from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidConfigurationError, KafkaTimeoutError, NotATopicError
from sparklog.log import open_cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import create_topic, delete_records, delete_topic
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_each, delete_files, live, stored
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    entry_lines,
    foreign_commit,
    foreign_file,
    foreign_records,
    foreign_vacuum,
    records,
    unsequenced_file,
    within,
)

POLICY = OptimizePolicy(min_files=4)
T0 = "2100-01-01T00:00:00.000Z"


def optimize(log: DeltaLog, policy: OptimizePolicy = POLICY, **more: object) -> OptimizeReport:
    return optimize_topic(log, "t", policy=policy, **more)  # type: ignore[arg-type]


def nine(**configs: object) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """A topic of nine files, of two records each."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs=configs)
    writer = a_writer(log)
    for number in range(9):
        append(writer, f"a{number}", f"b{number}")
    return memory, clock, log


VALUES = [f"{letter}{number}" for number in range(9) for letter in "ab"]


def test_small_files_become_one_by_a_commit_that_changes_no_data() -> None:
    _, _, log = nine()
    files, before = live(log), stored(log)
    report = optimize(log)
    [merged] = report.ranges
    assert (merged.outcome, merged.files_before, merged.files_after, merged.record_count) == (Outcome.DONE, 8, 1, 16)
    assert (merged.partition, merged.first_offset, merged.last_offset) == (0, 0, 15)
    assert (merged.bytes_before, merged.bytes_after) == (sum(f.size_bytes for f in files[:8]), live(log)[0].size_bytes)
    assert stored(log) == before
    assert contents(log) == {0: list(enumerate(VALUES))}
    info, *actions = entry_lines(log, report.delta_version)
    assert (info["commitInfo"]["operation"], info["commitInfo"]["isBlindAppend"]) == ("OPTIMIZE", False)
    assert [line["remove"]["path"] for line in actions[:-1]] == [file.path for file in files[:8]]
    assert {line["remove"]["dataChange"] for line in actions[:-1]} == {False}
    add = actions[-1]["add"]
    assert (add["dataChange"], add["partitionValues"]) == (False, {"partition": "0", "base_offset": "0"})
    assert live(log)[1] == files[8]  # the newest stays
    head = load_state(log).head
    assert open_state(log).head == head
    assert (head.live_file_count, head.log_end_offsets) == (2, (18,))


def test_statistics_are_those_of_the_records() -> None:
    _, _, log = nine()
    report = optimize(log)
    [add] = [line["add"] for line in entry_lines(log, report.delta_version) if "add" in line]
    producer = stored(log)[0]["producer_id"]
    assert json.loads(add["stats"]) == {
        "numRecords": 16,
        "minValues": {"offset_delta": 0, "timestamp": T0, "producer_id": producer, "sequence": 0},
        "maxValues": {"offset_delta": 15, "timestamp": T0[:-2] + "1Z", "producer_id": producer, "sequence": 15},
        "nullCount": {"offset_delta": 0, "timestamp": 0, "producer_id": 0, "sequence": 0},
    }


def test_a_second_run_has_nothing_to_do() -> None:
    _, _, log = nine()
    version = optimize(log).delta_version
    again = optimize(log)
    assert (again.ranges, again.delta_version) == ((), version)


def test_a_dry_run_tells_what_would_be_merged_and_writes_nothing() -> None:
    memory, _, log = nine()
    before = {found.path for found in memory.list("")}
    [planned] = optimize(log, dry_run=True).ranges
    assert {found.path for found in memory.list("")} == before
    [done] = optimize(log).ranges
    assert planned.outcome is Outcome.PLANNED
    assert (planned.files_before, planned.bytes_before) == (done.files_before, done.bytes_before)


# Every column of every record stays as it is


def odd_records(seed: int) -> pa.Table:
    """Nulls and empties, headers of one name, times that go backwards."""
    rng = random.Random(seed)
    count = rng.randrange(1, 6)
    data = [None, b"", b"x", bytes(range(256)), "ü".encode() * 50]
    headers = [None, [], [("h", b""), ("h", None)], [("ü", b"\x00")]]
    return pa.table(
        {
            "key": pa.array([rng.choice(data) for _ in range(count)], pa.binary()),
            "value": pa.array([rng.choice(data) for _ in range(count)], pa.binary()),
            "timestamp": pa.array([T0_MS + rng.randrange(-9_999, 9_999) for _ in range(count)], pa.int64()),
            "headers": pa.array(
                [
                    None if (h := rng.choice(headers)) is None else [{"key": k, "value": v} for k, v in h]
                    for _ in range(count)
                ],
                DATA_SCHEMA.field("headers").type,
            ),
        }
    )


@pytest.mark.slow
def test_not_a_bit_of_a_record_changes_and_offsets_stay_where_gaps_are() -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock, num_partitions=2)
    writers = [a_writer(log), a_writer(log)]
    for number in range(40):
        writer = writers[number % 2]
        files = writer.upload([(0, odd_records(number)), (1, odd_records(-number))])
        writer.append(files, deadline=within(writer, 60_000))
    for partition in (0, 1):  # gaps: what another job has left out
        foreign_commit(log, *(_removal(file) for file in live(log, partition)[5:7]))
    delete_records(log, "t", {0: 3})
    before = [stored(log, partition) for partition in (0, 1)]
    counts = [len(live(log, partition)) for partition in (0, 1)]
    report = optimize(log)
    assert [merged.outcome for merged in report.ranges] == [Outcome.DONE] * len(report.ranges)
    assert [stored(log, partition) for partition in (0, 1)] == before
    assert [len(live(log, partition)) for partition in (0, 1)] == [2, 2]
    assert min(counts) > 30


def _removal(segment: object) -> RemoveFile:
    return RemoveFile(path=segment.path, deletion_ms=T0_MS)  # type: ignore[attr-defined]


def test_deltas_count_from_the_first_files_base_offset() -> None:
    _, _, log = nine()
    delete_records(log, "t", {0: 5})
    optimize(log)
    first = live(log)[0]
    assert (first.base_offset, first.min_offset_delta, first.max_offset_delta) == (4, 0, 11)


@pytest.mark.parametrize(
    ("setting", "sent", "expected"),
    [
        ("producer", "none", "SNAPPY"),  # as sequencing does
        ("uncompressed", "gzip", "UNCOMPRESSED"),
        ("producer", "gzip", "GZIP"),
        ("lz4", "none", "LZ4"),
        ("zstd", "gzip", "ZSTD"),
    ],
)
def test_pages_are_compressed_as_the_topic_wants_or_as_the_producers_were(
    setting: str, sent: str, expected: str
) -> None:
    log = a_topic(configs={"compression.type": setting})
    writer = a_writer(log)
    for value in VALUES:
        writer.append(writer.upload([(0, records(value))], compression=sent), deadline=within(writer, 60_000))
    optimize(log)
    found = pq.ParquetFile(pa.BufferReader(log.store.read(object_path(log.table, live(log)[0].path))))
    assert found.metadata.row_group(0).column(2).compression == expected


def columns_of(log: DeltaLog, at: int = 0) -> list[str]:
    data = log.store.read(object_path(log.table, live(log)[at].path))
    return list(pq.ParquetFile(pa.BufferReader(data)).schema_arrow.names)


def test_headers_are_left_out_where_no_record_has_any() -> None:
    _, _, log = nine()
    optimize(log)
    assert columns_of(log) == [name for name in DATA_SCHEMA.names if name != "headers"]


@pytest.mark.slow
def test_a_large_file_is_read_and_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("encoding.ROW_GROUP_BYTES", 2_000), ("open_range.ROW_GROUP_BYTES", 2_000)):
        monkeypatch.setattr(f"sparklog.compaction.{name}", value)
    monkeypatch.setattr("sparklog.compaction.open_range._PIECE_BYTES", 500)
    log = a_topic()
    writer = a_writer(log)
    for number in range(9):
        append(writer, *(f"value {number} {at} " + "x" * (at % 50) for at in range(300)))
    before = stored(log)
    assert [merged.outcome for merged in optimize(log).ranges] == [Outcome.DONE]
    assert stored(log) == before
    data = log.store.read(object_path(log.table, live(log)[0].path))
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.num_row_groups > 20


# What other engines wrote


def foreign(log: DeltaLog, number: int, deltas: list[int], base_offset: int) -> None:
    values = [f"f{number}-{delta}" for delta in deltas]
    add = foreign_file(log, foreign_records(*values, deltas=deltas), base_offset=base_offset)
    foreign_commit(log, add)


def test_rows_that_are_in_no_order_and_files_that_overlap_are_put_in_order() -> None:
    log = a_topic()
    foreign(log, 0, [2, 0, 1], 0)
    foreign(log, 1, [0, 4, 2], 10)
    foreign(log, 2, [1, 3, 5], 10)
    for number in range(3, 12):
        foreign(log, number, [1, 0], 10 * number)
    before = [(row["offset"], row["value"]) for row in stored(log)]
    [merged] = optimize(log).ranges
    assert (merged.outcome, merged.files_before) == (Outcome.DONE, 11)
    assert [(row["offset"], row["value"]) for row in stored(log)] == sorted(before)
    found = TopicFollower(log, "t").read(0, 0, max_records=99)
    assert found["offset"].to_pylist() == sorted(offset for offset, _ in before)


def test_columns_in_another_order_or_type_become_those_of_a_topic() -> None:
    _, _, log = nine()
    for number in range(9, 18):
        table = foreign_records(f"f{number}", deltas=[7])
        names = sorted(table.column_names, reverse=bool(number % 2))
        found = table.select(names).drop_columns(["producer_epoch"])
        at = found.schema.get_field_index("offset_delta")
        field = pa.field("offset_delta", pa.int32(), nullable=False)
        foreign_commit(
            log, foreign_file(log, found.set_column(at, field, pa.array([7], pa.int32())), base_offset=20 * number)
        )
    before = stored(log)
    [merged] = optimize(log).ranges
    assert (merged.outcome, merged.error, merged.files_before) == (Outcome.DONE, "", 17)
    assert stored(log) == before
    assert columns_of(log) == DATA_SCHEMA.names


def test_a_file_that_makes_no_sense_is_told_and_the_other_ranges_are_merged() -> None:
    _, _, log = nine()
    writer = a_writer(log)
    for number in range(9):
        append(writer, f"p{number}")
    broken = live(log)[2]
    log.store.put(object_path(log.table, broken.path), b"no parquet")
    policy = OptimizePolicy(min_files=4, max_files=8)
    before, report = live(log), optimize(log, policy)
    assert [merged.outcome for merged in report.ranges] == [Outcome.FAILED, Outcome.DONE]
    assert broken.path in report.ranges[0].error
    assert live(log)[:8] == before[:8]


@pytest.mark.parametrize(
    ("deltas", "told"),
    [([0], "it has 1 rows, and the log states 2"), ([0, 0], "offsets that other records have"), ([0, 2], "offsets")],
)
def test_records_that_are_not_what_the_log_tells_are_left_alone(deltas: list[int], told: str) -> None:
    _, _, log = nine()
    file = live(log)[0]
    sink = pa.BufferOutputStream()
    pq.write_table(foreign_records(*map(str, deltas), deltas=deltas), sink)
    log.store.put(object_path(log.table, file.path), sink.getvalue().to_pybytes())
    [merged] = optimize(log).ranges
    assert merged.outcome is Outcome.FAILED
    assert told in merged.error


def test_unsequenced_files_stay_as_they_are() -> None:
    _, _, log = nine()
    path = unsequenced_file(log, "waiting")
    optimize(log)
    assert [s.path for s in load_state(log).require_whole().index.unsequenced()] == [path]


def test_a_table_that_lacks_a_column_of_a_topic_is_left_alone() -> None:
    _, _, log = nine()
    metadata = load_state(log).require_whole().metadata
    schema = json.loads(metadata.schema_string)
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "headers"]
    foreign_commit(log, replace(metadata, schema_string=json.dumps(schema)))
    with pytest.raises(NotATopicError, match="lacks columns of a topic: headers"):
        optimize(log)


def test_a_garbled_setting_is_named() -> None:
    _, _, log = nine()
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.segment.ms": "1 day"}))
    with pytest.raises(InvalidConfigurationError, match=r"sparklog\.segment\.ms='1 day'"):
        optimize(log)


# While others are at work


def test_producers_that_win_every_race_lose_nothing_and_the_job_gets_through() -> None:
    memory, clock, log = nine()
    writer = a_writer(log)
    overtaken = OvertakenStore(memory, lambda: append(writer, "meanwhile"), times=5)
    [merged] = optimize(a_log(overtaken, clock)).ranges
    assert merged.outcome is Outcome.DONE
    assert contents(log) == {0: list(enumerate([*VALUES, *["meanwhile"] * 5]))}
    assert len(live(log)) == 7


def test_two_jobs_at_once_merge_each_range_once() -> None:
    memory, clock, log = nine()
    reports = []
    overtaken = OvertakenStore(memory, lambda: reports.append(optimize(log)))
    reports.append(optimize(a_log(overtaken, clock)))
    assert [report.ranges[0].outcome for report in reports] == [Outcome.DONE, Outcome.OVERTAKEN]
    assert contents(log) == {0: list(enumerate(VALUES))}
    assert len(live(log)) == 2


def deleted(log: DeltaLog) -> object:
    """As SQL's DELETE: the file is replaced by one without the record."""
    file = live(log)[3]
    survivors = foreign_file(log, foreign_records("b3", deltas=[1]), base_offset=file.base_offset)
    return foreign_commit(log, _removal(file), survivors)


@pytest.mark.parametrize(
    ("others_act", "left"),
    [
        (deleted, [(at, value) for at, value in enumerate(VALUES) if value != "a3"]),
        (lambda log: delete_records(log, "t", {0: 4}), list(enumerate(VALUES))[4:]),
    ],
    ids=["a record is deleted", "retention"],
)
def test_what_somebody_took_out_of_the_range_meanwhile_does_not_come_back(
    others_act: Callable[[DeltaLog], object], left: list[tuple[int, str]]
) -> None:
    memory, clock, log = nine()
    [merged] = optimize(a_log(OvertakenStore(memory, lambda: others_act(log)), clock)).ranges
    assert merged.outcome is Outcome.OVERTAKEN
    assert contents(log) == {0: left}
    optimize(log)
    assert contents(log) == {0: left}


def test_a_file_that_is_gone_when_it_is_read_was_dealt_with_by_somebody_else() -> None:
    memory, clock, log = nine()
    old = live(log)[:8]

    def others(log_: DeltaLog, ranges: object, compression: str) -> object:
        optimize(log)
        delete_files(log, old)
        return rewrite_with_arrow(log_, ranges, compression)  # type: ignore[arg-type]

    [merged] = optimize(a_log(memory, clock), rewrite=others).ranges
    assert merged.outcome is Outcome.OVERTAKEN
    assert contents(log) == {0: list(enumerate(VALUES))}


def test_a_topic_that_is_deleted_meanwhile_and_its_successor_are_left_alone() -> None:
    memory, clock, log = nine()

    def again() -> None:
        delete_topic(log, "t")
        create_topic(log, "t")
        append(a_writer(log), "of another topic")

    [merged] = optimize(a_log(OvertakenStore(memory, again), clock)).ranges
    assert merged.outcome is Outcome.OVERTAKEN
    assert contents(log) == {0: [(0, "of another topic")]}


def test_files_that_were_uploaded_more_than_a_day_ago_are_not_published() -> None:
    """By then a sweep may have them (rule L10)."""
    memory, clock, log = nine()
    version = load_state(log).position.version

    def slow(log_: DeltaLog, ranges: object, compression: str) -> object:
        for rewritten in rewrite_with_arrow(log_, ranges, compression):  # type: ignore[arg-type]
            clock.advance(DAY_MS + 1)
            yield rewritten

    with pytest.raises(KafkaTimeoutError, match=r"isn't published: it took 24\.0 hours"):
        optimize(a_log(memory, clock), rewrite=slow)
    assert load_state(log).position.version == version
    assert optimize(log).ranges[0].outcome is Outcome.DONE


def test_files_that_another_engines_vacuum_may_take_are_not_published() -> None:
    memory, clock, log = nine()

    def overtaken(log_: DeltaLog, ranges: object, compression: str) -> object:
        for rewritten in rewrite_with_arrow(log_, ranges, compression):  # type: ignore[arg-type]
            foreign_vacuum(log, retention_ms=0, gone=[file.path for file in rewritten.files])
            yield rewritten

    with pytest.raises(KafkaTimeoutError, match="isn't published: another engine began a VACUUM behind version 9"):
        optimize(a_log(memory, clock), rewrite=overtaken)
    assert optimize(log).ranges[0].outcome is Outcome.DONE


# Readers


def test_a_follower_amid_the_range_goes_on_before_and_after_the_old_files_go() -> None:
    _, _, log = nine()
    follower = TopicFollower(log, "t")
    old = live(log)[:8]
    seen = follower.read(0, 0, max_records=3)["value"].to_pylist()
    optimize(log)
    seen += follower.read(0, 3, max_records=3)["value"].to_pylist()  # of the old files, which it knows
    delete_files(log, old)
    seen += follower.read(0, 6, max_records=3)["value"].to_pylist()  # loads the topic anew
    follower.poll()
    seen += follower.read(0, 9, max_records=99)["value"].to_pylist()
    assert [value.decode() for value in seen] == VALUES


def test_a_consumer_in_the_middle_of_the_range_sees_every_record_once_and_in_order() -> None:
    cluster = open_cluster(MemoryStore())
    log = cluster.topic_log("t")
    create_topic(log, "t")
    append_each(a_writer(log), *VALUES)
    at = TopicPartition("t", 0)
    with Consumer(cluster=cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        consumer.assign([at])
        seen: list[tuple[int, bytes | None]] = []
        optimized = False
        while len(seen) < len(VALUES):
            batch = consumer.poll(timeout_ms=5_000, max_records=1)
            seen += [(record.offset, record.value) for record in batch.get(at, [])]
            if len(seen) >= 5 and not optimized:
                optimized, old = True, live(log)[:-1]
                optimize(log)
                delete_files(log, old)
    assert seen == [(offset, value.encode()) for offset, value in enumerate(VALUES)]


@pytest.mark.slow
def test_other_engines_see_the_same_records_before_and_after_a_checkpoint(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    log = cluster.topic_log("t")
    create_topic(log, "t")
    append_each(a_writer(log), *VALUES)

    def seen() -> list[tuple[int, bytes]]:
        table = DeltaTable(tmp_path / log.table).to_pyarrow_table()
        offsets = pc.add(table["base_offset"], table["offset_delta"]).to_pylist()
        return sorted(zip(offsets, table["value"].to_pylist(), strict=True))

    before = seen()
    optimize(log)
    assert seen() == before
    assert len(DeltaTable(tmp_path / log.table).file_uris()) == 2
    write_checkpoint(log)
    assert seen() == before
    assert contents(log) == {0: list(enumerate(VALUES))}


# Over time


@pytest.mark.slow
def test_a_topic_that_grows_keeps_few_files_and_is_not_rewritten_again_and_again() -> None:
    log = a_topic()
    writer = a_writer(log)
    rewritten = 0
    for number in range(120):
        append(writer, f"v{number}")
        if number % 5 == 4:
            rewritten += sum(merged.record_count for merged in optimize(log).ranges)
    assert contents(log) == {0: [(number, f"v{number}") for number in range(120)]}
    assert len(live(log)) < 20
    assert rewritten < 4 * 120


def test_the_writer_of_a_file_keeps_to_what_producers_write() -> None:
    writer = DataFileWriter(compression="none", with_headers=True)
    writer.write(DATA_SCHEMA.empty_table())
    assert writer.record_count == 0
    data, stats = writer.close()
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows == 0
    assert (stats["numRecords"], stats["minValues"]) == (0, {})
