"""Another version of sparklog that takes part in a round: its tree, and its processes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

from proof.torture.life import Place, Told

__all__ = ["BEFORE", "GONE", "REPOSITORY", "NoVersionError", "OtherProcess", "OtherVersion", "check_out"]

REPOSITORY = Path(__file__).parents[2]
BEFORE = "6c295062ccdef52a86e976e10bc1c3d3848bb3b3"
"""The version that takes part where none is named, until there is a tag; golden clusters are of it, too."""
GONE = -1_000
"""The exit code of processes whose end nobody told, since the other version's server is gone."""
_ANSWER_S = 120.0
_SERVER = Path(__file__).with_name("other_server.py")


class NoVersionError(Exception):
    """There is no such version here; the text says why, and what to do."""


def check_out(ref: str, folder: Path) -> str:
    """Put the tree of a git ref there, with its native core; what it is, in a few words.

    Raises ``NoVersionError``: this is no git checkout, or it has no such commit.
    """
    try:
        _git("rev-parse", "--git-dir")
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoVersionError(f"{REPOSITORY} is no git checkout, so there is no other version: {error}") from error
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError as error:
        raise NoVersionError(
            f"there is no {ref} in this checkout; if it is a shallow one: git fetch --unshallow --tags"
        ) from error
    with zipfile.ZipFile(BytesIO(_git("archive", "--format=zip", commit))) as packed:
        packed.extractall(folder)
    subprocess.run([sys.executable, "sparklog/_native/build_core.py"], cwd=folder, env=_environment(folder), check=True)
    version = [sys.executable, "-m", "sparklog", "--version"]
    said = subprocess.run(version, cwd=folder, env=_environment(folder), check=True, capture_output=True, text=True)
    return f"{ref} ({commit[:8]}): {said.stdout.strip()}"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(REPOSITORY), *arguments], check=True, capture_output=True).stdout


def _environment(tree: Path) -> dict[str, str]:
    compiled_once = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**compiled_once, "PYTHONPATH": str(tree)}


class OtherVersion:
    """Another version, which starts processes as it is told; those that it has left end with it."""

    def __init__(self, tree: Path) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER.read_text()],
            cwd=tree,
            env=_environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._input, self._output = cast("IO[bytes]", self._server.stdin), cast("IO[bytes]", self._server.stdout)
        self._changed = threading.Condition()
        self._said: dict[tuple[str, int], int] = {}
        """What the server said of a process: its pid as it ``began``, its exit code as it ``ended``."""
        self._is_gone = False
        self._numbers = itertools.count(1)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> OtherVersion:
        return self

    def __exit__(self, *error: object) -> None:
        self._input.close()
        self._server.wait(_ANSWER_S)
        self._listener.join(_ANSWER_S)
        self._output.close()

    def start(self, told: Told) -> OtherProcess:
        """Start a process, which is told the same as one of today's version. Raises ``TimeoutError``."""
        return self._start(f"{told.job}.{told.number}", {**_fields(told.place), **_told(told)})

    def create_topics(self, place: Place) -> None:
        """Make the cluster and its topics. Raises ``RuntimeError``: it failed, and its standard error says why."""
        process = self._start("topics", {**_fields(place), "role": None})
        process.join(_ANSWER_S)
        if process.exitcode != 0:
            process.kill()
            raise RuntimeError(f"the other version can't create the topics: exit code {process.exitcode}")

    def said(self, what: str, number: int, timeout_s: float | None) -> int | None:
        """What the server says, as soon as it says it; None: not within that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_gone or (what, number) in self._said, timeout_s)
            return self._said.get((what, number), GONE if self._is_gone else None)

    def _start(self, name: str, given: Mapping[str, Any]) -> OtherProcess:
        number = next(self._numbers)
        self._input.write(json.dumps([number, given]).encode() + b"\n")
        self._input.flush()
        pid = self.said("began", number, _ANSWER_S)
        if pid is None or pid == GONE:
            raise TimeoutError(f"the other version doesn't start {name}: pid {pid}")
        return OtherProcess(self, name, number, pid)

    def _listen(self) -> None:
        for line in self._output:
            what, number, value = json.loads(line)
            with self._changed:
                self._said[what, number] = value
                self._changed.notify_all()
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()


class OtherProcess:
    """A process of another version, with what ``multiprocessing`` offers of its own."""

    def __init__(self, version: OtherVersion, name: str, number: int, pid: int) -> None:
        self._version = version
        self._number = number
        self.name = name
        self.pid = pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; a signal's number below 0."""
        return self._version.said("ended", self._number, 0)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def join(self, timeout: float | None = None) -> None:
        self._version.said("ended", self._number, timeout)

    def _signal(self, number: signal.Signals) -> None:
        if self.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _fields(place: Place) -> dict[str, Any]:
    return {"place": {**asdict(place), "folder": str(place.folder)}}


def _told(told: Told) -> dict[str, Any]:
    return {
        "seed": told.seed,
        "job": told.job,
        "number": told.number,
        "role": told.role.value,
        "planted": _values(told.planted),
        "is_sharing": told.is_sharing,
    }


def _values(members: Collection[Enum]) -> list[str]:
    return [member.value for member in members]
