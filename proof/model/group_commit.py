"""Group commit: owners announce uploads, includers publish them, owners withdraw (decision 0019).

One topic of one partition. Each writer is an owner and, once it has a flush of its own that isn't settled, an includer;
it is played call by call, and may sleep or die between any two. A file holds one record. What an appending client of
before does is one step, and so are a sweep's own entry, its deletions, and a topic's deletion and creation. Rules of
trust and log cleanup (L1, L3) are not played here: see :mod:`proof.model.append_cleanup`.

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
opens                     ``open_state``: the newest entry alone (rule L5, opening)
uploads                   ``TopicWriter.upload`` of a flush that is announced: one PUT for each part
lists                     ``list_announced``
creates                   ``plan_group``, and the create of ``EntryLog.create_next``, decided anew each time
reads                     ``TopicState.apply_entry`` of the next entry, also one of its own whose answer was lost
forgets                   ``TopicState.forget_others``
loads                     ``PositionLost``: the loaded table decides
gives up                  ``delivery_timeout_ms`` is over: an entry of its own that leaves the flush out follows
takes a version, deletes  ``txn.orphans.sweep_candidates``
========================  ==============================================================================

The invariants look at every state, so that each is also what would be seen if everybody died there, or the power
failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, groupby, pairwise
from typing import NamedTuple

from proof.model.search import switched_off

__all__ = ["Bounds", "GroupCommit", "Owner", "Rules", "World"]

AGE, WEEK, WEEKS_SPARED = 1, 10, 7
"""Ticks: the greatest age of what an includer takes, a long sleep, and the age that a sweep spares."""
NAMES = ("a", "b", "c")
LIAR, OTHERS = "liar", "others"
NOTHING_SETTLED = -1


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps group commit correct; each can be switched off."""

    number: bool = True
    """An includer takes no flush whose number is settled; off: whatever is listed."""
    no_gaps: bool = True
    """… and none before the one before it; off: any that isn't settled."""
    claim: bool = True
    """Where it knows of no number, it goes on from the one that the name tells; off: any number is the first."""
    knowledge: bool = True
    """It takes only what was announced behind all that it doesn't know; off: whatever it hasn't seen settled."""
    complete: bool = True
    """It takes a flush with all its parts; off: those that are listed."""
    topic: bool = True
    """It takes only what was meant for the topic of this id (rule L8)."""
    counts: bool = True
    """It reads a file of an announcer before it believes what its names say; off: it believes."""
    age: bool = True
    """It takes nothing that is old (rule L10)."""
    age_again: bool = True
    """… as of each create; off: as of the listing."""
    store_time: bool = True
    """… and by the store's time; off: by its own clock, which is a week behind."""
    sweep_entry: bool = True
    """A sweep takes a version of the log before it deletes (rule L10)."""
    decide_again: bool = True
    """Who loses a race decides again (rule L4)."""
    withdraw_first: bool = True
    """A flush has failed once an entry of its owner has left it out; off: once its owner gives up."""
    withdraw_by_entry: bool = True
    """A withdrawal is an entry; off: it is the deletion of the file."""
    failed_upload: bool = True
    """An upload without an answer may be there or come: it is withdrawn as others are; off: it has failed."""
    absence: bool = True
    """Who loads the topic and doesn't find its flush knows nothing yet; off: it has failed."""
    same_number: bool = True
    """What is appended again after it was given up keeps its number; off: it goes by a new id."""
    ordinary_numbers: bool = True
    """A flush that is announced behind ordinary ones leaves a number to them; off: it claims to follow them."""
    order: bool = True
    """An owner's entry takes its flushes from the oldest on; off: the newest alone."""
    sync_included: bool = True
    """An includer with ``acks=all`` fsyncs what it includes before it creates (rule L9)."""
    sync_found: bool = True
    """An owner with ``acks=all`` fsyncs the entry that it found itself in, and all before, before it acknowledges."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Owner:
    """A writer, as it begins."""

    flushes: int = 1
    is_open: bool = True
    """Off: it opens the topic at some time, by its newest entry."""
    acks_all: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    owners: tuple[Owner, ...] = (Owner(), Owner())
    parts: int = 1
    """Files of each flush."""
    others: int = 0
    """Appends by clients that don't know of group commit."""
    faults: int = 0
    """Answers that are lost, requests that come late."""
    gives_up: int = 0
    forgets: int = 0
    loads: int = 0
    weeks: int = 0
    """Times that everybody sleeps."""
    sweeps: int = 0
    anew: int = 0
    """Times that the topic is deleted and created again."""
    ordinary: int = 0
    """Flushes of one part that are uploaded under ordinary names, since group commit was off."""
    overlaps: int = 0
    """Uploads that take their time: the flush behind them may be there before."""
    is_listing_torn: bool = False
    """A listing shows any part of what is there: pages of different moments."""
    is_lied_to: bool = False
    """Somebody has announced a file of one record as one of two."""


class File(NamedTuple):
    """An object in the store; an announced one's name says all of it but ``put``."""

    owner: str
    number: int
    part: int
    known: int
    """How many entries its owner had applied."""
    settled: int
    """The newest of its owner's numbers that these entries settle."""
    topic: int
    put: int
    """By the store's time."""
    is_announced: bool = True

    @property
    def flush(self) -> tuple[str, int]:
        return self.owner, self.number


class Add(NamedTuple):
    file: File
    base: int


class Entry(NamedTuple):
    by: str
    adds: tuple[Add, ...]
    settles: tuple[tuple[str, int], ...]
    """The greatest number that is settled now, by announcer: its ``txn`` actions."""
    topic: int
    end: int
    """The log end offset."""


class Listing(NamedTuple):
    files: tuple[File, ...]
    at: int


class Writer(NamedTuple):
    applied: int
    """How many entries it has applied; -1 before it has opened the topic."""
    forgotten: int
    """Entries below this one may have settled numbers that it doesn't know."""
    topic: int
    settled: int = NOTHING_SETTLED
    """The newest of its own numbers that it knows to be settled."""
    flushes: int = 0
    """How many were uploaded, the last perhaps in part."""
    parts: int = 0
    """… of which so many parts."""
    claim: tuple[int, int] = (0, 0)
    """What the flush that is uploaded in part says: what is known, and what is settled."""
    given_up: tuple[int, ...] = ()
    under_way: tuple[int, ...] = ()
    """Flushes whose upload hasn't ended."""
    ordinary: tuple[int, ...] = ()
    """Flushes that aren't announced. Here they have numbers like the others; nobody else sees these."""
    listing: Listing | None = None
    is_unknown: bool = False
    """May an entry of its own come at the version where it is?"""
    first: Entry | None = None
    """As decided first; only with ``decide_again`` off."""
    is_done: bool = False
    """The topic that it writes to was deleted."""


class LateCreate(NamedTuple):
    version: int
    entry: Entry


class Outcome(NamedTuple):
    """What the owner of a flush was told."""

    owner: str
    number: int
    offset: int | None
    """None: it failed, and nothing of it was or will be stored."""
    version: int


class World(NamedTuple):
    now: int
    log: tuple[Entry, ...]
    files: frozenset[File]
    synced: frozenset[File | int]
    """Files, and versions of entries, that survive a power loss."""
    writers: tuple[Writer, ...]
    late_puts: tuple[File, ...]
    late_creates: tuple[LateCreate, ...]
    doomed: frozenset[File]
    """What the sweep is about to delete."""
    told: frozenset[Outcome]
    others: int
    faults: int
    gives_up: int
    forgets: int
    loads: int
    weeks: int
    sweeps: int
    anew: int
    overlaps: int
    ordinary: int


Step = tuple[str, World]


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """See the module."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)

    # What may begin.

    def starts(self) -> Iterator[Step]:
        """The log has one entry."""
        bounds = self.bounds
        writers = tuple(Writer(1, 0, 0) if owner.is_open else Writer(-1, 0, 0) for owner in bounds.owners)
        lie = File(LIAR, 0, 0, known=1, settled=NOTHING_SETTLED, topic=0, put=0)
        yield (
            "an empty topic",
            World(
                now=0,
                log=(Entry(OTHERS, (), (), 0, 0),),
                files=frozenset({lie} if bounds.is_lied_to else ()),
                synced=frozenset({0}),
                writers=writers,
                late_puts=(),
                late_creates=(),
                doomed=frozenset(),
                told=frozenset(),
                others=bounds.others,
                faults=bounds.faults,
                gives_up=bounds.gives_up,
                forgets=bounds.forgets,
                loads=bounds.loads,
                weeks=bounds.weeks,
                sweeps=bounds.sweeps,
                anew=bounds.anew,
                overlaps=bounds.overlaps,
                ordinary=bounds.ordinary,
            ),
        )

    # What may happen next.

    def moves(self, world: World) -> Iterator[Step]:
        for index, writer in enumerate(world.writers):
            if writer.applied < 0:
                yield f"{NAMES[index]} opens the topic", _opened(world, index)
            elif not writer.is_done:
                yield from self._upload(world, index)
                yield from self._read(world, index)
                yield from self._list(world, index)
                yield from self._create(world, index)
                yield from self._give_up(world, index)
                yield from self._lose_knowledge(world, index)
        yield from self._late(world)
        yield from self._sweep(world)
        end = world.log[-1].end
        if world.others:
            file = File(OTHERS, len(world.log), 0, 0, 0, world.log[-1].topic, world.now, is_announced=False)
            entry = world.log[-1]._replace(by=OTHERS, adds=(Add(file, end),), settles=(), end=end + 1)
            after = world._replace(others=world.others - 1, files=world.files | {file})
            yield "another client appends", _appended(_synced(after, len(world.log), {file}), entry, is_synced=True)
        if world.anew:
            entry = Entry(OTHERS, (), (), world.log[-1].topic + 1, 0)
            after = _appended(world._replace(anew=world.anew - 1), entry, is_synced=True)
            yield "the topic is deleted and made anew", after
        if world.weeks:
            yield "a week passes", world._replace(now=world.now + WEEK, weeks=world.weeks - 1)

    def _upload(self, world: World, index: int) -> Iterator[Step]:
        writer, name, parts = world.writers[index], NAMES[index], self.bounds.parts
        is_begun = 0 < writer.parts < parts and writer.flushes - 1 not in writer.given_up
        number, part = (writer.flushes - 1, writer.parts) if is_begun else (writer.flushes, 0)
        if number >= self.bounds.owners[index].flushes:
            return
        if world.ordinary:
            yield self._upload_unannounced(world, index)
        unsettled = [one for one in writer.ordinary if one > writer.settled and not self.rules.ordinary_numbers]
        claim = writer.claim if is_begun else (writer.applied, max(writer.settled, *unsettled, NOTHING_SETTLED))
        file = File(name, number, part, *claim, writer.topic, world.now)
        after = _with(world, index, writer._replace(flushes=number + 1, parts=part + 1, claim=claim))
        what = f"{name} uploads flush {number}" + (f", part {part}" if parts > 1 else "")
        synced = world.synced | {file} if self.bounds.owners[index].acks_all else world.synced
        yield what, after._replace(files=world.files | {file}, synced=synced)
        if world.overlaps:
            begun = _with(after, index, after.writers[index]._replace(under_way=(*writer.under_way, number)))
            begun = begun._replace(overlaps=world.overlaps - 1, late_puts=(*world.late_puts, file))
            yield f"{what}: under way", begun
        if world.faults:
            failed = after.writers[index]._replace(given_up=(*writer.given_up, number))
            failed_after = _with(after, index, failed)._replace(
                faults=world.faults - 1, late_puts=(*world.late_puts, file)
            )
            if not self.rules.failed_upload:
                failed_after = _told(failed_after, Outcome(name, number, None, -1))
            yield f"{what}: no answer, the request is under way", failed_after

    def _upload_unannounced(self, world: World, index: int) -> Step:
        writer, name = world.writers[index], NAMES[index]
        number = writer.flushes
        file = File(name, number, 0, 0, NOTHING_SETTLED, writer.topic, world.now, is_announced=False)
        uploaded = writer._replace(flushes=number + 1, parts=1, ordinary=(*writer.ordinary, number))
        after = _with(world, index, uploaded)._replace(ordinary=max(0, world.ordinary - 1))
        synced = world.synced | {file} if self.bounds.owners[index].acks_all else world.synced
        after = after._replace(files=world.files | {file}, synced=synced)
        return f"{name} uploads flush {number} under an ordinary name", after

    def _read(self, world: World, index: int) -> Iterator[Step]:
        writer = world.writers[index]
        if writer.applied < len(world.log):
            by = world.log[writer.applied].by
            yield f"{NAMES[index]} reads version {writer.applied} by {by}", self._apply(world, index)

    def _list(self, world: World, index: int) -> Iterator[Step]:
        writer, name = world.writers[index], NAMES[index]
        if not self._unsettled(writer):
            return
        there = tuple(sorted(file for file in world.files if file.is_announced and file.owner != name))
        fewest = 1 if self.bounds.is_listing_torn else len(there)
        for count in range(max(1, fewest), len(there) + 1):
            for seen in combinations(there, count):
                if writer.listing is None or writer.listing.files != seen:
                    files = ", ".join(f"{file.owner}{file.number}" for file in seen)
                    listed = writer._replace(listing=Listing(seen, world.now))
                    yield f"{name} lists {files}", _with(world, index, listed)

    def _create(self, world: World, index: int) -> Iterator[Step]:
        """Decide, and create the version after the newest entry that it has applied. One that is taken, it reads."""
        writer, name = world.writers[index], NAMES[index]
        if writer.applied != len(world.log) or not self._unsettled(writer):
            return
        entry, world = self._decided(world, index)
        if not entry.adds and not entry.settles:
            return
        writer = world.writers[index]
        version = len(world.log)
        what = f"{name} creates version {version} with {_say(entry)}"
        ready = self._synced_before(world, index, entry)
        is_synced = self.bounds.owners[index].acks_all
        yield f"{what}: created", self._apply(_appended(ready, entry, is_synced=is_synced), index)
        if world.faults:
            unsure = _with(ready, index, writer._replace(is_unknown=True))._replace(faults=world.faults - 1)
            yield f"{what}: created, the answer is lost", _appended(unsure, entry, is_synced=False)
            late = (*world.late_creates, LateCreate(version, entry))
            yield f"{what}: no answer, the request is under way", unsure._replace(late_creates=late)

    def _give_up(self, world: World, index: int) -> Iterator[Step]:
        writer, name, rules = world.writers[index], NAMES[index], self.rules
        waiting = [number for number in self._unsettled(writer) if number not in writer.given_up]
        if not world.gives_up or not waiting:
            return
        number = waiting[0]
        after = _with(world, index, writer._replace(given_up=(*writer.given_up, number)))
        after = after._replace(gives_up=world.gives_up - 1)
        if not rules.withdraw_first and not writer.is_unknown:
            after = _told(after, Outcome(name, number, None, -1))
        if not rules.withdraw_by_entry and not writer.is_unknown:
            left = frozenset(file for file in world.files if file.flush != (name, number))
            after = _told(after._replace(files=left), Outcome(name, number, None, -1))
        yield f"{name} gives up flush {number}", after

    def _lose_knowledge(self, world: World, index: int) -> Iterator[Step]:
        writer, name = world.writers[index], NAMES[index]
        if world.forgets and writer.forgotten < writer.applied:
            forgetful = writer._replace(forgotten=writer.applied)
            yield f"{name} forgets others", _with(world, index, forgetful)._replace(forgets=world.forgets - 1)
        if world.loads:
            after = world._replace(loads=world.loads - 1)
            while after.writers[index].applied < len(world.log):
                after = self._apply(after, index)
            loaded = after.writers[index]._replace(forgotten=0, listing=None)
            after = _with(after, index, loaded)
            if not self.rules.absence and not loaded.is_unknown:
                for number in self._unsettled(loaded):
                    after = _told(after, Outcome(name, number, None, -1))
            yield f"{name} loses its position, and loads the topic", after

    def _late(self, world: World) -> Iterator[Step]:
        for at, file in enumerate(world.late_puts):
            left = world.late_puts[:at] + world.late_puts[at + 1 :]
            came = file._replace(put=world.now)
            after = world._replace(late_puts=left, files=world.files | {came})
            index = NAMES.index(file.owner)
            writer = after.writers[index]
            ended = writer._replace(under_way=tuple(number for number in writer.under_way if number != file.number))
            if self.bounds.owners[index].acks_all and ended != writer:
                after = after._replace(synced=after.synced | {came})
            yield f"{file.owner}'s upload of flush {file.number} comes late", _with(after, index, ended)
        for at, (version, entry) in enumerate(world.late_creates):
            after = world._replace(late_creates=world.late_creates[:at] + world.late_creates[at + 1 :])
            if version == len(world.log):
                yield f"{entry.by}'s late request comes: version {version}", _appended(after, entry, is_synced=False)
            else:  # the name is taken: nothing happens, whenever it comes
                yield f"{entry.by}'s late request finds version {version} taken", after

    def _sweep(self, world: World) -> Iterator[Step]:
        if world.doomed:
            yield "the sweep deletes", world._replace(files=world.files - world.doomed, doomed=frozenset())
        elif world.sweeps:
            live = {add.file for entry in world.log for add in entry.adds}
            old = frozenset(file for file in world.files - live if world.now - file.put >= WEEKS_SPARED)
            if old:
                after = world._replace(doomed=old, sweeps=world.sweeps - 1)
                if self.rules.sweep_entry:
                    after = _appended(
                        after, world.log[-1]._replace(by="the sweep", adds=(), settles=()), is_synced=True
                    )
                yield "a sweep takes a version", after

    # How writers decide.

    def _unsettled(self, writer: Writer) -> list[int]:
        """Numbers of its own that it doesn't know to be settled, of flushes that are uploaded or given up."""
        is_whole = writer.parts in (0, self.bounds.parts) or writer.flushes - 1 in writer.given_up
        last = min([writer.flushes if is_whole else writer.flushes - 1, *writer.under_way])
        return [*range(writer.settled + 1, last)]

    def _decided(self, world: World, index: int) -> tuple[Entry, World]:
        """``plan_group``; and the world with the files that the owner uploads again, under ordinary names."""
        writer, name, rules = world.writers[index], NAMES[index], self.rules
        if writer.first is not None:
            return writer.first, world
        unsettled = self._unsettled(writer)
        wanted = [number for number in unsettled if number not in writer.given_up or not rules.same_number]
        if not rules.order:
            wanted = wanted[-1:]
        own = [self._young(world, index, number, part) for number in wanted for part in range(self.bounds.parts)]
        again = frozenset(own) - world.files
        world = world._replace(files=world.files | again, synced=world.synced | again)
        others = self._takeable(world, writer, name)
        adds: list[Add] = []
        end = world.log[-1].end
        for file in [*own, *others]:
            adds.append(Add(file, end))
            end += 2 if file.owner == LIAR else 1  # as its name says
        greatest = {file.owner: max(one.number for one in others if one.owner == file.owner) for file in others}
        is_by_new_id = not rules.same_number and set(wanted) & set(writer.given_up)
        if unsettled and not is_by_new_id and (rules.withdraw_by_entry or wanted):
            settled = [*wanted, *(number for number in writer.given_up if number in unsettled)]
            greatest[name] = max(settled if rules.withdraw_by_entry else wanted)
        entry = Entry(name, tuple(adds), tuple(sorted(greatest.items())), world.log[-1].topic, end)
        if not rules.decide_again:
            world = _with(world, index, writer._replace(first=entry))
        return entry, world

    def _young(self, world: World, index: int, number: int, part: int) -> File:
        """A file of its own that no sweep may take; another than is there where that is old (rule L10)."""
        name = NAMES[index]
        there = [file for file in world.files if file[:3] == (name, number, part) and world.now - file.put <= AGE]
        topic = world.writers[index].topic
        new = File(name, number, part, 0, NOTHING_SETTLED, topic, world.now, is_announced=False)
        return max(there, default=new)

    def _takeable(self, world: World, writer: Writer, name: str) -> list[File]:
        """What the includer takes of its listing."""
        rules, listing = self.rules, writer.listing
        if listing is None:
            return []
        now = (world.now if rules.age_again else listing.at) - (0 if rules.store_time else WEEK)
        files = [
            file
            for file in listing.files
            if file.owner != name
            and (not rules.counts or file.owner != LIAR)
            and (not rules.topic or file.topic == writer.topic)
            and (not rules.knowledge or file.known >= writer.forgotten)
            and (not rules.age or now - file.put <= AGE)
        ]
        taken: list[File] = []
        for owner, of_owner in groupby(files, key=lambda file: file.owner):
            known = _settled_of(world.log[writer.forgotten : writer.applied], owner)
            for number, of_flush in groupby(of_owner, key=lambda file: file.number):
                parts = [*of_flush]
                if known is None:
                    known = parts[0].settled if rules.claim else number - 1
                if rules.number and number <= known:
                    continue
                if rules.no_gaps and number > known + 1:
                    break
                if rules.complete and len(parts) < self.bounds.parts and owner != LIAR:
                    break
                taken += parts
                known = number
        return taken

    def _synced_before(self, world: World, index: int, entry: Entry) -> World:
        """With ``acks=all``: what came before, and what is included, survives before the entry is there."""
        if not self.bounds.owners[index].acks_all:
            return world
        included = {add.file for add in entry.adds} if self.rules.sync_included else set()
        own = {add.file for add in entry.adds if add.file.owner == NAMES[index]}
        return _synced(world, len(world.log), included | own)

    def _apply(self, world: World, index: int) -> World:
        """The writer applies the next entry: what it learns of its own flushes is told at once."""
        writer, name = world.writers[index], NAMES[index]
        version = writer.applied
        entry = world.log[version]
        writer = writer._replace(applied=version + 1, is_unknown=False)
        if entry.topic != writer.topic:  # UnknownTopicOrPartitionError
            failed = {Outcome(name, number, None, version) for number in self._unsettled(writer)}
            ended = writer._replace(is_done=True, listing=None)
            return _with(world, index, ended)._replace(told=world.told | failed)
        settled = dict(entry.settles).get(name, NOTHING_SETTLED)
        bases = {add.file.number: add.base for add in reversed(entry.adds) if add.file.owner == name}
        is_own = entry.by == name
        if self.bounds.owners[index].acks_all and is_own:  # what is before it was synced before it was created
            world = world._replace(synced=world.synced | {version})
        elif self.bounds.owners[index].acks_all and bases and self.rules.sync_found:
            world = _synced(world, version + 1, set())
        told = {Outcome(name, number, base, version) for number, base in bases.items()}
        told |= {
            Outcome(name, number, None, version)
            for number in range(writer.settled + 1, settled + 1)
            if number in writer.given_up and number not in bases
        }
        writer = writer._replace(settled=max(writer.settled, settled, *bases), first=None if bases else writer.first)
        if is_own:
            writer = writer._replace(listing=None)
        return _with(world, index, writer)._replace(told=world.told | told)

    # What must always be true.

    def broken(self, world: World) -> Iterator[str]:
        yield from self._broken_log(world)
        yield from self._broken_order(world)
        published = {add.file.flush: (version, add.base) for version, add in reversed(_adds(world.log))}
        everywhere = {(add.file.flush, add.base) for _, add in _adds(world.log)}
        for owner, number, offset, version in world.told:
            if offset is None and (owner, number) in published:
                yield f"what failed isn't in the log: {owner}{number} is at offset {published[owner, number][1]}"
            elif offset is not None and ((owner, number), offset) not in everywhere:
                yield f"an acknowledged flush is in the log: {owner}{number} was told offset {offset}"
            elif offset is not None and self.bounds.owners[NAMES.index(owner)].acks_all:
                yield from self._broken_after_power_loss(world, f"{owner}{number}", version)

    def _broken_log(self, world: World) -> Iterator[str]:
        end, topic = 0, 0
        seen: set[tuple[str, int, int]] = set()
        for version, entry in enumerate(world.log):
            end, topic = (0 if entry.topic != topic else end), entry.topic
            for file, base in entry.adds:
                if base != end:
                    yield f"offsets are dense and never given twice: version {version} begins at {base}, not {end}"
                    break
                end += 1
                if file[:3] in seen:
                    yield f"no flush is in the log twice: {file.owner}{file.number}"
                seen.add(file[:3])
                if file not in world.files:
                    yield f"what is published is there: the file of {file.owner}{file.number} is gone"
                if file.topic != entry.topic:
                    yield f"records are in the topic that they were meant for: {file.owner}{file.number}"
            by_flush = groupby(entry.adds, key=lambda add: add.file.flush)
            for (owner, number), of_flush in by_flush:
                if owner in NAMES and len([*of_flush]) < self.bounds.parts:
                    yield f"a flush is published whole: {owner}{number}"

    def _broken_order(self, world: World) -> Iterator[str]:
        """An announcer's numbers are published in their order, and none is passed over that its owner wants."""
        for index, writer in enumerate(world.writers):
            name = NAMES[index]
            numbers = [add.file.number for _, add in _adds(world.log) if add.file.owner == name]
            if any(before > after for before, after in pairwise(numbers)):
                yield f"an owner's flushes keep their order: {name}'s are {numbers}"
            settled = _settled_of(world.log, name)
            passed = range(writer.flushes if settled is None else min(settled + 1, writer.flushes))
            lost = {*passed} - {*numbers, *writer.given_up} if settled is not None else set()
            if lost:
                yield f"no flush is passed over: {name}'s {sorted(lost)} are settled, and nowhere"

    def _broken_after_power_loss(self, world: World, flush: str, version: int) -> Iterator[str]:
        """``flush`` was acknowledged with ``acks=all``, by the entry of ``version``."""
        needed: set[File | int] = {*range(version + 1)}
        needed |= {add.file for entry in world.log[: version + 1] for add in entry.adds}
        if needed - world.synced:
            yield f"what acks=all acknowledged survives a power loss: {flush} doesn't"


def _adds(log: tuple[Entry, ...]) -> list[tuple[int, Add]]:
    return [(version, add) for version, entry in enumerate(log) for add in entry.adds]


def _settled_of(entries: tuple[Entry, ...], owner: str) -> int | None:
    """The newest number of ``owner`` that these entries settle; None where none does."""
    found = [number for entry in entries for one, number in entry.settles if one == owner]
    return max(found, default=None)


def _opened(world: World, index: int) -> World:
    newest = len(world.log) - 1
    return _with(world, index, Writer(newest + 1, newest, world.log[newest].topic))


def _appended(world: World, entry: Entry, *, is_synced: bool) -> World:
    synced = world.synced | {len(world.log)} if is_synced else world.synced
    return world._replace(log=(*world.log, entry), synced=synced)


def _synced(world: World, below: int, files: set[File]) -> World:
    """Entries below a version, their files, and other files survive a power loss."""
    before: set[File | int] = {*range(below), *files}
    before |= {add.file for entry in world.log[:below] for add in entry.adds}
    return world._replace(synced=world.synced | before)


def _told(world: World, outcome: Outcome) -> World:
    return world._replace(told=world.told | {outcome})


def _with(world: World, index: int, writer: Writer) -> World:
    return world._replace(writers=(*world.writers[:index], writer, *world.writers[index + 1 :]))


def _say(entry: Entry) -> str:
    added = ", ".join(f"{add.file.owner}{add.file.number}" for add in entry.adds) or "nothing"
    return f"{added} ({', '.join(f'{owner}: {number}' for owner, number in entry.settles) or 'settles nothing'})"
