"""A share group in one partition, as the protocol has it (rules S1 to S6, L1, L2, L4).

Members are played create by create, and may sleep between any two. One change is one entry: a record is acquired,
acknowledged, released or renewed, locks are taken back, or a topic that was made anew is begun.

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
reads entry …             ``EntryLog.look``, ``LockWatch.update``
opens the log             ``NumberedLog.open_newest``
creates entry …           ``groups.sharing.changes.decide``, the create of ``EntryLog.create_next``
tries entry … again       the next attempt there, after an answer that didn't come
looks at the topic        the facts that ``decide`` is given
========================  ==============================================================================

Nobody's death is a step: who takes no more steps has died. Everything is durable; power losses are played elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from proof.model.search import switched_off

__all__ = ["Bounds", "Rules", "Sharing", "World"]

Changes = dict[str, Any]
"""Fields of a record, and their new values."""
NAMES = ("a", "b", "c")
DURATION = 1
"""Ticks: a lock that was seen for longer is over."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps a share group correct; each can be switched off."""

    lock: bool = True
    """S1: an acknowledgement counts while exactly its lock holds the record; off: while a lock of its member does."""
    count: bool = True
    """S2: acquiring raises the delivery count."""
    archive: bool = True
    """S2: what was delivered as often as is allowed is archived; off: it is available again."""
    show_afterwards: bool = True
    """S3: a record is shown once its entry is known to be created; off: as soon as that is decided."""
    settle_unknown: bool = True
    """S4: who gives up a create without an answer says that it doesn't know; off: that it failed."""
    cleaned_unknown: bool = True
    """S4: … and so does who finds that the entry was cleaned meanwhile; off: the state tells that it was refused."""
    read_token: bool = True
    """L2: *exists* after a lost answer is settled by reading who has the name; off: it is taken for success."""
    whole_duration: bool = True
    """S5: a lock is taken back once it was seen for its duration; off: by a clock that may be ahead."""
    renewed_lock: bool = True
    """S5: a renewed lock is another one; off: it is the same, and seen for as long as before."""
    decide_again: bool = True
    """L4: who loses a race decides again; off: it creates the state that it had decided."""
    verify: bool = True
    """L1: what a silent process learns counts only after it found its own entry again."""
    topic_afterwards: bool = True
    """S6: who knows another topic than the entry looks once more; off: it begins the one that it knows."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    members: int = 2
    records: int = 1
    limit: int = 2
    """Deliveries of a record."""
    entries: int = 6
    """In the log; beyond that nothing is created."""
    ticks: int = 0
    faults: int = 0
    """Answers that are lost, requests that come late."""
    gives_up: int = 0
    renews: bool = False
    cleanings: int = 0
    """Times that all but the newest two entries are deleted, while whoever is behind sleeps."""
    anew: int = 0
    """Times that the topic is deleted and created again."""


class Record(NamedTuple):
    is_final: bool = False
    deliveries: int = 0
    lock: int = 0
    """0: of nobody."""
    holder: str = ""
    since: int = 0
    """The tick at which its lock began or was renewed."""


class Entry(NamedTuple):
    token: tuple[str, int]
    topic: int
    records: tuple[Record, ...]
    what: str
    at: int
    """Which record; -1 for several or none."""
    lock: int
    """Under which it was acknowledged; 0 unless it was."""
    by: str
    put: int
    """Tick."""


class Attempt(NamedTuple):
    """A create without an answer."""

    number: int
    entry: Entry


class Hold(NamedTuple):
    topic: int
    record: int
    lock: int


class Member(NamedTuple):
    at: int
    """The number of the newest entry that it has applied; entries are numbered from 1 on."""
    entry: Entry
    topic: int
    topic_as_of: int
    holds: tuple[Hold, ...] = ()
    seen: tuple[tuple[int, int], ...] = ()
    """Locks, and the ticks at which it saw them first."""
    unknown: Attempt | None = None
    first: Entry | None = None
    """As decided first; only with ``decide_again`` off."""


class Told(NamedTuple):
    """What a member was told of an acknowledgement."""

    member: str
    hold: Hold
    counts: bool


class Shown(NamedTuple):
    hold: Hold
    member: str


class World(NamedTuple):
    log: tuple[Entry, ...]
    members: tuple[Member, ...]
    topic: int = 0
    tick: int = 0
    cleaned: int = 0
    """Entries up to this number are gone."""
    late: tuple[Attempt, ...] = ()
    """Requests that are under way, and may come."""
    told: frozenset[Told] = frozenset()
    shown: frozenset[Shown] = frozenset()
    faults: int = 0
    gives_up: int = 0
    cleanings: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """Members of a share group, its log, the topic and time."""

    rules: Rules = Rules()
    bounds: Bounds = Bounds()

    def starts(self) -> Iterator[tuple[str, World]]:
        records = (Record(),) * self.bounds.records
        entry = Entry(("", 0), 0, records, "begins", -1, 0, "", 0)
        yield "a new group", World((entry,), (Member(1, entry, 0, 1),) * self.bounds.members)

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        for index, member in enumerate(world.members):
            name = NAMES[index]
            if member.unknown is not None:
                yield from self._settle(world, index, member.unknown)
                continue
            if member.at < len(world.log):
                yield self._reads(world, index)
            if member.topic != world.topic or (member.topic != member.entry.topic and member.topic_as_of != member.at):
                seen = member._replace(topic=world.topic, topic_as_of=member.at)
                yield f"{name} looks at the topic", _with(world, index, seen)
            yield from self._refused(world, index)
            if member.first is not None:
                yield from self._creates(world, index, "sticks to it", member.first)
            elif member.at < self.bounds.entries:
                for label, entry in self._changes(world, index):
                    yield from self._creates(world, index, label, entry)
        for attempt in world.late:
            rest = tuple(one for one in world.late if one is not attempt)
            if len(world.log) == attempt.number - 1:
                entry = attempt.entry._replace(put=world.tick)
                landed = world._replace(log=(*world.log, entry), late=rest)
                yield f"{attempt.entry.by}'s late request comes: entry {attempt.number}", landed
        if world.tick < self.bounds.ticks:
            yield "time passes", world._replace(tick=world.tick + 1)
        if world.topic < self.bounds.anew:
            yield "the topic is made anew", world._replace(topic=world.topic + 1)
        if world.cleanings < self.bounds.cleanings and len(world.log) - 2 > world.cleaned:
            cleaned = len(world.log) - 2
            yield "old entries are cleaned", world._replace(cleaned=cleaned, cleanings=world.cleanings + 1, late=())

    def _reads(self, world: World, index: int) -> tuple[str, World]:
        """What follows the entry where a member stands; or the newest, if that was cleaned."""
        member = world.members[index]
        if member.at + 1 <= world.cleaned and self.rules.verify:
            return f"{NAMES[index]} opens the log", _with(world, index, _applied(world, member, len(world.log)))
        if member.at + 1 <= world.cleaned:
            return f"{NAMES[index]} finds nothing", world
        after = _applied(world, member, member.at + 1)
        return f"{NAMES[index]} reads entry {after.at}", _with(world, index, after)

    def _refused(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        """What a member has in hand and the state doesn't hold for it any more."""
        member = world.members[index]
        for hold in member.holds:
            if not self._is_held(member, hold, NAMES[index]):
                left = member._replace(holds=_less(member.holds, hold))
                told = world.told | {Told(NAMES[index], hold, False)}
                label = f"{NAMES[index]} is refused record {hold.record} of lock {hold.lock}"
                yield label, _with(world, index, left)._replace(told=told)

    def _is_held(self, member: Member, hold: Hold, name: str) -> bool:
        record = member.entry.records[hold.record]
        if not self.rules.lock:
            return record.lock > 0 and record.holder == name
        return (member.entry.topic, record.lock) == (hold.topic, hold.lock)

    def _changes(self, world: World, index: int) -> Iterator[tuple[str, Entry]]:
        """What a member may decide, on the entry that it knows."""
        member, name, number = world.members[index], NAMES[index], world.members[index].at + 1
        known = member.entry
        token = (name, world.attempts)

        def entry(what: str, at: int, changed: Changes, *, lock: int = 0) -> Entry:
            records = (*known.records[:at], known.records[at]._replace(**changed), *known.records[at + 1 :])
            return Entry(token, known.topic, records, what, at, lock, name, world.tick)

        if known.topic != member.topic:
            if member.topic_as_of == member.at or not self.rules.topic_afterwards:
                empty = (Record(),) * len(known.records)
                yield (
                    f"begins topic {member.topic}",
                    Entry(token, member.topic, empty, "begins", -1, 0, name, world.tick),
                )
            return
        for at, record in enumerate(known.records):
            if not record.is_final and not record.lock:
                count = record.deliveries + 1 if self.rules.count else record.deliveries
                changed = {"deliveries": count, "lock": number, "holder": name, "since": world.tick}
                yield f"acquires record {at}", entry("acquires", at, changed)
                break
        for hold in member.holds:
            if not self._is_held(member, hold, name):
                continue
            at, lock = hold.record, hold.lock
            yield f"accepts record {at} of lock {lock}", entry("accepts", at, _FINAL, lock=lock)
            yield (
                f"releases record {at} of lock {lock}",
                entry("releases", at, self._back(known.records[at]), lock=lock),
            )
            if self.bounds.renews:
                renewed = number if self.rules.renewed_lock else lock
                changed = {"lock": renewed, "since": world.tick}
                yield f"renews record {at} of lock {lock}", entry("renews", at, changed, lock=lock)
        over = {lock for lock, first in member.seen if world.tick - first > DURATION or not self.rules.whole_duration}
        for at, record in enumerate(known.records):
            if record.lock in over and record.holder != name:
                yield f"takes back record {at} of lock {record.lock}", entry("takes back", at, self._back(record))

    def _back(self, record: Record) -> Changes:
        if record.deliveries >= self.bounds.limit and self.rules.archive:
            return _FINAL
        return {"lock": 0, "holder": "", "since": 0}

    def _creates(self, world: World, index: int, what: str, entry: Entry) -> Iterator[tuple[str, World]]:
        member, name = world.members[index], NAMES[index]
        number = member.at + 1
        world = world._replace(attempts=world.attempts + 1) if self.bounds.faults else world
        if not self.rules.show_afterwards and entry.what == "acquires":
            world = world._replace(shown=world.shown | {Shown(Hold(entry.topic, entry.at, number), name)})
        label = f"{name} {what}: entry {number}"
        if len(world.log) >= number:
            if number <= world.cleaned and not self.rules.verify:  # the name is free again
                yield f"{label} created where one was", self._succeeded(world, index, entry)
            elif number <= world.cleaned:
                yield f"{label} isn't believed", _with(world, index, _applied(world, member, len(world.log)))
            else:
                loses = _applied(world, member, number)
                yield (
                    f"{label} is taken",
                    _with(world, index, loses if self.rules.decide_again else loses._replace(first=entry)),
                )
            return
        appended = world._replace(log=(*world.log, entry))
        yield f"{label} created", self._succeeded(appended, index, entry)
        if world.faults < self.bounds.faults:
            attempt = Attempt(number, entry)
            waits = member._replace(unknown=attempt)
            lost = world._replace(faults=world.faults + 1)
            yield f"{label} created, no answer", _with(lost._replace(log=appended.log), index, waits)
            late = lost._replace(late=(*lost.late, attempt))
            yield f"{label} without an answer, the request is under way", _with(late, index, waits)

    def _settle(self, world: World, index: int, attempt: Attempt) -> Iterator[tuple[str, World]]:
        """What becomes of a create without an answer."""
        name, member = NAMES[index], world.members[index]
        again = f"{name} tries entry {attempt.number} again"
        if len(world.log) >= attempt.number:
            found = world.log[attempt.number - 1]
            is_own = found.token == attempt.entry.token
            if attempt.number <= world.cleaned:
                newest = _applied(world, member, len(world.log))
                hold = Hold(attempt.entry.topic, attempt.entry.at, attempt.entry.lock)
                if self.rules.cleaned_unknown and not self._is_held(newest, hold, name):
                    newest = newest._replace(holds=_less(newest.holds, hold))  # nobody can tell
                yield f"{again}: it isn't there", _with(world, index, newest)
            elif is_own or not self.rules.read_token:
                yield f"{again}: its own", self._succeeded(world, index, attempt.entry)
            else:
                yield f"{again}: taken", _with(world, index, _applied(world, member, attempt.number))
        else:
            created = world._replace(log=(*world.log, attempt.entry._replace(put=world.tick)))
            late = tuple(one for one in created.late if one != attempt)
            yield f"{again}: created", self._succeeded(created._replace(late=late), index, attempt.entry)
        if world.gives_up < self.bounds.gives_up:
            given_up = world._replace(gives_up=world.gives_up + 1)
            if self.rules.settle_unknown:
                return  # the application hears "unknown", the member goes on asking
            hold = Hold(attempt.entry.topic, attempt.entry.at, attempt.entry.lock)
            told = given_up.told | ({Told(name, hold, False)} if attempt.entry.lock else frozenset())
            yield (
                f"{name} says that entry {attempt.number} failed",
                _with(
                    given_up._replace(told=told), index, member._replace(unknown=None, holds=_less(member.holds, hold))
                ),
            )

    def _succeeded(self, world: World, index: int, entry: Entry) -> World:
        """A member knows that its entry is created, and tells the application."""
        name, member = NAMES[index], world.members[index]
        number = member.at + 1
        told, shown, holds = world.told, world.shown, member.holds
        if entry.lock:
            hold = Hold(entry.topic, entry.at, entry.lock)
            holds = _less(holds, hold)
            if entry.what == "renews":
                holds = (*holds, hold._replace(lock=entry.records[entry.at].lock))
            elif entry.what == "accepts":
                told = told | {Told(name, hold, True)}
        elif entry.what == "acquires":
            taken = Hold(entry.topic, entry.at, number)
            holds, shown = (*holds, taken), shown | {Shown(taken, name)}
        after = member._replace(
            at=number, entry=entry, holds=holds, unknown=None, first=None, seen=_seen(member, entry, world.tick)
        )
        return _with(world, index, after)._replace(told=told, shown=shown)

    # What must always be true.

    def broken(self, world: World) -> Iterator[str]:
        yield from self._broken_log(world)
        accepted = {
            (entry.by, Hold(entry.topic, entry.at, entry.lock)) for entry in world.log if entry.what == "accepts"
        }
        acquired = {
            (Hold(entry.topic, entry.at, number), entry.by)
            for number, entry in enumerate(world.log, 1)
            if entry.what == "acquires"
        }
        for name, hold, counts in world.told:
            if counts and (name, hold) not in accepted:
                yield f"what was told to be acknowledged is: record {hold.record} of lock {hold.lock} isn't"
            if not counts and (name, hold) in accepted:
                yield f"what was refused wasn't acknowledged: record {hold.record} of lock {hold.lock} was"
        deliveries: dict[tuple[int, int], int] = {}
        for shown in world.shown:
            if shown not in acquired:
                yield f"what is shown is locked for whom it is shown to: {shown.member} and record {shown.hold.record}"
            key = shown.hold[:2]
            deliveries[key] = deliveries.get(key, 0) + 1
        if max(deliveries.values(), default=0) > self.bounds.limit:
            yield f"no record is delivered more often than is allowed: {max(deliveries.values())} times"

    def _broken_log(self, world: World) -> Iterator[str]:
        done: set[tuple[int, int]] = set()
        tried: dict[tuple[int, int], int] = {}
        before = world.log[0]
        for number, entry in enumerate(world.log[1:], 2):
            record = before.records[entry.at]
            if entry.what == "acquires":
                tried[entry.topic, entry.at] = tried.get((entry.topic, entry.at), 0) + 1
                if (entry.topic, entry.at) in done:
                    yield f"what was acknowledged is never delivered again: record {entry.at} by entry {number}"
                if record.lock and before.topic == entry.topic:
                    yield f"nobody acquires what another has: record {entry.at} by entry {number}"
            if entry.lock and (before.topic, record.lock) != (entry.topic, entry.lock):
                yield f"an acknowledgement counts for its own delivery: entry {number} of lock {entry.lock}"
            if entry.what == "takes back" and entry.put - record.since <= DURATION:
                yield f"no lock is taken back before its time: {record.lock} by entry {number}"
            is_archived = entry.what in ("releases", "takes back") and entry.records[entry.at].is_final
            if is_archived and tried.get((entry.topic, entry.at), 0) < self.bounds.limit:
                yield f"no record is lost: record {entry.at} is archived by entry {number}"
            if entry.what == "accepts":
                done.add((entry.topic, entry.at))
            before = entry


_FINAL: Changes = {"is_final": True, "deliveries": 0, "lock": 0, "holder": "", "since": 0}


def _applied(world: World, member: Member, number: int) -> Member:
    entry = world.log[number - 1]
    return member._replace(at=number, entry=entry, unknown=None, seen=_seen(member, entry, world.tick))


def _seen(member: Member, entry: Entry, tick: int) -> tuple[tuple[int, int], ...]:
    known = dict(member.seen)
    return tuple(sorted((lock, known.get(lock, tick)) for lock in {record.lock for record in entry.records} - {0}))


def _less(holds: tuple[Hold, ...], gone: Hold) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if hold != gone)


def _with(world: World, index: int, member: Member) -> World:
    return world._replace(members=(*world.members[:index], member, *world.members[index + 1 :]))
