"""Sequencing: giving offsets to files that were written without (rules F1, F2, L4, L13).

Any Delta writer may add files whose ``base_offset`` is null; no reader shows them until a sequencing commit removes
the file and adds its bytes under a new path with a base offset. The new path is what makes a foreign OPTIMIZE, DELETE
or UPDATE that has read the old one conflict: docs/decisions/0003-sequencing-publishes-under-a-new-path.md. Which file
gets which offsets is decided by :func:`plan_sequencing`, which is pure; the actor reads and copies the files before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.delta.actions import Action, AddFile, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError
from sparklog.log.commit import Commit, commit
from sparklog.log.encode import decode_file, write_parquet
from sparklog.log.head import TopicHead
from sparklog.log.reading import conform, milliseconds, object_path
from sparklog.log.schema import DATA_SCHEMA
from sparklog.log.segments import Segment, format_timestamp
from sparklog.log.state import TopicState, load_state
from sparklog.paths import new_data_file

__all__ = ["ForeignFile", "SequencingResult", "plan_sequencing", "sequence_topic"]

_LOGGER = logging.getLogger(__name__)
_MAX_OFFSET_DELTA = 2**48
"""Greater numbers aren't kept: they would soon use up the offsets of a log that never restarts (rule L8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """An unsequenced file and what was read of it."""

    segment: Segment
    """As it is live in the table."""
    add: AddFile
    """Its copy, but for the base offset: the same bytes, or the same records with numbers of their own."""
    range: tuple[int, int]
    """Least and greatest offset delta of the copy."""
    renumbered: bool
    """It couldn't keep its numbers; the copy's run from 0 in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencingResult:
    """What a sequencing did."""

    sequenced_count: int
    """Files that have offsets now and had none."""
    refused: Mapping[str, str]
    """Path to reason of each file that can't be sequenced as it is."""
    delta_version: int


def plan_sequencing(
    head: TopicHead, live: Mapping[str, Segment], files: Sequence[ForeignFile], *, now_ms: int
) -> Commit | None:
    """Give base offsets to files, in the given order.

    Files of one commit and partition keep one common base if their ranges of offset deltas are disjoint; any other
    file gets a base of its own. A base is the log end offset, so greater than every base given before. What is no
    longer live without a base offset is dropped (rule L4: two sequencers, a user's DELETE).

    Returns:
        The commit; None where nothing is left to do.
    """
    ends = list(head.log_end_offsets)
    actions: list[Action] = []
    wanted = [
        file
        for file in files
        if (now := live.get(file.segment.path)) is not None
        and now.base_offset is None
        and now.partition == file.segment.partition
        and now.partition is not None
        and 0 <= now.partition < len(ends)
    ]
    if not wanted:
        return None
    for group in _common_bases(wanted):
        partition = group[0].segment.partition or 0
        base_offset = ends[partition]
        for file in group:
            values = {"partition": str(partition), "base_offset": str(base_offset)}
            actions += [_remove(file.segment, now_ms=now_ms), replace(file.add, partition_values=values)]
        ends[partition] = base_offset + max(file.range[1] for file in group) + 1
    after = replace(
        head,
        log_end_offsets=tuple(ends),
        unsequenced_count=max(0, head.unsequenced_count - len(wanted)),
    )
    return Commit(actions=actions, head=after, operation="SEQUENCE")


def sequencing_order(segments: Sequence[Segment]) -> list[Segment]:
    """The order in which foreign files get their offsets (rule F2): by the version of their commit where the log's tail
    still tells it, those of older commits first, by modification time and path."""
    return sorted(
        segments,
        key=lambda s: (s.delta_version, s.partition or 0, 0 if s.delta_version >= 0 else s.modification_ms, s.path),
    )


def sequence_topic(log: DeltaLog, *, timeout_ms: float = 60_000, sync: bool = False) -> SequencingResult:
    """Give offsets to every file of a topic that has none. Safe to run twice at once and to kill at any point.

    Files without a partition, or of one that the topic doesn't have, or that can't be read, are left as they are and
    told in the result.

    Raises:
        UnknownTopicOrPartitionError, KafkaTimeoutError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    state = load_state(log)
    refused: dict[str, str] = {}
    files: list[ForeignFile] = []
    for segment in sequencing_order(state.require_whole().index.unsequenced()):
        try:
            files.append(_read(log, segment, partition_count=state.head.partition_count))
        except (CorruptRecordError, InvalidArgumentError, ObjectNotFoundError, _RefusedError) as error:
            refused[segment.path] = str(error)
            _LOGGER.warning("%s: can't sequence %s: %s", log.table, segment.path, error)

    def decide(now: TopicState) -> Commit | None:
        if now.whole is None or now.head.deleted:
            return None
        return plan_sequencing(now.head, now.whole.index.by_path, files, now_ms=log.clock.now_ms())

    done = commit(
        state,
        decide,
        deadline_ticks_ms=log.clock.ticks_ms() + timeout_ms,
        sync=sync,
    )
    adds = [action for action in (done.commit.actions if done.commit else ()) if isinstance(action, AddFile)]
    return SequencingResult(
        sequenced_count=len(adds),
        refused=refused,
        delta_version=done.state.position.version,
    )


class _RefusedError(Exception):
    """Why a file can't be sequenced as it is."""


def _read(log: DeltaLog, segment: Segment, *, partition_count: int) -> ForeignFile:
    if segment.partition is None or not 0 <= segment.partition < partition_count:
        raise _RefusedError(f"its partition is {segment.partition}, the topic has 0 to {partition_count - 1}")
    path = object_path(log.table, segment.path)
    data = log.store.read(path)
    table = decode_file(path, data)
    if table.num_rows == 0:
        raise _RefusedError("it holds no record")
    columns = {name: conform(path, table, name) for name in DATA_SCHEMA.names}
    if columns["timestamp"].null_count:
        raise _RefusedError("it has records without a timestamp")
    deltas = columns["offset_delta"]
    bounds = pc.min_max(deltas).as_py()
    keeps = (
        deltas.null_count == 0
        and 0 <= bounds["min"] <= bounds["max"] <= _MAX_OFFSET_DELTA
        and len(pc.unique(deltas)) == table.num_rows
    )
    if not keeps:
        columns["offset_delta"] = pa.chunked_array([pa.arange(0, table.num_rows)])
        data = write_parquet(pa.table(columns, schema=DATA_SCHEMA), compression="snappy")
    copy = new_data_file(segment.partition)
    log.store.put(object_path(log.table, copy), data, sync=True)
    stats = _stats(columns)
    add = AddFile(
        path=copy,
        partition_values=segment.partition_values(),
        size_bytes=len(data),
        modification_ms=segment.modification_ms,
        stats=stats,
    )
    bounds = {side: stats[f"{side}Values"]["offset_delta"] for side in ("min", "max")}
    return ForeignFile(segment=segment, add=add, range=(bounds["min"], bounds["max"]), renumbered=not keeps)


def _stats(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, Any]:
    numbers = {name: columns[name] for name in ("offset_delta", "producer_id", "sequence")}
    bounds = {name: pc.min_max(column).as_py() for name, column in numbers.items() if column.null_count < len(column)}
    times = pc.min_max(milliseconds(columns["timestamp"])).as_py()
    bounds["timestamp"] = {side: format_timestamp(times[side]) for side in ("min", "max")}
    return {
        "numRecords": len(columns["offset_delta"]),
        "minValues": {name: bound["min"] for name, bound in bounds.items()},
        "maxValues": {name: bound["max"] for name, bound in bounds.items()},
        "nullCount": {name: columns[name].null_count for name in bounds},
    }


def _common_bases(files: Sequence[ForeignFile]) -> list[list[ForeignFile]]:
    """Files in their order, those that share a base offset together: of one known commit and partition, numbered by
    their writer, in disjoint ranges."""
    groups: list[list[ForeignFile]] = []
    for (version, _), of_one_commit in groupby(
        files, key=lambda file: (file.segment.delta_version, file.segment.partition)
    ):
        together = list(of_one_commit)
        by_range = sorted(together, key=lambda file: file.range)
        disjoint = all(left.range[1] < right.range[0] for left, right in pairwise(by_range))
        if version >= 0 and disjoint and not any(file.renumbered for file in together):
            groups.append(by_range)
        else:
            groups += [[file] for file in together]
    return groups


def _remove(segment: Segment, *, now_ms: int) -> RemoveFile:
    return RemoveFile(
        path=segment.path,
        deletion_ms=now_ms,
        partition_values=segment.partition_values(),
        size_bytes=segment.size_bytes,
    )
