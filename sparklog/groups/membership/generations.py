"""The generations of a group: its members and their partitions, each decided by one create-only put.

A generation is never changed. The newest one counts; a number is never given twice, not even after the group was
deleted (rule L8, one log): the newest generations always stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from sparklog.checksums import EMPTY_SUM, SUM_FIELD, check_sum, with_sum
from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.membership.member_state import decode_partitions, encode_partitions
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.paths import generation_path, group_generations
from sparklog.storage.entry_log import NumberedLog
from sparklog.storage.numbered_cleanup import clean_numbered_log

__all__ = [
    "Generation",
    "GenerationLog",
    "GenerationMember",
    "GenerationPlan",
    "Subscription",
    "TopicFacts",
    "clean_generations",
    "encode_generation",
    "generation_log",
]

GENERATION_FORMAT = 2
"""Format 1, which is still read, repeated the subscription of each member."""
_RETENTION_MS = 86_400_000
"""Source: rule L3, cleanup: at least a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic as the members knew it when a generation was decided."""

    topic_id: str
    partition_count: int
    first_count: int
    """How many partitions it had when the group first subscribed to it: those it got later hold nothing older than
    the subscription."""
    earlier_count: int | None = None
    """The same of a time before, after which no member subscribed to it for a while; None: there was none. What the
    group has committed then and since, if anything, is older than the partitions that it got later."""

    @property
    def least_count(self) -> int:
        """How many partitions it had when the group subscribed to it for the first time that is known."""
        return self.first_count if self.earlier_count is None else min(self.first_count, self.earlier_count)


class Subscription(NamedTuple):
    """The topics that a member asks for, and the assignors that it supports."""

    topics: tuple[str, ...]
    """Sorted."""
    pattern: str
    """The pattern by which the topics were found, as :func:`~sparklog.groups.membership.member_state.pattern_text`
    gives it; empty where they were named."""
    assignors: tuple[str, ...]
    """The names of those it supports, the one it likes best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMember:
    """A member as a generation knows it."""

    instance_id: str | None
    client_id: str
    host: str
    subscription: Subscription

    @property
    def topics(self) -> tuple[str, ...]:
        """Subscribed to, sorted."""
        return self.subscription.topics

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names of those it supports, the one it likes best first."""
        return self.subscription.assignors


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """The content of a generation."""

    members: Mapping[str, GenerationMember]
    """By member id; empty in an empty generation."""
    topics: Mapping[str, TopicFacts]
    """The topics that a member subscribes to and that exist."""
    assignment: Mapping[str, frozenset[TopicPartition]]
    """The target: what each member is to have in the end. Every member is a key."""
    former: Mapping[str, TopicFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Topics that members subscribed to before, and none does now; empty where the group was deleted since."""
    assignor: str = ""
    deleted: bool = False
    """Was the group deleted?"""
    created_ms: int
    """Wall time of the proposer, milliseconds since the epoch."""

    def holder_of(self, instance_id: str | None) -> str:
        """The member that has an instance id; empty where none has it."""
        holders = (i for i, member in self.members.items() if member.instance_id == instance_id is not None)
        return next(holders, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a group: its members, and the partitions that each is to have."""

    version: int
    """Its number, 1 or more."""
    token: str
    plan: GenerationPlan

    def target_of(self, member_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that a member is to have; None if it isn't one of this generation's."""
        return self.plan.assignment.get(member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLog(NumberedLog[Generation]):
    """A group's generations."""

    group: str

    @property
    def folder(self) -> str:
        return group_generations(self.group)

    @property
    def cleanup_marks(self) -> str:
        return f"{self.folder}_cleaned/"

    def path_of(self, version: int) -> str:
        return generation_path(self.group, version)

    def decode(self, version: int, data: bytes) -> Generation:
        return decode_generation(version, self.path_of(version), data)


def generation_log(cluster: Cluster, group: str) -> GenerationLog:
    """A group's generations; reads nothing."""
    return GenerationLog(store=cluster.store, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms, group=group)


def clean_generations(log: GenerationLog) -> int:
    """Delete generations whose successor is older than a day; returns how many. See :func:`clean_numbered_log`."""
    return clean_numbered_log(log, keep_ms=_RETENTION_MS)


def encode_generation(plan: GenerationPlan, token: str) -> bytes:
    """The bytes of a generation. A subscription that many members share is written once."""
    numbers: dict[Subscription, int] = {}
    for member in plan.members.values():
        numbers.setdefault(member.subscription, len(numbers))
    body = {
        "format": GENERATION_FORMAT,
        "token": token,
        SUM_FIELD: EMPTY_SUM,
        "created_ms": plan.created_ms,
        "assignor": plan.assignor,
        "deleted": plan.deleted,
        "topics": _encoded(plan.topics),
        **({"former_topics": _encoded(plan.former)} if plan.former else {}),
        "subscriptions": [subscription._asdict() for subscription in numbers],
        "members": {
            member_id: {
                "instance_id": m.instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "subscription": numbers[m.subscription],
                "assignment": encode_partitions(plan.assignment[member_id]),
            }
            for member_id, m in plan.members.items()
        },
    }
    return with_sum(json.dumps(body, separators=(",", ":")).encode())


def decode_generation(version: int, path: str, data: bytes) -> Generation:
    """Decode a generation from its bytes. Raises ``CorruptLogError``, ``UnsupportedVersionError``."""
    try:
        body: dict[str, Any] = json.loads(data)
        if int(body["format"]) > GENERATION_FORMAT:
            raise UnsupportedVersionError(
                f"{path} has format {body['format']}; this sparklog knows up to {GENERATION_FORMAT}: upgrade it"
            )
        check_sum(data, body)
        members: dict[str, Any] = body["members"]
        subscriptions = [_subscription(written) for written in body.get("subscriptions", ())]
        plan = GenerationPlan(
            members=MappingProxyType({member_id: _member(m, subscriptions) for member_id, m in members.items()}),
            topics=MappingProxyType({name: _facts(t) for name, t in body["topics"].items()}),
            former=MappingProxyType({name: _facts(t) for name, t in body.get("former_topics", {}).items()}),
            assignment=MappingProxyType({i: decode_partitions(m["assignment"]) for i, m in members.items()}),
            assignor=str(body["assignor"]),
            deleted=bool(body["deleted"]),
            created_ms=int(body["created_ms"]),
        )
        return Generation(version=version, token=str(body["token"]), plan=plan)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptLogError(f"corrupt generation {path}: {error!r}") from error


def _subscription(body: Mapping[str, Any]) -> Subscription:
    return Subscription(
        topics=tuple(_texts(body["topics"])),
        pattern=str(body.get("pattern", "")),  # there is none in format 1
        assignors=tuple(_texts(body["assignors"])),
    )


def _numbered(subscriptions: Sequence[Subscription], number: object) -> Subscription:
    if not isinstance(number, int) or not 0 <= number < len(subscriptions):
        raise ValueError(f"subscription {number!r}, expected one of {len(subscriptions)} from 0 on")
    return subscriptions[number]


def _member(body: Mapping[str, Any], subscriptions: Sequence[Subscription]) -> GenerationMember:
    """A member; in format 1 its subscription is written with it."""
    is_shared = "subscription" in body
    return GenerationMember(
        instance_id=body["instance_id"],
        client_id=str(body["client_id"]),
        host=str(body["host"]),
        subscription=_numbered(subscriptions, body["subscription"]) if is_shared else _subscription(body),
    )


def _encoded(topics: Mapping[str, TopicFacts]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "id": t.topic_id,
            "partitions": t.partition_count,
            "first_partitions": t.first_count,
            **({} if t.earlier_count is None else {"earlier_partitions": t.earlier_count}),
        }
        for name, t in topics.items()
    }


def _facts(body: Mapping[str, Any]) -> TopicFacts:
    earlier = body.get("earlier_partitions")
    return TopicFacts(
        topic_id=str(body["id"]),
        partition_count=int(body["partitions"]),
        first_count=int(body["first_partitions"]),
        earlier_count=None if earlier is None else int(earlier),
    )


def _texts(values: Iterable[object]) -> list[str]:
    return [str(value) for value in values]
