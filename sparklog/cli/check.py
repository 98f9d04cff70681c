"""``sparklog check``: is what lies in the store what sparklog says it is?"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from sparklog.cli.options import cluster_of, complete_topics, connection_options
from sparklog.cli.output import as_json, print_table
from sparklog.cli.partly import PARTLY

if TYPE_CHECKING:
    from sparklog.integrity import Repaired, Report

__all__ = ["check"]

FAILED = 1
_TELL_EACH_S = 2.0


@click.command()
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME[,NAME]…",
    shell_complete=complete_topics,
    help="Check only these topics, without transactions and groups. By default the whole cluster is checked.",
)
@click.option(
    "--deep/--fast", default=False, help="Also read all live data files. By default only their metadata is checked."
)
@click.option("--repair", is_flag=True, help="Repair what can be repaired safely, then check again.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def check(ctx: click.Context, topics: tuple[str, ...], deep: bool, repair: bool, json_: bool) -> None:
    """Check that logs, files, offsets, groups and transactions fit together.

    Changes nothing without --repair, and runs beside producers, consumers and jobs. --repair finishes or aborts
    transactions that were left open, gives offsets to files that have none, writes checkpoints that are missing or
    damaged, and settles offsets that are pending although their transaction has ended. It never deletes data.

    Exit code 1: errors were found, or something couldn't be repaired. 3: no other error was found than that something
    couldn't be read; all else was checked. Warnings leave it at 0.
    """
    from sparklog.integrity import check_cluster, repair_cluster

    cluster = cluster_of(ctx)
    wanted = [name.strip() for text in topics for name in text.split(",") if name.strip()] or None
    if topics and wanted is None:  # else a list that a script left empty would mean everything
        raise click.BadParameter(f"got {','.join(topics)!r}, expected a name, or several", param_hint="--topics")
    tell = _Progress() if sys.stderr.isatty() else _tell_nothing
    report = check_cluster(cluster, wanted, deep=deep, tell=tell)
    repaired = None
    if repair:
        repaired = repair_cluster(cluster, report)
        report = check_cluster(cluster, wanted, deep=deep, tell=tell)
    if json_:
        repairs = {} if repaired is None else {"repaired": repaired.done, "not_repaired": repaired.failed}
        click.echo(as_json({**report.to_json(), **repairs}))
    else:
        _print(report, repaired)
    for line in repaired.failed if repaired is not None else ():
        click.echo(f"sparklog: error: {' '.join(line.split())}", err=True)
    if repaired is not None and repaired.failed:
        ctx.exit(FAILED)
    if report.errors:
        ctx.exit(PARTLY if report.is_partial else FAILED)


def _tell_nothing(kind: str, done: int, count: int) -> None:
    pass


class _Progress:
    """Tells on standard error how far a check has come, every few seconds."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _TELL_EACH_S

    def __call__(self, kind: str, done: int, count: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _TELL_EACH_S
            click.echo(f"checked {done} of {count} {kind}", err=True)


def _print(report: Report, repaired: Repaired | None) -> None:
    for line in repaired.done if repaired is not None else ():
        click.echo(f"repaired: {line}")
    if report.findings:
        rows = [
            (finding.severity.value, finding.code.value, str(finding.subject), finding.seen, finding.expected)
            for finding in report.findings
        ]
        print_table(("severity", "code", "of", "seen", "expected"), rows)
    counts = report.counts
    click.echo(
        f"checked {counts.topics} topics, {counts.entries} log entries, {counts.files} files, "
        f"{counts.records} records, {counts.groups} groups, {counts.committed_offsets} committed offsets, "
        f"{counts.transactional_ids} transactional ids, {counts.transactions} transactions"
    )
    click.echo(f"{len(report.errors)} errors, {len(report.warnings)} warnings")
