"""One append on its way: what it commits, which of its files are uploaded again, and where they are found after a lost
answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sparklog.delta.actions import AddFile, Entry
from sparklog.delta.commit import UploadsGoneError
from sparklog.delta.log import DeltaLog
from sparklog.errors import CommitStateUnknownError, CorruptRecordError, StoreError
from sparklog.log.announced.group import GroupCommit, Participation
from sparklog.log.announced.names import is_listed
from sparklog.log.announced.plan import MOST_FILES, OwnFlush
from sparklog.log.announced.writing import AnnouncedFlush, FlushState
from sparklog.log.append_plan import plan_append
from sparklog.log.append_slots import Slot, judge_slots, new_batches, rows_of
from sparklog.log.carried_files import carrying, is_worth_while
from sparklog.log.commit import Commit, TopicCommitResult
from sparklog.log.data.data_files import StagedFile
from sparklog.log.data.producer_batch import FileRows
from sparklog.log.data.record_reading import find_by_sequence
from sparklog.log.data.segments import SegmentIndex
from sparklog.log.producer_batches import ProducerBatches, batch_actions, batch_info
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS, ProducerEntry
from sparklog.log.staged_files import upload_encoded
from sparklog.log.state import TopicState
from sparklog.log.uploads import may_be_gone, put_again_if_late

__all__ = ["Append", "AppendResult", "Appender"]


class AppendResult(NamedTuple):
    """The offsets and the version of one append."""

    base_offsets: tuple[int, ...]
    """Offset of the first record of each file, in the order in which the files were given."""
    delta_version: int
    """The commit that published them; -1 where it is known no more."""
    rows: tuple[FileRows | None, ...] = ()
    """For each file, where some of its rows weren't stored now (rule L15, numbered batches); empty: all were."""


class Appender(NamedTuple):
    """The writer of an append: the topic that it writes to, and in whose name."""

    topic: str
    topic_id: str
    producer_id: int
    entry: ProducerEntry
    """The producer's epoch, and the counter of this append."""
    sync: bool
    """Is what it uploads fsynced?"""


class Append:
    """One append on its way: its tokens, its files and the offsets that the last decision gave them.

    Its commit takes every announced flush of the writer that isn't settled, and ordinary uploads of this append behind
    them. What becomes of an announced flush, :class:`~sparklog.log.announced.writing.GroupWriting` learns from the
    entries that are applied, whoever created them.
    """

    def __init__(
        self,
        state: TopicState,
        files: Sequence[StagedFile],
        *,
        by: Appender,
        group: GroupCommit,
        turns: Participation,
        staged: Mapping[str, int],
        batches: ProducerBatches,
    ) -> None:
        """
        Args:
            staged: ordinary uploads of the writer that aren't settled, and their order among all its uploads.
            batches: what the topic has of producers that number their batches; complete where a file has such.
        """
        self._staged = staged
        self._batches = batches
        self.tokens: set[str] = set()
        self._by = by
        self._group = group
        self._turns = turns
        self._given: list[str] = []
        self._flushes: dict[str, AnnouncedFlush] = {}
        self._ordinary: list[Slot] = []
        for file in files:
            path = file.facts.path
            self._given.append(path)
            flush = group.writing.flush_of(path)
            if flush is None:
                self._ordinary.append(Slot([file], staged.get(path, 0)))
            else:
                self._flushes[path] = flush
        self.has_numbered_batches = any(slot.files[0].batches for slot in self._ordinary)
        """Has it batches that their producers have numbered (rule L15, numbered batches)?"""
        self._ends_before = state.head.log_end_offsets
        self._base_offsets: tuple[int, ...] = ()
        self._first_decided_at: float | None = None
        self._staged_at: dict[str, float] | None = None
        """Ticks before the uploads of what the newest decision adds; None until somebody asks."""
        self._state = state

    @property
    def has_ordinary(self) -> bool:
        """Has it files that weren't announced?"""
        return bool(self._ordinary)

    @property
    def uses_counter(self) -> bool:
        """Once it is done: was its counter used? Not where every ordinary record was stored before, or is refused."""
        return bool(self._filled)

    @property
    def ordinary_paths(self) -> list[str]:
        """All names of its files that weren't announced."""
        return [file.facts.path for slot in self._ordinary for file in slot.files]

    @property
    def announced_flushes(self) -> list[AnnouncedFlush]:
        """The announced flushes that its files belong to."""
        return [*{id(flush): flush for flush in self._flushes.values()}.values()] if self._flushes else []

    def decide(self, state: TopicState) -> Commit | None:
        """Decide what to commit; None: the log holds it already. Raises as :func:`plan_append`, and
        ``CommitStateUnknownError`` after a stall of days."""
        self._state, self._staged_at = state, None
        by = self._by
        must_settle = bool(self._flushes) and any(not flush.is_settled for flush in self._flushes.values())
        if self._flushes and not must_settle and not self._ordinary:
            return None
        self._check_stall(state.log.clock.ticks_ms())
        if self.has_numbered_batches and not self._is_in(state):
            judge_slots(self._ordinary, self._batches, state)
        own = [(flush.order, flush.to_own()) for flush in self._unsettled()]
        for slot in self._filled:
            own.append((slot.order, OwnFlush(announcer=None, number=0, files=(slot.files[-1].facts,))))
        own.sort(key=_order)
        own_count = sum([len(flush.files) for _, flush in own])
        planned = plan_append(
            state.head,
            state.producer(by.producer_id),
            [flush for _, flush in own],
            topic=by.topic,
            topic_id=by.topic_id,
            producer_id=by.producer_id,
            entry=by.entry,
            now_ms=state.log.clock.now_ms(),
            others=self._turns.takeable(state, room=MOST_FILES - own_count),
            value_stats=self._turns.value_stats,
            must_settle=must_settle,
        )
        if planned is None:
            return None
        bases = planned.base_offsets
        paths = [slot.files[-1].facts.path for slot in self._filled]
        self._base_offsets = tuple([bases[path] for path in paths if path in bases])
        commit = self._with_batches(planned.commit, bases) if self.has_numbered_batches else planned.commit
        if not is_worth_while(state.log.store):
            return commit
        added = [slot.newest for slot in self._filled if slot.newest.path in bases]
        return carrying(commit, added, since_checkpoint=state.position.version + 1 - state.checkpoint_version)

    @property
    def _filled(self) -> list[Slot]:
        """The ordinary files that have anything to be stored."""
        return [slot for slot in self._ordinary if not slot.is_empty]

    def _is_in(self, state: TopicState) -> bool:
        """Is this append in the log, by an attempt whose answer was lost? Then its batches are judged no more."""
        known = state.producer(self._by.producer_id)
        entry = self._by.entry
        return known is not None and (known.producer_epoch, known.counter) >= (entry.producer_epoch, entry.counter)

    def _with_batches(self, commit: Commit, bases: Mapping[str, int]) -> Commit:
        """The commit with what it stores of producers that number their batches."""
        found = new_batches(self._ordinary, bases)
        if not found:
            return commit
        now_ms = self._state.log.clock.now_ms()
        actions = batch_actions([one[:2] for one in found], topic_id=self._by.topic_id, now_ms=now_ms)
        return replace(commit, actions=[*commit.actions, *actions], info=batch_info(found))

    def _unsettled(self) -> list[AnnouncedFlush]:
        if not self._group.writing.has_flushes:
            return []
        appended = {slot.files[0].path for slot in self._ordinary}
        return self._group.writing.unsettled(ordinary=self._staged, appended=appended)

    def _check_stall(self, now_ticks_ms: float) -> None:
        """After a stall of days, absence of a producer's state proves nothing any more (rule L7, producer state)."""
        if self._first_decided_at is None:
            self._first_decided_at = now_ticks_ms
        elif now_ticks_ms - self._first_decided_at >= PRODUCER_EXPIRATION_MS:
            raise CommitStateUnknownError(
                f"topic {self._by.topic!r}: an append of producer {self._by.producer_id} stalled for "
                f"{(now_ticks_ms - self._first_decided_at) / 86_400_000:.1f} days; read the log back before anything "
                "else"
            )

    def prepare(self) -> bool:
        """Wait for a turn and list, where writers take turns; upload again what may be gone. True: decide again."""
        return (
            self._turns.prepare(self._state, must_create=self._must_create(), lists=not self.has_ordinary)
            or (self.has_numbered_batches and self._upload_without_refused())
            or self._upload_again_if_at_risk()
        )

    def _must_create(self) -> bool:
        """Is there something that nobody else publishes: an ordinary upload, a number to be settled without files, or
        a flush so old that it isn't listed any more?"""
        version = self._state.position.version
        return self.has_ordinary or any(
            flush.state is FlushState.GIVEN_UP
            or not all(is_listed(names[0].facts.topic_version, version) for names in flush.files)
            for flush in self._unsettled()
        )

    def _upload_without_refused(self) -> bool:
        """Files that hold batches which aren't to be stored get new names and other rows, as do those that held too
        few."""
        state = self._state
        wrong = [slot for slot in self._ordinary if not slot.is_right]
        for slot in wrong:
            encoded = slot.encoded_anew(state.head.leaves)
            slot.is_empty, slot.held = encoded is None, slot.wanted
            if encoded is not None:
                slot.files += upload_encoded(
                    state.log, [(slot.newest.partition, encoded)], topic_version=self._version, sync=self._by.sync
                )
        return bool(wrong)

    @property
    def _version(self) -> int:
        return self._state.position.version

    def _upload_again_if_at_risk(self) -> bool:
        """Files that somebody may have deleted, or may be about to, get new names (rule L10, orphans)."""
        state = self._state
        now, retention_ms = state.log.clock.ticks_ms(), state.head.deleted_file_retention_ms
        gone = [
            (file, use)
            for file, use in self._newest().values()
            if may_be_gone(file, state.vacuums, now_ticks_ms=now, retention_ms=retention_ms)
        ]
        self._upload_again(gone)
        return bool(gone)

    def _newest(self) -> dict[str, tuple[StagedFile, Callable[[StagedFile], object]]]:
        """The files that are to be published, by path, each with what takes another in its place."""
        writing = self._group.writing
        newest: dict[str, tuple[StagedFile, Callable[[StagedFile], object]]] = {
            slot.newest.path: (slot.newest, slot.files.append) for slot in self._filled
        }
        for flush in self._unsettled():
            if flush.state is not FlushState.GIVEN_UP:
                for part, file in enumerate(flush.newest_files):
                    newest[file.path] = file, partial(writing.replace, flush, part)
        return newest

    def _upload_again(self, gone: Sequence[tuple[StagedFile, Callable[[StagedFile], object]]]) -> None:
        if not gone:
            return
        again = upload_encoded(
            self._state.log,
            [(file.partition, file.batch) for file, _ in gone],
            topic_version=self._version,
            sync=self._by.sync,
        )
        for file, (_, use) in zip(again, gone, strict=True):
            use(file)

    def uploaded_at(self, path: str) -> float:
        """A tick before the upload of a file that the newest decision adds began; of others' files, before the listing
        that showed them (rule L17, ground)."""
        if self._staged_at is None:
            newest = self._newest()
            self._staged_at = {path: file.facts.staged_ticks_ms for path, (file, _) in newest.items()}
        return self._staged_at.get(path, self._turns.listed_ticks_ms)

    def replace(self, gone: UploadsGoneError) -> None:
        """Files that aren't there get new names; others' are left to them. Raises ``StoreError``."""
        newest = self._newest()
        if not gone.paths <= newest.keys():
            self._turns.forget_listing()
        self._upload_again([one for path, one in newest.items() if path in gone.paths])

    def put_again_if_late(self, state: TopicState) -> None:
        """The same files under the same names, as far as the log names them now (rule L10, orphans)."""
        named = [slot.newest for slot in self._filled]
        named += [file for flush in self.announced_flushes for file in flush.published]
        if state.whole is not None:  # a commit that was found there may be so old that its files were merged since
            named = [file for file in named if file.path in state.whole.index.by_path]
        retention_ms = state.head.deleted_file_retention_ms
        put_again_if_late(state.log, named, retention_ms=retention_ms, sync=self._by.sync)

    def result(self, done: TopicCommitResult) -> AppendResult:
        """The offsets of the files. Raises ``CommitStateUnknownError``: they are in the log, but their offsets are
        unknown."""
        state = done.state
        bases: dict[str, int] = {slot.files[0].facts.path: -1 for slot in self._ordinary}
        versions: list[int] = []
        try:
            for flush in self.announced_flushes:
                paths = [names[0].path for names in flush.files]
                bases.update(zip(paths, bases_of_flush(state, flush, topic=self._by.topic), strict=True))
                versions.append(flush.version)
            if self._filled:
                offsets, version = self._ordinary_result(done)
                bases.update((slot.files[0].path, base) for slot, base in zip(self._filled, offsets, strict=True))
                versions.append(version)
        except (StoreError, CorruptRecordError) as error:
            raise CommitStateUnknownError(
                f"topic {self._by.topic!r}: appended, but at unknown offsets: {error}"
            ) from error
        version = -1 if -1 in versions else max(versions, default=-1)
        rows: dict[str, FileRows | None] = {}
        if self.has_numbered_batches:
            paths = [slot.files[0].path for slot in self._ordinary]
            rows = dict(zip(paths, rows_of(self._ordinary, [bases[path] for path in paths]), strict=True))
        return AppendResult(
            base_offsets=tuple([bases[path] for path in self._given]),
            delta_version=version,
            rows=tuple(rows.get(path) for path in self._given) if any(rows.values()) else (),
        )

    def _ordinary_result(self, done: TopicCommitResult) -> tuple[Sequence[int], int]:
        if done.commit is not None and self._base_offsets:
            return self._base_offsets, done.state.position.version
        # The log already holds our counter: an attempt whose answer we never got, found in the reloaded table.
        found = self._find(done.state)
        if found is None:
            raise CommitStateUnknownError(
                f"topic {self._by.topic!r} holds commit {self._by.entry.counter} of producer {self._by.producer_id}, "
                "but neither its entry nor its records are left, which would give their offsets"
            )
        return found

    def _find(self, state: TopicState) -> tuple[Sequence[int], int] | None:
        if state.whole is None:
            return None
        for entry in state.whole.tail:
            offsets = self._offsets_in(entry) if entry.token in self.tokens else None
            if offsets is not None:
                return offsets, entry.version
        index, ends = state.whole.index, self._ends_before
        known = [
            offset
            for slot in self._filled
            if (offset := locate(state.log, index, slot.files, ends_before=ends)) is not None
        ]
        return (known, -1) if len(known) == len(self._filled) else None

    def _offsets_in(self, entry: Entry) -> list[int] | None:
        """Where the ordinary files begin by an entry that adds them; None where it doesn't."""
        adds = (action for action in entry.actions if isinstance(action, AddFile))
        bases = {add.path: int(add.partition_values["base_offset"] or 0) for add in adds}
        named = [next((file.path for file in slot.files if file.path in bases), None) for slot in self._filled]
        found = [bases[path] for path in named if path is not None]
        return found if len(found) == len(named) else None


def _order(own: tuple[int, OwnFlush]) -> int:
    return own[0]


def bases_of_flush(state: TopicState, flush: AnnouncedFlush, *, topic: str) -> Sequence[int]:
    """The base offset of each part of a flush that is settled.

    Raises:
        CommitStateUnknownError: it isn't known to be in the log.
        StoreError, CorruptRecordError.
    """
    if flush.state is FlushState.PUBLISHED:
        return flush.base_offsets
    if flush.state is FlushState.SETTLED and state.whole is not None:
        index, ends = state.whole.index, flush.ends_before
        found = [locate(state.log, index, names, ends_before=ends) for names in flush.files]
        known = [offset for offset in found if offset is not None]
        if len(known) == len(found):
            return known
    raise CommitStateUnknownError(
        f"topic {topic!r}: whether flush {flush.number} of announcer {flush.announcer} is in the log is unknown "
        f"({flush.state.value}); read the log back before anything else"
    )


def locate(
    log: DeltaLog, index: SegmentIndex, files: Sequence[StagedFile], *, ends_before: Sequence[int]
) -> int | None:
    """The offset of the first record of a file among the live files, also where it was merged since; None: not there.

    Args:
        files: the names under which it was uploaded.
        ends_before: log end offsets of before its upload; the records lie behind them.
    Raises:
        StoreError, CorruptRecordError.
    """
    for file in files:
        live = index.by_path.get(file.path)
        if live is not None:
            return live.base_offset
    first = files[0]
    stamp = first.batch.stamp
    for segment in index.from_offset(first.partition, ends_before[first.partition]):
        offset = find_by_sequence(
            log,
            segment,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            sequence=stamp.base_sequence,
        )
        if offset is not None:
            return offset
    return None
