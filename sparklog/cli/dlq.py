"""``sparklog dlq``: dead-letter topics: list, show, replay, purge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click

from sparklog.cli.options import (
    admin_of,
    cluster_of,
    complete_groups,
    complete_topics,
    confirm_deletion,
    connection_options,
)
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.processing.dead_letters import Found

__all__ = ["dlq"]

REPLAY_GROUP = "dlq-replay"
_SHOWN = 20

_group_option = click.option(
    "--group",
    default=REPLAY_GROUP,
    show_default=True,
    shell_complete=complete_groups,
    metavar="GROUP",
    help="The name for which it is remembered which letters were replayed.",
)
_where_option = click.option(
    "--where",
    metavar="SQL",
    help="Only letters for which this holds, in DuckDB's SQL over the columns of `show`: \"exception = 'ValueError'\"; "
    '"offset" has double quotes there, as a word of SQL.',
)


@click.group()
@connection_options()
def dlq() -> None:
    """List, show, replay and purge dead letters: records whose handlers failed."""


@dlq.command("list")
@click.option("--prefix", default="dlq.", show_default=True, help="The prefix of the names of dead-letter topics.")
@_group_option
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, prefix: str, group: str, json_: bool) -> None:
    """List the dead-letter topics, with their numbers of letters and of letters that weren't replayed."""
    from sparklog.processing.dead_letters import dead_letter_topics

    found = dead_letter_topics(admin_of(ctx), prefix=prefix, group=group)
    if json_:
        rows = [{"topic": each.name, "letters": each.letters, "not_replayed": each.not_replayed} for each in found]
        click.echo(as_json(rows))
    else:
        print_table(
            ["topic", "letters", "not replayed"],
            [(each.name, each.letters, each.not_replayed) for each in found],
            numbers=["letters", "not replayed"],
        )


@dlq.command()
@click.argument("topic", shell_complete=complete_topics)
@_where_option
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=1),
    default=_SHOWN,
    show_default=True,
    help="The greatest number of letters.",
)
@click.option("--replayed", is_flag=True, help="Also show letters that were replayed.")
@click.option("--stacktrace", is_flag=True, help="Print the stack trace of each letter below it.")
@_group_option
@click.option("--json", "json_", is_flag=True, help="Print a JSON object per letter, with all its fields.")
@connection_options()
@click.pass_context
def show(
    ctx: click.Context,
    topic: str,
    where: str | None,
    most: int,
    replayed: bool,
    stacktrace: bool,
    group: str,
    json_: bool,
) -> None:
    """Show the letters of a topic: the origin of each, and the error.

    \b
      sparklog dlq show dlq.orders
      sparklog dlq show dlq.orders --where "message like '%timed out%'" --stacktrace
    """
    from sparklog.processing.dead_letters import letter_table, letters_of

    wanted = _wanted(where)
    pieces = letters_of(cluster_of(ctx), topic, group=group, replayed=replayed)
    found = list(islice((each for piece in pieces for each in wanted(piece)), most))
    if json_:
        for row in letter_table(found).to_pylist():
            click.echo(as_json(row))
        return
    _print(found)
    if stacktrace:
        for each in found:
            click.echo(f"\n{each.record.partition}, {each.record.offset}:\n{each.letter.stacktrace.rstrip()}")


@dlq.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--to",
    shell_complete=complete_topics,
    metavar="TOPIC",
    help="Send them to TOPIC, not to the topics from which they came.",
)
@_where_option
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="The greatest number of letters.")
@_group_option
@click.option("--execute", is_flag=True, help="Carry it out. Without this it is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done; this is the default.")
@click.option(
    "--json", "json_", is_flag=True, help="Print a JSON object: records by topic, and whether they were sent."
)
@connection_options()
@click.pass_context
def replay(
    ctx: click.Context,
    topic: str,
    to: str | None,
    where: str | None,
    most: int | None,
    group: str,
    execute: bool,
    dry_run: bool,
    json_: bool,
) -> None:
    """Send dead letters again, each only once, however often this is run. Shows what would be sent; --execute sends it.

    Which letters were replayed is stored by the transaction that sends them, in the topic replayed-letters. A letter
    that fails again comes back as a new one.

    \b
      sparklog dlq replay dlq.orders
      sparklog dlq replay dlq.orders --where "exception = 'TimeoutError'" --execute
      sparklog dlq replay dlq.orders --to orders --execute
    """
    if execute and dry_run:
        raise click.UsageError("Give --execute or --dry-run, not both.", ctx)
    from sparklog.processing.dead_letters import replay as run

    result = run(cluster_of(ctx), topic, to=to, wanted=_wanted(where), most=most, group=group, execute=execute)
    if json_:
        click.echo(as_json({"to": dict(sorted(result.to.items())), "done": result.done}))
    else:
        print_table(["to", "records"], sorted(result.to.items()), numbers=["records"])
    if not execute:
        click.echo("nothing was changed: --execute does it", err=True)


@dlq.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--replayed", is_flag=True, help="Only letters below the offset up to which all were replayed.")
@_group_option
@click.option("--execute", is_flag=True, help="Carry it out. Without this it is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done; this is the default.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def purge(ctx: click.Context, topic: str, replayed: bool, group: str, execute: bool, dry_run: bool, yes: bool) -> None:
    """Delete dead letters permanently. Shows how many; --execute deletes them."""
    if execute and dry_run:
        raise click.UsageError("Give --execute or --dry-run, not both.", ctx)
    from sparklog.processing.dead_letters import purge as run

    admin = admin_of(ctx)
    count = run(admin, topic, replayed=replayed, group=group)
    what = "letter" if count == 1 else "letters"
    if not execute:
        click.echo(f"would delete {count} {what} of {topic}")
        click.echo("nothing was changed: --execute does it", err=True)
        return
    confirm_deletion(ctx, f"{count} {what} of {topic}", yes=yes)
    click.echo(f"deleted {run(admin, topic, replayed=replayed, group=group, execute=True)} {what} of {topic}")


def _wanted(where: str | None) -> Callable[[list[Found]], list[Found]]:
    if where is None:
        return list
    from sparklog.processing.dead_letters import letter_table
    from sparklog.sql.filtering import row_filter

    choose = row_filter(where)
    return lambda found: [found[row] for row in choose(letter_table(found))] if found else []


def _print(found: Iterable[Found]) -> None:
    print_table(
        ["partition", "offset", "from", "tries", "exception", "message", "key", "value"],
        [
            (
                each.record.partition,
                each.record.offset,
                f"{each.letter.origin.topic}-{each.letter.origin.partition}@{each.letter.origin.offset}",
                each.letter.attempts,
                each.letter.exception,
                each.letter.message,
                each.letter.key,
                each.letter.value,
            )
            for each in found
        ],
        numbers=["partition", "offset", "tries"],
    )
