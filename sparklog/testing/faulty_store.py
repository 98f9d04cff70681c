"""A store whose calls fail as a test plans it: crashes, lost answers, conflicts, full disks, delays."""

from __future__ import annotations

import enum
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeVar

from sparklog.errors import (
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.storage.base import CreateResult, ObjectStore
from sparklog.testing.manual_clock import ManualClock
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["Call", "Fault", "FaultKind", "FaultyStore", "SimulatedCrash", "crashes"]

T = TypeVar("T")

_WRITES = frozenset({"put", "create", "delete"})


class SimulatedCrash(BaseException):
    """The process ended here. Every later call of the same :class:`FaultyStore` raises it too.

    No ``Exception``: nothing may catch it and go on.
    """


class FaultKind(enum.Enum):
    """Kinds of faults of a call."""

    CRASH_BEFORE = "crash before the call"
    CRASH_AFTER = "crash after the call was carried out"
    DELAY = "the call takes its time"
    LOST_ANSWER = "carried out, the answer is lost"
    """``StoreOutcomeUnknownError``; for get and list, which change nothing, ``StoreUnavailableError``."""
    LOST_REQUEST = "not carried out, and nobody knows"
    """The same errors as ``LOST_ANSWER``."""
    CONFLICT = "409, not carried out"
    THROTTLED = "503, not carried out"
    FALSE_REFUSAL = "503, though carried out"
    """A client library sent the request twice, and the second was refused; befalls creates alone."""
    OWN_SUCCESS = "created, but answered that it exists"
    """A client library sent the request twice; befalls creates alone."""
    DISK_FULL = "no space left, not carried out"
    """Befalls put and create alone."""
    READ_ONLY = "read-only, not carried out"
    """Befalls put, create and delete alone."""


_BEFALLS = {
    FaultKind.OWN_SUCCESS: frozenset({"create"}),
    FaultKind.FALSE_REFUSAL: frozenset({"create"}),
    FaultKind.DISK_FULL: frozenset({"put", "create"}),
    FaultKind.READ_ONLY: _WRITES,
}
_REFUSALS: dict[FaultKind, type[StoreError]] = {
    FaultKind.CONFLICT: StoreUnavailableError,
    FaultKind.THROTTLED: StoreUnavailableError,
    FaultKind.DISK_FULL: StoreFullError,
    FaultKind.READ_ONLY: StorePermissionError,
}


class Call(NamedTuple):
    """One call as it was made; ``read_many``, ``put_many`` and ``delete`` make one for each object."""

    op: str
    """get, put, create, list, delete, sync or sync_all."""
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, and with which calls. A call has to meet every condition that is given."""

    kind: FaultKind
    at: int | None = None
    """Number of the call among all, from 0."""
    ops: Sequence[str] = ()
    """Any of these; empty for every op."""
    path: str = ""
    """Part of the path."""
    when: Callable[[Call], bool] | None = None
    """Any other condition."""
    chance: float = 1.0
    """The part of the calls that meet the conditions above which fails, at random (0 … 1)."""
    skip: int = 0
    """This many calls that meet all of it are spared first."""
    times: int | None = 1
    """Befalls this many calls at most; None for all of them."""
    delay_ms: float = 0
    """For ``DELAY``: how far the clock is moved before the call."""

    def meets(self, number: int, call: Call) -> bool:
        """Whether the call with this number meets the conditions, those of chance and count aside."""
        return (
            (self.at is None or self.at == number)
            and (not self.ops or call.op in self.ops)
            and self.path in call.path
            and call.op in _BEFALLS.get(self.kind, {call.op})
            and (self.when is None or self.when(call))
        )


def crashes(calls: int) -> Iterator[Fault]:
    """A crash before and one after each of the first ``calls`` calls: make a fresh store for each and run the test."""
    for number in range(calls):
        yield Fault(kind=FaultKind.CRASH_BEFORE, at=number)
        yield Fault(kind=FaultKind.CRASH_AFTER, at=number)


class FaultyStore(WrappedStore):
    """Lets calls of ``store`` fail. May be used from several threads.

    A call suffers every delay and the first other fault that befalls it. The wrapped store keeps what was carried
    out: wrap it anew for the process that starts after a crash.

    Args:
        faults: what goes wrong, in order of precedence.
        clock: moved by delays; only they need it.
        seed: for faults with a ``chance``.
    """

    def __init__(
        self, store: ObjectStore, *faults: Fault, clock: ManualClock | None = None, seed: int | None = None
    ) -> None:
        super().__init__(store)
        if clock is None and any(fault.kind is FaultKind.DELAY for fault in faults):
            raise ValueError("a delay needs a clock")
        self._faults = faults
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._lock = threading.Lock()
        self._seen = [0] * len(faults)
        self._calls: list[Call] = []
        self._crashed = False

    @property
    def calls(self) -> Sequence[Call]:
        """Every call so far, in order; each equals the tuple ``(op, path)``."""
        with self._lock:
            return tuple(self._calls)

    @property
    def crashed(self) -> bool:
        """Whether a crash has befallen a call."""
        return self._crashed

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        made = Call(op, path)
        kind, delay_ms = self._decide(made)
        if self._clock is not None and delay_ms:
            self._clock.advance(delay_ms)
        if kind is None:
            answer = call()
        elif kind is FaultKind.CRASH_BEFORE:
            self._crash(made)
        elif kind in _REFUSALS:
            raise _REFUSALS[kind](f"{op} {path}: {kind.value} (injected)")
        else:
            answer = self._spoil(kind, made, call)
        if self._crashed:  # in another thread, meanwhile: a dead process gets no answer
            raise SimulatedCrash(f"{op} {path}: the process has crashed")
        return answer

    def _decide(self, call: Call) -> tuple[FaultKind | None, float]:
        with self._lock:
            if self._crashed:
                raise SimulatedCrash(f"{call.op} {call.path}: the process has crashed")
            number = len(self._calls)
            self._calls.append(call)
            kind, delay_ms = None, 0.0
            for index, fault in enumerate(self._faults):
                if fault.kind is not FaultKind.DELAY and kind is not None:
                    continue
                if self._befalls(index, fault, number, call):
                    if fault.kind is FaultKind.DELAY:
                        delay_ms += fault.delay_ms
                    else:
                        kind = fault.kind
            return kind, delay_ms

    def _befalls(self, index: int, fault: Fault, number: int, call: Call) -> bool:
        if not fault.meets(number, call) or (fault.chance < 1 and self._random.random() >= fault.chance):
            return False
        seen = self._seen[index]
        self._seen[index] = seen + 1
        return seen >= fault.skip and (fault.times is None or seen < fault.skip + fault.times)

    def _spoil(self, kind: FaultKind, made: Call, call: Callable[[], T]) -> T:
        if kind is not FaultKind.LOST_REQUEST:
            with suppress(StoreError):  # whatever the answer would have been, nobody gets it
                call()
        if kind is FaultKind.CRASH_AFTER:
            self._crash(made)
        if kind is FaultKind.OWN_SUCCESS:
            return CreateResult.EXISTS  # type: ignore[return-value]  # befalls creates alone
        told_as_refused = made.op in ("get", "list") or kind is FaultKind.FALSE_REFUSAL
        error = StoreUnavailableError if told_as_refused else StoreOutcomeUnknownError
        raise error(f"{made.op} {made.path}: {kind.value} (injected)")

    def _crash(self, made: Call) -> NoReturn:
        self._crashed = True
        raise SimulatedCrash(f"{made.op} {made.path}: crash (injected)")
