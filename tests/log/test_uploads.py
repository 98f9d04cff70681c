"""Files that are uploaded and in no log yet, beside other engines' vacuums: what is published is there (rule L10)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from sparklog.clock import SystemClock
from sparklog.delta.actions import Entry, Metadata
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    TransactionTimedOutError,
)
from sparklog.log.append import StagedFile, TopicWriter
from sparklog.log.data.object_paths import object_path
from sparklog.log.publishing import Marker, publish_transaction
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.log.uploads import Vacuum, fresh_ms, is_at_risk, longest_age_ms, with_vacuum
from sparklog.storage import LocalStore, MemoryStore
from sparklog.storage.base import CreateResult
from sparklog.testing import CountingStore, ManualClock
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_vacuum,
    records,
    two_days_of_others,
    unsequenced_file,
    within,
)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
MARKER = Marker(transactional_id="x", number=2)


def set_retention(log: DeltaLog, text: str) -> None:
    """``ALTER TABLE … SET TBLPROPERTIES``, by another engine."""
    state = load_state(log)
    metadata: Metadata = state.require_whole().metadata
    changed = replace(metadata, configuration={**metadata.configuration, "delta.deletedFileRetentionDuration": text})
    lines = [{"commitInfo": {"timestamp": T0_MS, "operation": "SET TBLPROPERTIES"}}, changed.to_json()]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    log.store.create(entry_path(log.table, state.position.version + 1), data)


def a_world() -> tuple[MemoryStore, ManualClock, DeltaLog]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    return memory, clock, a_topic(memory, clock)


def uploaded(writer: TopicWriter, value: str = "mine") -> list[StagedFile]:
    return writer.upload([(0, records(value))])


def paths(files: list[StagedFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files)


# The rule.


def entry(version: int, *, timestamp_ms: object = 1_000_000, **told: object) -> Entry:
    info = {"operation": "VACUUM START", "timestamp": timestamp_ms, "operationParameters": told}
    return Entry(version=version, token="", actions=(), commit_info=info)


def test_a_vacuum_tells_what_it_spares() -> None:
    def horizon(**given: object) -> int:
        [found] = with_vacuum((), entry(3, **given))
        assert found.version == 3
        return found.horizon_ms

    assert horizon(specifiedRetentionMillis="1000", defaultRetentionMillis="50") == 999_000
    assert horizon(specifiedRetentionMillis=1000) == 999_000
    assert horizon(defaultRetentionMillis="50") == 999_950
    assert horizon() == 1_000_000
    assert horizon(specifiedRetentionMillis="null") == 1_000_000
    assert horizon(timestamp_ms=None) > 10**15  # who doesn't tell when may delete anything


def test_only_other_engines_vacuums_count_and_only_their_begin() -> None:
    for other in ("VACUUM END", "WRITE", None):
        info = {"operation": other, "timestamp": 1}
        assert with_vacuum((), Entry(version=1, token="", actions=(), commit_info=info)) == ()
    assert with_vacuum((), replace(entry(1), info={})) == ()


def test_of_many_vacuums_those_are_remembered_that_say_more_than_a_later_one() -> None:
    found: tuple[Vacuum, ...] = ()
    for version, spares in ((1, 500), (2, 100), (3, 900), (4, 100), (5, 200)):
        found = with_vacuum(found, entry(version, specifiedRetentionMillis=spares))
    assert [(one.version, 1_000_000 - one.horizon_ms) for one in found] == [(4, 100), (5, 200)]


def test_a_file_is_at_risk_by_a_later_vacuum_that_doesnt_spare_its_age() -> None:
    now = 100 * DAY_MS
    harsh = with_vacuum((), entry(5, timestamp_ms=now, specifiedRetentionMillis=0))
    mild = with_vacuum((), entry(5, timestamp_ms=now, specifiedRetentionMillis=7 * DAY_MS))
    assert is_at_risk(harsh, topic_version=4, uploaded_ms=now)
    assert not is_at_risk(harsh, topic_version=5, uploaded_ms=now)
    assert is_at_risk(harsh, topic_version=-1, uploaded_ms=now)
    assert not is_at_risk(mild, topic_version=4, uploaded_ms=now - 6 * DAY_MS)  # a day is for clocks that differ
    assert is_at_risk(mild, topic_version=4, uploaded_ms=now - 6 * DAY_MS - 1)


@pytest.mark.parametrize(
    ("retention_ms", "longest", "fresh"),
    [
        (7 * DAY_MS, DAY_MS, 5 * MINUTE_MS),
        (HOUR_MS, HOUR_MS / 2, 5 * MINUTE_MS),
        (4 * MINUTE_MS, 2 * MINUTE_MS, 2 * MINUTE_MS),
        (0, 1_000, 1_000),
    ],
)
def test_how_old_an_upload_may_be_follows_the_table(retention_ms: int, longest: float, fresh: float) -> None:
    assert (longest_age_ms(retention_ms), fresh_ms(retention_ms)) == (longest, fresh)


# Appends: the writer has the bytes.


@pytest.mark.parametrize("is_seen_first", [True, False], ids=["seen before", "met by the create"])
def test_files_that_a_vacuum_may_take_are_uploaded_again(is_seen_first: bool) -> None:
    """✗ The append succeeds, and every read of what was acknowledged fails."""
    _, _, log = a_world()
    writer = a_writer(log)
    files = uploaded(writer)
    foreign_vacuum(log, gone=paths(files))
    if is_seen_first:
        writer.refresh()
    assert writer.append(files, deadline=within(writer, 1_000)).base_offsets == (0,)
    assert contents(log)[0] == [(0, "mine")]


def test_a_vacuum_between_two_creates_of_an_append_is_met_too() -> None:
    memory, clock, log = a_world()
    others = a_log(memory, clock)

    def vacuums() -> None:
        files = [found.path.removeprefix("topics/t/") for found in memory.list("topics/t/partition=0/")]
        foreign_vacuum(others, gone=files)

    writer = a_writer(a_log(OvertakenStore(memory, vacuums), clock))
    append(writer, "mine")
    assert contents(log)[0] == [(0, "mine")]


class SleepyStore(OvertakenStore):
    """Right before its first create the process sleeps for two hours, and an engine whose vacuum leaves no entry takes
    what no log names.

    Args:
        is_answer_lost: nobody hears that this create was carried out.
    """

    def __init__(self, memory: MemoryStore, clock: ManualClock, *, is_answer_lost: bool = False) -> None:
        def sleep() -> None:
            clock.advance(2 * HOUR_MS)
            memory.delete([found.path for found in memory.list("topics/t/partition=0/")])

        super().__init__(memory, sleep)
        self._is_answer_lost = is_answer_lost
        self.is_refusing_puts = False

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        created = super().create(path, data, sync=sync)
        if self._is_answer_lost:
            self._is_answer_lost = False
            raise StoreOutcomeUnknownError("the answer was lost")
        return created

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        if self.is_refusing_puts:
            raise StorePermissionError("read-only")
        super().put(path, data, sync=sync)


@pytest.mark.parametrize("is_answer_lost", [False, True], ids=["created", "created, and the answer was lost"])
def test_a_file_that_was_taken_right_before_its_create_is_put_again(is_answer_lost: bool) -> None:
    """✗ A writer has looked how old its upload is, and sleeps; the append succeeds, its records can't be read."""
    memory, clock, log = a_world()
    writer = a_writer(a_log(SleepyStore(memory, clock, is_answer_lost=is_answer_lost), clock))
    result = writer.append(uploaded(writer), deadline=within(writer, 10 * HOUR_MS))
    assert result.base_offsets == (0,)
    assert contents(log)[0] == [(0, "mine")]


def test_an_append_whose_file_may_be_gone_and_cant_be_put_again_is_unknown() -> None:
    memory, clock, _ = a_world()
    store = SleepyStore(memory, clock)
    writer = a_writer(a_log(store, clock))
    files = uploaded(writer)
    producer_id, store.is_refusing_puts = writer.producer_id, True
    with pytest.raises(CommitStateUnknownError, match=r"VACUUM may have taken their files \(topics/t/partition=0/"):
        writer.append(files, deadline=within(writer, 10 * HOUR_MS))
    assert writer.producer_id != producer_id  # the counter is in the log


def test_a_vacuum_that_spares_what_is_young_costs_no_upload() -> None:
    memory, clock, log = a_world()
    counted = CountingStore(memory)
    writer = a_writer(a_log(counted, clock))
    files = uploaded(writer)
    foreign_vacuum(log, retention_ms=7 * DAY_MS)
    before = counted.counts().get("put", 0)
    writer.append(files, deadline=within(writer, 1_000))
    assert counted.counts().get("put", 0) == before


def test_a_vacuum_that_was_cleaned_out_of_the_log_endangers_nobody_who_loads_it() -> None:
    """What was uploaded before is older than a day then: it is uploaded again because of its age."""
    memory, clock, log = a_world()
    writer = a_writer(log)
    files = uploaded(writer)
    foreign_vacuum(log, gone=paths(files))
    two_days_of_others(memory, clock)
    writer.append(files, deadline=within(writer, 1_000))
    assert contents(log)[0][-1][1] == "mine"


@pytest.mark.parametrize(("retention", "after_ms"), [(None, 5 * MINUTE_MS), ("interval 4 minutes", 2 * MINUTE_MS)])
def test_an_upload_is_made_again_once_it_is_old_for_its_table(retention: str | None, after_ms: int) -> None:
    for wait_ms, is_made_again in ((after_ms, False), (after_ms + 1, True)):
        memory, clock, log = a_world()
        if retention is not None:
            set_retention(log, retention)
            append(a_writer(log), "from now on the newest commit tells it")
            assert open_state(log).head.deleted_file_retention_ms == 4 * MINUTE_MS
        counted = CountingStore(memory)
        writer = a_writer(a_log(counted, clock))
        files = uploaded(writer)
        clock.advance(wait_ms)
        before = counted.counts().get("put", 0)
        writer.append(files, deadline=within(writer, 1_000))
        assert counted.counts().get("put", 0) - before == is_made_again
        assert contents(log)[0][-1][1] == "mine"


def test_the_retention_of_a_table_is_known_however_the_topic_is_opened() -> None:
    _, _, log = a_world()
    writer = a_writer(log)
    assert writer.head.deleted_file_retention_ms == 7 * DAY_MS
    set_retention(log, "interval 36 hours")
    assert open_state(log).head.deleted_file_retention_ms == 36 * HOUR_MS  # by loading the table
    writer.refresh()
    assert writer.head.deleted_file_retention_ms == 36 * HOUR_MS
    append(writer, "x")
    assert open_state(log).whole is None
    assert open_state(log).head.deleted_file_retention_ms == 36 * HOUR_MS
    assert load_state(log).head.deleted_file_retention_ms == 36 * HOUR_MS
    set_retention(log, "as long as you like")
    writer.refresh()
    assert writer.head.deleted_file_retention_ms == 7 * DAY_MS


def test_deltalakes_own_vacuum_takes_nothing_that_an_append_publishes(tmp_path: object) -> None:
    log = a_topic(LocalStore(str(tmp_path)), SystemClock())
    writer = a_writer(log)
    files = uploaded(writer)
    table = DeltaTable(f"{tmp_path}/topics/t")
    deleted = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert len(deleted) == 1
    writer.append(files, deadline=within(writer, 1_000))
    assert contents(log)[0] == [(0, "mine")]


# Decided transactions: nobody has the bytes.


@pytest.mark.parametrize("is_helper", [False, True], ids=["its producer", "a helper"])
def test_a_decided_file_that_is_gone_is_named_and_not_published(is_helper: bool) -> None:
    """✗ An ``add`` of what isn't there: from then on no read passes its offset."""
    _, clock, log = a_world()
    writer = a_writer(log)
    [file] = uploaded(writer)
    data = log.store.read(object_path(log.table, file.path))
    foreign_vacuum(log, gone=(file.path,))

    def carry_out() -> tuple[int, ...]:
        if not is_helper:
            return writer.publish([file.facts], MARKER, known_version=0, deadline=within(writer, 1_000)).base_offsets
        deadline = clock.deadline_in(1_000)
        state = load_state(log)
        published, _ = publish_transaction(state, writer.topic_id, [file.facts], MARKER, deadline=deadline, sync=False)
        return published.base_offsets

    with pytest.raises(ObjectNotFoundError, match=f"{file.path} is gone: entry 2 of transactional id 'x'"):
        carry_out()
    assert contents(log)[0] == []
    log.store.put(object_path(log.table, file.path), data)  # an administrator puts it back
    assert carry_out() == (0,)
    assert contents(log)[0] == [(0, "mine")]


def test_a_decided_file_is_looked_for_only_where_it_may_be_gone() -> None:
    memory, clock, log = a_world()
    for wait_ms, looks in ((MINUTE_MS, 0), (MINUTE_MS + 1, 2), (5 * MINUTE_MS + 1, 3)):
        counted = CountingStore(memory)
        writer = a_writer(a_log(counted, clock))
        [file] = uploaded(writer)
        clock.advance(wait_ms)
        before = counted.counts().get("get", 0)
        marker = replace(MARKER, number=MARKER.number + looks)
        writer.publish([file.facts], marker, known_version=writer.version, deadline=within(writer, 1_000))
        # After a minute the topic's ground is checked, too, and then what was uploaded before (rule L17, ground).
        assert counted.counts().get("get", 0) - before == looks
    assert len(contents(log)[0]) == 3


def test_before_a_decision_a_file_that_is_gone_or_too_old_for_its_table_is_refused() -> None:
    _, clock, log = a_world()
    set_retention(log, "interval 1 hours")
    writer = a_writer(log)
    [young] = uploaded(writer)
    writer.check_uploads([young.facts])
    foreign_vacuum(log, gone=(young.path,))
    writer.check_uploads([young.facts])  # nobody has told this writer
    writer.refresh()
    with pytest.raises(TransactionTimedOutError, match=f"{young.path} was uploaded 0 minutes ago and is gone"):
        writer.check_uploads([young.facts])
    [old] = uploaded(writer)
    clock.advance(HOUR_MS // 2)
    writer.check_uploads([old.facts])
    clock.advance(1)
    with pytest.raises(TransactionTimedOutError, match=r"uploaded 0\.5 hours ago; expected no more than 0\.5"):
        writer.check_uploads([old.facts])


# Jobs.


@pytest.mark.parametrize(("retention_ms", "is_refused"), [(0, True), (7 * DAY_MS, False)])
def test_copies_that_a_vacuum_may_take_are_not_sequenced(retention_ms: int, is_refused: bool) -> None:
    memory, clock, log = a_world()
    unsequenced_file(log, "foreign")
    overtaken = a_log(OvertakenStore(memory, lambda: foreign_vacuum(log, retention_ms=retention_ms)), clock)
    if is_refused:
        with pytest.raises(KafkaTimeoutError, match="begins anew: another engine began a VACUUM"):
            sequence_topic(overtaken)
    else:
        assert sequence_topic(overtaken).sequenced_count == 1
    assert sequence_topic(log).sequenced_count == is_refused
    assert contents(log)[0] == [(0, "foreign")]
