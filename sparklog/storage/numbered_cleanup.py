"""Cleanup of a numbered log, in bulk below a mark (protocol rule L3, cleanup)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sparklog.storage.cleanup_marks import mark_of, superseded_marks
from sparklog.storage.entry_log import NumberedLog
from sparklog.storage.log_ground import check_still_there, delete_listed

__all__ = ["clean_numbered_log"]


def clean_numbered_log(log: NumberedLog[Any], *, keep_ms: int) -> int:
    """Delete entries that are no longer needed; returns how many.

    The newest two stay, and each whose successor is younger than ``keep_ms`` by the store's own times: a process that
    slept for less finds its own again, one that slept for longer verifies its position (rule L1, trust). What lies
    below the mark of an earlier cleanup goes at once. A LIST for each 1,000 entries; five GETs, a PUT and a delete
    where there is something to delete.

    Raises:
        StoreReplacedError: another log is in this one's place; nothing was deleted there.
        StoreError.
    """
    listed = list(log.store.list(log.folder))
    marks = [file for file in listed if mark_of(file)]
    below = max(map(mark_of, marks), default=0)
    by_number = {log.number_of(file.path.removeprefix(log.folder)): file for file in listed}
    entries = sorted((number, file) for number, file in by_number.items() if number is not None)
    latest_ms = max((file.modified_ms for _, file in entries[-1:]), default=0) - keep_ms
    gone: dict[int, str] = {}
    for (number, file), (_, successor) in pairwise(entries[:-1]):
        if number >= below and successor.modified_ms > latest_ms:
            break
        gone[number] = file.path
    newest = log.read_entry(entries[-1][0]) if gone else None
    if newest is None:  # nothing is to be deleted, or the log was deleted meanwhile
        return 0
    check_still_there(log, newest.version, newest.token)
    log.mark_cleaned(max(below, max(gone) + 1))
    superseded = superseded_marks(marks, latest_ms=latest_ms)
    delete_listed(log, newest.version, newest.token, [*gone.values(), *superseded])
    return len(gone)
