"""A member's stamp is on its way to the offset table: until it is acknowledged, and trusted, ``poll`` returns nothing
of the partition (rule G2). Until then somebody else may take it, and commit what this member would read again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from sparklog.clock import Clock, SystemClock
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path, log_folder
from sparklog.groups.membership.generation_numbers import FollowedGenerations
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import Cluster, describe_topic
from sparklog.paths import group_offsets_table
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing import WrappedStore
from tests.consumer.group_support import Listener, Member, run
from tests.consumer.support import LONG_MS, a_cluster, send, tp, with_topic
from tests.groups.offsets.support import commit, do, take

T = TypeVar("T")

OFFSETS = group_offsets_table("g")
PATIENT: dict[str, Any] = {"session_timeout_ms": 600_000, "enable_auto_commit": False}
"""No session ends, and no create at the offset table is anything but a stamp."""


class HeldStamps(WrappedStore):
    """Creates in the group's offset log wait, from :meth:`hold` until :meth:`let_go`.

    Args:
        where: the ``request`` waits on its way to the store, or its ``answer`` on the way back.
    """

    def __init__(self, store: ObjectStore, where: str = "request") -> None:
        super().__init__(store)
        self._where = where
        self._is_held = False
        self._go = threading.Event()
        self.waits = threading.Event()
        """Set once a create waits."""
        self.created: list[str] = []
        """The entries that were to be created, each as often as it was tried."""
        self.heartbeats = 0

    def hold(self) -> None:
        self._is_held = True

    def let_go(self) -> None:
        self._is_held = False
        self._go.set()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if path.endswith("/heartbeat") and op == "put":
            self.heartbeats += 1
        if op != "create" or not path.startswith(log_folder(OFFSETS)):
            return call()
        self.created.append(path)
        if self._is_held and self._where == "request":
            self._wait()
        result = call()
        if self._is_held and self._where == "answer":
            self._wait()
        return result

    def _wait(self) -> None:
        self.waits.set()
        assert self._go.wait(LONG_MS / 1000)


class Taking:
    """A member of ``g`` that reads ``kept``, and is about to take ``t``, which has ``abc``: its stamp is held."""

    def __init__(self, where: str, clock: Clock | None) -> None:
        memory = MemoryStore()
        self.store = HeldStamps(memory, where)
        self.aside: Cluster = a_cluster(memory)
        """Where nobody is held."""
        with_topic(self.aside, "ab", "c", topic="t")
        with_topic(self.aside, topic="kept")
        self.listener = Listener()
        self.member = Member(a_cluster(self.store, clock), **PATIENT)

    def begin(self) -> None:
        """Until the create of the stamp waits."""
        self.member.consumer.subscribe(["kept"])
        run(self.member.consumer.assignment, self.member)
        self.store.hold()
        self.member.consumer.subscribe(["kept", "t"], listener=self.listener)
        run(self.store.waits.is_set, self.member)

    def read_of(self, topic: str) -> str:
        """The values that ``poll`` has returned of a topic."""
        return "".join(record.value.decode() for record in self.member.seen if record.topic == topic)

    def read_kept(self, letters: str) -> None:
        """What is sent to ``kept`` meanwhile is returned: the member goes on reading, whatever it may read."""
        for letter in letters:
            expected = self.read_of("kept") + letter
            send(self.aside, letter, topic="kept")
            run(lambda expected=expected: self.read_of("kept") == expected, self.member)  # type: ignore[misc]

    def assert_without_t(self) -> None:
        assert self.read_of("t") == ""
        assert self.member.consumer.assignment() == {tp(0, "kept")}
        assert self.listener.calls == []

    def others_take(self) -> Stamp:
        """Another member takes ``t`` in a later generation, reads all of it and commits that: two versions."""
        table, theirs = OffsetTable(self.aside, "g"), Stamp(100, "another")
        topic_id = describe_topic(self.aside.topic_log("t"), "t").topic_id
        do(table, take(theirs, tp(), topic_id=topic_id))
        do(table, commit(theirs, {tp(): 3}))
        return theirs


@contextmanager
def taking(where: str = "request", *, clock: Clock | None = None) -> Iterator[Taking]:
    """A member whose stamp waits."""
    found = Taking(where, clock)
    try:
        found.begin()
        yield found
    finally:
        found.store.let_go()
        found.member.close()


@pytest.mark.parametrize(("where", "versions"), [("request", 1), ("answer", 2)])
def test_records_come_when_the_stamp_is_acknowledged_and_not_before(where: str, versions: int) -> None:
    with taking(where) as it:
        it.read_kept("xyz")
        it.assert_without_t()
        assert len(it.aside.store.list_names(log_folder(OFFSETS))) == versions
        it.store.let_go()
        run(lambda: it.read_of("t") == "abc", it.member)
        assert it.listener.calls == [("assigned", [0])]
        assert it.store.created == [entry_path(OFFSETS, version) for version in (0, 1)]


@pytest.mark.parametrize("where", ["request", "answer"])
def test_a_first_assignment_waits_for_its_stamp_too(where: str) -> None:
    store = HeldStamps(MemoryStore(), where)
    store.hold()
    with Member(with_topic(a_cluster(store), "ab"), "t", **PATIENT) as member:
        try:
            run(store.waits.is_set, member)
            before = store.heartbeats
            run(lambda: store.heartbeats >= before + 2, member)  # it lives, and is a member
            assert (member.text, member.numbers, member.listener.calls) == ("", [], [])
        finally:
            store.let_go()
        run(lambda: member.text == "ab", member)


def refusals(caplog: pytest.LogCaptureFixture) -> int:
    return sum("t-0 wasn't taken" in message for message in caplog.messages)


@pytest.fixture
def no_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other member's generation is in no log here: it isn't taken for one that was deleted."""
    monkeypatch.setattr(FollowedGenerations, "is_behind_a_gap", lambda *_: False)


@pytest.mark.usefixtures("no_restart")
def test_a_stamp_that_came_too_late_gives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """✗ It is read while the stamp is on its way, though the other's commit says that it was read already."""
    caplog.set_level("INFO", logger="sparklog.groups")
    with taking() as it:
        theirs = it.others_take()
        it.read_kept("xy")
        it.store.let_go()
        run(lambda: refusals(caplog) >= 2 or it.listener.calls, it.member)  # it tries again, in vain
        it.read_kept("z")
        it.assert_without_t()
    row = OffsetTable(it.aside, "g").fetch()[tp()]
    assert row.stamp == theirs
    assert row.committed is not None
    assert row.committed.offset == 3


class SkippingClock(SystemClock):
    """The machine was suspended, for as long as a test wants."""

    skipped_ms = 0.0

    def ticks_ms(self) -> float:
        return super().ticks_ms() + self.skipped_ms


@pytest.mark.usefixtures("no_restart")
def test_a_stamp_under_a_name_that_was_free_again_is_acknowledged_but_not_trusted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """✗ Cleanup has deleted the name since: the store says created, though the table has another's stamp (rule L1)."""
    caplog.set_level("INFO", logger="sparklog.groups")
    clock = SkippingClock()
    with taking(clock=clock) as it:
        it.others_take()
        assert write_checkpoint(OffsetTable(it.aside, "g").log) == 2
        it.aside.store.delete([entry_path(OFFSETS, version) for version in (0, 1)])
        clock.skipped_ms = 2 * it.aside.tail_trust_ms
        it.store.let_go()
        run(lambda: refusals(caplog) >= 2 or it.listener.calls, it.member)
        it.read_kept("z")
        it.assert_without_t()
        assert it.store.created[1] == entry_path(OFFSETS, 1)
        assert it.aside.store.read(it.store.created[1])  # the stray
