"""Worlds of producers that share a topic, with group commit on from the beginning: others publish what they announce.
They have seeds of their own, so all other worlds are as they would be without these."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from proof.simulation.cluster.shape import LOG_RETENTION_MS, JobPlan, Shape, TopicPlan, about_one_thing
from proof.simulation.cluster.weather import Forecast
from sparklog.delta.log import DeltaLog
from sparklog.delta.shared_reads import SharedReads
from sparklog.log.announced import group, turns
from sparklog.log.append import TopicWriter
from sparklog.producer import writable_topic

__all__ = [
    "SHARING_SEEDS",
    "a_shared_look_skips_an_entry",
    "draw_sharing",
    "is_accompanied",
    "is_paced",
    "is_sharing",
    "sharing",
]

SHARING_SEEDS = 2 * 10**12
"""The first seed of these worlds; all from there on are."""
_SPELL_MS = 1_500.0


def is_sharing(seed: int) -> bool:
    """Is this seed's world one of these?"""
    return SHARING_SEEDS <= seed < 3 * 10**12


def draw_sharing(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """Two to five producers, mostly of one topic, which may be deleted and created again; beside them perhaps somebody
    who transacts, another engine, a consumer and maintenance."""
    draw = random.Random(f"sharing {seed}")
    configs: dict[str, object] = {"retention.ms": -1, "log.retention.ms": LOG_RETENTION_MS}
    topics = [TopicPlan(name="a", partitions=draw.choice([1, 2]), configs=configs)]
    if draw.random() < 0.2:
        topics.append(TopicPlan(name="d", partitions=1, configs=configs, is_recreated=True))
    jobs = [
        JobPlan(name=f"produce{number}", role="produce", steps=draw.randint(4, 10))
        for number in range(draw.randint(2, 5))
    ]
    beside: list[tuple[str, dict[str, object]]] = [
        ("transact", {"id": "x"}),
        ("foreign", {}),
        ("consume", {"auto": False}),
        ("maintain", {}),
        ("follow", {}),
    ]
    jobs += [
        JobPlan(name=f"{role}0", role=role, steps=draw.randint(2, 4), settings=settings)
        for role, settings in beside
        if draw.random() < 0.15
    ]
    if len(topics) > 1:
        jobs.append(JobPlan(name="administer0", role="administer", steps=3))
    trouble = replace(
        expected.calmed(),
        latency_ms=draw.choice([3.0, 10.0, 30.0]),
        slow=draw.choice([0.0, 0.02]),
        crash=draw.choice([0.0, 0.004]),
        lost_answer=draw.choice([0.0, 0.02, 0.05]),
        lost_request=draw.choice([0.0, 0.02, 0.05]),
        late=draw.choice([0.0, 0.02, 0.05]),
        own_success=draw.choice([0.0, 0.05]),
        nap=draw.choice([0.0, 0.003, 0.01]),
        outages=draw.choice([0.0, 0.0, 0.02]),
    )
    return about_one_thing(shape, topics, jobs, kills=draw.choice([0.0, 0.01])), trouble


def is_paced(seed: int) -> bool:
    """Do versions come at a pace in this seed's world, as soon as there is one other writer? Elsewhere that takes four,
    who seldom meet here."""
    return random.Random(f"paced {seed}").random() < 0.5


def is_accompanied(seed: int) -> bool:
    """Has a process two producers in this seed's world, which share what they read of the log?"""
    return random.Random(f"accompanied {seed}").random() < 0.5


def a_shared_look_skips_an_entry() -> AbstractContextManager[object]:
    """Decision 0063: of several entries that another producer of the process has read, the first is left out."""
    entries_from = SharedReads.entries_from

    def skip_one(self: Any, *given: Any, **kwargs: Any) -> Any:
        found = entries_from(self, *given, **kwargs)
        return found[1:] or found

    return mock.patch.object(SharedReads, "entries_from", skip_one)


@contextmanager
def sharing(seed: int, counts: Counter[str]) -> Iterator[None]:
    """Writers announce and include for two of three spells of some seconds, whether any has lost a race or not.

    Args:
        counts: gets how many flushes others were about to publish, how many were withdrawn, how many turns came at a
            pace, and were put off, and how many looks were those of others in the process.
    """
    take, withdraw = vars(group)["takeable"], TopicWriter.withdraw  # a planted fault may have put another there
    rank, draw = turns.Turns._rank, group.Participation._draw
    shared_look = DeltaLog.shared_look

    def takeable(*given: Any, **kwargs: Any) -> Any:
        taken = take(*given, **kwargs)
        counts["flushes of others"] += len(taken)
        return taken

    def withdraw_and_count(self: Any, *given: Any, **kwargs: Any) -> Any:
        result = withdraw(self, *given, **kwargs)
        counts["withdrawn flushes"] += result is None
        return result

    def rank_and_count(self: Any, *given: Any) -> Any:
        counts["paced turns"] += 1
        return rank(self, *given)

    def draw_and_count(self: Any, *given: Any) -> float:
        before = self._turn_at
        turn_at: float = draw(self, *given)
        counts["turns put off"] += before is not None and before < turn_at
        return turn_at

    def share_and_count(self: Any, *given: Any, **kwargs: Any) -> Any:
        look = shared_look(self, *given, **kwargs)
        if look is not None:
            counts["shared entries" if look.entries else "shared absences"] += 1
        return look

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DeltaLog, "shared_look", share_and_count))
        if is_paced(seed):
            stack.enter_context(mock.patch.object(turns, "_PACED_FROM", 1))
        stack.enter_context(mock.patch.object(turns.Turns, "_rank", rank_and_count))
        stack.enter_context(mock.patch.object(group.Participation, "_draw", draw_and_count))
        stack.enter_context(mock.patch.object(group, "is_on", lambda _, now: now % (3 * _SPELL_MS) < 2 * _SPELL_MS))
        stack.enter_context(mock.patch.object(group, "takeable", takeable))
        stack.enter_context(
            mock.patch.object(writable_topic, "announces", lambda config: config.transactional_id is None)
        )
        stack.enter_context(mock.patch.object(TopicWriter, "withdraw", withdraw_and_count))
        yield
