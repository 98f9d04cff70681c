"""Deleting old log entries in bulk: what may go (pure), and one short actor that deletes it (protocol rule L3,
cleanup).

Requests that delete many objects delete them in no order, and may be carried out in part. Two things make that safe:

- Before the first delete a *mark* is written: a name that says below which version entries may be gone. Whoever was
  silent for longer than it may trust what it knew reads the mark, and loads the table anew if it stands below it.
- Of each batch those objects go first from which a reader of another engine could begin: old checkpoints, and the
  entry of version 0. What is left below the mark then opens no table, whichever of its entries are missing.

Where Delta's feature ``checkpointProtection`` protects what lies below a version, nothing of that goes before all of it
may go; then all goes under one mark, the entries first, and the checkpoints that hide them last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from sparklog.delta.checkpoint import check_checkpoint
from sparklog.delta.listing import Listing, list_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import CheckpointPart, aside_version, log_folder, parse_name
from sparklog.errors import ObjectNotFoundError, StoreUnavailableError
from sparklog.storage import ObjectInfo
from sparklog.storage.cleanup_marks import mark_of, superseded_marks
from sparklog.storage.foothold import Foothold
from sparklog.storage.log_ground import check_still_there

__all__ = ["CleanupBatch", "CleanupResult", "clean_log", "plan_cleanup"]

_ATTEMPTS = 5
_RETENTION_PER_TRUST = 10
"""Source: protocol rule L3, cleanup."""
_BATCH = 10_000
"""Objects that are deleted under one mark: ten requests on S3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """The result of a cleanup."""

    deleted_count: int
    """Entries, checkpoints, and what Spark keeps beside them."""
    cleaned_below: int
    """Below this version entries may be gone, by this cleanup or an earlier one; from it on the log is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupBatch:
    """Objects of a log's folder that may be deleted once the mark ``below`` is written."""

    below: int
    """Every entry among them is of a version below this one."""
    beginnings: tuple[str, ...]
    """The paths from which another engine could begin to read. They go before the others, but those of a protected
    part, which hide entries that an older reader can't read: they go after the others."""
    others: tuple[str, ...]
    """The other paths, which may go in any order."""
    protected: bool = False
    """Is it a protected part of the log, which goes as a whole?"""

    def __len__(self) -> int:
        return len(self.beginnings) + len(self.others)

    def steps(self) -> Iterator[tuple[str, ...]]:
        """Paths that are deleted together, in the order in which they go."""
        yield from (self.others, self.beginnings) if self.protected else (self.beginnings, self.others)


@dataclass(slots=True, kw_only=True)
class _Version:
    """The objects of one version that a listing has shown."""

    number: int
    entry_modified_ms: int | None = None
    """None without an entry."""
    paths: list[str] = field(default_factory=list)
    """Paths of its entry, its checkpoint, and what Spark keeps beside them."""


def plan_cleanup(
    objects: Iterable[ObjectInfo],
    *,
    checkpoint_version: int,
    newest_modified_ms: int,
    retention_ms: int,
    cleaned_below: int = 0,
    protected_below: int = 0,
    batch_size: int = _BATCH,
) -> Iterator[CleanupBatch]:
    """Plan what may be deleted, from the oldest version on, in batches of about ``batch_size`` objects. Pure.

    An entry may go when it lies below the checkpoint and its *successor* is at least ``retention_ms`` older than the
    newest entry, by the store's own modification times. (The successor, because an entry that stood as the newest for
    days is relied upon by every process up to the moment it is followed.) The first that may not go ends the plan.
    Old checkpoints go with the entry of their version, and so do Spark's checksums and the entries that it compacted.

    Args:
        objects: the log's folder, sorted by path. It is read no further than the plan goes.
        checkpoint_version: of the newest complete checkpoint.
        newest_modified_ms: of the newest entry, milliseconds since the epoch.
        cleaned_below: the mark of an earlier cleanup. What it left below goes at once: that it may go was found then,
            and what was created there since counts for nothing.
        protected_below: nothing below this version goes unless all of it does, in one batch.
    """
    latest_ms = newest_modified_ms - retention_ms
    found = _deletable(_versions(objects), checkpoint_version, cleaned_below, latest_ms)
    protected: list[_Version] = []
    batch: list[_Version] = []
    count = 0
    for version in found:
        if version.number < protected_below:
            protected.append(version)
            continue
        if protected:
            yield _batch(protected, protected=True)
            protected = []
        batch.append(version)
        count += len(version.paths)
        if count >= batch_size:
            yield _batch(batch)
            batch, count = [], 0
    if protected and max(protected[-1].number + 1, cleaned_below) >= protected_below:
        yield _batch(protected, protected=True)
    if batch:
        yield _batch(batch)


def _batch(versions: Sequence[_Version], *, protected: bool = False) -> CleanupBatch:
    beginnings: list[str] = []
    others: list[str] = []
    for version in versions:
        for path in version.paths:
            is_beginning = isinstance(_name_of(path), CheckpointPart) or (version.number == 0 and not protected)
            (beginnings if is_beginning else others).append(path)
    return CleanupBatch(
        below=versions[-1].number + 1, beginnings=tuple(beginnings), others=tuple(others), protected=protected
    )


def _versions(objects: Iterable[ObjectInfo]) -> Iterator[_Version]:
    """The versions that objects are of, ascending. Entries that Spark compacted, ``N.M.compacted.json``, are listed at
    N and belong to M."""
    waiting: dict[int, _Version] = {}
    at = -1
    for found in objects:
        file = found.path.rpartition("/")[2]
        name = parse_name(file)
        number = name.version if isinstance(name, CheckpointPart) else name if name is not None else aside_version(file)
        if number is None:
            continue
        if int(file[:20]) != at:
            at = int(file[:20])
            for complete in sorted(one for one in waiting if one < at):
                yield waiting.pop(complete)
        version = waiting.setdefault(number, _Version(number=number))
        version.paths.append(found.path)
        if isinstance(name, int):
            version.entry_modified_ms = found.modified_ms
    for complete in sorted(waiting):
        yield waiting[complete]


def _deletable(
    versions: Iterable[_Version], checkpoint_version: int, cleaned_below: int, latest_ms: int
) -> Iterator[_Version]:
    """The versions below the checkpoint that lie below the mark, or whose successors are as old as ``latest_ms``."""
    held: list[_Version] = []  # an entry, and versions without one: whether they may go, the next entry decides
    for version in versions:
        if version.entry_modified_ms is not None:
            if held and held[0].entry_modified_ms is not None and version.entry_modified_ms > latest_ms:
                return
            yield from held
            held = []
        if version.number >= checkpoint_version:
            return
        if version.number < cleaned_below:
            yield version
        else:
            held.append(version)


def clean_log(
    log: DeltaLog,
    *,
    retention_ms: int,
    protected_below: int = 0,
    before_delete: Callable[[], object] = lambda: None,
) -> CleanupResult | None:
    """Delete the log entries that nobody needs any more, in bulk. None where there is no log.

    The newest complete checkpoint is first read back and made to survive a power loss; nothing at or above it is
    deleted. Safe to run twice at once and to kill at any point: what is left from the mark on is a whole log, and what
    is left below it is read by nobody, and goes with the next cleanup.

    Costs the checkpoint, a LIST for each 1,000 objects that are deleted, and for each 10,000 of them a PUT and two
    deletes, which S3 takes in requests of 1,000.

    Args:
        retention_ms: at least ten times ``log.tail_trust_ms`` is kept, whatever is asked for (rule L3, cleanup).
        protected_below: see :func:`plan_cleanup`.
        before_delete: called where something is to be deleted, before it is, and once the newest checkpoint is known.
            What it raises is raised, and nothing was deleted.
    Raises:
        CorruptLogError: the newest checkpoint can't be read back; nothing was deleted.
        StoreUnavailableError: others cleaned again and again before it was; nothing was deleted.
        StoreReplacedError: another log is in its folder by now; nothing was deleted there.
        StoreError.
    """
    folder = log.hold()
    for _ in range(_ATTEMPTS):
        listing = list_log(log)
        if listing is None:
            return None
        if listing.checkpoint_version < 0:
            return CleanupResult(deleted_count=0, cleaned_below=0)
        try:
            _secure_checkpoint(log, listing)
        except ObjectNotFoundError:  # while we slept somebody else cleaned, and took the checkpoint with it
            continue
        kept_ms = max(retention_ms, math.ceil(_RETENTION_PER_TRUST * log.tail_trust_ms))
        newest = log.read_entry(listing.newest_version)
        if newest is None:
            continue
        check = partial(_check_place, log, folder, newest.version, newest.token)
        return _delete_below(log, listing, kept_ms, protected_below, before_delete, check)
    raise StoreUnavailableError(f"log of {log.table} was cleaned under {_ATTEMPTS} looks; try again")


def _check_place(log: DeltaLog, folder: Foothold, version: int, token: str) -> None:
    """Raise ``StoreReplacedError`` where another log is in the place of the one whose entry ``version`` is known."""
    log.check_held(folder)
    check_still_there(log, version, token)


def _secure_checkpoint(log: DeltaLog, listing: Listing) -> None:
    """Make sure that the newest checkpoint reads back and survives a power loss, with the entry without which it is
    none."""
    parts = [part.path for part in listing.checkpoint_parts]
    check_checkpoint(log, parts, listing.checkpoint_version)
    log.store.sync([*parts, listing.entries[0][1].path])


def _delete_below(
    log: DeltaLog,
    listing: Listing,
    retention_ms: int,
    protected_below: int,
    before_delete: Callable[[], object],
    check: Callable[[], None],
) -> CleanupResult:
    """Delete what a listing's checkpoint replaces. ``check`` raises where another log is in the place of the listed."""
    folder = log_folder(log.table)
    newest_modified_ms = listing.entries[-1][1].modified_ms
    marks = list(log.store.list(log.cleanup_marks))
    below = max(map(mark_of, marks), default=0)
    if below:  # whoever wrote it may have died before its fsync (rule L9, fsync)
        log.store.sync([found.path for found in marks if mark_of(found) == below])
    deleted = 0
    for batch in plan_cleanup(
        (file for file in log.store.list(folder) if "/" not in file.path[len(folder) :]),
        checkpoint_version=listing.checkpoint_version,
        newest_modified_ms=newest_modified_ms,
        retention_ms=retention_ms,
        cleaned_below=below,
        protected_below=protected_below,
    ):
        if deleted == 0:
            before_delete()
        check()
        if batch.below > below:
            below = batch.below
            log.mark_cleaned(below)
        for paths in batch.steps():
            if paths:
                check()
                log.store.delete(paths)
        deleted += len(batch)
    if superseded := superseded_marks(marks, latest_ms=newest_modified_ms - retention_ms):
        check()
        log.store.delete(superseded)
    return CleanupResult(deleted_count=deleted, cleaned_below=below)


def _name_of(path: str) -> int | CheckpointPart | None:
    return parse_name(path.rpartition("/")[2])
