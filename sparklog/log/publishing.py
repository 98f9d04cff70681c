"""Carrying out in one topic what a transaction decided: one commit, once, whoever does it and however often.

The commit carries a marker, a ``txn`` action whose version is the number of the entry that decided the transaction
(rule L7, producer state). Whoever finds a marker that is not smaller knows that the topic has the transaction's
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.clock import Deadline
from sparklog.delta.actions import FAR_FUTURE_MS, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptLogError, ObjectNotFoundError, SparklogError
from sparklog.log.commit import Commit, TopicCommitResult, commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.object_paths import object_path
from sparklog.log.gaps import ForeignGaps
from sparklog.log.head import TopicHead
from sparklog.log.offset_assignment import assign_offsets
from sparklog.log.state import TopicState, load_state
from sparklog.log.uploads import Vacuum, missing_files

__all__ = [
    "Marker",
    "PublishResult",
    "marker_app_id",
    "newest_marker",
    "plan_publish",
    "publish_transaction",
    "transactional_id_of",
]

UNKNOWN_OFFSET = -1
_MARKER_PREFIX = "txn:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A transaction, as a topic remembers it."""

    transactional_id: str
    number: int
    """The number of the entry in the transactional id's log that decided it."""

    @property
    def app_id(self) -> str:
        """The ``appId`` of the ``txn`` action by which a topic keeps the marker."""
        return marker_app_id(self.transactional_id)

    def is_in(self, state: TopicState) -> bool:
        """Does the topic have this transaction's records?"""
        found = state.transactions.get(self.app_id)
        return found is not None and found.version >= self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The result of publishing a transaction in one topic."""

    base_offsets: tuple[int, ...]
    """Offset of the first record of each file, in the order in which the files were given; -1 where nobody knows it any
    more, and where the topic is gone."""
    is_skipped: bool
    """The topic of that id was deleted: there is nothing to publish in (rule L8, one log)."""
    delta_version: int
    """At which the records were seen to be there."""


def marker_app_id(transactional_id: str) -> str:
    """The ``txn`` appId of a transactional id's markers."""
    return f"{_MARKER_PREFIX}{transactional_id}"


def newest_marker(state: TopicState, transactional_id: str) -> int:
    """The number of the newest transaction of an id that the topic has, as far as ``state`` knows; 0: of none."""
    found = state.transactions.get(marker_app_id(transactional_id))
    return 0 if found is None else found.version


def transactional_id_of(app_id: str) -> str | None:
    """The transactional id that a ``txn`` appId is of; None where it is of none."""
    return app_id[len(_MARKER_PREFIX) :] if app_id.startswith(_MARKER_PREFIX) else None


def plan_publish(
    head: TopicHead, files: Sequence[UploadedFile], marker: Marker, *, table: str
) -> tuple[Commit, tuple[int, ...]]:
    """Decide how a transaction is published; its files get their offsets by
    :func:`~sparklog.log.offset_assignment.assign_offsets`.

    Args:
        head: of a topic that doesn't have the transaction yet.
    Raises:
        CorruptLogError: a file is of a partition that the topic doesn't have; partitions only grow.
    """

    def no_partition(file: UploadedFile) -> CorruptLogError:
        return CorruptLogError(
            f"entry {marker.number} of transactional id {marker.transactional_id!r} names {file.path} of partition "
            f"{file.partition}; {table} has 0 to {head.partition_count - 1}"
        )

    assigned = assign_offsets(head, files, no_partition=no_partition)
    # It doesn't expire as long as the id is in use; ``sparklog.txn.markers`` lets it go.
    marked = SetTransaction(app_id=marker.app_id, version=marker.number, last_updated_ms=FAR_FUTURE_MS)
    plan = Commit(actions=[*assigned.adds, marked], head=assigned.head, operation="WRITE", blind_append=True)
    return plan, assigned.base_offsets


def publish_transaction(
    state: TopicState,
    topic_id: str,
    files: Sequence[UploadedFile],
    marker: Marker,
    *,
    deadline: Deadline,
    sync: bool,
    gaps: ForeignGaps | None = None,
) -> tuple[PublishResult, TopicCommitResult]:
    """Publish the files of a decided transaction in one topic, unless the topic has them.

    Args:
        state: whole, or opened before the transaction was decided (rule L5, opening).
        topic_id: of the topic that the records were meant for.
        gaps: as for :func:`~sparklog.log.commit.commit`.
    Raises:
        ObjectNotFoundError: a file is gone; names it. Nothing is published in this topic.
        CorruptLogError, and as :func:`~sparklog.log.commit.commit`. Safe to repeat.
    """
    base_offsets: tuple[int, ...] = ()
    is_gone = False
    decided_on = state
    looked_at: tuple[Vacuum, ...] | None = None

    def plan_unless_published(now: TopicState) -> Commit | None:
        nonlocal base_offsets, is_gone, decided_on
        decided_on = now
        is_gone = now.head.deleted or now.head.topic_id != topic_id
        if is_gone or marker.is_in(now):
            return None
        plan, base_offsets = plan_publish(now.head, files, marker, table=now.log.table)
        return plan

    def look_at_files() -> bool:
        """Once, and again after each vacuum: nobody has the files' bytes any more."""
        nonlocal looked_at
        if looked_at != decided_on.vacuums:
            _check_present(decided_on, files, marker)
            looked_at = decided_on.vacuums
        return False

    done = commit(state, plan_unless_published, deadline=deadline, sync=sync, prepare=look_at_files, gaps=gaps)
    if is_gone:
        base_offsets = (UNKNOWN_OFFSET,) * len(files)
    elif done.commit is None:
        base_offsets = _find(done.state.log, files)
    published = PublishResult(base_offsets=base_offsets, is_skipped=is_gone, delta_version=done.state.position.version)
    return published, done


def _check_present(state: TopicState, files: Sequence[UploadedFile], marker: Marker) -> None:
    retention_ms = state.head.deleted_file_retention_ms
    for gone in missing_files(state.log, files, state.vacuums, retention_ms=retention_ms):
        raise ObjectNotFoundError(
            f"{object_path(state.log.table, gone.path)} is gone: entry {marker.number} of transactional id "
            f"{marker.transactional_id!r} has committed its {gone.record_count} records, and another engine's VACUUM "
            "may have deleted it before they were published; put the file back, say from an older version of the "
            "object, and finish the transaction"
        )


def _find(log: DeltaLog, files: Sequence[UploadedFile]) -> tuple[int, ...]:
    """The base offsets that somebody else has given to the files; they may be compacted by now."""
    try:
        live = load_state(log).require_whole().index.by_path
    except SparklogError:  # they are stored; only the futures need to know at which offsets
        return (UNKNOWN_OFFSET,) * len(files)
    found = [live.get(file.path) for file in files]
    return tuple(UNKNOWN_OFFSET if one is None or one.base_offset is None else one.base_offset for one in found)
