"""Settings of a console: what it may do, and for whom. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparklog.console.masks import Masks
from sparklog.console.wire_formats import NamedSchema
from sparklog.errors import InvalidArgumentError

__all__ = ["LOCAL_HOSTS", "ConsoleSettings"]

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""The names by which only this machine reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of a console."""

    allow_writes: bool = False
    """May settings be changed, records produced, groups reset, transactions aborted?"""
    users: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Hashes of passwords by user, as :func:`~sparklog.console.passwords.hash_password` makes them; empty: no
    passwords."""
    trust_header: str = ""
    """A header in which a reverse proxy names the user that it has asked for a password; empty for none."""
    trusted_proxies: frozenset[str] = frozenset(LOCAL_HOSTS)
    """The addresses from which such a header is believed."""
    masks: frozenset[str] = frozenset()
    """Names of fields, of headers, or ``key``, in lower case: what they hold is never shown, nor compared."""
    plain: frozenset[str] = frozenset()
    """Headers, or ``key``, in lower case, that are shown while fields are masked, though they aren't JSON."""
    value_schemas: Mapping[str, NamedSchema] = field(default_factory=lambda: MappingProxyType({}))
    """By untyped topic: the schema by which its values are shown."""
    hosts: frozenset[str] | None = frozenset(LOCAL_HOSTS)
    """The names by which it may be called; None for any. A page of another site that lets its own name point to this
    machine isn't answered."""
    interval_ms: float = 15_000.0
    """Between two looks at the cluster."""
    query_timeout_ms: float = 120_000.0
    """After so long a search or a statement ends."""
    silence_timeout_ms: float = 2_000.0
    """A page that asks the store ends where no request of this process is answered for so long."""
    most_queries: int = 4
    """Searches and statements side by side."""
    most_tails: int = 20
    """Followed topics side by side."""

    def __post_init__(self) -> None:
        if self.allow_writes and not self.needs_login:
            raise InvalidArgumentError(
                "a console that may write asks who is there: give users with passwords, or the header of a proxy"
            )

    @property
    def masking(self) -> Masks:
        """The masks, and their exceptions."""
        return Masks(self.masks, self.plain)

    @property
    def needs_login(self) -> bool:
        """Is everybody asked who they are?"""
        return bool(self.users or self.trust_header)
