"""Metadata's topics: what is known of them is followed, not read anew, and a change is seen."""

from __future__ import annotations

import uuid

import pytest

from sparklog import Admin, NewPartitions, NewTopic
from sparklog.errors import CorruptLogError
from sparklog.gateway import topic_directory as module
from sparklog.gateway.pieces import Pieces
from sparklog.gateway.topic_directory import TopicDirectory, TopicFacts
from sparklog.log.cluster import open_cluster
from sparklog.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock):
    return open_cluster(f"memory://directory-{uuid.uuid4().hex}", clock=clock)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were opened, in their order."""
    found: list[str] = []
    original = vars(module)["open_state"]

    def recorded(log):
        found.append(log.table)
        return original(log)

    monkeypatch.setattr(module, "open_state", recorded)
    return found


def counts(directory: TopicDirectory) -> dict[str, int]:
    found = directory.all()
    assert all(isinstance(topic, TopicFacts) and topic.name == name for name, topic in found.items())
    return {name: topic.partition_count for name, topic in found.items() if isinstance(topic, TopicFacts)}


def test_a_topic_is_opened_once_and_then_followed(cluster, clock, opened) -> None:
    """✗ Ten thousand topics were opened each time: 5 to 10 s of CPU."""
    admin, directory = Admin(cluster), TopicDirectory(cluster)
    admin.create_topics([NewTopic("a", 1), NewTopic("b", 2)])
    for _ in range(3):
        clock.advance(1_000)
        assert counts(directory) == {"a": 1, "b": 2}
    assert sorted(opened) == ["topics/a", "topics/b"]
    opened.clear()
    admin.create_partitions({"b": NewPartitions(5)})
    clock.advance(1_000)
    assert counts(directory) == {"a": 1, "b": 5}
    admin.delete_topics(["a"])
    clock.advance(1_000)
    assert counts(directory) == {"b": 5}
    admin.create_topics([NewTopic("a", 7), NewTopic("c", 1)])
    clock.advance(1_000)
    assert counts(directory) == {"a": 7, "b": 5, "c": 1}
    assert sorted(opened) == ["topics/a", "topics/a", "topics/b", "topics/c"]


def test_after_a_silence_nothing_is_known(cluster, clock, opened) -> None:
    """Entries may have come and been cleaned meanwhile (rule L1, trust)."""
    Admin(cluster).create_topics([NewTopic("a", 1)])
    directory = TopicDirectory(cluster)
    counts(directory)
    for _ in range(20):  # longer than positions are trusted, but followed
        clock.advance(cluster.tail_trust_ms / 3)
        directory.follow()
    assert opened == ["topics/a"]
    clock.advance(cluster.tail_trust_ms + 1)
    counts(directory)
    assert opened == ["topics/a"] * 2


def test_a_topic_is_opened_anew_now_and_then(cluster, clock, opened) -> None:
    """Its log may have been put back from a backup, where nothing comes behind what is known."""
    Admin(cluster).create_topics([NewTopic("a", 1)])
    directory = TopicDirectory(cluster)
    for _ in range(35):
        clock.advance(20_000)
        counts(directory)
    assert opened == ["topics/a"] * 2


def test_what_many_topics_cost_is_shared(cluster, clock, opened, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MANY", 1)
    looks: list[float] = []
    names = type(cluster.store).list_names

    def slow(store, prefix):
        looks.append(clock.ticks_ms())
        clock.advance(800)
        return names(store, prefix)

    monkeypatch.setattr(type(cluster.store), "list_names", slow)
    admin, directory = Admin(cluster), TopicDirectory(cluster)
    admin.create_topics([NewTopic("a", 1), NewTopic("b", 2)])
    looks.clear()
    for _ in range(8):
        assert len(directory.all()) == 2
        clock.advance(400)
    assert len(looks) == 1
    admin.create_topics([NewTopic("c", 1)])
    looks.clear()
    for _ in range(20):
        clock.advance(250)
        if len(directory.all()) == 3:
            break
    else:
        pytest.fail("the new topic wasn't seen within 5 s")
    assert len(directory.all()) == 3
    admin.create_topics([NewTopic("d", 1)])
    assert len(directory.all()) == 3
    directory.changed()  # through this gateway: at once
    assert len(directory.all()) == 4
    admin.create_topics([NewTopic("e", 1)])
    clock.advance(1)
    assert len(directory.all(is_sure=True)) == 5


def test_a_topic_that_cannot_be_read_is_told_beside_the_others(cluster, clock, monkeypatch) -> None:
    Admin(cluster).create_topics([NewTopic("a", 1), NewTopic("b", 2)])
    original = vars(module)["open_state"]

    def failing(log):
        if log.table == "topics/b":
            raise CorruptLogError("damaged")
        return original(log)

    monkeypatch.setattr(module, "open_state", failing)
    directory = TopicDirectory(cluster)
    for _ in range(2):
        clock.advance(1_000)
        found = directory.all()
        assert isinstance(found["a"], TopicFacts)
        assert isinstance(found["b"], CorruptLogError)
    monkeypatch.setattr(module, "open_state", original)
    clock.advance(1_000)
    assert counts(directory) == {"a": 1, "b": 2}


def test_elements_are_made_when_they_are_asked_for() -> None:
    made: list[int] = []

    def make(number: int) -> dict[str, int]:
        made.append(number)
        return {"number": number}

    pieces = Pieces([1, 2, 3], make)
    assert len(pieces) == 3
    assert made == []
    assert [one["number"] for one in pieces] == [1, 2, 3]
    assert (pieces[1], pieces[1:]) == ({"number": 2}, [{"number": 2}, {"number": 3}])


def test_a_look_that_takes_longer_than_the_trust_is_of_use_to_the_next_one(cluster, clock, opened, monkeypatch) -> None:
    """✗ Ten thousand topics took a busy machine longer than that: each look opened all of them again."""
    Admin(cluster).create_topics([NewTopic(name, 1) for name in "abc"])
    directory, original = TopicDirectory(cluster), vars(module)["open_state"]

    def slow(log):
        clock.advance(cluster.tail_trust_ms / 2)
        return original(log)

    monkeypatch.setattr(module, "open_state", slow)
    monkeypatch.setattr(module, "each_alone", lambda store, call, names: [call(name) for name in names])
    directory.follow()
    assert len(opened) == 3
    directory.follow()
    assert len(opened) < 6
    clock.advance(cluster.tail_trust_ms + 1)
    opened.clear()
    directory.follow()
    assert len(opened) == 3
