"""A progress bar on standard error while files are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Advance", "reading_progress"]

Advance = Callable[[int], object]
"""Called with the number of bytes that were read."""

_STEP_BYTES = 256 * 1024


@contextmanager
def reading_progress(files: Sequence[str]) -> Iterator[Advance]:
    """Shows how much of ``files`` was read; nothing for standard input, or where nobody looks."""
    if not files or "-" in files or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=sum(os.path.getsize(file) for file in files))
        unshown = 0

        def advance(count: int) -> None:
            nonlocal unshown
            unshown += count
            if unshown >= _STEP_BYTES:
                bar.advance(task, unshown)
                unshown = 0

        yield advance
