"""The names inside a table's ``_delta_log`` folder. Source: Delta protocol, "Delta Log Entries", "Checkpoints"."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "CheckpointPart",
    "aside_version",
    "checkpoint_path",
    "cleanup_marks_folder",
    "entry_path",
    "last_checkpoint_path",
    "log_folder",
    "parse_name",
    "set_aside_checkpoint_path",
    "set_aside_path",
    "version_prefix",
]

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_COMPACTED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """One file of a checkpoint; a checkpoint is complete when all its parts are there."""

    version: int
    part: int
    """1 … parts."""
    parts: int


def log_folder(table: str) -> str:
    """The folder of a table's log, with its trailing slash."""
    return f"{table}/_delta_log/"


def entry_path(table: str, version: int) -> str:
    """The path of the entry that is ``version`` of a table's log."""
    return f"{table}/_delta_log/{version:020d}.json"


def checkpoint_path(table: str, version: int) -> str:
    """The path of the classic single-file checkpoint of ``version``."""
    return f"{log_folder(table)}{version:020d}.checkpoint.parquet"


def last_checkpoint_path(table: str) -> str:
    """The path of the hint that names the newest checkpoint."""
    return f"{log_folder(table)}_last_checkpoint"


def cleanup_marks_folder(table: str) -> str:
    """The folder of the marks by which a cleanup says which entries may be gone (rule L3, cleanup), with its trailing
    slash.

    It lies in the log's folder, sorts behind every entry, and has a name that no Delta engine knows.
    """
    return f"{log_folder(table)}_cleaned/"


def set_aside_path(table: str, version: int, token: str) -> str:
    """The path of an entry that was set aside, as it is another topic's (rule L8, one log).

    It lies in the log's folder, sorts behind every entry, and has a name that no Delta engine knows.
    """
    return f"{log_folder(table)}_set_aside/{version}.{token.replace(':', '-')}.json"


def set_aside_checkpoint_path(table: str, path: str, token: str) -> str:
    """The path of a part of a checkpoint that was set aside, as it is damaged; beside :func:`set_aside_path`'s.

    Args:
        path: of the part. token: distinguishes it from others that had the path.
    """
    return f"{log_folder(table)}_set_aside/{path.rpartition('/')[2].removesuffix('.parquet')}.{token}.parquet"


def version_prefix(table: str, version: int) -> str:
    """Sorts before every name of ``version`` and after every name of the versions below it."""
    return f"{log_folder(table)}{version:020d}"


def parse_name(name: str) -> int | CheckpointPart | None:
    """Classify a file of the log folder by its name: an entry (its version), a part of a checkpoint, or another."""
    if entry := _ENTRY.fullmatch(name):
        return int(entry[1])
    if checkpoint := _CHECKPOINT.fullmatch(name):
        return CheckpointPart(int(checkpoint[1]), int(checkpoint[2] or 1), int(checkpoint[3] or 1))
    return None


def aside_version(name: str) -> int | None:
    """The version that a file of Spark's is of which it writes beside the log: a checksum ``N.crc`` of version N, or
    ``N.M.compacted.json``, the entries N to M in one, of version M. None for any other name.

    Source: Delta protocol, "Version Checksum File", "Log Compaction Files".
    """
    found = _CHECKSUM.fullmatch(name) or _COMPACTED.fullmatch(name)
    return int(found[1]) if found else None
