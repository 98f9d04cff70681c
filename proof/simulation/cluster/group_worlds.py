"""Worlds of one consumer group: members join, leave, die, sleep, hang and subscribe to other topics far more often than
in other worlds, and commit positions without reading records. They have seeds of their own, so all other worlds are as
they would be without these."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa

from proof.simulation.cluster import watching
from proof.simulation.cluster.foreign import try_commit_as_another
from proof.simulation.cluster.shape import LOG_RETENTION_MS, JobPlan, Shape, TopicPlan, about_one_thing
from proof.simulation.cluster.sharing import SHARING_SEEDS
from proof.simulation.cluster.weather import Forecast, Weather
from proof.simulation.cluster.world import Process
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import FencedInstanceIdError, SparklogError
from sparklog.groups.offsets import offset_commit, offset_state
from sparklog.groups.offsets.rows import OffsetRow, Rows
from sparklog.log import Cluster, sequence_topic
from sparklog.model import TopicPartition
from tests.support import foreign_file

if TYPE_CHECKING:
    from proof.simulation.cluster.life import Life

__all__ = [
    "BUSY_SEEDS",
    "GROUP",
    "GROUP_SEEDS",
    "TROUBLED_MS",
    "cheap_rows",
    "draw_group_world",
    "fill_topics",
    "has_busy_members",
    "is_group_world",
    "member",
    "plan_trouble",
]

GROUP_SEEDS = 10**12
"""The first seed of these worlds; all from there to the worlds of :mod:`~proof.simulation.cluster.sharing` are."""
BUSY_SEEDS = GROUP_SEEDS + 10**11
"""The first seed of group worlds whose members are busy mostly: they commit again and again between two polls, for so
long that one that slept loses its partitions and takes them again without its application's knowledge."""
GROUP = "members"
TROUBLED_MS = 45_000.0
_TOPICS = {"t": 4, "u": 2}
"""How many partitions each has to begin with."""
_MAX_POLL_MS = 30_000
_MAX_BUSY_MS = 120_000
_CALM_REST_MS = 2_500.0
"""The longest rest of an application between two polls in a calm: a group settles only where its members poll."""
_OFFSETS = f"groups/{GROUP}/offsets"
_END = 1_000_000
"""Offsets that the topics have: no member commits as many."""


def is_group_world(seed: int) -> bool:
    """Is this seed's world one of these?"""
    return GROUP_SEEDS <= seed < SHARING_SEEDS


def has_busy_members(seed: int) -> bool:
    """Is this seed's group world one whose members are busy mostly?"""
    return BUSY_SEEDS <= seed < SHARING_SEEDS


def draw_group_world(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """Two to five members, of which some have an instance id, perhaps one id for two of them."""
    draw = random.Random(f"group {seed}")
    configs: dict[str, object] = {"retention.ms": -1, "log.retention.ms": LOG_RETENTION_MS}
    topics = tuple(TopicPlan(name=name, partitions=count, configs=configs) for name, count in _TOPICS.items())
    instances = [None, "i0", "i1"] if draw.random() < 0.4 else [None]
    is_busy = has_busy_members(seed)
    jobs = [
        JobPlan(
            name=f"member{number}",
            role="member",
            steps=10_000,
            settings={"instance": draw.choice(instances), "is_busy": is_busy},
        )
        for number in range(draw.randint(2, 5))
    ]
    if draw.random() < 0.3:
        jobs.append(JobPlan(name="administer0", role="administer", steps=2))
    trouble = replace(
        expected.calmed(),
        latency_ms=draw.choice([3.0, 10.0]),
        slow=draw.choice([0.0, 0.02]),
        crash=0.0006,
        lost_answer=draw.choice([0.0, 0.004]),
        lost_request=draw.choice([0.0, 0.004]),
        nap=draw.choice([0.0006, 0.002]),
        outages=draw.choice([0.0, 0.05]),
    )
    return about_one_thing(shape, topics, jobs, kills=0.01), trouble


def fill_topics(cluster: Cluster) -> None:
    """Give every partition an end so far ahead that all positions lie within its log."""
    for name, count in _TOPICS.items():
        log = cluster.topic_log(name)
        columns = {"value": pa.array([b"", b""]), "offset_delta": pa.array([0, _END], pa.int64())}
        for partition in range(count):
            try_commit_as_another(log, foreign_file(log, pa.table(columns), partition=partition))
        sequence_topic(log)


def plan_trouble(weather: Weather, process: Process, draw: random.Random, *, session_timeout_ms: float) -> None:
    """Let a member sleep, in a take or a commit mostly, until others have taken its partitions."""
    if draw.random() < 0.25:
        place = draw.choice([_OFFSETS, _OFFSETS, f"groups/{GROUP}/"])
        asleep_ms = session_timeout_ms * draw.uniform(1.2, 4)
        weather.plan(process, "nap", asleep_ms, after=draw.choice([0, 0, 1]), place=place)


@contextmanager
def cheap_rows() -> Iterator[None]:
    """Within: offset files hold but a number, for which the rows are remembered. Parquet takes a fifth of the time."""
    known: dict[bytes, Rows] = {}

    def encode_rows(rows: Rows) -> bytes:
        number = b"%d" % len(known)
        known[number] = dict(rows)
        return number

    def decode_rows(path: str, data: bytes) -> dict[TopicPartition, OffsetRow]:
        return dict(known[data])

    with (
        mock.patch.object(offset_commit, "encode_rows", encode_rows),
        mock.patch.object(offset_state, "decode_rows", decode_rows),
        mock.patch.object(watching, "decode_rows", decode_rows),
    ):
        yield


class _Listener(ConsumerRebalanceListener):
    """Commits what is taken away, as applications do. What is assigned is paused: its positions are all that counts."""

    def __init__(self, life: Life, consumer: Consumer) -> None:
        self._life = life
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.pause(*partitions)

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._life.attempt("commit of what was revoked", self._consumer.commit)

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        pass


def member(life: Life) -> None:
    """Poll, move positions and commit them; now and then subscribe to something else, hang, or leave."""
    draw, weather = life.draw, life.play.weather
    consumer = _consumer(life)
    has_pattern = draw.random() < 0.1
    _subscribe(life, consumer, has_pattern=has_pattern)
    try:
        while life.goes_on():
            luck = 1.0 if weather.is_calm else draw.random()
            if luck < 0.01:
                break
            if luck < 0.04:
                _subscribe(life, consumer, has_pattern=has_pattern)
            elif luck < 0.045:
                life.rest(_MAX_POLL_MS * 1.3)
            _poll_and_commit(life, consumer)
            life.rest(draw.uniform(0, _CALM_REST_MS if weather.is_calm else 1_000))
    except FencedInstanceIdError:
        life.world.counts["fenced members"] += 1
    life.attempt("close", lambda: consumer.close(draw.choice([0, 10_000])))


def _consumer(life: Life) -> Consumer:
    session_ms = life.play.session_timeout_ms
    consumer = Consumer(
        cluster=life.cluster,
        group_id=GROUP,
        group_instance_id=life.settings["instance"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 3,
        max_poll_interval_ms=_MAX_BUSY_MS if life.settings["is_busy"] else _MAX_POLL_MS,
        default_api_timeout_ms=life.draw.choice([5_000, 60_000, 60_000]),
        partition_assignment_strategy=life.play.strategy,
        retry_backoff_ms=100,
    )
    life.keep(consumer)
    return consumer


def _subscribe(life: Life, consumer: Consumer, *, has_pattern: bool) -> None:
    listener, topics = _Listener(life, consumer), life.draw.choice([["t"], ["t", "u"], ["t"], ["u"]])
    if has_pattern:
        consumer.subscribe(pattern="|".join(topics), listener=listener)
    else:
        consumer.subscribe(topics, listener=listener)


def _poll_and_commit(life: Life, consumer: Consumer) -> None:
    """Raises ``FencedInstanceIdError``; other errors may come of trouble."""
    try:
        consumer.poll(0)
        luck = life.draw.random()
        processes, moves = (0.4, 0.8) if life.settings["is_busy"] else (0.2, 0.5)
        if luck < processes:
            _process(life, consumer)
        elif luck < moves:  # takes and commits that wait at the same time are one version
            _move(life, consumer)
            consumer.commit_async()
    except FencedInstanceIdError:
        raise
    except SparklogError as error:
        life.check("poll", error)


def _process(life: Life, consumer: Consumer) -> None:
    """Move the positions and commit them; now and then again and again without a poll, as who is busy does."""
    draw, weather = life.draw, life.play.weather
    is_often_busy = life.settings["is_busy"]
    is_busy = not weather.is_calm and draw.random() < (0.8 if is_often_busy else 0.1)
    for _ in range((16 if is_often_busy else 8) if is_busy else 1):
        if is_busy and weather.is_calm:
            break
        _move(life, consumer)
        rest_ms = draw.expovariate(1 / (4_000.0 if is_busy else draw.choice([5.0, 200.0, 4_000.0])))
        life.rest(min(rest_ms, _CALM_REST_MS) if weather.is_calm else rest_ms)
        try:
            consumer.commit()
        except FencedInstanceIdError:
            raise
        except SparklogError as error:
            life.check("commit", error)


def _move(life: Life, consumer: Consumer) -> None:
    """As if records had been read."""
    for partition in sorted(consumer.assignment()):
        if partition.partition < _TOPICS[partition.topic]:  # those that came later hold nothing
            position = consumer.position(partition)  # others may draw meanwhile
            steps = life.draw.choice([0, 1, 50]) if life.settings["is_busy"] else life.draw.randint(0, 2)
            consumer.seek(partition, position + steps)
