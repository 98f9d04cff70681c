"""Changes of the users in the store. Pure: each is applied again to the list that another change wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparklog.errors import InvalidArgumentError
from sparklog.gateway.user_log import Change
from sparklog.gateway.users import MOST_NAME_BYTES, Keys, Rules, User

__all__ = ["added", "removed", "with_keys", "with_rules"]


def added(user: User) -> Change:
    """Add a user. The change raises ``InvalidArgumentError``: the name exists."""
    if not 0 < len(user.name.encode()) <= MOST_NAME_BYTES:
        raise InvalidArgumentError(f"a user's name of {len(user.name.encode())} bytes: expected 1 to {MOST_NAME_BYTES}")

    def change(users: Mapping[str, User]) -> Mapping[str, User]:
        if user.name in users:
            raise InvalidArgumentError(f"there is a user {user.name!r}: see `gateway-users passwd` and `rules`")
        return {**users, user.name: user}

    return change


def removed(name: str) -> Change:
    """Remove a user. The change raises ``InvalidArgumentError``: there is none of the name."""

    def change(users: Mapping[str, User]) -> Mapping[str, User]:
        _user_of(users, name)
        return {other: user for other, user in users.items() if other != name}

    return change


def with_rules(name: str, rules: Rules) -> Change:
    """Replace the rules of a user. The change raises ``InvalidArgumentError``: there is none of the name."""
    return lambda users: {**users, name: replace(_user_of(users, name), rules=rules)}


def with_keys(name: str, keys: Mapping[str, Keys]) -> Change:
    """Replace the keys of a user. The change raises ``InvalidArgumentError``: there is none of the name."""
    return lambda users: {**users, name: replace(_user_of(users, name), keys=keys)}


def _user_of(users: Mapping[str, User], name: str) -> User:
    if name not in users:
        raise InvalidArgumentError(f"there is no user {name!r} in the store")
    return users[name]
