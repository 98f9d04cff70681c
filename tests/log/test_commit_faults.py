"""L2, L4, L9, L11: lost answers, late requests, lost races, and what must be on disk before an acknowledgement."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.delta.actions import Action, Metadata, Protocol
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from sparklog.log.append import TopicWriter
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.storage import LocalStore, MemoryStore, ObjectStore, entry_log, log_ground
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
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
    foreign_commit,
    foreign_entry,
    foreign_file,
    foreign_records,
    records,
    two_days_of_others,
    versions_of,
    within,
)

T = TypeVar("T")
UPLOAD, CREATE = 0, 1


class LateStore(WrappedStore):
    """Answers no create of a log entry until told to; the first one arrives when :meth:`deliver` is called."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.holding = False
        self._held: Callable[[], object] | None = None

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "create" and self.holding:
            self._held = self._held or call
            raise StoreOutcomeUnknownError(f"{path}: no answer")
        return call()

    def deliver(self) -> None:
        self.holding = False
        if self._held is not None:
            self._held()


def a_late_store() -> tuple[LateStore, ManualClock, MemoryStore]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    return LateStore(memory), clock, memory


def test_a_put_that_arrives_late_and_the_next_batch_arent_taken_for_each_other() -> None:
    late, clock, memory = a_late_store()
    writer = a_writer(a_log(late, clock))
    append(writer, "0")
    late.holding = True
    with pytest.raises(CommitStateUnknownError):
        append(writer, "late", timeout_ms=5_000)
    late.deliver()

    result = append(writer, "next")

    assert contents(a_log(memory, clock))[0] == [(0, "0"), (1, "late"), (2, "next")]
    assert result.base_offsets == (2,)


def test_an_append_that_was_refused_or_not_settled_takes_a_new_producer_id() -> None:
    late, clock, _ = a_late_store()
    writer = a_writer(a_log(late, clock))
    ids = [writer.producer_id]
    late.holding = True
    with pytest.raises(CommitStateUnknownError):
        append(writer, "late", timeout_ms=5_000)
    ids.append(writer.producer_id)
    late.holding = False
    read_only = FaultyStore(late, Fault(kind=FaultKind.READ_ONLY, ops=["create"], times=None))
    writer = a_writer(a_log(read_only, clock))
    ids.append(writer.producer_id)
    with pytest.raises(StorePermissionError):
        append(writer, "refused", timeout_ms=5_000)
    ids.append(writer.producer_id)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.FALSE_REFUSAL, FaultKind.CONFLICT])
def test_a_create_that_was_refused_until_the_deadline_is_unknown(kind: FaultKind) -> None:
    """✗ A client library sends a create twice and tells the refusal of the second: the caller is told that nothing was
    stored, sends the record again, and it is there twice."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    later = Fault(kind=FaultKind.THROTTLED, ops=["create"], skip=1, times=None)
    writer = a_writer(a_log(FaultyStore(memory, later, Fault(kind=kind, ops=["create"])), clock))
    with pytest.raises(CommitStateUnknownError, match=r"read the log back before anything else: .*503"):
        append(writer, "perhaps", timeout_ms=5_000)
    is_stored = kind is FaultKind.FALSE_REFUSAL
    assert contents(log)[0] == ([(0, "perhaps")] if is_stored else [])


def test_a_create_that_was_refused_and_is_there_is_found_by_its_token() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    busy = FaultyStore(memory, Fault(kind=FaultKind.FALSE_REFUSAL, ops=["create"], times=1))
    assert append(a_writer(a_log(busy, clock)), "once").base_offsets == (0,)
    assert contents(log)[0] == [(0, "once")]


def test_a_refusal_for_good_after_an_attempt_that_failed_leaves_it_unknown() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    expired = Fault(kind=FaultKind.READ_ONLY, ops=["create"], skip=1, times=None)
    busy = FaultyStore(memory, expired, Fault(kind=FaultKind.FALSE_REFUSAL, ops=["create"]))
    with pytest.raises(CommitStateUnknownError, match="read-only"):
        append(a_writer(a_log(busy, clock)), "perhaps", timeout_ms=5_000)
    assert contents(log)[0] == [(0, "perhaps")]


def test_an_unknown_outcome_is_a_time_out_that_must_not_be_retried_blindly() -> None:
    assert issubclass(CommitStateUnknownError, KafkaTimeoutError)
    assert not CommitStateUnknownError.retriable


def test_a_store_that_answers_503_for_20_seconds_delays_an_append_and_nothing_else() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    until = clock.ticks_ms() + 20_000
    busy = FaultyStore(
        memory,
        Fault(kind=FaultKind.THROTTLED, when=lambda _: clock.ticks_ms() < until, ops=["put", "create"], times=None),
    )
    writer = a_writer(a_log(busy, clock))
    assert append(writer, "patient").base_offsets == (0,)
    assert clock.ticks_ms() >= until
    assert contents(log)[0] == [(0, "patient")]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS])
def test_a_lost_answer_is_settled_by_who_holds_the_name_though_others_commit(kind: FaultKind) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    other = a_writer(log)
    store = InterruptedStore(FaultyStore(memory, Fault(kind=kind, ops=["create"])))
    writer = a_writer(a_log(store, clock))
    store.interrupt(lambda: append(other, "other"), at=CREATE + 1, after=False)

    offset = append(writer, "mine").base_offsets[0]

    seen = contents(log)[0]
    assert seen == sorted([(offset, "mine"), (1 - offset, "other")])


def test_two_writers_at_one_version_both_land_and_the_loser_uploads_nothing_again() -> None:
    clock = ManualClock(start_ms=T0_MS)
    counting = CountingStore(MemoryStore(clock=clock))
    log = a_topic(counting, clock)
    first, second = a_writer(log), a_writer(log)
    files = second.upload([(0, records("second"))])
    append(first, "first")
    counting.reset()
    assert second.append(files, deadline=within(second, 1_000)).base_offsets == (1,)
    assert counting.counts() == {"create": 2, "get": 1}


def test_a_writer_that_lost_a_race_waits_a_round_trip_before_its_next_append() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    slow = FaultyStore(memory, Fault(kind=FaultKind.DELAY, ops=["create"], delay_ms=40, times=None), clock=clock)
    writer, other = a_writer(a_log(slow, clock)), a_writer(log)
    append(other, "other")
    append(writer, "lost a race first")
    before = clock.ticks_ms()
    append(writer, "waits 40 ms, then takes 40")
    assert clock.ticks_ms() - before == 80
    before = clock.ticks_ms()
    append(writer, "alone again")
    assert clock.ticks_ms() - before == 40


def a_writer_whose_create_stalls(
    monkeypatch: pytest.MonkeyPatch, *, losses: int, stall_on: int, stall_ms: float = 3_600_000
) -> tuple[TopicWriter, ManualClock]:
    """It loses so many races, and its create of the given number takes an hour; random waits are their longest."""
    monkeypatch.setattr("sparklog.delta.commit.random.uniform", lambda low, high: high)
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    other = a_writer(a_topic(memory, clock))
    made = iter(range(1, 1_000))

    class Stalling(WrappedStore):
        def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
            if op == "create":
                number = next(made)
                if number <= losses:
                    append(other, f"other {number}")
                if number == stall_on:
                    clock.advance(stall_ms)
            return call()

    return a_writer(a_log(Stalling(memory), clock)), clock


@pytest.mark.parametrize(("stall_ms", "pause_ms"), [(900, 900), (1_000, 1_000), (1_001, 1_000), (3_600_000, 1_000)])
def test_a_create_that_took_an_hour_makes_the_next_append_wait_for_a_second(
    monkeypatch: pytest.MonkeyPatch, stall_ms: float, pause_ms: float
) -> None:
    writer, clock = a_writer_whose_create_stalls(monkeypatch, losses=1, stall_on=2, stall_ms=stall_ms)
    append(writer, "won after a stall")
    before = clock.ticks_ms()
    append(writer, "next")
    assert clock.ticks_ms() - before == pause_ms


def test_a_lost_race_that_took_an_hour_is_yielded_to_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, clock = a_writer_whose_create_stalls(monkeypatch, losses=3, stall_on=3)
    append(writer, "mine", timeout_ms=10**9)
    assert clock.ticks_ms() == 3_600_000 + 3 * 1_000


def test_a_stall_beyond_the_deadline_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, clock = a_writer_whose_create_stalls(monkeypatch, losses=3, stall_on=3)
    with pytest.raises(KafkaTimeoutError, match="after losing 3 races"):
        append(writer, "mine", timeout_ms=30_000)
    assert clock.ticks_ms() == 3_600_000


def test_yielding_to_faster_writers_never_sleeps_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, clock = a_writer_whose_create_stalls(monkeypatch, losses=2, stall_on=2, stall_ms=900)
    with pytest.raises(KafkaTimeoutError, match="after losing 2 races"):
        append(writer, "mine", timeout_ms=1_500)  # at 900 ms it would wait for 1800 ms
    assert clock.ticks_ms() == 1_500


def test_a_writer_far_behind_reads_ahead_instead_of_losing_every_race() -> None:
    clock = ManualClock(start_ms=T0_MS)
    counting = CountingStore(MemoryStore(clock=clock))
    log = a_topic(counting, clock)
    behind, other = a_writer(log), a_writer(log)
    for number in range(200):
        append(other, str(number))
    counting.reset()
    append(behind, "mine")
    assert counting.counts()["create"] < 15


def test_losing_races_past_the_deadline_is_a_time_out_of_which_nothing_is_stored() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    other = a_writer(log)

    class FasterOthers(WrappedStore):
        def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
            if op == "create":
                append(other, "other")
                clock.advance(10)
            return call()

    with pytest.raises(KafkaTimeoutError, match="losing"):
        append(a_writer(a_log(FasterOthers(memory), clock)), "mine", timeout_ms=100)
    assert {value for _, value in contents(log)[0]} == {"other"}


def test_acks_all_makes_durable_what_others_wrote_before_it_creates_its_own_entry(tmp_path: Path) -> None:
    recording = FaultyStore(LocalStore(tmp_path))
    log = a_topic(recording)
    durable, other = a_writer(log, sync=True), a_writer(log)
    append(durable, "knows nothing yet, so it syncs the whole file system")
    assert [call.op for call in recording.calls].count("sync_all") == 1
    append(other, "not synced")
    entry = f"_delta_log/{other.state.position.version:020d}.json"
    data = next(call.path for call in reversed(recording.calls) if call.op == "put")
    start = len(recording.calls)

    append(durable, "synced")

    later = recording.calls[start:]
    at = next(number for number, call in enumerate(later) if call.op == "sync")
    assert entry in later[at].path
    assert data in later[at].path
    lost, won = (number for number, call in enumerate(later) if call.op == "create")
    assert lost < at < won
    start = len(recording.calls)
    append(durable, "nothing of others' is in between")
    assert {call.op for call in recording.calls[start:]} == {"put", "create"}


class BusyOthers(WrappedStore):
    """While somebody fsyncs, another writer, that doesn't, commits."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []
        self.failing = False
        self._clock = clock
        self._other = a_writer(a_log(store, clock))

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.calls.append((op, path))
        if op in ("sync", "sync_all"):
            append(self._other, "other")
            self._clock.advance(10)
            if self.failing and any(op == "create" for op, _ in self.calls[-2:]):
                raise StoreOutcomeUnknownError("the disk lost a write")
        return call()


@pytest.mark.parametrize("fails", [False, True])
def test_acks_all_comes_through_beside_busy_writers_and_is_durable_when_acknowledged(
    fails: bool,
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    busy = BusyOthers(memory, clock)
    durable = a_writer(a_log(busy, clock), sync=True)
    busy.failing = fails
    with pytest.raises(CommitStateUnknownError, match="may not survive") if fails else nullcontext():
        append(durable, "mine", timeout_ms=10_000)
    assert [value for _, value in contents(log)[0]].count("mine") == 1
    (op, _), (last, paths) = busy.calls[-2:]
    assert (op, last) == ("create", "sync")
    version = max(int(path[-25:-5]) for op, path in busy.calls if op == "create")
    assert f"{version:020d}.json" in paths  # its own, and all before
    assert f"{version - 1:020d}.json" in paths


def test_acks_all_that_finds_its_entry_in_a_reloaded_log_is_acknowledged_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    busy = BusyOthers(memory, clock)
    durable = a_writer(a_log(busy, clock), sync=True)
    verify = log_ground.verify_created
    lost: list[str] = []

    def lose_once(self: DeltaLog, position: Position, token: str) -> None:
        if not lost and any(value == "mine" for _, value in contents(log)[0]):
            lost.append("as if the log had been cleaned under it")
            raise PositionLost(lost[0])
        verify(self, position, token)

    monkeypatch.setattr(entry_log, "verify_created", lose_once)
    append(durable, "mine", timeout_ms=10_000)
    assert lost
    assert [value for _, value in contents(log)[0]].count("mine") == 1
    creates = [number for number, (op, _) in enumerate(busy.calls) if op == "create"]
    assert "sync_all" in [op for op, _ in busy.calls[creates[-1] + 1 :]]


def test_an_entry_that_was_linked_isnt_acknowledged_before_it_is_synced() -> None:
    memory = MemoryStore()
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    faults = (
        Fault(kind=FaultKind.LOST_ANSWER, ops=["create"]),  # as LocalStore says when the folder's fsync fails
        Fault(kind=FaultKind.THROTTLED, ops=["sync"], path="_delta_log", times=3),
    )
    recording = FaultyStore(memory, *faults)
    append(a_writer(a_log(recording, clock), sync=True), "durable")
    ops = [call.op for call in recording.calls]
    assert ops[ops.index("create") :] == ["create", *["create", "get", "sync"] * 4]
    assert contents(log)[0] == [(0, "durable")]


def test_what_came_before_must_be_durable_or_nothing_is_committed() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    broken = FaultyStore(memory, Fault(kind=FaultKind.LOST_ANSWER, ops=["sync_all"], times=None))
    with pytest.raises((StoreOutcomeUnknownError, StoreUnavailableError)):
        append(a_writer(a_log(broken, clock), sync=True), "mine", timeout_ms=1_000)
    assert TopicFollower(log, "t").head.log_end_offsets == (0,)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to name open files")
def test_what_others_wrote_and_could_not_be_synced_once_is_never_stood_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = FaultyStore(LocalStore(tmp_path))
    log = a_topic(recording)
    durable, other = a_writer(log, sync=True), a_writer(log)
    append(durable, "1")
    append(other, "2")
    data = next(call.path for call in reversed(recording.calls) if call.op == "put")
    for lost in (data, f"_delta_log/{2:020d}.json"):
        fail_fsync_once(monkeypatch, lost)
        for _ in range(2):  # the system says yes the second time
            with pytest.raises(StoreOutcomeUnknownError, match="EIO"):
                append(durable, "3")
        with pytest.raises(StoreOutcomeUnknownError, match="an earlier fsync of"):
            append(a_writer(log, sync=True), "3")
    assert contents(log)[0] == [(0, "1"), (1, "2")]
    append(other, "acks=1 asks for no fsync")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to name open files")
def test_an_own_entry_whose_folder_could_not_be_synced_once_is_never_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(LocalStore(tmp_path), clock)
    writer = a_writer(log, sync=True)
    append(writer, "1")
    files = writer.upload([(0, records("2"))])
    fail_fsync_once(monkeypatch, "/_delta_log")
    before = clock.ticks_ms()
    with pytest.raises(CommitStateUnknownError):
        writer.append(files, deadline=within(writer, 60_000))
    assert 60_000 <= clock.ticks_ms() - before <= 62_000
    with pytest.raises(IllegalStateError):
        writer.append(files, deadline=within(writer, 1_000))
    for later in (writer, a_writer(log, sync=True)):
        with pytest.raises(StoreOutcomeUnknownError, match="an earlier fsync of"):
            append(later, "3")
    assert contents(log)[0] == [(0, "1"), (1, "2")]


def fail_fsync_once(monkeypatch: pytest.MonkeyPatch, end_of_path: str) -> None:
    """As a disk that loses a write: the system tells of it once, then calls the file clean."""
    real = os.fsync
    told: list[str] = []

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(end_of_path) and not told:
            told.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_file_is_appended_once_and_never_again() -> None:
    writer = a_writer(a_topic())
    files = writer.upload([(0, records("once"))])
    writer.append(files, deadline=within(writer, 1_000))
    with pytest.raises(IllegalStateError, match="hasn't appended"):
        writer.append(files, deadline=within(writer, 1_000))
    with pytest.raises(IllegalStateError):
        writer.append([], deadline=within(writer, 1_000))


def test_a_file_that_is_given_twice_is_refused_and_nothing_is_stored() -> None:
    log = a_topic()
    writer = a_writer(log)
    one, two = writer.upload([(0, records("y", "z")), (0, records("x"))])
    for files in ([one, one], [one, two, one]):
        with pytest.raises(IllegalStateError, match="each once"):
            writer.append(files, deadline=within(writer, 1_000))
    assert contents(log) == {0: []}
    writer.append([one, two], deadline=within(writer, 1_000))
    assert contents(log)[0] == [(0, "y"), (1, "z"), (2, "x")]


def test_files_of_an_unknown_outcome_are_refused_as_they_may_be_in_the_log() -> None:
    late, clock, memory = a_late_store()
    writer = a_writer(a_log(late, clock))
    files = writer.upload([(0, records("late"))])
    late.holding = True
    with pytest.raises(CommitStateUnknownError):
        writer.append(files, deadline=within(writer, 5_000))
    late.deliver()
    append(a_writer(a_log(memory, clock)), "other")
    with pytest.raises(IllegalStateError):
        writer.append(files, deadline=within(writer, 5_000))
    assert contents(a_log(memory, clock))[0] == [(0, "late"), (1, "other")]


def test_files_that_the_store_refused_for_good_may_be_appended_again() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    until = clock.ticks_ms() + 10_000
    busy = FaultyStore(
        memory, Fault(kind=FaultKind.READ_ONLY, when=lambda _: clock.ticks_ms() < until, ops=["create"], times=None)
    )
    writer = a_writer(a_log(busy, clock))
    files = writer.upload([(0, records("patient"))])
    with pytest.raises(StorePermissionError):
        writer.append(files, deadline=within(writer, 1_000))
    clock.advance(10_000)
    assert writer.append(files, deadline=within(writer, 1_000)).base_offsets == (0,)
    assert contents(log)[0] == [(0, "patient")]


def test_an_append_that_lost_its_position_is_unknown_until_the_topic_is_loaded() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    failing = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["list"], skip=1, times=None))
    store = InterruptedStore(failing)
    writer = a_writer(a_log(store, clock))  # its opening took the one listing that works
    store.interrupt(lambda: two_days_of_others(memory, clock), at=CREATE, after=True)
    with pytest.raises(CommitStateUnknownError, match="can't be loaded"):
        append(writer, "mine")
    assert [value for _, value in contents(a_log(memory, clock))[0]].count("mine") == 1


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_load_after_a_lost_position_is_tried_again_until_the_deadline(landed: bool) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    down_until = float("inf")

    def sleep() -> None:
        nonlocal down_until
        two_days_of_others(memory, clock)
        down_until = clock.ticks_ms() + 300_000

    down = Fault(kind=FaultKind.THROTTLED, ops=["list"], times=None, when=lambda _: clock.ticks_ms() < down_until)
    writer_store = InterruptedStore(memory)
    writer = a_writer(a_log(writer_store, clock))
    writer_store._store = FaultyStore(memory, down)
    writer_store.interrupt(sleep, at=CREATE, after=landed)
    result = append(writer, "mine", timeout_ms=3 * DAY_MS)
    assert clock.ticks_ms() >= down_until
    assert [found for found in contents(log)[0] if found[1] == "mine"] == [(result.base_offsets[0], "mine")]


def test_a_lost_position_and_loads_that_fail_until_the_deadline_are_unknown() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    store = InterruptedStore(memory)
    writer = a_writer(a_log(store, clock))
    files = writer.upload([(0, records("mine"))])
    store._store = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["list"], times=None))
    store.interrupt(lambda: two_days_of_others(memory, clock), at=0, after=True)
    with pytest.raises(CommitStateUnknownError, match="can't be loaded"):
        writer.append(files, deadline=within(writer, 2 * DAY_MS + 300_000))
    assert 300_000 <= clock.ticks_ms() - 2 * DAY_MS <= 340_000
    with pytest.raises(IllegalStateError):
        writer.append(files, deadline=within(writer, 1_000))
    assert [value for _, value in contents(log)[0]].count("mine") == 1


def break_topic_id(metadata: Metadata) -> tuple[Action, Action]:
    properties = {key: value for key, value in metadata.configuration.items() if key != "sparklog.topic.id"}
    return replace(metadata, configuration=properties), metadata


def break_format(metadata: Metadata) -> tuple[Action, Action]:
    properties = {**metadata.configuration, "sparklog.format.version": "3"}
    return replace(metadata, configuration=properties), metadata


def break_reader(metadata: Metadata) -> tuple[Action, Action]:
    return Protocol(min_reader_version=3, min_writer_version=7), Protocol(min_reader_version=1, min_writer_version=2)


@pytest.mark.parametrize("damage", [break_topic_id, break_format, break_reader])
def test_an_append_that_lost_its_position_is_unknown_if_others_broke_the_table(
    damage: Callable[[Metadata], tuple[Action, Action]],
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    broken, mended = damage(load_state(log).require_whole().metadata)
    store = InterruptedStore(memory)
    writer = a_writer(a_log(store, clock))
    files = writer.upload([(0, records("mine"))])

    def others_break_it() -> None:
        two_days_of_others(memory, clock)
        foreign_commit(log, broken)

    store.interrupt(others_break_it, at=0, after=True)
    with pytest.raises(CommitStateUnknownError, match="can't be loaded"):
        writer.append(files, deadline=within(writer, 10**12))
    foreign_entry(log, versions_of(log)[-1] + 1, [mended.to_json()])
    with pytest.raises(IllegalStateError):
        writer.append(files, deadline=within(writer, 1_000))
    assert [value for _, value in contents(log)[0]].count("mine") == 1


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_an_append_that_lost_its_position_is_settled_in_a_table_for_newer_writers(
    landed: bool,
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    store = InterruptedStore(memory)
    writer = a_writer(a_log(store, clock))

    def others_upgrade_it() -> None:
        two_days_of_others(memory, clock)
        foreign_commit(log, Protocol(min_reader_version=1, min_writer_version=7))

    store.interrupt(others_upgrade_it, at=CREATE, after=landed)
    if landed:
        assert append(writer, "mine", timeout_ms=10**12).base_offsets == (0,)
    with pytest.raises(UnsupportedVersionError, match="writer version 7"):
        append(writer, "later" if landed else "mine", timeout_ms=10**12)
    assert [value for _, value in contents(log)[0]].count("mine") == landed
    assert "later" not in [value for _, value in contents(log)[0]]


# Reads that fail for longer than a store's own retries


def a_writer_whose_reads_fail(
    down_ms: float, *, path: str, before: Callable[[DeltaLog], object]
) -> tuple[TopicWriter, ManualClock, DeltaLog]:
    """Its reads of what has ``path`` in its name fail for so long; ``before``: what others did since it opened."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    down = Fault(
        kind=FaultKind.THROTTLED, ops=["get"], path=path, times=None, when=lambda _: clock.ticks_ms() < down_ms
    )
    writer = a_writer(a_log(FaultyStore(memory, down), clock))
    before(log)
    return writer, clock, log


def two_others(log: DeltaLog) -> None:
    other = a_writer(log)
    append(other, "o1")
    append(other, "o2")


def a_file_without_statistics(log: DeltaLog) -> None:
    foreign_commit(log, foreign_file(log, foreign_records("o1", "o2"), path="partition=0/foreign", base_offset=0))


READS = [
    pytest.param(two_others, f"{3:020d}.json", id="of the tail after two lost races"),
    pytest.param(a_file_without_statistics, "partition=0/foreign", id="of a file that the winner added"),
]


@pytest.mark.parametrize(("before", "path"), READS)
def test_reads_that_fail_for_longer_than_the_stores_own_retries_only_delay_an_append(
    before: Callable[[DeltaLog], object], path: str
) -> None:
    writer, clock, log = a_writer_whose_reads_fail(100_000, path=path, before=before)
    assert append(writer, "mine", timeout_ms=120_000).base_offsets == (2,)
    assert 100_000 <= clock.ticks_ms() <= 102_000
    assert contents(log)[0] == [(0, "o1"), (1, "o2"), (2, "mine")]
    assert writer.head == load_state(log).head


@pytest.mark.parametrize(("before", "path"), READS)
def test_reads_that_fail_until_the_deadline_are_a_time_out_and_nothing_is_stored(
    before: Callable[[DeltaLog], object], path: str
) -> None:
    writer, clock, log = a_writer_whose_reads_fail(200_000, path=path, before=before)
    files = writer.upload([(0, records("mine"))])
    with pytest.raises(KafkaTimeoutError, match="timed out while reading or writing topics/t") as raised:
        writer.append(files, deadline=within(writer, 120_000))
    assert raised.value.retriable
    assert 120_000 <= clock.ticks_ms() <= 160_000  # the store's own retries end 30 s after they began
    assert contents(log)[0] == [(0, "o1"), (1, "o2")]
    clock.advance(200_000)
    assert writer.append(files, deadline=within(writer, 1_000)).base_offsets == (2,)
    assert contents(log)[0] == [(0, "o1"), (1, "o2"), (2, "mine")]


def test_a_writer_that_loaded_the_topic_forgets_its_files_and_other_producers() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    writer = a_writer(a_topic(memory, clock))
    two_days_of_others(memory, clock)
    append(writer, "loads the topic")
    assert writer.state.whole is None
    assert set(writer.state.transactions) == {str(writer.producer_id)}
    assert append(writer, "goes on").base_offsets == (14,)
