"""The processes of a world of workers: each lives until it is killed, dies in a call, or stops by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from proof.simulation.workers.inputs import DELAYED
from sparklog.compaction import OptimizePolicy, Step, maintain
from sparklog.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from sparklog.processing import App, Fixed, Record, Retry, Send, State, inbox
from sparklog.processing.dead_letters import REPLAYED, Found, replay
from sparklog.processing.delayed import DelayedError, DelayMover, MoverTakenOverError
from sparklog.processing.message_ids import message_id
from sparklog.processing.moves import origin_of
from sparklog.processing.work import Limits
from sparklog.testing import SimulatedCrash

if TYPE_CHECKING:
    from proof.simulation.workers.play import Play

__all__ = ["ATTEMPT", "EFFECTS", "FROM", "GROUP", "ROLES", "Life", "replay_some"]

GROUP = "g"
EFFECTS = sa.Table("effects", sa.MetaData(), sa.Column("message", sa.String))
"""What handlers do in the application's database: a row for each message."""
FROM, ATTEMPT = "from", "attempt"
_SMALL = OptimizePolicy(target_bytes=20_000, min_files=2, growth=1.1)
_LOOK_MS = 500.0
_EXCUSED = (
    CommitFailedError,
    CommitStateUnknownError,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    MoverTakenOverError,
    StoreError,
    TransactionAbortableError,
    UnstableOffsetCommitError,
)
"""Errors that a process may end with in troubled times."""


class _ExpectedError(Exception):
    """A handler fails, as its record's kind says."""


class Life:
    """A process of a role."""

    def __init__(self, play: Play, role: str, number: int) -> None:
        self.play, self.role = play, role
        self.world = play.world
        self.draw = play.world.random
        self.process = play.world.process(f"{role}.{number}")
        self.cluster = play.cluster(self.process)
        self.is_asked_to_stop = False

    @property
    def goes_on(self) -> bool:
        """Is it not to stop?"""
        return not self.is_asked_to_stop

    def rest(self, duration_ms: float) -> None:
        """Do nothing for so long."""
        self.world.pause(duration_ms)

    def may_die(self) -> None:
        """A point between two calls of the store where it may be killed."""
        if not self.play.weather.is_calm and self.draw.random() < self.play.deaths:
            self.world.counts["deaths in a handler"] += 1
            self.process.die()
            raise SimulatedCrash(f"{self.process.name} is killed in a handler")

    def live(self) -> None:
        """All of its life."""
        try:
            ROLES[self.role](self)
        except SparklogError as error:
            self.check(error)
        self.process.die()  # so do its threads

    def check(self, error: SparklogError) -> None:
        """An error that it met: may it come?"""
        self.world.counts[f"error {type(error).__name__}"] += 1
        if not isinstance(error, _EXCUSED):
            self.play.violate(f"{self.process.name}: {type(error).__name__}: {error}")


def work(life: Life) -> None:
    """A worker of the group, until it is stopped or ends by an error."""
    draw = life.draw
    app = App(
        life.cluster,
        group_id=GROUP,
        transactional_id=draw.choice([None, f"worker-{life.process.name.split('.')[0]}"]),
        commit_interval_ms=draw.choice([20, 100, 1_000]),
        drain_timeout_s=draw.choice([0, 1, 30]),
        patience_s=draw.choice([5, 120]),
        limits=Limits(records=draw.choice([3, 10_000])),
        consumer={"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000, "retry_backoff_ms": 100},
        producer={"transaction_timeout_ms": draw.choice([10_000, 60_000])},
    )
    _register(app, life)
    app.start()
    while life.goes_on and app.health().state is not State.FAILED:
        life.rest(_LOOK_MS)
    app.stop()


def _register(app: App, life: Life) -> None:
    """The handlers: of one topic with delay topics, of another with retries in place."""
    concurrency = life.draw.choice([1, 3])
    delayed = Retry(attempts=3, backoff=Fixed(2), topics=True)
    in_place = Retry(attempts=3, backoff=Fixed(0.3))

    @app.subscriber("in", retry=delayed, dead_letter=True, order_by="key", concurrency=concurrency)
    def handle(record: Record[bytes]) -> list[Send]:
        return _handled(life, record)

    @app.subscriber("seq", retry=in_place, dead_letter=True, order_by="key", concurrency=concurrency)
    def handle_in_order(record: Record[bytes]) -> list[Send]:
        return _handled(life, record)


def _handled(life: Life, record: Record[bytes]) -> list[Send]:
    """Have the effect of a record, once for its message; return its output."""
    life.rest(life.draw.choice([0.0, 0.0, 5.0, 40.0]))
    number, kind = record.value.decode().split(":")
    is_replayed = any(name == REPLAYED + "offset" for name, _ in record.headers)
    with life.play.engine.begin() as connection:  # nothing waits in here: it is one real database
        life.may_die()
        if inbox.check_and_record(connection, record):
            life.may_die()
            connection.execute(sa.insert(EFFECTS).values(message=message_id(record)))
            life.may_die()
        is_mended = is_replayed or (kind == "flaky" and record.attempt > 1)
        if kind == "hopeless" or (kind in ("bad", "flaky") and not is_mended):
            raise _ExpectedError(kind)
    life.may_die()
    origin = origin_of(record.raw, is_delayed=record.topic not in ("in", "seq"))
    at = f"{origin.topic}-{origin.partition}-{origin.offset}"
    headers = [(FROM, at.encode()), (ATTEMPT, b"%d" % record.attempt)]
    outputs = [Send(f"{origin.topic}-out", number, key=record.key, headers=headers)]
    if kind == "refused" and not is_replayed:
        outputs.insert(int(number) % 2, life.play.refused(int(number), record.key))
    return outputs


def move(life: Life) -> None:
    """The mover of delayed records."""
    mover = DelayMover(
        life.cluster, DELAYED, batch_size=life.draw.choice([1, 3, 1_000]), max_outage_s=life.draw.choice([5, 300])
    )
    try:
        while life.goes_on:
            _move_once(life, mover)
            life.rest(1_000)
    finally:
        mover.close()


def _move_once(life: Life, mover: DelayMover) -> None:
    before = life.play.topic_life
    try:
        mover.run_once()
    except (DelayedError, UnknownTopicOrPartitionError):
        if not life.play.was_without_topic(before):
            raise
    if mover.stopped:
        life.play.violate(f"{life.process.name}: a partition stands still: {mover.stopped}")


def replay_letters(life: Life) -> None:
    """An operator who replays any letters, again and again."""
    while life.goes_on:
        life.rest(life.draw.expovariate(1 / 2_500))
        replay_some(life)


def replay_some(life: Life, *, all_but: str = "") -> int:
    """Replay a selection of letters. Returns how many.

    Args:
        all_but: all of them but those of this kind, in place of any.
    """
    draw = life.draw
    chance = draw.choice([0.3, 0.5, 0.9])

    def wanted(found: list[Found]) -> list[Found]:
        if all_but:
            return [each for each in found if not each.record.value.decode().endswith(all_but)]
        return [each for each in found if draw.random() < chance]

    most = None if all_but else draw.choice([None, 1, 3])
    done = replay(life.cluster, "dlq.in", wanted=wanted, most=most, execute=True)
    life.world.counts["replayed"] += len(done.found)
    return len(done.found)


def tend(life: Life) -> None:
    """Maintenance, whole or in part, again and again."""
    while life.goes_on:
        life.rest(life.draw.expovariate(1 / 4_000))
        steps = life.draw.sample(sorted(Step), life.draw.randint(1, len(Step)))
        before = life.play.topic_life
        report = maintain(life.cluster, steps=steps, policy=_SMALL, full=life.draw.random() < 0.5)
        life.world.counts["maintenances"] += 1
        for topic in report.topics:
            life.world.counts["retentions"] += topic.retention is not None and topic.retention.removed_files > 0
            for error in topic.errors.values():
                if not (life.play.was_without_topic(before) and isinstance(error, UnknownTopicOrPartitionError)):
                    life.check(error)


ROLES: Mapping[str, Callable[[Life], Any]] = {
    "work0": work,
    "work1": work,
    "move0": move,
    "move1": move,
    "replay": replay_letters,
    "maintain": tend,
}
