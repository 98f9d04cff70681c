"""A real Kafka broker of one node as the peer: jars by Maven, once; storage in a temporary folder, gone at the end."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import os
import shutil
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.shared import lent

__all__ = [
    "BRIEF_JVM_OPTIONS",
    "Broker",
    "BrokerUnavailableError",
    "broker_or_none",
    "fetched_jars",
    "running_broker",
]

SOURCES = Path(__file__).parent / "kafka"
HOST = "127.0.0.1"
STARTUP_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 900
# As Kafka's own kafka-server-start sets them.
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
BRIEF_JVM_OPTIONS = ("-Xmx1G", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
"""For a broker that isn't measured: in a minute a JVM loads and compiles more than it runs."""


class BrokerUnavailableError(Exception):
    """There is no broker to compare with; says why in one line."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that answers."""

    bootstrap: str
    pid: int


@contextmanager
def broker_or_none(*, fsync: bool = False) -> Iterator[Broker | None]:
    """A running broker, one for the whole run; where there can be none, None, and a line that says why."""
    with lent(("broker", fsync), partial(_broker_or_none, fsync=fsync)) as broker:
        yield broker


@contextmanager
def _broker_or_none(*, fsync: bool) -> Iterator[Broker | None]:
    try:
        import confluent_kafka  # noqa: F401 - the client to compare with
    except ImportError:
        print("Kafka is left out: confluent-kafka isn't installed (pip install 'sparklog[bench]')", flush=True)
        yield None
        return
    with ExitStack() as stack:
        broker = None
        try:
            broker = stack.enter_context(running_broker(fsync=fsync))
        except BrokerUnavailableError as error:
            print(f"Kafka is left out: {error}", flush=True)
        yield broker


@contextmanager
def running_broker(*, fsync: bool = False, jvm_options: Sequence[str] = JVM_OPTIONS) -> Iterator[Broker]:
    """Start a broker on a free port of the loopback device, wait until it answers, and stop it at the end.

    Args:
        fsync: flush every batch to the disk before it is acknowledged; as it ships, Kafka leaves that to the system.
        jvm_options: of the broker's JVM; by default those that Kafka ships with.
    Raises:
        BrokerUnavailableError: no Java, no jars, or the broker didn't start.
    """
    java = _java()
    classpath = f"{fetched_jars('pom.xml', 'a Kafka broker', megabytes=44)}/*"
    with tempfile.TemporaryDirectory(prefix="sparklog-kafka-", ignore_cleanup_errors=True) as folder:
        properties, port = _configure(Path(folder), fsync=fsync)
        command = [f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}", "-cp", classpath]
        format_storage = ["kafka.tools.StorageTool", "format", "--standalone", f"--cluster-id={_cluster_id()}"]
        formatted = subprocess.run(
            [java, *BRIEF_JVM_OPTIONS, *command, *format_storage, "-c", properties],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if formatted.returncode:
            raise BrokerUnavailableError(f"its storage couldn't be formatted: {_last_line(formatted.stdout)}")
        log = Path(folder) / "broker.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [java, *jvm_options, *command, "kafka.Kafka", properties],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop the broker
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        try:
            _wait_until_it_answers(process, port, log)
            yield Broker(f"{HOST}:{port}", process.pid)
        finally:
            _stop(process)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None or subprocess.run([java, "-version"], capture_output=True).returncode:
        raise BrokerUnavailableError("there is no java that runs on the PATH or under JAVA_HOME")
    return java


def fetched_jars(pom_name: str, what: str, *, megabytes: int) -> Path:
    """A folder with the jars of a POM, fetched by Maven if they aren't there; one per content of the POM.

    Raises:
        BrokerUnavailableError: they can't be fetched.
    """
    pom = SOURCES / pom_name
    cache = Path(os.environ.get("SPARKLOG_KAFKA_CACHE") or Path.home() / ".cache" / "sparklog" / "kafka")
    jars = cache / f"jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailableError("its jars aren't there, and there is no mvn on the PATH to fetch them")
    print(f"Fetching the jars of {what} into {jars} (once, {megabytes} MB)", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fetched = Path(folder) / "jars"
        command = [maven, "-B", "-q", "-ntp", "-f", str(pom), "dependency:copy-dependencies"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={fetched}", "-DincludeScope=runtime"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise BrokerUnavailableError(f"mvn couldn't fetch its jars within {FETCH_TIMEOUT_S} s") from None
        if done.returncode:
            raise BrokerUnavailableError(f"mvn couldn't fetch its jars: {_first_error(done.stdout)}")
        with suppress(OSError):  # another process was faster
            fetched.rename(jars)
    return jars


def _configure(folder: Path, *, fsync: bool) -> tuple[str, int]:
    """Write the broker's settings; their path and the port for clients."""
    port, controller_port = _free_ports(2)
    template = string.Template((SOURCES / "server.properties").read_text().replace("$names", "$$names"))
    settings = template.substitute(port=port, controller_port=controller_port, data=folder / "data")
    if fsync:
        settings += "log.flush.interval.messages=1\n"
    path = folder / "server.properties"
    path.write_text(settings)
    return str(path), port


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _cluster_id() -> str:
    """A UUID in Kafka's spelling."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTUP_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BrokerUnavailableError(f"the broker ended at its start: {_last_line(log.read_text())}")
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            if "Kafka Server started" in log.read_text():
                return
        time.sleep(0.2)
    raise BrokerUnavailableError(f"the broker didn't answer within {STARTUP_TIMEOUT_S} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Its storage is thrown away, so there is nothing to shut down in order."""
    process.kill()
    process.wait()


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.strip()), "it said nothing")


def _first_error(output: str) -> str:
    return next((line for line in output.splitlines() if "ERROR" in line), _last_line(output))
