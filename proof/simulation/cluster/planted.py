"""Faults that are planted in sparklog to see that the simulation finds them: each breaks one rule, and shows itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from proof.simulation.cluster.carrying import an_entry_carries_another_file
from proof.simulation.cluster.operators import (
    a_consumer_ignores_the_ground,
    a_producer_checks_only_after_its_create,
    an_emptied_generation_log_begins_at_1,
    entries_of_another_topic_are_accepted,
    files_are_named_unseen,
    foreign_rewrites_are_not_judged,
    opening_accepts_a_shrunk_topic,
)
from proof.simulation.cluster.power import is_dark
from proof.simulation.cluster.sharing import a_shared_look_skips_an_entry
from proof.simulation.cluster.totals import TOTALS, whoever_lost_a_race_counts_its_files_twice
from proof.simulation.cluster.unsynced import LOST_COMMIT, offsets_before_are_not_flushed
from sparklog.clock import Deadline
from sparklog.compaction import clean_arrow, rewrite_arrow
from sparklog.compaction.keys import Counts, LatestOffsets
from sparklog.consumer.assignment_changes import AssignmentChanges
from sparklog.errors import CommitStateUnknownError, KafkaTimeoutError, ProducerFencedError, StoreUnavailableError
from sparklog.groups.membership import heartbeat_rounds
from sparklog.groups.membership.membership import Membership
from sparklog.groups.membership.reconciliation import Reconciliation
from sparklog.groups.offsets import changes, commit_thread
from sparklog.groups.offsets.changes import CommitOffsets
from sparklog.groups.offsets.pending import PendOffsets
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import append_plan, commit
from sparklog.log.announced import group, plan
from sparklog.log.announced.writing import GroupWriting
from sparklog.log.append import TopicWriter
from sparklog.log.data.data_files import StagedUpload
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.publishing import Marker
from sparklog.model import TopicPartition
from sparklog.producer.ordered_results import OrderedResults
from sparklog.storage import entry_log, log_ground
from sparklog.testing.history import AnomalyKind
from sparklog.txn import deciding, deciding_for_groups, epoch_log, forward
from sparklog.txn.entries import Header, TransactionEntry, append_entry
from sparklog.txn.epoch_log import EpochLog
from sparklog.txn.session import TransactionSession

__all__ = ["PLANTED", "Fault"]

Plant = Callable[[], AbstractContextManager[object]]


def trust_never_ends() -> AbstractContextManager[object]:
    """Rules L1 and L17: who slept believes what it finds behind its position, and doesn't look beneath it."""
    stack = ExitStack()
    for check in ("needs_verification", "is_check_due"):
        stack.enter_context(mock.patch.object(entry_log, check, return_value=False))
    return stack


def unknown_is_told_as_failed() -> AbstractContextManager[object]:
    """Rule L2: what may have been carried out counts as not carried out."""
    return mock.patch.object(log_ground, "CommitStateUnknownError", KafkaTimeoutError)


def refusals_are_believed() -> AbstractContextManager[object]:
    """Rule L2: where the last attempt at an entry was refused, none counts as carried out."""
    create = entry_log.EntryLog.create_next

    def create_next(self: Any, *given: Any, **kwargs: Any) -> Any:
        try:
            return create(self, *given, **kwargs)
        except CommitStateUnknownError as error:
            if isinstance(error.__cause__, StoreUnavailableError):
                raise KafkaTimeoutError(str(error)) from error
            raise

    return mock.patch.object(entry_log.EntryLog, "create_next", create_next)


class _NeverTold(set[str]):
    """Tokens of attempts that nobody remembers."""

    def __contains__(self, _: object) -> bool:
        return False


def own_entry_is_not_known_again() -> AbstractContextManager[object]:
    """Rule L2: an attempt whose answer was lost is taken for another writer's, and nobody looks for its counter."""
    create = entry_log.EntryLog.create_next

    def create_next(self: Any, position: Any, encode: Any, *, tokens: set[str], **kwargs: Any) -> Any:
        return create(self, position, encode, tokens=_NeverTold(), **kwargs)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(entry_log.EntryLog, "create_next", create_next))
    stack.enter_context(mock.patch.object(append_plan, "is_duplicate_commit", return_value=False))
    return stack


def transactions_are_published_again() -> AbstractContextManager[object]:
    """Rule L7: nobody looks for the marker."""
    return mock.patch.object(Marker, "is_in", return_value=False)


def recovery_skips_a_topic() -> AbstractContextManager[object]:
    """Rule T3: what is decided isn't carried out in the last of its topics."""
    roll = forward.roll_forward

    def roll_forward(cluster: Any, log: Any, entry: TransactionEntry, *, timeout_ms: float) -> Any:
        topics = dict(sorted(entry.contents.topics.items())[:-1])
        entry = replace(entry, contents=replace(entry.contents, topics=topics))
        return roll(cluster, log, entry, timeout_ms=timeout_ms)

    return mock.patch.object(forward, "roll_forward", roll_forward)


def nobody_finishes_what_was_left() -> AbstractContextManager[object]:
    """Rule T3: a new epoch begins over a decision that isn't carried out."""

    def finish(cluster: Any, log: Any, entry: Any, position: Any, *, timeout_ms: float) -> Any:
        return forward.complete(log, entry, position, deadline=log.clock.deadline_in(timeout_ms))[0]

    return mock.patch.object(epoch_log, "finish", finish)


def a_fenced_producer_decides_once_more() -> AbstractContextManager[object]:
    """Rule T5: who was fenced takes the next number, in the new epoch."""
    append = EpochLog.append

    def again(self: EpochLog, entry: TransactionEntry, *, deadline: Deadline) -> Any:
        with mock.patch.object(EpochLog, "_check_holder"):
            found = append(self, entry, deadline=deadline)
            if found.header != entry.header and found.state.is_open:
                after = replace(entry, version=found.version + 1, header=found.header)
                return append(self, after, deadline=deadline)
        return found

    return mock.patch.object(EpochLog, "append", again)


def pending_offsets_are_forgotten() -> AbstractContextManager[object]:
    """Rule T2: a new owner reads the committed offset before it has decided what is pending."""

    def settle(table: Any, rows: Any, partitions: Any, decide: Any, *, deadline: Deadline) -> Any:
        return rows

    return mock.patch.object(commit_thread, "settle_pending", settle)


def a_new_owner_goes_on_before_the_records() -> AbstractContextManager[object]:
    """Rule T2: what is decided counts for a partition's next owner, and its records come when somebody recovers."""
    stack = ExitStack()
    for module in (deciding, deciding_for_groups):
        stack.enter_context(mock.patch.object(module, "carry_out"))
    return stack


def offsets_count_before_the_records() -> AbstractContextManager[object]:
    """Rule T2: a producer lets its offsets count while its records are being published."""
    settle = TransactionSession.settle_groups

    def settle_at_once(self: TransactionSession, *, is_committed: bool, deadline: Deadline, **_: Any) -> None:
        settle(self, is_committed=is_committed, deadline=deadline)

    return mock.patch.object(TransactionSession, "settle_groups", settle_at_once)


def stamps_are_not_compared() -> AbstractContextManager[object]:
    """Rule G1: who slept while others took its partitions commits as if they were still its own."""
    commit = CommitOffsets.apply

    def apply(self: CommitOffsets, rows: Any, now_ms: int) -> Any:
        stamps = {partition: rows[partition].stamp for partition in self.offsets if partition in rows}
        return commit(replace(self, stamps=stamps), rows, now_ms)

    return mock.patch.object(CommitOffsets, "apply", apply)


def stamps_are_not_compared_in_transactions() -> AbstractContextManager[object]:
    """Rule G1: the same for offsets that a transaction commits."""
    owned = PendOffsets._owned

    def any_owner(self: PendOffsets, partition: Any, row: Any, now_ms: int) -> Any:
        own = self if row is None or not self.owner.member else replace(self, owner=row.stamp)
        return owned(own, partition, row, now_ms)

    return mock.patch.object(PendOffsets, "_owned", any_owner)


def stamps_count_before_the_application_knows() -> AbstractContextManager[object]:
    """Rule G1: what was lost and taken again is committed from where the application stood before."""

    def stamps(self: Reconciliation, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Stamp]:
        return {partition: self.held[partition].stamp for partition in wanted if partition in self.held}

    return mock.patch.object(Reconciliation, "stamps", stamps)


def nobody_looks_at_claims() -> AbstractContextManager[object]:
    """Rule G2: a member takes what others claim."""
    return mock.patch.object(heartbeat_rounds, "claimed_by_others", return_value=set())


def nobody_takes_what_was_released() -> AbstractContextManager[object]:
    """A member that has partitions takes no others: what somebody gives up stays without an owner."""
    takeable = Reconciliation.takeable

    def at_first(self: Reconciliation, *given: Any, **kwargs: Any) -> frozenset[TopicPartition]:
        return frozenset() if self.held else takeable(self, *given, **kwargs)

    return mock.patch.object(Reconciliation, "takeable", at_first)


def nobody_minds_its_own_silence() -> AbstractContextManager[object]:
    """Rule G2: who slept past its session goes on with what it had."""
    return mock.patch.object(Membership, "check_silence")


def whoever_takes_a_partition_has_it() -> AbstractContextManager[object]:
    """Rule G1: a member takes what a newer generation has taken already."""
    return mock.patch.object(changes, "_is_owned_after", return_value=False)


def compaction_drops_the_newest() -> AbstractContextManager[object]:
    """The record that ought to stay goes."""

    def judge(records: Any, offsets: Any, latest: LatestOffsets, *, due_tombstones_end: int) -> Any:
        newest = latest.of(records["key"])
        keep = newest > offsets
        return keep, Counts(records=records.num_rows, superseded=int((~keep).sum()))

    return mock.patch.object(clean_arrow, "judge", judge)


def a_merged_file_lacks_its_last_record() -> AbstractContextManager[object]:
    """Optimize loses a record."""
    pieces = rewrite_arrow.OpenRange.pieces

    def fewer(self: Any, columns: Any = DATA_SCHEMA.names, *, once: bool = False) -> Any:
        for piece in pieces(self, columns, once=once):
            yield piece.slice(0, piece.num_rows - 1) if not once and piece.num_rows > 1 else piece

    return mock.patch.object(rewrite_arrow.OpenRange, "pieces", fewer)


def a_new_owner_begins_one_too_late() -> AbstractContextManager[object]:
    """Who takes a partition passes over the record at the committed offset."""
    begin = AssignmentChanges._begin

    def late(self: AssignmentChanges, state: Any, row: Any, first_counts: Any) -> None:
        if row is not None and row.committed is not None:
            row = replace(row, committed=row.committed._replace(offset=row.committed.offset + 1))
        begin(self, state, row, first_counts)

    return mock.patch.object(AssignmentChanges, "_begin", late)


def a_new_owner_begins_anew() -> AbstractContextManager[object]:
    """Who takes a partition doesn't see what is committed."""
    begin = AssignmentChanges._begin

    def anew(self: AssignmentChanges, state: Any, row: Any, first_counts: Any) -> None:
        begin(self, state, None if row is None else replace(row, committed=None), first_counts)

    return mock.patch.object(AssignmentChanges, "_begin", anew)


def a_commit_is_told_before_it_is_made() -> AbstractContextManager[object]:
    """A transaction's topics are published after the caller was told so, or never."""
    from concurrent.futures import Future

    from sparklog.producer.transaction_uploads import TransactionUploads

    def publish(self: TransactionUploads, marker: Marker, *, deadline: Deadline) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done

    return mock.patch.object(TransactionUploads, "start_publishing", publish)


def whoever_is_slow_is_timed_out() -> AbstractContextManager[object]:
    """Rule T3: recovery takes every open transaction for one that is past its time-out."""
    return mock.patch.object(Header, "abort_after_ms", -1)


def a_producer_is_fenced_by_an_abort() -> AbstractContextManager[object]:
    """Rule T5: whose transaction another aborted is told that another holds its id."""
    check_holder = EpochLog._check_holder

    def check(self: EpochLog, found: TransactionEntry) -> None:
        check_holder(self, found)
        if found.is_forced:
            raise ProducerFencedError("aborted by another")

    return mock.patch.object(EpochLog, "_check_holder", check)


def nobody_flushes_what_others_left() -> AbstractContextManager[object]:
    """Rule L9: a writer fsyncs its own entry, and nothing of what lies before it."""
    return mock.patch.object(commit, "_sync_what_came_before", lambda state: setattr(state, "unsynced", []))


def decisions_are_not_flushed() -> AbstractContextManager[object]:
    """Rule L9: topics are fsynced, and transactions' own logs aren't, by their producers nor by others."""

    def append(*given: Any, **kwargs: Any) -> Any:
        return append_entry(*given, **{**kwargs, "sync": False})

    stack = ExitStack()
    for place in (epoch_log, forward):
        stack.enter_context(mock.patch.object(place, "append_entry", append))
    stack.enter_context(mock.patch.object(entry_log.NumberedLog, "flush"))
    return stack


def settled_numbers_are_forgotten() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: what is settled already is published again, by whoever finds it in a listing."""
    take = plan.takeable

    def takeable(*given: Any, **kwargs: Any) -> Any:
        return take(*given, **{**kwargs, "settled": {}, "forgotten_version": -1})

    return mock.patch.object(group, "takeable", takeable)


def whoever_opened_late_takes_what_it_lists() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: an includer counts as knowing what was settled before it opened the topic."""
    take = plan.takeable

    def takeable(*given: Any, **kwargs: Any) -> Any:
        return take(*given, **{**kwargs, "forgotten_version": -1})

    return mock.patch.object(group, "takeable", takeable)


def what_is_given_up_counts_as_withdrawn() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: announced records fail before an entry has left them out."""
    return mock.patch.object(TopicWriter, "withdraw", return_value=None)


def a_failed_upload_counts_as_not_announced() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: an upload that was announced, and whose answer is lost, counts as not there."""
    return mock.patch.object(StagedUpload, "files_if_failed", ())


def announced_uploads_overtake_ordinary_ones() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: a flush that is announced behind ordinary ones leaves no number to them."""
    claim = GroupWriting.claim
    return mock.patch.object(GroupWriting, "claim", lambda self, ordinary=frozenset(): claim(self))


def the_newest_flush_goes_first() -> AbstractContextManager[object]:
    """Rule L14, announced uploads: an owner commits its flushes from the newest on."""
    unsettled = GroupWriting.unsettled
    return mock.patch.object(GroupWriting, "unsettled", lambda self, **kwargs: unsettled(self, **kwargs)[-1:])


def who_waits_for_a_turn_decides_no_more() -> AbstractContextManager[object]:
    """Rule L4: what was applied while a writer waited for its turn changes nothing of what it has decided."""
    prepare = group.Participation.prepare

    def wait_for_it(self: Any, *given: Any, **kwargs: Any) -> bool:
        prepare(self, *given, **kwargs)
        return False

    return mock.patch.object(group.Participation, "prepare", wait_for_it)


def uploads_are_handed_over_as_they_end() -> AbstractContextManager[object]:
    """Uploads that overlap are committed in the order in which they end, not in that of sending."""
    return mock.patch.object(OrderedResults, "end", lambda self, _, result: self._hand_over(result))


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted, and what it must show: that a world breaks down in whatever way isn't enough."""

    plant: Plant
    shows: tuple[AnomalyKind | str, ...]
    """One of these at least: an anomaly of the history, or else a word of what a world tells of at once."""
    may_show: Callable[[int], bool]
    """Of a seed: may its world show it? To play others would be in vain."""

    def is_found(self, violations: Sequence[str]) -> bool:
        """Does a world show what it must?"""
        return any(_shows(text, what) for text in violations for what in self.shows)


def _shows(text: str, what: AnomalyKind | str) -> bool:
    return text.startswith(f"{what.value}: ") if isinstance(what, AnomalyKind) else what in text


def _faults(plants: Mapping[Plant, tuple[AnomalyKind | str, ...]]) -> Mapping[str, Fault]:
    return {
        plant.__name__: Fault(plant, shows, is_dark if plant in _OF_POWER_LOSS else _any_world)
        for plant, shows in plants.items()
    }


def _any_world(seed: int) -> bool:
    return True


_OF_POWER_LOSS = (decisions_are_not_flushed, nobody_flushes_what_others_left, offsets_before_are_not_flushed)
"""What isn't fsynced is missed by nobody before the power fails, and it does in few worlds."""


FORKS = " forks: "
"""Of a log with two contents."""
FEWER = " records, the log tells of "
"""Of a file that doesn't hold what it should."""
STOLEN = " moved the offset of "
"""Of a partition that another owns."""
LOW = "low start: "
"""Of an owner that begins below what was committed."""
BACK = " went back from "
"""Of a committed offset."""
HELD = " is held by "
"""Of a partition that two members have."""
UNSTAMPED = " without the stamp "
"""Of an offset that another stay than its partition's owner committed."""
OLDER = " is owned under "
"""Of a partition whose stamp became older."""
UNSETTLED = ": not settled: "
"""Of a group that doesn't come to rest."""
UNDECIDED = "transaction-not-committed"
"""Of a topic that has records whose commit isn't decided."""
STRAY = "stray: "
"""Of an entry in a log that isn't its writer's."""
GONE = "gone: "
"""Of an entry that names a file which isn't there."""
SILENT = "silent: "
"""Of a client that isn't told that its storage is another."""
BEHIND_ANOTHERS = "went on behind another's entry: "
"""Of entries that follow on one of another topic."""
NOT_READ = ": not read to the end"
"""Of a group whose members get no partitions."""
BEGUN_ANEW = "generation-gap: "
"""Of a group whose generations began at 1 again, though some went on from the last."""
_K = AnomalyKind
PLANTED: Mapping[str, Fault] = _faults(
    {
        trust_never_ends: (FORKS, _K.LOST_WRITE, _K.OUT_OF_STEP),
        unknown_is_told_as_failed: (_K.ABORTED_READ, _K.CONTRADICTION),
        refusals_are_believed: (_K.ABORTED_READ, _K.CONTRADICTION),
        own_entry_is_not_known_again: (_K.DUPLICATE,),
        transactions_are_published_again: (_K.DUPLICATE, _K.INCONSISTENT_OFFSETS),
        recovery_skips_a_topic: (_K.OUT_OF_STEP, _K.TORN_TRANSACTION, _K.LOST_WRITE),
        nobody_finishes_what_was_left: (_K.OUT_OF_STEP, _K.TORN_TRANSACTION, _K.LOST_WRITE),
        a_fenced_producer_decides_once_more: (_K.LOST_WRITE, _K.TORN_TRANSACTION, _K.OUT_OF_STEP),
        a_new_owner_goes_on_before_the_records: (_K.OUTPUT_ORDER,),
        offsets_count_before_the_records: (_K.OUTPUT_ORDER,),
        pending_offsets_are_forgotten: (_K.OUT_OF_STEP, _K.OFFSET_WENT_BACK),
        stamps_are_not_compared: (STOLEN, BACK, UNSTAMPED),
        stamps_are_not_compared_in_transactions: (STOLEN,),
        stamps_count_before_the_application_knows: (BACK,),
        nobody_looks_at_claims: (HELD,),
        nobody_minds_its_own_silence: (HELD,),
        nobody_takes_what_was_released: (UNSETTLED,),
        whoever_takes_a_partition_has_it: (OLDER,),
        compaction_drops_the_newest: (_K.LOST_WRITE,),
        a_merged_file_lacks_its_last_record: (_K.LOST_WRITE, FEWER),
        a_new_owner_begins_one_too_late: (_K.SKIPPED_POLL, _K.UNSEEN, _K.OUT_OF_STEP),
        a_new_owner_begins_anew: (LOW,),
        a_commit_is_told_before_it_is_made: (_K.LOST_WRITE, _K.OUT_OF_STEP),
        whoever_is_slow_is_timed_out: (": timed out too early, ",),
        a_producer_is_fenced_by_an_abort: (" was fenced, but nobody ",),
        nobody_flushes_what_others_left: (_K.LOST_WRITE,),
        decisions_are_not_flushed: (UNDECIDED,),
        offsets_before_are_not_flushed: (LOST_COMMIT,),
        settled_numbers_are_forgotten: (_K.DUPLICATE,),
        whoever_opened_late_takes_what_it_lists: (_K.DUPLICATE,),
        what_is_given_up_counts_as_withdrawn: (_K.ABORTED_READ, _K.CONTRADICTION),
        a_failed_upload_counts_as_not_announced: (_K.ABORTED_READ, _K.CONTRADICTION),
        announced_uploads_overtake_ordinary_ones: (_K.NON_MONOTONIC_SEND,),
        uploads_are_handed_over_as_they_end: (_K.NON_MONOTONIC_SEND,),
        an_entry_carries_another_file: (_K.INCONSISTENT_OFFSETS, _K.SKIPPED_POLL, _K.PHANTOM),
        who_waits_for_a_turn_decides_no_more: (_K.INCONSISTENT_OFFSETS, _K.LOST_WRITE, _K.DUPLICATE),
        a_shared_look_skips_an_entry: (_K.INCONSISTENT_OFFSETS, _K.LOST_WRITE, _K.DUPLICATE),
        whoever_lost_a_race_counts_its_files_twice: (TOTALS,),
        a_consumer_ignores_the_ground: (SILENT,),
        a_producer_checks_only_after_its_create: (STRAY,),
        files_are_named_unseen: (GONE,),
        an_emptied_generation_log_begins_at_1: (NOT_READ, BEGUN_ANEW),
        entries_of_another_topic_are_accepted: (BEHIND_ANOTHERS,),
        foreign_rewrites_are_not_judged: (_K.DUPLICATE, _K.INCONSISTENT_OFFSETS, _K.SKIPPED_POLL),
        opening_accepts_a_shrunk_topic: (_K.LOST_WRITE, _K.INCONSISTENT_OFFSETS, "integrity: error: "),
        the_newest_flush_goes_first: (_K.NON_MONOTONIC_SEND, _K.LOST_WRITE),
    }
)
