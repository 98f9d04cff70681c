"""Checkpoints by the ``deltalake`` package, for a log that sparklog doesn't understand whole.

It reads a *staged copy*: the objects of the log in a temporary folder. So every byte passes through our own store: one
set of credentials, one place for faults to be injected, the same code for every store, and no version that somebody
cleans away in the middle (docs/decisions/0002-deltalake-reads-a-staged-copy.md).

The package takes 30 MiB and a pool of threads, so it is loaded only where it is needed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sparklog.delta.checkpoint_writing import EncodedCheckpoint
from sparklog.delta.names import log_folder
from sparklog.errors import CorruptLogError

__all__ = ["checkpoint_by_deltalake"]


def checkpoint_by_deltalake(table: str, version: int, objects: Mapping[str, bytes]) -> EncodedCheckpoint:
    """The checkpoint of a version of a table.

    Args:
        table: its folder, for messages and names.
        objects: the checkpoint before, and every entry behind it up to that version; by path.
    Raises:
        CorruptLogError: with what deltalake says.
    """
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix="sparklog-") as name:
        folder = Path(name) / "_delta_log"
        folder.mkdir()
        for path, data in objects.items():
            (folder / path.removeprefix(log_folder(table))).write_bytes(data)
        try:
            DeltaTable(name).create_checkpoint()
            hint = json.loads((folder / "_last_checkpoint").read_bytes())
            written = (folder / f"{version:020d}.checkpoint.parquet").read_bytes()
        except Exception as error:  # deltalake's errors have no common class below Exception
            raise CorruptLogError(f"log of {table}: no checkpoint of version {version}: {error}") from error
    return EncodedCheckpoint(data=written, row_count=hint["size"], add_count=hint.get("numOfAddFiles", 0))
