"""The marker of a session that may have a transaction open (rule T4, open sessions): its producer writes, refreshes and
removes it."""

from __future__ import annotations

import logging

from sparklog.errors import StoreError
from sparklog.log.cluster import Cluster
from sparklog.paths import open_transactions, transaction_marker

__all__ = ["OwnSessionMarker"]

_LOGGER = logging.getLogger("sparklog.txn")


class OwnSessionMarker:
    """The marker of the caller's own session, for one epoch. Owned by one thread at a time."""

    def __init__(self, cluster: Cluster, transactional_id: str, epoch_number: int) -> None:
        """Writes nothing yet.

        Args:
            epoch_number: of the entry that began the epoch.
        """
        self.written_ticks_ms = 0.0
        """When it was written last, or a little before."""
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._path = transaction_marker(transactional_id, epoch_number)

    def write(self) -> None:
        """Say that a transaction may be open; the session's age counts from now on. One PUT. Raises ``StoreError``."""
        began = self._cluster.clock.ticks_ms()
        self._cluster.store.put(self._path, b"")
        self.written_ticks_ms = began

    def refresh(self) -> None:
        """Write the marker anew; a failure is logged: the transaction may be aborted before its time then, and its
        producer gets an error."""
        try:
            self.write()
        except StoreError as error:
            _LOGGER.info("the marker of transactional id %r wasn't refreshed: %s", self._transactional_id, error)

    def replace_earlier(self) -> None:
        """Remove the markers of earlier epochs. Raises ``StoreError``."""
        store, folder = self._cluster.store, open_transactions(self._transactional_id)
        earlier = [folder + name for name in store.list_names(folder) if folder + name < self._path]
        if earlier:
            store.delete(earlier)

    def remove(self) -> None:
        """Say that no transaction is open. Raises ``StoreError``."""
        self._cluster.store.delete([self._path])
