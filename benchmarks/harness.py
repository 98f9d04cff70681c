"""What the benchmarks share: cases in processes of their own, CPU and memory of a process, medians, tables.

Machines are noisy, so peers take turns, a few rounds of all of them, and medians are compared. Each case runs in a
fresh interpreter: CPU time and memory are its own, and what an earlier case left behind doesn't slow it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import process_cpu_seconds
from benchmarks.report import add_table, add_target

__all__ = [
    "PROXY_VARIABLE",
    "Case",
    "Goal",
    "Running",
    "Usage",
    "bytes_read",
    "compare",
    "empty_files",
    "environment_with_bytecode_cache",
    "median",
    "peak_memory_mib",
    "percentile",
    "print_table",
    "resident_mib",
    "run",
    "run_passes",
    "start",
    "used",
    "warm_memory",
]

ROUNDS = 3
WARM_MIB = 512
REPOSITORY = Path(__file__).parent.parent
PROXY_VARIABLE = "SPARKLOG_BENCH_PROXY"
"""Names the proxy that counts requests to processes that measure."""


@dataclass(slots=True)
class Usage:
    """What a number of records cost."""

    records: int
    wall_s: float
    cpu_s: float
    """Of our own process, all its threads; and of the broker, where there is one."""
    requests: dict[str, float] | None = None
    """What was sent to an object store, by operation; None where nobody counts."""

    @property
    def per_second(self) -> float:
        return self.records / self.wall_s

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.records * 1_000_000


@contextmanager
def used(records: int, *, broker_pid: int | None = None) -> Iterator[Usage]:
    """Measure a block; the result is filled in at its end."""
    usage = Usage(records, 0.0, 0.0)
    of_broker = 0.0 if broker_pid is None else process_cpu_seconds(broker_pid)
    requests = _counted_requests()
    cpu, began = time.process_time(), time.perf_counter()
    yield usage
    usage.wall_s = time.perf_counter() - began
    usage.cpu_s = time.process_time() - cpu
    if requests is not None:
        usage.requests = {name: count - requests[name] for name, count in (_counted_requests() or {}).items()}
    if broker_pid is not None:
        now = process_cpu_seconds(broker_pid)
        usage.cpu_s = float("nan") if of_broker is None or now is None else usage.cpu_s + now - of_broker


def _counted_requests() -> dict[str, float] | None:
    """The counts of the proxy before an object store; None: this process is led to none."""
    if PROXY_VARIABLE not in os.environ:
        return None
    from benchmarks.stores.latency_proxy import control  # it takes asyncio and more, which other cases don't need

    return control(os.environ[PROXY_VARIABLE])


def environment_with_bytecode_cache() -> dict[str, str]:
    """The environment of a process whose start or CPU time is measured: Python keeps the modules that it compiles,
    so the next process compiles none, as with an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Running:
    """A function at work in a fresh interpreter; what it returns comes back as JSON."""

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import benchmarks.harness as h; h.child()",
                _place(function),
                json.dumps(arguments),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_with_bytecode_cache(),
        )

    def say(self, line: str) -> None:
        """Give it a line on its standard input."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def hear(self) -> str:
        """Wait for a line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(f"a benchmark's process ended with exit code {self._process.returncode}")
        return line.strip()

    def result(self) -> Any:
        """Wait for its end; what the function returned."""
        answer = json.loads(self.hear())
        self._process.communicate()
        return answer

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


start = Running


def run(function: Callable[..., Any], **arguments: Any) -> Any:
    """What ``function`` returns in a fresh interpreter; arguments and result go through JSON."""
    with Running(function, **arguments) as running:
        return running.result()


def run_passes(function: Callable[..., Usage], *, passes: int, **arguments: Any) -> Usage:
    """What ``function`` costs so many times one after the other, in one fresh interpreter.

    A run of some tenths of a second is too short for a machine that others use, too.
    """
    return Usage(**run(_passes, where=_place(function), passes=passes, arguments=arguments))


def _passes(where: str, *, passes: int, arguments: dict[str, Any]) -> Usage:
    function = _at(where)
    usages: list[Usage] = [function(**arguments) for _ in range(passes)]
    records, wall_s, cpu_s = (sum(each) for each in zip(*((u.records, u.wall_s, u.cpu_s) for u in usages), strict=True))
    return Usage(int(records), wall_s, cpu_s)


def _place(function: Callable[..., Any]) -> str:
    """Its name, by which another interpreter finds it."""
    return f"{function.__module__}:{function.__qualname__}"


def _at(where: str) -> Callable[..., Any]:
    module, _, name = where.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def child() -> None:
    """The other end of :class:`Running`."""
    try:
        result = _at(sys.argv[1])(**json.loads(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
    print(json.dumps(asdict(result) if isinstance(result, Usage) else result), flush=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A way to do the work: its name, whether it is the peer's, and a function that does it once."""

    name: str
    work: Callable[[], Usage]
    is_peer: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """How many times as good as the peer's best the best of some cases is to be."""

    name: str
    cases: str
    """What their names begin with."""
    cpu: float
    wall: float


def compare(
    cases: Sequence[Case], goals: Sequence[Goal] = (), *, rounds: int = ROUNDS, warms: bool = True
) -> Mapping[str, Usage]:
    """Run all cases in turn, ``rounds`` times; print medians, and how they compare with the peer's best.

    Args:
        warms: have the system at hand what memory a case will need, before each.
    """
    usages: dict[str, list[Usage]] = {case.name: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            progress(f"round {number + 1} of {rounds}: {case.name}")
            if warms:
                warm_memory()
            usages[case.name].append(case.work())
    progress("")
    medians = {name: median(each) for name, each in usages.items()}
    peers = [medians[case.name] for case in cases if case.is_peer]
    rows = []
    for case in cases:
        usage = medians[case.name]
        ratios = (
            [
                usage.per_second / max(peer.per_second for peer in peers),
                min(peer.cpu_s_per_million for peer in peers) / usage.cpu_s_per_million,
            ]
            if peers
            else []
        )
        rows.append(
            [
                case.name,
                f"{usage.records:,}",
                f"{usage.per_second:,.0f}",
                f"{usage.cpu_s_per_million:.2f}" if usage.cpu_s == usage.cpu_s else "not measured",
                *(f"{ratio:.2f}" if ratio == ratio else "?" for ratio in ratios),
            ]
        )
    for goal in goals if peers else ():
        own = [medians[case.name] for case in cases if not case.is_peer and case.name.startswith(goal.cases)]
        cpu = min(peer.cpu_s_per_million for peer in peers) / min(one.cpu_s_per_million for one in own)
        wall = max(one.per_second for one in own) / max(peer.per_second for peer in peers)
        add_target(f"{goal.name}: CPU, × peer", goal.cpu, cpu)
        add_target(f"{goal.name}: wall, × peer", goal.wall, wall)
    heading = ["", "records", "per s", "CPU s per million", *(["× peer, wall", "× peer, CPU"] if peers else [])]
    print_table(heading, rows)
    return medians


def warm_memory() -> None:
    """Have the system at hand what memory a case will need.

    A virtual machine may give what is free back to its host; taking it again is many times as slow as using it (seen:
    0.09 s for a GiB of new files, else 1.5 s). Whoever came first would pay for it. No case needs more than half a GiB.
    """
    mib = bytes(2**20)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(WARM_MIB):
            file.write(mib)


def empty_files(folder: str) -> None:
    """Throw contents away but leave the names, till all is measured.

    ext4 looks at every inode that was freed within the last minutes before it gives one out, so that files made after a
    large deletion cost several times as much; and contents that stayed would be written to the disk while others work.
    """
    for path in Path(folder).rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def median(usages: Sequence[Usage]) -> Usage:
    """Of wall and of CPU time, each on its own; the first one's requests."""
    return Usage(
        usages[0].records,
        statistics.median(usage.wall_s for usage in usages),
        statistics.median(usage.cpu_s for usage in usages),
        usages[0].requests,
    )


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent of all don't exceed."""
    ordered = sorted(samples)
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1]


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column to the left, numbers to the right."""
    add_table(heading, rows)
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(len(heading))]
    for row in [heading, *rows]:
        others = map(str.rjust, row[1:], widths[1:])
        print("   ".join([row[0].ljust(widths[0]), *others]).rstrip(), flush=True)


def progress(text: str) -> None:
    """Say what is going on, where somebody looks on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def resident_mib() -> float:
    """What this process has in memory now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_memory_mib()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def bytes_read(pid: int | str) -> int:
    """Bytes that a process has asked the system for so far; 0 where there is no ``/proc`` to ask."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])


def peak_memory_mib() -> float:
    """The most that this process ever had in memory."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    # Not ru_maxrss: on Linux it begins with what the parent process had.
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
