"""L17: the store under a running client is emptied, filled anew or set back. What nobody can read isn't acknowledged
for longer than ``tail_trust_ms``, and whoever wakes writes nothing into what isn't its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    ProducerFencedError,
    SparklogError,
    StorePermissionError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import create_topic, open_cluster
from sparklog.log.append import TopicWriter
from sparklog.storage import MemoryStore, ObjectInfo
from sparklog.storage.ground import Ground
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import CountingStore, ManualClock, WrappedStore
from sparklog.testing.interrupted_store import InterruptedStore
from tests.replacing import (
    AT,
    GenerationWriting,
    Kept,
    OffsetWriting,
    ShareWriting,
    TopicWriting,
    TransactionWriting,
    World,
    Writer,
    emptied,
    entries,
    kept,
    put_back,
)
from tests.support import T0_MS, a_topic, a_writer, append, contents, inline_checkpoints

TRUST_MS = 60_000
BEFORE, LATER = 4, 3
"""Writes before the backup, and between that and the replacement."""

KINDS = [TopicWriting, OffsetWriting, TransactionWriting, ShareWriting, GenerationWriting]
Replace = Callable[[World, type[Writer], Kept], None]


def by_nothing(world: World, kind: type[Writer], backup: Kept) -> None:
    emptied(world.memory)


def anew(world: World, kind: type[Writer], count: int) -> None:
    emptied(world.memory)
    other = kind(world.opened())
    for _ in range(count):
        other.write()


def by_a_cluster_with_equal_ends(world: World, kind: type[Writer], backup: Kept) -> None:
    anew(world, kind, BEFORE + LATER + 1)


def by_a_cluster_with_a_longer_log(world: World, kind: type[Writer], backup: Kept) -> None:
    anew(world, kind, 3 * (BEFORE + LATER))


def by_a_cluster_with_a_shorter_log(world: World, kind: type[Writer], backup: Kept) -> None:
    anew(world, kind, 1)


def by_an_older_state(world: World, kind: type[Writer], backup: Kept) -> None:
    put_back(world.memory, backup)


def by_an_older_state_that_went_on(world: World, kind: type[Writer], backup: Kept) -> None:
    put_back(world.memory, backup)
    other = kind(world.opened())
    for _ in range(LATER + 5):
        other.write()


def by_the_same_cluster_without_the_log(world: World, kind: type[Writer], backup: Kept) -> None:
    emptied(world.memory, kind.folder)


REPLACED = [
    by_nothing,
    by_a_cluster_with_equal_ends,
    by_a_cluster_with_a_longer_log,
    by_a_cluster_with_a_shorter_log,
    by_an_older_state,
    by_an_older_state_that_went_on,
    by_the_same_cluster_without_the_log,
]


def name_of(found: object) -> str | None:
    return getattr(found, "__name__", None)


def a_replaced_world(kind: type[Writer], replace: Replace) -> tuple[World, Writer, Kept]:
    world = World()
    writer = kind(world.opened())
    for _ in range(BEFORE):
        writer.write()
    backup = kept(world.memory)
    for _ in range(LATER):
        writer.write()
    world.clock.advance(TRUST_MS + 1)
    writer.write()  # it has looked beneath itself right before
    whole = kept(world.memory)
    replace(world, kind, backup)
    return world, writer, whole


def fails(writer: Writer) -> SparklogError:
    with pytest.raises(SparklogError) as caught:
        writer.write()
    assert not isinstance(caught.value, CommitStateUnknownError)
    return caught.value


def is_told(error: SparklogError, kind: type[Writer]) -> bool:
    """A transactional id whose log was set back and went on has another epoch: its producer is fenced off."""
    is_fenced = kind is TransactionWriting and isinstance(error, ProducerFencedError)
    return is_fenced or isinstance(error, (StoreReplacedError, CorruptLogError))


SET_BACK = (by_an_older_state, by_an_older_state_that_went_on)
GOES_ON = (by_an_older_state, by_the_same_cluster_without_the_log)
WAKING = [
    (kind, replace)
    for kind in KINDS
    for replace in REPLACED
    if not (kind is GenerationWriting and replace in SET_BACK)  # the group decides anew: stamps say who owns what
]
BUSY = [
    (kind, replace)
    for kind in (TopicWriting, OffsetWriting, TransactionWriting, ShareWriting)
    for replace in REPLACED
    # Those logs go on with greater numbers, and each of their entries says all.
    if not (kind in (TransactionWriting, ShareWriting) and replace in GOES_ON)
]


@pytest.mark.parametrize(("kind", "replace"), WAKING, ids=name_of)
def test_who_wakes_over_another_store_writes_nothing_and_says_so(kind: type[Writer], replace: Replace) -> None:
    world, writer, whole = a_replaced_world(kind, replace)
    world.clock.advance(TRUST_MS + 1)
    before = entries(world.memory)
    for _ in range(3):
        if kind is GenerationWriting and replace is by_the_same_cluster_without_the_log:
            continue
        assert is_told(fails(writer), kind)
        assert entries(world.memory) == before
    put_back(world.memory, whole)
    writer.write()


@pytest.mark.parametrize(("kind", "replace"), BUSY, ids=name_of)
def test_who_is_busy_over_another_store_is_told_within_the_trust(kind: type[Writer], replace: Replace) -> None:
    world, writer, _ = a_replaced_world(kind, replace)
    since = world.clock.ticks_ms()
    error: SparklogError | None = None
    while error is None and world.clock.ticks_ms() - since <= TRUST_MS + 2_000:
        world.clock.advance(1_000)
        try:
            writer.write()
        except SparklogError as found:
            error = found
    assert error is not None
    assert not isinstance(error, CommitStateUnknownError)
    before = entries(world.memory)
    fails(writer)
    assert entries(world.memory) == before


def a_topic_with(count: int) -> tuple[World, TopicWriting]:
    world = World()
    writer = TopicWriting(world.opened())
    for _ in range(count):
        writer.write()
    return world, writer


def test_a_restored_topic_goes_on_beside_a_producer_that_wakes() -> None:
    """✗ Its stray entry lay behind the restored log's end: nobody could open the topic any more."""
    world, sleeper = a_topic_with(4)
    backup = kept(world.memory)
    for _ in range(3):
        sleeper.write()
    put_back(world.memory, backup)
    world.clock.advance(TRUST_MS + 1)
    fails(sleeper)
    log = world.opened().topic_log("t")
    new = a_writer(log)
    assert [append(new, f"new {n}").base_offsets[0] for n in range(12)] == list(range(4, 16))
    assert len(contents(log)[0]) == 16


def test_a_create_that_slept_over_the_replacement_is_unknown_and_all_later_ones_fail() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    store = InterruptedStore(memory)
    world = World()
    world.clock, world.memory = clock, memory
    writer = TopicWriting(world.opened())
    cluster = world.opened()
    sleeping = a_writer(a_topic_log(store, clock, cluster.cluster_id))

    def sleep() -> None:
        clock.advance(TRUST_MS + 1)
        emptied(memory)

    writer.write()
    append(sleeping, "a")
    store.interrupt(sleep, at=1, after=False)  # the create, behind the upload
    with pytest.raises(CommitStateUnknownError):
        append(sleeping, "b", timeout_ms=10**9)
    for _ in range(2):
        with pytest.raises(SparklogError) as caught:
            append(sleeping, "c", timeout_ms=10**9)
        assert not isinstance(caught.value, CommitStateUnknownError)


def a_topic_log(store: InterruptedStore, clock: ManualClock, cluster_id: str) -> DeltaLog:
    retrying = RetryingStore(store, clock=clock)
    retrying.ground = Ground(retrying, cluster_id)
    retrying.ground.check_if_due(clock, tail_trust_ms=TRUST_MS)
    return DeltaLog(store=retrying, table="topics/t", clock=clock, tail_trust_ms=TRUST_MS)


def test_of_a_topic_made_anew_in_the_same_cluster_its_old_writer_knows_nothing() -> None:
    world, writer = a_topic_with(3)
    for count in (0, 3, 9):
        emptied(world.memory, "topics/")
        other = TopicWriting(world.opened())
        for _ in range(count):
            other.write()
        world.clock.advance(TRUST_MS + 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            writer.write()
        assert len(contents(world.opened().topic_log("t"))[0]) == count


def test_between_two_checks_a_commit_costs_no_request_more() -> None:
    world, _ = a_topic_with(3)
    counting = CountingStore(world.memory)
    writer = TopicWriting(open_cluster(counting, clock=world.clock))
    writer.write()
    for _ in range(3):
        counting.reset()
        for _ in range(60):
            world.clock.advance(1_000)
            writer.write()
        assert counting.counts() == {"put": 60, "create": 60}
        world.clock.advance(1)
        counting.reset()
        writer.write()
        # cluster.json, the newest entry and the one of the check before, which are read together
        assert counting.counts() == {"put": 1, "create": 1, "get": 3, "list": 1}
    counting.reset()
    world.clock.advance(TRUST_MS + 1)
    writer.write()
    assert counting.counts() == {"put": 1, "create": 1, "get": 3, "list": 1}  # and nothing after the create


def test_the_logs_of_a_process_look_at_the_cluster_once() -> None:
    world, _ = a_topic_with(1)
    for topic in ("u", "v"):
        a_topic(world.memory, world.clock, topic=topic)
    counting = CountingStore(world.memory)
    cluster = open_cluster(counting, clock=world.clock)
    writers = [a_writer(cluster.topic_log(topic), topic=topic) for topic in "tuv"]
    world.clock.advance(TRUST_MS + 1)
    counting.reset()
    for writer in writers:
        append(writer, "x")
    assert counting.counts() == {"put": 3, "create": 3, "list": 3, "get": 4}


def test_clients_of_one_address_share_the_look_at_the_cluster(tmp_path: Path) -> None:
    clock = ManualClock()
    first, second = (open_cluster(tmp_path / "data", clock=clock) for _ in range(2))
    clock.advance(TRUST_MS + 1)
    due = [cluster.store.ground for cluster in (first, second)]
    assert all(ground is not None and ground.is_due(clock.ticks_ms(), tail_trust_ms=TRUST_MS) for ground in due)
    assert due[0] is not None
    due[0].check_if_due(clock, tail_trust_ms=TRUST_MS)
    assert not any(ground is None or ground.is_due(clock.ticks_ms(), tail_trust_ms=TRUST_MS) for ground in due)


def test_nothing_is_made_in_a_store_without_its_cluster() -> None:
    world, _ = a_topic_with(1)
    cluster = world.opened()
    emptied(world.memory)
    world.clock.advance(TRUST_MS + 1)
    with pytest.raises(StoreReplacedError):
        create_topic(cluster.topic_log("u"), "u")
    assert kept(world.memory) == {}


# --- what a writer's own checkpoints find


def writes_until_an_error(world: World, writer: TopicWriter, most: int = 1_000) -> tuple[int, SparklogError]:
    for count in range(most):
        world.clock.advance(10)
        try:
            append(writer, "x")
        except SparklogError as error:
            return count, error
    pytest.fail(f"{most} records were acknowledged into a log that nobody can open")


@pytest.mark.parametrize("lost", ["all", "the beginning"])
def test_a_writer_whose_checkpoint_finds_its_log_cut_fails_until_it_is_whole(lost: str) -> None:
    world, _ = a_topic_with(10)
    writer = a_writer(world.opened().topic_log("t"), checkpoints=inline_checkpoints())
    append(writer, "x")
    whole = kept(world.memory, "topics/")
    world.memory.delete([path for path in whole if lost == "all" or path <= entry_path("topics/t", 5)])
    count, error = writes_until_an_error(world, writer)
    assert count < 150
    assert isinstance(error, CorruptLogError)
    assert "is missing" in str(error)
    for _ in range(3):
        assert writes_until_an_error(world, writer)[0] == 0
    world.memory.put_many(whole)
    assert append(writer, "again").base_offsets == (11 + count,)
    assert len(contents(world.opened().topic_log("t"))[0]) == 12 + count


@pytest.mark.parametrize("fault", ["a refused listing", "a damaged entry"])
def test_a_checkpoint_that_fails_for_another_reason_stops_nobody(fault: str) -> None:
    world, _ = a_topic_with(10)
    store = Refusing(world.memory)
    writer = a_writer(open_cluster(store, clock=world.clock).topic_log("t"), checkpoints=inline_checkpoints())
    if fault == "a refused listing":
        store.refuses = True
    else:
        world.memory.put(entry_path("topics/t", 5), b"{torn")
    for _ in range(150):
        world.clock.advance(10)
        append(writer, "x")
    assert not [found for found in world.memory.list("topics/t/_delta_log/") if "checkpoint" in found.path]


class Refusing(WrappedStore):
    """Refuses listings, as long as it is told to."""

    refuses = False

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        if self.refuses:
            raise StorePermissionError(f"list {prefix}")
        return super().list(prefix, after=after)


def test_a_group_whose_maintenance_finds_its_offsets_cut_fails_until_they_are_whole() -> None:
    world = World()
    writer = OffsetWriting(world.opened())
    for _ in range(5):
        writer.write()
    whole = kept(world.memory, "groups/")
    emptied(world.memory, "groups/")
    for _ in range(150):
        writer.write()
        world.clock.advance(10)
        if writer.table.maintenance_due:
            writer.table.maintain()
            break
    for _ in range(3):
        assert isinstance(fails(writer), CorruptLogError)
    world.memory.put_many(whole)
    writer.write()
    assert OffsetTable(world.opened(), "g").fetch().keys() >= {AT}
