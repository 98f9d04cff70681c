"""The records that other engines removed from a topic: pure, of the table as of some version and the entries since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
    is_move: bool = False
    """Did the same commit add files that are refused (rule F6, moved records)? These may hold the records."""


def foreign_removals(
    files: Iterable[KnownFile],
    entries: Iterable[tuple[Entry, Mapping[str, Segment]]],
    refused: Mapping[str, int] | None = None,
) -> tuple[list[Removal], list[str]]:
    """The removals of records by other engines, oldest first.

    What another engine rewrote with all its records, as ``UPDATE`` of values and ``OPTIMIZE`` do, is none. What it put
    under other offsets is one: a refused file keeps no record in its place. An entry that creates the topic again
    forgets all before it.

    Args:
        files: that were live at the first version.
        entries: those that follow, and the segments of the files that each adds, by path.
        refused: by path, the versions that refused files are blamed on (rule F6, moved records).
    Returns:
        Also the paths of files that such commits removed before they had offsets, and didn't add again.
    """
    known = {file.add.path: file for file in files}
    removals: list[Removal] = []
    without: dict[str, None] = {}
    blamed = refused or {}
    for entry, found in entries:
        added = {path: _judged(segment, entry.version, blamed) for path, segment in found.items()}
        adds = {action.path: action for action in entry.actions if isinstance(action, AddFile)}
        removed = [action.path for action in entry.actions if isinstance(action, RemoveFile)]
        if entry.info is not None:
            if entry.commit_info.get("operation") == "CREATE TOPIC" and _has_metadata(entry):
                known, removals, without = {}, [], {}
        else:
            gone = [known[path] for path in dict.fromkeys(removed) if path in known and path not in adds]
            gone += [known[path] for path, one in added.items() if one.is_refused and path in known]
            without.update((file.add.path, None) for file in gone if file.segment.base_offset is None)
            removals += _by_base(entry.version, gone, added)
        for path, add in adds.items():
            known[path] = KnownFile(add=add, segment=added[path])
            without.pop(path, None)
    return removals, [*without]


def _judged(segment: Segment, version: int, refused: Mapping[str, int]) -> Segment:
    """A file as an entry adds it: one path may have been a good file before it is refused."""
    return replace(segment, is_refused=True) if refused.get(segment.path, version + 1) <= version else segment


def _by_base(version: int, gone: Iterable[KnownFile], added: Mapping[str, Segment]) -> list[Removal]:
    groups: dict[tuple[int | None, int | None], list[KnownFile]] = {}
    for file in gone:
        if is_sequenced(file.segment):
            groups.setdefault((file.segment.partition, file.segment.base_offset), []).append(file)
    found, is_move = [], any(one.is_refused for one in added.values())
    for (partition, base), files in groups.items():
        same = (one for one in added.values() if (one.partition, one.base_offset) == (partition, base))
        rest = tuple(one for one in same if not one.is_refused)
        before, after = [file.segment.record_count for file in files], [one.record_count for one in rest]
        if None in before or None in after or sum(n or 0 for n in before) > sum(n or 0 for n in after):
            found.append(Removal(delta_version=version, files=tuple(files), rest=rest, is_move=is_move))
    return found


def _has_metadata(entry: Entry) -> bool:
    return any(isinstance(action, Metadata) for action in entry.actions)
