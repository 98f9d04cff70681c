"""The users of a gateway, and what each may do: a file with a line for each user, and its rules.

A line is a JSON object: ``user``; ``iterations`` and ``salt`` (base64) of its password; for each hash, ``SHA-256`` and
``SHA-512``, the keys that SCRAM needs (base64; they reveal a password only by trial); and what it may do. Of
users in the store (:mod:`sparklog.gateway.user_log`) a hash may have a salt and iterations of its own, or be missing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidConfigurationError

__all__ = ["HASHES", "ITERATIONS", "MOST_NAME_BYTES", "Keys", "KnownUsers", "Rules", "User", "Users", "new_user"]

HASHES = {"SHA-256": "sha256", "SHA-512": "sha512"}
_ITERATIONS = 16_384
"""Source: RFC 7677 asks for 4096 at least; Kafka's brokers refuse more than 16384."""
ITERATIONS = range(4_096, 1_000_001)
_SALT_BYTES = 24
MOST_NAME_BYTES = 256
"""Bound of a user's name in UTF-8, as a client sends it."""
_LISTS = ("read", "write", "groups", "transactional_ids")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a user. Each item is a name, or the beginning of names followed by ``*``."""

    read: tuple[str, ...] = ()
    """Topics."""
    write: tuple[str, ...] = ()
    """Topics."""
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    admin: bool = False
    """True: the user may create, change and delete topics that it may write to and groups that it may use, and see all
    groups of the cluster."""

    def may_read(self, topic: str) -> bool:
        """May the user read the topic?"""
        return _matches(self.read, topic)

    def may_write(self, topic: str) -> bool:
        """May the user write to the topic?"""
        return _matches(self.write, topic)

    def may_see(self, topic: str) -> bool:
        """May the user see that the topic exists?"""
        return self.may_read(topic) or self.may_write(topic)

    def may_use_group(self, group: str) -> bool:
        """May the user be in the group, and commit its offsets?"""
        return _matches(self.groups, group)

    def may_use_transactional_id(self, name: str) -> bool:
        """May the user take the transactional id?"""
        return _matches(self.transactional_ids, name)

    def covers(self, other: Rules) -> bool:
        """May the user do all that another may?"""
        is_covered = all(
            any(theirs == mine or (mine.endswith("*") and theirs.startswith(mine[:-1])) for mine in getattr(self, name))
            for name in _LISTS
            for theirs in getattr(other, name)
        )
        return is_covered and (self.admin or not other.admin)

    def to_json(self) -> dict[str, Any]:
        """The rules as fields of a user's line."""
        return {**{name: list(getattr(self, name)) for name in _LISTS}, "admin": self.admin}


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a password for one hash, with their salt and iterations. Source: RFC 5802."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int, name: str) -> Keys:
        """The keys of a password; takes some milliseconds. ``name``: of :data:`HASHES`."""
        return cls.of_salted(hashlib.pbkdf2_hmac(HASHES[name], password, salt, iterations), salt, iterations, name)

    @classmethod
    def of_salted(cls, salted: bytes, salt: bytes, iterations: int, name: str) -> Keys:
        """The keys of a password that its owner has salted."""
        algorithm = HASHES[name]
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        return cls(salt, iterations, hashlib.new(algorithm, client_key).digest(), server_key)

    def to_json(self) -> dict[str, Any]:
        """The keys as fields of a user's line."""
        return {
            "iterations": self.iterations,
            "salt": _text(self.salt),
            "stored_key": _text(self.stored_key),
            "server_key": _text(self.server_key),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Keys:
        """The keys of a line. Raises ``ValueError``, ``KeyError``, ``TypeError``."""
        iterations = fields["iterations"]
        if type(iterations) is not int or iterations not in ITERATIONS:
            raise ValueError(f"iterations: got {iterations!r}, expected {ITERATIONS[0]} to {ITERATIONS[-1]}")
        return cls(_bytes(fields["salt"]), iterations, _bytes(fields["stored_key"]), _bytes(fields["server_key"]))


@dataclass(frozen=True, slots=True)
class User:
    """A user: one line of the file, or an item of the store's list."""

    name: str
    keys: Mapping[str, Keys]
    """By name of :data:`HASHES`; for a user of the file, all of them. Without keys, nobody can connect as this user."""
    rules: Rules

    def to_json(self) -> str:
        """The user's line."""
        body: dict[str, Any] = {"user": self.name}
        if len({(keys.salt, keys.iterations) for keys in self.keys.values()}) == 1:
            # As in lines of old, which other versions of the gateway can read.
            any_keys = next(iter(self.keys.values()))
            body |= {"iterations": any_keys.iterations, "salt": _text(any_keys.salt)}
        for name, keys in self.keys.items():
            body[name] = {field: value for field, value in keys.to_json().items() if field not in body}
        return json.dumps({**body, **self.rules.to_json()})

    @classmethod
    def from_json(cls, line: str, *, needs_all: bool = True) -> User:
        """The user of a line. ``needs_all``: keys for each hash. Raises ``ValueError``."""
        try:
            body = json.loads(line)
            unknown = set(body) - {"user", "iterations", "salt", "admin", *HASHES, *_LISTS}
            if unknown:
                raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
            lists = {name: _names(body.get(name, []), name) for name in _LISTS}
            shared = {name: body[name] for name in ("iterations", "salt") if name in body}
            hashes = [name for name in HASHES if needs_all or name in body]
            keys = {name: Keys.from_json({**shared, **body[name]}) for name in hashes}
            admin = body.get("admin", False)
            if not isinstance(body["user"], str) or not body["user"] or type(admin) is not bool:
                raise ValueError("expected a name as user, and true or false as admin")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a missing or malformed field: {error}") from error
        return cls(body["user"], keys, Rules(admin=admin, **lists))


def _names(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{name}: got {value!r}, expected a list of names")
    return tuple(value)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def new_user(name: str, password: str, rules: Rules) -> User:
    """Create a user with a random salt."""
    salt = os.urandom(_SALT_BYTES)
    return User(
        name, {hash_name: Keys.of(password.encode(), salt, _ITERATIONS, hash_name) for hash_name in HASHES}, rules
    )


class KnownUsers(ABC):
    """The users that may connect, wherever they are stored. Several threads may use it."""

    @abstractmethod
    def all(self) -> Mapping[str, User]:
        """All users by name. May block. Raises ``SparklogError``, ``OSError``: then no user may connect."""

    @property
    @abstractmethod
    def secret(self) -> bytes:
        """The secret from which the salts of unknown user names are derived."""

    def find(self, name: str) -> User | None:
        """The user of a name; None: unknown. May block. Raises as :meth:`all`."""
        return self.all().get(name)

    def age_ms(self) -> float:
        """The time since the last attempt to read the users for :meth:`now`, in milliseconds. Never blocks."""
        return 0.0

    def read_again(self) -> None:
        """Read the users again, for :meth:`now`. May block; an error is kept for :meth:`all`."""

    def now(self, user: User) -> User | None:
        """The present state of a connected user, as last read; None: it was removed. Never blocks."""
        return user

    def nobody(self, name: str, hash_name: str) -> User:
        """A substitute for an unknown user, or for one without keys for a hash: no password is right, and a client
        can't tell the difference."""
        seed = hmac.digest(self.secret, f"{hash_name} {name}".encode(), "sha512")
        in_use = {user.keys[hash_name].iterations for user in self.all().values() if hash_name in user.keys}
        counts = sorted(in_use) or [_ITERATIONS]
        iterations = counts[seed[-1] % len(counts)]
        keys = Keys(seed[:_SALT_BYTES], iterations, os.urandom(32), os.urandom(32))
        return User(name, {hash_name: keys}, Rules())


class Users(KnownUsers):
    """The users of a file, which is read again after it was changed."""

    def __init__(self, path: str | Path) -> None:
        """Read the file. Raises ``InvalidConfigurationError``: names the line; ``OSError``."""
        self._path = Path(path)
        self._secret = os.urandom(32)
        self._read_at = (0, 0)
        self._users: dict[str, User] = {}
        self._read()

    @property
    def secret(self) -> bytes:
        return self._secret

    def _read(self) -> None:
        status = self._path.stat()
        at = (status.st_mtime_ns, status.st_size)
        if at == self._read_at:
            return
        users: dict[str, User] = {}
        for number, line in enumerate(self._path.read_text().splitlines(), start=1):
            if line.strip():
                try:
                    user = User.from_json(line)
                except ValueError as error:
                    raise InvalidConfigurationError(f"{self._path}, line {number}: {error}") from error
                if user.name in users:
                    raise InvalidConfigurationError(f"{self._path}, line {number}: user {user.name!r} is there twice")
                users[user.name] = user
        self._users, self._read_at = users, at

    def all(self) -> Mapping[str, User]:
        """All users by name, as the file is now. Raises ``InvalidConfigurationError``, ``OSError``."""
        self._read()
        return self._users
