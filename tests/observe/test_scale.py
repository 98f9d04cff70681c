"""A look costs topics plus transactional ids plus offsets of groups, and none of them times itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from sparklog import Admin, OffsetAndMetadata
from sparklog.model import TopicPartition
from sparklog.observe import ClusterFigures, ClusterWatch, transaction_watch
from sparklog.observe.figures import GroupPartitionFigures
from sparklog.observe.group_watch import GroupWatch
from sparklog.observe.orphan_watch import OrphanWatch
from sparklog.observe.rates import group_rates
from sparklog.txn.overview import transactional_ids
from tests.observe.support import Watched, watched
from tests.txn.support import Driver

FEW, MANY = 4, 16


class Name(str):
    """A name that counts how often it is put into a set or a dict, or looked for in one."""

    hashes: ClassVar[int] = 0

    def __hash__(self) -> int:
        Name.hashes += 1
        return super().__hash__()


class Walked(tuple[Any, ...]):
    """Counts how often somebody goes through everything."""

    walks: ClassVar[int] = 0

    def __iter__(self) -> Iterator[Any]:
        Walked.walks += 1
        return super().__iter__()


class WalkedRows(dict[TopicPartition, Any]):
    """Rows that count the same."""

    walks: ClassVar[int] = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        WalkedRows.walks += 1
        return super().__iter__()

    def items(self) -> Any:
        WalkedRows.walks += 1
        return super().items()


def topics_of_a_group(here: Watched, count: int) -> tuple[ClusterWatch, GroupWatch, ClusterFigures]:
    """A group that has read a record of two in each of so many topics, and what a look finds."""
    names = [f"t{number}" for number in range(count)]
    for name in names:
        here.append(here.topic(name), "x", "y")
    Admin(here.cluster).alter_group_offsets("g", {TopicPartition(name, 0): OffsetAndMetadata(1) for name in names})
    watch = ClusterWatch(here.cluster)
    figures = watch.look()
    return watch, watch._groups["g"], figures


def hashes_of_a_look(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    here = watched()
    for number in range(count):
        Driver(here.cluster, f"id{number}", topics=()).init()
    monkeypatch.setattr(
        transaction_watch, "transactional_ids", lambda cluster: [*map(Name, transactional_ids(cluster))]
    )
    watch = ClusterWatch(here.cluster)
    assert len(watch.look().transactions) == count
    Name.hashes = 0
    assert len(watch.look().transactions) == count
    monkeypatch.undo()
    return Name.hashes


def test_a_look_costs_the_same_for_each_of_many_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ `top --once` over 10,000 topics and 100,000 ids takes minutes."""
    few, many = (hashes_of_a_look(monkeypatch, count) for count in (FEW, MANY))
    assert many / MANY <= few / FEW


def hashes_of_a_search(count: int) -> int:
    here = watched()
    names = [Name(f"t{number}") for number in range(count)]
    for name in names:
        here.topic(str(name))
    watch = OrphanWatch(here.cluster, every_ms=1e12, at_once=1)
    watch.look(names)
    watch._searched_ticks_ms = dict.fromkeys(names, here.clock.ticks_ms())
    Name.hashes = 0
    watch.look(names)
    return Name.hashes


def test_a_search_for_orphans_costs_the_same_for_each_of_many_topics() -> None:
    few, many = (hashes_of_a_search(count) for count in (FEW, MANY))
    assert many / MANY <= few / FEW


def walks_of_figures(count: int) -> int:
    watch, group, figures = topics_of_a_group(watched(), count)
    group.rows = WalkedRows(group.rows)
    WalkedRows.walks = 0
    (found,) = watch._group_figures(watch._groups, watch._topics, now_ms=figures.now_ms)
    assert found == figures.groups[0]
    assert all(one.lag_ms is not None for one in found.partitions)
    return WalkedRows.walks


def test_figures_go_through_the_offsets_of_a_group_as_often_whatever_its_topics() -> None:
    assert walks_of_figures(MANY) == walks_of_figures(FEW)


def test_rates_go_through_the_partitions_of_a_group_once() -> None:
    _, _, figures = topics_of_a_group(watched(), MANY)
    (group,) = figures.groups
    partitions: tuple[GroupPartitionFigures, ...] = Walked(group.partitions)
    walked = replace(figures, groups=(replace(group, partitions=partitions),))
    assert [(one.topic, one.lag) for one in group_rates(None, walked)] == sorted((name, 1) for name in _names(figures))
    assert Walked.walks == 1
    before = Walked.walks
    assert len(group_rates(walked, walked)) == MANY
    assert Walked.walks == before + 2


def _names(figures: ClusterFigures) -> list[str]:
    return [topic.name for topic in figures.topics]
