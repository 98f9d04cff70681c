"""Playing a trace of the model of transactions on the real code, store call by store call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from proof.model.playing import NEVER_MS, Actor
from sparklog.groups.offsets.changes import TakePartitions
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.log import Cluster
from sparklog.storage.base import ObjectStore
from sparklog.testing import WrappedStore
from sparklog.txn.cleaning import KEEP_MS, clean_transaction_log
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.recovery import recover_transactions
from sparklog.txn.states import TransactionState
from tests.support import contents
from tests.txn.support import (
    ANN,
    BOB,
    IN,
    Driver,
    a_cluster,
    a_log,
    a_world,
    committed,
    newest_entry,
)

__all__ = ["FIRST", "TransactionPlayer"]

FIRST = 5
"""What the group has committed when it begins: the model's 0."""
LOG, TOPIC, GROUP = "transactions/tx/", "topics/t/_delta_log", "groups/g/offsets/_delta_log"
EVE = Stamp(9, "eve")

# What a step lets its process do: go on until it has made this call.
CALLS = [
    ("lists|looks beyond|verifies|finds entry", "list", LOG),
    ("opens|asks|reads entry|finds|looks", "get", LOG),
    ("creates|completes", "create", LOG),
    ("publishes", "create", TOPIC),
    ("settles", "create", GROUP),
]


class TransactionPlayer:
    """Plays what :class:`~proof.model.transactions.Transactions` says. What the code doesn't do, it
    doesn't do: without a rule the model takes other steps than the code."""

    def __init__(self) -> None:
        self.memory, self.clock, self.cluster = a_world()
        self.actors = {name: Actor(name, self.memory) for name in ("a", "b", "r")}
        self.told: dict[str, bool] = {}
        """By what was sent: was it told to be committed?"""
        self.driver = {"a": Driver(self._cluster("a"), topics=("t",), member=ANN).init()}
        self.position = {"a": FIRST}
        self.fenced: set[str] = set()
        """What can't be committed any more: it wasn't when a newer epoch began."""
        self.decided: set[str] = set()
        """What is committed: the log's newest entry said so."""
        self._sent: dict[str, str] = {}
        """The newest of each."""
        self._open: set[str] = set()
        self._opens: dict[str, bool] = {}

    def play(self, trace: tuple[str, ...]) -> None:
        for label in trace[1:]:
            self._step(label)

    def finish(self, *, dies: bool = False) -> None:
        """Let another recover, and own the partition, after everybody has gone on to the end.

        Args:
            dies: everybody stays where they are, for ever.
        """
        if not dies:
            for name in ("a", "b", "r"):
                self.actors[name].finish()
        last = Driver(self.cluster, topics=()).init()
        _take(self.cluster, EVE)
        last.session.close()

    @property
    def visible(self) -> list[tuple[int, str]]:
        """Offsets and outputs, as a fresh reader sees them. All are of one partition."""
        return contents(self.cluster.topic_log("t"))[0]

    @property
    def committed(self) -> int:
        return (committed(self.cluster) or FIRST) - FIRST

    def errors(self, name: str) -> list[BaseException]:
        return self.actors[name].errors

    def _cluster(self, name: str) -> Cluster:
        store: ObjectStore = self.actors[name].store
        return a_cluster(store, self.clock)

    def _step(self, label: str) -> None:
        if label == "an hour passes":
            self.clock.advance(2 * KEEP_MS)
        elif label.startswith("others use the id"):
            self._burst(_left(label))
        elif label.startswith("the id is used by others"):
            for _ in range(2):
                self.clock.advance(2 * KEEP_MS)
                self._burst(_left(label))
        elif "late request comes" in label:
            late, self.actors[label[0]].late = self.actors[label[0]].late, None
            if late is not None:
                late()
                self._look(label[0])
        else:
            self._act(label[0], label[2:])

    def _burst(self, left: int) -> None:
        """Others use the id, for another topic, and clean; who cleans is killed before it deletes entry ``left``."""
        others = Driver(self.cluster, topics=("u",)).init()
        self.fenced |= self._open
        others.begin()
        others.send("u", "other")
        others.commit()
        others.complete()
        newest = newest_entry(self.cluster)
        if newest is not None:
            log = a_log(self.cluster)
            clean_transaction_log(replace(log, store=KilledCleaning(log.store, log.path_of(left))), newest)

    def _act(self, name: str, what: str) -> None:
        actor = self.actors[name]
        if "takes the partition" in what:
            actor.finish()
            actor.begin(lambda: self._take(name))
            actor.call("create", GROUP)
            actor.go_on()
            return
        if "offset, which entry" in what:
            actor.finish()
            actor.begin(lambda: self._work(name))
            actor.go_on(until="create", path=LOG)
            return
        if "lists" in what and not self._opens.get(name):  # else it lists again
            actor.finish()
            self._opens[name] = True
            actor.begin(lambda: self._recover() if name == "r" else self._init(name))
        for verbs, op, path in CALLS:
            if re.match(verbs, what):
                fate = "lost" if "answer is lost" in what else "late" if "under way" in what else ""
                actor.call(op, path, fate=fate)
                break
        else:
            return
        if op == "list":  # held: it may sleep before it reads
            return
        if re.match("creates the commit", what):
            self._look(name)
        elif re.match("creates an epoch .* created", what):
            self.fenced |= self._open
        if not what.endswith("(and stalls)"):
            actor.go_on()

    def _look(self, name: str) -> None:
        """Was what it sent last committed, just now?"""
        newest, session = newest_entry(self.cluster), self.driver[name].session
        if newest is not None and newest.state is TransactionState.PREPARE_COMMIT and newest.header == session.header:
            self.decided.add(self._sent[name])
            self._open.discard(self._sent[name])

    def _take(self, name: str) -> None:
        row = _take(self._cluster(name), BOB if name == "b" else ANN)[IN]
        self.position[name] = row.committed.offset if row.committed else FIRST

    def _init(self, name: str) -> None:
        self.driver[name] = Driver(self._cluster(name), topics=("t",), member=BOB).init()

    def _work(self, name: str) -> None:
        """One transaction: input at its position, output with its number, offset behind it."""
        driver, position = self.driver[name], self.position[name]
        output = f"{position - FIRST} by {name}"
        self._sent[name] = output
        self._open.add(output)
        driver.begin()
        driver.send("t", output)
        driver.send_offset(position + 1)
        driver.commit()
        self.told[output] = True
        driver.complete()

    def _recover(self) -> None:
        recover_transactions(self._cluster("r"))
        self._opens["r"] = False


class KilledCleaning(WrappedStore):
    """One object isn't deleted."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        super().__init__(store)
        self._path = path

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(path for path in paths if path != self._path)


def _left(label: str) -> int:
    found = re.search(r"cleaned but for (\d+)", label)
    return int(found[1]) if found else 0


def _take(cluster: Cluster, stamp: Stamp) -> Rows:
    """A member takes ``in-0``, as a consumer does; the rows as it sees them then."""
    deciding = deciding_for(cluster, reason=f"{stamp.member} took the partition", timeout_ms=NEVER_MS)
    commit_thread = OffsetCommitThread(cluster, "g", deciding)
    try:
        taken = commit_thread.take(TakePartitions(topic_ids={IN: "in-id"}, stamp=stamp), timeout_ms=NEVER_MS)
        return taken.result()
    finally:
        commit_thread.stop()
