"""Where a reset sets a group. Expected offsets by Kafka's ``ConsumerGroupCommand.prepareOffsetsToReset``."""

from __future__ import annotations

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.groups.admin.resets import PartitionBounds, ResetTo, plan_reset
from sparklog.model import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def bounds(committed: int | None = 50, *, for_time: int | None = None) -> PartitionBounds:
    return PartitionBounds(committed=committed, log_start_offset=10, log_end_offset=100, offset_for_time=for_time)


@pytest.mark.parametrize(
    ("to", "partition", "new", "asked"),
    [
        (ResetTo("earliest"), bounds(), 10, 10),
        (ResetTo("latest"), bounds(), 100, 100),
        (ResetTo("current"), bounds(), 50, 50),
        (ResetTo("current"), bounds(7), 7, 7),  # below the log start: kept
        (ResetTo("current"), bounds(None), 100, 100),
        (ResetTo("offset", 60), bounds(None), 60, 60),
        (ResetTo("offset", 9), bounds(), 10, 9),
        (ResetTo("offset", 101), bounds(), 100, 101),
        (ResetTo("shift", 0), bounds(), 50, 50),
        (ResetTo("shift", -20), bounds(), 30, 30),
        (ResetTo("shift", -60), bounds(), 10, -10),
        (ResetTo("shift", 60), bounds(), 100, 110),
        (ResetTo("time", 5), bounds(for_time=33), 33, 33),
        (ResetTo("time", 5), bounds(), 100, 100),
        ({P0: 60}, bounds(), 60, 60),
        ({P0: 5}, bounds(), 10, 5),
    ],
)
def test_where_a_reset_sets_a_partition(to, partition, new, asked):
    [reset] = plan_reset(to, {P0: partition})
    assert (reset.partition, reset.current_offset) == (P0, partition.committed)
    assert (reset.new_offset, reset.asked_offset) == (new, asked)


def test_partitions_keep_their_order_and_each_has_its_own_offset():
    plan = plan_reset({P0: 20, P1: 30, TopicPartition("u", 0): 1}, {P1: bounds(), P0: bounds()})
    assert [(reset.partition, reset.new_offset) for reset in plan] == [(P1, 30), (P0, 20)]
    assert plan_reset(ResetTo("earliest"), {}) == []


def test_what_was_never_committed_can_not_be_shifted():
    with pytest.raises(InvalidArgumentError, match="t-1 can't be shifted"):
        plan_reset(ResetTo("shift", 1), {P0: bounds(), P1: bounds(None)})


@pytest.mark.parametrize("offsets", [{}, {P0: -1}, {P0: True}, {P0: "5"}])
def test_an_offset_that_is_none_is_refused(offsets):
    with pytest.raises(InvalidArgumentError, match="reset t-0: got"):
        plan_reset(offsets, {P0: bounds()})


@pytest.mark.parametrize(
    "arguments",
    [("soon",), ("offset", -1), ("time", -1), ("shift", 1.5), ("offset", True), ("earliest", 3), (None,)],
)
def test_a_place_without_meaning_is_refused(arguments):
    with pytest.raises(InvalidArgumentError, match="reset to"):
        ResetTo(*arguments)
