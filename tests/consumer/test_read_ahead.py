"""Files that are fetched ahead: which, how many, what becomes of them, and that errors stay as they are without."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.delta.actions import RemoveFile
from sparklog.errors import ObjectNotFoundError, StoreUnavailableError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.workers import Worker
from tests.consumer.remote_store import CALLER, RemoteStore, ahead_threads
from tests.consumer.support import LONG_MS, Rounds, a_cluster, a_consumer, send, take, text, tp, until, with_topic
from tests.depth import each_nth
from tests.support import foreign_commit, foreign_file, foreign_records


def files(cluster: Cluster, partition: int = 0) -> list[str]:
    log = cluster.topic_log("t")
    return [object_path(log.table, s.path) for s in load_state(log).require_whole().index.partition(partition)]


def one_file_a_round(cluster: Cluster, **settings: Any) -> Rounds:
    """A fetcher that reads a file at a time for each partition."""
    return Rounds(cluster, max_partition_fetch_bytes=1, **settings)


def ahead_of(rounds: Rounds) -> set[str]:
    return set(rounds.fetcher._reader._ahead._files)


def plain(found: list[tuple[int, str]]) -> str:
    return "".join(value for _, value in found)


# What is read ahead


def test_the_next_files_are_fetched_while_there_is_no_room_and_none_is_read_twice() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "ab", "cd", "ef")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    rounds.run()
    first, *others = files(cluster)
    assert ahead_of(rounds) == set(others)
    found = rounds.take(tp())
    assert plain(found) == "ab"
    while len(found) < 6:
        rounds.run()
        found += rounds.take(tp())
    assert found == [*enumerate("abcdef")]
    assert (store.read_at_turn, sorted(store.read_ahead)) == ([first], sorted(others))
    assert (rounds.fetcher._reader.held_bytes, ahead_of(rounds)) == (0, set())


def test_a_consumer_at_the_end_of_its_topics_starts_no_thread() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "ab")
    rounds = Rounds(cluster)
    rounds.assign(tp())
    rounds.run()
    for letter in "cde":
        send(cluster, letter)
        rounds.run()
    assert plain(rounds.take(tp())) == "abcde"
    assert store.read_ahead == []


def test_nothing_is_read_ahead_of_a_store_that_answers_at_once() -> None:
    rounds = one_file_a_round(with_topic(a_cluster(MemoryStore()), "ab", "cd"))
    rounds.assign(tp())
    rounds.run()
    assert rounds.fetcher._reader.held_bytes == 0
    assert not ahead_of(rounds)


def test_files_after_one_that_is_read_in_pieces_are_fetched_meanwhile() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store))
    send(cluster, [f"{number:0100}" for number in range(1_000)], ["x"])
    rounds = Rounds(cluster, limits=ReadLimits(piece_bytes=5_000), max_partition_fetch_bytes=5_000)
    rounds.assign(tp())
    rounds.run()
    assert tp() in rounds.fetcher._reader._open
    rounds.take(tp())
    rounds.run()
    assert ahead_of(rounds) == {files(cluster)[1]}


def test_large_files_which_are_read_by_ranges_are_not_held_ahead() -> None:
    rounds = Rounds(
        with_topic(a_cluster(RemoteStore()), "ab", "cd"),
        limits=ReadLimits(whole_file_bytes=0),
        max_partition_fetch_bytes=1,
    )
    rounds.assign(tp())
    rounds.run()
    assert not ahead_of(rounds)


# How much


def test_records_and_files_ahead_stay_within_the_limit_and_no_partition_starves() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), partitions=6)
    for partition in range(6):
        send(cluster, *["x" * 50] * 12, partition=partition)
    size = len(cluster.store.read(files(cluster)[0]))
    limit = 20 * size
    rounds = one_file_a_round(cluster, fetch_max_bytes=limit)
    rounds.assign(*map(tp, range(6)))
    got = [0] * 6
    most = 0
    rounds.run()
    assert rounds.fetcher._reader.held_bytes <= limit // 2
    while sum(got) < 6 * 600:
        rounds.run()
        buffered = rounds.fetch_state.assignment.buffered_bytes
        most = max(most, rounds.fetcher._reader.held_bytes)
        assert buffered + rounds.fetcher._reader.held_bytes <= limit
        for partition in range(6):
            got[partition] += len(rounds.take(tp(partition)))
        assert min(got) >= max(got) - 50  # a file
    assert most > 2 * size


@pytest.mark.parametrize("limit", [0, 1])
def test_with_a_limit_that_leaves_no_room_all_is_read_at_its_turn(limit: int) -> None:
    store = RemoteStore()
    with a_consumer(with_topic(a_cluster(store), "ab", "cd"), "t", fetch_max_bytes=limit) as consumer:
        assert text(take(consumer, 4)) == "abcd"
    assert store.read_ahead == []


def test_files_held_ahead_are_shared_out_among_the_partitions() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), partitions=3)
    for partition in range(3):
        send(cluster, *"abcdefgh", partition=partition)
    size = len(cluster.store.read(files(cluster)[0]))
    rounds = one_file_a_round(cluster, limits=ReadLimits(request_bytes=9 * size + 100))
    rounds.assign(*map(tp, range(3)))
    rounds.run()
    held = Counter(file.facts.partition for file in rounds.fetcher._reader._ahead._files.values())
    assert held == {tp(0): 3, tp(1): 3, tp(2): 3}


# What is sought, paused or taken away meanwhile


def test_after_a_seek_the_files_ahead_are_dropped_those_on_their_way_too() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "ab", "cd", "ef", "gh")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    store.may_go_on.clear()
    rounds.run()
    held = rounds.fetcher._reader.held_bytes
    assert len(ahead_of(rounds)) == 3
    rounds.seek(tp(), 7)
    rounds.run()
    assert rounds.take(tp()) == [(7, "h")]
    assert rounds.fetcher._reader.held_bytes == held  # they are still coming
    store.may_go_on.set()
    rounds.fetcher.close()
    assert rounds.fetcher._reader.held_bytes == 0


def test_files_of_a_partition_that_was_taken_away_are_dropped_and_the_others_stay() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab", "cd", partitions=2)
    send(cluster, "wx", "yz", partition=1)
    rounds = one_file_a_round(cluster)
    rounds.assign(tp(0), tp(1))
    rounds.run()
    assert ahead_of(rounds) == {files(cluster, partition)[1] for partition in (0, 1)}
    rounds.assign(tp(1))
    rounds.run()
    assert ahead_of(rounds) == {files(cluster, 1)[1]}
    rounds.assign(tp(0), tp(1))  # back again: it begins anew
    rounds.run()
    found = rounds.take(tp(0))
    rounds.run()
    assert plain(found + rounds.take(tp(0))) == "abcd"


def test_files_of_a_paused_partition_make_room_for_the_others() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "x" * 50, "x" * 50, partitions=2)
    size = len(cluster.store.read(files(cluster)[0]))
    rounds = one_file_a_round(cluster, fetch_max_bytes=5 * size)
    rounds.assign(tp(0), tp(1))
    rounds.run()
    assert ahead_of(rounds) == {files(cluster)[1]}
    state = rounds.fetch_state.assignment.get(tp(0))
    assert state is not None
    with rounds.fetch_state.lock:
        rounds.fetch_state.assignment.pause(state, keep_bytes=10 * size)
        rounds.fetch_state.request_update()
    rounds.run()
    assert ahead_of(rounds) == {files(cluster)[1]}
    while rounds.fetch_state.assignment.buffered_bytes + rounds.fetcher._reader.held_bytes < 5 * size:
        rounds.fetch_state.assignment.buffered_bytes += size  # as if others had come
    send(cluster, "y", partition=1)
    rounds.run()
    assert ahead_of(rounds) == set()


def test_files_that_others_have_replaced_in_the_log_are_dropped() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab", "cd", "ef")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    rounds.run()
    log = cluster.topic_log("t")
    old = load_state(log).require_whole().index.partition(0)
    new = foreign_file(log, foreign_records(*"abcdef"), base_offset=0)
    foreign_commit(log, *(RemoveFile(path=s.path, deletion_ms=1) for s in old), new, places=True)
    cluster.store.delete([object_path(log.table, s.path) for s in old])
    found = rounds.take(tp())
    rounds.fetcher._look_ticks_ms = 0.0  # before the records that are known to be there
    rounds.run()
    assert found + rounds.take(tp()) == [*enumerate("abcdef")]
    assert ahead_of(rounds) == set()


@pytest.mark.slow
def test_records_come_by_offset_however_partitions_move_pause_and_are_sought() -> None:
    for seed in each_nth(range(20), 5):
        _walk(random.Random(seed))


def _walk(chance: random.Random) -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), partitions=3)
    for number in range(3):
        send(cluster, *["x" * chance.randrange(1, 9) for _ in range(12)], partition=number)
    ends = [load_state(cluster.topic_log("t")).head.log_end_offsets[number] for number in range(3)]
    rounds = Rounds(
        cluster, max_partition_fetch_bytes=chance.choice((1, 300)), fetch_max_bytes=chance.choice((9_000, 10**6))
    )
    assigned: list[TopicPartition] = []
    next_offsets = dict.fromkeys(map(tp, range(3)), 0)
    for _ in range(60):
        step = chance.choice(("take", "take", "take", "assign", "seek", "pause", "begin_again", "fail", "hold"))
        store.fails_ahead = step == "fail"
        store.may_go_on.set()
        if step == "hold":  # for a while: the round may need what is held
            store.may_go_on.clear()
            threading.Timer(0.05, store.may_go_on.set).start()
        if step == "assign":
            wanted = [tp(number) for number in range(3) if chance.random() < 0.7]
            next_offsets.update({partition: 0 for partition in wanted if partition not in assigned})
            rounds.assign(*(assigned := wanted))
        rounds.run() if step != "hold" else rounds.fetcher.round()
        for partition in assigned:
            state = rounds.fetch_state.assignment.get(partition)
            assert state is not None
            if step == "seek" and chance.random() < 0.5:
                next_offsets[partition] = chance.randrange(ends[partition.partition])
                rounds.seek(partition, next_offsets[partition])
            if step == "pause":
                with rounds.fetch_state.lock:
                    if state.paused:
                        state.paused = False
                    else:
                        rounds.fetch_state.assignment.pause(state, keep_bytes=4_500)
                    rounds.fetch_state.request_update()
            if step == "begin_again":
                with rounds.fetch_state.lock:
                    rounds.fetch_state.assignment.begin_again()
                    rounds.fetch_state.request_update()
            if step == "take" and not state.paused:
                for offset, _ in rounds.take(partition):
                    assert offset == next_offsets[partition]
                    next_offsets[partition] += 1
    store.may_go_on.set()
    store.fails_ahead = False
    rounds.assign(*map(tp, range(3)))
    for partition, offset in next_offsets.items():
        rounds.seek(partition, offset)
    while any(offset < ends[partition.partition] for partition, offset in next_offsets.items()):
        rounds.run()
        for partition in next_offsets:
            state = rounds.fetch_state.assignment.get(partition)
            assert state is not None
            state.paused = False
            for offset, _ in rounds.take(partition):
                assert offset == next_offsets[partition]
                next_offsets[partition] += 1
        with rounds.fetch_state.lock:
            rounds.fetch_state.request_update()
    rounds.fetcher.close()


# Errors


def test_a_read_ahead_that_fails_is_made_again_at_its_turn_and_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RemoteStore()
    store.fails_ahead = True
    monkeypatch.setattr(TopicFollower, "reload", None)  # it isn't taken for a file that is gone
    with a_consumer(with_topic(a_cluster(store), "ab", "cd", "ef"), "t", max_partition_fetch_bytes=1) as consumer:
        assert text(take(consumer, 6)) == "abcdef"
    assert store.read_ahead


def test_a_read_ahead_that_fails_is_not_repeated_for_as_long_as_others_are() -> None:
    store = RemoteStore()
    store.fails_ahead = True
    cluster = with_topic(a_cluster(store, retry_ms=30_000), "ab", "cd")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    rounds.run()
    until(lambda: not ahead_threads())
    assert set(store.read_ahead) == {files(cluster)[1]}
    assert len(store.read_ahead) <= 2


def test_a_store_that_fails_at_a_files_turn_too_is_an_error_of_poll() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "ab", "cd")
    with a_consumer(cluster, "t", max_partition_fetch_bytes=1) as consumer:
        store.fails_ahead = True
        assert text(take(consumer, 2)) == "ab"
        consumer.seek(tp(), 2)
        store.fails_at_turn = True
        with pytest.raises(StoreUnavailableError, match="slow down"):
            consumer.poll(timeout_ms=LONG_MS)
        store.fails_at_turn = False
        seen = ""
        while len(seen) < 2:
            try:
                seen += text([r for each in consumer.poll(timeout_ms=LONG_MS).values() for r in each])
            except StoreUnavailableError:
                continue
        assert seen == "cd"


def test_a_live_file_that_is_gone_is_named_and_what_came_before_it_is_returned() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab", "cd", "ef")
    path = files(cluster)[1]
    cluster.store.delete([path])
    with a_consumer(cluster, "t", max_partition_fetch_bytes=1) as consumer:
        assert text(take(consumer, 2)) == "ab"
        for _ in range(2):
            with pytest.raises(ObjectNotFoundError, match=path):
                consumer.poll(timeout_ms=LONG_MS)
        consumer.seek(tp(), 4)
        assert text(take(consumer, 2)) == "ef"


def test_a_file_that_is_deleted_once_it_was_read_ahead_is_returned() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab", "cd")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    rounds.run()
    until(lambda: not ahead_threads())
    cluster.store.delete(files(cluster))
    found = rounds.take(tp())
    rounds.run()
    assert found + rounds.take(tp()) == [*enumerate("abcd")]


# Threads


def test_the_fetcher_waits_for_a_file_on_its_way_rather_than_read_it_twice() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "ab", "cd")
    rounds = one_file_a_round(cluster)
    rounds.assign(tp())
    store.may_go_on.clear()
    rounds.run()
    found = rounds.take(tp())
    threading.Timer(0.02, store.may_go_on.set).start()
    rounds.run()
    assert plain(found + rounds.take(tp())) == "abcd"
    assert len(store.read_at_turn + store.read_ahead) == 2


def test_close_waits_for_what_is_read_ahead() -> None:
    store = RemoteStore()
    consumer = a_consumer(with_topic(a_cluster(store), "ab", "cd"), "t", max_partition_fetch_bytes=1)
    store.may_go_on.clear()
    assert text(take(consumer, 2)) == "ab"
    until(lambda: bool(store.read_ahead))
    assert all(thread.daemon for thread in ahead_threads())
    threading.Timer(0.02, store.may_go_on.set).start()
    consumer.close()
    assert not ahead_threads()


def test_close_gives_up_waiting_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    store = RemoteStore()
    consumer = a_consumer(with_topic(a_cluster(store), "ab", "cd"), "t", max_partition_fetch_bytes=1)
    store.may_go_on.clear()
    assert text(take(consumer, 2)) == "ab"
    until(lambda: bool(store.read_ahead))
    consumer.close(timeout_ms=20)
    assert "threads did not end" in caplog.text
    store.may_go_on.set()
    until(lambda: not ahead_threads())


def test_where_no_thread_can_be_started_all_is_read_at_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RemoteStore()
    rounds = one_file_a_round(with_topic(a_cluster(store), "ab", "cd"))
    rounds.assign(tp())

    def refuse(worker: Worker) -> None:
        raise RuntimeError("can't start new thread")

    rounds.run()
    rounds.seek(tp(), 0)
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "start", refuse)
        rounds.run()
        assert not ahead_of(rounds)
        found = rounds.take(tp())
        rounds.run()
        assert plain(found + rounds.take(tp())) == "abcd"


def test_the_threads_see_the_context_variables_of_the_fetcher() -> None:
    store = RemoteStore()
    rounds = one_file_a_round(with_topic(a_cluster(store), "ab", "cd"))
    rounds.assign(tp())
    before = CALLER.set("the fetcher")
    try:
        rounds.run()
    finally:
        CALLER.reset(before)
    rounds.fetcher.close()
    assert store.callers == {"the fetcher"}
