"""``sparklog groups reset-offsets``: where a group goes on, shown first and done only when that is said."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, cast

import click

from sparklog.cli.options import admin_of, complete_groups, complete_topics, connection_options
from sparklog.cli.output import as_json, print_table
from sparklog.cli.start_positions import parse_time
from sparklog.errors import InvalidArgumentError
from sparklog.model import TopicPartition

if TYPE_CHECKING:
    from sparklog.admin import Admin, OffsetReset, ResetTo
    from sparklog.groups.admin.resets import Kind

__all__ = ["partitions_of", "reset_offsets"]

_PARTITIONS = re.compile(r"\d{1,9}(,\d{1,9})*")
_PLACES = "--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime or --from-file"


@click.command("reset-offsets")
@click.argument("name", shell_complete=complete_groups)
@click.option("--to-earliest", "word", flag_value="earliest", help="Reset to the log start offsets.")
@click.option("--to-latest", "word", flag_value="latest", help="Reset to the log end offsets.")
@click.option(
    "--to-current", "word", flag_value="current", help="Reset to the committed offsets, or else to the log end offsets."
)
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Reset to offset N in every partition.")
@click.option("--shift-by", type=int, metavar="N", help="Shift by N offsets; a negative N shifts back.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Reset to the first records that aren't older than TIME: ISO 8601, or ms since 1970.",
)
@click.option(
    "--from-file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Reset to the offsets of a CSV file: topic,partition,offset.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    metavar="TOPIC[:0,1,…]",
    help="Only offsets of a topic, or of some of its partitions. Repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has a committed offset.")
@click.option("--execute", is_flag=True, help="Carry it out. Without this it is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done; this is the default.")
@click.option("--export", is_flag=True, help="Print CSV for --from-file instead of a table.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def reset_offsets(
    ctx: click.Context,
    name: str,
    word: str | None,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    from_file: IO[str] | None,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    json_: bool,
) -> None:
    """Set the offsets at which a group without members continues. Shows the change; --execute makes it.

    An offset outside of a log is moved to the log's nearer end. A group that doesn't exist is created.

    \b
      sparklog groups reset-offsets billing --all-topics --to-earliest
      sparklog groups reset-offsets billing --topic orders --shift-by -100 --execute
      sparklog groups reset-offsets billing --topic orders:0,2 --to-datetime 2026-01-31T12:00:00Z --execute
    """
    if execute and dry_run:
        raise click.UsageError("Give --execute or --dry-run, not both.", ctx)
    if export and json_:
        raise click.UsageError("Give --export or --json, not both.", ctx)
    to = _reset_target(ctx, word, to_offset, shift_by, to_datetime, from_file)
    if from_file is None and all_topics == bool(topics):
        raise click.UsageError("Of which topics? Give --topic or --all-topics.", ctx)
    if from_file is not None and (all_topics or topics):
        raise click.UsageError("--from-file names the partitions: leave out --topic and --all-topics.", ctx)
    admin = admin_of(ctx)
    partitions = partitions_of(admin, topics) if topics else None
    plan = admin.reset_group_offsets(name, to, partitions, dry_run=not execute)
    _print(name, plan, export=export, json_=json_)
    for reset in plan:
        if reset.new_offset != reset.asked_offset:
            at = f"{reset.partition.topic}-{reset.partition.partition}"
            where = "below the log start" if reset.asked_offset < reset.new_offset else "beyond the log end"
            click.echo(f"{at}: {reset.asked_offset} is {where}, {reset.new_offset} is taken", err=True)
    if not execute:
        click.echo("nothing was changed: --execute does it", err=True)


def partitions_of(admin: Admin, given: Iterable[str]) -> list[TopicPartition]:
    """The partitions that ``TOPIC`` and ``TOPIC:0,1`` name. Raises ``UnknownTopicOrPartitionError``."""
    found: dict[TopicPartition, None] = {}
    for text in given:
        topic, colon, numbers = text.partition(":")
        if colon and not _PARTITIONS.fullmatch(numbers):
            raise click.BadParameter(f"got {text!r}, expected TOPIC, or TOPIC:0,1,…", param_hint="--topic")
        [described] = admin.describe_topics([topic])
        chosen = map(int, numbers.split(",")) if colon else range(described.partition_count)
        found.update(dict.fromkeys(TopicPartition(topic, number) for number in chosen))
    return list(found)


def _reset_target(
    ctx: click.Context,
    word: str | None,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    from_file: IO[str] | None,
) -> ResetTo | dict[TopicPartition, int]:
    from sparklog.admin import ResetTo

    given = [value for value in (word, to_offset, shift_by, to_datetime, from_file) if value is not None]
    if len(given) != 1:
        raise click.UsageError(f"Where to? Give one of {_PLACES}.", ctx)
    if from_file is not None:
        return _read(from_file)
    if to_offset is not None:
        return ResetTo("offset", to_offset)
    if shift_by is not None:
        return ResetTo("shift", shift_by)
    if to_datetime is not None:
        try:
            return ResetTo("time", parse_time(to_datetime))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--to-datetime") from None
    return ResetTo(cast("Kind", word))


def _read(file: IO[str]) -> dict[TopicPartition, int]:
    """Offsets of lines ``topic,partition,offset``, as ``--export`` and Kafka's own command print them."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(file), 1):
        if not row:
            continue
        fields = [field.strip() for field in row]
        if len(fields) != 3 or not all(re.fullmatch(r"\d{1,19}", field) for field in fields[1:]):
            raise InvalidArgumentError(
                f"{file.name}, line {number}: got {','.join(row)}, expected topic,partition,offset"
            )
        at = TopicPartition(fields[0], int(fields[1]))
        if at in found:
            raise InvalidArgumentError(
                f"{file.name}, line {number}: partition {at.topic}-{at.partition} is there twice"
            )
        found[at] = int(fields[2])
    return found


def _print(group: str, plan: list[OffsetReset], *, export: bool, json_: bool) -> None:
    if json_:
        click.echo(
            as_json(
                [
                    {
                        "group": group,
                        "topic": reset.partition.topic,
                        "partition": reset.partition.partition,
                        "current_offset": reset.current_offset,
                        "new_offset": reset.new_offset,
                    }
                    for reset in plan
                ]
            )
        )
    elif export:
        for reset in plan:
            click.echo(f"{reset.partition.topic},{reset.partition.partition},{reset.new_offset}")
    else:
        rows = [
            (group, *reset.partition, "-" if reset.current_offset is None else reset.current_offset, reset.new_offset)
            for reset in plan
        ]
        print_table(["group", "topic", "partition", "current", "new"], rows, numbers=["partition", "current", "new"])
