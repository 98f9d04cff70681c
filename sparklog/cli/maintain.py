"""``sparklog maintain``: retention, compaction, merging and vacuum, for a scheduler to call every now and then."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import click

from sparklog.cli.catalog import sync_afterwards
from sparklog.cli.emergency import free
from sparklog.cli.options import cluster_of, complete_topics, connection_options, is_debugging
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.compaction import MaintenanceReport, OptimizePolicy, Step

__all__ = ["maintain"]

FAILED, TRY_AGAIN = 1, 75
"""75: ``EX_TEMPFAIL`` of sysexits.h."""


@click.command()
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME[,NAME]…",
    shell_complete=complete_topics,
    help="Maintain only these topics. By default all, and the cluster's transactions and groups.",
)
@click.option(
    "--steps",
    multiple=True,
    metavar="STEP[,STEP]…",
    help="Only these steps of transactions, sequence, retention, compact, optimize, vacuum, groups, in this order.",
)
@click.option(
    "--target-bytes",
    type=int,
    metavar="N",
    help="Target size of merged files; a smaller segment.bytes of a topic takes precedence.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Check every topic, even if nothing has happened since the last run, and search its folder.",
)
@click.option(
    "--catalog",
    metavar="KIND:SCHEMA",
    help="Then bring a data catalog up to date, as `sparklog catalog sync --to KIND --schema SCHEMA` does.",
)
@click.option("--catalog-option", "catalog_options", multiple=True, metavar="KEY=VALUE", help="Its --option.")
@click.option("--dry-run", is_flag=True, help="Report what would be done now, and change nothing.")
@click.option(
    "--emergency",
    is_flag=True,
    help="Of a full disk: show which files can be deleted at once, as a commit removed them; nothing else is done.",
)
@click.option("--execute", is_flag=True, help="With --emergency: delete these files. It needs no free byte.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def maintain(
    ctx: click.Context,
    topics: tuple[str, ...],
    steps: tuple[str, ...],
    target_bytes: int | None,
    full: bool,
    catalog: str | None,
    catalog_options: tuple[str, ...],
    dry_run: bool,
    emergency: bool,
    execute: bool,
    json_: bool,
) -> None:
    """Maintain topics: all that Kafka's brokers do in the background.

    Gives offsets to files of other engines, applies retention, compacts topics by key, merges small files, deletes
    unneeded files and log entries, and expires committed offsets. Producers and consumers continue meanwhile. It may
    run twice at the same time, and be killed at any point. Call it every few minutes or hours, by cron or another
    scheduler: topics in which nothing has happened and nothing is due are skipped, and each topic is checked once a
    day.

    Where the disk is full, nothing that writes can help: --emergency shows what can be deleted at once and what that
    costs, and --emergency --execute does it.

    Exit code 1: something failed; the rest was done. 75: the same, and the same call may succeed later.
    """
    from sparklog.compaction import Step
    from sparklog.compaction import maintain as maintain_cluster
    from sparklog.compaction.maintenance import ProgressListener, ignore_steps
    from sparklog.compaction.report_format import error_as_plain
    from sparklog.compaction.topic_access import may_succeed_later
    from sparklog.errors import SparklogError

    named_topics, named_steps = _names("--topics", topics), _names("--steps", steps)
    if emergency or execute:
        _check_emergency(ctx)
        ctx.exit(free(cluster_of(ctx), named_topics, dry_run=not execute, as_json_object=json_))
    try:
        report = maintain_cluster(
            cluster_of(ctx),
            named_topics,
            steps=list(Step) if named_steps is None else [_step(name) for name in named_steps],
            policy=_policy(target_bytes),
            dry_run=dry_run,
            full=full,
            tell=ProgressListener(_tell, _tell_progress) if _is_watched() else ignore_steps,
        )
    except SparklogError as error:
        if json_:
            click.echo(as_json(error_as_plain(error)))
        if not may_succeed_later(error):
            raise
        _tell_error(ctx, error)
        ctx.exit(TRY_AGAIN)
    _print(report, as_json_object=json_)
    if catalog is not None:
        sync_afterwards(ctx, catalog, catalog_options, dry_run=dry_run)
    if report.failures:
        ctx.exit(TRY_AGAIN if report.may_succeed_later else FAILED)


def _tell_error(ctx: click.Context, error: Exception) -> None:
    if is_debugging(ctx):
        traceback.print_exc()
    click.echo(f"sparklog: error: {' '.join(str(error).split())}", err=True)


def _check_emergency(ctx: click.Context) -> None:
    """Raise ``click.UsageError`` where other options make no sense beside that of an emergency."""
    if not ctx.params["emergency"]:
        raise click.UsageError("--execute goes with --emergency; without it maintenance is carried out anyway.", ctx)
    if ctx.params["execute"] and ctx.params["dry_run"]:
        raise click.UsageError("Give --execute or --dry-run, not both.", ctx)
    if ctx.params["steps"] or ctx.params["target_bytes"] is not None or ctx.params["full"]:
        raise click.UsageError("--emergency has no steps: no --steps, --target-bytes, --full.", ctx)


def _names(option: str, given: tuple[str, ...]) -> list[str] | None:
    """Split the names that an option was given; None where the option wasn't."""
    if not given:
        return None
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not names:  # else a list that a script left empty would mean everything
        raise click.BadParameter(f"got {','.join(given)!r}, expected a name, or several", param_hint=option)
    return names


def _policy(target_bytes: int | None) -> OptimizePolicy | None:
    from sparklog.compaction import OptimizePolicy
    from sparklog.errors import InvalidArgumentError

    if target_bytes is None:
        return None
    try:
        return OptimizePolicy(target_bytes=target_bytes)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error), param_hint="--target-bytes") from None


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


def _tell_progress(topic: str, step: Step, how_far: str) -> None:
    click.echo(f"{topic}: {step.value}: {how_far}", err=True)


def _print(report: MaintenanceReport, *, as_json_object: bool) -> None:
    from sparklog.compaction.report_format import report_as_plain

    if as_json_object:
        click.echo(as_json(report_as_plain(report)))
    else:
        _print_rows(report)
    for line in report.failures:
        click.echo(f"sparklog: error: {' '.join(line.split())}", err=True)


def _print_rows(report: MaintenanceReport) -> None:
    from sparklog.compaction.report_format import COLUMNS, NUMBERS, report_rows

    rows = report_rows(report)
    if rows:
        print_table(COLUMNS, rows, numbers=NUMBERS)
    if not rows and not report.failures:
        click.echo("nothing to be done")
    if rows and report.dry_run:
        click.echo("nothing was changed: this was a dry run")
