"""A group of consumers in one process and one thread, in simulated time: what the tests of membership play on.

A :class:`Player` is a consumer: its heartbeat, its keeper of offsets and its application are three actors that take
turns. Each store call is a place where an actor may stall while all others go on: what runs meanwhile runs inside that
call, so it is over before the stalled actor goes on (the worlds of ``proof.simulation.cluster`` know no such order). A
:class:`World` watches what is committed and who holds what, and notes each breach of a promise.
"""

from __future__ import annotations

import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from sparklog.clock import Clock, Deadline
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.groups.assignors import ASSIGNORS
from sparklog.groups.membership.generations import Generation, generation_log
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.offsets.changes import Change, CommitOffsets, TakePartitions
from sparklog.groups.offsets.offset_files import decode_rows
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.log import Cluster
from sparklog.log.topic import create_topic, delete_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import CreateResult, MemoryStore
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.testing import Fault, FaultyStore, SimulatedCrash
from tests.support import T0_MS

GROUP = "g"
INTERVAL_MS = 3_000
SESSION_MS = 10_000
MAX_POLL_MS = 300_000
POLL_MS = 500.0
"""How often an application polls where nothing wakes it."""

_OFFSETS = f"groups/{GROUP}/offsets/_delta_log/"
_GENERATIONS = f"groups/{GROUP}/generations/"


def partitions(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


class World:
    """Simulated time, a store in memory, topics, players; and what they promise."""

    def __init__(self, seed: int = 0, *, topics: Mapping[str, int] | None = None) -> None:
        self.now = 0.0
        """Simulated time in milliseconds."""
        self.clock = _PlayerClock(self)
        self.memory = _HistoryStore(self)
        self.random = random.Random(seed)
        random.seed(seed)  # of backoffs
        self.admin = Cluster(cluster_id="c", store=RetryingStore(self.memory, clock=self.clock), clock=self.clock)
        self.topics: dict[str, int] = {}
        self.players: list[Player] = []
        self.violations: list[str] = []
        self.running: list[Actor] = []
        self.rows: Rows = {}
        """Of the newest version of the offset table."""
        self.generation = 0
        """The number of the newest."""
        self.members: dict[str, str | None] = {}
        """Of the newest generation: member id to instance id."""
        self._stamps: set[tuple[TopicPartition, Stamp]] = set()
        self._events: list[tuple[float, int, Actor, int]] = []
        self._numbers = count()
        for topic, partition_count in (topics if topics is not None else {"t": 4}).items():
            self.create_topic(topic, partition_count)

    # Topics.

    def create_topic(self, topic: str, partition_count: int) -> None:
        create_topic(self.admin.topic_log(topic), topic, num_partitions=partition_count)
        self.topics[topic] = partition_count

    def delete_topic(self, topic: str) -> None:
        delete_topic(self.admin.topic_log(topic), topic)
        del self.topics[topic]

    # Players.

    def player(self, name: str, *topics: str, **options: object) -> Player:
        """A consumer that subscribes and joins."""
        player = Player(self, name, **options)  # type: ignore[arg-type]
        self.players.append(player)
        player.subscribe(*(topics or ("t",)))
        for actor in player.actors:
            self.schedule(actor, self.now)
        return player

    @property
    def living(self) -> list[Player]:
        """The players that are, or want to be, members."""
        return [player for player in self.players if player.wants_membership]

    # Time.

    def schedule(self, actor: Actor, at: float) -> None:
        """Let an actor have its turn then, or earlier if it was to have one earlier."""
        if actor.is_busy:
            actor.again_at = min(at, actor.again_at)
        elif at < actor.due_at:
            actor.due_at = at
            actor.ticket = next(self._numbers)
            heapq.heappush(self._events, (at, actor.ticket, actor, actor.ticket))

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        self.run_until(self.now + duration_ms)

    def run_until(self, until: float) -> None:
        """Everybody whose turn comes until then has it, but for those that are stalled further up."""
        while self._events and self._events[0][0] <= until:
            at, _, actor, ticket = heapq.heappop(self._events)
            if ticket == actor.ticket and not actor.is_busy:
                self._reach(at)
                self._turn(actor)
        self._reach(until)

    def run_while(self, condition: Callable[[], bool], *, at_most_ms: float, step_ms: float = 100.0) -> float:
        """Let time pass until the condition doesn't hold any more; returns how long that took. Fails when it lasts."""
        began = self.now
        while condition():
            assert self.now - began < at_most_ms, f"not after {at_most_ms:g} ms\n{self.describe()}"
            self.run(step_ms)
        return self.now - began

    def settle(self, *, at_most_ms: float = 60_000.0) -> float:
        """Let time pass until the group is settled; returns how long that took."""
        return self.run_while(lambda: not self.is_settled(), at_most_ms=at_most_ms)

    def stall(self, duration_ms: float) -> None:
        """The actor that runs now waits; the others go on."""
        if not self.running:
            self.now += duration_ms
            return
        player, until = self.running[-1].player, self.now + duration_ms
        while not player.is_dead:
            self.run_until(max(until, player.awake_at))
            if self.now >= player.awake_at:
                break
        if player.is_dead:
            raise SimulatedCrash(player.name)

    def _reach(self, at: float) -> None:
        self.now = max(self.now, at)

    def _turn(self, actor: Actor) -> None:
        actor.due_at = INFINITE
        player = actor.player
        if player.is_dead:
            return
        if player.awake_at > self.now:
            self.schedule(actor, player.awake_at)
            return
        self.take_turn(actor)

    def take_turn(self, actor: Actor) -> None:
        """Let an actor do its step, now."""
        actor.is_busy, actor.again_at = True, INFINITE
        self.running.append(actor)
        wait_ms = INFINITE
        try:
            wait_ms = actor.step()
        except SimulatedCrash:
            actor.player.crash()
        finally:
            self.running.pop()
            self.finish_turn(actor, wait_ms)

    def finish_turn(self, actor: Actor, wait_ms: float) -> None:
        actor.is_busy = False
        if not actor.player.is_dead:
            self.check_holders(actor.player)
            self.schedule(actor, min(self.now + wait_ms, actor.again_at))

    # Promises.

    def note(self, violation: str) -> None:
        self.violations.append(f"at {self.now:.0f} ms: {violation}")

    def check_holders(self, player: Player) -> None:
        """Of those that weren't silent for their sessions no two have the same partition."""
        mine = player.handed()
        if not mine or not player.could_hold():
            return
        for other in self.players:
            both = mine & other.handed() if other is not player else set()
            if both and other.could_hold():
                self.note(f"{sorted(both)} held by {player.name} and {other.name}")

    def saw_version(self, data: bytes) -> None:
        """A version of the offset table was created."""
        path = next(json.loads(line)["add"]["path"] for line in data.splitlines() if line.startswith(b'{"add"'))
        file = self.memory.read(f"groups/{GROUP}/offsets/{path}")
        before, rows = self.rows, decode_rows(path, file)
        self.rows = rows
        jobs = self.running[-1].player.working if self.running else ()
        commits = [job.change for job in jobs if isinstance(job.change, CommitOffsets)]
        for partition in before.keys() - rows.keys():
            self.note(f"{partition} is gone")
        for partition, row in sorted(rows.items()):
            if row != before.get(partition):
                self._check_row(partition, before.get(partition), row, commits)

    def saw_generation(self, number: int, data: bytes) -> None:
        """A generation was created."""
        if number > self.generation:
            members = json.loads(data)["members"].items()
            self.generation, self.members = number, {member_id: m["instance_id"] for member_id, m in members}

    def _check_row(
        self, partition: TopicPartition, old: OffsetRow | None, row: OffsetRow, commits: Sequence[CommitOffsets]
    ) -> None:
        if old is None or old.stamp != row.stamp:
            if (partition, row.stamp) in self._stamps:
                self.note(f"{partition}: {row.stamp} again")
            self._stamps.add((partition, row.stamp))
            if old is not None and row.stamp.generation <= old.stamp.generation:
                self.note(f"{partition}: {row.stamp} after {old.stamp}")
        committed = row.committed
        if old is None or old.committed is None or old.topic_id != row.topic_id or old.committed == committed:
            begins_anew = old is None or old.committed is None
            if committed is None or not begins_anew:
                return
        elif committed is None or committed.offset < old.committed.offset:
            self.note(f"{partition}: {committed and committed.offset} after {old.committed.offset}")
        owners = (row.stamp, None if old is None else old.stamp)  # a commit, and then a take, may be one version
        if not any(c.offsets.get(partition) == committed and c.stamps.get(partition) in owners for c in commits):
            who = self.running[-1].player.name if self.running else ""
            self.note(f"{partition}: {committed} committed by another than {row.stamp}: {who} {commits}")

    def is_settled(self) -> bool:
        """Has each partition that is subscribed to exactly one owner that lives, with its stamp?"""
        owners: dict[TopicPartition, Player] = {}
        wanted: set[TopicPartition] = set()
        for player in self.living:
            topics = player.topics()
            wanted |= {TopicPartition(topic, n) for topic in topics for n in range(self.topics[topic])}
            reconciliation = player.membership.reconciliation
            if not reconciliation.is_settled or reconciliation.generation != self.generation or player.releasing:
                return False
            for partition, held in reconciliation.held.items():
                row = self.rows.get(partition)
                if not held.is_handed or partition in owners or row is None or row.stamp != held.stamp:
                    return False
                owners[partition] = player
        if self.members.keys() != {player.membership.member_id for player in self.living}:
            return False
        return owners.keys() == wanted and all(p.topic in owner.topics() for p, owner in owners.items())

    def describe(self) -> str:
        """The state of the group, for whoever wonders why it isn't settled."""
        lines = [f"at {self.now:.0f} ms", *self.violations]
        for player in self.players:
            r = player.membership.reconciliation
            held = {f"{p.topic}{p.partition}": h.is_handed for p, h in sorted(r.held.items())}
            lines.append(
                f"{player.name} {'dead' if player.is_dead else ''} "
                f"id={player.membership.member_id!r} generation={r.generation} target={sorted(r.target)} held={held} "
                f"taking={r.taking} to_release={r.to_release} errors={player.errors[-3:]} awake_at={player.awake_at}"
            )
        newest = self.newest()
        lines.append(f"newest {newest and (newest.version, newest.plan.assignment)}")
        return "\n".join(lines)

    def newest(self) -> Generation | None:
        """The group's newest generation."""
        return generation_log(self.admin, GROUP).open_newest()[0]

    def committed(self) -> dict[TopicPartition, int]:
        return {p: row.committed.offset for p, row in self.rows.items() if row.committed is not None}


INFINITE = float("inf")


@dataclass(eq=False, slots=True)
class Actor:
    """One thread of a player."""

    player: Player
    name: str
    step: Callable[[], float]
    """Returns after how many milliseconds the next turn is due."""
    is_busy: bool = False
    due_at: float = INFINITE
    again_at: float = INFINITE
    """When it is wanted again, said while it was busy."""
    ticket: int = -1


@dataclass(eq=False, slots=True)
class Job:
    """Something for a player's keeper of offsets."""

    change: Change
    deadline: Deadline
    done: Callable[[Rows | Exception], None] | None = None
    result: Rows | Exception | None = None


class Player:
    """A consumer without its reading: membership, rounds, offset table and an application that commits now and then."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        instance_id: str | None = None,
        assignors: Sequence[str] = ("cooperative-sticky",),
        is_eager: bool = False,
        session_ms: int = SESSION_MS,
        interval_ms: int = INTERVAL_MS,
        metadata_ms: int = 300_000,
        faults: Sequence[Fault] = (),
        commits: bool = True,
    ) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.clock = _PlayerClock(world)
        store = FaultyStore(world.memory, *faults) if faults else world.memory
        self.cluster = Cluster(cluster_id="c", store=RetryingStore(store, clock=self.clock), clock=self.clock)
        settings = MemberSettings(
            group_id=GROUP,
            instance_id=instance_id,
            client_id=name,
            host="here",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=interval_ms,
            max_poll_interval_ms=MAX_POLL_MS,
            metadata_max_age_ms=metadata_ms,
            assignors={assignor: ASSIGNORS[assignor] for assignor in assignors},
            is_eager=is_eager,
        )
        self.heartbeat = Actor(self, "heartbeat", self._do_round)
        self.keeper = Actor(self, "keeper", self._keep)
        self.app = Actor(self, "app", self._poll)
        self.actors = (self.heartbeat, self.app)
        self.membership = _Membership(
            settings,
            self.clock,
            notify=lambda: world.schedule(self.app, world.now),
            wake=lambda: world.schedule(self.heartbeat, world.now),
        )
        self.membership.name = name
        self.table = OffsetTable(self.cluster, GROUP)
        self.rounds = HeartbeatRounds(self.cluster, self.membership, self._take)
        self.commits = commits
        """Does the application process records and commit by itself?"""
        self.positions: dict[TopicPartition, int] = {}
        self.log: list[tuple[str, set[TopicPartition]]] = []
        """What the application was told: assigned, revoked, lost."""
        self.errors: list[Exception] = []
        """That the application was told, or met as it committed."""
        self.jobs: deque[Job] = deque()
        self.working: Sequence[Job] = ()
        self.releasing: tuple[set[TopicPartition], Job] | None = None
        self.is_dead = False
        self.is_polling = True
        self.awake_at = 0.0

    # What a test has it do.

    def subscribe(self, *topics: str) -> None:
        self.membership.subscribe(topics, None)

    def crash(self) -> None:
        """It dies, here and now."""
        self.is_dead = True

    def pause(self, duration_ms: float) -> None:
        """None of its threads runs for so long."""
        self.awake_at = max(self.awake_at, self.world.now + duration_ms)

    def commit(self, offsets: Mapping[TopicPartition, int], stamps: Mapping[TopicPartition, Stamp]) -> Exception | None:
        """Commit at once, under stamps from whenever; returns the refusal."""
        job = Job(_commit(offsets, stamps), self.clock.deadline_in(None))
        self.jobs.append(job)
        self.world.take_turn(self.keeper)
        return job.result if isinstance(job.result, Exception) else None

    # What it is.

    @property
    def wants_membership(self) -> bool:
        is_out = self.is_dead or self.membership.is_parked
        return not is_out and self.awake_at <= self.world.now

    def topics(self) -> set[str]:
        """Of the subscription, those that exist."""
        wanted = self.membership.wanted
        if wanted is None:
            return set()
        return set(wanted.topics & self.world.topics.keys())

    def handed(self) -> set[TopicPartition]:
        """What the application has."""
        return {p for p, held in self.membership.reconciliation.held.items() if held.is_handed}

    def stamps(self) -> dict[TopicPartition, Stamp]:
        return {p: held.stamp for p, held in self.membership.reconciliation.held.items()}

    def could_hold(self) -> bool:
        """Is it alive, with others having seen so within its session?"""
        if self.is_dead or not self.membership.member_id:
            return False
        silent_ms = self.clock.ticks_ms() - self.membership.beat_ticks_ms
        return silent_ms <= self.membership.settings.session_timeout_ms and not self._is_replaced()

    def _is_replaced(self) -> bool:
        """Has the newest generation another consumer with its instance id? It will be told as soon as it looks."""
        if self.instance_id is None:
            return False
        holder = next((i for i, instance in self.world.members.items() if instance == self.instance_id), None)
        return holder is not None and holder != self.membership.member_id

    def told(self, kind: str) -> list[set[TopicPartition]]:
        return [found for what, found in self.log if what == kind]

    # Its threads.

    def _do_round(self) -> float:
        try:
            return self.rounds.run_round()
        except SparklogError as error:  # as in sparklog.groups.membership.heartbeat_thread
            if not error.retriable:
                self.membership.fail(error)
        return min(float(self.membership.settings.heartbeat_interval_ms), 1_000.0)

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        session_ms = self.membership.settings.session_timeout_ms
        self._submit(Job(TakePartitions(topic_ids=topic_ids, stamp=stamp), self.clock.deadline_in(session_ms), done))

    def _submit(self, job: Job) -> Job:
        self.jobs.append(job)
        self.world.schedule(self.keeper, self.world.now)
        return job

    def _keep(self) -> float:
        """As :mod:`sparklog.groups.offsets.commit_thread`: all that waits, in one commit."""
        while self.jobs:
            jobs = [*self.jobs]
            self.jobs.clear()
            now = self.clock.ticks_ms()
            for job in [job for job in jobs if now > job.deadline.ticks_ms]:
                jobs.remove(job)
                self._finish(job, KafkaTimeoutError("too late"))
            if jobs:
                self._carry_out(jobs)
        return INFINITE

    def _carry_out(self, jobs: Sequence[Job]) -> None:
        latest = max(job.deadline.ticks_ms for job in jobs)
        deadline = Deadline(self.clock, min(latest, self.clock.ticks_ms() + 60_000))
        self.working = jobs
        try:
            with self.cluster.store.patience(Patience(deadline=deadline)):
                changed = self.table.change([job.change for job in jobs], deadline=deadline)
        except SparklogError as error:
            for job in jobs:
                self._finish(job, error)
        else:
            for job, refusal in zip(jobs, changed.errors, strict=True):
                self._finish(job, changed.rows if refusal is None else refusal)
        finally:
            self.working = ()

    def _finish(self, job: Job, result: Rows | Exception) -> None:
        job.result = result
        if isinstance(job.change, CommitOffsets) and isinstance(result, Exception):
            self.errors.append(result)
        if job.done is not None:
            job.done(result)
        self.world.schedule(self.app, self.world.now)

    def _poll(self) -> float:
        """One call of ``poll``, as :class:`sparklog.consumer.coordinator.Coordinator` has it."""
        if not self.is_polling:  # busy with what it has
            if self.commits:
                self._process()
            return POLL_MS
        membership = self.membership
        lost = membership.take_lost()
        self._forget("lost", lost)
        if self.releasing is not None:
            gone, job = self.releasing
            if job.result is None:
                return POLL_MS
            self.releasing = None
            self._forget("revoked", gone - lost)
            membership.released(gone)
        membership.polled()
        try:
            membership.raise_error()
        except Exception as error:
            self.errors.append(error)
        membership.next_missing()
        to_release = membership.to_release()
        if to_release:
            job = self._submit_commit(to_release)
            self.releasing = (to_release, job)
            return 0.0 if job.result is not None else POLL_MS
        added = membership.hand_over()
        if added:
            self.log.append(("assigned", {*added}))
            self.positions.update({p: row.committed.offset if row.committed else 0 for p, row in added.items()})
        if self.commits:
            self._process()
        return POLL_MS

    def _process(self) -> None:
        draw = self.world.random
        for partition in sorted(self.positions):
            self.positions[partition] += draw.randint(0, 2)
        if not self.jobs and self.positions and draw.random() < 0.2:
            self._submit_commit()

    def _submit_commit(self, wanted: Iterable[TopicPartition] | None = None) -> Job:
        stamps = self.membership.stamps(sorted(self.positions if wanted is None else wanted))
        job = Job(
            _commit({p: self.positions[p] for p in stamps if p in self.positions}, stamps), self.clock.deadline_in(None)
        )
        if not self.commits or not stamps:
            job.result = {}
            return job
        return self._submit(job)

    def _forget(self, kind: str, gone: set[TopicPartition]) -> None:
        if gone:
            self.log.append((kind, gone))
        for partition in gone:
            self.positions.pop(partition, None)


class _Membership(Membership):
    """One whose member ids are the same in each run."""

    name = ""
    _stays = 0

    def new_member_id(self) -> str:
        self._stays += 1
        return f"{self.name}-{self._stays}"

    @property
    def beat_ticks_ms(self) -> float:
        return self._beat_ticks_ms


class _PlayerClock(Clock):
    """The clock of all processes, in simulated time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return T0_MS + int(self._world.now)

    def ticks_ms(self) -> float:
        return self._world.now

    def sleep_ms(self, duration_ms: float) -> None:
        self._world.stall(max(0.0, duration_ms))


class _HistoryStore(MemoryStore):
    """Shows the world each version of the offset table."""

    def __init__(self, world: World) -> None:
        super().__init__(clock=world.clock)
        self._world = world

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        result = super().create(path, data, sync=sync)
        if result is CreateResult.CREATED and path.startswith(_OFFSETS):
            self._world.saw_version(data)
        elif result is CreateResult.CREATED and path.startswith(_GENERATIONS):
            self._world.saw_generation(int(path[len(_GENERATIONS) : -5]), data)
        return result


def _commit(offsets: Mapping[TopicPartition, int], stamps: Mapping[TopicPartition, Stamp]) -> CommitOffsets:
    found = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    return CommitOffsets(offsets=found, stamps=stamps, topic_ids={})
