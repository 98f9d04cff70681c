"""``sparklog topics``: create, list, describe, alter, delete, delete-records, sequence, restore."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import admin_of, cluster_of, complete_topics, confirm_deletion, connection_options, pairs
from sparklog.cli.output import as_json, print_table
from sparklog.cli.partly import end_partly
from sparklog.cli.schemas import SCHEMA_HELP, schema_argument
from sparklog.errors import InvalidRecordError, TopicAlreadyExistsError
from sparklog.texts import counted

if TYPE_CHECKING:
    from sparklog.admin import TopicDescription

__all__ = ["topics"]


@click.group()
@connection_options()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option("--partitions", type=int, default=1, show_default=True, help="Number of partitions of each topic.")
@click.option("--replication-factor", type=int, default=-1, hidden=True)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting, by Kafka's name. Repeatable.")
@click.option("--schema", metavar="SCHEMA", help=f"Makes them typed: {SCHEMA_HELP}.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error.")
@connection_options()
@click.pass_context
def create(
    ctx: click.Context,
    names: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    config: tuple[str, ...],
    schema: str | None,
    if_not_exists: bool,
) -> None:
    """Create topics, and the cluster if there is none."""
    from sparklog.admin import NewTopic

    configs = pairs(config, "--config")
    value_schema = None if schema is None else schema_argument(schema)
    new = [
        NewTopic(name, partitions, replication_factor, configs=configs, value_schema=value_schema)
        for name in dict.fromkeys(names)
    ]
    admin = admin_of(ctx)
    for topic in new:
        topic.check()
    if not if_not_exists:
        admin.create_topics(new)
    for topic in new if if_not_exists else ():
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([topic])


@topics.command("list")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, json_: bool) -> None:
    """List the topics' names.

    A topic that can't be read is listed, and named on standard error with the reason; the exit code is then 3.
    """
    from sparklog.log.cluster import topic_listings

    listed = topic_listings(cluster_of(ctx))
    if json_:
        click.echo(as_json([topic.name for topic in listed]))
    else:
        for topic in listed:
            click.echo(topic.name)
    end_partly(ctx, {f"topic {topic.name}": topic.error for topic in listed if topic.error is not None})


@topics.command()
@click.argument("names", nargs=-1, shell_complete=complete_topics, metavar="[NAME]…")
@click.option("--all", "all_", is_flag=True, help="Show every setting, including those at their defaults.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def describe(ctx: click.Context, names: tuple[str, ...], all_: bool, json_: bool) -> None:
    """Show topics, all by default: settings, and where the log of each partition starts and ends.

    Records are the offsets between start and end; in a compacted topic some of them may be deleted. Of all topics, one
    that can't be read is named on standard error with the reason; the exit code is then 3.
    """
    from sparklog.admin.many import all_described

    errors: dict[str, Exception] = {}
    if names:
        described = admin_of(ctx).describe_topics(names)
    else:
        looks = all_described(cluster_of(ctx))
        described = [look for look in looks.values() if not isinstance(look, Exception)]
        errors = {f"topic {name}": look for name, look in looks.items() if isinstance(look, Exception)}
    if json_:
        click.echo(as_json([_as_dict(topic, all_=all_) for topic in described]))
    for number, topic in enumerate(() if json_ else described):
        if number:
            click.echo()
        _print_topic(topic, all_=all_)
    end_partly(ctx, errors)


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--partitions", type=int, help="Increase the number of partitions to this total.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="Set a setting. Repeatable.")
@click.option("--delete-config", multiple=True, metavar="KEY", help="Reset a setting to its default. Repeatable.")
@connection_options()
@click.pass_context
def alter(
    ctx: click.Context, name: str, partitions: int | None, config: tuple[str, ...], delete_config: tuple[str, ...]
) -> None:
    """Change a topic's settings, or increase its number of partitions."""
    changes: dict[str, str | None] = {**pairs(config, "--config")}
    for key in delete_config:
        if key in changes:
            raise click.BadParameter(f"{key} is in --config too", param_hint="--delete-config")
        changes[key] = None
    if partitions is None and not changes:
        raise click.UsageError("Nothing to alter: give --partitions, --config or --delete-config.", ctx)
    admin = admin_of(ctx)
    for validate_only in (True, False):  # all or nothing, as far as it can be known
        if changes:
            admin.alter_configs({name: changes}, validate_only=validate_only)
        if partitions is not None:
            admin.create_partitions({name: partitions}, validate_only=validate_only)


@topics.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics, metavar="NAME…")
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics with all their records."""
    confirm_deletion(ctx, f"{', '.join(names)} with all records", yes=yes)
    admin_of(ctx).delete_topics(names)


@topics.command("delete-records")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partition", "-p", "partitions", type=int, multiple=True, help="A partition. Repeatable. By default all."
)
@click.option(
    "--before-offset",
    required=True,
    metavar="N|latest",
    help="The first offset that is kept; latest deletes all records.",
)
@connection_options()
@click.pass_context
def delete_records(ctx: click.Context, name: str, partitions: tuple[int, ...], before_offset: str) -> None:
    """Delete the records below an offset; prints the new log start offsets."""
    from sparklog.admin import HIGH_WATERMARK
    from sparklog.model import TopicPartition

    if before_offset != "latest" and not re.fullmatch(r"\d+", before_offset):
        raise click.BadParameter(
            f"got {before_offset!r}, expected a whole number or latest", param_hint="--before-offset"
        )
    offset = HIGH_WATERMARK if before_offset == "latest" else int(before_offset)
    admin = admin_of(ctx)
    if not partitions:
        partitions = tuple(range(admin.describe_topics([name])[0].partition_count))
    after = admin.delete_records({TopicPartition(name, partition): offset for partition in partitions})
    print_table(
        ["partition", "log start"],
        [(at.partition, start) for at, start in after.items()],
        numbers=["partition", "log start"],
    )


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def sequence(ctx: click.Context, name: str, json_: bool) -> None:
    """Assign offsets to rows that other Delta writers added without them.

    Consumers and producers that detect such files do the same by themselves. A file that can't be sequenced stays as it
    is and is printed with the reason; the exit code is then 1.
    """
    result = admin_of(ctx).sequence(name)
    if json_:
        click.echo(
            as_json(
                {
                    "topic": name,
                    "delta_version": result.delta_version,
                    "sequenced_files": result.sequenced_count,
                    "sequenced_records": result.record_count,
                    "refused": [{"path": path, "reason": reason} for path, reason in sorted(result.refused.items())],
                }
            )
        )
    else:
        click.echo(f"sequenced {counted(result.record_count, 'record')} of {counted(result.sequenced_count, 'file')}")
        if result.refused:
            print_table(["file", "refused because"], sorted(result.refused.items()))
    if result.refused:
        raise InvalidRecordError(f"topic {name!r}: {counted(len(result.refused), 'file')} can't be sequenced")


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--version",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="The version of the topic's Delta table before the statement whose effect is to be undone.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would return.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def restore(ctx: click.Context, name: str, version: int, dry_run: bool, json_: bool) -> None:
    """Bring back records that other engines' SQL removed since a version, under their offsets.

    Later appends, partitions, schemas and offsets stay, unlike after Delta's RESTORE. Records whose files don't exist
    any more are printed; the exit code is then 1.
    """
    result = admin_of(ctx).restore_topic(name, version, dry_run=dry_run)
    counts = sorted(result.record_counts.items())
    if json_:
        click.echo(
            as_json(
                {
                    "topic": name,
                    "delta_version": result.delta_version,
                    "dry_run": dry_run,
                    "partitions": [{"partition": partition, "records": count} for partition, count in counts],
                    "lost": [
                        {
                            "partition": one.partition,
                            "first_offset": one.first_offset,
                            "last_offset": one.last_offset,
                            "path": one.path,
                        }
                        for one in result.lost
                    ],
                    "never_sequenced": [*result.never_sequenced],
                }
            )
        )
    else:
        verb = "would restore" if dry_run else "restored"
        click.echo(f"{verb} {counted(result.record_count, 'record')} of {counted(len(counts), 'partition')}")
        if counts:
            print_table(["partition", "records"], counts, numbers=["partition", "records"])
        if result.never_sequenced:
            files = counted(len(result.never_sequenced), "file")
            click.echo(f"{files} of rows that had no offsets yet were removed, too, and don't return")
        if result.lost:
            lost = [(one.partition, one.first_offset, one.last_offset, one.path) for one in result.lost]
            print_table(["partition", "first offset", "last offset", "lost with file"], lost)
    if result.lost:
        raise InvalidRecordError(f"topic {name!r}: records of {counted(len(result.lost), 'file')} are lost")


def _settings(topic: TopicDescription, *, all_: bool) -> Mapping[str, Any]:
    return dict(sorted((topic.config.all() if all_ else topic.config.explicit).items()))


def _as_dict(topic: TopicDescription, *, all_: bool) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "delta_version": topic.delta_version,
        "configs": _settings(topic, all_=all_),
        "partitions": [
            {"partition": number, "log_start_offset": start, "log_end_offset": end}
            for number, (start, end) in enumerate(zip(topic.log_start_offsets, topic.log_end_offsets, strict=True))
        ],
        **({"value_schema": {"id": len(topic.value_schemas), "fields": _fields(topic)}} if topic.value_schemas else {}),
    }


def _fields(topic: TopicDescription) -> dict[str, str]:
    """The fields of the newest schema of a typed topic's values, with their types."""
    return {field.name: str(field.type) for field in topic.value_schemas[-1].arrow}


def _print_topic(topic: TopicDescription, *, all_: bool) -> None:
    count = topic.partition_count
    noun = "partition" if count == 1 else "partitions"
    click.echo(f"{topic.name}: {count} {noun}, id {topic.topic_id}, Delta version {topic.delta_version}")
    for key, value in _settings(topic, all_=all_).items():
        shown = str(value).lower() if isinstance(value, bool) else value
        click.echo(f"  {key} = {shown}{'' if key in topic.config.explicit else '  (default)'}")
    if topic.value_schemas:
        fields = ", ".join(f"{name} {kind}" for name, kind in _fields(topic).items())
        click.echo(f"  value schema {len(topic.value_schemas)}: {fields}")
    bounds = zip(topic.log_start_offsets, topic.log_end_offsets, strict=True)
    columns = ["partition", "log start", "log end", "records"]
    rows = [(number, start, end, end - start) for number, (start, end) in enumerate(bounds)]
    print_table(columns, rows, numbers=columns)
