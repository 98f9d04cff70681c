"""Rules that are switched off in the code itself, one by one: a trace that is played must show it.

What :mod:`proof.simulation.cluster.planted` has is taken from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

from proof.model import playing, playing_transactions
from sparklog.clock import Deadline
from sparklog.delta import cleanup, snapshot
from sparklog.delta.cleanup import CleanupBatch, CleanupResult
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import parse_name
from sparklog.groups.offsets.pending import PendOffsets
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, OffsetRow
from sparklog.log import Cluster, append, append_plan
from sparklog.log.commit import commit
from sparklog.storage.entry_log import Created, EntryLog, Look, NumberedLog, Taken
from sparklog.storage.position import Position, advance
from sparklog.txn import deciding, deciding_for_groups
from sparklog.txn.cleaning import KEEP_MS
from sparklog.txn.entries import TransactionEntry, TransactionLog, append_entry, open_transaction_log
from sparklog.txn.session import TransactionSession
from sparklog.txn.states import TransactionState
from tests.support import DAY_MS

__all__ = [
    "Plant",
    "a_decision_is_complete_at_once",
    "an_offset_counts_before_its_records_are_visible",
    "another_counts_by_its_name",
    "anybody_leaves_offsets",
    "cleanup_goes_by_its_own_clock",
    "cleanup_leaves_no_mark",
    "cleanup_marks_afterwards",
    "cleanup_needs_no_checkpoint",
    "entries_are_as_old_as_themselves",
    "exists_is_success",
    "finding_an_entry_refreshes_trust",
    "ground_is_not_checked",
    "its_own_entry_shows_that_nothing_was_cleaned",
    "nobody_looks_for_the_counter",
    "the_first_decision_stands",
    "the_newest_is_told_by_the_one_before",
    "the_next_free_number_is_aborted",
    "transaction_entries_are_as_old_as_themselves",
    "verified_beforehand",
    "what_was_listed_is_the_newest",
    "what_was_listed_is_there",
]

Planted = AbstractContextManager[object]
Plant = Callable[[], Planted]


def _nothing() -> None:
    """Neither is anything else to be done before a deletion, nor is the folder looked at."""


def _all(*plants: Planted) -> Planted:
    stack = ExitStack()
    for plant in plants:
        stack.enter_context(plant)
    return stack


# Of every log.


def verified_beforehand() -> Planted:
    """Rule L1: who was silent verifies its own entry before the create, not after it."""
    create = EntryLog.create_next

    def create_next(self: Any, position: Position, encode: Any, **kwargs: Any) -> Any:
        self._verify_if_due(position)
        return create(self, replace(position, anchor_ticks_ms=math.inf), encode, **kwargs)

    return mock.patch.object(EntryLog, "create_next", create_next)


def finding_an_entry_refreshes_trust() -> Planted:
    """Rule L1: a look moves the anchor also where it doesn't see the tail."""
    look = EntryLog.look

    def refreshed(self: Any, position: Position, *, ahead: int = 1) -> Look[Any]:
        began = self.clock.ticks_ms()
        found = look(self, position, ahead=ahead)
        return replace(found, position=replace(found.position, anchor_ticks_ms=began))

    return mock.patch.object(EntryLog, "look", refreshed)


def ground_is_not_checked() -> Planted:
    """Rule L17, ground: a check before the create hides most of what the other rules prevent."""
    return mock.patch.object(EntryLog, "_ground_is_due", return_value=False)


def exists_is_success() -> Planted:
    """Rule L2: *exists* after a lost answer is taken for one's own, whoever has the name."""
    create = EntryLog.create_next

    def create_next(self: Any, position: Position, encode: Any, *, tokens: set[str], **kwargs: Any) -> Any:
        outcome = create(self, position, encode, tokens=tokens, **kwargs)
        if isinstance(outcome, Taken) and len(tokens) > 1:
            return Created(advance(position, version=outcome.entry.version, token=outcome.entry.token))
        return outcome

    return mock.patch.object(EntryLog, "create_next", create_next)


# Of topics.


def nobody_looks_for_the_counter() -> Planted:
    """Rule L2: who loads the log commits again what may be there."""
    return mock.patch.object(append_plan, "is_duplicate_commit", return_value=False)


def the_first_decision_stands() -> Planted:
    """Rule L4: who loses a race commits what it had decided before."""

    def stubborn(state: Any, decide: Callable[[Any], Any], **kwargs: Any) -> Any:
        decided: list[Any] = []

        def once(now: Any) -> Any:
            if not decided:
                decided.append(decide(now))
            return decided[0]

        return commit(state, once, **kwargs)

    return mock.patch.object(append, "commit", stubborn)


def what_was_listed_is_there() -> Planted:
    """Rule L12: who opens a topic believes what it listed long ago."""
    return _all(
        mock.patch.object(snapshot, "still_there", return_value=True),
        mock.patch.object(snapshot, "is_untouched", return_value=True),
    )


def _planning(plan: Callable[..., Iterator[CleanupBatch]]) -> Planted:
    return mock.patch.object(cleanup, "plan_cleanup", plan)


_plan = cleanup.plan_cleanup


def cleanup_leaves_no_mark() -> Planted:
    """Rule L3: nothing says that entries may be gone."""
    return mock.patch.object(DeltaLog, "mark_cleaned", return_value=None)


def cleanup_marks_afterwards() -> Planted:
    """Rule L3: the mark comes once everything is deleted."""
    mark, clean = DeltaLog.mark_cleaned, cleanup._delete_below
    asked: list[tuple[DeltaLog, int]] = []

    def clean_and_mark(*args: Any) -> Any:
        result = clean(*args)
        for log, below in asked:
            mark(log, below)
        return result

    return _all(
        mock.patch.object(DeltaLog, "mark_cleaned", lambda self, below: asked.append((self, below))),
        mock.patch.object(cleanup, "_delete_below", clean_and_mark),
    )


def cleanup_goes_by_its_own_clock() -> Planted:
    """Rule L3: the clock of who cleans is a day ahead."""

    def plan(objects: Any, *, newest_modified_ms: int, **known: Any) -> Iterator[CleanupBatch]:
        return _plan(objects, newest_modified_ms=newest_modified_ms + DAY_MS, **known)

    return _planning(plan)


def cleanup_needs_no_checkpoint() -> Planted:
    """Rule L3: what no checkpoint has goes, too. Two guards keep that rule, each of which is enough here: without a
    checkpoint nothing is planned, and a plan ends below it."""

    def clean(log: DeltaLog, *, retention_ms: int) -> CleanupResult | None:
        listing = list_log(log)
        return None if listing is None else cleanup._delete_below(log, listing, retention_ms, 0, _nothing, _nothing)

    def plan(objects: Any, *, checkpoint_version: int, **known: Any) -> Iterator[CleanupBatch]:
        return _plan(objects, checkpoint_version=10**9, **known)

    return _all(mock.patch.object(playing, "clean_log", clean), _planning(plan))


def entries_are_as_old_as_themselves() -> Planted:
    """Rule L3: cleanup of a topic doesn't ask how old an entry's successor is."""

    def plan(
        objects: Any,
        *,
        checkpoint_version: int,
        newest_modified_ms: int,
        retention_ms: int,
        cleaned_below: int,
        protected_below: int = 0,
    ) -> Iterator[CleanupBatch]:
        gone: dict[int, str] = {}
        for found in objects:
            version = parse_name(found.path.rpartition("/")[2])
            if not isinstance(version, int):
                continue
            if version >= checkpoint_version or newest_modified_ms - found.modified_ms < retention_ms:
                break
            gone[version] = found.path
        if gone:
            yield CleanupBatch(below=max(gone) + 1, beginnings=(), others=tuple(gone.values()))

    return _planning(plan)


# Of transactions.


def what_was_listed_is_the_newest() -> Planted:
    """Rule L1: who was silent between listing a log and reading its newest entry doesn't list again."""

    def open_newest(self: Any) -> tuple[Any, Position]:
        began = self.clock.ticks_ms()
        number = max(self.numbers(), default=0)
        found = self.read_entry(number) if number else None
        return found, Position(version=number, token=found.token if found else "", anchor_ticks_ms=began)

    return mock.patch.object(NumberedLog, "open_newest", open_newest)


def another_counts_by_its_name() -> Planted:
    """Decision 0006: whatever has an entry's number counts as that entry."""
    look = deciding._look

    def look_by_name(log: TransactionLog, number: int) -> Any:
        entry = log.read_entry(number)
        return look(log, number) if entry is None else deciding._Look(entry=entry)

    return mock.patch.object(deciding, "_look", look_by_name)


def the_newest_is_told_by_the_one_before() -> Planted:
    """Rule T6: an entry that none follows is taken for the newest if it fits to the one before it, which may be what a
    cleaning that was killed has left."""
    look = deciding._look

    def look_before(log: TransactionLog, number: int) -> Any:
        entry, after = log.read_entries(number, 2)
        if entry is None or after is not None:
            return look(log, number)
        before = log.read_entry(number - 1)
        fits = before is not None and entry.previous == before.token
        return deciding._Look(entry=entry if fits else None, newest=number)

    return mock.patch.object(deciding, "_look", look_before)


def its_own_entry_shows_that_nothing_was_cleaned() -> Planted:
    """Rule T6: who was silent verifies its own entry, in a log that is cleaned in no order."""
    return mock.patch.object(TransactionLog, "verify", EntryLog.verify)


def an_offset_counts_before_its_records_are_visible() -> Planted:
    """Rule T2: a partition's new owner goes on behind what is decided, and leaves the records to somebody else."""
    return _all(*(mock.patch.object(module, "carry_out") for module in (deciding, deciding_for_groups)))


def the_next_free_number_is_aborted() -> Planted:
    """Rule T1: whoever aborts a transaction doesn't care which number decides it, nor what state the log is in, which
    would refuse it."""

    def decide(cluster: Cluster, decider: Decider, *, reason: str, timeout_ms: float) -> CommittedPartitions:
        log = open_transaction_log(cluster, decider.transactional_id)
        newest, position = log.open_newest()
        if newest is None:
            raise RuntimeError(f"{log.folder} is empty")
        abort = replace(
            newest,
            version=newest.version + 1,
            previous=newest.token,
            state=TransactionState.PREPARE_ABORT,
            contents=type(newest.contents)(),
            reason=reason,
        )
        append_entry(log, position, abort, tokens=set(), deadline=log.clock.deadline_in(timeout_ms))
        return {}

    return _all(*(mock.patch.object(module, "decide", decide) for module in (deciding, deciding_for_groups)))


def a_decision_is_complete_at_once() -> Planted:
    """Rules T3, T6: a session says that its decision is carried out as soon as it is made."""
    commit = TransactionSession.commit

    def commit_and_complete(self: TransactionSession, topics: Any, *, deadline: Deadline, **kwargs: Any) -> Any:
        marker = commit(self, topics, deadline=deadline, **kwargs)
        self.complete(deadline=deadline)
        return marker

    return mock.patch.object(TransactionSession, "commit", commit_and_complete)


def anybody_leaves_offsets() -> Planted:
    """Rule G1: a transaction leaves offsets of a partition that is another's."""

    def owned(self: PendOffsets, partition: Any, row: OffsetRow | None, now_ms: int) -> OffsetRow:
        if row is None:
            raise RuntimeError(f"{partition} has no row")
        return row

    return mock.patch.object(PendOffsets, "_owned", owned)


def transaction_entries_are_as_old_as_themselves() -> Planted:
    """Rule T6: cleanup of a transactional id's log doesn't ask how old an entry's successor is."""

    def clean(log: TransactionLog, newest: TransactionEntry) -> int:
        found = list(log.store.list(log.folder))
        now_ms = max(listed.modified_ms for listed in found)
        gone = [
            listed.path
            for listed, _ in pairwise(found)
            if listed.path < log.path_of(newest.version - 1) and now_ms - listed.modified_ms >= KEEP_MS
        ]
        log.store.delete(gone)
        return len(gone)

    return mock.patch.object(playing_transactions, "clean_transaction_log", clean)
