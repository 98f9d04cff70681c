"""Passwords of a console's users: hashed by scrypt, checked in constant time, and remembered for a process."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from sparklog.errors import InvalidArgumentError

__all__ = ["Passwords", "hash_password", "parse_users"]

_COST, _BLOCK, _LANES = 2**14, 8, 1
"""Source: RFC 7914, section 2; 16 MiB and some 50 ms for each guess."""
_KIND = "scrypt"
_MOST_REMEMBERED = 1_000


def hash_password(password: str, *, salt: bytes | None = None) -> str:
    """A password as a line of a users file has it behind the name: ``scrypt$SALT$HASH``, both in base64.

    Raises ``InvalidArgumentError``: it is empty.
    """
    if not password:
        raise InvalidArgumentError("got an empty password")
    used = secrets.token_bytes(16) if salt is None else salt
    return "$".join([_KIND, base64.b64encode(used).decode(), base64.b64encode(_hashed(password, used)).decode()])


def parse_users(text: str) -> dict[str, str]:
    """Users of a file: a line ``NAME:HASH`` each, empty lines and such with ``#`` passed over.

    Raises ``InvalidArgumentError``, which names the line and never its content.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, hashed = line.strip().partition(":")
        if not colon or not name or _parts(hashed) is None:
            raise InvalidArgumentError(f"line {number}: expected NAME:HASH, as `sparklog ui --hash-password` prints it")
        if name in users:
            raise InvalidArgumentError(f"line {number}: the user is there twice")
        users[name] = hashed
    return users


class Passwords:
    """The users of one process. For several threads."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._secret = secrets.token_bytes(32)
        self._nobody = hash_password(secrets.token_hex(8)) if users else ""
        self._good: set[bytes] = set()
        """Keyed digests of names and passwords that were right: a browser sends them with each request."""

    def check(self, name: str, password: str) -> bool:
        """Is it the password of a user?"""
        digest = hmac.digest(self._secret, f"{name}\0{password}".encode(), "sha256")
        if digest in self._good:
            return True
        parts = _parts(self._users.get(name, self._nobody))
        if parts is None:
            return False
        salt, expected = parts
        is_right = hmac.compare_digest(_hashed(password, salt), expected) and name in self._users
        if is_right and len(self._good) < _MOST_REMEMBERED:
            self._good.add(digest)
        return is_right


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_LANES, dklen=32)


def _parts(hashed: str) -> tuple[bytes, bytes] | None:
    """Salt and hash."""
    kind, _, rest = hashed.partition("$")
    salt, dollar, digest = rest.partition("$")
    if kind != _KIND or not dollar:
        return None
    try:
        return base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except binascii.Error:
        return None
