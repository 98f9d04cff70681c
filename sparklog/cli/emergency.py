"""``sparklog maintain --emergency``: room on a full disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.compaction.emergency import TopicEmergency
    from sparklog.log.cluster import Cluster

__all__ = ["free"]


def free(cluster: Cluster, topics: list[str] | None, *, dry_run: bool, as_json_object: bool) -> int:
    """Delete the files that commits removed, or show them in a dry run; print what was done. Returns the exit code."""
    from sparklog.compaction.emergency import EMERGENCY_COSTS, free_removed_files

    found = free_removed_files(cluster, topics, dry_run=dry_run)
    if as_json_object:
        click.echo(as_json(_as_plain(found, dry_run=dry_run, costs=EMERGENCY_COSTS)))
    else:
        _print(found, dry_run=dry_run, costs=EMERGENCY_COSTS)
    for one in found:
        if one.error is not None:
            click.echo(f"sparklog: error: {one.topic}: {' '.join(str(one.error).split())}", err=True)
    return int(any(one.error is not None for one in found))


def _as_plain(found: Sequence[TopicEmergency], *, dry_run: bool, costs: Sequence[str]) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "files": sum(one.file_count for one in found),
        "bytes": sum(one.size_bytes for one in found),
        "costs": costs,
        "topics": [
            {
                "topic": one.topic,
                "files": one.file_count,
                "bytes": one.size_bytes,
                "error": None if one.error is None else str(one.error),
            }
            for one in found
        ],
    }


def _print(found: Sequence[TopicEmergency], *, dry_run: bool, costs: Sequence[str]) -> None:
    rows = [(one.topic, one.file_count, one.size_bytes) for one in found if one.file_count]
    if not rows:
        click.echo("there are no files that a commit removed")
        return
    print_table(("topic", "files", "bytes"), rows, numbers=("files", "bytes"))
    count, size = sum(row[1] for row in rows), sum(row[2] for row in rows)
    if not dry_run:
        click.echo(f"deleted {count} files, {size} bytes")
        return
    click.echo(f"{count} files, {size} bytes can be deleted by --emergency --execute. What that costs:")
    for cost in costs:
        click.echo(f"- {cost}")
