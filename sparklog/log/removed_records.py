"""The records that other engines removed from a topic: pure, of the table as of some version and the entries since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sparklog.delta.actions import AddFile, Entry, Metadata, RemoveFile
from sparklog.log.data.segments import Segment, is_sequenced

__all__ = ["KnownFile", "Removal", "foreign_removals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A data file that the table had at some time."""

    add: AddFile
    segment: Segment
    """With statistics, if they could be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Files of one partition and base offset that a commit of another engine removed, with fewer records in their
    place."""

    delta_version: int
    files: tuple[KnownFile, ...]
    rest: tuple[Segment, ...]
    """The files that the same commit added in their place: the records that stay."""


def foreign_removals(
    files: Iterable[KnownFile],
    entries: Iterable[tuple[Entry, Mapping[str, Segment]]],
    *,
    refused: Collection[str] = (),
) -> tuple[list[Removal], list[str]]:
    """The removals of records by other engines, oldest first.

    What another engine rewrote with all its records, as ``UPDATE`` of values and ``OPTIMIZE`` do, is none. An entry
    that creates the topic again forgets all before it.

    Args:
        files: that were live at the first version.
        entries: those that follow, and the segments of the files that each adds, by path.
        refused: paths of files that were put under other offsets: none of their records stays, and none returns.
    Returns:
        Also the paths of files that such commits removed before they had offsets, and didn't add again.
    """
    known = {file.add.path: file for file in files}
    removals: list[Removal] = []
    without: dict[str, None] = {}
    for entry, added in entries:
        adds = {action.path: action for action in entry.actions if isinstance(action, AddFile)}
        removed = [action.path for action in entry.actions if isinstance(action, RemoveFile)]
        if entry.info is not None:
            if entry.commit_info.get("operation") == "CREATE TOPIC" and _has_metadata(entry):
                known, removals, without = {}, [], {}
        else:
            gone = [
                known[path]
                for path in dict.fromkeys(removed)
                if path in known and path not in adds and path not in refused
            ]
            without.update((file.add.path, None) for file in gone if file.segment.base_offset is None)
            stays = {path: one for path, one in added.items() if path not in refused} if refused else added
            removals += _by_base(entry.version, gone, stays)
        for path, add in adds.items():
            known[path] = KnownFile(add=add, segment=added[path])
            without.pop(path, None)
    return removals, [*without]


def _by_base(version: int, gone: Iterable[KnownFile], added: Mapping[str, Segment]) -> list[Removal]:
    groups: dict[tuple[int | None, int | None], list[KnownFile]] = {}
    for file in gone:
        if is_sequenced(file.segment):
            groups.setdefault((file.segment.partition, file.segment.base_offset), []).append(file)
    found = []
    for (partition, base), files in groups.items():
        rest = tuple(one for one in added.values() if (one.partition, one.base_offset) == (partition, base))
        before, after = [file.segment.record_count for file in files], [one.record_count for one in rest]
        if None in before or None in after or sum(n or 0 for n in before) > sum(n or 0 for n in after):
            found.append(Removal(delta_version=version, files=tuple(files), rest=rest))
    return found


def _has_metadata(entry: Entry) -> bool:
    return any(isinstance(action, Metadata) for action in entry.actions)
