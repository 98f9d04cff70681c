"""Appends, log cleanup and stalled writers, as the protocol has them (rules L1 to L4, L12).

One topic of one partition; every version holds one record, so its base offset is its version. Two writers are played
call by call, and may sleep between any two. What other writers do, who are always awake, is one step; so is a
checkpoint, whose writing decides nothing. Cleanup deletes one entry a step, in any order but for version 0, and may be
killed in between.

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
lists / reads             ``delta.snapshot.open_newest`` (light), ``delta.snapshot.read_log`` (whole)
creates                   the create of ``storage.entry_log.EntryLog.create_next``
reads who has …           the read after *exists* there
looks …                   ``EntryLog.look``, as of ``log.catch_up.catch_up``
verifies …                ``EntryLog._verify_if_due``, ``DeltaLog.verify``; what is believed then:
                          ``delta.commit.run_commit_loop``, ``storage.position.advance``
decides again             ``log.append_plan.plan_append``, ``producer_state.is_duplicate_commit``,
                          ``Append._find``
gives up                  ``commit``'s and ``create_next``'s deadline, ``TopicWriter._take_new_id``
plans / deletes           ``delta.cleanup.plan_cleanup``, ``clean_log``
========================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

from proof.model.search import switched_off

__all__ = ["AppendCleanup", "Bounds", "Rules", "World"]

TRUST, HOUR, DAY = 1, 2, 40
"""Ticks: ``tail_trust_ms``, a sleep that is longer, and ``log.retention.ms``, which is longer still."""
STALL, STATES = 60, 70
"""Ticks: after which an append relies on nothing that is absent (``log.producer_state.PRODUCER_EXPIRATION_MS``, seven
days), and for which checkpoints keep producers' states (``delta.setTransactionRetentionDuration``, eight days)."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps the log in one piece; each can be switched off."""

    verify: bool = True
    """L1: what a silent process learns counts only after it found its own entry again."""
    verify_afterwards: bool = True
    """L1: … *after* it learned it; off: before."""
    anchor_at_tail: bool = True
    """L1, decision 0001: finding an entry doesn't refresh trust; off: it does."""
    check_opening: bool = True
    """L12: who opens looks again whether what it listed is still there; off: it believes what it read."""
    read_token: bool = True
    """L2: *exists* after a lost answer is settled by reading who has the name; off: it is taken for success."""
    settle_unknown: bool = True
    """L2: who gives up while an attempt may be under way says that it doesn't know; off: that it failed."""
    new_producer_id: bool = True
    """L2: … and takes a new producer id; off: its next append has the same counter."""
    own_bytes: bool = True
    """L2: a duplicate is success only where it is this append's own; off: wherever the counter is known."""
    counter: bool = True
    """L2, L7: who loads the log looks whether its append is there; off: it commits again."""
    stall: bool = True
    """L7: … unless it is under way for so long that its producer's state may be gone; off: it commits again."""
    decide_again: bool = True
    """L4: who loses a race decides again; off: it commits what it had decided."""
    mark: bool = True
    """L3: a mark says below which version cleanup deletes, and whoever verifies reads it; off: there is none."""
    mark_first: bool = True
    """L3: … and is there before the first entry goes; off: once the last is gone."""
    below_checkpoint: bool = True
    """L3: … only below the newest checkpoint."""
    store_times: bool = True
    """L3: age is counted by the store's times; off: by the cleaner's clock, which is a day ahead."""
    successor_age: bool = True
    """L3, decision 0001: an entry is as old as its successor; off: as itself."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    appends: int = 1
    """By each of the two writers."""
    others: int = 3
    """Appends of others."""
    sleeps: int = 2
    """Times that everybody sleeps, for an hour or a day."""
    faults: int = 1
    """Answers that are lost, requests that come late."""
    looks: int = 2
    """Of both writers."""
    gives_up: int = 1
    places: tuple[str, ...] = ("at the tail", "one behind", "opening")
    """Where writers may be when it begins."""
    tokens_return: bool = False
    """All attempts at an append have one token, and a request may be carried out a second time, a day later: so an
    entry that was deleted may come back as it was. Without marks that was fatal (decision 0001)."""


class Entry(NamedTuple):
    """What is in the store under a version's name."""

    token: tuple[str, int, int]
    """Writer, append, attempt."""
    producer: tuple[str, int]
    counter: int
    base: int

    @property
    def append(self) -> tuple[str, int]:
        return self.token[:2]


class Object(NamedTuple):
    entry: Entry
    modified: int


class Listing(NamedTuple):
    is_whole: bool
    checkpoint: tuple[Entry, ...]
    stateless: int
    entries: tuple[tuple[int, Object], ...]
    began: int


class Learned(NamedTuple):
    """What a call has answered, and isn't believed yet."""

    how: str
    """``created``, ``taken``, ``found`` by a look, ``nothing``."""
    entry: Entry | None
    began: int


class At(Enum):
    """What a writer does next."""

    OPENING = "opens from the newest entry"
    LOST = "loads the log"
    LISTED = "reads what it listed"
    HERE = "stands at an entry"
    TAKEN = "reads who has the name"
    LEARNED = "believes or verifies"


class Writer(NamedTuple):
    at: At
    version: int
    """Where it stands; -1 before it has opened the log."""
    last: Entry | None
    anchor: int
    append: int = 0
    """The number of the one under way, or of the next."""
    producer: int = 0
    counter: int = 0
    attempts: int = 0
    """At the append under way; 0: none is."""
    since: int = 0
    """When that began."""
    is_unknown: bool = False
    """Of the create under way (``create_next``): may an attempt have been carried out?"""
    is_verified: bool = False
    """Only with ``verify_afterwards`` off."""
    base: int = -1
    """As decided first; only with ``decide_again`` off."""
    learned: Learned | None = None
    listing: Listing | None = None


class World(NamedTuple):
    now: int
    objects: tuple[Object | None, ...]
    """By version; None where it was deleted."""
    checkpoint: tuple[Entry, ...]
    """What the newest says: every entry up to its version."""
    stateless: int
    """Below this version it says nothing of producers: their states were too old when it was written."""
    truth: tuple[Entry, ...]
    """What was committed at each version; nobody can see it."""
    late: tuple[tuple[int, Entry], ...]
    """Creates that are still under way, their callers having given up waiting."""
    writers: tuple[Writer, Writer]
    plan: tuple[int, ...]
    """What cleanup still has to delete."""
    mark: int
    """Cleanup may have deleted any version below it."""
    told: tuple[tuple[tuple[str, int], int | None], ...]
    """How appends ended: their offset; None: failed, and nothing was nor will be stored."""
    others: int
    sleeps: int
    faults: int
    looks: int
    gives_up: int


NAMES = ("a", "b")
Step = tuple[str, World]


@dataclass(frozen=True, slots=True)
class AppendCleanup:
    """See the module."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)

    # What may begin.

    def starts(self) -> Iterator[Step]:
        """The log has two entries; each writer stands at one of them, or is about to open it."""
        bounds = self.bounds
        entries = tuple(Entry((OTHERS, number, 0), (OTHERS, number), 0, number) for number in range(2))
        versions = {"at the tail": 1, "one behind": 0, "opening": -1}
        places = [(name, versions[name]) for name in bounds.places]
        for (name_a, a), (name_b, b) in combinations_with_replacement(places, 2):  # the writers are alike
            writers = tuple(
                Writer(At.HERE if at >= 0 else At.OPENING, at, entries[at] if at >= 0 else None, 0) for at in (a, b)
            )
            yield (
                f"two entries; a {name_a}, b {name_b}",
                World(
                    now=0,
                    objects=tuple(Object(entry, 0) for entry in entries),
                    checkpoint=(),
                    stateless=0,
                    truth=entries,
                    late=(),
                    writers=(writers[0], writers[1]),
                    plan=(),
                    mark=0,
                    told=(),
                    others=bounds.others,
                    sleeps=bounds.sleeps,
                    faults=bounds.faults,
                    looks=bounds.looks,
                    gives_up=bounds.gives_up,
                ),
            )

    # What may happen next.

    def moves(self, world: World) -> Iterator[Step]:
        for index in range(2):
            yield from self._writer(world, index)
        yield from self._cleaner(world)
        yield from self._late(world)
        after, version = world, len(world.objects)
        for count in range(1, world.others + 1 if version == len(world.truth) else 0):
            number = version + count - 1
            after = _stored(after, number, Entry((OTHERS, number, 0), (OTHERS, number), 0, number))
            versions = _list_of(tuple(range(version, number + 1)))
            yield f"others append {versions}", after._replace(others=world.others - count)
        if world.sleeps:
            for name, ticks in (("an hour", HOUR), ("a day", DAY)):
                late = world.late if ticks < DAY or self.bounds.tokens_return else ()
                yield f"{name} passes", world._replace(now=world.now + ticks, sleeps=world.sleeps - 1, late=late)

    def _writer(self, world: World, index: int) -> Iterator[Step]:
        writer, name = world.writers[index], NAMES[index]
        if writer.at in (At.OPENING, At.LOST):
            listing = _list(world, is_whole=writer.at is At.LOST)
            kind = "everything" if listing.is_whole else "the newest"
            yield f"{name} lists, to read {kind}", _with(world, index, writer._replace(at=At.LISTED, listing=listing))
        elif writer.at is At.LISTED:
            yield from self._read(world, index)
        elif writer.at is At.HERE:
            yield from self._act(world, index)
        elif writer.at is At.TAKEN:
            version = writer.version + 1
            found = world.objects[version] if version < len(world.objects) else None
            if found is None:
                yield f"{name} finds version {version} gone", _with(world, index, _lost(writer))
            else:
                learned = Learned("taken", found.entry, world.now)
                label = f"{name} reads that version {version} is {_who(found.entry)}"
                yield from self._learn(world, index, learned, label)
        elif writer.at is At.LEARNED:
            yield from self._judge(world, index)

    def _act(self, world: World, index: int) -> Iterator[Step]:
        """Stands at an entry: append, look, or give up."""
        rules, writer, name = self.rules, world.writers[index], NAMES[index]
        version = writer.version + 1
        is_due = rules.verify and not rules.verify_afterwards and not writer.is_verified
        if is_due and self._is_silent(world, writer):
            if _is_at(world, writer) and world.mark <= writer.version:
                yield (
                    f"{name} verifies version {writer.version} beforehand",
                    _with(world, index, writer._replace(is_verified=True)),
                )
            else:
                yield f"{name} finds version {writer.version} gone", _with(world, index, _lost(writer))
            return
        if writer.append < self.bounds.appends:
            yield from self._create(world, index, version)
        if writer.attempts == 0 and world.looks:
            found = world.objects[version] if version < len(world.objects) else None
            learned = Learned("found" if found else "nothing", found.entry if found else None, world.now)
            seen = f"version {version}" if found else "nothing new"
            after = world._replace(looks=world.looks - 1)
            yield from self._learn(after, index, learned, f"{name} looks, and finds {seen}")
        if writer.attempts and world.gives_up:
            yield from self._give_up(world, index)

    def _create(self, world: World, index: int, version: int) -> Iterator[Step]:
        rules, writer, name = self.rules, world.writers[index], NAMES[index]
        base = writer.version + 1
        if not rules.decide_again:
            base = writer.base if writer.base >= 0 else base
        entry = Entry(
            token=(name, writer.append, 0 if self.bounds.tokens_return else writer.attempts),
            producer=(name, writer.producer),
            counter=writer.counter,
            base=base,
        )
        since = writer.since if writer.attempts else world.now
        tried = writer._replace(attempts=writer.attempts + 1, since=since, base=base)
        unsure = tried._replace(is_unknown=True)
        is_free = version >= len(world.objects) or world.objects[version] is None
        what = f"{name} creates version {version}"
        if is_free:
            stored = _stored(world, version, entry)
            yield from self._learn(
                _with(stored, index, unsure), index, Learned("created", entry, world.now), f"{what}: created"
            )
            if world.faults:
                lost = stored._replace(faults=world.faults - 1)
                yield f"{what}: created, the answer is lost", _with(lost, index, unsure)
                if self.bounds.tokens_return:
                    again = lost._replace(late=(*world.late, (version, entry)))
                    yield f"{what}: created, the answer is lost, the request sent twice", _with(again, index, unsure)
        elif writer.is_unknown and not rules.read_token:
            there = world.objects[version]
            is_own = there is not None and there.entry.append == entry.append  # by an attempt before this one
            own = Learned("created", there.entry if there and is_own else entry, world.now)
            yield from self._learn(_with(world, index, unsure), index, own, f"{what}: exists, taken for its own")
        else:
            yield f"{what}: exists", _with(world, index, unsure._replace(at=At.TAKEN))
        if world.faults:
            late = world._replace(faults=world.faults - 1, late=(*world.late, (version, entry)))
            yield f"{what}: no answer, the request is under way", _with(late, index, unsure)

    def _give_up(self, world: World, index: int) -> Iterator[Step]:
        rules, writer, name = self.rules, world.writers[index], NAMES[index]
        next_one = writer._replace(append=writer.append + 1, attempts=0, since=0, is_unknown=False, base=-1)
        after = world._replace(gives_up=world.gives_up - 1)
        is_new = rules.new_producer_id
        next_one = next_one._replace(
            producer=writer.producer + 1 if is_new else writer.producer, counter=0 if is_new else writer.counter
        )
        if writer.is_unknown and rules.settle_unknown:
            yield f"{name} gives up, and doesn't know", _with(after, index, next_one)
        else:
            told = after._replace(told=(*world.told, ((name, writer.append), None)))
            yield f"{name} gives up: nothing was stored", _with(told, index, next_one)

    def _learn(self, world: World, index: int, learned: Learned, label: str) -> Iterator[Step]:
        """The answer of a call: believed at once, or first slept over."""
        writer = world.writers[index]
        stalled = _with(world, index, writer._replace(at=At.LEARNED, learned=learned))
        if not self._must_verify(world, writer):
            yield label, self._believe(world, index, learned)
        yield f"{label} (and stalls)", stalled

    def _judge(self, world: World, index: int) -> Iterator[Step]:
        writer, name = world.writers[index], NAMES[index]
        learned = writer.learned
        if learned is None:
            raise RuntimeError(f"{name} has learned nothing")
        if not self._must_verify(world, writer):
            yield f"{name} believes it", self._believe(world, index, learned)
        elif not _is_at(world, writer):
            yield f"{name} finds version {writer.version} gone or changed", _with(world, index, _lost(writer))
        elif world.mark > writer.version:
            yield f"{name} finds version {writer.version} below the mark", _with(world, index, _lost(writer))
        else:
            yield f"{name} verifies version {writer.version}", self._believe(world, index, learned)

    def _is_silent(self, world: World, writer: Writer) -> bool:
        return world.now - writer.anchor > TRUST

    def _must_verify(self, world: World, writer: Writer) -> bool:
        return self.rules.verify and self.rules.verify_afterwards and self._is_silent(world, writer)

    def _believe(self, world: World, index: int, learned: Learned) -> World:
        """What was learned counts."""
        writer = world.writers[index]._replace(at=At.HERE, learned=None, is_verified=False)
        name, entry = NAMES[index], learned.entry
        if entry is None:
            return _with(world, index, writer._replace(anchor=learned.began))
        is_anchor = learned.how == "created" or not self.rules.anchor_at_tail
        there = writer._replace(
            version=writer.version + 1,
            last=entry,
            anchor=learned.began if is_anchor else writer.anchor,
            is_unknown=False,
        )
        own = writer.attempts > 0 and entry.append == (name, writer.append)
        if own:
            return self._succeed(world, index, there, entry.base)
        if writer.attempts and self.rules.counter and _is_duplicate(writer, name, entry):
            return self._duplicate(world, index, there, [entry])
        return _with(world, index, there)

    def _read(self, world: World, index: int) -> Iterator[Step]:
        """Reads what it has listed, and asks whether it is still there."""
        rules, writer, name = self.rules, world.writers[index], NAMES[index]
        listing = writer.listing
        if listing is None:
            raise RuntimeError(f"{name} has listed nothing")
        again = writer._replace(at=At.LOST if listing.is_whole else At.OPENING, listing=None)
        wanted = listing.entries if listing.is_whole else listing.entries[-1:]
        found = [world.objects[version] for version, _ in wanted]
        is_young = not listing.is_whole and world.now - listing.began <= TRUST
        is_same = is_young or not rules.check_opening or found[0] == wanted[0][1]
        is_below = listing.is_whole and rules.check_opening and world.mark > wanted[0][0]
        if None in found or not is_same or is_below:
            yield f"{name} finds that what it listed is gone, and begins anew", _with(world, index, again)
            return
        read = [one.entry for one in found if one is not None]
        there = again._replace(at=At.HERE, version=wanted[-1][0], last=read[-1], anchor=listing.began, is_unknown=False)
        label = f"{name} reads up to version {wanted[-1][0]}"
        if not listing.is_whole:
            yield label, _with(world, index, there)
            return
        if writer.attempts and rules.stall and world.now - writer.since >= STALL:
            yield f"{label}, and doesn't know what became of its append", self._duplicate(world, index, there, [])
            return
        known = [*listing.checkpoint[listing.stateless :], *read[len(listing.checkpoint) - wanted[0][0] :]]
        own = [one for one in known if _is_duplicate(writer, name, one)] if writer.attempts and rules.counter else []
        yield label, self._duplicate(world, index, there, own) if own else _with(world, index, there)

    def _duplicate(self, world: World, index: int, writer: Writer, found: list[Entry]) -> World:
        """Its counter is in the log: success where its own bytes are, else nobody knows."""
        mine = [one for one in found if one.append == (NAMES[index], writer.append)]
        if not self.rules.own_bytes:
            mine = found
        if mine:
            return self._succeed(world, index, writer, mine[0].base)
        given_up = writer._replace(
            append=writer.append + 1,
            attempts=0,
            since=0,
            is_unknown=False,
            base=-1,
            producer=writer.producer + 1,
            counter=0,
        )
        return _with(world, index, given_up)

    def _succeed(self, world: World, index: int, writer: Writer, offset: int) -> World:
        told = (*world.told, ((NAMES[index], writer.append), offset))
        done = writer._replace(
            append=writer.append + 1,
            attempts=0,
            since=0,
            is_unknown=False,
            base=-1,
            counter=writer.counter + 1,
        )
        return _with(world._replace(told=told), index, done)

    def _late(self, world: World) -> Iterator[Step]:
        for number, (version, entry) in enumerate(world.late):
            after = world._replace(late=world.late[:number] + world.late[number + 1 :])
            if version >= len(world.objects) or world.objects[version] is None:
                yield (
                    f"{entry.token[0]}'s late request comes: version {version} is created",
                    _stored(after, version, entry),
                )
            else:
                yield f"{entry.token[0]}'s late request comes: version {version} exists", after

    def _cleaner(self, world: World) -> Iterator[Step]:
        if world.plan:
            for version in world.plan[:1] if world.plan[0] == 0 else world.plan:  # another engine could begin there
                yield f"cleanup deletes version {version}", self._deleted(world, (version,))
            if len(world.plan) > 1:
                yield f"cleanup deletes versions {_list_of(world.plan)}", self._deleted(world, world.plan)
            yield "cleanup is killed", world._replace(plan=())
            return
        if plan := self._plan(world):
            yield f"cleanup plans to delete {_list_of(plan)}", self._planned(world, plan)
        now = _read_all(world)
        if now is None or len(now) == len(world.checkpoint):
            return
        written = world._replace(checkpoint=now, stateless=_stateless(world, len(now)))
        if plan := self._plan(written):  # one that nobody cleans behind makes no difference
            label = f"a checkpoint of version {len(now) - 1} is written; cleanup plans to delete {_list_of(plan)}"
            yield label, self._planned(written, plan)

    def _plan(self, world: World) -> tuple[int, ...]:
        """``plan_cleanup``: from the oldest on, up to the first that must stay."""
        rules = self.rules
        present = [(version, found) for version, found in enumerate(world.objects) if found is not None]
        newest = present[-1][1].modified if rules.store_times else world.now + DAY
        bound = len(world.checkpoint) - 1 if rules.below_checkpoint else len(world.objects)
        plan: list[int] = []
        for (version, found), (_, successor) in pairwise(present):
            judged = successor if rules.successor_age else found
            is_young = version >= world.mark and newest - judged.modified < DAY
            if version >= bound or is_young:
                break
            plan.append(version)
        return tuple(plan)

    def _planned(self, world: World, plan: tuple[int, ...]) -> World:
        marked = self._marked(world, plan[-1] + 1) if self.rules.mark_first else world
        return marked._replace(plan=plan)

    def _deleted(self, world: World, gone: tuple[int, ...]) -> World:
        objects = tuple(None if version in gone else found for version, found in enumerate(world.objects))
        left = tuple(version for version in world.plan if version not in gone)
        after = world._replace(objects=objects, plan=left)
        return after if left or self.rules.mark_first else self._marked(after, world.plan[-1] + 1)

    def _marked(self, world: World, below: int) -> World:
        return world._replace(mark=max(world.mark, below)) if self.rules.mark else world

    # What must always be true.

    def broken(self, world: World) -> Iterator[str]:
        truth = world.truth
        for version, entry in enumerate(truth):
            if entry.base != version:
                yield f"offsets are dense and never given twice: version {version} begins at {entry.base}"
        stored: dict[tuple[str, int], list[int]] = {}
        for entry in truth:
            if entry.token[0] != OTHERS:
                stored.setdefault(entry.append, []).append(entry.base)
        for (name, number), offsets in stored.items():
            if len(offsets) > 1:
                yield f"no append is in the log twice: {name}'s {_nth(number)} is at offsets {offsets}"
        for (name, number), offset in world.told:
            found = stored.get((name, number), [])
            if offset is None and found:
                yield f"what failed isn't in the log: {name}'s {_nth(number)} is at offset {found[0]}"
            elif offset is not None and offset not in found:
                yield (
                    f"an acknowledged append is in the log: {name}'s {_nth(number)} was told offset {offset}, "
                    f"it is at {found or 'none'}"
                )
        for name, writer in zip(NAMES, world.writers, strict=True):
            if writer.at in (At.HERE, At.TAKEN, At.LEARNED):
                true = truth[writer.version] if writer.version < len(truth) else None
                if writer.last != true:
                    yield (
                        f"the log never forks: {name} stands at version {writer.version} by "
                        f"{_who(writer.last)}, it is {_who(true)}"
                    )
        if _read_all(world) != truth:
            yield "whoever opens the log reads all that was committed"


def _stored(world: World, version: int, entry: Entry) -> World:
    """The store has created an entry: the next of the log, unless its name was cleaned."""
    at = Object(entry, world.now)
    if version < len(world.objects):
        return world._replace(objects=(*world.objects[:version], at, *world.objects[version + 1 :]))
    truth = (*world.truth, entry) if version == len(world.truth) else world.truth
    gap = (None,) * (version - len(world.objects))
    return world._replace(objects=(*world.objects, *gap, at), truth=truth)


def _list(world: World, *, is_whole: bool) -> Listing:
    """``list_log``: the newest checkpoint, and the entries from there on."""
    first = max(0, len(world.checkpoint) - 1)
    entries = tuple((v, found) for v, found in enumerate(world.objects) if v >= first and found is not None)
    return Listing(is_whole, world.checkpoint, world.stateless, entries, world.now)


def _read_all(world: World) -> tuple[Entry, ...] | None:
    """What whoever opens the log now would read; None where it can't."""
    known = len(world.checkpoint)
    tail = world.objects[known:]
    if any(found is None for found in tail) or not (tail or (known and world.objects[known - 1] is not None)):
        return None
    return (*world.checkpoint, *(found.entry for found in tail if found is not None))


def _stateless(world: World, count: int) -> int:
    """How many versions' states a checkpoint of so many leaves out: all that were written long before the newest
    entry."""
    newest = next(found.modified for found in reversed(world.objects) if found is not None)
    return sum(found is None or newest - found.modified >= STATES for found in world.objects[:count])


def _list_of(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions))


def _is_at(world: World, writer: Writer) -> bool:
    """Does its own entry still have its token?"""
    found = world.objects[writer.version]
    return found is not None and writer.last is not None and found.entry.token == writer.last.token


def _is_duplicate(writer: Writer, name: str, entry: Entry) -> bool:
    return entry.producer == (name, writer.producer) and entry.counter >= writer.counter


def _lost(writer: Writer) -> Writer:
    """``PositionLost``: the loaded log decides."""
    return writer._replace(at=At.LOST, learned=None, is_verified=False)


def _with(world: World, index: int, writer: Writer) -> World:
    first, second = world.writers
    return world._replace(writers=(writer, second) if index == 0 else (first, writer))


def _who(entry: Entry | None) -> str:
    return "nobody's" if entry is None else f"{entry.token[0]}'s"


def _nth(number: int) -> str:
    return f"append {number}"
