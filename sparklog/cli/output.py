"""The output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from sparklog.texts import as_json, as_text, with_text

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


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as JSON has them: their numbers, sorted, by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
