"""The one SparkSession of a run, made by ``sparklog.spark.session.session``, or a reason why there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sparklog.spark.session.s3a import S3

PACKAGES = ("io.delta:delta-spark_4.2_2.13:4.4.0", *S3.packages)
IVY = Path.home() / ".ivy2.5.2"
"""Where Spark keeps fetched jars by default; said aloud because Java may think of another home than Python."""
JAVA_VERSIONS = (17, 21)
FETCH_TIMEOUT_S = 300
SPARK_TIMEOUT_S = 600
"""For tests that set none: the first one also waits for Spark's start and, once per machine, for its jars."""

OF_FEW_ROWS = {
    # To plan queries of a few rows anew, and to compile code for them, takes longer than to run them.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.pollingDelay": "50ms",
}
SUBMIT_ARGS = " ".join([*(f"--conf {name}={value}" for name, value in OF_FEW_ROWS.items()), "pyspark-shell"])
"""The same for programs that start a session of their own: ``PYSPARK_SUBMIT_ARGS``."""
WITH_IMPORTS = os.pathsep.join([str(Path(__file__).parent / "spark_site"), str(Path(__file__).parent.parent)])
"""The ``PYTHONPATH`` of a Spark whose daemons have imported what their processes need."""


def need_java() -> None:
    """Skip, or fail in continuous integration, where no Java is that Spark runs on."""
    version = java_version()
    if version is None:
        unavailable("there is no java on the PATH or under JAVA_HOME")
    if version not in JAVA_VERSIONS:
        unavailable(f"Spark needs Java 17 or 21; found {version}")


@contextmanager
def fetching_alone() -> Iterator[None]:
    """Wait until no other process fetches Spark's jars: two at once write to the same files."""
    import fcntl

    IVY.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + FETCH_TIMEOUT_S
    with (IVY / "sparklog-tests.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    unavailable(f"another process has been fetching Spark's jars for {FETCH_TIMEOUT_S} s")
                time.sleep(0.1)
        yield


@pytest.fixture(scope="session")
def spark_jars(request: pytest.FixtureRequest) -> None:
    """The jars of a SparkSession with Delta are there, for a test that starts a Spark of its own."""
    need_java()
    with fetching_alone():
        are_there = all(has_jar(package) for package in PACKAGES)
    if not are_there:
        request.getfixturevalue("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SparkSession with Delta, for S3 too; everything it leaves behind is in a temporary directory."""
    need_java()
    try:
        from pyspark.errors import PySparkRuntimeError
    except ImportError as error:
        unavailable(f"the spark extra is not installed: {error}")
    from java.build_jar import build
    from sparklog.spark import session

    try:
        build()
    except OSError as error:
        unavailable(f"could not fetch what the log store's jar is compiled with: {error}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [WITH_IMPORTS, os.environ.get("PYTHONPATH")])))
        try:
            with fetching_alone():
                folder = tmp_path_factory.mktemp("spark")
                spark = session("sparklog-tests", s3=True, **settings(folder))
        except PySparkRuntimeError as error:  # spark-submit ended before Spark began
            if all(has_jar(package) for package in PACKAGES):
                raise
            unavailable(f"could not fetch {', '.join(PACKAGES)}: {error}")
        spark.sparkContext.setLogLevel("ERROR")
        remember_names(spark.sparkContext._jvm)
        yield spark
        spark.stop()


def settings(folder: Path) -> dict[str, Any]:
    """What keeps a session small, and what it writes below ``folder``."""
    return {
        "spark.master": "local[2]",
        "spark.jars.ivy": str(IVY),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",  # writing one costs more than the commit
        **OF_FEW_ROWS,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -Djava.io.tmpdir={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.connect.grpc.binding.port": "0",  # any that is free, for the tests that start its server
    }


def remember_names(jvm: Any) -> None:
    """Makes PySpark ask the JVM for each of its names once.

    PySpark asks before each call, and Py4J then looks for a class of this name in each package that it knows of, for
    each of them in all of Spark's 300 jars.
    """
    from py4j.java_gateway import JVMView

    class Remembering(JVMView):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            found = self.__dict__[name] = super().__getattr__(name)
            return found

    jvm.__class__ = Remembering


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None


def has_jar(package: str) -> bool:
    """Whether a package's own jar is where ``spark.jars.packages`` leaves it."""
    group, artifact, version = package.split(":")
    return (IVY / "jars" / f"{group}_{artifact}-{version}.jar").exists()


def unavailable(reason: str) -> NoReturn:
    """Skip on a developer's machine; fail in CI, where a skip would go unseen."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"no Spark: {reason}", pytrace=False)
    pytest.skip(f"no Spark: {reason}")
