"""Right checkpoints in place of damaged ones: of those before, or of the log's beginning, and all entries since."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.delta.by_deltalake import checkpoint_by_deltalake
from sparklog.delta.checkpoint import check_checkpoint, put_hint
from sparklog.delta.checkpoint_writing import EncodedCheckpoint, NotUnderstoodError, next_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, set_aside_checkpoint_path
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.snapshot import LogCopy, read_log
from sparklog.errors import CorruptLogError, ObjectNotFoundError
from sparklog.integrity.log_listing import list_log_folder
from sparklog.storage.base import CreateResult
from sparklog.storage.log_ground import check_still_there, delete_listed

__all__ = ["replace_damaged_checkpoints"]

_TOKEN_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Right:
    """The checkpoint that a log should have."""

    version: int
    token: str
    """The token of the newest entry, whose version it has."""
    encoded: EncodedCheckpoint
    damaged: Mapping[int, Sequence[str]]
    """The paths of the parts of those that it replaces, by version."""


def replace_damaged_checkpoints(log: DeltaLog, *, differs: bool) -> list[str]:
    """Write a right checkpoint, let the hint name it, and then set those aside that are damaged. Nothing is deleted but
    what has been copied to ``_set_aside``. Safe to repeat, to kill, and to run beside clients.

    A damaged checkpoint of the newest version is replaced by the right one under its name, in one step.

    Args:
        differs: the newest that can be read is one of them if what the entries say is another table.
    Returns:
        What was done, a line each; nothing, where none is damaged.
    Raises:
        CorruptLogError: no older checkpoint remains with all entries since, nor all entries from the first on; nothing
            was changed.
        StoreError.
    """
    right = _right_checkpoint(log, differs=differs)
    if right is None:
        return []
    aside = secrets.token_hex(_TOKEN_BYTES)
    path = checkpoint_path(log.table, right.version)
    check_still_there(log, right.version, right.token)
    log.store.sync([entry_path(log.table, right.version)])  # rule L9, fsync: as for any checkpoint
    if right.version in right.damaged:
        _copy_aside(log, right.damaged[right.version], aside)
        log.store.put(path, right.encoded.data, sync=True)
    elif log.store.create(path, right.encoded.data, sync=True) is CreateResult.EXISTS:
        check_checkpoint(log, [path], right.version)  # somebody else's, of a moment ago
    put_hint(log, right.version, right.encoded)
    done = [f"wrote a checkpoint of version {right.version} from the entries"]
    for version, paths in right.damaged.items():
        if version != right.version:
            _copy_aside(log, paths, aside)
        delete_listed(log, right.version, right.token, [one for one in paths if one != path])
        done.append(f"set the damaged checkpoint of version {version} aside, in _set_aside")
    return done


def _right_checkpoint(log: DeltaLog, *, differs: bool) -> _Right | None:
    checkpoints = list_log_folder(log).checkpoints
    copy = read_log(log)
    if copy is None:
        return None
    used = copy.listing.checkpoint_version
    damaged = {version: paths for version, paths in checkpoints.items() if version > used}
    damaged = {version: paths for version, paths in damaged.items() if not _reads_back(log, version, paths)}
    encoded = _encoded(log, copy)
    if differs and used >= 0:
        other = _by_entries(log, used, damaged)
        if other is None or other.listing.newest_version != copy.listing.newest_version:
            raise CorruptLogError(f"{log.table}: others write to it meanwhile: repair it again")
        by_entries = _encoded(log, other)
        if _rows(by_entries) != _rows(encoded):
            damaged[used], encoded = checkpoints[used], by_entries
    if not damaged:
        return None
    newest = log.read_entry(copy.listing.newest_version)
    if newest is None:
        raise CorruptLogError(f"{log.table}: others write to it meanwhile: repair it again")
    return _Right(newest.version, newest.token, encoded, damaged)


def _by_entries(log: DeltaLog, used: int, damaged: Iterable[int]) -> LogCopy | None:
    """The log by an older checkpoint than those, or by none."""
    try:
        return read_log(log, without=frozenset({used, *damaged}))
    except CorruptLogError as error:
        raise CorruptLogError(
            f"{log.table}: the checkpoint of version {used} differs from the entries, and no right one can be made: "
            f"neither an older one nor version 0 remains with all entries since ({error})"
        ) from error


def _reads_back(log: DeltaLog, version: int, paths: Sequence[str]) -> bool:
    try:
        check_checkpoint(log, list(paths), version)
    except (CorruptLogError, ObjectNotFoundError):
        return False
    return True


def _encoded(log: DeltaLog, copy: LogCopy) -> EncodedCheckpoint:
    try:
        return next_checkpoint(copy.checkpoint, copy.raw_tail.values(), now_ms=log.clock.now_ms())
    except NotUnderstoodError:
        version = copy.listing.newest_version
        return checkpoint_by_deltalake(log.table, version, {**copy.checkpoint, **copy.raw_tail})


def _rows(checkpoint: EncodedCheckpoint) -> set[str]:
    """The content of a checkpoint: of live and of removed files their paths, and all other actions as they are."""
    found: set[str] = set()
    for batch in open_parquet(checkpoint.data).iter_batches(use_threads=False):
        for row in batch.to_pylist():
            for kind, fields in row.items():
                if fields is not None:
                    found.add(f"{kind} {fields['path'] if kind in ('add', 'remove') else fields!r}")
    return found


def _copy_aside(log: DeltaLog, paths: Iterable[str], token: str) -> None:
    for path in paths:
        log.store.put(set_aside_checkpoint_path(log.table, path, token), log.store.read(path), sync=True)
