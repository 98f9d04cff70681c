"""L9: the power fails after any store call. What was acknowledged with ``acks=all`` is there, and so is every
transaction that was; what is lost was acknowledged with ``acks=1``, or to nobody.

A topic has a durable writer (``acks=all``) and a quick one (``acks=1``) in processes of one machine: they commit
between each other's store calls, checkpoints are written, the log is cleaned, a process is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import TypeVar

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path, log_folder, parse_name
from sparklog.errors import CorruptLogError, SparklogError
from sparklog.groups.offsets import offset_maintenance
from sparklog.groups.offsets.changes import TakePartitions
from sparklog.groups.offsets.offset_maintenance import maintain_offsets
from sparklog.groups.offsets.offset_state import offset_log
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import Cluster, TopicFollower, TopicWriter, commit
from sparklog.log.announced import group, plan
from sparklog.log.append import AppendResult, StagedFile
from sparklog.log.commit import Commit
from sparklog.log.state import load_state
from sparklog.model import TopicPartition
from sparklog.paths import transaction_entry
from sparklog.storage import MemoryStore, ObjectStore
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
from sparklog.txn import recovery
from sparklog.txn.deciding import was_lost
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.recovery import EXPIRATION_MS, RecoveryAction, recover_transactions
from tests.support import (
    DAY_MS,
    T0_MS,
    LazyDisk,
    a_log,
    a_topic,
    a_writer,
    append,
    copy_of,
    no_checkpoints,
    records,
    versions_of,
    within,
)
from tests.txn.support import ANN, BOB, IN, Driver, a_cluster, a_world, committed, soon, take, values
from tests.txn.support import a_log as a_transaction_log

T = TypeVar("T")
NEVER = 10**9
SEEDS = range(32)
STEPS = 8
CALLS = 70  # of a play, or about so many: the power fails at one of them
CALLS_OF_TRANSACTIONS = 120


class OwnAlone(PowerLossStore):
    """Planted: a writer fsyncs what it writes itself, and never what others wrote before it."""

    def sync(self, paths: Iterable[str]) -> None:
        self._store.sync(paths)

    def sync_all(self) -> None:
        self._store.sync_all()


class Busy(WrappedStore):
    """Between a process's calls others act, by chance."""

    def __init__(self, store: ObjectStore, random: Random, others_act: Callable[[], object]) -> None:
        super().__init__(store)
        self.chance = 0.0
        self._random = random
        self._others_act = others_act

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self._random.random() < self.chance:
            self._others_act()
        return call()


class Topic:
    """A topic on one machine, whose power fails before the store call of a given number."""

    def __init__(
        self,
        random: Random,
        *,
        fails_at: int = NEVER,
        disk: type[Disk] = Disk,
        process: type[PowerLossStore] = PowerLossStore,
    ) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        a_topic(self.memory, self.clock)
        self.disk = disk(self.memory)
        self.acknowledged: dict[int, str] = {}
        """With ``acks=all``: values by offset."""
        self.version = 0
        """At which the newest of them were acknowledged."""
        self._random = random
        self._process = process
        self.machine = FaultyStore(self.memory, Fault(kind=FaultKind.CRASH_BEFORE, at=fails_at))
        self._sent = 0
        self.busy = Busy(self.machine, random, lambda: self.append_quick())
        self.keeper = self._a_process(self.machine)
        self.durable: TopicWriter | None = None
        self.quick: TopicWriter | None = None

    def _a_process(self, store: ObjectStore) -> DeltaLog:
        return a_log(self._process(self.disk, store), self.clock)

    def append_durable(self) -> None:
        self.durable = self.durable or a_writer(self._a_process(self.busy), sync=True)
        value = self._next("all")
        done = append(self.durable, value, timeout_ms=NEVER)
        self.acknowledged[done.base_offsets[0]] = value
        self.version = done.delta_version

    def append_quick(self) -> AppendResult:
        self.quick = self.quick or a_writer(self._a_process(self.machine))
        return append(self.quick, self._next("one"), timeout_ms=NEVER)

    def append_busily(self) -> None:
        self.busy.chance = self._random.choice([0.2, 0.9])
        self.append_durable()
        self.busy.chance = 0.0

    def _next(self, acks: str) -> str:
        self._sent += 1
        return f"{acks} {self._sent}"

    def restart_durable(self) -> None:
        self.durable = None

    def restart_quick(self) -> None:
        self.quick = None

    def checkpoint(self) -> None:
        write_checkpoint(self.keeper)

    def clean(self) -> None:
        clean_log(self.keeper, retention_ms=DAY_MS)

    def actions(self) -> list[tuple[Callable[[], object], int]]:
        """What may happen, and how often."""
        return [
            (self.append_durable, 4),
            (self.append_busily, 3),
            (self.append_quick, 5),
            (self.checkpoint, 1),
            (self.clean, 1),
            (self.restart_durable, 1),
            (self.restart_quick, 1),
            (lambda: self.clock.advance(DAY_MS), 1),
        ]

    def play(self, steps: int = STEPS) -> None:
        """Anything, until the power fails."""
        acts, weights = zip(*self.actions(), strict=True)
        with suppress(SimulatedCrash):
            for act in self._random.choices(acts, weights, k=steps):
                act()


def cut(log: DeltaLog, memory: MemoryStore, version: int) -> MemoryStore:
    """The same store, whose log ends with ``version``: as a person would leave it who takes away what is torn."""
    left = copy_of(memory)
    for path in [found.path for found in left.list(log_folder(log.table))]:
        name = parse_name(path.rpartition("/")[2])
        if name is not None and (name if isinstance(name, int) else name.version) > version:
            left.delete([path])
    return left


def torn_version(read: Callable[[], object]) -> int | None:
    """Of the log entry, or checkpoint, that an error names; None where all is whole."""
    try:
        read()
    except CorruptLogError as error:
        found = re.search(r"(?:/|version )([0-9]+)", str(error))
        if found is None:
            raise
        return int(found[1])
    return None


def check_after_power_loss(topic: Topic) -> None:
    """What was acknowledged with ``acks=all`` can be read up to the first torn entry, which is named and lies behind;
    and the topic takes another append that survives."""
    memory = topic.memory
    log = a_log(memory, topic.clock)
    torn = torn_version(lambda: load_state(log))
    if torn is not None:
        assert topic.version < torn
        memory = cut(log, memory, topic.version)
        log = a_log(memory, topic.clock)
    check_acknowledged(log, topic.acknowledged)
    disk = Disk(memory)
    done = append(a_writer(a_log(PowerLossStore(disk, memory), topic.clock), sync=True), "goes on")
    disk.lose_power(Random(1))
    check_acknowledged(log, topic.acknowledged)
    [offset] = done.base_offsets
    seen = TopicFollower(log, "t").read(0, offset)
    assert (seen["offset"].to_pylist(), seen["value"].to_pylist()) == ([offset], [b"goes on"])


def check_acknowledged(log: DeltaLog, acknowledged: dict[int, str]) -> None:
    """Everything up to the newest of these can be read, and is what was told."""
    end = max(acknowledged, default=-1) + 1
    table = TopicFollower(log, "t").read(0, 0, max_records=end) if end else None
    if table is not None:
        assert table["offset"].to_pylist() == list(range(end))
        seen = [value.decode() for value in table["value"].to_pylist()]
        assert {offset: seen[offset] for offset in acknowledged} == acknowledged


class SharedTopic(Topic):
    """A topic whose writers announce what they upload, and publish each other's (rule L14, announced uploads)."""

    pending: list[tuple[str, list[StagedFile]]]
    """What the durable writer has announced and doesn't know to be published."""

    def _a_writer(self, store: ObjectStore, *, sync: bool = False) -> TopicWriter:
        return TopicWriter(self._a_process(store), "t", sync=sync, group_commit=True, checkpoints=no_checkpoints())

    def announce_durable(self) -> None:
        if self.durable is None:
            self.durable, self.pending = self._a_writer(self.busy, sync=True), []
        value = self._next("all")
        self.pending.append((value, self.durable.upload([(0, records(value))], announce=True)))

    def append_durable(self) -> None:
        self.announce_durable()
        assert self.durable is not None
        while self.pending:
            value, files = self.pending[0]
            done = self.durable.append(files, deadline=within(self.durable, NEVER))
            self.acknowledged[done.base_offsets[0]] = value
            self.version = max(self.version, done.delta_version)
            del self.pending[0]

    def announce_quick(self) -> list[StagedFile]:
        self.quick = self.quick or self._a_writer(self.machine)
        return self.quick.upload([(0, records(self._next("one")))], announce=True)

    def append_quick(self) -> AppendResult:
        files = self.announce_quick()
        assert self.quick is not None
        return self.quick.append(files, deadline=within(self.quick, NEVER))

    def actions(self) -> list[tuple[Callable[[], object], int]]:
        return [*super().actions(), (self.announce_durable, 4), (self.announce_quick, 4)]


def outage(seed: int, topic_type: type[Topic] = Topic, **planted: type) -> Topic:
    """A play that ends with a power loss."""
    random = Random(seed)
    topic = topic_type(random, fails_at=random.randrange(CALLS), **planted)
    topic.play()
    topic.disk.lose_power(random)
    return topic


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_with_acks_all_is_there_after_a_power_loss(seed: int) -> None:
    check_after_power_loss(outage(seed))


@pytest.mark.parametrize("planted", [{"disk": LazyDisk}, {"process": OwnAlone}], ids=["no fsync", "own alone"])
def test_a_writer_that_fsyncs_nothing_or_its_own_alone_is_found_out(planted: dict[str, type]) -> None:
    found = 0
    for seed in SEEDS[:16]:
        topic = outage(seed, **planted)
        try:
            check_after_power_loss(topic)
        except (AssertionError, SparklogError):
            found += 1
    assert found > 2


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers announce and include, whether any has lost a race or not."""
    monkeypatch.setattr(group, "is_on", lambda last_seen, now: True)


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_another_published_with_acks_1_is_there_after_a_power_loss(seed: int) -> None:
    """… once its owner has acknowledged it with ``acks=all``; and so is what includes others' with ``acks=all``."""
    check_after_power_loss(outage(seed, SharedTopic))


def included_files_are_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an includer fsyncs its own files alone."""
    monkeypatch.setattr(plan, "Commit", lambda **fields: Commit(**{**fields, "synced_first": ()}))


def what_is_found_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an owner that finds itself in the entry of another acknowledges at once."""
    monkeypatch.setattr(
        commit._TopicTarget,
        "end_without_commit",
        lambda self, state: (state, True),
    )


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("plant", [None, included_files_are_not_flushed])
def test_files_of_others_are_flushed_before_the_entry_that_includes_them(
    plant: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = SharedTopic(Random(0))
    topic.append_durable()
    (file,) = topic.announce_quick()
    topic.append_durable()
    assert file.path in load_state(topic.keeper).require_whole().index.by_path
    assert topic.disk.lose(topic.disk.objects()) == []
    if plant is not None:
        plant(monkeypatch)
        (file,) = topic.announce_quick()
        topic.append_durable()
        assert file.path in load_state(topic.keeper).require_whole().index.by_path
        assert topic.disk.lose(topic.disk.objects()) == [f"topics/t/{file.path}"]


@pytest.mark.usefixtures("switched_on")
def test_an_owner_that_doesnt_flush_where_it_finds_itself_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    what_is_found_is_not_flushed(monkeypatch)
    found = 0
    for seed in range(150):
        topic = outage(seed, SharedTopic)
        try:
            check_after_power_loss(topic)
        except (AssertionError, SparklogError):
            found += 1
            break
    assert found


# What a seed seldom hits


def test_an_unsynced_entry_below_a_synced_one_is_made_durable_first() -> None:
    topic = Topic(Random(0))
    topic.append_durable()
    topic.append_quick()
    topic.append_durable()
    assert topic.disk.lose(topic.disk.objects()) == []
    check_after_power_loss(topic)


@pytest.mark.parametrize("torn", [False, True])
def test_what_comes_after_is_lost_and_an_error_names_the_torn_entry(torn: bool) -> None:
    topic = Topic(Random(0))
    topic.append_durable()
    lost = topic.append_quick()
    entry = entry_path("topics/t", lost.delta_version)
    assert entry in topic.disk.lose(topic.disk.objects(), torn=torn)
    if torn:
        with pytest.raises(CorruptLogError, match=entry):
            load_state(a_log(topic.memory, topic.clock))
    check_after_power_loss(topic)


@pytest.mark.parametrize("cleans", [False, True])
def test_a_checkpoint_of_an_entry_that_is_lost_doesnt_take_with_it_what_lay_below(cleans: bool) -> None:
    topic = Topic(Random(0))
    topic.append_durable()
    topic.append_durable()
    topic.clock.advance(2 * DAY_MS)
    topic.append_quick()
    lost = topic.append_quick()
    topic.checkpoint()
    if cleans:
        topic.clean()
        assert versions_of(a_log(topic.memory, topic.clock))[0] > 0
    topic.disk.lose([entry_path("topics/t", lost.delta_version)])
    check_acknowledged(a_log(topic.memory, topic.clock), topic.acknowledged)


def test_nothing_is_acknowledged_behind_a_torn_entry() -> None:
    topic = Topic(Random(0))
    torn = topic.append_quick()
    topic.append_quick()
    topic.disk.lose([entry_path("topics/t", torn.delta_version)], torn=True)
    assert torn_version(topic.append_durable) in (None, torn.delta_version)
    check_acknowledged(a_log(topic.memory, topic.clock), topic.acknowledged)


def test_what_a_writer_was_opened_over_is_read_once_however_long_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.log.state._MAX_UNSYNCED", 3)  # what others wrote is soon too much to be remembered
    topic = Topic(Random(0))
    for _ in range(4):
        topic.append_quick()
    topic.append_durable()
    for _ in range(4):
        topic.append_quick()
    topic.append_durable()
    seen = len(topic.machine.calls)
    topic.append_durable()
    again = [call.path for call in topic.machine.calls[seen:] if call.op == "get"]
    assert not {entry_path("topics/t", version) for version in range(5)} & {*again}
    read = [call.path for call in topic.machine.calls if call.op == "get"]
    assert [read.count(entry_path("topics/t", version)) for version in range(1, 4)] == [1, 1, 1]
    check_acknowledged(a_log(topic.memory, topic.clock), topic.acknowledged)


# Transactions


class World:
    """Two topics and a group on one machine; a producer with a transactional id, which others may finish for it."""

    def __init__(self, *, disk: type[Disk] = Disk) -> None:
        self.memory, self.clock, _ = a_world()
        self.disk = disk(self.memory)
        self.acknowledged: list[int] = []
        self.member = ANN
        self.sent = 0

    def cluster(self, *faults: Fault) -> Cluster:
        """As a process of its own sees it, which dies of these faults."""
        return a_cluster(PowerLossStore(self.disk, FaultyStore(self.memory, *faults)), self.clock)

    def transact(self, driver: Driver) -> None:
        self.sent += 1
        number = self.sent
        driver.begin()
        driver.send("t", f"{number}")
        driver.send("u", f"{number}")
        driver.send_offset(5 + number)
        driver.commit()
        self.acknowledged.append(number)

    def play(self, fails_at: int) -> None:
        """Transactions, one aborted, until the power fails."""
        with suppress(SimulatedCrash):
            cluster = self.cluster(Fault(kind=FaultKind.CRASH_BEFORE, at=fails_at))
            driver = Driver(cluster).init()
            self.transact(driver)
            write_checkpoint(cluster.topic_log("t"))
            driver.begin()
            driver.send("t", "aborted")
            driver.abort()
            driver = Driver(cluster).init()  # a new process
            self.transact(driver)
            self.transact(driver)
            driver.complete()

    def check(self) -> None:
        """Every transaction is everywhere or nowhere, what was acknowledged is everywhere; another can follow."""
        cluster = self.cluster()
        found = recover_transactions(cluster)
        assert all(one.action is not RecoveryAction.FAILED for one in found), found
        there = values(cluster, "t")
        assert values(cluster, "u") == there
        assert committed(cluster) == 5 + max(map(int, there), default=0)
        assert there == [str(number) for number in range(1, len(there) + 1)]
        assert len(there) >= len(self.acknowledged)
        self.sent = len(there)
        self.transact(Driver(self.cluster(), member=self.member).init())
        self.disk.lose_power(Random(1))
        assert values(self.cluster(), "u") == [str(number) for number in range(1, self.sent + 1)]


@pytest.mark.parametrize("fails_at", range(0, CALLS_OF_TRANSACTIONS + 5, 5))
def test_what_was_committed_is_everywhere_and_the_rest_nowhere_after_a_power_loss(fails_at: int) -> None:
    world = World()
    world.play(fails_at)
    assert len(world.acknowledged) == 3 or fails_at < CALLS_OF_TRANSACTIONS
    world.disk.lose_power(Random(fails_at))
    world.check()


def test_a_transaction_that_is_fsynced_nowhere_is_found_out() -> None:
    found = 0
    for fails_at in range(20, CALLS_OF_TRANSACTIONS, 12):
        world = World(disk=LazyDisk)
        world.play(fails_at)
        world.disk.lose_power(Random(fails_at))
        try:
            world.check()
        except (AssertionError, SparklogError):
            found += 1
    assert found > 4


def test_what_a_dead_process_did_is_made_durable_before_it_is_said_to_be_done() -> None:
    """Its entry is in the topic, but it died before the fsync: another finds it there and completes the transaction."""
    world = World()
    dies = Fault(kind=FaultKind.CRASH_BEFORE, ops=["sync"], path="topics/u/_delta_log/")
    with pytest.raises(SimulatedCrash):
        world.transact(Driver(world.cluster(dies)).init())
    [found] = recover_transactions(world.cluster())
    assert found.action is RecoveryAction.COMMITTED
    world.disk.lose(world.disk.objects())
    world.check()


@pytest.mark.parametrize("place", ["topics/u/_delta_log/", "groups/"])
def test_a_decision_is_made_durable_before_anything_of_it_is_carried_out(place: str) -> None:
    """Who decided died before the fsync, and who carries it out dies in the middle: half of it can't be left."""
    world = World()
    decides = Fault(kind=FaultKind.CRASH_BEFORE, ops=["sync"], path="transactions/tx/00000000000000000002.json")
    with pytest.raises(SimulatedCrash):
        world.transact(Driver(world.cluster(decides)).init())
    carries_out = Fault(kind=FaultKind.CRASH_BEFORE, ops=["create"], path=place)
    with pytest.raises(SimulatedCrash):
        recover_transactions(world.cluster(carries_out))
    world.disk.lose(world.disk.objects())
    world.check()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_no_entry_survives_above_one_that_is_lost(number: int) -> None:
    """Whoever created it died before the fsync; the next owner of the id begins its epoch behind it, and no more."""
    world = World()
    entry = transaction_entry("tx", number)
    dies = Fault(kind=FaultKind.CRASH_BEFORE, ops=["sync"], path=entry)
    with suppress(SimulatedCrash):
        driver = Driver(world.cluster(dies)).init()
        for _ in range(2):
            driver.begin()
            driver.abort()
    assert a_transaction_log(world.cluster()).numbers()[-1] == number
    Driver(world.cluster()).init()
    assert entry not in world.disk.lose([entry])
    world.check()


def test_offsets_count_by_no_decision_that_may_be_lost() -> None:
    """Who decided died before the fsync, and whoever takes the partition lets its offsets count."""
    world = World()
    decides = Fault(kind=FaultKind.CRASH_BEFORE, ops=["sync"], path=transaction_entry("tx", 2))
    with pytest.raises(SimulatedCrash):
        world.transact(Driver(world.cluster(decides)).init())
    take(world.cluster(), BOB)
    assert committed(world.cluster()) == 6
    world.disk.lose(world.disk.objects())
    world.member = BOB
    world.check()


# Transactions with acks=1

OTHER = TopicPartition("in", 1)


def flush_group(world: World) -> None:
    """A member commits with fsync: here it takes another partition."""
    change = TakePartitions(topic_ids={OTHER: "in-id"}, stamp=BOB)
    assert OffsetTable(world.cluster(), "g").change([change], deadline=soon(world.cluster())).errors == (None,)


def test_a_transaction_with_acks_1_fsyncs_no_offsets_of_groups() -> None:
    world = World()
    driver = Driver(world.cluster(), sync=False).init()
    fsynced = {**world.disk._durable}
    world.transact(driver)
    assert committed(world.cluster()) == 6
    assert world.disk._durable == fsynced
    world.disk.lose(world.disk.objects())
    assert (committed(world.cluster()), values(world.cluster(), "t")) == (5, [])


def test_a_checkpoint_of_offsets_outlives_the_power_with_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """✗ The entry is durable, its file isn't: both are cleared away, with the only entry that was left."""
    world = World()
    world.transact(Driver(world.cluster(), sync=False).init())
    monkeypatch.setattr(offset_maintenance, "checkpoint_due", lambda **_: True)
    maintain_offsets(offset_log(world.cluster(), "g"), 0)
    world.disk.lose(world.disk.objects())
    assert committed(world.cluster()) == 6


def test_a_take_makes_durable_what_a_transaction_with_acks_1_left() -> None:
    world = World()
    world.transact(Driver(world.cluster(), sync=False).init())
    take(world.cluster(), BOB)
    world.disk.lose(world.disk.objects())
    assert committed(world.cluster()) == 6


def test_a_decision_with_acks_1_is_flushed_with_its_files_by_who_helps() -> None:
    """Its producer died before its offsets counted."""
    world = World()
    dies = Fault(kind=FaultKind.CRASH_BEFORE, ops=["create"], path="topics/t/_delta_log/")
    driver = Driver(world.cluster(dies), sync=False).init()
    with pytest.raises(SimulatedCrash):
        world.transact(driver)
    world.acknowledged.append(1)
    take(world.cluster(), BOB)
    world.disk.lose(world.disk.objects())
    assert (committed(world.cluster()), values(world.cluster(), "t")) == (6, ["1"])
    world.member = BOB
    world.check()


def a_pending_offset_whose_decision_is_lost(world: World) -> None:
    """The group's offsets were fsynced by another, the newest entries of the id's log by nobody."""
    driver = Driver(world.cluster(), sync=False).init()
    for number in range(2):
        driver.begin()
        driver.send_offset(6 + number)
        driver.commit()
    driver.complete()
    driver.begin()
    driver.send_offset(8)
    flush_group(world)
    log = a_transaction_log(world.cluster())
    assert log.numbers() == [1, 2, 3, 4, 5]
    world.disk.lose([transaction_entry("tx", number) for number in log.numbers()])
    assert log.numbers() == [1]


def test_a_take_settles_an_offset_whose_decision_a_power_loss_took() -> None:
    world = World()
    a_pending_offset_whose_decision_is_lost(world)
    take(world.cluster(), BOB)
    assert committed(world.cluster()) == 7


def test_a_producer_goes_on_where_a_power_loss_took_the_end_of_its_ids_log() -> None:
    world = World()
    a_pending_offset_whose_decision_is_lost(world)
    driver = Driver(world.cluster(), sync=False).init()
    driver.begin()
    driver.send_offset(9)
    driver.commit()
    assert committed(world.cluster()) == 9


@pytest.mark.parametrize("inits", [[True], [False], [True, True], [False] * 3, [False] * 4, [True] * 4, [False] * 5])
def test_a_lost_decision_stays_lost_however_the_id_is_opened_again(inits: list[bool]) -> None:
    """With ``acks=all``, as by an older sparklog, no entry says ``unsynced``; and one may have the number before the
    one that was to decide."""
    world = World()
    a_pending_offset_whose_decision_is_lost(world)
    for sync in inits:
        Driver(world.cluster(), sync=sync).init()
    deciding = deciding_for(world.cluster(), reason="", timeout_ms=60_000)
    row = OffsetTable(world.cluster(), "g").fetch()[IN]
    assert row.pending is not None
    decider = row.pending.decider
    assert deciding.look(decider) == {}
    is_number_taken = decider.number in a_transaction_log(world.cluster()).numbers()
    assert was_lost(world.cluster(), decider) is not is_number_taken  # else the id has gone on
    take(world.cluster(), BOB)
    assert committed(world.cluster()) == 7


def test_an_epoch_that_takes_an_unused_id_is_begun_behind_what_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "clean_transaction_log", lambda log, newest: 0)  # the power fails before
    world = World()
    for number in range(2):
        driver = Driver(world.cluster(), sync=False).init()
        driver.begin()
        driver.send_offset(6 + number)
        driver.commit()
        driver.complete()
        driver.session.close()
    world.clock.advance(30 * DAY_MS)
    recover_transactions(world.cluster(), expire_after_ms=EXPIRATION_MS)
    numbers = a_transaction_log(world.cluster()).numbers()
    assert world.disk.lose([transaction_entry("tx", number) for number in numbers]) == []


def test_an_abort_with_acks_1_is_flushed_once_by_who_reads_behind_it() -> None:
    world = World()
    driver = Driver(world.cluster(), sync=False).init()
    driver.begin()
    driver.send_offset(6)
    decider = driver.session.decider
    driver.abort()
    machine = FaultyStore(world.memory)
    deciding = deciding_for(a_cluster(PowerLossStore(world.disk, machine), world.clock), reason="", timeout_ms=60_000)
    assert [deciding.finish(decider) for _ in range(3)] == [{}] * 3
    assert [call.op for call in machine.calls].count("sync_all") == 1
    assert transaction_entry("tx", decider.number) not in world.disk.lose(world.disk.objects())


def test_a_log_that_was_fsynced_and_ends_too_soon_is_still_an_error() -> None:
    world = World()
    driver = Driver(world.cluster()).init()
    driver.begin()
    driver.abort()
    driver.begin()
    driver.send_offset(8)
    world.memory.delete([transaction_entry("tx", number) for number in (2, 3)])
    with pytest.raises(CorruptLogError, match="its log ends at 1"):
        take(world.cluster(), BOB)


# The disk itself


def test_what_another_flushes_while_everything_is_flushed_survives_as_it_was_then() -> None:
    disk = Disk(memory := MemoryStore())
    other = PowerLossStore(disk, memory)

    class Slow(WrappedStore):
        """Whose sync_all takes so long that another writes meanwhile."""

        def sync_all(self) -> None:
            other.put("a", b"new", sync=True)
            other.create("b", b"b", sync=True)

    memory.put("a", b"old")
    memory.put("c", b"c")
    PowerLossStore(disk, Slow(memory)).sync_all()
    assert disk.lose(disk.objects()) == []
    assert disk.objects() == {"a": b"new", "b": b"b", "c": b"c"}
