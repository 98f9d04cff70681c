"""``sparklog share-groups``: list, describe, reset-offsets, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.groups import NOTHING, count_of_members
from sparklog.cli.options import admin_of, cluster_of, complete_topics, confirm_deletion, connection_options
from sparklog.cli.output import as_json, print_table
from sparklog.cli.partly import end_partly
from sparklog.cli.start_positions import parse_time
from sparklog.errors import GroupIdNotFoundError
from sparklog.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparklog.admin import Admin
    from sparklog.groups.admin.share_groups import ShareGroupDescription

__all__ = ["share_groups"]


@click.group("share-groups")
@connection_options()
def share_groups() -> None:
    """List, describe, reset and delete share groups."""


@share_groups.command("list")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, json_: bool) -> None:
    """List the share groups' names.

    A group that can't be read is listed, and named on standard error with the reason; the exit code is then 3.
    """
    from sparklog.groups.admin.share_groups import named_share_groups

    names = named_share_groups(cluster_of(ctx))
    if json_:
        click.echo(as_json([*names]))
    for name in () if json_ else names:
        click.echo(name)
    end_partly(ctx, {f"share group {name}": error for name, error in names.items() if error is not None})


@share_groups.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--members", is_flag=True, help="Show the members instead of the partitions.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects with all of this.")
@connection_options()
@click.pass_context
def describe(ctx: click.Context, names: tuple[str, ...], members: bool, json_: bool) -> None:
    """Show share groups, by default all: their progress and members.

    All records below the start offset are done; lag is the number of records that aren't done. Of all groups, one that
    can't be read is named on standard error with the reason; the exit code is then 3.
    """
    from sparklog.groups.admin.share_groups import all_share_groups

    errors: dict[str, Exception] = {}
    if names:
        described = admin_of(ctx).describe_share_groups(names)
    else:
        looks = all_share_groups(cluster_of(ctx))
        described = [look for look in looks.values() if not isinstance(look, Exception)]
        errors = {f"share group {name}": look for name, look in looks.items() if isinstance(look, Exception)}
    for group in described:
        if not group.members and not group.partitions:
            raise GroupIdNotFoundError(f"unknown share group: {group.group_id!r}")
    if json_:
        click.echo(as_json([_as_dict(group) for group in described]))
    for number, group in enumerate(() if json_ else described):
        if number:
            click.echo()
        _print_group(group, with_members=members)
    end_partly(ctx, errors)


@share_groups.command("reset-offsets")
@click.argument("name")
@click.option("--to-earliest", "word", flag_value="earliest", help="Reset to the log start offsets.")
@click.option("--to-latest", "word", flag_value="latest", help="Reset to the log end offsets.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Reset to the first records that aren't older than TIME: ISO 8601, or ms since 1970.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Only offsets of a topic; by default of all. Repeatable.",
)
@click.option("--execute", is_flag=True, help="Carry it out. Without this it is only shown.")
@connection_options()
@click.pass_context
def reset_offsets(
    ctx: click.Context, name: str, word: str | None, to_datetime: str | None, topics: tuple[str, ...], execute: bool
) -> None:
    """Set the offsets at which a share group without members continues. Records in flight are no longer tracked."""
    if (word is None) == (to_datetime is None):
        raise click.UsageError("Where to? Give one of --to-earliest, --to-latest or --to-datetime.", ctx)
    admin = admin_of(ctx)
    now = admin.list_share_group_offsets(name)
    wanted = [*_partitions(admin, topics)] if topics else sorted(now)
    if not wanted:
        raise GroupIdNotFoundError(f"unknown share group: {name!r}; name its topics by --topic to begin it")
    to = _new_offsets(admin, wanted, word, to_datetime)
    rows = [(at.topic, at.partition, now.get(at, NOTHING), to[at]) for at in wanted]
    print_table(["topic", "partition", "start", "new start"], rows, numbers=["partition", "start", "new start"])
    if execute:
        admin.alter_share_group_offsets(name, to)
    else:
        click.echo("nothing was changed: --execute does it", err=True)


@share_groups.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only the group's offsets of this topic."
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], topics: tuple[str, ...], yes: bool) -> None:
    """Delete share groups that have no members, or their offsets in topics."""
    admin = admin_of(ctx)
    what = f"the offsets in {', '.join(topics)} of share groups" if topics else "share groups"
    confirm_deletion(ctx, f"{what} {', '.join(names)}", yes=yes)
    if not topics:
        admin.delete_share_groups(names)
        return
    for name in names:
        admin.delete_share_group_offsets(name, topics)


def _partitions(admin: Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    counts = {topic.name: topic.partition_count for topic in admin.describe_topics(topics)}
    return [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]


def _new_offsets(
    admin: Admin, wanted: list[TopicPartition], word: str | None, to_datetime: str | None
) -> Mapping[TopicPartition, int]:
    bounds = {topic.name: topic for topic in admin.describe_topics(sorted({at.topic for at in wanted}))}
    if word == "earliest":
        return {at: bounds[at.topic].log_start_offsets[at.partition] for at in wanted}
    ends = {at: bounds[at.topic].log_end_offsets[at.partition] for at in wanted}
    if to_datetime is None:
        return ends
    try:
        since_ms = parse_time(to_datetime)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to-datetime") from None
    found = admin.list_offsets(dict.fromkeys(wanted, since_ms))
    return {at: ends[at] if place.offset < 0 else place.offset for at, place in found.items()}


def _print_group(group: ShareGroupDescription, *, with_members: bool) -> None:
    click.echo(f"{group.group_id}: {group.state.value}, {count_of_members(len(group.members))}")
    if with_members:
        if group.members:
            rows = [(one.member_id, one.client_id or NOTHING, one.host, ", ".join(one.topics)) for one in group.members]
            print_table(["member", "client", "host", "topics"], rows)
        return
    numbers = ["partition", "start", "log end", "available", "acquired", "lag"]
    print_table(
        ["topic", *numbers],
        [
            (
                row.partition.topic,
                row.partition.partition,
                row.start_offset,
                NOTHING if row.log_end_offset is None else row.log_end_offset,
                row.available,
                row.acquired,
                NOTHING if row.lag is None else row.lag,
            )
            for row in group.partitions
        ],
        numbers=numbers,
    )


def _as_dict(group: ShareGroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state.value,
        "members": [
            {"member": one.member_id, "client_id": one.client_id, "host": one.host, "topics": list(one.topics)}
            for one in group.members
        ],
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "start_offset": row.start_offset,
                "end_offset": row.end_offset,
                "log_end_offset": row.log_end_offset,
                "available": row.available,
                "acquired": row.acquired,
                "lag": row.lag,
            }
            for row in group.partitions
        ],
    }
