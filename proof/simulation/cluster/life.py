"""A job that outlives its processes, and one of these: what every role works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proof.simulation.cluster.shape import JobPlan
from proof.simulation.cluster.world import HOUR_MS
from sparklog.errors import (
    CommitFailedError,
    ConcurrentTransactionsError,
    InvalidPartitionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    SparklogError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)

if TYPE_CHECKING:
    from proof.simulation.cluster.play import Play

__all__ = ["Job", "Life"]

_MOST_LIVES = 5
_SKEWS_MS = (0.0, 500.0, -500.0, 60_000.0, -60_000.0, 1_200_000.0, 10 * HOUR_MS, -10 * HOUR_MS)
"""How wrong wall clocks are when they begin: two differ by less than a day; those that drift may come to more."""
_EXCUSED = (
    CommitFailedError,
    ConcurrentTransactionsError,
    InvalidPartitionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
"""Errors that trouble excuses, all but one of them met within 3,000 seeds; any other is a defect."""
_TROUBLES = (KafkaTimeoutError, StoreOutcomeUnknownError, StoreUnavailableError, UnstableOffsetCommitError)
"""Of those, what nothing but trouble excuses: where there is none these are defects, too."""


class Job:
    """Work that one process after the other takes up."""

    def __init__(self, plan: JobPlan) -> None:
        self.plan = plan
        self.name = plan.name
        self.left = plan.steps
        self.lives: list[Life] = []
        self.values = 0

    @property
    def is_done(self) -> bool:
        return self.left <= 0 or len(self.lives) > _MOST_LIVES


class Life:
    """A process that does a job."""

    def __init__(self, play: Play, job: Job) -> None:
        world = play.world
        draw = world.random
        expected = play.weather.expected
        skew_ms = draw.choice(_SKEWS_MS) if expected.skews else 0.0
        rate = draw.choice([1.0, 0.9, 1.1, 0.99]) if expected.drifts else 1.0
        self.play = play
        self.world = world
        self.job = job
        self.draw = draw
        self.settings = job.plan.settings
        self.name = f"{job.name}.{len(job.lives) + 1}"
        self.process = world.process(self.name, skew_ms=skew_ms, rate=rate)
        self.cluster = play.cluster(self.process)
        self.recorder = play.recorder
        self.is_over = False
        self.rests_until = 0.0
        """Until then it does nothing, by its own will: in a night it may be days."""
        self._clients = 0
        job.lives.append(self)

    def goes_on(self, *, counts: bool = True) -> bool:
        """Is there something left to do? Then that is one less."""
        if self.play.is_over or self.job.left <= 0:
            return False
        if self.play.operator is not None and self.play.operator.ends(self):
            return False
        self.job.left -= counts
        return True

    def keep(self, client: Any) -> Any:
        """A client of this process, which is let go when the world has ended."""
        self.process.kept.append(client)
        return client

    def client_name(self, what: str) -> str:
        """No other client has it."""
        self._clients += 1
        return f"{self.name}/{what}{self._clients}"

    def value(self) -> str:
        """Of a record: no other has it."""
        self.job.values += 1
        return f"{self.job.name}:{self.job.values}"

    def rest(self, duration_ms: float) -> None:
        """Do nothing for so long."""
        self.rests_until = self.world.now + duration_ms
        self.world.pause(duration_ms)

    def gap(self) -> None:
        """Between two steps: short mostly; in a night there is time."""
        night_ms = self.play.weather.night_until - self.world.now
        if night_ms > 0 and not self.play.is_over and self.draw.random() < 0.6:
            self.rest(self.draw.uniform(0, night_ms / 2))
        elif self.play.operator is not None:
            self.rest(self.play.operator.idle_ms(self.draw))
        else:
            self.rest(self.draw.expovariate(1 / self.draw.choice([5.0, 200.0, 2_000.0])))

    def check(self, what: str, error: SparklogError) -> None:
        """An error that came of a call: may it come?"""
        self.world.note("error", f"{what}: {type(error).__name__}: {error}")
        self.world.counts[f"error {type(error).__name__}"] += 1
        if self.play.operator is not None and self.play.operator.tell(self, error):
            return
        if not isinstance(error, _EXCUSED) or (self.play.is_fair and isinstance(error, _TROUBLES)):
            self.play.violate(f"{self.name}: {what}: {type(error).__name__}: {error}")

    def attempt(self, what: str, act: Callable[[], object]) -> bool:
        """Do it; False if an error came of it."""
        try:
            act()
        except SparklogError as error:
            self.check(what, error)
            return False
        return True
