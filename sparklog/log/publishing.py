"""Carrying out in one topic what a transaction decided: one commit, once, whoever does it and however often.

The commit carries a marker, a ``txn`` action whose version is the number of the entry that decided the transaction
(rule L7, producer state). Whoever finds a marker that is not smaller, and one of the files, live or removed, knows that
the topic has the transaction's records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from sparklog.clock import Deadline
from sparklog.delta.actions import FAR_FUTURE_MS, SetTransaction
from sparklog.delta.commit import UploadsGoneError
from sparklog.delta.log import DeltaLog
from sparklog.delta.removed import removed_files
from sparklog.errors import CorruptLogError, KafkaTimeoutError, ObjectNotFoundError, TransactionTimedOutError
from sparklog.log.commit import Commit, TopicCommitResult, commit
from sparklog.log.confirming import Confirmation
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.object_paths import object_path
from sparklog.log.gaps import ForeignGaps
from sparklog.log.head import TopicHead
from sparklog.log.offset_assignment import assign_offsets
from sparklog.log.reloading import reload_state
from sparklog.log.state import TopicState
from sparklog.log.uploads import Vacuum, check_uploads, is_removal_remembered, missing_files
from sparklog.logs import about
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import last_check
from sparklog.storage.retrying import retry

__all__ = [
    "Marker",
    "PublishResult",
    "check_published",
    "marker_app_id",
    "newest_marker",
    "plan_publish",
    "publish_transaction",
    "transactional_id_of",
]

_LOGGER = logging.getLogger("sparklog.txn")
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
        """Does the topic have a marker that isn't smaller? Then it has this transaction's records, unless numbers were
        used twice."""
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
    head: TopicHead, files: Sequence[UploadedFile], marker: Marker, *, table: str, above: int = 0
) -> tuple[Commit, tuple[int, ...]]:
    """Decide how a transaction is published; its files get their offsets by
    :func:`~sparklog.log.offset_assignment.assign_offsets`.

    Args:
        head: of a topic that doesn't have the transaction yet.
        above: the number of the marker that the topic has; it never decreases.
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
    number = max(marker.number, above)
    marked = SetTransaction(app_id=marker.app_id, version=number, last_updated_ms=FAR_FUTURE_MS)
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
    confirmation: Confirmation | None = None,
) -> tuple[PublishResult, TopicCommitResult]:
    """Publish the files of a decided transaction in one topic, unless the topic has them.

    A marker that isn't smaller shows that it has them only if it knows the files, too. Else it is of a number that the
    id had used before others deleted its entries (rule L7, producer state): then they are published all the same. To
    find that out costs a load of the table where the marker was met in a light state, which tells the offsets, too.

    Args:
        state: whole, or opened before the transaction was decided (rule L5, opening).
        topic_id: of the topic that the records were meant for.
        gaps: as for :func:`~sparklog.log.commit.commit`.
        confirmation: of :func:`check_published`.
    Raises:
        ObjectNotFoundError: a file is gone; names it. Nothing is published in this topic.
        KafkaTimeoutError: the deadline passed; what is decided isn't published yet.
        CorruptLogError, and as :func:`~sparklog.log.commit.commit`. Safe to repeat.
    """
    publication = _Publication(state, topic_id, files, marker)
    uploads = _Published(state.log, files, marker, confirmation or Confirmation(state.log))
    while True:
        done = commit(
            state,
            publication.decide,
            deadline=deadline,
            sync=sync,
            prepare=publication.look_at_files,
            gaps=gaps,
            uploads=uploads,
        )
        if done.commit is not None or publication.is_gone or not files:
            break
        whole = done.state if done.state.whole is not None else _loaded(done.state, deadline)
        done = replace(done, state=whole)
        if publication.is_known(whole, deadline):
            break
        if deadline.has_passed:
            raise KafkaTimeoutError(
                f"{whole.log.table}: entry {marker.number} of transactional id {marker.transactional_id!r} wasn't "
                "published in time: whoever finishes the transaction does it"
            )
        state = whole
    published = PublishResult(
        base_offsets=publication.base_offsets,
        is_skipped=publication.is_gone,
        delta_version=done.state.position.version,
    )
    return published, done


class _Publication:
    """One call of :func:`publish_transaction`."""

    def __init__(self, state: TopicState, topic_id: str, files: Sequence[UploadedFile], marker: Marker) -> None:
        self.base_offsets: tuple[int, ...] = ()
        self.is_gone = False
        """The topic of that id was deleted."""
        self._topic_id = topic_id
        self._files = files
        self._marker = marker
        self._decided_on = state
        self._looked_at: tuple[Vacuum, ...] | None = None
        self._others: SetTransaction | None = None
        """A marker that is of another transaction, though its number isn't smaller: this very action, since one that
        is written later may have the same number."""

    def decide(self, now: TopicState) -> Commit | None:
        """Publish, unless the topic is gone or has a marker that may be the transaction's."""
        self._decided_on = now
        self.is_gone = now.head.deleted or now.head.topic_id != self._topic_id
        if self.is_gone:
            self.base_offsets = (UNKNOWN_OFFSET,) * len(self._files)
            return None
        found = now.transactions.get(self._marker.app_id)
        if self._marker.is_in(now) and found is not self._others:
            return None
        above = 0 if found is None else found.version
        plan, self.base_offsets = plan_publish(now.head, self._files, self._marker, table=now.log.table, above=above)
        return plan

    def look_at_files(self) -> bool:
        """Once, and again after each vacuum: nobody has the files' bytes any more."""
        if self._looked_at != self._decided_on.vacuums:
            _check_present(self._decided_on, self._files, self._marker)
            self._looked_at = self._decided_on.vacuums
        return False

    def is_known(self, whole: TopicState, deadline: Deadline) -> bool:
        """Does the topic, which has a marker that isn't smaller, have the records, or did it? False: the marker is
        another transaction's.

        A transaction adds all of its files at once, and what is removed later, the log remembers for as long as
        :func:`~sparklog.log.uploads.is_removal_remembered` says. Beyond that the marker alone counts, and a warning
        says so.
        """
        live = whole.require_whole().index.by_path
        found = [live.get(file.path) for file in self._files]
        self.base_offsets = tuple(
            UNKNOWN_OFFSET if one is None or one.base_offset is None else one.base_offset for one in found
        )
        if any(one is not None for one in found):
            return True
        removed = retry(lambda: removed_files(whole.log), deadline=deadline).removed_ms
        paths = {unquote(file.path) for file in self._files}
        if any(unquote(path) in paths for path in removed):
            return True
        self._others = whole.transactions.get(self._marker.app_id)
        newest_ms, retention_ms = max(file.uploaded_ms for file in self._files), whole.head.deleted_file_retention_ms
        is_certain = is_removal_remembered(newest_ms, now_ms=whole.log.clock.now_ms(), retention_ms=retention_ms)
        _LOGGER.warning(
            "%s has a marker of transactional id %r that isn't smaller than %d, and knows none of the %d files of that "
            "transaction: %s",
            whole.log.table,
            self._marker.transactional_id,
            self._marker.number,
            len(self._files),
            "the numbers of its log began anew, and they are published now"
            if is_certain
            else "they are so old that their removal may be forgotten, so they count as published",
            extra=about(transactional_id=self._marker.transactional_id),
        )
        return not is_certain


def _loaded(state: TopicState, deadline: Deadline) -> TopicState:
    return retry(lambda: reload_state(state), deadline=deadline)


class _Published:
    """The files of a decided transaction (rule L17, ground): nobody has their bytes any more."""

    def __init__(
        self, log: DeltaLog, files: Sequence[UploadedFile], marker: Marker, confirmation: Confirmation
    ) -> None:
        self._log = log
        self._confirmation = confirmation
        self._marker = marker
        self._files = {file.path: file for file in files}

    def uploaded_at(self, path: str) -> float:
        """A tick before its upload, or a look that found it, began; -inf: of neither."""
        return max(self._files[path].staged_ticks_ms, self._confirmation.found_at(path))

    def replace(self, gone: UploadsGoneError) -> None:
        """Raises ``ObjectNotFoundError``."""
        raise _gone(self._log, self._files[min(gone.paths)], self._marker) from gone


def check_published(state: TopicState, files: Sequence[UploadedFile], confirmation: Confirmation) -> TopicState:
    """Before it is decided that files are published: may they be? Checks the topic's ground where that is due (rule
    L17, ground), and looks for the files that were uploaded before the newest check. Returns the state to go on with.

    Raises:
        TransactionTimedOutError: one is too old, or is gone; names it.
        StoreReplacedError: the topic's log isn't the one that was known.
        StoreError.
    """
    try:
        state.position = state.log.grounded(state.position)
    except PositionLost:
        state = reload_state(state)
    check_uploads(state.log, files, state.vacuums, retention_ms=state.head.deleted_file_retention_ms)
    staged = {file.path: file.staged_ticks_ms for file in files}
    checked = last_check(state.position).ticks_ms
    try:
        confirmation.confirm(staged, staged.__getitem__, checked_ticks_ms=checked)
    except UploadsGoneError as error:
        raise TransactionTimedOutError(f"{error}: write the records again") from error
    return state


def _check_present(state: TopicState, files: Sequence[UploadedFile], marker: Marker) -> None:
    retention_ms = state.head.deleted_file_retention_ms
    for gone in missing_files(state.log, files, state.vacuums, retention_ms=retention_ms):
        raise _gone(state.log, gone, marker)


def _gone(log: DeltaLog, file: UploadedFile, marker: Marker) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"{object_path(log.table, file.path)} is gone: entry {marker.number} of transactional id "
        f"{marker.transactional_id!r} has committed its {file.record_count} records, and another engine's VACUUM may "
        "have deleted it before they were published, or it was uploaded while another storage was in the place of this "
        "one; put the file back, say from an older version of the object, and finish the transaction"
    )
