"""Sequencing: giving offsets to files that were written without (rules F1, F2, L4, L13).

Any Delta writer may add files whose ``base_offset`` is null; no reader shows them until a sequencing commit removes
the file and adds its records under new paths with base offsets. The new path is what makes a foreign OPTIMIZE, DELETE
or UPDATE that has read the old one conflict: docs/decisions/0003-sequencing-publishes-under-a-new-path.md. Which file
gets which offsets is decided by :func:`plan_sequencing`, which is pure; what is kept of a file and what is filled in,
by :mod:`sparklog.log.foreign`, before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.properties import is_append_only
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRecordError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commit import Commit, commit
from sparklog.log.foreign import ForeignFile, Piece, check_partition, read_foreign
from sparklog.log.head import TopicHead
from sparklog.log.segments import Segment
from sparklog.log.state import TopicState, load_state
from sparklog.log.uploads import why_not_to_publish

__all__ = ["SequencingResult", "plan_sequencing", "sequence_state", "sequence_topic"]

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencingResult:
    """What a sequencing did."""

    sequenced_count: int
    """Files that have offsets now and had none."""
    record_count: int
    """Records in them."""
    refused: Mapping[str, str]
    """Path to reason of each file that can't be sequenced as it is."""
    delta_version: int
    """The version of the topic that this is true of."""


def plan_sequencing(
    head: TopicHead,
    live: Mapping[str, Segment],
    files: Sequence[ForeignFile],
    *,
    now_ms: int,
    append_only: bool = False,
) -> Commit | None:
    """Give base offsets to files, in the given order.

    Files of one commit and partition keep one common base if their writer numbered them in disjoint ranges; any other
    file gets a base of its own. A base is the log end offset, so greater than every base given before. What is no
    longer live without a base offset is dropped (rule L4: two sequencers, a user's DELETE); of a file that became
    several, all or none.

    Args:
        append_only: no commit may remove records from the table. This one removes none, and there its ``remove``
            actions have to say so: ``dataChange`` is false (source: Delta protocol, "Append-only Tables"). What it adds
            is new to whoever asks for offsets.
    Returns:
        The commit; None where nothing is left to do.
    """
    wanted = [file for file in files if _is_as_it_was(live.get(file.segment.path), file, head)]
    if not wanted:
        return None
    ends = list(head.log_end_offsets)
    adds: list[AddFile] = []
    for group in _common_bases(wanted):
        partition = group[0].partition
        base_offset = ends[partition]
        values = {"partition": str(partition), "base_offset": str(base_offset)}
        adds += [replace(piece.add, partition_values=values) for piece in group]
        ends[partition] = base_offset + max(piece.range[1] for piece in group) + 1
    waiting_count = sum(segment.base_offset is None for segment in live.values())
    after = replace(
        head,
        log_end_offsets=tuple(ends),
        live_file_count=max(0, head.live_file_count + len(adds) - len(wanted)),
        unsequenced_count=waiting_count - len(wanted),
    )
    removes = [_remove(file.segment, now_ms=now_ms, data_change=not append_only) for file in wanted]
    return Commit(actions=[*removes, *adds], head=after, operation="SEQUENCE")


def sequencing_order(segments: Sequence[Segment]) -> list[Segment]:
    """The order in which foreign files get their offsets (rule F2): by the version of their commit where the log's tail
    still tells it, those of older commits first, by modification time and path."""
    return sorted(
        segments,
        key=lambda s: (s.delta_version, 0 if s.delta_version >= 0 else s.modification_ms, s.path),
    )


def sequence_topic(log: DeltaLog, *, timeout_ms: float = 60_000, sync: bool = False) -> SequencingResult:
    """Give offsets to every file of a topic that has none. Safe to run twice at once and to kill at any point.

    Files of a partition that the topic doesn't have, or that can't be read, are left as they are and told in the
    result.

    Args:
        timeout_ms: bound for the commit, once the files are read and copied.
        sync: fsync the commit and all before it.
    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        KafkaTimeoutError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    return sequence_state(load_state(log), timeout_ms=timeout_ms, sync=sync)


def sequence_state(
    state: TopicState,
    *,
    refused_before: Mapping[str, str] = MappingProxyType({}),
    timeout_ms: float = 60_000,
    sync: bool = False,
) -> SequencingResult:
    """As :func:`sequence_topic`, of a topic that was loaded just now.

    Args:
        refused_before: files that aren't read again, and why; they are told in the result.
    """
    log = state.log
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: the one at {log.store.uri}/{log.table} was deleted")
    began_ticks_ms, known_version = log.clock.ticks_ms(), state.position.version
    refused: dict[str, str] = {}
    files: list[ForeignFile] = []
    for segment in sequencing_order(state.require_whole().index.unsequenced()):
        try:
            check_partition(segment, state.head)
            if segment.path in refused_before:
                refused[segment.path] = refused_before[segment.path]
            else:
                files.append(read_foreign(log, segment, state.head))
        except (CorruptRecordError, InvalidArgumentError, InvalidRecordError, ObjectNotFoundError) as error:
            refused[segment.path] = str(error)
            if refused_before.get(segment.path) != str(error):
                _LOGGER.warning("%s: can't sequence %s: %s", log.table, segment.path, error)

    def decide(now: TopicState) -> Commit | None:
        if now.whole is None or now.head.deleted:
            return None
        reason = why_not_to_publish(
            log,
            now.vacuums,
            began_ticks_ms=began_ticks_ms,
            known_version=known_version,
            retention_ms=now.head.deleted_file_retention_ms,
        )
        if reason is not None:
            raise KafkaTimeoutError(f"sequencing of {log.table} begins anew: {reason}")
        return plan_sequencing(
            now.head,
            now.whole.index.by_path,
            files,
            now_ms=log.clock.now_ms(),
            append_only=is_append_only(now.whole.metadata),
        )

    done = commit(state, decide, deadline_ticks_ms=log.clock.ticks_ms() + timeout_ms, sync=sync).state
    # Not from the commit: one whose answer was lost is found done, and no commit is left to make.
    live = done.require_whole().index.by_path
    published = [file for file in files if all(piece.add.path in live for piece in file.pieces)]
    return SequencingResult(
        sequenced_count=len(published),
        record_count=sum(file.record_count for file in published),
        refused=refused,
        delta_version=done.position.version,
    )


def _is_as_it_was(now: Segment | None, file: ForeignFile, head: TopicHead) -> bool:
    return (
        now is not None
        and now.base_offset is None
        and now.partition == file.segment.partition
        and all(0 <= piece.partition < head.partition_count for piece in file.pieces)
    )


def _common_bases(files: Sequence[ForeignFile]) -> list[list[Piece]]:
    """The files' pieces, those that share a base offset together: of one known commit and partition, all as their
    writer numbered them, in disjoint ranges. Within a commit and partition in the order of the writer's numbers if
    these tell one, else of the files."""
    of_one_commit: dict[tuple[int, int], list[Piece]] = {}
    for file in files:
        for piece in file.pieces:
            of_one_commit.setdefault((file.segment.delta_version, piece.partition), []).append(piece)
    groups: list[list[Piece]] = []
    for (version, _), together in of_one_commit.items():
        numbered = sorted((piece.numbers, piece.add.path, piece) for piece in together if piece.numbers is not None)
        disjoint = all(left[0][1] < right[0][0] for left, right in pairwise(numbered))
        if version < 0 or len(numbered) < len(together) or not disjoint:
            groups += [[piece] for piece in together]
            continue
        ordered = [piece for _, _, piece in numbered]
        groups += [[piece] for piece in ordered] if any(piece.renumbered for piece in ordered) else [ordered]
    return groups


def _remove(segment: Segment, *, now_ms: int, data_change: bool) -> RemoveFile:
    return RemoveFile(
        path=segment.path,
        deletion_ms=now_ms,
        data_change=data_change,
        partition_values=segment.partition_values(),
        size_bytes=segment.size_bytes,
    )
