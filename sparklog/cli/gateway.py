"""``sparklog gateway``: Kafka's wire protocol in front of a cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from sparklog._native import DESCRIPTION
from sparklog._version import __version__
from sparklog.cli.gateway_users import rules_options
from sparklog.cli.logs import announce, logged
from sparklog.cli.options import connection_options, root_of
from sparklog.cli.signals import Ending, ended_by_signals
from sparklog.cli.standard_output import forgive_output
from sparklog.errors import InvalidArgumentError
from sparklog.logs import about

if TYPE_CHECKING:
    import asyncio

    from sparklog.exporter import ExporterServer
    from sparklog.gateway.opening import Opening
    from sparklog.gateway.server import Gateway
    from sparklog.gateway.settings import GatewaySettings
    from sparklog.gateway.users import KnownUsers

__all__ = ["gateway", "gateway_user"]

_FILE = click.Path(exists=True, dir_okay=False)
_LOGGER = logging.getLogger("sparklog.gateway")
_DRAIN_S = 5.0
"""For requests that were read when the gateway is stopped: container runtimes kill after 30 s, or 10."""
_OPEN_S = 2.0
"""How long the cluster is waited for before the gateway listens; if the store is away, it is opened later."""
_IN_STORE = "store"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def _file_or_store(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == _IN_STORE:
        return value
    return str(_FILE.convert(value, parameter, ctx))


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0: a free port.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that clients are told to use. [default: the address to which they connected]",
)
@click.option(
    "--zone",
    metavar="NAME",
    help="Join a zone: gateways with zones name each other, and lead clients to those of their zone. [default: none]",
)
@click.option("--auto-create-topics", is_flag=True, help="Create topics that clients request.")
@click.option(
    "--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Partitions of such topics."
)
@click.option("--tls-cert", type=_FILE, help="Certificate chain in PEM; connections are encrypted with TLS.")
@click.option("--tls-key", type=_FILE, help="The certificate's private key. [default: in --tls-cert]")
@click.option(
    "--tls-client-ca",
    type=_FILE,
    help="CA certificates in PEM; clients need a certificate that one of them has signed.",
)
@click.option(
    "--users",
    callback=_file_or_store,
    metavar="FILE|store",
    help="Clients must be one of these users, by SASL: of a file, see `sparklog gateway-user`; or of the cluster's "
    "store, see `sparklog gateway-users`.",
)
@click.option(
    "--allow-plain-without-tls",
    is_flag=True,
    help="Allow SASL PLAIN, which sends the password, over connections without encryption.",
)
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    help="Listen on other addresses than localhost: every client that reaches the port may do everything.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics, /healthz and /readyz by HTTP on the host of --listen. [default: off]",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    default=2_000,
    show_default=True,
    metavar="N",
    help="Further clients are disconnected at once. Fewer where the process may open no more files.",
)
@click.option(
    "--max-request-bytes",
    type=click.IntRange(1_024, 2**31 - 1),
    default=104_857_600,
    show_default=True,
    metavar="N",
    help="Clients that send a larger request are disconnected.",
)
@click.option(
    "--max-decompressed-bytes",
    type=click.IntRange(1_024, 2**30),
    default=6_291_456,
    show_default=True,
    metavar="N",
    help="The most bytes of a partition's records in one request; more is MESSAGE_TOO_LARGE.",
)
@connection_options()
@logged
@click.pass_context
def gateway(
    ctx: click.Context,
    listen: str,
    advertise: str | None,
    zone: str | None,
    auto_create_topics: bool,
    partitions: int,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    users: str | None,
    allow_plain_without_tls: bool,
    allow_unauthenticated: bool,
    metrics_port: int | None,
    max_connections: int,
    max_request_bytes: int,
    max_decompressed_bytes: int,
) -> None:
    """Serve the cluster to Kafka's clients until SIGINT or SIGTERM. The cluster is created if it doesn't exist."""
    with ended_by_signals(is_service=True) as ending:  # from now on, also while all this is loaded
        import asyncio

        from sparklog.freed_memory import KEPT, share_freed_memory
        from sparklog.gateway.opening import Opening
        from sparklog.gateway.process import connections_with_files
        from sparklog.gateway.server import parse_address
        from sparklog.gateway.settings import GatewaySettings
        from sparklog.gateway.zones import own_node
        from sparklog.storage import open_store

        try:
            host, port = parse_address(listen)
            advertised = None if advertise is None else parse_address(advertise)
            if zone is not None:
                own_node(zone, *(advertised or (host, port or 1)))
        except (ValueError, InvalidArgumentError) as error:
            raise click.UsageError(str(error), ctx) from error
        if host not in _LOCAL and users is None and tls_client_ca is None and not allow_unauthenticated:
            raise click.UsageError(
                f"--listen {listen} can be reached from other machines, and there is no authentication: give --users "
                "or --tls-client-ca, or --allow-unauthenticated if the network restricts access.",
                ctx,
            )
        uri, options = root_of(ctx)
        settings = GatewaySettings(
            auto_create_topics=auto_create_topics,
            num_partitions=partitions,
            zone=zone,
            allow_plain_without_tls=allow_plain_without_tls,
            max_connections=connections_with_files(max_connections),
            max_request_bytes=max_request_bytes,
            max_decoded_bytes=max_decompressed_bytes,
        )
        security = _security(ctx, users, tls_cert, tls_key, tls_client_ca)
        share_freed_memory(KEPT)
        opening = Opening(open_store(uri, options), users=security.pop("users"), has_stored_users=users == _IN_STORE)
        opening.start()
        forgive_output()
        asyncio.run(_run(opening, settings, (host, port), advertised, security, metrics_port, ending))


def _security(
    ctx: click.Context, users: str | None, cert: str | None, key: str | None, client_ca: str | None
) -> dict[str, Any]:
    """The users that may come in, and the encryption of connections, as a gateway takes them."""
    from sparklog.errors import InvalidConfigurationError
    from sparklog.gateway.server import tls_context
    from sparklog.gateway.users import Users

    if cert is None and (key is not None or client_ca is not None):
        raise click.UsageError("--tls-key and --tls-client-ca need --tls-cert.", ctx)
    try:
        known = None if users is None or users == _IN_STORE else Users(users)
        return {"users": known, "tls": None if cert is None else tls_context(cert, key, client_ca)}
    except (InvalidConfigurationError, OSError) as error:  # an SSLError is an OSError
        raise click.UsageError(f"--users or --tls-*: {error}", ctx) from error


@click.command("gateway-user")
@click.argument("name")
@rules_options
@click.password_option(help="The password; prompted for if it isn't given.")
def gateway_user(
    name: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    groups: tuple[str, ...],
    ids: tuple[str, ...],
    admin: bool,
    password: str,
) -> None:
    """Print the line of a user for the file of `sparklog gateway --users`. The password isn't in it.

    Options that name topics, groups or ids may be given several times. Users in the cluster's store are added by
    `sparklog gateway-users add`.
    """
    from sparklog.gateway.users import Rules, new_user

    rules = Rules(read, write, groups, ids, admin=admin)
    click.echo(new_user(name, password, rules).to_json())


def _log_start(
    uri: str,
    settings: GatewaySettings,
    listener: str,
    advertised: tuple[str, int] | None,
    security: dict[str, Any],
    users: KnownUsers | None,
) -> None:
    """Log what runs, where, and for whom."""
    named = {
        "version": __version__,
        "core": DESCRIPTION,
        "cluster": uri,
        "listener": listener,
        "advertised": None if advertised is None else f"{advertised[0]}:{advertised[1]}",
        "zone": settings.zone,
        "tls": security["tls"] is not None,
        "asks_who_they_are": users is not None,
    }
    text = "sparklog %s (%s) serves %s on %s, %s, to %s"
    encrypted = "with TLS" if named["tls"] else "without TLS"
    whom = "its users" if users is not None else "everybody" if security["tls"] is None else "whoever TLS lets in"
    extra = about(**{name: value for name, value in named.items() if value is not None})
    _LOGGER.info(text, __version__, DESCRIPTION, uri, listener, encrypted, whom, extra=extra)


async def _run(
    opening: Opening,
    settings: GatewaySettings,
    address: tuple[str, int],
    advertised: tuple[str, int] | None,
    security: dict[str, Any],
    metrics_port: int | None,
    ending: Ending,
) -> None:
    """Serve until a signal comes. Raises what opening the cluster raises, where trying again won't help, and
    ``OSError``."""
    import asyncio

    from sparklog.gateway.server import Gateway

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    served = Gateway(opening.cluster, settings, advertised=advertised, users=opening.users, **security)
    with ending.calls(lambda: loop.call_soon_threadsafe(stopped.set), forced_code=lambda: int(served.has_unsettled)):
        await _serve(opening, served, settings, address, advertised, security, metrics_port, stopped)


async def _serve(
    opening: Opening,
    served: Gateway,
    settings: GatewaySettings,
    address: tuple[str, int],
    advertised: tuple[str, int] | None,
    security: dict[str, Any],
    metrics_port: int | None,
    stopped: asyncio.Event,
) -> None:
    """Serve until the event is set. Raises as :func:`_run`."""
    import asyncio

    from sparklog.gateway.process import exempt_from_collections

    opened, stopping = asyncio.wrap_future(opening.done), asyncio.ensure_future(stopped.wait())
    either: list[asyncio.Future[Any]] = [opened, stopping]
    metrics: ExporterServer | None = None
    try:
        await asyncio.wait(either, timeout=_OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        is_open = opened.done()
        if is_open:
            served.opened(opened.result())
        else:
            served.wait_for(opening)
        if metrics_port is not None:
            from sparklog.exporter import ExporterServer

            metrics = ExporterServer(served.probe(), address[0], metrics_port)
        exempt_from_collections()
        host, port = await served.listen(*address)
        click.echo(f"listening on {host}:{port}")
        if metrics is not None:
            announce(f"metrics at http://{address[0]}:{metrics.port}/metrics")
        _log_start(opening.cluster.store.uri, settings, f"{host}:{port}", advertised, security, opening.users)
        if not is_open:  # it may be done by now, which ends this wait at once
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                served.opened(opened.result())
                _LOGGER.info("the cluster is open")
        await stopping
        _LOGGER.info("draining: no new connections, %d s at most for pending requests", _DRAIN_S)
    finally:
        for waiting in either:
            waiting.cancel()
        await asyncio.to_thread(opening.stop)
        await served.close(_DRAIN_S)
        if metrics is not None:
            await asyncio.to_thread(metrics.close)
        opening.cluster.store.close()
