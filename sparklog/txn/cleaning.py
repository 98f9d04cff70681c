"""Deleting old entries of a transactional id's log (rule T6, an id's log), beside the transactions."""

from __future__ import annotations

import logging
from functools import partial
from itertools import pairwise

from sparklog.storage.log_ground import delete_listed
from sparklog.txn.entries import TransactionEntry, TransactionLog
from sparklog.workers import Background

__all__ = ["KEEP_MS", "LogCleaner", "clean_transaction_log"]

_LOGGER = logging.getLogger("sparklog.txn")
KEEP_MS = 600_000
"""For so long at least an entry stays: 10 times ``tail_trust_ms`` (rules L3, cleanup; T6, an id's log)."""
_CLEAN_EVERY = 500
"""Entries between two cleanings of a log …"""
_CLEAN_EVERY_MS = 60_000
"""… and time: each lists what it deletes."""
_JOIN_MS = 60_000.0


def clean_transaction_log(log: TransactionLog, newest: TransactionEntry) -> int:
    """Delete entries that are no longer needed; returns how many (rule T6, an id's log).

    The newest two stay, everything from the newest complete entry on, and each whose successor is younger than ten
    minutes by the store's own times: what was the newest a moment ago is relied upon, however old it is (rule L3,
    cleanup). They are deleted many at a time and in no order: nothing that is learned of such a log depends on one, see
    :class:`~sparklog.txn.entries.TransactionLog`. Safe to kill at any point and to run twice at once.

    Costs a LIST for each 1,000 entries that are deleted, two more, and a delete request for each 1,000.

    Args:
        newest: as the caller knows it; nothing from the entry before it on is deleted.
    """
    if not newest.state.is_open:
        return 0
    keep_from = log.path_of(max(1, newest.version - 1))
    now_ms = max((listed.modified_ms for listed in log.store.list(log.folder, after=keep_from)), default=0)
    keep_ms = max(KEEP_MS, 10 * log.tail_trust_ms)
    gone = []
    # Read page by page: what is young isn't listed. A folder in this one is somebody else's.
    own = (file for file in log.store.list(log.folder) if "/" not in file.path[len(log.folder) :])
    for listed, successor in pairwise(own):
        if listed.path >= keep_from or now_ms - successor.modified_ms < keep_ms:
            break
        gone.append(listed.path)
    delete_listed(log, newest.version, newest.token, gone)
    return len(gone)


class LogCleaner:
    """Cleans the log of a producer now and then, in a thread of its own: no transaction waits for it.

    Owned by one thread at a time.
    """

    def __init__(self, log: TransactionLog) -> None:
        self._log = log
        self._background = Background("cleaner")
        self._cleaned_at = 0
        """The newest entry's number when it was cleaned last; at first perhaps never cleaned: each producer that had
        the id before may have lived for a few transactions."""
        self._cleaned_ticks_ms = -float(_CLEAN_EVERY_MS)

    def completed(self, newest: TransactionEntry) -> None:
        """The log has grown, and ends with ``newest``, which is complete: clean if it is time to."""
        ticks_ms = self._log.clock.ticks_ms()
        is_due = newest.version - self._cleaned_at >= _CLEAN_EVERY
        if not is_due or ticks_ms - self._cleaned_ticks_ms < _CLEAN_EVERY_MS:
            return
        if self._background.start(partial(self._clean, newest)):
            self._cleaned_at, self._cleaned_ticks_ms = newest.version, ticks_ms

    def close(self) -> None:
        """Wait for a cleaning that is under way, for a minute at most."""
        self._background.close(_JOIN_MS)

    def _clean(self, newest: TransactionEntry) -> None:
        try:
            clean_transaction_log(self._log, newest)
        except Exception as error:  # whatever it is, it costs room alone; the next cleaning tries again
            _LOGGER.warning(
                "cleaning the log of transactional id %s failed: %s", self._log.transactional_id, error, exc_info=True
            )
