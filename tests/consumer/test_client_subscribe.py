"""Subscribing, assigning, and partitions and topics that come and go."""

import re
from typing import Any

import pytest

from sparklog.consumer import ConsumerRebalanceListener
from sparklog.errors import (
    CorruptLogError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import create_partitions, create_topic, delete_topic
from sparklog.testing import ManualClock
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, take, text, tp, until, with_topic


class Heard(ConsumerRebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", sorted(revoked)))

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", sorted(assigned)))


def test_a_lone_consumer_takes_every_partition_inside_poll():
    heard = Heard()
    with a_consumer(with_topic(a_cluster(), partitions=3)) as consumer:
        consumer.subscribe(["t"], listener=heard)
        assert consumer.assignment() == set()
        until(lambda: consumer.poll(timeout_ms=1) == {} and bool(consumer.assignment()))
        assert consumer.assignment() == {tp(0), tp(1), tp(2)}
        assert heard.calls == [("assigned", [tp(0), tp(1), tp(2)])]
    assert heard.calls[1:] == [("revoked", [tp(0), tp(1), tp(2)])]


def test_a_listener_may_seek_where_partitions_begin():
    class Seeking(Heard):
        def on_partitions_assigned(self, assigned):
            for partition in assigned:
                consumer.seek(partition, 2)

    with a_consumer(with_topic(a_cluster(), "abcd"), auto_offset_reset="none") as consumer:
        consumer.subscribe(["t"], listener=Seeking())
        assert text(take(consumer, 2)) == "cd"


def test_poll_raises_a_listeners_error_and_the_partitions_are_assigned_all_the_same():
    class Failing(Heard):
        def on_partitions_assigned(self, assigned):
            raise RuntimeError("no")

    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        consumer.subscribe(["t"], listener=Failing())
        with pytest.raises(RuntimeError, match="no"):
            consumer.poll(timeout_ms=LONG_MS)
        assert text(take(consumer, 1)) == "a"


def test_subscribing_again_replaces_and_partitions_that_stay_go_on():
    cluster = with_topic(with_topic(a_cluster(), "ab"), "xy", topic="u")
    heard = Heard()
    with a_consumer(cluster, max_poll_records=1) as consumer:
        consumer.subscribe(["t"], listener=heard)
        assert text(take(consumer, 1)) == "a"
        consumer.subscribe(["t", "u"], listener=heard)
        assert sorted(text(take(consumer, 3))) == ["b", "x", "y"]
        consumer.subscribe(["u"], listener=heard)
        assert consumer.poll(timeout_ms=1) == {}
        assert consumer.assignment() == {tp(topic="u")}
        send(cluster, "c")
        send(cluster, "z", topic="u")
        assert text(take(consumer, 1)) == "z"
    assert heard.calls[:3] == [
        ("assigned", [tp()]),
        ("assigned", [tp(topic="u")]),
        ("revoked", [tp()]),
    ]


def test_unsubscribing_takes_all_away():
    heard = Heard()
    with a_consumer(with_topic(a_cluster(), "ab")) as consumer:
        consumer.subscribe(["t"], listener=heard)
        take(consumer, 2)
        consumer.unsubscribe()
        assert heard.calls[-1] == ("revoked", [tp()])
        assert (consumer.subscription(), consumer.assignment()) == (None, set())
        with pytest.raises(IllegalStateError, match="subscribe to topics"):
            consumer.poll()
        consumer.assign([tp()])
        assert text(take(consumer, 2)) == "ab"
        consumer.assign([])
        consumer.subscribe(["t"])
        assert text(take(consumer, 2)) == "ab"


def test_assigning_replaces_and_partitions_that_stay_go_on():
    cluster = with_topic(a_cluster(), "ab", partitions=2)
    send(cluster, "xy", partition=1)
    with a_consumer(cluster, max_poll_records=1) as consumer:
        consumer.assign([tp(0)])
        assert text(take(consumer, 1)) == "a"
        consumer.assign([tp(0), tp(1), tp(1)])
        assert consumer.assignment() == {tp(0), tp(1)}
        assert sorted(text(take(consumer, 3))) == ["b", "x", "y"]
        consumer.assign([tp(1)])
        send(cluster, "c")
        send(cluster, "z", partition=1)
        assert text(take(consumer, 1)) == "z"


def test_topics_a_pattern_and_partitions_exclude_one_another():
    cluster = with_topic(a_cluster(), "a")
    with a_consumer(cluster, "t") as consumer:
        for call in (lambda: consumer.assign([tp()]), lambda: consumer.subscribe(pattern="t")):
            with pytest.raises(IllegalStateError, match="exclude one another"):
                call()
    with a_consumer(cluster) as consumer:
        consumer.assign([tp()])
        with pytest.raises(IllegalStateError, match="exclude one another"):
            consumer.subscribe(["t"])
        with pytest.raises(IllegalStateError, match="topics and a pattern"):
            consumer.subscribe(["t"], pattern="t")


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ({}, InvalidArgumentError, "expected topics or a pattern"),
        ({"topics": "t"}, TypeError, "expected a list of names"),
        ({"topics": [7]}, InvalidTopicError, "expected str"),
        ({"topics": ["a b"]}, InvalidTopicError, "a b"),
        ({"pattern": "("}, InvalidArgumentError, "pattern"),
        ({"pattern": b"t"}, InvalidArgumentError, "pattern b't'"),
        ({"pattern": 7}, InvalidArgumentError, "pattern 7"),
        ({"topics": ["t"], "listener": object()}, TypeError, "expected a ConsumerRebalanceListener"),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(arguments, error, why):
    with a_consumer(with_topic(a_cluster(), "a")) as consumer:
        with pytest.raises(error, match=why):
            consumer.subscribe(**arguments)
        assert consumer.subscription() is None


# Partitions and topics that come later


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_partition_that_comes_later_is_read_from_its_beginning(policy):
    cluster = with_topic(a_cluster(), "a")
    heard = Heard()
    with a_consumer(cluster, auto_offset_reset=policy) as consumer:
        consumer.subscribe(["t"], listener=heard)
        until(lambda: consumer.poll(timeout_ms=1) == {} and bool(consumer.assignment()))
        assert consumer.position(tp()) in (0, 1)
        create_partitions(cluster.topic_log("t"), "t", 2)
        send(cluster, "new", partition=1)
        assert text([r for r in take(consumer, 3) if r.partition == 1]) == "new"
        assert heard.calls == [("assigned", [tp()]), ("assigned", [tp(1)])]


@pytest.mark.parametrize("ask", ["subscribe", "assign"])
def test_a_topic_that_is_not_there_is_an_error_of_poll_until_it_is(ask):
    cluster = a_cluster()
    with a_consumer(cluster, auto_offset_reset="latest" if ask == "subscribe" else "earliest") as consumer:
        consumer.subscribe(["t"]) if ask == "subscribe" else consumer.assign([tp()])
        for _ in range(2):
            with pytest.raises(UnknownTopicOrPartitionError, match="topics/t") as info:
                consumer.poll(timeout_ms=LONG_MS)
            assert info.value.retriable
        with_topic(cluster, "ab")
        found: list[Any] = []
        while len(found) < 2:
            try:
                found += [record for each in consumer.poll(timeout_ms=LONG_MS).values() for record in each]
            except UnknownTopicOrPartitionError:
                continue
        assert text(found) == "ab"


def test_a_partition_that_is_not_there_is_an_error_of_poll_until_it_is():
    cluster = with_topic(a_cluster(), "a")
    with a_consumer(cluster) as consumer:
        consumer.assign([tp(0), tp(1)])
        assert errors_until(consumer, "a") == {"topic 't' has no partition 1; it has 0 to 0"}
        create_partitions(cluster.topic_log("t"), "t", 2)
        send(cluster, "b", partition=1)
        errors_until(consumer, "b")


def errors_until(consumer, value):
    """Poll until a value comes and something was raised at least once before or after; the messages."""
    messages: set[str] = set()
    seen = ""
    while value not in seen or not messages:
        try:
            seen += text([record for each in consumer.poll(timeout_ms=50).values() for record in each])
        except UnknownTopicOrPartitionError as error:
            messages.add(str(error))
        if value == "b" and value in seen:
            break
    return messages


@pytest.mark.parametrize("ask", ["subscribe", "assign"])
def test_a_topic_deleted_and_made_again_is_an_error_then_read_from_its_beginning(ask):
    cluster = with_topic(a_cluster(), "abc")
    log = cluster.topic_log("t")
    with a_consumer(cluster) as consumer:
        consumer.subscribe(["t"]) if ask == "subscribe" else consumer.assign([tp()])
        take(consumer, 3)
        delete_topic(log, "t")
        create_topic(log, "t")
        send(cluster, "xy")
        with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 't' with id .* was deleted"):
            consumer.poll(timeout_ms=LONG_MS)
        assert [(r.offset, r.value) for r in take(consumer, 2)] == [(0, b"x"), (1, b"y")]


def test_a_topic_that_is_deleted_does_not_stop_the_others():
    cluster = with_topic(with_topic(a_cluster(), "a"), "b", topic="u")
    heard = Heard()
    with a_consumer(cluster) as consumer:
        consumer.subscribe(["t", "u"], listener=heard)
        take(consumer, 2)
        delete_topic(cluster.topic_log("t"), "t")
        send(cluster, "c", topic="u")
        messages: list[str] = []
        seen = ""
        while len(messages) < 2 or not seen:
            try:
                seen += text([record for each in consumer.poll(timeout_ms=50).values() for record in each])
            except UnknownTopicOrPartitionError as error:
                messages.append(str(error))
        assert seen == "c"
        assert all("'t'" in message or "topics/t" in message for message in messages)
        assert ("revoked", [tp()]) in heard.calls


# Patterns


def test_a_pattern_takes_the_topics_whose_names_it_matches():
    cluster = with_topic(with_topic(with_topic(a_cluster(), "a", topic="in-1"), "b", topic="in-2"), "c", topic="out")
    with a_consumer(cluster) as consumer:
        consumer.subscribe(pattern="^in-")
        assert sorted(text(take(consumer, 2))) == ["a", "b"]
        assert consumer.subscription() == {"in-1", "in-2"}
        consumer.subscribe(pattern=re.compile("out"))
        assert text(take(consumer, 1)) == "c"
        assert consumer.subscription() == {"out"}


def test_later_topics_are_found_after_five_minutes_and_read_from_their_beginning():
    clock = ManualClock()
    cluster = with_topic(a_cluster(clock=clock), "a", topic="in-1")
    with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.subscribe(pattern="in")
        until(lambda: consumer.poll() == {} and bool(consumer.assignment()))
        with_topic(cluster, "b", topic="in-2")
        clock.advance(300_000 - 1)
        assert consumer.poll() == {}
        assert consumer.subscription() == {"in-1"}
        clock.advance(1)
        assert text(take(consumer, 1)) == "b"


def test_a_deleted_topic_of_a_pattern_is_an_error_once_and_then_forgotten():
    cluster = with_topic(with_topic(a_cluster(), "a", topic="in-1"), "b", topic="in-2")
    with a_consumer(cluster) as consumer:
        consumer.subscribe(pattern="in")
        take(consumer, 2)
        delete_topic(cluster.topic_log("in-1"), "in-1")
        with pytest.raises(UnknownTopicOrPartitionError, match="in-1"):
            consumer.poll(timeout_ms=LONG_MS)
        for _ in range(3):  # the fetcher looks at the topics between two answers
            consumer.end_offsets([tp(topic="in-2")])
        send(cluster, "c", topic="in-2")
        assert text(take(consumer, 1)) == "c"
        assert consumer.poll(timeout_ms=20) == {}
        assert consumer.assignment() == {tp(topic="in-2")}


def test_deleted_topics_and_other_tables_do_not_match_a_pattern():
    cluster = with_topic(with_topic(a_cluster(), "a", topic="in-1"), "b", topic="in-2")
    delete_topic(cluster.topic_log("in-1"), "in-1")
    cluster.store.put("topics/in-3/readme.txt", b"no table")
    with a_consumer(cluster) as consumer:
        consumer.subscribe(pattern="in")
        assert text(take(consumer, 1)) == "b"
        assert consumer.subscription() == {"in-2"}


def test_a_topic_of_a_pattern_that_cannot_be_read_is_an_error_of_its_own():
    cluster = with_topic(with_topic(a_cluster(), "a", topic="in-1"), "b", topic="in-2")
    cluster.store.put("topics/in-1/_delta_log/00000000000000000001.json", b"no json")
    cluster.store.put("topics/in 3/readme.txt", b"no name of a topic")
    with a_consumer(cluster) as consumer:
        consumer.subscribe(pattern="in")
        seen: list[str] = []
        while len({*seen}) < 2:
            try:
                seen += [at.topic for at in consumer.poll(timeout_ms=LONG_MS)]
            except CorruptLogError as error:
                seen.append(str(error))
        assert any("topics/in-1/" in one for one in seen)
        assert consumer.subscription() == {"in-1", "in-2"}
