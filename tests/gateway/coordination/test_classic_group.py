"""The state machine of a classic group: time, votes, leaders, and members that come back."""

from __future__ import annotations

import asyncio

import pytest

from sparklog import TopicPartition
from sparklog.gateway.coordination.classic_group import ClassicGroup, ClassicState
from sparklog.gateway.coordination.classic_members import JoinRequest
from sparklog.gateway.coordination.consumer_protocol import encode_assignment, encode_subscription, subscribed_topics
from sparklog.gateway.error_codes import ErrorCode


def a_request(member_id="", **settings):
    said = encode_subscription(["jobs"])
    names = settings.pop("names", ("range",))
    given = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "client",
        "client_host": "/host",
        "session_timeout_ms": 1_000,
        "rebalance_timeout_ms": 5_000,
        "protocol_type": "consumer",
        "protocols": tuple((name, said) for name in names),
        "needs_member_id": False,
        "may_skip_assignment": False,
        **settings,
    }
    return JoinRequest(**given)


class Settling:
    """Takes partitions, as long as it is told to."""

    def __init__(self):
        self.code = ErrorCode.NONE
        self.topics = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, topics):
        self.topics.append(topics)
        await self.may_end.wait()
        return self.code


def a_group(settling=None, initial_delay_ms=0):
    return ClassicGroup(
        "g", generation=10, settle=settling or Settling(), initial_delay_ms=initial_delay_ms, max_size=3
    )


async def started(awaitable):
    """A task that has come to its first wait."""
    task = asyncio.ensure_future(awaitable)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def sync(group, joined, assignments=None, instance_id=None):
    return await group.sync(
        member_id=joined["member_id"],
        instance_id=instance_id,
        generation=joined["generation_id"],
        protocol_type=None,
        protocol=None,
        assignments=assignments or {},
    )


async def two_members(group, **settings):
    """A stable group of two."""
    first = await group.join(a_request(**settings))
    await sync(group, first, {first["member_id"]: b"all"})
    waiting = await started(group.join(a_request(**settings)))
    first = await group.join(a_request(first["member_id"], **settings))
    second = await waiting
    other = await started(sync(group, second))
    given = {first["member_id"]: b"one", second["member_id"]: b"two"}
    assert (await sync(group, first, given))["assignment"] == b"one"
    assert (await other)["assignment"] == b"two"
    return first, second


def played(test):
    """A test that runs in an event loop of its own."""

    def run():
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@played
async def test_the_assignor_that_most_like_best_is_chosen():
    group = a_group()
    first = await started(group.join(a_request(names=("a", "b"))))
    waiting = [await started(group.join(a_request(names=("b", "a")))) for _ in range(2)]
    again = await group.join(a_request((await first)["member_id"], names=("a", "b")))
    assert again["protocol_name"] == "b"
    assert {(await one)["generation_id"] for one in waiting} == {again["generation_id"]}


@played
async def test_a_silent_member_is_out_and_a_waiting_one_is_not():
    group = a_group()
    first, second = await two_members(group)
    group.tick(900)
    assert group.heartbeat(first["member_id"], None, first["generation_id"]) is ErrorCode.NONE
    group.tick(900)
    assert [*group.members] == [first["member_id"]]
    assert group.heartbeat(second["member_id"], None, second["generation_id"]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(first["member_id"], None, first["generation_id"]) is ErrorCode.REBALANCE_IN_PROGRESS
    group.tick(900)
    assert (await group.join(a_request(first["member_id"])))["leader"] == first["member_id"]


@played
async def test_a_rebalance_goes_on_without_who_does_not_join_in_time():
    group = a_group()
    first, second = await two_members(group, rebalance_timeout_ms=500)
    waiting = await started(group.join(a_request(second["member_id"], names=("x", "range"), rebalance_timeout_ms=500)))
    group.tick(400)
    assert not waiting.done()
    group.tick(200)
    told = await waiting
    assert (told["leader"], len(told["members"])) == (second["member_id"], 1)
    assert group.heartbeat(first["member_id"], None, first["generation_id"]) is ErrorCode.UNKNOWN_MEMBER_ID


@played
async def test_a_member_that_takes_no_assignment_is_out():
    group = a_group()
    first, second = await two_members(group, rebalance_timeout_ms=500)
    waiting = await started(group.join(a_request(second["member_id"], names=("x", "range"), rebalance_timeout_ms=500)))
    again = await group.join(a_request(first["member_id"], rebalance_timeout_ms=500))
    await waiting
    leading = await started(sync(group, again, {}))
    assert (await leading)["assignment"] == b""
    assert group.state is ClassicState.STABLE
    one = await started(group.join(a_request(first["member_id"], names=("x", "range"), rebalance_timeout_ms=500)))
    other = await group.join(a_request(second["member_id"], rebalance_timeout_ms=500))
    await one
    follower = await started(sync(group, other))
    group.tick(600)  # the leader says nothing
    assert (await follower)["error_code"] is ErrorCode.REBALANCE_IN_PROGRESS
    assert [*group.members] == [second["member_id"]]


@played
async def test_a_member_id_that_is_not_used_is_forgotten():
    group = a_group()
    told = await group.join(a_request(needs_member_id=True))
    assert told["error_code"] is ErrorCode.MEMBER_ID_REQUIRED
    assert not group.is_unused
    group.tick(1_100)
    assert group.is_unused
    again = await group.join(a_request(told["member_id"], needs_member_id=True))
    assert again["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID


@played
async def test_a_member_id_that_is_not_used_holds_a_rebalance_for_a_second():
    group = a_group()
    told = await group.join(a_request(needs_member_id=True, session_timeout_ms=60_000))
    first = await started(group.join(a_request(session_timeout_ms=60_000)))
    group.tick(900)
    assert not first.done()
    group.tick(100)
    assert (await first)["generation_id"] == 11
    late = await started(group.join(a_request(told["member_id"], needs_member_id=True)))
    again = await group.join(a_request((await first)["member_id"], session_timeout_ms=60_000))
    assert again["generation_id"] == (await late)["generation_id"] == 12


@played
async def test_a_new_member_whose_connection_ends_is_out():
    group = a_group()
    first = await group.join(a_request())
    await sync(group, first)
    end = asyncio.get_running_loop().create_future()
    gone = await started(group.join(a_request(), end))
    assert len(group.members) == 2
    end.set_result(None)
    assert (await gone)["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID
    assert [*group.members] == [first["member_id"]]
    assert (await group.join(a_request(first["member_id"])))["generation_id"] == 12


@played
async def test_other_members_whose_connections_end_stay_until_their_sessions_end():
    end = asyncio.get_running_loop().create_future()
    end.set_result(None)
    for is_static in (False, True):
        group = a_group()
        _, second = await two_members(group)
        known = {"instance_id": "i"} if is_static else {"member_id": second["member_id"], "names": ("range", "sticky")}
        gone = await started(group.join(a_request(**known), end))
        assert (gone.done(), len(group.members)) == (False, 3 if is_static else 2)
        gone.cancel()


@played
async def test_the_first_member_waits_for_others():
    group = a_group(initial_delay_ms=50)
    first = await started(group.join(a_request()))
    second = await started(group.join(a_request()))
    assert {(await one)["generation_id"] for one in (first, second)} == {11}


@played
async def test_an_assignment_that_could_not_be_made_is_told_and_made_again():
    settling = Settling()
    group = a_group(settling)
    settling.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first = await group.join(a_request())
    assert (await sync(group, first))["error_code"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    settling.code = ErrorCode.NONE
    again = await group.join(a_request(first["member_id"]))
    assert (await sync(group, again, {first["member_id"]: b"all"}))["assignment"] == b"all"
    assert settling.topics == [{"jobs"}, {"jobs"}]


@played
async def test_an_assignment_of_an_older_generation_is_dropped():
    settling = Settling()
    group = a_group(settling)
    settling.may_end.clear()
    first = await group.join(a_request())
    old = await started(sync(group, first, {first["member_id"]: b"old"}))
    waiting = await started(group.join(a_request()))
    assert (await old)["error_code"] is ErrorCode.REBALANCE_IN_PROGRESS
    again = await group.join(a_request(first["member_id"]))
    await waiting
    new = await started(sync(group, again, {first["member_id"]: b"new"}))
    settling.may_end.set()
    assert (await new)["assignment"] == b"new"
    assert len(settling.topics) == 2


@played
async def test_a_static_member_with_another_subscription_makes_a_rebalance():
    group = a_group()
    first = await group.join(a_request(instance_id="one"))
    await sync(group, first, {first["member_id"]: b"all"}, "one")
    again = await group.join(a_request(instance_id="one", names=("range", "x")))
    assert (again["generation_id"], again["leader"]) == (first["generation_id"], first["member_id"])
    assert again["members"] == []  # an older client that leads isn't to assign
    other = await group.join(a_request(instance_id="one", names=("x",)))
    assert other["generation_id"] == first["generation_id"] + 1


@played
async def test_static_members_that_are_away_stay_until_their_sessions_end():
    group = a_group()
    first = await group.join(a_request(instance_id="one", rebalance_timeout_ms=100))
    await sync(group, first, {}, "one")
    waiting = await started(group.join(a_request(rebalance_timeout_ms=100)))
    group.tick(200)
    assert len((await waiting)["members"]) == 2
    group.tick(900)
    assert first["member_id"] not in group.members


@played
async def test_all_that_wait_are_told_that_another_coordinates():
    group = a_group()
    first = await group.join(a_request())
    waiting = await started(group.join(a_request()))
    group.end(ErrorCode.NOT_COORDINATOR)
    assert (await waiting)["error_code"] is ErrorCode.NOT_COORDINATOR
    assert group.is_unused
    assert group.heartbeat(first["member_id"], None, first["generation_id"]) is ErrorCode.UNKNOWN_MEMBER_ID


@played
async def test_the_last_one_leaves_an_empty_group():
    group = a_group()
    first = await group.join(a_request())
    assert group.leave("stranger", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave("", "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave(first["member_id"], None) is ErrorCode.NONE
    assert (group.state, group.is_unused, group.leader) == (ClassicState.EMPTY, True, "")


@played
async def test_a_full_group_takes_nobody_more():
    group = a_group(initial_delay_ms=10_000)
    waiting = [await started(group.join(a_request())) for _ in range(3)]
    assert (await group.join(a_request()))["error_code"] is ErrorCode.GROUP_MAX_SIZE_REACHED
    group.end(ErrorCode.NOT_COORDINATOR)
    assert {(await one)["error_code"] for one in waiting} == {ErrorCode.NOT_COORDINATOR}


def test_subscriptions_are_read_back():
    assert subscribed_topics(encode_subscription(["b", "a"])) == {"a", "b"}
    assert encode_assignment([TopicPartition("t", 1), TopicPartition("t", 0)]).hex() == (
        "000000000001000174000000020000000000000001ffffffff"
    )


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\5ab", b"\0\0\0\0\0\1\0\1\xff"])
def test_a_subscription_that_is_none_is_an_error(data):
    with pytest.raises(ValueError, match=r"."):
        subscribed_topics(data)
