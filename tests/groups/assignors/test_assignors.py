"""Kafka's published cases give Kafka's results, and what has to hold for any group holds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.groups.assignors import (
    ASSIGNORS,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    assignor_of,
    check_assignment,
)
from sparklog.model import TopicPartition
from tests.depth import by_depth

Members = dict[str, MemberSubscription]
STICKY = [ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]]
every_assignor = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
both_sticky = pytest.mark.parametrize("assignor", STICKY, ids=["sticky", "cooperative-sticky"])


def partitions(text: str) -> list[TopicPartition]:
    """``"t-0 t-1"`` as partitions."""
    return [TopicPartition(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in text.split())]


def a_group(
    subscriptions: Mapping[str, str],
    *,
    owned: Mapping[str, Iterable[TopicPartition] | str] | None = None,
    static: Mapping[str, str] | None = None,
) -> Members:
    """``{"c1": "t1 t2"}``: member c1 subscribes to t1 and t2. ``owned`` and ``static`` (instance ids) by member."""
    members = {}
    for member, topics in subscriptions.items():
        mine = (owned or {}).get(member, ())
        members[member] = MemberSubscription(
            topics=tuple(sorted(topics.split())),
            instance_id=(static or {}).get(member),
            owned=frozenset(partitions(mine) if isinstance(mine, str) else mine),
        )
    return members


def assigned(assignor: Assignor, counts: Mapping[str, int], members: Members) -> dict[str, str]:
    """What each member gets, as text; checked."""
    result = assignor.assign(counts, members)
    check_assignment(assignor, counts, members, result)
    return {member: " ".join(f"{topic}-{number}" for topic, number in its) for member, its in result.items()}


def case(counts: Mapping[str, int], subscriptions: Mapping[str, str], expected: Mapping[str, str], **more: Any) -> Any:
    """A published case: what the members get; ``id`` is its name in Kafka's test."""
    return pytest.param(counts, a_group(subscriptions, **more.pop("given", {})), expected, **more)


STATIC = {"c1": "instance1", "c2": "instance2", "c3": "instance3"}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        case({}, {"c": ""}, {"c": ""}, id="testOneConsumerNoTopic"),
        case({}, {"c": "t"}, {"c": ""}, id="testOneConsumerNonexistentTopic"),
        case({"t": 3}, {"c": "t"}, {"c": "t-0 t-1 t-2"}, id="testOneConsumerOneTopic"),
        case({"t": 2, "other": 3}, {"c": "t"}, {"c": "t-0 t-1"}, id="testOnlyAssignsPartitionsFromSubscribedTopics"),
        case({"t1": 1, "t2": 2}, {"c": "t1 t2"}, {"c": "t1-0 t2-0 t2-1"}, id="testOneConsumerMultipleTopics"),
        case({"t": 1}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": ""}, id="testTwoConsumersOneTopicOnePartition"),
        case({"t": 2}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": "t-1"}, id="testTwoConsumersOneTopicTwoPartitions"),
    ],
)
def test_cases_where_all_assignors_agree(name, counts, members, expected):
    """Source: Kafka 4.3 RangeAssignorTest, RoundRobinAssignorTest, AbstractStickyAssignorTest."""
    assert assigned(ASSIGNORS[name], counts, members) == expected


def cases_with_static_members(
    name: str, *, of_two: tuple[str, str], of_four: tuple[dict[str, int], list[str]], of_three: list[str]
) -> Iterator[Any]:
    """The cases that Kafka's tests of range and round robin have in common, with the results of one of the two.

    Args:
        name: the assignor's, as the names of its cases have it.
        of_two: what the first and the second of two members get of three partitions of each of two topics.
        of_four: how many partitions two topics have, and what each of three static members and of a dynamic one gets.
        of_three: what each of three members gets of five partitions of each of two topics.
    """
    counts, both = {"t1": 3, "t2": 3}, "t1 t2"
    expected = {"consumer-b": of_two[0], "consumer-a": of_two[1]}
    dynamic = dict(zip(("c1", "c2"), of_two, strict=True))
    yield case(counts, dict.fromkeys(dynamic, both), dynamic, id="testTwoDynamicConsumersTwoTopicsSixPartitions")
    for static, title in (
        ({"consumer-b": "instance1", "consumer-a": "instance2"}, "testTwoStaticConsumersTwoTopicsSixPartitions"),
        ({"consumer-b": "instance1"}, "testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions"),
    ):
        yield case(counts, dict.fromkeys(expected, both), expected, given={"static": static}, id=title)
    title = f"testStaticMember{name}AssignmentPersistent"
    for dynamic_member in ("c0", "c4", "c5"):
        result = dict(zip((*STATIC, dynamic_member), of_four[1], strict=True))
        given_static = {"static": STATIC}
        members = dict.fromkeys(result, both)
        yield case(of_four[0], members, result, given=given_static, id=f"{title}-{dynamic_member}")
    for order in (("c1", "c2", "c3"), ("c1", "c5", "c4")):
        result = dict(zip(order, of_three, strict=True))
        given_static = {"static": dict(zip(order, STATIC.values(), strict=True))}
        members = dict.fromkeys(result, both)
        yield case(
            {"t1": 5, "t2": 5}, members, result, given=given_static, id=f"{title}AfterMemberIdChanges-{order[1]}"
        )


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_members_that_subscribe_to_different_topics(name):
    """Source: Kafka 4.3 RangeAssignorTest, RoundRobinAssignorTest ``testMultipleConsumersMixedTopics``."""
    members = a_group({"c1": "t1", "c2": "t1 t2", "c3": "t1"})
    expected = {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}
    assert assigned(ASSIGNORS[name], {"t1": 3, "t2": 2}, members) == expected


@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        *cases_with_static_members(
            "Range",
            of_two=("t1-0 t1-1 t2-0 t2-1", "t1-2 t2-2"),
            of_four=({"t1": 5, "t2": 4}, ["t1-0 t1-1 t2-0", "t1-2 t2-1", "t1-3 t2-2", "t1-4 t2-3"]),
            of_three=["t1-0 t1-1 t2-0 t2-1", "t1-2 t1-3 t2-2 t2-3", "t1-4 t2-4"],
        ),
        case(
            {"t1": 6, "t2": 7, "t3": 2},
            {"c0": "t1 t2 t3", "c1": "t1 t2 t3", "c2": "t1 t2 t3"},
            {"c0": "t1-0 t1-1 t2-0 t2-1 t2-2 t3-0", "c1": "t1-2 t1-3 t2-3 t2-4 t3-1", "c2": "t1-4 t1-5 t2-5 t2-6"},
            id="testRackAwareAssignmentWithUniformSubscription-no-racks",
        ),
        case(
            {"t1": 6, "t2": 7, "t3": 2},
            {"c0": "t1 t2 t3", "c1": "t1 t2 t3", "c2": "t1 t3"},
            {"c0": "t1-0 t1-1 t2-0 t2-1 t2-2 t2-3 t3-0", "c1": "t1-2 t1-3 t2-4 t2-5 t2-6 t3-1", "c2": "t1-4 t1-5"},
            id="testRackAwareAssignmentWithNonEqualSubscription-no-racks",
        ),
    ],
)
def test_range(counts, members, expected):
    """Source: Kafka 4.3 RangeAssignorTest."""
    assert assigned(ASSIGNORS["range"], counts, members) == expected


@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        *cases_with_static_members(
            "RoundRobin",
            of_two=("t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"),
            of_four=({"t1": 3, "t2": 3}, ["t1-0 t2-1", "t1-1 t2-2", "t1-2", "t2-0"]),
            of_three=["t1-0 t1-3 t2-1 t2-4", "t1-1 t1-4 t2-2", "t1-2 t2-0 t2-3"],
        ),
        # Its result is told in the comment of AbstractStickyAssignorTest.testPoorRoundRobinAssignmentScenario.
        case(
            {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2},
            {"c1": "t1 t2 t3 t4 t5", "c2": "t1 t3 t5", "c3": "t1 t3 t5", "c4": "t1 t2 t3 t4 t5"},
            {"c1": "t1-0 t3-0 t5-0", "c2": "t1-1 t3-1 t5-1", "c3": "", "c4": "t2-0 t4-0"},
            id="testPoorRoundRobinAssignmentScenario",
        ),
    ],
)
def test_round_robin(counts, members, expected):
    """Source: Kafka 4.3 RoundRobinAssignorTest."""
    assert assigned(ASSIGNORS["roundrobin"], counts, members) == expected


# The members have the names that they have in Kafka's tests: the order of their hashes decides in some.
BOTH = "topic1 topic2"
ALL = "t1 t2 t3"


@both_sticky
@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        case(
            {"topic1": 3, "topic2": 2},
            {"consumer1": "topic1", "consumer2": BOTH, "consumer3": "topic1"},
            {"consumer1": "topic1-0 topic1-2", "consumer2": "topic2-0 topic2-1", "consumer3": "topic1-1"},
            id="testMultipleConsumersMixedTopicSubscriptions",
        ),
        case(
            {"topic1": 3, "topic2": 3},
            {"consumer1": BOTH, "consumer2": BOTH},
            {"consumer1": "topic1-0 topic1-2 topic2-1", "consumer2": "topic1-1 topic2-0 topic2-2"},
            id="testTwoConsumersTwoTopicsSixPartitions",
        ),
        case(
            {"topic1": 2, "topic2": 3},
            {"consumer1": BOTH, "consumer2": BOTH},
            {"consumer1": "topic1-0 topic2-1 topic2-0", "consumer2": "topic1-1 topic2-2"},
            given={"owned": {"consumer1": "topic1-0 topic2-1", "consumer2": "topic1-1 topic2-2"}},
            id="testConsumerOwningMinQuotaExpectedMaxQuota",
        ),
        case(
            {"topic1": 2, "topic2": 2},
            {"consumer1": BOTH, "consumer2": BOTH, "consumer3": BOTH},
            {"consumer1": "topic1-0", "consumer2": "topic1-1 topic2-1", "consumer3": "topic2-0"},
            given={"owned": {"consumer1": "topic1-0 topic2-0", "consumer2": "topic1-1 topic2-1"}},
            id="testMaxQuotaConsumerMoreThanNumExpectedMaxCapacityMembers",
        ),
        case(
            {"topic1": 2, "topic2": 3},
            {"consumer1": BOTH, "consumer2": BOTH, "consumer3": BOTH},
            {"consumer1": "topic1-0 topic2-1", "consumer2": "topic1-1 topic2-2", "consumer3": "topic2-0"},
            given={"owned": {"consumer1": "topic1-0", "consumer2": "topic1-1"}},
            id="testAllConsumersAreUnderMinQuota",
        ),
        case(
            {"topic": 4},
            {"consumer1": "topic", "consumer2": "topic", "consumer3": "topic"},
            {"consumer1": "topic-0 topic-1", "consumer2": "topic-2", "consumer3": "topic-3"},
            given={"owned": {"consumer1": "topic-0 topic-1", "consumer2": "topic-2"}},
            id="testAllConsumersReachExpectedQuotaAndAreConsideredFilled",
        ),
        case(
            {"topic": 2},
            {"consumer": "topic"},
            {"consumer": "topic-0 topic-1"},
            given={"owned": {"consumer": "topic-0 topic-1 other-0 other-1"}},
            id="testOnlyAssignsPartitionsFromSubscribedTopics-owned",
        ),
        case(
            {"topic": 3},
            {"consumer1": "topic", "consumer2": "topic", "consumer3": "topic"},
            {"consumer1": "topic-1", "consumer2": "topic-2", "consumer3": "topic-0"},
            given={"owned": {"consumer1": "topic-0 topic-1", "consumer2": "topic-0 topic-2"}},
            id="testPartitionsTransferringOwnershipIncludeThePartitionClaimedByMultipleConsumersInSameGeneration",
        ),
        case(
            {"topic": 4},
            {"consumer1": "topic", "consumer2": "topic", "consumer3": "topic"},
            {"consumer1": "topic-1 topic-3", "consumer2": "topic-2", "consumer3": "topic-0"},
            given={"owned": {"consumer1": "topic-0 topic-1", "consumer2": "topic-0 topic-2"}},
            id="testAllConsumersHaveOwnedPartitionInvalidated…WithUnequalPartitionsPerConsumer",
        ),
        # Its result is told in the comment of the test.
        case(
            {"topic1": 2, "topic2": 1, "topic3": 2, "topic4": 1, "topic5": 2},
            {
                "consumer1": "topic1 topic2 topic3 topic4 topic5",
                "consumer2": "topic1 topic3 topic5",
                "consumer3": "topic1 topic3 topic5",
                "consumer4": "topic1 topic2 topic3 topic4 topic5",
            },
            {
                "consumer1": "topic2-0 topic3-0",
                "consumer2": "topic1-0 topic3-1",
                "consumer3": "topic1-1 topic5-0",
                "consumer4": "topic4-0 topic5-1",
            },
            id="testPoorRoundRobinAssignmentScenario",
        ),
        case(
            {"t1": 6, "t2": 7, "t3": 2},
            {"consumer0": ALL, "consumer1": ALL, "consumer2": ALL},
            {
                "consumer0": "t1-0 t1-3 t2-0 t2-3 t2-6",
                "consumer1": "t1-1 t1-4 t2-1 t2-4 t3-0",
                "consumer2": "t1-2 t1-5 t2-2 t2-5 t3-1",
            },
            id="testRackAwareAssignmentWithUniformSubscription-no-racks",
        ),
    ],
)
def test_sticky(assignor, counts, members, expected):
    """Source: Kafka 4.3 AbstractStickyAssignorTest, StickyAssignorTest."""
    assert assigned(assignor, counts, members) == expected


def test_sticky_with_unequal_subscriptions_and_no_racks():
    """Source: Kafka 4.3 AbstractStickyAssignorTest.testRackAwareAssignmentWithNonEqualSubscription."""
    members = a_group({"consumer0": ALL, "consumer1": ALL, "consumer2": "t1 t3"})
    result = ASSIGNORS["sticky"].assign({"t1": 6, "t2": 7, "t3": 2}, members)
    assert [sorted(result[member]) for member in sorted(result)] == [
        partitions("t1-5 t2-0 t2-2 t2-4 t2-6"),
        partitions("t1-3 t2-1 t2-3 t2-5 t3-0"),
        partitions("t1-0 t1-1 t1-2 t1-4 t3-1"),
    ]


@pytest.mark.parametrize(
    ("counts", "subscriptions", "owned", "expected"),
    [
        pytest.param(
            {"t0": 4},
            {"c37": "t0", "c52": "t0", "c55": "t0"},
            {"c37": "t0-1 t0-2", "c52": "t0-0 t0-3"},
            {"c37": "t0-1", "c52": "t0-0 t0-3", "c55": "t0-2"},
            id="who may keep one more is the first by its hash",
        ),
        pytest.param(
            {"t0": 4, "t1": 4},
            {"c11": "t0 t1", "c58": "t1", "c8": "t0 t1"},
            {"c11": "t0-2 t0-3 t1-0 t1-1 t1-2 t1-3"},
            {"c11": "t1-2 t1-3 t0-3", "c58": "t1-0 t1-1", "c8": "t0-0 t0-1 t0-2"},
            id="of a topic, one returns rather than that one moves against another; which, its hash says",
        ),
        pytest.param(
            {"t0": 1, "t1": 4},
            {"c14": "t1", "c23": "t0 t1", "c59": "t0"},
            {"c14": "t1-0 t1-3"},
            {"c14": "t1-0 t1-3", "c23": "t1-1 t1-2", "c59": "t0-0"},
            id="what nobody had moves first",
        ),
        pytest.param(
            {"t0": 3, "t1": 2, "t2": 3},
            {"c1": "t0 t2", "c10": "t1 t2", "c36": "t0 t1"},
            {"c1": "t0-0 t0-2 t1-1 t2-2", "c10": "t1-0", "c36": "t2-1"},
            {"c1": "t0-2 t2-2 t2-1", "c10": "t1-0 t1-1 t2-0", "c36": "t0-1 t0-0"},
            id="but not where a member has lost a topic",
        ),
    ],
)
def test_sticky_in_small_print(counts, subscriptions, owned, expected):
    """Source: a run of kafka-clients 4.3.1, ``AbstractStickyAssignor.assign``; all owned in one generation."""
    assert assigned(ASSIGNORS["sticky"], counts, a_group(subscriptions, owned=owned)) == expected


@both_sticky
def test_members_come_and_go(assignor):
    """Source: Kafka 4.3 AbstractStickyAssignorTest.testAddRemoveConsumerOneTopic and …TwoConsumersTwoTopics."""
    one = rebalanced(assignor, {"topic": 3}, {"consumer1": "topic"}, {})
    two = rebalanced(assignor, {"topic": 3}, {"consumer1": "topic", "consumer2": "topic"}, one)
    assert two == {"consumer1": partitions("topic-0 topic-1"), "consumer2": partitions("topic-2")}
    left = rebalanced(assignor, {"topic": 3}, {"consumer2": "topic"}, two)
    assert left == {"consumer2": partitions("topic-2 topic-0 topic-1")}

    counts = {"topic1": 3, "topic2": 4}
    two = rebalanced(assignor, counts, {"consumer1": BOTH, "consumer2": BOTH}, {})
    assert two["consumer1"] == partitions("topic1-0 topic1-2 topic2-1 topic2-3")
    assert two["consumer2"] == partitions("topic1-1 topic2-0 topic2-2")
    four = rebalanced(assignor, counts, {f"consumer{number}": BOTH for number in (1, 2, 3, 4)}, two)
    assert four == {
        "consumer1": partitions("topic1-0 topic2-1"),
        "consumer2": partitions("topic2-0 topic1-1"),
        "consumer3": partitions("topic1-2 topic2-3"),
        "consumer4": partitions("topic2-2"),
    }
    left = rebalanced(assignor, counts, {"consumer3": BOTH, "consumer4": BOTH}, four)
    assert left["consumer3"] == partitions("topic1-2 topic2-3 topic1-0 topic2-1")
    assert left["consumer4"] == partitions("topic2-2 topic1-1 topic2-0")


def test_each_topic_stays_even_too():
    """Source: Kafka 4.3 AbstractStickyAssignorTest.testTopicBalanceAfterReassignment."""
    had: dict[str, list[TopicPartition]] = {}
    for numbers, each in (((1,), 12), ((1, 2), 6), ((1, 2, 3, 4), 3), ((3, 4), 6)):
        group = {f"consumer{number}": BOTH for number in numbers}
        had = rebalanced(ASSIGNORS["sticky"], {"topic1": 12, "topic2": 12}, group, had)
        for mine in had.values():
            assert [sum(topic == name for topic, _ in mine) for name in ("topic1", "topic2")] == [each, each]


def test_topics_come_and_go():
    """Source: Kafka 4.3 AbstractStickyAssignorTest.testAddRemoveTopicTwoConsumers, testNoException…TopicDeleted."""
    sticky = ASSIGNORS["sticky"]
    one = rebalanced(sticky, {"topic": 3}, {"consumer1": "topic", "consumer2": "topic"}, {})
    two = rebalanced(sticky, {"topic": 3, "topic2": 3}, dict.fromkeys(("consumer1", "consumer2"), "topic topic2"), one)
    assert [len(two["consumer1"]), len(two["consumer2"])] == [3, 3]
    assert all(set(one[member]) <= set(two[member]) for member in one)
    left = rebalanced(sticky, {"topic2": 3}, {"consumer1": "topic2", "consumer2": "topic2"}, two)
    assert sorted(len(mine) for mine in left.values()) == [1, 2]
    assert all(set(left[member]) <= set(two[member]) for member in left)
    assert rebalanced(sticky, {}, {"consumer1": "topic2", "consumer2": "topic2"}, left) == {
        "consumer1": [],
        "consumer2": [],
    }


def test_a_few_subscriptions_that_are_all_different():
    """Source: Kafka 4.3 AbstractStickyAssignorTest.testReassignment…OneConsumerLeaves, testMoveExistingAssignments."""
    counts = {f"topic{number:02}": number for number in range(1, 20)}
    topics = sorted(counts)
    group = {f"consumer{number:02}": " ".join(topics[:number]) for number in range(1, 20)}
    had = rebalanced(ASSIGNORS["sticky"], counts, group, {})
    assert_as_even_as_can_be(a_group(group), had)
    del group["consumer10"]
    assert_as_even_as_can_be(a_group(group), rebalanced(ASSIGNORS["sticky"], counts, group, had))

    group = {
        "consumer1": "topic1 topic2",
        "consumer2": "topic1 topic2 topic3 topic4",
        "consumer3": "topic2 topic3 topic4 topic5 topic6",
    }
    had = {
        "consumer1": partitions("topic1-0"),
        "consumer2": partitions("topic2-0 topic3-0"),
        "consumer3": partitions("topic4-0 topic5-0 topic6-0"),
    }
    result = rebalanced(ASSIGNORS["sticky"], {f"topic{number}": 1 for number in range(1, 7)}, group, had)
    assert_as_even_as_can_be(a_group(group), result)


def rebalanced(
    assignor: Assignor,
    counts: Mapping[str, int],
    subscriptions: Mapping[str, str],
    had: Mapping[str, Iterable[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    members = a_group(subscriptions, owned=had)
    result = assignor.assign(counts, members)
    check_assignment(assignor, counts, members, result)
    return result


def assert_as_even_as_can_be(members: Members, result: Mapping[str, list[TopicPartition]]) -> None:
    """No partition could go to a member that has two fewer. Source: Kafka's verifyValidityAndBalance."""
    for its in result.values():
        for other in members:
            if len(its) > len(result[other]) + 1:
                assert {topic for topic, _ in its}.isdisjoint(members[other].topics)


# --- what holds for any group ---


def groups(*, equal: bool | None = None, messy: bool = True, size: int = 6) -> st.SearchStrategy[tuple[Any, Members]]:
    """Partition counts and members. ``messy``: they own anything, also what doesn't exist or another owns, too."""
    topics = [f"t{number}" for number in range(size // 2 + 1)]
    names = st.integers(0, 60).map("c{}".format)
    wanted = st.lists(st.sampled_from(topics), unique=True).map(lambda some: tuple(sorted(some)))
    anything = st.builds(TopicPartition, st.sampled_from(topics), st.integers(0, size))
    owned = st.frozensets(anything, max_size=2 * size) if messy else st.just(frozenset[TopicPartition]())

    @st.composite
    def group(draw: st.DrawFn) -> tuple[Any, Members]:
        counts = draw(st.dictionaries(st.sampled_from(topics[:-1]), st.integers(0, size + 2)))  # the last doesn't exist
        all_want = draw(wanted) if equal or (equal is None and draw(st.booleans())) else None
        members = {
            name: MemberSubscription(
                topics=draw(wanted) if all_want is None else all_want,
                instance_id=draw(st.none() | st.just(f"i{name}")),
                owned=draw(owned),
            )
            for name in draw(st.lists(names, unique=True, min_size=1, max_size=size))
        }
        return counts, members

    return group()


few = settings(max_examples=40)
many = settings(max_examples=by_depth(gate=30, nightly=500))


def keeps_the_rules(group: tuple[Any, Members]) -> None:
    """Each partition to one subscriber; the same whatever the order; as even as the assignor promises."""
    counts, members = group
    backwards = dict(reversed(members.items()))
    for assignor in ASSIGNORS.values():
        result = assignor.assign(counts, members)
        check_assignment(assignor, counts, members, result)
        assert assignor.assign(dict(reversed(counts.items())), backwards) == result
        if len({member.topics for member in members.values()}) == 1:
            for topic in counts if assignor.name == "range" else [None]:
                sizes = [sum(topic in (None, each.topic) for each in its) for its in result.values()]
                assert max(sizes) <= min(sizes) + 1


def moves_no_more_than_it_must(group: tuple[Any, Members]) -> None:
    """All subscribe to the same: members join, leave and rejoin; no even assignment would let them keep more."""
    counts, members = group
    names = sorted(members)
    for now in (names, names[::2], names, names[:1], names[1:] or names, names):
        had = {name: set(members[name].owned) for name in now}
        members = {
            name: MemberSubscription(topics=members[name].topics, owned=frozenset(had.get(name, ()))) for name in names
        }
        result = STICKY[0].assign(counts, {name: members[name] for name in now})
        fewest, one_more = divmod(sum(map(len, result.values())), len(now))
        could_keep = sum(min(len(owned), fewest) for owned in had.values())
        could_keep += min(one_more, sum(len(owned) > fewest for owned in had.values()))
        assert sum(len(had[name].intersection(result[name])) for name in now) == could_keep
        members |= {
            name: MemberSubscription(topics=members[name].topics, owned=frozenset(result.get(name, ())))
            for name in names
        }


def stays_as_it_is(group: tuple[Any, Members]) -> None:
    """Nothing moves where nothing has changed; what was given out afresh was as even as can be."""
    counts, members = group
    for assignor in STICKY:
        first = assignor.assign(counts, members)
        assert_as_even_as_can_be(members, first)
        again = {
            name: MemberSubscription(topics=member.topics, owned=frozenset(first[name]))
            for name, member in members.items()
        }
        second = assignor.assign(counts, again)
        assert {name: set(its) for name, its in second.items()} == {name: set(its) for name, its in first.items()}


@pytest.mark.slow
@few
@given(groups())
def test_the_rules_are_kept(group):
    keeps_the_rules(group)


@pytest.mark.slow
@few
@given(groups(equal=True, messy=False))
def test_sticky_moves_no_more_than_it_must(group):
    moves_no_more_than_it_must(group)


@pytest.mark.slow
@few
@given(groups(messy=False))
def test_sticky_leaves_everything_where_nothing_has_changed(group):
    stays_as_it_is(group)


@pytest.mark.slow
@many
@given(groups(size=16), groups(equal=True, messy=False, size=16), groups(messy=False, size=16))
def test_the_same_for_larger_groups(any_group, equal_group, fresh_group):
    keeps_the_rules(any_group)
    moves_no_more_than_it_must(equal_group)
    stays_as_it_is(fresh_group)


@both_sticky
def test_only_what_the_leaver_had_moves(assignor):
    group = {f"c{number}": "t1 t2" for number in range(5)}
    had = rebalanced(assignor, {"t1": 7, "t2": 9}, group, {})
    del group["c2"]
    result = rebalanced(assignor, {"t1": 7, "t2": 9}, group, had)
    assert all(set(had[member]) <= set(result[member]) for member in group)


# --- names, and assignors of users ---


class MineAssignor(RangeAssignor):
    name = "mine"


class NeedsAnArgument(RangeAssignor):
    def __init__(self, weight: int) -> None:
        self.weight = weight


class Nameless(Assignor):
    def assign(self, partition_counts, members):
        return {}


class AbstractAssignor(RangeAssignor):
    @abstractmethod
    def more(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("range", "range"),
        ("roundrobin", "roundrobin"),
        ("sticky", "sticky"),
        ("cooperative-sticky", "cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
        ("org.apache.kafka.clients.consumer.StickyAssignor", "sticky"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        (CooperativeStickyAssignor, "cooperative-sticky"),
        (CooperativeStickyAssignor(), "cooperative-sticky"),
        (MineAssignor, "mine"),
        (MineAssignor(), "mine"),
        (NeedsAnArgument(3), "range"),
    ],
)
def test_an_assignor_is_found_by_what_users_write(value, name):
    assert assignor_of(value).name == name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Range", "expected one of range, roundrobin, sticky, cooperative-sticky"),
        ("org.example.RangeAssignor", "expected one of range"),
        ("", "expected one of range"),
        (None, "expected one of range"),
        (3, "expected one of range"),
        (["range"], "expected one of range"),
        (dict, "expected one of range"),
        (AbstractAssignor, "expected one of range"),
        (NeedsAnArgument, "expected an instance"),
        (Nameless, "expected a string that is not empty"),
        (Nameless(), "expected a string that is not empty"),
    ],
)
def test_anything_else_is_no_assignor(value, expected):
    with pytest.raises(ValueError, match=expected):
        assignor_of(value)


def test_cooperative_sticky_alone_is_cooperative():
    """Source: Kafka ``ConsumerPartitionAssignor.supportedProtocols``."""
    assert [name for name, assignor in ASSIGNORS.items() if assignor.is_cooperative] == ["cooperative-sticky"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"c1": "t-0"}, "member 'c2' is left out"),
        ({"c1": "t-0", "c2": "t-1", "c3": ""}, "member 'c3' is none of the group's"),
        ({"c1": "t-0", "c2": "u-0"}, "partition t-1 is given to nobody"),
        ({"c1": "t-0 t-1", "c2": "t-1 u-0"}, "partition t-1 is given to 'c2' and to 'c1'"),
        ({"c1": "t-0 t-1 t-1", "c2": "u-0"}, "partition t-1 is given to 'c1' and to 'c1'"),
        ({"c1": "t-0 u-0", "c2": "t-1"}, "partition u-0 is given to 'c1', which doesn't subscribe"),
        ({"c1": "t-0 t-1 t-2", "c2": "u-0"}, "partition t-2 is given to 'c1', but doesn't exist"),
        ({"c1": "t-0 t-1 gone-0", "c2": "u-0"}, "partition gone-0 is given to 'c1', but doesn't exist"),
    ],
)
def test_what_an_assignor_may_not_give_is_refused(result, problem):
    members = a_group({"c1": "t gone", "c2": "t u"})
    given_out = {member: partitions(text) for member, text in result.items()}
    with pytest.raises(InvalidArgumentError, match=f"^assignor 'mine': {problem}"):
        check_assignment(MineAssignor(), {"t": 2, "u": 1, "unwanted": 3}, members, given_out)


def test_what_is_negative_or_no_member_is_refused_too():
    members = a_group({"c1": "t"})
    with pytest.raises(InvalidArgumentError, match="t--1 is given to 'c1', but doesn't exist"):
        check_assignment(MineAssignor(), {"t": 1}, members, {"c1": [TopicPartition("t", 0), TopicPartition("t", -1)]})


@every_assignor
def test_no_members_no_assignments(assignor):
    assert assignor.assign({"t": 3}, {}) == {}


@every_assignor
def test_a_member_that_wants_nothing_gets_nothing(assignor):
    """Kafka's sticky assignors give it partitions where it comes first; see ``allSubscriptionsEqual``."""
    assert assigned(assignor, {"t": 2}, a_group({"a": "", "b": "t"})) == {"a": "", "b": "t-0 t-1"}


@both_sticky
def test_what_nobody_can_own_any_more_is_forgotten(assignor):
    """The topic was deleted and created again with fewer partitions."""
    members = a_group({"c1": "t", "c2": "t"}, owned={"c1": "t-1 t-2 t-3", "c2": "t-0 old-0"})
    assert assigned(assignor, {"t": 2}, members) == {"c1": "t-1", "c2": "t-0"}
