"""SASL on the server's side: PLAIN and SCRAM. Sources: RFC 4616, RFC 5802, RFC 7677."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from sparklog.gateway.users import HASHES, MOST_NAME_BYTES, Keys, KnownUsers, User

__all__ = ["MECHANISMS", "AuthenticationError", "Exchange", "Step", "begin_exchange"]

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


class AuthenticationError(Exception):
    """A failed authentication. The message reveals nothing to the client that it doesn't know."""


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to a client's message."""

    answer: bytes
    user: User | None = None
    """The client's user, once that is sure."""


class Exchange:
    """The messages of one authentication."""

    name = ""
    """The name that the client gives; empty before it does."""

    def step(self, message: bytes) -> Step:
        """Answer the client's next message; may take some milliseconds. Raises ``AuthenticationError``."""
        raise NotImplementedError


def begin_exchange(mechanism: str, users: KnownUsers) -> Exchange:
    """Begin an authentication by one of :data:`MECHANISMS`."""
    return _Plain(users) if mechanism == "PLAIN" else _Scram(users, mechanism.removeprefix("SCRAM-"))


class _Plain(Exchange):
    def __init__(self, users: KnownUsers) -> None:
        self._users = users

    def step(self, message: bytes) -> Step:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError("expected an authorization id, a name and a password")
        as_whom, name, password = parts
        self.name = _decoded(name)
        user, hash_name = _with_keys(self._users, self.name, "SHA-256", "SHA-512")
        kept = user.keys[hash_name]
        keys = Keys.of(password, kept.salt, kept.iterations, hash_name)
        is_right = hmac.compare_digest(keys.stored_key, kept.stored_key)
        if not is_right or as_whom not in (b"", name):
            raise AuthenticationError("the name or the password is wrong")
        return Step(b"", user)


class _Scram(Exchange):
    def __init__(self, users: KnownUsers, hash_name: str) -> None:
        self._users = users
        self._hash_name = hash_name
        self._algorithm = HASHES[hash_name]
        self._user: User | None = None
        self._nonce = b""
        self._messages = b""
        self._header = b""

    def step(self, message: bytes) -> Step:
        return self._first(message) if self._user is None else self._last(message, self._user)

    def _first(self, message: bytes) -> Step:
        parts = message.split(b",", 2)
        if len(parts) != 3 or parts[0] not in (b"n", b"y"):
            raise AuthenticationError("expected a client's first message without channel binding")
        bare, fields = parts[2], parts[2].split(b",")
        if len(fields) < 2 or not fields[0].startswith(b"n=") or not fields[1].startswith(b"r="):
            raise AuthenticationError("expected a name and a nonce")
        name = _decoded(fields[0][2:]).replace("=2C", ",").replace("=3D", "=")
        if parts[1] not in (b"", b"a=" + fields[0][2:]):
            raise AuthenticationError("expected no authorization identity other than the user")
        if len(fields[1]) < 10 or any(field.startswith(b"m=") for field in fields):
            raise AuthenticationError("a nonce that is too short, or an extension that isn't known")
        self.name = name
        user, _ = _with_keys(self._users, name, self._hash_name)
        self._user = user
        keys = user.keys[self._hash_name]
        self._nonce = fields[1][2:] + secrets.token_urlsafe(24).encode()
        answer = b"r=" + self._nonce + b",s=" + base64.b64encode(keys.salt) + b",i=%d" % keys.iterations
        self._header = parts[0] + b"," + parts[1] + b","
        self._messages = bare + b"," + answer
        return Step(answer)

    def _last(self, message: bytes, user: User) -> Step:
        without_proof, comma, proof = message.rpartition(b",p=")
        fields = without_proof.split(b",")
        binding = b"c=" + base64.b64encode(self._header)
        if not comma or len(fields) < 2 or fields[0] != binding or fields[1] != b"r=" + self._nonce:
            raise AuthenticationError("expected the client's last message of this exchange")
        keys, signed = user.keys[self._hash_name], self._messages + b"," + without_proof
        signature = hmac.digest(keys.stored_key, signed, self._algorithm)
        try:
            client_proof = base64.b64decode(proof, validate=True)
        except binascii.Error as error:
            raise AuthenticationError("a proof that isn't base64") from error
        client_key = bytes(a ^ b for a, b in zip(client_proof, signature, strict=False))
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        if len(client_proof) != len(signature) or not hmac.compare_digest(stored_key, keys.stored_key):
            raise AuthenticationError("the name or the password is wrong")
        verifier = hmac.digest(keys.server_key, signed, self._algorithm)
        return Step(b"v=" + base64.b64encode(verifier), user)


def _with_keys(users: KnownUsers, name: str, *hash_names: str) -> tuple[User, str]:
    """The user of a name, and the first of some hashes that it has keys for; where there is none, one who looks so."""
    user = users.find(name)
    hash_name = next(
        (name_of_hash for name_of_hash in hash_names if user is not None and name_of_hash in user.keys), None
    )
    if user is None or hash_name is None:
        return users.nobody(name, hash_names[0]), hash_names[0]
    return user, hash_name


def _decoded(name: bytes) -> str:
    if not name or len(name) > MOST_NAME_BYTES:
        raise AuthenticationError(f"a name of {len(name)} bytes: expected 1 to {MOST_NAME_BYTES}")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationError("a name that isn't UTF-8") from error
