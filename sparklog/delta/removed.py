"""Files that a table doesn't have any more, and since when: a reader that began earlier may still need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest

from sparklog.arrow import pa, pc
from sparklog.delta.actions import Entry, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import log_folder, parse_name
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.snapshot import read_log
from sparklog.errors import CorruptLogError
from sparklog.storage.cleanup_marks import mark_of

__all__ = ["RemovedFiles", "remaining_entries", "removed_files"]

_READ_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFiles:
    """The files that a table's log remembers to have removed, up to one version."""

    removed_ms: Mapping[str, int]
    """By path, percent-encoded as in the log: when it was removed, milliseconds since the epoch."""
    version: int
    """Version of the newest entry that was read; -1 where there is no log."""


def removed_files(log: DeltaLog) -> RemovedFiles:
    """The removed files that the log remembers, and when they were removed.

    The later of the time that their remover recorded and of the store's time of its entry, where that still exists: so
    no clock but the store's decides about what was removed less than ``sparklog.log.retention.ms`` ago. A checkpoint
    forgets a removal, by its writer's clock, after ``delta.deletedFileRetentionDuration``, 7 days unless the table says
    otherwise. Files that were added again are among them.

    Costs what loading the table costs, a LIST of the log's folder, and a GET for each entry that is left below the
    checkpoint, 1,000 at a time.

    Raises:
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    found: dict[str, int] = {}

    def learn(entry: Entry, modified_ms: int) -> None:
        for action in entry.actions:
            if isinstance(action, RemoveFile):
                found[action.path] = max(found.get(action.path, 0), action.deletion_ms, modified_ms)

    copy = read_log(log)
    if copy is None:
        return RemovedFiles(removed_ms=found, version=-1)
    for path, part in copy.checkpoint.items():
        found.update(_removed_in(part, path))
    for entry, (_, listed) in zip(copy.entries, copy.listing.entries, strict=True):
        learn(entry, listed.modified_ms)
    for entry, modified_ms in _entries_below(log, copy.listing.checkpoint_version):
        learn(entry, modified_ms)
    return RemovedFiles(removed_ms=found, version=copy.listing.newest_version)


def remaining_entries(log: DeltaLog, version: int) -> Iterator[Entry]:
    """The entries of versions up to this one that the log still has, also below its checkpoint, oldest first.

    Those below a cleanup's mark are left out: where a sleeper created them, they don't count (rule L3, cleanup).
    Costs a LIST of the log's folder, and a GET for each, 1,000 at a time. Raises ``CorruptLogError``, ``StoreError``.
    """
    listed = list(log.store.list(log_folder(log.table)))
    below = max((mark_of(found) for found in listed), default=-1)
    numbers = [parse_name(found.path.rpartition("/")[2]) for found in listed]
    left = sorted(number for number in numbers if isinstance(number, int) and below <= number <= version)
    for start in range(0, len(left), _READ_AT_ONCE):
        for read in log.read_raw_entries(left[start : start + _READ_AT_ONCE]):
            if read is not None:
                yield read[0]


def _entries_below(log: DeltaLog, version: int) -> Iterator[tuple[Entry, int]]:
    """The entries that are still there of versions below this one, and the store's times of them. What is cleaned
    meanwhile is as old as what was cleaned before."""
    if version <= 0:
        return
    listed = ((parse_name(found.path.rpartition("/")[2]), found) for found in log.store.list(log_folder(log.table)))
    below = ((number, found.modified_ms) for number, found in listed if isinstance(number, int) and number < version)
    while some := list(islice(below, _READ_AT_ONCE)):
        for (_, modified_ms), read in zip(some, log.read_raw_entries([number for number, _ in some]), strict=True):
            if read is not None:
                yield read[0], modified_ms


def _removed_in(checkpoint: bytes, path: str) -> dict[str, int]:
    try:
        file = open_parquet(checkpoint)
        rows = file.read(columns=["remove.path", "remove.deletionTimestamp"], use_threads=False)
        if "remove" not in rows.column_names:
            return {}
        removed = rows["remove"].filter(pc.is_valid(pc.struct_field(rows["remove"], "path")))
        names = {field.name for field in removed.type}
        paths = pc.struct_field(removed, "path").to_pylist()
        times = pc.struct_field(removed, "deletionTimestamp").to_pylist() if "deletionTimestamp" in names else []
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(f"corrupt checkpoint {path}: {error}") from error
    return {path: deletion_ms or 0 for path, deletion_ms in zip_longest(paths, times)}
