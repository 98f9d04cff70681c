"""A golden cluster's folder, as a store and a clock that stand at the date at which the cluster was written."""

from __future__ import annotations

import json
import os
import threading
import time
import zipfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.log import Cluster, open_cluster
from sparklog.storage import LocalStore
from sparklog.storage.base import ObjectInfo
from sparklog.testing import WrappedStore

__all__ = ["GOLDEN", "DatedClock", "DatedStore", "Golden", "golden_names", "open_dated", "read_golden"]

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
CLUSTER_FOLDER = "cluster"
_COARSE_MS = 100
"""File systems take times from a clock that is a few milliseconds late."""


class DatedClock(Clock):
    """The machine's clock, moved to another date. Shared by threads."""

    def __init__(self, date_ms: int) -> None:
        self._machine = SystemClock()
        self._lock = threading.Lock()
        self._began_ms = self._machine.now_ms()
        self._moments = [self._began_ms]
        self._shifts = [float(date_ms - self._began_ms)]
        self._advanced_ms = 0.0

    def now_ms(self) -> int:
        return self.wall_of(self._machine.now_ms())

    def ticks_ms(self) -> float:
        with self._lock:
            return self._machine.ticks_ms() + self._advanced_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._machine.sleep_ms(duration_ms)

    def advance(self, duration_ms: float) -> None:
        """Let so much pass, on the wall and in ticks."""
        with self._lock:
            self._moments.append(self._machine.now_ms())
            self._shifts.append(self._shifts[-1] + duration_ms)
            self._advanced_ms += duration_ms

    def wall_of(self, machine_ms: int) -> int:
        """The time that this clock had when the machine's had ``machine_ms``."""
        with self._lock:
            at = max(0, bisect_right(self._moments, machine_ms) - 1)
            return machine_ms + int(self._shifts[at])

    def is_of_before(self, machine_ms: int) -> bool:
        """Was that before this clock was made?"""
        return machine_ms < self._began_ms - _COARSE_MS


class DatedStore(WrappedStore):
    """A folder whose new files have the time of ``clock``; those that lay there before keep their own."""

    def __init__(self, folder: Path, clock: DatedClock) -> None:
        super().__init__(LocalStore(folder))
        self._clock = clock

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for found in self._store.list(prefix, after=after):
            is_old = self._clock.is_of_before(found.modified_ms)
            yield found if is_old else replace(found, modified_ms=self._clock.wall_of(found.modified_ms))


def open_dated(folder: Path, date_ms: int) -> tuple[Cluster, DatedClock]:
    """The cluster of a folder on a clock that has this date, and goes on from there."""
    clock = DatedClock(date_ms)
    return open_cluster(DatedStore(folder, clock), clock=clock, create=False), clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A golden cluster as it lies in the repository."""

    name: str
    manifest: Mapping[str, Any]

    @property
    def date_ms(self) -> int:
        """Some minutes after the cluster was written; milliseconds since the epoch."""
        return int(self.manifest["date_ms"])

    @property
    def expected(self) -> Mapping[str, Any]:
        """What the code that wrote the cluster read."""
        found: Mapping[str, Any] = self.manifest["expected"]
        return found

    def unpack(self, folder: Path) -> Path:
        """Copy the cluster there, each file with its time; the root of the copy.

        Raises ``ValueError`` where the manifest names other files than there are.
        """
        times: Mapping[str, int] = self.manifest["files"]
        with zipfile.ZipFile(GOLDEN / f"{self.name}.zip") as packed:
            if set(packed.namelist()) != times.keys():
                raise ValueError(
                    f"{self.name}: the manifest and the zip differ: {set(packed.namelist()) ^ times.keys()}"
                )
            packed.extractall(folder)
        for name, modified_ms in times.items():
            os.utime(folder / name, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        return folder / CLUSTER_FOLDER


def golden_names() -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob("*.json"))


def read_golden(name: str) -> Golden:
    return Golden(name=name, manifest=json.loads((GOLDEN / f"{name}.json").read_text()))


def file_times(folder: Path) -> dict[str, int]:
    """The times of all files below a folder, by their paths; milliseconds since the epoch."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns // 1_000_000 for path in files}


def wait_past_coarse_times() -> None:
    """Let what lies in a folder become older than a :class:`DatedClock` that is made now."""
    time.sleep(3 * _COARSE_MS / 1_000)
