"""CPU time of processes, from ``/proc``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["process_cpu_seconds", "tree_cpu_seconds"]


def process_cpu_seconds(pid: int) -> float | None:
    """CPU time of all threads of a process so far; None where there is no ``/proc`` to ask."""
    try:
        return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all that it has begun, those that have ended included."""
    try:
        fields = _stat(pid)
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # it has ended; its parent counts what it used
        return 0.0
    children: list[str] = []
    for task in tasks:
        with suppress(OSError):  # a thread that has ended
            children += (task / "children").read_text().split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(tree_cpu_seconds(int(child)) for child in children)


def _stat(pid: int) -> list[str]:
    """What ``/proc`` says of a process, from its third field on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
