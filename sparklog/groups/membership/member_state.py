"""The state of a group's member: one small object that it alone rewrites, and a heartbeat beside it (rule G4, one
listing)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.errors import CorruptLogError
from sparklog.model import TopicPartition

__all__ = [
    "MemberState",
    "decode_member",
    "decode_partitions",
    "encode_member",
    "encode_partitions",
    "pattern_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """A member's description of itself."""

    member_id: str
    instance_id: str | None
    """``group_instance_id`` of a static member."""
    client_id: str
    host: str
    topics: tuple[str, ...]
    """Subscribed to by name, or found by ``pattern``. Sorted."""
    assignors: tuple[str, ...]
    """The names of those it supports, the one it likes best first."""
    session_timeout_ms: int
    """After so long a silence the others take it for dead."""
    generation: int
    """The newest generation it acts upon; 0 before the first."""
    claims: frozenset[TopicPartition]
    """The partitions that it owns, and those that it is about to take: nobody else takes these while it lives."""
    replaces: str = ""
    """The member that this one replaces: it was there before, has the same instance id, and is in the newest generation
    this one knows. Empty where there is none."""
    pattern: str = ""
    """The pattern by which it subscribes, as :func:`pattern_text` gives it; empty where it subscribes by name."""
    reads_from_start: bool = False
    """Does it read a partition for which nothing was committed from its log start, by ``auto_offset_reset``? False
    where it doesn't say. For who looks at the group."""


def pattern_text(pattern: re.Pattern[str] | None) -> str:
    """A pattern as text: its flags, a colon, the expression. Equal texts match the same names; nobody compiles them."""
    return "" if pattern is None else f"{pattern.flags}:{pattern.pattern}"


def encode_member(state: MemberState) -> bytes:
    """The bytes of a member's object."""
    body = {
        "member_id": state.member_id,
        "instance_id": state.instance_id,
        "client_id": state.client_id,
        "host": state.host,
        "topics": state.topics,
        "pattern": state.pattern,
        "assignors": state.assignors,
        "session_timeout_ms": state.session_timeout_ms,
        "generation": state.generation,
        "claims": encode_partitions(state.claims),
        "replaces": state.replaces,
        "reads_from_start": state.reads_from_start,
    }
    return json.dumps(body, indent=1).encode()


def decode_member(path: str, data: bytes) -> MemberState:
    """Decode a member from its object's bytes. Raises ``CorruptLogError``, which names the object."""
    try:
        body: dict[str, Any] = json.loads(data)
        return MemberState(
            member_id=str(body["member_id"]),
            instance_id=None if body["instance_id"] is None else str(body["instance_id"]),
            client_id=str(body["client_id"]),
            host=str(body["host"]),
            topics=tuple(str(topic) for topic in body["topics"]),
            assignors=tuple(str(name) for name in body["assignors"]),
            session_timeout_ms=int(body["session_timeout_ms"]),
            generation=int(body["generation"]),
            claims=decode_partitions(body["claims"]),
            replaces=str(body["replaces"]),
            pattern=str(body.get("pattern", "")),  # not written by older versions
            reads_from_start=body.get("reads_from_start") is True,  # nor this
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(f"corrupt group member {path}: {error!r}") from error


def encode_partitions(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as JSON: topic to sorted numbers."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def decode_partitions(body: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """The reverse of :func:`encode_partitions`."""
    return frozenset(TopicPartition(topic, int(number)) for topic, numbers in body.items() for number in numbers)
