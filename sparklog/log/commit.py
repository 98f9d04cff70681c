"""Commits to a topic: what the commit loop of :mod:`sparklog.delta.commit` needs to know of topics.

Every commit to a topic goes through :func:`commit`. What it writes is decided by a pure function of the state; the
create-only put of one log entry is the commit point (rules L1, trust; L2, unknown; L4, decide again; L9, fsync).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from sparklog._version import __version__
from sparklog.clock import Deadline
from sparklog.delta.actions import Action, AddFile, Entry, SetTransaction, encode_entry
from sparklog.delta.commit import (
    CommitResult,
    CommitTarget,
    Draft,
    UploadsGoneError,
    run_commit_loop,
    sync_committed,
    sync_unsynced,
)
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog
from sparklog.log.announced.turns import LEAST_ROUND_TRIP_MS
from sparklog.log.catch_up import catch_up_to_tail
from sparklog.log.confirming import Confirmation
from sparklog.log.data.object_paths import object_path
from sparklog.log.foreign_rewrites import record_actions
from sparklog.log.gaps import ForeignGaps, wait_for_gap
from sparklog.log.head import TopicHead, offset_actions
from sparklog.log.live_totals import LiveTotals, totals_after
from sparklog.log.other_topic import CLUSTER_INFO, check_opened, cluster_of
from sparklog.log.reloading import reload_state
from sparklog.log.state import GAP_INFO, TopicState
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position, advance

__all__ = [
    "GROUP_COMMIT_INFO",
    "GROUP_COMMIT_TOOK_INFO",
    "Commit",
    "Decide",
    "GroupTurns",
    "TopicCommitResult",
    "UploadedSince",
    "Uploads",
    "commit",
    "create_first",
]

GROUP_COMMIT_INFO = "group_commit"
"""In ``commitInfo.sparklog``: several writers lose races for the topic's next version (rule L14, announced uploads)."""
GROUP_COMMIT_TOOK_INFO = "group_commit_ms"
"""In ``commitInfo.sparklog`` beside it: how long its creator's listing and create before took (0: there was none)."""
LOSSES_BEFORE_ON = 2
"""A commit that lost so many races says that group commit is worth while, if its newest create wasn't quick."""
_ADDS = (AddFile, SetTransaction)
_LOSSES_BEFORE_SYNCING_LATE = 4
"""A writer that fsyncs what others wrote before it creates, loses to writers that don't: meanwhile they write more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The content of a commit, as a decision wants it."""

    actions: Sequence[Action]
    """Without those that record log starts and ends: they follow from ``head``."""
    head: TopicHead
    """The topic afterwards; ``delta_version`` and ``totals`` are set by :func:`commit`."""
    operation: str
    """The operation's name in Delta's history."""
    blind_append: bool = False
    """Rule L13, new path: true for producer commits alone."""
    includes_others: bool = False
    """Does it publish flushes that others have announced (rule L14, announced uploads)?"""
    synced_first: Sequence[str] = ()
    """Files of others that it publishes, relative to the table's folder: where the entry is fsynced, they are before
    (rule L9, fsync)."""
    added: LiveTotals | None = None
    """The totals of the files that it adds, where nobody else can have added any of them and it removes none; None: its
    actions are counted."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Entries of ``commitInfo.sparklog`` beside the topic afterwards."""

    def with_head(self, head: TopicHead) -> Commit:
        """The same with another topic afterwards. ``dataclasses.replace`` takes twice as long."""
        return Commit(
            actions=self.actions,
            head=head,
            operation=self.operation,
            blind_append=self.blind_append,
            includes_others=self.includes_others,
            synced_first=self.synced_first,
            added=self.added,
            info=self.info,
        )


TopicCommitResult: TypeAlias = CommitResult[TopicState, Commit]
Decide = Callable[[TopicState], "Commit | None"]
"""Pure; called anew after every version that is applied. None: nothing (more) to do. Raises to give up."""


def commit(
    state: TopicState,
    decide: Decide,
    *,
    deadline: Deadline,
    sync: bool,
    tokens: set[str] | None = None,
    prepare: Callable[[], bool] = lambda: False,
    gaps: ForeignGaps | None = None,
    turns: GroupTurns | None = None,
    reads_on: bool = False,
    uploads: Uploads | None = None,
) -> TopicCommitResult:
    """Commit what ``decide`` wants, at whichever version is free. Never gives up because others were faster.

    Args:
        sync: fsync, before this returns, the new entry and every object before it (rule L9, fsync).
        tokens: an empty set that gets the tokens of all attempts, for whoever must find the entry later.
        prepare: called before each create; may do I/O. True: decide again, what was decided on has changed.
        gaps: whether the entry asks for a gap for foreign writers (rule F5, gaps); without it, it doesn't. Gaps that
            others asked for are waited for in any case.
        turns: group commit; None: this commit takes no part in it.
        reads_on: after each lost race, decide as of the log's tail: an entry between the winner and the tail may change
            what ``decide`` says for good.
        uploads: of the files that the entry adds (rule L17, ground); None: none was uploaded before this call.
    Raises:
        KafkaTimeoutError: the deadline passed; nothing was and nothing will be committed.
        CommitStateUnknownError: the deadline passed while an attempt may still be carried out.
        UnsupportedVersionError, NotATopicError: another engine asks for a newer Delta reader or writer, or broke the
            topic's properties, as long as that lasts.
        StoreError: the store refuses for good; and whatever ``decide`` raises.
    """
    target = _TopicTarget(
        state,
        decide,
        deadline=deadline,
        sync=sync,
        prepare=prepare,
        gaps=gaps,
        turns=turns,
        reads_on=reads_on,
        uploads=uploads or UploadedSince(state.log.clock.ticks_ms()),
    )
    if state.unreadable is not None or state.unwritable is not None:  # does that last?
        try:
            target.retry_until_deadline(partial(target.catch_up, state))
        except PositionLost:
            state = target.retry_until_deadline(target.load)
    return run_commit_loop(target, state, tokens=tokens)


def create_first(log: DeltaLog, wanted: Commit, *, deadline: Deadline) -> bool:
    """Create version 0 of a log where there is none, durably.

    False: something is there, or only opening it shows what became of ours.

    A log whose version 0 was cleaned away is seen by the listing; one whose version 0 is cleaned after the listing, by
    rule L1, trust: version -1 can't be verified.
    """
    log.check_cluster()
    began = log.clock.ticks_ms()
    if list_log(log) is not None:
        return False
    draft = _TopicDraft(log, wanted, before=None, sync=True)
    nowhere = Position(version=-1, token="", anchor_ticks_ms=began)
    try:
        outcome = log.create_next(nowhere, draft.encode, tokens=set(), deadline=deadline, sync=True)
    except PositionLost:
        return False
    return isinstance(outcome, Created)


class GroupTurns(Protocol):
    """The part of group commit that the commit loop asks for (rule L14, announced uploads)."""

    def is_on(self) -> bool:
        """Do writers of the topic take turns? Then :meth:`after_loss` takes the place of rule L11, fairness."""

    def switch_on(self) -> None:
        """Note that group commit is worth while: until this writer's own entry says so, nobody else knows."""

    def after_loss(self, lost_races: int, round_trip_ms: float) -> None:
        """Note that a create was lost, and its winner is applied."""

    def took_ms(self) -> Sequence[float]:
        """How long the commit's listing and the writer's create before took, for others to know; 0: there was none."""


class Uploads(Protocol):
    """The files that an entry adds, as far as the commit loop asks about them (rule L17, ground)."""

    def uploaded_at(self, path: str) -> float:
        """A tick of the log's clock before the upload of a file began; -inf: not known."""

    def replace(self, gone: UploadsGoneError) -> None:
        """Let the next decision name others in place of files that aren't there. Raises ``gone`` where it can't, and
        ``StoreError``."""


class UploadedSince:
    """Files that were all uploaded by a job, from a tick on. It begins anew where they are gone."""

    def __init__(self, began_ticks_ms: float) -> None:
        self._began_ticks_ms = began_ticks_ms

    def uploaded_at(self, path: str) -> float:
        """The tick."""
        return self._began_ticks_ms

    def replace(self, gone: UploadsGoneError) -> None:
        """Raises ``gone``."""
        raise gone


class _TopicTarget(CommitTarget[TopicState, Commit]):
    """One call of :func:`commit`. Its states are one mutable object until the topic is loaded anew."""

    def __init__(
        self,
        state: TopicState,
        decide: Decide,
        *,
        deadline: Deadline,
        sync: bool,
        prepare: Callable[[], bool],
        gaps: ForeignGaps | None,
        turns: GroupTurns | None,
        reads_on: bool,
        uploads: Uploads,
    ) -> None:
        super().__init__(state.log, deadline=deadline)
        self._uploads = uploads
        self._confirmation = Confirmation(state.log)
        self._reads_on = reads_on
        self._first_state = state
        self._turns = turns
        self._round_trip_ms = 0.0
        self._decide = decide
        self._sync = sync
        self._prepare = prepare
        self._gaps = gaps

    def decide(self, state: TopicState) -> Commit | None:
        if state.unreadable is not None:
            raise state.unreadable.with_traceback(None)
        wanted = self._decide(state)
        if wanted is None:
            return None
        index = None if state.whole is None else state.whole.index
        totals = totals_after(state.head.totals, index, wanted.actions, wanted.added)
        head = wanted.head
        return wanted.with_head(
            head.moved(
                delta_version=state.position.version + 1,
                log_end_offsets=head.log_end_offsets,
                live_file_count=head.live_file_count,
                totals=totals,
            )
        )

    def end_without_commit(self, state: TopicState) -> tuple[TopicState, bool]:
        if self._sync:  # it may be there by a lost attempt of ours, or by another who died before its fsync
            _sync_what_is_committed(state)
        return state, True

    def prepare(self, state: TopicState, decision: Commit, *, lost_races: int) -> _TopicDraft | None:
        wait_for_gap(state, self._gaps, deadline=self.deadline)
        if self.retry_until_deadline(self._prepare):
            return None
        syncs_late = self._sync and lost_races >= _LOSSES_BEFORE_SYNCING_LATE
        if self._sync and not syncs_late:
            _sync_what_came_before(state)
            if decision.synced_first:
                self.log.store.sync([object_path(self.log.table, path) for path in decision.synced_first])
        return _TopicDraft(
            self.log,
            decision,
            before=state.head,
            unrecorded_ends=state.unrecorded_ends,
            unrecorded_facts=state.unrecorded_facts,
            gap_ms=0 if self._gaps is None else self._gaps.gap_ms(state),
            sync=self._sync and not syncs_late,
            syncs_late=syncs_late,
            group_commit=self._group_commit_info(decision, lost_races),
            confirm=self._confirm,
        )

    def _confirm(self, actions: Sequence[Action], checked_ticks_ms: float) -> None:
        added = [action.path for action in actions if isinstance(action, AddFile)]
        self._confirmation.confirm(added, self._uploads.uploaded_at, checked_ticks_ms=checked_ticks_ms)

    def replace_uploads(self, gone: UploadsGoneError) -> None:
        self.retry_until_deadline(partial(self._uploads.replace, gone))

    def _group_commit_info(self, decision: Commit, lost_races: int) -> Mapping[str, Any]:
        """The part of the entry that lets others take turns, too; empty where that isn't worth while."""
        if self._turns is None or not (decision.includes_others or self._is_worth_while(lost_races)):
            return {}
        return {GROUP_COMMIT_INFO: True, GROUP_COMMIT_TOOK_INFO: self._turns.took_ms()}

    def _is_worth_while(self, lost_races: int) -> bool:
        return lost_races >= LOSSES_BEFORE_ON and self._round_trip_ms >= LEAST_ROUND_TRIP_MS

    def after_loss(self, state: TopicState, winner: Entry, *, lost_races: int, round_trip_ms: float) -> TopicState:
        self._round_trip_ms = round_trip_ms
        if self._turns is not None and self._is_worth_while(lost_races):
            self._turns.switch_on()
        if self._turns is None or not self._turns.is_on():
            state = super().after_loss(state, winner, lost_races=lost_races, round_trip_ms=round_trip_ms)
            return self._read_on(state)
        try:
            state = self.retry_until_deadline(partial(self.apply_winner, state, winner, catches_up=False))
        except PositionLost:
            state = self.retry_until_deadline(self.load)
        self._turns.after_loss(lost_races, round_trip_ms)
        return self._read_on(state)

    def _read_on(self, state: TopicState) -> TopicState:
        if not self._reads_on:
            return state
        try:
            return self.retry_until_deadline(partial(self.catch_up, state))
        except PositionLost:
            return self.retry_until_deadline(self.load)

    def settle(self, lost: PositionLost) -> tuple[TopicState, bool]:
        """The next decision finds out whether the commit is in the topic: by a counter, a marker or live files."""
        return self.load_unsettled(lost, self.load), False

    def apply_winner(self, state: TopicState, winner: Entry, *, catches_up: bool) -> TopicState:
        state.apply_entry(winner, advance(state.position, version=winner.version, token=winner.token))
        return state

    def catch_up(self, state: TopicState) -> TopicState:
        catch_up_to_tail(state)
        return state

    def load(self) -> TopicState:
        return reload_state(self._first_state)


class _TopicDraft(Draft[TopicState]):
    """A commit to a topic that waits for its token."""

    def __init__(
        self,
        log: DeltaLog,
        wanted: Commit,
        *,
        before: TopicHead | None,
        sync: bool,
        unrecorded_ends: Collection[int] = (),
        unrecorded_facts: Mapping[str, int] = MappingProxyType({}),
        gap_ms: int = 0,
        syncs_late: bool = False,
        group_commit: Mapping[str, Any] | None = None,
        confirm: Callable[[Sequence[Action], float], None] = lambda actions, checked_ticks_ms: None,
    ) -> None:
        self._confirm = confirm
        self.sync = sync
        self._syncs_late = syncs_late
        self._wanted = wanted
        self._timestamp_ms = log.clock.now_ms()
        self._info = {**wanted.head.to_info(), CLUSTER_INFO: cluster_of(log), **wanted.info}
        if gap_ms:
            self._info[GAP_INFO] = gap_ms
        self._info.update(group_commit or {})
        self._actions = (*wanted.actions, *offset_actions(before, wanted.head, unrecorded_ends))
        if unrecorded_facts:
            self._actions = (*self._actions, *record_actions(unrecorded_facts))
        self.began_ticks_ms = log.clock.ticks_ms()

    def confirm(self, checked_ticks_ms: float) -> None:
        self._confirm(self._wanted.actions, checked_ticks_ms)

    def encode(self, token: str) -> bytes:
        return encode_entry(
            actions=self._actions,
            token=token,
            info=self._info,
            operation=self._wanted.operation,
            blind_append=self._wanted.blind_append,
            timestamp_ms=self._timestamp_ms,
            version=__version__,
        )

    def apply_to(self, state: TopicState, position: Position) -> TopicState:
        entry = Entry(version=position.version, token=position.token, actions=self._actions, info=self._info)
        adds_alone = all(isinstance(action, _ADDS) for action in self._actions)
        state.apply_entry(entry, position, synced=self.sync, head=self._wanted.head if adds_alone else None)
        if self._syncs_late:
            _sync_what_is_committed(state)
        return state


def _sync_what_came_before(state: TopicState) -> None:
    _check_nothing_is_torn(state)
    sync_unsynced(state.log, state.unsynced)
    state.unsynced = []


def _sync_what_is_committed(state: TopicState) -> None:
    """Fsync what came before, and the newest entry after it."""
    sync_committed(state.log, state.position.version, partial(_sync_what_came_before, state))


def _check_nothing_is_torn(state: TopicState) -> None:
    """Once after a topic was opened from its newest entry alone: a power loss may have left an earlier one without its
    bytes, and nothing behind that can be read. What is cleaned meanwhile isn't missed. And the newest entry may be of
    another topic (rule L8, one log).

    Raises:
        CorruptLogError: names the entry.
    """
    if state.unread and state.log.store.may_tear:
        found = state.log.read_raw_entries(state.unread)
        check_opened(state.log.table, [one[0] for one in found if one is not None], state.opened)
    state.unread, state.opened = range(0), None
