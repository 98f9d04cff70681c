"""Topics are loaded as of versions at which every transaction is whole, whatever goes on meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.errors import KafkaTimeoutError, StorePermissionError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, create_topic, delete_topic
from sparklog.log.cluster import open_cluster
from sparklog.log.data.record_reading import read_together
from sparklog.log.data.segments import overlapping
from sparklog.log.state import TopicState
from sparklog.paths import transaction_entry
from sparklog.producer import Producer
from sparklog.storage import CreateResult, ObjectStore
from sparklog.testing import CountingStore, WrappedStore
from sparklog.txn.consistent_read import load_consistent
from sparklog.txn.entries import Contents
from sparklog.txn.forward import publish_topics
from tests.support import two_days_of_others
from tests.txn.support import Driver, a_cluster, a_log, a_world, newest_entry, states
from tests.txn.test_recovery import filled, prepare


def seen(state: TopicState) -> list[str]:
    """The values of a topic as of a state, partition by partition."""
    index, found = state.require_whole().index, list[str]()
    for partition, start in enumerate(state.head.log_start_offsets):
        for together in overlapping(index.from_offset(partition, start)):
            table = read_together(state.log, together, start_offset=start)
            found += [value.decode() for value in table["value"].to_pylist()]
    return found


def cut(cluster: Cluster, *topics: str, timeout_ms: float = 30_000) -> dict[str, list[str]]:
    return {name: seen(state) for name, state in load_consistent(cluster, topics, timeout_ms=timeout_ms).items()}


class Before(WrappedStore):
    """Others act once, right before an object whose path has a part in it is read."""

    def __init__(self, store: ObjectStore, part: str, others_act: Callable[[], object], *, skip: int = 0) -> None:
        super().__init__(store)
        self._part, self._others_act, self._skip = part, others_act, skip

    def read_many(self, paths: Iterable[str]) -> Sequence[bytes | None]:
        wanted = list(paths)
        if any(self._part in path for path in wanted):
            self._skip -= 1
            if self._skip == -1:
                self._others_act()
        return super().read_many(wanted)


def sent(cluster: Cluster, **values: str) -> Driver:
    """A transaction that is filled, and not decided."""
    driver = Driver(cluster).init()
    driver.begin()
    for topic, value in values.items():
        driver.send(topic, value)
    return driver


def decide_and_publish_in(driver: Driver, topic: str) -> None:
    """Decide a transaction and show it in one of its topics, as a producer does that dies then."""
    log = a_log(driver.cluster, driver.transactional_id)
    entry = log.read_entry(prepare(driver).number)
    assert entry is not None
    only = Contents(topics={topic: entry.contents.topics[topic]})
    publish_topics(driver.cluster, log, replace(entry, contents=only), timeout_ms=60_000)


def test_what_is_whole_is_seen_and_costs_no_wait() -> None:
    _, clock, cluster = a_world()
    filled(cluster).commit()
    began = clock.ticks_ms()
    assert cut(cluster, "t", "u") == {"t": ["a"], "u": ["b"]}
    assert clock.ticks_ms() == began


@pytest.mark.parametrize("first", ["t", "u"])
def test_what_a_dead_producer_left_in_one_topic_is_carried_out(first: str) -> None:
    _, _, cluster = a_world()
    driver = filled(cluster)
    decide_and_publish_in(driver, first)
    assert cut(cluster, "t", "u") == {"t": ["a"], "u": ["b"]}
    assert states(cluster)[-1] == "CompleteCommit"


def test_what_is_decided_and_in_no_topic_is_left_out_without_a_wait() -> None:
    _, clock, cluster = a_world()
    prepare(filled(cluster))
    began = clock.ticks_ms()
    assert cut(cluster, "t", "u") == {"t": [], "u": []}
    assert clock.ticks_ms() == began


@pytest.mark.parametrize("first", ["t", "u"])
@pytest.mark.parametrize("skip", range(6))
def test_a_transaction_that_is_decided_while_we_look_is_in_all_topics_or_in_none(first: str, skip: int) -> None:
    """It is shown in one topic alone, between any two reads; the other one follows a moment later."""
    memory, clock, cluster = a_world()
    driver = filled(cluster)

    def decide() -> None:
        decide_and_publish_in(driver, first)

    for part in ("topics/t/", "topics/u/"):
        looking = a_cluster(Before(memory, part, decide, skip=skip), clock)
        found = cut(looking, "t", "u")
        assert found in ({"t": [], "u": []}, {"t": ["a"], "u": ["b"]})
        assert part == "topics/t/" or newest_entry(cluster) is not None


def test_a_transaction_of_one_of_the_topics_alone_hinders_nothing() -> None:
    """✗ It is taken for one that the other topic lacks."""
    _, clock, cluster = a_world()
    driver = sent(cluster, t="a")
    decide_and_publish_in(driver, "t")
    began = clock.ticks_ms()
    assert cut(cluster, "t", "u") == {"t": ["a"], "u": []}
    assert clock.ticks_ms() == began


def test_an_id_whose_old_entries_were_cleaned_hinders_nothing() -> None:
    memory, _, cluster = a_world()
    driver = sent(cluster, t="a")
    driver.commit()
    for value in "bcd":
        driver.begin()
        driver.send("u", value)
        driver.commit()
    driver.complete()
    newest = newest_entry(cluster)
    assert newest is not None
    memory.delete([transaction_entry("tx", number) for number in range(1, newest.version - 1)])
    assert cut(cluster, "t", "u") == {"t": ["a"], "u": ["b", "c", "d"]}


class Refusing(WrappedStore):
    """A store that refuses to write to a topic."""

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if path.startswith("topics/u/"):
            raise StorePermissionError(f"{path}: access denied")
        return super().create(path, data, sync=sync)


def test_a_topic_that_can_not_have_it_is_named_when_time_is_up() -> None:
    memory, clock, cluster = a_world()
    driver = filled(cluster)
    decide_and_publish_in(driver, "t")
    with pytest.raises(KafkaTimeoutError, match=r"transaction 2 of transactional id 'tx' isn't yet in u: .*denied"):
        cut(a_cluster(Refusing(memory), clock), "t", "u", timeout_ms=5_000)
    assert cut(cluster, "t") == {"t": ["a"]}


def test_a_topic_that_was_deleted_or_made_anew_has_no_part_in_older_transactions() -> None:
    _, _, cluster = a_world()
    driver = filled(cluster)
    decide_and_publish_in(driver, "t")
    delete_topic(cluster.topic_log("u"), "u")
    with pytest.raises(UnknownTopicOrPartitionError, match="'u'"):
        cut(cluster, "t", "u")
    assert load_consistent(cluster, ["t", "u", "none"], skip_missing=True).keys() == {"t"}
    create_topic(cluster.topic_log("u"), "u", num_partitions=1)
    assert cut(cluster, "t", "u") == {"t": ["a"], "u": []}


def test_old_versions_that_are_cleaned_while_we_look_are_loaded_anew() -> None:
    memory, clock, cluster = a_world()
    filled(cluster).commit()
    others = Before(memory, "topics/t/", lambda: two_days_of_others(memory, clock), skip=1)
    found = cut(a_cluster(others, clock), "t", "u")
    assert (found["t"][0], found["u"]) == ("a", ["b"])
    assert len(found["t"]) > 1


def test_it_writes_nothing_where_all_is_whole() -> None:
    memory, clock, cluster = a_world()
    filled(cluster).commit()
    counting = CountingStore(memory)
    load_consistent(a_cluster(counting, clock), ["t", "u"])
    assert not counting.counts().keys() & {"put", "create", "delete"}


@pytest.mark.slow
def test_sums_agree_while_producers_transfer_and_die(tmp_path: Path) -> None:
    """Each transaction takes from one topic what it gives to the other; some producers die before they show it."""
    cluster = open_cluster(tmp_path)
    for topic in ("debit", "credit", "other"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=2)
    stop = threading.Event()
    errors: list[BaseException] = []

    def transfer(number: int) -> None:
        choice = random.Random(number)
        try:
            with Producer(cluster, transactional_id=f"transfer-{number}") as producer:
                producer.init_transactions()
                while not stop.is_set():
                    amount = str(choice.randint(1, 100))
                    producer.begin_transaction()
                    for topic in choice.sample(["debit", "credit", "other"], 3):
                        producer.send(topic, amount.encode(), partition=choice.randint(0, 1))
                    producer.commit_transaction()
                    stop.wait(0.05)  # at full speed they may keep who helps the dead from its turn for long
        except BaseException as error:
            errors.append(error)

    def die() -> None:
        """Producers that die right after their decision, with one topic or none that shows it."""
        choice = random.Random(0)
        number = 0
        try:
            while not stop.is_set():
                number += 1
                driver = Driver(cluster, f"dies-{number}", topics=("debit", "credit", "other")).init()
                driver.begin()
                for topic in driver.topics:
                    driver.send(topic, "1000")
                if choice.random() < 0.5:
                    decide_and_publish_in(driver, choice.choice(driver.topics))
                else:
                    prepare(driver)
                stop.wait(0.3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=transfer, args=[number]) for number in range(3)]
    threads.append(threading.Thread(target=die))
    for thread in threads:
        thread.start()
    try:
        counts = [0]
        while len(counts) <= 12 or counts[-1] < 30:
            found = cut(cluster, "debit", "credit", "other")
            sums = {topic: sum(map(int, values)) for topic, values in found.items()}
            assert len(set(sums.values())) == 1, sums
            counts.append(len(found["debit"]))
        assert counts == sorted(counts)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
