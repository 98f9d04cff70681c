"""Worlds on the local folder of one machine, whose power fails: then all processes die at once, and what nobody has
flushed is lost, spoilt, or back.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from proof.simulation.cluster.shape import JobPlan, Shape
from proof.simulation.cluster.weather import Forecast
from sparklog.delta.names import parse_name
from sparklog.log.data.object_paths import object_path
from sparklog.paths import GROUPS_FOLDER, TOPICS_FOLDER, TRANSACTIONS_FOLDER
from sparklog.storage import ObjectStore
from sparklog.testing import Disk, PowerLossStore, SimulatedCrash, WrappedStore

__all__ = ["Power", "draw_dark", "is_dark"]

T = TypeVar("T")

_DARK = 0.06
_DURABLE = ("produce", "transact", "maintain", "administer", "recover")
"""Roles whose promises hold on such a folder: other engines flush nothing, and readers may see what isn't durable."""
_LOGS = (TOPICS_FOLDER, GROUPS_FOLDER, TRANSACTIONS_FOLDER)
_MOST_LOSSES = 3
_READS = frozenset({"get", "list"})


def is_dark(seed: int) -> bool:
    """Does the power fail in this seed's world? Drawn apart: all other worlds are as they would be without these."""
    return random.Random(f"is dark {seed}").random() < _DARK


def draw_dark(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """A world as it is where there is no network, and nobody sleeps for days: by then everything has been flushed."""
    draw = random.Random(f"dark {seed}")
    jobs = [job for job in shape.jobs if job.role in _DURABLE]
    if not any(job.role == "transact" for job in jobs) and draw.random() < 0.5:
        jobs.append(JobPlan(name="transact0", role="transact", steps=4, settings={"id": "x"}))
    if not any(job.role in ("produce", "transact") for job in jobs):
        jobs.append(JobPlan(name="produce0", role="produce", steps=5))
    if not any(job.role == "maintain" for job in jobs) and draw.random() < 0.6:
        jobs.append(JobPlan(name="maintain0", role="maintain", steps=4))
    if draw.random() < 0.6:
        jobs.append(JobPlan(name="hasty0", role="hasty", steps=6))
    local = replace(expected, lost_answer=0.0, lost_request=0.0, late=0.0, refused=0.0, own_success=0.0, outages=0.0)
    return (
        replace(
            shape,
            jobs=tuple(jobs),
            checkpoints=shape.checkpoints or draw.random() < 0.5,
            deletes_soon=False,
            takes_over=False,
            ages=False,
        ),
        replace(local, night=0.0),
    )


class Power:
    """What keeps a machine running, and its disk.

    Args:
        store: holds what is visible.
    """

    def __init__(self, store: ObjectStore, counts: Counter[str]) -> None:
        self._store = store
        self._counts = counts
        self._disk = Disk(store)
        self._left = _MOST_LOSSES
        self._calls: float | None = None
        """Calls until it fails."""

    def settle(self) -> None:
        """The machine has run for long: everything is on its disk."""
        self._disk.flush_all(lambda: None)

    def store(self, store: ObjectStore, fails: Callable[[], None]) -> ObjectStore:
        """The folder as one process sees it.

        Args:
            store: carries its calls out.
            fails: called where the power fails in one of them; all processes are to die.
        """
        return PowerLossStore(self._disk, _Powered(store, self, fails))

    def plan(self, draw: random.Random) -> None:
        """Let it fail soon, in a call that writes or flushes, before it is carried out or after."""
        if self._left > 0 and self._calls is None:
            self._left -= 1
            self._calls = draw.choice([2, 10, 40, 100]) * draw.random()

    def is_due(self, op: str) -> bool:
        """Does it fail in this call?"""
        if self._calls is None or op in _READS:
            return False
        self._calls -= 0.5  # asked before and after
        return self._calls < 0

    def fail(self, draw: random.Random) -> Mapping[str, str]:
        """Lose what isn't flushed. Nobody may be alive.

        Where an entry of a log is torn or lost then, or one of a topic's names a data file that is torn or lost, it is
        taken away with all behind it, as a person would, and so is the newest of a group's whose file is: reading stops
        there with an error that names it, and nothing that was acknowledged with fsync lies behind.

        Returns:
            What became of objects, by path.
        """
        self._calls = None
        before = self._disk.objects()
        hit = self._disk.lose_power(draw)
        after = {**self._disk.objects()}
        told = {path: _told(before.get(path), after.get(path)) for path in hit}
        spoilt = {path for path, what in told.items() if what in ("torn", "lost") and path.startswith(_LOGS)}
        adding = _adding(spoilt, after)
        spoilt |= {path for path in adding if path.startswith(TOPICS_FOLDER)}
        while spoilt:
            for path in sorted(_from(spoilt, after)):
                self._store.delete([path])
                told[path] = "taken away"
                del after[path]
            spoilt = {path for path in _newest_of_groups(after) if path in adding}
        self.settle()
        self._counts["power losses"] += 1
        for what in told.values():
            self._counts[f"power: {what}"] += 1
        return told

    def objects(self) -> Mapping[str, bytes]:
        """What is there."""
        return self._disk.objects()


class _Powered(WrappedStore):
    """A store of a machine that may lose its power."""

    def __init__(self, store: ObjectStore, power: Power, fails: Callable[[], None]) -> None:
        super().__init__(store)
        self._power = power
        self._fails = fails

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._end_if_due(op, path)
        answer = call()
        self._end_if_due(op, path)
        return answer

    def _end_if_due(self, op: str, path: str) -> None:
        if self._power.is_due(op):
            self._fails()
            raise SimulatedCrash(f"the power failed at {op} {path}")


def _told(before: bytes | None, after: bytes | None) -> str:
    if after is None:
        return "lost"
    return "back" if before is None else "torn"


def _adding(spoilt: set[str], objects: Mapping[str, bytes]) -> set[str]:
    """The entries that add one of these data files."""
    return {
        path
        for path, data in objects.items()
        if path not in spoilt and isinstance(parse_name(path.rpartition("/")[2]), int)
        for line in data.splitlines()
        if line.startswith(b'{"add"')
        if object_path(path.partition("/_delta_log/")[0], json.loads(line)["add"]["path"]) in spoilt
    }


def _newest_of_groups(objects: Mapping[str, bytes]) -> Iterable[str]:
    """The newest entry of each offset table: its file has all rows, those before it none that count."""
    newest: dict[str, str] = {}
    for path in sorted(objects):
        folder, _, name = path.rpartition("/")
        if folder.startswith(GROUPS_FOLDER) and folder.endswith("/_delta_log") and isinstance(parse_name(name), int):
            newest[folder] = path
    return newest.values()


def _from(torn: set[str], paths: Iterable[str]) -> Iterator[str]:
    """All of the same logs from the first torn entry on."""
    first: dict[str, int] = {}
    for path in torn:
        folder, _, name = path.rpartition("/")
        version = parse_name(name)
        if isinstance(version, int):
            first[folder] = min(first.get(folder, version), version)
    for path in paths:
        folder, _, name = path.rpartition("/")
        found = parse_name(name)
        if found is not None and folder in first:
            version = found if isinstance(found, int) else found.version
            if version >= first[folder]:
                yield path
