"""A member of a classic group, and the request with which it joins."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sparklog.gateway.coordination.consumer_protocol import MOST_TOPICS, named_topics
from sparklog.gateway.error_codes import ErrorCode
from sparklog.logs import short

__all__ = [
    "JoinRequest",
    "Member",
    "PendingMember",
    "Protocols",
    "answer",
    "join_error",
    "new_member_id",
    "selected_protocol",
    "topics_of",
]

_LOGGER = logging.getLogger("sparklog.gateway")
_PREFIX_LENGTH = 60

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors and what the member says for each, the one it likes best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A client's words as it joins."""

    member_id: str
    """Empty: it has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool
    """Does it get its member id before it is a member? Source: KIP-394."""
    may_skip_assignment: bool
    """Does it understand that it leads, and isn't to assign anything? Source: KIP-814."""


@dataclass(slots=True)
class PendingMember:
    """A member id that was given to a client, which hasn't joined with it yet."""

    session_timeout_ms: float
    """The id is forgotten after so long."""
    age_ms: float = 0.0


@dataclass(slots=True, kw_only=True)
class Member:
    """A member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: asyncio.Future[dict[str, Any]] | None = None
    """Its JoinGroup that waits for the others."""
    syncing: asyncio.Future[dict[str, Any]] | None = None
    """Its SyncGroup that waits for the leader's."""
    was_answered: bool = False
    """Was a JoinGroup of it answered? Then its client knows that it is a member."""
    silence_ms: float = 0.0
    """Since it was heard of last, and nothing of its waits for an answer."""

    @classmethod
    def of(cls, request: JoinRequest, member_id: str, *, assignment: bytes = b"") -> Member:
        """A new member, as its request describes it."""
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            assignment=assignment,
        )

    @property
    def is_waiting(self) -> bool:
        """Does it wait for an answer? Then it can't show that it lives."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """The bytes that it said for an assignor; nothing for one that it doesn't support."""
        return dict(self.protocols).get(protocol or "", b"")

    def take_over(self, request: JoinRequest) -> None:
        """Replace what it said before."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.protocols, self.silence_ms = request.protocols, 0.0

    def end(self, code: int) -> None:
        """Answer what waits with an error."""
        joining, syncing, self.joining, self.syncing = self.joining, self.syncing, None, None
        if joining is not None:
            answer(joining, {"error_code": code, "member_id": self.member_id, "protocol_name": ""})
        if syncing is not None:
            answer(syncing, {"error_code": code})


def answer(future: asyncio.Future[dict[str, Any]], result: dict[str, Any]) -> None:
    """Give a waiting request its answer; one whose client has gone needs none."""
    if not future.done():
        future.set_result(result)


def selected_protocol(members: Collection[Member]) -> str | None:
    """The assignor that all members support and most like best; None where they have none in common.

    Source: Kafka ``ClassicGroup.selectProtocol``.
    """
    supported = [[name for name, _ in member.protocols] for member in members]
    common = set(supported[0]).intersection(*supported[1:]) if supported else set()
    if not common:
        return None
    votes = Counter(next(name for name in names if name in common) for names in supported)
    return max(sorted(votes), key=lambda name: votes[name])


def topics_of(members: Collection[Member]) -> frozenset[str]:
    """The topics that consumers subscribe to; of a member with a subscription that can't be read, those before it."""
    topics: set[str] = set()
    for member in members:
        left = MOST_TOPICS
        try:
            for _, metadata in member.protocols:
                named = named_topics(metadata, left)
                topics.update(named)
                left -= len(named)
        except ValueError as error:
            _LOGGER.info("the subscription of member %s can't be parsed: %s", short(member.member_id), error)
    return frozenset(topics)


def new_member_id(request: JoinRequest) -> str:
    """A member id that was never given before."""
    return f"{(request.instance_id or request.client_id)[:_PREFIX_LENGTH]}-{uuid.uuid4()}"


def join_error(code: ErrorCode, member_id: str) -> dict[str, Any]:
    """An answer to JoinGroup with an error."""
    return {"error_code": code, "member_id": member_id, "protocol_name": ""}
