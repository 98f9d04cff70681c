"""The state of a topic that one process knows: opened from the newest commit alone, or whole, and carried on entry by
entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sparklog.delta.actions import Action, AddFile, Entry, Metadata, Protocol, SetTransaction
from sparklog.delta.features import WriteDemands, check_protocol
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.delta.snapshot import Snapshot, open_newest
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    NotATopicError,
    SparklogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.segments import SegmentIndex
from sparklog.log.foreign_rewrites import gives_offsets, judge, still_unrecorded, unrecorded
from sparklog.log.head import (
    TopicHead,
    end_app_id,
    head_after_entry,
    head_of_info,
    head_of_table,
    is_unsequenced,
    raise_ends,
)
from sparklog.log.judged_checkpoint import load_judgeable
from sparklog.log.live_totals import totals_of
from sparklog.log.loaded_files import added_segments, apply_files, file_statistics, live_files
from sparklog.log.other_topic import (
    TopicIds,
    greatest_ends,
    may_be_of_another_topic,
    other_topic_id,
    settle_other_topic,
    topic_ids,
)
from sparklog.log.producer_state import (
    ProducerEntry,
    announcer_app_id,
    app_id,
    is_of_announcer,
    is_of_batches,
    producer_entry,
)
from sparklog.log.shape_evidence import shape_metadata
from sparklog.log.state_observers import StateObserver
from sparklog.log.uploads import Vacuum, with_vacuum

if TYPE_CHECKING:
    from sparklog.delta.producer_states import CheckpointStates
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position

__all__ = [
    "GAP_INFO",
    "TopicState",
    "WholeTopic",
    "load_state",
    "open_state",
]

_MAX_UNSYNCED = 10_000
_MAX_FOREIGN_PATHS = 1_000
GAP_INFO = "gap_ms"
"""In ``commitInfo.sparklog``: the gap for foreign writers that an entry asks for (rule F5, gaps)."""
MAX_GAP_MS = 10_000
"""Nobody waits for longer, whatever an entry asks for."""


@dataclass(slots=True, kw_only=True)
class WholeTopic:
    """The part of a topic's state that only a loaded table gives: every live file and the table's metadata."""

    index: SegmentIndex
    metadata: Metadata
    tail: tuple[Entry, ...]
    """The entries behind the checkpoint that the table was loaded with."""
    statistics: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    """The statistics of live files by path, as the log has them, perhaps as JSON; nothing unless they were asked for:
    all that a topic's clients need of them is in the index."""


@dataclass(slots=True, kw_only=True)
class TopicState:
    """A topic as one process sees it. Owned by one thread; what it holds are frozen values, but for the index.

    A *light* state knows the head and what it has seen since it was opened; a whole one also every live file and every
    ``txn`` action. Rule L5, opening, says who may decide with a light one.
    """

    log: DeltaLog
    position: Position
    head: TopicHead
    checkpoint_version: int
    """The newest checkpoint this process knows of; -1 for none."""
    checkpoint_ms: int | None = None
    """When that was written, in a state that was loaded whole, as far as somebody keeps it."""
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    """By app_id; complete only in a whole state, together with :attr:`states`."""
    states: Sequence[CheckpointStates] = ()
    """States of producers in the checkpoint that the state was loaded by, where there are many (rule L7, producer
    state)."""
    forgotten_version: int = -1
    """The newest version that may have set ``txn`` actions which ``transactions`` lacks; -1: it lacks none."""
    whole: WholeTopic | None = None
    unrecorded_ends: frozenset[int] = frozenset()
    """Partitions whose ends a foreign file raised and no ``txn`` states yet; the next commit of ours does (rule L6,
    start and end)."""
    unrecorded_facts: dict[str, int] = field(default_factory=dict)
    """The facts about foreign commits that no ``txn`` action states yet; the next commit of ours does (rule F6, moved
    records)."""
    stands_on_other_topic: bool = False
    """The newest entry is of another topic, and was built upon by an older client (rule L8, one log)."""
    unreadable: UnsupportedVersionError | NotATopicError | None = None
    """Why what follows can't be understood: a foreign engine asks for a newer Delta reader, or broke the topic's
    properties. Then the position alone goes on, until an entry says that it may be otherwise."""
    unwritable: UnsupportedVersionError | None = None
    """Why nobody of ours may commit: a foreign engine asks for a newer Delta writer; ``demands.error``."""
    demands: WriteDemands = field(default_factory=WriteDemands)
    unsequenced_version: int = -1
    """The newest version that may have added files without a base offset; -1: none is known that did."""
    vacuums: tuple[Vacuum, ...] = ()
    """Vacuums by other engines that the log records between the versions this state has seen."""
    unread: range = range(0)
    """The versions behind the checkpoint that a light state was opened over: nobody here has read them."""
    opened: Entry | None = None
    """The entry that a light state was opened by, until the others are read."""
    gap_ms: float = 0.0
    """The length of the newest gap for foreign writers that an entry asked for, since this state was opened (rule F5,
    gaps)."""
    gap_until_ticks_ms: float = float("-inf")
    """When that gap ends, by this process's ticks."""
    gap_count: int = 0
    """How many entries asked for one."""
    foreign_ticks_ms: float = float("-inf")
    """When another engine was last seen to have committed files without offsets."""
    foreign_paths: dict[str, None] = field(default_factory=dict)
    """The newest of those files, decoded, oldest first."""
    unsynced: list[str] | None = None
    """Objects that others wrote and nobody here fsynced yet; None: not known (rule L9, fsync)."""
    observer: StateObserver | None = None

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """The producer's newest commit in the topic; None where none is known."""
        found = self._state_of(producer_id)
        return producer_entry({found.app_id: found} if found else {}, producer_id)

    def _state_of(self, producer_id: int) -> SetTransaction | None:
        name = app_id(producer_id)
        found = self.transactions.get(name)
        for states in self.states if found is None else ():
            found = found or states.find(name)
        return found

    def settled(self, announcer: int) -> int | None:
        """The newest settled number of an announcer; None where none is known (rule L14, announced uploads)."""
        found = self.transactions.get(announcer_app_id(announcer))
        return None if found is None else found.version

    def knows_more_writers_than(self, count: int) -> bool:
        """Are more producers and announcers known? Asked at every commit: they are counted only where there may be."""
        known = self.transactions
        return len(known) > count and sum(map(_is_of_writer, known)) > count

    def require_whole(self) -> WholeTopic:
        """The live files and metadata. Raises ``IllegalStateError`` in a light state: a decision that needs them must
        load the topic (rule L5, opening)."""
        if self.whole is None:
            raise IllegalStateError(
                f"{self.log.table}: opened from the newest commit alone, but its live files are needed"
            )
        return self.whole

    def forget_others(self, producer_id: int) -> None:
        """Become light, knowing of no producer but this one: a writer needs no more, however long it lives."""
        if self.head.totals is None and self.whole is not None:  # now they can be counted (rule L16, totals)
            self.head = replace(self.head, totals=totals_of(self.whole.index.by_path.values()))
        own = self._state_of(producer_id)
        self.transactions = {own.app_id: own} if own else {}
        self.states = ()
        self.forgotten_version = self.position.version
        self.whole = None

    def apply_entry(
        self, entry: Entry, position: Position, *, synced: bool = False, head: TopicHead | None = None
    ) -> None:
        """Go on to the next version; what can't be understood makes the state :attr:`unreadable`.

        Args:
            synced: its objects are known to survive a power loss.
            head: the topic afterwards, where whoever created the entry knows it, and it only adds files and counts
                them.
        Raises:
            PositionLost: the table may be readable again: load it.
            StoreError: a file that came without statistics can't be looked into now.
            The state is then as it was before.
        """
        if self.unreadable is not None:
            self._pass_over(entry, position)
            return
        try:
            self._apply(entry, position, synced=synced, known=head)
        except (UnsupportedVersionError, NotATopicError) as error:
            self.unreadable = error
            self.position = position

    def _pass_over(self, entry: Entry, position: Position) -> None:
        is_by_protocol = isinstance(self.unreadable, UnsupportedVersionError)
        for action in entry.actions:
            if isinstance(action, Protocol):
                try:
                    check_protocol(self.log.table, action, write=False)
                except UnsupportedVersionError as error:
                    self.unreadable = error
                else:
                    raise PositionLost(entry_path(self.log.table, entry.version))
            elif isinstance(action, Metadata) and not is_by_protocol:
                raise PositionLost(entry_path(self.log.table, entry.version))
        self.position = position

    def _apply(self, entry: Entry, position: Position, *, synced: bool, known: TopicHead | None) -> None:
        demands = self.demands
        for action in entry.actions if known is None else ():
            if isinstance(action, Protocol):
                check_protocol(self.log.table, action, write=False)
            if isinstance(action, Protocol | Metadata):
                demands = demands.after(self.log.table, action)
        info = entry.info
        foreign = info is None
        topic_id = self.head.topic_id
        is_other = known is None and info is not None and info.get("topic_id") != topic_id
        if is_other and other_topic_id(topic_id, entry):
            if self.stands_on_other_topic:  # so did who created it
                raise PositionLost(entry_path(self.log.table, entry.version))
            settle_other_topic(self.log, topic_id, entry)
        if foreign and self.whole is None and gives_offsets(entry):  # only a whole table tells whose offsets they are
            raise PositionLost(entry_path(self.log.table, entry.version))
        added = added_segments(self.log, entry) if foreign or self.whole is not None else []
        rewrites = None if self.whole is None else self.whole.index.rewrites
        if foreign and self.whole is not None and gives_offsets(entry):
            rewrites = judge(self.whole.index.rewrites, entry, added, self.whole.index.by_path)
        refused = () if rewrites is None else rewrites.refused
        head = head_after_entry(self.log.table, self.head, entry, refused=refused) if known is None else known
        head = raise_ends(head, (one for one in added if one.path not in refused)) if foreign else head
        self.unrecorded_ends = self.unrecorded_ends | _raised_ends(self.head, head) if foreign else frozenset()
        self.head = head
        self.position = position
        self.stands_on_other_topic = False
        if demands is not self.demands:
            self.demands, self.unwritable = demands, demands.error
        self._note_gap(entry)
        waiting = [a.path for a in entry.actions if isinstance(a, AddFile) and is_unsequenced(a)]
        if waiting:
            self.unsequenced_version = entry.version
            self._note_foreign_files(waiting)
        self.vacuums = with_vacuum(self.vacuums, entry)
        for action in entry.actions:
            if isinstance(action, SetTransaction):
                self.transactions[action.app_id] = action
        if self.whole is not None and rewrites is not None and rewrites is not self.whole.index.rewrites:
            self.whole.index.rewrites = rewrites
            self.unrecorded_facts |= unrecorded(rewrites, self.transactions)
        elif self.unrecorded_facts:
            self.unrecorded_facts = still_unrecorded(self.unrecorded_facts, entry)
        if self.whole is not None:
            for action in entry.actions:
                if isinstance(action, Metadata):
                    self.whole.metadata = action
            apply_files(self.whole.index, entry, added)
        if not synced and self.unsynced is not None:
            self.unsynced += [entry_path(self.log.table, entry.version), *self._added_objects(entry.actions)]
            if len(self.unsynced) > _MAX_UNSYNCED:
                self.unsynced = None
        if self.observer is not None:
            self.observer.note_entry(entry)

    def end_gap(self) -> None:
        """Another entry follows the newest: whoever created that has waited, so a gap that was asked for is over."""
        if self.gap_until_ticks_ms > float("-inf"):
            self.gap_until_ticks_ms = min(self.gap_until_ticks_ms, self.log.clock.ticks_ms())

    def _note_gap(self, entry: Entry) -> None:
        asked = 0 if entry.info is None else entry.info.get(GAP_INFO, 0)
        if isinstance(asked, int) and asked > 0:
            self.gap_ms = float(min(asked, MAX_GAP_MS))
            self.gap_until_ticks_ms = self.log.clock.ticks_ms() + self.gap_ms
            self.gap_count += 1

    def _note_foreign_files(self, paths: Sequence[str]) -> None:
        self.foreign_ticks_ms = self.log.clock.ticks_ms()
        self.foreign_paths.update((unquote(path), None) for path in paths[-_MAX_FOREIGN_PATHS:])
        for path in [*islice(self.foreign_paths, max(0, len(self.foreign_paths) - _MAX_FOREIGN_PATHS))]:
            del self.foreign_paths[path]

    def _added_objects(self, actions: tuple[Action, ...]) -> list[str]:
        found: list[str] = []
        for action in actions:
            if isinstance(action, AddFile):
                with suppress(InvalidArgumentError):  # outside of the table: its readers get an error
                    found.append(object_path(self.log.table, action.path))
        return found


def _is_of_writer(name: str) -> bool:
    return name.isdecimal() or is_of_announcer(name) or is_of_batches(name)


def open_state(log: DeltaLog) -> TopicState:
    """Open a topic from its newest commit alone; where that isn't ours, load the whole table.

    Raises:
        UnknownTopicOrPartitionError: there is no such table.
        NotATopicError, UnsupportedVersionError, CorruptLogError, StoreError.
    """
    newest = open_newest(log)
    if newest is None:
        raise unknown_topic(log)
    if newest.entry.info is None or may_be_of_another_topic(log, newest.entry):
        return load_state(log)
    head = head_of_info(log.table, newest.entry.version, newest.entry.info)
    if head.value_schema_id:
        return load_state(log)  # the schemas of its values are in the table's metadata (decision 0027)
    return TopicState(
        log=log,
        position=newest.position,
        head=head,
        unsequenced_version=newest.position.version if head.unsequenced_count else -1,
        checkpoint_version=newest.checkpoint_version,
        unread=range(newest.checkpoint_version + 1, newest.position.version),
        opened=newest.entry,
        transactions={a.app_id: a for a in newest.entry.actions if isinstance(a, SetTransaction)},
        forgotten_version=newest.position.version - 1,
    )


def load_state(
    log: DeltaLog,
    *,
    statistics: bool = False,
    is_once: bool = False,
    version: int | None = None,
    mends_shape: bool = False,
) -> TopicState:
    """Load a whole topic as of now. Raises as :func:`open_state`.

    Args:
        statistics: keep :attr:`WholeTopic.statistics`.
        is_once: see :func:`~sparklog.delta.snapshot.open_newest`.
        version: as of that version, to be read and never followed; ``InvalidArgumentError`` where the log lacks it.
        mends_shape: a topic whose properties went back is loaded as if they were as they have to be, for whoever puts
            them back; :attr:`WholeTopic.metadata` has them as they are.
    """
    snapshot = load_judgeable(log, is_once=is_once, version=version, mends_shape=mends_shape)
    if snapshot is None:
        raise unknown_topic(log) if version is None else _unknown_version(log, version)
    ids = _topic_ids(log, snapshot)
    if version is None:
        ids.check(log.table)
    index = live_files(log, snapshot)
    live_ends = {partition: index.end_offset(partition) for partition in index.partitions(with_stopped=True)}
    if ids.others:  # what they and the entries around them have given out isn't given again
        live_ends = greatest_ends(snapshot.tail, live_ends)
    recorded = {partition: snapshot.transactions.get(end_app_id(partition)) for partition in live_ends}
    head = head_of_table(
        log.table,
        snapshot.position.version,
        shape_metadata(log.table, snapshot, mends=mends_shape),
        snapshot.transactions,
        live_end_offsets=live_ends,
        live_file_count=len(index),
        unsequenced_count=len(index.unsequenced()),
    )
    demands = WriteDemands().after(log.table, snapshot.protocol).after(log.table, snapshot.metadata)
    return TopicState(
        log=log,
        position=snapshot.position,
        head=head,
        checkpoint_version=snapshot.checkpoint_version,
        checkpoint_ms=snapshot.checkpoint_ms,
        transactions=dict(snapshot.transactions),
        states=snapshot.states,
        unsequenced_version=snapshot.position.version if head.unsequenced_count else -1,
        whole=WholeTopic(
            index=index,
            metadata=snapshot.metadata,
            tail=snapshot.tail,
            statistics=file_statistics(snapshot, index) if statistics else {},
        ),
        unrecorded_ends=frozenset(p for p, txn in recorded.items() if live_ends[p] > (txn.version if txn else 0)),
        unwritable=demands.error,
        demands=demands,
        vacuums=reduce(with_vacuum, snapshot.tail, ()),
        stands_on_other_topic=ids.is_accepted,
        unrecorded_facts=unrecorded(index.rewrites, snapshot.transactions),
    )


def _topic_ids(log: DeltaLog, snapshot: Snapshot) -> TopicIds:
    partitioned_by = [*snapshot.metadata.partition_columns]
    if partitioned_by != ["partition", "base_offset"]:
        raise NotATopicError(
            f"{log.table} is no sparklog topic: partitioned by {partitioned_by}, expected ['partition', 'base_offset']"
        )
    return topic_ids(snapshot)


def _unknown_version(log: DeltaLog, version: int) -> SparklogError:
    newest = open_newest(log)
    if newest is None:
        return unknown_topic(log)
    return InvalidArgumentError(
        f"{log.table} can't be read as of version {version}: its log has no entry of it, or not what comes before it "
        f"(any more); the newest is {newest.entry.version}"
    )


def _raised_ends(before: TopicHead, after: TopicHead) -> frozenset[int]:
    ends = zip_longest(before.log_end_offsets, after.log_end_offsets, fillvalue=0)  # partitions may have been added
    return frozenset(partition for partition, (old, new) in enumerate(ends) if new > old)


def unknown_topic(log: DeltaLog) -> UnknownTopicOrPartitionError:
    """The error for a table that isn't there."""
    return UnknownTopicOrPartitionError(f"unknown topic: there is no table at {log.store.uri}/{log.table}")
