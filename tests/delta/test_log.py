"""Looking beyond a position, and creating the next entry: whom it belongs to whatever the store answers (L1, L2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.delta.actions import Entry, SetTransaction, encode_entry
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    StoreFullError,
    StorePermissionError,
)
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.entry_log import Created, PositionLost, Taken
from sparklog.storage.position import Position
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock

TRUST_MS = 60_000


def an_entry(token: str) -> bytes:
    return encode_entry(
        actions=[SetTransaction(app_id=token, version=1, last_updated_ms=0)],
        token=token,
        info={},
        operation="WRITE",
        blind_append=True,
        timestamp_ms=0,
        version="test",
    )


def a_bare_log(*tokens: str, store: ObjectStore | None = None, clock: ManualClock | None = None) -> DeltaLog:
    """A log whose entries carry these tokens; on the bare store, without retries."""
    store = store or MemoryStore()
    for version, token in enumerate(tokens):
        store.create(entry_path("t", version), an_entry(token))
    return DeltaLog(store=store, table="t", clock=clock or ManualClock(), tail_trust_ms=TRUST_MS)


def wrapped(log: DeltaLog, *faults: Fault) -> DeltaLog:
    clock = log.clock
    assert isinstance(clock, ManualClock)
    return DeltaLog(
        store=FaultyStore(log.store, *faults, clock=clock), table=log.table, clock=clock, tail_trust_ms=TRUST_MS
    )


def at(version: int, token: str, anchor: float = 0) -> Position:
    return Position(version=version, token=token, anchor_ticks_ms=anchor)


def create(
    log: DeltaLog, position: Position, tokens: set[str] | None = None, *, timeout_ms: float = 30_000
) -> Created | Taken[Entry]:
    """``tokens``: of earlier attempts; those of this one are added."""
    deadline = log.clock.deadline_in(timeout_ms)
    tokens = set() if tokens is None else tokens
    return log.create_next(position, an_entry, tokens=tokens, deadline=deadline, sync=True)


def token_of(log: DeltaLog, version: int) -> str:
    entry = log.read_entry(version)
    assert entry is not None
    return entry.token


def passing(log: DeltaLog, duration_ms: float) -> None:
    log.clock.sleep_ms(duration_ms)


# --- looking


def test_a_look_returns_what_follows_up_to_the_first_gap() -> None:
    log = a_bare_log("a", "b", "c")
    log.store.create(entry_path("t", 4), an_entry("e"))
    look = log.look(at(0, "a"), ahead=8)
    assert [entry.token for entry in look.entries] == ["b", "c"]
    assert (look.position.version, look.position.token) == (2, "c")


def test_a_look_costs_one_get_within_the_trust_and_a_get_and_a_list_more_after_it() -> None:
    store = CountingStore(MemoryStore())
    log = a_bare_log("a", store=store)
    store.reset()
    log.look(at(0, "a"))
    assert store.counts() == {"get": 1}
    store.reset()
    passing(log, TRUST_MS + 1)
    log.look(at(0, "a"))
    assert store.counts() == {"get": 2, "list": 1}


def test_only_a_look_that_finds_the_tail_renews_the_trust() -> None:
    log = a_bare_log("a", "b")
    passing(log, 5_000)
    assert log.look(at(0, "a")).position == at(1, "b", anchor=0)  # found something: was there more?
    assert log.look(at(0, "a"), ahead=2).position == at(1, "b", anchor=5_000)
    assert log.look(at(1, "b")).position == at(1, "b", anchor=5_000)


def test_the_trust_counts_from_before_the_look_not_from_its_answer() -> None:
    log = a_bare_log("a")
    slow = wrapped(log, Fault(kind=FaultKind.DELAY, ops=["get"], delay_ms=10_000))
    assert slow.look(at(0, "a")).position.anchor_ticks_ms == 0


@pytest.mark.parametrize("replaced_by", [None, "stray"], ids=["gone", "another"])
@pytest.mark.parametrize("tokens", [("a",), ("a", "b")], ids=["nothing follows", "something follows"])
def test_after_the_trust_a_look_counts_only_if_the_own_entry_is_still_the_same(
    tokens: tuple[str, ...], replaced_by: str | None
) -> None:
    log = a_bare_log(*tokens)
    log.store.delete([entry_path("t", 0)])
    if replaced_by:
        log.store.create(entry_path("t", 0), an_entry(replaced_by))
    log.look(at(0, "a"))  # within the trust nothing can have been cleaned: it isn't checked
    passing(log, TRUST_MS + 1)
    with pytest.raises(PositionLost):
        log.look(at(0, "a"))


def test_verification_comes_after_what_it_is_to_confirm() -> None:
    log = a_bare_log("a", "b")
    passing(log, TRUST_MS + 1)
    store = FaultyStore(log.store)
    DeltaLog(store=store, table="t", clock=log.clock, tail_trust_ms=TRUST_MS).look(at(0, "a"))
    assert store.calls == (
        ("get", entry_path("t", 1)),
        ("list", log.folder),
        ("get", entry_path("t", 0)),
        ("list", log.cleanup_marks),
    )


@pytest.mark.parametrize(("below", "is_lost"), [(0, False), (1, False), (2, True), (9, True)])
def test_after_the_trust_a_look_counts_only_if_no_mark_lies_above_the_own_entry(below: int, is_lost: bool) -> None:
    """Its own entry is still there, but the one behind it may have been deleted, and created by somebody who slept."""
    log = a_bare_log("a", "b", "c")
    for mark in range(1, below + 1):
        log.mark_cleaned(mark)
    assert log.cleaned_below() == below
    passing(log, TRUST_MS + 1)
    if is_lost:
        with pytest.raises(PositionLost):
            log.look(at(1, "b"))
    else:
        assert [entry.token for entry in log.look(at(1, "b")).entries] == ["c"]


def test_a_listing_of_marks_that_takes_longer_than_the_trust_proves_nothing() -> None:
    # A mark goes once a greater one is old: while a listing was under way for that long, both may have escaped it.
    log = a_bare_log("a", "b")
    passing(log, TRUST_MS + 1)
    slow = wrapped(log, Fault(kind=FaultKind.DELAY, ops=["list"], delay_ms=TRUST_MS + 1, times=2))
    with pytest.raises(PositionLost):
        slow.look(at(0, "a"))


def test_a_look_that_itself_takes_longer_than_the_trust_is_verified() -> None:
    log = a_bare_log("a", "b")
    log.store.delete([entry_path("t", 0)])
    slow = wrapped(log, Fault(kind=FaultKind.DELAY, ops=["get"], delay_ms=TRUST_MS + 1))
    with pytest.raises(PositionLost):
        slow.look(at(0, "a"))


def test_a_corrupt_entry_ahead_is_named() -> None:
    log = a_bare_log("a")
    log.store.create(entry_path("t", 1), b'{"add":')
    with pytest.raises(CorruptLogError, match=entry_path("t", 1)):
        log.look(at(0, "a"))


# --- creating


def test_a_create_renews_the_trust_from_when_it_began() -> None:
    log = a_bare_log("a")
    passing(log, 7_000)
    slow = wrapped(log, Fault(kind=FaultKind.DELAY, ops=["create"], delay_ms=1_000))
    tokens: set[str] = set()
    assert create(slow, at(0, "a"), tokens) == Created(at(1, token_of(log, 1), anchor=7_000))
    assert tokens == {token_of(log, 1)}


def test_a_name_that_another_holds_is_his_and_doesnt_renew_the_trust() -> None:
    log = a_bare_log("a", "other")
    tokens = {"of an earlier attempt"}
    taken = create(log, at(0, "a"), tokens)
    assert isinstance(taken, Taken)
    assert taken.entry.token == "other"
    assert len(tokens) == 2


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.OWN_SUCCESS])
def test_an_entry_that_carries_our_token_is_ours_though_the_store_says_it_exists(kind: FaultKind) -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=kind, ops=["create"]))
    tokens: set[str] = set()
    assert create(log, at(0, "a"), tokens) == Created(at(1, token_of(log, 1), anchor=0))
    assert token_of(log, 1) in tokens
    assert len(tokens) == (2 if kind is FaultKind.LOST_ANSWER else 1)


class Attempts:
    """Encodes entries, and tells what each attempt was given; may do something before one of them."""

    def __init__(self, *, before: dict[int, Callable[[], None]] | None = None) -> None:
        self.tokens: list[str] = []
        self._before = before or {}

    def __call__(self, token: str) -> bytes:
        self._before.get(len(self.tokens), lambda: None)()
        self.tokens.append(token)
        return an_entry(token)

    def create(self, log: DeltaLog, position: Position, tokens: set[str]) -> Created | Taken[Entry]:
        deadline = log.clock.deadline_in(30_000)
        return log.create_next(position, self, tokens=tokens, deadline=deadline, sync=True)


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.THROTTLED])
def test_every_attempt_carries_and_hands_over_a_token_of_its_own(kind: FaultKind) -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=kind, ops=["create"], times=3))
    attempts, tokens = Attempts(), {"of an earlier version"}
    assert attempts.create(log, at(0, "a"), tokens) == Created(at(1, attempts.tokens[3], anchor=log.clock.ticks_ms()))
    assert len(set(attempts.tokens)) == 4
    assert tokens == {"of an earlier version", *attempts.tokens}
    assert token_of(log, 1) == attempts.tokens[3]


@pytest.mark.parametrize("landed", range(3))
def test_whichever_attempt_landed_is_ours_and_the_position_carries_its_token(landed: int) -> None:
    faults = [FaultKind.LOST_REQUEST] * landed + [FaultKind.LOST_ANSWER] + [FaultKind.LOST_REQUEST] * (2 - landed)
    log = wrapped(a_bare_log("a"), *(Fault(kind=kind, ops=["create"]) for kind in faults))
    attempts = Attempts()
    assert attempts.create(log, at(0, "a"), set()) == Created(at(1, attempts.tokens[landed], anchor=0))
    assert len(attempts.tokens) == 4
    assert token_of(log, 1) == attempts.tokens[landed]


def test_an_entry_created_again_after_it_was_cleaned_doesnt_look_like_the_first() -> None:
    # Others stood on it: finding its token there again, they would believe what follows (rule L1).
    bare = a_bare_log("a")
    seen: list[str] = []

    def others_read_it_and_clean_it() -> None:
        seen.append(token_of(bare, 1))
        bare.store.delete([entry_path("t", 1)])

    log = wrapped(bare, Fault(kind=FaultKind.LOST_ANSWER, ops=["create"]))
    attempts = Attempts(before={1: others_read_it_and_clean_it})
    created = attempts.create(log, at(0, "a"), set())
    assert isinstance(created, Created)
    assert seen == attempts.tokens[:1]
    assert created.position.token == token_of(bare, 1) == attempts.tokens[1] != seen[0]
    with pytest.raises(PositionLost):
        bare.verify(at(1, seen[0]))


def test_a_time_out_leaves_the_tokens_of_all_its_attempts() -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=FaultKind.LOST_REQUEST, ops=["create"], times=None))
    attempts, tokens = Attempts(), set[str]()
    with pytest.raises(CommitStateUnknownError):
        attempts.create(log, at(0, "a"), tokens)
    assert tokens == set(attempts.tokens)
    assert len(tokens) == len(attempts.tokens) > 3


def test_an_entry_of_ours_that_was_found_doesnt_renew_the_trust() -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=FaultKind.LOST_ANSWER, ops=["create"]))
    passing(log, 5_000)
    assert create(log, at(0, "a")) == Created(at(1, token_of(log, 1), anchor=0))


def test_an_entry_of_ours_that_was_found_is_flushed_before_it_counts() -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=FaultKind.LOST_ANSWER, ops=["create"]))
    create(log, at(0, "a"))
    assert isinstance(log.store, FaultyStore)
    assert ("sync", entry_path("t", 1)) in log.store.calls


def test_a_lost_request_is_repeated_until_it_is_known_who_holds_the_name() -> None:
    lost = Fault(kind=FaultKind.LOST_REQUEST, ops=["create"], times=3)
    log = wrapped(a_bare_log("a"), lost)
    assert isinstance(create(log, at(0, "a")), Created)
    log = wrapped(a_bare_log("a", "other"), lost)
    assert isinstance(create(log, at(0, "a")), Taken)


@pytest.mark.parametrize("kind", [FaultKind.CONFLICT, FaultKind.THROTTLED])
def test_a_store_that_refuses_until_the_deadline_isnt_believed(kind: FaultKind) -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=kind, ops=["create"], times=None))
    with pytest.raises(CommitStateUnknownError):
        create(log, at(0, "a"))
    assert 30_000 <= log.clock.ticks_ms() < 32_000


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER])
def test_what_isnt_settled_by_the_deadline_is_unknown(kind: FaultKind) -> None:
    log = wrapped(
        a_bare_log("a"),
        Fault(kind=kind, ops=["create"]),
        Fault(kind=FaultKind.THROTTLED, ops=["create", "get"], times=None),
    )
    with pytest.raises(CommitStateUnknownError):
        create(log, at(0, "a"))


def test_created_but_not_verified_by_the_deadline_is_unknown_not_a_plain_time_out() -> None:
    # The entry is in the log: "nothing was stored" would make the caller store it again.
    log = wrapped(
        a_bare_log("a"),
        Fault(kind=FaultKind.DELAY, ops=["create"], delay_ms=TRUST_MS + 1),
        Fault(kind=FaultKind.THROTTLED, ops=["get"], times=None),
    )
    with pytest.raises(CommitStateUnknownError):
        create(log, at(0, "a"))


def test_exists_but_not_read_back_by_the_deadline_is_unknown_because_it_may_be_ours() -> None:
    log = wrapped(
        a_bare_log("a"),
        Fault(kind=FaultKind.OWN_SUCCESS, ops=["create"]),
        Fault(kind=FaultKind.THROTTLED, ops=["get"], times=None),
    )
    with pytest.raises(CommitStateUnknownError):
        create(log, at(0, "a"))


@pytest.mark.parametrize(
    ("kind", "error"), [(FaultKind.DISK_FULL, StoreFullError), (FaultKind.READ_ONLY, StorePermissionError)]
)
def test_a_refusal_for_good_is_told_at_once(kind: FaultKind, error: type[Exception]) -> None:
    log = wrapped(a_bare_log("a"), Fault(kind=kind, ops=["create"]))
    with pytest.raises(error):
        create(log, at(0, "a"))
    assert log.clock.ticks_ms() == 0


def test_a_refusal_for_good_after_a_lost_answer_is_unknown() -> None:
    log = wrapped(
        a_bare_log("a"),
        Fault(kind=FaultKind.LOST_REQUEST, ops=["create"]),
        Fault(kind=FaultKind.READ_ONLY, ops=["create"], times=None),
    )
    with pytest.raises(CommitStateUnknownError):
        create(log, at(0, "a"))


def test_a_create_after_the_trust_counts_only_if_the_own_entry_is_still_there() -> None:
    log = a_bare_log("a")
    passing(log, TRUST_MS + 1)
    assert isinstance(create(log, at(0, "a")), Created)
    log.store.delete([entry_path("t", 0), entry_path("t", 1)])
    with pytest.raises(PositionLost):
        create(log, at(0, "a"))


@pytest.mark.parametrize("token", ["other", "mine"])
def test_a_name_found_taken_late_counts_only_if_the_own_entry_is_still_there(token: str) -> None:
    log = a_bare_log("a", token)
    passing(log, TRUST_MS + 1)
    found = create(log, at(0, "a"), {"mine"})
    if token == "mine":
        assert found == Created(at(1, "mine", anchor=0))
    else:
        assert isinstance(found, Taken)
    log.store.delete([entry_path("t", 0)])
    with pytest.raises(PositionLost):
        create(log, at(0, "a"), {"mine"})


def test_a_create_that_itself_takes_longer_than_the_trust_is_verified() -> None:
    log = a_bare_log("a")
    log.store.delete([entry_path("t", 0)])
    slow = wrapped(log, Fault(kind=FaultKind.DELAY, ops=["create"], delay_ms=TRUST_MS + 1))
    with pytest.raises(PositionLost):
        create(slow, at(0, "a"))


def test_a_taken_name_whose_entry_is_gone_when_it_is_read_is_a_lost_position() -> None:
    log = a_bare_log("a", "other")

    class Vanishing(FaultyStore):
        def _call(self, op, path, call):
            if op == "get":
                log.store.delete([path])
            return super()._call(op, path, call)

    behind = DeltaLog(store=Vanishing(log.store), table="t", clock=log.clock)
    with pytest.raises(PositionLost):
        create(behind, at(0, "a"))


@pytest.mark.parametrize("make", [lambda log: log.verify(at(-1, "")), lambda log: log.verify(at(0, "b"))])
def test_nothing_and_another_token_cant_be_verified(make: Callable[[DeltaLog], None]) -> None:
    with pytest.raises(PositionLost):
        make(a_bare_log("a"))
