"""Maintenance of an offset table, by the process whose commit makes it due: a checkpoint, a sweep, a cleanup of the
log."""

from __future__ import annotations

from functools import partial

from sparklog.delta.checkpoint import checkpoint_due, write_checkpoint
from sparklog.delta.cleanup import CleanupResult, clean_log
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.groups.offsets.offset_commit import synced
from sparklog.groups.offsets.offset_files import plan_sweep
from sparklog.groups.offsets.offset_state import NO_TABLE, load_state
from sparklog.log.data.object_paths import object_path
from sparklog.storage.log_ground import delete_listed

__all__ = ["clean_offset_log", "maintain_offsets", "sweep"]

_LOG_RETENTION_MS = 3_600_000
"""Retention of the log's entries: as long as the replaced data files; rule L3, cleanup, asks for ten minutes at least.
A topic's day would be 864,000 versions of a group of 50 that commits every five seconds
(docs/decisions/0005-a-member-has-two-objects.md)."""


def maintain_offsets(log: DeltaLog, version: int, *, sweeps: bool = True) -> int:
    """Do all that is due after the commit of ``version``, unless another client did. Returns the newest checkpoint's
    version.

    Args:
        sweeps: delete old files too, which takes a listing of all that an hour has left.

    Raises:
        SparklogError, Exception: whatever went wrong; each step may be done again, by anybody.
    """
    checkpoint_version = read_hint(log)
    if not checkpoint_due(version=version, checkpoint_version=checkpoint_version, live_file_count=1):
        return checkpoint_version
    _secure(log)  # else a power loss takes the newest file and all entries below, and the hint names what isn't there
    checkpoint_version = write_checkpoint(log) or checkpoint_version
    if sweeps:
        sweep(log)
        clean_offset_log(log)
    return checkpoint_version


def sweep(log: DeltaLog) -> int:
    """Delete the data files that were replaced an hour ago, and those of as old that never became live. Returns how
    many.

    Safe to run twice at once, and with any delay between the look and the deletion: what may go once, may go for ever.
    See :mod:`sparklog.groups.offsets.offset_files`.

    Raises:
        CorruptLogError: the table can't be read, or a power loss has left an entry in part: whoever clears that away
            needs the files of older versions. Nothing was deleted.
        StoreError, ….
    """
    state = load_state(log)
    if state.position.version == NO_TABLE:
        return 0
    folder = f"{log.table}/"
    live = {object_path(log.table, file.path) for file in state.live}
    modified = [_modified_ms(log, folder, path) for path in live]
    plan = list(
        plan_sweep(
            (file for file in log.store.list(folder) if "/" not in file.path[len(folder) :]),  # deeper ones are others'
            newest_version=state.position.version,
            live_paths=live,
            newest_modified_ms=max((ms for ms in modified if ms is not None), default=0),
        )
    )
    if plan:
        synced(log, state)  # or a power loss leaves an older version without its file
        delete_listed(log, state.position.version, state.position.token, plan)
    return len(plan)


def clean_offset_log(log: DeltaLog) -> CleanupResult | None:
    """Delete the log's entries that were followed an hour ago, as :func:`~sparklog.delta.cleanup.clean_log`.

    The newest version survives a power loss before: if its file went with the power, and the older entries are gone,
    nothing could be opened any more. That the checkpoint and its entry are durable isn't enough.

    Raises:
        CorruptLogError: a power loss has left an entry in part; and as that. Nothing was deleted.
        StoreError, ….
    """
    return clean_log(log, retention_ms=_LOG_RETENTION_MS, before_delete=partial(_secure, log))


def _secure(log: DeltaLog) -> None:
    """Let the table as of now survive a power loss (rule L9, fsync); no request where nothing is fsynced."""
    if log.store.may_tear:
        synced(log, load_state(log))


def _modified_ms(log: DeltaLog, folder: str, path: str) -> int | None:
    """The time at which a file was written, by the store; None if it is gone: somebody sweeps more recently than we
    looked."""
    beyond = log.store.list(folder, after=path[:-1])  # what is listed comes after a name that is a little less than it
    nearest = next((file for file in beyond if file.path >= path), None)
    return nearest.modified_ms if nearest is not None and nearest.path == path else None
