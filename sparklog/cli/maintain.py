"""``sparklog maintain``: retention, compaction, merging and vacuum, for a scheduler to call every now and then."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sparklog.cli.options import cluster_of, complete_topics, connection_options
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.compaction import MaintenanceReport, Step

__all__ = ["maintain"]

FAILED = 1


@click.command()
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME[,NAME]…",
    shell_complete=complete_topics,
    help="Only these topics. By default all, and the cluster's transactions and groups.",
)
@click.option(
    "--steps",
    multiple=True,
    metavar="STEP[,STEP]…",
    help="Only these of transactions, sequence, retention, compact, optimize, vacuum, groups; they come in this order.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done as of now, and change nothing.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def maintain(ctx: click.Context, topics: tuple[str, ...], steps: tuple[str, ...], dry_run: bool, json_: bool) -> None:
    """Keep topics in shape: all that Kafka's brokers do in the background.

    Gives offsets to what other engines wrote, removes what a topic's retention doesn't keep, drops records of compacted
    topics whose keys came again, merges small files, deletes files and log entries that nobody needs, and forgets
    committed offsets that are past their time. Producers and consumers go on meanwhile. It may run twice at once and be
    killed at any point. Call it every few minutes or hours, by cron or whatever else you have.

    Exit code 1: something failed; the rest was done.
    """
    from sparklog.compaction import Step
    from sparklog.compaction import maintain as maintain_cluster
    from sparklog.compaction.maintain import quiet
    from sparklog.compaction.telling import as_plain

    wanted = [_step(name) for name in _names(steps)] or list(Step)
    report = maintain_cluster(
        cluster_of(ctx), _names(topics) or None, steps=wanted, dry_run=dry_run, tell=_tell if _is_watched() else quiet
    )
    if json_:
        click.echo(as_json(as_plain(report)))
    else:
        _print(report)
    for line in report.failures:
        click.echo(f"sparklog: error: {' '.join(line.split())}", err=True)
    if report.failures:
        ctx.exit(FAILED)


def _names(given: tuple[str, ...]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _step(name: str) -> Step:
    from sparklog.compaction import Step

    try:
        return Step(name)
    except ValueError:
        expected = ", ".join(step.value for step in Step)
        raise click.BadParameter(f"got {name!r}, expected any of {expected}", param_hint="--steps") from None


def _is_watched() -> bool:
    return sys.stderr.isatty()


def _tell(topic: str, step: Step) -> None:
    click.echo(f"{topic}: {step.value}" if topic else step.value, err=True)


def _print(report: MaintenanceReport) -> None:
    from sparklog.compaction.telling import COLUMNS, NUMBERS, report_rows

    rows = report_rows(report)
    if rows:
        print_table(COLUMNS, rows, numbers=NUMBERS)
    if not rows and not report.failures:
        click.echo("nothing to be done")
    if rows and report.dry_run:
        click.echo("nothing was changed: this was a dry run")
