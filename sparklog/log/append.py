"""Appending: upload files that have no offsets yet, then let one commit assign them (``docs/architecture.md``, A topic
is a table).

What may be appended and which offsets it gets is decided by :func:`~sparklog.log.append_plan.plan_append`;
:class:`TopicWriter` acts: it uploads, runs the commit loop and finds out what became of a commit whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparklog.clock import Deadline
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    SparklogError,
    StoreError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.announced.group import GroupCommit, Participation
from sparklog.log.announced.writing import FlushState
from sparklog.log.appending import Append, Appender, AppendResult
from sparklog.log.catch_up import catch_up
from sparklog.log.commit import TopicCommitResult, commit
from sparklog.log.confirming import Confirmation
from sparklog.log.data.data_files import StagedFile, StagedUpload, UploadedFile
from sparklog.log.data.encode import Records, encode_batches
from sparklog.log.data.producer_batch import PlacedBatch
from sparklog.log.data.sequences import ProducerSequences
from sparklog.log.gaps import ForeignGaps
from sparklog.log.head import TopicHead
from sparklog.log.maintenance import Checkpoints, Sequencing
from sparklog.log.producer_batches import ProducerBatches, load_batches, search_older_batches
from sparklog.log.producer_state import ProducerEntry, new_producer_id
from sparklog.log.publishing import Marker, PublishResult, check_published, publish_transaction
from sparklog.log.reloading import reload_state
from sparklog.log.staged_files import check_appendable, put_staged, stage_encoded
from sparklog.log.state import TopicState, open_state
from sparklog.log.state_observers import StateObservers
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.retrying import retry

__all__ = ["AppendResult", "StagedFile", "StagedUpload", "TopicWriter", "UploadedFile"]

_MAX_PRODUCERS_KNOWN = 1_000
_REFRESH_AHEAD = 8


class TopicWriter:
    """Appends to one topic under one producer id. While one thread appends, another one may stage uploads, and several
    may put what is staged; no more than that. Opening costs a fixed number of store calls at any age of the topic; an
    append costs one PUT per file and one create. A race that it loses costs a create and a GET more; one that loses
    twice in a row reads ahead to the tail.
    """

    def __init__(
        self,
        log: DeltaLog,
        topic: str,
        *,
        sync: bool = False,
        checkpoints: Checkpoints | None = None,
        sequencing: Sequencing | None = None,
        gaps: ForeignGaps | None = None,
        group_commit: bool = False,
    ) -> None:
        """Open ``topic`` for writing.

        Args:
            sync: fsync every append before it returns (``acks=all`` on a local file system).
            checkpoints: who writes the topic's checkpoints when this writer's commits make them due; by default, a
                thread of this writer's own.
            sequencing: who gives offsets to what other engines wrote without, when this writer meets it; None: nobody.
            gaps: when this writer's entries ask for a gap in which other engines can commit (rule F5, gaps);
                None: never.
            group_commit: announce uploads where several writers lose races, and publish those of others (rule L14,
                announced uploads).
        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            NotATopicError, UnsupportedVersionError, CorruptLogError, StoreError.
        """
        self.topic = topic
        self._sync = sync
        self._log = log
        self._checkpoints = checkpoints or Checkpoints()
        self._sequencing = sequencing
        self._gaps = gaps
        self._state = open_state(log)
        if self._state.head.deleted:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} was deleted")
        if self._state.unwritable is not None:
            raise self._state.unwritable.with_traceback(None)
        self._topic_id = self._state.head.topic_id
        self._group = GroupCommit(log, self._state.position.version, is_enabled=group_commit)
        self._batches = ProducerBatches(self._topic_id)
        self._state.observer = StateObservers((self._group, self._batches))
        self._confirmation = Confirmation(log)
        self._pause_until_ticks_ms = 0.0
        self._sequences = ProducerSequences(new_producer_id())
        self._counter = 0
        self._staged: dict[str, int] = {}
        """Ordinary uploads that aren't settled, and their order among all of this writer."""

    @property
    def table(self) -> str:
        """The folder of the topic's table."""
        return self._log.table

    @property
    def topic_id(self) -> str:
        """The id of the topic that this writer was opened for."""
        return self._topic_id

    @property
    def head(self) -> TopicHead:
        """The topic as this writer knows it."""
        return self._state.head

    @property
    def state(self) -> TopicState:
        """All that this writer knows; it goes on changing with the next append."""
        return self._state

    @property
    def version(self) -> int:
        """The newest version of the topic that this writer knows."""
        return self._state.position.version

    @property
    def producer_id(self) -> int:
        """Random, 63 bits. Another one after an append whose outcome couldn't be settled (rule L2, unknown)."""
        return self._sequences.producer_id

    def upload(
        self,
        batches: Sequence[tuple[int, Records]],
        *,
        compression: str = "none",
        announce: bool = False,
    ) -> list[StagedFile]:
        """Number, encode and upload batches of (partition, records): :meth:`stage` and :meth:`put`.

        The files are in no log until :meth:`append` publishes them, and must be appended in the order of uploading.
        """
        return self.put(self.stage(batches, compression=compression, announce=announce))

    def stage(
        self,
        batches: Sequence[tuple[int, Records]],
        *,
        compression: str = "none",
        announce: bool = False,
        numbered_by_producers: Sequence[tuple[PlacedBatch, ...]] = (),
    ) -> StagedUpload:
        """Number, encode and name batches of (partition, records), for :meth:`put`. No request.

        For one thread at a time. The order of staging is that of appending; sequences are given here, whatever becomes
        of the upload, so those behind one that fails go on.

        Args:
            announce: where group commit is on, let whoever commits next publish them (rule L14, announced uploads). No
                such file may be said to have failed before :meth:`withdraw` has said so.
            numbered_by_producers: for each batch, those in it that their producers have numbered; none is announced
                then (rule L15, numbered batches). Empty: there are none.
        """
        for partition, _ in batches:
            if not 0 <= partition < self.head.partition_count:
                raise UnknownTopicOrPartitionError(
                    f"topic {self.topic!r} has no partition {partition}; it has 0 to {self.head.partition_count - 1}"
                )
        numbered = self._sequences.number([(partition, records.num_rows) for partition, records in batches])
        may_announce = announce and not numbered_by_producers and self._group.may_be_included()
        how = {"compression": compression, "leaves": self.head.leaves, "carries_stats": may_announce}
        try:
            encoded = encode_batches(batches, numbered.stamps, **how)
        except SparklogError:
            self._sequences.give_back(numbered)
            raise
        announced = None
        if may_announce:
            announced = self._group.announce(
                encoded,
                topic_id=self._topic_id,
                ends_before=self.head.log_end_offsets,
                ordinary=frozenset(self._staged),
            )
        if announced is not None:
            return StagedUpload(files=announced, is_announced=True, numbered=numbered)
        files = stage_encoded(self._log, encoded, topic_version=self.version)
        if numbered_by_producers:
            files = [replace(file, batches=own) for file, own in zip(files, numbered_by_producers, strict=True)]
            for file in files:
                self._batches.note_seen(file.partition, file.batches)
        order = self._group.writing.next_order()
        self._staged.update({file.facts.path: order for file in files})
        return StagedUpload(files=files, is_announced=False, numbered=numbered)

    def put(self, staged: StagedUpload) -> list[StagedFile]:
        """Upload what was staged, once; several threads may do so for several uploads at a time. Raises ``StoreError``:
        the store refuses for longer than its own retries last. What was announced may come yet, unless the error's
        ``is_refusal`` is true."""
        is_uploaded, is_refused, paths = True, False, [file.facts.path for file in staged.files]
        try:
            put_staged(self._log, staged.files, sync=self._sync)
        except BaseException as error:
            is_uploaded, is_refused = False, isinstance(error, StoreError) and error.is_refusal
            raise
        finally:
            ended = self._log.clock.ticks_ms()
            if staged.is_announced:
                self._group.writing.end(paths[0], is_uploaded=is_uploaded, is_refused=is_refused, ticks_ms=ended)
            elif not is_uploaded:
                self._unstage(paths)
                self._sequences.give_back(staged.numbered)
        return [file.uploaded(ended) for file in staged.files]

    def refresh(self) -> None:
        """Learn what others committed, new partitions say: one GET where nothing is new. Belongs to the thread that
        appends. Raises ``UnknownTopicOrPartitionError`` once the topic was deleted."""
        try:
            while catch_up(self._state, ahead=_REFRESH_AHEAD):
                pass
        except PositionLost:
            # Whole: of a transaction that is decided and not carried out yet, others may have left the marker
            # (rule L5, opening).
            self._state = reload_state(self._state)
        if self.head.deleted or self.head.topic_id != self._topic_id:
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} with id {self._topic_id} was deleted")
        self._start_sequencing_if_needed()

    def append(self, files: Sequence[StagedFile], *, deadline: Deadline) -> AppendResult:
        """Publish uploaded files in one commit: all of them become readable at once, or none does.

        Args:
            deadline: on the cluster's clock; a commit that won is success however late.
        Raises:
            KafkaTimeoutError: nothing was stored, and won't be.
            CommitStateUnknownError: not settled in time; the records may be in the log, once.
            UnknownTopicOrPartitionError, InvalidProducerEpochError, OutOfOrderSequenceError, StoreError.
            IllegalStateError: a file that isn't this writer's, or was appended before. After an error other than
                CommitStateUnknownError the same files may be appended again.
        """
        check_appendable(files, topic=self.topic, writing=self._group.writing, staged=self._staged)
        clock = self._log.clock
        began = clock.ticks_ms()
        self._learn_batches(files, deadline)
        uploaded = max([file.uploaded_ticks_ms for file in files])
        turns = Participation(self._group, deadline=deadline, uploaded_ticks_ms=uploaded)
        append = self._new_append(files, turns)
        if self._pause_until_ticks_ms > began and not turns.is_on():
            clock.sleep_ms(self._pause_until_ticks_ms - began)  # rule L11, fairness: others may have the next version
        try:
            done = self._commit(append, turns, deadline)
            append.put_again_if_late(done.state)
            result = append.result(done)
        except BaseException as error:  # also a KeyboardInterrupt
            if append.has_ordinary:
                self._take_new_id()  # a counter is never given to other bytes (rule L2, unknown)
            if isinstance(error, CommitStateUnknownError) or not isinstance(error, SparklogError):
                self._unstage(append.ordinary_paths)
            raise
        self._counter += append.uses_counter
        self._unstage(append.ordinary_paths)
        for flush in append.announced_flushes:
            self._group.writing.forget(flush)
        self._after_commit(done)
        return result

    def withdraw(self, files: Sequence[StagedFile], *, deadline: Deadline) -> AppendResult | None:
        """Commit an entry that leaves announced files out, unless they were published before it. Whatever else this
        writer has announced goes into the entry.

        Args:
            files: all files of one announced flush.
            deadline: on the cluster's clock.
        Returns:
            None: they are in no log, and never will be; else where they are.
        Raises:
            CommitStateUnknownError: some may be in the log, or may come to be.
            UnknownTopicOrPartitionError: the topic was deleted; what isn't in its log never will be.
        """
        writing = self._group.writing
        turns = Participation(self._group, deadline=deadline, waits=False)
        append = self._new_append(files, turns)
        if append.has_ordinary:
            raise IllegalStateError(f"withdraw from {self.topic!r}: {append.ordinary_paths} weren't announced")
        for flush in append.announced_flushes:
            writing.give_up(flush)
        try:
            done = self._commit(append, turns, deadline)
            is_withdrawn = all(flush.state is FlushState.WITHDRAWN for flush in append.announced_flushes)
            if not is_withdrawn:
                append.put_again_if_late(done.state)
            result = None if is_withdrawn else append.result(done)
        except (CommitStateUnknownError, UnknownTopicOrPartitionError):
            raise
        except SparklogError as error:
            raise CommitStateUnknownError(
                f"topic {self.topic!r}: whether announced records were stored is unknown, and they couldn't be "
                f"withdrawn: {error}"
            ) from error
        finally:
            for flush in append.announced_flushes:
                writing.forget(flush)
        self._after_commit(done)
        return result

    def stop_announcing(self) -> bool:
        """Announce nothing from now on. May anything that was announced be published that isn't by now? May be called
        by any thread."""
        return self._group.writing.stop()

    def published(self, files: Sequence[StagedFile]) -> bool:
        """Are these files, all of them announced, known to be in the log? Then :meth:`append` says where."""
        flushes = [self._group.writing.flush_of(file.path) for file in files]
        return bool(flushes) and all(one is not None and one.state is FlushState.PUBLISHED for one in flushes)

    def is_announced(self, files: Sequence[StagedFile]) -> bool:
        """Was any of these files announced, and isn't forgotten?"""
        return any(self._group.writing.flush_of(file.path) is not None for file in files)

    def _commit(self, append: Append, turns: Participation, deadline: Deadline) -> TopicCommitResult:
        done = commit(
            self._checkpoints.whole(self._state, deadline),
            append.decide,
            tokens=append.tokens,
            deadline=deadline,
            sync=self._sync,
            prepare=append.prepare,
            gaps=self._gaps,
            turns=turns if self._group.is_enabled else None,
            reads_on=append.has_numbered_batches,  # else a batch might be refused that follows one in the log
            uploads=append,
        )
        self._state = done.state
        if done.commit is not None:
            self._group.note_created(done.state.position.version, done.round_trip_ms)
            turns.after_commit(done.round_trip_ms)
        return done

    def adopt(self, *, producer_id: int, producer_epoch: int) -> None:
        """Write in the name of a producer that has its id from elsewhere: its sequences begin anew. Nothing may be
        under way."""
        self._sequences.begin_anew(producer_id, producer_epoch)

    def forget(self, files: Sequence[UploadedFile] | Sequence[StagedFile]) -> None:
        """They won't be published by this writer. What was announced and isn't settled, its next entry withdraws;
        until then others may publish it."""
        self._unstage([file.path for file in files])
        for file in files:
            flush = self._group.writing.flush_of(file.path)
            if flush is not None:
                self._group.writing.forget(flush)

    def check_uploads(self, files: Sequence[UploadedFile]) -> None:
        """Before it is decided that uploaded files are published: may they be (rules L10, orphans; L17, ground)? One
        small GET for each that may be gone. Raises as :func:`~sparklog.log.publishing.check_published`."""
        self._confirmation = Confirmation(self._log)
        self._state = check_published(self._state, files, self._confirmation)

    def publish(
        self, files: Sequence[UploadedFile], marker: Marker, *, known_version: int, deadline: Deadline
    ) -> PublishResult:
        """Publish the files of a transaction that is decided: once, whoever else does so at the same time.

        Safe to repeat after any error.

        Args:
            known_version: a :attr:`version` of before the transaction was decided. Its marker can only have come after
                it; where this writer doesn't know all that did, it loads the table (rule L5, opening).
        Raises:
            KafkaTimeoutError, CommitStateUnknownError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
        """
        clock = self._log.clock
        began = clock.ticks_ms()
        if self._pause_until_ticks_ms > began:  # rule L11, fairness: others may have the next version
            clock.sleep_ms(self._pause_until_ticks_ms - began)
        if self._state.forgotten_version > known_version:
            self._state = retry(lambda: reload_state(self._state), deadline=deadline)
        published, done = publish_transaction(
            self._checkpoints.whole(self._state, deadline),
            self._topic_id,
            files,
            marker,
            deadline=deadline,
            sync=self._sync,
            gaps=self._gaps,
            confirmation=self._confirmation,
        )
        self.forget(files)
        self._after_commit(done)
        return published

    def _after_commit(self, done: TopicCommitResult) -> None:
        self._state = done.state
        if self._state.whole is not None or self._state.knows_more_writers_than(_MAX_PRODUCERS_KNOWN):
            self._state.forget_others(self.producer_id)
        self._pause_until_ticks_ms = self._log.clock.ticks_ms() + done.round_trip_ms if done.lost_races else 0.0
        self._checkpoints.after_commit(self._state, created=done.commit is not None)
        if self._gaps is not None:
            self._gaps.after_commit(self._state)
        self._start_sequencing_if_needed()

    def finish_by(self, deadline: Deadline) -> None:
        """Somebody who waits for this writer's commits gives up then: gaps for other engines take at most half
        of the time until then; until the soonest where several wait. May be called by any thread."""
        gaps = self._gaps
        if gaps is not None and not self._log.clock.ticks_ms() < gaps.finish_by_ticks_ms < deadline.ticks_ms:
            gaps.finish_by_ticks_ms = deadline.ticks_ms

    def close(self) -> None:
        """Write a checkpoint if one is due; wait for it, and for a checkpoint or a sequencing that is under way."""
        self._checkpoints.close()
        if self._gaps is not None:
            self._gaps.close()
        if self._sequencing is not None:
            self._sequencing.close()

    def _unstage(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._staged.pop(path, None)

    def _start_sequencing_if_needed(self) -> None:
        if self._sequencing is not None:
            self._sequencing.start_if_needed(self._state)

    def _learn_batches(self, files: Sequence[StagedFile], deadline: Deadline) -> None:
        """Whoever says of a batch that it comes too early has seen all that was stored before it came."""
        batches = [(file.partition, placed.batch) for file in files for placed in file.batches]
        if batches and not self._batches.is_complete:
            self._state = load_batches(self._state, self._batches, wanted=batches, deadline=deadline)
            return
        knows_all = self._batches.knows_all(self._state)
        if any(verdict.error is not None for verdict in self._batches.judge(batches, knows_all=knows_all)):
            retry(self.refresh, deadline=deadline)
            search_older_batches(self._state, self._batches, batches, deadline=deadline)

    def _new_append(self, files: Sequence[StagedFile], turns: Participation) -> Append:
        entry = ProducerEntry(producer_epoch=self._sequences.producer_epoch, counter=self._counter)
        by = Appender(
            topic=self.topic, topic_id=self._topic_id, producer_id=self.producer_id, entry=entry, sync=self._sync
        )
        group, staged, batches = self._group, self._staged, self._batches
        return Append(self._state, files, by=by, group=group, turns=turns, staged=staged, batches=batches)

    def _take_new_id(self) -> None:
        self._sequences.begin_anew(new_producer_id())
        self._counter = 0
