"""What lies under a round's cluster is exchanged: moved away and put back, replaced by another cluster, or in parts.

There are two clusters with the same topics, ``blue`` and ``green``. One of them is in the place that all processes are
told of. A folder is moved at once, under whoever works in it; so is a symbolic link. On an object store the requests
that are under way end first, and what was there is away for longer than the clients may take to notice; then what
they have stored in that time is deleted, as docs/operations.md says, before anything is put there.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from proof.torture.proxy import FaultyProxy
from sparklog.storage import ObjectStore, open_store

__all__ = ["NAMES", "Absence", "Exchanger", "FolderGround", "Ground", "StoreGround"]

NAMES = ("blue", "green")
_TOPICS = ("in", "out")
_AWAY_S = (0.3, 3.0)
"""How long a folder is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A cluster, or one of its topics, wasn't in its place."""

    name: str
    topic: str | None
    """None: all of it."""
    began_ms: int
    ended_ms: int
    is_noticed: bool = True
    """Must those who work with it get errors? Not where a link was switched that they had resolved before."""


class Ground(ABC):
    """The place, and what is there."""

    rest_s = (1.5, 4.0)
    """Between two exchanges."""

    def __init__(self, first: str) -> None:
        self.current = first
        self.absences: list[Absence] = []
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}
        self._gone_since: dict[str, int] = {}

    @abstractmethod
    def acts(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What can be done, by name."""

    @abstractmethod
    def root_of(self, name: str) -> str:
        """Where a cluster is, once nobody works any more."""

    @property
    def other(self) -> str:
        """The cluster that isn't there."""
        return NAMES[1 - NAMES.index(self.current)]

    def end(self) -> None:
        """Nothing more happens."""
        for name, began_ms in self._gone_since.items():
            self._note(name, None, began_ms, is_noticed=True)

    def _swapped(self, began_ms: int, *, is_noticed: bool = True) -> None:
        """The other cluster is there now; the one before is away since then."""
        other = self.other
        if is_noticed:
            self._gone_since[self.current] = began_ms
        if other in self._gone_since:
            self._note(other, None, self._gone_since.pop(other), is_noticed=True)
        self.current = other

    def _note(self, name: str, topic: str | None, began_ms: int, *, is_noticed: bool) -> None:
        self.absences.append(
            Absence(name=name, topic=topic, began_ms=began_ms, ended_ms=_now_ms(), is_noticed=is_noticed)
        )


class FolderGround(Ground):
    """Folders that are moved, and a symbolic link.

    Args:
        folder: of the round; the place is ``cluster`` in it.
        is_linked: the place is a link, to the folder of one of the clusters.
    """

    def __init__(self, folder: Path, *, is_linked: bool) -> None:
        super().__init__(NAMES[0])
        self.place = folder / "cluster"
        self._folders = folder / "folders"
        self._is_linked = is_linked
        for name in NAMES:
            (self._folders / name).mkdir(parents=True)

    def settle(self) -> None:
        """Put the first cluster in its place."""
        if self._is_linked:
            self.place.symlink_to(self._folders / self.current)
        else:
            (self._folders / self.current).rename(self.place)

    def acts(self) -> Mapping[str, Callable[[random.Random], None]]:
        return {
            "moved away": lambda draw: self._move(draw, "", None),
            "exchanged": lambda draw: self._switch() if self._is_linked else self._swap(),
            "a topic's log moved away": lambda draw: self._move(draw, *_log_of_a_topic(draw)),
        }

    def root_of(self, name: str) -> str:
        return str(self._where(name))

    def _where(self, name: str) -> Path:
        is_placed = name == self.current and not self._is_linked
        return self.place if is_placed else self._folders / name

    def _move(self, draw: random.Random, path: str, topic: str | None) -> None:
        there, away = self._where(self.current) / path, self._folders / "away"
        if not there.is_dir():
            return
        began_ms = _now_ms()
        there.rename(away)
        time.sleep(draw.uniform(*_AWAY_S))
        if there.exists():
            found = sorted(str(one.relative_to(there)) for one in there.rglob("*") if one.is_file())
            self.faults.append(f"{path or 'the cluster'} was made anew while it was away: {found[:5]}")
            there.rename(self._folders / f"made-anew-{began_ms}")
        away.rename(there)
        self._note(self.current, topic, began_ms, is_noticed=True)

    def _swap(self) -> None:
        began_ms = _now_ms()
        self.place.rename(self._folders / self.current)
        if self.place.exists():
            self.faults.append("the cluster was made anew between two renames")
            shutil.rmtree(self.place)
        (self._folders / self.other).rename(self.place)
        self._swapped(began_ms)

    def _switch(self) -> None:
        link = self._folders / "link"
        link.symlink_to(self._folders / self.other)
        os.replace(link, self.place)
        self._swapped(_now_ms(), is_noticed=False)


class StoreGround(Ground):
    """Objects below a prefix, which are deleted and put there again.

    Args:
        uri: of the place.
        options: for the store itself, past the proxy.
        notice_s: how long clients may take to notice that their cluster is away.
    """

    rest_s = (6.0, 10.0)

    def __init__(self, uri: str, options: Mapping[str, object], proxy: FaultyProxy, *, notice_s: float) -> None:
        super().__init__(NAMES[0])
        self.options = dict(options)
        self.uri = uri
        self.notice_s = notice_s
        self._proxy = proxy
        self._store = open_store(uri, self.options)
        self._saved: dict[str, dict[str, bytes]] = {}

    def save(self, name: str) -> None:
        """Take what is in the place away, as this cluster."""
        self._saved[name] = self._take("")

    def settle(self) -> None:
        """Put the first cluster in its place."""
        self._put(self._saved.pop(self.current))

    def acts(self) -> Mapping[str, Callable[[random.Random], None]]:
        return {
            "moved away": lambda draw: self._move("", None),
            "exchanged": lambda draw: self._swap(),
            "a topic's log moved away": lambda draw: self._move(*_log_of_a_topic(draw)),
        }

    def root_of(self, name: str) -> str:
        """The cluster that isn't in its place is put beside it."""
        if name == self.current:
            return self.uri
        aside = f"{self.uri}-{name}"
        _put_all(open_store(aside, self.options), self._saved[name])
        return aside

    def _move(self, prefix: str, topic: str | None) -> None:
        began_ms = _now_ms()
        with self._held():
            taken = self._take(prefix)
        time.sleep(self.notice_s)
        with self._held():
            self._delete(prefix)
            self._put(taken)
        self._note(self.current, topic, began_ms, is_noticed=True)

    def _swap(self) -> None:
        began_ms = _now_ms()
        with self._held():
            self._saved[self.current] = self._take("")
        time.sleep(self.notice_s)
        with self._held():
            self._delete("")
            self._put(self._saved.pop(self.other))
        self._swapped(began_ms)

    def _held(self) -> AbstractContextManager[None]:
        return self._proxy.held()

    def _take(self, prefix: str) -> dict[str, bytes]:
        paths = [info.path for info in self._store.list(prefix)]
        found = self._store.read_many(paths)
        self._store.delete(paths)
        return {path: data for path, data in zip(paths, found, strict=True) if data is not None}

    def _delete(self, prefix: str) -> None:
        self._store.delete([info.path for info in self._store.list(prefix)])

    def _put(self, objects: Mapping[str, bytes]) -> None:
        _put_all(self._store, objects)


def _log_of_a_topic(draw: random.Random) -> tuple[str, str]:
    topic = draw.choice(_TOPICS)
    return f"topics/{topic}/_delta_log/", topic


def _put_all(store: ObjectStore, objects: Mapping[str, bytes]) -> None:
    store.put_many(dict(objects))


class Exchanger:
    """Does one act after the other, in a thread, until it is told to end.

    Args:
        is_busy: does everybody work, so that it may begin?
    """

    def __init__(self, ground: Ground, seed: int, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._ground = ground
        self._draw = random.Random(f"exchange {seed}")
        self._is_over = threading.Event()
        self.error: Exception | None = None
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin in a moment."""
        self._thread.start()

    def end(self) -> None:
        """Wait until the act under way has ended."""
        self._is_over.set()
        self._thread.join()
        self._ground.end()

    def _run(self) -> None:
        acts = self._ground.acts()
        left: list[str] = []
        try:
            while not self._is_busy() and not self._is_over.wait(0.1):
                pass
            while not self._is_over.wait(self._draw.uniform(*self._ground.rest_s)):
                left = left or self._draw.sample(sorted(acts), len(acts))
                name = left.pop()
                acts[name](self._draw)
                self._ground.counts[name] = self._ground.counts.get(name, 0) + 1
                self.count += 1
        except Exception as error:  # whatever it is, it's the round's
            self.error = error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
