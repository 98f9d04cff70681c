"""One member's side of the log of a share group's partition: it reads entries, decides, and creates the next one.

A change is decided again on each newer state until its entry is created (rule L4, decide again). A create
whose outcome isn't known stays *undecided*: nothing else is tried before the log has said who holds its number (rule
S4).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from sparklog.clock import Deadline
from sparklog.errors import CommitStateUnknownError, GroupIdNotFoundError, KafkaTimeoutError, StoreError
from sparklog.groups.sharing.changes import ShareChange, ShareDecision, ShareFacts, StaleTopic, decide
from sparklog.groups.sharing.entries import ShareEntry, ShareLog, clean_share_log, encode_entry, open_share_log
from sparklog.groups.sharing.lock_watch import LockWatch
from sparklog.groups.sharing.states import SharePartition, empty_partition
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position

__all__ = ["Outcome", "PartitionExchange", "Settled", "TopicFacts"]

_AHEAD = 8
_CLEAN_EVERY = 1_000
"""Entries of a log, after which the member that created the last of them deletes old ones."""

TopicFacts = Callable[[bool], "tuple[str, int]"]
"""A topic's id and the partition's log start offset; True: as of a new look at the topic."""


class Outcome(enum.Enum):
    """The outcome of an attempt to create an entry."""

    CREATED = "created"
    TAKEN = "taken"
    """Another member's entry has its number: nothing of it counts."""
    LOST = "lost"
    """Nobody can say: the log was cleaned from where this member stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A change whose outcome wasn't known, and is known now as far as it can be."""

    change: ShareChange
    decision: ShareDecision
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A create whose outcome isn't known yet."""

    position: Position
    """The decision was made here. A look may have gone on since; the entry stays the next one after this."""
    change: ShareChange
    decision: ShareDecision
    tokens: set[str] = field(default_factory=set)


class PartitionExchange:
    """The log of one share group in one partition, as one member knows it. Owned by one thread.

    Args:
        interval_ms: at which the member looks at the log while all is well.
    """

    def __init__(self, cluster: Cluster, group: str, at: TopicPartition, *, interval_ms: float) -> None:
        self._log: ShareLog = open_share_log(cluster, group, at)
        self._clock = cluster.clock
        self._watch = LockWatch(interval_ms=interval_ms)
        self._position: Position | None = None
        self._lost: Position | None = None
        """The position that was lost, until the log is opened anew."""
        self._attempt: _Attempt | None = None
        self._is_behind = False
        self.state: SharePartition | None = None
        """The newest state that is known; None: there is none, or it wasn't looked at yet."""

    @property
    def is_open(self) -> bool:
        """Was the log looked at?"""
        return self._position is not None

    @property
    def is_undecided(self) -> bool:
        """Is the outcome of the last change unknown? Then :meth:`settle` comes first."""
        return self._attempt is not None

    @property
    def version(self) -> int:
        """The number of the newest entry that is known; 0 where there is none."""
        return 0 if self._position is None else self._position.version

    def look(self) -> None:
        """Read the entries that have come. A LIST and a GET for the first look, else a GET, or one for each eight that
        have come; and once in the time of trust a LIST: where entries were deleted by others than sparklog, members may
        have gone on under other numbers.

        Raises:
            StoreReplacedError: the log doesn't go on from what is known (rule L17, ground).
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        began = self._clock.ticks_ms()
        try:
            if self._position is None:
                self._open()
            else:
                self._follow()
        except PositionLost:
            self._lost, self._position = self._position, None
            self._open()
        locks = {} if self.state is None else self.state.locks
        self._watch.update(locks, began_ticks_ms=began, ended_ticks_ms=self._clock.ticks_ms())

    def over(self, gone: Collection[str] = ()) -> frozenset[int]:
        """The locks that may be taken back (rule S5), as of the last look. ``gone``: members that are gone."""
        return frozenset() if self.state is None else self._watch.over(self.state.locks, gone=gone)

    def begin(self, facts: TopicFacts, start_offset: int, *, deadline: Deadline) -> None:
        """Create the first entry, unless there is one: the group begins at ``start_offset``.

        Raises:
            KafkaTimeoutError, CommitStateUnknownError: the next call tries again.
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        while self.state is None:
            topic_id, log_start = facts(False)
            first = empty_partition(topic_id, max(start_offset, log_start))
            self._attempt = self._attempt_at(ShareChange(), ShareDecision(partition=first, accepted=()))
            if self._try_first(deadline) is Outcome.CREATED:
                return
            self._attempt = None  # whoever has created it: the group begins once
            self.look()
            self._check(deadline)

    def submit(self, change: ShareChange, facts: TopicFacts, *, read_of: str, deadline: Deadline) -> ShareDecision:
        """Carry out a change on the newest state, and return what it came to. Without an effect it takes no request.

        Args:
            read_of: the id of the topic that the acquisition was read of. Of another one nothing is acquired.
        Raises:
            GroupIdNotFoundError: the group was deleted; nothing of it was done.
            KafkaTimeoutError: other members were faster until the deadline; nothing of it was done.
            CommitStateUnknownError: whether it was done isn't known; call :meth:`settle` before anything else.
            UnknownTopicOrPartitionError: the topic is gone.
            CorruptLogError, UnsupportedVersionError, StoreError: nothing of it was done.
        """
        if self._position is None:
            self.look()
        while True:
            decision = self._decide(change, facts, read_of)
            if decision.partition is self.state:
                return decision
            self._attempt = self._attempt_at(change, decision)
            outcome = self._try_first(deadline)
            if outcome is Outcome.CREATED:
                return decision
            if outcome is Outcome.LOST:
                raise CommitStateUnknownError(f"whether an entry of {self._log.folder} was created isn't known")
            self.look()
            self._check(deadline)

    def settle(self, *, deadline: Deadline) -> Settled | None:
        """Find out what became of a change whose outcome wasn't known; None where there is none.

        Raises:
            CommitStateUnknownError: it still isn't known.
        """
        attempt = self._attempt
        if attempt is None:
            return None
        outcome = Outcome.LOST
        if attempt.tokens:
            try:
                outcome = self._create(deadline)
            except StoreError as error:  # refused now, but an earlier attempt may be carried out
                text = f"whether an entry of {self._log.folder} was created isn't known"
                raise CommitStateUnknownError(text) from error
        if outcome is not Outcome.CREATED:
            self.look()
        self._attempt = None
        return Settled(change=attempt.change, decision=attempt.decision, outcome=outcome)

    def _decide(self, change: ShareChange, facts: TopicFacts, read_of: str) -> ShareDecision:
        if self.state is None:
            raise GroupIdNotFoundError(f"the share group was deleted: {self._log.folder} begins again")
        number = self.version + 1
        try:
            return decide(self.state, *_of_topic(change, facts(False), read_of, as_of=-1), number=number)
        except StaleTopic:
            return decide(self.state, *_of_topic(change, facts(True), read_of, as_of=self.version), number=number)

    def _try_first(self, deadline: Deadline) -> Outcome:
        """Try an attempt for the first time: one that the store refuses for good was not carried out."""
        try:
            return self._create(deadline)
        except StoreError:
            self._attempt = None
            raise

    def _create(self, deadline: Deadline) -> Outcome:
        """Create the entry of the attempt, or find out who has its number. The attempt stays where that isn't known."""
        attempt = self._attempt
        if attempt is None:
            raise ValueError("expected an attempt")
        encode, tokens = partial(encode_entry, attempt.decision.partition), attempt.tokens
        try:
            done = self._log.create_next(attempt.position, encode, tokens=tokens, deadline=deadline, sync=True)
        except PositionLost as lost:  # only what the newest entry says is known from now on
            self._lost, self._position = self._position or self._lost, None
            if lost.nothing_tried and not tokens:
                self._attempt = None
                return Outcome.TAKEN
            self._attempt = replace(attempt, tokens=set())
            return Outcome.LOST
        if not isinstance(done, Created):
            self._attempt = None
            return Outcome.TAKEN
        if self.version < done.position.version:
            self.state, self._position = attempt.decision.partition, done.position
        self._attempt = None
        if done.position.version % _CLEAN_EVERY == 0:
            clean_share_log(self._log)
        return Outcome.CREATED

    def _attempt_at(self, change: ShareChange, decision: ShareDecision) -> _Attempt:
        """An attempt to create the next entry after the newest that is known."""
        if self._position is None:
            raise ValueError("expected a log that was looked at")
        return _Attempt(position=self._position, change=change, decision=decision)

    def _open(self) -> None:
        entry, position = self._log.open_newest() if self._lost is None else self._log.open_again(self._lost)
        self._position, self._lost = position, None
        self._adopt(entry)

    def _follow(self) -> None:
        while self._position is not None:
            look = self._log.look(self._position, ahead=_AHEAD if self._is_behind else 1)
            self._position = look.position
            self._is_behind = bool(look.entries)
            self._adopt(look.entries[-1] if look.entries else None, keep=True)
            if not look.entries:
                return

    def _adopt(self, entry: ShareEntry | None, *, keep: bool = False) -> None:
        if entry is not None or not keep:
            self.state = None if entry is None else entry.partition

    def _check(self, deadline: Deadline) -> None:
        if deadline.has_passed:
            raise KafkaTimeoutError(f"other members of the share group were faster in {self._log.folder}; try again")


def _of_topic(
    change: ShareChange, known: tuple[str, int], read_of: str, *, as_of: int
) -> tuple[ShareChange, ShareFacts]:
    """The change as far as it is about this topic, and the topic's facts."""
    topic_id, start = known
    if topic_id != read_of:
        change = replace(change, acquisition=None)
    return change, ShareFacts(topic_id=topic_id, log_start_offset=start, as_of=as_of)
