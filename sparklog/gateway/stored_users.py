"""The users in a cluster's store, as a gateway knows them: read again every few seconds while clients send requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from sparklog.errors import (
    CorruptLogError,
    InvalidConfigurationError,
    SparklogError,
    StoreError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from sparklog.gateway.user_log import USERS_TIMEOUT_MS, Change, UserEntry, change_users, open_user_log
from sparklog.gateway.users import KnownUsers, User
from sparklog.log.cluster import Cluster
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.log_ground import check_follows
from sparklog.storage.position import Position
from sparklog.storage.retrying import Patience

__all__ = ["IN_STORE", "KEPT_MS", "REREAD_MS", "StoredUsers"]

IN_STORE = "store"
"""The value of ``--users`` that means the users in the cluster's store; a file of that name is ``./store``."""
REREAD_MS = 5_000.0
"""Source: decision 0054: with :data:`_PATIENCE_MS`, a change takes effect within ten seconds."""
_PATIENCE_MS = 5_000.0
KEPT_MS = 600_000.0
"""How long the users that were read last may connect while the store is unavailable."""
_LOGGER = logging.getLogger("sparklog.gateway")


class StoredUsers(KnownUsers):
    """The users of a cluster's store. While it is unavailable, those read last may connect for ten minutes."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the list. Raises ``InvalidConfigurationError``: it has no users; ``CorruptLogError``, ``StoreError``."""
        self._cluster = cluster
        self._log = open_user_log(cluster)
        self._reading = threading.Lock()
        """Held by worker threads alone, for as long as a read takes."""
        self._error: SparklogError | None = None
        self._read_ms = self._tried_ms = self._began_ms = cluster.clock.ticks_ms()
        self._entry, self._position = self._newest()
        if not any(user.keys for user in self._entry.users.values()):
            raise InvalidConfigurationError(self._no_users())

    def _no_users(self) -> str:
        return (
            f"no users are in {self._cluster.store.uri}/{self._log.folder}: add the first one by "
            "`sparklog gateway-users add NAME`, with --admin and its rules"
        )

    def _newest(self, lost: Position | None = None) -> tuple[UserEntry, Position]:
        entry, position = self._log.open_newest()
        if entry is None:
            raise InvalidConfigurationError(self._no_users())
        if lost is not None:  # an older list was put back: whoever was removed since would come in again
            check_follows(self._log, lost, position)
        return entry, position

    def all(self) -> Mapping[str, User]:
        """All users by name, from a list that is a few seconds old at most, or the last one while there is no store.

        Raises:
            CorruptLogError, UnsupportedVersionError, InvalidConfigurationError: the newest list can't be read, or all
                lists are gone.
            StoreUnavailableError: the store has been unavailable for too long.
        """
        if self.age_ms() >= REREAD_MS:
            self.read_again()
        error = self._error
        if isinstance(error, StoreError) and self._cluster.clock.ticks_ms() - self._read_ms < KEPT_MS:
            return self._entry.users
        if isinstance(error, StoreError):
            raise StoreUnavailableError(f"the users couldn't be read for {KEPT_MS / 60_000:.0f} minutes: {error}")
        if error is not None:
            raise error
        return self._entry.users

    @property
    def secret(self) -> bytes:
        return self._entry.secret

    def age_ms(self) -> float:
        return self._cluster.clock.ticks_ms() - self._tried_ms

    def now(self, user: User) -> User | None:
        return self._entry.users.get(user.name)

    def read_again(self) -> None:
        """Read the list unless another thread has done so since this call began. An error is kept."""
        called_ms = self._cluster.clock.ticks_ms()
        with self._reading:
            if self._began_ms > called_ms:
                return
            self._began_ms = began_ms = self._cluster.clock.ticks_ms()
            try:
                with self._cluster.store.patience(Patience(deadline=self._cluster.clock.deadline_in(_PATIENCE_MS))):
                    self._entry, self._position = self._read()
                self._error, self._read_ms = None, began_ms
            except (StoreError, CorruptLogError, UnsupportedVersionError, InvalidConfigurationError) as error:
                if self._error is None:
                    _LOGGER.error("the users can't be read: %s", error)
                self._error = error
            finally:
                self._tried_ms = self._cluster.clock.ticks_ms()

    def _read(self) -> tuple[UserEntry, Position]:
        """The newest list: two GETs where it is the one that is known, as a rule."""
        try:
            while True:
                look = self._log.look(self._position)
                if not look.entries:
                    self._log.verify(look.position)  # it is there: so the next one wasn't there yet, nor deleted
                    return self._entry, look.position
                self._entry, self._position = look.entries[-1], look.position
        except PositionLost:
            return self._newest(self._position)

    def change(self, change: Change) -> None:
        """Change the list; the change takes effect here at once. May block. Raises as ``change_users``; and
        ``InvalidConfigurationError``: the list doesn't exist any more."""

        def of_some(users: Mapping[str, User]) -> Mapping[str, User]:
            if not users:  # a list that was lost is no reason to begin another one
                raise InvalidConfigurationError(self._no_users())
            return change(users)

        deadline = self._cluster.clock.deadline_in(USERS_TIMEOUT_MS)
        with self._cluster.store.patience(Patience(deadline=deadline)):
            change_users(self._log, of_some, deadline=deadline)
        self.read_again()
