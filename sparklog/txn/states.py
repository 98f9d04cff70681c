"""The states of a transaction and of its producer, and the steps between them. Pure.

Source: Kafka ``TransactionState.VALID_PREVIOUS_STATES`` and ``TransactionManager.State.isTransitionValid``. What is
written are the five states of :data:`WRITTEN`; *Ongoing* is what lies between a state that is complete and the next
decision: nothing is written of it (rule T4, open sessions).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from sparklog.errors import IllegalStateError, InvalidTxnStateError

__all__ = ["STEPS", "WRITTEN", "ClientState", "TransactionState", "check_client_step", "check_step"]


class TransactionState(enum.Enum):
    """States of the newest transaction of a transactional id; the values are Kafka's names."""

    EMPTY = "Empty"
    """A new epoch began; no transaction in it was decided."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided: it will be visible everywhere, whatever happens to its producer."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Visible everywhere."""
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_open(self) -> bool:
        """May the next entry be a decision?"""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_prepared(self) -> bool:
        """Is it decided, and perhaps not carried out yet?"""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_DECISIONS = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, TransactionState.EMPTY})

STEPS: Mapping[TransactionState | None, frozenset[TransactionState]] = MappingProxyType(
    {
        None: frozenset({TransactionState.EMPTY}),
        TransactionState.EMPTY: _DECISIONS,
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
        TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
        TransactionState.COMPLETE_COMMIT: _DECISIONS,
        TransactionState.COMPLETE_ABORT: _DECISIONS,
    }
)
"""The states that may follow each state; None stands before the first."""

WRITTEN = frozenset(TransactionState) - {TransactionState.ONGOING}
"""The states that entries have."""


def check_step(before: TransactionState | None, after: TransactionState) -> None:
    """Raises ``InvalidTxnStateError`` unless an entry of state ``after`` may follow one of ``before``."""
    if after not in STEPS[before]:
        raise InvalidTxnStateError(
            f"a transaction that is {before.value if before else 'not there'} can't become {after.value}; "
            f"expected one of {', '.join(sorted(state.value for state in STEPS[before]))}"
        )


class ClientState(enum.Enum):
    """States of a producer with a transactional id. Source: Kafka ``TransactionManager.State``."""

    UNINITIALIZED = "before init_transactions"
    INITIALIZING = "in init_transactions, which didn't end"
    READY = "without a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "in commit_transaction, which didn't end"
    ABORTING = "in abort_transaction, which didn't end"
    ABORTABLE_ERROR = "in a transaction that failed: abort it"
    FATAL_ERROR = "at its end: close it"


_CLIENT_STEPS: Mapping[ClientState, frozenset[ClientState]] = MappingProxyType(
    {
        ClientState.UNINITIALIZED: frozenset({ClientState.INITIALIZING}),
        ClientState.INITIALIZING: frozenset({ClientState.INITIALIZING, ClientState.READY}),
        ClientState.READY: frozenset({ClientState.IN_TRANSACTION}),
        ClientState.IN_TRANSACTION: frozenset(
            {ClientState.COMMITTING, ClientState.ABORTING, ClientState.ABORTABLE_ERROR}
        ),
        ClientState.COMMITTING: frozenset({ClientState.COMMITTING, ClientState.READY, ClientState.ABORTABLE_ERROR}),
        ClientState.ABORTING: frozenset({ClientState.ABORTING, ClientState.READY}),
        ClientState.ABORTABLE_ERROR: frozenset({ClientState.ABORTING, ClientState.ABORTABLE_ERROR}),
        ClientState.FATAL_ERROR: frozenset(),
    }
)


def check_client_step(what: str, before: ClientState, after: ClientState) -> None:
    """May a producer go from one state to another? ``FATAL_ERROR`` is always near.

    Args:
        what: the method that was called.
    Raises:
        InvalidTxnStateError: abort_transaction after a commit whose outcome isn't known, or the other way round.
        IllegalStateError: the methods were called in another wrong order.
    """
    if after is ClientState.FATAL_ERROR or after in _CLIENT_STEPS[before]:
        return
    decided = {ClientState.COMMITTING, ClientState.ABORTING}
    if before in decided and after in decided:
        raise InvalidTxnStateError(f"{what}: this producer is {before.value}; only the same call may be repeated")
    raise IllegalStateError(f"{what}: this producer is {before.value}")
