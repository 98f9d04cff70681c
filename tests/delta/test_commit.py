"""The commit loop by itself, on a table that counts: each commit writes the number after the newest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from sparklog.delta.actions import Entry, SetTransaction, encode_entry
from sparklog.delta.commit import CommitResult, CommitTarget, Draft, run_commit_loop
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import CommitStateUnknownError, KafkaTimeoutError, UnsupportedVersionError
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position, advance
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock

TRUST_MS = 60_000
TIMEOUT_MS = 100_000


@dataclass(frozen=True)
class Count:
    position: Position
    number: int
    unwritable: UnsupportedVersionError | None = None


def an_entry(number: int, token: str) -> bytes:
    return encode_entry(
        actions=[SetTransaction(app_id="count", version=number, last_updated_ms=0)],
        token=token,
        info={},
        operation="WRITE",
        blind_append=True,
        timestamp_ms=0,
        version="test",
    )


def number_of(entry: Entry) -> int:
    return max(action.version for action in entry.actions if isinstance(action, SetTransaction))


class Numbered(Draft[Count]):
    def __init__(self, number: int, began_ticks_ms: float, in_create: Callable[[], object]) -> None:
        self.number = number
        self.in_create = in_create
        self.began_ticks_ms = began_ticks_ms
        self.sync = False

    def encode(self, token: str) -> bytes:
        self.in_create()
        return an_entry(self.number, token)

    def apply_to(self, state: Count, position: Position) -> Count:
        return replace(state, position=position, number=self.number)


class Counting(CommitTarget[Count, int]):
    """Writes the next number, unless ``goal`` is reached."""

    def __init__(self, log: DeltaLog, *, goal: int = 1_000, before_create: Sequence[Callable[[], object]] = ()) -> None:
        super().__init__(log, deadline=log.clock.deadline_in(TIMEOUT_MS))
        self.goal = goal
        self.before_create = list(before_create)
        """One for each attempt."""
        self.in_create: list[Callable[[], object]] = []
        """One for each attempt, between the check of the ground and the create."""
        self.calls: list[str] = []
        self.is_settled_as_ours = False
        self.is_current = True
        self.loses_position = False

    def decide(self, state: Count) -> int | None:
        self.calls.append(f"decide on {state.number}")
        return state.number + 1 if state.number < self.goal else None

    def end_without_commit(self, state: Count) -> tuple[Count, bool]:
        if self.is_current:
            return state, True
        self.is_current = True
        return self.load(), False

    def prepare(self, state: Count, decision: int, *, lost_races: int) -> Numbered | None:
        began = self.log.clock.ticks_ms()
        if self.before_create and self.before_create.pop(0)() is None:
            return None
        return Numbered(decision, began, self.in_create.pop(0) if self.in_create else lambda: None)

    def settle(self, lost: PositionLost) -> tuple[Count, bool]:
        self.calls.append("settle")
        return self.load_unsettled(lost, self.load), self.is_settled_as_ours

    def apply_winner(self, state: Count, winner: Entry, *, catches_up: bool) -> Count:
        self.calls.append("apply")
        if self.loses_position:
            raise PositionLost("lost")
        position = advance(state.position, version=winner.version, token=winner.token)
        return replace(state, position=position, number=number_of(winner))

    def catch_up(self, state: Count) -> Count:
        self.calls.append("catch up")
        look = self.log.look(state.position, ahead=10)
        number = number_of(look.entries[-1]) if look.entries else state.number
        return replace(state, position=look.position, number=number)

    def load(self) -> Count:
        self.calls.append("load")
        newest = max(version for version in range(100) if self.log.read_entry(version) is not None)
        return state_at(self.log, newest)


def state_at(log: DeltaLog, version: int) -> Count:
    entry = log.read_entry(version)
    assert entry is not None
    position = Position(version=version, token=entry.token, anchor_ticks_ms=log.clock.ticks_ms())
    return Count(position=position, number=number_of(entry))


def a_count(*faults: Fault) -> tuple[DeltaLog, MemoryStore, ManualClock]:
    """A log with number 0 at version 0, seen through faults; its bare store, and its clock."""
    clock, store = ManualClock(), MemoryStore()
    store.create(entry_path("t", 0), an_entry(0, "first"))
    faulty = FaultyStore(store, *faults, clock=clock)
    return DeltaLog(store=faulty, table="t", clock=clock, tail_trust_ms=TRUST_MS), store, clock


def rival(store: ObjectStore, version: int, number: int) -> Callable[[], bool]:
    """Another writer, who creates ``version`` a moment before us."""
    return lambda: store.create(entry_path("t", version), an_entry(number, f"rival {version}")) is not None


def delayed(clock: ManualClock, delay_ms: float, call: Callable[[], bool]) -> Callable[[], bool]:
    """What happens after a while."""

    def wait_and_call() -> bool:
        clock.advance(delay_ms)
        return call()

    return wait_and_call


def run(target: Counting, state: Count | None = None) -> CommitResult[Count, int]:
    return run_commit_loop(target, state or state_at(target.log, 0))


def test_a_commit_without_rivals_is_one_create_and_reads_nothing() -> None:
    log, store, _ = a_count()
    state = state_at(log, 0)
    counting = CountingStore(store)
    done = run(Counting(replace(log, store=counting)), state)
    assert (done.commit, done.state.number, done.state.position.version, done.lost_races) == (1, 1, 1, 0)
    assert counting.counts() == {"create": 1}


def test_who_loses_a_race_decides_again_on_what_won() -> None:
    log, store, _ = a_count()
    target = Counting(log, before_create=[rival(store, 1, 7)])
    done = run(target)
    assert (done.commit, done.state.number, done.state.position.version, done.lost_races) == (8, 8, 2, 1)
    assert target.calls == ["decide on 0", "apply", "decide on 7"]


def test_who_loses_a_race_to_what_it_wanted_writes_nothing() -> None:
    log, store, _ = a_count()
    done = run(Counting(log, goal=5, before_create=[rival(store, 1, 5)]))
    assert (done.commit, done.lost_races, done.round_trip_ms) == (None, 1, 0)
    assert log.read_entry(2) is None


def test_the_second_lost_race_in_a_row_waits_and_reads_on_to_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.delta.commit.random.uniform", lambda low, high: high)
    log, store, clock = a_count()
    waits: list[float] = []

    def sleep(duration_ms: float) -> None:
        waits.append(duration_ms)
        rival(store, 3, 30)()

    monkeypatch.setattr(clock, "sleep_ms", sleep)

    def slow_rival(version: int, number: int) -> Callable[[], bool]:
        return delayed(clock, 100, rival(store, version, number))

    target = Counting(log, before_create=[slow_rival(1, 10), slow_rival(2, 20)])
    done = run(target)
    assert target.calls == ["decide on 0", "apply", "decide on 10", "apply", "catch up", "decide on 30"]
    assert (done.state.position.version, done.lost_races) == (4, 2)
    assert waits == [2 * 100]


def test_a_lost_answer_is_settled_by_the_token_and_nothing_is_decided_again() -> None:
    log, _, _ = a_count(Fault(kind=FaultKind.LOST_ANSWER, ops=("create",)))
    target = Counting(log)
    done = run(target)
    assert (done.commit, done.state.position.version, done.lost_races) == (1, 1, 0)
    assert target.calls == ["decide on 0"]


def cleaned_under(store: ObjectStore, clock: ManualClock) -> Callable[[], bool]:
    """We sleep until others have gone on to version 2 and deleted what we stand on."""

    def sleep() -> bool:
        rival(store, 1, 10)()
        rival(store, 2, 20)()
        clock.advance(TRUST_MS + 1)
        store.delete([entry_path("t", 0)])
        return True

    return sleep


def test_whose_base_is_gone_decides_again_on_the_reloaded_table() -> None:
    log, store, clock = a_count()
    target = Counting(log)
    target.in_create = [cleaned_under(store, clock)]
    done = run(target)
    assert target.calls == ["decide on 0", "settle", "load", "decide on 20"]
    assert (done.commit, done.state.position.version, done.lost_races) == (21, 3, 1)


def test_whose_base_is_gone_and_whose_commit_is_found_in_the_table_has_committed() -> None:
    log, store, clock = a_count()
    target = Counting(log)
    target.in_create, target.is_settled_as_ours = [cleaned_under(store, clock)], True
    done = run(target)
    assert (done.commit, done.state.number, done.lost_races) == (1, 20, 1)
    assert log.read_entry(3) is None


def test_whose_base_is_gone_and_cannot_be_loaded_does_not_know_its_outcome() -> None:
    log, store, clock = a_count()
    target = Counting(log)

    def fails() -> Count:
        raise UnsupportedVersionError("a newer engine")

    target.in_create, target.load = [cleaned_under(store, clock)], fails  # type: ignore[method-assign]
    with pytest.raises(CommitStateUnknownError, match="a newer engine"):
        run(target)


def test_whose_base_is_gone_before_anything_was_tried_only_loads_the_table() -> None:
    log, store, clock = a_count()
    target = Counting(log)
    target.before_create = [cleaned_under(store, clock)]
    target.is_settled_as_ours = True  # nobody asks
    done = run(target)
    assert target.calls == ["decide on 0", "load", "decide on 20"]
    assert (done.commit, done.state.position.version, done.lost_races) == (21, 3, 1)


def test_whose_base_is_gone_before_anything_was_tried_knows_that_nothing_was_stored() -> None:
    log, store, clock = a_count()
    target = Counting(log)

    def fails() -> Count:
        raise UnsupportedVersionError("a newer engine")

    target.before_create, target.load = [cleaned_under(store, clock)], fails  # type: ignore[method-assign]
    with pytest.raises(UnsupportedVersionError, match="a newer engine"):
        run(target)


def test_whose_ground_cannot_be_checked_in_time_knows_that_nothing_was_stored() -> None:
    log, store, clock = a_count(Fault(kind=FaultKind.THROTTLED, ops=("list",), times=None))
    target = Counting(log, before_create=[delayed(clock, TRUST_MS + 1, lambda: True)])
    with pytest.raises(KafkaTimeoutError, match="checking t") as caught:
        run(target)
    assert not isinstance(caught.value, CommitStateUnknownError)
    assert [one.path for one in store.list("")] == [entry_path("t", 0)]


def test_who_cannot_apply_what_won_loads_the_table() -> None:
    log, store, _ = a_count()
    target = Counting(log, before_create=[rival(store, 1, 7)])
    target.loses_position = True
    assert run(target).commit == 8
    assert target.calls == ["decide on 0", "apply", "load", "decide on 7"]


def test_a_preparation_that_changes_the_decision_is_followed_by_another_decision() -> None:
    log, _, _ = a_count()
    target = Counting(log, before_create=[lambda: None])
    assert run(target).commit == 1
    assert target.calls == ["decide on 0", "decide on 0"]


def test_that_nothing_is_to_be_written_counts_only_on_a_current_state() -> None:
    log, store, _ = a_count()
    target = Counting(log, goal=0)
    target.is_current = False
    state = state_at(log, 0)
    rival(store, 1, -1)()
    done = run(target, state)
    assert (done.commit, done.state.position.version) == (0, 2)
    assert target.calls == ["decide on 0", "load", "decide on -1"]


def test_an_unwritable_table_refuses_a_commit_but_not_what_is_done_already() -> None:
    log, _, _ = a_count()
    state = replace(state_at(log, 0), unwritable=UnsupportedVersionError("a newer writer"))
    assert run(Counting(log, goal=0), state).commit is None
    with pytest.raises(UnsupportedVersionError, match="a newer writer"):
        run(Counting(log), state)
    assert log.read_entry(1) is None


def test_a_race_lost_after_the_deadline_is_a_time_out_and_a_race_won_is_success() -> None:
    log, store, clock = a_count()

    with pytest.raises(KafkaTimeoutError, match="losing 1 races"):
        run(Counting(log, before_create=[delayed(clock, TIMEOUT_MS + 1, rival(store, 1, 7))]))
    assert log.read_entry(2) is None
    assert (
        run(Counting(log, before_create=[delayed(clock, TIMEOUT_MS + 1, lambda: True)]), state_at(log, 1)).commit == 8
    )
