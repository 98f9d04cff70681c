"""The decision about AlterUserScramCredentials: which users it changes, and why others are refused. Pure.

Source of the errors and their order: Kafka ``ScramControlManager``. Of our own: an administrator changes only users
whose rights are within its own, as whoever gives a user a password can come in as that user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.users import HASHES, MOST_NAME_BYTES, Keys, Rules, User

__all__ = ["MECHANISMS", "Alteration", "Refusal"]

MECHANISMS = {"SHA-256": 1, "SHA-512": 2}
"""Source: Kafka ``ScramMechanism``."""
_HASHES = {number: name for name, number in MECHANISMS.items()}
_SALTED_BYTES = {"SHA-256": 32, "SHA-512": 64}
_ITERATIONS = range(4_096, 16_385)
_MOST_SALT_BYTES = 1_024
Refusal = tuple[ErrorCode, str]


@dataclass(slots=True)
class Alteration:
    """The changes that a request asks for, by users."""

    body: Mapping[str, Any]
    rules: Rules | None
    """The rights of whoever asks; None: everything."""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """Why users aren't changed, as of the last :meth:`apply`."""

    def names(self) -> list[str]:
        """The users that the request names."""
        return list(
            dict.fromkeys(alteration["name"] for alteration in (*self.body["deletions"], *self.body["upsertions"]))
        )

    def apply(self, users: Mapping[str, User]) -> Mapping[str, User]:
        """The users after the changes that aren't refused; the same mapping where all are."""
        self.refusals = {}
        wanted: dict[str, tuple[str, Keys | None]] = {}
        by_name: dict[str, list[dict[str, Any]]] = {}
        for alteration in (*self.body["deletions"], *self.body["upsertions"]):
            by_name.setdefault(alteration["name"], []).append(alteration)
        for name, asked in by_name.items():
            judged = self._judged(users.get(name), name, asked)
            if isinstance(judged[0], ErrorCode):
                self.refusals[name] = judged
            else:
                wanted[name] = judged
        after = dict(users)
        for name, (hash_name, keys) in wanted.items():
            user = users.get(name) or User(name, {}, Rules())
            kept = {one: each for one, each in user.keys.items() if one != hash_name}
            after[name] = replace(user, keys=kept if keys is None else {**kept, hash_name: keys})
        return after if wanted else users

    def _judged(self, user: User | None, name: str, asked: list[dict[str, Any]]) -> Refusal | tuple[str, Keys | None]:
        first = asked[0]
        refusal = _refusal(name, first)
        if refusal is not None:
            return refusal
        if len(asked) > 1:
            return ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        if user is not None and self.rules is not None and not self.rules.covers(user.rules):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"user {name!r} has rights that you don't have"
        hash_name = _HASHES[first["mechanism"]]
        if "iterations" in first:
            salted, salt = bytes(first["salted_password"]), bytes(first["salt"])
            return hash_name, Keys.of_salted(salted, salt, first["iterations"], hash_name)
        if user is None or hash_name not in user.keys:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        return hash_name, None


def _refusal(name: str, asked: Mapping[str, Any]) -> Refusal | None:
    """The fault of one change, whoever asks for it."""
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username longer than {MOST_NAME_BYTES} bytes"
    hash_name = _HASHES.get(asked["mechanism"])
    if hash_name is None or hash_name not in HASHES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if "iterations" not in asked:
        return None
    if asked["iterations"] not in _ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"expected {_ITERATIONS[0]} to {_ITERATIONS[-1]} iterations"
    if len(asked["salted_password"]) != _SALTED_BYTES[hash_name]:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"expected {_SALTED_BYTES[hash_name]} bytes of salted password"
    if not 0 < len(asked["salt"]) <= _MOST_SALT_BYTES:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"expected 1 to {_MOST_SALT_BYTES} bytes of salt"
    return None
