"""Another version of sparklog that takes part in a round: its tree, and its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any

from proof.torture.life import Place, Told

__all__ = ["BEFORE", "REPOSITORY", "NoVersionError", "OtherProcess", "check_out", "create_topics_by", "start_of"]

REPOSITORY = Path(__file__).parents[2]
BEFORE = "6c295062ccdef52a86e976e10bc1c3d3848bb3b3"
"""The version that takes part where none is named, until there is a tag; golden clusters are of it, too."""
_CREATE_S = 60.0
_LAUNCHER = """
import dataclasses, json, sys
from pathlib import Path
from proof.torture.life import Place, Told
from proof.torture.plan import TOPICS, Planted, Role

def known(kind, given):
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}

given = json.loads(sys.argv[1])
place = given["place"]
place = Place(**known(Place, {**place, "folder": Path(place["folder"]), "gateways": tuple(place["gateways"])}))
if given["role"] is None:
    from sparklog.admin import Admin, NewTopic
    with Admin(place.cluster()) as admin:
        admin.create_topics([NewTopic(each.name, each.partitions, configs=dict(each.configs)) for each in TOPICS])
else:
    from proof.torture.crew import begin
    names = {each.value for each in Planted}
    planted = tuple(Planted(each) for each in given["planted"] if each in names)
    begin(Told(**known(Told, {**given, "place": place, "role": Role(given["role"]), "planted": planted})))
"""
"""Run by the other version, in its tree: it knows the names of today's version's fields, or does without them."""


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
    return {**os.environ, "PYTHONPATH": str(tree)}


class OtherProcess:
    """A process of another version, with what ``multiprocessing`` offers of its own."""

    def __init__(self, tree: Path, given: str, name: str) -> None:
        self.name = name
        command = [sys.executable, "-c", _LAUNCHER, given]
        self._process = subprocess.Popen(command, cwd=tree, env=_environment(tree), stdin=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; a signal's number below 0."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


def start_of(tree: Path, told: Told) -> OtherProcess:
    """Start a process of the version in ``tree``, which is told the same as one of today's."""
    given = {**_fields(told.place), **_told(told)}
    return OtherProcess(tree, json.dumps(given), f"{told.job}.{told.number}")


def create_topics_by(tree: Path, place: Place) -> None:
    """Let the version in ``tree`` make the cluster and its topics. Raises ``CalledProcessError``."""
    given = json.dumps({**_fields(place), "role": None})
    command = [sys.executable, "-c", _LAUNCHER, given]
    subprocess.run(command, cwd=tree, env=_environment(tree), check=True, timeout=_CREATE_S)


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
