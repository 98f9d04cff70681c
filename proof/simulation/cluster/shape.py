"""What a seed's world is like: its topics, who acts in it and how much of it there is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

__all__ = ["JobPlan", "Shape", "TopicPlan", "about_one_thing", "draw_shape"]

LOG_RETENTION_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic, and what is promised of it."""

    name: str
    partitions: int
    configs: dict[str, object]
    is_compacted: bool = False
    is_recreated: bool = False
    """Somebody deletes it, and creates it again: nothing is promised of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a process does, life after life."""

    name: str
    role: str
    steps: int
    settings: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A world."""

    topics: tuple[TopicPlan, ...]
    jobs: tuple[JobPlan, ...]
    checkpoints: bool
    """Is the log checkpointed and cleaned? It costs a lot."""
    kills: float
    """How likely a process is killed between two of its calls, with each look of whoever restarts them."""
    deletes_soon: bool
    """Do data files go a day after they were removed, within a night?"""
    takes_over: bool
    """Is it about members that sleep for so long that others take their partitions over, and then go on?"""
    ages: bool
    """Weeks pass after the end, and all is swept, before everything is read."""


def about_one_thing(shape: Shape, topics: Sequence[TopicPlan], jobs: Sequence[JobPlan], *, kills: float) -> Shape:
    """A world with these topics and jobs alone, whose logs aren't cleaned."""
    return replace(
        shape,
        topics=tuple(topics),
        jobs=tuple(jobs),
        checkpoints=False,
        kills=kills,
        deletes_soon=False,
        takes_over=False,
        ages=False,
    )


def draw_shape(draw: random.Random, *, has_nights: bool) -> Shape:
    """Few actors mostly, and of each kind in some worlds only.

    Args:
        has_nights: processes sleep for days, after which they find what was cleaned up meanwhile.
    """
    topics = _topics(draw)
    names = [topic.name for topic in topics if not topic.is_recreated]
    jobs: list[JobPlan] = []

    def add(role: str, steps: int, **settings: object) -> None:
        steps *= 2 if has_nights else 1
        number = sum(1 for job in jobs if job.role == role)
        jobs.append(JobPlan(name=f"{role}{number}", role=role, steps=steps, settings=settings))

    takes_over = not has_nights and draw.random() < 0.08
    kinds = draw.sample(["produce", "transact", "loop", "foreign"], draw.choice([1, 1, 1, 1, 2, 2]))
    kinds = ["loop"] if takes_over else kinds
    if "produce" in kinds or "loop" in kinds:
        is_slow = takes_over or draw.random() < (
            0.4 if "loop" in kinds else 0.1
        )  # so that members come and go meanwhile
        for _ in range(draw.choice([1, 1, 2])):
            add("produce", draw.randint(2, 5) + 4 * is_slow, is_slow=is_slow)
    if "transact" in kinds:
        for _ in range(draw.choice([1, 1, 2])):
            add("transact", draw.randint(2, 4), id=draw.choice(["x", "x", "y"]))
    if "loop" in kinds:
        for _ in range(2 if takes_over else draw.choice([1, 2, 2])):
            add(
                "loop",
                draw.randint(3, 6) + 4 * takes_over,
                id="own" if takes_over else draw.choice(["own", "own", "l"]),
            )
    if "foreign" in kinds:
        add("foreign", draw.randint(1, 3))
    if not any(job.role in ("produce", "transact", "foreign") for job in jobs):
        add("produce", draw.randint(2, 6))
    if draw.random() < 0.25:
        add("follow", draw.randint(3, 6))
    if draw.random() < 0.3 and not takes_over:
        auto = draw.random() < 0.3
        for _ in range(draw.choice([1, 2, 2, 3])):
            add("consume", draw.randint(3, 6), auto=auto)
    checkpoints = draw.random() < (0.6 if has_nights else 0.04)
    if draw.random() < (0.8 if checkpoints else 0.3):
        add("maintain", draw.randint(2, 5) + 3 * checkpoints)
    if draw.random() < 0.2:
        add("administer", draw.randint(1, 3))
    if draw.random() < 0.4 and any(job.role in ("transact", "loop") for job in jobs):
        add("recover", draw.randint(1, 4))
    assert names
    return Shape(
        topics=tuple(topics),
        jobs=tuple(jobs),
        checkpoints=checkpoints,
        deletes_soon=has_nights and draw.random() < 0.8,
        takes_over=takes_over,
        kills=draw.choice([0.0, 0.0, 0.01, 0.05]),
        ages=draw.random() < (0.06 if checkpoints else 0.012),
    )


def _topics(draw: random.Random) -> list[TopicPlan]:
    log = {"log.retention.ms": LOG_RETENTION_MS}
    topics = [TopicPlan(name="a", partitions=draw.choice([1, 1, 2, 3]), configs={"retention.ms": -1, **log})]
    if draw.random() < 0.5:
        topics.append(TopicPlan(name="b", partitions=draw.choice([1, 2]), configs={"retention.ms": -1, **log}))
    if draw.random() < 0.25:
        configs: dict[str, object] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, **log}
        topics.append(TopicPlan(name="c", partitions=1, configs=configs, is_compacted=True))
    if draw.random() < 0.15:
        configs = {"retention.ms": draw.choice([1_000, 60_000, 3_600_000]), **log}
        topics.append(TopicPlan(name="r", partitions=1, configs=configs))
    if draw.random() < 0.15:
        topics.append(TopicPlan(name="d", partitions=1, configs={"retention.ms": -1, **log}, is_recreated=True))
    return topics
