"""Programs that run beside a suite: what they say is waited for, and no program outlives its time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Self

__all__ = ["NotShownError", "Program", "output_of", "wait_until"]

_POLL_S = 0.1
_STOP_S = 10


class NotShownError(Exception):
    """What a test is to show didn't happen; says what was seen, and what was expected."""


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait until something holds. Raises :class:`NotShownError`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise NotShownError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(_POLL_S)


def output_of(command: Sequence[str], folder: Path, log: Path, timeout_s: float) -> tuple[str, str]:
    """What a program says until it ends, and why it didn't end well; empty: it did. At the end of its time it is
    killed, with what it has started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
            failure = f"it ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            failure = f"it didn't end within {timeout_s:.0f} s"
        finally:
            _kill(process)
    return log.read_text(errors="replace"), failure


class Program:
    """A program that is talked with by lines. It is killed where its block ends."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        """
        Args:
            log: what it writes to standard error, and what it says.
        """
        self._name = log.stem
        self._log = log
        self._lines: list[str] = []
        self._changed = Condition()
        self._errors = log.open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for one in (self._process.stdin, self._process.stdout, self._errors):
            if one is not None:
                with suppress(BrokenPipeError):  # what it was told and hasn't read
                    one.close()

    @property
    def lines(self) -> list[str]:
        """What it has said by now."""
        with self._changed:
            return list(self._lines)

    def wait_for(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """The first line that matches wholly. Raises :class:`NotShownError`: it didn't come in time, or the program
        ended."""
        deadline = time.monotonic() + timeout_s
        begin = 0
        with self._changed:
            while True:
                for line in self._lines[begin:]:
                    found = re.fullmatch(pattern, line)
                    if found is not None:
                        return found
                begin = len(self._lines)
                if not self._reading.is_alive():
                    raise NotShownError(f"{self._name} ended before it said {pattern!r}; its log is {self._log}")
                if time.monotonic() > deadline:
                    raise NotShownError(f"{self._name} didn't say {pattern!r} within {timeout_s:.0f} s")
                self._changed.wait(_POLL_S)

    def say(self, line: str) -> None:
        """Give it a line. Raises :class:`NotShownError`: it has ended."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()
        except OSError:
            raise NotShownError(f"{self._name} ended before it was told {line!r}; its log is {self._log}") from None

    def kill(self) -> None:
        """End it by SIGKILL, with what it has started."""
        _kill(self._process)
        self._reading.join(_STOP_S)

    def wait_end(self, timeout_s: float) -> None:
        """Wait until it ends by itself. Raises :class:`NotShownError`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotShownError(f"{self._name} didn't end within {timeout_s:.0f} s") from None
        self._reading.join(_STOP_S)

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()


def _kill(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
