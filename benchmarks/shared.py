"""What benchmarks of one run share: a broker, a Spark session, topics that are filled.

Each is made when a benchmark first asks for it, before it measures anything, and is there until the run ends: a second
benchmark starts no broker and fills no topic again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

__all__ = ["lent", "sharing"]

T = TypeVar("T")


class _Run:
    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.made: dict[Hashable, Any] = {}


_open: list[_Run] = []


@contextmanager
def sharing() -> Iterator[None]:
    """Keep what is lent within the block until its end."""
    with ExitStack() as stack:
        run = _Run(stack)
        _open.append(run)
        try:
            yield
        finally:
            _open.remove(run)


@contextmanager
def lent(name: Hashable, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """What ``make`` makes, once in a run for each name; where there is no run, for this block alone."""
    if not _open:
        with make() as made:
            yield made
        return
    run = _open[-1]
    if name not in run.made:
        run.made[name] = run.stack.enter_context(make())
    yield run.made[name]
