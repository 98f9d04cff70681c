"""A log's next name that is taken, though no entry can be read there: a link that leads nowhere, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparklog.errors import StoreError
from sparklog.storage.position import PositionLost
from sparklog.storage.retrying import Backoff

if TYPE_CHECKING:
    from sparklog.storage.entry_log import EntryLog

__all__ = ["MOST_RELOADS", "gone_again"]

MOST_RELOADS = 8
"""With the waits between them a second or two."""


def gone_again(log: EntryLog[Any], version: int, *, is_unknown: bool) -> PositionLost | StoreError:
    """The error after a create that was told that its name is taken, where nothing could be read a moment later.

    An entry that was there and is gone was cleaned (rule L3, cleanup) or set aside. Whoever loads the log then finds
    that it has gone on, or that the name is free. So where that happens for the same name again and again, it was no
    entry: from the second time on there is a wait, as a file system may show a new file late, and then the name is
    named.

    Args:
        is_unknown: may an attempt of ours under this name have been carried out? The log as it is loaded tells.
    """
    foothold, path = log.foothold, log.path_of(version)
    before = foothold.blocked
    count = before[1] + 1 if before is not None and before[0] == version else 1
    foothold.blocked = (version, count)
    if count < MOST_RELOADS or is_unknown:
        if count > 1:
            Backoff(log.clock, first_ms=40.0 * 2 ** min(count - 2, 5)).wait()
        return PositionLost(path)
    foothold.blocked = None
    return StoreError(
        f"create {log.store.uri}/{path}: the name is taken, but nothing can be read there, after {count} attempts: is "
        "it a link that leads nowhere? Expected a log entry, or nothing: remove it, and the log goes on"
    )
