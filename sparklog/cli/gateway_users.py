"""``sparklog gateway-users``: the users in the cluster's store, of ``sparklog gateway --users store``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog.cli.options import cluster_of, confirm_deletion, connection_options

if TYPE_CHECKING:
    from sparklog.gateway.user_log import Change

__all__ = ["gateway_users", "rules_options"]

F = TypeVar("F", bound=Callable[..., Any])


def rules_options(command: F) -> F:
    """The options that say what a user may do."""
    for option in (
        click.option(
            "--admin",
            is_flag=True,
            help="May create, change and delete topics that it may write to, and delete its groups.",
        ),
        click.option(
            "--transactional-id", "ids", multiple=True, metavar="IDS", help="Transactional ids that the user may use."
        ),
        click.option("--group", "groups", multiple=True, metavar="GROUPS", help="Groups that the user may use."),
        click.option("--write", multiple=True, metavar="TOPICS", help="Topics that the user may write to."),
        click.option(
            "--read",
            multiple=True,
            metavar="TOPICS",
            help="Topics that the user may read: a name, or a prefix followed by *.",
        ),
    ):
        command = option(command)
    return command


@click.group("gateway-users")
def gateway_users() -> None:
    """Manage the users in the cluster's store, for gateways with `--users store`. A change takes effect within ten
    seconds.

    Passwords are prompted for, or read from standard input; the store contains only salted keys.
    """


def _given_password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("No password on standard input: expected a line.")
    return password


def _change(ctx: click.Context, change: Change) -> None:
    from sparklog.gateway.user_log import USERS_TIMEOUT_MS, change_users, open_user_log

    cluster = cluster_of(ctx)
    try:
        change_users(open_user_log(cluster), change, deadline=cluster.clock.deadline_in(USERS_TIMEOUT_MS))
    finally:
        cluster.store.close()


@gateway_users.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each user.")
@connection_options()
@click.pass_context
def list_users(ctx: click.Context, as_json: bool) -> None:
    """Print the users, their rules, and the hashes by which they may authenticate; no keys."""
    from sparklog.cli.output import print_table
    from sparklog.gateway.user_log import open_user_log

    cluster = cluster_of(ctx)
    try:
        newest, _ = open_user_log(cluster).open_newest()
    finally:
        cluster.store.close()
    rows = [
        {"user": user.name, "hashes": list(user.keys), **user.rules.to_json()}
        for _, user in sorted(({} if newest is None else newest.users).items())
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    columns = ["user", "hashes", "read", "write", "groups", "transactional_ids", "admin"]
    print_table(columns, [[_cell(row[name]) for name in columns] for row in rows])


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else "yes" if value is True else str(value or "")


@gateway_users.command()
@click.argument("name")
@rules_options
@connection_options()
@click.pass_context
def add(ctx: click.Context, /, name: str, admin: bool, **lists: tuple[str, ...]) -> None:
    """Add a user. Options that name topics, groups or ids may be given several times."""
    from sparklog.gateway.user_changes import added
    from sparklog.gateway.users import new_user

    _change(ctx, added(new_user(name, _given_password(), _rules(lists, admin=admin))))


def _rules(lists: dict[str, tuple[str, ...]], *, admin: bool) -> Any:
    from sparklog.gateway.users import Rules

    return Rules(lists["read"], lists["write"], lists["groups"], lists["ids"], admin=admin)


@gateway_users.command("rules")
@click.argument("name")
@rules_options
@connection_options()
@click.pass_context
def set_rules(ctx: click.Context, /, name: str, admin: bool, **lists: tuple[str, ...]) -> None:
    """Replace all rules of a user."""
    from sparklog.gateway.user_changes import with_rules

    _change(ctx, with_rules(name, _rules(lists, admin=admin)))


@gateway_users.command()
@click.argument("name")
@connection_options()
@click.pass_context
def passwd(ctx: click.Context, name: str) -> None:
    """Change the password of a user. Open connections stay."""
    from sparklog.gateway.user_changes import with_keys
    from sparklog.gateway.users import Rules, new_user

    _change(ctx, with_keys(name, new_user(name, _given_password(), Rules()).keys))


@gateway_users.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@connection_options()
@click.pass_context
def remove(ctx: click.Context, name: str, yes: bool) -> None:
    """Remove a user. Its connections end."""
    from sparklog.gateway.user_changes import removed

    confirm_deletion(ctx, f"user {name}", yes=yes)
    _change(ctx, removed(name))
