"""Transactions against plain lists: whatever producers of one id do, die of, sleep through or are overtaken by."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.errors import (
    CommitFailedError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from sparklog.groups.offsets.rows import Stamp
from sparklog.testing import SimulatedCrash
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.cleaning import clean_transaction_log
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.forward import finish
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState
from tests.depth import by_depth
from tests.txn.support import (
    IN,
    TIMEOUT_MS,
    Driver,
    a_cluster,
    a_log,
    a_world,
    contents,
    group_rows,
    newest_entry,
    take,
)

HOUR_MS = 3_600_000


@dataclass
class Holder:
    """A producer, and what its open transaction is to do."""

    store: InterruptedStore
    driver: Driver
    is_open: bool = False
    sent: dict[str, list[str]] = field(default_factory=lambda: {"t": [], "u": []})
    offset: int | None = None
    began_ms: float = 0.0
    is_aborted_by_others: bool = False


slots = st.integers(0, 1)
topics = st.sampled_from(["t", "u"])
offsets = st.integers(0, 9)


class AgainstLists(RuleBasedStateMachine):
    """Two places for producers of one id: whoever isn't the newest is a zombie."""

    @initialize()
    def begin_world(self) -> None:
        self.memory, self.clock, self.cluster = a_world()
        self.model: dict[str, list[str]] = {"t": [], "u": []}
        self.offset = 5
        self.owner = Stamp(1, "ann")
        self.count = 0
        self.holders: list[Holder | None] = [None, None]
        self.newest: Holder | None = None

    # What the holders do.

    @rule(slot=slots)
    def restart(self, slot: int) -> None:
        store = InterruptedStore(self.memory)
        driver = Driver(a_cluster(store, self.clock), member=self.owner).init()
        self.holders[slot] = self.newest = Holder(store, driver)

    def held(self, slot: int) -> Holder:
        """The holder, with a transaction open."""
        if self.holders[slot] is None:
            self.restart(slot)
        holder = self.holders[slot]
        assert holder is not None
        if holder.is_open:
            return holder
        try:
            holder.driver.begin()
        except ProducerFencedError:
            assert holder is not self.newest
            self.holders[slot] = None
            return self.held(slot)
        holder.is_open, holder.began_ms = True, self.clock.ticks_ms()
        holder.sent, holder.offset, holder.is_aborted_by_others = {"t": [], "u": []}, None, False
        return holder

    def is_late(self, holder: Holder) -> bool:
        return self.clock.ticks_ms() - holder.began_ms > TIMEOUT_MS

    @rule(slot=slots, topic=topics, count=st.integers(1, 2))
    def send(self, slot: int, topic: str, count: int) -> None:
        holder = self.held(slot)
        for _ in range(count):
            self.count += 1
            value = str(self.count)
            holder.driver.send(topic, value)
            holder.sent[topic].append(value)

    @rule(slot=slots, offset=offsets)
    def send_offset(self, slot: int, offset: int) -> None:
        holder = self.held(slot)
        try:
            holder.driver.send_offset(offset)
            holder.offset = offset
            assert holder.driver.member == self.owner
        except CommitFailedError:
            assert holder.driver.member != self.owner
            self.give_up(slot)
        except TransactionTimedOutError:
            assert self.is_late(holder)
            self.give_up(slot)
        except ProducerFencedError:
            assert holder is not self.newest
            self.holders[slot] = None

    def give_up(self, slot: int) -> None:
        holder = self.holders[slot]
        assert holder is not None
        holder.is_open = False
        try:
            holder.driver.abort()
        except ProducerFencedError:
            assert holder is not self.newest
            self.holders[slot] = None

    @rule(slot=slots)
    def abort(self, slot: int) -> None:
        self.held(slot)
        self.give_up(slot)

    def count_in(self, holder: Holder) -> None:
        for topic, sent in holder.sent.items():
            self.model[topic] += sent
        if holder.offset is not None:
            self.offset = holder.offset

    @rule(slot=slots)
    def commit(self, slot: int) -> None:
        holder = self.held(slot)
        may = holder is self.newest and not holder.is_aborted_by_others and not self.is_late(holder)
        try:
            holder.driver.commit()
        except TransactionTimedOutError:
            assert self.is_late(holder)
            self.give_up(slot)
        except TransactionAbortableError:
            assert holder.is_aborted_by_others
            self.give_up(slot)
        except ProducerFencedError:
            assert holder is not self.newest
            self.holders[slot] = None
        else:
            assert may
            self.count_in(holder)
            holder.driver.complete()
            holder.is_open = False

    @rule(slot=slots, offset=offsets)
    def transaction(self, slot: int, offset: int) -> None:
        """All of one, undisturbed."""
        self.send(slot, "t", 1)
        self.send(slot, "u", 1)
        self.send_offset(slot, offset)
        self.commit(slot)

    # What befalls them.

    @rule(slot=slots, at=st.integers(0, 8), after=st.booleans())
    def die_in_commit(self, slot: int, at: int, after: bool) -> None:
        self.be_interrupted(slot, at=at, after=after, then="dies")

    @rule(slot=slots, at=st.integers(0, 8), after=st.booleans(), then=st.sampled_from(["fenced", "taken", "timed out"]))
    def sleep_in_commit(self, slot: int, at: int, after: bool, then: str) -> None:
        self.be_interrupted(slot, at=at, after=after, then=then)

    def be_interrupted(self, slot: int, *, at: int, after: bool, then: str) -> None:
        self.send(slot, "t", 1)
        self.send(slot, "u", 1)
        holder = self.held(slot)
        newest, _ = a_log(self.cluster).open_newest()
        assert newest is not None
        counted: list[bool] = []

        def look() -> None:
            """Count it in if it was decided before the world goes on."""
            found = newest_entry(self.cluster)
            assert found is not None
            is_ours = holder is self.newest and found.version > newest.version
            if is_ours and found.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT):
                if not counted:
                    self.count_in(holder)
                counted.append(True)

        def meanwhile() -> None:
            look()
            if then == "dies":
                raise SimulatedCrash
            if then == "fenced":
                self.restart(1 - slot)
            elif then == "taken":
                self.change_owner()
            else:
                self.clock.advance(HOUR_MS)
                self.observe_time()

        holder.store.interrupt(meanwhile, at=at, after=after)
        try:
            holder.driver.commit()
            look()
            assert counted
            try:
                holder.driver.complete()
            except ProducerFencedError:  # another began its epoch once it had carried the decision out
                self.holders[slot] = None
                return
            holder.is_open = False
        except SimulatedCrash:
            self.holders[slot] = None
        except (TransactionAbortableError, ProducerFencedError):
            assert not counted
            self.holders[slot] = None
        except SparklogError:  # a time-out; it dies of it
            look()
            self.holders[slot] = None
        finally:
            holder.store.interrupt(lambda: None, at=-1, after=False)

    @rule(slot=slots)
    def die(self, slot: int) -> None:
        self.holders[slot] = None

    @rule(hours=st.sampled_from([0.001, 0.01, 1]))
    def time_passes(self, hours: float) -> None:
        self.clock.advance(hours * HOUR_MS)

    # What others do.

    @rule()
    def recover(self) -> None:
        newest, position = a_log(self.cluster).open_newest()
        if newest is not None and newest.state.is_prepared:
            finish(self.cluster, a_log(self.cluster), newest, position, timeout_ms=TIMEOUT_MS)

    @precondition(lambda self: self.newest is not None)
    @rule()
    def observe_time(self) -> None:
        """Somebody who has seen nothing be decided for longer than the time-out."""
        self.clock.advance(TIMEOUT_MS + 1)
        self.recover()
        newest = newest_entry(self.cluster)
        assert newest is not None
        ticks_ms = self.clock.ticks_ms()
        abort_if_open(a_log(self.cluster), newest, ticks_ms=ticks_ms, reason=TIMED_OUT, timeout_ms=TIMEOUT_MS)

    @rule()
    def change_owner(self) -> None:
        """The next owner has decided whatever is pending, and reads what is committed (rule T2)."""
        row = group_rows(self.cluster)[IN]
        entry = newest_entry(self.cluster)
        if row.pending is not None and entry is not None and row.pending.decider.number > entry.version:
            assert self.newest is not None
            self.newest.is_aborted_by_others = True
        self.owner = Stamp(self.owner.generation + 1, f"member {self.owner.generation + 1}")
        row = take(self.cluster, self.owner)[IN]
        assert row.pending is None
        assert row.committed is not None
        assert row.committed.offset == self.offset
        for holder in self.holders:
            if holder is not None and not holder.is_open:
                holder.driver.member = self.owner

    @precondition(lambda self: self.newest is not None)
    @rule()
    def clean(self) -> None:
        newest = newest_entry(self.cluster)
        assert newest is not None
        clean_transaction_log(a_log(self.cluster), newest)

    @invariant()
    def committed_and_nothing_else_is_seen(self) -> None:
        entry = newest_entry(self.cluster)
        seen = contents(self.cluster)
        if entry is not None and entry.state is TransactionState.PREPARE_COMMIT:
            for topic, values in self.model.items():
                found = seen[topic]
                assert isinstance(found, list)
                assert found == values[: len(found)]
            row = group_rows(self.cluster)[IN]
            is_settled = row.pending is None or row.pending.decider.number != entry.version
            if "g" in entry.contents.groups and is_settled:  # an offset counts once its records are visible (rule T2)
                assert {topic: seen[topic] for topic in self.model} == self.model
            return
        assert seen == {**self.model, "g": self.offset}


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestAgainstLists(AgainstLists.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=by_depth(gate=6, nightly=120), stateful_step_count=40)


class TestAgainstListsInShort(AgainstLists.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=6, stateful_step_count=20, derandomize=True)
