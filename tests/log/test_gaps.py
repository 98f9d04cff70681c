"""Gaps: writers of ours pause so that another engine's commit comes through beside them, and only then (rule F5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.log.append import TopicWriter
from sparklog.log.data.object_paths import object_path
from sparklog.log.gaps import ForeignGaps
from sparklog.log.publishing import Marker
from sparklog.log.state import open_state
from sparklog.log.topic import alter_topic
from sparklog.producer import Producer
from sparklog.storage import CreateResult, MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.producer import support as producers
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    entry_lines,
    foreign_file,
    no_checkpoints,
    records,
    resealed,
    within,
)

NULL = "__HIVE_DEFAULT_PARTITION__"
WAITING = f"partition={NULL}/base_offset={NULL}/part-0.snappy.parquet"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def a_polite_writer(log: DeltaLog) -> TopicWriter:
    """As a producer's, but that looks for foreign files are done at once, in the caller's thread."""
    return TopicWriter(log, "t", checkpoints=no_checkpoints(), gaps=ForeignGaps(run=lambda work: work()))


def write_for(
    writer: TopicWriter, clock: ManualClock, seconds: float, *, every_ms: float = 400.0
) -> list[tuple[float, float]]:
    """Append a record every so many ms. When each gap that was asked for began, and its length, in ms."""
    gaps: list[tuple[float, float]] = []
    began = clock.ticks_ms()
    count = writer.state.gap_count
    while clock.ticks_ms() < began + seconds * 1_000:
        append(writer, "x")
        if writer.state.gap_count > count:
            count = writer.state.gap_count
            gaps.append((clock.ticks_ms() - began, writer.state.gap_ms))
        clock.advance(every_ms)
    return gaps


def a_waiting_file(log: DeltaLog, path: str = WAITING) -> AddFile:
    """A file of another engine that no commit has named yet."""
    return foreign_file(log, pa.table({"value": [b"f"]}), path=path, partition=None)


def commit_foreign(log: DeltaLog, version: int, *adds: AddFile) -> bool:
    """Try to commit as another engine would."""
    lines = [{"commitInfo": {"operation": "WRITE"}}, *(add.to_json() for add in adds)]
    data = resealed("\n".join(json.dumps(line) for line in lines).encode())
    return log.store.create(entry_path(log.table, version), data) is CreateResult.CREATED


def asked(log: DeltaLog) -> list[int]:
    """The gaps that the log's entries ask for."""
    infos = [
        entry_lines(log, version)[0]["commitInfo"].get("sparklog", {})
        for version in range(open_state(log).position.version + 1)
    ]
    return [info["gap_ms"] for info in infos if "gap_ms" in info]


# When gaps are asked for


@pytest.mark.slow
def test_without_other_engines_no_gap_is_asked_for_at_a_listing_every_five_seconds(
    memory: MemoryStore, clock: ManualClock
) -> None:
    a_topic(memory, clock, num_partitions=2)
    store = CountingStore(memory)
    log = a_log(store, clock)
    writer = a_polite_writer(log)
    store.reset()
    assert write_for(writer, clock, 60) == []
    assert asked(a_log(memory, clock)) == []
    assert store.counts()["list"] == 11 * 3  # a folder of each partition, and that of no partition
    assert store.counts().keys() == {"put", "create", "list"}


@pytest.mark.slow
def test_who_commits_seldom_does_not_look(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    store = CountingStore(memory)
    writer = a_polite_writer(a_log(store, clock))
    a_waiting_file(log)
    store.reset()
    assert write_for(writer, clock, 120, every_ms=600) == []
    assert store.counts()["list"] <= 2  # of the log's ground, once a minute (rule L17, ground)


@pytest.mark.slow
def test_of_many_writers_all_together_look_about_as_often_as_one(memory: MemoryStore, clock: ManualClock) -> None:
    a_topic(memory, clock)
    store = CountingStore(memory)
    writers = [a_polite_writer(a_log(store, clock)) for _ in range(10)]
    store.reset()
    for turn in range(300):
        append(writers[turn % 10], "x")
        clock.advance(400)
    grounds = 10 * 2  # each writer's, once a minute (rule L17, ground)
    assert 15 <= (store.counts()["list"] - grounds) / 2 <= 40  # two folders; 120 seconds


@pytest.mark.slow
def test_while_a_file_waits_for_its_commit_gaps_grow_and_take_a_fifth_of_the_time(
    memory: MemoryStore, clock: ManualClock
) -> None:
    log = a_topic(memory, clock)
    writer = a_polite_writer(a_log(memory, clock))
    assert write_for(writer, clock, 10) == []
    a_waiting_file(log)
    gaps = write_for(writer, clock, 65)
    assert [length for _, length in gaps] == [500, 1_000, 2_000, 4_000, 8_000]
    assert all(later - earlier >= 5 * length for (earlier, length), (later, _) in pairwise(gaps))


@pytest.mark.slow
def test_a_file_that_is_committed_ends_the_long_gaps(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    writer = a_polite_writer(a_log(memory, clock))
    write_for(writer, clock, 10)
    add = a_waiting_file(log)
    assert [length for _, length in write_for(writer, clock, 15)] == [500, 1_000, 2_000]
    assert commit_foreign(log, open_state(log).position.version + 1, add)
    assert {length for _, length in write_for(writer, clock, 60)} == {100}
    a_waiting_file(log, WAITING.replace("part-0", "part-1"))
    # The first gap is about as long as was needed.
    assert [length for _, length in write_for(writer, clock, 10) if length != 100][:1] == [1_000]


@pytest.mark.slow
def test_a_file_whose_writer_died_is_given_up_after_three_minutes(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    writer = a_polite_writer(a_log(memory, clock))
    write_for(writer, clock, 10)
    a_waiting_file(log)
    gaps = write_for(writer, clock, 240)
    assert 140_000 <= gaps[-1][0] <= 190_000


@pytest.mark.parametrize(("age_ms", "is_waited_for"), [(0, True), (14_000, True), (16_000, False)])
def test_a_writer_that_comes_later_leaves_gaps_for_a_file_written_just_before(
    memory: MemoryStore, clock: ManualClock, age_ms: int, is_waited_for: bool
) -> None:
    log = a_topic(memory, clock)
    a_waiting_file(log)
    clock.advance(age_ms)
    assert bool(write_for(a_polite_writer(a_log(memory, clock)), clock, 20)) == is_waited_for


@pytest.mark.parametrize("name", [".part-0.snappy.parquet.crc", ".part-0.parquet", "_part-0.parquet", "part-0.tmp"])
def test_what_is_no_data_file_waits_for_nothing(memory: MemoryStore, clock: ManualClock, name: str) -> None:
    a_waiting_file(a_topic(memory, clock), f"partition={NULL}/base_offset={NULL}/{name}")
    assert write_for(a_polite_writer(a_log(memory, clock)), clock, 20) == []


def test_files_that_say_their_partition_are_found_in_a_topic_of_many(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock, num_partitions=9)
    writer = a_polite_writer(a_log(memory, clock))
    write_for(writer, clock, 20)
    a_waiting_file(log, f"partition=7/base_offset={NULL}/part-1.parquet")
    assert write_for(writer, clock, 20)


@pytest.mark.slow
def test_after_a_foreign_commit_short_gaps_are_left_for_two_minutes(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    writer = a_polite_writer(a_log(memory, clock))
    write_for(writer, clock, 10)
    path = f"partition={NULL}/base_offset={NULL}/part%2d7.parquet"
    add = a_waiting_file(log, path)
    memory.put(object_path(log.table, path), memory.read(object_path(log.table, add.path)))
    commit_foreign(log, open_state(log).position.version + 1, add)
    gaps = write_for(writer, clock, 150, every_ms=300)
    assert {length for _, length in gaps} == {100}
    assert all(later - earlier >= 1_000 for (earlier, _), (later, _) in pairwise(gaps))
    assert 90 <= len(gaps) <= 120


def test_what_other_engines_remove_or_merge_asks_for_no_gap(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    writer = a_polite_writer(a_log(memory, clock))
    write_for(writer, clock, 10)
    commit_foreign(log, open_state(log).position.version + 1)
    assert write_for(writer, clock, 30) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "gap_ms", "gaps"), [(0, 0, 0), (1_000, 200, 60), (10_000, 2_000, 6), (60_000, 2_000, 1)]
)
def test_the_topics_setting_says_how_often_gaps_are_left_whoever_writes(
    memory: MemoryStore, clock: ManualClock, setting: int, gap_ms: int, gaps: int
) -> None:
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": setting})
    store = CountingStore(memory)
    writer = a_polite_writer(a_log(store, clock))
    a_waiting_file(log)
    store.reset()
    found = write_for(writer, clock, 60)
    assert {length for _, length in found} <= {gap_ms}
    assert abs(len(found) - gaps) <= gaps / 5 + 1
    assert "list" not in store.counts()


def test_where_the_folder_cannot_be_listed_writing_goes_on(memory: MemoryStore, clock: ManualClock) -> None:
    a_topic(memory, clock)
    writer = a_polite_writer(
        a_log(FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["list"], skip=1, times=None)), clock)
    )
    assert len(write_for(writer, clock, 60)) == 0


# Who waits, and for how long


def asking(memory: MemoryStore, clock: ManualClock) -> TopicWriter:
    """A writer whose newest entry asks for a gap of two seconds."""
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": 10_000})
    writer = a_polite_writer(a_log(memory, clock))
    append(writer, "asks")
    assert asked(log) == [2_000]
    return writer


def elapsed(clock: ManualClock, act: Callable[[], object]) -> float:
    began = clock.ticks_ms()
    act()
    return clock.ticks_ms() - began


def test_whoever_asks_waits_before_the_next_version(memory: MemoryStore, clock: ManualClock) -> None:
    writer = asking(memory, clock)
    assert elapsed(clock, lambda: append(writer, "next")) == pytest.approx(2_000, abs=1)
    assert elapsed(clock, lambda: append(writer, "after that")) == 0


def test_every_other_writer_waits_once_it_has_read_the_entry(memory: MemoryStore, clock: ManualClock) -> None:
    a_topic(memory, clock, configs={"foreign.gap.interval.ms": 10_000})
    other = a_writer(a_log(memory, clock))
    writer = a_polite_writer(a_log(memory, clock))
    append(writer, "asks")
    assert elapsed(clock, lambda: append(other, "lost the race")) == pytest.approx(2_000, abs=1)


def test_who_was_away_does_not_wait_for_a_gap_that_others_have_waited_for(
    memory: MemoryStore, clock: ManualClock
) -> None:
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": 10_000})
    away, other = a_writer(a_log(memory, clock)), a_writer(a_log(memory, clock))
    append(other, "a")
    append(other, "b")
    writer = a_polite_writer(a_log(memory, clock))
    for _ in range(5):
        append(writer, "asks, then goes on after the gap")
    assert asked(log) == [2_000]
    clock.advance(1_000)
    assert elapsed(clock, lambda: append(away, "back again")) == 0


def test_jobs_that_have_read_the_entry_wait_too(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": 10_000})
    writer = a_polite_writer(a_log(memory, clock))
    store = OvertakenStore(memory, lambda: append(writer, "asks"))
    assert elapsed(clock, lambda: alter_topic(a_log(store, clock), "t", {"retention.ms": 1})) >= 1_999
    assert asked(log) == [2_000]


@pytest.mark.parametrize(("said", "expected"), [(10**12, 10_000), (-5, 0), ("soon", 0), (None, 0), (1.5, 0)])
def test_nobody_waits_for_longer_than_ten_seconds_whatever_an_entry_says(
    memory: MemoryStore, clock: ManualClock, said: object, expected: float
) -> None:
    log = a_topic(memory, clock)
    first, second = a_writer(log), a_writer(log)
    append(first, "a")
    path = entry_path(log.table, open_state(log).position.version)
    lines = log.store.read(path).splitlines()
    info = json.loads(lines[0])
    info["commitInfo"]["sparklog"]["gap_ms"] = said
    log.store.put(path, resealed(b"\n".join([json.dumps(info).encode(), *lines[1:]])))
    assert elapsed(clock, lambda: append(second, "b")) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("timeout_ms", "expected"), [(60_000, 2_000), (4_000, 2_000), (1_000, 500), (10, 5), (0, 0)])
def test_a_gap_takes_at_most_half_of_what_an_append_has_left(
    memory: MemoryStore, clock: ManualClock, timeout_ms: float, expected: float
) -> None:
    writer = asking(memory, clock)
    assert elapsed(clock, lambda: append(writer, "next", timeout_ms=timeout_ms)) == pytest.approx(expected, abs=1.1)


@pytest.mark.parametrize(
    ("within_ms", "expected"), [(None, 2_000), (60_000, 2_000), (1_000, 500), (0, 2_000), (-1, 2_000)]
)
def test_a_gap_takes_at_most_half_of_what_a_caller_that_waits_has_left(
    memory: MemoryStore, clock: ManualClock, within_ms: float | None, expected: float
) -> None:
    writer = asking(memory, clock)
    writer.finish_by(clock.deadline_in(within_ms))
    assert elapsed(clock, lambda: append(writer, "next")) == pytest.approx(expected, abs=1.1)


def test_of_several_callers_that_wait_the_soonest_to_give_up_counts(memory: MemoryStore, clock: ManualClock) -> None:
    writer = asking(memory, clock)
    for timeout_ms in (None, 1_000, 60_000, None):
        writer.finish_by(clock.deadline_in(timeout_ms))
    assert elapsed(clock, lambda: append(writer, "next")) == pytest.approx(500, abs=1.1)
    clock.advance(60_000)
    writer.finish_by(clock.deadline_in(3_000))
    append(writer, "asks")
    assert elapsed(clock, lambda: append(writer, "after all gave up")) == pytest.approx(1_500, abs=1.1)


def test_the_commit_of_a_transaction_asks_for_gaps_and_waits_for_them(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": 10_000})
    writer = a_polite_writer(a_log(memory, clock))

    def publish(number: int) -> None:
        files = [file.facts for file in writer.upload([(0, records("x"))])]
        marker = Marker(transactional_id="id", number=number)
        writer.publish(files, marker, known_version=writer.version, deadline=within(writer, 60_000))

    assert elapsed(clock, lambda: publish(1)) == 0
    assert asked(log) == [2_000]
    assert elapsed(clock, lambda: publish(2)) == pytest.approx(2_000, abs=1)


@pytest.mark.slow
def test_flush_and_close_of_a_producer_keep_their_time_beside_gaps() -> None:
    cluster = producers.a_topic(configs={"foreign.gap.interval.ms": 10_000})
    with Producer(cluster=cluster, linger_ms=0) as producer:
        producer.send("t", b"asks").get(60)
        producer.send("t", b"waits")
        producer.flush(timeout=1.0)
        producer.send("t", b"after the gap")
    assert asked(cluster.topic_log("t")) == [2_000]


def test_a_question_for_the_partitions_keeps_its_time_beside_gaps() -> None:
    cluster = producers.a_topic(configs={"foreign.gap.interval.ms": 10_000})
    with Producer(cluster=cluster, linger_ms=0, max_block_ms=1_000) as producer:
        producer.send("t", b"asks").get(60)
        waits = producer.send("t", b"waits")
        producers.eventually(producer._pipelines.all()[0].topic.writing.locked)  # the committer waits for the gap's end
        assert producer.partitions_for("t") == {0}
        waits.get(60)


# What comes through


class World(ManualClock):
    """A clock on which another engine lives: it needs so long from looking at the log to creating the next version."""

    def __init__(self, *, commit_ms: float) -> None:
        super().__init__(start_ms=T0_MS)
        self.commit_ms = commit_ms
        self.log: DeltaLog | None = None
        self.add: AddFile | None = None
        self.committed_ms: float | None = None
        self._attempt: tuple[float, int] | None = None
        self._version = 0

    def begin(self, log: DeltaLog, path: str) -> None:
        """From now on it tries to commit a file."""
        self.log, self.add, self.committed_ms = log, a_waiting_file(log, path), None

    def advance(self, duration_ms: float) -> None:
        super().advance(duration_ms)
        if self.log is None or self.add is None or self.committed_ms is not None:
            return
        if self._attempt is None:
            while self.log.read_entry(self._version) is not None:
                self._version += 1
            self._attempt = self.ticks_ms() + self.commit_ms, self._version
        due, version = self._attempt
        if self.ticks_ms() >= due:
            self._attempt = None
            if commit_foreign(self.log, version, self.add):
                self.committed_ms = self.ticks_ms()


def beside(commit_ms: float, *, writers: int, setting: int = -1) -> float:
    """Another engine commits beside writers that append every 200 ms; how many seconds it takes, at most 40."""
    clock = World(commit_ms=commit_ms)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs={"foreign.gap.interval.ms": setting})
    fast = [a_polite_writer(a_log(memory, clock)) for _ in range(writers)]
    for turn in range(30):
        append(fast[turn % writers], "x")
        clock.advance(200)
    clock.begin(log, WAITING)
    began, turn = clock.ticks_ms(), 0
    while clock.committed_ms is None and clock.ticks_ms() - began < 40_000:
        append(fast[turn % writers], "x")
        clock.advance(200)
        turn += 1
    return (clock.ticks_ms() - began) / 1_000


@pytest.mark.slow
@pytest.mark.parametrize(("commit_ms", "writers"), [(300, 1), (500, 3), (900, 1)])
def test_another_engines_commit_comes_through_within_half_a_minute(commit_ms: float, writers: int) -> None:
    assert beside(commit_ms, writers=writers) <= 30


@pytest.mark.slow
def test_without_gaps_it_does_not() -> None:
    """What the test above is worth."""
    assert beside(300, writers=1, setting=0) >= 40


@settings(max_examples=20)
@given(timeout_ms=st.floats(0, 10_000), gap_ms=st.sampled_from([1, 100, 2_000, 10_000]), late_ms=st.floats(0, 12_000))
def test_a_gap_never_makes_an_append_time_out(timeout_ms: float, gap_ms: int, late_ms: float) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "a")
    writer.state.gap_ms, writer.state.gap_until_ticks_ms = float(gap_ms), clock.ticks_ms() + gap_ms
    clock.advance(late_ms)
    began = clock.ticks_ms()
    append(writer, "b", timeout_ms=timeout_ms)
    assert clock.ticks_ms() - began <= max(0.0, min(timeout_ms / 2, gap_ms - late_ms)) + 1.1
