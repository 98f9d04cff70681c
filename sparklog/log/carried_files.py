"""Small data files whose bytes a log entry carries, beside naming them: whoever reads the entry needn't ask the store
for the file, which is there all the same (decision 0045).

On a store of another machine a request takes milliseconds, and costs as much for a kilobyte as for a megabyte.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparklog.delta.actions import Entry
from sparklog.delta.checkpoint import checkpoint_threshold
from sparklog.log.commit import Commit
from sparklog.log.data.data_files import StagedFile
from sparklog.storage import ObjectStore

__all__ = [
    "CARRIED_INFO",
    "CarriedLately",
    "carried_file",
    "carried_paths",
    "carrying",
    "is_worth_while",
    "most_carried_bytes",
]

CARRIED_INFO = "files"
"""In ``commitInfo.sparklog``: the bytes of data files that the entry adds, by path, in base64."""
_MOST_BYTES = 10 * 1024
"""The most that the files of one entry have together."""
_MOST_TAIL_BYTES = 4 * 2**20
"""The most that the files of as many entries have together as make a checkpoint due by live files alone: whoever opens
the topic reads the entries behind a checkpoint. All that follow these have no more together, however many they are."""
_MOST_LATELY_BYTES = 16 * 1024
"""The most that :class:`CarriedLately` keeps: what the newest entry carries, and some of what came before."""


def is_worth_while(store: ObjectStore) -> bool:
    """Does a request to the store take longer than to carry a small file?"""
    return store.is_remote


def most_carried_bytes(live_file_count: int, since_checkpoint: int) -> int:
    """The bytes of files that an entry of a topic may carry: the fewer, the more entries follow a checkpoint until the
    next one is due by live files. Where it is later, as a checkpoint remembers removed files, too, each entry may carry
    less by the square of its place, so that the sum has a bound.

    Args:
        since_checkpoint: the entry's place behind the newest checkpoint that its writer knows; which may be an old one.
    """
    due = checkpoint_threshold(live_file_count)
    return min(_MOST_BYTES, _MOST_TAIL_BYTES // max(due, since_checkpoint**2 // due))


def carrying(commit: Commit, files: Iterable[StagedFile], *, since_checkpoint: int) -> Commit:
    """The commit with the bytes of those of its files that are small enough, the smallest first.

    Args:
        files: uploaded ones, which the commit adds under the paths that they have.
        since_checkpoint: as :func:`most_carried_bytes` has it.
    """
    left = most_carried_bytes(commit.head.live_file_count, since_checkpoint)
    carried: dict[str, str] = {}
    for file in sorted(files, key=lambda file: file.facts.size_bytes):
        left -= file.facts.size_bytes
        if left < 0:
            break
        carried[file.path] = b2a_base64(file.batch.data, newline=False).decode("ascii")
    return replace(commit, info={**commit.info, CARRIED_INFO: carried}) if carried else commit


def carried_paths(entry: Entry) -> Iterable[str]:
    """The paths of the files that an entry carries; empty where it carries none."""
    carried = (entry.info or {}).get(CARRIED_INFO)
    return carried.keys() if isinstance(carried, Mapping) else ()


def carried_file(entry: Entry, path: str, *, size_bytes: int) -> bytes | None:
    """The bytes of a file that an entry carries. None: they make no sense, so the file itself is to be read.

    Args:
        path: one of :func:`carried_paths`.
        size_bytes: the size of the file according to the log.
    """
    try:
        data = a2b_base64((entry.info or {})[CARRIED_INFO][path])
    except (TypeError, ValueError):
        return None
    return data if len(data) == size_bytes else None


class CarriedLately:
    """The files that a topic's newest entries carry, until they are taken. Owned by one thread, or guarded."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        """By path, the newest last."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep what entries carry, which were applied in this order; forget what came long before."""
        for entry in entries:
            self._entries.update(dict.fromkeys(carried_paths(entry), entry))
        left = _MOST_LATELY_BYTES
        for path, entry in reversed([*self._entries.items()]):
            left -= len(str((entry.info or {})[CARRIED_INFO][path])) * 3 // 4
            if left < 0:
                del self._entries[path]

    def take(self, path: str, *, size_bytes: int) -> bytes | None:
        """The bytes of a live file, once. None: they aren't here.

        Args:
            path: as the log has it.
            size_bytes: the size of the file according to the log.
        """
        entry = self._entries.pop(path, None)
        return None if entry is None else carried_file(entry, path, size_bytes=size_bytes)
