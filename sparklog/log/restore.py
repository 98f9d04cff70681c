"""Bringing back records that other engines removed from a topic since some version: ``sparklog topics restore``.

In place of Delta's ``RESTORE``, which takes away what was appended since and sets back the table's properties. Records
return under their offsets; appends, partitions, schemas, log starts and ends stay. It is one commit, decided on the
newest state: whatever else happened to the files between whose offsets records return makes the plan void, and it is
made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clock import Deadline
from sparklog.delta.actions import FAR_FUTURE_MS, Action, AddFile, Entry, RemoveFile, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.delta.properties import check_removal
from sparklog.errors import InvalidArgumentError, KafkaTimeoutError, ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.data.encode import decode_file
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.partitioned_writer import PartitionedWriter, discard_files
from sparklog.log.data.record_reading import conform
from sparklog.log.data.schema import data_schema
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead, cleaner_app_id
from sparklog.log.loaded_files import add_of_segment, added_segments
from sparklog.log.removed_records import KnownFile, foreign_removals
from sparklog.log.restore_plan import Gathered, LostRecords, ReturnPlan, in_the_way, plan_of_removals
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
    delta_version: int
    """The version of the topic that this is true of."""

    @property
    def record_count(self) -> int:
        """Records that returned, in all partitions."""
        return sum(self.record_counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """The files by which commits of other engines moved records, and all others that these commits put into the
    partitions which stop because of them: a record that kept its offset can't be told from one that was given it."""

    live: Mapping[str, Segment]
    """The files that are live now, by path."""
    paths: frozenset[str]
    """The paths of these files, and of all that are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """Files that are ready to be named, by what they replace."""

    topic_id: str
    moved: Mapping[str, Segment]
    """The live files that are removed, by path: see :class:`_Moved`."""
    whole: tuple[tuple[Segment, AddFile], ...]
    gathered: tuple[tuple[Gathered, tuple[AddFile, ...]], ...]
    uploaded: tuple[str, ...]
    """The files that are in no log yet."""


class _Void(Exception):  # noqa: N818 - a signal within this module
    """The files between whose offsets records return aren't those of the plan any more."""


def restore_topic(
    log: DeltaLog, name: str, version: int, *, dry_run: bool = False, timeout_ms: float = DEFAULT_TIMEOUT_MS
) -> RestoreResult:
    """Bring back the records that other engines removed from a topic since a version, under their offsets.

    No record returns below the log start, none that compaction by key or retention removed, and none to an offset that
    has a record now: what ``UPDATE`` changed stays changed. What a commit put to other offsets or partitions returns to
    its own, and these partitions are read again (rule F6, moved records): nothing stays that this commit wrote in them.
    Files without offsets that came back by another engine's ``RESTORE`` are dealt with first.

    Args:
        version: of the topic's table; all entries since must still be in its log.
        dry_run: only say what would return.
        timeout_ms: for each commit.
    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidArgumentError: the log doesn't reach back to that version, or it is of an earlier topic of the name;
            or records were moved whose files don't exist any more.
        PolicyViolationError: the table is append-only, and files have to be replaced.
        KafkaTimeoutError: others changed the same files again and again, or were faster; nothing returned.
        CommitStateUnknownError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    deadline = log.clock.deadline_in(timeout_ms)
    if not dry_run:
        sequence_state(_living(load_state(log), name), timeout_ms=timeout_ms, sync=True)
    for _ in range(_ATTEMPTS):
        began, state = log.clock.ticks_ms(), _living(load_state(log), name)
        moved = _moved(state, version)
        plan, never_sequenced = _plan(state, name, version, moved)
        result = RestoreResult(
            record_counts=plan.record_counts(),
            file_count=len(plan.whole) + len(plan.gathered),
            lost=plan.lost,
            never_sequenced=tuple(never_sequenced),
            delta_version=state.position.version,
        )
        if dry_run or not (result.file_count or moved.live):
            return result
        _check_all_return(name, version, plan, moved.live)
        prepared: _Prepared | None = None
        try:
            prepared = _prepare(state, plan, moved.live)
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


def _moved(state: TopicState, version: int) -> _Moved:
    """The files that moved records since a version. A GET for each commit because of which a partition stops now."""
    index = state.require_whole().index
    rewrites = index.rewrites
    lasting = {rewrites.refused[one.path] for one in index.refused()}
    partitions: dict[int, set[str]] = {}
    for stop in rewrites.stops:
        if stop.version > version and stop.version in lasting:
            partitions.setdefault(stop.version, set()).add(str(stop.partition))
    paths = {path for path, blamed in rewrites.refused.items() if blamed in partitions}
    for number, stopped in partitions.items():
        for entry in _entries(state.log, number, number):
            adds = (action for action in entry.actions if isinstance(action, AddFile))
            paths |= {add.path for add in adds if add.partition_values.get("partition") in stopped}
    live = {path: index.by_path[path] for path in paths if path in index.by_path}
    return _Moved(live=live, paths=frozenset(paths | rewrites.refused.keys()))


def _check_all_return(name: str, version: int, plan: ReturnPlan, moved: Mapping[str, Segment]) -> None:
    """Raise ``InvalidArgumentError`` where moved files are the only ones that have some of the records."""
    if moved and plan.lost:
        raise InvalidArgumentError(
            f"restore of {name} to version {version}: records were moved to other offsets or partitions, and "
            f"{plan.lost[0].path}, which had some of them, doesn't exist any more; nothing was changed"
        )


def _plan(state: TopicState, name: str, version: int, moved: _Moved) -> tuple[ReturnPlan, list[str]]:
    """Plan what returns as if no moved file was live; also the files that were removed before they had offsets."""
    log, newest = state.log, state.position.version
    if not 0 <= version <= newest:
        raise InvalidArgumentError(f"restore of {name} to version {version}: expected 0 to {newest}")
    before = load_state(log, version=version, statistics=True)
    if before.head.topic_id != state.head.topic_id:
        raise InvalidArgumentError(
            f"restore of {name} to version {version}: that is of an earlier topic of this name, with id "
            f"{before.head.topic_id}; this one has id {state.head.topic_id}"
        )
    whole, now = before.require_whole(), state.require_whole().index.without(moved.live)
    files = [
        KnownFile(add=add_of_segment(one, whole.statistics.get(one.path)), segment=one)
        for one in whole.index.by_path.values()
    ]
    entries = ((entry, _segments(log, entry)) for entry in _entries(log, version + 1, newest))
    removals, never_sequenced = foreign_removals(files, entries, refused=moved.paths)
    there = existing(log, (file.add.path for removal in removals for file in removal.files))
    return plan_of_removals(log, state.head, now, removals, there), never_sequenced


def _segments(log: DeltaLog, entry: Entry) -> dict[str, Segment]:
    return {segment.path: segment for segment in added_segments(log, entry)}


def _entries(log: DeltaLog, first: int, last: int) -> Iterator[Entry]:
    for start in range(first, last + 1, _READ_AT_ONCE):
        versions = range(start, min(start + _READ_AT_ONCE, last + 1))
        for version, read in zip(versions, log.read_raw_entries(versions), strict=True):
            if read is None:
                raise InvalidArgumentError(f"{log.table}: version {version} isn't in its log any more")
            yield read[0]


def _prepare(state: TopicState, plan: ReturnPlan, moved: Mapping[str, Segment]) -> _Prepared:
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
        moved=moved,
        whole=tuple((file.segment, returning.adds[file.add.path]) for file in plan.whole),
        gathered=tuple(gathered),
        uploaded=tuple(uploaded),
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
    found = decode_file(path, log.store.read(path), ["offset_delta", *names], rows=segment.record_count)
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

    uploads = UploadedSince(began_ticks_ms)
    return commit(state, decide, deadline=deadline, sync=True, prepare=check_files, uploads=uploads).state


def plan_restore(now: TopicState, prepared: _Prepared) -> Commit | None:
    """The commit of a restore, on the newest state; None where it is there already. Pure.

    Raises:
        _Void: other files are live now between the offsets of what returns.
        UnknownTopicOrPartitionError: the topic was deleted.
        PolicyViolationError: the table is append-only.
    """
    head, whole = now.head, now.require_whole()
    live = whole.index.by_path
    if head.deleted or head.topic_id != prepared.topic_id:
        raise UnknownTopicOrPartitionError(f"unknown topic: the one with id {prepared.topic_id} was deleted")
    wanted = [add for _, add in prepared.whole] + [add for _, adds in prepared.gathered for add in adds]
    still_moved = prepared.moved.keys() & live.keys()
    if not still_moved and all(add.path in live for add in wanted):
        return None  # our own commit, whose answer was lost
    if len(still_moved) < len(prepared.moved):
        raise _Void(min(prepared.moved.keys() - still_moved))
    index = whole.index.without(prepared.moved)
    removed = [*prepared.moved.values()]
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
