"""``sparklog transactions``: list, describe, abort, recover."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import admin_of, complete_transactional_ids, connection_options
from sparklog.cli.output import as_json, by_topic, print_table
from sparklog.cli.partly import end_partly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparklog.admin import Recovered, TransactionDescription, TransactionListing, TransactionState

__all__ = ["transactions"]

UNKNOWN = "Unknown"
"""Source: Kafka ``TransactionState``."""


@click.group()
@connection_options()
def transactions() -> None:
    """List, describe, abort and recover transactions."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    help="Only transactional ids in this state: Ongoing, PrepareCommit, … Repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=int,
    multiple=True,
    help="Only transactional ids of this producer. Repeatable.",
)
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, states: tuple[str, ...], producer_ids: tuple[int, ...], json_: bool) -> None:
    """List the transactional ids, and the state of the newest transaction of each.

    Ongoing: a transaction may be open. A producer has the id and hasn't closed, or it died. Unknown: the id can't be
    read; it is named on standard error with the reason, and the exit code is 3.
    """
    listings = admin_of(ctx).list_transactions(states or None, producer_ids or None)
    if json_:
        click.echo(as_json([_listed(listing) for listing in listings]))
    else:
        rows = [(listing.transactional_id, _name(listing.state), listing.producer_id) for listing in listings]
        print_table(["transactional id", "state", "producer id"], rows)
    end_partly(ctx, _unread(listings))


@transactions.command()
@click.argument("ids", nargs=-1, shell_complete=complete_transactional_ids, metavar="[ID]…")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def describe(ctx: click.Context, ids: tuple[str, ...], json_: bool) -> None:
    """Show transactional ids, all by default: their producers, and what an unfinished transaction changes."""
    described = admin_of(ctx).describe_transactions(ids or None)
    if json_:
        click.echo(as_json([_as_dict(description) for description in described]))
    else:
        for number, description in enumerate(described):
            if number:
                click.echo()
            _print(description)
    for description in described:
        if ids and description.error is not None:
            raise description.error
    end_partly(ctx, _unread(described))


@transactions.command()
@click.argument("id_", shell_complete=complete_transactional_ids, metavar="ID")
@connection_options()
@click.pass_context
def abort(ctx: click.Context, id_: str) -> None:
    """Abort the transaction of an id: a transaction that is open now can't be committed any more.

    Its producer gets an error with this reason, and stays usable. A committed transaction isn't aborted: `sparklog
    transactions recover` makes it visible everywhere.
    """
    admin_of(ctx).abort_transaction(id_)


@transactions.command()
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def recover(ctx: click.Context, json_: bool) -> None:
    """Finish transactions of producers that died: publish committed ones, abort those past their time-out.

    Prints the outcome for each transactional id. If one can't be finished, the exit code is 1.
    """
    results = admin_of(ctx).recover_transactions()
    if json_:
        click.echo(as_json([_recovered(result) for result in results]))
    else:
        rows = [(result.transactional_id, _name(result.state), result.action.value) for result in results]
        print_table(["transactional id", "state before", "action"], rows)
    for result in results:
        if result.error is not None:
            raise result.error


def _unread(found: Iterable[TransactionListing | TransactionDescription]) -> dict[str, Exception]:
    return {f"transactional id {one.transactional_id}": one.error for one in found if one.error is not None}


def _listed(listing: TransactionListing) -> dict[str, Any]:
    return {
        "transactional_id": listing.transactional_id,
        "state": _name(listing.state),
        "producer_id": listing.producer_id,
    }


def _recovered(result: Recovered) -> dict[str, Any]:
    return {
        "transactional_id": result.transactional_id,
        "state": _name(result.state),
        "action": result.action.value,
        "error": None if result.error is None else str(result.error),
    }


def _print(description: TransactionDescription) -> None:
    if description.error is not None:
        click.echo(f"{description.transactional_id}: {UNKNOWN}, {description.error}")
        return
    aborted = f", aborted: {description.abort_reason}" if description.abort_reason else ""
    click.echo(f"{description.transactional_id}: {_name(description.state)}{aborted}")
    click.echo(
        f"  producer {description.producer_id}, epoch {description.producer_epoch}, "
        f"time-out {description.transaction_timeout_ms} ms, "
        f"entry {description.entry_number} of {_time(description.written_ms)}"
    )
    changes = [("records", "", *at) for at in sorted(description.topic_partitions)]
    changes += [
        ("offset", group, *at) for group, partitions in sorted(description.groups.items()) for at in sorted(partitions)
    ]
    if changes:
        print_table(["changes", "group", "topic", "partition"], changes, numbers=["partition"])


def _as_dict(description: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": description.transactional_id,
        "state": _name(description.state),
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "transaction_timeout_ms": description.transaction_timeout_ms,
        "entry_number": description.entry_number,
        "written_ms": description.written_ms,
        "topic_partitions": by_topic(description.topic_partitions),
        "groups": {group: by_topic(partitions) for group, partitions in sorted(description.groups.items())},
        "abort_reason": description.abort_reason,
        "error": None if description.error is None else str(description.error),
    }


def _name(state: TransactionState | None) -> str:
    return UNKNOWN if state is None else state.value


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
