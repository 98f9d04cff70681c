"""L17: the store under a running client is emptied, filled anew or set back. What nobody can read isn't acknowledged for
longer than ``tail_trust_ms``, and whoever wakes writes nothing into what isn't its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    ProducerFencedError,
    SparklogError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import CountingStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore
from tests.replacing import (
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


@pytest.mark.parametrize("replace", REPLACED, ids=name_of)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_who_wakes_over_another_store_writes_nothing_and_says_so(kind: type[Writer], replace: Replace) -> None:
    if kind is GenerationWriting and replace in (by_an_older_state, by_an_older_state_that_went_on):
        pytest.skip("the group decides anew: stamps say who owns what")
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


@pytest.mark.parametrize("replace", REPLACED, ids=name_of)
@pytest.mark.parametrize("kind", [TopicWriting, OffsetWriting, TransactionWriting, ShareWriting], ids=name_of)
def test_who_is_busy_over_another_store_is_told_within_the_trust(kind: type[Writer], replace: Replace) -> None:
    if kind in (TransactionWriting, ShareWriting) and replace in (
        by_an_older_state,
        by_the_same_cluster_without_the_log,
    ):
        pytest.skip("the log goes on with greater numbers, and each of its entries says all")
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
