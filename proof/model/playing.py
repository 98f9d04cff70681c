"""Playing a trace of the model on the real code, store call by store call."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.names import entry_path
from sparklog.errors import StoreOutcomeUnknownError
from sparklog.log.append import AppendResult, TopicWriter
from sparklog.log.catch_up import catch_up
from sparklog.log.state import load_state
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.entry_log import PositionLost
from sparklog.testing import ManualClock, WrappedStore
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer, append, versions_of

__all__ = ["HOUR_MS", "NEVER_MS", "Actor", "AppendPlayer", "GatedStore"]

T = TypeVar("T")
HOUR_MS = 3_600_000
_PATIENCE_S = 30
NEVER_MS = 10.0**12
_COMMIT_THREAD = "sparklog-offsets"
"""The thread of ``groups.offsets.commit_thread``, which whoever asks waits for: of the two only one goes on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where an actor waits."""

    is_done: bool
    """After the call was carried out, its answer not seen yet; else before it."""
    op: str
    path: str


class Actor:
    """A process that makes one store call when it is told to. It is played in a thread; nothing runs at once."""

    def __init__(self, name: str, memory: ObjectStore) -> None:
        self.name = name
        self.store = GatedStore(memory, self)
        self.errors: list[BaseException] = []
        self.stop: Stop | None = None
        """None: it has nothing to do."""
        self.late: Callable[[], object] | None = None
        """A request whose answer it doesn't wait for."""
        self._fate = ""
        self._chosen = ""
        self._thread: threading.Thread | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)

    def begin(self, work: Callable[[], object]) -> None:
        """Give it something to do, up to before its first call."""

        def run() -> None:
            self._go.acquire()
            try:
                work()
            except BaseException as error:  # told by whoever plays
                self.errors.append(error)
            self.stop = None
            self._stopped.release()

        if self.stop is not None:
            raise RuntimeError(f"{self.name} is at {self.stop}")
        self._thread = threading.Thread(target=run, name=self.name, daemon=True)
        self._thread.start()
        self._move()

    def call(self, op: str, path: str = "", *, fate: str = "") -> bool:
        """Let it go on until it has made a call like that, whose answer it doesn't see yet. False: it ended before.

        Args:
            fate: ``lost``: carried out, its answer is lost; ``late``: not carried out, until :attr:`late` does.
        """
        while self.stop is not None:
            if not self.stop.is_done and self.stop.op == op and path in self.stop.path:
                self._fate = fate
                self._chosen = path
                self._move()
                return True
            self._move()
        return False

    def go_on(self, *, until: str = "", path: str = "") -> None:
        """Let it see the answer and go on, up to before the next call, or the next like that."""
        while self.stop is not None:
            at = self._move()
            if at is not None and not at.is_done and until in ("", at.op) and path in at.path:
                return

    @property
    def next_op(self) -> str:
        """The call that it is about to make; empty at its end."""
        return "" if self.stop is None else self.stop.op

    def finish(self) -> None:
        """Let it go on to its end."""
        while self.stop is not None:
            self._move()

    def wait(self, *, is_done: bool, op: str, path: str) -> None:
        """Called in its own thread, or in its commit thread."""
        self.stop = Stop(is_done, op, path)
        self._stopped.release()
        self._go.acquire()

    def choose(self, paths: Sequence[str]) -> str:
        """Which of these it is told to delete; the first where it is told nothing."""
        return next((path for path in paths if self._chosen and self._chosen in path), paths[0])

    def carry_out(self, op: str, call: Callable[[], T]) -> T:
        fate, self._fate = self._fate, ""
        if fate == "late":
            self.late = call
        elif fate == "lost":
            call()
        if fate:
            raise StoreOutcomeUnknownError(f"{op}: {fate}")
        return call()

    def _move(self) -> Stop | None:
        self._go.release()
        if not self._stopped.acquire(timeout=_PATIENCE_S):
            raise TimeoutError(f"{self.name} went on without a store call for {_PATIENCE_S} s")
        return self.stop


class GatedStore(WrappedStore):
    """Another store; an actor's thread, or the one that keeps offsets for it, waits before and after each call."""

    def __init__(self, store: ObjectStore, actor: Actor) -> None:
        super().__init__(store)
        self._actor = actor

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if threading.current_thread().name not in (self._actor.name, _COMMIT_THREAD):  # before the play, or after it
            return call()
        if op == "get" and "/partition=" in path:  # whether a data file is there: the model has no such step
            return call()
        self._actor.wait(is_done=False, op=op, path=path)
        try:
            return self._actor.carry_out(op, call)
        finally:
            self._actor.wait(is_done=True, op=op, path=path)

    def delete(self, paths: Iterable[str]) -> None:
        """A bulk delete: the objects go one by one, in the order in which its actor is told to delete them."""
        left = [*paths]

        def delete_one() -> None:
            path = self._actor.choose(left)
            self._store.delete([path])
            left.remove(path)

        while left:
            self._call("delete", ",".join(left), delete_one)


class AppendPlayer:
    """Plays what :class:`~proof.model.append_cleanup.AppendCleanup` says. What the code doesn't do, it doesn't do:
    without a rule the model takes other steps than the code."""

    def __init__(self) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        self.log = a_topic(self.memory, self.clock)
        self.actors = {name: Actor(name, self.memory) for name in ("a", "b", "cleanup")}
        self.writers: dict[str, TopicWriter] = {}
        self.acknowledged: dict[str, int] = {}
        """Offsets, by value."""
        self._tokens: dict[int, str] = {}
        """Of what was created under each version first."""
        self._appends = {"a": 0, "b": 0}
        self._others = 0

    def play(self, trace: tuple[str, ...], after_each: Callable[[int], None] = lambda number: None) -> None:
        """Play a trace. ``after_each``: is told how many steps were played."""
        start = trace[0]
        for name, place in re.findall(r"\b([ab]) (at the tail|one behind|opening)", start):
            if place == "one behind":
                self._open(name)
        append(a_writer(self.log), "first")
        for name in re.findall(r"\b([ab]) at the tail", start):
            self._open(name)
        self._remember()
        for number, label in enumerate(trace[1:], 1):
            self._step(label)
            self._remember()
            after_each(number)

    def finish(self) -> None:
        """Let everybody go on to the end."""
        for name in ("cleanup", "a", "b"):
            self.actors[name].finish()
            if self.actors[name].late is not None:
                self._land(name)
        self._remember()

    @property
    def strays(self) -> list[str]:
        """Writers that stand on what isn't the log's: it was created under a name that had been cleaned."""
        at = {name: writer.state.position for name, writer in self.writers.items()}
        return [name for name, position in at.items() if self._tokens[position.version] != position.token]

    @property
    def versions(self) -> list[int]:
        return versions_of(self.log)

    def errors(self, name: str) -> list[BaseException]:
        return self.actors[name].errors

    def _open(self, name: str) -> None:
        self.writers[name] = a_writer(a_log(self.actors[name].store, self.clock))

    def _append(self, name: str) -> None:
        value = f"{name}{self._appends[name]}"
        self._appends[name] += 1
        writer = self.writers[name]
        result: AppendResult = append(writer, value, timeout_ms=NEVER_MS)
        self.acknowledged[value] = result.base_offsets[0]

    def _look(self, name: str) -> None:
        """As ``TopicWriter.refresh``, for one entry; who lost its position loads the log whole, as an append does."""
        writer = self.writers[name]
        try:
            catch_up(writer.state, ahead=1)
        except PositionLost:
            writer._state = load_state(writer.state.log)

    def _remember(self) -> None:
        for version in self.versions:
            if version not in self._tokens:
                entry = self.log.read_entry(version)
                if entry is not None:
                    self._tokens[version] = entry.token

    def _land(self, name: str) -> None:
        late, self.actors[name].late = self.actors[name].late, None
        if late is not None:
            late()

    def _step(self, label: str) -> None:
        if label.startswith("others append"):
            for _ in label.split(","):
                append(a_writer(self.log), f"other {self._others}")
                self._others += 1
        elif label.endswith("passes"):
            self.clock.advance(DAY_MS if "a day" in label else HOUR_MS)
        elif "cleanup" in label:
            self._clean(label)
        elif "late request comes" in label:
            self._land(label[0])
        else:
            self._write(label[0], label[2:])

    def _clean(self, label: str) -> None:
        cleaner = self.actors["cleanup"]
        if "plans" in label:
            log = a_log(cleaner.store, self.clock)

            def work() -> None:
                if "checkpoint" in label:
                    write_checkpoint(log)
                clean_log(log, retention_ms=DAY_MS)

            cleaner.begin(work)
            cleaner.go_on(until="delete")
            return
        if "is killed" in label:
            self.actors["cleanup"] = Actor("cleanup", self.memory)
        for version in re.findall(r"\d+", label):
            if cleaner.stop is not None:
                cleaner.call("delete", entry_path(self.log.table, int(version)))
                cleaner.go_on()

    def _write(self, name: str, what: str) -> None:
        actor = self.actors[name]
        verb = what.split()[0].strip(",")
        if verb == "believes":
            actor.go_on()
            return
        if actor.stop is None:
            if verb == "creates":
                actor.begin(lambda: self._append(name))
            elif what.endswith("beforehand"):
                actor.begin(lambda: self._append(name))
                actor.go_on(until="create", path="_delta_log")
                return
            elif verb == "looks":
                actor.begin(lambda: self._look(name))
            elif verb == "lists":
                actor.begin(lambda: self._open(name))
            else:  # the code has ended before: there is nothing that it would do
                return
        op = {"creates": "create", "lists": "list"}.get(verb, "get")
        fate = "lost" if "answer is lost" in what else "late" if "under way" in what else ""
        actor.call(op, "_delta_log", fate=fate)
        if verb == "verifies" or what.endswith("below the mark"):
            actor.go_on()
            if actor.next_op == "list":  # its own entry is there; now the marks
                actor.call("list", "_cleaned")
                actor.go_on()
                if actor.next_op != "get":
                    return
                actor.call("get", "_delta_log")  # what it has created is there, too
        if "reads up to" in what:
            actor.go_on(until="create")
        elif not what.endswith("(and stalls)") and verb != "lists":
            actor.go_on()
