"""``sparklog groups``: list, describe, reset-offsets, delete, delete-offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.group_resets import partitions_of, reset_offsets
from sparklog.cli.options import (
    admin_of,
    cluster_of,
    complete_groups,
    complete_topics,
    confirm_deletion,
    connection_options,
)
from sparklog.cli.output import as_json, by_topic, print_table
from sparklog.cli.partly import end_partly
from sparklog.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparklog.admin import GroupDescription
    from sparklog.model import TopicPartition

__all__ = ["NOTHING", "count_of_members", "groups"]

NOTHING = "-"
"""Source: Kafka ``ConsumerGroupCommand.MISSING_COLUMN_VALUE``."""


@click.group()
@connection_options()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(reset_offsets)


@groups.command("list")
@click.option("--state", is_flag=True, help="Also show each group's state.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, state: bool, json_: bool) -> None:
    """List the groups' names.

    A group that can't be read is listed, and named on standard error with the reason; the exit code is then 3.
    """
    from sparklog.groups.admin.inspection import named_groups

    if state:
        listed = admin_of(ctx).list_group_states()
        found = [(group.group_id, group.state.value) for group in listed]
        if json_:
            click.echo(as_json([{"group": name, "state": state} for name, state in found]))
        else:
            print_table(["group", "state"], found)
        end_partly(ctx, {f"group {group.group_id}": group.error for group in listed if group.error is not None})
        return
    names = named_groups(cluster_of(ctx))
    if json_:
        click.echo(as_json([*names]))
    else:
        for name in names:
            click.echo(name)
    end_partly(ctx, {f"group {name}": error for name, error in names.items() if error is not None})


@groups.command()
@click.argument("names", nargs=-1, shell_complete=complete_groups, metavar="[NAME]…")
@click.option(
    "--offsets", "view", flag_value="offsets", default=True, help="Show partitions and lag; this is the default."
)
@click.option("--members", "view", flag_value="members", help="Show members and their partitions.")
@click.option("--state", "view", flag_value="state", help="Show only the states, a line for each group.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects with all of this.")
@connection_options()
@click.pass_context
def describe(ctx: click.Context, names: tuple[str, ...], view: str, json_: bool) -> None:
    """Show groups, by default all: committed offsets and lag, members, states.

    Lag is the log end offset minus the committed offset. A dash: no committed offset, or no owner of the partition.
    """
    described = admin_of(ctx).describe_groups(names or None)
    for group in described:
        if names and not group.exists:
            raise GroupIdNotFoundError(f"unknown group: {group.group_id!r}")
    if json_:
        click.echo(as_json([_as_dict(group) for group in described]))
    elif view == "state":
        _print_states(described)
    else:
        for number, group in enumerate(described):
            if number:
                click.echo()
            _print_group(group, with_members=view == "members")
    for group in described:
        if names and group.error is not None:
            raise group.error
    end_partly(ctx, {f"group {group.group_id}": group.error for group in described if group.error is not None})


@groups.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups, metavar="NAME…")
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with all their offsets."""
    confirm_deletion(ctx, f"groups {', '.join(names)} with all offsets", yes=yes)
    admin_of(ctx).delete_groups(dict.fromkeys(names))


@groups.command("delete-offsets")
@click.argument("name", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    metavar="TOPIC[:0,1,…]",
    help="A topic, or some of its partitions. Repeatable.",
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def delete_offsets(ctx: click.Context, name: str, topics: tuple[str, ...], yes: bool) -> None:
    """Delete a group's committed offsets of topics to which none of its members subscribes."""
    admin = admin_of(ctx)
    partitions = partitions_of(admin, topics)
    confirm_deletion(ctx, f"the offsets of group {name} for {', '.join(topics)}", yes=yes)
    admin.delete_group_offsets(name, partitions)


def _print_states(described: Iterable[GroupDescription]) -> None:
    print_table(
        ["group", "state", "generation", "assignor", "members"],
        [
            (group.group_id, group.state.value, group.generation_id, group.assignor or NOTHING, len(group.members))
            for group in described
        ],
        numbers=["generation", "members"],
    )


def count_of_members(count: int) -> str:
    """A number of members in words."""
    return "no members" if not count else "1 member" if count == 1 else f"{count} members"


def _print_group(group: GroupDescription, *, with_members: bool) -> None:
    if group.error is not None:
        click.echo(f"{group.group_id}: {group.state.value}, {group.error}")
        return
    members = count_of_members(len(group.members))
    assigned = f", assigned by {group.assignor}" if group.assignor else ""
    click.echo(f"{group.group_id}: {group.state.value}, {members}, generation {group.generation_id}{assigned}")
    if with_members:
        if group.members:
            print_table(
                ["member", "instance", "client", "host", "partitions", "assignment"],
                [
                    (
                        member.member_id,
                        member.group_instance_id or NOTHING,
                        member.client_id or NOTHING,
                        member.host,
                        len(member.assignment),
                        _in_short(member.assignment),
                    )
                    for member in group.members
                ],
                numbers=["partitions"],
            )
        return
    clients = {member.member_id: member for member in group.members}
    rows = []
    for row in group.partitions:
        owner = clients.get(row.member_id or "")
        committed = NOTHING if row.committed is None else row.committed.offset
        lag = NOTHING if row.lag is None else row.lag
        start, end = row.log_start_offset, row.log_end_offset
        who = (owner.member_id, owner.host, owner.client_id or NOTHING) if owner else (NOTHING, NOTHING, NOTHING)
        rows.append((row.partition.topic, row.partition.partition, committed, start, end, lag, *who))
    if rows:
        numbers = ["partition", "committed", "log start", "log end", "lag"]
        print_table(["topic", *numbers, "member", "host", "client"], rows, numbers=numbers)


def _in_short(partitions: Iterable[TopicPartition]) -> str:
    """Shorten an assignment as Kafka's command does: ``orders(0,1), other(2)``."""
    found = by_topic(partitions)
    return ", ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in found.items()) or NOTHING


def _as_dict(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state.value,
        "generation": group.generation_id,
        "assignor": group.assignor,
        "error": None if group.error is None else str(group.error),
        "members": [
            {
                "member": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "topics": list(member.topics),
                "assignment": by_topic(member.assignment),
                "target_assignment": by_topic(member.target_assignment),
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "committed_offset": None if row.committed is None else row.committed.offset,
                "metadata": None if row.committed is None else row.committed.metadata,
                "log_start_offset": row.log_start_offset,
                "log_end_offset": row.log_end_offset,
                "lag": row.lag,
                "member": row.member_id,
            }
            for row in group.partitions
        ],
    }
