"""Where a group begins and goes on: reset policies, what was committed, partitions and topics that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sparklog.admin import Admin
from sparklog.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_partitions, create_topic, delete_records, delete_topic
from sparklog.model import OffsetAndMetadata
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore
from tests.consumer.group_support import FAST, Member, Outage, joined, run
from tests.consumer.support import a_cluster, a_consumer, send, take, text, tp, until, with_topic


def a_topic(*batches: str, partitions: int = 1) -> Cluster:
    return with_topic(a_cluster(), *batches, partitions=partitions)


def commit(cluster: Cluster, offset: int, partition: int = 0) -> None:
    """As an administrator of an empty group."""
    with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({tp(partition): OffsetAndMetadata(offset)})


# Nothing committed


@pytest.mark.parametrize(("policy", "found"), [("earliest", "abcd"), ("latest", "cd"), ("by_duration:PT1H", "abcd")])
def test_where_nothing_is_committed_the_policy_decides(policy: str, found: str):
    cluster = a_topic("ab")
    with Member(cluster, "t", auto_offset_reset=policy) as member:
        run(lambda: member.numbers, member)
        assert member.consumer.position(tp()) in ((0, 2) if "a" in found else (2,))
        send(cluster, "cd")
        run(lambda: member.text == found, member)


def test_the_policy_none_leaves_it_to_the_application():
    with Member(a_topic("abc"), "t", auto_offset_reset="none") as member:
        with pytest.raises(NoOffsetForPartitionError) as caught:
            run(lambda: member.seen, member)
        assert caught.value.topic_partition == tp()
        member.consumer.seek(tp(), 1)
        run(lambda: member.text == "bc", member)


def test_with_latest_a_successor_passes_over_nothing_once_a_position_was_committed():
    """Source: Kafka: a position that ``latest`` found is committed with the others, though nothing was read."""
    cluster = a_topic("ab")
    with Member(cluster, "t", auto_offset_reset="latest") as first:
        run(lambda: first.numbers, first)
        first.consumer.position(tp())
    send(cluster, "cd")
    with Member(cluster, "t", auto_offset_reset="latest") as second:
        run(lambda: second.text == "cd", second)


# Out of range


@pytest.mark.parametrize(("policy", "start"), [("earliest", 4), ("latest", 6)])
def test_a_committed_offset_that_was_deleted_is_reset_by_the_policy(policy: str, start: int):
    cluster = a_topic("abcdef")
    commit(cluster, 2)
    delete_records(cluster.topic_log("t"), "t", {0: 4})
    with Member(cluster, "t", auto_offset_reset=policy) as member:
        run(lambda: member.numbers, member)
        until(lambda: member.poll() >= 0 and member.consumer.position(tp()) >= start)
        send(cluster, "g")
        run(lambda: "g" in member.text, member)
        assert member.seen[0].offset == start


@pytest.mark.parametrize("offset", [1, 9])
def test_a_committed_offset_outside_of_the_log_is_raised_without_a_policy(offset: int):
    cluster = a_topic("abcd")
    commit(cluster, offset)
    delete_records(cluster.topic_log("t"), "t", {0: 2})
    with Member(cluster, "t", auto_offset_reset="none") as member:
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} of t-0 .* log start 2, log end 4"):
            run(lambda: member.seen, member)
        member.consumer.seek(tp(), 3)
        run(lambda: member.text == "d", member)


def test_records_that_are_deleted_while_the_group_is_away_do_not_come_back():
    cluster = a_topic("abcd")
    with Member(cluster, "t", max_poll_records=1) as member:
        run(lambda: member.text == "a", member)
    delete_records(cluster.topic_log("t"), "t", {0: 3})
    with Member(cluster, "t") as member:
        run(lambda: member.text == "d", member)


# Partitions and topics that come and go


@pytest.mark.parametrize("count", [1, 2])
def test_partitions_that_come_later_are_read_from_their_beginning_even_with_latest(count: int):
    cluster = a_topic("before", partitions=2)
    members = [Member(cluster, "t", auto_offset_reset="latest") for _ in range(count)]
    joined(*members, count=2)
    for member in members:
        member.consumer.position(tp(member.numbers[0]))
    create_partitions(cluster.topic_log("t"), "t", 4)
    send(cluster, "xy", partition=2)
    send(cluster, "zz", partition=3)
    run(lambda: sorted("".join(member.text for member in members)) == [*"xyzz"], *members)
    for member in members:
        member.close()


def test_partitions_that_came_while_nobody_was_there_are_read_from_their_beginning():
    cluster = a_topic("ab")
    with Member(cluster, "t", auto_offset_reset="latest") as first:
        run(lambda: first.numbers, first)
        first.consumer.position(tp())
        create_partitions(cluster.topic_log("t"), "t", 2)
        send(cluster, "x", partition=1)
        run(lambda: first.text == "x", first)
        with Member(cluster, "t", auto_offset_reset="latest") as second:
            joined(first, second, count=2)
            send(cluster, "c")
            send(cluster, "y", partition=1)
            run(lambda: sorted(first.text + second.text) == [*"cxy"], first, second)


def lived(cluster: Cluster, *topics: str, commits: bool = True, expected: str = "") -> None:
    """A group's only member comes, reads what is expected, and leaves."""
    with Member(cluster, *topics, auto_offset_reset="latest", enable_auto_commit=commits) as member:
        joined(member, count=sum(cluster_partitions(cluster, topic) for topic in topics))
        for topic, number in sorted(member.consumer.assignment()):
            member.consumer.position(tp(number, topic))
        run(lambda: len(member.text) >= len(expected), member)
        assert sorted(member.text) == sorted(expected)


def cluster_partitions(cluster: Cluster, topic: str) -> int:
    (described,) = Admin(cluster).describe_topics([topic])
    return described.partition_count


def grown(cluster: Cluster, count: int, topic: str = "t") -> None:
    create_partitions(cluster.topic_log(topic), topic, count)


def test_a_group_that_was_down_reads_younger_partitions_from_their_beginning():
    cluster = a_topic("ab")
    lived(cluster, "t")
    grown(cluster, 3)
    send(cluster, "cd")
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="cdxy")
    send(cluster, "ef")
    send(cluster, "z", partition=2)
    grown(cluster, 4)
    send(cluster, "w", partition=3)
    lived(cluster, "t", expected="efzw")


def test_partitions_that_stayed_empty_are_read_from_their_beginning_later():
    cluster = a_topic("ab")
    lived(cluster, "t")
    grown(cluster, 2)
    with Member(cluster, "t", auto_offset_reset="latest", enable_auto_commit=False) as member:
        joined(member, count=2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="xy")


def test_a_group_that_had_committed_nothing_begins_anew_by_its_policy():
    cluster = a_topic("ab")
    lived(cluster, "t", commits=False)
    grown(cluster, 2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="")


def test_a_group_that_was_deleted_begins_anew_by_its_policy():
    cluster = a_topic("ab")
    lived(cluster, "t")
    Admin(cluster).delete_groups(["g"])
    grown(cluster, 2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="")


def test_what_an_administrator_committed_meanwhile_counts_as_the_groups():
    cluster = a_topic("ab")
    lived(cluster, "t")
    commit(cluster, 1)
    grown(cluster, 2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="bxy")


def test_a_topic_that_a_group_comes_back_to_is_known_by_what_it_committed():
    cluster = with_topic(with_topic(a_cluster(), "ab"), "cd", topic="u")
    lived(cluster, "t", "u")
    lived(cluster, "u")  # the members of t were away
    grown(cluster, 2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", "u", expected="xy")


def test_a_topic_that_was_made_again_meanwhile_is_another():
    cluster = a_topic("ab")
    lived(cluster, "t")
    delete_topic(cluster.topic_log("t"), "t")
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    send(cluster, "xy", partition=1)
    lived(cluster, "t", expected="")


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_topic_that_is_made_again_is_read_from_its_beginning(policy: str):
    cluster = a_topic("abcd")
    log = cluster.topic_log("t")
    with Member(cluster, "t", auto_offset_reset=policy) as member:
        run(lambda: member.numbers, member)
        member.consumer.position(tp())
        send(cluster, "e")
        run(lambda: "e" in member.text, member)
        delete_topic(log, "t")
        create_topic(log, "t", num_partitions=2)
        send(cluster, "vw")
        send(cluster, "xy", partition=1)
        run(lambda: "vw" in member.text and "xy" in member.text, member)
        member.consumer.commit()
        assert [member.consumer.committed(tp(number)) for number in (0, 1)] == [2, 2]


@pytest.mark.parametrize("count", [1, 2])
def test_a_topic_that_is_deleted_leaves_the_group_and_no_poll_raises_anything(count: int):
    """✗ Its partitions stay assigned, and nearly every poll raises that there is no such topic, for ever."""
    cluster = with_topic(a_topic("ab"), "xy", topic="u", partitions=2)
    members = [Member(cluster, "t", "u") for _ in range(count)]
    joined(*members, count=3)
    run(lambda: sorted("".join(member.text for member in members)) == [*"abxy"], *members)
    for member in members:
        member.listener.calls.clear()
    delete_topic(cluster.topic_log("u"), "u")
    run(lambda: {p for member in members for p in member.consumer.assignment()} == {tp()}, *members)
    told = [call for member in members for call in member.listener.calls]
    assert {event for event, _ in told} == {"revoked"}
    assert sorted(number for _, numbers in told for number in numbers) == [0, 1]
    send(cluster, "c")
    run(lambda: any("c" in member.text for member in members), *members)
    with_topic(cluster, "z", topic="u")
    run(lambda: any("z" in member.text for member in members), *members)
    for member in members:
        member.close()


def test_a_topic_the_fetcher_does_not_find_is_left_alone_until_the_group_has_decided():
    """✗ What isn't raised is looked for again and again within one poll: thousands of requests."""
    store = CountingStore(MemoryStore())
    cluster = with_topic(with_topic(a_cluster(store), "ab"), "xy", topic="u")
    with Member(cluster, "t", "u", heartbeat_interval_ms=1_900) as member:
        run(lambda: sorted(member.text) == [*"abxy"], member)
        coordinator = member.consumer._runtime.coordinator
        assert coordinator is not None
        with coordinator._member.membership.lock:  # no round ends meanwhile
            delete_topic(cluster.topic_log("u"), "u")
            store.reset()
            member.poll(200)
        assert sum(store.counts().values()) < 100, store.counts()


def until_read(member: Member, *texts: str) -> None:
    """Until it has read all of these; that a topic is missing for a while is passed over."""

    def is_read() -> bool:
        with suppress(UnknownTopicOrPartitionError):
            member.poll()
        return all(each in member.text for each in texts)

    until(is_read)


def test_an_offset_of_a_topic_that_is_gone_is_none_of_its_namesakes():
    cluster = a_topic("abcd", partitions=2)
    with Member(cluster, "t") as member:
        run(lambda: member.text == "abcd", member)
    delete_topic(cluster.topic_log("t"), "t")
    create_topic(cluster.topic_log("t"), "t")
    send(cluster, "vwxyz")
    with Member(cluster, "t") as member:
        run(lambda: member.text == "vwxyz", member)


def test_what_was_committed_for_a_topic_that_is_gone_is_not_told_of_its_namesake():
    """✗ ``committed`` gives an offset that the new topic may not even have, where the admin gives none."""
    cluster = a_topic("abc", partitions=2)
    for number in (0, 1):
        commit(cluster, 3, number)
    admin = Admin(cluster)
    with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([tp(0)])
        assert (consumer.committed(tp(0)), consumer.committed(tp(1))) == (3, 3)  # one that it reads, and another
        delete_topic(cluster.topic_log("t"), "t")
        assert (consumer.committed(tp(0)), admin.list_group_offsets("g")) == (None, {})
        create_topic(cluster.topic_log("t"), "t")
        assert [consumer.committed(tp(n), metadata=True) for n in (0, 1)] == [None, None]
        assert admin.list_group_offsets("g") == {}


def test_an_unknown_topic_is_raised_the_others_are_read_and_once_it_comes_it_is_too():
    cluster = a_topic("ab")
    with Member(cluster, "t", "u") as member:
        with pytest.raises(UnknownTopicOrPartitionError, match="unknown topic 'u'"):
            run(lambda: False, member)
        until_read(member, "ab")
        with_topic(cluster, "xy", topic="u")
        until_read(member, "xy")


def test_a_topic_that_is_not_there_holds_up_nobody_however_seldom_its_readers_poll():
    """✗ Each poll raises that it isn't there, before it returns anything or gives up what another member waits for."""
    cluster = a_topic("ab", partitions=2)
    with (
        Member(cluster, "t", "u", heartbeat_interval_ms=10) as a,
        Member(cluster, "t", "u", heartbeat_interval_ms=10) as b,
    ):
        polled_seldom(lambda: len(a.numbers) == 2, a)
        polled_seldom(lambda: len(a.numbers) == len(b.numbers) == 1, a, b)
        polled_seldom(lambda: "ab" in (a.text, b.text), a, b)


def polled_seldom(condition: Callable[[], bool], *members: Member) -> None:
    def is_so() -> bool:
        time.sleep(0.02)
        for member in members:
            with suppress(UnknownTopicOrPartitionError):
                member.poll()
        return condition()

    until(is_so)


def test_topics_that_match_a_pattern_are_read_when_they_come_and_left_when_they_go():
    cluster = with_topic(a_cluster(), "ab", topic="a-1")
    with Member(cluster, metadata_max_age_ms=50) as member:
        member.consumer.subscribe(pattern="a-.*", listener=member.listener)
        run(lambda: member.text == "ab", member)
        with_topic(cluster, "cd", topic="a-2")
        with_topic(cluster, "no", topic="b-1")
        run(lambda: member.text == "abcd", member)
        assert member.consumer.subscription() == {"a-1", "a-2"}
        delete_topic(cluster.topic_log("a-1"), "a-1")
        until_gone(member, "a-1")
        assert member.consumer.assignment() == {tp(topic="a-2")}
        send(cluster, "e", topic="a-2")
        run(lambda: member.text == "abcde", member)


def until_gone(member: Member, topic: str) -> None:
    def is_gone() -> bool:
        with suppress(UnknownTopicOrPartitionError):
            member.poll()
        return topic not in (member.consumer.subscription() or ()) and len(member.numbers) == 1

    until(is_gone)


# Assigned by hand


def test_partitions_assigned_by_hand_begin_where_the_group_is():
    cluster = a_topic("abcd", partitions=2)
    send(cluster, "xy", partition=1)
    commit(cluster, 3)
    with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([tp(0)])
        assert consumer.position(tp(0)) == 3
        assert text(take(consumer, 1)) == "d"
        consumer.assign([tp(0), tp(1)])
        assert text(take(consumer, 2)) == "xy"
        assert consumer.position(tp(0)) == 4
        consumer.assign([tp(1)])
        consumer.assign([tp(0), tp(1)])
        assert (consumer.position(tp(0)), consumer.position(tp(1))) == (3, 2)


@pytest.mark.parametrize("moment", ["at once", "later"])
def test_a_seek_is_stronger_than_what_the_group_has(moment: str):
    cluster = a_topic("abcd")
    commit(cluster, 3)
    with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([tp()])
        if moment == "later":
            take(consumer, 1)
        consumer.seek(tp(), 1)
        assert text(take(consumer, 3)) == "bcd"
        consumer.assign([])
        consumer.assign([tp()])
        consumer.seek_to_beginning()
        assert text(take(consumer, 4)) == "abcd"


@pytest.mark.parametrize(("policy", "start"), [("earliest", 0), ("latest", 2)])
def test_without_a_committed_offset_partitions_assigned_by_hand_begin_by_the_policy(policy: str, start: int):
    cluster = a_topic("ab")
    with a_consumer(cluster, group_id="g", auto_offset_reset=policy) as consumer:
        consumer.assign([tp()])
        assert consumer.position(tp()) == start


def test_what_the_group_has_is_asked_again_after_it_could_not_be_read():
    store = MemoryStore()
    outage = Outage(store)
    commit(with_topic(a_cluster(store), "abc"), 2)
    with a_consumer(outage.cluster, group_id="g", default_api_timeout_ms=100) as consumer:
        outage.path, outage.is_on = "/offsets/", True
        consumer.assign([tp()])
        with pytest.raises(StoreUnavailableError):
            take(consumer, 1)
        outage.is_on = False
        until(lambda: _polled(consumer) == "c")


def _polled(consumer: Any) -> str:
    try:
        return text([record for records in consumer.poll(10).values() for record in records])
    except StoreUnavailableError:
        return ""


# Several groups


def test_every_group_reads_everything_and_goes_on_by_itself():
    cluster = a_topic("abcd", partitions=2)
    send(cluster, "xy", partition=1)
    groups = [Member(cluster, "t", group_id=group) for group in ("g", "h", "ö/..")]
    for member in groups:
        run(lambda member=member: sorted(member.text) == [*"abcdxy"], member)  # type: ignore[misc]
        member.close()
    again = [Member(cluster, "t", group_id=group) for group in ("g", "ö/..")]
    send(cluster, "e")
    for member in again:
        run(lambda member=member: member.text == "e", member)  # type: ignore[misc]
        member.close()


def test_a_consumer_beside_the_group_that_has_none_takes_nothing_away():
    cluster = a_topic("abcd")
    with Member(cluster, "t") as member, a_consumer(cluster, "t") as alone:
        assert text(take(alone, 4)) == "abcd"
        run(lambda: member.text == "abcd", member)
        assert FAST["session_timeout_ms"] > 0
