"""The commit point, fencing and recovery of transactions, as the protocol has them (rules T1 to T6, L1, L2, L7).

One transactional id, one topic, one partition's row in one group. A transaction reads the input at its position, writes
one record and moves the committed offset behind the input. Session ``a`` has begun epoch 0 and owns the partition;
``b`` begins with nothing; ``r`` is anybody's recovery. All may sleep between any two steps. That other sessions use the
id for a day, and its log is cleaned, is one step. What a topic or a group does is one step: they are logs for
themselves, that every commit decides again upon (rule L4; :mod:`proof.model.append_cleanup`).

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
lists / opens             ``storage.entry_log.NumberedLog.open_newest``
begins an epoch           ``txn.session.TransactionSession.begin_epoch``
takes the partition       ``groups.changes.TakePartitions``, then rule T2: ``groups.pending.settle_pending``
asks / aborts             ``txn.deciding.read_decision``, ``entry_in_place``, ``decide``, ``abort_if_open``
publishes before it …     rule T2: ``txn.deciding.decide``, ``txn.forward.publish_topics``
leaves its offset         ``TransactionSession.add_offsets``, ``groups.pending.PendOffsets``
commits / creates         ``TransactionSession.commit``, ``EpochLog.append``, ``EntryLog.create_next``
believes / verifies       ``EntryLog._verify_if_due``, ``TransactionLog.verify``;
                          ``EpochLog._check_holder``, ``_decided_long_ago``, ``TransactionSession._after_forced_abort``
publishes                 ``log.publishing.publish``
settles                   ``groups.pending.SettlePending``
completes                 ``txn.forward.complete``, ``TransactionSession.complete``
recovers                  ``txn.recovery.recover_transactions``, ``txn.forward.finish``
the id is used …          ``txn.cleaning.clean_transaction_log``, which may be killed
========================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from proof.model.search import switched_off

__all__ = ["Bounds", "Rules", "Transactions", "World"]

OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps transactions whole; each can be switched off."""

    verify: bool = True
    """L1: what a silent process learns counts only after it found that the log didn't go on; off: at once."""
    verify_by_listing: bool = True
    """T6: it finds that by a listing, which shows nothing beyond; off: by its own entry, which is still there."""
    read_token: bool = True
    """L2: *exists* after a lost answer is settled by reading who has the number; off: it is taken for success."""
    marker: bool = True
    """L7: a topic that has a transaction's marker has its records; off: whoever carries it out appends them."""
    exact_number: bool = True
    """T1: whoever aborts takes the number that the row names; off: the next that is free."""
    decide_first: bool = True
    """T2: a partition's new owner has what is pending decided before it reads the committed offset."""
    publish_first: bool = True
    """T2: … and has the records of what is committed in the topic; off: somebody publishes them later."""
    topic_before_group: bool = True
    """T2: whoever carries a decision out publishes first, then lets the offset count; off: the other way round."""
    decide_then_publish: bool = True
    """The commit point: nothing is visible before the entry is there; off: the records come first."""
    no_way_back: bool = True
    """T3: after a commit whose outcome isn't known only the commit may be repeated; off: it may be aborted."""
    fence: bool = True
    """T5: an entry of a newer epoch ends a session; off: it is taken for an abort, and the session goes on."""
    finish_first: bool = True
    """T3: an epoch begins only once what was decided is carried out."""
    carry_out_first: bool = True
    """T3, T6: a decision is complete when all is carried out; off: as soon as it is made."""
    stamp: bool = True
    """G1: only a partition's owner leaves offsets."""
    in_place: bool = True
    """Decision 0006: an entry counts only between its neighbours; off: whatever has the number."""
    check_opening: bool = True
    """L1: who was silent between listing a log and reading its newest entry lists again."""
    newest_by_listing: bool = True
    """T6: an entry that none follows is in its place if a listing shows nothing beyond; off: if it fits to the one
    before it, which is read last."""
    successor_age: bool = True
    """Decision 0001: cleanup takes an entry to be as old as its successor; off: as itself."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    transactions: int = 1
    """Of each session."""
    helps: int = 1
    """Recoveries."""
    sleeps: int = 1
    """Times that everybody sleeps for an hour."""
    days: int = 0
    """Times that others use the id for a day, while everybody sleeps."""
    bursts: int = 0
    """Times that others use the id for a moment, after it has rested."""
    faults: int = 0
    """Answers that are lost, requests that come late."""


class Status(Enum):
    EMPTY = "Empty"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    __hash__ = object.__hash__  # members are single, and hashed a million times


class Work(NamedTuple):
    """What one transaction does."""

    session: str
    serial: int
    input: int

    def __str__(self) -> str:
        return f"{self.session}{self.serial}"


class Entry(NamedTuple):
    """One of the id's log. Its number is where it is."""

    token: tuple[str, int]
    previous: tuple[str, int] | None
    status: Status
    epoch: int
    work: Work | None = None


class Pending(NamedTuple):
    epoch: int
    number: int
    work: Work


class Row(NamedTuple):
    """The partition's, in the group's table."""

    committed: int
    pending: Pending | None
    owner: str


class At(Enum):
    """What a process does next."""

    NEW = "opens the log"
    LISTED = "reads the newest entry"
    BEGIN = "begins an epoch"
    READY = "has no transaction open"
    OPEN = "has one open"
    COMMIT = "creates the decision"
    ABORT = "creates an abort"
    TAKEN = "reads who has the number"
    LEARNED = "believes or verifies"
    LOST = "looks what was decided long ago"
    PUBLISH = "publishes"
    SETTLE = "settles"
    COMPLETE = "completes"
    ASK = "asks for a decision"
    ASK_LIST = "lists what is beyond it"
    ASK_CHECK = "reads the entry before it, to see whether it fits"
    ASK_BEFORE = "reads the entry before it"
    ASK_ABORT = "aborts"
    ASK_TOLD = "believes or verifies what has the number"
    ASK_PUBLISH = "publishes what it was told is committed"
    ASK_SETTLE = "settles what it was told"
    END = "is done"

    __hash__ = object.__hash__


_ASKING = (At.ASK, At.ASK_LIST, At.ASK_CHECK, At.ASK_BEFORE)
_TOLD = (At.ASK_ABORT, At.ASK_TOLD, At.ASK_PUBLISH, At.ASK_SETTLE)


class Process(NamedTuple):
    """A session, or a recovery."""

    at: At
    number: int = 0
    """Of the entry that it stands at."""
    newest: Entry | None = None
    is_silent: bool = False
    """Was it silent for longer than trust lasts since it last saw the log's end?"""
    epoch: int = -1
    creates: int = 0
    learned: Entry | None = None
    how: At = At.NEW
    """What was being created."""
    base: Entry | None = None
    """The one before that which is asked for, as it was read."""
    is_base_silent: bool = False
    """Was it silent for longer than trust lasts since a listing showed that to be the newest?"""
    is_unknown: bool = False
    position: int = -1
    """The next input; -1: not known."""
    serial: int = 0
    work: Work | None = None
    pended: Pending | None = None
    verdict: bool = False
    back: At = At.NEW
    """Where it goes on after deciding another's transaction."""


class World(NamedTuple):
    log: tuple[Entry | None, ...]
    """By number, from 1 on; None where it was cleaned."""
    truth: tuple[Entry, ...]
    """What was created under each number first; nobody can see it."""
    records: tuple[Work, ...]
    marker: int
    row: Row
    late: tuple[tuple[int, Entry], ...]
    processes: tuple[Process, Process, Process]
    told: tuple[tuple[Work, bool], ...]
    """What callers were told: is it committed?"""
    helps: int
    old: int
    """The newest entry that was there an hour ago."""
    sleeps: int
    days: int
    bursts: int
    faults: int


NAMES = ("a", "b", "r")
Step = tuple[str, World]


@dataclass(frozen=True, slots=True)
class Transactions:
    """See the module."""

    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)

    # What may begin.

    def starts(self) -> Iterator[Step]:
        bounds = self.bounds
        first = Entry(("a", 0), None, Status.EMPTY, 0)
        a = Process(At.READY, number=1, newest=first, epoch=0, creates=1, position=0)
        yield (
            "a has begun epoch 0 and owns the partition",
            World(
                log=(first,),
                truth=(first,),
                records=(),
                marker=0,
                row=Row(0, None, "a"),
                late=(),
                processes=(a, Process(At.NEW), Process(At.NEW)),
                told=(),
                helps=bounds.helps,
                old=0,
                sleeps=bounds.sleeps,
                days=bounds.days,
                bursts=bounds.bursts,
                faults=bounds.faults,
            ),
        )

    # What may happen next.

    def moves(self, world: World) -> Iterator[Step]:
        for index in range(3):
            yield from self._process(world, index)
        for number, (at, entry) in enumerate(world.late):
            after = world._replace(late=world.late[:number] + world.late[number + 1 :])
            if _has(world, at):
                yield f"{entry.token[0]}'s late request comes: entry {at} exists", after
            else:
                yield f"{entry.token[0]}'s late request comes: entry {at} is created", _stored(after, at, entry)
        if world.sleeps:
            yield "an hour passes", _slept(world)._replace(sleeps=world.sleeps - 1)
        if world.days:
            yield "the id is used by others for a day, its log is cleaned", self._day(world)
            for left in self._stood_on(world, len(world.log)):
                yield f"the id is used by others for a day, its log is cleaned but for {left}", self._day(world, left)
        if world.bursts and world.old:
            yield "others use the id for a moment, its log is cleaned", self._burst(world)
            for left in self._stood_on(world, world.old - 1 if self.rules.successor_age else world.old):
                yield f"others use the id for a moment, its log is cleaned but for {left}", self._burst(world, left)

    def _process(self, world: World, index: int) -> Iterator[Step]:
        process, name = world.processes[index], NAMES[index]
        at = process.at
        if at is At.NEW:
            if index < 2 or world.helps:
                after = world if index < 2 else world._replace(helps=world.helps - 1)
                listed = process._replace(at=At.LISTED, number=len(world.log), is_silent=False)
                yield f"{name} lists: the newest is {len(world.log)}", _with(after, index, listed)
            if index < 2 and process.position < 0:
                yield from self._take(world, index)
        elif at is At.LISTED:
            yield from self._open(world, index)
        elif at is At.BEGIN:
            entry = self._next(world, index, Status.EMPTY)._replace(epoch=_epoch(process.newest) + 1)
            yield from self._create(world, index, entry, "an epoch")
        elif at is At.READY:
            if process.position < 0:
                yield from self._take(world, index)
            elif process.serial < self.bounds.transactions:
                yield from self._pend(world, index)
        elif at is At.OPEN:
            yield from self._prepare(world, index)
        elif at is At.COMMIT:
            entry = self._next(world, index, Status.PREPARE_COMMIT)._replace(epoch=process.epoch, work=process.work)
            yield from self._create(world, index, entry, f"the commit of {process.work}")
            if process.is_unknown and not self.rules.no_way_back:
                aborted = self._told(world, index, is_committed=False)
                settled = aborted._replace(row=_settled(world.row, process.pended, is_committed=False))
                yield f"{name} aborts {process.work} instead", _with(settled, index, Process(At.END))
        elif at is At.ABORT:
            yield from self._create(world, index, self._next(world, index, Status.PREPARE_ABORT), "an abort")
        elif at is At.TAKEN:
            entry_there = _get(world, process.number + 1)
            label = f"{name} reads entry {process.number + 1}: {_say(entry_there)}"
            if entry_there is None:
                yield label, self._lost(world, index)
            else:
                yield from self._learn(world, index, entry_there, label)
        elif at is At.LEARNED:
            yield from self._judge(world, index)
        elif at is At.LOST:
            found = self._in_place(world, process.number + 1)
            label = f"{name} looks what became of entry {process.number + 1}: {_say(found)}"
            if found is None:
                yield f"{label}; nobody knows", _with(world, index, Process(At.END))
            else:
                yield label, self._believe(world, index, found)
        elif at in (At.PUBLISH, At.SETTLE, At.COMPLETE):
            yield from self._carry_out(world, index)
        elif at in _ASKING:
            yield from self._ask(world, index)
        elif at in _TOLD:
            yield from self._act_on_answer(world, index)

    def _open(self, world: World, index: int) -> Iterator[Step]:
        """``open_newest``'s GET, and what it is opened for."""
        process, name = world.processes[index], NAMES[index]
        found = _get(world, process.number)
        again = process._replace(at=At.NEW)
        is_stale = process.is_silent and self.rules.check_opening and len(world.log) != process.number
        if found is None or is_stale:
            yield f"{name} finds that the log went on, and lists again", _with(_helped(world, index), index, again)
            return
        if found.status.is_prepared and (self.rules.finish_first or index == 2):
            at = At.PUBLISH if found.status is Status.PREPARE_COMMIT else At.COMPLETE
        else:
            at = At.BEGIN if index < 2 else At.ABORT
        opened = process._replace(at=at, newest=found)
        yield f"{name} opens the log at entry {process.number}: {_say(found)}", _with(world, index, opened)

    def _take(self, world: World, index: int) -> Iterator[Step]:
        """Takes the partition, or finds it to be its own still; then rule T2."""
        process, name = world.processes[index], NAMES[index]
        if process.epoch >= 0 and world.row.owner != name and process.serial:
            yield f"{name} finds that it lost the partition", _with(world, index, Process(At.END))
            return
        taken = world._replace(row=world.row._replace(owner=name))
        pending = world.row.pending
        if pending is None or not self.rules.decide_first:
            known = process._replace(position=world.row.committed)
            yield f"{name} takes the partition, and reads offset {world.row.committed}", _with(taken, index, known)
        else:
            asking = process._replace(at=At.ASK, pended=pending, back=process.at)
            label = f"{name} takes the partition, which waits for entry {pending.number} (of {pending.work})"
            yield label, _with(taken, index, asking)

    def _ask(self, world: World, index: int) -> Iterator[Step]:
        """``decide``: read what the entry says that the row names, or abort by creating exactly that."""
        process, name = world.processes[index], NAMES[index]
        pended = process.pended
        if pended is None:
            raise RuntimeError(f"{name} asks for nothing")
        number = pended.number
        if process.at is At.ASK:
            found, behind = _get(world, number), _get(world, number + 1)
            label = f"{name} asks for entry {number}: {_say(found)}, {_say(behind)} behind it"
            if not self.rules.exact_number:
                yield label, _with(world, index, process._replace(at=At.ASK_ABORT, how=At.ASK))
            elif found is not None and (behind is not None or not self.rules.in_place):
                in_place = _fitting(found, behind) if self.rules.in_place else found
                yield label, _with(world, index, self._verdict(process, in_place, is_followed=behind is not None))
            else:
                at = At.ASK_LIST if found is None or self.rules.newest_by_listing else At.ASK_CHECK
                yield label, _with(world, index, process._replace(at=at, how=At.ASK, learned=found))
        elif process.at is At.ASK_LIST:
            yield self._list_beyond(world, index, number)
        elif process.at is At.ASK_CHECK:
            before, found = _get(world, number - 1), process.learned
            fits = found is not None and before is not None and found.previous == before.token
            label = f"{name} reads entry {number - 1} last: {_say(before)}"
            yield label, _with(world, index, self._verdict(process, found if fits else None, is_followed=False))
        elif process.at is At.ASK_BEFORE:
            found = _get(world, number - 1)
            if found is None or found.status.is_prepared:
                yield (
                    f"{name} reads entry {number - 1}: {_say(found)}",
                    _with(world, index, process._replace(at=At.ASK)),
                )
            else:
                read = process._replace(at=At.ASK_ABORT, base=found)
                yield f"{name} reads entry {number - 1}: {_say(found)}", _with(world, index, read)

    def _list_beyond(self, world: World, index: int, number: int) -> Step:
        """The LIST of ``numbers_from``."""
        process, name = world.processes[index], NAMES[index]
        newest = len(world.log)
        label = f"{name} looks beyond entry {number}: the newest is {newest}"
        again = process._replace(at=At.ASK, learned=None)
        if process.learned is not None:
            if newest == number:
                return label, _with(world, index, self._verdict(process, process.learned, is_followed=False))
            is_new = _has(world, number + 1)
            return label, _with(world, index, again if is_new else self._verdict(process, None, is_followed=True))
        if newest == number - 1:
            return label, _with(world, index, process._replace(at=At.ASK_BEFORE, is_base_silent=False))
        is_new = _has(world, number)
        return label, _with(world, index, again if is_new else self._verdict(process, None, is_followed=True))

    def _act_on_answer(self, world: World, index: int) -> Iterator[Step]:
        """``decide``: abort what isn't decided; of what is committed publish the records, then settle the offset."""
        process, name = world.processes[index], NAMES[index]
        pended = process.pended
        if pended is None:
            raise RuntimeError(f"{name} asks for nothing")
        number = pended.number
        if process.at is At.ASK_PUBLISH:
            after = self._published(world, number, pended.work)
            label = f"{name} publishes {pended.work} before it goes on behind it"
            yield label, _with(after, index, process._replace(at=At.ASK_SETTLE))
        elif process.at is At.ASK_ABORT:
            exact = self.rules.exact_number
            target = number if exact else len(world.log) + 1
            base = process.base if exact else world.log[-1]
            if base is None:
                raise RuntimeError(f"{name} has read nothing before entry {target}")
            abort = Entry((name, process.creates), base.token, Status.PREPARE_ABORT, base.epoch)
            after = world if _has(world, target) else _stored(world, target, abort)
            told = process._replace(at=At.ASK_TOLD, creates=process.creates + 1, learned=_get(after, target))
            if not exact:  # whatever transaction that is, it believes the row's to be aborted
                told = told._replace(at=At.ASK_SETTLE, verdict=False, learned=None)
            answer = "exists" if _has(world, target) else "created"
            yield f"{name} creates an abort as entry {target}: {answer}", _with(after, index, told)
        elif process.at is At.ASK_TOLD:
            stands = process._replace(number=number - 1, newest=process.base)
            if self.rules.verify and process.is_base_silent and not self._is_at(world, stands):
                asking = process._replace(at=At.ASK, learned=None, base=None)
                yield f"{name} finds that the log went on behind entry {number - 1}", _with(world, index, asking)
            else:
                told = self._verdict(process, process.learned, is_followed=False)
                yield f"{name} believes what has the number", _with(world, index, told._replace(base=None))
        else:
            row = _settled(world.row, pended, is_committed=process.verdict)
            done = process._replace(at=process.back, pended=None, position=row.committed, how=At.NEW)
            label = f"{name} settles {pended.work}'s offset, and reads offset {row.committed}"
            yield label, _with(world._replace(row=row), index, done)

    def _verdict(self, process: Process, entry: Entry | None, *, is_followed: bool) -> Process:
        """``read_decision``, of what was read: the entry in its place, if there is one."""
        pended = process.pended
        is_commit = entry is not None and entry.status is Status.PREPARE_COMMIT
        verdict = is_commit and pended is not None and entry is not None and entry.epoch == pended.epoch
        publishes = verdict and not is_followed and self.rules.publish_first
        at = At.ASK_PUBLISH if publishes else At.ASK_SETTLE
        return process._replace(at=at, verdict=verdict, learned=None)

    def _pend(self, world: World, index: int) -> Iterator[Step]:
        process, name = world.processes[index], NAMES[index]
        work = Work(name, process.serial + 1, process.position)
        pending = Pending(process.epoch, process.number + 1, work)
        before = world.row.pending
        if self.rules.stamp and world.row.owner != name:
            yield f"{name} may leave no offset: the partition is another's", _with(world, index, Process(At.END))
        elif before is not None and before.number > pending.number:
            yield f"{name} may leave no offset: one of a newer epoch is there", _with(world, index, Process(At.END))
        else:
            opened = process._replace(at=At.OPEN, serial=work.serial, work=work, pended=pending)
            after = world._replace(row=world.row._replace(pending=pending))
            yield f"{name} leaves {work}'s offset, which entry {pending.number} decides", _with(after, index, opened)

    def _prepare(self, world: World, index: int) -> Iterator[Step]:
        """``_append``, before anything is tried: is it certain that others decided the number long ago?"""
        process, name = world.processes[index], NAMES[index]
        ready = process._replace(at=At.COMMIT)
        if not self.rules.decide_then_publish:
            after = world._replace(records=(*world.records, process.work or Work("", 0, 0)))
            yield f"{name} publishes {process.work}", _with(after, index, ready)
        elif not (self.rules.verify and process.is_silent) or self._is_at(world, process):
            yield f"{name} goes to commit {process.work}", _with(world, index, ready)
        else:
            yield f"{name} finds entry {process.number} gone", self._reopened(world, index)

    def _is_at(self, world: World, process: Process) -> bool:
        """``TransactionLog.verify``: its own entry is there, and nothing beyond the one behind it."""
        found = _get(world, process.number)
        if not self.rules.verify_by_listing:
            return found is not None and process.newest is not None and found.token == process.newest.token
        return found is not None and len(world.log) <= process.number + 1

    # Creating the next entry.

    def _next(self, world: World, index: int, status: Status) -> Entry:
        process = world.processes[index]
        before = process.newest
        if before is None:
            raise RuntimeError(f"{NAMES[index]} stands at no entry")
        return Entry((NAMES[index], process.creates), before.token, status, before.epoch)

    def _create(self, world: World, index: int, entry: Entry, what: str) -> Iterator[Step]:
        process, name = world.processes[index], NAMES[index]
        number = process.number + 1
        tried = process._replace(creates=process.creates + 1, how=process.at)
        unsure = tried._replace(is_unknown=True)
        label = f"{name} creates {what} as entry {number}"
        may_fail = world.faults and process.at is At.COMMIT
        if not _has(world, number):
            stored = _stored(world, number, entry)
            yield from self._learn(_with(stored, index, tried), index, entry, f"{label}: created")
            if may_fail:
                lost = _with(stored, index, unsure)._replace(faults=world.faults - 1)
                yield f"{label}: created, the answer is lost", lost
        elif process.is_unknown and not self.rules.read_token:
            yield from self._learn(_with(world, index, tried), index, entry, f"{label}: exists, taken for its own")
        else:
            yield f"{label}: exists", _with(world, index, tried._replace(at=At.TAKEN))
        if may_fail:
            late = world._replace(faults=world.faults - 1, late=(*world.late, (number, entry)))
            yield f"{label}: no answer, the request is under way", _with(late, index, unsure)

    def _learn(self, world: World, index: int, entry: Entry, label: str) -> Iterator[Step]:
        """The answer of a call: believed at once, or first slept over."""
        process = world.processes[index]
        if not (self.rules.verify and process.is_silent):
            yield label, self._believe(world, index, entry)
        yield f"{label} (and stalls)", _with(world, index, process._replace(at=At.LEARNED, learned=entry))

    def _judge(self, world: World, index: int) -> Iterator[Step]:
        process, name = world.processes[index], NAMES[index]
        learned = process.learned
        if learned is None:
            raise RuntimeError(f"{name} has learned nothing")
        if not (self.rules.verify and process.is_silent):
            yield f"{name} believes it", self._believe(world, index, learned)
        elif self._is_at(world, process):
            yield f"{name} verifies entry {process.number}", self._believe(world, index, learned)
        else:
            yield f"{name} finds entry {process.number} gone or changed", self._lost(world, index)

    def _lost(self, world: World, index: int) -> World:
        """``PositionLost``."""
        process = world.processes[index]
        at = At.LOST if process.how is At.COMMIT else At.NEW
        return _with(_helped(world, index) if at is At.NEW else world, index, process._replace(at=at, learned=None))

    def _believe(self, world: World, index: int, entry: Entry) -> World:
        """What has the number after its own counts."""
        process, name = world.processes[index], NAMES[index]
        is_own = entry.token[0] == name
        there = process._replace(
            number=process.number + 1,
            newest=entry,
            learned=None,
            is_unknown=False,
            is_silent=process.is_silent and not is_own,
        )
        if process.how is At.BEGIN:
            begun = there._replace(at=At.READY, epoch=entry.epoch, work=None, pended=None)
            return _with(world, index, begun if is_own else process._replace(at=At.NEW, learned=None))
        if process.how is At.ABORT:
            if entry.status is Status.PREPARE_COMMIT:
                return _with(world, index, there._replace(at=At.PUBLISH))
            if entry.status is Status.PREPARE_ABORT:
                return _with(world, index, there._replace(at=At.COMPLETE))
            return _with(world, index, there._replace(at=At.NEW))
        if entry.epoch != process.epoch and self.rules.fence:
            return _with(self._told(world, index, is_committed=False), index, Process(At.END))
        if entry.status is Status.PREPARE_COMMIT and entry.epoch == process.epoch:
            first = At.PUBLISH if self.rules.carry_out_first else At.COMPLETE
            return _with(world, index, there._replace(at=first))
        aborted = self._told(world, index, is_committed=False)
        return _with(aborted, index, there._replace(at=At.SETTLE, position=-1))

    def _reopened(self, world: World, index: int) -> World:
        """``_reopen``: the log as it is, the number being decided."""
        process = world.processes[index]
        newest = world.log[-1]
        if newest is None or (newest.epoch != process.epoch and self.rules.fence):
            return _with(self._told(world, index, is_committed=False), index, Process(At.END))
        aborted = self._told(world, index, is_committed=False)
        there = process._replace(number=len(world.log), newest=newest, is_silent=False, position=-1, at=At.SETTLE)
        return _with(aborted, index, there)

    def _told(self, world: World, index: int, *, is_committed: bool) -> World:
        work = world.processes[index].work
        return world if work is None else world._replace(told=(*world.told, (work, is_committed)))

    # Carrying out.

    def _carry_out(self, world: World, index: int) -> Iterator[Step]:
        """Of its own transaction (a session that has a work), or of another's."""
        rules, process, name = self.rules, world.processes[index], NAMES[index]
        decided = process.newest
        if decided is None:
            raise RuntimeError(f"{name} has nothing to carry out")
        work = decided.work if decided.status is Status.PREPARE_COMMIT else None
        if process.at is At.PUBLISH:
            if not rules.topic_before_group and process.how is not At.SETTLE:
                yield f"{name} turns to the group first", _with(world, index, process._replace(at=At.SETTLE))
            after = self._published(world, process.number, work)
            is_late = process.how is At.SETTLE
            published = process._replace(at=At.COMPLETE if is_late else At.SETTLE, how=At.PUBLISH)
            yield f"{name} publishes {work}", _with(after, index, published)
        elif process.at is At.SETTLE:
            is_own = process.work is not None and process.pended is not None
            pended = process.pended if is_own else work and Pending(decided.epoch, process.number, work)
            after = world._replace(row=_settled(world.row, pended, is_committed=work is not None))
            if is_own and work is not None:
                after = self._told(after, index, is_committed=True)
            at = At.COMPLETE if decided.status.is_prepared else At.READY
            if work is not None and process.how is not At.PUBLISH and not rules.topic_before_group:
                at = At.PUBLISH
                process = process._replace(how=At.SETTLE)
            gone_on = process._replace(at=at if rules.carry_out_first or work is None else At.READY)
            if gone_on.at is At.READY:
                gone_on = self._idle(gone_on)
            yield f"{name} settles the offset of {pended.work if pended else None}", _with(after, index, gone_on)
        else:
            yield from self._complete(world, index, decided, work)

    def _published(self, world: World, number: int, work: Work | None) -> World:
        """``publish``: once, by the topic's marker (rule L7)."""
        if work is None or (self.rules.marker and world.marker >= number):
            return world
        is_there = not self.rules.decide_then_publish and work in world.records
        records = world.records if is_there else (*world.records, work)
        return world._replace(records=records, marker=max(world.marker, number))

    def _complete(self, world: World, index: int, decided: Entry, work: Work | None) -> Iterator[Step]:
        process, name = world.processes[index], NAMES[index]
        number = process.number + 1
        status = Status.COMPLETE_COMMIT if decided.status is Status.PREPARE_COMMIT else Status.COMPLETE_ABORT
        entry = Entry((name, process.creates), decided.token, status, decided.epoch)
        is_new = not _has(world, number)
        after = _stored(world, number, entry) if is_new else world
        label = f"{name} completes {work or 'the abort'} by entry {number}{'' if is_new else ': exists'}"
        is_lost = self.rules.verify and process.is_silent and not self._is_at(world, process)
        if process.epoch < 0:  # another's: it opens the log again, or is done
            yield label, _with(after, index, Process(At.NEW, creates=process.creates + 1, position=process.position))
            return
        found = _get(after, number)
        if is_lost or found is None:
            number, found = len(after.log), after.log[-1]
        if found is None or (found.epoch != process.epoch and self.rules.fence):
            yield f"{label}; it is fenced", _with(after, index, Process(At.END))
            return
        there = process._replace(
            number=number,
            newest=found,
            creates=process.creates + 1,
            is_silent=process.is_silent and not is_new and not is_lost,
        )
        if not self.rules.carry_out_first and work is not None:  # its decision isn't carried out yet
            published = there._replace(at=At.END)
            records = (*after.records, work)
            after = after._replace(row=_settled(after.row, process.pended, is_committed=True))
            yield f"{label}, and stops", _with(self._told(after, index, is_committed=True), index, published)
            yield f"{label}, and publishes", _with(after._replace(records=records), index, self._idle(there))
            return
        yield label, _with(after, index, self._idle(there))

    def _idle(self, process: Process) -> Process:
        """Has no transaction any more; after a commit its position is behind the input."""
        position = process.position + 1 if process.position >= 0 else -1
        return process._replace(at=At.READY, work=None, pended=None, how=At.NEW, position=position)

    # Time.

    def _stood_on(self, world: World, gone: int) -> list[int]:
        """The entries that somebody stands on or asks for, up to ``gone``: a cleaning that is killed may leave one of
        them, since it deletes in no order."""
        stands = {process.number for process in world.processes if process.at not in (At.NEW, At.LISTED, At.END)}
        asked = {p.pended.number - 1 for p in world.processes if p.pended is not None and p.at in (*_ASKING, *_TOLD)}
        return [number for number in sorted(stands | asked) if number <= gone and _has(world, number)]

    def _day(self, world: World, left: int = 0) -> World:
        """An hour, a burst, an hour, a burst."""
        for _ in range(2):
            world = self._burst(_slept(world), left)
        return world._replace(bursts=world.bursts + 2, days=world.days - 1)

    def _burst(self, world: World, left: int = 0) -> World:
        """Others begin an epoch, which finishes what is decided, commit a transaction that writes elsewhere, and clean.
        All of it is legal, and takes no time.

        Args:
            left: of the entries that may go the one that stays: whoever cleaned was killed.
        """
        world = self._finished(world)
        epoch = world.truth[-1].epoch + 1
        for status in (Status.EMPTY, Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT):
            number = len(world.log) + 1
            entry = Entry((OTHERS, number), world.truth[-1].token, status, epoch)
            world = _stored(world, number, entry)
        gone = world.old - 1 if self.rules.successor_age else world.old
        log = tuple(None if number <= gone and number != left else entry for number, entry in enumerate(world.log, 1))
        return world._replace(log=log, bursts=world.bursts - 1)

    def _finished(self, world: World) -> World:
        """``finish`` of the newest entry, undisturbed."""
        number, newest = len(world.log), world.log[-1]
        if newest is None or not newest.status.is_prepared:
            return world
        if newest.work is not None:
            if not self.rules.marker or world.marker < number:
                world = world._replace(records=(*world.records, newest.work), marker=max(world.marker, number))
            pended = Pending(newest.epoch, number, newest.work)
            world = world._replace(row=_settled(world.row, pended, is_committed=True))
        is_commit = newest.status is Status.PREPARE_COMMIT
        status = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
        return _stored(world, number + 1, Entry((OTHERS, number + 1), newest.token, status, newest.epoch))

    def _in_place(self, world: World, number: int) -> Entry | None:
        """``entry_in_place``, undisturbed."""
        entry, after = _get(world, number), _get(world, number + 1)
        if not self.rules.in_place or after is not None:
            return _fitting(entry, after) if self.rules.in_place else entry
        return entry if len(world.log) == number else None

    # What must always be true.

    def broken(self, world: World) -> Iterator[str]:
        committed = {}
        epoch = 0
        for number, entry in enumerate(world.truth, 1):
            if entry.status is Status.EMPTY:
                epoch = entry.epoch
            if entry.status is Status.PREPARE_COMMIT:
                if entry.epoch < epoch:
                    yield f"a fenced session commits nothing: entry {number} of epoch {entry.epoch} after {epoch} began"
                if entry.work is not None:
                    committed[entry.work] = number
        for work in set(world.records):
            if work not in committed:
                yield f"nothing is visible that wasn't decided: {work}"
        if len(set(world.records)) < len(world.records):
            yield f"nothing is published twice: {_names(world.records)}"
        early = {*range(world.row.committed)} - {work.input for work in world.records}
        if early:
            yield f"an offset counts once its output is visible: {early} have none, {world.row.committed} is committed"
        for work, is_committed in world.told:
            if is_committed and work not in world.records:
                yield f"what was told to be committed is visible: {work}"
            if not is_committed and work in committed:
                yield f"what was told to be aborted isn't committed: {work}"
        if len(world.log) != len(world.truth) or world.log[-1] != world.truth[-1]:
            yield f"the log never forks: its newest entry is {_say(world.log[-1])}, it was {_say(world.truth[-1])}"
        inputs = [work.input for work in world.records]
        if len(set(inputs)) < len(inputs):
            yield f"no input is worked on twice: {inputs}"
        yield from self._broken_after_recovery(self._recovered(world), committed)

    def _broken_after_recovery(self, world: World, committed: dict[Work, int]) -> Iterator[str]:
        """If everybody died now, and somebody recovered."""
        missing = committed.keys() - set(world.records)
        if missing:
            yield f"no transaction is half committed: {_names(missing)} isn't visible after recovery"
        inputs = sorted(work.input for work in world.records)
        if inputs != list(range(world.row.committed)):
            yield (
                f"output and offsets are in step: after recovery inputs {inputs} have their output, "
                f"the committed offset is {world.row.committed}"
            )

    def _recovered(self, world: World) -> World:
        """``recover_transactions``, then the next owner of the partition (rule T2), undisturbed."""
        world = self._finished(world)
        pending = world.row.pending
        if pending is None:
            return world
        found = self._in_place(world, pending.number)
        verdict = found is not None and found.status is Status.PREPARE_COMMIT and found.epoch == pending.epoch
        return world._replace(row=_settled(world.row, pending, is_committed=verdict))


def _settled(row: Row, decider: Pending | None, *, is_committed: bool) -> Row:
    """``SettlePending``: only of the transaction that the row names."""
    pending = row.pending
    if pending is None or decider is None or pending[:2] != decider[:2]:
        return row
    return row._replace(pending=None, committed=pending.work.input + 1 if is_committed else row.committed)


def _fitting(entry: Entry | None, after: Entry | None) -> Entry | None:
    """The entry, if the one after it fits to it."""
    return entry if entry is not None and after is not None and after.previous == entry.token else None


def _get(world: World, number: int) -> Entry | None:
    return world.log[number - 1] if 0 < number <= len(world.log) else None


def _has(world: World, number: int) -> bool:
    return _get(world, number) is not None


def _stored(world: World, number: int, entry: Entry) -> World:
    """The store has created an entry: the next of the log, unless its name was cleaned."""
    if number <= len(world.log):
        return world._replace(log=(*world.log[: number - 1], entry, *world.log[number:]))
    truth = (*world.truth, entry) if number == len(world.truth) + 1 else world.truth
    gap = (None,) * (number - len(world.log) - 1)
    return world._replace(log=(*world.log, *gap, entry), truth=truth)


def _slept(world: World) -> World:
    a, b, r = (
        process._replace(is_silent=process.at is not At.END, is_base_silent=process.pended is not None)
        for process in world.processes
    )
    return world._replace(processes=(a, b, r), old=len(world.log))


def _helped(world: World, index: int) -> World:
    """A recovery that begins anew is still the same one."""
    return world if index < 2 else world._replace(helps=world.helps + 1)


def _with(world: World, index: int, process: Process) -> World:
    changed = [*world.processes]
    changed[index] = process
    a, b, r = changed
    return world._replace(processes=(a, b, r))


def _epoch(entry: Entry | None) -> int:
    return -1 if entry is None else entry.epoch


def _say(entry: Entry | None) -> str:
    return "nothing" if entry is None else f"{entry.status.value} by {entry.token[0]}"


def _names(works: object) -> str:
    return ", ".join(sorted(map(str, works)))  # type: ignore[call-overload]
