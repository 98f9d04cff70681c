"""``sparklog cost``: the requests of a topic's clients, and what a cloud asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import connection_options
from sparklog.cli.output import as_json, print_table
from sparklog.prices import DEFAULT_PRICES, Prices, Requests

if TYPE_CHECKING:
    from sparklog.cli.cost_rehearsal import Workload

__all__ = ["cost"]

_MONTH_S = 730 * 3_600
"""The hours of a month as clouds count them."""
_LOOK_FOR_TRANSACTIONS_S = 30.0
"""A LIST of each process with consumers: for transactions that were left."""


@click.command(context_settings={"show_default": True})
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=1000.0,
    help="Records per second, of all producers together.",
)
@click.option("--record-bytes", type=click.IntRange(1), default=100, help="Bytes of a record's key and value.")
@click.option("--partitions", type=click.IntRange(1), default=1, help="Partitions of the topic.")
@click.option("--keys/--no-keys", default=True, help="Whether records have keys, which choose the partition.")
@click.option("--producers", type=click.IntRange(1), default=1, help="Producers that write to the topic.")
@click.option("--linger-ms", type=click.FloatRange(0), default=100.0, help="The producers' setting.")
@click.option("--consumers", type=click.IntRange(0), default=0, help="Processes that read the topic without a group.")
@click.option("--groups", type=click.IntRange(0), default=1, help="Consumer groups.")
@click.option("--members", type=click.IntRange(1), default=1, help="Members of each group, each a process.")
@click.option("--fetch-max-wait-ms", type=click.IntRange(0), default=500, help="The consumers' setting.")
@click.option("--heartbeat-interval-ms", type=click.IntRange(1), default=3000, help="The members' setting.")
@click.option("--auto-commit-interval-ms", type=click.IntRange(1), default=5000, help="The members' setting.")
@click.option("--put-ms", type=click.FloatRange(0, min_open=True), default=50.0, help="How long a PUT takes.")
@click.option("--get-ms", type=click.FloatRange(0, min_open=True), default=20.0, help="How long a GET takes.")
@click.option("--put-price", type=click.FloatRange(0), default=DEFAULT_PRICES.put, help="Dollars for 1,000 PUTs.")
@click.option("--get-price", type=click.FloatRange(0), default=DEFAULT_PRICES.get, help="Dollars for 1,000 GETs.")
@click.option("--list-price", type=click.FloatRange(0), default=DEFAULT_PRICES.list, help="Dollars for 1,000 LISTs.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@connection_options()
def cost(
    consumers: int,
    groups: int,
    members: int,
    heartbeat_interval_ms: int,
    auto_commit_interval_ms: int,
    put_price: float,
    get_price: float,
    list_price: float,
    json_: bool,
    **workload: Any,
) -> None:
    """Count the requests of a topic's clients, and estimate what they cost on an object store.

    No cluster is used: a producer and a consumer are simulated in memory, and their requests
    are counted. The default prices are those of S3 Standard in us-east-1. Storage, traffic out of the region,
    maintenance and races between producers are not included.
    """
    from sparklog.cli.cost_rehearsal import Workload

    given = Workload(has_keys=workload.pop("keys"), **workload)
    rows = _requests_per_s(
        given,
        consumers=consumers,
        groups=groups,
        members=members,
        heartbeat_s=heartbeat_interval_ms / 1_000,
        auto_commit_s=auto_commit_interval_ms / 1_000,
    )
    prices = {"put": put_price, "get": get_price, "list": list_price}
    found = [_priced(name, requests, prices, given.rate) for name, requests in rows.items()]
    if json_:
        commits_per_s = 1_000 / given.commit_interval_ms
        click.echo(as_json({"commits_per_s": commits_per_s, "prices_per_1000": prices, "requests": found}))
        return
    columns = list(found[0])
    print_table(columns, [[_shown(row[name]) for name in columns] for row in found], numbers=columns[1:])
    click.echo(
        f"Dollars per 1,000: PUT {put_price:g}, GET {get_price:g}, LIST {list_price:g}. A month has 730 hours. "
        f"{1_000 / given.commit_interval_ms:.3g} commits a second."
    )


def _requests_per_s(
    workload: Workload, *, consumers: int, groups: int, members: int, heartbeat_s: float, auto_commit_s: float
) -> dict[str, Requests]:
    """The requests in a second, by what they are for, and their sum."""
    from sparklog.cli.cost_rehearsal import commit_requests, reading_requests

    commits_per_s = 1_000 / workload.commit_interval_ms
    processes = consumers + groups * members
    looks, files = reading_requests(workload) if processes else (Requests(), Requests())
    # docs/groups.md, What it costs; offsets are committed where they moved.
    heartbeat = Requests(puts=1, gets=1, lists=1)
    offset_commits_per_s = min(1 / auto_commit_s, commits_per_s)
    rows = {
        "produce": commit_requests(workload).times(commits_per_s),
        "look for news": looks.times(processes),
        "read files": files.times(consumers + groups),  # the members of a group share them
        "group heartbeats": heartbeat.times(groups * members / heartbeat_s),
        "offset commits": Requests(puts=2).times(groups * members * offset_commits_per_s),
        # A LIST that is empty, as this one mostly is, is followed by a HEAD, which costs as a GET: docs/stores.md.
        "look for transactions": Requests(gets=1, lists=1).times(processes / _LOOK_FOR_TRANSACTIONS_S),
    }
    total = Requests()
    for requests in rows.values():
        total = total.plus(requests)
    return {**rows, "total": total}


def _priced(name: str, requests: Requests, prices: dict[str, float], rate: float) -> dict[str, Any]:
    dollars_per_s = requests.dollars(Prices(**prices))
    each = 1_000_000 / rate
    return {
        "for": name,
        "put_per_million": requests.puts * each,
        "get_per_million": requests.gets * each,
        "list_per_million": requests.lists * each,
        "dollars_per_million": dollars_per_s * each,
        "dollars_per_month": dollars_per_s * _MONTH_S,
    }


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
