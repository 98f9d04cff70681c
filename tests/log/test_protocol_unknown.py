"""L2, L4, L9, L11: lost answers, late requests, lost races, and what must be on disk before an acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from sparklog.log.follow import TopicFollower
from sparklog.storage import LocalStore, MemoryStore, ObjectStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import T0_MS, a_log, a_topic, a_writer, append, contents, records, two_days_of_others

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


def test_a_put_that_arrives_late_isnt_taken_for_the_next_batch_nor_the_next_batch_for_it() -> None:
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


def test_an_append_that_could_not_be_settled_takes_a_new_producer_id_and_one_that_was_refused_too() -> None:
    late, clock, _ = a_late_store()
    writer = a_writer(a_log(late, clock))
    ids = [writer.producer_id]
    late.holding = True
    with pytest.raises(CommitStateUnknownError):
        append(writer, "late", timeout_ms=5_000)
    ids.append(writer.producer_id)
    late.holding = False
    busy = FaultyStore(late, Fault(kind=FaultKind.THROTTLED, ops=["create"], times=None))
    writer = a_writer(a_log(busy, clock))
    ids.append(writer.producer_id)
    with pytest.raises(KafkaTimeoutError) as raised:
        append(writer, "refused", timeout_ms=5_000)
    assert raised.value.retriable
    assert not isinstance(raised.value, CommitStateUnknownError)
    ids.append(writer.producer_id)
    assert len(set(ids)) == len(ids)


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
def test_a_lost_answer_is_settled_by_who_holds_the_name_even_if_others_commit_meanwhile(kind: FaultKind) -> None:
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
    assert second.append(files, timeout_ms=1_000).base_offsets == (1,)
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


def test_an_entry_that_was_linked_but_could_not_be_synced_isnt_acknowledged_before_it_is() -> None:
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
    assert ops[ops.index("create") :] == ["create", "create", "get", "sync", "sync", "sync", "sync"]
    assert contents(log)[0] == [(0, "durable")]


def test_what_came_before_must_be_durable_or_nothing_is_committed() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    broken = FaultyStore(memory, Fault(kind=FaultKind.LOST_ANSWER, ops=["sync_all"], times=None))
    with pytest.raises((StoreOutcomeUnknownError, StoreUnavailableError)):
        append(a_writer(a_log(broken, clock), sync=True), "mine", timeout_ms=1_000)
    assert TopicFollower(log, "t").head.log_end_offsets == (0,)


def test_a_file_is_appended_once_and_never_again() -> None:
    writer = a_writer(a_topic())
    files = writer.upload([(0, records("once"))])
    writer.append(files, timeout_ms=1_000)
    with pytest.raises(IllegalStateError, match="hasn't appended"):
        writer.append(files, timeout_ms=1_000)
    with pytest.raises(IllegalStateError):
        writer.append([], timeout_ms=1_000)


def test_files_of_an_unknown_outcome_are_refused_for_they_may_be_in_the_log_under_other_offsets() -> None:
    late, clock, memory = a_late_store()
    writer = a_writer(a_log(late, clock))
    files = writer.upload([(0, records("late"))])
    late.holding = True
    with pytest.raises(CommitStateUnknownError):
        writer.append(files, timeout_ms=5_000)
    late.deliver()
    append(a_writer(a_log(memory, clock)), "other")
    with pytest.raises(IllegalStateError):
        writer.append(files, timeout_ms=5_000)
    assert contents(a_log(memory, clock))[0] == [(0, "late"), (1, "other")]


def test_files_that_timed_out_while_the_store_refused_may_be_appended_again() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    until = clock.ticks_ms() + 10_000
    busy = FaultyStore(
        memory, Fault(kind=FaultKind.THROTTLED, when=lambda _: clock.ticks_ms() < until, ops=["create"], times=None)
    )
    writer = a_writer(a_log(busy, clock))
    files = writer.upload([(0, records("patient"))])
    with pytest.raises(KafkaTimeoutError):
        writer.append(files, timeout_ms=1_000)
    clock.advance(10_000)
    assert writer.append(files, timeout_ms=1_000).base_offsets == (0,)
    assert contents(log)[0] == [(0, "patient")]


def test_an_append_whose_position_was_lost_is_unknown_until_the_topic_could_be_loaded() -> None:
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


def test_a_writer_that_had_to_load_the_topic_forgets_its_files_and_other_producers_again() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    writer = a_writer(a_topic(memory, clock))
    two_days_of_others(memory, clock)
    append(writer, "loads the topic")
    assert writer.state.whole is None
    assert set(writer.state.transactions) == {str(writer.producer_id)}
    assert append(writer, "goes on").base_offsets == (14,)
