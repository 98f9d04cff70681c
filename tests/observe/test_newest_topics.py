"""Newest commits that are read together tell what each tells by itself, and one that can't be read hides no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest

from sparklog.delta.names import entry_path
from sparklog.errors import StorePermissionError
from sparklog.log.topic import delete_topic
from sparklog.observe.newest_topics import ListedTopic, NewestTopics, ReadTopic, listed_topic, newest_topics
from sparklog.observe.topic_watch import NewestTopic, TopicWatch, newest_topic
from sparklog.parallel import attempt
from tests.observe.support import Watched, watched
from tests.support import a_writer, foreign_commit


@pytest.fixture
def here() -> Watched:
    here = watched()
    for name in "abc":
        here.append(here.topic(name), "x", "y")
    here.requests()
    return here


def test_entries_that_are_read_together_tell_what_each_tells_by_itself(here: Watched) -> None:
    listed = [listed_topic(here.cluster, name) for name in "abc"]
    assert here.requests() == 3
    found = newest_topics(here.cluster, listed)
    assert here.requests() == 3
    assert found == [newest_topic(here.cluster, name) for name in "abc"]
    assert all(isinstance(one, NewestTopic) for one in found)
    assert newest_topics(here.cluster, []) == []


def whole(here: Watched, listed: Sequence[ListedTopic]) -> list[ReadTopic | Exception]:
    """The topics of their listings, those among them that take more requests."""
    found = newest_topics(here.cluster, listed)
    return [attempt(lambda call: call(), one) if isinstance(one, partial) else one for one in found]


def _make_it_long(here: Watched, listed: ListedTopic) -> ListedTopic:
    return replace(listed, listing=None)


def _let_trust_run_out(here: Watched, listed: ListedTopic) -> ListedTopic:
    here.clock.advance(here.cluster.tail_trust_ms + 1)
    return listed


def _miss_an_entry(here: Watched, listed: ListedTopic) -> ListedTopic:
    assert listed.listing is not None
    return replace(listed, listing=replace(listed.listing, entries=listed.listing.entries[1:]))


def _see_one_that_is_gone(here: Watched, listed: ListedTopic) -> ListedTopic:
    assert listed.listing is not None
    (version, info), *_ = listed.listing.entries
    return replace(listed, listing=replace(listed.listing, entries=(*listed.listing.entries, (version + 9, info))))


@pytest.mark.parametrize("doubt", [_make_it_long, _let_trust_run_out, _miss_an_entry, _see_one_that_is_gone])
def test_where_a_listing_does_not_tell_the_topic_is_opened_by_itself(
    here: Watched, doubt: Callable[[Watched, ListedTopic], ListedTopic]
) -> None:
    listed = [listed_topic(here.cluster, name) for name in "abc"]
    listed[1] = doubt(here, listed[1])
    found = whole(here, listed)
    alone = [newest_topic(here.cluster, name) for name in "abc"]
    assert [one.figures for one in found if isinstance(one, NewestTopic)] == [
        one.figures for one in alone if isinstance(one, NewestTopic)
    ]
    assert len(found) == 3


def test_an_entry_that_may_not_be_read_hides_no_other(here: Watched) -> None:
    here.failing.closed = "topics/b/_delta_log/0"
    found = whole(here, [listed_topic(here.cluster, name) for name in "abc"])
    assert [type(one) for one in found] == [NewestTopic, StorePermissionError, NewestTopic]


def test_a_topic_that_was_deleted_or_that_another_engine_wrote_last_or_a_broken_one(here: Watched) -> None:
    delete_topic(here.cluster.topic_log("a"), "a")
    foreign_commit(here.cluster.topic_log("b"))
    here.memory.put(entry_path("topics/c", 1), b"{")
    found = whole(here, [listed_topic(here.cluster, name) for name in "abc"])
    assert [type(one).__name__ for one in found] == ["NoneType", TopicWatch.__name__, "CorruptLogError"]


@pytest.mark.parametrize("together", [1, 2, 3, 32])
def test_the_last_call_of_a_group_reads_for_all(here: Watched, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """In whatever order the calls are made; one whose listing fails, or a defect, hides no other group."""
    monkeypatch.setattr("sparklog.observe.newest_topics._TOGETHER", together)
    here.failing.closed = "topics/d/"
    here.requests()
    newest = NewestTopics(here.cluster, [*"cadb"])
    for call in reversed(newest.calls):
        call()
    assert here.requests() == 4 + 3
    assert {name: type(one) for name, one in newest.found.items()} == {
        **dict.fromkeys("abc", NewestTopic),
        "d": StorePermissionError,
    }
    defect = ZeroDivisionError("a defect")
    monkeypatch.setattr("sparklog.observe.newest_topics.newest_topics", lambda *_: raise_it(defect))
    broken = NewestTopics(here.cluster, [*"ab"])
    for call in broken.calls:
        call()
    assert broken.found == {"a": defect, "b": defect}


def raise_it(error: Exception) -> NoReturn:
    raise error


def test_a_long_log_is_listed_from_its_beginning_once(here: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened by the call that found out, while others are listed."""
    monkeypatch.setattr("sparklog.delta.listing._PAGE", 3)
    here.append(a_writer(here.cluster.topic_log("b"), topic="b"), "z")
    here.requests()
    newest = NewestTopics(here.cluster, [*"abc"])
    for call in newest.calls:
        call()
    assert newest.rest() == []
    assert {name: type(one) for name, one in newest.found.items()} == dict.fromkeys("abc", NewestTopic)
    assert here.requests() == 2 + 4 + 2


def test_no_call_starts_threads(here: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes more than a listing and an entry is left for the threads of the caller."""
    for name in "ab":
        foreign_commit(here.cluster.topic_log(name))
    monkeypatch.setattr(threading.Thread, "start", lambda *_: raise_it(ZeroDivisionError("a thread")))
    newest = NewestTopics(here.cluster, [*"abc"])
    for call in newest.calls:
        call()
    assert [*newest.found] == ["c"]
    for call in newest.rest():
        call()
    assert {name: type(one) for name, one in newest.found.items()} == {
        "c": NewestTopic,
        **dict.fromkeys("ab", TopicWatch),
    }
