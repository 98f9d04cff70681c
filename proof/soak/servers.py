"""The servers of a soak: started, sampled from /proc, asked, and ended."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from proof.soak.judging import Sample
from tests.s3_server import free_port

__all__ = ["Process", "Visits", "sample", "sparklog", "start_servers"]

_START_S = 60.0
_END_S = 20.0
_ANSWER_S = 30.0
_VISIT_S = 2.0
_CHEAP = 80
"""Cheap requests of each visit, to the exporter and the console: so many that one KiB of each would show."""
_PAGES = ("/", "/topics/plain", "/topics/viagw/records", "/api/groups")
"""Of the console; each visit asks for one."""


def sparklog(cluster: str, *arguments: str) -> list[str]:
    """A command of sparklog's."""
    return [sys.executable, "-m", "sparklog", "-c", cluster, *arguments]


class Process:
    """One that writes what it prints into a file."""

    def __init__(self, name: str, command: Sequence[str], output: Path) -> None:
        self.name = name
        self.output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, at_most_s: float) -> list[str]:
        """What is wrong with its end."""
        try:
            code = self._process.wait(at_most_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.name}: didn't end within {at_most_s:.0f} s, see {self.output}"]
        return [f"{self.name}: ended with exit code {code}, expected 0, see {self.output}"] if code else []

    def end(self) -> list[str]:
        """By SIGTERM. Returns what is wrong with its end."""
        if self.has_ended():
            return [f"{self.name}: ended before its time, see {self.output}"]
        self._process.terminate()
        return self.wait(_END_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def start_servers(cluster: str, outputs: Path) -> tuple[Mapping[str, Process], Mapping[str, str]]:
    """A gateway, an exporter and a console that answer, and their addresses; ``metrics`` is the gateway's by HTTP.

    Raises:
        TimeoutError: one of them doesn't answer.
    """
    ports = {name: free_port() for name in ("gateway", "metrics", "exporter", "console")}
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    commands = {
        "gateway": ("gateway", "--listen", addresses["gateway"], "--metrics-port", str(ports["metrics"])),
        "exporter": ("exporter", "--listen", addresses["exporter"]),
        "console": ("ui", "--listen", addresses["console"]),
    }
    started: dict[str, Process] = {}
    try:
        for name, command in commands.items():
            started[name] = Process(name, sparklog(cluster, *command), outputs / f"{name}.txt")
        for name in ("metrics", "exporter", "console"):
            _wait_for(f"http://{addresses[name]}/healthz")
    except BaseException:
        for process in started.values():
            process.kill()
        raise
    return started, addresses


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            _get(url)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} doesn't answer within {_START_S:.0f} s: {error}") from error
        time.sleep(0.2)


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
        answer.read()


def sample(pid: int, at_s: float) -> Sample:
    """What Linux says of a running process.

    Raises:
        OSError: it has ended.
    """
    folder = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {pid} has ended, and nobody has waited for it")
    return Sample(
        at_s=at_s,
        rss_kib=int(status["VmRSS"].split()[0]),
        threads=int(status["Threads"]),
        descriptors=sum(1 for _ in (folder / "fd").iterdir()),
    )


class Visits(threading.Thread):
    """Scrapes of the exporter and the gateway, and requests of the console, each on a connection of its own."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        super().__init__(name="soak-visits", daemon=True)
        self._addresses = addresses
        self._is_over = threading.Event()
        self.faults: list[str] = []
        self.count = 0

    def run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            cheap = [("exporter", "/metrics"), ("console", "/healthz")] * _CHEAP
            for server, path in (*cheap, ("metrics", "/metrics"), ("console", _PAGES[number % len(_PAGES)])):
                if not self._is_over.is_set():
                    self._visit(f"http://{self._addresses[server]}{path}")
            number += 1
            self._is_over.wait(_VISIT_S)

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def _visit(self, url: str) -> None:
        self.count += 1
        try:
            _get(url)
        except (OSError, ValueError) as error:
            self.faults.append(f"{url}: {error!r}")
