"""Rule L9 for a group's offsets: the power fails after any store call, and what was acknowledged is there.

Beside members that commit with fsync another commits without, as transactions with ``acks=1`` do. What a power loss
leaves of that in part is cleared away as docs/operations.md says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from sparklog.compaction import group_cleanup
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.commit import sync_unsynced
from sparklog.delta.names import parse_name
from sparklog.errors import CorruptLogError, ObjectNotFoundError, SparklogError, StoreUnavailableError
from sparklog.groups.offsets import offset_commit, offset_maintenance
from sparklog.groups.offsets.changes import Change
from sparklog.groups.offsets.offset_maintenance import clean_offset_log, maintain_offsets, sweep
from sparklog.groups.offsets.offset_state import UNSYNCED_INFO, load_state, load_whole
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.model import TopicPartition
from sparklog.storage import CreateResult, MemoryStore
from sparklog.testing import (
    Disk,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    PowerLossStore,
    SimulatedCrash,
    WrappedStore,
)
from tests.depth import each_nth
from tests.groups.offsets.support import (
    ANN,
    BOB,
    EVE,
    HOUR_MS,
    P0,
    P1,
    P2,
    a_table,
    check_whole,
    commit,
    do,
    offsets_of,
    take,
)
from tests.support import DAY_MS, T0_MS, LazyDisk, resealed
from tests.txn.support import a_cluster

SEEDS = each_nth(range(40), 2)
STEPS = 12
CALLS = 75  # of a play, or about so many


class Group:
    """Two members on one machine, whose power fails before the store call of a given number."""

    def __init__(self, random: Random, *, fails_at: int, disk: type[Disk] = Disk) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        do(a_table(self.memory, self.clock), take(ANN, P0), take(BOB, P1), take(EVE, P2))
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
        clean_offset_log(log)

    def expire(self) -> None:
        """The same in another order, as ``sparklog maintain`` does it for each group, without a checkpoint."""
        clean_offset_log(log := self._a_process().log)
        sweep(log)

    def checkpoint(self) -> None:
        write_checkpoint(self._a_process().log)

    def play(self) -> None:
        acts, weights = zip(*self.acts(), strict=True)
        with suppress(SimulatedCrash):
            for act in self._random.choices(acts, weights, k=STEPS):
                act()

    def check(self) -> None:
        found = offsets_of(check_whole(self.memory, self.clock))
        for partition, offset in self.acknowledged.items():
            assert offset <= (found[partition] or 0) <= self.asked, (found, self.acknowledged)

    def acts(self) -> list[tuple[Callable[[], object], int]]:
        """What may happen, and how often."""
        return [
            (self.commit, 8),
            (self.restart, 2),
            (self.maintain, 1),
            (lambda: self.clock.advance(2 * HOUR_MS + DAY_MS), 2),
        ]


class MixedGroup(Group):
    """The same beside a member whose commits aren't fsynced."""

    quick: OffsetTable | None = None
    quick_count = 0

    def commit_quickly(self) -> None:
        self.quick = self.quick or self._a_process()
        self.quick_count += 1
        do_unsynced(self.quick, commit(EVE, {P2: self.quick_count}))

    def restart_quick(self) -> None:
        self.quick = None

    def acts(self) -> list[tuple[Callable[[], object], int]]:
        return [
            *super().acts(),
            (self.commit_quickly, 12),
            (self.restart_quick, 1),
            (self.expire, 1),
            (self.checkpoint, 2),
        ]

    def check(self) -> None:
        clear_away(self)
        super().check()


def do_unsynced(table: OffsetTable, *changes: Change) -> None:
    done = table.change(changes, deadline=table.log.clock.deadline_in(120_000), sync=False)
    assert set(done.errors) == {None}


def clear_away(group: Group) -> list[int]:
    """Take away what errors name, with all behind it, until there is none. Returns the versions, as they were named."""
    cleared: list[int] = []
    while True:
        log = a_table(group.memory, group.clock).log
        try:
            load_state(log)
            load_whole(log)
            return cleared
        except (CorruptLogError, ObjectNotFoundError, StoreUnavailableError) as error:
            found = re.search(r"_delta_log/(\d{20})\.json|version (\d+)|/(\d{20})-[0-9a-f]{32}\.parquet", str(error))
            if found is None:
                raise
            version = int(next(number for number in found.groups() if number is not None))
        if version in cleared:
            raise CorruptLogError(f"cleared away {cleared}, and version {version} is named again")
        cleared.append(version)
        for path in [found.path for found in group.memory.list(f"{log.table}/_delta_log/")]:
            name = parse_name(path.rpartition("/")[2])
            if name is not None and (name if isinstance(name, int) else name.version) >= version:
                group.memory.delete([path])


def outage(seed: int, disk: type[Disk] = Disk, *, kind: type[Group] = Group) -> Group:
    """A play that ends with a power loss."""
    random = Random(seed)
    group = kind(random, fails_at=random.randrange(CALLS), disk=disk)
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
    assert found > len(SEEDS) / 4


# Beside commits without fsync


@pytest.mark.parametrize("seed", each_nth(range(120), 4))
def test_what_was_committed_with_fsync_is_there_beside_what_was_not(seed: int) -> None:
    outage(seed, kind=MixedGroup).check()


def before_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whoever commits fsyncs its own entry and file alone."""
    monkeypatch.setattr(offset_commit, "sync_unsynced", lambda log, unsynced: None)


def newest_alone_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whoever commits fsyncs the entry before its own, as if its writer had flushed all before that."""
    flush = sync_unsynced
    monkeypatch.setattr(
        offset_commit, "sync_unsynced", lambda log, unsynced: flush(log, unsynced and (unsynced[0], unsynced[-1]))
    )


def torn_entries_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whoever opened the table by its newest entry looks at none before it."""
    monkeypatch.setattr(offset_commit, "_check_nothing_is_torn", lambda log, state: None)


@pytest.mark.parametrize("plant", [before_is_not_flushed, newest_alone_is_flushed])
def test_commits_that_do_not_flush_what_others_left_are_found_out(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = 0
    for seed in range(120):
        group = outage(seed, kind=MixedGroup)
        try:
            group.check()
        except (AssertionError, SparklogError):
            found += 1
        if found > 2:
            break
    assert found > 2


def a_mixed_group(*, disk: type[Disk] = Disk) -> MixedGroup:
    return MixedGroup(Random(0), fails_at=10**9, disk=disk)


def entry_of(group: Group, version: int) -> str:
    return a_table(group.memory, group.clock).log.path_of(version)


def test_a_transactions_commit_without_fsync_flushes_nothing() -> None:
    group = a_mixed_group()
    group.commit_quickly()
    group.commit_quickly()
    info = load_info(group, 2)
    assert info[UNSYNCED_INFO] == 0  # the entry before them, of a process that may have died before its fsync
    assert {entry_of(group, 1), entry_of(group, 2)} <= {*group.disk.lose(group.disk.objects())}
    assert offsets_of(check_whole(group.memory, group.clock))[P2] is None


def load_info(group: Group, version: int) -> dict[str, object]:
    entry = a_table(group.memory, group.clock).log.read_entry(version)
    assert entry is not None
    assert entry.info is not None
    return {**entry.info}


@pytest.mark.parametrize("opened", ["before", "after"])
def test_whoever_commits_with_fsync_flushes_all_that_was_left_before(opened: str) -> None:
    group = a_mixed_group()
    steady = group._a_process()
    if opened == "before":
        steady.fetch()
    for _ in range(3):
        group.commit_quickly()
    do(steady, commit(ANN, {P0: 7}))
    live = [file.path for file in load_state(steady.log).live]
    lost = group.disk.lose(group.disk.objects())
    assert not [path for path in lost if "_delta_log" in path or path.rpartition("/")[2] in live]
    assert offsets_of(check_whole(group.memory, group.clock)) == {P0: 7, P1: None, P2: 3}


def test_whoever_takes_a_partition_flushes_all_that_was_left_before() -> None:
    group = a_mixed_group()
    for _ in range(2):
        group.commit_quickly()
    do(group._a_process(), take(BOB, P0))
    group.disk.lose(group.disk.objects())
    rows = check_whole(group.memory, group.clock)
    assert (rows[P0].stamp, offsets_of(rows)[P2]) == (BOB, 2)


def test_who_finds_its_change_done_flushes_before_it_says_so() -> None:
    group = a_mixed_group()
    do_unsynced(group._a_process(), commit(ANN, {P0: 4}))
    do(group._a_process(), commit(ANN, {P0: 4}))
    group.disk.lose(group.disk.objects())
    assert offsets_of(check_whole(group.memory, group.clock))[P0] == 4


def test_more_than_can_be_named_is_flushed_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.groups.offsets.offset_state._MAX_UNSYNCED", 2)
    group = a_mixed_group()
    for _ in range(4):
        group.commit_quickly()
    group.commit()
    assert "sync_all" in [call.op for call in group._machine.calls]
    group.disk.lose([path for path in group.disk.objects() if "_delta_log" in path])
    group.check()


@pytest.mark.parametrize("plant", [None, torn_entries_are_passed_over])
def test_nothing_is_acknowledged_behind_an_entry_that_is_torn(
    plant: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = a_mixed_group()
    for _ in range(3):
        group.commit_quickly()
    group.disk.lose([entry_of(group, 2)], torn=True)
    if plant is not None:
        plant(monkeypatch)
        group.commit()
        with pytest.raises(AssertionError):
            group.check()
        return
    with pytest.raises(CorruptLogError, match=f"{2:020d}.json"):
        group.commit()
    group.acknowledged.clear()
    assert clear_away(group) == [2]
    group.commit()
    group.check()


def test_a_newest_entry_that_is_torn_is_named_and_cleared_away() -> None:
    group = a_mixed_group()
    group.commit()
    group.commit_quickly()
    group.disk.lose([entry_of(group, 2)], torn=True)
    with pytest.raises(CorruptLogError, match=f"{2:020d}.json"):
        a_table(group.memory, group.clock).fetch()
    assert clear_away(group) == [2]
    group.check()


@pytest.mark.parametrize("torn", [False, True])
def test_a_file_of_the_newest_entry_that_is_lost_is_named(torn: bool) -> None:
    group = a_mixed_group()
    group.commit()
    group.commit_quickly()
    [file] = load_state(a_table(group.memory, group.clock).log).live
    group.disk.lose([f"groups/g/offsets/{file.path}"], torn=torn)
    with pytest.raises((CorruptLogError, ObjectNotFoundError), match=file.path):
        a_table(group.memory, group.clock).fetch()
    assert clear_away(group) == [2]
    group.check()


def test_who_always_loses_to_commits_without_fsync_flushes_late() -> None:
    """A writer that fsyncs before it creates is slower than one that doesn't."""
    group = a_mixed_group()
    quick = group._a_process()
    steady = group._a_process()
    steady.fetch()
    left = [9]

    class Hurried(WrappedStore):
        """Another commits before each of these creates, as long as what it creates is to be durable."""

        def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
            if sync and left[0] > 0:
                left[0] -= 1
                do_unsynced(quick, commit(EVE, {P2: 10 - left[0]}))
            return super().create(path, data, sync=sync)

    store = PowerLossStore(group.disk, group._machine)
    hurried = a_table(Hurried(store), group.clock)
    do(hurried, commit(ANN, {P0: 7}))
    assert left == [5]
    assert load_info(group, 5)[UNSYNCED_INFO] in range(6)
    group.disk.lose(group.disk.objects())
    assert offsets_of(check_whole(group.memory, group.clock))[P0] == 7
    left[0] = 0
    do(hurried, commit(ANN, {P0: 8}))
    assert UNSYNCED_INFO not in load_info(group, load_state(hurried.log).position.version)


def test_an_old_file_is_swept_once_what_replaced_it_is_durable() -> None:
    group = a_mixed_group()
    group.commit()
    group.clock.advance(2 * HOUR_MS)
    group.commit_quickly()
    group.clock.advance(2 * HOUR_MS)
    group.commit_quickly()
    assert sweep(group._a_process().log) > 0
    group.disk.lose(group.disk.objects())
    group.check()


def cleanup_flushes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: old entries are deleted before the newest version is durable."""
    monkeypatch.setattr(offset_maintenance, "_secure", lambda log: None)


def maintained(group: MixedGroup) -> object:
    """By the process whose commit makes it due."""
    return maintain_offsets(group._a_process().log, load_state(group._a_process().log).position.version)


def expired(group: MixedGroup) -> object:
    """By ``sparklog maintain``."""
    cluster = a_cluster(PowerLossStore(group.disk, group._machine), group.clock)
    return group_cleanup.expire_group(cluster, "g", now_ms=group.clock.now_ms(), timeout_ms=60_000)


@pytest.mark.parametrize("plant", [None, cleanup_flushes_nothing])
@pytest.mark.parametrize("clean", [maintained, expired])
def test_old_entries_are_deleted_once_the_newest_version_is_durable(
    clean: Callable[[MixedGroup], object],
    plant: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files were swept a moment ago, or the power fails before they are: nothing else flushes the newest file."""
    group = a_mixed_group()
    group.clock.advance(2 * HOUR_MS)
    group.commit_quickly()
    group.clock.advance(2 * HOUR_MS)
    group.commit_quickly()
    assert sweep(group._a_process().log) > 0
    group.commit()
    group.commit_quickly()
    write_checkpoint(group._a_process().log)
    monkeypatch.setattr(offset_maintenance, "checkpoint_due", lambda **_: True)
    monkeypatch.setattr(group_cleanup, "sweep", lambda log: 0)
    if plant is not None:
        plant(monkeypatch)
    clean(group)
    assert group.memory.list_names("groups/g/offsets/_delta_log/")[0] != f"{0:020d}.json"
    group.disk.lose(group.disk.objects())
    if plant is None:
        group.check()
        assert offsets_of(a_table(group.memory, group.clock).fetch())[P2] == 3
        return
    with pytest.raises(CorruptLogError):
        group.check()


@pytest.mark.parametrize("plant", [None, torn_entries_are_passed_over])
@pytest.mark.parametrize("clean", [lambda group: sweep(group._a_process().log), expired])
def test_nothing_is_swept_behind_an_entry_that_is_torn(
    clean: Callable[[MixedGroup], object],
    plant: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who commits without fsync goes on behind it for hours; what is cleared away then shows the version below."""
    group = a_mixed_group()
    group.commit()
    for _ in range(2):
        group.commit_quickly()
    group.disk.lose([entry_of(group, 2)], torn=True)
    for _ in range(2):
        group.clock.advance(2 * HOUR_MS)
        group.commit_quickly()
    if plant is not None:
        plant(monkeypatch)
        clean(group)
        with pytest.raises((KeyError, SparklogError)):
            group.check()
        return
    with pytest.raises(CorruptLogError, match=f"{2:020d}.json"):
        clean(group)
    group.check()


def test_what_is_said_of_fsync_and_makes_no_sense_is_named() -> None:
    group = a_mixed_group()
    path = entry_of(group, 0)
    data = group.memory.read(path).replace(b'"offsets_format":', f'"{UNSYNCED_INFO}":7,"offsets_format":'.encode())
    group.memory.put(path, resealed(data))
    with pytest.raises(CorruptLogError, match=UNSYNCED_INFO):
        a_table(group.memory, group.clock).fetch()
