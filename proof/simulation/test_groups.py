"""Random schedules of join, leave, crash, pause, slow and unreachable stores: what groups promise holds in each.

A schedule's violations name the moment and the members; the same seed plays the same schedule again.
``python -m proof.simulation.group_schedules`` plays as many as one likes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import pytest

from proof.simulation.group_schedules import Played, play, play_many, run_schedule
from sparklog.groups.membership import heartbeat_rounds
from sparklog.groups.membership.membership import Membership
from sparklog.groups.membership.reconciliation import Reconciliation
from sparklog.groups.offsets import changes
from sparklog.groups.offsets.changes import CommitOffsets
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.model import TopicPartition
from tests.depth import by_depth

_COMMIT = CommitOffsets.apply


def violations(played: Iterable[Played]) -> dict[int, list[str]]:
    """Of the seeds whose schedules break a promise: no partition with two owners, offsets that don't go back, and a
    group that settles."""
    return {seed: broken for seed, broken, _ in played if broken}


@pytest.mark.parametrize(("threads", "count"), [(False, 12), (True, 5)], ids=["nested", "threads"])
def test_a_few_schedules_keep_every_promise(threads: bool, count: int):
    assert violations(play(seed, threads=threads) for seed in range(count)) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("threads", "count"),
    [(False, by_depth(gate=100, nightly=600)), (True, by_depth(gate=50, nightly=300))],
    ids=["nested", "threads"],
)
def test_many_schedules_keep_every_promise(threads: bool, count: int):
    assert violations(play_many(range(1_000, 1_000 + count), threads=threads, processes=2)) == {}


# The schedules would notice: a promise is broken as soon as one of the rules behind it isn't kept.


def nobody_looks_at_claims() -> AbstractContextManager[object]:
    return mock.patch.object(heartbeat_rounds, "claimed_by_others", return_value=set())


def stamps_are_not_compared() -> AbstractContextManager[object]:
    def apply(self: CommitOffsets, rows: Rows, now_ms: int) -> Rows:
        stamps = {partition: rows[partition].stamp for partition in self.offsets if partition in rows}
        return _COMMIT(replace(self, stamps=stamps), rows, now_ms)

    return mock.patch.object(CommitOffsets, "apply", apply)


def stamps_count_before_the_application_knows() -> AbstractContextManager[object]:
    def stamps(self: Reconciliation, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Stamp]:
        return {partition: self.held[partition].stamp for partition in wanted if partition in self.held}

    return mock.patch.object(Reconciliation, "stamps", stamps)


def whoever_takes_a_partition_has_it() -> AbstractContextManager[object]:
    return mock.patch.object(changes, "_is_owned_after", return_value=False)


def nobody_minds_its_own_silence() -> AbstractContextManager[object]:
    return mock.patch.object(Membership, "check_silence")


@pytest.mark.parametrize(
    ("broken_rule", "threads", "first_seed"),
    [
        (nobody_looks_at_claims, False, 0),
        (nobody_looks_at_claims, True, 0),
        (stamps_are_not_compared, False, 0),
        (stamps_are_not_compared, True, 2),
        pytest.param(stamps_count_before_the_application_knows, True, 109, marks=pytest.mark.slow),
        (whoever_takes_a_partition_has_it, False, 29),
        (whoever_takes_a_partition_has_it, True, 0),
        (nobody_minds_its_own_silence, True, 27),
    ],
)
def test_a_rule_that_is_not_kept_is_noticed_within_300_schedules(broken_rule, threads, first_seed):
    """The first seeds are those that notice at once as the schedules are today."""
    with broken_rule():
        seeds = range(first_seed, first_seed + 300)
        assert any(run_schedule(seed, threads=threads).violations for seed in seeds)
