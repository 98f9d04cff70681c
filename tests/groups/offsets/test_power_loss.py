"""Rule L9 for a group's offsets: the power fails after any store call, and what was acknowledged is there."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import SparklogError
from sparklog.groups.offsets.offset_maintenance import sweep
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import Disk, Fault, FaultKind, FaultyStore, ManualClock, PowerLossStore, SimulatedCrash
from tests.groups.offsets.support import ANN, BOB, HOUR_MS, P0, P1, a_table, check_whole, commit, do, offsets_of, take
from tests.support import DAY_MS, T0_MS, LazyDisk

SEEDS = range(40)
STEPS = 12
CALLS = 75  # of a play, or about so many


class Group:
    """Two members on one machine, whose power fails before the store call of a given number."""

    def __init__(self, random: Random, *, fails_at: int, disk: type[Disk] = Disk) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        do(a_table(self.memory, self.clock), take(ANN, P0), take(BOB, P1))
        self.disk = disk(self.memory)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.asked = 0
        self._random = random
        self._machine = FaultyStore(self.memory, Fault(kind=FaultKind.CRASH_BEFORE, at=fails_at))
        self._tables = {P0: self._a_process(), P1: self._a_process()}

    def _a_process(self) -> OffsetTable:
        return a_table(PowerLossStore(self.disk, self._machine), self.clock)

    def commit(self) -> None:
        partition = self._random.choice([P0, P1])
        self.asked += 1
        offset = self.asked
        do(self._tables[partition], commit(ANN if partition == P0 else BOB, {partition: offset}))
        self.acknowledged[partition] = offset

    def restart(self) -> None:
        self._tables[self._random.choice([P0, P1])] = self._a_process()

    def maintain(self) -> None:
        log = self._a_process().log
        write_checkpoint(log)
        sweep(log)
        clean_log(log, retention_ms=DAY_MS)

    def play(self) -> None:
        acts = [self.commit, self.restart, self.maintain, lambda: self.clock.advance(2 * HOUR_MS + DAY_MS)]
        with suppress(SimulatedCrash):
            for act in self._random.choices(acts, [8, 2, 1, 2], k=STEPS):
                act()

    def check(self) -> None:
        found = offsets_of(check_whole(self.memory, self.clock))
        for partition, offset in self.acknowledged.items():
            assert offset <= (found[partition] or 0) <= self.asked, (found, self.acknowledged)


def outage(seed: int, disk: type[Disk] = Disk) -> Group:
    """A play that ends with a power loss."""
    random = Random(seed)
    group = Group(random, fails_at=random.randrange(CALLS), disk=disk)
    group.play()
    group.disk.lose_power(random)
    return group


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_group_was_told_to_be_committed_is_there_after_a_power_loss(seed: int) -> None:
    outage(seed).check()


def test_commits_that_nobody_fsyncs_are_found_out() -> None:
    found = 0
    for seed in SEEDS:
        group = outage(seed, LazyDisk)
        try:
            group.check()
        except (AssertionError, SparklogError):
            found += 1
    assert found > 10
