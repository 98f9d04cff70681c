"""The fetcher's rounds, without its thread: what they cost, how far they read ahead, and what stands in their way."""

import threading
import time
from typing import Any

import pytest

from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.delta.actions import RemoveFile
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import delete_records, delete_topic
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.consumer.support import LONG_MS, Rounds, a_cluster, a_consumer, send, take, text, tp, until, with_topic
from tests.support import T0_MS, foreign_commit, foreign_file, foreign_records


def live(log, partition=0):
    return load_state(log).require_whole().index.partition(partition)


def plain(found):
    return "".join(value for _, value in found)


# Cost


def test_an_idle_round_is_one_get_for_each_topic_and_nothing_is_ever_listed():
    memory = MemoryStore()
    with_topic(with_topic(a_cluster(memory), "abc"), "d", topic="u")
    store = CountingStore(memory)
    rounds = Rounds(a_cluster(store))
    rounds.assign(tp(), tp(topic="u"))
    rounds.run()
    store.reset()
    assert rounds.fetcher.round() is False
    assert store.counts() == {"get": 2}
    send(a_cluster(memory), "e")
    store.reset()
    rounds.run()
    # the entry, the file, that nothing follows; and as often that there is nothing new in the other topic
    assert set(store.counts()) == {"get"}
    assert rounds.take(tp())[-1] == (3, "e")


def test_a_consumer_that_waits_lists_nothing_and_reads_each_file_once():
    memory = MemoryStore()
    cluster = with_topic(a_cluster(memory), "a")
    store = CountingStore(memory)
    with a_consumer(a_cluster(store), "t") as consumer:
        take(consumer, 1)
        store.reset()
        for letter in "bcd":
            send(cluster, letter)
            assert text(take(consumer, 1)) == letter
        assert consumer.poll(timeout_ms=30) == {}
        counts = store.counts()
        assert set(counts) == {"get"}


def test_nothing_is_read_while_the_buffers_are_full():
    memory = MemoryStore()
    with_topic(a_cluster(memory), *["x" * 100] * 10)
    store = CountingStore(memory)
    rounds = Rounds(a_cluster(store), max_partition_fetch_bytes=1)
    rounds.assign(tp())
    rounds.run()
    store.reset()
    assert rounds.fetcher.round() is False
    assert store.counts() == {}
    assert not rounds.fetcher.has_work


def test_many_topics_are_looked_at_in_one_call_and_no_entry_is_read_twice():
    memory = MemoryStore()
    for topic in "tuvw":
        with_topic(a_cluster(memory), "a", topic=topic)
    calls: list[int] = []

    class Together(CountingStore):
        def read_many(self, paths):
            calls.append(len(paths))
            return super().read_many(paths)

    rounds = Rounds(a_cluster(Together(memory)))
    rounds.assign(*(tp(topic=topic) for topic in "tuvw"))
    rounds.run()
    calls.clear()
    assert rounds.fetcher.round() is False
    assert calls == [4]
    send(a_cluster(memory), "b", topic="v")
    calls.clear()
    rounds.run()
    assert calls[:2] == [4, 1]  # the new entry, among those that aren't there; then its file
    assert [v for _, v in rounds.take(tp(topic="v"))] == ["a", "b"]


def test_a_topic_is_polled_itself_before_trust_in_its_position_runs_out():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    with_topic(with_topic(a_cluster(memory), "a"), "b", topic="u")
    store = CountingStore(memory)
    rounds = Rounds(a_cluster(store, clock))
    rounds.assign(tp(), tp(topic="u"))
    rounds.run()
    found = []
    for _ in range(9):
        clock.advance(25_000)
        store.reset()
        rounds.run()
        found.append(store.counts())
    # each topic is polled itself at least every 50 s; after more than a minute each looks beneath itself
    assert found == [{"get": 2}, {"get": 2}, {"get": 4, "list": 2}] * 3


def test_emptying_buffers_record_by_record_costs_no_more_requests_than_being_idle():
    memory = MemoryStore()
    with_topic(a_cluster(memory), "x" * 200)
    store = CountingStore(memory)
    with a_consumer(a_cluster(store), "t", max_poll_records=1) as consumer:
        take(consumer, 1)
        store.reset()
        for _ in range(100):
            take(consumer, 1)
            time.sleep(0.002)
        assert store.counts()["get"] < 100


# How far ahead


def buffered(rounds, partition=0):
    return rounds.fetch_state.assignment.get(tp(partition)).buffered_count


def test_a_partition_is_read_ahead_up_to_its_limit_and_on_when_there_is_room():
    cluster = with_topic(a_cluster(), *["x" * 100] * 10)
    rounds = Rounds(cluster, max_partition_fetch_bytes=5_000)
    rounds.assign(tp())
    rounds.run()
    assert 0 < buffered(rounds) < 1_000
    found: list[Any] = []
    while len(found) < 1_000:
        found += rounds.take(tp())
        rounds.run()
    assert [offset for offset, _ in found] == list(range(1_000))


def test_all_partitions_together_are_read_ahead_up_to_their_limit_and_none_starves():
    cluster = with_topic(a_cluster(), partitions=3)
    for partition in range(3):
        send(cluster, *["x" * 100] * 5, partition=partition)
    rounds = Rounds(cluster, fetch_max_bytes=4_000)
    rounds.assign(*map(tp, range(3)))
    got = [0, 0, 0]
    for _ in range(40):
        rounds.run()
        assert rounds.fetch_state.assignment.buffered_bytes <= 4_000 + 8_000  # a file more
        for partition in range(3):
            got[partition] += len(rounds.take(tp(partition)))
    assert got == [500, 500, 500]


@pytest.mark.parametrize("limit", ["max_partition_fetch_bytes", "fetch_max_bytes"])
@pytest.mark.parametrize("bound", [0, 1])
def test_a_first_record_larger_than_the_limits_is_returned(limit, bound):
    cluster = with_topic(a_cluster())
    send(cluster, ["x" * 5_000], ["y" * 5_000])
    with a_consumer(cluster, "t", **{limit: bound}) as consumer:
        assert [r.value[:1] for r in take(consumer, 2)] == [b"x", b"y"]


def test_where_only_a_few_partitions_are_read_at_once_each_has_its_turn():
    cluster = with_topic(a_cluster(), partitions=8)
    for partition in range(8):
        send(cluster, *["x" * 100] * 6, partition=partition)
    rounds = Rounds(cluster, limits=ReadLimits(request_bytes=1), max_partition_fetch_bytes=1)
    rounds.assign(*map(tp, range(8)))
    got = [0] * 8
    for _ in range(16):  # a consumer that is faster than the fetcher
        rounds.fetcher.round()
        for partition in range(8):
            got[partition] += len(rounds.take(tp(partition)))
    assert got == [200] * 8


def test_memory_for_files_being_read_is_bounded_whatever_the_number_of_partitions():
    cluster = with_topic(a_cluster(), partitions=12)
    for partition in range(12):
        send(cluster, [f"{number:0100}" for number in range(300)], partition=partition)
    limits = ReadLimits(whole_file_bytes=0, piece_bytes=5_000)
    rounds = Rounds(cluster, limits=limits, max_partition_fetch_bytes=5_000, fetch_max_bytes=20_000)
    rounds.assign(*map(tp, range(12)))
    got: list[list[Any]] = [[] for _ in range(12)]
    while sum(map(len, got)) < 12 * 300:
        rounds.fetcher.round()
        assert rounds.fetcher._reader.held_bytes < 4_000_000  # one file's buffers
        for partition in range(12):
            got[partition] += rounds.take(tp(partition))
    assert all([offset for offset, _ in each] == list(range(300)) for each in got)


def test_records_of_a_partition_that_was_paused_meanwhile_take_no_room_of_the_others():
    memory = MemoryStore()
    cluster = with_topic(a_cluster(memory), "x" * 500, partitions=2)

    paused: list[Any] = []

    class Pausing(CountingStore):
        def read_many(self, paths):
            if any(path.endswith(".parquet") for path in paths) and not paused:
                paused.append(state)
                with rounds.fetch_state.lock:
                    rounds.fetch_state.assignment.pause(paused[0], keep_bytes=2_000)
                    rounds.fetch_state.request_update()
            return super().read_many(paths)

    rounds = Rounds(a_cluster(Pausing(memory)), fetch_max_bytes=4_000)
    rounds.assign(tp(0), tp(1))
    state = rounds.fetch_state.assignment.get(tp(0))
    assert state is not None
    rounds.run()
    assert state.paused
    send(cluster, "yyy", partition=1)
    rounds.run()
    assert plain(rounds.take(tp(1))) == "yyy"
    with rounds.fetch_state.lock:
        state.paused = False
        rounds.fetch_state.request_update()
    rounds.run()
    assert rounds.take(tp(0))[0][0] == 0


def test_many_small_files_are_read_together_and_handed_out_as_one_batch():
    cluster = with_topic(a_cluster(), *"abcdefgh")
    rounds = Rounds(cluster)
    rounds.assign(tp())
    rounds.run()
    state = rounds.fetch_state.assignment.get(tp())
    assert state is not None
    assert len(state.chunks) == 1
    assert plain(rounds.take(tp())) == "abcdefgh"


@pytest.mark.parametrize("by_ranges", [True, False])
def test_a_large_file_is_read_in_pieces_and_on_where_it_was_left(by_ranges):
    cluster = with_topic(a_cluster())
    send(cluster, [f"{number:0100}" for number in range(1_000)])
    memory_bound = 20_000
    limits = ReadLimits(whole_file_bytes=0 if by_ranges else 10**9, piece_bytes=5_000)
    rounds = Rounds(cluster, limits=limits, max_partition_fetch_bytes=memory_bound)
    rounds.assign(tp())
    found: list[Any] = []
    while len(found) < 1_000:
        rounds.run()
        assert rounds.fetch_state.assignment.buffered_bytes <= memory_bound + 6_000
        taken = rounds.take(tp())
        assert taken
        found += taken
    assert found == [(number, f"{number:0100}") for number in range(1_000)]


def test_a_seek_into_a_large_file_reads_from_there():
    cluster = with_topic(a_cluster())
    send(cluster, [f"{number:0100}" for number in range(1_000)])
    limits = ReadLimits(whole_file_bytes=0, piece_bytes=5_000)
    with a_consumer(cluster, "t", limits=limits, max_poll_records=10) as consumer:
        assert take(consumer, 1)[0].offset == 0
        for offset in (950, 3, 999):
            consumer.seek(tp(), offset)
            assert take(consumer, 1)[0].offset == offset


# What was sought or taken away meanwhile


def test_what_was_read_for_an_earlier_position_is_dropped():
    memory = MemoryStore()
    cluster = with_topic(a_cluster(memory), "abcd")
    path = live(cluster.topic_log("t"))[0].path
    sought: list[int] = []

    class Seeking(CountingStore):
        def read_many(self, paths):
            found = super().read_many(paths)
            if any(name.endswith(path) for name in paths) and not sought:
                rounds.seek(tp(), 3)  # while the file is on its way
                sought.append(3)
            return found

    rounds = Rounds(a_cluster(Seeking(memory)))
    rounds.assign(tp())
    rounds.run()
    assert sought == [3]
    assert rounds.take(tp()) == [(3, "d")]


@pytest.mark.parametrize("limits", [ReadLimits(piece_bytes=1), ReadLimits(whole_file_bytes=0, piece_bytes=1)], ids=str)
def test_a_partition_assigned_again_begins_anew_though_a_file_of_it_was_being_read(limits):
    cluster = with_topic(a_cluster(), "x" * 100)
    with a_consumer(cluster, limits=limits, max_partition_fetch_bytes=1) as consumer:
        for count in (1, 3):
            consumer.assign([tp()])
            assert take(consumer, count, max_records=count)[0].offset == 0
            consumer.unsubscribe()


def test_a_log_start_that_passes_the_position_between_two_looks_resets_it():
    log = with_topic(a_cluster(), *["x" * 100] * 50).topic_log("t")
    rounds = Rounds(a_cluster(log.store), max_partition_fetch_bytes=5_000)
    rounds.assign(tp())
    rounds.run()
    old = live(log)
    delete_records(log, "t", {0: 4_900})
    log.store.delete([object_path(log.table, segment.path) for segment in old[:49]])
    rounds.take(tp())
    rounds.run()
    assert rounds.take(tp())[0][0] == 4_900


@pytest.mark.parametrize("other", [True, False])
def test_a_topic_that_is_deleted_between_two_looks_is_an_error_of_its_own(other):
    cluster = with_topic(with_topic(a_cluster(), *["x" * 100] * 50), "u", topic="u")
    log = cluster.topic_log("t")
    rounds = Rounds(cluster, max_partition_fetch_bytes=5_000)
    rounds.assign(tp(), *([tp(topic="u")] if other else []))
    rounds.run()
    old = live(log)
    delete_topic(log, "t")
    log.store.delete([object_path(log.table, segment.path) for segment in old])
    rounds.take(tp())
    for _ in range(10):
        rounds.fetcher.round()
    assert isinstance(rounds.fetch_state.errors["t"], UnknownTopicOrPartitionError)
    assert rounds.fetcher.round() is False


# Files that are gone, broken or strange


def compact(log):
    """Replace the live files by one, as another engine's OPTIMIZE would, and vacuum the old ones."""
    old = live(log)
    values = [chr(ord("a") + number) for number in range(old[-1].last_offset + 1)]
    new = foreign_file(log, foreign_records(*values), base_offset=0)
    foreign_commit(log, *(RemoveFile(path=s.path, deletion_ms=1) for s in old), new, places=True)
    log.store.delete([object_path(log.table, s.path) for s in old])


@pytest.mark.parametrize("limits", [ReadLimits(), ReadLimits(whole_file_bytes=0, piece_bytes=1)], ids=str)
def test_a_file_that_was_vacuumed_under_the_reader_is_found_in_its_replacement(limits):
    cluster = with_topic(a_cluster(), "ab", "cd", "ef")
    rounds = Rounds(cluster, limits=limits, max_partition_fetch_bytes=1)
    rounds.assign(tp())
    rounds.run()
    found = rounds.take(tp())
    assert 0 < len(found) < 6
    compact(cluster.topic_log("t"))
    while len(found) < 6:
        rounds.run()
        found += rounds.take(tp())
    assert found == list(enumerate("abcdef"))


def test_a_live_file_that_is_gone_is_named_and_what_came_before_it_is_returned():
    cluster = with_topic(a_cluster(), "ab", "cd", partitions=2)
    send(cluster, "x", partition=1)
    path = object_path("topics/t", live(cluster.topic_log("t"))[1].path)
    cluster.store.delete([path])
    with a_consumer(cluster, max_poll_records=2) as consumer:
        consumer.assign([tp(0)])
        assert text(take(consumer, 2)) == "ab"
        for _ in range(2):
            with pytest.raises(ObjectNotFoundError, match=path):
                consumer.poll(timeout_ms=LONG_MS)
            assert consumer.position(tp()) == 2
        consumer.assign([tp(1)])
        assert text(take(consumer, 1)) == "x"


@pytest.mark.parametrize("whole_file_bytes", [10**9, 0])
def test_a_broken_file_is_named_and_the_other_partitions_go_on(whole_file_bytes):
    cluster = with_topic(a_cluster(), "ab", "cd", partitions=2)
    broken = live(cluster.topic_log("t"))[1].path
    path = object_path("topics/t", broken)
    cluster.store.put(path, cluster.store.read(path)[:-9])
    send(cluster, "xy", partition=1)
    limits = ReadLimits(whole_file_bytes=whole_file_bytes)
    with a_consumer(cluster, "t", limits=limits) as consumer:
        seen = ""
        errors: list[str] = []
        while len(seen) < 4 or len(errors) < 2:
            try:
                seen += text([record for each in consumer.poll(timeout_ms=100).values() for record in each])
            except CorruptRecordError as error:
                errors.append(str(error))
        assert sorted(seen) == list("abxy")
        assert all(broken in error for error in errors)
        assert consumer.position(tp()) == 2
        consumer.seek(tp(), 4)
        send(cluster, "e")
        assert text(take(consumer, 1)) == "e"


@pytest.mark.parametrize("what", ["corrupt", "deleted"])
def test_repeated_errors_do_not_starve_the_rest_though_the_application_waits_between(what):
    cluster = with_topic(with_topic(a_cluster()), topic="u")
    with a_consumer(cluster, "t", "u", max_poll_records=1) as consumer:
        fetch_state = consumer._runtime.fetch_state
        until(lambda: consumer.poll(timeout_ms=1) == {} and len(consumer.assignment()) == 2)
        send(cluster, "123", topic="u")
        until(lambda: bool(fetch_state.assignment.ready()))
        if what == "deleted":
            delete_topic(cluster.topic_log("t"), "t")
        else:
            foreign_commit(cluster.topic_log("t"), with_stats(broken_file(cluster)))
        seen = ""
        for _ in range(8):
            until(lambda: bool(fetch_state.errors or fetch_state.assignment.failed))
            try:
                seen += text([r for each in consumer.poll(timeout_ms=50).values() for r in each])
            except (CorruptRecordError, UnknownTopicOrPartitionError):
                continue
        assert seen == "123"


def broken_file(cluster):
    add = foreign_file(cluster.topic_log("t"), foreign_records("a"), base_offset=0)
    cluster.store.put(object_path("topics/t", add.path), b"PAR1 no more")
    return add


def test_a_file_that_fails_in_an_unforeseen_way_is_read_again_from_where_it_failed():
    cluster = with_topic(a_cluster(), "x" * 50)
    rounds = Rounds(cluster, limits=ReadLimits(piece_bytes=1), max_partition_fetch_bytes=1)
    rounds.assign(tp())
    rounds.run()
    found = rounds.take(tp())
    opened = rounds.fetcher._reader._open[tp()].segments

    def fails():
        raise MemoryError
        yield

    opened.pieces = fails()
    with pytest.raises(MemoryError):
        rounds.run()
    while len(found) < 50:
        rounds.run()
        found += rounds.take(tp())
    assert [offset for offset, _ in found] == list(range(50))


def test_a_path_outside_of_the_table_is_an_error_of_its_partition():
    cluster = with_topic(a_cluster(), "ab")
    log = cluster.topic_log("t")
    add = foreign_file(log, foreign_records("c"), base_offset=2)
    with a_consumer(cluster, "t") as consumer:
        assert text(take(consumer, 2)) == "ab"
        outside = type(add)(**{name: getattr(add, name) for name in add.__slots__} | {"path": "../other.parquet"})
        foreign_commit(log, with_stats(outside))
        with pytest.raises(InvalidArgumentError, match="outside of the table"):
            consumer.poll(timeout_ms=LONG_MS)


def with_stats(add):
    bounds = {"offset_delta": 0, "timestamp": "2100-01-01T00:00:00.000Z"}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds}
    return type(add)(**{name: getattr(add, name) for name in add.__slots__} | {"stats": stats})


@pytest.mark.parametrize("limits", [ReadLimits(), ReadLimits(whole_file_bytes=0, piece_bytes=1)], ids=str)
def test_unsorted_overlapping_or_gappy_files_of_other_engines_are_read_by_offset(limits):
    cluster = with_topic(a_cluster(), "ab")
    log = cluster.topic_log("t")
    foreign_commit(log, foreign_file(log, foreign_records("g", "e", "c", "d", deltas=[4, 2, 0, 1]), base_offset=2))
    apart = [foreign_records("h", "l", deltas=[0, 4]), foreign_records("j", deltas=[2])]
    foreign_commit(log, *(foreign_file(log, rows, base_offset=7) for rows in apart))
    send(cluster, "z")
    expected = [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (6, "g"), (7, "h"), (9, "j"), (11, "l"), (12, "z")]
    for start in (0, 3, 5, 8, 11):
        rounds = Rounds(cluster, limits=limits, max_partition_fetch_bytes=1)
        rounds.assign(tp())
        rounds.seek(tp(), start)
        found = []
        for _ in range(20):
            rounds.run()
            found += rounds.take(tp())
        assert found == [record for record in expected if record[0] >= start]


def test_offsets_at_the_end_that_hold_no_records_any_more_are_passed_over():
    cluster = with_topic(a_cluster(), "ab", "cd")
    log = cluster.topic_log("t")
    foreign_commit(log, RemoveFile(path=live(log)[1].path, deletion_ms=1))
    with a_consumer(cluster, "t") as consumer:
        assert text(take(consumer, 2)) == "ab"
        until(lambda: consumer.poll(timeout_ms=1) == {} and consumer.position(tp()) == 4)
        send(cluster, "e")
        assert [(r.offset, r.value) for r in take(consumer, 1)] == [(4, b"e")]


# A store that fails


def test_a_store_that_fails_is_an_error_of_poll_and_afterwards_nothing_is_lost():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    with_topic(a_cluster(memory), "ab", "cd")
    fault = Fault(kind=FaultKind.THROTTLED, ops=["get"], path=".parquet", times=2)
    with a_consumer(a_cluster(FaultyStore(memory, fault), clock, retry_ms=-1), "t") as consumer:
        with pytest.raises(StoreUnavailableError) as info:
            consumer.poll(timeout_ms=LONG_MS)
        assert info.value.retriable
        seen: list[Any] = []
        while len(seen) < 4:
            try:
                seen += [record for each in consumer.poll(timeout_ms=LONG_MS).values() for record in each]
            except StoreUnavailableError:
                continue
        assert text(seen) == "abcd"


def test_a_store_that_fails_now_and_then_is_not_noticed():
    memory = MemoryStore()
    with_topic(a_cluster(memory), "ab", "cd")
    fault = Fault(kind=FaultKind.THROTTLED, ops=["get"], times=5)
    with a_consumer(a_cluster(FaultyStore(memory, fault), ManualClock(), retry_ms=30_000), "t") as consumer:
        assert text(take(consumer, 4)) == "abcd"


# The thread


def fetchers():
    return [thread for thread in threading.enumerate() if thread.name == "sparklog-fetcher"]


def test_the_thread_begins_with_the_first_call_that_waits_and_ends_with_close():
    before = len(fetchers())
    consumer = a_consumer(with_topic(a_cluster(), "a"), "t")
    assert len(fetchers()) == before
    take(consumer, 1)
    assert len(fetchers()) == before + 1
    assert all(thread.daemon for thread in fetchers())
    consumer.close()
    assert len(fetchers()) == before


def test_a_consumer_that_is_forgotten_ends_its_thread():
    before = len(fetchers())
    consumer = a_consumer(with_topic(a_cluster(), "a"), "t")
    take(consumer, 1)
    del consumer
    until(lambda: len(fetchers()) == before)


def test_what_a_consumer_counts():
    cluster = with_topic(a_cluster(), "abcd")
    with a_consumer(cluster, "t", max_poll_records=3) as consumer:
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 0
        assert text(take(consumer, 1)) == "abc"
        until(lambda: consumer.metrics()["consumer-fetch-manager-metrics"]["fetch-total"] == 1)
        groups = consumer.metrics()
        fetch = groups["consumer-fetch-manager-metrics"]
        assert (fetch["records-consumed-total"], fetch["fetch-total"], fetch["records-per-request-avg"]) == (3, 1, 4)
        assert (fetch["records-lag-max"], fetch["bytes-consumed-total"] > 3) == (1, True)
        of_partition = groups["consumer-fetch-manager-metrics.t-0"]
        assert (of_partition["records-lag"], of_partition["records-lead"]) == (1, 3)
        assert (of_partition["records-lead-min"], fetch["records-lead-min"]) == (3, 3)
        assert groups["consumer-fetch-manager-metrics.t"]["records-consumed-total"] == 3
        assert groups["consumer-metrics"]["last-poll-seconds-ago"] >= 0
        take(consumer, 1)
        assert consumer.metrics()["consumer-fetch-manager-metrics.t-0"]["records-lag"] == 0
        assert 0 <= consumer.metrics()["consumer-metrics"]["poll-idle-ratio-avg"] <= 1
        consumer.unsubscribe()
        assert not [group for group in consumer.metrics() if group.startswith("consumer-fetch-manager-metrics.")]
