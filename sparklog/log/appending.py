"""One append on its way: what it commits, which of its files are uploaded again, and where they are found after a lost
answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.delta.actions import AddFile, Entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import CommitStateUnknownError, CorruptRecordError, StoreError
from sparklog.log.append_plan import plan_append
from sparklog.log.commit import Commit, TopicCommitResult
from sparklog.log.data.data_files import StagedFile, UploadedFile
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.data.record_reading import find_by_sequence, object_path
from sparklog.log.data.segments import SegmentIndex
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS, ProducerEntry
from sparklog.log.state import TopicState
from sparklog.log.uploads import may_be_gone, put_again_if_late
from sparklog.paths import new_data_file

__all__ = ["Append", "AppendResult", "Appender", "upload_encoded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """The offsets and the version of one append."""

    base_offsets: tuple[int, ...]
    """Offset of the first record of each file, in the order in which the files were given."""
    delta_version: int
    """The commit that published them; -1 where it is known no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appender:
    """The writer of an append: the topic that it writes to, and in whose name."""

    topic: str
    topic_id: str
    producer_id: int
    entry: ProducerEntry
    """The producer's epoch, and the counter of this append."""
    sync: bool
    """Is what it uploads fsynced?"""


def upload_encoded(
    log: DeltaLog, batches: Sequence[tuple[int, EncodedBatch]], *, topic_version: int, sync: bool
) -> list[StagedFile]:
    """Upload batches of (partition, records) under fresh names.

    Args:
        topic_version: one that is known now.
        sync: fsync them.
    Raises:
        StoreError.
    """
    now_ms = log.clock.now_ms()
    facts = [
        UploadedFile.of(new_data_file(partition), partition, batch, uploaded_ms=now_ms, topic_version=topic_version)
        for partition, batch in batches
    ]
    data = {object_path(log.table, file.path): batch.data for file, (_, batch) in zip(facts, batches, strict=True)}
    log.store.put_many(data, sync=sync)
    ticks_ms = log.clock.ticks_ms()
    return [
        StagedFile(facts=file, batch=batch, uploaded_ticks_ms=ticks_ms)
        for file, (_, batch) in zip(facts, batches, strict=True)
    ]


class Append:
    """One append on its way: its tokens, its files and the offsets that the last decision gave them."""

    def __init__(self, state: TopicState, files: Sequence[StagedFile], *, by: Appender) -> None:
        self.tokens: set[str] = set()
        self.files = list(files)
        """As they are to be published: with new names where they were uploaded again."""
        self._by = by
        self._ends_before = state.head.log_end_offsets
        self._base_offsets: tuple[int, ...] = ()
        self._first_decided_at: float | None = None
        self._state = state

    def decide(self, state: TopicState) -> Commit | None:
        """Decide what to commit; None: the log holds it already. Raises as :func:`plan_append`, and
        ``CommitStateUnknownError`` after a stall of days."""
        self._state = state
        by = self._by
        now = state.log.clock.ticks_ms()
        if self._first_decided_at is None:
            self._first_decided_at = now
        # rule L7, producer state: its absence proves nothing any more
        elif now - self._first_decided_at >= PRODUCER_EXPIRATION_MS:
            raise CommitStateUnknownError(
                f"topic {by.topic!r}: an append of producer {by.producer_id} stalled for "
                f"{(now - self._first_decided_at) / 86_400_000:.1f} days; read the log back before anything else"
            )
        planned = plan_append(
            state.head,
            state.producer(by.producer_id),
            [file.facts for file in self.files],
            topic=by.topic,
            topic_id=by.topic_id,
            producer_id=by.producer_id,
            entry=by.entry,
            now_ms=state.log.clock.now_ms(),
        )
        if planned is None:
            return None
        plan, self._base_offsets = planned
        return plan

    def upload_again_if_at_risk(self) -> bool:
        """Files that somebody may have deleted, or may be about to, get new names (rule L10, orphans)."""
        state = self._state
        now, retention_ms = state.log.clock.ticks_ms(), state.head.deleted_file_retention_ms
        gone = {
            file.path: file
            for file in self.files
            if may_be_gone(file, state.vacuums, now_ticks_ms=now, retention_ms=retention_ms)
        }
        if gone:
            again = upload_encoded(
                state.log,
                [(file.partition, file.batch) for file in gone.values()],
                topic_version=state.position.version,
                sync=self._by.sync,
            )
            new = dict(zip(gone, again, strict=True))
            self.files = [new.get(file.path, file) for file in self.files]
        return bool(gone)

    def put_again_if_late(self, state: TopicState) -> None:
        """The same files under the same names, as far as the log names them now (rule L10, orphans)."""
        named = self.files
        if state.whole is not None:  # a commit that was found there may be so old that its files were merged since
            named = [file for file in named if file.path in state.whole.index.by_path]
        retention_ms = state.head.deleted_file_retention_ms
        put_again_if_late(state.log, named, retention_ms=retention_ms, sync=self._by.sync)

    def result(self, done: TopicCommitResult) -> AppendResult:
        """The offsets of the files. Raises ``CommitStateUnknownError``: they are in the log, but where can't be
        told."""
        if done.commit is not None:
            return AppendResult(base_offsets=self._base_offsets, delta_version=done.state.position.version)
        # The log already holds our counter: an attempt whose answer we never got, found in the reloaded table.
        try:
            found = self._find(done.state)
        except (StoreError, CorruptRecordError) as error:
            raise CommitStateUnknownError(
                f"topic {self._by.topic!r}: appended, but where can't be told: {error}"
            ) from error
        if found is not None:
            return found
        raise CommitStateUnknownError(
            f"topic {self._by.topic!r} holds commit {self._by.entry.counter} of producer {self._by.producer_id}, "
            "but neither its entry nor its records are left to tell where they are"
        )

    def _find(self, state: TopicState) -> AppendResult | None:
        if state.whole is None:
            return None
        for entry in state.whole.tail:
            if entry.token in self.tokens:
                return self._result_of_entry(entry)
        offsets = [locate(state.log, state.whole.index, file, ends_before=self._ends_before) for file in self.files]
        known = [offset for offset in offsets if offset is not None]
        return AppendResult(base_offsets=tuple(known), delta_version=-1) if len(known) == len(self.files) else None

    def _result_of_entry(self, entry: Entry) -> AppendResult:
        adds = [action for action in entry.actions if isinstance(action, AddFile)]  # in the order of our files
        bases = tuple(int(add.partition_values["base_offset"] or 0) for add in adds)
        return AppendResult(base_offsets=bases, delta_version=entry.version)


def locate(log: DeltaLog, index: SegmentIndex, file: StagedFile, *, ends_before: Sequence[int]) -> int | None:
    """The offset of a file's first record among the live files, also where it was merged since; None: not there.

    Args:
        ends_before: log end offsets of before its upload; the records lie behind them.
    Raises:
        StoreError, CorruptRecordError.
    """
    live = index.by_path.get(file.path)
    if live is not None:
        return live.base_offset
    stamp = file.batch.stamp
    for segment in index.from_offset(file.partition, ends_before[file.partition]):
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
