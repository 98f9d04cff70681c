"""A command ends by a signal, whatever hangs and whatever can't be written."""

from __future__ import annotations

import io
import os
import threading

import pytest

from sparklog.cli import signals


class Broken(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def flush(self) -> None:
        raise self._error


@pytest.mark.parametrize("error", [BrokenPipeError("gone"), OSError("disk full"), ValueError("closed"), None])
def test_a_command_ends_though_a_thread_hangs_and_its_output_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    codes: list[int] = []
    goes_on = threading.Event()
    hanging = threading.Thread(target=goes_on.wait)
    hanging.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(signals, "_END_S", 0.0)
            patched.setattr(os, "_exit", codes.append)
            patched.setattr("logging.shutdown", lambda: None)
            for name in ("stdout", "stderr"):
                patched.setattr(f"sys.{name}", io.StringIO() if error is None else Broken(error))
            signals.end_despite_hanging_calls()
    finally:
        goes_on.set()
        hanging.join()
    assert codes
    assert {*codes} == {0}
