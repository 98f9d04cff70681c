"""How notifications of a store wake consumers."""

import sys
import threading

import pytest

from sparklog.consumer.poll_schedule import PollSchedule
from sparklog.storage import LocalStore
from sparklog.testing import WrappedStore
from tests.consumer.support import Rounds, a_cluster, a_consumer, send, take, text, tp, until, with_topic

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Telling(WrappedStore):
    """A store that notifies when the test says so."""

    def __init__(self, store):
        super().__init__(store)
        self.watches = {}

    def watch(self, folder, changed):
        self.watches[folder] = changed
        return lambda: self.watches.pop(folder)


def rounds(tmp_path):
    store = Telling(LocalStore(tmp_path))
    cluster = with_topic(a_cluster(store), "a")
    found = Rounds(cluster)
    found.assign(tp())
    found.run()
    assert found.take(tp()) == [(0, "a")]
    return store, cluster, found


def test_a_topic_that_is_told_of_is_looked_at_whatever_is_due(tmp_path):
    store, cluster, consumer = rounds(tmp_path)
    (folder,) = store.watches
    send(cluster, "b")
    assert not consumer.fetcher.has_announced
    store.watches[folder]()
    with consumer.fetch_state.lock:
        assert consumer.fetcher.has_announced
    while consumer.fetcher.round(until_ticks_ms=0.0):
        pass
    assert consumer.take(tp()) == [(1, "b")]
    assert not consumer.fetcher.has_announced


@pytest.mark.parametrize("others", [0, 1])
def test_one_look_finds_an_announced_record_and_the_end_behind_it(tmp_path, monkeypatch, others):
    """Looks beside each other, too: of a topic of which nothing was announced one entry is asked for."""
    store = Telling(LocalStore(tmp_path))
    cluster = with_topic(a_cluster(store), "a")
    for number in range(others):
        with_topic(cluster, topic=f"other{number}")
    consumer = Rounds(cluster)
    consumer.assign(tp(), *(tp(topic=f"other{number}") for number in range(others)))
    consumer.run()
    consumer.take(tp())
    consumer.run()
    send(cluster, "b")
    asked = []
    read_many = cluster.store.read_many

    def noted(paths):
        asked.append([path for path in paths if path.startswith("topics/t/_delta_log/")])
        return read_many(paths)

    monkeypatch.setattr(cluster.store, "read_many", noted)
    (notified,) = [changed for folder, changed in store.watches.items() if folder.startswith("topics/t/")]
    notified()
    while consumer.fetcher.round(until_ticks_ms=0.0):
        pass
    assert [len(paths) for paths in asked if paths] == [2]
    assert consumer.take(tp()) == [(1, "b")]


def test_a_topic_that_is_followed_no_longer_is_watched_no_longer(tmp_path):
    store, _, consumer = rounds(tmp_path)
    (notified,) = store.watches.values()
    consumer.assign()
    consumer.run()
    assert not store.watches
    notified()  # one that was under way
    assert not consumer.fetcher.has_announced
    consumer.assign(tp())
    consumer.run()
    assert len(store.watches) == 1
    consumer.fetcher.close()
    assert not store.watches


def test_a_consumer_that_is_away_is_not_woken(tmp_path):
    store, _, consumer = rounds(tmp_path)
    (notified,) = store.watches.values()
    with consumer.fetch_state.lock:
        consumer.fetch_state.is_parked = True
    woken = threading.Event()

    def wait():
        with consumer.fetch_state.lock:
            if consumer.fetch_state.fetcher_condition.wait(0.05):
                woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    notified()
    thread.join()
    assert not woken.is_set()


def test_a_consumer_reads_what_another_store_object_wrote(tmp_path):
    writer = with_topic(a_cluster(LocalStore(tmp_path)), "a")
    consumer = a_consumer(a_cluster(LocalStore(tmp_path)), "t")
    assert text(take(consumer, 1)) == "a"
    for letter in "bcdef":
        send(writer, letter)
        assert text(take(consumer, 1)) == letter
    consumer.close()
    until(lambda: not any(thread.name == "sparklog-folder-watch" for thread in threading.enumerate()))


def test_a_topic_whose_news_was_announced_is_looked_at_seldom():
    schedule = PollSchedule(500)

    def look(is_new, now):
        schedule.looked({"t": is_new}, now_ms=now, took_ms=0.05)
        return schedule.next_due_ms(["t"]) - now

    assert look(True, 0.0) == 0.0
    assert look(False, 0.05) == 1.0  # nothing was announced yet
    schedule.announced({"t"}, now_ms=10.0)
    assert look(True, 10.1) == 0.0
    assert look(False, 10.2) == 100.0
    assert look(False, 9_010.0) == pytest.approx(500.0)
    assert look(True, 9_510.0) == 0.0  # found without, by another machine perhaps
    assert look(False, 9_510.1) < 2.0
    schedule.announced({"t"}, now_ms=9_511.0)  # the look was earlier than the announcement
    assert look(False, 9_511.1) == 100.0


@pytest.mark.parametrize(("is_announced", "ended", "wait_ms"), [(1, {"t"}, 100.0), (1, set(), 0.0), (0, {"t"}, 0.0)])
def test_a_look_that_found_announced_news_and_the_end_is_the_last_for_a_while(is_announced, ended, wait_ms):
    schedule = PollSchedule(500)
    if is_announced:
        schedule.announced({"t"}, now_ms=10.0)
    schedule.looked({"t": True}, now_ms=10.1, took_ms=0.05, ended=ended)
    assert schedule.next_due_ms(["t"]) == 10.1 + wait_ms


def test_a_topic_is_looked_at_seldom_where_the_store_tells_of_it(tmp_path):
    _, _, consumer = rounds(tmp_path)
    with consumer.fetch_state.lock:
        ahead_ms = consumer.fetcher.next_due_ticks_ms() - consumer.fetcher._clock.ticks_ms()
    assert ahead_ms <= 100.0
    assert consumer.fetcher._schedule._paces["t"].wait_ms == 100.0
