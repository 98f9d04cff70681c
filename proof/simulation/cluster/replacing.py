"""Worlds in which the operator exchanges what is under running clients: the whole store, or a log of it.

It is emptied, put back, replaced by another cluster, or by a copy of an earlier moment. What was acknowledged before
may be gone then: the operator took it. But once ``tail_trust_ms`` and what a request takes have passed, nobody may
store an entry in a log that isn't the one it knows, nobody may be told that a record is stored there, and nobody may
go on in silence; and whatever is there in the end must be whole, with nothing of anybody else's in it. Where time is
left for that before another cluster, or a copy, is put there, what was stored meanwhile is taken out, as
docs/operations.md says.

They have seeds of their own, so all other worlds are as they would be without these.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from proof.simulation.cluster.shape import LOG_RETENTION_MS, JobPlan, Shape, TopicPlan, about_one_thing
from proof.simulation.cluster.weather import Forecast
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    NotATopicError,
    ObjectNotFoundError,
    SparklogError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
from sparklog.integrity import Finding
from sparklog.log import Cluster, create_topic
from sparklog.model import TopicPartition
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import WrappedStore
from sparklog.testing.history import (
    Acknowledged,
    Assigned,
    CaughtUp,
    Event,
    FinalOffset,
    FinalRead,
    OffsetsSettled,
    Outcome,
    Polled,
    Send,
    Sought,
    TransactionEnded,
    Unknown,
)
from tests.support import a_writer, append

if TYPE_CHECKING:
    from proof.simulation.cluster.life import Life
    from proof.simulation.cluster.play import Play

__all__ = ["REPLACED", "REPLACING_SEEDS", "TRUST_MS", "Replacing", "cluster_file", "draw_replacing", "is_replacing"]

REPLACING_SEEDS = 3 * 10**12
"""The first seed of these worlds."""
_END = 4 * 10**12
TRUST_MS = 10_000.0
"""``tail_trust_ms`` of all clients."""
_REQUESTS_MS = 4_000.0
"""What the requests of a commit take at most, where none is slow, and answers are seldom lost."""
_BOUND_MS = TRUST_MS + _REQUESTS_MS
_SILENT_MS = 3 * TRUST_MS + 20_000.0
"""Who has been at work for so long beyond the bound, and was told nothing, is silent; nobody rests for as long."""
_LONGEST_IDLE_MS = 2.5 * TRUST_MS
OLD, NEW, OLDER, NOTHING = "old", "new", "older", "nothing"
"""What may be there."""
_IDS = {OLD: "c", NEW: "n", OLDER: "c", NOTHING: "c"}
REPLACED = (
    CommitStateUnknownError,
    CorruptLogError,
    NotATopicError,
    ObjectNotFoundError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
"""Errors that tell a client of it."""
_LOG_FOLDERS = ("topics/", "groups/", "transactions/")
_PARTS = ("topics/a/_delta_log/", "groups/manual/", "transactions/x/")


def is_replacing(seed: int) -> bool:
    """Is this seed's world one of these?"""
    return REPLACING_SEEDS <= seed < _END


def draw_replacing(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """Producers, transactions and consumers that don't end by themselves, busy or idle, on a store that is quick."""
    draw = random.Random(f"replacing {seed}")
    configs: dict[str, object] = {"retention.ms": -1, "log.retention.ms": LOG_RETENTION_MS}
    topics = [TopicPlan(name="a", partitions=draw.choice([1, 2]), configs=configs)]
    if draw.random() < 0.3:
        topics.append(TopicPlan(name="b", partitions=1, configs=configs))
    roles = ["produce", draw.choice(["produce", "transact"]), "consume", draw.choice(["consume", "follow", "produce"])]
    settings: Mapping[str, dict[str, object]] = {"transact": {"id": "x"}, "consume": {"auto": False}}
    jobs = [
        JobPlan(name=f"{role}{number}", role=role, steps=10_000, settings=settings.get(role, {}))
        for number, role in enumerate(roles)
    ]
    rare = replace(
        expected.calmed(),
        latency_ms=draw.choice([3.0, 10.0]),
        crash=draw.choice([0.0, 0.0005]),
        lost_answer=draw.choice([0.0, 0.005]),
        own_success=draw.choice([0.0, 0.01]),
        skews=False,
        drifts=False,
    )
    return about_one_thing(shape, topics, jobs, kills=0.0), rare


@dataclass(frozen=True, slots=True)
class _Objects:
    """What was under a prefix."""

    prefix: str
    content: Mapping[str, bytes]


class Replacing:
    """The operator of such a world, and who judges it."""

    tail_trust_ms = TRUST_MS

    def __init__(self, play: Play, seed: int) -> None:
        self._play = play
        self._memory = play.memory
        self._memory.put(CLUSTER_FILE, cluster_file(_IDS[OLD]))
        self._draw = random.Random(f"operator {seed}")
        self.there = OLD
        self._away = ""
        """The prefix of what is away, where the rest is there."""
        self._is_back = ""
        """The prefix of what was away and is there again, as it was, in place of what clients began anew meanwhile."""
        self._since_ms = 0.0
        """When what is there was exchanged last."""
        self._born: dict[str, str] = {}
        """By life: what it opened."""
        self._told: set[str] = set()
        """Lives that were told of it."""
        self._silent: set[str] = set()
        self.windows: list[tuple[float, float, str]] = []
        """From when to when what was there was away, and the prefix of it: by the wall."""
        self._kept: dict[str, _Objects] = {}
        self._steps: list[tuple[float, Callable[[], None], bool]] = []
        """What will happen, when, and whether it comes sooner: right behind an upload, once the bound is over."""
        self._is_even = seed % 2 == 0
        self.lasts_ms = 0.0
        self.has_begun = False
        self._taken_out: set[bytes] = set()
        """The names of data files that clients had uploaded to what was there before something was put there."""
        self.is_spoilt = False
        """Did clients store entries in another's log, or in one that was taken from its cluster, within the bound? Then
        nothing is expected of what is there: what others have decided by such an entry is lost with it."""

    # How it begins.

    def begin(self, cluster: Cluster) -> None:
        """Draw all that will happen. Another cluster is made, somewhere else, by who made this one."""
        draw, now = self._draw, self._play.world.now
        at_ms = now + draw.uniform(8_000, 25_000)
        away_ms = _BOUND_MS + draw.uniform(1_000, 15_000)
        kind = draw.choice(["another", "another", "older", "emptied", "part", "part", "generations"])
        self._play.world.counts[f"exchanged: {kind}"] += 1
        if kind == "another":
            self._kept[NEW] = self._make_another(cluster)
            self._at(at_ms, self._empty)
            if draw.random() < 0.6:
                at_ms += away_ms
            self._at(at_ms, lambda: self._put(NEW))
            if draw.random() < 0.4:
                at_ms += draw.uniform(15_000, 30_000)
                self._at(at_ms, self._empty)
                at_ms += away_ms
                self._at(at_ms, lambda: self._put(OLD))
        elif kind == "older":
            self._at(now + draw.uniform(4_000, at_ms - now), self._back_up)
            self._at(at_ms, self._empty)
            at_ms += away_ms
            self._at(at_ms, lambda: self._put(OLDER))
        elif kind == "emptied":
            self._at(at_ms, self._empty)
            at_ms += away_ms
            self._at(at_ms, lambda: self._put(OLD), waits_for_upload=self._is_even)
        elif kind == "part":
            self._at(at_ms, lambda: self._take_part(draw.choice(_PARTS)))
            at_ms += away_ms
            self._at(at_ms, self._put_part)
        else:
            self._at(at_ms, lambda: self._delete("groups/manual/generations/"))
        self.lasts_ms = at_ms - now + _BOUND_MS + _SILENT_MS + 5_000

    def _at(self, at_ms: float, act: Callable[[], None], *, waits_for_upload: bool = False) -> None:
        self._steps.append((at_ms, act, waits_for_upload))

    def _make_another(self, cluster: Cluster) -> _Objects:
        """Another cluster with the same topics, and some records."""
        memory = MemoryStore(clock=self._play.world.process("another store").clock)
        other = Cluster(cluster_id=_IDS[NEW], store=RetryingStore(memory, clock=cluster.clock), clock=cluster.clock)
        memory.put(CLUSTER_FILE, cluster_file(_IDS[NEW]))
        recorder = self._play.recorder.producer("maker")
        self._born["maker"] = NEW
        for plan in self._play.shape.topics:
            log = other.topic_log(plan.name)
            create_topic(log, plan.name, num_partitions=plan.partitions, configs=plan.configs)
            writer = a_writer(log, topic=plan.name)
            for number in range(self._draw.randint(0, 30)):
                value = f"maker:{plan.name}{number}"
                recorder.send(value, plan.name, 0)
                append(writer, value)
                recorder.acknowledged(value, TopicPartition(plan.name, 0), number)
        return _Objects("", {info.path: memory.read(info.path) for info in memory.list("")})

    # What happens.

    def look(self) -> None:
        """Do what is due."""
        while self._steps and self._steps[0][0] <= self._play.world.now:
            self._steps.pop(0)[1]()
        for life in self._lives():
            self._look_for_silence(life)

    def _lives(self) -> Iterator[Life]:
        for job in self._play.jobs:
            if job.lives:
                yield job.lives[-1]

    def _take(self, prefix: str) -> _Objects:
        taken = {info.path: self._memory.read(info.path) for info in self._memory.list(prefix)}
        self._memory.delete(taken)
        return _Objects(prefix, taken)

    def _delete(self, prefix: str) -> None:
        self._take(prefix)
        self._note(f"deleted {prefix}")

    def _back_up(self) -> None:
        self.windows.append((self._wall(self._play.world.now), float("inf"), ""))
        self._kept[OLDER] = _Objects("", {info.path: self._memory.read(info.path) for info in self._memory.list("")})
        self._play.world.note("backed up")

    def _empty(self) -> None:
        self._kept[self.there] = self._take("")
        self._change(NOTHING, "")

    def _put(self, what: str) -> None:
        self._take_out("")
        for path, data in self._kept.pop(what).content.items():
            self._memory.put(path, data)
        self._change(what, "")

    def _take_out(self, prefix: str) -> None:
        names = (path.rpartition("/")[2] for path in self._take(prefix).content)
        self._taken_out |= {name.encode() for name in names if name.endswith(".parquet")}

    def _take_part(self, prefix: str) -> None:
        self._kept["part"] = self._take(prefix)
        self._change(self.there, prefix)

    def _put_part(self) -> None:
        part = self._kept.pop("part")
        self._is_back = part.prefix
        self._take_out(part.prefix)
        for path, data in part.content.items():
            self._memory.put(path, data)
        self._change(self.there, "")

    def _change(self, what: str, away: str) -> None:
        now = self._play.world.now
        self.has_begun = True
        if self.there == OLD and (what != OLD or away) and not self.windows:
            self.windows.append((self._wall(now), float("inf"), away))
        elif what in (OLD, OLDER) and not away and self.windows:
            began, _, prefix = self.windows.pop()
            self.windows.append((began, self._wall(now), prefix))
        self.there, self._away, self._since_ms = what, away, now
        self._note(f"{what} is there{f', without {away}' if away else ''}")

    def _wall(self, now: float) -> float:
        return self._play.world.start_ms + now

    def _note(self, text: str) -> None:
        self.has_begun = True
        self._play.world.note("exchanged", text)
        self._play.world.counts["exchanges"] += 1

    # What clients do.

    @property
    def cluster_id(self) -> str:
        """Of what is there."""
        return _IDS[self.there]

    def is_open(self) -> bool:
        """Is there a cluster that somebody may open?"""
        return self.there != NOTHING

    def store(self, store: ObjectStore, who: str) -> ObjectStore:
        """The store of a process, as it is watched here."""
        if who == "director":  # who opens what is there whenever it does anything
            return store
        self._born.setdefault(who, self.there)
        return _SeenStore(store, who, self)

    def _is_foreign(self, who: str, path: str) -> bool:
        """Is what is there, under this name, another's than what the process has opened? A copy isn't: who stands on
        an entry that it has may go on, and so may others once they were told, and have loaded it anew."""
        born = self._born.get(who, self.there)
        if born != self.there and (born, self.there) != (OLD, OLDER):
            return True
        return path.startswith("topics/") and bool(self._away) and path.startswith(self._away)

    def see_uploaded(self, path: str) -> None:
        """A process has uploaded a data file."""
        is_awaited = bool(self._steps) and self._steps[0][2] and self.there == NOTHING and self._late_ms > _BOUND_MS
        if is_awaited and path.endswith(".parquet"):
            self._play.world.counts["put back behind an upload"] += 1
            self._steps.pop(0)[1]()

    @property
    def _late_ms(self) -> float:
        return self._play.world.now - self._since_ms

    def see_created(self, who: str, path: str, data: bytes) -> None:
        """A process has created an entry of a log."""
        folder, _, name = path.rpartition("/")
        if not path.startswith(_LOG_FOLDERS) or not name.endswith(".json") or not name[:20].isdigit():
            return
        is_back = bool(self._is_back) and path.startswith(self._is_back)
        is_behind_a_gap = (self.there == OLDER or is_back) and not self._has_one_before(folder, int(name[:20]))
        names_the_gone = any(name in data for name in self._taken_out)
        # Without its log a transactional id is one that was deleted, which anybody may begin anew, and so is a group.
        is_away = bool(self._away) and path.startswith(self._away)
        self.is_spoilt |= is_away and not path.startswith("groups/")
        # Who stands on what was begun anew in the place of a part can't be told until its next check.
        is_of_the_other = is_behind_a_gap or (is_back and names_the_gone and self._late_ms <= _BOUND_MS)
        if not (is_of_the_other or self._is_foreign(who, path)):
            if not is_away and names_the_gone:
                self._play.violate(f"gone: {who} created {path}, and it names a file that was taken out before")
            return
        self.is_spoilt |= self.there != NOTHING
        if self._late_ms <= _BOUND_MS:
            self._play.world.counts["strays within the bound"] += 1
            self._play.world.note("stray", path)
        else:
            self._play.violate(f"stray: {who} created {path} {self._late_ms:.0f} ms after it was exchanged")

    def _has_one_before(self, folder: str, number: int) -> bool:
        first = 0 if folder.endswith("/_delta_log") else 1
        return number == first or self._memory.exists(f"{folder}/{number - 1:020d}.json")

    def see_event(self, event: Event) -> None:
        """Something was recorded."""
        who = event.client.partition("/")[0]
        path = ""
        if isinstance(event, Acknowledged):
            path = f"topics/{event.partition.topic}/_delta_log/"
        elif isinstance(event, OffsetsSettled) and event.outcome is Outcome.COMMITTED:
            path = "groups/manual/"
        if path and self._is_foreign(who, path) and self._late_ms > _BOUND_MS + _REQUESTS_MS:
            self._play.violate(f"told too late: {event} {self._late_ms:.0f} ms after it was exchanged")

    def tell(self, life: Life, error: SparklogError) -> bool:
        """An error came; does the exchange excuse it?"""
        if not (self.has_begun and isinstance(error, REPLACED)):
            return False
        self._told.add(life.name)
        self._play.world.counts["told of an exchange"] += 1
        return True

    def excuses(self, finding: Finding) -> bool:
        """Nothing that the check finds is excused."""
        return False

    def ends(self, life: Life) -> bool:
        """Does a client that was told of it give up? Others go on, in case it comes back."""
        if life.name not in self._told:
            return False
        return self.there == OLDER or (self._is_foreign(life.name, "") and life.draw.random() < 0.05)

    def idle_ms(self, draw: random.Random) -> float:
        """For how long a client rests beside what others do."""
        return draw.uniform(0, _LONGEST_IDLE_MS) if draw.random() < 0.08 else draw.expovariate(1 / 1_500)

    def _look_for_silence(self, life: Life) -> None:
        name = life.name
        if life.process.is_dead or life.is_over or name in self._told or name in self._silent:
            return
        if life.job.plan.role == "transact":  # which may do nothing for minutes
            return
        if self._is_foreign(name, "") and self._late_ms > _BOUND_MS + _SILENT_MS:
            self._silent.add(name)
            self._play.violate(f"silent: {name} was told nothing {self._late_ms / 1_000:.0f} s after it was exchanged")

    # What must be there in the end.

    def judged(self, events: Sequence[Event]) -> list[Event]:
        """The history without what the operator has destroyed."""
        final = {value for event in events if isinstance(event, FinalRead) for value in event.values}
        in_doubt = (one for one in events if isinstance(one, Send | Acknowledged) and self._is_in_doubt(one))
        lost = {event.value for event in in_doubt} - final
        places = {
            (event.partition, offset): value
            for event in events
            if isinstance(event, FinalRead)
            for offset, value in zip(event.offsets, event.values, strict=True)
        }
        misled: set[tuple[str, TopicPartition]] = set()
        """Readers that have read what is lost: where they go on from there is no promise, until they begin anew."""
        judged: list[Event] = []
        for event in events:
            if not isinstance(event, FinalRead | FinalOffset):
                born = self._born.get(event.client.partition("/")[0], self.there)
                if born != self.there and (born, self.there) != (OLD, OLDER):
                    continue  # nothing of it may be there
                if born == OLD and self._is_in_doubt(event):
                    if isinstance(event, Acknowledged | TransactionEnded | OffsetsSettled):
                        event = _unknown(event)
                    elif isinstance(event, Assigned):
                        event = event._replace(partitions=tuple((one, None) for one, _ in event.partitions))
                    elif isinstance(event, CaughtUp):
                        continue
                if isinstance(event, Assigned):
                    misled -= {(event.client, one) for one, _ in event.partitions}
                elif isinstance(event, Sought):
                    misled.discard((event.client, event.partition))
                elif isinstance(event, Polled) and (
                    not lost.isdisjoint(event.values) or (self._is_in_doubt(event) and not _is_there(event, places))
                ):
                    misled.add((event.client, event.partition))
                if isinstance(event, Polled | CaughtUp) and (event.client, event.partition) in misled:
                    continue
            judged.append(event)
        return judged

    def _is_in_doubt(self, event: Event) -> bool:
        """Was it while the storage was away, or within the bound afterwards? What was told then need not be so."""
        return any(began <= event.wall_ms <= ended + _BOUND_MS + _REQUESTS_MS for began, ended, _ in self.windows)


class _SeenStore(WrappedStore):
    """What a process creates is seen, when it arrives."""

    def __init__(self, store: ObjectStore, who: str, replacing: Replacing) -> None:
        super().__init__(store)
        self._who = who
        self._replacing = replacing

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        super().put(path, data, sync=sync)
        self._replacing.see_uploaded(path)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        result = super().create(path, data, sync=sync)
        if result is CreateResult.CREATED:
            self._replacing.see_created(self._who, path, data)
        return result


def _is_there(event: Polled, places: Mapping[tuple[TopicPartition, int], str]) -> bool:
    pairs = zip(event.offsets, event.values, strict=True)
    return all(places.get((event.partition, offset), value) == value for offset, value in pairs)


def _unknown(event: Any) -> Event:
    if isinstance(event, Acknowledged):
        return Unknown(event.order, event.wall_ms, event.client, event.value, "exchanged")
    is_certain = event.outcome is Outcome.COMMITTED
    made: Event = event._replace(outcome=Outcome.UNKNOWN) if is_certain else event
    return made


def cluster_file(cluster_id: str) -> bytes:
    """What ``cluster.json`` says."""
    return json.dumps({"cluster_id": cluster_id, "format_version": 1}).encode()
