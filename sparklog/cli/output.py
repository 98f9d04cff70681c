"""The output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sparklog.model import TopicPartition

__all__ = ["as_json", "as_text", "by_topic", "cell", "is_terminal", "print_table", "with_text"]

NULL = "null"


def is_terminal() -> bool:
    """Whether people look at standard output."""
    return sys.stdout.isatty()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Iterable[str] = ()) -> None:
    """A table: drawn on a terminal, aligned by blanks elsewhere.

    Args:
        numbers: columns that are aligned to the right.
    """
    right = set(numbers)
    texts = [[cell(value) for value in row] for row in rows]
    if is_terminal():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
        for row in texts:
            table.add_row(*map(Text, row))  # what brackets stand in values is no markup
        Console().print(table)
        return
    lines = [list(columns), *texts]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        padded = [
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(columns, line, widths, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def cell(value: Any) -> str:
    """A value as a table shows it, in one line."""
    text = NULL if value is None else as_text(value)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def as_text(value: Any) -> str:
    """A value as people read it; bytes that aren't UTF-8 in hexadecimal digits after ``0x``."""
    if isinstance(value, bytes):
        text = _text(value)
        return f"0x{value.hex()}" if text is None else text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return as_json(value)
    return _iso(value) if isinstance(value, datetime | date | time) else str(value)


def as_json(value: Any) -> str:
    """JSON in one line; bytes as :func:`with_text` has them."""
    return json.dumps(with_text(value), ensure_ascii=False, default=_plain, separators=(", ", ": "))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as JSON has them: their numbers, sorted, by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def with_text(value: Any) -> Any:
    """The value with bytes as text; those that aren't UTF-8 as base64, under a name that ends so."""
    if isinstance(value, Mapping):
        return dict(_entry(str(name), item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return [with_text(item) for item in value]
    if isinstance(value, bytes):
        text = _text(value)
        return base64.b64encode(value).decode() if text is None else text
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    return value


def _entry(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes) and _text(value) is None:
        name += "_base64"
    return name, with_text(value)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _iso(value: datetime | date | time) -> str:
    text = value.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return _iso(value) if isinstance(value, datetime | date | time) else str(value)
