"""Bringing back records that other engines removed from a topic since some version: ``sparklog topics restore``.

In place of Delta's ``RESTORE``, which takes away what was appended since and sets back the table's properties. Records
return under their offsets; appends, partitions, schemas, log starts and ends stay. It is one commit, decided on the
newest state: whatever else happened to the files between whose offsets records return makes the plan void, and it is
made anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clock import Deadline
from sparklog.delta.actions import FAR_FUTURE_MS, Action, AddFile, Entry, RemoveFile, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.delta.properties import check_removal
from sparklog.errors import InvalidArgumentError, KafkaTimeoutError, ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.commit import Commit, commit
from sparklog.log.data.encode import decode_file
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.partitioned_writer import PartitionedWriter, discard_files
from sparklog.log.data.record_reading import conform
from sparklog.log.data.schema import data_schema
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead, cleaner_app_id
from sparklog.log.loaded_files import add_of_segment, added_segments
from sparklog.log.removed_records import KnownFile, foreign_removals
from sparklog.log.restore_plan import (
    Gathered,
    LostRecords,
    ReturnPlan,
    in_the_way,
    misplaced,
    plan_of_removals,
    readable,
)
from sparklog.log.returning import existing, prepare_return
from sparklog.log.sequencing.sequencing import sequence_state
from sparklog.log.state import TopicState, load_state
from sparklog.log.uploads import why_not_to_publish

__all__ = ["RestoreResult", "restore_topic"]

DEFAULT_TIMEOUT_MS = 60_000.0
_ATTEMPTS = 5
_READ_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The result of a restore, or, of a dry run, what it would be."""

    record_counts: Mapping[int, int]
    """Records that returned, by partition; none for those where nothing did."""
    file_count: int
    """Files that returned as they were, or were written anew."""
    lost: tuple[LostRecords, ...]
    """Records whose files don't exist any more."""
    never_sequenced: tuple[str, ...]
    """Files that were removed before they had offsets: they don't return."""
    misplaced: tuple[str, ...]
    """Files that another engine's commit put elsewhere, and that are removed, since their records returned."""
    delta_version: int
    """The version of the topic that this is true of."""

    @property
    def record_count(self) -> int:
        """Records that returned, in all partitions."""
        return sum(self.record_counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """Files that are ready to be named, by what they replace."""

    topic_id: str
    whole: tuple[tuple[Segment, AddFile], ...]
    gathered: tuple[tuple[Gathered, tuple[AddFile, ...]], ...]
    uploaded: tuple[str, ...]
    """The files that are in no log yet."""
    misplaced: frozenset[str]
    """Paths of the files that go."""
    since: int


class _Void(Exception):  # noqa: N818 - a signal within this module
    """The files between whose offsets records return aren't those of the plan any more."""


def restore_topic(
    log: DeltaLog, name: str, version: int, *, dry_run: bool = False, timeout_ms: float = DEFAULT_TIMEOUT_MS
) -> RestoreResult:
    """Bring back the records that other engines removed from a topic since a version, under their offsets.

    Records that a commit put under other offsets or partitions return, too, and the files that it put elsewhere go: the
    partitions that stopped because of it are read again (rule F6, moved records). These files stay if a file that the
    commit replaced doesn't exist any more.

    No record returns below the log start, none that compaction by key or retention removed, and none to an offset that
    has a record now: what ``UPDATE`` changed stays changed. Files without offsets that came back by another engine's
    ``RESTORE`` are dealt with first.

    Args:
        version: of the topic's table; all entries since must still be in its log.
        dry_run: only say what would return.
        timeout_ms: for each commit.
    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidArgumentError: the log doesn't reach back to that version, or it is of an earlier topic of the name.
        PolicyViolationError: the table is append-only, and files have to be replaced.
        KafkaTimeoutError: others changed the same files again and again, or were faster; nothing returned.
        CommitStateUnknownError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    deadline = log.clock.deadline_in(timeout_ms)
    if not dry_run:
        sequence_state(_living(load_state(log), name), timeout_ms=timeout_ms, sync=True)
    for _ in range(_ATTEMPTS):
        began, state = log.clock.ticks_ms(), _living(load_state(log), name)
        plan, never_sequenced = _plan(state, name, version)
        away = () if plan.is_move_lost else tuple(one.path for one in misplaced(state.require_whole().index, version))
        result = RestoreResult(
            record_counts=plan.record_counts(),
            file_count=len(plan.whole) + len(plan.gathered),
            lost=plan.lost,
            never_sequenced=tuple(never_sequenced),
            misplaced=away,
            delta_version=state.position.version,
        )
        if dry_run or not (result.file_count or away):
            return result
        prepared: _Prepared | None = None
        try:
            prepared = _prepare(state, plan, away, version)
            after = _commit(state, prepared, began_ticks_ms=began, deadline=deadline)
        except (_Void, ObjectNotFoundError):
            if prepared is not None:
                discard_files(log.store, log.table, prepared.uploaded)
            continue
        return replace(result, delta_version=after.position.version)
    raise KafkaTimeoutError(
        f"restore of {name}: others changed the files between whose offsets records return {_ATTEMPTS} times; "
        "try again when maintenance doesn't run"
    )


def _living(state: TopicState, name: str) -> TopicState:
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} was deleted")
    return state


def _plan(state: TopicState, name: str, version: int) -> tuple[ReturnPlan, list[str]]:
    """Plan what returns; also the files that were removed before they had offsets."""
    log, newest = state.log, state.position.version
    if not 0 <= version <= newest:
        raise InvalidArgumentError(f"restore of {name} to version {version}: expected 0 to {newest}")
    before = load_state(log, version=version, statistics=True)
    if before.head.topic_id != state.head.topic_id:
        raise InvalidArgumentError(
            f"restore of {name} to version {version}: that is of an earlier topic of this name, with id "
            f"{before.head.topic_id}; this one has id {state.head.topic_id}"
        )
    whole = before.require_whole()
    files = [
        KnownFile(add=add_of_segment(one, whole.statistics.get(one.path)), segment=one)
        for one in whole.index.by_path.values()
    ]
    entries = ((entry, _segments(log, entry)) for entry in _entries(log, version + 1, newest))
    index = state.require_whole().index
    removals, never_sequenced = foreign_removals(files, entries, index.rewrites.refused)
    there = existing(log, (file.add.path for removal in removals for file in removal.files))
    return plan_of_removals(log, state.head, readable(index), removals, there), never_sequenced


def _segments(log: DeltaLog, entry: Entry) -> dict[str, Segment]:
    return {segment.path: segment for segment in added_segments(log, entry)}


def _entries(log: DeltaLog, first: int, last: int) -> Iterator[Entry]:
    for start in range(first, last + 1, _READ_AT_ONCE):
        versions = range(start, min(start + _READ_AT_ONCE, last + 1))
        for version, read in zip(versions, log.read_raw_entries(versions), strict=True):
            if read is None:
                raise InvalidArgumentError(f"{log.table}: version {version} isn't in its log any more")
            yield read[0]


def _prepare(state: TopicState, plan: ReturnPlan, away: Collection[str], since: int) -> _Prepared:
    """Put what has to be put. Raises ``ObjectNotFoundError`` where a file vanished meanwhile."""
    returning = prepare_return(state, [file.add for file in plan.whole])
    uploaded = [*returning.copied]
    try:
        for path in returning.gone:
            raise ObjectNotFoundError(f"{state.log.table}/{path} vanished")
        gathered = []
        for one in plan.gathered:
            adds = _written(state, one)
            uploaded += [add.path for add in adds]
            gathered.append((one, adds))
    except BaseException:
        discard_files(state.log.store, state.log.table, uploaded)
        raise
    return _Prepared(
        topic_id=state.head.topic_id,
        whole=tuple((file.segment, returning.adds[file.add.path]) for file in plan.whole),
        gathered=tuple(gathered),
        uploaded=tuple(uploaded),
        misplaced=frozenset(away),
        since=since,
    )


def _written(state: TopicState, one: Gathered) -> tuple[AddFile, ...]:
    """Write the records of live files, and those that return between them, into new files of one base offset."""
    log, head = state.log, state.head
    base = min([segment.base_offset or 0 for segment in (*one.live, *(source for source, _ in one.sources))])
    tables = [_records(log, segment, head) for segment in one.live]
    for segment, offsets in one.sources:
        table = _records(log, segment, head)
        tables.append(table.filter(pc.is_in(table["offset"], value_set=pa.array(offsets))))
    records = pa.concat_tables(tables)
    records = records.set_column(0, "offset_delta", pc.subtract(records["offset"], pa.scalar(base, pa.int64())))
    codec = str(head.config["compression.type"])
    writer = PartitionedWriter(
        log.store,
        log.table,
        schema=data_schema(head.values),
        compression="snappy" if codec == "producer" else codec,
        bins_per_partition=1,
        sort_by_offset=True,
        leaves=head.leaves,
    )
    try:
        writer.write(records, np.full(len(records), one.partition, np.int64))
        files = writer.close()[one.partition]
    except BaseException:
        writer.discard()
        raise
    values = {"partition": str(one.partition), "base_offset": str(base)}
    now_ms = log.clock.now_ms()
    return tuple(
        AddFile(
            path=file.path,
            partition_values=values,
            size_bytes=file.size_bytes,
            modification_ms=now_ms,
            stats=file.stats.to_delta(),
        )
        for file in files
    )


def _records(log: DeltaLog, segment: Segment, head: TopicHead) -> pa.Table:
    """All columns of a file's records, as the topic has them, behind their offsets."""
    names = [name for name in data_schema(head.values).names if name != "offset_delta"]
    path = object_path(log.table, segment.path)
    found = decode_file(path, log.store.read(path), ["offset_delta", *names])
    deltas = conform(path, found, "offset_delta")
    offsets = pc.add(deltas, pa.scalar(segment.base_offset or 0, pa.int64()))
    return pa.table({"offset": offsets, **{name: conform(path, found, name, head.values) for name in names}})


def _commit(state: TopicState, prepared: _Prepared, *, began_ticks_ms: float, deadline: Deadline) -> TopicState:
    log, known_version, decided_on = state.log, state.position.version, state

    def decide(now: TopicState) -> Commit | None:
        nonlocal decided_on
        decided_on = now
        return plan_restore(now, prepared)

    def check_files() -> bool:
        reason = why_not_to_publish(
            log,
            decided_on.vacuums,
            began_ticks_ms=began_ticks_ms,
            known_version=known_version,
            retention_ms=decided_on.head.deleted_file_retention_ms,
        )
        if reason is not None:
            raise _Void(reason)
        return False

    return commit(state, decide, deadline=deadline, sync=True, prepare=check_files).state


def plan_restore(now: TopicState, prepared: _Prepared) -> Commit | None:
    """The commit of a restore, on the newest state; None where it is there already. Pure.

    Raises:
        _Void: other files are live now between the offsets of what returns.
        UnknownTopicOrPartitionError: the topic was deleted.
        PolicyViolationError: the table is append-only.
    """
    head, whole = now.head, now.require_whole()
    index = readable(whole.index)
    live = index.by_path
    away = [one for one in misplaced(whole.index, prepared.since) if prepared.misplaced]
    if head.deleted or head.topic_id != prepared.topic_id:
        raise UnknownTopicOrPartitionError(f"unknown topic: the one with id {prepared.topic_id} was deleted")
    wanted = [add for _, add in prepared.whole] + [add for _, adds in prepared.gathered for add in adds]
    if not away and all(add.path in live for add in wanted):
        return None  # our own commit, whose answer was lost
    for path in {segment.path for segment in away} - prepared.misplaced:
        raise _Void(path)  # it may hold records of files that the plan doesn't know of
    removed: list[Segment] = [*away]
    added: list[AddFile] = []
    for segment, add in prepared.whole:
        partition = segment.partition or 0
        if in_the_way(index, partition, segment.first_offset, segment.last_offset, {}):
            raise _Void(segment.path)
        if segment.last_offset >= head.log_start_offsets[partition]:
            added.append(add)
    for one, adds in prepared.gathered:
        mine = {segment.path: segment for segment in one.live}
        if not mine.keys() <= live.keys() or in_the_way(index, one.partition, *one.range, mine):
            raise _Void(f"partition {one.partition}")
        removed += one.live
        added += adds
    if removed:
        check_removal(now.log.table, whole.metadata)
    now_ms = now.log.clock.now_ms()
    removes = [
        RemoveFile(path=s.path, deletion_ms=now_ms, partition_values=s.partition_values(), size_bytes=s.size_bytes)
        for s in removed
    ]
    head = replace(head, live_file_count=max(0, head.live_file_count + len(added) - len(removed)))
    actions: list[Action] = [*removes, *added, *_uncleaned(now, added)]
    return Commit(actions=actions, head=head, operation="RESTORE RECORDS") if added or removed else None


def _uncleaned(now: TopicState, added: Sequence[AddFile]) -> list[SetTransaction]:
    """Let the next compaction begin at the first record that returns: it compacts these again."""
    first: dict[int, int] = {}
    for add in added:
        partition, base = int(add.partition_values["partition"] or 0), int(add.partition_values["base_offset"] or 0)
        first[partition] = min(first.get(partition, base), base)
    found = []
    for partition, offset in first.items():
        app_id = cleaner_app_id("offset", now.head.topic_id, partition)
        txn = now.transactions.get(app_id)
        if txn is not None and txn.version > offset:
            found.append(SetTransaction(app_id=app_id, version=offset, last_updated_ms=FAR_FUTURE_MS))
    return found
