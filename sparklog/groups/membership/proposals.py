"""The next generation: whether one is needed, and what it decides. Pure.

Whoever sees that the members, what they subscribe to, or a topic's partitions are no longer those of the newest
generation may propose the next; the first create wins, and the others act upon it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from sparklog.errors import InconsistentGroupProtocolError
from sparklog.groups.assignors import Assignor, MemberSubscription, check_assignment
from sparklog.groups.membership.generations import (
    Generation,
    GenerationMember,
    GenerationPlan,
    Subscription,
    TopicFacts,
)
from sparklog.groups.membership.liveness import TrackedMember
from sparklog.groups.membership.member_state import MemberState
from sparklog.model import TopicPartition

__all__ = [
    "Seen",
    "common_assignors",
    "empty_plan",
    "is_incompatible",
    "living_members",
    "need_of",
    "only_replaces",
    "plan_generation",
    "same_decision",
    "subscribed_topics",
]

_MOST_FORMER = 10_000
"""Topics that nobody subscribes to any more of which a generation tells; those that were left last."""

Seen = Mapping[str, "tuple[str, int]"]
"""Topics that exist: name to topic id and partition count."""


def living_members(
    tracked: Mapping[str, TrackedMember], newest: GenerationPlan | None, *, me: MemberState | None
) -> dict[str, MemberState]:
    """The members that the next generation should have, with their states.

    A member that the newest generation doesn't have counts once another heartbeat of it was seen: the objects that a
    dead process left behind are no member. A member that was in a generation and isn't in the newest will notice and
    come back under another id. Of two with one instance id the one that the newest generation doesn't have stays, if it
    came to replace the other. A member that shares no assignor with those before it is left out.

    Args:
        tracked: all that were listed, by member id.
        me: the caller's own state; None if it leaves.
    """
    known = newest.members if newest is not None else {}
    states = {} if me is None or not (me.member_id in known or _may_join(me, newest)) else {me.member_id: me}
    for member_id, member in tracked.items():
        if member.state is None or member.marks.state is None or member.is_dead or (me and me.member_id == member_id):
            continue
        if member_id in known or (member.heartbeats_seen and _may_join(member.state, newest)):
            states[member_id] = member.state
    by_instance: dict[str, str] = {}
    for member_id in sorted(states, key=lambda i: (i not in known, i)):
        instance_id = states[member_id].instance_id
        if instance_id is not None:
            by_instance[instance_id] = member_id  # the last one stays
    living = {i: s for i, s in states.items() if s.instance_id is None or by_instance[s.instance_id] == i}
    compatible: dict[str, MemberState] = {}
    for member_id in sorted(living, key=lambda i: (i not in known, i)):
        if common_assignors([*compatible.values(), living[member_id]]):
            compatible[member_id] = living[member_id]
    return compatible


def _may_join(state: MemberState, newest: GenerationPlan | None) -> bool:
    """May a member that the newest generation doesn't have be in the next? Of several that come to replace one and the
    same, the first that a generation has stays: the others are fenced as soon as they look."""
    holder = newest.holder_of(state.instance_id) if newest is not None else ""
    return state.generation == 0 and holder in ("", state.replaces)


def common_assignors(members: Collection[MemberState | GenerationMember]) -> list[str]:
    """The assignors that all members support, the one most of them like best first.

    Source: Kafka ``ClassicGroup.selectProtocol``: each member votes for the first it names that all support.
    """
    if not members:
        return []
    common = frozenset.intersection(*(frozenset(member.assignors) for member in members))
    votes = Counter(next(name for name in member.assignors if name in common) for member in members if common)
    return sorted(common, key=lambda name: (-votes[name], name))


def is_incompatible(members: Mapping[str, TrackedMember], plan: GenerationPlan, state: MemberState) -> bool:
    """Do the members whose heartbeats were seen share no assignor with another member?

    Args:
        members: all that were listed, by member id.
        plan: the newest generation's; only its members count, and of one that is long dead none.
        state: the other member's.
    """
    alive = [
        member.state
        for member_id, member in members.items()
        if member_id in plan.members and member.state is not None and member.heartbeats_seen and not member.is_dead
    ]
    return bool(alive) and not common_assignors([*alive, state])


def subscribed_topics(
    members: Mapping[str, MemberState], missing: Collection[str] = frozenset()
) -> dict[str, tuple[str, ...]]:
    """The topics that each member subscribes to, sorted.

    Members with one pattern have the topics that any of them found, so that a topic which comes moves partitions
    once, not once for each member that finds it.

    Args:
        missing: topics that were looked at and aren't there: no pattern matches them. Who subscribes by name does so
            whether there is such a topic or not.
    """
    by_pattern: dict[str, set[str]] = {}
    for state in members.values():
        if state.pattern:
            by_pattern.setdefault(state.pattern, set()).update(state.topics)
    if not by_pattern:
        return {member_id: state.topics for member_id, state in members.items()}
    matched = {pattern: tuple(sorted(topics.difference(missing))) for pattern, topics in by_pattern.items()}
    return {i: matched[state.pattern] if state.pattern else state.topics for i, state in members.items()}


def need_of(
    newest: Generation | None,
    members: Mapping[str, MemberState],
    seen: Seen,
    missing: Collection[str] = frozenset(),
) -> object | None:
    """The difference between the group and its newest generation; None where there is none. Equal values stand for
    the same difference.

    Args:
        seen: what the proposer knows of topics; about those it doesn't know it has no say.
        missing: topics that the proposer looked at and that aren't there.
    """
    plan = newest.plan if newest is not None else None
    now = frozenset(members)
    if plan is None or now != frozenset(plan.members):
        return ("members", now)
    subscribed = subscribed_topics(members, missing)
    changed = frozenset(
        member_id
        for member_id, state in members.items()
        if (subscribed[member_id], state.pattern, state.assignors) != plan.members[member_id].subscription
    )
    if changed:
        return ("subscriptions", changed, frozenset(subscribed[member_id] for member_id in changed))
    wanted = frozenset(chain.from_iterable({*subscribed.values()}))
    came = frozenset(
        (topic, *seen[topic])
        for topic in wanted & seen.keys()
        if topic not in plan.topics or (plan.topics[topic].topic_id, plan.topics[topic].partition_count) != seen[topic]
    )
    gone = frozenset(plan.topics.keys() & missing)
    return ("topics", came, gone) if came or gone else None


def plan_generation(
    newest: Generation | None,
    members: Mapping[str, MemberState],
    seen: Seen,
    assignors: Mapping[str, Assignor],
    *,
    now_ms: int,
    missing: Collection[str] = frozenset(),
) -> GenerationPlan:
    """The plan of the next generation.

    A static member that came back under its instance id gets its predecessor's partitions. Where nothing else changed,
    nothing else moves.

    Args:
        members: those that live; not empty, and with a common assignor.
        seen: every topic that any of them subscribes to, if it exists; looked at just now.
        assignors: the proposer's own, by name.
        missing: those topics that don't exist.
    Raises:
        InconsistentGroupProtocolError: the assignor that the members agree on isn't one of the proposer's.
        InvalidArgumentError: the assignor gave an illegal assignment; whatever a pluggable assignor raises.
    """
    agreed = common_assignors(list(members.values()))
    name = agreed[0] if agreed else ""
    if name not in assignors:
        raise InconsistentGroupProtocolError(
            f"the members agree on {name or 'no assignor'}; this consumer has {', '.join(sorted(assignors)) or 'none'}"
        )
    previous = newest.plan if newest is not None else None
    subscribed = subscribed_topics(members, missing)
    plan_members = {member_id: _member(members[member_id], subscribed[member_id]) for member_id in sorted(members)}
    wanted = frozenset(chain.from_iterable({*subscribed.values()}))
    topics = {
        topic: _facts(previous, plan_members.values(), topic, *seen[topic]) for topic in sorted(wanted & seen.keys())
    }
    owned = {member_id: _owned(previous, member_id, state, topics) for member_id, state in members.items()}
    if previous is not None and _is_replacement(previous, plan_members, topics, name):
        assignment = owned
    else:
        counts = {topic: facts.partition_count for topic, facts in topics.items()}
        subscriptions = {
            member_id: MemberSubscription(topics=member.topics, instance_id=member.instance_id, owned=owned[member_id])
            for member_id, member in plan_members.items()
        }
        assigned: Mapping[str, Sequence[TopicPartition]] = assignors[name].assign(counts, subscriptions)
        check_assignment(assignors[name], counts, subscriptions, assigned)
        assignment = {member_id: frozenset(assigned[member_id]) for member_id in plan_members}
    return GenerationPlan(
        members=MappingProxyType(plan_members),
        topics=MappingProxyType(topics),
        former=_former(previous, topics),
        assignment=MappingProxyType(assignment),
        assignor=name,
        created_ms=now_ms,
    )


def empty_plan(newest: Generation | None = None, *, now_ms: int, deleted: bool = False) -> GenerationPlan:
    """A generation without members: whoever was in the group before is out of it (rule G5, administrators).

    Args:
        newest: the generation that it follows, whose topics it tells of unless the group is deleted.
    """
    nothing: Mapping[str, frozenset[TopicPartition]] = MappingProxyType({})
    return GenerationPlan(
        members=MappingProxyType({}),
        topics=MappingProxyType({}),
        former=_former(None if newest is None or deleted else newest.plan, {}),
        assignment=nothing,
        deleted=deleted,
        created_ms=now_ms,
    )


def same_decision(plan: GenerationPlan, other: GenerationPlan) -> bool:
    """Do two plans say the same?"""
    return (plan.members, plan.topics, plan.former, plan.assignment, plan.assignor, plan.deleted) == (
        other.members,
        other.topics,
        other.former,
        other.assignment,
        other.assignor,
        other.deleted,
    )


def _facts(
    previous: GenerationPlan | None,
    members: Collection[GenerationMember],
    topic: str,
    topic_id: str,
    partition_count: int,
) -> TopicFacts:
    known = previous.topics.get(topic) if previous is not None else None
    former = previous.former.get(topic) if previous is not None else None
    earlier_count = former.least_count if former is not None and former.topic_id == topic_id else None
    if known is not None and known.topic_id == topic_id:
        first_count, earlier_count = known.first_count, known.earlier_count
    elif previous is not None and _was_awaited(previous, members, topic):
        first_count = 0
    else:
        first_count = partition_count
    return TopicFacts(
        topic_id=topic_id, partition_count=partition_count, first_count=first_count, earlier_count=earlier_count
    )


def _former(previous: GenerationPlan | None, topics: Mapping[str, TopicFacts]) -> Mapping[str, TopicFacts]:
    """The topics that members subscribed to up to a generation, but for those of the next one."""
    if previous is None:
        return MappingProxyType({})
    left = {**previous.topics, **{name: of for name, of in previous.former.items() if name not in previous.topics}}
    kept = [(name, of) for name, of in left.items() if name not in topics]
    return MappingProxyType(dict(kept[:_MOST_FORMER]))


def _was_awaited(previous: GenerationPlan, members: Collection[GenerationMember], topic: str) -> bool:
    """Would the previous generation have had this topic, if it had existed then?"""
    by_name = any(topic in member.topics for member in previous.members.values())
    patterns = {member.subscription.pattern for member in members if topic in member.topics} - {""}
    return by_name or any(member.subscription.pattern in patterns for member in previous.members.values())


def _member(state: MemberState, topics: tuple[str, ...]) -> GenerationMember:
    return GenerationMember(
        instance_id=state.instance_id,
        client_id=state.client_id,
        host=state.host,
        subscription=Subscription(topics=topics, pattern=state.pattern, assignors=state.assignors),
    )


def _owned(
    previous: GenerationPlan | None, member_id: str, state: MemberState, topics: Mapping[str, TopicFacts]
) -> frozenset[TopicPartition]:
    """The partitions that the previous generation gave to this member, or to the one that it replaces."""
    if previous is None:
        return frozenset()
    assigned = previous.assignment.get(member_id)
    if assigned is None:
        assigned = previous.assignment.get(previous.holder_of(state.instance_id))
    kept = topics.keys() & {t for t, f in topics.items() if _is_same_topic(previous, t, f)}
    return frozenset(partition for partition in assigned or () if partition.topic in kept)


def _is_same_topic(previous: GenerationPlan, topic: str, facts: TopicFacts) -> bool:
    known = previous.topics.get(topic)
    return known is not None and known.topic_id == facts.topic_id


def only_replaces(previous: GenerationPlan, plan: GenerationPlan) -> bool:
    """Is all that ``plan`` changes that static members came back?"""
    return _is_replacement(previous, plan.members, plan.topics, plan.assignor)


def _is_replacement(
    previous: GenerationPlan, members: Mapping[str, GenerationMember], topics: Mapping[str, TopicFacts], name: str
) -> bool:
    if previous.assignor != name or previous.topics != topics or len(previous.members) != len(members):
        return False
    before = {_identity(i, member): member.subscription for i, member in previous.members.items()}
    return before == {_identity(i, member): member.subscription for i, member in members.items()}


def _identity(member_id: str, member: GenerationMember) -> tuple[str, str]:
    return ("id", member_id) if member.instance_id is None else ("instance", member.instance_id)
