"""Since when a table doesn't have a file: told by the entries as long as they are there, and then by the checkpoint.

The clock starts at the real time: ``deltalake`` asks no other what a checkpoint may forget.
"""

from __future__ import annotations

import time

import pytest

from sparklog.delta import removed
from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.delta.removed import removed_files
from sparklog.errors import CorruptLogError
from sparklog.storage import MemoryStore
from sparklog.testing import FaultyStore, ManualClock
from tests.support import DAY_MS, a_log, a_topic, a_writer, append, foreign_commit, versions_of


def a_table(*, days_ago: int) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    clock = ManualClock(start_ms=int(time.time() * 1000) - days_ago * DAY_MS)
    memory = MemoryStore(clock=clock)
    return memory, clock, a_topic(memory, clock)


def remove(log: DeltaLog, path: str, *, told_ms: int) -> None:
    add = AddFile(
        path=path,
        partition_values={"partition": "0", "base_offset": "0"},
        size_bytes=1,
        modification_ms=1,
        stats={"numRecords": 1},
    )
    foreign_commit(log, add)
    foreign_commit(log, RemoveFile(path=path, deletion_ms=told_ms))


def test_an_entry_below_the_checkpoint_tells_what_the_checkpoint_has_forgotten() -> None:
    """The clock of the remover is 30 days behind, so a checkpoint takes the removal for an old one."""
    _, clock, log = a_table(days_ago=3)
    at_ms = clock.now_ms()
    remove(log, "x", told_ms=at_ms - 30 * DAY_MS)
    clock.advance(1_000)
    append(a_writer(log), "one more")
    write_checkpoint(log)
    assert removed._removed_in(log.store.read(f"{entry_path('topics/t', 3)[:-5]}.checkpoint.parquet"), "x") == {}
    assert removed_files(log).removed_ms == {"x": at_ms}
    append(a_writer(log), "behind it")
    assert removed_files(log).removed_ms == {"x": at_ms}


def test_where_the_entry_is_gone_the_checkpoint_tells_what_the_remover_told() -> None:
    _, clock, log = a_table(days_ago=3)
    at_ms = clock.now_ms()
    remove(log, "x", told_ms=at_ms - 5_000)
    append(a_writer(log), "one more")
    clock.advance(DAY_MS)
    append(a_writer(log), "a day later")
    write_checkpoint(log)
    assert removed_files(log).removed_ms == {"x": at_ms}
    clock.advance(DAY_MS)
    append(a_writer(log), "two days later")
    clean_log(log, retention_ms=DAY_MS)
    assert versions_of(log)[0] == 4
    assert removed_files(log).removed_ms == {"x": at_ms - 5_000}


def test_all_the_entries_are_read_that_are_left_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, clock, log = a_table(days_ago=3)
    for number in range(5):
        remove(log, f"x{number}", told_ms=0)
    append(a_writer(log), "one more")
    write_checkpoint(log)
    memory.delete([entry_path("topics/t", version) for version in range(3)])
    monkeypatch.setattr(removed, "_READ_AT_ONCE", 2)
    store = FaultyStore(memory)
    assert removed_files(a_log(store, clock)).removed_ms.keys() == {f"x{number}" for number in range(1, 5)}
    read = [call.path for call in store.calls if call.op == "get" and call.path.endswith(".json")]
    assert sorted(read) == [entry_path("topics/t", version) for version in range(3, 12)]


def test_an_entry_cleaned_meanwhile_is_none_and_one_that_makes_no_sense_is_named() -> None:
    memory, clock, log = a_table(days_ago=3)
    remove(log, "x", told_ms=0)
    append(a_writer(log), "one more")
    write_checkpoint(log)

    class Cleaned(FaultyStore):
        def read_many(self, paths):
            return [
                None if path == entry_path("topics/t", 1) else data
                for path, data in zip(paths, super().read_many(paths), strict=True)
            ]

    assert removed_files(a_log(Cleaned(memory), clock)).removed_ms.keys() == {"x"}
    memory.put(entry_path("topics/t", 1), b"{")
    with pytest.raises(CorruptLogError, match="00000000000000000001"):
        removed_files(log)


def test_where_there_is_no_table_nothing_was_removed() -> None:
    assert removed_files(a_log()).removed_ms == {}
