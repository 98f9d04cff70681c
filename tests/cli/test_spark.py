"""``sparklog spark``: the jobs' folder, packages for executors, arguments of spark-submit. Without Spark."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from sparklog._native import CORE
from sparklog.spark import shipping
from tests.cli.support import done, failure, run

JOBS = {"compact.py", "ingest.py", "maintain.py", "optimize.py", "retention.py", "vacuum.py"}


def test_jobs_are_files_of_the_installed_package():
    folder = Path(done("spark", "jobs").strip())
    assert folder.is_dir()
    assert {path.name for path in folder.iterdir()} >= JOBS
    in_repository = {path.name for path in (Path(__file__).parents[2] / "jobs").glob("*.py")}
    assert in_repository == {"__init__.py", *JOBS}


@pytest.mark.slow
def test_each_job_runs_by_its_module():
    for name in sorted(JOBS):
        command = [sys.executable, "-m", f"sparklog.jobs.{name.removesuffix('.py')}", "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert shown.stdout.startswith(f"usage: {name}")


def test_a_zip_is_sparklog_in_pure_python_and_says_so(tmp_path):
    out = tmp_path / "with space.zip"
    made = run("spark", "package", "--out", out)
    assert "pure Python, as a zip can't hold the native core" in made.stderr
    words = shlex.split(made.stdout)
    assert words[:3] == ["spark-submit", "--py-files", str(out)]
    with zipfile.ZipFile(out) as archive:
        names = set(archive.namelist())
    assert {"sparklog/spark/source/data_source.py", "pyspark_sparklog/__init__.py", "sparklog/py.typed"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".pyx"))]
    program = (
        "import sparklog._native as n, sparklog.spark.source.readers as r; print(n.DESCRIPTION); print(r.__file__)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(out)!r}); {program}"]
    pytest.importorskip("pyspark")
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env={})
    core, place = shown.stdout.splitlines()
    assert core.startswith("pure Python: ")
    assert place.startswith(str(out))


@pytest.mark.slow
def test_an_archive_has_the_core_and_what_sparklog_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PACKED", ("isal", "obstore"))  # the others take half a minute to compress
    out = tmp_path / "sparklog.tar.gz"
    made = run("spark", "package", "--out", out)
    assert ("with the native core" in made.stderr) is (CORE is not None)
    words = shlex.split(made.stdout)
    assert words[:3] == ["spark-submit", "--archives", f"{out}#{shipping.FOLDER}"]
    assert words[3:5] == ["--conf", f"spark.executorEnv.PYTHONPATH={shipping.FOLDER}"]
    with tarfile.open(out) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    program = "import sparklog._native as n, obstore; print(n.DESCRIPTION); print(n.__file__); print(obstore.__file__)"
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(tmp_path / "unpacked")}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
    core, *places = shown.stdout.splitlines()
    assert core.startswith("native core" if CORE is not None else "pure Python")
    assert all(place.startswith(str(tmp_path / "unpacked")) for place in places)


def test_wheels_for_another_platform_are_fetched_by_pip_in_the_versions_of_here(tmp_path, monkeypatch):
    asked: list[list[str]] = []

    def pip(command, **_):
        asked.append(command)
        folder = Path(command[command.index("--target") + 1])
        (folder / "pyarrow").mkdir()
        (folder / "pyarrow" / "__init__.py").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    out = tmp_path / "p.tar.gz"
    made = run("spark", "package", "--out", out, "--platform", "manylinux_2_28_aarch64", "--python", "3.12")
    assert "for Python 3.12 on manylinux_2_28_aarch64, in pure Python" in made.stderr
    [command] = asked
    assert command[command.index("--python-version") + 1] == "3.12"
    platforms = [word for before, word in itertools.pairwise(command) if before == "--platform"]
    assert platforms[0] == "manylinux_2_28_aarch64"
    assert platforms[-2:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert f"pyarrow=={version('pyarrow')}" in command
    with tarfile.open(out) as archive:
        names = archive.getnames()
    assert "pyarrow/__init__.py" in names
    assert not [name for name in names if name.startswith("sparklog/_native/core") and name.endswith(".so")]


def test_what_pip_cannot_fetch_is_one_line(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: w\nERROR: No matching distribution found for numpy\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    line = failure("spark", "package", "--out", tmp_path / "p.tar.gz", "--platform", "linux_vax")
    assert line.endswith(
        "pip can't fetch wheels for linux_vax and Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}: No matching distribution found for numpy"
    )


def test_a_name_that_says_neither_kind_is_refused(tmp_path):
    assert "expected a name that ends with .tar.gz, or .zip" in failure("spark", "package", "--out", tmp_path / "p.jar")
    told = failure("spark", "package", "--out", tmp_path / "p.zip", "--platform", "any", code=2)
    assert "a .zip is pure Python" in told


def test_arguments_of_spark_submit_are_one_line():
    pytest.importorskip("pyspark")
    assert done("spark", "arguments") == "--packages io.delta:delta-spark_4.2_2.13:4.4.0\n"
