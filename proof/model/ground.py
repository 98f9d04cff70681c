"""The storage under a log is replaced while clients run (rule L17): what they may still store, acknowledge and read.

One log. Client ``a`` writes and client ``r`` reads it, both of the first cluster. Then the operator exchanges what is
under the log's name: for nothing, for another cluster, whose own client ``b`` writes from then on, or for an older copy
of the same log, which ``b`` goes on with; later what was moved away may be put back. Each step may be followed by any
other, and by a tick of time. ``a`` and ``r`` may sleep between any two of their calls; ``b`` is always awake, opens the
log anew, and begins as docs/operations.md says: in an older copy later than ``TRUST`` after the exchange, once what
stands behind a gap was taken out.

The bound: an operator's act at the time T is found by whoever *decides* to create an entry, or believes that there is
none, later than T + ``TRUST``. What was decided before may still be stored (nobody can call a request back), and is
acknowledged only where its create ended by T + ``TRUST``. On a folder there is no such time: an entry that is decided
after the exchange is never stored anywhere else than in the log that its writer holds open, and never acknowledged.

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
checks its ground         ``cluster.json``, and a listing from the entry of the last check to the newest of one's own
decides                   the last look at the clock before a create
creates                   the create itself, which takes effect whenever the store gets to it
believes / asks again     the rule that a create, or a look, which ended too late is checked afterwards
========================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from proof.model.search import switched_off

__all__ = ["Bounds", "GroundModel", "Rules", "World"]

TRUST = 1
"""Ticks: ``tail_trust_ms``."""
FIRST, OTHER = "first", "other"
"""Clusters."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What finds that the storage is another; each can be switched off."""

    check_first: bool = True
    """A check before the first create after a silence; off: only afterwards."""
    check_afterwards: bool = True
    """A create that ended later than ``TRUST`` after its check counts once another check has passed."""
    made: bool = True
    """… which looks for that entry, too; off: for the one that it was created behind."""
    check_always: bool = True
    """However busy a client is, it checks every ``TRUST``; off: its own create counts as a check."""
    cluster: bool = True
    """The check compares ``cluster.json``; off: only entries, of which an empty log has none."""
    token: bool = True
    """The check compares the token of the entry that one stands on; off: that there is one of this number is enough."""
    since_last_check: bool = True
    """The check lists from the entry of the last check on; off: the entry that one stands on is enough."""
    no_gap: bool = True
    """The check wants every number up to the one that it stands on; off: the first of them is enough."""
    readers_check: bool = True
    """A reader checks every ``TRUST``, too; off: what it doesn't find isn't there."""
    topic_id: bool = True
    """An entry of another topic's id is an error for whoever meets it; off: it is the next."""
    held: bool = True
    """On a folder: an entry is linked relative to the folder that is held open; off: under its name."""
    compare: bool = True
    """On a folder: each create compares the held folder with the one under the name; off: it trusts for a while."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    is_folder: bool = False
    entries: int = 2
    """Of the log when it begins."""
    appends: int = 3
    """By ``a``."""
    others: int = 2
    """By ``b``."""
    looks: int = 2
    """By ``r``."""
    ticks: int = 3
    acts: tuple[str, ...] = ("emptied", "another", "older")
    """The operator's, one of which happens."""
    comes_back: bool = False
    """What was moved away may be put back."""


class Entry(NamedTuple):
    """What is under a number's name."""

    writer: str
    number: int
    """Of the append: with the writer's name its token."""
    cluster: str


class Log(NamedTuple):
    """A log's folder, or prefix, wherever it lies."""

    identity: int
    """Of the folder."""
    cluster: str | None
    """What ``cluster.json`` says; None: there is none."""
    entries: tuple[Entry | None, ...]


class At(Enum):
    """What a client does next."""

    HERE = "stands at an entry"
    DECIDED = "has decided to create the next entry"
    CREATED = "has an answer"
    STOPPED = "has told its caller"


class Client(NamedTuple):
    """``a`` or ``r``: of the first cluster."""

    at: At
    version: int
    """Of the entry that it stands on; -1: the log was empty."""
    entry: Entry | None
    checked_at: int
    """When its last check began that passed."""
    checked_version: int
    """Where it stood then."""
    made: Entry | None = None
    """The entry behind, which it has created and doesn't count on yet."""
    decided_late: int = -1
    """Ghost: ticks between the exchange and the decision, where that came after it; else -1."""
    created_late: int = -1
    """Ghost: the same of the create, where it went into a log that isn't its own."""


class World(NamedTuple):
    now: int
    log: Log
    """What is under the name."""
    away: Log | None
    """What was moved away."""
    replaced_at: int
    """-1: not yet."""
    a: Client
    r: Client
    appends: int
    others: int
    looks: int
    ticks: int
    backs: int
    strays: tuple[int, ...]
    """Ghost: of entries that ``a`` has created in a log that isn't its own, how late they were decided."""
    acknowledged: tuple[tuple[int, int], ...]
    """Ghost: the appends of ``a`` that were acknowledged, and how late they were created where that was another log."""
    silent: int
    """Ghost: how late ``r`` believed that nothing is new, in a log that isn't its own; -1: never."""
    confused: str
    """Ghost: who went on behind an entry of another cluster."""


Step = tuple[str, World]


@dataclass(frozen=True, slots=True)
class GroundModel:
    """See the module."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)

    def starts(self) -> Iterator[Step]:
        """Both clients have just opened the log, and stand at its newest entry."""
        bounds = self.bounds
        entries = tuple(Entry("others", number, FIRST) for number in range(bounds.entries))
        newest = entries[-1] if entries else None
        client = Client(At.HERE, len(entries) - 1, newest, 0, len(entries) - 1)
        yield (
            f"{len(entries)} entries",
            World(
                now=0,
                log=Log(0, FIRST, entries),
                away=None,
                replaced_at=-1,
                a=client,
                r=client,
                appends=bounds.appends,
                others=bounds.others,
                looks=bounds.looks,
                ticks=bounds.ticks,
                backs=1 if bounds.comes_back else 0,
                strays=(),
                acknowledged=(),
                silent=-1,
                confused="",
            ),
        )

    def moves(self, world: World) -> Iterator[Step]:
        yield from self._operator(world)
        yield from self._writer(world)
        yield from self._reader(world)
        yield from self._newcomer(world)
        if world.ticks:
            yield "a tick passes", world._replace(now=world.now + 1, ticks=world.ticks - 1)

    def _operator(self, world: World) -> Iterator[Step]:
        if world.replaced_at < 0:
            after = world._replace(away=world.log, replaced_at=world.now)
            for act in self.bounds.acts:
                if act == "emptied":
                    yield "the place is emptied", after._replace(log=Log(1, None, ()))
                elif act == "another":
                    for count in range(self.bounds.entries + 1):
                        made = tuple(Entry("theirs", number, OTHER) for number in range(count))
                        label = f"another cluster is put there, with {count} entries"
                        yield label, after._replace(log=Log(1, OTHER, made))
                elif act == "older" and len(world.log.entries) > 1:
                    for kept in range(1, len(world.log.entries)):
                        older = Log(1, FIRST, world.log.entries[:kept])
                        yield f"a copy of the first {kept} entries is put there", after._replace(log=older)
        elif world.backs and world.away is not None:
            back = world._replace(log=world.away, away=None, replaced_at=world.now, backs=0)
            yield "what was moved away is put back", back

    # The writer of the first cluster.

    def _writer(self, world: World) -> Iterator[Step]:
        client = world.a
        if client.at is At.HERE and world.appends:
            if self._must_check(world, client):
                yield from self._check(world, "a", client)
            elif self.bounds.is_folder and self.rules.compare and world.log.identity != 0:
                yield "a finds another folder under the name", world._replace(appends=world.appends - 1)
            else:
                late = world.now - world.replaced_at if not _is_own(world, client) else -1
                decided = client._replace(at=At.DECIDED, decided_late=late)
                yield "a decides to create", world._replace(a=decided, appends=world.appends - 1)
        elif client.at is At.DECIDED:
            yield from self._create(world, client)
        elif client.at is At.CREATED:
            if self.rules.check_afterwards and not self.bounds.is_folder and world.now - client.checked_at > TRUST:
                yield from self._check(world, "a", client)
            else:
                yield "a acknowledges", self._acknowledge(world, client)

    def _must_check(self, world: World, client: Client) -> bool:
        if self.bounds.is_folder:
            return False
        return self.rules.check_first and world.now - client.checked_at > TRUST

    def _check(self, world: World, name: str, client: Client) -> Iterator[Step]:
        """``cluster.json``, then the entries; what is found counts from the moment before."""
        if self._passes(world.log, client):
            passed = client._replace(checked_at=world.now, checked_version=client.version)
            yield f"{name} checks its ground: it is the same", _with(world, name, passed)
        else:
            stopped = client._replace(at=At.STOPPED)
            yield f"{name} checks its ground: it is another", _with(world, name, stopped)

    def _passes(self, log: Log, client: Client) -> bool:
        rules, entries = self.rules, log.entries
        if rules.cluster and log.cluster != FIRST:
            return False
        if client.made is not None and rules.made:
            number = client.version + 1
            if number >= len(entries) or entries[number] != client.made:
                return False
        if client.version < 0:
            return True
        first = max(client.checked_version, 0) if rules.since_last_check else client.version
        wanted = {*range(first, client.version + 1)} if rules.no_gap else {first, client.version}
        if any(number >= len(entries) or entries[number] is None for number in wanted):
            return False
        return not rules.token or entries[client.version] == client.entry

    def _create(self, world: World, client: Client) -> Iterator[Step]:
        number = client.version + 1
        entry = Entry("a", self.bounds.appends - world.appends, FIRST)
        is_held = self.bounds.is_folder and self.rules.held and world.log.identity != 0
        if is_held:  # it goes into the folder that a holds, wherever that is
            if world.away is not None:
                held = _put(world.away, number, entry)
                stored = client._replace(at=At.CREATED, made=entry)
                yield "a links its entry into the folder it holds", world._replace(away=held, a=stored)
            return
        found = world.log.entries[number] if number < len(world.log.entries) else None
        if found is not None:
            if found.cluster != FIRST and self.rules.topic_id:
                met = client._replace(at=At.STOPPED)
                yield "a finds an entry of another topic's id", world._replace(a=met)
            else:
                confused = world.confused or ("a" if found.cluster != FIRST else "")
                there = client._replace(at=At.HERE, version=number, entry=found)
                yield "a finds another's entry, and goes on behind it", world._replace(a=there, confused=confused)
            return
        is_own = _is_own(world, client)
        late = -1 if is_own else world.now - world.replaced_at
        strays = world.strays if is_own else (*world.strays, client.decided_late)
        stored = client._replace(at=At.CREATED, made=entry, created_late=late)
        yield "a creates", world._replace(log=_put(world.log, number, entry), a=stored, strays=strays)

    def _acknowledge(self, world: World, client: Client) -> World:
        told = (self.bounds.appends - world.appends, client.created_late)
        version = client.version + 1
        here = client._replace(
            at=At.HERE, version=version, entry=client.made, made=None, decided_late=-1, created_late=-1
        )
        if not self.rules.check_always:
            here = here._replace(checked_at=world.now, checked_version=version)
        return world._replace(a=here, acknowledged=(*world.acknowledged, told))

    # The reader of the first cluster, and the clients of whatever is there.

    def _reader(self, world: World) -> Iterator[Step]:
        client = world.r
        if client.at is not At.HERE or not world.looks:
            return
        if self.rules.readers_check and world.now - client.checked_at > TRUST:
            yield from self._check(world, "r", client)
            return
        after, number = world._replace(looks=world.looks - 1), client.version + 1
        found = world.log.entries[number] if number < len(world.log.entries) else None
        if found is None:
            is_own = _is_own(world, client)
            late = max(world.silent, -1 if is_own else world.now - world.replaced_at)
            yield "r looks: nothing is new", after._replace(silent=late)
        elif found.cluster != FIRST and self.rules.topic_id:
            yield "r finds an entry of another topic's id", after._replace(r=client._replace(at=At.STOPPED))
        else:
            confused = world.confused or ("r" if found.cluster != FIRST else "")
            there = client._replace(version=number, entry=found)
            yield f"r reads entry {number}", after._replace(r=there, confused=confused)

    def _newcomer(self, world: World) -> Iterator[Step]:
        """``b`` opens what is there, and appends."""
        log = world.log
        if world.replaced_at < 0 or not world.others or log.cluster is None or log.identity == 0:
            return
        after, known = world._replace(others=world.others - 1), log.entries
        if log.cluster == FIRST:
            if world.now - world.replaced_at <= TRUST:
                return
            if world.others == self.bounds.others and None in known:
                known = known[: known.index(None)]
        number = known.index(None) if None in known else len(known)
        if any(entry is not None and entry.cluster != log.cluster for entry in known[:number]):
            if not self.rules.topic_id:
                yield "b goes on behind a stray entry", after._replace(confused="b")
            return  # it tells its caller of both ids
        made = Entry("b", world.others, log.cluster)
        yield f"b creates entry {number}", after._replace(log=_put(log._replace(entries=known), number, made))

    # What must always be true.

    def broken(self, world: World) -> Iterator[str]:
        bound = -1 if self.bounds.is_folder else TRUST
        for late in world.strays:
            if late > bound:
                yield f"nothing is stored in another's log: an entry was decided {late} ticks after the exchange"
        for append, late in world.acknowledged:
            if late > bound:
                yield f"no acknowledged record is lost: append {append} was created {late} ticks after the exchange"
        if world.silent > TRUST:
            yield f"no reader is silent: r saw nothing new {world.silent} ticks after the exchange"
        if world.confused:
            yield f"nobody goes on behind another's entry: {world.confused} did"
        if self.bounds.is_folder:
            a = world.a
            if a.at is At.CREATED and a.decided_late >= 0:
                yield f"nothing is stored after a folder was exchanged: decided {a.decided_late} ticks later"


def _is_own(world: World, client: Client) -> bool:
    """Ghost: does the client's entry still stand where it stood, in its own cluster, with all before it?"""
    log = world.log
    if log.cluster != FIRST or client.version >= len(log.entries):
        return False
    if client.version < 0:
        return True
    return log.entries[client.version] == client.entry and None not in log.entries[: client.version]


def _put(log: Log, number: int, entry: Entry) -> Log:
    entries = log.entries
    if number < len(entries):
        return log._replace(entries=(*entries[:number], entry, *entries[number + 1 :]))
    return log._replace(entries=(*entries, *[None] * (number - len(entries)), entry))


def _with(world: World, name: str, client: Client) -> World:
    return world._replace(a=client) if name == "a" else world._replace(r=client)
