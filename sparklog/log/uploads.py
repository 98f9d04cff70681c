"""Files that are uploaded and in no log yet: how long they are safe from whoever deletes what no log names (rule L10,
orphans).

Our own sweep spares them for a week. Other engines' vacuums delete what is older than the table's
``delta.deletedFileRetentionDuration``, or than a user demands. Each lists what it will delete, then commits an entry
``VACUUM START`` that states that age (deltalake always, Spark not on S3), deletes, and commits ``VACUUM END``. A
file that is put after such an entry is on no list of that vacuum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparklog.clock import Deadline
from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import CommitStateUnknownError, StoreError, TransactionTimedOutError
from sparklog.log.data.object_paths import object_path
from sparklog.parallel import parallel_map
from sparklog.storage.retrying import retry

if TYPE_CHECKING:
    from sparklog.log.data.data_files import StagedFile, UploadedFile

__all__ = [
    "Vacuum",
    "check_uploads",
    "fresh_ms",
    "is_at_risk",
    "is_removal_remembered",
    "longest_age_ms",
    "may_be_gone",
    "missing_files",
    "put_again_if_late",
    "why_not_to_publish",
    "with_vacuum",
]

_LONGEST_AGE_MS = 86_400_000
"""A file that was uploaded longer ago is published by nobody: the orphan sweep spares files for seven days."""
_FRESH_MS = 300_000
"""A file that was uploaded longer ago is looked at again, or uploaded again by whoever has its bytes. That costs
little: an append takes longer only where the store was down or the process asleep."""
_LEAST_MS = 1_000
"""No table's retention makes these times shorter: an append has to end at some time."""
_PUT_AGAIN_MS = 30_000
"""For how long files are tried to be put again once a commit names them."""
_LARGEST_SKEW_MS = 86_400_000
"""Between the clocks of whoever uploads and of whoever vacuums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """Another engine has announced that it is about to delete files."""

    version: int
    """The version of the entry that records it."""
    horizon_ms: int
    """Files that were written before this wall time, and are in no log, are deleted."""


def with_vacuum(vacuums: tuple[Vacuum, ...], entry: Entry) -> tuple[Vacuum, ...]:
    """The vacuums that are known after an entry; of those that add nothing only the newest.

    Source of the fields: deltalake ``DeltaOperation::VacuumStart``, Spark Delta ``DeltaOperations.VacuumStart``.
    """
    info = entry.commit_info
    if entry.info is not None or str(info.get("operation", "")).upper() != "VACUUM START":
        return vacuums
    parameters = info.get("operationParameters") or {}
    retention_ms = _number(
        parameters.get("specifiedRetentionMillis"), _number(parameters.get("defaultRetentionMillis"), 0)
    )
    horizon_ms = _number(info.get("timestamp"), 2**62) - retention_ms
    older = tuple(vacuum for vacuum in vacuums if vacuum.horizon_ms > horizon_ms)
    return (*older, Vacuum(version=entry.version, horizon_ms=horizon_ms))


def _number(value: object, default: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default


def longest_age_ms(retention_ms: int) -> float:
    """The greatest age at which an upload may be published by a process that hasn't got its bytes any more.

    Half of what the table says: for as long a vacuum may take from its look at the log until it lists the files.

    Args:
        retention_ms: the table's ``delta.deletedFileRetentionDuration``.
    """
    return max(_LEAST_MS, min(_LONGEST_AGE_MS, retention_ms / 2))


def fresh_ms(retention_ms: int) -> float:
    """The greatest age of an upload that needs no second look. ``retention_ms``: as for :func:`longest_age_ms`."""
    return max(_LEAST_MS, min(_FRESH_MS, retention_ms / 2))


def is_at_risk(vacuums: Sequence[Vacuum], *, topic_version: int, uploaded_ms: int) -> bool:
    """May one of these vacuums delete what was uploaded then? Each that came later may, unless it spares what is so
    young.

    Args:
        topic_version: one that was known before the upload; -1: none is known.
        uploaded_ms: wall time.
    """
    return any(
        vacuum.version > topic_version and uploaded_ms < vacuum.horizon_ms + _LARGEST_SKEW_MS for vacuum in vacuums
    )


def is_removal_remembered(uploaded_ms: int, *, now_ms: int, retention_ms: int) -> bool:
    """Does a table's log still say that a file was removed, if it was, whenever after its upload?

    A checkpoint forgets a removal after the table's retention. Three clocks take part: those of whoever uploaded,
    removed, and wrote the checkpoint, two of which may each be wrong by a day.

    Args:
        uploaded_ms: wall time, of the uploader.
        retention_ms: the table's ``delta.deletedFileRetentionDuration``.
    """
    return now_ms - uploaded_ms <= retention_ms - 2 * _LARGEST_SKEW_MS


def may_be_gone(file: StagedFile, vacuums: Sequence[Vacuum], *, now_ticks_ms: float, retention_ms: int) -> bool:
    """May somebody have deleted a file whose bytes are at hand, or be about to? Then it is uploaded again.

    Args:
        vacuums: that are known now.
        now_ticks_ms: of the clock by which the end of its upload was recorded.
        retention_ms: as for :func:`longest_age_ms`.
    """
    facts = file.facts
    return now_ticks_ms - file.uploaded_ticks_ms > fresh_ms(retention_ms) or is_at_risk(
        vacuums, topic_version=facts.topic_version, uploaded_ms=facts.uploaded_ms
    )


def put_again_if_late(log: DeltaLog, files: Sequence[StagedFile], *, retention_ms: int, sync: bool) -> None:
    """After a commit that names files: of those that were uploaded long ago, put those again that are gone.

    The commit came so late because this process slept after it had looked at their age, or because the store was down.
    One small GET for each such file.

    Args:
        retention_ms: as for :func:`longest_age_ms`.
        sync: fsync them.
    Raises:
        CommitStateUnknownError: they are in the log, and it is unknown whether they exist, or they can't be put.
    """
    now, fresh = log.clock.ticks_ms(), fresh_ms(retention_ms)
    late = {
        object_path(log.table, file.path): file.batch.data for file in files if now - file.uploaded_ticks_ms > fresh
    }
    if not late:
        return

    def put_missing() -> None:
        are_there = parallel_map(lambda path: log.store.exists(path), late)
        gone = {path: late[path] for path, is_there in zip(late, are_there, strict=True) if not is_there}
        if gone:
            log.store.put_many(gone, sync=sync)

    try:
        retry(put_missing, deadline=Deadline(log.clock, now + _PUT_AGAIN_MS))
    except StoreError as error:
        raise CommitStateUnknownError(
            f"{log.table}: records are committed, but so late that another engine's VACUUM may have taken their files "
            f"({', '.join(late)}), which can't be put again: {error}"
        ) from error


def why_not_to_publish(
    log: DeltaLog, vacuums: Sequence[Vacuum], *, began_ticks_ms: float, known_version: int, retention_ms: int
) -> str | None:
    """The reason why a job's uploads mustn't be published; None where they may.

    Args:
        began_ticks_ms: of the log's clock, before the first of its uploads.
        known_version: of the topic, known before the first of its uploads.
        retention_ms: the table's ``delta.deletedFileRetentionDuration``.
    """
    age_ms, longest_ms = log.clock.ticks_ms() - began_ticks_ms, longest_age_ms(retention_ms)
    if age_ms > longest_ms:
        return (
            f"it took {age_ms / 3_600_000:.1f} hours, expected no more than {longest_ms / 3_600_000:g}: what it has "
            "written may have been swept"
        )
    began_ms = int(log.clock.now_ms() - age_ms)
    if is_at_risk(vacuums, topic_version=known_version, uploaded_ms=began_ms):
        return f"another engine began a VACUUM behind version {known_version}, which may delete what it has written"
    return None


def missing_files(
    log: DeltaLog, files: Sequence[UploadedFile], vacuums: Sequence[Vacuum], *, retention_ms: int
) -> list[UploadedFile]:
    """The files that aren't in the store any more. Only what may be gone is looked for: a small GET each, side by side.

    Raises ``StoreError``."""
    now_ms = log.clock.now_ms()
    doubtful = [
        file
        for file in files
        if now_ms - file.uploaded_ms > fresh_ms(retention_ms)
        or is_at_risk(vacuums, topic_version=file.topic_version, uploaded_ms=file.uploaded_ms)
    ]

    are_there = parallel_map(lambda file: log.store.exists(object_path(log.table, file.path)), doubtful)
    return [file for file, is_there in zip(doubtful, are_there, strict=True) if not is_there]


def check_uploads(
    log: DeltaLog, files: Sequence[UploadedFile], vacuums: Sequence[Vacuum], *, retention_ms: int
) -> None:
    """Before it is decided that files are published: may they be, though nobody has their bytes any more?

    That time is by the clock of whoever uploaded them.

    Raises:
        TransactionTimedOutError: one is too old, or is gone; names it.
        StoreError.
    """
    now_ms = log.clock.now_ms()
    newest = max(files, key=lambda file: file.uploaded_ms)
    if newest.uploaded_ms - now_ms > _LARGEST_SKEW_MS:
        raise TransactionTimedOutError(
            f"{newest.path} was uploaded {(newest.uploaded_ms - now_ms) / 3_600_000:.1f} hours from now, by the clock "
            f"of the machine that did: expected clocks that differ by {_LARGEST_SKEW_MS // 3_600_000} hours at most"
        )
    oldest = min(files, key=lambda file: file.uploaded_ms)
    age_ms, longest_ms = now_ms - oldest.uploaded_ms, longest_age_ms(retention_ms)
    if age_ms > longest_ms:
        raise TransactionTimedOutError(
            f"{oldest.path} was uploaded {age_ms / 3_600_000:.1f} hours ago; expected no more than "
            f"{longest_ms / 3_600_000:g}, since files that nobody names are swept: write the records again"
        )
    for gone in missing_files(log, files, vacuums, retention_ms=retention_ms):
        raise TransactionTimedOutError(
            f"{log.table}/{gone.path} was uploaded {(now_ms - gone.uploaded_ms) / 60_000:.0f} minutes ago and is gone: "
            "another engine's VACUUM may have deleted it; write the records again"
        )
