"""SQL expressions over a topic's table: a record as Kafka's source shows it, and which rows are readable. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sparklog.errors import InvalidArgumentError
from sparklog.log.data.value_columns import view_columns

__all__ = [
    "RECORD_COLUMNS",
    "at_or_after",
    "before",
    "bounds",
    "create_view",
    "files_between",
    "insert_missing",
    "path_table",
    "quoted",
    "quoted_name",
    "readable",
    "record_columns",
    "rows_between",
]

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of a topic's view. Source: Spark ``KafkaSourceProvider``, ``kafkaSchema(includeHeaders = true)``."""

_OFFSET = "base_offset + offset_delta"
_PART = re.compile(r"`(?:[^`]|``)+`|[^`.]+")
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


def record_columns(topic: str, timestamp_type: int, fields: Sequence[str] = ()) -> list[str]:
    """The select list that makes rows of a topic's table :data:`RECORD_COLUMNS`.

    Args:
        fields: of a typed topic's values: a column for each behind the others; one whose name is taken has ``value_``
            before it.
    """
    return [
        "key",
        "value",
        f"'{topic}' AS topic",  # Kafka's names hold nothing that would have to be escaped
        "partition",
        f"{_OFFSET} AS offset",
        "timestamp",
        f"{timestamp_type} AS timestampType",
        "headers",
        *(f"data.{quoted(field)} AS {quoted(name)}" for field, name in view_columns(fields, RECORD_COLUMNS).items()),
    ]


def readable(log_start_offsets: Sequence[int]) -> str:
    """A condition for rows that are in the log: they have a partition and an offset, and weren't deleted."""
    condition = "partition IS NOT NULL AND base_offset IS NOT NULL"
    if not any(log_start_offsets):
        return condition
    starts = ", ".join(f"{start}L" for start in log_start_offsets)
    return f"{condition} AND {_OFFSET} >= coalesce(try_element_at(array({starts}), partition + 1), 0L)"


def files_between(partition: int, first_base_offset: int | None, ending: int | None) -> str:
    """A condition on what the log knows of files alone, so that no other file is read.

    Args:
        first_base_offset: of the first file that holds a record to be read; None: not known.
        ending: exclusive; None: no end.
    """
    conditions = [f"partition = {partition}"]
    if first_base_offset is not None:
        conditions.append(f"base_offset >= {first_base_offset}L")
    if ending is not None:
        conditions.append(f"base_offset < {ending}L")
    return f"({' AND '.join(conditions)})"


def rows_between(partition: int, starting: int | None, ending: int | None) -> str:
    """A condition for the rows of a partition from ``starting`` (inclusive) to ``ending`` (exclusive)."""
    conditions = [f"partition = {partition}"]
    if starting is not None:
        conditions.append(f"{_OFFSET} >= {starting}L")
    if ending is not None:
        conditions.append(f"{_OFFSET} < {ending}L")
    return f"({' AND '.join(conditions)})"


def at_or_after(moment: datetime) -> str:
    """A condition for rows that aren't older. Raises ``InvalidArgumentError`` for a time without a zone."""
    return f"timestamp >= {_literal(moment)}"


def before(moment: datetime) -> str:
    """A condition for rows that are older. Raises ``InvalidArgumentError`` for a time without a zone."""
    return f"timestamp < {_literal(moment)}"


def quoted(name: str) -> str:
    """An identifier as SQL has it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def path_table(path: str) -> str:
    """A Delta table as SQL names it by its path."""
    return f"delta.{quoted(path)}"


def quoted_name(name: str) -> str:
    """A table's or view's name, of parts that dots separate, with each part quoted; a part may be quoted already.

    Raises:
        InvalidArgumentError: a part is empty, or a quote isn't closed.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is no name of a view: expected parts separated by dots, with ` around a part that has dots in it"
        )
    parts = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in _PART.findall(name)]
    return ".".join(quoted(part) for part in parts)


def insert_missing(table: str, source: str, condition: str, values: Mapping[str, str]) -> str:
    """A MERGE of the rows of ``source``, called ``s``, that ``condition`` doesn't find in ``table``, called ``t``.

    Args:
        values: an expression for each column.
    """
    columns, expressions = ", ".join(map(quoted, values)), ", ".join(values.values())
    insert = f"INSERT ({columns}) VALUES ({expressions})"  # noqa: S608 - all quoted, or expressions of ours
    return f"MERGE INTO {table} t USING {source} s ON {condition} WHEN NOT MATCHED THEN {insert}"


def create_view(name: str, table: str, columns: Sequence[str], condition: str, *, replace: bool) -> str:
    """A statement that makes a permanent view. ``name`` and ``table`` are quoted already."""
    create = "CREATE OR REPLACE VIEW" if replace else "CREATE VIEW"
    return f"{create} {name} AS SELECT {', '.join(columns)} FROM {table} WHERE {condition}"  # noqa: S608 - all quoted


def bounds(given: int | Mapping[int, int], partition_count: int, name: str) -> dict[int, int]:
    """An offset for each partition that has one.

    Raises:
        InvalidArgumentError: a partition that isn't there, or a negative offset.
    """
    offsets = dict(given) if isinstance(given, Mapping) else dict.fromkeys(range(partition_count), given)
    for partition, offset in offsets.items():
        if not 0 <= partition < partition_count:
            raise InvalidArgumentError(
                f"{name}: there is no partition {partition}, expected 0 to {partition_count - 1}"
            )
        if isinstance(offset, bool) or offset < 0:
            raise InvalidArgumentError(f"{name}: got {offset!r} for partition {partition}, expected an offset")
    return offsets


def _literal(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise InvalidArgumentError(f"{moment!r} has no time zone: which moment it is would depend on the machine")
    return f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
