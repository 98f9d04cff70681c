"""Deleting old log entries: what may go (pure), and one short actor that deletes it in order (protocol rule L3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparklog.delta.checkpoint import check_checkpoint
from sparklog.delta.listing import Listing, list_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import CheckpointPart, aside_version, log_folder, parse_name
from sparklog.errors import ObjectNotFoundError, StoreUnavailableError
from sparklog.storage import ObjectInfo

__all__ = ["CleanupResult", "clean_log", "plan_cleanup"]

_ATTEMPTS = 5
_RETENTION_PER_TRUST = 10
"""Source: protocol rule L3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """What a cleanup did."""

    deleted_count: int
    oldest_version: int
    """The oldest entry that is left."""


def plan_cleanup(
    objects: Iterable[ObjectInfo], *, checkpoint_version: int, newest_modified_ms: int, retention_ms: int
) -> list[str]:
    """The paths that may be deleted, in the order in which they must be: strictly from the oldest version on.

    An entry may go when it lies below the checkpoint and its *successor* is at least ``retention_ms`` older than the
    newest entry, by the store's own modification times. (The successor, because an entry that stood as the newest for
    days is relied upon by every process up to the moment it is followed.) The first that may not go ends the plan.
    Old checkpoints go with the entry of their version, and so do Spark's checksums and the entries that it compacted.
    """
    versions: dict[int, list[ObjectInfo]] = {}
    entry_times: dict[int, int] = {}
    for found in objects:
        file = found.path.rpartition("/")[2]
        name, aside = parse_name(file), aside_version(file)
        if isinstance(name, int):
            versions.setdefault(name, []).insert(0, found)  # the entry first: its checkpoint is of no use without it
            entry_times[name] = found.modified_ms
        elif isinstance(name, CheckpointPart):
            versions.setdefault(name.version, []).append(found)
        elif aside is not None:
            versions.setdefault(aside, []).append(found)
    plan: list[str] = []
    followed_by = dict(pairwise(sorted(entry_times)))
    for version in sorted(versions):
        successor = followed_by.get(version)
        superseded = successor is not None and newest_modified_ms - entry_times[successor] >= retention_ms
        young = version in entry_times and not superseded
        if version >= checkpoint_version or young:
            break
        plan.extend(found.path for found in versions[version])
    return plan


def clean_log(log: DeltaLog, *, retention_ms: int) -> CleanupResult | None:
    """Delete the log entries that nobody needs any more, one after the other. None where there is no log.

    The newest complete checkpoint is first read back and made to survive a power loss; nothing at or above it is
    deleted. Safe to run twice at once and to kill at any point: what is left is always a whole log from some version
    on.

    Args:
        retention_ms: at least ten times ``log.tail_trust_ms`` is kept, whatever is asked for (rule L3).
    Raises:
        CorruptLogError: the newest checkpoint can't be read back; nothing was deleted.
        StoreUnavailableError: others cleaned again and again before it was; nothing was deleted.
        StoreError.
    """
    for _ in range(_ATTEMPTS):
        listing = list_log(log)
        if listing is None:
            return None
        objects = list(log.store.list(log_folder(log.table)))
        try:
            plan = _plan(log, listing, objects, retention_ms=retention_ms)
        except ObjectNotFoundError:  # while we slept somebody else cleaned, and took the checkpoint with it
            continue
        break
    else:
        raise StoreUnavailableError(f"log of {log.table} was cleaned under {_ATTEMPTS} looks; try again")
    for path in plan:
        log.store.delete([path])
    gone = set(plan)
    left = (parse_name(found.path.rpartition("/")[2]) for found in objects if found.path not in gone)
    return CleanupResult(
        deleted_count=len(plan), oldest_version=min(version for version in left if isinstance(version, int))
    )


def _plan(log: DeltaLog, listing: Listing, objects: Sequence[ObjectInfo], *, retention_ms: int) -> list[str]:
    """What may go by the newest checkpoint, which reads back and survives a power loss; nothing where there is none."""
    if listing.checkpoint_version < 0:
        return []
    parts = [part.path for part in listing.checkpoint_parts]
    check_checkpoint(log, parts, listing.checkpoint_version)
    log.store.sync([*parts, listing.entries[0][1].path])  # the checkpoint, and the entry without which it is none
    return plan_cleanup(
        objects,
        checkpoint_version=listing.checkpoint_version,
        newest_modified_ms=listing.entries[-1][1].modified_ms,
        retention_ms=max(retention_ms, math.ceil(_RETENTION_PER_TRUST * log.tail_trust_ms)),
    )
