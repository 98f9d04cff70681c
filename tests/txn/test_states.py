"""Which state may follow which: Kafka's tables, but for what isn't written (Ongoing, PrepareEpochFence, Dead)."""

from __future__ import annotations

import itertools

import pytest

from sparklog.errors import IllegalStateError, InvalidTxnStateError
from sparklog.txn.states import STEPS, WRITTEN, ClientState, TransactionState, check_client_step, check_step

S, C = TransactionState, ClientState

KAFKAS: dict[TransactionState, set[TransactionState]] = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
}
"""State to those that may come before it. Source: Kafka ``TransactionState.VALID_PREVIOUS_STATES``."""


def kafka_allows(before: TransactionState, after: TransactionState) -> bool:
    """At once, or over Ongoing, of which nothing is written here."""
    return before in KAFKAS[after] or (S.ONGOING in KAFKAS[after] and before in KAFKAS[S.ONGOING])


def test_what_may_follow_is_what_kafka_allows() -> None:
    for before, after in itertools.product(WRITTEN, WRITTEN):
        assert (after in STEPS[before]) == kafka_allows(before, after), (before, after)
    assert STEPS[None] == {S.EMPTY}
    assert set(STEPS) == {None, *WRITTEN}
    assert S.ONGOING not in WRITTEN


def test_a_decision_has_no_way_back() -> None:
    with pytest.raises(InvalidTxnStateError, match=r"is PrepareCommit can't become PrepareAbort; .* CompleteCommit"):
        check_step(S.PREPARE_COMMIT, S.PREPARE_ABORT)
    with pytest.raises(InvalidTxnStateError, match="not there can't become PrepareCommit; expected one of Empty"):
        check_step(None, S.PREPARE_COMMIT)
    check_step(S.PREPARE_ABORT, S.COMPLETE_ABORT)


def test_every_state_is_open_or_prepared_but_ongoing() -> None:
    assert {state for state in S if state.is_open} == {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert {state for state in S if state.is_prepared} == {S.PREPARE_COMMIT, S.PREPARE_ABORT}
    assert all(S.PREPARE_ABORT in STEPS[state] for state in S if state.is_open)


LEGAL = {
    (C.UNINITIALIZED, C.INITIALIZING),
    (C.INITIALIZING, C.INITIALIZING),
    (C.INITIALIZING, C.READY),
    (C.READY, C.IN_TRANSACTION),
    (C.IN_TRANSACTION, C.COMMITTING),
    (C.IN_TRANSACTION, C.ABORTING),
    (C.IN_TRANSACTION, C.ABORTABLE_ERROR),
    (C.COMMITTING, C.COMMITTING),
    (C.COMMITTING, C.READY),
    (C.COMMITTING, C.ABORTABLE_ERROR),
    (C.ABORTING, C.ABORTING),
    (C.ABORTING, C.READY),
    (C.ABORTABLE_ERROR, C.ABORTING),
    (C.ABORTABLE_ERROR, C.ABORTABLE_ERROR),
}
"""Source: Kafka ``TransactionManager.State.isTransitionValid``; a commit or abort that timed out is repeated."""


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [*itertools.product(C, C)], ids=lambda state: state.name)
def test_a_producer_goes_kafkas_ways(before: ClientState, after: ClientState) -> None:
    if (before, after) in LEGAL or after is C.FATAL_ERROR:
        check_client_step("call", before, after)
        return
    with pytest.raises((IllegalStateError, InvalidTxnStateError), match=f"call: this producer is {before.value}"):
        check_client_step("call", before, after)


@pytest.mark.slow
def test_after_a_commit_whose_end_isnt_known_an_abort_is_refused_by_name() -> None:
    for before, after in ((C.COMMITTING, C.ABORTING), (C.ABORTING, C.COMMITTING)):
        with pytest.raises(InvalidTxnStateError, match="only the same call may be repeated"):
            check_client_step("abort_transaction", before, after)
