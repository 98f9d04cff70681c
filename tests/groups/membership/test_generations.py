"""Generations and members as bytes; finding the newest; cleaning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.membership.generations import (
    Generation,
    GenerationLog,
    clean_generations,
    encode_generation,
    generation_log,
)
from sparklog.groups.membership.member_state import decode_member, encode_member
from sparklog.groups.membership.proposals import empty_plan
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.paths import generation_path
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import CountingStore, ManualClock, WrappedStore
from tests.groups.membership.test_liveness import a_state
from tests.groups.membership.test_proposals import members, planned

DAY_MS = 86_400_000


def a_log(clock: ManualClock | None = None, store: ObjectStore | None = None) -> GenerationLog:
    clock = clock or ManualClock()
    store = RetryingStore(store or MemoryStore(clock=clock), clock=clock)
    return generation_log(Cluster(cluster_id="c", store=store, clock=clock), "g/ü")


def create(log: GenerationLog, position: Position, meanwhile: Callable[[], object] = lambda: None) -> Position:
    """Create the next generation; ``meanwhile``: while the process sleeps right before its create."""
    plan = planned(members("a", "b"))

    def encode(token: str) -> bytes:
        meanwhile()
        return encode_generation(plan, token)

    outcome = log.create_next(
        position,
        encode,
        tokens=set(),
        deadline=log.clock.deadline_in(None),
        sync=True,
    )
    assert isinstance(outcome, Created)
    return outcome.position


def test_a_generation_reads_back_as_it_was_written():
    log = a_log()
    by_pattern = members("c", "d", topics=("t", "u"), pattern="32:.*")
    plan = planned({**members("a", instance_id="i"), **members("b", topics=("t", "u")), **by_pattern})
    read = log.decode(3, encode_generation(plan, "token"))
    assert (read.version, read.token, read.plan) == (3, "token", plan)
    assert read.target_of("a") == plan.assignment["a"]
    assert read.target_of("nobody") is None
    assert log.decode(4, encode_generation(empty_plan(now_ms=1), "t")).plan == empty_plan(now_ms=1)
    left = empty_plan(read, now_ms=2)
    assert left.former.keys() == plan.topics.keys()
    assert log.decode(5, encode_generation(left, "t")).plan == left
    back = planned(members("e"), Generation(version=5, token="t", plan=left))
    assert back.topics["t"].earlier_count is not None
    assert log.decode(6, encode_generation(back, "t")).plan == back


FORMAT_1 = b"""{
 "format": 1, "token": "x", "created_ms": 5, "assignor": "range", "deleted": false,
 "topics": {"t": {"id": "i", "partitions": 2, "first_partitions": 1}},
 "members": {
  "a": {"instance_id": null, "client_id": "c", "host": "h", "topics": ["t"], "assignors": ["range", "sticky"],
        "assignment": {"t": [0, 1]}},
  "b": {"instance_id": "i", "client_id": "c", "host": "h", "topics": ["t", "u"], "assignors": ["range"],
        "assignment": {}}
 }
}"""


def test_a_generation_of_an_older_version_is_read():
    plan = a_log().decode(3, FORMAT_1).plan
    assert plan.members["a"].subscription == (("t",), "", ("range", "sticky"))
    assert plan.members["b"].subscription == (("t", "u"), "", ("range",))
    assert plan.assignment["a"] == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert a_log().decode(3, encode_generation(plan, "x")).plan == plan


def test_a_subscription_is_written_once_however_many_members_share_it():
    """100 members that subscribe to 200 topics: 636 KB where each member's own were written."""
    topics = tuple(f"some.topic.name.{number:04}" for number in range(200))
    hundred = members(*(f"consumer-{number:032x}" for number in range(100)), topics=topics, assignors=("sticky",))
    seen = dict.fromkeys(topics, ("0" * 32, 5))
    data = encode_generation(planned(hundred, seen=seen), "token")
    assert data.count(topics[7].encode()) == 2 + 5  # in the subscription, among the topics, and given
    assert len(data) < 80_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 1}',
        b'{"format": 1, "members": []}',
        FORMAT_1.replace(b'"assignment"', b'"subscription": 0, "assignment"'),
        FORMAT_1.replace(b'"topics": ["t"],', b""),
    ],
)
def test_a_generation_that_makes_no_sense_is_named(data):
    with pytest.raises(CorruptLogError, match=r"generations/00000000000000000007\.json"):
        a_log().decode(7, data)


def test_a_generation_of_a_newer_sparklog_is_refused():
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        a_log().decode(1, b'{"format": 3}')


def test_a_member_reads_back_as_it_was_written():
    claims = frozenset({TopicPartition("t", 3), TopicPartition("a", 11)})
    state = a_state(instance_id="i", claims=claims, generation=4, pattern="32:t.*", reads_from_start=True)
    assert decode_member("p", encode_member(state)) == state


def test_a_member_of_an_older_version_is_read():
    """It says nothing of a pattern, nor where it begins."""
    data = encode_member(a_state()).replace(b' "pattern": "",\n', b"").replace(b',\n "reads_from_start": false', b"")
    assert b"pattern" not in data
    assert b"reads_from_start" not in data
    assert decode_member("p", data) == a_state()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"member_id": "a"}'])
def test_a_member_that_makes_no_sense_is_named(data):
    with pytest.raises(CorruptLogError, match="groups/g/members/a"):
        decode_member("groups/g/members/a", data)


def test_the_newest_generation_is_found_by_one_listing():
    log = a_log()
    newest, position = log.open_newest()
    assert (newest, position.version) == (None, 0)
    for _ in range(12):
        position = create(log, position)
    newest, found = log.open_newest()
    assert newest is not None
    assert (newest.version, found.token) == (12, position.token)


def test_a_generation_number_is_given_once():
    log = a_log()
    _, position = log.open_newest()
    create(log, position)
    taken = log.create_next(
        position,
        lambda token: encode_generation(empty_plan(now_ms=1), token),
        tokens=set(),
        deadline=log.clock.deadline_in(None),
        sync=True,
    )
    assert not isinstance(taken, Created)
    assert taken.entry.plan.members.keys() == {"a", "b"}


def test_cleaning_keeps_what_was_superseded_within_a_day_and_always_the_newest():
    clock = ManualClock()
    log = a_log(clock)
    _, position = log.open_newest()
    for _ in range(3):
        position = create(log, position)
    clock.advance(30 * DAY_MS)
    assert clean_generations(log) == 0  # nothing has superseded them since
    position = create(log, position)
    assert clean_generations(log) == 2
    assert log.numbers() == [3, 4]
    assert clean_generations(log) == 0


def test_generations_are_deleted_in_one_request_below_a_mark_and_marks_dont_pile_up():
    clock = ManualClock()
    memory = MemoryStore(clock=clock)
    store = CountingStore(memory)
    log = a_log(clock, store)
    _, position = log.open_newest()
    for _ in range(3):
        for _ in range(40):
            position = create(log, position)
        clock.advance(2 * DAY_MS)
        position = create(log, position)
        store.reset()
        assert clean_generations(log) >= 39
        assert store.counts() == {"list": 1, "get": 3, "put": 1, "delete": 1}
        assert log.cleaned_below() == log.numbers()[0]
    assert len(list(memory.list(log.cleanup_marks))) == 2


@pytest.mark.parametrize("left", [1, 2])
def test_a_sleeper_whose_generation_a_killed_cleanup_left_cannot_create_the_next(left):
    """✗ L3: a bulk delete is carried out in part: the sleeper's generation is there, the one behind it isn't."""
    clock = ManualClock()
    memory = MemoryStore(clock=clock)

    class KilledCleanup(WrappedStore):
        def delete(self, paths):
            self._store.delete([path for path in paths if path != generation_path("g/ü", left)])

    log = a_log(clock, memory)
    _, position = log.open_newest()
    positions = {}
    for number in range(1, 6):
        positions[number] = position = create(log, position)

    def others_go_on_and_clean() -> None:
        clock.advance(2 * DAY_MS)
        create(log, position)
        clean_generations(a_log(clock, KilledCleanup(memory)))
        assert log.numbers() == [left, 5, 6]

    with pytest.raises(PositionLost):
        create(log, positions[left], meanwhile=others_go_on_and_clean)
    assert clean_generations(log) == 2  # what was left, and what was created there just now
    assert log.numbers() == [5, 6]


def test_a_sleeper_whose_generation_was_cleaned_can_not_create_the_next_one_anew():
    """✗ L1: a deleted name can be created again."""
    clock = ManualClock()
    log = a_log(clock)
    _, asleep = log.open_newest()
    position = asleep = create(log, asleep)
    for _ in range(3):
        position = create(log, position)
        clock.advance(2 * DAY_MS)
    position = create(log, position)
    clean_generations(log)
    assert not log.store.read_many([generation_path("g/ü", 2)])[0]
    with pytest.raises(PositionLost):
        create(log, asleep)
