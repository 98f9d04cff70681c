"""``sparklog consume``: records of topics to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.formats import Formatter, console_format, json_line, kcat_format
from sparklog.cli.options import complete_groups, complete_topics, connection_options, pairs, root_of
from sparklog.cli.signals import FAILED, TERMINATED, ended_by_signals
from sparklog.cli.standard_output import check_output
from sparklog.cli.start_positions import BEGINNING, END, StartPosition, parse_start_position
from sparklog.model import ConsumerRecord

if TYPE_CHECKING:
    from sparklog.cli.reading import Plan

__all__ = ["consume"]


@click.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics, metavar="TOPIC…")
@click.option(
    "--group",
    "-g",
    shell_complete=complete_groups,
    metavar="NAME",
    help="Read as a member of a group: begin at its committed offsets, share the partitions, commit what was printed.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="The same as --offset beginning; with --group only for partitions without a committed offset.",
)
@click.option(
    "--offset",
    "-o",
    metavar="WHERE",
    help="beginning, end, N, -N (N records before the end), @TIME (ISO 8601, or ms since 1970).",
)
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True, help="Repeatable. [default: all]"
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records, also with --from-beginning or --offset.")
@click.option("--max-messages", "-n", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="MS", help="Stop after MS milliseconds without a record."
)
@click.option("--json", "json_", is_flag=True, help="Print a JSON object per line.")
@click.option(
    "--format",
    "-F",
    "format_",
    metavar="TEMPLATE",
    help=r"As kcat's -f: %t topic, %p partition, %o offset, %k key, %s value, %K %S their lengths, "
    r"%T timestamp, %h headers, \n.",
)
@click.option("--print-timestamp", is_flag=True)
@click.option("--print-partition", is_flag=True)
@click.option("--print-offset", is_flag=True)
@click.option("--print-headers", is_flag=True)
@click.option("--print-key", is_flag=True)
@click.option("--separator", default="\t", metavar="TEXT", help="The text between fields. [default: a tab]")
@click.option("--key-separator", "-K", metavar="TEXT", help="Also print the key, followed by TEXT.")
@click.option(
    "--null-marker", "-Z", metavar="TEXT", default="null", show_default=True, help="The text that is printed for null."
)
@click.option("--config", "-X", multiple=True, metavar="KEY=VALUE", help="A setting of a consumer. Repeatable.")
@connection_options()
@click.pass_context
def consume(
    ctx: click.Context,
    topics: tuple[str, ...],
    group: str | None,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    json_: bool,
    format_: str | None,
    print_timestamp: bool,
    print_partition: bool,
    print_offset: bool,
    print_headers: bool,
    print_key: bool,
    separator: str,
    key_separator: str | None,
    null_marker: str,
    config: tuple[str, ...],
) -> None:
    """Print the records of TOPICs.

    With --from-beginning or --offset it prints the present records and stops; with --follow it waits for more. Without
    any of them, and always with --group, it waits for new records, as kafka-console-consumer does.

    \b
      sparklog consume orders --from-beginning
      sparklog consume orders -o -10 -f
      sparklog consume orders --group billing --from-beginning
      sparklog consume orders -o @2026-01-31T12:00:00Z --json
      sparklog consume orders -o beginning -F '%p %o %k=%s\\n'
    """
    _check_usage(ctx)
    position = _position(offset, from_beginning=from_beginning)
    printed = {
        "timestamp": print_timestamp,
        "partition": print_partition,
        "offset": print_offset,
        "headers": print_headers,
        "key": print_key or key_separator is not None,
    }
    fields = tuple(name for name, wanted in printed.items() if wanted)
    formatter = json_line if json_ else _formatter(format_, fields, separator, key_separator, null_marker)
    settings: dict[str, Any] = dict(pairs(config, "--config"))
    if group is not None:
        settings = {**({"auto_offset_reset": "earliest"} if from_beginning else {}), **settings, "group_id": group}

    from sparklog.cli.reading import Plan

    plan = Plan(
        topics=tuple(dict.fromkeys(topics)),
        partitions=tuple(dict.fromkeys(partitions)),
        start=position,
        follow=follow or not (from_beginning or offset is not None),
        timeout_ms=timeout_ms,
        max_count=max_messages,
    )
    _print_records(ctx, plan, formatter, settings, is_member=group is not None)


def _check_usage(ctx: click.Context) -> None:
    given = ctx.params
    if given["from_beginning"] and given["offset"] is not None:
        raise click.UsageError("Give --from-beginning or --offset, not both.", ctx)
    if given["group"] is not None and (given["partitions"] or given["offset"] is not None):
        raise click.UsageError("--group decides where to begin and which partitions: no --offset, no --partition.", ctx)
    if given["json_"] and given["format_"] is not None:
        raise click.UsageError("Give --json or --format, not both.", ctx)


def _position(offset: str | None, *, from_beginning: bool) -> StartPosition:
    if offset is None:
        return BEGINNING if from_beginning else END
    try:
        return parse_start_position(offset)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--offset") from None


def _formatter(
    template: str | None, fields: tuple[str, ...], separator: str, key_separator: str | None, null_marker: str
) -> Formatter:
    null = os.fsencode(null_marker)
    if template is None:
        key_end = None if key_separator is None else os.fsencode(key_separator)
        return console_format(fields=fields, separator=os.fsencode(separator), key_separator=key_end, null=null)
    try:
        return kcat_format(template, null=null)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def _print_records(
    ctx: click.Context, plan: Plan, formatter: Formatter, settings: Mapping[str, Any], *, is_member: bool
) -> None:
    """Print the records that a plan names, as they are read by a consumer with these settings."""
    from sparklog.cli.reading import Grouped, followed, present
    from sparklog.config import ConsumerConfig
    from sparklog.consumer import Consumer

    uri, options = root_of(ctx)
    commits = is_member and ConsumerConfig.parse(settings).enable_auto_commit
    with ended_by_signals(forced_code=FAILED if is_member else 0, with_interrupts=False) as ending:
        consumer = Consumer(cluster=uri, storage_options=options, **settings)
        if is_member:
            with Grouped(consumer, plan, ending, commits=commits) as polls:
                _print(polls, formatter, plan.max_count)
        else:
            with consumer:
                _print(followed(consumer, plan) if plan.follow else present(consumer, plan), formatter, plan.max_count)
    if ending.is_asked and not (plan.follow or is_member):
        ctx.exit(TERMINATED)  # not all that was there is printed


def _print(polls: Iterable[list[ConsumerRecord]], formatter: Formatter, max_count: int | None) -> None:
    output = sys.stdout.buffer
    left = max_count
    for records in polls:
        shown = records if left is None else records[:left]
        output.write(b"".join(map(formatter, shown)))
        output.flush()
        check_output()
        if left is not None:
            left -= len(shown)
            if left == 0:
                return
