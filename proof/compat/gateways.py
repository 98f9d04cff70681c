"""Gateways as processes, on folders of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.compat.sources import SuiteUnavailableError

__all__ = ["add_stored_user", "gateway_user", "running_gateway"]

_ROOT = Path(__file__).parents[2]
_STOP_S = 30
_STARTED = "listening on "


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT)}


@contextmanager
def running_gateway(folder: Path, *options: str) -> Iterator[str]:
    """Run ``sparklog gateway`` on a cluster in a folder as long as the block lasts.

    Yields:
        ``bootstrap_servers``, a free port.
    Raises:
        SuiteUnavailableError: it didn't start, or ended by itself; the log in the folder says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "sparklog", "-c", str(folder / "cluster"), "gateway", "--listen", "127.0.0.1:0"]
    with (folder / "gateway.log").open("w") as log:
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True, env=_environment(), cwd=_ROOT
        )
        try:
            if process.stdout is None:
                raise SuiteUnavailableError("the gateway has no standard output")
            line = process.stdout.readline()
            if not line.startswith(_STARTED):
                raise SuiteUnavailableError(f"the gateway didn't start: {folder / 'gateway.log'}")
            yield line[len(_STARTED) :].strip()
            if process.poll() is not None:
                raise SuiteUnavailableError(f"the gateway ended by itself: {folder / 'gateway.log'}")
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


_RIGHTS = ("--read", "*", "--write", "*", "--group", "*", "--transactional-id", "*", "--admin")


def gateway_user(name: str, password: str) -> str:
    """The line of a user who may do everything."""
    return _called(["gateway-user", name, "--password", password, *_RIGHTS])


def add_stored_user(folder: Path, name: str, password: str) -> None:
    """Add a user who may do everything to the store of the cluster that a gateway in a folder will serve."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = str(folder / "cluster")
    _called(["topics", "create", "first", "-c", cluster])  # makes the cluster
    _called(["gateway-users", "add", name, "-c", cluster, *_RIGHTS], password)


def _called(arguments: list[str], line: str = "") -> str:
    command = [sys.executable, "-m", "sparklog", *arguments]
    done = subprocess.run(
        command, env=_environment(), cwd=_ROOT, capture_output=True, text=True, check=True, input=f"{line}\n"
    )
    return done.stdout
