"""A query over many topics, on a store that takes 20 ms a request, 32 at once: simulated milliseconds, and requests."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from sparklog.errors import CorruptLogError, InvalidConfigurationError
from sparklog.log import delete_topic
from sparklog.storage import MemoryStore
from sparklog.streaming.planning import Task
from sparklog.streaming.positions import Positions
from sparklog.streaming.resolving import plan_batch
from sparklog.streaming.source_options import source_options
from sparklog.streaming.stream import StreamPlanner
from tests.consumer.support import a_cluster, send, with_topic
from tests.overlapping import OverlappingClock, SlowStore, copy_topic, overlapping
from tests.support import T0_MS

TOPICS = [f"t{number:02}" for number in range(64)]
TRIP = 20.0
WAVE = 2
"""How many times 32 requests it takes to make 64."""


class Place(NamedTuple):
    memory: MemoryStore
    store: SlowStore
    clock: OverlappingClock

    def took(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Simulated milliseconds, and the result."""
        self.store.reset()
        began = self.clock.now
        result = call()
        return self.clock.now - began, result

    def send(self, *topics: str, batches: int = 1) -> None:
        """Records to each, in no time."""
        for topic in topics:
            send(a_cluster(self.memory, self.clock), *"b" * batches, topic=topic)

    def planner(self, **given: object) -> StreamPlanner:
        return StreamPlanner(a_cluster(self.store, self.clock), options(streaming=True, **given))


def options(*, streaming: bool, **given: object) -> Any:
    text = {name: str(value) for name, value in {"startingOffsets": "earliest", **given}.items()}
    subscription = {} if "subscribePattern" in given else {"subscribe": ",".join(TOPICS)}
    return source_options({"path": "/c", **subscription, **text}, streaming=streaming)


@pytest.fixture
def place() -> Iterator[Place]:
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        with_topic(a_cluster(memory, clock), "a", topic="template")
        copy_topic(memory, "template", TOPICS)
        yield Place(memory, SlowStore(memory, clock, latency_ms=TRIP), clock)


def topics_of(tasks: list[Task]) -> set[str]:
    return {task.topic for task in tasks}


def test_topics_are_opened_side_by_side_and_a_quiet_trigger_looks_once_at_all(place):
    planner = place.planner()
    took, start = place.took(planner.initial)
    assert took == WAVE * 4 * TRIP
    took, end = place.took(lambda: planner.next(start, limited=False))
    assert (took, place.store.counts()) == (WAVE * TRIP, {"get": 64})
    took, tasks = place.took(lambda: planner.plan(start, end))
    assert (took, topics_of(tasks)) == (0, {*TOPICS})
    took, again = place.took(lambda: planner.next(end, limited=False))
    assert (took, again) == (WAVE * TRIP, end)


def test_a_trigger_asks_at_once_for_as_many_commits_as_the_one_before_found(place):
    planner = place.planner()
    end = planner.next(planner.initial(), limited=False)
    for version, gets in ((6, 64 + 4 * (1 + 2 + 4)), (11, 64 + 4 * 5)):
        place.send(*TOPICS[:4], batches=5)
        before = end
        _, end = place.took(lambda before=before: planner.next(before, limited=False))
        assert place.store.counts() == {"get": gets}
        assert {end.topics[topic].delta_version for topic in TOPICS[:4]} == {version}


@pytest.mark.slow
def test_a_query_started_again_with_a_limit_finds_ends_of_commits_side_by_side(place):
    with_topic(a_cluster(place.memory, place.clock), *"abcd", topic="of-four-commits")
    copy_topic(place.memory, "of-four-commits", TOPICS)
    first = place.planner()
    start = first.initial()
    took, _ = place.took(lambda: place.planner(maxOffsetsPerTrigger=10).next(start, limited=True))
    assert took < WAVE * 10 * TRIP
    end = first.next(start, limited=False)
    took, tasks = place.took(lambda: place.planner().plan(start, end))  # a batch that is run again
    assert (took, topics_of(tasks)) == (WAVE * 4 * TRIP, {*TOPICS})


def test_topics_of_a_pattern_are_found_side_by_side_passing_over_what_is_none(place):
    delete_topic(a_cluster(place.memory, place.clock).topic_log("t03"), "t03")
    place.memory.put("topics/t-nothing/readme.txt", b"")
    place.memory.put("topics/t no name/readme.txt", b"")
    planner = place.planner(subscribePattern="t.*")
    took, start = place.took(planner.initial)
    assert took <= TRIP + 3 * 4 * TRIP + 3 * TRIP  # the listing; 67 names are opened, those of topics polled
    assert start.topics.keys() == {*TOPICS, "template"} - {"t03"}
    place.memory.put("topics/t05/_delta_log/00000000000000000002.json", b"no json")
    with pytest.raises(CorruptLogError, match="topics/t05"):
        planner.next(start, limited=False)


def test_a_batch_query_opens_its_topics_and_finds_times_side_by_side(place):
    cluster = a_cluster(place.store, place.clock)
    took, ranges = place.took(lambda: plan_batch(cluster, options(streaming=False)))
    assert (took, len(ranges)) == (WAVE * 4 * TRIP, 64)
    given = {"startingTimestamp": T0_MS, "endingTimestamp": T0_MS + 9}
    took, ranges = place.took(lambda: plan_batch(cluster, options(streaming=False, **given)))
    assert (took, {one.size for one in ranges}) == (WAVE * 5 * TRIP, {1})
    with pytest.raises(InvalidConfigurationError):
        plan_batch(cluster, options(streaming=False, startingOffsets='{"t00": {"0": 0}}'))


def test_positions_of_topics_that_are_gone_are_lost_one_by_one(place):
    planner = place.planner(failOnDataLoss="false")
    end = planner.next(planner.initial(), limited=False)
    delete_topic(a_cluster(place.memory, place.clock).topic_log("t03"), "t03")
    place.send("t04")
    after = planner.next(end, limited=False)
    assert after.topics.keys() == {*TOPICS} - {"t03"}
    assert topics_of(planner.plan(end, after)) == {"t04"}
    assert isinstance(after, Positions)
