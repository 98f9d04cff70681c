"""``sparklog sql``: a query over topics, as a table, JSON lines or CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from sparklog.cli.options import connection_options, root_of
from sparklog.cli.output import as_json, as_text, print_table
from sparklog.cli.partly import end_partly
from sparklog.cli.standard_output import check_output

__all__ = ["sql"]

DEFAULT_ROWS = 100


@click.command()
@click.argument("query")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object per row.")
@click.option("--csv", "csv_", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Print so many rows at most; 0 for all.  [default: {DEFAULT_ROWS} in a table, else all]",
)
@click.option("--consistent", is_flag=True, help="Show each transaction in all topics of the query, or in none.")
@click.option(
    "--version",
    "versions",
    multiple=True,
    metavar="TOPIC=N",
    help="Show a topic as of version N, the number of a commit. Repeatable.",
)
@connection_options()
@click.pass_context
def sql(
    ctx: click.Context,
    query: str,
    json_: bool,
    csv_: bool,
    max_rows: int | None,
    consistent: bool,
    versions: tuple[str, ...],
) -> None:
    """Query topics with DuckDB. QUERY is one statement; - reads it from standard input.

    Each topic is a view of its name, with the columns topic, partition, offset, timestamp (UTC), timestamp_type, key,
    value, headers. Key and value are BLOBs: decode(value) is the text. The word offset means something else in SQL:
    write "offset" or o.offset. Names with dashes or dots need quotes too. consumer_offsets, consumer_lag and
    transactions are views of all groups and transactional ids; those that can't be read are left out and named on
    standard error, and the exit code is 3.

    \b
      sparklog sql "select partition, count(*), max(\\"offset\\") from orders group by all"
      sparklog sql "select decode(value)::json->>'total' as total from orders where timestamp > '2026-01-31'"
      sparklog sql 'select * from "my-topic" limit 10' --json
    """
    if json_ and csv_:
        raise click.UsageError("Give --json or --csv, not both.", ctx)
    uri, options = root_of(ctx)
    if query == "-":
        query = sys.stdin.read()

    from sparklog.sql import query as run
    from sparklog.sql.names import parse_versions

    as_of = parse_versions(versions)
    reader = ctx.with_resource(run(uri, query, storage_options=options, consistent=consistent, versions=as_of))
    names, rows = reader.schema.names, _rows(reader)
    if json_:
        for row in islice(rows, max_rows or None):
            click.echo(as_json(dict(zip(names, row, strict=True))))
    elif csv_:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for row in islice(rows, max_rows or None):
            writer.writerow(["" if value is None else as_text(value) for value in row])
    elif names:
        limit = DEFAULT_ROWS if max_rows is None else max_rows or sys.maxsize - 1
        found = list(islice(rows, limit + 1))
        print_table(names, found[:limit], numbers=_numeric(reader.schema))
        if len(found) > limit:
            click.echo(f"(the first {limit} rows; --max-rows 0 for all)", err=True)
    end_partly(ctx, reader.unread)


def _rows(reader: Any) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        check_output()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _numeric(schema: Any) -> list[str]:
    return [field.name for field in schema if str(field.type).startswith(("int", "uint", "float", "double", "decimal"))]
