"""``sparklog schemas``: list, show, check, set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import admin_of, complete_topics, connection_options
from sparklog.cli.output import as_json, print_table
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError

if TYPE_CHECKING:
    from sparklog.admin import TopicDescription
    from sparklog.schemas import SchemaSource, ValueSchema

__all__ = ["SCHEMA_HELP", "schema_argument", "schemas"]

SCHEMA_HELP = (
    "a file that ends with .avsc, .json, .sql or .ddl, or Protobuf's descriptors, orders.desc#shop.Order; or SQL's DDL "
    "itself: 'id BIGINT, total DOUBLE'"
)
REGISTRY_ID_HELP = "The id by which a schema registry knows the schema: that of Confluent's framing."


def schema_argument(text: str, registry_id: int | None = None) -> ValueSchema:
    """The schema in a file, or that of a text with blanks, which no such file's name has. Raises ``SchemaError``,
    ``OSError``."""
    from sparklog.schemas import schema_of_file, value_schema

    is_file = Path(text).is_file() or not any(map(str.isspace, text))
    found = schema_of_file(text) if is_file else value_schema(text)
    return found if registry_id is None else found.with_registry_id(registry_id)


@click.group()
@connection_options()
def schemas() -> None:
    """List, show, check and set the schemas of topics' values."""


@schemas.command("list")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, json_: bool) -> None:
    """List the typed topics: the newest schema of each, and the settings that go with it."""
    typed = [topic for topic in admin_of(ctx).describe_topics() if topic.value_schemas]
    if json_:
        click.echo(as_json([_summary(topic) for topic in typed]))
        return
    columns = ["topic", "schema", "fields", "value.format", "value.compatibility"]
    print_table(columns, [tuple(_summary(topic).values()) for topic in typed], numbers=["schema", "fields"])


@schemas.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--id", "schema_id", type=click.IntRange(1), help="The id of the schema; by default the newest.")
@click.option("--json", "json_", is_flag=True, help="Print the schema in Spark's JSON format, which `set` reads.")
@connection_options()
@click.pass_context
def show(ctx: click.Context, topic: str, schema_id: int | None, json_: bool) -> None:
    """Show a schema of a topic's values: each field, its type, and the schema that it came with."""
    known = admin_of(ctx).describe_value_schemas(topic)
    if not known:
        raise InvalidArgumentError(
            f"topic {topic!r} isn't typed: it has no schema; `sparklog schemas set` sets the first"
        )
    number = len(known) if schema_id is None else schema_id
    if number not in known:
        raise InvalidArgumentError(f"topic {topic!r} has no schema {number}; it has 1 to {len(known)}")
    if json_:
        click.echo(json.dumps(json.loads(known[number].to_json()), indent=2, ensure_ascii=False))
        return
    since: dict[str, int] = {}
    for at, schema in known.items():
        for path, _ in schema.field_types():
            since.setdefault(path, at)
    click.echo(f"{topic}: schema {number} of {len(known)}")
    print_table(
        ["field", "type", "since schema"],
        [(path, kind, since[path]) for path, kind in known[number].field_types()],
        numbers=["since schema"],
    )


@schemas.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("schema")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def check(ctx: click.Context, topic: str, schema: str, json_: bool) -> None:
    """Check whether a schema could be set for a topic's values, and what it would change. Changes nothing.

    SCHEMA is a file that ends with .avsc, .json, .sql or .ddl, or Protobuf's descriptors (orders.desc#shop.Order, as
    protoc --include_imports --descriptor_set_out writes them), or SQL's DDL itself. The exit code is 1 where the schema
    isn't compatible.
    """
    new, admin = schema_argument(schema), admin_of(ctx)
    verdict, changes = admin.check_value_schema(topic, new), _changes(admin.describe_value_schemas(topic), new)
    if json_:
        click.echo(
            as_json(
                {"topic": topic, "compatible": verdict.compatible, "reasons": list(verdict.reasons), "changes": changes}
            )
        )
    elif verdict.compatible:
        click.echo(f"{topic}: compatible")
        for change in changes:
            click.echo(f"  {change}")
    if not verdict.compatible:
        raise InvalidConfigurationError(f"topic {topic!r}: {verdict}")


@schemas.command("set")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("schema")
@click.option("--registry-id", type=click.IntRange(0, 2**31 - 1), help=REGISTRY_ID_HELP)
@connection_options()
@click.pass_context
def set_(ctx: click.Context, topic: str, schema: str, registry_id: int | None) -> None:
    """Set the schema of a topic's values; an untyped topic becomes typed, permanently.

    SCHEMA is as for `check`. An incompatible one is refused with the reasons; one that equals the newest changes
    nothing.
    """
    new, admin = schema_argument(schema, registry_id), admin_of(ctx)
    changes = _changes(admin.describe_value_schemas(topic), new)
    described = admin.alter_value_schema(topic, new)
    click.echo(f"{topic}: schema {len(described.value_schemas)}")
    for change in changes:
        click.echo(f"  {change}")


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "schema": len(topic.value_schemas),
        "fields": len(topic.value_schemas[-1].arrow),
        "value.format": topic.config["value.format"],
        "value.compatibility": topic.config["value.compatibility"],
    }


def _changes(known: dict[int, ValueSchema], new: ValueSchema) -> list[str]:
    """The changes that a schema makes, in words."""
    if not known:
        return ["the topic becomes typed; older records keep their bytes"]
    before, after = dict(known[len(known)].field_types()), dict(new.field_types())
    ever = {path for schema in known.values() for path, _ in schema.field_types()}
    changes = [
        f"{'adds' if path not in ever else 'brings back'} {path} {kind}"
        for path, kind in after.items()
        if path not in before
    ]
    changes += [f"leaves out {path}: its column stays in the table" for path in before if path not in after]
    newest = known[len(known)]
    if newest.source != new.source:
        changes.append(_bytes_read_by(newest.source, new.source))
    if newest.registry_id != new.registry_id:
        changes.append(f"the registry's id is {'none' if new.registry_id is None else new.registry_id}")
    if not changes:
        same = [*before] == [*after]
        changes = ["changes nothing" if same else "changes the order of the fields alone"]
    return changes


def _bytes_read_by(before: SchemaSource | None, after: SchemaSource | None) -> str:
    """By what bytes are read where a schema is made of something else than the one before."""
    if after is None:
        return {
            "protobuf": "isn't made of a Protobuf message any more: bytes in Protobuf can't be read by it",
            "avro": "isn't made of an Avro record any more: Avro is read by a union with null for each field",
        }["avro" if before is None else before.language]
    name = {"avro": "Avro record", "protobuf": "Protobuf message"}[after.language]
    is_new = before is None or before.language != after.language
    return f"bytes in {after.language.title()} are read by {'its' if is_new else 'another'} {name}"
