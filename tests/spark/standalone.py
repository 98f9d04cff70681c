"""A cluster of Spark on this machine: a master and two workers, whose Python has nothing but its standard library."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import spark_session

REPOSITORY = Path(__file__).parents[2]
STARTS_WITHIN_S = 240
ENDS_WITHIN_S = 900


@dataclass(frozen=True)
class Standalone:
    """The cluster, and how to submit to it."""

    master: str
    folder: Path
    bare_python: Path

    def submit(self, program: Path, *arguments: str, ships: Sequence[str] = (), jars: Sequence[Path] = ()) -> str:
        """Submit a program in client mode; returns its standard output. What executors unpacked is removed afterwards.

        Args:
            ships: arguments that ship sparklog.
            jars: for driver and executors.
        """
        done = subprocess.run(
            [*self.command(ships, jars), str(program), *arguments],
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
            env=driver_environment(),
            cwd=self.folder,
        )
        for unpacked in (self.folder / "work").glob("*/app-*"):
            shutil.rmtree(unpacked, ignore_errors=True)
        assert done.returncode == 0, done.stderr[-4_000:]
        return done.stdout

    def command(self, ships: Sequence[str] = (), jars: Sequence[Path] = ()) -> list[str]:
        """``spark-submit`` with the settings of a small cluster."""
        settings = {
            **spark_session.OF_FEW_ROWS,
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": (self.folder / "warehouse").as_uri(),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.folder}",
        }
        words = [str(home() / "bin" / "spark-submit"), "--master", self.master, *ships]
        words += ["--jars", ",".join(map(str, jars))] if jars else []
        return [*words, *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))]


def home() -> Path:
    """Where Spark is: as pip installed it."""
    import pyspark

    return Path(pyspark.__file__).parent


def driver_environment() -> dict[str, str]:
    """Of a driver: it has this Python, and this sparklog; executors run whatever ``python3`` is on their own PATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return environment | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": "python3",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start it; what runs of it ends with the block."""
    bare = folder / "bare"
    venv.create(bare, symlinks=True, with_pip=False)
    port = free_port()
    environment = {
        "PATH": f"{bare / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", str(folder)),
        "SPARK_HOME": str(home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(log: str, kind: str, *arguments: str) -> None:
        command = [str(home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with (folder / log).open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output))

    try:
        start("master.log", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until_said(folder / "master.log", "I have been elected leader")
        for number in (1, 2):
            work = str(folder / "work" / str(number))
            shape = ["--cores", "1", "--memory", "1g", "--work-dir", work, "--host", "127.0.0.1", "--webui-port", "0"]
            start(f"worker{number}.log", "worker.Worker", *shape, f"spark://127.0.0.1:{port}")
        for number in (1, 2):
            until_said(folder / f"worker{number}.log", "Successfully registered with master")
        yield Standalone(f"spark://127.0.0.1:{port}", folder, bare / "bin" / "python3")
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def until_said(log: Path, words: str) -> None:
    """Wait until a log has some words."""
    ends = time.monotonic() + STARTS_WITHIN_S
    while words not in log.read_text():
        assert time.monotonic() < ends, log.read_text()[-2_000:]
        time.sleep(0.2)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
