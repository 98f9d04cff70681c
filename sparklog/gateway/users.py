"""The users of a gateway, and what each may do: a file with a line for each user, and its rules.

A line is a JSON object: ``user``; ``iterations`` and ``salt`` (base64) of its password; for each hash, ``SHA-256`` and
``SHA-512``, the keys that SCRAM needs (base64; no password can be told from them but by trying); and what it may do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidConfigurationError

__all__ = ["HASHES", "Keys", "Rules", "User", "Users", "new_user"]

HASHES = {"SHA-256": "sha256", "SHA-512": "sha512"}
_ITERATIONS = 16_384
"""Source: RFC 7677 asks for 4096 at least; Kafka's brokers refuse more than 16384."""
_SALT_BYTES = 24
_LISTS = ("read", "write", "groups", "transactional_ids")


@dataclass(frozen=True, slots=True)
class Rules:
    """Names that a user may use: each is a name, or the beginning of names with ``*`` behind it."""

    read: tuple[str, ...] = ()
    """Topics."""
    write: tuple[str, ...] = ()
    """Topics."""
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    admin: bool = False
    """Create, change and delete topics and groups that it may write to or use, and see all of the cluster's groups."""

    def may_read(self, topic: str) -> bool:
        """May the user read the topic?"""
        return _matches(self.read, topic)

    def may_write(self, topic: str) -> bool:
        """May the user write to the topic?"""
        return _matches(self.write, topic)

    def may_see(self, topic: str) -> bool:
        """May the user know of the topic?"""
        return self.may_read(topic) or self.may_write(topic)

    def may_use_group(self, group: str) -> bool:
        """May the user be in the group, and commit its offsets?"""
        return _matches(self.groups, group)

    def may_use_transactional_id(self, name: str) -> bool:
        """May the user take the transactional id?"""
        return _matches(self.transactional_ids, name)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a password for one hash. Source: RFC 5802."""

    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int, name: str) -> Keys:
        """The keys of a password; takes some milliseconds. ``name``: of :data:`HASHES`."""
        algorithm = HASHES[name]
        salted = hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        return cls(hashlib.new(algorithm, client_key).digest(), hmac.digest(salted, b"Server Key", algorithm))


@dataclass(frozen=True, slots=True)
class User:
    """One line of the file."""

    name: str
    iterations: int
    salt: bytes
    keys: Mapping[str, Keys]
    """By name of :data:`HASHES`."""
    rules: Rules

    def to_json(self) -> str:
        """The user's line."""
        found: dict[str, Any] = {"user": self.name, "iterations": self.iterations, "salt": _text(self.salt)}
        for name, keys in self.keys.items():
            found[name] = {"stored_key": _text(keys.stored_key), "server_key": _text(keys.server_key)}
        found |= {name: list(getattr(self.rules, name)) for name in _LISTS}
        return json.dumps({**found, "admin": self.rules.admin})

    @classmethod
    def from_json(cls, line: str) -> User:
        """The user of a line. Raises ``ValueError``."""
        try:
            found = json.loads(line)
            unknown = set(found) - {"user", "iterations", "salt", "admin", *HASHES, *_LISTS}
            if unknown:
                raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
            lists = {name: _names(found.get(name, []), name) for name in _LISTS}
            keys = {name: Keys(_bytes(found[name]["stored_key"]), _bytes(found[name]["server_key"])) for name in HASHES}
            admin, iterations = found.get("admin", False), found["iterations"]
            if not isinstance(found["user"], str) or not found["user"] or type(admin) is not bool:
                raise ValueError("expected a name as user, and true or false as admin")
            if type(iterations) is not int or not 4_096 <= iterations <= 1_000_000:
                raise ValueError(f"iterations: got {iterations!r}, expected 4096 to 1000000")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"lacks or garbles {error}") from error
        return cls(found["user"], iterations, _bytes(found["salt"]), keys, Rules(admin=admin, **lists))


def _names(found: object, name: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ValueError(f"{name}: got {found!r}, expected a list of names")
    return tuple(found)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def new_user(name: str, password: str, rules: Rules) -> User:
    """A user with a salt of its own."""
    salt = os.urandom(_SALT_BYTES)
    keys = {one: Keys.of(password.encode(), salt, _ITERATIONS, one) for one in HASHES}
    return User(name, _ITERATIONS, salt, keys, rules)


class Users:
    """The users of a file, which is read anew once it has changed. Several threads may ask."""

    def __init__(self, path: str | Path) -> None:
        """Read the file. Raises ``InvalidConfigurationError``: names the line; ``OSError``."""
        self._path = Path(path)
        self._secret = os.urandom(32)
        self._read_at = (0, 0)
        self._users: dict[str, User] = {}
        self._read()

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

    def find(self, name: str) -> User | None:
        """A user, by the file as of now. Raises ``InvalidConfigurationError``, ``OSError``: nobody comes in then."""
        self._read()
        return self._users.get(name)

    def all(self) -> Mapping[str, User]:
        """All users by name, by the file as of now. Raises as :meth:`find`."""
        self._read()
        return self._users

    def nobody(self, name: str) -> User:
        """A user of a name that isn't there: whom no password lets in, and who looks like another."""
        salt = hmac.digest(self._secret, name.encode(), "sha256")[:_SALT_BYTES]
        keys = {one: Keys(os.urandom(32), os.urandom(32)) for one in HASHES}
        return User(name, _ITERATIONS, salt, keys, Rules())
