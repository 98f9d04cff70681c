"""Where the suites come from: registries of packages that carry them, or a checkout that a variable names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from proof.compat.versions import FRANZ_GO, LIBRDKAFKA, LIBRDKAFKA_INTEGRITY

__all__ = [
    "SuiteUnavailableError",
    "cache_folder",
    "called",
    "franz_go_sources",
    "librdkafka_sources",
    "maven_jars",
    "needed_tool",
    "node_modules",
]

_INSIDE = "package/deps/librdkafka/"
_FETCH_S = 600


class SuiteUnavailableError(Exception):
    """A suite can't be fetched or built here; says why, and what would help, in one line."""


def cache_folder() -> Path:
    """Where sources and builds are kept."""
    named = os.environ.get("SPARKLOG_COMPAT_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "sparklog" / "compat"


def needed_tool(name: str, why: str) -> str:
    """The path of a program. Raises ``SuiteUnavailableError``."""
    found = shutil.which(name)
    if found is None:
        raise SuiteUnavailableError(f"there is no {name} on the PATH, which {why} needs")
    return found


def called(command: list[str], what: str, *, folder: Path | None = None, timeout_s: float = _FETCH_S) -> str:
    """What a program prints. Raises ``SuiteUnavailableError`` with its last line where it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailableError(f"{what} didn't end within {timeout_s:.0f} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise SuiteUnavailableError(f"{what} failed: {lines[-1] if lines else done.returncode}")
    return done.stdout


def librdkafka_sources() -> Path:
    """The folder of librdkafka with ``src`` and ``tests``: a checkout that ``LIBRDKAFKA`` names, or what npm has.

    Raises ``SuiteUnavailableError``."""
    named = os.environ.get("LIBRDKAFKA")
    if named:
        if not (Path(named) / "tests" / "test.c").is_file():
            raise SuiteUnavailableError(f"LIBRDKAFKA={named} has no tests/test.c: expected a checkout of librdkafka")
        return Path(named)
    folder = cache_folder() / LIBRDKAFKA.replace("/", "+")
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SuiteUnavailableError(
            "librdkafka's tests come by npm, which isn't on the PATH; or set LIBRDKAFKA to a checkout of it"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        told = called([npm, "pack", "--json", LIBRDKAFKA], "npm pack", folder=Path(place))
        (packed,) = json.loads(told)
        if packed["integrity"] != LIBRDKAFKA_INTEGRITY:
            raise SuiteUnavailableError(f"{LIBRDKAFKA} isn't what it was: integrity {packed['integrity']}")
        unpacked = Path(place) / "librdkafka"
        with tarfile.open(Path(place) / packed["filename"]) as archive:
            for member in archive.getmembers():
                if member.name.startswith(_INSIDE) and member.isfile() and ".." not in Path(member.name).parts:
                    member.name = member.name[len(_INSIDE) :]
                    archive.extract(member, unpacked)
        with suppress(OSError):  # another process was faster
            unpacked.rename(folder)
    return folder


def franz_go_sources() -> Path:
    """The folder of franz-go's package ``kgo``, from the proxy of Go's modules. Raises ``SuiteUnavailableError``."""
    named = os.environ.get("FRANZ_GO")
    if named:
        return Path(named) / "pkg" / "kgo"
    go = needed_tool("go", "franz-go's suite")
    told = called([go, "mod", "download", "-json", FRANZ_GO], "go mod download")
    return Path(json.loads(told)["Dir"]) / "pkg" / "kgo"


def maven_jars(name: str, artifacts: Sequence[str]) -> Path:
    """A folder with the jars of artifacts, ``GROUP:NAME:VERSION`` each, and of what they need, fetched by Maven once.

    Raises ``SuiteUnavailableError``."""
    folder = _place_of(name, artifacts)
    if not folder.is_dir():
        maven = needed_tool("mvn", f"fetching the jars of {name}")
        with _fetching(name, folder) as place:
            (place / "pom.xml").write_text(_pom(artifacts))
            command = [maven, "-B", "-q", "-ntp", "-f", str(place / "pom.xml"), "dependency:copy-dependencies"]
            called([*command, f"-DoutputDirectory={place / 'whole'}", "-DincludeScope=runtime"], "mvn")
    return folder


def node_modules(name: str, packages: Sequence[str]) -> Path:
    """A folder ``node_modules`` with packages of npm, ``NAME@VERSION`` each, fetched once. No script of theirs is run.

    Raises ``SuiteUnavailableError``."""
    folder = _place_of(name, packages)
    if not folder.is_dir():
        npm = needed_tool("npm", f"fetching {name}")
        with _fetching(name, folder) as place:
            whole = place / "whole"
            whole.mkdir()
            (whole / "package.json").write_text("{}")
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--save-exact")
            called([npm, "install", *options, *packages], "npm install", folder=whole)
    return folder / "node_modules"


def _place_of(name: str, wanted: Sequence[str]) -> Path:
    return cache_folder() / f"{name}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:12]}"


@contextmanager
def _fetching(name: str, folder: Path) -> Iterator[Path]:
    """A place whose folder ``whole`` becomes the folder at the end."""
    print(f"Fetching {name} into {folder} (once)", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        yield Path(place)
        try:
            (Path(place) / "whole").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise


def _pom(artifacts: Sequence[str]) -> str:
    wanted = []
    for one in artifacts:
        group, name, version = one.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>sparklog.compat</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(wanted)}</dependencies></project>"
    )
