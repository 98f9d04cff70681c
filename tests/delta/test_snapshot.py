"""L12: opening a table, from its newest entry alone or whole, while others write, checkpoint and clean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.clock import Clock
from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, RemoveFile, SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path, log_folder
from sparklog.delta.snapshot import Newest, Snapshot, load_snapshot, open_newest
from sparklog.errors import CorruptLogError, ObjectNotFoundError, StoreUnavailableError, UnsupportedVersionError
from sparklog.log.data.segment_columns import segments_of_table
from sparklog.log.data.segments import Segment, segment_of_add
from sparklog.log.topic import alter_topic, create_partitions, delete_records
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import (
    DAY_MS,
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    copy_of,
    foreign_entry,
    resealed,
    split_checkpoint,
    two_days_of_others,
    unsequenced_file,
)


def loaded(log: DeltaLog) -> Snapshot:
    snapshot = load_snapshot(log)
    assert snapshot is not None
    return snapshot


def opened(log: DeltaLog) -> Newest:
    newest = open_newest(log)
    assert newest is not None
    return newest


def live_files(snapshot: Snapshot) -> dict[str, tuple[int | None, ...]]:
    """By path: partition, base offset, size, and number of records, least and greatest offset delta if it is told."""
    live = {segment.path: what_it_says(segment) for segment in segments_of_table(snapshot.files)}
    for entry in snapshot.tail:
        for action in entry.actions:
            if isinstance(action, RemoveFile):
                live.pop(action.path, None)
            elif isinstance(action, AddFile):
                live[action.path] = what_it_says(segment_of_add(action, -1))
    return live


def what_it_says(segment: Segment) -> tuple[int | None, ...]:
    where = (segment.partition, segment.base_offset, segment.size_bytes)
    return (*where, segment.record_count, segment.min_offset_delta, segment.max_offset_delta)


def view(snapshot: Snapshot) -> dict[str, Any]:
    """All that a snapshot says of its table, but for where it was read from."""
    return {
        "version": snapshot.position.version,
        "token": snapshot.position.token,
        "metadata": snapshot.metadata,
        "protocol": snapshot.protocol,
        "transactions": dict(snapshot.transactions),
        "files": live_files(snapshot),
    }


def with_appends(count: int, *, checkpoint_at: int = -1) -> DeltaLog:
    """A topic after ``count`` commits: versions 0 … count; with a checkpoint of one of them if asked for."""
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    for version in range(count + 1):
        if version:
            append(writer, f"v{version}", partition=version % 2)
        if version == checkpoint_at:
            assert write_checkpoint(log) == version
    return log


def without_checkpoints(log: DeltaLog) -> DeltaLog:
    """A copy of a log in which only the entries are left."""
    store = MemoryStore()
    for found in log.store.list(""):
        if "checkpoint" not in found.path:
            store.put(found.path, log.store.read(found.path))
    return a_log(store)


# --- opening from the newest entry


def test_a_folder_without_a_log_is_no_table() -> None:
    assert open_newest(a_log()) is None
    assert load_snapshot(a_log()) is None


@pytest.mark.parametrize("checkpoint_at", [-1, 2, 4])
def test_the_newest_entry_is_opened_at_the_same_cost_with_and_without_a_checkpoint(checkpoint_at: int) -> None:
    log = with_appends(4, checkpoint_at=checkpoint_at)
    store = CountingStore(log.store)
    newest = opened(a_log(store))
    assert store.counts() == {"get": 2, "list": 1}
    assert newest.entry == log.read_entry(4)
    assert (newest.position.version, newest.position.token) == (4, newest.entry.token)
    assert newest.checkpoint_version == checkpoint_at


def test_the_trust_of_who_opens_begins_with_the_listing_not_with_its_answer() -> None:
    # Nothing newer than the last entry existed when the listing began; later something may have.
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    clock.advance(500)
    slow = FaultyStore(memory, Fault(kind=FaultKind.DELAY, ops=["list"], delay_ms=4_000, times=None), clock=clock)
    assert opened(a_log(slow, clock)).position.anchor_ticks_ms == 500
    began = clock.ticks_ms()
    assert loaded(a_log(slow, clock)).position.anchor_ticks_ms == began


def test_a_newest_entry_that_vanishes_after_the_listing_is_looked_for_again() -> None:
    log = with_appends(3)
    store = InterruptedStore(log.store)

    def others() -> None:
        append(a_writer(log), "new")
        write_checkpoint(log)
        log.store.delete([entry_path(log.table, version) for version in range(4)])

    store.interrupt(others, at=2, after=False)  # the hint, the listing, the entry
    assert opened(a_log(store)).position.version == 4


def test_a_newest_entry_read_too_slowly_must_still_be_the_one_that_was_listed() -> None:
    # Rule L1: after a minute the name may have been cleaned and created again by a sleeper.
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "old")
    store = InterruptedStore(memory)

    def others() -> None:
        clock.advance(2 * DAY_MS)
        writer = a_writer(log)
        append(writer, "new")
        write_checkpoint(log)
        append(writer, "newer")
        stray = memory.read(entry_path(log.table, 1))
        memory.delete([entry_path(log.table, version) for version in (0, 1)])
        memory.create(entry_path(log.table, 1), stray)

    store.interrupt(others, at=2, after=False)
    assert opened(a_log(store, clock)).position.version == 3


def test_a_slow_reader_whose_entry_is_still_the_same_is_content() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    store = InterruptedStore(memory)
    store.interrupt(lambda: clock.advance(DAY_MS), at=2, after=True)
    newest = opened(a_log(store, clock))
    assert (newest.position.version, newest.position.anchor_ticks_ms) == (0, 0)
    assert store.call_count == 4  # one more listing, from that entry on


def test_a_corrupt_newest_entry_is_named() -> None:
    log = with_appends(2)
    data = log.store.read(entry_path(log.table, 2))
    log.store.put(entry_path(log.table, 2), data[: len(data) // 2])
    for read in (open_newest, load_snapshot):
        with pytest.raises(CorruptLogError, match=entry_path(log.table, 2)):
            read(log)


# --- loading the whole table


def test_a_snapshot_holds_the_live_files_the_transactions_and_the_tail() -> None:
    log = with_appends(4, checkpoint_at=2)
    snapshot = loaded(log)
    assert snapshot.checkpoint_version == 2
    assert [entry.version for entry in snapshot.tail] == [3, 4]
    assert (snapshot.position.version, snapshot.position.token) == (4, snapshot.tail[-1].token)
    assert snapshot.transactions["sparklog.end.0"].version == 2
    assert snapshot.transactions["sparklog.end.1"].version == 2
    assert snapshot.metadata.configuration["sparklog.partitions"] == "2"
    assert snapshot.files is not None
    assert snapshot.files.num_rows == 2
    where = sorted((partition, base_offset) for partition, base_offset, *_ in live_files(snapshot).values())
    assert where == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("checkpoint_at", range(5))
def test_a_snapshot_is_the_same_with_a_checkpoint_at_any_version(checkpoint_at: int) -> None:
    log = with_appends(4, checkpoint_at=checkpoint_at)
    snapshot = loaded(log)
    assert snapshot.checkpoint_version == checkpoint_at
    assert view(snapshot) == view(loaded(without_checkpoints(log)))


STEPS: dict[str, Callable[[DeltaLog], object]] = {
    "append": lambda log: append(a_writer(log), "a", "b"),
    "append elsewhere": lambda log: append(a_writer(log), "c", partition=1),
    "delete records": lambda log: delete_records(log, "t", {0: -1}),
    "settings": lambda log: alter_topic(log, "t", {"retention.ms": str(loaded(log).position.version)}),
    "grow": lambda log: create_partitions(log, "t", int(loaded(log).metadata.configuration["sparklog.partitions"]) + 1),
    "foreign file": lambda log: unsequenced_file(log, "x"),
    "foreign delete": lambda log: foreign_entry(
        log,
        opened(log).position.version + 1,
        [{"remove": {"path": path, "dataChange": True}} for path in sorted(live_files(loaded(log)))[:1]],
    ),
    "foreign txn": lambda log: foreign_entry(
        log, opened(log).position.version + 1, [{"txn": {"appId": "stream", "version": opened(log).position.version}}]
    ),
    "checkpoint": write_checkpoint,
}


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=7))
def test_checkpoint_and_tail_say_the_same_as_the_whole_tail_after_any_commits(steps: list[str]) -> None:
    log = a_topic(num_partitions=2)
    for step in [*steps[: len(steps) // 2], "checkpoint", *steps[len(steps) // 2 :]]:
        STEPS[step](log)
    assert view(loaded(log)) == view(loaded(without_checkpoints(log)))


def test_transactions_survive_a_checkpoint_to_the_year_9999_and_without_a_time() -> None:
    log = a_topic()
    foreign_entry(
        log,
        1,
        [
            {"txn": {"appId": "far", "version": 2**62, "lastUpdated": FAR_FUTURE_MS}},
            {"txn": {"appId": "none", "version": 3}},
        ],
    )
    append(a_writer(log), "x")
    write_checkpoint(log)
    append(a_writer(log), "y")
    transactions = loaded(log).transactions
    assert transactions["far"] == SetTransaction(app_id="far", version=2**62, last_updated_ms=FAR_FUTURE_MS)
    assert transactions["none"] == SetTransaction(app_id="none", version=3, last_updated_ms=0)
    assert transactions["sparklog.end.0"].version == 2


def test_a_producers_transaction_survives_a_checkpoint_for_seven_days() -> None:
    # Rule L7. Who writes the checkpoint goes by its clock and delta.setTransactionRetentionDuration.
    log = a_topic()
    almost = log.clock.now_ms() - 7 * DAY_MS + 3_600_000
    foreign_entry(log, 1, [{"txn": {"appId": "17", "version": 5, "lastUpdated": almost}}])
    write_checkpoint(log)
    append(a_writer(log), "y")
    assert loaded(log).transactions["17"].version == 5


def test_the_newest_transaction_of_an_application_counts() -> None:
    log = a_topic()
    for version, number in ((1, 7), (2, 3)):
        foreign_entry(log, version, [{"txn": {"appId": "a", "version": number}}])
        if version == 1:
            write_checkpoint(log)
    assert loaded(log).transactions["a"].version == 3


def test_a_path_with_characters_that_a_uri_encodes_is_told_as_the_log_writes_it() -> None:
    log = a_topic()
    path = unsequenced_file(log, "x")
    strange = "partition=0/base_offset=__HIVE_DEFAULT_PARTITION__/a%20b%25c%C3%A9.parquet"
    add = next(action for action in loaded(log).tail[-1].actions)
    foreign_entry(log, 2, [{"add": {**add.to_json()["add"], "path": strange}}])
    assert set(live_files(loaded(log))) == {path, strange}
    write_checkpoint(log)
    assert set(live_files(loaded(log))) == {path, strange}


def test_a_checkpoint_of_several_parts_is_read_as_one() -> None:
    log = with_appends(5, checkpoint_at=3)
    whole = view(loaded(log))
    split_checkpoint(log, 3, 3)
    snapshot = loaded(log)
    assert snapshot.checkpoint_version == 3
    assert view(snapshot) == whole


def test_an_incomplete_checkpoint_is_passed_over() -> None:
    log = with_appends(5, checkpoint_at=3)
    whole = view(loaded(log))
    log.store.delete(split_checkpoint(log, 3, 3)[1:2])
    snapshot = loaded(log)
    assert snapshot.checkpoint_version == -1
    assert view(snapshot) == whole


@pytest.mark.parametrize("hint", [None, b"", b'{"ver', b'{"version":0,"size":1}', b'{"version":4,"size":9,"parts":3}'])
def test_a_hint_that_is_missing_torn_stale_or_wrong_changes_nothing(hint: bytes | None) -> None:
    log = with_appends(5, checkpoint_at=3)
    whole = view(loaded(log))
    if hint is None:
        log.store.delete([last_checkpoint_path(log.table)])
    else:
        log.store.put(last_checkpoint_path(log.table), hint)
    assert loaded(log).checkpoint_version == 3
    assert view(loaded(log)) == whole
    assert opened(log).position.version == 5


# --- damaged logs


@pytest.mark.parametrize("read", [open_newest, load_snapshot])
@pytest.mark.parametrize(("checkpoint_at", "missing"), [(-1, 0), (-1, 3), (2, 3), (2, 4)])
def test_a_missing_version_is_named(checkpoint_at: int, missing: int, read: Callable[[DeltaLog], object]) -> None:
    log = with_appends(5, checkpoint_at=checkpoint_at)
    log.store.delete([entry_path(log.table, missing)])
    store = CountingStore(log.store)
    with pytest.raises(CorruptLogError, match=rf"topics/t: version {missing} is missing.*version 5 exists"):
        read(a_log(store))
    assert store.counts()["list"] <= 10


def test_a_version_below_the_checkpoint_may_be_missing() -> None:
    log = with_appends(5, checkpoint_at=3)
    whole = view(loaded(log))
    log.store.delete([entry_path(log.table, version) for version in (0, 1, 2, 3)])
    assert view(loaded(log)) == whole


class TornListing(WrappedStore):
    """A listing that took its time: it missed a version that was created meanwhile and shows the one after it."""

    def __init__(self, store: MemoryStore, hidden: str) -> None:
        super().__init__(store)
        self.hidden = hidden

    def list(self, prefix, *, after=""):
        return (found for found in super().list(prefix, after=after) if found.path != self.hidden)


def test_a_version_that_a_listing_missed_isnt_missing() -> None:
    memory = MemoryStore()
    log = a_topic(memory)
    for number in range(4):
        append(a_writer(log), str(number))
    before = view(loaded(DeltaLog(store=memory_before(memory, 3), table=log.table, clock=log.clock)))
    torn = a_log(TornListing(memory, entry_path(log.table, 3)))
    assert view(loaded(torn)) == before  # the log as of when the listing began


class TornFirstListing(TornListing):
    """… which then took so long that the version it missed was cleaned before anybody could ask for it."""

    def __init__(self, store: MemoryStore, hidden: str, then: Callable[[], object]) -> None:
        super().__init__(store, hidden)
        self.then = then

    def list(self, prefix, *, after=""):
        found = list(super().list(prefix, after=after))
        self.hidden, then, self.then = "", self.then, lambda: None
        then()
        return iter(found)


@pytest.mark.parametrize("read", [opened, loaded])
def test_a_version_that_a_listing_missed_and_that_was_cleaned_since_isnt_missing(
    read: Callable[[DeltaLog], Newest | Snapshot],
) -> None:
    memory, clock = a_small_topic()
    append(a_writer(a_log(memory, clock)), "c")
    hidden = entry_path("topics/t", 2)
    torn = TornFirstListing(memory, hidden, lambda: two_days_of_others(memory, clock))
    position = read(a_log(torn, clock)).position
    assert hidden not in {found.path for found in memory.list("")}
    assert position.version == opened(a_log(memory, clock)).position.version


def memory_before(memory: MemoryStore, version: int) -> MemoryStore:
    copy = copy_of(memory)
    copy.delete([found.path for found in memory.list("") if found.path >= entry_path("topics/t", version)])
    return copy


def without_metadata(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    table = pq.read_table(pa.BufferReader(data))
    pq.write_table(table.filter(pc.is_null(table["metaData"])), sink)
    return bytes(sink.getvalue())


DAMAGES = {
    "empty": lambda data: b"",
    "torn": lambda data: data[:-9],
    "shifted": lambda data: data[9:],
    "something else": lambda data: b"x",
}


def damaged(log: DeltaLog, version: int, damage: Callable[[bytes], bytes], *, parts: int = 1) -> str:
    """Damage the checkpoint of a version, or the last of several parts that it is split into; returns its path."""
    path = checkpoint_path(log.table, version) if parts == 1 else split_checkpoint(log, version, parts)[-1]
    log.store.put(path, damage(log.store.read(path)))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("cleaned", [1, 3, 4])
def test_a_corrupt_checkpoint_that_nothing_stands_in_for_is_named(
    damage: Callable[[bytes], bytes], parts: int, cleaned: int
) -> None:
    log = with_appends(4, checkpoint_at=3)
    path = damaged(log, 3, damage, parts=parts)
    log.store.delete([entry_path(log.table, version) for version in range(cleaned)])
    with pytest.raises(CorruptLogError, match=path):
        load_snapshot(log)
    with pytest.raises(CorruptLogError, match=path):
        write_checkpoint(log)


def test_a_checkpoint_without_metadata_is_corrupt() -> None:
    log = with_appends(4, checkpoint_at=3)
    whole = view(loaded(log))
    path = damaged(log, 3, without_metadata)
    assert view(loaded(log)) == whole
    log.store.delete([entry_path(log.table, 0)])
    with pytest.raises(CorruptLogError, match=path):
        load_snapshot(log)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("older", [-1, 1])
def test_a_corrupt_checkpoint_is_passed_over_for_an_older_one_and_logged(
    damage: Callable[[bytes], bytes], parts: int, older: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = with_appends(4, checkpoint_at=older)
    whole = view(loaded(log))
    assert write_checkpoint(log) == 4
    append(a_writer(log), "behind it")
    path = damaged(log, 4, damage, parts=parts)
    log.store.delete([entry_path(log.table, version) for version in range(max(0, older))])  # as far as cleanup may go
    snapshot = loaded(log)
    assert snapshot.checkpoint_version == older
    assert snapshot.position.version == 5
    assert set(whole["files"]) < set(view(snapshot)["files"])
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert path in warning.getMessage()
    assert [value for _, value in contents(log)[0]] == ["v2", "v4", "behind it"]


def test_of_several_corrupt_checkpoints_each_is_passed_over() -> None:
    log = with_appends(2, checkpoint_at=1)
    for _ in range(2):
        write_checkpoint(log)
        append(a_writer(log), "more")
    whole = view(loaded(log))
    for version in (1, 2, 3):
        damaged(log, version, DAMAGES["torn"])
    assert loaded(log).checkpoint_version == -1
    assert view(loaded(log)) == whole


def test_after_a_corrupt_checkpoint_everything_goes_on_and_the_next_one_mends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = with_appends(4, checkpoint_at=2)
    assert write_checkpoint(log) == 4
    damaged(log, 4, DAMAGES["empty"])
    append(a_writer(log), "v5", partition=1)
    delete_records(log, "t", {0: 1})
    whole = view(loaded(log))
    assert write_checkpoint(log) == 6
    caplog.clear()
    assert loaded(log).checkpoint_version == 6
    assert view(loaded(log)) == whole
    log.store.delete([entry_path(log.table, version) for version in range(6)])  # it needs nothing below itself
    assert view(loaded(log)) == whole
    assert not caplog.records


def test_a_table_that_needs_a_newer_reader_is_refused_and_its_features_are_told() -> None:
    log = a_topic()
    needs = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    foreign_entry(log, 1, [{"protocol": needs}])
    with pytest.raises(UnsupportedVersionError, match=r"topics/t needs Delta reader version 3.*deletionVectors"):
        load_snapshot(log)


def test_a_log_without_metadata_is_corrupt() -> None:
    log = a_log()
    foreign_entry(log, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}])
    with pytest.raises(CorruptLogError, match="topics/t: no metadata"):
        load_snapshot(log)


# --- a log that changes under its reader


def test_a_load_during_which_a_cleanup_has_begun_begins_anew() -> None:
    """Rule L3: all that it listed was still there; but of what lies behind, somebody may have created some anew."""
    log = with_appends(4, checkpoint_at=2)
    store = InterruptedStore(log.store)
    calls = 1 + 1 + 1 + 3  # the hint, a listing, the checkpoint, its own entry and the two behind it
    store.interrupt(lambda: log.mark_cleaned(3), at=calls, after=False)
    with pytest.raises(StoreUnavailableError, match="cleaned under 5 attempts"):
        load_snapshot(a_log(store))  # the mark lies above the checkpoint, which no cleanup does
    log.store.delete([f"{log.cleanup_marks}below-{3:020d}"])
    log.mark_cleaned(2)
    assert load_snapshot(log) is not None


def test_a_load_whose_last_listing_took_longer_than_the_trust_begins_anew() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    append(a_writer(a_topic(memory, clock)), "a")
    delay = Fault(kind=FaultKind.DELAY, ops=["list"], delay_ms=61_000, skip=1)
    store = FaultyStore(memory, delay, clock=clock)
    assert loaded(a_log(store, clock)).position.version == 1
    assert [call.op for call in store.calls].count("list") == 4


def two_days_later(memory: MemoryStore, clock: ManualClock) -> None:
    """Others append, write a checkpoint and two days later clean all that lies below it."""
    log = a_log(memory, clock)
    writer = a_writer(log)
    append(writer, "later")
    write_checkpoint(log)
    clock.advance(2 * DAY_MS)
    append(writer, "two days later")
    result = clean_log(log, retention_ms=DAY_MS)
    assert result is not None
    assert result.deleted_count >= 3


def a_small_topic() -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    writer = a_writer(a_topic(memory, clock))
    append(writer, "a")
    append(writer, "b")
    return memory, clock


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(6))
def test_a_log_cleaned_under_a_reader_at_any_call_is_read_as_it_was_or_as_it_is(call: int, after: bool) -> None:
    memory, clock = a_small_topic()
    before = view(loaded(a_log(memory, clock)))
    store = InterruptedStore(memory)
    store.interrupt(lambda: two_days_later(memory, clock), at=call, after=after)
    read = view(loaded(a_log(store, clock)))
    assert store.call_count > call  # else the test interrupts nothing
    assert read in (before, view(loaded(a_log(memory, clock))))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(3))
def test_a_log_that_is_cleaned_under_who_opens_it_at_any_call_shows_its_newest_entry(call: int, after: bool) -> None:
    memory, clock = a_small_topic()
    was_newest = a_log(memory, clock).read_entry(2)
    store = InterruptedStore(memory)
    store.interrupt(lambda: two_days_later(memory, clock), at=call, after=after)
    newest = opened(a_log(store, clock))
    assert store.call_count > call
    assert newest.entry in (was_newest, a_log(memory, clock).read_entry(4))
    assert newest.position.anchor_ticks_ms <= clock.ticks_ms() - (2 * DAY_MS if newest.entry == was_newest else 0)


def test_a_name_cleaned_and_created_again_under_a_reader_is_no_part_of_what_it_reads() -> None:
    memory, clock = a_small_topic()
    store = InterruptedStore(memory)

    def cleaned_and_created_again() -> None:
        stray = resealed(memory.read(entry_path("topics/t", 1)).replace(b'"token":"', b'"token":"stray'))
        two_days_later(memory, clock)
        memory.create(entry_path("topics/t", 0), stray)
        memory.create(entry_path("topics/t", 1), stray)
        memory.create(entry_path("topics/t", 2), stray)

    store.interrupt(cleaned_and_created_again, at=2, after=False)
    snapshot = loaded(a_log(store, clock))
    assert not any("stray" in entry.token for entry in snapshot.tail)
    assert snapshot.position.version == 4


class AlwaysCleaned(WrappedStore):
    """Whatever a listing shows is gone when it is read."""

    list_count = 0

    def _call(self, op, path, call):
        self.list_count += op == "list"
        if op == "get" and path.startswith(log_folder("topics/t")) and path.endswith(".json"):
            raise ObjectNotFoundError(path)
        return super()._call(op, path, call)


@pytest.mark.parametrize("read", [open_newest, load_snapshot])
def test_a_log_that_is_cleaned_under_its_reader_for_ever_is_given_up(read: Callable[[DeltaLog], object]) -> None:
    memory, clock = a_small_topic()
    store = AlwaysCleaned(memory)
    with pytest.raises(StoreUnavailableError, match="topics/t was cleaned"):
        read(a_log(store, clock))
    assert store.list_count <= 10


def test_a_read_that_fails_for_a_while_is_repeated() -> None:
    memory, clock = a_small_topic()
    whole = view(loaded(a_log(memory, clock)))
    flaky: Clock = clock
    store = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, chance=0.5, times=None), seed=3)
    assert view(loaded(a_log(store, flaky))) == whole
