"""Which files are read, in how many tasks, and where a micro-batch ends; without Spark."""

from datetime import UTC, datetime

import pytest

from sparklog.errors import CorruptLogError
from sparklog.log.data.segments import Segment
from sparklog.streaming.limits import Backlog, Cut, choose_cuts, cut_between_files, record_count
from sparklog.streaming.planning import Narrowing, OffsetRange, narrow_ranges, split_into_tasks
from sparklog.streaming.positions import Positions, TopicPosition

MIB = 1024 * 1024


def a_segment(first, last, *, size_bytes=1_000, low_ms=0, high_ms=0, partition=0):
    return Segment(
        path=f"{first}.parquet",
        partition=partition,
        base_offset=first,
        size_bytes=size_bytes,
        modification_ms=0,
        record_count=last - first + 1,
        min_offset_delta=0,
        max_offset_delta=last - first,
        min_timestamp_ms=low_ms,
        max_timestamp_ms=high_ms,
    )


def a_range(*segments, topic="t", partition=0, start=None, end=None):
    return OffsetRange(
        topic=topic,
        topic_id="id",
        partition=partition,
        start=segments[0].first_offset if start is None else start,
        end=segments[-1].last_offset + 1 if end is None else end,
        timestamp_type=0,
        segments=segments,
    )


def bounds(tasks):
    return [(task.partition, task.start, task.end, len(task.segments)) for task in tasks]


TEN = [a_segment(n * 10, n * 10 + 9) for n in range(10)]


def test_a_task_for_each_partition_unless_more_are_asked_for():
    ranges = [a_range(*TEN), a_range(*TEN[:1], partition=1)]
    assert bounds(split_into_tasks(ranges, None)) == [(0, 0, 100, 10), (1, 0, 10, 1)]
    assert bounds(split_into_tasks(ranges, 2)) == [(0, 0, 100, 10), (1, 0, 10, 1)]


def test_more_tasks_are_cut_between_files_in_proportion():
    ranges = [a_range(*TEN), a_range(*TEN[:1], partition=1)]
    assert bounds(split_into_tasks(ranges, 4)) == [
        (0, 0, 20, 2),
        (0, 20, 50, 3),
        (0, 50, 70, 2),
        (0, 70, 100, 3),
        (1, 0, 10, 1),
    ]


def test_every_offset_is_in_exactly_one_task():
    for count in range(1, 30):
        tasks = split_into_tasks([a_range(*TEN, start=3, end=97)], count)
        assert [task.start for task in tasks[1:]] == [task.end for task in tasks[:-1]]
        assert (tasks[0].start, tasks[-1].end) == (3, 97)


def test_only_a_large_file_is_cut_within():
    large = a_range(a_segment(0, 99, size_bytes=100 * MIB))
    assert bounds(split_into_tasks([large], 4)) == [(0, 0, 25, 1), (0, 25, 50, 1), (0, 50, 75, 1), (0, 75, 100, 1)]
    assert bounds(split_into_tasks([a_range(a_segment(0, 99))], 4)) == [(0, 0, 100, 1)]


def test_no_task_has_more_records_than_it_may():
    ranges = [a_range(*TEN, start=5), a_range(*TEN[:1], partition=1)]
    assert bounds(split_into_tasks(ranges, None, 40)) == [(0, 5, 36, 4), (0, 36, 68, 4), (0, 68, 100, 4), (1, 0, 10, 1)]
    assert bounds(split_into_tasks(ranges, 3, 1_000)) == bounds(split_into_tasks(ranges, 3))
    assert bounds(split_into_tasks([a_range(a_segment(0, 9))], None, 5)) == [
        (0, 0, 5, 1),
        (0, 5, 10, 1),
    ]  # within a small file
    for most in range(1, 100):
        tasks = split_into_tasks(ranges, 4, most)
        assert all(0 < task.size <= most for task in tasks)
        assert sum(task.size for task in tasks) == 105


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], [(0, 0, 100, 10), (1, 0, 100, 10)]),
        ([("partition", "=", 1)], [(1, 0, 100, 10)]),
        ([("partition", "in", (1, 7)), ("partition", "<", 5)], [(1, 0, 100, 10)]),
        ([("topic", "=", "other")], []),
        ([("topic", "in", ("t", "u")), ("partition", "<=", 0)], [(0, 0, 100, 10)]),
        ([("offset", ">=", 35), ("offset", "<", 40), ("partition", "=", 0)], [(0, 35, 40, 1)]),
        ([("offset", ">", 39), ("offset", "<=", 40), ("partition", "=", 0)], [(0, 40, 41, 1)]),
        ([("offset", "in", (12, 25)), ("partition", "=", 0)], [(0, 12, 26, 2)]),
        ([("offset", "=", 39), ("partition", "=", 0)], [(0, 39, 40, 1)]),
        ([("offset", "=", 500)], []),
        ([("value", "=", b"x"), ("offset", "=", None)], [(0, 0, 100, 10), (1, 0, 100, 10)]),
    ],
)
def test_filters_leave_out_partitions_and_files(filters, left):
    narrowing = Narrowing()
    for column, operator, value in filters:
        narrowing = narrowing.with_filter(column, operator, value)
    assert bounds(narrow_ranges([a_range(*TEN), a_range(*TEN, partition=1)], narrowing)) == left


def test_times_in_statistics_are_rounded_down_and_may_lie_up_to_a_millisecond_later():
    one = a_range(a_segment(0, 9, low_ms=1_000, high_ms=2_000))

    def is_read(operator, microseconds):
        moment = datetime.fromtimestamp(0, UTC).replace(
            second=microseconds // 1_000_000, microsecond=microseconds % 1_000_000
        )
        return bool(narrow_ranges([one], Narrowing().with_filter("timestamp", operator, moment)))

    assert is_read(">=", 2_000_999)
    assert not is_read(">=", 2_001_000)
    assert is_read("<=", 1_000_000)
    assert not is_read("<", 1_000_000)


def test_a_time_without_a_zone_leaves_nothing_out():
    one = [a_range(a_segment(0, 9, low_ms=1_000, high_ms=2_000))]
    assert narrow_ranges(one, Narrowing().with_filter("timestamp", ">", datetime(2100, 1, 1))) == one


def cuts(*ends):
    return [Cut(version, {0: end}) for version, end in enumerate(ends, start=1)]


def chosen(backlogs, limit):
    return {topic: cut.ends[0] for topic, cut in choose_cuts(backlogs, limit).items()}


def test_a_batch_ends_between_commits_within_the_limit():
    backlog = {"t": Backlog(offsets={0: 0}, cuts=cuts(4, 9, 9, 14))}
    assert [chosen(backlog, limit)["t"] for limit in (None, 100, 13, 9, 8, 4)] == [14, 14, 9, 9, 4, 4]


def test_a_commit_that_is_larger_than_the_limit_is_read_whole():
    assert chosen({"t": Backlog(offsets={0: 4}, cuts=cuts(4, 9, 14))}, 1) == {"t": 9}


def test_topics_share_the_limit_in_proportion_and_none_waits_for_ever():
    backlogs = {
        "large": Backlog(offsets={0: 0}, cuts=cuts(*range(10, 1_000, 10))),
        "small": Backlog(offsets={0: 0}, cuts=cuts(50)),
        "still": Backlog(offsets={0: 7}, cuts=cuts(7)),
    }
    assert chosen(backlogs, 100) == {"large": 90, "small": 50, "still": 7}


def test_a_commit_that_may_be_split_is_cut_by_its_partitions_shares():
    backlog = Backlog(
        offsets={0: 10, 1: 0, 2: 5}, cuts=[Cut(7, {0: 40, 1: 60, 2: 5}), Cut(8, {0: 60, 1: 60, 2: 5})], delta_version=6
    )

    def cut(limit):
        return choose_cuts({"t": backlog}, limit, splits_large_commits=True)["t"]

    assert cut(9) == Cut(6, {0: 13, 1: 6, 2: 5})
    assert cut(90) == Cut(7, {0: 40, 1: 60, 2: 5})  # a commit that fits is whole, and so is the next
    assert cut(95) == Cut(7, {0: 40, 1: 60, 2: 5})  # the next one isn't larger than the limit: it waits
    for limit in range(1, 90):
        assert record_count(backlog.offsets, cut(limit).ends) == limit


def test_where_commits_are_forgotten_a_batch_ends_between_files():
    end = Cut(9, {0: 100, 1: 50})
    segments = {0: TEN, 1: TEN[:5]}
    assert cut_between_files({0: 0, 1: 0}, end, segments, 30) == Cut(-1, {0: 20, 1: 10})
    assert cut_between_files({0: 95, 1: 50}, end, {0: TEN[9:]}, 1) == Cut(9, {0: 100, 1: 50})
    assert cut_between_files({0: 0, 1: 0}, end, segments, 1_000) == end


def test_positions_are_written_as_kafkas_and_read_again():
    positions = Positions(
        {
            "b": TopicPosition(topic_id="2", offsets={1: 5, 0: 4}, delta_version=17),
            "a": TopicPosition(topic_id="1", offsets={0: 9}),
        }
    )
    written = positions.to_json()
    assert list(written) == ["a", "b", "@topic_ids", "@delta_versions"]
    assert written["b"] == {"0": 4, "1": 5}
    assert Positions.from_json(written) == positions


@pytest.mark.parametrize("written", [{"orders": {"0": 4}}, {"@topic_ids": [], "@delta_versions": {}, "a": {"0": "x"}}])
def test_the_checkpoint_of_another_source_is_refused(written):
    with pytest.raises(CorruptLogError, match="another source's"):
        Positions.from_json(written)
