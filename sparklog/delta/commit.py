"""The commit loop of every table: decide, create the next version, and on losing the race apply what won and decide
again.

:func:`run_commit_loop` is the one way in which a Delta table of ours gets its next version; what is written, how a
winner's entry is applied and how a lost base is settled, a :class:`CommitTarget` says. The create-only put of one log
entry is the commit point. Before it nothing has happened: a process may die or be interrupted there, and leaves at most
files that no version names. After it the commit stands: whoever dies then has committed without an acknowledgement, and
an answer that was lost is settled by the entry's token (rule L2, unknown) or, where the base is gone, by the reloaded
table.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from sparklog.clock import Deadline
from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    SparklogError,
    StoreError,
    UnsupportedVersionError,
)
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position
from sparklog.storage.retrying import retry

__all__ = [
    "CommitResult",
    "CommitTarget",
    "Draft",
    "TableState",
    "UploadsGoneError",
    "run_commit_loop",
    "sync_committed",
    "sync_unsynced",
]

_LOSSES_BEFORE_YIELDING = 2
_MAX_YIELD_ROUND_TRIPS = 16
_LONGEST_ROUND_TRIP_MS = 1_000.0
"""A commit that took longer was a stall, not a round trip: nobody is to wait for as long again."""


class TableState(Protocol):
    """The state of a table as one process knows it, as of one version."""

    @property
    def position(self) -> Position:
        """The version, and what is known of the log's tail."""

    @property
    def unwritable(self) -> UnsupportedVersionError | None:
        """The reason why nobody of ours may commit: another engine asks for a newer Delta writer."""


T = TypeVar("T")
S = TypeVar("S", bound=TableState)
D = TypeVar("D")
"""A decision: what is to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult(Generic[S, D]):
    """The result of a commit."""

    state: S
    """The state that is known now; the state that was handed in isn't used any more."""
    commit: D | None
    """The commit that was written, at ``state``'s version; None where the decision was that nothing is left to do."""
    lost_races: int
    round_trip_ms: float
    """How long the newest attempt took whose answer came; 0 where nothing was written."""


class UploadsGoneError(ObjectNotFoundError):
    """Files that an entry was to name aren't there. It wasn't created."""

    def __init__(self, table: str, paths: Sequence[str]) -> None:
        super().__init__(
            f"{table}: {len(paths)} files that were to be committed are gone ({paths[0]}, …): they were uploaded while "
            "another storage was in the place of this one, or were deleted; nothing was committed"
        )
        self.paths = frozenset(paths)
        """Relative to the table's folder."""


class Draft(ABC, Generic[S]):
    """One attempt at the next version: an entry that waits for its token."""

    began_ticks_ms: float
    """When the attempt began."""
    sync: bool
    """Is the entry fsynced as it is created (rule L9, fsync)?"""

    @abstractmethod
    def encode(self, token: str) -> bytes:
        """The entry's bytes with ``token``."""

    def confirm(self, checked_ticks_ms: float) -> None:
        """Make sure that the files which the entry adds lie where its log is: those that were uploaded before a check
        of the ground which began then (rule L17, ground). No request where there are none.

        Raises:
            UploadsGoneError: some don't.
            StoreError.
        """

    @abstractmethod
    def apply_to(self, state: S, position: Position) -> S:
        """The state after the entry was created at ``position``. Raises ``CommitStateUnknownError`` where the entry may
        not survive a power loss."""


class CommitTarget(ABC, Generic[S, D]):
    """One call's way to commit to one kind of table. Belongs to the thread that commits.

    Any method but :meth:`decide` may call the store. Those by which the loop reads, :meth:`apply_winner`,
    :meth:`catch_up` and :meth:`load`, are repeated on retriable store errors until the deadline.
    """

    def __init__(self, log: DeltaLog, *, deadline: Deadline) -> None:
        """
        Args:
            deadline: on the log's clock; a commit that won is success however late.
        """
        self.log = log
        self.deadline = deadline

    @abstractmethod
    def decide(self, state: S) -> D | None:
        """Decide what to write on ``state``; None: nothing (more) to do. Raises to give up.

        Called anew after every version that is applied (rule L4, decide again).
        """

    @abstractmethod
    def end_without_commit(self, state: S) -> tuple[S, bool]:
        """Nothing is to be written: the state, and whether that holds. False: decide again on this state, which is
        newer."""

    @abstractmethod
    def prepare(self, state: S, decision: D, *, lost_races: int) -> Draft[S] | None:
        """Do all that precedes the create: upload, fsync what comes before, wait. None: decide again."""

    @abstractmethod
    def settle(self, lost: PositionLost) -> tuple[S, bool]:
        """The base of an attempt is gone: the reloaded state, and whether the attempt is known to be in it. False: it
        isn't, or the next decision on the state finds it.

        Raises:
            CommitStateUnknownError: that can't be found out.
        """

    def replace_uploads(self, gone: UploadsGoneError) -> None:
        """Files that the entry was to name aren't there; it wasn't tried. What is decided and prepared next names
        others. Raises ``gone`` where it can't."""
        raise gone

    @abstractmethod
    def apply_winner(self, state: S, winner: Entry, *, catches_up: bool) -> S:
        """Go on by the entry that another created after ``state``.

        Args:
            catches_up: :meth:`catch_up` comes next: what the newest entry alone states needn't be read from this one.
        Raises:
            PositionLost: load the table.
        """

    @abstractmethod
    def catch_up(self, state: S) -> S:
        """Go on to the log's tail. Raises ``PositionLost``: load the table."""

    @abstractmethod
    def load(self) -> S:
        """The table as of now, read anew."""

    def after_loss(self, state: S, winner: Entry, *, lost_races: int, round_trip_ms: float) -> S:
        """The state after a lost race. Several writers that all try again at once lose as often as there are others,
        and each loss costs two requests: from the second on, wait and read on to the tail (rule L11, fairness).

        Args:
            lost_races: how many this commit has lost.
            round_trip_ms: how long the newest attempt took.
        """
        yields = lost_races >= _LOSSES_BEFORE_YIELDING
        try:
            state = self.retry_until_deadline(partial(self.apply_winner, state, winner, catches_up=yields))
            if yields:
                longest_ms = round_trip_ms * min(lost_races, _MAX_YIELD_ROUND_TRIPS)
                longest_ms = min(longest_ms, self.deadline.left_ms)
                self.log.clock.sleep_ms(random.uniform(0, longest_ms))  # noqa: S311 - spreads writers, no secret
                state = self.retry_until_deadline(partial(self.catch_up, state))
        except PositionLost:
            state = self.retry_until_deadline(self.load)
        return state

    def retry_until_deadline(self, call: Callable[[], T]) -> T:
        """The result of ``call``, repeated on retriable store errors until the deadline. No entry of ours may be under
        way.

        Raises:
            KafkaTimeoutError: the deadline passed; nothing was and nothing will be committed.
        """
        try:
            return self._retry(call)
        except StoreError as error:
            if not error.retriable:
                raise
            raise KafkaTimeoutError(f"timed out while reading or writing {self.log.table}: {error}") from error

    def load_unsettled(self, lost: PositionLost, load: Callable[[], T]) -> T:
        """The result of ``load``, which decides whether an attempt of ours whose base is gone is in the log. Its name
        was taken when it was last looked at: if the attempt isn't there by now, it won't be.

        Raises:
            CommitStateUnknownError: the table can't be loaded in time.
        """
        try:
            return self._retry(load)
        except SparklogError as error:
            raise CommitStateUnknownError(
                f"whether {lost} was created is unknown, and {self.log.table} can't be loaded to find out: {error}"
            ) from error

    def _retry(self, call: Callable[[], T]) -> T:
        return retry(call, deadline=self.deadline)


def run_commit_loop(target: CommitTarget[S, D], state: S, *, tokens: set[str] | None = None) -> CommitResult[S, D]:
    """Commit what ``target`` decides, at whichever version is free. Never gives up because others were faster.

    Args:
        tokens: an empty set that gets the tokens of all attempts, for whoever must find the entry later.
    Raises:
        KafkaTimeoutError: the deadline passed; nothing was and nothing will be committed.
        CommitStateUnknownError: the deadline passed while an attempt may still be carried out.
        UnsupportedVersionError: :attr:`TableState.unwritable`.
        StoreError: the store refuses for good; and whatever ``target`` raises.
    """
    return _CommitLoop(target, set() if tokens is None else tokens).run(state)


class _CommitLoop(Generic[S, D]):
    """One commit on its way: the races that it lost, and how long its newest attempt took."""

    def __init__(self, target: CommitTarget[S, D], tokens: set[str]) -> None:
        self._target = target
        self._clock = target.log.clock
        self._tokens = tokens
        self._lost_races = 0
        self._round_trip_ms = 0.0

    def run(self, state: S) -> CommitResult[S, D]:
        target = self._target
        while True:
            decision = target.decide(state)
            if decision is None:
                state, is_final = target.end_without_commit(state)
                if is_final:
                    return CommitResult(state=state, commit=None, lost_races=self._lost_races, round_trip_ms=0.0)
                continue
            self._check_may_commit(state)
            draft = target.prepare(state, decision, lost_races=self._lost_races)
            if draft is None:
                continue
            state, is_committed = self._attempt(state, draft)
            if is_committed:
                return CommitResult(
                    state=state, commit=decision, lost_races=self._lost_races, round_trip_ms=self._round_trip_ms
                )

    def _check_may_commit(self, state: S) -> None:
        if state.unwritable is not None:  # only now: what is done already, perhaps by a lost create of ours, is done
            raise state.unwritable.with_traceback(None)
        if self._lost_races and self._target.deadline.has_passed:
            raise KafkaTimeoutError(
                f"timed out after losing {self._lost_races} races for the next version of {self._target.log.table}"
            )

    def _attempt(self, state: S, draft: Draft[S]) -> tuple[S, bool]:
        """Create the next version: the state afterwards, and whether it is ours."""
        target = self._target
        try:
            outcome = target.log.create_next(
                state.position,
                draft.encode,
                tokens=self._tokens,
                deadline=target.deadline,
                sync=draft.sync,
                confirm=draft.confirm,
            )
        except UploadsGoneError as gone:
            self._lost_races += 1  # nobody goes on so behind the deadline
            target.replace_uploads(gone)
            return state, False
        except PositionLost as lost:
            self._lost_races += 1
            if lost.nothing_tried:
                return target.retry_until_deadline(target.load), False
            return target.settle(lost)
        except StoreError as error:  # of the check before the create: nothing is under way
            if not error.retriable:
                raise
            raise KafkaTimeoutError(f"timed out while checking {target.log.table}: {error}") from error
        self._round_trip_ms = min(self._clock.ticks_ms() - draft.began_ticks_ms, _LONGEST_ROUND_TRIP_MS)
        if isinstance(outcome, Created):
            return draft.apply_to(state, outcome.position), True
        self._lost_races += 1
        followed = target.after_loss(
            state, outcome.entry, lost_races=self._lost_races, round_trip_ms=self._round_trip_ms
        )
        return followed, False


def sync_unsynced(log: DeltaLog, unsynced: Sequence[str] | None) -> None:
    """Fsync the objects that others wrote before anything is built upon them or said of them (rule L9, fsync).

    Once: after a failed fsync the system may call the next one a success though the data is gone.

    Args:
        unsynced: their paths; None: not known which.
    Raises:
        StoreError.
    """
    if unsynced is None:
        log.store.sync_all()
    elif unsynced:
        log.store.sync(unsynced)


def sync_committed(log: DeltaLog, version: int, sync: Callable[[], T]) -> T:
    """The result of ``sync``, which fsyncs a version that is committed already: acknowledged is what is durable,
    however late (rule L9, fsync).

    Raises:
        CommitStateUnknownError: in place of the store's error.
    """
    try:
        return sync()
    except StoreError as error:
        raise CommitStateUnknownError(
            f"version {version} of {log.table} is committed, but may not survive a power loss: {error}"
        ) from error
