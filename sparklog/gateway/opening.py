"""Opening the cluster of a gateway that serves already: repeated while the store is unavailable.

Until then the gateway's own store is a gate that refuses each call for now, so its clients are answered as where the
store goes away later: by errors upon which they ask again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError, StoreUnavailableError
from sparklog.gateway.stored_users import StoredUsers
from sparklog.gateway.users import KnownUsers, User
from sparklog.interrupts import SafeEvent
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.storage import ObjectStore
from sparklog.storage.gated import GatedStore
from sparklog.storage.retrying import RetryingStore
from sparklog.workers import Worker, error_for_another_thread

__all__ = ["Opened", "Opening"]

_LOGGER = logging.getLogger("sparklog.gateway")
_TRY_MS = 1_000.0
"""How long one attempt repeats a call."""
_FIRST_WAIT_S, _MOST_WAIT_S = 0.25, 10.0
_LOG_EACH = 30
"""Attempts, five minutes of them as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The cluster of a gateway, once it is open."""

    cluster: Cluster
    users: KnownUsers | None
    """The users that may come in; None: nobody is asked who they are."""


class _UnreadUsers(KnownUsers):
    """Nobody, before the users in the store could be read."""

    def all(self) -> Mapping[str, User]:
        raise StoreUnavailableError("the users in the store aren't read yet")

    @property
    def secret(self) -> bytes:
        raise StoreUnavailableError("the users in the store aren't read yet")


class Opening:
    """A thread that opens a cluster, and reads the users in its store, however long the store is away."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        users: KnownUsers | None = None,
        has_stored_users: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Asks the store nothing.

        Args:
            users: the users that may come in, from elsewhere; None: nobody is asked who they are.
            has_stored_users: the users are in the store.
        """
        self._store = store
        self._gate = GatedStore(store)
        self._has_stored_users = has_stored_users
        clock = clock or SystemClock()
        self.cluster = Cluster(cluster_id="", store=RetryingStore(self._gate, clock=clock), clock=clock)
        """The cluster that a gateway is made with. Its id isn't known yet, and its store refuses each call for now."""
        self.users = _UnreadUsers() if has_stored_users else users
        """The users that such a gateway is made with; those in the store can't come in yet."""
        self.done: Future[Opened] = Future()
        """The outcome; or the error that trying again won't help against."""
        self._stopped = SafeEvent()
        self._worker = Worker("gateway-opening", self._run)

    @property
    def reason(self) -> str | None:
        """Why it isn't open yet; None: it is."""
        return None if self.done.done() and self.done.exception() is None else self._gate.reason

    def start(self) -> None:
        """Begin, once."""
        self.done.set_running_or_notify_cancel()  # from now on nobody cancels it
        self._worker.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Try no more. Calls to a store that isn't open end at once from now on; an attempt that hangs is left."""
        self._stopped.set()
        self._gate.give_up()
        self._worker.join(timeout_s)

    def _run(self) -> None:
        failed, wait_s = 0, _FIRST_WAIT_S
        while not self._stopped.is_set():
            try:
                self.done.set_result(self._open())
                return
            except SparklogError as error:
                if not error.retriable:
                    self.done.set_exception(error)
                    return
                self._tell(" ".join(str(error).split()), failed)
            except BaseException as error:  # of a store's library: nobody knows whether it passes
                self.done.set_exception(error_for_another_thread(error))
                return
            failed += 1
            # Gateways that wait for one store don't all ask it in the same moment.
            self._stopped.wait(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            wait_s = min(2 * wait_s, _MOST_WAIT_S)

    def _tell(self, reason: str, failed: int) -> None:
        self._gate.reason = f"the cluster isn't open yet: {reason}"
        if failed % _LOG_EACH == 0:
            _LOGGER.warning("the cluster can't be opened yet, trying again: %s", reason)

    def _open(self) -> Opened:
        """One attempt. Raises ``SparklogError``."""
        cluster = self.cluster
        if not self._gate.is_open:
            opened = open_cluster(self._store, clock=cluster.clock, retry_ms=_TRY_MS)
            self.cluster = cluster = Cluster(
                cluster_id=opened.cluster_id,
                store=cluster.store,
                clock=cluster.clock,
                tail_trust_ms=opened.tail_trust_ms,
            )
            cluster.store.take_over(opened.store)
            self._gate.open()
        return Opened(cluster=cluster, users=StoredUsers(cluster) if self._has_stored_users else self.users)
