"""Table properties of Delta's own that sparklog heeds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparklog.delta.actions import Metadata
from sparklog.errors import InvalidConfigurationError, PolicyViolationError

__all__ = [
    "CHANGES_FOLDER",
    "DEFAULT_DELETED_FILE_RETENTION_MS",
    "check_removal",
    "deleted_file_retention_ms",
    "has_kept_changes",
    "is_append_only",
    "protected_below",
    "removal_retention_ms",
    "transaction_retention_ms",
]

_DELETED_FILES = "delta.deletedFileRetentionDuration"
CHANGES_FOLDER = "_change_data"
"""The folder of a table in which engines keep the rows that a commit changed. Source: Delta protocol, "Change Data
Files"."""
_CHANGES = "delta.enableChangeDataFeed"
_A_WEEK = "interval 1 week"
_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
_APPEND_ONLY = "delta.appendOnly"
_SECOND, _DAY = 1_000, 86_400_000
_UNIT_MS = {
    "millisecond": 1,
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": 3_600 * _SECOND,
    "day": _DAY,
    "week": 7 * _DAY,
}
DEFAULT_DELETED_FILE_RETENTION_MS = _UNIT_MS["week"]
_PARTS = re.compile(r"(?:interval)?((?:\s+\d+\s+[a-z]+)+)")
_PART = re.compile(r"(\d+)\s+([a-z]+?)s?(?=\s|$)")


def deleted_file_retention_ms(table: str, metadata: Metadata) -> int:
    """The time for which the files that were removed from a table stay, milliseconds; a week where it doesn't say.

    Source: Delta ``DeltaConfigs.TOMBSTONE_RETENTION``; as there, no months and years.

    Raises:
        InvalidConfigurationError: the property isn't understood.
    """
    given = metadata.configuration.get(_DELETED_FILES, _A_WEEK)
    found = _interval_ms(given)
    if found is None:
        raise InvalidConfigurationError(
            f"{table}: table property {_DELETED_FILES}: got {given!r}, expected e.g. 'interval 30 days' (weeks, days, "
            "hours, minutes, seconds or milliseconds)"
        )
    return found


def removal_retention_ms(configuration: Mapping[str, str]) -> int | None:
    """The time for which a checkpoint remembers that a file was removed, milliseconds; None for ever, where the
    property isn't understood: nobody's file is lost by that. See :func:`deleted_file_retention_ms`."""
    return _interval_ms(configuration.get(_DELETED_FILES, _A_WEEK))


def protected_below(table: str, metadata: Metadata) -> int:
    """The version below which the log's entries and checkpoints go together or not at all; 0 where none are protected.

    Source: Delta's proposal "Checkpoint Protection".

    Raises:
        InvalidConfigurationError: the property is no number.
    """
    given = metadata.configuration.get(_PROTECTED, "0")
    try:
        return int(given)
    except ValueError:
        raise InvalidConfigurationError(
            f"{table}: table property {_PROTECTED}: got {given!r}, expected a version"
        ) from None


def transaction_retention_ms(configuration: Mapping[str, str]) -> int | None:
    """The time for which a checkpoint keeps a ``txn`` action after its last update, milliseconds; None for ever.

    Source: Delta ``DeltaConfigs.TRANSACTION_ID_RETENTION_DURATION``, which has no default.
    """
    given = configuration.get(_TRANSACTIONS)
    return None if given is None else _interval_ms(given)


def _interval_ms(given: str) -> int | None:
    """An interval as Delta's properties write it; None where it isn't understood."""
    text = given.strip().lower()
    found = _PARTS.fullmatch(f" {text}" if text[:1].isdecimal() else text)
    parts = _PART.findall(found[1]) if found else []
    if not parts or any(unit not in _UNIT_MS for _, unit in parts):
        return None
    return sum(int(count) * _UNIT_MS[unit] for count, unit in parts)


def has_kept_changes(metadata: Metadata) -> bool:
    """Does the table have :data:`CHANGES_FOLDER`, or did it until its owner set the property to false?"""
    return _CHANGES in metadata.configuration


def is_append_only(metadata: Metadata) -> bool:
    """Does the table's owner forbid that records are ever removed? Source: Delta protocol, "Append-only Tables"."""
    return metadata.configuration.get(_APPEND_ONLY, "false").strip().lower() == "true"


def check_removal(table: str, metadata: Metadata) -> None:
    """Raise ``PolicyViolationError`` where the table's owner forbids that records are ever removed."""
    if is_append_only(metadata):
        raise PolicyViolationError(f"{table}: {_APPEND_ONLY} is true, so no record may be removed from it")
