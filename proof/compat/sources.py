"""Where the suites come from: registries of packages that carry them, or a checkout that a variable names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["FRANZ_GO_VERSION", "LIBRDKAFKA_PACKAGE", "SuiteUnavailableError", "franz_go_sources", "librdkafka_sources"]

FRANZ_GO_VERSION = "v1.21.5"
LIBRDKAFKA_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
"""A package of npm with the sources and the tests of librdkafka 2.15.1, which librdkafka's own packages lack."""
_LIBRDKAFKA_INTEGRITY = (
    "sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw=="
)
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
    folder = cache_folder() / LIBRDKAFKA_PACKAGE.replace("/", "+")
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SuiteUnavailableError(
            "librdkafka's tests come by npm, which isn't on the PATH; or set LIBRDKAFKA to a checkout of it"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        told = called([npm, "pack", "--json", LIBRDKAFKA_PACKAGE], "npm pack", folder=Path(place))
        (packed,) = json.loads(told)
        if packed["integrity"] != _LIBRDKAFKA_INTEGRITY:
            raise SuiteUnavailableError(f"{LIBRDKAFKA_PACKAGE} isn't what it was: integrity {packed['integrity']}")
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
    told = called([go, "mod", "download", "-json", f"github.com/twmb/franz-go@{FRANZ_GO_VERSION}"], "go mod download")
    return Path(json.loads(told)["Dir"]) / "pkg" / "kgo"
