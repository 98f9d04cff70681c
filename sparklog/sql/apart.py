"""A statement of an untrusted user in a process of its own, whose memory the operating system bounds.

DuckDB's own limit counts a part of its memory: one call of ``range`` or ``repeat`` takes gigabytes beside it, and can't
be interrupted. A process can: it gets no more memory than it is given, and is killed where it doesn't end.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from sparklog import errors
from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.log.cluster import open_cluster
from sparklog.sql.answer_limits import in_pieces
from sparklog.sql.confined import ConfinedQuery

__all__ = ["ApartQuery", "Origin"]

_GROWTH_BYTES = 300 * 2**20
"""The memory that the process may map while it runs a statement; it keeps less of that."""
_FRAME = struct.Struct(">cQ")
_MOST_FRAME_BYTES = 64 * 2**20
_SCHEMA, _ROWS, _FAILED, _DONE = b"S", b"R", b"F", b"D"
_TOO_LARGE = "the statement needs more memory than the console gives one: ask for less"
_THREADS = 2
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Origin:
    """How another process opens the same cluster."""

    uri: str
    storage_options: Mapping[str, Any]
    """Values that JSON has. They may be secret, and are sent through a pipe."""


class ApartQuery:
    """A :class:`~sparklog.sql.confined.ConfinedQuery` in a process of its own."""

    def __init__(self, origin: Origin, text: str, *, versions: Mapping[str, int] | None = None) -> None:
        """Starts the process. Raises ``OSError``: it can't be started."""
        self._is_cancelled = False
        command = [sys.executable, "-m", "sparklog.sql.apart"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(  # noqa: S603 - this program itself
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        asked = {
            "uri": origin.uri,
            "options": dict(origin.storage_options),
            "text": text,
            "versions": dict(versions or {}),
        }
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which reading tells
            _pipe(self._process.stdin).write(json.dumps(asked).encode() + b"\n")
            _pipe(self._process.stdin).flush()

    def run(self) -> pa.Schema:
        """Wait for the columns. Raises what the statement's process raised, and ``InvalidArgumentError``: it was
        cancelled, or needed too much memory."""
        kind, data = self._next()
        if kind != _SCHEMA:
            raise InvalidArgumentError("the process of the statement told no columns")
        return pa.ipc.read_schema(pa.py_buffer(data))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as they are found. Raises as :meth:`run` does."""
        while True:
            kind, data = self._next()
            if kind == _DONE:
                return
            yield from pa.ipc.open_stream(data)

    def cancel(self) -> None:
        """End the statement at once. From any thread."""
        self._is_cancelled = True
        self._process.kill()

    def close(self) -> None:
        """Let go of everything."""
        self._process.kill()
        self._process.wait(_END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()

    def _next(self) -> tuple[bytes, bytes]:
        pipe = _pipe(self._process.stdout)
        head = pipe.read(_FRAME.size)
        kind, size = _FRAME.unpack(head) if len(head) == _FRAME.size else (b"", 0)
        data = pipe.read(size) if size <= _MOST_FRAME_BYTES else b""
        if self._is_cancelled:
            raise InvalidArgumentError("the query was cancelled")
        if not kind or len(data) < size:
            raise InvalidArgumentError(_TOO_LARGE)
        if kind == _FAILED:
            failure = json.loads(data)
            raise _error_of(failure["kind"], failure["message"])
        return kind, data


def _pipe(pipe: Any) -> Any:
    """A pipe of a process, which was asked for. Raises ``InvalidArgumentError``: there is none."""
    if pipe is None:
        raise InvalidArgumentError("the process of the statement has no pipes")
    return pipe


def _error_of(kind: str, message: str) -> SparklogError:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, SparklogError):
        return found(message)
    return InvalidArgumentError(f"{kind}: {message}")


def _main() -> None:
    """Read a statement from standard input, run it, and write what it finds to standard output."""
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no part of the answer
    try:
        _answer(asked, out)
    except MemoryError:
        _send(out, _FAILED, json.dumps({"kind": "InvalidArgumentError", "message": _TOO_LARGE}).encode())
    except Exception as error:  # whoever asked raises it
        _send(out, _FAILED, json.dumps({"kind": type(error).__name__, "message": str(error)}).encode())
    os._exit(0)  # no thread of DuckDB's or Arrow's is waited for


def _answer(asked: Mapping[str, Any], out: BinaryIO) -> None:
    pa.set_cpu_count(_THREADS)
    pa.set_io_thread_count(_THREADS)
    cluster = open_cluster(asked["uri"], storage_options=asked["options"], create=False)
    query = ConfinedQuery(cluster, asked["text"], versions=asked["versions"], threads=_THREADS)
    _bound_memory(_GROWTH_BYTES)
    schema = query.run()
    _send(out, _SCHEMA, schema.serialize().to_pybytes())
    for batch in in_pieces(query.batches()):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        _send(out, _ROWS, sink.getvalue().to_pybytes())
    _send(out, _DONE, b"")


def _send(out: BinaryIO, kind: bytes, data: bytes) -> None:
    out.write(_FRAME.pack(kind, len(data)))
    out.write(data)
    out.flush()


def _bound_memory(growth_bytes: int) -> None:
    """Let this process map no more than so much beyond what it has; only Linux bounds it."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[5])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + growth_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, however that was."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    _main()
