"""How much a test plays: in the gate (``make test``) a part that changes from run to run, at night all of it.

The gate plays each rule and each planted fault; a walk over every store call is played in part there, another one in
each run. ``SPARKLOG_DEPTH=nightly``, as ``make nightly`` sets it, plays all; ``SPARKLOG_WALK=17``, as the
summary of a run prints it, plays the same parts again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

NIGHTLY = os.environ.get("SPARKLOG_DEPTH") == "nightly"
WALK = int(os.environ.setdefault("SPARKLOG_WALK", str(random.SystemRandom().randrange(1_000_000))))
"""Decides which steps this run plays. In the environment, so that all processes of a run agree."""


def each_nth(steps: Iterable[T], n: int) -> list[T]:
    """All steps of a walk at night; in the gate one of each ``n`` neighbours, which one the run's number decides.

    Neighbours are drawn from each on their own, so that no kind of fault that comes at every second step is left out.
    """
    walk = list(steps)
    if NIGHTLY:
        return walk
    draw = random.Random(f"{WALK} {n} {len(walk)}")
    return [draw.choice(walk[start : start + n]) for start in range(0, len(walk), n)]


def by_depth(*, gate: T, nightly: T) -> T:
    """What a test takes: so many examples, seeds or seconds."""
    return nightly if NIGHTLY else gate
