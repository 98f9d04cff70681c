"""Servers and clients at work for a while, whose memory has to stay level: ``python -m proof.soak --minutes 15``."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from proof.soak.judging import Sample, judge, tell
from proof.soak.load import KINDS
from proof.soak.servers import Process, Visits, sample, sparklog, start_servers
from proof.soak.stored import (
    Told,
    check_deep,
    compare,
    compare_compacted,
    compare_transactions,
    listen,
    read_topic,
)

__all__ = ["main", "soak"]

_SAMPLE_S = 5.0
_LEAST_SAMPLES = 90
"""Of each server, however short the run is."""
_MAINTAIN_S = 30.0
_FULL_EACH = 5
_COMMAND_S = 300.0
_END_S = 120.0
_SHOWN = 20
_KEPT_LOG = "log.retention.ms=600000"
TOPICS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "plain": (4, ("retention.ms=60000", "segment.ms=20000", _KEPT_LOG)),
    "compacted": (2, ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.1", _KEPT_LOG)),
    "txnout": (2, (_KEPT_LOG,)),
    "viagw": (3, ("retention.ms=120000", _KEPT_LOG)),
}
"""Partitions and settings."""
_COMPARED = {"plain": "plain", "compacted": "compacted", "txnout": "transactions", "viagw": "kafka"}
"""The client that writes to a topic."""


class Maintenance(threading.Thread):
    """Runs of ``sparklog maintain``, every fifth of them over all topics, until it is over."""

    def __init__(self, cluster: str, output: Path) -> None:
        super().__init__(name="soak-maintenance", daemon=True)
        self._cluster = cluster
        self._output = output
        self._is_over = threading.Event()
        self.faults: list[str] = []
        self.count = 0

    def run(self) -> None:
        while not self._is_over.wait(_MAINTAIN_S):
            full = ["--full"] if self.count % _FULL_EACH == _FULL_EACH - 1 else []
            self.count += 1
            with self._output.open("a") as file:
                command = sparklog(self._cluster, "maintain", "--json", *full)
                try:
                    code = subprocess.run(
                        command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, timeout=_COMMAND_S
                    ).returncode
                except subprocess.TimeoutExpired as error:
                    self.faults.append(f"sparklog maintain: {error}")
                    continue
            if code:
                self.faults.append(f"sparklog maintain ended with {code}, expected 0, see {self._output}")

    def end(self) -> None:
        self._is_over.set()
        self.join()


def main(arguments: list[str]) -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m proof.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="of the load (%(default)s)")
    parser.add_argument("--folder", type=Path, default=None, help="for the cluster and what processes print")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"got --minutes {options.minutes}, expected more than 0")
    if not Path("/proc/self/status").exists():
        parser.error("there is no /proc here, from which memory, threads and descriptors are read: take Linux")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sparklog-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    faults = soak(folder, options.minutes * 60)
    for fault in faults[:_SHOWN]:
        print(f"  {fault}")
    if len(faults) > _SHOWN:
        print(f"  … and {len(faults) - _SHOWN} more")
    if faults:
        (folder / "faults.txt").write_text("\n".join([*faults, ""]))
        print(f"FAILED: {len(faults)} faults; the cluster and what was printed are in {folder}")
        return 1
    if options.folder is None:
        shutil.rmtree(folder)
    return 0


def soak(folder: Path, span_s: float) -> list[str]:
    """Let all work for so long, print a line for each server, and return what is wrong; empty: nothing is."""
    cluster, outputs = str(folder / "cluster"), folder / "outputs"
    outputs.mkdir()
    for topic, (partitions, settings) in TOPICS.items():
        configs = [part for setting in settings for part in ("--config", setting)]
        command = sparklog(cluster, "topics", "create", topic, "--partitions", str(partitions), *configs)
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_COMMAND_S)
    servers, addresses = start_servers(cluster, outputs)
    clients: dict[str, Process] = {}
    try:
        until = time.time() + span_s
        for kind in KINDS:
            notes = [str(until), str(outputs / f"{kind}.notes"), addresses["gateway"]]
            command = [sys.executable, "-m", "proof.soak.load", kind, cluster, *notes]
            clients[kind] = Process(kind, command, outputs / f"{kind}.txt")
        visits, maintenance = Visits(addresses), Maintenance(cluster, outputs / "maintain.txt")
        visits.start()
        maintenance.start()
        samples, faults = _sampled(servers, until, outputs / "samples.txt")
        for client in clients.values():
            faults += client.wait(_END_S)
        visits.end()
        maintenance.end()
        for server in servers.values():
            faults += server.end()
    finally:
        for process in (*clients.values(), *servers.values()):
            if not process.has_ended():
                process.kill()
    for name in servers:
        print(tell(name, samples[name]), flush=True)
    faults += judge(samples) + visits.faults + maintenance.faults
    faults += _compared(cluster, outputs, visits=visits.count, maintained=maintenance.count)
    return faults + check_deep(cluster, outputs / "check.txt")


def _sampled(
    servers: Mapping[str, Process], until: float, output: Path
) -> tuple[Mapping[str, list[Sample]], list[str]]:
    """Samples of all servers until a time, and those of them that ended before."""
    samples: dict[str, list[Sample]] = {name: [] for name in servers}
    faults: list[str] = []
    began = time.time()
    pause_s = min(_SAMPLE_S, (until - began) / _LEAST_SAMPLES)
    with output.open("a", buffering=1) as file:
        while time.time() < until and not faults:
            for name, server in servers.items():
                try:
                    samples[name].append(sample(server.pid, time.time() - began))
                    file.write(f"{name} {samples[name][-1]}\n")
                except OSError as error:
                    faults.append(f"{name}: ended before its time ({error}), see {server.output}")
            time.sleep(pause_s)
    return samples, faults


def _compared(cluster: str, outputs: Path, *, visits: int, maintained: int) -> list[str]:
    """What is wrong with what the clients were told, beside what is stored."""
    told: dict[str, Told] = {}
    faults = []
    compared = {"compacted": compare_compacted, "txnout": compare_transactions}
    for topic, kind in _COMPARED.items():
        kept = read_topic(cluster, topic, range(TOPICS[topic][0]))
        told[kind] = _listened(outputs, kind, kept.begins)
        faults += compared.get(topic, compare)(topic, told[kind], kept)
    told |= {kind: _listened(outputs, kind, None) for kind in KINDS if kind not in told}
    for kind, one in told.items():
        faults += [f"{kind}: {error}" for error in one.errors]
        if not (one.count or one.committed or one.read):
            faults.append(f"{kind}: nothing was stored or read")
    counts = ", ".join(
        f"{kind} {one.count or one.committed or one.read:,}"
        + (f" and {one.read:,} read" if one.count and one.read else "")
        for kind, one in told.items()
    )
    print(f"records: {counts}; {visits:,} requests by HTTP; {maintained} runs of maintenance", flush=True)
    return faults


def _listened(outputs: Path, kind: str, begins: Mapping[int, int] | None) -> Told:
    with (outputs / f"{kind}.notes").open() as notes:
        return listen(notes, begins)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
