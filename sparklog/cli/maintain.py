"""``sparklog maintain``: retention, compaction, merging and vacuum, for a scheduler to call every now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import cluster_of, complete_topics, connection_options
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.compaction import MaintenanceReport, Step, TopicMaintenance

__all__ = ["maintain"]

FAILED = 1

Row = tuple[str, str, int | None, int | None, str]
"""Topic or group, step, files, bytes, and what became of them."""


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

    wanted = [_step(name) for name in _names(steps)] or list(Step)
    report = maintain_cluster(
        cluster_of(ctx), _names(topics) or None, steps=wanted, dry_run=dry_run, tell=_tell if _is_watched() else _quiet
    )
    if json_:
        click.echo(as_json(_plain(report)))
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


def _quiet(topic: str, step: Step) -> None:
    """Nobody looks."""


def _print(report: MaintenanceReport) -> None:
    rows = [*_rows_of_cluster(report), *(row for topic in report.topics for row in _rows(topic))]
    if rows:
        print_table(["topic", "step", "files", "bytes", "result"], rows, numbers=["files", "bytes"])
    if not rows and not report.failures:
        click.echo("nothing to be done")
    if rows and report.dry_run:
        click.echo("nothing was changed: this was a dry run")


def _rows_of_cluster(report: MaintenanceReport) -> Iterator[Row]:
    for one in report.transactions:
        if one.action.value != "nothing":
            yield "", "transactions", None, None, f"{one.transactional_id}: {one.action.value}"
    for group in report.groups:
        if group.expired_offsets or group.deleted:
            gone = "; the group is empty and gone" if group.deleted else ""
            result = f"{group.group}: offsets of {group.expired_offsets} partitions expired{gone}"
            yield "", "groups", group.files_deleted, None, result


def _rows(topic: TopicMaintenance) -> Iterator[Row]:
    """What was done, or would be; nothing for a step that found nothing."""
    name = topic.topic
    if topic.sequence is not None and (topic.sequence.sequenced_files or topic.sequence.refused):
        refused = f", {len(topic.sequence.refused)} refused" if topic.sequence.refused else ""
        yield name, "sequence", topic.sequence.sequenced_files, None, f"offsets given{refused}"
    if topic.retention is not None and (topic.retention.removed_files or topic.retention.log_start_offsets):
        moved = topic.retention.log_start_offsets
        starts = ", ".join(f"{number} from {new}" for number, (_, new) in moved.items())
        result = f"removed; logs begin: {starts}" if starts else "removed"
        yield name, "retention", topic.retention.removed_files, topic.retention.removed_bytes, result
    for cleaned in topic.compact.partitions if topic.compact is not None else ():
        if cleaned.outcome is not None:
            counts = cleaned.counts
            what = f"{counts.dropped} of {counts.records} records dropped"
            if cleaned.outcome.value != "done":
                what = (
                    f"{cleaned.outcome.value}, {cleaned.dirty_ratio:.0%} dirty, {cleaned.tombstones_due} tombstones due"
                )
            result = f"partition {cleaned.partition}: {what}"
            yield name, "compact", cleaned.files_before, cleaned.bytes_before, result
    for merged in topic.optimize.ranges if topic.optimize is not None else ():
        what = f"into {merged.files_after}" if merged.outcome.value == "done" else merged.outcome.value
        result = f"partition {merged.partition}, offsets {merged.first_offset} to {merged.last_offset}: {what}"
        yield name, "optimize", merged.files_before, merged.bytes_before, result
    vacuum = topic.vacuum
    if vacuum is not None and (vacuum.files_deleted or vacuum.entries_deleted or vacuum.checkpoint_version is not None):
        entries = f", {vacuum.entries_deleted} log entries" if vacuum.entries_deleted else ""
        checkpoint = "" if vacuum.checkpoint_version is None else f"; checkpoint {vacuum.checkpoint_version}"
        yield name, "vacuum", vacuum.files_deleted, vacuum.bytes_deleted, f"deleted{entries}{checkpoint}"


def _plain(value: Any) -> Any:
    """A report as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Exception) else value
