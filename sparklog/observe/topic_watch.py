"""Watching one topic: as much of its state as the next look needs, in little memory.

A look reads the next entry of the topic's log: one request where nothing was committed. In a topic with more commits
than two between looks, it reads the newest entry alone, which has settings, starts and ends (rule L5, opening); the
files that the entries between have added are caught up with now and then, by :meth:`TopicWatch.catch_up_files`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparklog.delta.actions import AddFile, Entry
from sparklog.delta.checkpoint_content import CheckpointReader
from sparklog.delta.listing import look_past, versions_after
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Newest, open_newest
from sparklog.log.catch_up import apply_look
from sparklog.log.cluster import Cluster
from sparklog.log.data.segments import SegmentIndex, is_sequenced, segment_of_add
from sparklog.log.head import head_of_info, is_of_cleaner
from sparklog.log.state import TopicState, load_state, unknown_topic
from sparklog.observe import loading_room
from sparklog.observe.figures import TopicFigures
from sparklog.observe.packed_files import PackedFiles, TimedRange, pack
from sparklog.observe.topic_figures import head_figures, topic_figures, with_head
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position, advance

__all__ = ["NewestTopic", "TopicWatch", "newest_topic", "topic_of_newest"]

AHEAD_WHEN_CHANGED = 2
"""Entries that are asked for once the next one was there: with it three requests."""
_FEW = 2
_MOST_CAUGHT_UP = 256
"""Entries; where more were missed, loading the topic from its checkpoint is cheaper."""
_TRUSTS = 5
"""Times the trust of others (rule L1, trust): entries stay for ten times it after their successor came."""
_MOST_SAMPLES = 64
_OFTEN_CHECKPOINTED = 100
"""Versions behind the newest known checkpoint after which there is likely a newer one."""
_LIKELY_CHECKPOINT_EVERY_MS = 60_000.0
"""How often a newer checkpoint is looked for where there are so many, and something was committed since."""
_CHECKPOINT_EVERY_MS = 1_800_000.0
"""How often elsewhere. On object stores it takes a LIST in place of a look's GET, at a dozen times the price."""
_MOST_LISTED = 900
"""Versions before the newest one that are searched for a checkpoint: with what came since they fit into a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestTopic:
    """A topic as its newest commit alone describes it."""

    figures: TopicFigures
    entry: Entry

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.figures.name

    def range_at(self, partition: int, offset: int) -> TimedRange | None:
        """The offsets and times of the file with the record at ``offset``, if the newest commit has added it; as
        :meth:`TopicWatch.range_at` returns them."""
        for action in self.entry.actions:
            if not isinstance(action, AddFile) or action.partition_values.get("partition") != str(partition):
                continue
            file = segment_of_add(action, self.entry.version)
            first, last = file.first_offset, file.last_offset
            if not is_sequenced(file) or not file.has_stats or not first <= offset <= last:
                continue
            low, high = file.min_timestamp_ms, file.max_timestamp_ms
            if low is not None and high is not None:
                return TimedRange(first_offset=first, last_offset=last, min_ms=low, max_ms=high)
        return None


def newest_topic(cluster: Cluster, name: str, *, is_short: bool = True) -> NewestTopic | TopicWatch | None:
    """A topic by its newest commit alone: a LIST and a GET. None for one that was deleted. Where another engine has
    committed last, the topic is loaded. Raises what reading a log raises.

    Args:
        is_short: may its log fit into one page of a listing? A GET more where it doesn't, and a LIST more where that
            isn't known.
    """
    log = cluster.topic_log(name)
    newest = open_newest(log, is_once=is_short)
    if newest is None:
        raise unknown_topic(log)
    return topic_of_newest(cluster, name, newest)


def topic_of_newest(cluster: Cluster, name: str, newest: Newest) -> NewestTopic | TopicWatch | None:
    """A topic of which the newest entry was read; as :func:`newest_topic`."""
    if newest.entry.info is None:
        loaded = TopicWatch(cluster, name)
        return None if loaded.is_deleted else loaded
    head = head_of_info(cluster.topic_log(name).table, newest.entry.version, newest.entry.info)
    if head.deleted:
        return None
    commit_ms = _commit_ms(newest.entry)
    figures = head_figures(head, name, commit_ms=commit_ms, newest=newest)
    return NewestTopic(figures=figures, entry=newest.entry)


class TopicWatch:
    """A topic that is looked at again and again. Not for several threads at once.

    Each method raises what reading a log raises, and leaves the watch as it was, or further on.
    """

    _state: TopicState
    """The topic at the newest entry whose files are known; without the files."""
    _files: PackedFiles
    _newest: Position
    """The newest entry that is known; beyond ``_state`` in a busy topic."""
    _figures: TopicFigures
    _is_deleted: bool

    def __init__(self, cluster: Cluster, name: str, *, read_checkpoint: CheckpointReader | None = None) -> None:
        """Load the topic: a few requests, and one for each entry behind its checkpoint. Raises as ``load_state``."""
        log = cluster.topic_log(name)
        trust_ms = _TRUSTS * log.tail_trust_ms
        self.name = name
        self._log: DeltaLog = replace(
            log,
            tail_trust_ms=trust_ms,
            checks_ground=False,
            read_checkpoint=read_checkpoint,
            before_load=self._wait_for_room,
        )
        self._clock = cluster.clock
        self._samples: list[tuple[int, tuple[int, ...]]] = []
        """Times of commits, and the log ends as of them, since the newest of which the files are known."""
        self._commit: tuple[int, int | None] = (-1, None)
        """The newest version, and when it was committed."""
        self.is_busy = False
        """May there be more new commits than a look reads one by one? So it is held of a topic that was just loaded."""
        self.computed_ms = 0
        """When the figures were computed, ms since the epoch."""
        self._checked_ticks_ms = 0.0
        """When a newer checkpoint was last looked for."""
        self._checked_version = -1
        """The newest version that was known then."""
        self._load()

    @property
    def figures(self) -> TopicFigures:
        """The topic as of the newest look."""
        return self._figures

    @property
    def is_deleted(self) -> bool:
        """Was it deleted? Its log goes on, and it may be created again."""
        return self._is_deleted

    @property
    def is_behind(self) -> bool:
        """Are there commits of which the files aren't known yet?"""
        return self._figures.files_version < self._figures.delta_version

    @property
    def is_checkpoint_due(self) -> bool:
        """Should the next look be :meth:`look_past_checkpoint`, as the checkpoint that is known may be an old one?"""
        behind = self._figures.uncheckpointed_count
        is_likely = behind > _OFTEN_CHECKPOINTED and self._newest.version > self._checked_version
        every_ms = _LIKELY_CHECKPOINT_EVERY_MS if is_likely else _CHECKPOINT_EVERY_MS
        return behind > 0 and self._clock.ticks_ms() - self._checked_ticks_ms >= every_ms

    @property
    def is_outdated(self) -> bool:
        """Has a step of maintenance become due since the figures were computed, or a day passed?"""
        now_ms = self._clock.now_ms()
        return any(self.computed_ms < due_ms <= now_ms for due_ms in self._figures.due_ms.values())

    def next_paths(self, ahead: int) -> list[str]:
        """The names of the entries that come next, for a caller that reads many topics in one call."""
        return self._log.paths_beyond(self._state.position, ahead)

    def take(self, data: Sequence[bytes | None], *, began_ticks_ms: float) -> bool:
        """Apply what :meth:`next_paths` named. True: there may be more.

        No request; a GET and a LIST where the last look was so long ago that an entry may have been cleaned.

        Args:
            data: the objects in the order of the names; None for one that isn't there.
            began_ticks_ms: when reading them began.
        """
        try:
            look = self._log.look_at(self._state.position, data, began_ticks_ms=began_ticks_ms)
        except PositionLost:
            self._load()
            return False
        if not look.entries:
            self._state.position = look.position
            self._check_readable()
            return False
        self._change(lambda: list(apply_look(self._state, look)))
        return len(look.entries) == len(data)

    def look_at_newest(self) -> None:
        """The look at a busy topic: a LIST, and a GET for each of one or two new entries, else one for the newest."""
        began = self._clock.ticks_ms()
        self._look_at_versions(versions_after(self._log, self._newest.version), began_ticks_ms=began)

    def look_past_checkpoint(self) -> None:
        """The look at a topic of which a newer checkpoint may be there, for the same requests as
        :meth:`look_at_newest`: the LIST begins at the checkpoint that is known, or a page of it before the newest
        entry."""
        began, newest = self._clock.ticks_ms(), self._newest.version
        below = max(self._state.checkpoint_version, newest - _MOST_LISTED)
        versions, checkpoint = look_past(self._log, newest, checkpoint_version=below)
        self._checked_ticks_ms, self._checked_version = began, newest
        if checkpoint is not None:
            self._note_checkpoint(*checkpoint)
        self._look_at_versions(versions, began_ticks_ms=began)

    def _look_at_versions(self, versions: Sequence[int], *, began_ticks_ms: float) -> None:
        """Go on to the newest of the versions that a look has found beyond what is known."""
        known, began = self._newest, began_ticks_ms
        self.is_busy = len(versions) > _FEW
        if not versions:
            self._newest = advance(known, version=known.version, token=known.token, tail_seen_at=began)
            if not self.is_behind:
                self._state.position = self._newest
            self._check_readable()
            return
        if not self.is_busy and not self.is_behind:
            data = self._log.store.read_many(self.next_paths(len(versions)))
            self.take(data, began_ticks_ms=began)
            return
        entry = self._log.read_entry(versions[-1])
        if entry is None or entry.info is None:  # cleaned meanwhile, or another engine's, which has no ends
            self.catch_up_files()
            return
        head = head_of_info(self._log.table, entry.version, entry.info)
        commit_ms = _commit_ms(entry)
        self._newest = advance(known, version=entry.version, token=entry.token, tail_seen_at=began)
        self._is_deleted = head.deleted
        self._figures = with_head(self._figures, head, commit_ms=commit_ms)
        if commit_ms is not None:
            self._samples = [*self._samples, (commit_ms, head.log_end_offsets)][-_MOST_SAMPLES:]

    def catch_up_files(self) -> None:
        """Read the entries that were passed over: a GET each, or what loading the topic takes where they are many."""
        missed = self._newest.version - self._state.position.version
        if missed > _MOST_CAUGHT_UP:
            self._load()
            return
        try:
            look = self._log.look(self._state.position, ahead=missed + 1)
        except PositionLost:
            self._load()
            return
        if look.entries:
            self._change(lambda: list(apply_look(self._state, look)))
        self.is_busy = self.is_busy and len(look.entries) > missed

    def _note_checkpoint(self, version: int, written_ms: int | None) -> None:
        self._state.checkpoint_version, self._state.checkpoint_ms = version, written_ms
        if not self.is_behind:
            self.recompute()
        self._figures = replace(self._figures, checkpoint_version=version, checkpoint_ms=written_ms)

    def recompute(self) -> None:
        """Compute the figures anew, as time has passed. No request."""
        self._change(lambda: [])

    def range_at(self, partition: int, offset: int) -> TimedRange | None:
        """The offsets and times of the file with the record at ``offset`` or the first one behind it; of what no file
        is known yet, those between two commits that were seen. None where there is neither."""
        found = self._files.range_at(partition, offset)
        if found is not None:
            return found
        before: tuple[int, int] | None = None
        for commit_ms, ends in self._samples:
            end = ends[partition] if partition < len(ends) else 0
            if before is not None and offset < end:
                first, first_ms = before
                return TimedRange(first_offset=first, last_offset=end - 1, min_ms=first_ms, max_ms=commit_ms)
            before = (end, commit_ms)
        return None

    def _check_readable(self) -> None:
        if self._state.unreadable is not None:
            raise self._state.unreadable.with_traceback(None)

    def _load(self) -> None:
        began = self._clock.ticks_ms()
        try:
            self._keep(load_state(self._log, is_once=True), None)
        finally:
            loading_room.ROOM.leave(self)
        self._checked_ticks_ms, self._checked_version = began, self._newest.version
        self.is_busy = True

    def _change(self, change: Callable[[], list[Entry]]) -> None:
        """Unpack the files, let ``change`` apply entries, and pack them again, also where it fails half-way."""
        whole = self._state.require_whole()
        whole.index = self._files.unpack(whole.index)
        entries: list[Entry] = []
        try:
            entries = change()
        except PositionLost:
            self._state = load_state(self._log)
        finally:
            loading_room.ROOM.leave(self)
            self._keep(self._state, entries[-1] if entries else None)

    def _wait_for_room(self, checkpoint_bytes: int, entry_bytes: int) -> None:
        loading_room.ROOM.enter(self, loading_room.needed_bytes(checkpoint_bytes, entry_bytes))

    def _keep(self, state: TopicState, newest: Entry | None) -> None:
        """Compute the figures of a state, and keep of it what the next look needs."""
        whole = state.require_whole()
        if newest is None and whole.tail:
            newest = whole.tail[-1]
        state.transactions = {name: txn for name, txn in state.transactions.items() if is_of_cleaner(name)}
        state.states = ()  # of producers: who looks asks for none
        self._commit = (state.position.version, self._time_of(state, newest))
        self.computed_ms = self._clock.now_ms()
        figures = topic_figures(state, self.name, commit_ms=self._commit[1], now_ms=self.computed_ms)
        self._files = pack(whole.index)
        whole.index = SegmentIndex.of((), rewrites=whole.index.rewrites, table=whole.index.table)
        whole.tail = ()
        whole.metadata = replace(whole.metadata, schema_string=sys.intern(whole.metadata.schema_string))
        self._state = state
        self._newest = state.position
        self._is_deleted = state.head.deleted
        self._figures = figures
        ends = state.head.log_end_offsets
        self._samples = [] if figures.commit_ms is None else [(figures.commit_ms, ends)]

    def _time_of(self, state: TopicState, newest: Entry | None) -> int | None:
        """When the newest commit of a state was made: it may be in no entry that was read, but in a checkpoint."""
        if newest is not None:
            return _commit_ms(newest)
        if self._commit[0] == state.position.version:
            return self._commit[1]
        files = state.require_whole().index.by_path.values()
        return max((one.modification_ms for one in files), default=None)


def _commit_ms(entry: Entry) -> int | None:
    found = entry.commit_info.get("timestamp")
    return found if isinstance(found, int) else None
