"""Finds out whether a store's create-only put is one: by a race, because some stores pass any test made in sequence."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.errors import StoreError, StoreOutcomeUnknownError, StoreUnavailableError, UnsafeStoreError
from sparklog.storage.base import CreateResult, ObjectStore
from sparklog.workers import no_thread

__all__ = ["probe_create_only"]

T = TypeVar("T")

_RACERS = 8
_NAMES = 16
_ATTEMPTS = 6
_PAUSE_MS = 50  # doubles with each attempt

_FOLDER = "_probe/"
_EVER_MS = 2**62
"""Later than any time of a folder: whoever probes at the same time makes its folder anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RaceResult:
    """The answers that the racers for one name got. Racers are numbered from 0; ``None`` is a lost answer."""

    name: str
    answers: Sequence[CreateResult | None]

    def racers_answered(self, answer: CreateResult | None) -> list[int]:
        return [racer for racer, given in enumerate(self.answers) if given is answer]


def probe_create_only(store: ObjectStore, *, clock: Clock) -> None:
    """Let threads race for names and check that each has one winner whose bytes are stored, then that it is taken.

    Writes about 16 small objects below ``_probe/`` and deletes them again, and that folder, also after a failure.

    Args:
        clock: waits between attempts when the store is unavailable, six at most.
    Raises:
        UnsafeStoreError: the store let several win, stored a loser's bytes, or gave away a name that was taken.
        StoreError: the store refused what the probe does, or stayed unavailable.
    Source: ``docs/architecture.md``, The primitive.
    """
    probe = _Probe(store, clock, f"{_FOLDER}{uuid.uuid4().hex}")
    try:
        probe.run()
    except BaseException:
        with suppress(StoreError):  # why the probe failed matters more than what it leaves
            probe.clean_up()
        raise
    probe.clean_up()


class _Probe:
    def __init__(self, store: ObjectStore, clock: Clock, folder: str) -> None:
        self._store = store
        self._clock = clock
        self._names = [f"{folder}/{number:02d}" for number in range(_NAMES)]
        self._token = uuid.uuid4().hex

    def run(self) -> None:
        races = self._race()
        before = self._read()
        for race, stored in zip(races, before, strict=True):
            self._check(race, stored)
        if not any(race.racers_answered(CreateResult.CREATED) for race in races):
            raise UnsafeStoreError(
                f"{self._store.uri}: of {_RACERS} racers for each of {_NAMES} names none was told it created one"
            )
        for name, stored in zip(self._names, before, strict=True):
            if stored is not None:
                self._create_again(name)
        for name, stored, later in zip(self._names, before, self._read(), strict=True):
            if stored is not None and later != stored:
                raise UnsafeStoreError(f"{self._store.uri}: {name} holds other bytes after a second create")

    def clean_up(self) -> None:
        self._retry(lambda: self._store.delete(self._names))
        self._retry(lambda: self._store.remove_empty_folders(_FOLDER, changed_before_ms=_EVER_MS))

    def _race(self) -> list[_RaceResult]:
        barrier = threading.Barrier(_RACERS)

        def run(racer: int) -> list[CreateResult | None]:
            answers = []
            try:
                for name in self._names:
                    barrier.wait()  # for each name anew, so that the requests meet
                    answers.append(self._create(name, self._content(racer)))
            except BaseException:
                barrier.abort()  # the others must not wait for this one
                raise
            return answers

        with ThreadPoolExecutor(_RACERS, thread_name_prefix="sparklog-probe") as threads:
            try:
                futures = [threads.submit(run, racer) for racer in range(_RACERS)]
            except RuntimeError as refused:
                barrier.abort()  # those that were started would wait for ever
                raise no_thread("sparklog-probe", refused) from refused
            errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        columns = zip(*(future.result() for future in futures), strict=True)
        return [_RaceResult(name=name, answers=answers) for name, answers in zip(self._names, columns, strict=True)]

    def _check(self, race: _RaceResult, stored: bytes | None) -> None:
        where = f"{self._store.uri}: {race.name}"
        winners = race.racers_answered(CreateResult.CREATED)
        if len(winners) > 1:
            raise UnsafeStoreError(f"{where}: {len(winners)} of {_RACERS} racers were told they created it")
        if stored is None:
            if winners or race.racers_answered(CreateResult.EXISTS):
                raise UnsafeStoreError(f"{where}: racers were told it is there, but it can't be read")
            return  # every answer was lost: this name says nothing
        owners = [racer for racer in range(_RACERS) if self._content(racer) == stored]
        if not owners:
            raise UnsafeStoreError(f"{where}: it holds {len(stored)} bytes that no racer wrote")
        # Without a winner the owner's answer was lost, or came as "exists" after a retry below the store.
        if winners and winners != owners:
            raise UnsafeStoreError(
                f"{where}: racer {winners[0]} was told it created it, but racer {owners[0]}'s bytes are stored"
            )

    def _create_again(self, name: str) -> None:
        if self._create(name, self._content(_RACERS)) is CreateResult.CREATED:
            raise UnsafeStoreError(f"{self._store.uri}: {name} was created a second time, in sequence")

    def _content(self, racer: int) -> bytes:
        return f"{self._token} racer {racer}".encode()

    def _create(self, name: str, data: bytes) -> CreateResult | None:
        try:
            return self._retry(lambda: self._store.create(name, data))
        except StoreOutcomeUnknownError:
            return None

    def _read(self) -> Sequence[bytes | None]:
        return self._retry(lambda: self._store.read_many(self._names))

    def _retry(self, call: Callable[[], T]) -> T:
        for attempt in range(_ATTEMPTS - 1):
            try:
                return call()
            except StoreUnavailableError:
                self._clock.sleep_ms(_PAUSE_MS * 2**attempt)
        return call()
