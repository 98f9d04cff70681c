"""Files that a table had, and gets again: which of them still exist, and under which path they may be named (rule L10,
orphans).

A vacuum deletes removed files once they are old enough, and doesn't ask the log again. So a file that was removed
lately is named again by its path, and of any other a copy is put under a new path, as if it was uploaded now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.removed import removed_files
from sparklog.errors import ObjectNotFoundError
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import TopicState
from sparklog.log.uploads import is_at_risk, longest_age_ms
from sparklog.parallel import parallel_map
from sparklog.paths import new_data_file

__all__ = ["Returning", "existing", "prepare_return"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """Files that may be named by a commit now."""

    adds: Mapping[str, AddFile]
    """By the path that the file had: the action that adds it again, perhaps as a copy under another path."""
    gone: frozenset[str]
    """The paths of those that don't exist any more."""
    copied: tuple[str, ...]
    """Paths of copies, in no log yet."""


def existing(log: DeltaLog, paths: Iterable[str]) -> frozenset[str]:
    """The data files that exist, by their paths as in the log. A small GET each, side by side."""
    asked = sorted(set(paths))
    found = parallel_map(lambda path: log.store.exists(object_path(log.table, path)), asked)
    return frozenset(path for path, is_there in zip(asked, found, strict=True) if is_there)


def prepare_return(state: TopicState, files: Sequence[AddFile]) -> Returning:
    """Make sure of files that a commit is about to add again, which were removed at some time.

    Costs what reading the log costs, and the copies. The commit has to check
    :func:`~sparklog.log.uploads.why_not_to_publish` as for uploads.

    Args:
        state: as of now, loaded a moment ago.
        files: as they were added, paths once each.
    """
    log, retention_ms = state.log, state.head.deleted_file_retention_ms
    refused = state.require_whole().index.rewrites.refused  # a path that is refused stays so
    if not files:
        return Returning(adds={}, gone=frozenset(), copied=())
    removed_ms, now_ms = removed_files(log).removed_ms, log.clock.now_ms()
    there = existing(log, [file.path for file in files])
    adds: dict[str, AddFile] = {}
    gone, copied = {file.path for file in files} - there, []
    for file in (file for file in files if file.path in there):
        since_ms = removed_ms.get(file.path)
        is_young = since_ms is not None and now_ms - since_ms < longest_age_ms(retention_ms)
        is_good = is_young and file.path not in refused
        if is_good and not is_at_risk(state.vacuums, topic_version=-1, uploaded_ms=since_ms or 0):
            adds[file.path] = replace(file, data_change=True)
            continue
        try:
            path = _copy(log, file)
        except ObjectNotFoundError:
            gone.add(file.path)
            continue
        copied.append(path)
        adds[file.path] = replace(file, path=path, data_change=True)
    return Returning(adds=adds, gone=frozenset(gone), copied=tuple(copied))


def _copy(log: DeltaLog, file: AddFile) -> str:
    path = new_data_file(int(file.partition_values.get("partition") or 0))
    log.store.put(object_path(log.table, path), log.store.read(object_path(log.table, file.path)), sync=True)
    return path
