"""Listings of a log: which entries and checkpoints there are, and which are missing.

Cleanup deletes only below a checkpoint and below a mark that it writes first (protocol rule L3, cleanup), so from the
mark on what is left is one run of versions up to the newest. What is left below the mark counts for nothing: a cleanup
that was killed left it, or a writer which slept for longer than the log is kept created it under a name that was free
again (rule L1, trust). In a log without marks such *strays* are known by their age: they are younger than what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparklog.delta.actions import Entry
from sparklog.delta.checkpoint import check_checkpoint, checkpoint_threshold
from sparklog.delta.listing import read_checkpoint_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import CheckpointPart, last_checkpoint_path, log_folder, parse_name
from sparklog.errors import CorruptLogError, ObjectNotFoundError, StoreError, UnsupportedVersionError
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.integrity.ranges import Range
from sparklog.integrity.unread import unread
from sparklog.storage import ObjectStore
from sparklog.storage.cleanup_marks import mark_of
from sparklog.storage.each_alone import check_of_one, read_each

__all__ = [
    "EntryReader",
    "LogListing",
    "check_checkpoints",
    "check_listing",
    "holes",
    "list_log_folder",
    "list_numbered",
    "without_strays",
]

_READ_AT_ONCE = 64
_MUCH_TOO_LATE = 10
"""So many times the versions after which a checkpoint is due may follow one before it is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """A listing of a log's folder, up to one version."""

    entries: Mapping[int, int]
    """By version: the modification time, milliseconds since the epoch, by the store. Ascending, without strays and
    without what lies below a cleanup's mark."""
    checkpoints: Mapping[int, Sequence[str]]
    """The paths of complete checkpoints, by version. Ascending."""
    cleaned_below: int = 0
    """The greatest mark of a cleanup; 0 where there is none."""

    @property
    def newest(self) -> int:
        """The newest version; -1 where there is none."""
        return max(self.entries, default=-1)

    @property
    def checkpoint_version(self) -> int:
        """The version of the newest complete checkpoint; -1 where there is none."""
        return max(self.checkpoints, default=-1)

    @property
    def oldest(self) -> int:
        """The first version of the run that ends at the newest."""
        version = self.newest
        while version - 1 in self.entries:
            version -= 1
        return version

    def up_to(self, version: int) -> LogListing:
        """The same without what is newer."""
        return LogListing(
            entries={number: at for number, at in self.entries.items() if number <= version},
            checkpoints={number: paths for number, paths in self.checkpoints.items() if number <= version},
            cleaned_below=self.cleaned_below,
        )


def list_log_folder(log: DeltaLog) -> LogListing:
    """List a log's folder. One LIST."""
    entries: dict[int, int] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    below = 0
    for listed in log.store.list(log_folder(log.table)):
        below = max(below, mark_of(listed))
        name = parse_name(listed.path.rpartition("/")[2])
        if isinstance(name, int):
            entries[name] = listed.modified_ms
        elif isinstance(name, CheckpointPart):
            parts.setdefault((name.version, name.parts), []).append(listed.path)
    entries = {version: at for version, at in entries.items() if version >= below}
    complete = {version: paths for (version, count), paths in sorted(parts.items()) if len(paths) == count}
    return LogListing(entries=without_strays(entries), checkpoints=complete, cleaned_below=below)


def without_strays(entries: Mapping[int, int]) -> dict[int, int]:
    """The entries of a log, ascending, but for those that were created below it after it was cleaned.

    Each of these stands at the lower end of a run, and is younger than what follows.

    Args:
        entries: by number: the modification time.
    """
    kept: list[int] = []
    for number in sorted(entries, reverse=True):
        if kept and number - 1 not in entries and entries[number] > entries[kept[-1]]:
            continue
        kept.append(number)
    return {number: entries[number] for number in reversed(kept)}


def list_numbered(store: ObjectStore, folder: str) -> dict[int, int]:
    """The entries of a log without checkpoints, by number: the modification time. Ascending, without strays and without
    what lies below a cleanup's mark.

    A LIST, and another where one seems to be missing: a listing takes its time, and of what is created meanwhile it may
    show a later one and not the one before. All that the first has shown was there before the second began.
    """
    entries = _numbered(store, folder)
    if any(holes(entries)):
        newest = max(entries)
        entries = {number: at for number, at in _numbered(store, folder).items() if number <= newest}
    return entries


def _numbered(store: ObjectStore, folder: str) -> dict[int, int]:
    listed = list(store.list(folder))
    below = max(map(mark_of, listed), default=0)
    names = ((found.path.rpartition("/")[2].removesuffix(".json"), found.modified_ms) for found in listed)
    entries = {int(name): modified_ms for name, modified_ms in names if name.isdecimal()}
    return without_strays({number: at for number, at in entries.items() if number >= below})


def holes(entries: Mapping[int, int]) -> Iterator[Range]:
    """The numbers that are missing between the lowest and the highest; strays are left out before."""
    for before, after in pairwise(entries):
        if after - before > 1:
            yield before + 1, after


def check_listing(listing: LogListing, topic: str) -> Iterator[Finding]:
    """Are the entries that are kept contiguous, down to a checkpoint or the very first? Pure."""
    subject = Subject(topic=topic)
    needed = listing.checkpoint_version + 1
    missing = list(holes(listing.entries))
    first = min((version for version in listing.entries if version >= needed), default=needed)
    if first > needed and not any(low <= needed < high for low, high in missing):
        yield Finding(
            code=Code.LOG_GAP,
            subject=subject,
            seen=f"the log has no version {_versions((needed, first))}, and no checkpoint from {first - 1} on",
            expected=f"every version from {needed} on",
        )
    elif listing.oldest > listing.cleaned_below and not missing:
        yield Finding(
            code=Code.LOG_BEGINS_LATE,
            subject=subject,
            seen=f"the log begins at version {listing.oldest}, and no mark says that a cleanup deleted those before it",
            expected="cleanups by sparklog alone: no reader needs these entries, but the next may be needed",
        )
    for hole in missing:
        is_below = hole[1] <= needed
        yield Finding(
            code=Code.LOG_GAP_BELOW_CHECKPOINT if is_below else Code.LOG_GAP,
            subject=subject,
            seen=f"version {_versions(hole)} is missing, though {hole[0] - 1} and {hole[1]} are there",
            expected="every version from the oldest that is kept on",
        )


def check_checkpoints(log: DeltaLog, listing: LogListing, topic: str, *, live_file_count: int) -> Iterator[Finding]:
    """Does the newest checkpoint read back, and is the hint one of a checkpoint? Reads both."""
    newest = listing.checkpoint_version
    if newest >= 0:
        try:
            check_checkpoint(log, list(listing.checkpoints[newest]), newest)
        except (CorruptLogError, ObjectNotFoundError) as error:
            yield Finding(
                code=Code.CHECKPOINT_CORRUPT,
                subject=Subject(topic=topic, delta_version=newest),
                seen=str(error),
                expected="a checkpoint that reads back; an older one, or the log from its start, is read instead",
            )
        except StoreError as error:
            check_of_one(log.store, error)
            yield unread(error, Subject(topic=topic, delta_version=newest))
    hint = read_checkpoint_hint(log)
    due = checkpoint_threshold(live_file_count, max(0, hint.row_count - live_file_count))
    late = listing.newest - newest
    if late > _MUCH_TOO_LATE * due:
        yield Finding(
            code=Code.CHECKPOINT_DUE,
            subject=Subject(topic=topic),
            seen=f"{late} versions follow the newest checkpoint",
            expected=f"one about every {due} versions; opening the topic is slow",
        )
    yield from _check_hint(log, listing, hint.version, topic)


def _check_hint(log: DeltaLog, listing: LogListing, hint: int, topic: str) -> Iterator[Finding]:
    path = last_checkpoint_path(log.table)
    if hint >= 0:
        is_newer = hint > listing.newest and hint in list_log_folder(log).checkpoints  # written since we listed
        seen = "" if hint in listing.checkpoints or is_newer else f"it names version {hint}"
    else:  # a writer that died between a checkpoint and its hint leaves none, which is fine
        is_there = log.store.read_many([path])[0] is not None
        seen = "it can't be understood" if is_there else ""
        if listing.checkpoints and not is_there:
            yield Finding(
                code=Code.HINT_MISSING,
                subject=Subject(topic=topic, path=path),
                seen=f"it isn't there, though there is a checkpoint of version {listing.checkpoint_version}",
                expected="a hint: opening lists the whole log until the next checkpoint writes it",
            )
    if seen:
        yield Finding(
            code=Code.HINT_WRONG,
            subject=Subject(topic=topic, path=path),
            seen=seen,
            expected=f"a checkpoint that is there: {', '.join(map(str, listing.checkpoints)) or 'none is'}",
        )


class EntryReader:
    """The entries of a run, oldest first; those that can't be read are kept as findings."""

    def __init__(self, log: DeltaLog, topic: str) -> None:
        self.findings: list[Finding] = []
        self.missing: list[int] = []
        """The versions that were gone when they were to be read."""
        self._log = log
        self._topic = topic

    def read(self, first: int, end: int) -> Iterator[Entry]:
        """Versions ``first`` … ``end - 1``; 64 in memory at once."""
        for start in range(first, end, _READ_AT_ONCE):
            versions = range(start, min(start + _READ_AT_ONCE, end))
            contents = read_each(self._log.store, [self._log.path_of(version) for version in versions])
            for version, data in zip(versions, contents, strict=True):
                entry = self._decoded(version, data)
                if entry is not None:
                    yield entry

    def _decoded(self, version: int, data: bytes | Exception | None) -> Entry | None:
        if isinstance(data, Exception):
            self.findings.append(unread(data, Subject(topic=self._topic, delta_version=version)))
            return None
        if data is None:
            self.missing.append(version)
            return None
        try:
            return self._log.decode(version, data)
        except (CorruptLogError, UnsupportedVersionError) as error:
            self.findings.append(
                Finding(
                    code=Code.ENTRY_CORRUPT,
                    subject=Subject(topic=self._topic, delta_version=version),
                    seen=str(error),
                    expected="an entry that is whole",
                )
            )
            return None


def _versions(missing: Range) -> str:
    first, end = missing
    return str(first) if end - first == 1 else f"{first} to {end - 1}"
