"""``sparklog ui``: a console in the browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.logs import announce, logged
from sparklog.cli.options import cluster_of, connection_options, root_of
from sparklog.cli.schemas import SCHEMA_HELP, schema_argument
from sparklog.cli.signals import ended_by_signals
from sparklog.cli.standard_output import forgive_output

if TYPE_CHECKING:
    from sparklog.console import ConsoleSettings, NamedSchema

__all__ = ["ui"]

_PASSWORD = "SPARKLOG_UI_PASSWORD"  # noqa: S105 - the name of a variable
_USER = "admin"


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0: a free port.",
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Allow users who log in to change settings, produce, reset offsets, abort transactions.",
)
@click.option(
    "--users",
    type=click.Path(exists=True, dir_okay=False),
    help=f"A file with NAME:HASH in each line; everybody is asked for a password. {_PASSWORD} in the environment is "
    f"that of the user {_USER}.",
)
@click.option(
    "--hash-password", is_flag=True, help="Prompt for a name and a password, print the line for --users, and end."
)
@click.option("--trust-header", metavar="NAME", help="A header in which a reverse proxy names the user.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="An address of this proxy. Repeatable.  [default: this machine]",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="FIELD",
    help="Mask this field, at any depth, or header, or `key`; what has no known fields is hidden whole. Repeatable.",
)
@click.option(
    "--plain",
    multiple=True,
    metavar="HEADER",
    help="While fields are masked, show this header, or `key`, though it isn't JSON: it has no fields. Repeatable.",
)
@click.option(
    "--value-schema",
    "value_schemas",
    multiple=True,
    metavar="TOPIC=SCHEMA",
    help=f"Show the values of an untyped topic by a schema: {SCHEMA_HELP}. Repeatable.",
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="A further host name by which browsers may open the console."
)
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    help="Listen on other addresses than localhost: every client that reaches the port may read every topic.",
)
@click.option(
    "--interval",
    type=click.FloatRange(1, 300),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads of the cluster.",
)
@connection_options()
@logged
@click.pass_context
def ui(
    ctx: click.Context,
    /,
    listen: str,
    hash_password: bool,
    interval: float,
    allow_unauthenticated: bool,
    **given: Any,
) -> None:
    """Serve a console in the browser: topics and their records, groups, transactions, SQL.

    It only reads, unless --allow-writes is given. It also answers /metrics as `sparklog exporter` does, a JSON API
    (/api/openapi.json describes it), and language models by MCP at /mcp. Ends by SIGTERM or Ctrl-C.
    """
    if hash_password:
        _print_hash()
        return
    with ended_by_signals(is_service=True):  # the server raises its signal again, once all is closed
        try:
            from sparklog.console.backend import Backend
            from sparklog.console.server import serve
        except ImportError as error:
            raise click.UsageError(f"The console needs {error.name}: pip install 'sparklog[ui]'", ctx) from error
        from sparklog.errors import InvalidArgumentError
        from sparklog.exporter import parse_address
        from sparklog.freed_memory import GIVEN_BACK, share_freed_memory
        from sparklog.sql.apart import Origin

        try:
            host, port = parse_address(listen)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from None
        uri, options = root_of(ctx)
        settings = _settings(ctx, host, interval, allow_unauthenticated=allow_unauthenticated, **given)
        backend = Backend(lambda: cluster_of(ctx), settings, origin=Origin(uri, options or {}))
        forgive_output()
        share_freed_memory(GIVEN_BACK)
        serve(backend, host, port, on_listening=lambda address: announce(f"open {address}"))


def _settings(
    ctx: click.Context,
    host: str,
    interval: float,
    *,
    allow_unauthenticated: bool,
    allow_writes: bool,
    users: str | None,
    trust_header: str | None,
    trusted_proxies: tuple[str, ...],
    masks: tuple[str, ...],
    plain: tuple[str, ...],
    value_schemas: tuple[str, ...],
    hosts: tuple[str, ...],
) -> ConsoleSettings:
    from sparklog.console import ConsoleSettings, hash_password, parse_users
    from sparklog.console.settings import LOCAL_HOSTS
    from sparklog.errors import InvalidArgumentError

    try:
        known = {} if users is None else parse_users(Path(users).read_text())
    except InvalidArgumentError as error:
        raise click.BadParameter(f"{users}: {error}", param_hint="--users") from None
    if os.environ.get(_PASSWORD):
        known[_USER] = hash_password(os.environ[_PASSWORD])
    is_local = host in LOCAL_HOSTS
    asks = bool(known or trust_header)
    if allow_writes and not asks:
        raise click.UsageError(
            f"--allow-writes requires authentication: give --users FILE, {_PASSWORD} or --trust-header.",
            ctx,
        )
    if not is_local and not asks and not allow_unauthenticated:
        raise click.UsageError(
            f"{host or 'every address'} can be reached from other machines, and there is no authentication: give "
            "--users, or --allow-unauthenticated if the network restricts access.",
            ctx,
        )
    names = {*LOCAL_HOSTS, host.lower(), *(name.lower() for name in hosts)}
    return ConsoleSettings(
        allow_writes=allow_writes,
        users=known,
        trust_header=trust_header or "",
        trusted_proxies=frozenset(trusted_proxies or LOCAL_HOSTS),
        masks=frozenset(name.lower() for name in masks),
        plain=frozenset(name.lower() for name in plain),
        value_schemas=dict(map(_named_schema, value_schemas)),
        hosts=frozenset(names) if is_local else None,
        interval_ms=interval * 1_000,
    )


def _named_schema(text: str) -> tuple[str, NamedSchema]:
    from sparklog.console import NamedSchema
    from sparklog.errors import InvalidConfigurationError
    from sparklog.schemas import check_format

    topic, _, given = text.partition("=")
    if not topic or not given:
        raise click.BadParameter(f"got {text!r}, expected TOPIC=SCHEMA", param_hint="--value-schema")
    try:
        named = NamedSchema(schema_argument(given))
        check_format(named.format, named.schema)
    except (InvalidConfigurationError, OSError) as error:
        raise click.BadParameter(f"{topic}: {error}", param_hint="--value-schema") from None
    return topic, named


def _print_hash() -> None:
    from sparklog.console.passwords import hash_password

    name = click.prompt("Name", err=True)
    if ":" in name or not name.strip():
        raise click.BadParameter("a name without a colon is expected")
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    click.echo(f"{name}:{hash_password(password)}")
