"""Standard output that is closed or breaks: neither changes what a command does, nor its exit code.

What can't be written is passed over, as a command that is half done would be worse. Commands that only print, and could
go on for long, ask from time to time whether anybody reads.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputClosedError", "check_output", "end_output", "forgive_output", "protect_output"]

_GONE = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO})
"""The reader has left, or the terminal."""


class OutputClosedError(Exception):
    """Nobody reads standard output any more, so a command that only prints may end."""


class _Lenient(io.RawIOBase):
    """A file that takes everything; what the system refuses is dropped, and the first error is remembered."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def write(self, data: ReadableBuffer, /) -> int | None:
        if self.error is None:
            try:
                return self._file.write(data)
            except OSError as error:
                self.error = error
        return len(memoryview(data).cast("B"))


_PROTECTED: list[_Lenient] = []
"""The file of standard output, once it is protected."""


def protect_output() -> None:
    """Let standard output and standard error take everything from now on. For a process of its own, as it begins."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened, a log entry say, would get what is printed
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - as long as the process lives
    out, sys.stdout = _lenient(sys.stdout)
    _, sys.stderr = _lenient(sys.stderr)
    _PROTECTED[:] = [] if out is None else [out]


def check_output() -> None:
    """Raise :class:`OutputClosedError` if nobody reads what is printed, and ``OSError`` if it can't be stored."""
    for one in _PROTECTED:
        if one.error is not None:
            if one.error.errno in _GONE:
                raise OutputClosedError(str(one.error))
            raise one.error


def forgive_output() -> None:
    """Let it matter to nobody what can't be printed: for services, which only say where they listen."""
    _PROTECTED.clear()


def end_output() -> OSError | None:
    """Write what is buffered. Returns why something that was printed is lost, such as a full disk; None where all is
    written, or nobody reads it."""
    sys.stdout.flush()
    lost = [one.error for one in _PROTECTED if one.error is not None and one.error.errno not in _GONE]
    return lost[0] if lost else None


def _lenient(stream: TextIO | None) -> tuple[_Lenient | None, TextIO]:
    if not isinstance(stream, io.TextIOWrapper):  # it was closed before Python began
        return None, open(os.devnull, "w")
    stream.flush()
    raw = _Lenient(io.FileIO(stream.fileno(), "w", closefd=False))
    text = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return raw, text
