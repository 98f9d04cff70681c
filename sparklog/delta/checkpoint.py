"""Checkpoints: when one is due (pure), and writing one with the ``deltalake`` package.

A checkpoint is a copy of what the log already says, so it may be written late, twice or by anybody; nothing is decided
by it but how far back opening a table must read (design section 4, rules L11, L12).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.delta.snapshot import read_log, staged_table
from sparklog.errors import CorruptLogError, ObjectNotFoundError
from sparklog.storage.retrying import DEFAULT_RETRY_MS, retry

__all__ = ["check_checkpoint", "checkpoint_due", "checkpoint_threshold", "write_checkpoint", "write_hint"]

_MIN_TAIL = 100
_LIVE_FILES_PER_VERSION = 20


def checkpoint_threshold(live_file_count: int) -> int:
    """How many versions may follow a checkpoint before the next is due: a checkpoint costs as much as there are live
    files, so waiting in proportion to them keeps the cost per commit constant."""
    return max(_MIN_TAIL, live_file_count // _LIVE_FILES_PER_VERSION)


def checkpoint_due(*, version: int, checkpoint_version: int, live_file_count: int) -> bool:
    """Is it for the process that committed ``version`` to write a checkpoint?

    True when the commit crosses the threshold, and again at every tenth of it after that: whoever crossed it first may
    have died. ``checkpoint_version`` is -1 where there is none.
    """
    threshold = checkpoint_threshold(live_file_count)
    late = version - checkpoint_version - threshold
    return late >= 0 and late % max(1, threshold // 10) == 0


def write_checkpoint(log: DeltaLog, *, sync: bool = True) -> int | None:
    """Write a checkpoint of the newest version, unless there is one. Returns the version; None where nothing was due.

    The checkpoint is created, never replaced, and only then named by ``_last_checkpoint``, which isn't moved back (but
    in a race, where all it costs is a longer listing).

    Raises:
        CorruptLogError: the log can't be read, or what was written doesn't read back.
        StoreError: the store refuses.
    """
    copy = read_log(log)
    if copy is None or copy.listing.newest_version <= copy.listing.checkpoint_version:
        return None
    version = copy.listing.newest_version
    path = checkpoint_path(log.table, version)
    entries = {listed.path: raw for (_, listed), raw in zip(copy.listing.entries, copy.raw_entries, strict=True)}
    with staged_table(log, copy, {**copy.checkpoint, **entries}) as (table, folder):
        try:
            table.create_checkpoint()
        except Exception as error:  # deltalake's errors have no common class below Exception
            raise CorruptLogError(f"log of {log.table}: no checkpoint of version {version}: {error}") from error
        data = (folder / path.rpartition("/")[2]).read_bytes()
        hint = (folder / "_last_checkpoint").read_bytes()
    if sync:  # a checkpoint whose own entry is lost opens nothing, and hides what lies below it (rule L9)
        log.store.sync([entry_path(log.table, version)])
    deadline = log.clock.ticks_ms() + DEFAULT_RETRY_MS
    retry(lambda: log.store.create(path, data, sync=sync), clock=log.clock, deadline_ticks_ms=deadline)
    known = read_hint(log)
    if known < version or not _is_there(log, checkpoint_path(log.table, known)):  # or it names what isn't there
        log.store.put(last_checkpoint_path(log.table), hint, sync=sync)
    return version


def _is_there(log: DeltaLog, path: str) -> bool:
    try:
        log.store.read_range(path, 0, 1)
    except ObjectNotFoundError:
        return False
    return True


def write_hint(log: DeltaLog, version: int, paths: Sequence[str]) -> None:
    """Let ``_last_checkpoint`` name a checkpoint that is there and reads back. Source: Delta protocol, "Last Checkpoint
    File". Raises ``StoreError``."""
    rows = [pq.ParquetFile(pa.BufferReader(log.store.read(path))).metadata.num_rows for path in paths]
    hint = {"version": version, "size": sum(rows)} | ({"parts": len(rows)} if len(rows) > 1 else {})
    log.store.put(last_checkpoint_path(log.table), json.dumps(hint).encode(), sync=True)


def check_checkpoint(log: DeltaLog, paths: list[str], expected_version: int) -> None:
    """Read a checkpoint back. Raises ``CorruptLogError`` unless all its parts are whole and the table's protocol and
    metadata are among them (rule L3)."""
    missing = {"metaData", "protocol"}
    for path in paths:
        try:
            # Without threads: those of pyarrow's dataset reader may abort a process that exits right after it.
            columns = pq.ParquetFile(pa.BufferReader(log.store.read(path))).read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise CorruptLogError(f"corrupt checkpoint {path} of version {expected_version}: {error}") from error
        missing -= {name for name in columns.column_names if columns[name].null_count < columns.num_rows}
    if missing:
        absent = " and no ".join(sorted(missing))
        raise CorruptLogError(
            f"corrupt checkpoint {', '.join(paths)} of version {expected_version}: it has no {absent}"
        )
