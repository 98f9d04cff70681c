"""L3: log cleanup deletes in bulk, below a mark that it has written and a checkpoint that it has read back itself."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import CleanupBatch, CleanupResult, clean_log, plan_cleanup
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, cleanup_marks_folder, entry_path, last_checkpoint_path
from sparklog.errors import CorruptLogError, StoreFullError, StorePermissionError, StoreUnavailableError
from sparklog.storage import MemoryStore, ObjectInfo, ObjectStore
from sparklog.testing import (
    CountingStore,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    SimulatedCrash,
    WrappedStore,
    crashes,
)
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import (
    DAY_MS,
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    copy_of,
    split_checkpoint,
    two_days_of_others,
    versions_of,
)

HOUR_MS = 3_600_000

# --- the plan


def entry(version: int, modified_ms: int) -> ObjectInfo:
    return ObjectInfo(path=entry_path("t", version), size_bytes=1, modified_ms=modified_ms, etag="")


def checkpoint(version: int, modified_ms: int = 0) -> ObjectInfo:
    return ObjectInfo(path=checkpoint_path("t", version), size_bytes=1, modified_ms=modified_ms, etag="")


def batches(
    objects: Iterable[ObjectInfo],
    *,
    checkpoint_version: int,
    retention_ms: int = 100,
    cleaned_below: int = 0,
    protected_below: int = 0,
    batch_size: int = 10_000,
) -> list[CleanupBatch]:
    """The plan of a log of which this is listed, in any order."""
    listed = sorted(objects, key=lambda found: found.path)
    newest = max((found for found in listed if found.path.endswith(".json")), key=lambda found: found.path)
    planned = plan_cleanup(
        listed,
        checkpoint_version=checkpoint_version,
        newest_modified_ms=newest.modified_ms,
        retention_ms=retention_ms,
        cleaned_below=cleaned_below,
        protected_below=protected_below,
        batch_size=batch_size,
    )
    return list(planned)


def plan(
    objects: Iterable[ObjectInfo], *, checkpoint_version: int, retention_ms: int = 100, below: int = 0
) -> list[str]:
    """The paths that go, sorted."""
    planned = batches(objects, checkpoint_version=checkpoint_version, retention_ms=retention_ms, cleaned_below=below)
    return sorted(chain.from_iterable((*batch.beginnings, *batch.others) for batch in planned))


def entries(*modified_ms: int, first: int = 0) -> list[ObjectInfo]:
    return [entry(first + number, modified) for number, modified in enumerate(modified_ms)]


def paths(*versions: int) -> list[str]:
    return [entry_path("t", version) for version in versions]


def test_what_lies_below_the_checkpoint_and_is_old_may_go() -> None:
    assert plan(entries(0, 10, 20, 30, 1_000), checkpoint_version=3) == paths(0, 1, 2)


def test_nothing_at_or_above_the_checkpoint_may_go_however_old() -> None:
    assert plan(entries(0, 0, 0, 0, 10**9), checkpoint_version=2) == paths(0, 1)
    assert plan(entries(0, 0, 0, 0, 10**9), checkpoint_version=0) == []
    assert plan(entries(0, 0, 0, 0, 10**9), checkpoint_version=-1) == []


@pytest.mark.parametrize(("successor_ms", "goes"), [(899, True), (900, True), (901, False), (1_000, False)])
def test_an_entry_goes_when_its_successor_is_as_old_as_the_retention(successor_ms: int, goes: bool) -> None:
    # For as long as nothing followed it, every process relied on it, however old it was itself.
    assert plan(entries(0, successor_ms, 1_000), checkpoint_version=1) == (paths(0) if goes else [])


def test_the_first_that_may_not_go_ends_the_plan() -> None:
    # The store's clock may jump: version 2 looks younger than version 3.
    assert plan(entries(0, 0, 950, 0, 0, 1_000), checkpoint_version=5) == paths(0)


@pytest.mark.parametrize(("protected_below", "below"), [(0, 6), (1, 6), (6, 6), (7, None), (100, None)])
def test_what_is_protected_goes_as_a_whole_or_not_at_all(protected_below: int, below: int | None) -> None:
    log = [*entries(0, 10, 20, 30, 40, 50, 60, 1_000), checkpoint(2), checkpoint(6)]
    found = batches(log, checkpoint_version=6, protected_below=protected_below, batch_size=1)
    assert (found[-1].below if found else None) == below
    protected = [batch for batch in found if batch.protected]
    assert [batch.below for batch in protected] == ([protected_below] if below and protected_below else [])


def test_entries_that_are_protected_go_before_the_checkpoints_that_hide_them() -> None:
    """Source: Delta's proposal "Checkpoint Protection", requirement d."""
    log = [*entries(0, 10, 20, 30, 1_000), checkpoint(0), checkpoint(2), checkpoint(3)]
    [first] = batches(log, checkpoint_version=3, protected_below=3)
    assert list(first.steps()) == [
        tuple(paths(0, 1, 2)),
        (checkpoint_path("t", 0), checkpoint_path("t", 2)),
    ]
    [as_ever] = batches(log, checkpoint_version=3)
    assert next(as_ever.steps()) == (checkpoint_path("t", 0), *paths(0), checkpoint_path("t", 2))


def test_a_cleanup_that_died_within_what_is_protected_is_ended_by_the_next() -> None:
    left = [checkpoint(0), checkpoint(2), *entries(960, 970, 1_000, first=5)]
    assert batches(left, checkpoint_version=5, protected_below=5) == []
    [rest] = batches(left, checkpoint_version=5, cleaned_below=5, protected_below=5)
    assert (rest.beginnings, rest.others) == ((checkpoint_path("t", 0), checkpoint_path("t", 2)), ())


def test_what_an_earlier_cleanup_left_below_its_mark_goes_at_once() -> None:
    # It was found then that it may go. An entry that a sleeper created there since counts for nothing, but is young.
    objects = [
        entry(1, 0),
        entry(3, 1_000),
        checkpoint(3),
        *entries(0, 950, 1_000, 1_000, 1_000, first=5),
        checkpoint(8),
    ]
    assert plan(objects, checkpoint_version=8) == []
    assert plan(objects, checkpoint_version=8, below=4) == sorted([*paths(1, 3), checkpoint_path("t", 3)])
    assert plan(objects, checkpoint_version=3, below=4) == paths(1)


def test_age_is_measured_from_the_newest_entry_so_a_log_that_rests_keeps_what_it_has() -> None:
    assert plan(entries(0, 10, 20, 30), checkpoint_version=3) == []


def test_what_another_engine_could_begin_to_read_from_goes_first() -> None:
    objects = [*entries(0, 0, 0, 0, 0, 1_000), checkpoint(1), checkpoint(2), checkpoint(4)]
    assert batches(objects, checkpoint_version=4) == [
        CleanupBatch(
            below=4,
            beginnings=(*paths(0), checkpoint_path("t", 1), checkpoint_path("t", 2)),
            others=tuple(paths(1, 2, 3)),
        )
    ]


def test_batches_follow_one_another_from_the_oldest_version_on_and_keep_their_size() -> None:
    objects = [*entries(*[0] * 11, 1_000), *(checkpoint(version) for version in (4, 5, 10))]
    planned = batches(objects, checkpoint_version=10, batch_size=3)
    assert [(batch.below, len(batch)) for batch in planned] == [(3, 3), (5, 3), (7, 3), (10, 3)]
    assert [batch.beginnings for batch in planned] == [
        (entry_path("t", 0),),
        (checkpoint_path("t", 4),),
        (checkpoint_path("t", 5),),
        (),
    ]
    assert sorted(chain.from_iterable((*b.beginnings, *b.others) for b in planned)) == plan(
        objects, checkpoint_version=10
    )


def test_no_more_of_a_listing_is_read_than_goes() -> None:
    """A busy topic keeps a day of entries: millions."""
    read = 0

    def listed() -> Iterator[ObjectInfo]:
        nonlocal read
        for version in range(1_000_000):
            read += 1
            yield entry(version, version)

    planned = plan_cleanup(listed(), checkpoint_version=900_000, newest_modified_ms=1_000_000, retention_ms=999_000)
    assert sum(len(batch) for batch in planned) == 1_000
    assert read == 1_003  # up to the one that shows how the plan ends, and that its version is complete


def test_an_old_checkpoint_stays_while_its_entry_does() -> None:
    objects = [*entries(0, 0, 950, 1_000, 1_000), checkpoint(1), checkpoint(3)]
    assert plan(objects, checkpoint_version=3) == paths(0)


def test_a_checkpoint_that_a_killed_cleanup_left_without_its_entry_goes() -> None:
    objects = [*entries(0, 0, 1_000, first=2), checkpoint(1), checkpoint(4)]
    assert plan(objects, checkpoint_version=4) == [checkpoint_path("t", 1), *paths(2, 3)[:1]]


def test_an_entry_behind_which_only_a_checkpoint_is_left_is_as_old_as_the_next_entry() -> None:
    # A sleeper woke and left a stray under a name that was cleaned, below a checkpoint that came as late as it did.
    # As long as a successor without an entry had no age, cleanup stood still for ever.
    objects = [entry(2, 1_000), checkpoint(5), *entries(0, 0, 0, 1_000, first=10), checkpoint(12)]
    assert plan(objects, checkpoint_version=12) == sorted([*paths(2), checkpoint_path("t", 5), *paths(10, 11)])
    objects = [entry(2, 1_000), checkpoint(5), *entries(950, 1_000, 1_000, 1_000, first=10), checkpoint(12)]
    assert plan(objects, checkpoint_version=12) == []


def test_the_newest_entry_never_goes_for_it_has_no_successor() -> None:
    assert plan([*entries(0), checkpoint(1)], checkpoint_version=1, retention_ms=0) == []


def test_what_isnt_part_of_the_log_is_left_alone() -> None:
    strange = [
        ObjectInfo(path=f"t/_delta_log/{name}", size_bytes=1, modified_ms=0, etag="")
        for name in ("_last_checkpoint", ".00000000000000000000.crc", "00000000000000000000.crc.tmp", "notes.txt")
    ]
    assert plan([*strange, *entries(0, 0, 1_000)], checkpoint_version=2) == paths(0)


def aside(name: str) -> ObjectInfo:
    return ObjectInfo(path=f"t/_delta_log/{name}", size_bytes=1, modified_ms=1_000, etag="")


def test_what_spark_writes_beside_the_entries_goes_with_them() -> None:
    checksums = [aside(f"{version:020d}.crc") for version in range(5)]
    compacted = [aside(f"{first:020d}.{last:020d}.compacted.json") for first, last in ((0, 1), (1, 3), (2, 4))]
    gone = sorted([*paths(0, 1), checksums[0].path, checksums[1].path, compacted[0].path])
    assert plan([*checksums, *compacted, *entries(0, 0, 0, 1_000, 1_000)], checkpoint_version=3) == gone
    assert plan([*checksums, *compacted, *entries(0, 0, 0, 0, 1_000)], checkpoint_version=2) == gone


@pytest.mark.slow
@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=12), st.integers(-1, 12), st.integers(0, 500))
def test_what_goes_is_always_a_run_from_the_oldest_version_on(
    times: list[int], checkpoint_version: int, retention_ms: int
) -> None:
    planned = plan(entries(*times), checkpoint_version=checkpoint_version, retention_ms=retention_ms)
    assert planned == paths(*range(len(planned)))
    assert len(planned) <= max(0, checkpoint_version)
    assert len(planned) < len(times)
    assert all(times[-1] - times[version + 1] >= retention_ms for version in range(len(planned)))


# --- the deed

NEWEST = 7


@functools.cache
def the_old_table() -> MemoryStore:
    """Versions 0 to 7, checkpoints of 2 and 5, a day between two commits; only ever copied."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    for version in range(1, NEWEST + 1):
        clock.advance(DAY_MS)
        append(writer, f"v{version}")
        if version in (2, 5):
            write_checkpoint(log)
    return memory


def an_old_table() -> MemoryStore:
    return copy_of(the_old_table())


@functools.cache
def what_cleanup_leaves() -> list[str]:
    memory = an_old_table()
    clean_log(a_log(memory), retention_ms=DAY_MS)
    return [found.path for found in memory.list("")]


@functools.cache
def what_it_holds() -> dict[int, list[tuple[int, str]]]:
    return contents(a_log(the_old_table()))


def cleaned(log: DeltaLog, *, retention_ms: int = DAY_MS) -> CleanupResult:
    result = clean_log(log, retention_ms=retention_ms)
    assert result is not None
    return result


def assert_whole(memory: MemoryStore) -> None:
    """From the mark on nothing is missing; the log opens, and reads as it did; and so it goes on."""
    log = a_log(memory)
    below = log.cleaned_below()
    assert [version for version in versions_of(log) if version >= below] == list(range(below, NEWEST + 1))
    assert contents(log) == what_it_holds()
    assert a_writer(log).head.log_end_offsets == (NEWEST,)


class AnyOrder(WrappedStore):
    """A store whose bulk deletes are carried out one by one, in an order that a seed gives."""

    def __init__(self, store: ObjectStore, seed: int) -> None:
        super().__init__(store)
        self._random = random.Random(seed)

    def delete(self, paths: Iterable[str]) -> None:
        shuffled = [*paths]
        self._random.shuffle(shuffled)
        super().delete(shuffled)


def test_everything_below_the_newest_checkpoint_that_is_old_enough_is_deleted() -> None:
    memory = an_old_table()
    assert cleaned(a_log(memory)) == CleanupResult(deleted_count=6, cleaned_below=5)
    assert versions_of(a_log(memory)) == [5, 6, 7]
    assert [f.path for f in memory.list("") if "checkpoint." in f.path] == [checkpoint_path("topics/t", 5)]
    assert_whole(memory)


@pytest.mark.parametrize(("days", "oldest"), [(1, 5), (2, 5), (3, 4), (4, 3), (6, 1), (7, 0), (100, 0)])
def test_entries_are_kept_for_the_retention_after_they_were_superseded(days: int, oldest: int) -> None:
    memory = an_old_table()
    assert cleaned(a_log(memory), retention_ms=days * DAY_MS).cleaned_below == oldest
    assert_whole(memory)


def test_less_than_ten_times_the_trust_is_never_kept_whatever_is_asked_for() -> None:
    memory = an_old_table()
    assert cleaned(a_log(memory, trust_ms=DAY_MS * 4 / 10), retention_ms=0).cleaned_below == 3
    assert_whole(memory)


def test_where_there_is_no_log_or_no_checkpoint_nothing_is_deleted() -> None:
    assert clean_log(a_log(), retention_ms=DAY_MS) is None
    memory = an_old_table()
    memory.delete([f.path for f in memory.list("") if "checkpoint" in f.path])
    assert cleaned(a_log(memory)) == CleanupResult(deleted_count=0, cleaned_below=0)


def test_a_second_cleanup_finds_nothing_to_do() -> None:
    memory = an_old_table()
    cleaned(a_log(memory))
    assert cleaned(a_log(memory)) == CleanupResult(deleted_count=0, cleaned_below=5)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-50], lambda data: data[50:]])
@pytest.mark.parametrize("parts", [1, 2])
def test_nothing_is_deleted_when_the_newest_checkpoint_doesnt_read_back(
    damage: Callable[[bytes], bytes], parts: int
) -> None:
    memory = an_old_table()
    path = checkpoint_path("topics/t", 5) if parts == 1 else split_checkpoint(a_log(memory), 5, parts)[1]
    memory.put(path, damage(memory.read(path)))
    with pytest.raises(CorruptLogError, match=path):
        clean_log(a_log(memory), retention_ms=DAY_MS)
    assert versions_of(a_log(memory)) == list(range(NEWEST + 1))
    assert checkpoint_path("topics/t", 2) in [f.path for f in memory.list("")]


def test_an_incomplete_checkpoint_protects_no_more_than_the_older_complete_one() -> None:
    memory = an_old_table()
    memory.delete(split_checkpoint(a_log(memory), 5, 2)[:1])
    assert cleaned(a_log(memory)).cleaned_below == 2
    assert_whole(memory)


def test_the_checkpoint_survives_a_power_loss_before_what_it_replaces_is_deleted() -> None:
    store = FaultyStore(an_old_table())
    cleaned(a_log(store))
    made = list(store.calls)
    first_delete = next(number for number, call in enumerate(made) if call.op == "delete")
    both = f"{checkpoint_path('topics/t', 5)},{entry_path('topics/t', 5)}"  # without its entry it is none
    assert ("sync", both) in made[:first_delete]


def test_the_mark_comes_before_all_deletions_and_what_readers_begin_from_goes_first() -> None:
    requests: list[list[str]] = []

    class Recording(WrappedStore):
        def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
            requests.append(["put", path, f"sync={sync}"])
            super().put(path, data, sync=sync)

        def delete(self, paths: Iterable[str]) -> None:
            requests.append([*paths])
            super().delete(requests[-1])

    cleaned(a_log(Recording(an_old_table())))
    log = "topics/t"
    assert requests == [
        ["put", f"{cleanup_marks_folder(log)}below-{5:020d}", "sync=True"],
        [entry_path(log, 0), checkpoint_path(log, 2)],
        [entry_path(log, version) for version in (1, 2, 3, 4)],
    ]


def test_a_cleanup_costs_the_same_requests_however_many_entries_go() -> None:
    counts = []
    for count in (8, 32):
        clock = ManualClock(start_ms=T0_MS)
        memory = MemoryStore(clock=clock)
        log = a_topic(memory, clock)
        two_days_of_others(memory, clock, count=count)
        clock.advance(2 * DAY_MS)
        append(a_writer(log), "newest")
        write_checkpoint(log)
        append(a_writer(log), "behind it")
        clock.advance(2 * DAY_MS)
        append(a_writer(log), "two days later")
        store = CountingStore(memory)
        assert cleaned(a_log(store, clock)).deleted_count >= count // 2
        counts.append(store.counts())
    assert counts[0] == counts[1]


def test_cleanup_goes_on_after_a_stray_entry_and_a_checkpoint_two_days_late() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    sleeping = InterruptedStore(memory)
    writer, sleeper = a_writer(log), a_writer(a_log(sleeping, clock))
    append(writer, "a")
    append(sleeper, "s")
    for value in "bcd":
        append(writer, value)
    calls = FaultyStore(copy_of(memory))
    write_checkpoint(a_log(calls, clock))
    late = InterruptedStore(memory)
    create = [call.op for call in calls.calls].index("create")
    late.interrupt(lambda: two_days_of_others(memory, clock), at=create, after=False)
    at_create = 1  # behind the upload: it sleeps between looking beneath itself and creating

    def two_checkpoints_late() -> None:
        assert write_checkpoint(a_log(late, clock)) == 5

    sleeping.interrupt(two_checkpoints_late, at=at_create, after=False)
    append(sleeper, "woken", timeout_ms=10**12)
    stray, checkpoint_only = versions_of(log)[0], 5
    assert stray < checkpoint_only < versions_of(log)[1]

    for day in range(3):
        append(a_writer(log), f"day {day}")
        clock.advance(DAY_MS)
    write_checkpoint(log)
    append(a_writer(log), "newest")
    before = contents(log)
    below = cleaned(log).cleaned_below
    kept = versions_of(log)
    assert kept == list(range(below, kept[-1] + 1))
    assert len(kept) <= 4
    assert checkpoint_path(log.table, checkpoint_only) not in [found.path for found in memory.list("")]
    assert contents(log) == before


CALLS = 17
"""The store calls of that cleanup: hint, listing, checkpoint, sync, the newest entry, marks, another listing, mark, six
deletes; and the newest entry again before the mark, and before each of two requests that delete."""


def test_a_cleanup_costs_the_calls_that_are_walked_through_below() -> None:
    store = FaultyStore(an_old_table())
    cleaned(a_log(store))
    assert len(store.calls) == CALLS


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(crashes(CALLS)), ids=lambda fault: f"{fault.kind.name}-{fault.at}")
def test_a_cleanup_killed_at_any_call_leaves_a_whole_log_and_the_next_finishes_it(fault: Fault) -> None:
    for seed in range(1 if (fault.at or 0) < CALLS - 6 else 3):  # before the deletes their order makes no difference
        memory = an_old_table()
        with pytest.raises(SimulatedCrash):
            clean_log(a_log(AnyOrder(FaultyStore(memory, fault), seed)), retention_ms=DAY_MS)
        assert_whole(memory)
        cleaned(a_log(memory))
        assert [f.path for f in memory.list("")] == what_cleanup_leaves()


def test_whatever_a_bulk_delete_leaves_a_process_below_the_mark_learns_of_it() -> None:
    """Rule L1: its entry is there, and the one behind it is gone; what it created there would be read by nobody."""
    for gone in range(1, 5):
        clock = ManualClock(start_ms=T0_MS)
        memory = MemoryStore(clock=clock)
        log = a_topic(memory, clock)
        others, sleeper = a_writer(log), a_writer(log)
        for version in range(1, gone):
            append(sleeper, f"v{version}")
        for version in range(gone, NEWEST + 1):
            append(others, f"v{version}")
            clock.advance(DAY_MS)
            if version == 5:
                write_checkpoint(log)
        deletes = [path for path in [entry_path("topics/t", gone)] if memory.read(path)]
        with pytest.raises(SimulatedCrash):
            clean_log(a_log(OnlyDeletes(memory, deletes), clock), retention_ms=DAY_MS)
        assert gone not in versions_of(log)
        assert gone - 1 in versions_of(log)
        assert append(sleeper, "woken").delta_version == NEWEST + 1
        assert [value for _, value in contents(log)[0]] == [*(f"v{n}" for n in range(1, NEWEST + 1)), "woken"]


class OnlyDeletes(WrappedStore):
    """Of a bulk delete these objects are deleted; then its process dies."""

    def __init__(self, store: ObjectStore, only: Sequence[str]) -> None:
        super().__init__(store)
        self._only = only

    def delete(self, paths: Iterable[str]) -> None:
        found = [path for path in paths if path in self._only]
        super().delete(found)
        if found:
            raise SimulatedCrash("in the middle of a bulk delete")


@pytest.mark.parametrize("seed", range(6))
def test_another_engine_reads_every_version_as_before_whatever_is_deleted(seed: int, tmp_path: Path) -> None:
    """What a killed cleanup has left below its mark opens no table: each older version is the same, or an error."""
    memory = an_old_table()
    at = 7 + random.Random(seed).randrange(7)
    crash = Fault(kind=FaultKind.CRASH_AFTER, at=at - 1)
    with pytest.raises(SimulatedCrash):
        clean_log(a_log(AnyOrder(FaultyStore(memory, crash), seed)), retention_ms=DAY_MS)
    folder = tmp_path / "_delta_log"
    (folder / "_cleaned").mkdir(parents=True)
    for found in memory.list("topics/t/_delta_log/"):
        (folder / found.path.removeprefix("topics/t/_delta_log/")).write_bytes(memory.read(found.path))
    whole = {f"v{version}": version for version in range(NEWEST + 1)}
    for version in whole.values():
        try:
            table = DeltaTable(str(tmp_path), version=version)
        except Exception:  # deltalake's errors have no common class below Exception
            assert version < 5
            continue
        assert (table.version(), len(table.file_uris())) == (version, version)
    assert DeltaTable(str(tmp_path)).version() == NEWEST


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED])
def test_answers_that_are_lost_change_nothing(kind: FaultKind) -> None:
    memory = an_old_table()
    store = FaultyStore(memory, Fault(kind=kind, chance=0.4, times=None), seed=1)
    assert cleaned(a_log(store)).cleaned_below == 5
    assert_whole(memory)


@pytest.mark.parametrize("version", [0, 2, 4])
def test_a_bulk_delete_that_fails_ends_the_cleanup_and_the_next_one_finishes_it(version: int) -> None:
    memory = an_old_table()
    refused = Fault(kind=FaultKind.READ_ONLY, ops=["delete"], path=entry_path("topics/t", version), times=None)
    with pytest.raises(StorePermissionError):
        cleaned(a_log(AnyOrder(FaultyStore(memory, refused), version)))
    assert version in versions_of(a_log(memory))
    assert_whole(memory)
    cleaned(a_log(memory))
    assert [f.path for f in memory.list("")] == what_cleanup_leaves()


@pytest.mark.slow
@pytest.mark.parametrize("call", range(CALLS))
def test_two_cleanups_at_once_leave_what_one_leaves(call: int) -> None:
    memory = an_old_table()
    store = InterruptedStore(memory)

    def another() -> None:
        cleaned(a_log(memory))

    store.interrupt(another, at=call, after=False)
    cleaned(a_log(store))
    assert versions_of(a_log(memory)) == [5, 6, 7]
    assert_whole(memory)


def test_a_mark_that_cant_be_written_keeps_everything() -> None:
    memory = an_old_table()
    store = FaultyStore(memory, Fault(kind=FaultKind.DISK_FULL, path="_cleaned", times=None))
    with pytest.raises(StoreFullError):
        cleaned(a_log(store))
    assert versions_of(a_log(memory)) == list(range(NEWEST + 1))


def test_marks_dont_pile_up() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    for _ in range(6):
        append(a_writer(log), "a")
        write_checkpoint(log)
        append(a_writer(log), "b")
        clock.advance(2 * DAY_MS)
        append(a_writer(log), "c")
        cleaned(log)
    marks = [found.path for found in memory.list("topics/t/_delta_log/_cleaned/")]
    assert len(marks) == 2
    assert log.cleaned_below() == max(int(path[-20:]) for path in marks)


@pytest.mark.slow
@pytest.mark.parametrize("call", range(CALLS))
def test_a_checkpoint_and_commits_in_the_middle_of_a_cleanup_do_no_harm(call: int) -> None:
    memory = an_old_table()
    store = InterruptedStore(memory)

    def others() -> None:
        log = a_log(memory)
        append(a_writer(log), "v8")
        write_checkpoint(log)

    store.interrupt(others, at=call, after=False)
    cleaned(a_log(store))
    log = a_log(memory)
    assert contents(log) == {0: [*what_it_holds()[0], (NEWEST, "v8")]}
    assert versions_of(log)[-1] == NEWEST + 1


@pytest.mark.parametrize("skew_ms", [-365 * DAY_MS, -HOUR_MS, HOUR_MS, 365 * DAY_MS, 10_000 * DAY_MS])
def test_the_cleaners_own_clock_changes_nothing(skew_ms: int) -> None:
    # Found on paper: a cleaner whose clock ran an hour ahead deleted what others still relied upon.
    memory = an_old_table()
    newest_ms = max(found.modified_ms for found in memory.list(""))
    log = a_log(memory, ManualClock(start_ms=newest_ms + skew_ms))
    assert cleaned(log, retention_ms=3 * DAY_MS).cleaned_below == 4
    assert_whole(memory)


def test_a_hint_that_is_stale_or_gone_changes_nothing() -> None:
    for hint in (None, b'{"version":2,"size":1}', b"torn"):
        memory = an_old_table()
        memory.delete([last_checkpoint_path("topics/t")])
        if hint is not None:
            memory.put(last_checkpoint_path("topics/t"), hint)
        assert cleaned(a_log(memory)).cleaned_below == 5
        assert_whole(memory)


class CleanedMeanwhile(WrappedStore):
    """Right before its checkpoint is read back others write the next one and clean, so many times."""

    def __init__(self, store: MemoryStore, clock: ManualClock, *, times: int) -> None:
        super().__init__(store)
        self._log = a_log(store, clock)
        self._clock = clock
        self._times = times

    def read(self, path: str) -> bytes:
        if ".checkpoint." in path and self._times:
            self._times -= 1
            for _ in range(2):
                append(a_writer(self._log), "x", "y")
                write_checkpoint(self._log)
                self._clock.advance(3 * DAY_MS)
            append(a_writer(self._log), "z")
            clean_log(self._log, retention_ms=DAY_MS)
        return super().read(path)


@pytest.mark.slow
def test_who_sleeps_until_others_have_cleaned_the_checkpoint_goes_by_the_next_one() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    append(a_writer(a_log(memory, clock)), "a")
    write_checkpoint(a_log(memory, clock))
    sleeper = a_log(CleanedMeanwhile(memory, clock, times=1), clock)
    assert clean_log(sleeper, retention_ms=DAY_MS) == CleanupResult(deleted_count=0, cleaned_below=3)
    with pytest.raises(StoreUnavailableError, match="was cleaned under 5 looks; try again"):
        clean_log(a_log(CleanedMeanwhile(memory, clock, times=99), clock), retention_ms=DAY_MS)
    assert contents(a_log(memory, clock))[0][0] == (0, "a")
