"""``sparklog gateway``: Kafka's wire protocol in front of a cluster."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from sparklog.cli.options import connection_options, root_of

if TYPE_CHECKING:
    from sparklog.gateway.settings import GatewaySettings

__all__ = ["gateway"]

_LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.option("--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT", help="Port 0: a free one.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="What clients are told. [default: the address by which they came]"
)
@click.option("--auto-create-topics", is_flag=True, help="Create topics that clients ask for.")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Of such topics.")
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    help="Listen beyond localhost: whoever reaches the port may read and write every topic.",
)
@connection_options()
@click.pass_context
def gateway(
    ctx: click.Context,
    listen: str,
    advertise: str | None,
    auto_create_topics: bool,
    partitions: int,
    allow_unauthenticated: bool,
) -> None:
    """Serve the cluster to Kafka's clients, until it is stopped by SIGINT or SIGTERM. The cluster is made if it isn't
    there.

    There is no authentication and no encryption yet.
    """
    import asyncio

    from sparklog.gateway.server import parse_address
    from sparklog.gateway.settings import GatewaySettings

    try:
        host, port = parse_address(listen)
        advertised = None if advertise is None else parse_address(advertise)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error
    if host not in _LOCAL and not allow_unauthenticated:
        raise click.UsageError(
            f"--listen {listen} can be reached from other machines, and nobody is asked who they are: give "
            "--allow-unauthenticated if the network sees to that.",
            ctx,
        )
    uri, options = root_of(ctx)
    settings = GatewaySettings(auto_create_topics=auto_create_topics, num_partitions=partitions)
    asyncio.run(_run(uri, options, settings, (host, port), advertised))


async def _run(
    uri: str,
    options: dict[str, object] | None,
    settings: GatewaySettings,
    address: tuple[str, int],
    advertised: tuple[str, int] | None,
) -> None:
    import asyncio

    from sparklog.gateway.server import Gateway
    from sparklog.log.cluster import open_cluster

    cluster = await asyncio.to_thread(lambda: open_cluster(uri, storage_options=options))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    served = Gateway(cluster, settings, advertised=advertised)
    try:
        host, port = await served.listen(*address)
        click.echo(f"listening on {host}:{port}")
        await stopped.wait()
    finally:
        await served.close()
        cluster.store.close()
