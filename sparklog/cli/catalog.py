"""``sparklog catalog``: topics as tables and views in data catalogs, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import cluster_of, complete_topics, connection_options, pairs, root_of
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.catalogs import Catalog, SyncPlan

__all__ = ["catalog", "sync_afterwards"]

KINDS = ("hive", "unity", "glue", "trino")


@click.group()
def catalog() -> None:
    """Make topics known in data catalogs, where other engines find them by name."""


@catalog.command()
@click.option("--to", "kind", required=True, type=click.Choice(KINDS), help="The kind of the catalog.")
@click.option(
    "--schema",
    required=True,
    metavar="NAME",
    help="The schema, or database, which must be there; of unity and trino CATALOG.SCHEMA.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="How the catalog is reached. hive: Spark's settings; glue: of boto3's client, as region_name; unity: server, "
    "token_file; trino: host, port, user, http_scheme. Repeatable.",
)
@click.option("--location", metavar="URI", help="The cluster's root as engines know it, if it isn't --cluster's.")
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="Only these topics; nothing is dropped. Repeatable.",
)
@click.option("--drop", is_flag=True, help="Drop entries of topics and groups that were deleted; else they are shown.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def sync(
    ctx: click.Context,
    kind: str,
    schema: str,
    options: tuple[str, ...],
    location: str | None,
    topics: tuple[str, ...],
    drop: bool,
    dry_run: bool,
    json_: bool,
) -> None:
    """Bring a catalog up to date: a table for each topic, and views where the catalog has them.

    What carries the id of another cluster, or none, is never changed or dropped. Call it again after topics were
    created, deleted or got fields, as by a scheduler beside `sparklog maintain`.

    \b
      sparklog catalog sync --to hive --schema lake
      sparklog catalog sync --to glue --schema lake --option region_name=eu-central-1
      sparklog catalog sync --to unity --schema main.lake --option server=https://uc:8080 --dry-run
      sparklog catalog sync --to trino --schema delta.lake --option host=trino --option user=etl

    Exit code 3: done, but for topics whose names are taken.
    """
    from sparklog.catalogs import sync_catalog

    opened = _catalog(ctx, kind, schema, pairs(options, "--option"), location)
    plan = sync_catalog(opened, cluster_of(ctx), topics=list(topics) or None, drop=drop, dry_run=dry_run)
    _print(plan, drop=drop, dry_run=dry_run, json_=json_)
    if plan.taken:
        ctx.exit(3)


def sync_afterwards(ctx: click.Context, named: str, options: Iterable[str], *, dry_run: bool) -> None:
    """Bring a catalog up to date as a step of maintenance, and tell what was changed on standard error.

    Args:
        named: ``KIND:SCHEMA``.
    """
    from sparklog.catalogs import sync_catalog

    kind, _, schema = named.partition(":")
    if kind not in KINDS or not schema:
        expected = f"KIND:SCHEMA, with a kind of {', '.join(KINDS)}"
        raise click.BadParameter(f"got {named!r}, expected {expected}", param_hint="--catalog")
    opened = _catalog(ctx, kind, schema, pairs(options, "--catalog-option"), None)
    plan = sync_catalog(opened, cluster_of(ctx), dry_run=dry_run)
    done = f"{len(plan.creates)} created, {len(plan.replacements)} replaced, {len(plan.drops)} left of what was deleted"
    click.echo(f"catalog {named}: {done}", err=True)
    for source, why in plan.taken.items():
        click.echo(f"sparklog: warning: {source}: {why}", err=True)


def _catalog(ctx: click.Context, kind: str, schema: str, options: dict[str, str], location: str | None) -> Catalog:
    """The catalog, opened. Raises ``click.UsageError`` where an option is missing."""
    if kind == "glue":
        from sparklog.catalogs.glue import GlueCatalog, glue_client

        return GlueCatalog(glue_client(**options), schema, location=location)
    if kind == "hive":
        return _session_catalog(ctx, schema, options, location)
    first, dot, second = schema.partition(".")
    if not first or not second:
        raise click.BadParameter(f"got {schema!r}, expected CATALOG{dot or '.'}SCHEMA", param_hint="--schema")
    if kind == "unity":
        return _unity_catalog(first, second, options, location)
    from sparklog.catalogs.trino import TrinoCatalog, trino_connection

    connection: dict[str, Any] = {**options}
    if "port" in options:
        connection["port"] = _port(options["port"])
    return TrinoCatalog(trino_connection(**connection), first, second, location=location)


def _unity_catalog(catalog: str, schema: str, options: dict[str, str], location: str | None) -> Catalog:
    from pathlib import Path

    from sparklog.catalogs.unity import UnityCatalog

    unknown = sorted(options.keys() - {"server", "token_file"})
    if unknown or "server" not in options:
        raise click.BadParameter(
            f"got {', '.join(options) or 'none'}, expected server=URL and perhaps token_file=PATH",
            param_hint="--option",
        )
    file = options.get("token_file")
    token = None if file is None else Path(file).read_text().strip()
    return UnityCatalog(options["server"], catalog, schema, token=token, location=location)


def _session_catalog(ctx: click.Context, schema: str, options: dict[str, str], location: str | None) -> Catalog:
    from sparklog.spark import session
    from sparklog.spark.session_catalog import HIVE, SessionCatalog, cloud_of
    from sparklog.streaming.cluster_ref import cluster_ref_of

    if location is not None:
        raise click.UsageError("--location isn't for hive: Spark takes the cluster from where it is.")
    uri, storage_options = root_of(ctx)
    cluster_ref = cluster_ref_of(uri, storage_options)
    cloud = cloud_of(cluster_ref)
    settings: dict[str, Any] = {**HIVE, **options, **cloud}
    spark = session("sparklog catalog sync", storage_options=storage_options if cloud else None, **settings)
    return SessionCatalog(spark, cluster_ref, schema)


def _port(text: str) -> int:
    if not text.isdecimal():
        raise click.BadParameter(f"port={text}: expected a number", param_hint="--option")
    return int(text)


def _print(plan: SyncPlan, *, drop: bool, dry_run: bool, json_: bool) -> None:
    rows = [
        *(["create", entry.kind.value, entry.name, entry.source] for entry in plan.creates),
        *(["replace", entry.kind.value, entry.name, entry.source] for entry in plan.replacements),
        *(["drop" if drop else "left", found.kind.value, found.name, ""] for found in plan.drops),
    ]
    if json_:
        names = ("action", "kind", "name", "source")
        changes = [dict(zip(names, row, strict=True)) for row in rows]
        click.echo(
            as_json({"changes": changes, "unchanged": plan.unchanged, "taken": dict(plan.taken), "dry_run": dry_run})
        )
    elif rows:
        print_table(["ACTION", "KIND", "NAME", "SHOWS"], rows)
    elif not plan.taken:
        click.echo(f"nothing to be done: {plan.unchanged} entries are as they should be")
    if not json_ and plan.drops and not drop:
        click.echo("what is left shows what was deleted: --drop drops it")
    if not json_ and dry_run and rows:
        click.echo("nothing was changed: this was a dry run")
    for source, why in plan.taken.items():
        click.echo(f"sparklog: warning: {source}: {why}", err=True)
