"""L17: files that were uploaded while another storage was in the place of this one, which is back at the commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparklog.clock import Deadline
from sparklog.delta.commit import UploadsGoneError
from sparklog.errors import (
    CommitStateUnknownError,
    ObjectNotFoundError,
    StoreUnavailableError,
    TransactionTimedOutError,
)
from sparklog.groups.offsets.changes import CommitUnowned
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import Cluster, Marker, TopicWriter
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.publishing import publish_transaction
from sparklog.log.state import TopicState, load_state
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import CountingStore, ManualClock, WrappedStore
from tests.log.test_group_commit import ask_for_group_commit
from tests.replacing import emptied, kept, put_back
from tests.support import T0_MS, a_log, a_topic, a_writer, append, contents, no_checkpoints, records

TRUST_MS = 60_000
MARKER = Marker(transactional_id="x", number=2)


class Place:
    """A topic in a prefix that can be taken away and put back."""

    def __init__(self, wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        self.log = a_topic(self.memory, self.clock)
        self.store = CountingStore(wrap(self.memory))
        self.writer = a_writer(a_log(self.store, self.clock))
        append(self.writer, "before")

    def away(self, do: Callable[[], object], *, for_ms: float = TRUST_MS) -> None:
        """Do something while the prefix is empty, and put it back."""
        backup = kept(self.memory)
        emptied(self.memory)
        do()
        self.clock.advance(for_ms)
        put_back(self.memory, backup)
        self.clock.advance(1)

    def upload(self, *values: str) -> None:
        self.files = self.writer.upload([(0, records(*values))])

    def values(self) -> list[str]:
        return [value for _, value in contents(self.log)[0]]

    @property
    def deadline(self) -> Deadline:
        return self.clock.deadline_in(5 * TRUST_MS)


def test_a_file_that_went_into_an_emptied_prefix_is_uploaded_again() -> None:
    """✗ The ground is fine again at the create: the log names a file that isn't there, and nobody reads past it."""
    place = Place()
    place.away(lambda: place.upload("mine"))
    result = place.writer.append(place.files, deadline=place.deadline)
    assert result.base_offsets == (1,)
    assert place.values() == ["before", "mine"]


def test_a_look_between_the_upload_and_the_commit_checks_the_ground_for_neither() -> None:
    """✗ The check isn't due at the create: it was just done, by a look that knew of no upload."""
    place = Place()
    place.away(lambda: place.upload("mine"))
    place.writer.refresh()
    place.store.reset()
    place.writer.append(place.files, deadline=place.deadline)
    assert place.store.counts() == {"get": 1, "put": 1, "create": 1}
    assert place.values() == ["before", "mine"]


def test_a_position_that_was_lost_and_found_again_is_such_a_check() -> None:
    place = Place()
    place.away(lambda: place.upload("mine"), for_ms=1_000)
    place.writer._state = load_state(place.writer.state.log)
    place.writer.append(place.files, deadline=place.deadline)
    assert place.values() == ["before", "mine"]


@pytest.mark.parametrize(("wait_ms", "looks"), [(TRUST_MS, {}), (TRUST_MS + 1, {"get": 3, "list": 1})])
def test_what_was_uploaded_behind_the_newest_check_is_not_looked_for(wait_ms: float, looks: dict[str, int]) -> None:
    place = Place()
    place.upload("mine")
    place.clock.advance(wait_ms)
    place.store.reset()
    place.writer.append(place.files, deadline=place.deadline)
    assert place.store.counts() == {"create": 1, **looks}


def test_after_a_lost_race_a_file_that_was_found_is_not_looked_for_again() -> None:
    place = Place()
    other = a_writer(a_log(place.memory, place.clock))
    place.upload("mine")
    place.clock.advance(TRUST_MS + 1)
    place.writer.refresh()
    append(other, "theirs")
    place.store.reset()
    place.writer.append(place.files, deadline=place.deadline)
    # of the file; of the entry that won
    assert place.store.counts() == {"create": 2, "get": 2}


class Refuses(WrappedStore):
    """Refuses creates of entries while :attr:`on_create` is set, and does that."""

    on_create: Callable[[], None] | None = None

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        act, self.on_create = self.on_create, None
        if act is None:
            return super().create(path, data, sync=sync)
        act()
        raise StoreUnavailableError("503")


def test_attempts_that_go_on_for_long_name_no_file_unseen() -> None:
    """✗ Away are the upload and the first attempt; the next check finds the log, and the entry is created there."""
    stores: list[Refuses] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(Refuses(store))
        return stores[0]

    place = Place(wrap)
    backup = kept(place.memory)
    emptied(place.memory)
    place.upload("mine")

    def put_back_later() -> None:
        place.clock.advance(TRUST_MS + 1)
        put_back(place.memory, backup)

    stores[0].on_create = put_back_later
    with pytest.raises(CommitStateUnknownError, match="gone"):
        place.writer.append(place.files, deadline=place.deadline)
    assert place.values() == ["before"]


# Group commit.


def a_group(place: Place) -> list[TopicWriter]:
    """Two writers that know of group commit: :attr:`Place.writer`, and one that includes what others announced."""
    writers = [
        TopicWriter(a_log(place.store, place.clock), "t", group_commit=True, checkpoints=no_checkpoints())
        for _ in range(2)
    ]
    ask_for_group_commit(place.log)
    for writer in writers:
        writer.refresh()
    place.writer = writers[0]
    return writers


def test_an_announced_file_gets_another_name() -> None:
    place = Place()
    a_group(place)

    def announce() -> None:
        place.files = place.writer.upload([(0, records("mine"))], announce=True)

    place.away(announce)
    place.writer.append(place.files, deadline=place.deadline)
    assert place.values() == ["before", "mine"]


def test_what_another_announced_where_it_is_gone_now_is_left_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    owner, includer = a_group(place)
    place.clock.advance(1_000)
    theirs = owner.upload([(0, records("theirs"))], announce=True)
    mine = includer.upload([(0, records("mine"))], announce=True)
    entry_log = type(includer.state.log)
    tried: list[int] = []

    def create_next(self: Any, *given: Any, **kwargs: Any) -> Any:
        if not tried:  # it has listed; now it sleeps, and what was listed isn't there any more
            tried.append(1)
            place.memory.delete([f"topics/t/{file.path}" for file in theirs])
            place.clock.advance(TRUST_MS + 1)
        return real(self, *given, **kwargs)

    real = entry_log.create_next
    monkeypatch.setattr(entry_log, "create_next", create_next)
    includer.append(mine, deadline=place.deadline)
    assert place.values() == ["before", "mine"]
    owner.append(theirs, deadline=place.deadline)
    assert place.values() == ["before", "mine", "theirs"]


# Transactions.


def test_a_transaction_whose_file_is_gone_is_not_decided() -> None:
    """✗ It is decided, and can be published nowhere."""
    place = Place()
    place.away(lambda: place.upload("mine"))
    with pytest.raises(TransactionTimedOutError, match="uploaded while another storage was in the place of this one"):
        place.writer.check_uploads([file.facts for file in place.files])


def test_before_a_decision_what_was_uploaded_before_the_newest_check_is_looked_for() -> None:
    place = Place()
    place.upload("mine")
    place.clock.advance(TRUST_MS)
    facts = [file.facts for file in place.files]
    place.store.reset()
    place.writer.check_uploads(facts)
    assert place.store.counts() == {}
    place.clock.advance(1)
    place.writer.check_uploads(facts)
    assert place.store.counts() == {"get": 3, "list": 1}  # two entries, the file
    place.store.reset()
    place.writer.publish(facts, MARKER, known_version=place.writer.version, deadline=place.deadline)
    assert place.store.counts() == {"create": 1}
    assert place.values() == ["before", "mine"]


@pytest.mark.parametrize("is_helper", [False, True], ids=["its producer", "another process"])
def test_a_decided_file_that_is_not_there_is_not_published(is_helper: bool) -> None:
    place = Place()
    place.away(lambda: place.upload("mine"))
    facts = [file.facts for file in place.files]
    if is_helper:
        facts = [replace(one, staged_ticks_ms=float("-inf")) for one in facts]

    def carry_out() -> None:
        if is_helper:
            state, topic_id = load_state(place.log), place.writer.topic_id
            publish_transaction(state, topic_id, facts, MARKER, deadline=place.deadline, sync=False)
        else:
            place.writer.publish(facts, MARKER, known_version=place.writer.version, deadline=place.deadline)

    with pytest.raises(ObjectNotFoundError, match="is gone: entry 2 of transactional id 'x'"):
        carry_out()
    assert place.values() == ["before"]


# Others that name what they have uploaded.


def test_a_job_whose_files_are_gone_commits_nothing() -> None:
    place = Place()
    began, state = place.clock.ticks_ms(), load_state(place.log)
    place.away(lambda: place.upload("mine"))
    add = place.files[0].facts.to_add(1)

    def decide(now: TopicState) -> Commit:
        return Commit(actions=[add], head=now.head, operation="WRITE")

    with pytest.raises(UploadsGoneError, match="1 files that were to be committed are gone"):
        commit(state, decide, deadline=place.deadline, sync=False, uploads=UploadedSince(began))
    assert place.values() == ["before"]


class Sleeps(WrappedStore):
    """Something happens after a put of a data file."""

    after_put: Callable[[], None] | None = None

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        super().put(path, data, sync=sync)
        act, self.after_put = self.after_put, None
        if act is not None and path.endswith(".parquet"):
            act()


def test_offsets_whose_file_is_gone_are_uploaded_again() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    store = Sleeps(memory)
    cluster = Cluster(cluster_id="c", store=RetryingStore(store, clock=clock), clock=clock)
    table, at = OffsetTable(cluster, "g"), TopicPartition("t", 0)

    def change(offset: int) -> None:
        wanted = CommitUnowned(offsets={at: OffsetAndMetadata(offset)}, topic_ids={at: "id"}, generation=0)
        assert table.change([wanted], deadline=clock.deadline_in(5 * TRUST_MS)).errors == (None,)

    change(1)
    backup = kept(memory)

    def back() -> None:
        clock.advance(TRUST_MS + 1)
        put_back(memory, backup)

    store.after_put = back
    emptied(memory)
    change(2)
    rows = OffsetTable(cluster, "g").fetch()
    assert rows[at].committed == OffsetAndMetadata(2)
