"""Retries of a record: how many, after which delays, through which topics, and what follows the last one."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.errors import InvalidArgumentError

__all__ = ["Again", "Backoff", "Bury", "Decision", "Delay", "Exponential", "Fixed", "Retry", "Stop", "decide", "span"]
__all__ += ["is_of_the_record"]

_LONGEST_S = 30 * 86_400.0
_UNITS = (("h", 3_600_000), ("m", 60_000), ("s", 1_000))


@dataclass(frozen=True, slots=True)
class Exponential:
    """Delays that grow: ``initial_s``, then ``factor`` times as long each time, at most ``max_s``."""

    initial_s: float = 1.0
    """More than 0."""
    max_s: float = 60.0
    """From ``initial_s`` to 30 days."""
    factor: float = 2.0
    """1 or more."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_s <= self.max_s <= _LONGEST_S or not self.factor >= 1:
            raise InvalidArgumentError(f"{self}: expected 0 < initial_s <= max_s <= 30 days and factor >= 1")

    def delay_ms(self, attempts: int) -> int:
        """Milliseconds to wait after this number of tries (1 or more) has failed."""
        growth = self.factor ** min(attempts - 1, 1_000 if self.factor == 1 else 64)
        return round(min(self.max_s, self.initial_s * growth) * 1_000)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant delay."""

    delay_s: float = 1.0
    """0 to 30 days."""

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s <= _LONGEST_S:
            raise InvalidArgumentError(f"{self}: expected 0 to 30 days")

    def delay_ms(self, attempts: int) -> int:
        """Milliseconds to wait after this number of tries has failed."""
        return round(self.delay_s * 1_000)


Backoff = Exponential | Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Rules for retrying a record after its handler failed."""

    attempts: int = 3
    """All tries together, the first among them; 1 or more."""
    backoff: Backoff = field(default_factory=Fixed)
    topics: bool = False
    """Wait in delay topics (``orders-retry-1m``), where nothing waits behind the record, and lose the order; else in
    place: what is behind the record in its key or partition waits, too."""
    not_on: tuple[type[Exception], ...] = ()
    """Errors that no further try can mend."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgumentError(f"Retry: attempts={self.attempts}, expected 1 or more")
        if self.topics and any(self.backoff.delay_ms(number) < 1 for number in range(1, self.attempts)):
            raise InvalidArgumentError(f"Retry: {self.backoff}: a delay topic needs a delay of 1 ms or more")

    def topic(self, topic: str, attempts: int) -> str:
        """The delay topic for a record of ``topic`` after so many tries have failed."""
        return f"{topic}-retry-{span(self.backoff.delay_ms(attempts))}"

    def topics_of(self, topic: str) -> list[str]:
        """All delay topics of a topic, the first that is used first; none where retries are in place."""
        if not self.topics:
            return []
        return list(dict.fromkeys(self.topic(topic, number) for number in range(1, self.attempts)))

    def longest_waits_ms(self, topic: str) -> dict[str, int]:
        """By delay topic of a topic: how long a record is to wait there."""
        if not self.topics:
            return {}
        return {self.topic(topic, number): self.backoff.delay_ms(number) for number in range(1, self.attempts)}


def span(duration_ms: int) -> str:
    """A duration as names of topics have it: ``1m``, ``90s``, ``250ms``."""
    for name, size_ms in _UNITS:
        if duration_ms and duration_ms % size_ms == 0:
            return f"{duration_ms // size_ms}{name}"
    return f"{duration_ms}ms"


@dataclass(frozen=True, slots=True)
class Again:
    """Try it again in place."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Move it to a delay topic."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Move it to the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class Stop:
    """There is nowhere to put it: the worker stops before it."""


Decision = Again | Delay | Bury | Stop


def is_of_the_record(error: BaseException) -> bool:
    """May another record be handled after it? Not after ``SystemExit`` and ``KeyboardInterrupt``: they are meant for
    the process. All else that is no ``Exception`` is a failure like any other: the panic of a library in Rust that a
    record has met, ``GeneratorExit``, a task that was cancelled."""
    return not isinstance(error, SystemExit | KeyboardInterrupt)


def decide(
    retry: Retry, error: BaseException, *, attempts: int, can_mend: bool = True, has_dead_letter: bool
) -> Decision:
    """Decide what becomes of a record whose try number ``attempts`` has failed.

    Args:
        attempts: tries so far, the one that failed among them; 1 or more.
        can_mend: may another try succeed? Not where the bytes can't be decoded.
        has_dead_letter: is there a dead-letter topic?
    """
    if not is_of_the_record(error):
        return Stop()
    if can_mend and attempts < retry.attempts and not isinstance(error, retry.not_on):
        delay_ms = retry.backoff.delay_ms(attempts)
        return Delay(delay_ms) if retry.topics else Again(delay_ms)
    return Bury() if has_dead_letter else Stop()
