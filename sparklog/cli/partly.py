"""The exit code of a command that was carried out but for what couldn't be read, and the lines that name that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sparklog.observe import ClusterFigures

__all__ = ["PARTLY", "end_partly", "unread_of"]

PARTLY = 3


def end_partly(ctx: click.Context, errors: Mapping[str, Exception]) -> None:
    """Name what couldn't be read on standard error and end with exit code 3; go on where there is nothing.

    Args:
        errors: by what it is: ``topic orders``, say.
    """
    for name, error in errors.items():
        click.echo(f"sparklog: error: {name}: {' '.join(str(error).split()) or repr(error)}", err=True)
    if errors:
        ctx.exit(PARTLY)


def unread_of(figures: ClusterFigures | None) -> dict[str, Exception]:
    """The things that a look at the cluster couldn't read, by what they are, as :func:`end_partly` takes them."""
    return {f"{one.kind} {one.name}": one.error for one in (figures.problems if figures else ())}
