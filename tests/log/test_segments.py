"""The live files of a topic as segments, and finding records among them."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.delta.actions import AddFile
from sparklog.errors import CorruptLogError
from sparklog.log.data.segment_columns import segments_of_table
from sparklog.log.data.segments import (
    Segment,
    SegmentIndex,
    format_timestamp,
    parse_timestamp,
    segment_of_add,
)

NEWEST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
MOMENT_MS = 1_700_000_000_009  # 2023-11-14T22:13:20.009Z


def a_segment(path="f", *, partition=0, base_offset=0, deltas=(0, 0), times=(0, 0)):
    """A segment; without deltas it has no statistics."""
    known = deltas is not None
    low, high = deltas or (0, 0)
    return Segment(
        path=path,
        partition=partition,
        base_offset=base_offset,
        size_bytes=1,
        modification_ms=0,
        record_count=high - low + 1 if known else None,
        min_offset_delta=low if known else None,
        max_offset_delta=high if known else None,
        min_timestamp_ms=times[0] if known else None,
        max_timestamp_ms=times[1] if known else None,
    )


@given(st.integers(0, NEWEST_MS))
@example(0)
@example(NEWEST_MS)
def test_a_timestamp_that_is_written_reads_back(timestamp_ms):
    assert parse_timestamp(format_timestamp(timestamp_ms)) == timestamp_ms


def test_timestamps_are_written_as_delta_does():
    assert format_timestamp(MOMENT_MS) == "2023-11-14T22:13:20.009Z"
    assert format_timestamp(0) == "1970-01-01T00:00:00.000Z"


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_timestamps_are_written_as_python_writes_them(timestamp_ms):
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=timestamp_ms)
    assert format_timestamp(timestamp_ms) == moment.isoformat(timespec="milliseconds") + "Z"


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2023-11-14T22:13:20.009Z", MOMENT_MS),  # Spark, UTC session; deltalake
        ("2023-11-14T23:13:20.009+01:00", MOMENT_MS),  # Spark, session in Berlin
        ("2023-11-14T12:13:20.009-10:00", MOMENT_MS),
        ("2023-11-14T22:13:20.009000Z", MOMENT_MS),  # deltalake, microseconds
        ("2023-11-14T22:13:20.009999Z", MOMENT_MS),  # rounded down
        ("2023-11-14T22:13:20.009000000Z", MOMENT_MS),
        ("2023-11-14 22:13:20.009", MOMENT_MS),
        ("2023-11-14 22:13:20.009000123+00:00", MOMENT_MS),
        ("2023-11-14T22:13:20Z", MOMENT_MS - 9),
        ("2023-11-14 22:13:20", MOMENT_MS - 9),
        ("2023-11-14T22:13:20.0Z", MOMENT_MS - 9),
        ("1969-12-31T23:59:59.999500Z", -1),  # down, not towards zero
        ("9999-12-31T23:59:59.999Z", NEWEST_MS),
    ],
)
def test_what_other_engines_write_is_read(text, timestamp_ms):
    assert parse_timestamp(text) == timestamp_ms


@pytest.mark.parametrize(
    "text",
    [
        "2023-13-14T22:13:20.009Z",
        "2023-11-14T22:13:60.009Z",
        "2023-11-14T22+00:00.123Z",
        "2023-11-14T22:13:+1.009Z",
        "2023-11-14T22:13:20.009x",
    ],
)
def test_what_only_looks_like_a_timestamp_is_refused(text):
    with pytest.raises(ValueError, match=r"expected a time|must be in"):
        parse_timestamp(text)


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from("T "),
    st.sampled_from(["milliseconds", "microseconds"]),
)
def test_every_iso_timestamp_is_read_and_rounded_down(moment, zone_minutes, separator, unit):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    written = datetime.fromisoformat(moment.isoformat(timespec=unit))
    expected = (written - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_timestamp(moment.isoformat(separator, timespec=unit)) == expected


def test_a_segment_is_read_of_an_add_action():
    add = AddFile(
        path="partition=3/x.parquet",
        partition_values={"partition": "3", "base_offset": "100"},
        size_bytes=7,
        modification_ms=8,
        stats={
            "numRecords": 5,
            "minValues": {"offset_delta": 2, "timestamp": "2023-11-14T22:13:20.009Z"},
            "maxValues": {"offset_delta": 6, "timestamp": "2023-11-14T22:13:21Z"},
        },
    )
    segment = segment_of_add(add, 9)
    assert (segment.first_offset, segment.last_offset, segment.partition, segment.delta_version) == (102, 106, 3, 9)
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (MOMENT_MS, 1_700_000_001_000)
    assert segment.has_stats
    assert segment.partition_values() == dict(add.partition_values)


@pytest.mark.parametrize("absent", [None, ""])
def test_a_partition_value_that_is_absent_is_none(absent):
    values = {"partition": absent, "base_offset": absent}
    segment = segment_of_add(AddFile(path="x", partition_values=values, size_bytes=1, modification_ms=1), 0)
    assert (segment.partition, segment.base_offset) == (None, None)
    assert segment.partition_values() == {"partition": None, "base_offset": None}


GOOD: dict[str, Any] = {
    "numRecords": 3,
    "minValues": {"offset_delta": 0, "timestamp": "2023-11-14T22:13:20Z"},
    "maxValues": {"offset_delta": 2, "timestamp": "2023-11-14T22:13:20Z"},
}
NO_NUMBERS = ["x", [1], {"a": 1}, float("inf"), float("nan")]


@pytest.mark.parametrize(
    "stats",
    [
        None,
        {},
        {"numRecords": 3},
        {"numRecords": 3, "minValues": {}, "maxValues": None},
        {"numRecords": 3, "minValues": {"offset_delta": 0}, "maxValues": {"offset_delta": 2}},
        {
            "numRecords": 3,
            "minValues": {"offset_delta": 0, "timestamp": "+12023-11-14T22:13:20Z"},
            "maxValues": {"offset_delta": 2, "timestamp": "+12023-11-14T22:13:20Z"},
        },
        {
            "numRecords": 3,
            "minValues": {"offset_delta": 0, "timestamp": 1},
            "maxValues": {"offset_delta": 2, "timestamp": 2},
        },
        *({**GOOD, "numRecords": odd} for odd in NO_NUMBERS),
        *({**GOOD, "maxValues": {**GOOD["maxValues"], "offset_delta": odd}} for odd in NO_NUMBERS),
        *({**GOOD, "minValues": {**GOOD["minValues"], "offset_delta": odd}} for odd in NO_NUMBERS),
        *({**GOOD, side: odd} for side in ("minValues", "maxValues") for odd in ([1], "x", 7)),
    ],
)
def test_statistics_that_are_incomplete_or_make_no_sense_count_for_none(stats):
    add = AddFile(path="x", partition_values={"partition": "0"}, size_bytes=1, modification_ms=1, stats=stats)
    assert not segment_of_add(add, 0).has_stats


@pytest.mark.parametrize("name", ["partition", "base_offset"])
@pytest.mark.parametrize("odd", ["x", [1], {}, "1.5", float("inf")])
def test_a_partition_value_that_makes_no_sense_is_told_with_table_version_and_file(name, odd):
    add = AddFile(path="x.parquet", partition_values={name: odd}, size_bytes=1, modification_ms=1, stats=GOOD)
    with pytest.raises(CorruptLogError) as raised:
        segment_of_add(add, 9, table="topics/t")
    told = str(raised.value)
    assert f"version 9 of topics/t adds x.parquet with what makes no sense: {name} is {odd!r}, expected a" in told


def a_table(*adds):
    """The files of a checkpoint that has these."""
    return pa.table(
        {
            "path": pa.array([add.path for add in adds], pa.string()),
            "partition_values": pa.array(
                [list(add.partition_values.items()) for add in adds], pa.map_(pa.string(), pa.string())
            ),
            "size_bytes": pa.array([add.size_bytes for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_ms for add in adds], pa.int64()),
            "stats": pa.array([None if add.stats is None else json.dumps(add.stats) for add in adds], pa.string()),
        }
    )


def an_add(path="x", *, partition="0", base_offset="10", **stats):
    values = {"partition": partition, "base_offset": base_offset}
    return AddFile(path=path, partition_values=values, size_bytes=1, modification_ms=2, stats=stats or None)


BOUNDS = {
    "minValues": {"offset_delta": 0, "timestamp": "2023-11-14T22:13:20.000Z", "producer_id": 5},
    "maxValues": {"offset_delta": 4, "timestamp": "2023-11-14T22:13:20.123999+00:00", "sequence": 7},
}
PLAIN = [
    an_add("a%20b", numRecords=5, **BOUNDS, nullCount={"offset_delta": 0}),
    an_add("b", base_offset=None),
    an_add("c", base_offset="", partition=None, numRecords=3),
    an_add("d", partition="3", numRecords=1, minValues={}, maxValues=None),
    an_add(
        "e", numRecords=2, minValues={"timestamp": "1969-12-31T23:59:59.9996Z", "offset_delta": None}, tightBounds=True
    ),
]
ODD = [
    an_add("f", numRecords=2, minValues={"timestamp": "2023-11-14 22:13:20"}, maxValues={"offset_delta": "7"}),
    an_add("g", partition=" 7", maxValues={"timestamp": "10000-01-01T00:00:00.000Z"}),
    an_add("h", maxValues={"timestamp": "2023-11-14T22:13:20.123456789+02:00", "offset_delta": 1.0}),
    an_add("i", numRecords="x", minValues=[1], maxValues={"offset_delta": {}}),
]


@pytest.mark.parametrize("adds", [PLAIN, [*PLAIN, *ODD], PLAIN[1:2], []], ids=["plain", "odd", "no statistics", "none"])
def test_a_checkpoint_tells_the_same_of_a_file_as_the_entry_that_added_it(adds):
    assert segments_of_table(a_table(*adds)) == [segment_of_add(add, -1) for add in adds]


def test_without_a_checkpoint_there_are_no_segments():
    assert segments_of_table(None) == []


@pytest.mark.parametrize(("stats", "partition"), [("{", "0"), ("[]", "0"), ("7", "0"), (None, "x")])
def test_what_makes_no_sense_in_a_checkpoint_is_told_with_the_file(stats, partition):
    table = a_table(an_add("a"), an_add("b", partition=partition), an_add("c"))
    table = table.set_column(4, "stats", pa.array([None, stats, None], pa.string()))
    with pytest.raises(CorruptLogError, match="tells of b what makes no sense"):
        segments_of_table(table)


def test_statistics_that_span_lines_are_read_one_by_one():
    table = a_table(an_add("a", numRecords=1), an_add("b"))
    table = table.set_column(4, "stats", pa.array(['{"numRecords":\n1}', "{}\n{}"], pa.string()))
    with pytest.raises(CorruptLogError, match="tells of b"):
        segments_of_table(table)
    (segment,) = segments_of_table(table.slice(0, 1))
    assert segment.record_count == 1


class IndexAgainstAList(RuleBasedStateMachine):
    """The index beside a plain list of segments that don't overlap, and are asked one by one."""

    def __init__(self):
        super().__init__()
        self.index = SegmentIndex()
        self.model = []
        self.ends = [0, 0]

    @rule(partition=st.integers(0, 1), gap=st.integers(0, 2), count=st.integers(1, 3), times=st.integers(0, 5))
    def append(self, partition, gap, count, times):
        base = self.ends[partition] + gap
        self.ends[partition] = base + count
        path = f"{partition}-{base}"
        self.put(
            a_segment(path, partition=partition, base_offset=base, deltas=(0, count - 1), times=(times, times + 1))
        )

    @rule(partition=st.sampled_from([0, 1, None]), number=st.integers(0, 3))
    def written_but_not_in_the_log(self, partition, number):
        self.put(a_segment(f"null-{number}", partition=partition, base_offset=None))

    @rule(data=st.data())
    def sequenced(self, data):
        unsequenced = [s for s in self.model if s.base_offset is None and s.partition is not None]
        if unsequenced:
            chosen = data.draw(st.sampled_from(unsequenced))
            base = self.ends[chosen.partition]
            self.ends[chosen.partition] += 1
            self.put(a_segment(chosen.path, partition=chosen.partition, base_offset=base))

    @rule(data=st.data())
    def described_anew(self, data):
        if self.model:
            self.put(data.draw(st.sampled_from(self.model)))

    @rule(data=st.data())
    def removed(self, data):
        if self.model:
            path = data.draw(st.sampled_from(self.model)).path
            self.index.remove(path)
            self.model = [s for s in self.model if s.path != path]

    @rule(data=st.data())
    def many_removed(self, data):
        paths = data.draw(st.lists(st.sampled_from([*(s.path for s in self.model), "nowhere"])))
        self.index.remove_all(paths)
        self.model = [s for s in self.model if s.path not in paths]

    @rule()
    def a_path_that_is_not_there_is_removed(self):
        self.index.remove("nowhere")

    @rule()
    def loaded_anew(self):
        self.index = SegmentIndex.of(reversed(self.model))

    def put(self, segment):
        self.index.add(segment)
        self.model = [s for s in self.model if s.path != segment.path] + [segment]

    def of(self, partition):
        live = [s for s in self.model if s.partition == partition and s.base_offset is not None]
        return sorted(live, key=lambda s: s.base_offset)

    @invariant()
    def both_tell_the_same(self):
        by_path = {s.path: s for s in self.model}
        assert len(self.index) == len(by_path)
        assert self.index.by_path == by_path
        assert {s.path for s in self.index.unsequenced()} == {s.path for s in self.model if s.base_offset is None}
        assert self.index.partitions() == [p for p in (0, 1) if self.of(p)]
        for partition in (0, 1, 2):
            live = self.of(partition)
            assert self.index.partition(partition) == live
            assert self.index.end_offset(partition) == max((s.last_offset + 1 for s in live), default=0)
            for offset in range(0, (live[-1].last_offset if live else 0) + 2):
                expected = [s for s in live if s.last_offset >= offset]
                assert list(self.index.from_offset(partition, offset)) == expected
            for time in range(0, 8):
                expected = [s for s in live if s.max_timestamp_ms >= time and s.last_offset >= 2]
                assert list(self.index.from_timestamp(partition, time, log_start_offset=2)) == expected


TestIndexAgainstAList = IndexAgainstAList.TestCase
TestIndexAgainstAList.settings = settings(max_examples=30, stateful_step_count=20)
TestIndexAgainstAList = pytest.mark.slow(TestIndexAgainstAList)


@pytest.mark.parametrize("every", [1, 2, 3, 50])
def test_many_segments_are_removed_at_once(every):
    segments = [a_segment(f"{p}-{n}", partition=p, base_offset=n) for p in (0, 1) for n in range(100)]
    segments += [a_segment(f"null-{n}", partition=p, base_offset=None) for n, p in enumerate([0, None])]
    index = SegmentIndex.of(segments)
    gone = {segment.path for segment in segments[::every]}
    index.remove_all([*gone, "nowhere", *gone])
    left = [segment for segment in segments if segment.path not in gone]
    assert index.by_path == {segment.path: segment for segment in left}
    assert index.partition(0) + index.partition(1) == [segment for segment in left if segment.base_offset is not None]


def test_files_that_share_a_base_are_found_by_their_own_offsets():
    low, middle, high = (
        a_segment(p, base_offset=100, deltas=d) for p, d in [("z", (0, 4)), ("a", (5, 9)), ("m", (12, 20))]
    )
    index = SegmentIndex.of([high, low, middle])
    assert index.partition(0) == [low, middle, high]
    assert [list(index.from_offset(0, offset)) for offset in (100, 104, 105, 109, 110, 111, 112, 120, 121)] == [
        [low, middle, high],
        [low, middle, high],
        [middle, high],
        [middle, high],
        [high],
        [high],
        [high],
        [high],
        [],
    ]


def test_a_segment_that_may_be_young_enough_is_looked_into():
    unknown = a_segment("unknown", base_offset=1, deltas=None)
    old = a_segment("old", base_offset=2, times=(1, 1))
    assert list(SegmentIndex.of([unknown, old]).from_timestamp(0, 5)) == [unknown]


def test_timestamps_that_go_backwards_hide_no_segment():
    index = SegmentIndex.of(a_segment(str(n), base_offset=n, times=(t, t)) for n, t in enumerate([5, 1, 9, 2]))
    assert [s.path for s in index.from_timestamp(0, 5)] == ["0", "2"]
