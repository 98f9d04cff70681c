"""Kafka Streams with ``exactly_once_v2``: what it does when it is started again."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from proof.compat.processes import NotShownError, Program, wait_until
from proof.compat.scenarios import PROGRAMS, Scenarios, java_command, serving
from proof.compat.sources import maven_jars
from proof.compat.topics import committed_offsets, create_topics, end_offsets, produce, records_of, writing_beside
from proof.compat.versions import STREAMS_39_JARS, STREAMS_43_JARS

__all__ = ["Streams39", "Streams43"]

_PARTITIONS, _KEYS = 3, 200
_START_S, _WORK_S = 240, 300
_OFTEN, _NEVER = 200, 100_000
"""Intervals between commits, in milliseconds. Whoever never commits in time does so when it is closed."""


class _App:
    """An application of a name of its own, the records that it is given, and what it must make of them."""

    def __init__(self, command: list[str], servers: str, name: str, folder: Path) -> None:
        self.servers, self.name, self.folder = servers, name, folder
        self.changelog = f"{name}-counts-changelog"
        self.given = 0
        self._command = command
        self._starts = 0
        folder.mkdir(parents=True)
        create_topics(servers, (f"{name}-in", f"{name}-out"), _PARTITIONS)

    def give(self, count: int) -> None:
        """Produce records to be counted."""
        numbers = range(self.given, self.given + count)
        produce(
            self.servers, f"{self.name}-in", ((n % _KEYS % _PARTITIONS, f"key-{n % _KEYS}", f"{n}") for n in numbers)
        )
        self.given += count

    @contextmanager
    def started(self, commit_ms: int, instance: str = "a") -> Iterator[Program]:
        """Run an instance, and wait until it is ready."""
        self._starts += 1
        state = self.folder / f"state-{instance}"
        log = self.folder / f"start-{self._starts}.log"
        command = [*self._command, self.servers, self.name, str(state), str(commit_ms)]
        with Program(command, self.folder, log) as program:
            program.wait_for("running", _START_S)
            yield program
            (self.folder / f"start-{self._starts}.said").write_text("\n".join(program.lines))
        if "Received offset=-1" in log.read_text(errors="replace"):
            raise NotShownError(f"Streams warns of answers without offsets: {log}")

    def wait_committed(self) -> None:
        """Wait until all that was given is counted and committed."""

        def is_committed() -> bool:
            return sum(committed_offsets(self.servers, self.name, f"{self.name}-in")) == self.given

        wait_until(is_committed, f"the group's offsets reach {self.given} in sum", _WORK_S)

    def check_state(self, program: Program) -> None:
        """The store of the only instance has the count of each key."""
        program.say("state")
        program.wait_for("whole", _WORK_S)
        found = dict(line.split()[1:] for line in program.lines if line.startswith("count key-"))
        wanted = {key: str(count) for key, count in self._counts().items()}
        if found != wanted:
            raise NotShownError(f"the state has {_differing(found, wanted)}")

    def check_output(self) -> None:
        """The topic of results has each count of each key once, in order."""
        found = defaultdict(list)
        for one in records_of(self.servers, f"{self.name}-out"):
            found[(one.key() or b"").decode()].append((one.value() or b"").decode())
        wanted = {key: [str(n) for n in range(1, count + 1)] for key, count in self._counts().items()}
        if found != wanted:
            raise NotShownError(f"the results have {_differing(found, wanted)}")

    def _counts(self) -> Counter[str]:
        return Counter(f"key-{n % _KEYS}" for n in range(self.given))


def _differing(found: dict[str, str] | dict[str, list[str]], wanted: dict[str, str] | dict[str, list[str]]) -> str:
    keys = [key for key in {*found, *wanted} if found.get(key) != wanted.get(key)]
    key = min(keys)
    return f"{len(keys)} of {len(wanted)} keys otherwise; {key}: {found.get(key)}, expected {wanted.get(key)}"


def _restored(program: Program) -> int:
    """How many records an instance has restored."""
    return sum(int(line.split()[2]) for line in program.lines if line.startswith("restored "))


def _close(program: Program) -> None:
    program.say("close")
    program.wait_for("closed", _WORK_S)
    program.wait_end(_WORK_S)


class _Streams(Scenarios):
    lists = "streams"
    jars: tuple[str, ...]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        jars = maven_jars(self.name, self.jars)
        self._command = java_command(PROGRAMS / "streams" / "Streams.java", jars, folder)

    @contextmanager
    def _app(self, name: str) -> Iterator[_App]:
        with serving(self.folder / name / "gateway") as servers:
            yield _App(self._command, servers, f"{name}-{os.getpid()}", self.folder / name / "app")

    def clean_close(self) -> str:
        """After a clean close nothing is restored."""
        with self._app("clean-close") as app:
            app.give(1_500)
            with app.started(_OFTEN) as program:
                app.wait_committed()
                _close(program)
            app.give(500)
            with app.started(_OFTEN) as program:
                restored = _expect_restored(program, 0)
                app.wait_committed()
                app.check_state(program)
                _close(program)
            app.check_output()
        return restored

    def kill_9(self) -> str:
        """After kill -9 within the first transaction since the start nothing is restored."""
        return self._killed("kill-9", others=False)

    def other_writers(self) -> str:
        """With other writers on the changelog, after a clean close only what came since the last transaction began."""
        with self._app("other-writers") as app:
            app.give(1_500)
            with app.started(_OFTEN) as program:
                app.wait_committed()
                _close(program)
            with writing_beside(app.servers, app.changelog), app.started(_NEVER) as program:
                before = end_offsets(app.servers, app.changelog)
                app.give(500)
                program.wait_for("processed 500", _WORK_S)
                _close(program)
            after = end_offsets(app.servers, app.changelog)
            with app.started(_OFTEN) as program:
                begins = {int(p): int(begin) for p, begin in _restoring(program)}
                if any(begin < before[partition] for partition, begin in begins.items()):
                    raise NotShownError(f"restored from {begins}, expected from {before} at least")
                restored = _expect_restored(program, sum(after) - sum(before))
                app.wait_committed()
                app.check_state(program)
                _close(program)
            app.check_output()
        return restored

    def kill_9_other_writers(self) -> str:
        """The same as ``kill-9`` with other writers on the changelog."""
        return self._killed("kill-9-other-writers", others=True)

    def moved(self) -> None:
        """What an instance that was killed had counted another one goes on with, which then restores nothing."""
        with self._app("moved") as app:
            app.give(1_000)
            with app.started(_OFTEN, "a") as first, app.started(_OFTEN, "b") as second:
                app.give(1_000)
                app.wait_committed()
                first.kill()
                app.give(1_000)
                app.wait_committed()
                app.check_state(second)
                _close(second)
            with app.started(_OFTEN, "b") as second:
                _expect_restored(second, 0)
                app.check_state(second)
                _close(second)
            app.check_output()

    def _killed(self, name: str, *, others: bool) -> str:
        with self._app(name) as app:
            app.give(1_500)
            with app.started(_OFTEN) as program:
                app.wait_committed()
                _close(program)
            before = end_offsets(app.servers, app.changelog)
            beside = writing_beside(app.servers, app.changelog) if others else nullcontext()
            with beside, app.started(_NEVER) as program:
                app.give(500)
                program.wait_for("processed 500", _WORK_S)
                program.kill()
            most = sum(end_offsets(app.servers, app.changelog)) - sum(before)
            with app.started(_OFTEN) as program:
                restored = _expect_restored(program, most)
                app.wait_committed()
                app.check_state(program)
                _close(program)
            app.check_output()
        return restored


def _restoring(program: Program) -> list[list[str]]:
    return [line.split()[1:3] for line in program.lines if line.startswith("restoring ")]


def _expect_restored(program: Program, most: int) -> str:
    count = _restored(program)
    if count > most:
        raise NotShownError(f"{count} records were restored, expected {most} at most: {_restoring(program)}")
    return f"{count} records were restored, {most} might have been"


class Streams39(_Streams):
    """Of Kafka 3.9."""

    name = "streams-3.9"
    jars = STREAMS_39_JARS


class Streams43(_Streams):
    """Of Kafka 4.3."""

    name = "streams-4.3"
    jars = STREAMS_43_JARS
