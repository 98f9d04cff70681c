"""S3 servers of a round: versitygw, which survives being killed, or else moto, which holds everything in memory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.azurite import ACCOUNT, KEY, create_container
from tests.s3_server import free_port

__all__ = [
    "BUCKET",
    "NO_AZURITE",
    "NO_VERSITYGW",
    "Server",
    "azurite",
    "azurite_options",
    "find_azurite",
    "find_versitygw",
    "moto",
    "versitygw",
]

BUCKET = "torture"
NO_VERSITYGW = (
    "there is no versitygw: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0, or name one by VERSITYGW"
)
NO_AZURITE = "there is no Azurite: npm install -g azurite, or name azurite-blob by AZURITE"
_START_S = 60.0
_KEY, _SECRET = "sparklog-tests", "not-a-secret"


class Server:
    """A server that runs, until it is killed and as soon as it is started again."""

    def __init__(self, command: Sequence[str], port: int, *, survives_kill: bool) -> None:
        self._command = command
        self._port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.survives_kill = survives_kill
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_until_it_listens(self._port, process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def kill(self) -> None:
        """SIGKILL; what isn't stored by now never is."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """Start it again, on the port that it had, which somebody may have taken for a moment."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.process = self._start()
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "key": _KEY,
            "secret": _SECRET,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }


def _wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            if process.poll() is None:  # else somebody else has the port
                return
            raise OSError(f"port {port} is another's")
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start: exit code {process.poll()}") from error
            time.sleep(0.02)


def find_versitygw() -> str | None:
    """The program, where there is one: named by VERSITYGW, on the PATH, or where ``go install`` puts it."""
    go_bin = Path(os.environ.get("GOBIN") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin")
    named = os.environ.get("VERSITYGW")
    return shutil.which(named) if named else shutil.which("versitygw") or shutil.which(str(go_bin / "versitygw"))


def versitygw(program: str, folder: Path, *, keeps_connections: bool = False) -> Server:
    """A server over a folder, which it is given.

    Args:
        keeps_connections: for more than one request each. Hadoop's S3A client doesn't get along with that.
    """
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [program, "--port", f"127.0.0.1:{port}", "--access", _KEY, "--secret", _SECRET, "--quiet"]
    if keeps_connections:
        command.append("--keep-alive")
    return Server([*command, "posix", str(folder)], port, survives_kill=True)


def find_azurite() -> str | None:
    """The program ``azurite-blob``, where there is one: named by AZURITE, on the PATH, or where the tests keep it."""
    named = os.environ.get("AZURITE")
    kept = Path.home() / ".cache" / "sparklog" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return shutil.which(named) if named else shutil.which("azurite-blob") or shutil.which(str(kept))


def azurite(program: str, folder: Path) -> Server:
    """Microsoft's emulator of Azure Blob Storage over a folder, with a container."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    server = Server([program, *options, *flags], port, survives_kill=False)
    create_container(f"{server.endpoint}/{ACCOUNT}", BUCKET)
    return server


def azurite_options(endpoint: str) -> dict[str, Any]:
    """``storage_options`` for an Azurite, or for a proxy before it."""
    return {"account_name": ACCOUNT, "account_key": KEY, "endpoint_url": f"{endpoint}/{ACCOUNT}"}


def moto() -> Server:
    """A server in memory."""
    port = free_port()
    program = Path(__file__).parents[2] / "tests" / "s3_moto.py"
    command = [sys.executable, str(program), "-H", "127.0.0.1", "-p", str(port)]
    server = Server(command, port, survives_kill=False)
    with urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT"), timeout=60):
        return server
