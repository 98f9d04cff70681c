"""Checkpoints: when one is due (pure), and writing one.

A checkpoint is a copy of what the log already says, so it may be written late, twice or by anybody; nothing is decided
by it but how far back opening a table must read (rules L11, fairness; L12, listing).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparklog.arrow import pa
from sparklog.delta.listing import CheckpointHint, is_cut, read_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.snapshot import read_log
from sparklog.errors import CorruptLogError, SparklogError, StoreReplacedError
from sparklog.storage.retrying import DEFAULT_RETRY_MS, retry

if TYPE_CHECKING:
    from sparklog.delta.checkpoint_writing import EncodedCheckpoint

__all__ = [
    "check_checkpoint",
    "checkpoint_due",
    "checkpoint_threshold",
    "found_cut",
    "put_hint",
    "write_checkpoint",
    "write_hint",
    "write_next_checkpoint",
]

_LOGGER = logging.getLogger(__name__)
_MIN_TAIL = 100
_LIVE_FILES_PER_VERSION = 20
_OTHER_ROWS_PER_LIVE_FILE = 10
"""So many removed files and ``txn`` actions count for one live file. To copy one into the next checkpoint takes about a
quarter of what a live file takes (1 and 3 to 4 microseconds of CPU); the rest keeps the tail short for readers."""


def checkpoint_threshold(live_file_count: int, other_row_count: int = 0) -> int:
    """The number of versions that may follow a checkpoint before the next is due.

    A checkpoint costs in proportion to its rows, so waiting in proportion to them keeps the cost of a commit constant.

    Args:
        other_row_count: what the checkpoint holds beside live files, as far as that is known: removed files and
            ``txn`` actions.
    """
    return max(_MIN_TAIL, (live_file_count + other_row_count // _OTHER_ROWS_PER_LIVE_FILE) // _LIVE_FILES_PER_VERSION)


def checkpoint_due(*, version: int, checkpoint_version: int, live_file_count: int, other_row_count: int = 0) -> bool:
    """Is it for the process that committed ``version`` to write a checkpoint?

    True when the commit crosses the threshold, and again at every tenth of it after that: whoever crossed it first may
    have died. ``checkpoint_version`` is -1 where there is none.
    """
    threshold = checkpoint_threshold(live_file_count, other_row_count)
    late = version - checkpoint_version - threshold
    return late >= 0 and late % max(1, threshold // 10) == 0


def write_checkpoint(log: DeltaLog, *, sync: bool = True) -> int | None:
    """Write a checkpoint of the newest version, unless there is one. Returns the version; None where nothing was due.

    See :func:`write_next_checkpoint`.
    """
    written = write_next_checkpoint(log, sync=sync)
    return None if written is None else written.version


def write_next_checkpoint(log: DeltaLog, *, sync: bool = True) -> CheckpointHint | None:
    """Write a checkpoint of the newest version, unless there is one. Returns what names it; None where nothing was due.

    The checkpoint is created, never replaced, and only then named by ``_last_checkpoint``, which isn't moved back (but
    in a race, where all it costs is a longer listing). It is made of the checkpoint before and the entries behind that;
    those that were created or read through ``log`` a moment ago aren't read again.

    Raises:
        CorruptLogError: the log can't be read.
        StoreReplacedError: another log is in its folder by now; nothing was written there.
        StoreError: the store refuses.
    """
    place = log.hold()
    found = _next(log)
    if found is None:
        return None
    version, encoded = found
    path = checkpoint_path(log.table, version)
    if sync:  # a checkpoint whose own entry is lost opens nothing, and hides what lies below it (rule L9, fsync)
        log.store.sync([entry_path(log.table, version)])
    deadline = log.clock.deadline_in(DEFAULT_RETRY_MS)
    check = partial(log.check_held, place)
    create = partial(log.store.create_next, path, encoded.data, foothold=place, check=check, sync=sync)
    retry(create, deadline=deadline)
    known = read_hint(log)
    if known < version or not log.store.exists(checkpoint_path(log.table, known)):  # or it names what isn't there
        check()
        log.store.put(last_checkpoint_path(log.table), _hint(version, encoded), sync=sync)
    log.recent.forget_until(version)
    return CheckpointHint(version=version, row_count=encoded.row_count)


def _next(log: DeltaLog) -> tuple[int, EncodedCheckpoint] | None:
    """The next checkpoint and its version; None where nothing is due."""
    from sparklog.delta.by_deltalake import checkpoint_by_deltalake
    from sparklog.delta.checkpoint_writing import NotUnderstoodError, next_checkpoint  # loads Arrow

    # At first without the header of the checkpoint before, of which the next one is made without it. Where that
    # can't be done, :func:`read_log` looks for an older checkpoint that can be read.
    for reads_header in (False, True):
        copy = read_log(log, known=log.known_lately(), reads_header=reads_header)
        if copy is None or copy.listing.newest_version <= copy.listing.checkpoint_version:
            return None
        version = copy.listing.newest_version
        try:
            return version, next_checkpoint(copy.checkpoint, copy.raw_tail.values(), now_ms=log.clock.now_ms())
        except CorruptLogError:
            if reads_header:
                raise
        except NotUnderstoodError as error:
            if reads_header or not copy.checkpoint:
                _LOGGER.info("deltalake writes the checkpoint of %s: %s", log.table, error)
                return version, checkpoint_by_deltalake(log.table, version, {**copy.checkpoint, **copy.raw_tail})
    return None


def _hint(version: int, encoded: EncodedCheckpoint) -> bytes:
    """Source: Delta protocol, "Last Checkpoint File"."""
    body = {
        "version": version,
        "size": encoded.row_count,
        "sizeInBytes": len(encoded.data),
        "numOfAddFiles": encoded.add_count,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def put_hint(log: DeltaLog, version: int, encoded: EncodedCheckpoint) -> None:
    """Let ``_last_checkpoint`` name a checkpoint that is there. Raises ``StoreError``."""
    log.store.put(last_checkpoint_path(log.table), _hint(version, encoded), sync=True)


def write_hint(log: DeltaLog, version: int, paths: Sequence[str]) -> None:
    """Let ``_last_checkpoint`` name a checkpoint that is there and reads back. Source: Delta protocol, "Last Checkpoint
    File". Raises ``StoreError``."""
    rows = [open_parquet(log.store.read(path)).metadata.num_rows for path in paths]
    hint = {"version": version, "size": sum(rows)} | ({"parts": len(rows)} if len(rows) > 1 else {})
    log.store.put(last_checkpoint_path(log.table), json.dumps(hint).encode(), sync=True)


def check_checkpoint(log: DeltaLog, paths: list[str], expected_version: int) -> None:
    """Read a checkpoint back. Raises ``CorruptLogError`` unless all its parts are whole and the table's protocol and
    metadata are among them (rule L3, cleanup)."""
    missing = {"metaData", "protocol"}
    for path in paths:
        try:
            # Without threads: those of pyarrow's dataset reader may abort a process that exits right after it.
            for batch in open_parquet(log.store.read(path)).iter_batches(use_threads=False):
                missing -= {name for name in batch.schema.names if batch[name].null_count < batch.num_rows}
        except (pa.ArrowException, OSError) as error:
            raise CorruptLogError(f"corrupt checkpoint {path} of version {expected_version}: {error}") from error
    if missing:
        absent = " and no ".join(sorted(missing))
        raise CorruptLogError(
            f"corrupt checkpoint {', '.join(paths)} of version {expected_version}: it has no {absent}"
        )


def found_cut(log: DeltaLog, version: int, error: Exception) -> bool:
    """Did maintenance of a log fail because nobody can open it (rule L17, ground)? Only if a second listing shows the
    same: a refusal of the store, and one damaged entry, don't count.

    Args:
        version: one that this process has created or read.
        error: by which the maintenance failed.
    """
    if not isinstance(error, CorruptLogError):
        return isinstance(error, StoreReplacedError)
    try:
        return is_cut(log, version)
    except SparklogError:
        return False
