"""The help of each command, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparklog.cli.app import cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_help_shows_no_marks_of_its_layout(path: tuple[str, ...]) -> None:
    """✗ A docstring that is raw shows ``\\b``, which keeps the lines of examples apart, and joins these lines."""
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0
    assert "\\b" not in shown.output
