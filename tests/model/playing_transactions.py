"""Playing a trace of the model of transactions on the real code, store call by store call."""

from __future__ import annotations

import re

from sparklog.groups.rows import Stamp
from sparklog.log import Cluster
from sparklog.storage.base import ObjectStore
from sparklog.txn.entries import KEEP_MS, clean_transaction_log
from sparklog.txn.recovery import recover_transactions
from tests.model.playing import Actor
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
    take,
    values,
)

__all__ = ["FIRST", "TransactionPlayer"]

FIRST = 5
"""What the group has committed when it begins: the model's 0."""
LOG, TOPIC, GROUP = "transactions/tx/", "topics/t/_delta_log", "groups/g/offsets/_delta_log"
EVE = Stamp(9, "eve")

# What a step lets its process do: go on until it has made this call.
CALLS = [
    ("lists", "list", LOG),
    ("asks", "list", LOG),
    ("opens|reads entry|verifies|finds|looks", "get", LOG),
    ("creates|completes", "create", LOG),
    ("publishes", "create", TOPIC),
    ("settles", "create", GROUP),
]


class TransactionPlayer:
    """Plays what :class:`~tests.model.transactions.Transactions` says. What the code doesn't do, it
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
        self._open: set[str] = set()
        self._opens: dict[str, bool] = {}

    def play(self, trace: tuple[str, ...]) -> None:
        for label in trace[1:]:
            self._step(label)

    def finish(self) -> None:
        """Let everybody go on to the end, and recover."""
        for name in ("a", "b", "r"):
            self.actors[name].finish()
        last = Driver(self.cluster, topics=()).init()
        take(self.cluster, EVE)
        last.session.close()

    @property
    def outputs(self) -> list[str]:
        return values(self.cluster, "t")

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
            self._burst()
        elif label.startswith("the id is used by others"):
            for _ in range(2):
                self.clock.advance(2 * KEEP_MS)
                self._burst()
        elif "late request comes" in label:
            late, self.actors[label[0]].late = self.actors[label[0]].late, None
            if late is not None:
                late()
        else:
            self._act(label[0], label[2:])

    def _burst(self) -> None:
        """Others use the id, for another topic."""
        others = Driver(self.cluster, topics=("u",)).init()
        others.begin()
        others.send("u", "other")
        others.commit()
        others.complete()
        newest = newest_entry(self.cluster)
        if newest is not None:
            clean_transaction_log(a_log(self.cluster), newest)

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
        if re.match("creates the commit .* created", what):
            self._open = {output for output in self._open if not output.endswith(name)}
        elif re.match("creates an epoch .* created", what):
            self.fenced |= self._open
        if not what.endswith("(and stalls)"):
            actor.go_on()

    def _take(self, name: str) -> None:
        row = take(self._cluster(name), BOB if name == "b" else ANN)[IN]
        self.position[name] = row.committed.offset if row.committed else FIRST

    def _init(self, name: str) -> None:
        self.driver[name] = Driver(self._cluster(name), topics=("t",), member=BOB).init()

    def _work(self, name: str) -> None:
        """One transaction: input at its position, output with its number, offset behind it."""
        driver, position = self.driver[name], self.position[name]
        output = f"{position - FIRST} by {name}"
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
