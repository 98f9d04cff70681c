"""sparklog's log stores for Google Cloud Storage and Azure, in folders that behave as these do on their bad days."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from java import build_jar
from tests.spark_session import need_java, unavailable

SOURCES = Path(__file__).parent / "log_stores"
TIMEOUT_S = 120
EXPECTED = {
    # cloud, what happens to the commit: what Delta is told, what the entry holds, files in the folder
    ("adls", ""): ("committed", "ours", "1"),
    ("adls", "taken"): ("conflict", "another's", "1"),
    ("adls", "lost"): ("committed", "ours", "1"),
    ("adls", "repeated"): ("committed", "ours", "1"),
    ("adls", "not sent"): ("committed", "ours", "1"),
    ("adls", "flat"): ("refused", "nothing", "0"),
    ("gcs", ""): ("committed", "ours", "1"),
    ("gcs", "taken"): ("conflict", "another's", "1"),
    ("gcs", "lost"): ("committed", "ours", "1"),
    ("gcs", "not sent"): ("committed", "ours", "1"),
    ("gcs", "unknown"): ("refused", "nothing", "0"),
}


@pytest.mark.spark
def test_a_commit_is_known_by_its_content_and_overwrites_nobodys(tmp_path: Path) -> None:
    need_java()
    javac, java = build_jar.tool("javac"), build_jar.tool("java")
    if javac is None or java is None:
        unavailable("there is no javac")
    pyspark = pytest.importorskip("pyspark")
    jars = [build_jar.build(), build_jar.local(build_jar.DELTA), Path(pyspark.__path__[0]) / "jars" / "*", tmp_path]
    path = os.pathsep.join(map(str, jars))
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    options = [f"-J{build_jar.QUICK}", "-nowarn", "-implicit:none", "-proc:none"]
    run([javac, *options, "-cp", path, "-d", str(tmp_path), *sources])
    printed = run([java, build_jar.QUICK, "-cp", path, "LogStoreTrials", str(tmp_path / "root")])
    rows = [line.split(";") for line in printed.splitlines() if line.count(";") == 4]
    assert {(cloud, mode): tuple(found) for cloud, mode, *found in rows} == EXPECTED


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout
