"""Sequencing: giving offsets to files that were written without (rules F1, foreign files; F2, sequencing; L4, decide
again; L13, new path).

Any Delta writer may add files whose ``base_offset`` is null; no reader shows them until a sequencing commit removes
the file and adds its records under new paths with base offsets. The new path is what makes a foreign OPTIMIZE, DELETE
or UPDATE that has read the old one conflict: docs/decisions/0003-sequencing-publishes-under-a-new-path.md. Which file
gets which offsets is decided by :func:`plan_sequencing`, which is pure; what is kept of a file and what is filled in,
by :mod:`sparklog.log.sequencing.foreign_files`, before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
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
from sparklog.log.catch_up import catch_up
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.data.partitioned_writer import discard_files
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead
from sparklog.log.reloading import reload_state
from sparklog.log.sequencing.foreign_files import ForeignFile, Piece, check_partition, read_foreign
from sparklog.log.sequencing.returned import SEQUENCED_INFO, plan_return, returned_files, with_copies
from sparklog.log.state import TopicState, load_state
from sparklog.log.uploads import why_not_to_publish
from sparklog.storage.entry_log import PositionLost

__all__ = ["SequencingResult", "plan_sequencing", "sequence_state", "sequence_topic", "whole_and_current"]

_LOGGER = logging.getLogger(__name__)
_COMMIT_BYTES = 256 * 1024 * 1024
"""Bytes of foreign files, after which a commit is made: what comes later is read and copied while those can be read."""
_LOOK_AGAIN_MS = 1_000.0
_LOOK_AHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencingResult:
    """The result of a sequencing."""

    sequenced_count: int
    """Files that have offsets now and had none."""
    record_count: int
    """Records in them."""
    refused: Mapping[str, str]
    """Path to reason of each file that can't be sequenced as it is."""
    delta_version: int
    """The version of the topic that this is true of."""
    postponed: Mapping[str, str] = field(default_factory=dict)
    """Path to reason of each file that was left as it is too much for ``limit_bytes``."""


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
    longer live without a base offset is dropped (rule L4, decide again: two sequencers, a user's DELETE); of a file
    that became several, all or none.

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
        adds += [replace(add, partition_values=values) for piece in group for add in piece.adds]
        ends[partition] = base_offset + max(piece.range[1] for piece in group) + 1
    waiting_count = sum(segment.base_offset is None for segment in live.values())
    after = replace(
        head,
        log_end_offsets=tuple(ends),
        live_file_count=max(0, head.live_file_count + len(adds) - len(wanted)),
        unsequenced_count=waiting_count - len(wanted),
    )
    removes = [_remove(file.segment, now_ms=now_ms, data_change=not append_only) for file in wanted]
    info = {SEQUENCED_INFO: {file.segment.path: [*file.paths] for file in wanted}} if len(wanted) > 1 else {}
    return Commit(actions=[*removes, *adds], head=after, operation="SEQUENCE", info=info)


def sequencing_order(segments: Sequence[Segment]) -> list[Segment]:
    """The order in which foreign files get their offsets (rule F2, sequencing): by the version of their commit where
    the log's tail still shows it, those of older commits first, by modification time and path."""
    return sorted(
        segments,
        key=lambda s: (s.delta_version, 0 if s.delta_version >= 0 else s.modification_ms, s.path),
    )


def sequence_topic(
    log: DeltaLog, *, timeout_ms: float = 60_000, sync: bool = False, limit_bytes: int | None = None
) -> SequencingResult:
    """Give offsets to every file of a topic that has none. Safe to run twice at once and to kill at any point.

    Files of a partition that the topic doesn't have, or that can't be read, are left as they are and reported in the
    result. What another engine committed at once gets its offsets at once, but for such files.

    Args:
        timeout_ms: bound for each commit, once its files are read and copied.
        sync: fsync the commits and all before them.
        limit_bytes: leave what another engine committed at once if it is larger; None: take all.
    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        KafkaTimeoutError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    return sequence_state(load_state(log), timeout_ms=timeout_ms, sync=sync, limit_bytes=limit_bytes)


def sequence_state(
    state: TopicState,
    *,
    refused_before: Mapping[str, str] = MappingProxyType({}),
    limit_bytes: int | None = None,
    before_piece: Callable[[], None] = lambda: None,
    timeout_ms: float = 60_000,
    sync: bool = False,
) -> SequencingResult:
    """Sequence a topic that was loaded just now; see :func:`sequence_topic`.

    Args:
        refused_before: files that aren't read again, and why; the result reports them.
        before_piece: is called before each piece of a file that is read; what it raises ends the sequencing.
    """
    if state.head.deleted:
        log = state.log
        raise UnknownTopicOrPartitionError(f"unknown topic: the one at {log.store.uri}/{log.table} was deleted")
    run = _Run(state, refused_before, before_piece, timeout_ms=timeout_ms, sync=sync)
    try:
        waiting = run.put_returned_back(sequencing_order(state.require_whole().index.unsequenced()))
        run.copy_and_commit(waiting, limit_bytes)
    except BaseException:
        run.discard()
        raise
    return run.result()


def whole_and_current(state: TopicState) -> TopicState:
    """The topic as it is now, with its live files: one GET where a whole state is given and nothing is new. The given
    state isn't used any more. Raises as :func:`~sparklog.log.state.load_state`."""
    if state.whole is None:
        return load_state(state.log)
    try:
        while len(catch_up(state, ahead=_LOOK_AHEAD)) == _LOOK_AHEAD:
            pass
    except PositionLost:
        return reload_state(state)
    return state


class _Run:
    """One sequencing on its way: the files that are copied and not committed yet, and what came of the others."""

    def __init__(
        self,
        state: TopicState,
        refused_before: Mapping[str, str],
        before_piece: Callable[[], None],
        *,
        timeout_ms: float,
        sync: bool,
    ) -> None:
        self._state = state
        self._log = state.log
        self._refused_before = refused_before
        self._before_piece = before_piece
        self._timeout_ms = timeout_ms
        self._sync = sync
        self._refused: dict[str, str] = {}
        self._postponed: dict[str, str] = {}
        self._copied: list[ForeignFile] = []
        self._copying_since_ticks_ms = 0.0
        self._copying_since_version = -1
        """One that was known before the first of the copies was put."""
        self._published: list[ForeignFile] = []
        self._looked_ticks_ms = self._log.clock.ticks_ms()

    def copy_and_commit(self, waiting: Sequence[Segment], limit_bytes: int | None) -> None:
        """Go through the files that wait, in order."""
        for version, segments in groupby(waiting, key=lambda segment: segment.delta_version):
            together = [*segments]
            size_bytes = sum(segment.size_bytes for segment in together)
            if limit_bytes is not None and size_bytes > limit_bytes:
                self._postpone(together, size_bytes, limit_bytes)
                continue
            for segment in together:
                self._copy(segment)
                if version < 0:  # nobody knows which files were committed together
                    self._commit_if_large()
            self._commit_if_large()
        self._commit()

    def put_returned_back(self, waiting: Sequence[Segment]) -> Sequence[Segment]:
        """Give the records of files that were sequenced before their offsets again. Returns the other files."""
        known = self._refused_before
        found = returned_files(self._state, [segment for segment in waiting if segment.path not in known])
        if not found:
            return waiting
        files, returning = with_copies(self._state, found)
        self._copying_since_ticks_ms = self._log.clock.ticks_ms()
        self._copying_since_version = self._state.position.version
        refused: Mapping[str, str] = {}

        def plan(now: TopicState) -> Commit | None:
            nonlocal refused
            if now.whole is None or now.head.deleted:
                return None
            now_ms = self._log.clock.now_ms()
            planned, refused = plan_return(now.head, now.whole.index, files, returning, now_ms=now_ms)
            return planned

        self._commit_by(plan)
        self._refused |= {**refused, **{file.segment.path: file.refused for file in files if file.refused}}
        for path, reason in self._refused.items():
            _LOGGER.warning("%s: can't sequence %s: %s", self._log.table, path, reason)
        returned = {file.segment.path for file in files}
        return [segment for segment in waiting if segment.path not in returned]

    def discard(self) -> None:
        """Delete the copies that no commit names."""
        copied, self._copied = self._copied, []
        discard_files(self._log.store, self._log.table, [path for file in copied for path in file.paths])

    def _postpone(self, segments: Sequence[Segment], size_bytes: int, limit_bytes: int) -> None:
        """Leave what is too much to be copied beside other work."""
        reason = (
            f"{len(segments)} files of {size_bytes / 2**20:.0f} MiB wait that were written together, and clients take "
            f"up to {limit_bytes / 2**20:.0f} MiB beside their work: run `sparklog topics sequence`, Admin.sequence or "
            "maintenance"
        )
        self._postponed.update((segment.path, reason) for segment in segments)
        if any(self._refused_before.get(segment.path) != reason for segment in segments):
            _LOGGER.warning("%s: no reader shows what another engine wrote: %s", self._log.table, reason)

    def _copy(self, segment: Segment) -> None:
        """Copy a file, unless it is refused, or others have dealt with it meanwhile."""
        if not self._copied:
            self._copying_since_ticks_ms = self._log.clock.ticks_ms()
            self._copying_since_version = self._state.position.version
        self._look_again()
        now = self._state.require_whole().index.by_path.get(segment.path)
        if now is None or now.base_offset is not None:
            return
        try:
            check_partition(segment, self._state.head)
            if segment.path in self._refused_before:
                self._refused[segment.path] = self._refused_before[segment.path]
            else:
                file = read_foreign(self._log, segment, self._state.head, before_piece=self._before_piece)
                self._copied.append(file)
        except (CorruptRecordError, InvalidArgumentError, InvalidRecordError, ObjectNotFoundError) as error:
            self._refused[segment.path] = str(error)
            if self._refused_before.get(segment.path) != str(error):
                _LOGGER.warning("%s: can't sequence %s: %s", self._log.table, segment.path, error)

    def _commit_if_large(self) -> None:
        """Commit if enough is copied for a commit of its own."""
        if sum(file.segment.size_bytes for file in self._copied) >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        """Give offsets to what is copied. Raises as :func:`~sparklog.log.commit.commit`."""
        files, self._copied = self._copied, []
        log = self._log

        def plan_copied(now: TopicState) -> Commit | None:
            if now.whole is None or now.head.deleted:
                return None
            return plan_sequencing(
                now.head,
                now.whole.index.by_path,
                files,
                now_ms=log.clock.now_ms(),
                append_only=is_append_only(now.whole.metadata),
            )

        self._commit_by(plan_copied)
        # Not from the commit: one whose answer was lost is found done, and no commit is left to make.
        live = self._state.require_whole().index.by_path
        self._published += [file for file in files if all(path in live for path in file.paths)]

    def _commit_by(self, plan: Callable[[TopicState], Commit | None]) -> None:
        """Commit what ``plan`` says of the newest state. Raises as :func:`~sparklog.log.commit.commit`."""
        log, decided_on = self._log, self._state

        def decide(now: TopicState) -> Commit | None:
            nonlocal decided_on
            decided_on = now
            return plan(now)

        def check_copies() -> bool:
            reason = why_not_to_publish(
                log,
                decided_on.vacuums,
                began_ticks_ms=self._copying_since_ticks_ms,
                known_version=self._copying_since_version,
                retention_ms=decided_on.head.deleted_file_retention_ms,
            )
            if reason is not None:
                raise KafkaTimeoutError(f"sequencing of {log.table} begins anew: {reason}")
            return False

        deadline = log.clock.deadline_in(self._timeout_ms)
        self._state = commit(
            self._state,
            decide,
            deadline=deadline,
            sync=self._sync,
            prepare=check_copies,
            uploads=UploadedSince(self._copying_since_ticks_ms),
        ).state

    def result(self) -> SequencingResult:
        return SequencingResult(
            sequenced_count=len(self._published),
            record_count=sum(file.record_count for file in self._published),
            refused=self._refused,
            postponed=self._postponed,
            delta_version=self._state.position.version,
        )

    def _look_again(self) -> None:
        """Learn what others committed while files were copied: to copy what has offsets by now is in vain."""
        now = self._log.clock.ticks_ms()
        if now - self._looked_ticks_ms <= _LOOK_AGAIN_MS:
            return
        self._looked_ticks_ms = now
        self._state = whole_and_current(self._state)


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
    these define one, else of the files."""
    of_one_commit: dict[tuple[int, int], list[Piece]] = {}
    for file in files:
        for piece in file.pieces:
            of_one_commit.setdefault((file.segment.delta_version, piece.partition), []).append(piece)
    groups: list[list[Piece]] = []
    for (version, _), together in of_one_commit.items():
        numbered = sorted((piece.numbers, piece.adds[0].path, piece) for piece in together if piece.numbers is not None)
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
