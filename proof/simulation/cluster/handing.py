"""Worlds about members that die, or sleep, right after the decision of their transaction: others take their partitions
over, and go on behind the offset that it commits."""

from __future__ import annotations

import random
from dataclasses import replace

from proof.simulation.cluster.shape import LOG_RETENTION_MS, JobPlan, Shape, TopicPlan, about_one_thing
from proof.simulation.cluster.weather import Forecast, Weather
from proof.simulation.cluster.world import Process

__all__ = ["draw_handing", "hands_over", "plan_trouble"]

_HANDING = 0.03
_OUTPUT_LOG = "topics/a/_delta_log"


def hands_over(seed: int) -> bool:
    """Is this seed's world one of these? Drawn apart: all other worlds are as they would be without these."""
    return random.Random(f"hands over {seed}").random() < _HANDING


def draw_handing(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """Two loops, each with an id of its own, share one input partition, and have one output partition."""
    draw = random.Random(f"handing over {seed}")
    configs: dict[str, object] = {"retention.ms": -1, "log.retention.ms": LOG_RETENTION_MS}
    topics = tuple(TopicPlan(name=name, partitions=1, configs=configs) for name in ("a", "b"))
    loops = [JobPlan(name=f"loop{n}", role="loop", steps=12, settings={"id": "own"}) for n in range(2)]
    jobs = [JobPlan(name="produce0", role="produce", steps=12, settings={"is_slow": True}), *loops]
    if draw.random() < 0.2:
        jobs.append(JobPlan(name="recover0", role="recover", steps=3))
    rare = replace(expected.calmed(), crash=0.001, lost_answer=draw.choice([0.0, 0.01]), slow=draw.choice([0.0, 0.005]))
    return about_one_thing(shape, topics, jobs, kills=0.0), rare


def plan_trouble(weather: Weather, process: Process, draw: random.Random, *, session_timeout_ms: float) -> None:
    """Let a loop die where it publishes, or sleep there until others have taken its partition."""
    what = draw.choice(["crash", "nap"])
    weather.plan(
        process, what, session_timeout_ms * draw.uniform(1.5, 4), after=draw.choice([0, 0, 1]), place=_OUTPUT_LOG
    )
