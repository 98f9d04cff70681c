"""One client against the others: ``python -m proof.bounds``.

Each request of :mod:`proof.bounds.hostile` is sent to a gateway in a process of its own, first by somebody who isn't
known, then by a user without rights and by an administrator. A second client asks all the while; how long it waits, and
what the process grows by, are the judges.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from proof.bounds.hostile import Hostile, all_hostile, frame_of
from sparklog import Admin, NewTopic
from sparklog.gateway.users import Rules, new_user

__all__ = ["main"]

_ASKING = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_PAUSE_S = 0.01
_ANSWER_S = 240.0
_QUIET_S = 3.0
_MOST_WAIT_S, _TIMES = 0.25, 3
"""The 99th percentile of what the second client waits: so long, or so many times what it waits alone."""
_PLAYS = 3
"""A busy machine makes anybody wait: a request is at fault if another client waits too long each of so many times, each
compared with what it has waited alone just before."""
_MOST_GROWTH_MIB = 256
_BACK_S = 30.0
_USERS = {"nobody": None, "eve": Rules(), "root": Rules(("*",), ("*",), ("*",), ("*",), admin=True)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request did."""

    hostile: Hostile
    user: str
    was_ended: bool
    was_answered: bool
    """False: neither answered nor ended within :data:`_ANSWER_S`."""
    took_s: float
    wait_s: float
    """The 99th percentile of what the second client waited."""
    grew_mib: float
    kept_mib: float


def _rss_mib(pid: int, figure: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(figure):
            return int(line.split()[1]) / 1_024
    raise ValueError(f"/proc/{pid}/status has no {figure}")


def _exactly(client: socket.socket, size: int) -> bool:
    left = size
    while left:
        received = len(client.recv(min(left, 1 << 20)))
        if not received:
            return False
        left -= received
    return True


def _answered(client: socket.socket) -> bool:
    """Was there an answer? False: the connection was ended."""
    head = b""
    try:
        while len(head) < 4:
            part = client.recv(4 - len(head))
            if not part:
                return False
            head += part
        return _exactly(client, int.from_bytes(head, "big"))
    except ConnectionError:
        return False


def _second_client(address: tuple[str, int], told: Connection) -> None:
    """Ask again and again; each time that something is told, answer the waits since, and begin anew."""
    client, waits = socket.create_connection(address, timeout=_ANSWER_S), list[float]()
    while True:
        began = time.monotonic()
        client.sendall(_ASKING)
        if not _answered(client):
            raise EOFError("the gateway has ended the connection of a client that does no harm")
        waits.append(time.monotonic() - began)
        if told.poll(_PAUSE_S):
            if told.recv() is None:
                return
            told.send(waits)
            waits = []


def _percentile(waits: Sequence[float]) -> float:
    ordered = sorted(waits)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


class Bounds:
    """A gateway, and a second client of it."""

    def __init__(self, process: subprocess.Popen[str], address: tuple[str, int]) -> None:
        self._process = process
        self._address = address
        self._told, other = multiprocessing.Pipe()
        self._second = multiprocessing.Process(target=_second_client, args=(address, other), daemon=True)
        self._second.start()
        self.alone_s = 0.0

    def measure_alone(self) -> None:
        """Note how long the second client waits while there is no other."""
        self._waits()
        time.sleep(_QUIET_S)
        self.alone_s = _percentile(self._waits())

    def _waits(self) -> list[float]:
        self._told.send("tell")
        waits: list[float] = self._told.recv()
        return waits

    def send(self, hostile: Hostile, user: str) -> Outcome:
        """Send a request as a user, and wait for its answer."""
        frame = frame_of(hostile)
        before, pid = _rss_mib(self._process.pid), self._process.pid
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # VmHWM from now on
        with socket.create_connection(self._address, timeout=_ANSWER_S) as client:
            if user != "nobody":
                _enter(client, user)
            self._waits()
            began = time.monotonic()
            was_ended, was_answered = False, True
            try:
                client.sendall(frame)
                was_ended = not _answered(client)
            except ConnectionError:
                was_ended = True
            except TimeoutError:
                was_answered = False
            took_s = time.monotonic() - began
        wait_s = _percentile(self._waits())
        grew_mib = _rss_mib(pid, "VmHWM") - before
        until = time.monotonic() + _BACK_S
        while (kept_mib := _rss_mib(pid) - before) > _MOST_GROWTH_MIB and time.monotonic() < until:
            time.sleep(0.2)
        return Outcome(hostile, user, was_ended, was_answered, took_s, wait_s, grew_mib, kept_mib)

    def play(self, hostile: Hostile, user: str) -> Outcome:
        """Send a request as a user, and again where another client has waited for too long, as somebody else may have
        had the processors."""
        outcome = self.send(hostile, user)
        for _ in range(_PLAYS - 1):
            if outcome.wait_s <= self.most_wait_s:
                break
            self.measure_alone()
            outcome = self.send(hostile, user)
        return outcome

    @property
    def most_wait_s(self) -> float:
        """How long the second client may wait while another one is served."""
        return max(_MOST_WAIT_S, _TIMES * self.alone_s)

    def faults(self, outcome: Outcome) -> Iterator[str]:
        """What an outcome has done that no request may do."""
        most_s = self.most_wait_s
        if not outcome.was_answered:
            yield f"it was neither answered nor ended within {_ANSWER_S:.0f} s"
        if outcome.wait_s > most_s:
            yield f"another client waited for {outcome.wait_s:.2f} s, expected {most_s:.2f}"
        if outcome.grew_mib > _MOST_GROWTH_MIB:
            yield f"the process grew by {outcome.grew_mib:.0f} MiB, expected {_MOST_GROWTH_MIB}"
        if outcome.kept_mib > _MOST_GROWTH_MIB:
            yield f"the process kept {outcome.kept_mib:.0f} MiB after {_BACK_S:.0f} s"
        if (outcome.hostile.is_too_much or outcome.user == "nobody") and not outcome.was_ended:
            yield "its connection went on"

    def close(self) -> None:
        """End the second client."""
        self._told.send(None)
        self._second.join(_QUIET_S)
        self._second.terminate()


def _enter(client: socket.socket, user: str) -> None:
    mechanism, credentials = b"PLAIN", f"\0{user}\0pencil".encode()
    for key, body in (
        (17, struct.pack(">h", len(mechanism)) + mechanism),
        (36, struct.pack(">i", len(credentials)) + credentials),
    ):
        data = struct.pack(">hhih", key, 1 if key == 17 else 0, 1, -1) + body
        client.sendall(len(data).to_bytes(4, "big") + data)
        if not _answered(client):
            raise EOFError(f"user {user} isn't let in")


@contextmanager
def _gateway(folder: Path) -> Iterator[Bounds]:
    users = folder / "users"
    lines = [new_user(name, "pencil", rules).to_json() for name, rules in _USERS.items() if rules is not None]
    users.write_text("\n".join(lines) + "\n", encoding="utf-8")
    Admin(folder / "cluster").create_topics([NewTopic("t00000", 1), NewTopic("wide", 300)])
    command = [sys.executable, "-m", "sparklog", "-c", str(folder / "cluster"), "gateway", "--listen", "127.0.0.1:0"]
    options = ["--users", str(users), "--allow-plain-without-tls"]
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log, text=True)
        bounds = None
        try:
            if process.stdout is None:
                raise ValueError("the gateway's output isn't read")
            host, _, port = process.stdout.readline().rpartition(" ")[2].strip().rpartition(":")
            bounds = Bounds(process, (host, int(port)))
            yield bounds
        finally:
            if bounds is not None:
                bounds.close()
            process.terminate()
            process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Send all requests; returns 1 where one did what none may."""
    parser = argparse.ArgumentParser(prog="python -m proof.bounds", description=__doc__)
    parser.add_argument("--only", help="APIs, such as Metadata,Fetch")
    parser.add_argument("--users", default="nobody,eve,root")
    chosen = parser.parse_args(arguments)
    only = None if chosen.only is None else frozenset(chosen.only.split(","))
    most, waits = defaultdict[str, float](float), defaultdict[str, float](float)
    count = fault_count = 0
    with tempfile.TemporaryDirectory() as folder, _gateway(Path(folder)) as bounds:
        bounds.measure_alone()
        print(f"alone, the second client waits for {bounds.alone_s * 1_000:.0f} ms", flush=True)
        for user in chosen.users.split(","):
            for hostile in all_hostile(only):
                outcome, count = bounds.play(hostile, user), count + 1
                most[hostile.api.name] = max(most[hostile.api.name], outcome.grew_mib)
                waits[hostile.api.name] = max(waits[hostile.api.name], outcome.wait_s)
                for fault in bounds.faults(outcome):
                    fault_count += 1
                    what = f"{hostile.api.name} {hostile.version}, {hostile.kind} of {hostile.about}, by {user}"
                    print(f"FAILED: {what}: {fault} (answered or ended after {outcome.took_s:.1f} s)", flush=True)
    for name, grew_mib in sorted(most.items(), key=lambda one: -one[1])[:10]:
        print(f"{name}: the process grew by {grew_mib:.0f} MiB at most")
    for name, wait_s in sorted(waits.items(), key=lambda one: -one[1])[:10]:
        print(f"{name}: another client waited for {wait_s * 1_000:.0f} ms at most")
    print(f"{count} requests, {fault_count} faults")
    return int(fault_count > 0)


if __name__ == "__main__":
    sys.exit(main())
