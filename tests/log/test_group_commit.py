"""L14: what one writer announces another publishes, once, in order and whole; and what was withdrawn nobody does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.compaction.optimize import optimize_topic
from sparklog.delta.actions import AddFile, Entry, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    StoreError,
    StorePermissionError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.announced import inbox
from sparklog.log.announced.group import Participation, announced_files
from sparklog.log.announced.names import Announcement, parse_name
from sparklog.log.announced.turns import Turns
from sparklog.log.announced.writing import Claim
from sparklog.log.append import AppendResult, StagedFile, TopicWriter, UploadedFile
from sparklog.log.commit import GROUP_COMMIT_INFO, GROUP_COMMIT_TOOK_INFO, Commit, commit
from sparklog.log.data.carried_stats import STATS_KEY
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.maintenance import Checkpoints
from sparklog.log.state import TopicState, open_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.schemas import ValueSchema, value_schema
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.testing.faulty_store import SimulatedCrash
from tests.depth import each_nth
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    append,
    contents,
    no_checkpoints,
    records,
    two_days_of_others,
    within,
)

T = TypeVar("T")
MINUTE_MS = 60_000
CHECKPOINT_DUE = 99


class AlwaysOn:
    def is_on(self) -> bool:
        return True

    def switch_on(self) -> None:
        pass

    def after_loss(self, lost_races: int, round_trip_ms: float) -> None:
        pass

    def took_ms(self) -> Sequence[float]:
        return [0.0, 0.0]


def ask_for_group_commit(log: DeltaLog) -> None:
    """Commit an entry of which every writer that applies it learns that several lose races."""

    def decide(state: TopicState) -> Commit:
        return Commit(actions=[], head=state.head, operation="WRITE", includes_others=True)

    commit(open_state(log), decide, deadline=log.clock.deadline_in(1_000), sync=False, turns=AlwaysOn())


class ActsAfter(WrappedStore):
    """After each call of a kind, others act."""

    def __init__(self, store: ObjectStore, op: str, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._op = op
        self._act = act

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        answer = call()
        if op == self._op:
            self._act()
        return answer


class Group:
    """A topic and its writers, which all know that group commit is on."""

    def __init__(
        self,
        *stores: Callable[[ObjectStore], ObjectStore],
        num_partitions: int = 1,
        value_schema: ValueSchema | None = None,
    ) -> None:
        """Each of ``stores`` makes one writer's store of the common one."""
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        self.log = a_topic(self.memory, self.clock, num_partitions=num_partitions, value_schema=value_schema)
        self.stores = [make(self.memory) for make in stores]
        self.writers = [self.writer(store) for store in self.stores]
        self.switch_on()

    def writer(self, store: ObjectStore | None = None, *, sync: bool = False) -> TopicWriter:
        log = a_log(store or self.memory, self.clock)
        return TopicWriter(log, "t", group_commit=True, checkpoints=no_checkpoints(), sync=sync)

    def switch_on(self) -> None:
        ask_for_group_commit(self.log)
        for writer in self.writers:
            writer.refresh()

    def values(self, partition: int = 0) -> list[str]:
        return [value for _, value in contents(self.log)[partition]]


def plain(store: ObjectStore) -> ObjectStore:
    return store


def faulty(*faults: Fault, clock: ManualClock | None = None) -> Callable[[ObjectStore], ObjectStore]:
    return lambda store: FaultyStore(store, *faults, clock=clock)


def announce(writer: TopicWriter, *values: str, partition: int = 0) -> list[StagedFile]:
    files = writer.upload([(partition, records(*values))], announce=True)
    assert all(file.path.startswith("announced/") for file in files)
    return files


def publish(writer: TopicWriter, files: list[StagedFile], timeout_ms: float = 60_000) -> AppendResult:
    return writer.append(files, deadline=within(writer, timeout_ms))


def settled_numbers(log: DeltaLog) -> list[dict[str, int]]:
    """By entry, oldest first: what it settles."""
    entries = log.read_entries(0, open_state(log).position.version + 1)
    return [
        {a.app_id: a.version for a in entry.actions if isinstance(a, SetTransaction) and "announced" in a.app_id}
        for entry in entries
        if entry is not None
    ]


# What an includer does.


def test_whoever_commits_next_publishes_what_another_announced() -> None:
    group = Group(plain, CountingStore)
    owner, includer = group.writers
    theirs = announce(owner, "a", "b")
    mine = announce(includer, "c")
    assert publish(includer, mine).base_offsets == (0,)
    assert group.values() == ["c", "a", "b"]
    counting = CountingStore(group.memory)
    owner._log = a_log(counting, group.clock)
    version = open_state(group.log).position.version
    result = publish(owner, theirs)
    assert (result.base_offsets, result.delta_version) == ((1,), version)
    assert open_state(group.log).position.version == version
    assert counting.counts().get("create", 0) == 0


def test_an_entry_that_includes_others_asks_for_group_commit() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    announce(owner, "a")
    publish(includer, announce(includer, "c"))
    entry = group.log.read_entry(open_state(group.log).position.version)
    assert entry is not None
    assert (entry.info or {})[GROUP_COMMIT_INFO] is True
    assert [list(numbers.values()) for numbers in settled_numbers(group.log)][-1] == [0, 0]


def test_announcing_costs_a_put_and_including_a_listing_a_look_and_a_footer_once() -> None:
    group = Group(plain, CountingStore)
    owner, includer = group.writers
    store = group.stores[1]
    assert isinstance(store, CountingStore)
    counts = []
    for value in ("a", "b"):
        announce(owner, value)
        mine = announce(includer, value.upper())
        store.reset()
        publish(includer, mine)
        counts.append(store.counts())
    assert counts[0] == {"list": 1, "get": 2, "create": 1}
    assert counts[1] == {"list": 1, "get": 1, "create": 1}
    assert group.values() == ["A", "a", "B", "b"]


def test_the_creator_of_an_entry_alone_starts_the_checkpoint() -> None:
    group = Group()
    first = group.writer()
    while open_state(group.log).position.version < CHECKPOINT_DUE - 2:
        append(first, "x")
    starts: list[list[Callable[[], None]]] = [[], [], []]
    writers = [
        TopicWriter(group.log, "t", group_commit=True, checkpoints=Checkpoints(run=each.append), sync=False)
        for each in starts
    ]
    group.writers = writers
    ask_for_group_commit(group.log)
    for writer in writers:
        writer.refresh()
    files = [announce(writer, "a") for writer in writers]
    versions = {publish(writer, mine).delta_version for writer, mine in zip(writers, files, strict=True)}
    assert versions == {CHECKPOINT_DUE}
    assert [len(each) for each in starts] == [1, 0, 0]


def test_of_a_listing_only_what_isnt_settled_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    for value in ("a", "b", "c"):
        publish(owner, announce(owner, value))
    includer.refresh()
    parsed: list[str] = []

    def parse(path: str) -> Announcement | None:
        parsed.append(path)
        return parse_name(path)

    monkeypatch.setattr(inbox, "parse_name", parse)
    theirs = announce(owner, "d")
    publish(includer, announce(includer, "e"))
    assert parsed == [file.path for file in theirs]
    assert group.values() == ["a", "b", "c", "e", "d"]


def test_a_writer_is_alone_until_an_entry_asks_for_group_commit() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    calls = []
    for enabled in (False, True):
        store = FaultyStore(memory)
        writer = TopicWriter(a_log(store, clock), "t", group_commit=enabled, checkpoints=no_checkpoints())
        for number in range(5):
            files = writer.upload([(0, records(str(number)))], announce=True)
            assert files[0].path.startswith("partition=0/")
            publish(writer, files)
        calls.append([(call.op, call.path.partition("/")[0], call.path.count("/")) for call in store.calls])
    assert calls[0] == calls[1]
    entries = a_log(memory, clock).read_entries(1, 10)
    said = [(sorted(entry.info or {}), [type(action) for action in entry.actions]) for entry in entries if entry]
    assert len(said) == 10
    assert said[:5] == said[5:]
    assert not any(GROUP_COMMIT_INFO in info for info, _ in said)


def test_group_commit_switches_itself_on_where_races_are_lost_and_slow() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    other = TopicWriter(log, "t", group_commit=True, checkpoints=no_checkpoints())

    def act() -> None:
        clock.advance(10)
        append(other, "theirs")

    store = OvertakenStore(memory, act, times=2)
    writer = TopicWriter(a_log(store, clock), "t", group_commit=True, checkpoints=no_checkpoints())
    append(writer, "mine")
    announce(writer, "next")
    other.refresh()
    announce(other, "theirs, next")
    clock.advance(5_001)
    assert other.upload([(0, records("later"))], announce=True)[0].path.startswith("partition=")


class SlowCreates(WrappedStore):
    """A create takes so long, and every call is counted."""

    def __init__(self, store: ObjectStore, clock: ManualClock, *, takes_ms: float) -> None:
        super().__init__(store)
        self.takes_ms = takes_ms
        self.operations: list[str] = []
        self._clock = clock

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.operations.append(op)
        self._clock.advance(self.takes_ms if op == "create" else 0)
        return call()


def two_writers(takes_ms: float, **options: Any) -> tuple[ManualClock, TopicWriter, TopicWriter, SlowCreates]:
    """The second one's creates take so long, and it has made one. Group commit is off."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, **options)
    store = SlowCreates(memory, clock, takes_ms=takes_ms)
    first, second = (
        TopicWriter(a_log(one, clock), "t", group_commit=True, checkpoints=no_checkpoints())
        for one in (log.store, store)
    )
    append(second, "mine")
    return clock, first, second, store


def test_who_knows_of_others_announces_before_a_race_is_lost_and_lists_nothing() -> None:
    clock, first, second, store = two_writers(takes_ms=5)
    append(first, "theirs")
    second.refresh()
    store.operations.clear()
    files = announce(second, "a")
    publish(second, files)
    assert sorted(store.operations) == ["create", "put"]
    assert not second._group.is_on()
    clock.advance(60_000)
    assert second.upload([(0, records("later"))], announce=True)[0].path.startswith("partition=")


def test_what_was_announced_early_is_published_by_whoever_finds_it_first() -> None:
    _, first, second, _ = two_writers(takes_ms=5)
    append(first, "theirs")
    second.refresh()
    files = announce(second, "a")
    ask_for_group_commit(first._log)
    first.refresh()
    publish(first, announce(first, "b"))
    version = open_state(first._log).position.version
    publish(second, files)
    assert open_state(first._log).position.version == version


@pytest.mark.parametrize(("takes_ms", "has_company"), [(3, True), (5, False)])
def test_a_quick_or_lone_writer_announces_nothing_early(takes_ms: float, has_company: bool) -> None:
    _, first, second, _ = two_writers(takes_ms=takes_ms)
    if has_company:
        append(first, "theirs")
        second.refresh()
    append(second, "again")
    assert second.upload([(0, records("x"))], announce=True)[0].path.startswith("partition=")


def test_whoever_lists_nothing_of_its_own_includes_nobody() -> None:
    """The store's time isn't known: an ordinary upload tells nothing of it."""
    group = Group(plain, plain)
    owner, includer = group.writers
    announce(owner, "a")
    publish(includer, includer.upload([(0, records("ordinary"))]))
    assert group.values() == ["ordinary"]


def test_a_store_that_refuses_listings_leaves_each_writer_to_itself() -> None:
    refuses = Fault(kind=FaultKind.THROTTLED, ops=["list"], path="announced/", times=None)
    group = Group(plain, faulty(refuses))
    owner, includer = group.writers
    theirs = announce(owner, "a")
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b"]
    publish(owner, theirs)
    assert group.values() == ["b", "a"]


@pytest.mark.parametrize(
    "lie",
    [
        {"record_count": 3},
        {"min_timestamp_ms": T0_MS - 1},
        {"max_timestamp_ms": T0_MS + 5},
        {"producer_id": 1},
        {"base_sequence": 7},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_an_announcer_that_states_what_its_file_doesnt_hold_is_passed_over(
    lie: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(plain, plain)
    owner, includer = group.writers

    def lying(claim: Claim, batches: Sequence[tuple[int, EncodedBatch]], **facts: Any) -> list[UploadedFile] | None:
        changed = []
        for partition, batch in batches:
            stamp = replace(
                batch.stamp, **{name: lie[name] for name in lie if name in ("producer_id", "base_sequence")}
            )
            facts_of_batch = {name: lie[name] for name in lie if hasattr(batch, name)}
            changed.append((partition, replace(batch, stamp=stamp, **facts_of_batch)))  # type: ignore[arg-type]
        return announced_files(claim, changed, **facts)

    monkeypatch.setattr("sparklog.log.announced.group.announced_files", lying)
    announce(owner, "a")
    monkeypatch.undo()
    publish(includer, announce(includer, "b"))
    announce(owner, "c")
    publish(includer, announce(includer, "d"))
    assert group.values() == ["b", "d"]


def test_garbage_in_the_folder_is_passed_over() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    theirs = announce(owner, "a")
    folder = theirs[0].path.rpartition("/")[0]
    group.memory.put(f"topics/t/{folder}/garbage.parquet", b"x")
    group.memory.put(f"topics/t/{folder}/{'0' * 158}.parquet", b"x")
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b", "a"]


def test_a_file_with_a_broken_footer_is_passed_over() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    path = f"topics/t/{announce(owner, 'a')[0].path}"
    whole = group.memory.read(path)
    footer = whole.rindex(b"offset_delta")
    group.memory.put(path, whole[:footer] + b"\xff" * 6 + whole[footer + 6 :])  # no UTF-8
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b"]


def announce_values(writer: TopicWriter, *values: dict[str, Any]) -> list[StagedFile]:
    """A flush of a typed topic's values, in partition 0."""
    data = pa.array(values, writer.head.values)
    times = pa.array([T0_MS] * len(values), pa.int64())
    ids = pa.array([1] * len(values), pa.int32())
    columns = {"timestamp": times, "value": pa.nulls(len(values), pa.binary()), "data": data, "schema_id": ids}
    staged = writer.stage([(0, pa.table(columns))], announce=True)
    return list(writer.put(staged))


def bounds_in_log(log: DeltaLog) -> list[tuple[Any, Any, Any]]:
    """Least and greatest values and numbers of nulls, of each file that the last entry adds."""
    entry = log.read_entry(open_state(log).position.version)
    assert entry is not None
    stats = [a.stats or {} for a in entry.actions if isinstance(a, AddFile)]
    return [tuple(one.get(side, {}).get("data") for side in ("minValues", "maxValues", "nullCount")) for one in stats]


TYPED = value_schema("id BIGINT, note STRING, ratio DOUBLE")


def test_what_another_publishes_has_its_values_statistics() -> None:
    group = Group(plain, CountingStore, value_schema=TYPED)
    owner, includer = group.writers
    store = group.stores[1]
    assert isinstance(store, CountingStore)
    counts = []
    for _ in range(2):
        owner.refresh()
        announce_values(owner, {"id": 5, "note": "b", "ratio": 0.5}, {"id": 3, "note": None, "ratio": float("nan")})
        mine = announce_values(includer, {"id": 1, "note": "m", "ratio": None})
        store.reset()
        publish(includer, mine)
        counts.append(store.counts())
        assert bounds_in_log(group.log) == [
            ({"id": 1, "note": "m"}, {"id": 1, "note": "m"}, {"id": 0, "note": 0, "ratio": 1}),
            ({"id": 3, "note": "b"}, {"id": 5, "note": "b"}, {"id": 0, "note": 1, "ratio": 0}),
        ]
    assert counts[0] == {"list": 1, "get": 3, "create": 1}
    assert counts[1] == {"list": 1, "get": 2, "create": 1}


def test_what_is_announced_early_carries_its_values_statistics() -> None:
    _, first, second, _ = two_writers(takes_ms=5, value_schema=TYPED)
    publish(first, announce_values(first, {"id": 5}))
    second.refresh()
    [file] = announce_values(second, {"id": 1})
    assert not second._group.is_on()
    assert not file.path.startswith("partition=")
    assert STATS_KEY in (pq.read_metadata(pa.BufferReader(file.batch.data)).metadata or {})


@pytest.mark.parametrize("how", ["an owner of before", "an includer of before", "unreadable"])
def test_without_statistics_in_the_footer_or_a_reader_of_them_files_have_none(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [plain, plain]
    group = Group(*stores, value_schema=TYPED)
    owner, includer = group.writers
    if how == "an owner of before":
        monkeypatch.setattr("sparklog.log.data.encode.footer_entry", lambda stats: {})
    announce_values(owner, {"id": 5})
    monkeypatch.undo()
    if how == "an includer of before":
        monkeypatch.setattr("sparklog.log.announced.group.Participation._read_stats", lambda self, state: None)
    elif how == "unreadable":

        def refuse(*_: object) -> None:
            raise StoreError("busy")

        monkeypatch.setattr("sparklog.log.announced.inbox._carried", refuse)
    publish(includer, announce_values(includer, {"id": 1}))
    (_, _, own), (low, high, nulls) = bounds_in_log(group.log)
    assert own == {"id": 0, "note": 1, "ratio": 1}
    assert low is high is nulls is None
    assert open_state(group.log).head.log_end_offsets == (2,)


def test_an_includer_that_always_meets_newer_versions_creates_in_the_end() -> None:
    group = Group(plain, plain)
    other, includer = group.writers
    lists: list[int] = []

    def overtake() -> None:
        if len(lists) < 50:
            lists.append(1)
            append(other, "x")

    listing = ActsAfter(group.memory, "list", overtake)
    includer._state.log = includer._log = a_log(listing, group.clock)
    publish(includer, announce(includer, "b"))
    assert len(lists) < 10
    assert group.values().count("b") == 1


def requests_behind(
    others: int, upload: Callable[[TopicWriter], list[StagedFile]], *, is_refreshed: bool = False
) -> tuple[int, int]:
    """How many creates and listings it takes to publish an upload, where so many versions of others came behind it."""
    group = Group(plain, plain)
    other, owner = group.writers
    publish(owner, announce(owner, "first"))
    theirs = upload(owner)
    for number in range(others):
        append(other, str(number))
    ask_for_group_commit(group.log)
    if is_refreshed:
        owner.refresh()
    owner._group.switch_on()
    counting = CountingStore(group.memory)
    owner._state.log = owner._log = a_log(counting, group.clock)
    publish(owner, theirs)
    return counting.counts().get("create", 0), counting.counts().get("list", 0)


@pytest.mark.parametrize(("create_ms", "bound_ms"), [(60.0, 1_500.0), (400.0, 3_000.0)])
def test_a_turn_is_put_off_for_a_second_and_a_half_or_three_paces_at_most(create_ms: float, bound_ms: float) -> None:
    group = Group(plain)
    [writer] = group.writers
    knowledge, began = writer._group, group.clock.ticks_ms()
    turns = Participation(knowledge, deadline=within(writer, 120_000))
    knowledge.turns._random = lambda: 0.999
    knowledge.turns.note_took(40.0, create_ms)
    others = [f"announced:{number}" for number in range(1, 100)]
    drawn = []
    for version in range(40):
        now = group.clock.ticks_ms()
        knowledge.turns.observe(others, now, version=version)
        drawn.append(turns._draw(replace(writer._state, position=replace(writer._state.position, version=version))))
        group.clock.sleep_ms(90)
    assert max(drawn[1:]) <= began + bound_ms
    assert drawn[-1] < group.clock.ticks_ms() - 90


def test_what_nobody_else_publishes_is_created_right_behind_the_newest_version() -> None:
    def upload(writer: TopicWriter) -> list[StagedFile]:
        return writer.upload([(0, records("ordinary"))])

    assert {requests_behind(others, upload) for others in (0, 1, 2, 7, 30)} == {(1, 0)}


def test_an_entry_tells_others_how_long_a_listing_and_a_create_take() -> None:
    group = Group(lambda store: ActsAfter(store, "create", lambda: group.clock.advance(50)), plain)
    slow, other = group.writers
    for number in range(2):
        theirs = announce(other, f"theirs {number}")
        publish(slow, announce(slow, str(number)))
        publish(other, theirs)
    found = [entry.info for entry in group.log.read_entries(0, slow.version + 1) if entry is not None]
    told = [info[GROUP_COMMIT_TOOK_INFO] for info in found if info is not None and GROUP_COMMIT_TOOK_INFO in info]
    assert told[-1] == [0.0, 50.0]
    other.refresh()
    assert other._group.turns.cycle_ms == pytest.approx(70)


def test_the_look_beside_a_listing_begins_so_late_that_both_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(plain)
    [writer] = group.writers
    look, began_ms = DeltaLog.look, list[float]()

    def look_and_note(log: DeltaLog, *given: Any, **kwargs: Any) -> Any:
        began_ms.append(log.clock.ticks_ms())
        return look(log, *given, **kwargs)

    monkeypatch.setattr(DeltaLog, "look", look_and_note)
    for look_ms, later_ms in ((20.0, 30.0), (60.0, 0.0)):
        writer._group._notes._turns = Turns(lambda: 0.0)
        writer._group.turns.note_took(50.0, 50.0)
        writer._group.turns.note_look(look_ms)
        mine = announce(writer, "a")
        before_ms = group.clock.ticks_ms()
        publish(writer, mine)
        assert began_ms[-1] == before_ms + later_ms


@pytest.mark.parametrize("lie", [None, 3, "ab", [1], [1, "2"], [1, 2, 3], [-1, 5], [10**400, 1], {"a": 1, "b": 2}])
def test_an_entry_that_tells_nonsense_of_its_times_changes_nothing(lie: object) -> None:
    group = Group(plain)
    (writer,) = group.writers
    info = {GROUP_COMMIT_INFO: True, GROUP_COMMIT_TOOK_INFO: lie}
    before = writer._group.turns.cycle_ms
    entry = Entry(version=9, token="x", actions=(), commit_info={"timestamp": 10**400}, info=info)
    writer._group.note_entry(entry)
    assert writer._group.turns.cycle_ms == before
    publish(writer, announce(writer, "a"))


def test_what_is_listed_no_more_is_created_after_one_wide_listing_of_two_folders() -> None:
    assert requests_behind(30, lambda writer: announce(writer, "old"), is_refreshed=True) == (1, 2)


def test_what_is_listed_no_more_is_published_with_what_others_announced_as_long_ago() -> None:
    group = Group(plain, plain, plain)
    other, *owners = group.writers
    theirs = [announce(owner, f"old {number}") for number, owner in enumerate(owners)]
    for number in range(30):
        append(other, str(number))
    group.switch_on()
    versions = {publish(owner, files).delta_version for owner, files in zip(owners, theirs, strict=True)}
    assert len(versions) == 1
    assert sorted(group.values()) == sorted(["old 0", "old 1", *map(str, range(30))])


def test_a_withdrawal_is_created_right_behind_the_newest_version() -> None:
    group = Group(plain, plain)
    other, owner = group.writers
    theirs = announce(owner, "a")
    for number in range(7):
        append(other, str(number))
    counting = CountingStore(group.memory)
    owner._state.log = owner._log = a_log(counting, group.clock)
    owner._group.switch_on()
    assert owner.withdraw(theirs, deadline=within(owner, 5_000)) is None
    assert (counting.counts()["create"], counting.counts().get("list", 0)) == (1, 0)


class NoListing(WrappedStore):
    """A store that refuses to list what is announced."""

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "list" and "announced/" in path:
            raise StorePermissionError("list: forbidden")
        return call()


def test_who_may_not_list_creates_right_behind_the_newest_version() -> None:
    group = Group(plain, NoListing)
    other, owner = group.writers
    publish(owner, announce(owner, "first"))
    theirs = announce(owner, "a")
    for number in range(3):
        append(other, str(number))
    owner._group.switch_on()
    counting = CountingStore(owner._log.store)
    owner._state.log = owner._log = a_log(counting, group.clock)
    publish(owner, theirs)
    assert (counting.counts()["create"], counting.counts().get("list", 0)) == (1, 0)


def test_a_writer_that_loses_two_races_announces_before_anybody_asks_for_it() -> None:
    group = Group(plain)
    (other,) = group.writers
    group.clock.advance(6_000)

    def overtake() -> None:
        group.clock.advance(10)
        append(other, "x")

    loser = group.writer(OvertakenStore(group.memory, overtake, times=99))
    files = loser.upload([(0, records("a"))], announce=True)
    assert not files[0].path.startswith("announced/")
    with pytest.raises(KafkaTimeoutError):
        publish(loser, files, timeout_ms=100)
    announce(loser, "b")


def test_an_includer_that_opened_behind_the_owners_knowledge_publishes_nothing_twice() -> None:
    group = Group(plain)
    (owner,) = group.writers
    first = announce(owner, "a")
    publish(owner, first)
    late = group.writer()
    group.writers.append(late)
    group.switch_on()
    publish(late, announce(late, "b"))
    assert group.values() == ["a", "b"]


# What an owner does.


def test_an_owners_commit_takes_all_that_it_has_announced_in_order() -> None:
    group = Group(plain)
    (owner,) = group.writers
    first, second = announce(owner, "a"), announce(owner, "b")
    assert publish(owner, first).base_offsets == (0,)
    assert group.values() == ["a", "b"]
    version = open_state(group.log).position.version
    assert publish(owner, second).base_offsets == (1,)
    assert open_state(group.log).position.version == version


def test_what_is_announced_behind_an_ordinary_upload_doesnt_overtake_it() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    ordinary = owner.upload([(0, records("a"))])
    behind = announce(owner, "b")
    publish(includer, announce(includer, "x"))
    assert group.values() == ["x"]
    publish(owner, ordinary)
    last = announce(owner, "c")
    publish(includer, announce(includer, "y"))
    assert group.values() == ["x", "a", "b", "y", "c"]
    assert [publish(owner, files).base_offsets for files in (behind, last)] == [(2,), (4,)]


def test_two_ordinary_uploads_and_one_behind_them_keep_their_order() -> None:
    """The commit of the first must not settle what stands for both."""
    group = Group(plain, plain)
    owner, includer = group.writers
    first, second = owner.upload([(0, records("a"))]), owner.upload([(0, records("b"))])
    behind = announce(owner, "c")
    publish(owner, first)
    publish(includer, announce(includer, "x"))
    assert group.values() == ["a", "x"]
    publish(owner, [*second, *behind])
    assert group.values() == ["a", "x", "b", "c"]


def test_ordinary_uploads_before_and_behind_an_announced_one_keep_their_order() -> None:
    group = Group(plain)
    (owner,) = group.writers
    first, announced = owner.upload([(0, records("a"))]), announce(owner, "b")
    last = owner.upload([(0, records("c"))])
    assert publish(owner, [*first, *announced, *last]).base_offsets == (0, 1, 2)
    assert group.values() == ["a", "b", "c"]


def test_what_is_behind_an_ordinary_upload_that_was_forgotten_is_published() -> None:
    group = Group(plain)
    (owner,) = group.writers
    ordinary, behind = owner.upload([(0, records("a"))]), announce(owner, "b")
    owner.forget(ordinary)
    assert publish(owner, behind).base_offsets == (0,)
    assert group.values() == ["b"]


def test_announced_and_ordinary_files_of_one_append_keep_their_order() -> None:
    group = Group(plain)
    (owner,) = group.writers
    announced = announce(owner, "a")
    ordinary = owner.upload([(0, records("b"))])
    assert publish(owner, [*announced, *ordinary]).base_offsets == (0, 1)
    assert group.values() == ["a", "b"]


def test_a_flush_that_was_withdrawn_is_published_by_nobody() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    files = announce(owner, "a")
    assert owner.withdraw(files, deadline=within(owner, 5_000)) is None
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b"]
    with pytest.raises(IllegalStateError, match="hasn't appended or withdrawn"):
        publish(owner, files)
    publish(owner, announce(owner, "c"))
    assert group.values() == ["b", "c"]


def test_a_withdrawal_that_comes_too_late_says_where_the_records_are() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    files = announce(owner, "a")
    publish(includer, announce(includer, "b"))
    result = owner.withdraw(files, deadline=within(owner, 5_000))
    assert result is not None
    assert result.base_offsets == (1,)
    assert group.values() == ["b", "a"]


def test_a_withdrawal_that_comes_too_late_puts_again_what_is_gone() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    theirs = announce(owner, "a")
    publish(includer, announce(includer, "b"))
    group.memory.delete([f"topics/t/{theirs[0].path}"])  # by a vacuum that began before it was published
    group.clock.advance(10 * MINUTE_MS)
    assert owner.withdraw(theirs, deadline=within(owner, 5_000)) is not None
    assert group.values() == ["b", "a"]


def test_a_withdrawal_publishes_what_was_announced_behind_it() -> None:
    group = Group(plain)
    (owner,) = group.writers
    first, second = announce(owner, "a"), announce(owner, "b")
    assert owner.withdraw(first, deadline=within(owner, 5_000)) is None
    assert group.values() == ["b"]
    assert publish(owner, second).base_offsets == (0,)


def test_a_withdrawal_beside_an_includer_is_one_or_the_other() -> None:
    """The includer has listed the flush, and loses the create to the withdrawal: it decides again."""
    group = Group(plain, plain)
    owner, _ = group.writers
    files = announce(owner, "a")

    def withdraw() -> None:
        assert owner.withdraw(files, deadline=within(owner, 5_000)) is None

    late = group.writer(OvertakenStore(group.memory, withdraw))
    group.writers.append(late)
    late.refresh()
    ask_for_group_commit(group.log)
    late.refresh()
    publish(late, announce(late, "b"))
    assert group.values() == ["b"]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_an_upload_without_an_answer_is_published_or_withdrawn(kind: FaultKind) -> None:
    lost = Fault(kind=kind, ops=["put"], path="announced/", times=None)
    for is_published_first in (True, False):
        group = Group(faulty(lost), plain)
        owner, includer = group.writers
        staged = owner.stage([(0, records("a"))], announce=True)
        with group_patience(owner), pytest.raises(StoreError):
            owner.put(staged)
        files = staged.files_if_failed
        assert files
        is_there = kind is FaultKind.LOST_ANSWER
        if is_published_first:
            publish(includer, announce(includer, "b"))
        result = owner.withdraw(files, deadline=within(owner, 5_000))
        assert (result is not None) == (is_there and is_published_first)
        publish(includer, announce(includer, "c"))
        assert ("a" in group.values()) == (result is not None)


def group_patience(writer: TopicWriter) -> AbstractContextManager[None]:
    store = writer._log.store
    assert isinstance(store, RetryingStore)
    return store.patience(Patience(deadline=within(writer, 10), retries=0))


def test_a_flush_whose_owner_cant_withdraw_it_is_unknown() -> None:
    refuses = Fault(kind=FaultKind.READ_ONLY, ops=["create"], times=None)
    group = Group(faulty(refuses), plain)
    owner, includer = group.writers
    files = announce(owner, "a")
    with pytest.raises(StoreError):
        publish(owner, files)
    assert not owner.published(files)
    with pytest.raises(CommitStateUnknownError, match="couldn't be withdrawn"):
        owner.withdraw(files, deadline=within(owner, 5_000))
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b", "a"]


def test_an_append_that_timed_out_may_still_be_published_until_it_is_withdrawn() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    files = announce(owner, "a")

    def overtake() -> None:
        append(includer, "x")
        group.clock.advance(1_000)

    overtaken = OvertakenStore(group.memory, overtake, times=99)
    owner._state.log = owner._log = a_log(overtaken, group.clock)
    with pytest.raises(KafkaTimeoutError):
        publish(owner, files, timeout_ms=3_000)
    assert "a" not in group.values()
    publish(includer, announce(includer, "b"))
    result = owner.withdraw(files, deadline=within(owner, 5_000))
    assert result is not None
    assert group.values().count("a") == 1


# Dies, sleeps, loses an answer.


def test_what_a_dead_owner_announced_is_published_for_five_minutes_once() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    announce(owner, "a")
    del owner
    for value in ("b", "c"):
        publish(includer, announce(includer, value))
    assert group.values() == ["b", "a", "c"]


def test_what_is_older_than_five_minutes_only_its_owner_publishes() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    theirs = announce(owner, "a")
    group.clock.advance(5 * MINUTE_MS + 1)
    group.switch_on()
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b"]
    assert publish(owner, theirs).base_offsets == (1,)
    assert group.values() == ["b", "a"]
    entry = group.log.read_entry(open_state(group.log).position.version)
    assert entry is not None
    (add,) = [action for action in entry.actions if isinstance(action, AddFile)]
    assert add.path.startswith("partition=0/")
    assert list(settled_numbers(group.log)[-1].values()) == [0]


def test_part_of_a_flush_is_never_published() -> None:
    """Its owner died between two PUTs."""
    second_part = Fault(kind=FaultKind.CRASH_BEFORE, ops=["put"], path="announced/", skip=1)
    group = Group(faulty(second_part), plain, num_partitions=2)
    owner, includer = group.writers
    with pytest.raises(SimulatedCrash):
        owner.upload([(0, records("a")), (1, records("b"))], announce=True)
    publish(includer, announce(includer, "c"))
    assert contents(group.log) == {0: [(0, "c")], 1: []}


def test_a_flush_of_several_partitions_is_published_whole() -> None:
    group = Group(plain, plain, num_partitions=2)
    owner, includer = group.writers
    files = owner.upload([(1, records("b")), (0, records("a")), (1, records("c"))], announce=True)
    publish(includer, announce(includer, "x"))
    assert contents(group.log) == {0: [(0, "x"), (1, "a")], 1: [(0, "b"), (1, "c")]}
    assert publish(owner, files).base_offsets == (0, 1, 1)


def test_an_includer_that_sleeps_between_listing_and_create_leaves_out_what_is_old() -> None:
    group = Group(plain, plain)
    owner, _ = group.writers
    theirs = announce(owner, "a")

    def sleep() -> None:
        group.clock.advance(10 * MINUTE_MS)
        append(other, "x")

    other = group.writer()
    sleepy = group.writer(OvertakenStore(group.memory, sleep))
    group.writers.append(sleepy)
    group.switch_on()
    publish(sleepy, announce(sleepy, "b"), timeout_ms=60 * MINUTE_MS)
    assert group.values() == ["x", "b"]
    assert publish(owner, theirs).base_offsets == (2,)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS])
def test_an_includer_that_loses_the_answer_publishes_once_and_owners_find_themselves(kind: FaultKind) -> None:
    lost = Fault(kind=kind, ops=["create"])
    group = Group(plain, faulty(lost))
    owner, includer = group.writers
    theirs = announce(owner, "a")
    assert publish(includer, announce(includer, "b")).base_offsets == (0,)
    assert publish(owner, theirs).base_offsets == (1,)
    assert group.values() == ["b", "a"]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_a_withdrawal_that_loses_its_answer_is_settled_by_what_is_there(kind: FaultKind) -> None:
    group = Group(faulty(Fault(kind=kind, ops=["create"])), plain)
    owner, includer = group.writers
    files = announce(owner, "a")
    assert owner.withdraw(files, deadline=within(owner, 5_000)) is None
    publish(includer, announce(includer, "b"))
    assert group.values() == ["b"]


def test_a_withdrawal_whose_outcome_stays_unknown_is_told_so() -> None:
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=["create"], times=None)
    group = Group(faulty(lost), plain)
    owner, _ = group.writers
    files = announce(owner, "a")
    refuses_reads = Fault(kind=FaultKind.LOST_REQUEST, ops=["get"], times=None)
    store = FaultyStore(group.memory, lost, refuses_reads)
    owner._state.log = owner._log = a_log(store, group.clock)
    with pytest.raises(CommitStateUnknownError):
        owner.withdraw(files, deadline=within(owner, 5_000))


def test_an_owner_that_slept_for_days_finds_its_flush_in_the_loaded_table() -> None:
    """Its position was cleaned away meanwhile."""
    group = Group(plain, plain)
    owner, includer = group.writers
    theirs = announce(owner, "a")
    publish(includer, announce(includer, "b"))
    two_days_of_others(group.memory, group.clock)
    assert publish(owner, theirs).base_offsets == (1,)
    assert group.values().count("a") == 1


def test_an_owner_whose_flush_was_merged_meanwhile_finds_it_by_its_sequence() -> None:
    group = Group(plain, plain)
    owner, includer = group.writers
    theirs = announce(owner, "a")
    publish(includer, announce(includer, "b"))
    optimize_topic(group.log, "t")
    two_days_of_others(group.memory, group.clock)
    assert publish(owner, theirs).base_offsets == (1,)
    assert group.values().count("a") == 1


def test_an_owner_that_lost_its_position_publishes_what_nobody_did() -> None:
    group = Group(plain)
    (owner,) = group.writers
    theirs = announce(owner, "a")
    two_days_of_others(group.memory, group.clock)
    publish(owner, theirs)
    assert group.values().count("a") == 1


def test_what_was_announced_to_a_deleted_topic_isnt_in_the_new_one() -> None:
    group = Group(plain)
    (owner,) = group.writers
    theirs = announce(owner, "a")
    delete_topic(group.log, "t")
    create_topic(group.log, "t", num_partitions=1)
    new = group.writer()
    group.writers = [new]
    group.switch_on()
    publish(new, announce(new, "b"))
    assert group.values() == ["b"]
    with pytest.raises(UnknownTopicOrPartitionError):
        publish(owner, theirs)


def test_a_number_that_a_copied_machine_has_used_is_unknown() -> None:
    """Both have one announcer's id; each is sure to have uploaded flush 0."""
    group = Group(plain, plain, plain)
    owner, copy, includer = group.writers
    theirs = announce(owner, "a")
    copy._group.writing._announcer = owner._group.writing._announcer
    copy._group.writing._announcers = {*owner._group.writing._announcers}
    publish(owner, theirs)
    other = announce(copy, "b")
    with pytest.raises(CommitStateUnknownError, match="used by somebody else"):
        publish(copy, other)
    publish(copy, announce(copy, "c"))
    publish(includer, announce(includer, "d"))
    assert group.values() == ["a", "c", "d"]


# Anything beside anything.


class Interleaved(WrappedStore):
    """Before a put or a create, others may act."""

    def __init__(self, store: ObjectStore, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._act = act

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op in ("put", "create"):
            self._act()
        return call()


class Play:
    """Writers that upload, append, withdraw, lose answers and sleep, in a random order and in the midst of each
    other's requests."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group = Group(num_partitions=2)
        self.depth = 0
        self.busy: set[int] = set()
        self.sent: list[list[str]] = []
        self.waiting: list[list[tuple[list[str], list[StagedFile]]]] = []
        self.stored: dict[str, tuple[int, int]] = {}
        self.failed: set[str] = set()
        for _ in range(3):
            faults = (
                Fault(kind=FaultKind.LOST_ANSWER, chance=0.05, times=None),
                Fault(kind=FaultKind.LOST_REQUEST, chance=0.05, times=None),
            )
            store = FaultyStore(
                Interleaved(self.group.memory, self.others_act),
                *(fault for fault in faults),
                seed=seed,
            )
            self.group.writers.append(self.group.writer(store))
            self.sent.append([])
            self.waiting.append([])
        self.group.switch_on()

    def others_act(self) -> None:
        if self.depth < 3 and self.random.random() < 0.3:
            self.depth += 1
            self.step()
            self.depth -= 1

    def step(self) -> None:
        free = [number for number in range(3) if number not in self.busy]
        if not free:
            return
        number = self.random.choice(free)
        self.busy.add(number)
        try:
            self.act(number)
        finally:
            self.busy.discard(number)

    def act(self, number: int) -> None:
        writer, waiting = self.group.writers[number], self.waiting[number]
        choice = self.random.random()
        if choice < 0.5:
            self.upload(number)
        elif choice < 0.83 and waiting:
            count = self.random.randint(1, len(waiting))
            self.append(writer, waiting, count)
        elif choice < 0.9 and waiting:
            values, files = waiting.pop(0)
            self.settle(writer, values, files)
        elif choice < 0.93:
            writer.state.forget_others(writer.producer_id)
        elif choice < 0.96:
            self.group.clock.advance(self.random.choice([100, 2_000, 6_000, 7 * MINUTE_MS]))
        else:
            ask_for_group_commit(self.group.log)
            for one in range(3):
                if one not in self.busy or one == number:
                    with suppress(StoreError):
                        self.group.writers[one].refresh()

    def upload(self, number: int) -> None:
        writer = self.group.writers[number]
        values = [f"{number}:{len(self.sent[number]) + one}" for one in range(self.random.randint(1, 2))]
        self.sent[number] += values
        batches = [(self.random.randrange(2), records(value)) for value in values]
        staged = writer.stage(batches, announce=True)
        try:
            files = writer.put(staged)
        except StoreError:
            if staged.files_if_failed:
                self.settle(writer, values, [*staged.files_if_failed])
            else:
                self.failed.update(values)
            return
        self.waiting[number].append((values, files))

    def append(self, writer: TopicWriter, waiting: list[tuple[list[str], list[StagedFile]]], count: int) -> None:
        taken, waiting[:count] = waiting[:count], []
        try:
            result = publish(writer, [file for _, files in taken for file in files], timeout_ms=3_000)
        except (KafkaTimeoutError, CommitStateUnknownError, StoreError) as error:
            for values, files in taken:
                if writer.is_announced(files):
                    self.settle(writer, values, files)
                elif not isinstance(error, CommitStateUnknownError):
                    writer.forget(files)
                    self.failed.update(values)
                else:
                    writer.forget(files)
            return
        values = [value for values, _ in taken for value in values]
        files = [file for _, files in taken for file in files]
        self.note(values, files, result)

    def settle(self, writer: TopicWriter, values: list[str], files: list[StagedFile]) -> None:
        if not writer.is_announced(files):
            return self.append(writer, [(values, files)], 1)
        try:
            result = writer.withdraw(files, deadline=within(writer, 3_000))
        except (CommitStateUnknownError, StoreError):
            return None
        if result is None:
            self.failed.update(values)
        else:
            self.note(values, files, result)
        return None

    def note(self, values: list[str], files: list[StagedFile], result: AppendResult) -> None:
        for value, file, base in zip(values, files, result.base_offsets, strict=True):
            self.stored[value] = file.partition, base

    def check(self) -> None:
        found = contents(self.group.log)
        everything = [value for rows in found.values() for _, value in rows]
        assert len(everything) == len(set(everything)), "a record is stored twice"
        assert not self.failed & set(everything), "what failed is stored"
        for value, (partition, offset) in self.stored.items():
            assert (offset, value) in found[partition], f"{value} isn't where it was said to be"
        for rows in found.values():
            assert [offset for offset, _ in rows] == [*range(len(rows))]
            for number in range(3):
                mine = [int(value.partition(":")[2]) for _, value in rows if value.startswith(f"{number}:")]
                assert mine == sorted(mine), "a writer's records change their order"


def played(seed: int) -> Play:
    play = Play(seed)
    for _ in range(60):
        play.step()
    return play


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in each_nth(range(2, 200), 16))]
)
def test_every_record_is_stored_once_in_order_and_where_it_was_said(seed: int) -> None:
    played(seed).check()


@pytest.mark.slow
def test_the_plays_include_others_and_withdraw() -> None:
    plays = [played(seed) for seed in range(8)]
    assert sum(len(numbers) > 1 for play in plays for numbers in settled_numbers(play.group.log)) > 5
    assert sum(len(play.failed) for play in plays) > 5
