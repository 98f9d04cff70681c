"""The users in a cluster's store: a log whose newest entry contains all of them, and how it is changed.

Each change is one create-only put of the next entry: of two administrators that change at once, one reads what
the other wrote and changes that. Entries hold keys as the file of users does, never a password.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sparklog.checksums import EMPTY_SUM, SUM_FIELD, check_sum, with_sum
from sparklog.clock import Deadline
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    KafkaTimeoutError,
    StoreError,
    UnsupportedVersionError,
)
from sparklog.gateway.users import User
from sparklog.log.cluster import Cluster
from sparklog.paths import GATEWAY_USERS_FOLDER, gateway_users_entry
from sparklog.storage.entry_log import Created, NumberedLog, PositionLost, Taken
from sparklog.storage.log_ground import delete_listed
from sparklog.storage.position import Position

__all__ = ["USERS_TIMEOUT_MS", "Change", "UserEntry", "UserLog", "change_users", "encode_users", "open_user_log"]

USERS_FORMAT = 1
USERS_TIMEOUT_MS = 20_000.0
"""Bound of a change. Below clients' 30 s."""
_KEEP_MS = 600_000
"""Source: rule L3, cleanup: at least ten times ``tail_trust_ms``."""
_SECRET_BYTES = 32
_LOGGER = logging.getLogger("sparklog.gateway")

Change = Callable[[Mapping[str, User]], Mapping[str, User]]
"""The users after a change, of those before it; the same mapping: there is nothing to change. Pure, as it is made
anew on what others wrote meanwhile; what it raises ends the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEntry:
    """An entry of the log."""

    version: int
    """Its number, 1 or more."""
    token: str
    secret: bytes
    """The same in all entries, from the first on: see ``KnownUsers.secret``."""
    users: Mapping[str, User]
    """By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLog(NumberedLog[UserEntry]):
    """The log of a cluster's users. Entries are deleted from the oldest on, one after the other: no marks."""

    @property
    def folder(self) -> str:
        return GATEWAY_USERS_FOLDER

    def path_of(self, version: int) -> str:
        return gateway_users_entry(version)

    def decode(self, version: int, data: bytes) -> UserEntry:
        return _decode(version, f"{self.store.uri}/{self.path_of(version)}", data)


def open_user_log(cluster: Cluster) -> UserLog:
    """The log of a cluster's users; reads nothing."""
    return UserLog(store=cluster.store, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms)


def encode_users(token: str, secret: bytes, users: Mapping[str, User]) -> bytes:
    """The bytes of an entry."""
    body: dict[str, Any] = {"format": USERS_FORMAT, "token": token, SUM_FIELD: EMPTY_SUM, "secret": secret.hex()}
    body |= {"users": [json.loads(user.to_json()) for user in users.values()]}
    return with_sum(json.dumps(body, separators=(",", ":")).encode())


def _decode(version: int, path: str, data: bytes) -> UserEntry:
    try:
        body: dict[str, Any] = json.loads(data)
        if int(body["format"]) > USERS_FORMAT:
            raise UnsupportedVersionError(
                f"{path} has format {body['format']}; this sparklog knows up to {USERS_FORMAT}: upgrade it"
            )
        check_sum(data, body)
        users = [User.from_json(json.dumps(fields), needs_all=False) for fields in body["users"]]
        by_name = {user.name: user for user in users}
        if len(by_name) < len(users):
            raise ValueError("a user is there twice")
        secret = bytes.fromhex(body["secret"])
        if len(secret) != _SECRET_BYTES:
            raise ValueError(f"a secret of {len(secret)} bytes")
        return UserEntry(version=version, token=str(body["token"]), secret=secret, users=by_name)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptLogError(f"corrupt list of users {path}: {error!r}") from error


def change_users(log: UserLog, change: Change, *, deadline: Deadline) -> UserEntry:
    """Make a change on the newest list, and on what others made of it meanwhile; returns the list that has it.

    Raises:
        CommitStateUnknownError: whether the change was made isn't known; it may be made yet. Look at the list.
        KafkaTimeoutError: others changed the list each time; nothing was written.
        CorruptLogError, UnsupportedVersionError: the newest list can't be read; nothing was written.
        StoreError: nothing was written, nor will be.
        Exception: what ``change`` raises; nothing was written.
    """
    while True:
        newest, position = log.open_newest()
        before: Mapping[str, User] = {} if newest is None else newest.users
        after = change(before)
        if newest is not None and after is before:
            return newest
        secret = secrets.token_bytes(_SECRET_BYTES) if newest is None else newest.secret
        made = _create(log, position, secret, after, deadline)
        if isinstance(made, Created):
            _clean(log, made.position)
            return UserEntry(version=made.position.version, token=made.position.token, secret=secret, users=after)
        if deadline.has_passed:
            raise KafkaTimeoutError(f"others changed {log.store.uri}/{log.folder} each time: nothing was written")


def _create(
    log: UserLog, position: Position, secret: bytes, users: Mapping[str, User], deadline: Deadline
) -> Created | Taken[UserEntry] | None:
    """Create the next entry; None: nothing was tried, as the list is to be read anew."""
    tokens: set[str] = set()
    try:
        return log.create_next(
            position, lambda token: encode_users(token, secret, users), tokens=tokens, deadline=deadline, sync=True
        )
    except PositionLost as error:
        if error.nothing_tried:
            return None
        # This process slept for longer than a position is trusted. Others may have built on an entry of ours.
        newest, now = log.open_newest()
        if newest is not None and newest.token in tokens:
            return Created(now)
        raise CommitStateUnknownError(
            f"whether {log.store.uri}/{log.folder} was changed is unknown: look at the list of users"
        ) from error


def _clean(log: UserLog, position: Position) -> None:
    """Delete entries that nobody needs any more, from the oldest on: the newest two stay, and each whose successor is
    younger than ten minutes by the store's own times (rule L3, cleanup). The change was made, so an error is
    logged; who changes next deletes them."""
    try:
        listed = {log.number_of(file.path.removeprefix(log.folder)): file for file in log.store.list(log.folder)}
        entries = sorted((number, file) for number, file in listed.items() if number is not None)
        latest_ms = max((file.modified_ms for _, file in entries[-1:]), default=0) - max(
            _KEEP_MS, 10 * log.tail_trust_ms
        )
        for (_, file), (_, successor) in pairwise(entries[:-1]):
            if successor.modified_ms > latest_ms:
                return
            delete_listed(log, position.version, position.token, [file.path])
    except StoreError as error:
        _LOGGER.warning("old lists of users could not be deleted yet: %s", error)
