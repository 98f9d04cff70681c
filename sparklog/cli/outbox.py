"""``sparklog outbox``: the relay of a transactional outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import connection_options, root_of
from sparklog.cli.signals import FAILED, ended_by_signals
from sparklog.cli.standard_output import forgive_output

if TYPE_CHECKING:
    from sparklog.outbox import Relay

__all__ = ["outbox"]

_URL = click.option(
    "--url",
    required=True,
    envvar="SPARKLOG_OUTBOX_URL",
    metavar="URL",
    help="The database, as SQLAlchemy names it, such as postgresql+psycopg://user@host/db; or SPARKLOG_OUTBOX_URL.",
)
_TABLE = click.option("--table", default="outbox", show_default=True, help="The table, or SCHEMA.TABLE.")


@click.group()
def outbox() -> None:
    """Send the rows that applications write to a table of their own database, each exactly once.

    The table's columns are those of Debezium's outbox: id, aggregatetype, aggregateid, type, payload. A row becomes a
    record of the topic outbox.event.AGGREGATETYPE, which must exist, with the key aggregateid.
    """


@outbox.command()
@_URL
@_TABLE
@click.option(
    "--name",
    help="The relay's name, by default the table's. One relay of a name sends at a time, and always the same table.",
)
@click.option(
    "--order-by",
    metavar="COLUMN",
    help="The column that gives the order in which rows were written, where neither `position` nor integer ids do.",
)
@click.option("--unordered", is_flag=True, help="Records of one aggregate may come in another order than their rows.")
@click.option(
    "--same-table",
    is_flag=True,
    help="Once, after an error that asks for it: the table was moved, renamed or restored, and is the same.",
)
@click.option(
    "--after",
    type=click.Choice(["delete", "mark"]),
    default="delete",
    show_default=True,
    help="Delete the rows that were sent, or set their column published_at.",
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=1_000, show_default=True, help="The most rows of one transaction."
)
@click.option(
    "--poll-interval-ms",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Time between two queries for new rows. With PostgreSQL and psycopg 3 they are also notified at once.",
)
@click.option("--once", is_flag=True, help="Send the rows that wait, and end.")
@connection_options()
@click.pass_context
def relay(
    ctx: click.Context,
    url: str,
    table: str,
    name: str | None,
    order_by: str | None,
    unordered: bool,
    same_table: bool,
    after: str,
    batch_size: int,
    poll_interval_ms: int,
    once: bool,
) -> None:
    """Send rows to topics until SIGTERM or Ctrl-C.

    It may be killed at any moment: each row is sent exactly once, those of an aggregate in their order. A second relay
    of the same name takes over from the first, which ends with an error.
    """
    options: dict[str, Any] = {
        "name": name,
        "order_by": order_by,
        "unordered": unordered,
        "same_table": same_table,
        "after": after,
        "batch_size": batch_size,
    }
    if not once:
        forgive_output()
    with (
        ended_by_signals(is_service=not once) as ending,
        _relay(ctx, url, table, poll_interval_s=poll_interval_ms / 1_000, **options) as running,
        ending.calls(running.stop, forced_code=lambda: FAILED),
    ):
        if once:
            click.echo(f"sent {running.run_until_empty()} rows")
        else:
            running.run()
            click.echo(f"sent {running.metrics()['rows-sent-total']:.0f} rows", err=True)


@outbox.command()
@_URL
@_TABLE
@connection_options()
@click.pass_context
def status(ctx: click.Context, url: str, table: str) -> None:
    """Print the number of rows that wait, and how long the oldest has waited."""
    with _relay(ctx, url, table) as idle:
        metrics = idle.metrics()
    lag_s = metrics["lag-seconds"]
    click.echo(f"{metrics['rows-waiting']:.0f} rows wait" + (f", the oldest for {lag_s:.0f} s" if lag_s > 0 else ""))


@outbox.command("create-table")
@_URL
@_TABLE
def create_table(url: str, table: str) -> None:
    """Create the table, unless it exists."""
    _check_installed()
    from sqlalchemy import create_engine

    from sparklog.outbox import create_table as create

    engine = create_engine(url)
    try:
        create(engine, table)
    finally:
        engine.dispose()


def _relay(ctx: click.Context, url: str, table: str, **options: Any) -> Relay:
    _check_installed()
    from sparklog.outbox import Relay

    root, storage_options = root_of(ctx)
    return Relay(root, url, table=table, storage_options=storage_options, **options)


def _check_installed() -> None:
    try:
        import sqlalchemy  # noqa: F401 - only whether it is there
    except ImportError:
        raise click.ClickException("the outbox needs SQLAlchemy: pip install 'sparklog[outbox]'") from None
