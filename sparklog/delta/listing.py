"""The files in a table's log folder: the one listing that opening a table costs (protocol rule L12, listing)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

from sparklog.delta.log import DeltaLog
from sparklog.delta.names import (
    CheckpointPart,
    last_checkpoint_path,
    log_folder,
    parse_name,
    version_prefix,
)
from sparklog.errors import CorruptLogError, ObjectNotFoundError
from sparklog.storage import ObjectInfo
from sparklog.storage.cleanup_marks import mark_of

__all__ = [
    "CheckpointHint",
    "Listing",
    "is_cut",
    "is_untouched",
    "list_log",
    "list_log_at",
    "list_short_log",
    "look_past",
    "read_checkpoint_hint",
    "read_hint",
    "still_there",
    "versions_after",
]

_PAGE = 1_000
"""Source: S3 ``ListObjectsV2``: the most names that one answer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The part of a log that opens the table: its highest complete checkpoint and every entry from there on."""

    checkpoint_version: int
    """-1 where there is no checkpoint."""
    checkpoint_parts: tuple[ObjectInfo, ...]
    entries: tuple[tuple[int, ObjectInfo], ...]
    """Version and object, oldest first; never empty. The checkpoint's own entry is among them where it still exists."""
    began_ticks_ms: float
    """When the listing began: nothing newer than its last entry existed then."""

    @property
    def checkpoint_ms(self) -> int | None:
        """When the checkpoint was written, by the store's time, ms since the epoch; None without one."""
        return max((part.modified_ms for part in self.checkpoint_parts), default=None)

    @property
    def newest_version(self) -> int:
        """The version of the newest entry."""
        return self.entries[-1][0]

    def first_gap(self) -> int | None:
        """The lowest version that the table needs and the listing lacks."""
        present = {version for version, _ in self.entries}
        return next((v for v in range(self.checkpoint_version + 1, self.newest_version) if v not in present), None)

    def before(self, version: int) -> Listing | None:
        """The same log as it was before ``version`` was created; None where nothing of it was listed."""
        entries = tuple(listed for listed in self.entries if listed[0] < version)
        return replace(self, entries=entries) if entries else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHint:
    """The content of ``_last_checkpoint``, which may be old. Source: Delta protocol, "Last Checkpoint File"."""

    version: int = -1
    """-1 where it names no checkpoint."""
    row_count: int = 0
    """Actions in the checkpoint: live files, removed files, ``txn`` actions; 0 where it doesn't say."""


def read_checkpoint_hint(log: DeltaLog) -> CheckpointHint:
    """Read ``_last_checkpoint``: one GET. A hint that is missing, or that can't be understood, names no checkpoint."""
    try:
        hint = json.loads(log.store.read(last_checkpoint_path(log.table)))
        version, size = int(hint["version"]), hint.get("size")
    except ObjectNotFoundError:
        return CheckpointHint()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):  # torn, or of another engine
        return CheckpointHint()
    return CheckpointHint(version=version, row_count=size if isinstance(size, int) else 0)


def read_hint(log: DeltaLog) -> int:
    """The version that ``_last_checkpoint`` names; -1 where there is none. Only a hint: what it says may be old."""
    return read_checkpoint_hint(log).version


def list_log(log: DeltaLog, *, without: frozenset[int] = frozenset()) -> Listing | None:
    """List the log from its last known checkpoint on: one GET and one LIST. None where there is no log.

    A hint may name a checkpoint that isn't there (another engine's, or one that a power loss took): then the whole log
    is listed.

    Args:
        without: versions of checkpoints that can't be read; the whole log is listed to find another.
    Raises:
        CorruptLogError: there is a checkpoint, or a hint of one, but no entry.
    """
    hint = read_hint(log)
    if hint >= 0 and not without:
        listing = _list_after(log, version_prefix(log.table, hint))
        if listing is not None and listing.checkpoint_version >= hint:
            return listing
    listing = _list_after(log, "", without)
    if listing is None and hint >= 0:
        raise CorruptLogError(
            f"log of {log.table}: _last_checkpoint names version {hint}, but there is no entry at all"
        )
    return listing


def list_short_log(log: DeltaLog) -> Listing | None:
    """List a log that fits into one page of a listing: one LIST. None where it doesn't, or where there is no entry.

    For who looks at many tables once: where a log is short, a hint of its checkpoint costs more than it saves.

    Raises:
        CorruptLogError: there is a checkpoint, but no entry.
    """
    began = log.clock.ticks_ms()
    found = list(islice(log.store.list(log_folder(log.table)), _PAGE))
    return None if len(found) == _PAGE else _arrange(found, frozenset(), began_ticks_ms=began)


def list_log_at(log: DeltaLog, version: int, *, without: frozenset[int] = frozenset()) -> Listing | None:
    """List what opens the table as of an older version: a LIST for each 1,000 objects of the log. None where there is
    no entry of that version (any more).

    Args:
        without: versions of checkpoints that can't be read.
    """
    began = log.clock.ticks_ms()
    found = [one for one in log.store.list(log_folder(log.table)) if _version_of(one) <= version]
    if log.path_of(version) not in {one.path for one in found}:
        return None
    return _arrange(found, without, began_ticks_ms=began)


def _version_of(listed: ObjectInfo) -> float:
    """The version that a file of the log folder is of; infinite for what is neither an entry nor of a checkpoint."""
    name = parse_name(listed.path.rpartition("/")[2])
    if name is None:
        return math.inf
    return name if isinstance(name, int) else name.version


def _list_after(log: DeltaLog, after: str, without: frozenset[int] = frozenset()) -> Listing | None:
    began = log.clock.ticks_ms()
    return _arrange(log.store.list(log_folder(log.table), after=after), without, began_ticks_ms=began)


def still_there(log: DeltaLog, version: int, listed: ObjectInfo) -> bool:
    """Is the entry of a listing still the same object? One LIST."""
    objects = log.store.list(log_folder(log.table), after=version_prefix(log.table, version))
    return next((found == listed for found in objects if found.path >= listed.path), False)


def versions_after(log: DeltaLog, version: int) -> list[int]:
    """The versions beyond ``version`` whose entries are there, in order. One LIST for each 1,000 of them.

    A listing isn't atomic: of entries that are created meanwhile it may miss one and show a later one.
    """
    objects = log.store.list(log_folder(log.table), after=log.path_of(version))
    names = (parse_name(found.path.rpartition("/")[2]) for found in objects)
    return [name for name in names if isinstance(name, int) and name > version]


def look_past(
    log: DeltaLog, version: int, *, checkpoint_version: int
) -> tuple[list[int], tuple[int, int | None] | None]:
    """The versions beyond ``version``, as :func:`versions_after` returns them, and the newest complete checkpoint
    beyond ``checkpoint_version`` with the time it was written, by the store's time, ms since the epoch; None if none.

    One LIST for each 1,000 objects beyond the lower of the two.
    """
    after = version_prefix(log.table, min(version, checkpoint_version) + 1)
    listed = list(log.store.list(log_folder(log.table), after=after))
    names = (parse_name(found.path.rpartition("/")[2]) for found in listed)
    versions = [name for name in names if isinstance(name, int) and name > version]
    (best, _), parts = _best_checkpoint(_checkpoint_parts(listed))
    if best <= checkpoint_version:
        return versions, None
    return versions, (best, max((part.modified_ms for part in parts), default=None))


def is_cut(log: DeltaLog, version: int) -> bool:
    """Does this listing show, too, that nobody can open the log: that an entry is missing which it takes, or that it
    ends before ``version``, which this process knows? A damaged entry isn't that. A GET or two, and a LIST.

    Raises ``StoreError``.
    """
    try:
        listing = list_log(log)
    except CorruptLogError:  # there is a checkpoint, or a hint of one, but no entry
        return True
    if listing is None or listing.newest_version < version:
        return True
    gap = listing.first_gap()
    return gap is not None and log.store.read_many([log.path_of(gap)])[0] is None


def is_untouched(log: DeltaLog, version: int, listed: ObjectInfo) -> bool:
    """Is the entry of a listing still the same object, and was nothing from its version on cleaned before this call?

    One LIST, of the versions behind it and of the marks of cleanups, which sort behind all of them (rules L3, cleanup;
    L12, listing). False also where it took longer than the trust: of marks that come and go meanwhile it may have
    missed some.
    """
    began = log.clock.ticks_ms()
    objects = log.store.list(log_folder(log.table), after=version_prefix(log.table, version))
    rest = iter([found for found in objects if found.path >= listed.path])
    if next(rest, None) != listed:
        return False
    is_below = any(mark_of(found) > version for found in rest)
    return not is_below and log.clock.ticks_ms() - began <= log.tail_trust_ms


def _arrange(objects: Iterable[ObjectInfo], without: frozenset[int], *, began_ticks_ms: float) -> Listing | None:
    listed = list(objects)
    names = ((parse_name(found.path.rpartition("/")[2]), found) for found in listed)
    entries = [(name, found) for name, found in names if isinstance(name, int)]
    parts = _checkpoint_parts(listed, without)
    best, best_parts = _best_checkpoint(parts)
    entries = [(version, found) for version, found in sorted(entries, key=lambda e: e[0]) if version >= best[0]]
    if not entries:
        if parts:
            raise CorruptLogError(
                f"log with {next(iter(parts.values()))[0][1].path} holds no entry from version {best[0]} on"
            )
        return None
    return Listing(
        checkpoint_version=best[0],
        checkpoint_parts=best_parts,
        entries=tuple(entries),
        began_ticks_ms=began_ticks_ms,
    )


_Parts = dict[tuple[int, int], list[tuple[CheckpointPart, ObjectInfo]]]
"""The parts of checkpoints that were listed, by version and the number of parts."""


def _checkpoint_parts(objects: Iterable[ObjectInfo], without: frozenset[int] = frozenset()) -> _Parts:
    parts: _Parts = {}
    for found in objects:
        name = parse_name(found.path.rpartition("/")[2])
        if isinstance(name, CheckpointPart) and name.version not in without:
            parts.setdefault((name.version, name.parts), []).append((name, found))
    return parts


def _best_checkpoint(parts: _Parts) -> tuple[tuple[int, int], tuple[ObjectInfo, ...]]:
    """The highest complete checkpoint, by version and the number of parts, and its parts in order; version -1 without
    one."""
    best = max((key for key, found in parts.items() if len(found) == key[1]), default=(-1, 0))
    return best, tuple(found for _, found in sorted(parts.get(best, []), key=lambda pair: pair[0].part))
