"""Reading checkpoints in another process, for processes that need Arrow for nothing else and have little memory.

Arrow stays with whoever has loaded it, and checkpoints are read seldom: when a table is opened. The other process is
started for the first of them and ended by whoever has it started, so its memory is taken for seconds.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.arrow import is_arrow_loaded
from sparklog.delta.checkpoint_content import CheckpointContent
from sparklog.errors import CorruptLogError

__all__ = ["CheckpointChild", "serve"]

_LOGGER = logging.getLogger(__name__)
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from sparklog.delta.checkpoint_child import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"
)
_RECEIVED_AT_ONCE = 1 << 20


class CheckpointChild:
    """A :data:`~sparklog.delta.checkpoint_content.CheckpointReader` that has another process read. For several threads.

    Where that can't be started, ends or hangs, this process reads itself, and goes on so."""

    def __init__(self, *, timeout_s: float = 120.0) -> None:
        """Starts nothing.

        Args:
            timeout_s: how long one checkpoint may take.
        """
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def __call__(self, parts: Mapping[str, bytes]) -> CheckpointContent:
        """Read a checkpoint's files, given by path. Raises ``CorruptLogError``, which names the file."""
        answer = None if is_arrow_loaded() else self._asked(parts)
        if answer is None:
            from sparklog.delta.checkpoint_rows import read_checkpoint

            return read_checkpoint(parts)
        if "corrupt" in answer:
            raise CorruptLogError(answer["corrupt"])
        return CheckpointContent(**answer)

    def close(self) -> None:
        """End the process, if there is one; the next checkpoint starts another."""
        with self._lock:
            self._end()

    def _asked(self, parts: Mapping[str, bytes]) -> dict[str, Any] | None:
        """The answer of the process; None where it gives none."""
        with self._lock:
            try:
                return self._ask(parts)
            except (OSError, ValueError) as error:
                _LOGGER.warning("checkpoints are read by this process, as another one failed: %r", error)
                self._end()
                return None
            except BaseException:  # an interrupt: the rest of the answer is nobody's
                self._end()
                raise

    def _ask(self, parts: Mapping[str, bytes]) -> dict[str, Any]:
        if self._socket is None:
            self._start()
        if self._socket is None:
            raise OSError("no process was started")
        sizes = [[path, len(data)] for path, data in parts.items()]
        self._socket.sendall(b"".join([json.dumps(sizes).encode(), b"\n", *parts.values()]))
        received = bytearray()
        while not received.endswith(b"\n"):
            some = self._socket.recv(_RECEIVED_AT_ONCE)
            if not some:
                raise OSError("it ended")
            received += some
        found: dict[str, Any] = json.loads(received)
        return found

    def _start(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this program isn't run by a Python that could be started again")
        ours, theirs = socket.socketpair()
        with theirs:
            ours.settimeout(self._timeout_s)
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the program is this module
                    [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    start_new_session=True,  # Ctrl-C is for this process, which ends the other
                )
            except BaseException:
                ours.close()
                raise
        self._socket = ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(requests: Any, answers: Any) -> None:
    """Read the checkpoints that are asked for until there are no more requests.

    Args:
        requests: a binary stream: a line of JSON with paths and sizes, then the files' bytes, and so on.
        answers: a binary stream: a line of JSON for each.
    """
    while line := requests.readline():
        parts = {path: requests.read(size) for path, size in json.loads(line)}
        answers.write(json.dumps(_answer(parts)).encode() + b"\n")
        answers.flush()


def _answer(parts: Mapping[str, bytes]) -> Mapping[str, Any]:
    from sparklog.delta.checkpoint_rows import live_files, read_checkpoint

    try:
        content = read_checkpoint(parts)
        rows: Sequence[Any] = live_files(content.parts).to_pylist()
    except CorruptLogError as error:
        return {"corrupt": str(error)}
    return {
        "transactions": content.transactions,
        "metadata": content.metadata,
        "protocol": content.protocol,
        "file_rows": rows,
    }
