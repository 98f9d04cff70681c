"""How much is let happen in each search, and which faults must be found once a rule is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from proof.model import append_cleanup, transactions
from proof.model.append_cleanup import AppendCleanup
from proof.model.search import Found, Violation, search
from proof.model.transactions import Transactions

__all__ = [
    "APPENDS",
    "APPEND_FAULTS",
    "DEEP",
    "DEEPEST",
    "TRANSACTIONS",
    "TRANSACTION_FAULTS",
    "Fault",
    "World",
    "found",
    "violation_of",
]


@dataclass(frozen=True, slots=True)
class World:
    """One bounded search in which nothing may go wrong."""

    name: str
    bounds: append_cleanup.Bounds | transactions.Bounds
    max_depth: int
    least_states: int
    """Fewer would mean that the model has lost some of its steps."""

    def search(self, *without: str) -> Found[Any]:
        if isinstance(self.bounds, append_cleanup.Bounds):
            appends = AppendCleanup(append_cleanup.Rules().without(*without), self.bounds)
            return search(appends, max_depth=self.max_depth)
        model = Transactions(transactions.Rules().without(*without), self.bounds)
        return search(model, max_depth=self.max_depth)


@dataclass(frozen=True, slots=True)
class Fault:
    """Rules that are switched off, and the invariant that then breaks."""

    without: tuple[str, ...]
    broken: str
    """How its name begins."""
    bounds: append_cleanup.Bounds | transactions.Bounds
    alone: Sequence[str] = field(default=())
    """Of these rules each is enough without the others: two of them must be off."""
    is_slow: bool = False

    @property
    def name(self) -> str:
        return "+".join(self.without)


def _appends(**bounds: Any) -> append_cleanup.Bounds:
    nothing: dict[str, Any] = {"appends": 1, "others": 0, "sleeps": 0, "faults": 0, "looks": 0, "gives_up": 0}
    return append_cleanup.Bounds(**{**nothing, **bounds})


def _transactions(**bounds: Any) -> transactions.Bounds:
    nothing: dict[str, Any] = {"helps": 0, "sleeps": 0}
    return transactions.Bounds(**{**nothing, **bounds})


TAIL = ("at the tail",)
_SLEEP = _appends(others=3, sleeps=1, places=TAIL)
_OPEN = _appends(others=2, sleeps=1, places=("one behind", "opening"))
_LOOK = _appends(others=3, sleeps=1, looks=1, places=("one behind",))
_TROUBLE = _appends(appends=2, others=1, faults=1, gives_up=1, places=TAIL)
_RACE = _appends(others=1, faults=1, places=("one behind",))
_TWICE = _appends(others=3, sleeps=1, faults=1, looks=1, places=TAIL, tokens_return=True)

APPENDS = [
    World("sleeps and cleanup", _appends(others=3, sleeps=1), 7, 20_000),
    World("lost answers", _appends(appends=2, faults=1, gives_up=1, places=TAIL), 40, 5_000),
    World("tokens return", _TWICE, 6, 10_000),
]
TRANSACTIONS = [
    World("two sessions", _transactions(faults=1), 40, 3_000),
    World("recovery", _transactions(helps=1, faults=1), 12, 5_000),
    World("a day asleep", _transactions(days=1), 40, 6_000),
    World("a day asleep, with recovery", _transactions(helps=1, days=1), 11, 10_000),
]
DEEPEST = [
    World("sleeps and cleanup", _appends(others=3, sleeps=1), 16, 500_000),
    World("looks, lost answers, sleeps", _appends(others=3, sleeps=1, faults=1, looks=1, places=TAIL), 10, 250_000),
    World("two sleeps", _appends(others=3, sleeps=2), 8, 180_000),
    World("lost answers", _appends(appends=2, others=1, faults=1, gives_up=1), 40, 250_000),
    World("tokens return", _TWICE, 9, 180_000),
    World("recovery and lost answers", _transactions(helps=1, faults=1), 40, 100_000),
    World("bursts after a rest", _transactions(helps=1, sleeps=2, bursts=2), 11, 180_000),
    World("a day, an hour, lost answers", _transactions(sleeps=1, days=1, faults=1), 40, 400_000),
    World("a day, with recovery", _transactions(helps=1, days=1, faults=1), 14, 250_000),
]
"""All that can happen, or as much as a minute is enough for."""
_DEPTHS = {
    "looks, lost answers, sleeps": (9, 150_000),
    "two sleeps": (7, 80_000),
    "lost answers": (14, 140_000),
    "tokens return": (8, 90_000),
    "recovery and lost answers": (40, 100_000),
    "bursts after a rest": (10, 80_000),
    "a day, an hour, lost answers": (16, 80_000),
    "a day, with recovery": (12, 100_000),
}
DEEP = [
    replace(world, max_depth=_DEPTHS[world.name][0], least_states=_DEPTHS[world.name][1])
    for world in DEEPEST
    if world.name in _DEPTHS
]
"""Those of ``DEEPEST`` that don't take gigabytes, as deep as takes some seconds each."""

APPEND_FAULTS = [
    Fault(("verify",), "an acknowledged append is in the log", _SLEEP),
    Fault(("verify_afterwards",), "an acknowledged append is in the log", _SLEEP),
    Fault(("anchor_at_tail",), "an acknowledged append is in the log", _LOOK),
    Fault(("check_opening",), "the log never forks", _OPEN),
    Fault(("read_token",), "an acknowledged append is in the log", _RACE),
    Fault(("settle_unknown",), "what failed isn't in the log", _TROUBLE),
    Fault(
        ("new_producer_id", "own_bytes"),
        "an acknowledged append is in the log",
        _TROUBLE,
        alone=("new_producer_id", "own_bytes"),
    ),
    Fault(("counter",), "no append is in the log twice", _SLEEP),
    Fault(("decide_again",), "offsets are dense and never given twice", _RACE),
    Fault(("mark",), "an acknowledged append is in the log", _SLEEP),
    Fault(("mark_first",), "an acknowledged append is in the log", _SLEEP),
    Fault(("below_checkpoint",), "whoever opens the log reads all that was committed", _SLEEP),
    Fault(("store_times",), "an acknowledged append is in the log", _SLEEP),
    Fault(("successor_age",), "the log never forks", _OPEN),
]
TRANSACTION_FAULTS = [
    Fault(("verify",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("verify_by_listing",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("read_token",), "nothing is visible that wasn't decided", _transactions(faults=1)),
    Fault(("marker",), "output and offsets are in step", _transactions()),
    Fault(("exact_number",), "no transaction is half committed", _transactions()),
    Fault(("decide_first",), "output and offsets are in step", _transactions()),
    Fault(("publish_first",), "an offset counts once its output is visible", _transactions()),
    Fault(("topic_before_group",), "an offset counts once its output is visible", _transactions()),
    Fault(("decide_then_publish",), "nothing is visible that wasn't decided", _transactions()),
    Fault(("no_way_back",), "what was told to be aborted isn't committed", _transactions(faults=1)),
    Fault(("fence",), "a fenced session commits nothing", _transactions(transactions=2)),
    Fault(("finish_first",), "no transaction is half committed", _transactions()),
    Fault(("carry_out_first",), "an offset counts once its output is visible", _transactions()),
    Fault(("stamp",), "output and offsets are in step", _transactions()),
    Fault(("in_place",), "output and offsets are in step", _transactions(days=1)),
    Fault(("newest_by_listing",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("check_opening",), "nothing is visible that wasn't decided", _transactions(helps=1, days=1)),
    Fault(("successor_age",), "nothing is visible that wasn't decided", _transactions(helps=1, sleeps=1, bursts=1)),
]


@cache
def found(fault: Fault) -> Found[Any]:
    """The search that finds a fault."""
    return World(fault.name, fault.bounds, 16, 0).search(*fault.without)


def violation_of(name: str, faults: Sequence[Fault]) -> Violation:
    """The shortest way to the fault of that name. Raises ``LookupError`` where there is none."""
    for fault in faults:
        if fault.name == name and (violation := found(fault).violation) is not None:
            return violation
    raise LookupError(name)
