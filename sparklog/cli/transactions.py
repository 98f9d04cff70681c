"""``sparklog transactions``: list, describe, abort, recover."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import admin_of, complete_transactional_ids, connection_options
from sparklog.cli.output import as_json, by_topic, print_table

if TYPE_CHECKING:
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
    "--state", "states", multiple=True, help="Only those in this state: Ongoing, PrepareCommit, … Repeatable."
)
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only those of this producer. Repeatable.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def list_(ctx: click.Context, states: tuple[str, ...], producer_ids: tuple[int, ...], json_: bool) -> None:
    """List the transactional ids, and where the newest transaction of each stands.

    Ongoing: one may be open. A producer has the id and hasn't closed, or it died.
    """
    found = admin_of(ctx).list_transactions(states or None, producer_ids or None)
    if json_:
        click.echo(as_json([_listed(one) for one in found]))
    else:
        rows = [(one.transactional_id, _name(one.state), one.producer_id) for one in found]
        print_table(["transactional id", "state", "producer id"], rows)


@transactions.command()
@click.argument("ids", nargs=-1, shell_complete=complete_transactional_ids, metavar="[ID]…")
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def describe(ctx: click.Context, ids: tuple[str, ...], json_: bool) -> None:
    """Show transactional ids, all by default: their producers, and what an unfinished transaction changes."""
    described = admin_of(ctx).describe_transactions(ids or None)
    if json_:
        click.echo(as_json([_as_dict(one) for one in described]))
    else:
        for number, one in enumerate(described):
            if number:
                click.echo()
            _print(one)
    for one in described:
        if ids and one.error is not None:
            raise one.error


@transactions.command()
@click.argument("id_", shell_complete=complete_transactional_ids, metavar="ID")
@connection_options()
@click.pass_context
def abort(ctx: click.Context, id_: str) -> None:
    """Abort the transaction of an id: none that is open now can be committed any more.

    Its producer is told so, and stays usable. One that is committed already is refused: `sparklog transactions recover`
    makes it visible everywhere.
    """
    admin_of(ctx).abort_transaction(id_)


@transactions.command()
@click.option("--json", "json_", is_flag=True, help="Print a JSON array of objects.")
@connection_options()
@click.pass_context
def recover(ctx: click.Context, json_: bool) -> None:
    """Finish what producers left: make visible what is committed, abort what is past its time-out.

    Prints what became of each transactional id. Where one can't be finished the exit code is 1.
    """
    found = admin_of(ctx).recover_transactions()
    if json_:
        click.echo(as_json([_recovered(one) for one in found]))
    else:
        rows = [(one.transactional_id, _name(one.state), one.action.value) for one in found]
        print_table(["transactional id", "state before", "action"], rows)
    for one in found:
        if one.error is not None:
            raise one.error


def _listed(one: TransactionListing) -> dict[str, Any]:
    return {"transactional_id": one.transactional_id, "state": _name(one.state), "producer_id": one.producer_id}


def _recovered(one: Recovered) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": _name(one.state),
        "action": one.action.value,
        "error": None if one.error is None else str(one.error),
    }


def _print(one: TransactionDescription) -> None:
    if one.error is not None:
        click.echo(f"{one.transactional_id}: {UNKNOWN}, {one.error}")
        return
    aborted = f", aborted: {one.abort_reason}" if one.abort_reason else ""
    click.echo(f"{one.transactional_id}: {_name(one.state)}{aborted}")
    click.echo(
        f"  producer {one.producer_id}, epoch {one.producer_epoch}, time-out {one.transaction_timeout_ms} ms, "
        f"entry {one.entry_number} of {_time(one.written_ms)}"
    )
    changes = [("records", "", *at) for at in sorted(one.topic_partitions)]
    changes += [("offset", group, *at) for group, partitions in sorted(one.groups.items()) for at in sorted(partitions)]
    if changes:
        print_table(["changes", "group", "topic", "partition"], changes, numbers=["partition"])


def _as_dict(one: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": _name(one.state),
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "transaction_timeout_ms": one.transaction_timeout_ms,
        "entry_number": one.entry_number,
        "written_ms": one.written_ms,
        "topic_partitions": by_topic(one.topic_partitions),
        "groups": {group: by_topic(partitions) for group, partitions in sorted(one.groups.items())},
        "abort_reason": one.abort_reason,
        "error": None if one.error is None else str(one.error),
    }


def _name(state: TransactionState | None) -> str:
    return UNKNOWN if state is None else state.value


def _time(timestamp_ms: int) -> str:
    return (
        datetime.fromtimestamp(timestamp_ms / 1_000, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
