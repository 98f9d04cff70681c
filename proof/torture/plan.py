"""What a seed's round is like: its topics, who works in it, and what is done to them and when. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "APP_ROLES",
    "APP_TOPICS",
    "COMPACTED",
    "GROUPS",
    "LOOP_GROUP",
    "LOOP_INPUT",
    "READ_GROUP",
    "SESSION_MS",
    "TOPICS",
    "TRANSACTION_TIMEOUT_MS",
    "WIRE_GROUP",
    "Act",
    "Job",
    "Plan",
    "Planted",
    "Role",
    "Topic",
    "Torment",
    "draw_plan",
]

SESSION_MS = 2_000
TRANSACTION_TIMEOUT_MS = 1_500
LOOP_INPUT = "in"
LOOP_GROUP, READ_GROUP, WIRE_GROUP = "loop", "read", "wire"
GROUPS = (LOOP_GROUP, READ_GROUP)
_NAPS_MS = (300, 2_500, 3_500, 5_000)
"""How long somebody sleeps: all but the first are longer than a session and a transaction's time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of every round."""

    name: str
    partitions: int
    configs: Mapping[str, Any]


TOPICS = (
    Topic(name="in", partitions=3, configs={"retention.ms": -1}),
    Topic(name="out", partitions=2, configs={"retention.ms": -1}),
    Topic(
        name="latest",
        partitions=2,
        configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 1_000},
    ),
    Topic(name="brief", partitions=1, configs={"retention.ms": 3_000}),
)
COMPACTED = ("latest",)
APP_TOPICS = tuple(
    Topic(name=name, partitions=partitions, configs={"retention.ms": -1, **configs})
    for name, partitions, configs in (
        ("jobs", 3, {}),
        ("done", 2, {}),
        ("dlq.jobs", 2, {}),
        ("orders", 2, {}),
        ("later", 2, {"delay": True}),
        ("tasks", 2, {}),
    )
)
"""The applications', where there are any: a worker's inputs, outputs and dead letters, what a relay sends, what a mover
delivers, and what a share group shares with that. Delay topics are made by those who need them."""


class Role(str, Enum):
    """What a process does."""

    PRODUCE = "produce"
    TRANSACT = "transact"
    LOOP = "loop"
    READ = "read"
    MAINTAIN = "maintain"
    GATEWAY = "gateway"
    WIRE_PRODUCE = "wire-produce"
    """By Kafka's client, through gateways, as the next two."""
    WIRE_TRANSACT = "wire-transact"
    WIRE_READ = "wire-read"
    FEED = "feed"
    """The applications' producer, as the next six are theirs."""
    WORK = "work"
    WRITE = "write"
    """Rows of an outbox."""
    RELAY = "relay"
    MOVE = "move"
    SHARE = "share"


APP_ROLES = {Role.FEED: 1, Role.WORK: 2, Role.WRITE: 1, Role.RELAY: 1, Role.MOVE: 1, Role.SHARE: 2}
"""How many processes of applications there are, where there are any."""


_LOTS = {Role.LOOP: 3, Role.TRANSACT: 3, Role.GATEWAY: 3, Role.WIRE_TRANSACT: 2}
_LOTS |= {Role.WORK: 3, Role.RELAY: 8, Role.MOVE: 8, Role.SHARE: 2}
"""How often a role's process is drawn, where others are once."""


class Planted(str, Enum):
    """Faults that the workers have when they are told to, for tests that the check finds them."""

    EARLY_ACKNOWLEDGEMENT = "early-acknowledgement"
    """The commit of a transaction is reported before it is asked for."""
    LOOSE_OFFSETS = "loose-offsets"
    """The offsets of a loop are committed beside the transaction, before it."""
    RESET = "reset"
    """A reader begins at the end whatever its group has committed."""
    LOOSE_ROWS = "loose-rows"
    """A relay sends rows outside of a transaction, and deletes them afterwards."""
    SELF_KILL = "self-kill"
    """No fault by itself: a worker with another one kills itself at times at the moment at which that one shows. So a
    short round needs no luck."""


class Act(str, Enum):
    """What is done to a job's process."""

    KILL = "kill"
    """SIGKILL; another life begins at once."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT after a while; nobody stands in."""
    REPLACE = "replace"
    """SIGSTOP; another life begins at once, with the same transactional id, and meets the first when it wakes up."""
    LEAVE = "leave"
    """SIGTERM: the process closes what it has; another life begins."""
    KILL_ALL = "kill-all"
    """SIGKILL of all at once."""
    KILL_SERVER = "kill-server"
    """SIGKILL of the S3 server, which comes back after a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done by one process at a time, life after life; or by two, while one is replaced."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Torment:
    """One act."""

    at_ms: float
    """After the beginning."""
    act: Act
    job: str
    """The victim; empty where there is none in particular."""
    lasts_ms: float = 0
    """A nap, or how long the server is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A round."""

    seed: int
    jobs: Sequence[Job]
    torments: Sequence[Torment]
    """By time."""
    span_ms: float
    """How long it goes on at least."""
    planted: Collection[Planted] = ()
    topics: Sequence[Topic] = field(default=TOPICS)
    is_sharing: bool = False
    """Do the producers share one topic, with group commit on from the beginning?"""
    gateways: int = 0
    """So many gateways, and Kafka's clients of them."""
    has_apps: bool = False
    """Are there applications: a worker, a relay, a mover, a share group, and who feeds them?"""

    @property
    def groups(self) -> Sequence[str]:
        return (*GROUPS, WIRE_GROUP) if self.gateways else GROUPS


def draw_plan(
    seed: int,
    *,
    span_ms: float,
    is_small: bool,
    has_server: bool,
    planted: Collection[Planted] = (),
    sharing: int = 0,
    gateways: int = 0,
    has_apps: bool = False,
) -> Plan:
    """The round of a seed.

    Args:
        span_ms: how long it goes on at least.
        is_small: fewer processes, and less often tormented, for a slow store.
        has_server: there is a server that can be killed.
        sharing: so many producers share one topic; 0: a few write to several.
        gateways: so many, with clients that go through them, beside fewer that don't.
        has_apps: there are applications, beside one client of each kind.
    """
    draw = random.Random(f"torture {seed}")
    numbers = {
        Role.PRODUCE: sharing or (1 if is_small else 2),
        Role.TRANSACT: 1,
        Role.LOOP: 2,
        Role.READ: 1 if is_small else 2,
    }
    if gateways:
        numbers |= {Role.PRODUCE: sharing or 1, Role.LOOP: 1, Role.READ: 1, Role.GATEWAY: gateways}
        numbers |= {Role.WIRE_PRODUCE: 1 if is_small else 2, Role.WIRE_TRANSACT: 1, Role.WIRE_READ: 2}
    if has_apps:
        numbers |= {Role.PRODUCE: sharing or 1, Role.LOOP: 1, Role.READ: 1, **APP_ROLES}
    jobs = [Job(name=f"{role.value}{n}", role=role) for role, count in numbers.items() for n in range(count)]
    jobs.append(Job(name="maintain0", role=Role.MAINTAIN))
    names = [job.name for job in jobs for _ in range(_LOTS.get(job.role, 1))]
    weights = {Act.KILL: 10, Act.STOP: 4, Act.REPLACE: 4, Act.LEAVE: 2, Act.KILL_ALL: 1}
    if has_server:
        weights[Act.KILL_SERVER] = 3
    torments = []
    at_ms = 1_500 + draw.expovariate(1 / 500)
    while at_ms < span_ms:
        [act] = draw.choices(list(weights), list(weights.values()))
        job = "" if act in (Act.KILL_ALL, Act.KILL_SERVER) else draw.choice(names)
        lasts_ms = 0.0
        if act in (Act.STOP, Act.REPLACE):
            lasts_ms = draw.choice(_NAPS_MS) * draw.uniform(1.0, 1.2)
        elif act is Act.KILL_SERVER:
            lasts_ms = draw.choice([0, 100, 1_000])
        torments.append(Torment(at_ms=at_ms, act=act, job=job, lasts_ms=lasts_ms))
        at_ms += draw.expovariate(1 / (700 if is_small else 400))
    return Plan(
        seed=seed,
        jobs=tuple(jobs),
        torments=tuple(torments),
        span_ms=span_ms,
        planted=planted,
        is_sharing=sharing > 0,
        gateways=gateways,
        has_apps=has_apps,
    )
