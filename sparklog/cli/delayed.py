"""``sparklog delayed``: records with ``deliver_at``: deliver them, list them, cancel them."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from sparklog.cli.options import cluster_of, complete_topics, connection_options
from sparklog.cli.output import as_json, as_text, print_table
from sparklog.cli.signals import FAILED, ended_by_signals
from sparklog.cli.standard_output import forgive_output
from sparklog.interrupts import SafeEvent

__all__ = ["delayed"]

_FAR_MS = 253_402_300_799_999


@click.group()
def delayed() -> None:
    """Deliver, list and cancel records that were sent with deliver_at.

    Such a record waits in the topic delayed.TOPIC, where no consumer of TOPIC sees it, until `sparklog delayed run`
    delivers it.
    """


@delayed.command()
@click.argument("topics", nargs=-1, shell_complete=complete_topics)
@click.option("--once", is_flag=True, help="Deliver the records that are due, and end.")
@click.option(
    "--poll-interval-ms",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Time between two checks for records that are due.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="The most records of one transaction.",
)
@connection_options()
@click.pass_context
def run(ctx: click.Context, topics: tuple[str, ...], once: bool, poll_interval_ms: int, batch_size: int) -> None:
    """Deliver delayed records when they are due, each exactly once, until SIGTERM or Ctrl-C. Without TOPICS: of all
    topics.

    It may be killed at any moment. A second one for the same topic takes over from the first, which ends with an error.
    A topic whose records can't be delivered is reported, and hinders no other one; then the exit code is 3.
    """
    from sparklog.processing.delay_movers import DelayMovers

    stopping = SafeEvent()
    if not once:
        forgive_output()
    with ended_by_signals(is_service=not once) as ending:
        movers = DelayMovers(cluster_of(ctx), topics, batch_size=batch_size, stopping=stopping)
        with ending.calls(stopping.set, forced_code=lambda: FAILED if movers.has_begun else 0), movers:
            while not stopping.is_set():
                movers.run_until_done()
                if once:
                    break
                stopping.wait(poll_interval_ms / 1_000)
            errors = movers.errors
    count = movers.delivered_count
    click.echo(f"delivered {count:.0f} {'record' if count == 1 else 'records'}")
    for topic, error in errors.items():
        click.echo(f"{topic}: {error}", err=True)
    if errors:
        ctx.exit(3)


@delayed.command("list")
@click.argument("topics", nargs=-1, shell_complete=complete_topics)
@click.option("--json", "json_", is_flag=True, help="Print a JSON object per record.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, topics: tuple[str, ...], json_: bool) -> None:
    """List the delayed records that wait, the earliest first. Without TOPICS: for all topics."""
    from sparklog.processing.delayed import delayed_topics, read_schedule

    cluster = cluster_of(ctx)
    rows = []
    for topic in topics or delayed_topics(cluster):
        for place, record in read_schedule(cluster, topic):
            moment = datetime.fromtimestamp(min(place.deliver_at_ms, _FAR_MS) / 1_000, UTC)
            size = len(record.value or b"")
            rows.append((topic, moment.isoformat(timespec="milliseconds"), record.key, place.id.decode(), size))
    names = ["topic", "deliver at", "key", "id", "bytes"]
    if json_:
        for row in rows:
            click.echo(as_json(dict(zip((name.replace(" ", "_") for name in names), row, strict=True))))
    else:
        shown = [(*row[:2], "-" if row[2] is None else as_text(row[2]), *row[3:]) for row in rows]
        print_table(names, shown, numbers=["bytes"])


@delayed.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--key", help="Cancel all records of this key.")
@click.option("--id", "name", help="Cancel one record, by its id in `sparklog delayed list`.")
@connection_options()
@click.pass_context
def cancel(ctx: click.Context, topic: str, key: str | None, name: str | None) -> None:
    """Cancel delayed records of TOPIC. A cancellation takes effect if it is acknowledged before the record is due."""
    from sparklog.errors import InvalidArgumentError
    from sparklog.processing.delayed import read_schedule
    from sparklog.producer import Producer
    from sparklog.producer.delayed_records import delay_topic

    if (key is None) == (name is None):
        raise click.UsageError("Give --key or --id, and not both.", ctx)
    cluster = cluster_of(ctx)
    found = [
        place
        for place, record in read_schedule(cluster, topic)
        if (place.id.decode() == name if key is None else record.key == key.encode())
    ]
    with Producer(cluster) as producer:
        if key is not None:
            producer.cancel_delayed(topic, key.encode()).get()
        elif found:
            producer.send(delay_topic(topic), None, found[0].id, partition=found[0].partition).get()
        else:
            raise InvalidArgumentError(f"no record of id {name!r} waits for topic {topic!r}")
    click.echo(f"cancelled {len(found)} {'record' if len(found) == 1 else 'records'}")
