"""What is in a wheel and in a source distribution: with a compiler, and without one."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import build_wheels
from build_wheels import Interpreter, found, tag_of
from sparklog._native import CORE, build_core

ROOT = Path(build_wheels.ROOT)
BUILD = """
import sys
from hatchling.builders.{kind} import {kind_class} as Builder
print(next(iter(Builder(sys.argv[1]).build(directory=sys.argv[2], versions=["standard"]))))
"""
WITH_THE_CORE_OF_HERE = f"""
import shutil, sys
sys.path.insert(0, {str(Path(build_core.__file__).parent)!r})
import build_core
from pathlib import Path
build_core.build = lambda folder: Path(shutil.copy({getattr(CORE, "__file__", "")!r}, folder))
"""
"""Instead of compiling, which takes ten seconds."""
SOURCES = {f"sparklog/_native/{name}" for name in build_core._PARTS}


def built(root: Path, to: Path, *, kind: str, first: str = "", **environment: str) -> Path:
    """What hatchling makes.

    Args:
        first: is run in its process before.
    """
    code = first + BUILD.format(kind=kind, kind_class={"wheel": "WheelBuilder", "sdist": "SdistBuilder"}[kind])
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), str(to)],
        cwd=to,
        env={**os.environ, "SPARKLOG_JAR": "skip", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


def compiled_modules(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith((".so", ".dylib", ".pyd"))]


@pytest.mark.slow
@pytest.mark.skipif(CORE is None, reason="the native core can't be compiled here")
@pytest.mark.parametrize("is_compiled_anew", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_wheel_holds_the_compiled_core_and_names_its_python(tmp_path: Path, is_compiled_anew: bool) -> None:
    for needed in ("Cython", "hatchling"):
        pytest.importorskip(needed)
    first = "" if is_compiled_anew else WITH_THE_CORE_OF_HERE
    flags = "-O0"  # in a third of the time
    wheel = built(ROOT, tmp_path, kind="wheel", first=first, SPARKLOG_CORE="require", CFLAGS=flags)
    assert compiled_modules(wheel) == [f"sparklog/_native/core{importlib.machinery.EXTENSION_SUFFIXES[0]}"]
    python = f"cp3{sys.version_info.minor}"
    assert f"-{python}-{python}-" in wheel.name
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        assert set(archive.namelist()) >= SOURCES
    code = "import sparklog._native as n; print(n.__file__, n.CORE.__file__, n.DESCRIPTION, sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "SPARKLOG_PURE": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    *files, description = done.stdout.splitlines()
    assert [Path(file).parent for file in files] == [unpacked / "sparklog" / "_native"] * 2
    assert description == "native core"


@pytest.mark.slow
def test_a_source_distribution_builds_where_there_is_no_compiler(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    sdist = built(ROOT, tmp_path, kind="sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert not [*unpacked.glob("sparklog/_native/*.so")]
    wheel = built(unpacked, tmp_path, kind="wheel", CC="/nowhere/cc", SPARKLOG_CORE="")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert compiled_modules(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) >= SOURCES


def test_wheels_are_built_for_the_pythons_that_are_there_one_for_each_version() -> None:
    interpreters, problems = found([sys.executable, sys.executable, "/nowhere/python3.11"])
    assert interpreters == [Interpreter(sys.executable, "{}.{}".format(*sys.version_info[:2]))]
    assert problems == ["/nowhere/python3.11: not there, or it doesn't run"]


@pytest.mark.parametrize("version", ["3.9", "pypy"])
def test_a_python_that_no_wheel_is_for_is_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_wheels, "_version", lambda path: version)
    interpreters, [problem] = found([sys.executable])
    assert interpreters == []
    assert f"it is {version}" in problem


def test_the_tag_of_a_wheel_is_the_last_part_of_its_name() -> None:
    assert tag_of(Path("sparklog-0.1.0-cp311-cp311-linux_x86_64.whl")) == "linux_x86_64"
    name = "sparklog-0.1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert tag_of(Path(name)) == "manylinux_2_17_x86_64.manylinux2014_x86_64"


def test_the_versions_are_those_of_the_classifiers_and_of_the_release() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for version in build_wheels.VERSIONS:
        assert f'    "Programming Language :: Python :: {version}",' in lines
    release = " ".join(f"cp{version.replace('.', '')}-*" for version in build_wheels.VERSIONS)
    assert f'build = "{release}"' in lines
