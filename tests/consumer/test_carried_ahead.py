"""Small files that the log carries: a consumer takes their bytes from there, and asks for no file; what doesn't fit,
was replaced, sought or taken away is read as ever."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.delta.actions import RemoveFile
from sparklog.log import Cluster, carried_files
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import FaultyStore
from tests.consumer.remote_store import RemoteStore
from tests.consumer.support import Rounds, a_cluster, send, tp, with_topic
from tests.depth import each_nth
from tests.support import foreign_commit, foreign_file, foreign_records


def at_the_end(cluster: Cluster, *partitions: TopicPartition, **settings: Any) -> Rounds:
    """A fetcher that has read all there is."""
    rounds = Rounds(cluster, **settings)
    rounds.assign(*(partitions or (tp(),)))
    rounds.run()
    return rounds


def held(rounds: Rounds) -> int:
    return rounds.fetcher._reader.held_bytes


def test_a_consumer_at_the_end_asks_for_no_file() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store))
    rounds = at_the_end(cluster)
    for letter in "abc":
        send(cluster, letter)
        rounds.run()
        assert held(rounds) == 0
    assert rounds.take(tp()) == [*enumerate("abc")]
    assert (store.read_at_turn, store.read_ahead) == ([], [])


def test_files_of_several_partitions_are_all_taken_from_the_log() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), partitions=3)
    rounds = at_the_end(cluster, *map(tp, range(3)))
    for partition in range(3):
        send(cluster, "ab", partition=partition)
    rounds.run()
    assert [rounds.take(tp(number)) for number in range(3)] == [[(0, "a"), (1, "b")]] * 3
    assert store.read_at_turn == []


def test_of_partitions_of_others_nothing_is_held() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), partitions=2)
    rounds = at_the_end(cluster, tp(0))
    send(cluster, "ab", partition=1)
    rounds.run()
    assert (held(rounds), rounds.fetcher._reader.held) == (0, {})


def test_what_a_consumer_has_read_before_its_seek_is_not_held() -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab")
    rounds = at_the_end(cluster)
    rounds.seek(tp(), 3)  # as yet beyond the end
    send(cluster, "c", "d")
    rounds.run()
    assert held(rounds) == 0


def test_nothing_is_held_of_a_paused_partition_which_reads_its_files_once_it_goes_on() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store))
    rounds = at_the_end(cluster)
    state = rounds.fetch_state.assignment.get(tp())
    assert state is not None
    with rounds.fetch_state.lock:
        rounds.fetch_state.assignment.pause(state, keep_bytes=0)
        rounds.fetch_state.request_update()
    send(cluster, "a")
    rounds.run()
    assert held(rounds) == 0
    with rounds.fetch_state.lock:
        state.paused = False
        rounds.fetch_state.request_update()
    rounds.run()
    assert rounds.take(tp()) == [(0, "a")]
    assert len(store.read_at_turn) == 1


@pytest.mark.parametrize("limit", [0, 1])
def test_where_there_is_no_room_nothing_is_held_and_all_is_read(limit: int) -> None:
    cluster = with_topic(a_cluster(RemoteStore()), "ab", "cd")
    rounds = Rounds(cluster, fetch_max_bytes=limit)
    rounds.assign(tp())
    found: list[tuple[int, str]] = []
    for letters in ("", "ef", "gh"):
        send(cluster, *([letters] if letters else []))
        for _ in range(3):
            rounds.run()
            assert held(rounds) == 0
            found += rounds.take(tp())
    assert found == [*enumerate("abcdefgh")]


def test_what_is_held_stays_within_the_limits() -> None:
    cluster = with_topic(a_cluster(RemoteStore()))
    rounds = at_the_end(cluster, limits=ReadLimits(request_bytes=1))
    send(cluster, "a", "b")
    rounds.run()
    assert rounds.take(tp()) == [(0, "a"), (1, "b")]
    assert held(rounds) == 0


def test_a_file_that_is_too_large_for_its_entry_is_read() -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store))
    rounds = at_the_end(cluster)
    send(cluster, ["x" * 20_000], "b")
    rounds.run()
    assert [offset for offset, _ in rounds.take(tp())] == [0, 1]
    assert len(store.read_at_turn) == 1


def test_a_file_that_was_replaced_before_it_is_read_is_not_held_for_ever() -> None:
    cluster = with_topic(a_cluster(RemoteStore()))
    rounds = at_the_end(cluster)
    send(cluster, "ab", "cd")
    log = cluster.topic_log("t")
    old = load_state(log).require_whole().index.partition(0)
    new = foreign_file(log, foreign_records(*"abcd"), base_offset=0)
    foreign_commit(log, *(RemoveFile(path=s.path, deletion_ms=1) for s in old), new, places=True)
    cluster.store.delete([object_path(log.table, s.path) for s in old])
    rounds.run()
    assert rounds.take(tp()) == [*enumerate("abcd")]
    assert held(rounds) == 0


def test_a_file_that_the_log_carries_wrongly_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RemoteStore()
    cluster = with_topic(a_cluster(store))
    rounds = at_the_end(cluster)
    with monkeypatch.context() as patched:
        patched.setattr(carried_files, "b2a_base64", lambda data, newline: b"bm90aGluZw==")
        send(cluster, "a")
    rounds.run()
    assert rounds.take(tp()) == [(0, "a")]
    assert len(store.read_at_turn) == 1


def test_a_consumer_on_a_store_that_answers_at_once_takes_what_the_log_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.log.appending.is_worth_while", lambda store: True)
    store = FaultyStore(MemoryStore())
    cluster = with_topic(a_cluster(store))
    rounds = at_the_end(cluster)
    send(cluster, "a")
    rounds.run()
    assert (rounds.take(tp()), held(rounds)) == ([(0, "a")], 0)
    assert not [call for call in store.calls if call.op == "get" and call.path.endswith(".parquet")]


@pytest.mark.slow
def test_records_come_by_offset_whatever_happens_while_they_are_sent() -> None:
    for seed in each_nth(range(20), 5):
        _walk(random.Random(seed))


def _walk(chance: random.Random) -> None:
    cluster = with_topic(a_cluster(RemoteStore()), partitions=3)
    rounds = Rounds(
        cluster, max_partition_fetch_bytes=chance.choice((1, 300)), fetch_max_bytes=chance.choice((3_000, 10**6))
    )
    sent = dict.fromkeys(map(tp, range(3)), 0)
    next_offsets = dict.fromkeys(sent, 0)
    assigned = {*sent}
    rounds.assign(*assigned)

    def get(partition: TopicPartition) -> None:
        for offset, value in rounds.take(partition):
            assert (offset, value) == (next_offsets[partition], f"{offset % 10}")
            next_offsets[partition] += 1

    for _ in range(80):
        step = chance.choice(("send", "send", "send", "take", "take", "assign", "seek", "pause"))
        partition = tp(chance.randrange(3))
        state = rounds.fetch_state.assignment.get(partition)
        if step == "send":
            count = chance.choice((1, 3, 12))
            values = [f"{number % 10}" for number in range(sent[partition], sent[partition] + count)]
            send(cluster, values, partition=partition.partition)
            sent[partition] += count
        elif step == "assign":
            wanted = {one for one in sent if chance.random() < 0.7}
            next_offsets.update(dict.fromkeys(wanted - assigned, 0))
            rounds.assign(*(assigned := wanted))
        elif state is not None and step == "seek":
            next_offsets[partition] = chance.randrange(sent[partition] + 1)
            rounds.seek(partition, next_offsets[partition])
        elif state is not None and step == "pause":
            with rounds.fetch_state.lock:
                if state.paused:
                    state.paused = False
                else:
                    rounds.fetch_state.assignment.pause(state, keep_bytes=1_000)
                rounds.fetch_state.request_update()
        elif state is not None and not state.paused:
            get(partition)
        if chance.random() < 0.8:
            rounds.fetcher.round()
    rounds.assign(*sent)
    for partition, offset in next_offsets.items():
        rounds.seek(partition, offset)
    while next_offsets != sent:
        with rounds.fetch_state.lock:
            for partition in sent:
                state = rounds.fetch_state.assignment.get(partition)
                assert state is not None
                state.paused = False
            rounds.fetch_state.request_update()
        rounds.run()
        for partition in sent:
            get(partition)
    rounds.run()
    assert held(rounds) == 0
    rounds.fetcher.close()
