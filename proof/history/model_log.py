"""A log that keeps every promise, in memory and in few lines, and clients that record what they do with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparklog.model import TopicPartition
from sparklog.testing.history import (
    ConsumerRecorder,
    History,
    Isolation,
    Outcome,
    PartitionView,
    ProducerRecorder,
    Recorder,
    Source,
)

COMPACTED = "latest"
INPUT, OUTPUT = "t", "out"
PARTITIONS = [TopicPartition(topic, number) for topic in (INPUT, COMPACTED) for number in range(2)]
OUTPUTS = [TopicPartition(OUTPUT, 0)]
COMMITTED, UNCOMMITTED = Isolation


@dataclass
class Entry:
    offset: int
    value: str
    key: str | None
    is_tombstone: bool
    state: str  # open, ok, aborted, or marker


@dataclass
class Log:
    """A partition. In Kafka's manner (``has_markers``) records of open transactions are in it."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, value: str, key: str | None = None, is_tombstone: bool = False, state: str = "ok") -> Entry:
        entry = Entry(self.end, value, key, is_tombstone, state)
        self.entries.append(entry)
        self.end += 1
        return entry

    def bound(self, isolation: Isolation) -> int:
        """The log end, or the last stable offset."""
        pending = [entry.offset for entry in self.entries if entry.state == "open"]
        return min([*pending, self.end]) if isolation is COMMITTED else self.end

    def read(self, position: int, count: int, isolation: Isolation) -> tuple[list[int], list[str], int]:
        """Offsets, values, and where to go on."""
        bound = self.bound(isolation)
        hidden = ("marker", "aborted") if isolation is COMMITTED else ("marker",)
        shown = [one for one in self.entries if position <= one.offset < bound and one.state not in hidden]
        taken = shown[:count]
        position = taken[-1].offset + 1 if len(shown) > count else max(position, bound)
        return [one.offset for one in taken], [one.value for one in taken], position

    def retire(self, start: int) -> None:
        self.start = max(self.start, min(start, self.bound(COMMITTED)))
        self.entries = [entry for entry in self.entries if entry.offset >= self.start]

    def compact(self) -> None:
        bound = self.bound(COMMITTED)
        latest = {entry.key: entry.offset for entry in self.entries if entry.state == "ok" and entry.offset < bound}
        self.entries = [
            entry
            for entry in self.entries
            if entry.offset >= bound
            or (entry.state == "ok" and latest[entry.key] == entry.offset and not entry.is_tombstone)
        ]


@dataclass
class Member:
    """A consumer of a group, or one of its own."""

    recorder: ConsumerRecorder
    isolation: Isolation
    positions: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Sender:
    recorder: ProducerRecorder
    pending: list[tuple[TopicPartition, str, str | None, bool]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    places: set[TopicPartition] = field(default_factory=set)


class World:
    """Plays at random; each step is right, whatever its outcome."""

    def __init__(self, rng: random.Random, *, has_markers: bool) -> None:
        self.rng = rng
        self.has_markers = has_markers
        self.recorder = Recorder("w", now_ms=lambda: 0)
        self.logs = {partition: Log() for partition in (*PARTITIONS, *OUTPUTS)}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.number = 0
        self.plain = [self.recorder.producer(f"plain{n}") for n in range(2)]
        self.senders = [Sender(self.recorder.producer(f"tx{n}", transactional_id=f"tx{n}")) for n in range(2)]
        self.members = [self.member("g") for _ in range(2)]
        self.owners: dict[TopicPartition, Member] = {}
        self.alone = self.member(None, UNCOMMITTED)
        self.alone.recorder.assigned(dict.fromkeys(PARTITIONS))
        self.alone.positions = dict.fromkeys(PARTITIONS, 0)
        self.rebalance()
        self.worker = self.new_worker()
        self.etl = Sender(self.recorder.producer("etl"))

    def run(self, steps: int) -> History:
        moves = [self.send, self.send, self.transact, self.poll, self.poll, self.poll_alone, self.process, self.process]
        rare = [self.rebalance, self.retire, self.compact, self.commit, self.look, self.restart_worker]
        for _ in range(steps):
            self.rng.choice(moves if self.rng.random() < 0.8 else rare)()
        return self.finish()

    # Writing.

    def fresh(self) -> str:
        self.number += 1
        return f"v{self.number}"

    def record_for(self, places: Sequence[TopicPartition]) -> tuple[TopicPartition, str, str | None, bool]:
        place = self.rng.choice(places)
        key = f"{place.partition}{self.rng.choice('abc')}" if place.topic == COMPACTED else None
        return place, self.fresh(), key, key is not None and self.rng.random() < 0.2

    def send(self) -> None:
        producer = self.rng.choice(self.plain)
        place, value, key, is_tombstone = self.record_for(PARTITIONS)
        named = place.partition if self.rng.random() < 0.7 else None
        producer.send(value, place.topic, named, key=key, is_tombstone=is_tombstone)
        fate = self.rng.choice(["ok", "ok", "ok", "ok", "failed", "lost answer", "late answer", "silent"])
        if fate == "failed":
            producer.failed(value, "refused")
            return
        if fate == "lost answer" and self.rng.random() < 0.5:
            producer.unknown(value, TimeoutError("no answer"))
            return
        entry = self.logs[place].append(value, key, is_tombstone)
        if fate in ("ok", "late answer"):
            producer.acknowledged(value, place, entry.offset)
        elif fate == "lost answer":
            producer.unknown(value, TimeoutError("no answer"))

    def transact(self) -> None:
        """A step of a transaction of one of two producers, so that they overlap."""
        sender = self.rng.choice(self.senders)
        if sender.recorder.transaction is None:
            sender.recorder.begin()
        elif self.rng.random() < 0.7:
            self.add(sender, *self.record_for(PARTITIONS))
        else:
            self.end(sender, self.rng.choice(["committed", "committed", "aborted", "unknown", "unknown"]))

    def add(
        self, sender: Sender, place: TopicPartition, value: str, key: str | None, is_tombstone: bool,
        source: Source | None = None,
    ) -> None:  # fmt: skip
        sender.recorder.send(value, *place, key=key, is_tombstone=is_tombstone, source=source)
        sender.places.add(place)
        if not self.has_markers:
            sender.pending.append((place, value, key, is_tombstone))
            return
        entry = self.logs[place].append(value, key, is_tombstone, "open")
        sender.entries.append(entry)
        if self.rng.random() < 0.8:
            sender.recorder.acknowledged(value, place, entry.offset)

    def end(self, sender: Sender, wanted: str) -> bool:
        """Was it committed?"""
        recorder = sender.recorder
        is_commit = wanted != "aborted"
        recorder.ending(is_commit=is_commit)
        is_committed = is_commit and (wanted == "committed" or self.rng.random() < 0.5)
        for place, value, key, is_tombstone in sender.pending:
            if is_committed:
                entry = self.logs[place].append(value, key, is_tombstone)
                if wanted == "committed":
                    recorder.acknowledged(value, place, entry.offset)
            elif wanted == "aborted":
                recorder.failed(value, "aborted")
        for entry in sender.entries:
            entry.state = "ok" if is_committed else "aborted"
        if self.has_markers:
            for place in sorted(sender.places):
                self.logs[place].append("", state="marker")
        sender.pending, sender.entries, sender.places = [], [], set()
        recorder.ended(wanted)
        recorder.transaction = None
        return is_committed

    # Reading.

    def member(self, group: str | None, isolation: Isolation = COMMITTED) -> Member:
        self.number += 1
        return Member(
            self.recorder.consumer(f"c{self.number}", group=group, isolation=isolation, from_start=group is not None),
            isolation,
        )

    def begin_at(self, group: str, place: TopicPartition) -> int:
        return self.committed.get((group, place), self.logs[place].start)

    def rebalance(self) -> None:
        if self.rng.random() < 0.3:
            self.members[0] = self.member("g")
        for member in [*self.members, *self.owners.values()]:
            if member.positions:
                tell = member.recorder.lost if self.rng.random() < 0.3 else member.recorder.revoked
                tell(list(member.positions))
                member.positions = {}
        for place in PARTITIONS:
            member = self.owners[place] = self.rng.choice(self.members)
            member.positions[place] = self.begin_at("g", place)
        for member in self.members:
            member.recorder.assigned(dict(member.positions))

    def poll(self) -> None:
        place = self.rng.choice(PARTITIONS)
        self.poll_of(self.owners[place], place, self.rng.randint(1, 6))

    def poll_of(self, member: Member, place: TopicPartition, count: int) -> tuple[list[int], list[str]]:
        log = self.logs[place]
        position = max(member.positions[place], log.start)
        offsets, values, position = log.read(position, count, member.isolation)
        member.positions[place] = position
        if offsets or self.rng.random() < 0.2:
            told = position if self.rng.random() < 0.5 else None
            member.recorder.polled(place, offsets, values, told)
        return offsets, values

    def poll_alone(self) -> None:
        place = self.rng.choice(PARTITIONS)
        if self.rng.random() < 0.2:
            self.alone.positions[place] = offset = self.rng.randint(0, self.logs[place].end)
            self.alone.recorder.sought(place, offset)
        self.poll_of(self.alone, place, self.rng.randint(1, 6))

    def commit(self) -> None:
        member = self.rng.choice(self.members)
        if not member.positions:
            return
        name = member.recorder.committing(member.positions)
        outcome = self.rng.choice(list(Outcome))
        if outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and self.rng.random() < 0.5):
            self.committed.update({("g", place): position for place, position in member.positions.items()})
        if outcome is not Outcome.UNKNOWN or self.rng.random() < 0.5:
            member.recorder.committed(name, outcome)

    def look(self) -> None:
        """A snapshot of all partitions; only where transactions become visible at one moment."""
        if self.has_markers:
            return
        views = []
        for place, log in self.logs.items():
            offsets, values, end = log.read(log.start, 1000, COMMITTED)
            views.append(PartitionView(place, log.start, end, tuple(offsets), tuple(values)))
        self.alone.recorder.snapshot(views)

    # Consume, transform, produce.

    def new_worker(self) -> Member:
        worker = self.member("etl")
        worker.positions = {place: self.begin_at("etl", place) for place in PARTITIONS if place.topic == INPUT}
        worker.recorder.assigned(dict(worker.positions))
        return worker

    def restart_worker(self) -> None:
        self.worker = self.new_worker()

    def process(self) -> None:
        place = self.rng.choice(list(self.worker.positions))
        offsets, _ = self.poll_of(self.worker, place, 3)
        if not offsets:
            return
        self.etl.recorder.begin()
        for offset in offsets:
            self.add(self.etl, OUTPUTS[0], self.fresh(), None, False, Source("etl", place, offset))
        position = self.worker.positions[place]
        self.etl.recorder.send_offsets("etl", {place: position})
        if self.end(self.etl, self.rng.choice(["committed", "committed", "aborted", "unknown"])):
            self.committed["etl", place] = position
        else:
            self.worker.positions[place] = self.begin_at("etl", place)
            self.worker.recorder.sought(place, self.worker.positions[place])

    # Housekeeping, and the end.

    def retire(self) -> None:
        """Not beyond what the worker has done: the others may miss what they were too late for."""
        place = self.rng.choice([*PARTITIONS, *OUTPUTS])
        log = self.logs[place]
        start = log.start + self.rng.randint(1, 5)
        self.logs[place].retire(min(start, self.begin_at("etl", place)) if place.topic == INPUT else start)

    def compact(self) -> None:
        for place in PARTITIONS:
            if place.topic == COMPACTED:
                self.logs[place].compact()

    def finish(self) -> History:
        for sender in self.senders:  # they crash, and are rolled back
            for entry in sender.entries:
                entry.state = "aborted"
        for place, log in self.logs.items():
            for isolation in Isolation if self.has_markers else [COMMITTED]:
                offsets, values, _ = log.read(log.start, 1_000_000, isolation)
                half = self.rng.randint(0, len(offsets))
                for piece in (slice(None, half), slice(half, None)):
                    self.recorder.final_read(
                        place,
                        log_start=log.start,
                        log_end=log.end,
                        offsets=offsets[piece],
                        values=values[piece],
                        isolation=isolation,
                    )
        for group in ("g", "etl"):
            self.recorder.final_offsets(group, {place: self.committed.get((group, place)) for place in PARTITIONS})
        for place, member in self.owners.items():
            self.poll_of(member, place, 1_000_000)
            member.recorder.caught_up(place, member.positions[place])
        return self.recorder.history()


def good_history(seed: int, *, steps: int = 150, has_markers: bool = False) -> History:
    """What clients of a faultless log record; the same for the same seed."""
    return World(random.Random(seed), has_markers=has_markers).run(steps)
