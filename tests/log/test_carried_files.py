"""Entries that carry the bytes of small files: which do, how much they carry, and what is made of it."""

from __future__ import annotations

import os
from binascii import b2a_base64
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta.actions import AddFile, Entry, decode_entry
from sparklog.delta.checkpoint import checkpoint_threshold, write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.log.carried_files import CARRIED_INFO, CarriedLately, carried_file, carried_paths, most_carried_bytes
from sparklog.log.data.object_paths import object_path
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.consumer.remote_store import RemoteStore
from tests.consumer.support import a_cluster, with_topic
from tests.support import a_writer, append, inline_checkpoints, records, within


def entries(log: DeltaLog) -> list[Entry]:
    """All of a log's, from version 1 on."""
    found: list[Entry] = []
    while True:
        path = log.path_of(len(found) + 1)
        if not log.store.exists(path):
            return found
        found.append(decode_entry(len(found) + 1, path, log.store.read(path)))


def carried(log: DeltaLog, entry: Entry) -> dict[str, int]:
    """The sizes of the files that an entry carries; they are those that it adds, with the bytes that lie in the
    store."""
    added = {action.path: action for action in entry.actions if isinstance(action, AddFile)}
    sizes = {}
    for path in carried_paths(entry):
        data = carried_file(entry, path, size_bytes=added[path].size_bytes)
        assert data == log.store.read(object_path(log.table, path))
        sizes[path] = len(data)
    return sizes


def test_on_a_remote_store_an_entry_carries_its_small_files() -> None:
    log = with_topic(a_cluster(RemoteStore()), "ab", "c").topic_log("t")
    first, second = entries(log)
    assert [len(carried(log, entry)) for entry in (first, second)] == [1, 1]


def test_on_a_store_that_answers_at_once_no_entry_carries_anything() -> None:
    log = with_topic(a_cluster(), "ab", "c").topic_log("t")
    assert [carried(log, entry) for entry in entries(log)] == [{}, {}]
    assert all(CARRIED_INFO not in (entry.info or {}) for entry in entries(log))


def test_what_is_large_is_not_carried_and_the_smallest_files_come_first() -> None:
    log = with_topic(a_cluster(RemoteStore()), partitions=4).topic_log("t")
    writer = a_writer(log, topic="t")
    sizes = (4_000, 50_000, 10, 9_000)
    files = writer.upload([(number, records(os.urandom(size // 2))) for number, size in enumerate(sizes)])
    writer.append(files, deadline=within(writer, 1_000))
    [entry] = entries(log)
    assert list(carried(log, entry)) == [files[2].path, files[0].path]


@pytest.mark.parametrize("live", [0, 10_000, 20_000, 1_000_000])
def test_the_fewer_bytes_the_more_entries_follow_a_checkpoint(live: int) -> None:
    due = checkpoint_threshold(live)
    each = min(10 * 1024, 4 * 2**20 // due)
    assert {most_carried_bytes(live, since) for since in (1, due // 2, due)} == {each}
    step = due // 100
    long_after = sum(step * most_carried_bytes(live, since) for since in range(due, 40 * due, step))
    assert due * each + long_after <= 8.1 * 2**20  # the sum of hundredths is a little too large


def test_long_after_a_checkpoint_entries_carry_less_until_the_next_is_known() -> None:
    log = with_topic(a_cluster(RemoteStore())).topic_log("t")
    writer = a_writer(log, checkpoints=inline_checkpoints())
    value = os.urandom(4_400)  # a file twice as large, with its statistics
    for _ in range(3):
        append(writer, value)
    writer.state.checkpoint_version = -250  # as if the next one were due after so many entries, and more
    append(writer, value)
    write_checkpoint(log)
    for _ in range(100):  # by the next tenth of a hundred versions its writer asks for the newest checkpoint
        append(writer, b"small")
    append(writer, value)
    assert [min(len(carried(log, entry)), 1) for entry in entries(log)[:4]] == [1, 1, 1, 0]
    assert len(carried(log, entries(log)[-1])) == 1


def test_after_a_lost_race_the_next_attempt_carries_the_same_files() -> None:
    cluster = with_topic(a_cluster(RemoteStore()))
    log = cluster.topic_log("t")
    loser, winner = (a_writer(log, topic="t") for _ in range(2))
    append(winner, "a", "b")
    append(loser, "c")
    first, second = entries(log)
    assert carried(log, first).keys().isdisjoint(carried(log, second))
    assert len(carried(log, second)) == 1


def test_an_entry_whose_answer_was_lost_carries_what_it_should() -> None:
    store = RemoteStore()
    with_topic(a_cluster(store))
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=["create"], path="00001.json")
    faulty = FaultyStore(store, lost)
    log = a_cluster(faulty).topic_log("t")
    append(a_writer(log), "a")
    assert [call.op for call in faulty.calls].count("create") >= 1
    [entry] = entries(log)
    assert len(carried(log, entry)) == 1


@pytest.mark.parametrize(
    "files", [None, [], "text", {"p": None}, {"p": 5}, {"p": "%%%%"}, {"p": "YQ"}, {"p": "YWI="}, {"p": {"q": 1}}]
)
def test_what_makes_no_sense_is_not_carried(files: Any) -> None:
    entry = Entry(version=1, token="t", actions=(), info={CARRIED_INFO: files})
    assert [carried_file(entry, path, size_bytes=1) for path in carried_paths(entry)] in ([], [None])


def test_entries_of_other_engines_and_of_earlier_versions_carry_nothing() -> None:
    for info in (None, {}, {"log_end_offsets": [1]}):
        assert [*carried_paths(Entry(version=1, token="t", actions=(), info=info))] == []


@given(st.binary(max_size=40))
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    info = {CARRIED_INFO: {"p": b2a_base64(data, newline=False).decode()}}
    entry = Entry(version=1, token="t", actions=(), info=info)
    assert carried_file(entry, "p", size_bytes=len(data)) == data
    assert carried_file(entry, "p", size_bytes=len(data) + 1) is None


def test_what_came_lately_is_given_once_and_what_came_long_before_is_forgotten() -> None:
    log = with_topic(a_cluster(RemoteStore()), *("abcdefghijklmnopqrstuvwxyz")).topic_log("t")
    found = entries(log)
    paths = [path for entry in found for path in carried_paths(entry)]
    sizes = {path: size for entry in found for path, size in carried(log, entry).items()}
    lately = CarriedLately()
    for entry in found:
        lately.add([entry])
    kept = [path for path in paths if lately.take(path, size_bytes=sizes[path]) is not None]
    assert kept == paths[-len(kept) :]
    assert 16 * 1024 - max(sizes.values()) < sum(sizes[path] for path in kept) <= 16 * 1024
    assert [lately.take(path, size_bytes=sizes[path]) for path in paths] == [None] * len(paths)


def test_an_engine_that_knows_nothing_of_it_reads_the_table(tmp_path: Path) -> None:
    store = MemoryStore()
    with_topic(a_cluster(RemoteStore(store)), "ab", "c")
    for one in store.list(""):
        (tmp_path / one.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / one.path).write_bytes(store.read(one.path))
    table = DeltaTable(str(tmp_path / "topics/t"))
    assert sorted(table.to_pyarrow_table()["value"].to_pylist()) == [b"a", b"b", b"c"]
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "WRITE", "CREATE TOPIC"]
