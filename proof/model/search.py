"""All that can happen, up to a depth: breadth-first search over hashable states, with the shortest way to a fault."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Found", "Model", "Moves", "Violation", "replay", "search", "switched_off"]

R = TypeVar("R", bound="DataclassInstance")
S = TypeVar("S", bound=Hashable)
Moves = Iterable[tuple[str, S]]
"""What may happen next: what it is called, and the state afterwards."""


class Model(Protocol[S]):
    """Processes, a store and a clock, as values."""

    def starts(self) -> Moves[S]:
        """Where it may begin."""

    def moves(self, state: S) -> Moves[S]:
        """Every step that some process, the store or the clock may take. None need be taken: a process that takes no
        more has died, or sleeps for ever."""

    def broken(self, state: S) -> Iterator[str]:
        """The names of the invariants that don't hold, with what was seen."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong, and the shortest way there."""

    invariants: tuple[str, ...]
    trace: tuple[str, ...]
    """The start and each step, in order."""

    def __str__(self) -> str:
        steps = "\n".join(f"{number:3d}  {step}" for number, step in enumerate(self.trace))
        return f"{steps}\n  ✗  " + "\n  ✗  ".join(self.invariants)


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """What a search has seen."""

    state_count: int
    """Different states."""
    move_count: int
    depth: int
    """Every state that this many steps lead to was looked at."""
    is_exhausted: bool
    """Was there nothing more beyond that depth?"""
    violation: Violation | None

    def __str__(self) -> str:
        bound = "all there are" if self.is_exhausted else f"up to {self.depth} steps"
        counts = f"{self.state_count:,} states, {self.move_count:,} moves, {bound}"
        return f"{counts}: {'no violation' if self.violation is None else 'violated'}"


def search(model: Model[S], *, max_depth: int, max_states: int = 1_500_000) -> Found[S]:
    """Look at every state within ``max_depth`` steps; end at the first that violates an invariant.

    Raises:
        MemoryError: more than ``max_states`` states (of less than a kilobyte each): the bound is too deep to say
            anything about it.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # states are many and hold no cycles: looking for some takes half of the time
    try:
        return _search(model, max_depth=max_depth, max_states=max_states)
    finally:
        if was_enabled:
            gc.enable()


def _search(model: Model[S], *, max_depth: int, max_states: int) -> Found[S]:
    came_from: dict[S, tuple[S | None, str]] = {}
    level: list[S] = []
    moves = 0

    def visit(state: S, before: S | None, label: str) -> Violation | None:
        came_from[state] = (before, label)
        level.append(state)
        broken = tuple(model.broken(state))
        return Violation(broken, _trace(came_from, state)) if broken else None

    for label, state in model.starts():
        if state not in came_from and (violation := visit(state, None, label)) is not None:
            return Found(len(came_from), moves, 0, False, violation)
    for depth in range(max_depth):
        here, level = level, []
        for state in here:
            for label, after in model.moves(state):
                moves += 1
                if after in came_from:
                    continue
                if len(came_from) >= max_states:
                    raise MemoryError(f"more than {max_states} states within {depth + 1} of {max_depth} steps")
                if (violation := visit(after, state, label)) is not None:
                    return Found(len(came_from), moves, depth, False, violation)
        if not level:
            return Found(len(came_from), moves, depth, True, None)
    return Found(len(came_from), moves, max_depth, False, None)


def replay(model: Model[S], trace: Iterable[str]) -> S:
    """The state that a trace leads to; of several moves of one name, the first. Raises ``LookupError`` at the first
    step that isn't possible there."""
    first, *rest = trace
    state = _named(first, model.starts())
    for label in rest:
        state = _named(label, model.moves(state))
    return state


def _named(label: str, moves: Moves[S]) -> S:
    possible = dict(reversed([*moves]))
    if label not in possible:
        raise LookupError(f"{label!r} isn't possible here; expected one of {sorted(possible)}")
    return possible[label]


def _trace(came_from: dict[S, tuple[S | None, str]], end: S) -> tuple[str, ...]:
    labels: list[str] = []
    state: S | None = end
    while state is not None:
        state, label = came_from[state]
        labels.append(label)
    return tuple(reversed(labels))


def switched_off(rules: R, *names: str) -> R:
    """Rules, flags of a frozen dataclass, but for some. Raises ``ValueError`` for a name that is none."""
    kept = {rule.name for rule in fields(rules)}
    if unknown := set(names) - kept:
        raise ValueError(f"no such rule: {sorted(unknown)}; there are {sorted(kept)}")
    return replace(rules, **dict.fromkeys(names, False))
