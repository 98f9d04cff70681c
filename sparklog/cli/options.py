"""Options that several commands share: which cluster, with which credentials, which topic, settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sparklog.admin import Admin
    from sparklog.log.cluster import Cluster

__all__ = [
    "ENVIRONMENT",
    "admin_of",
    "cluster_of",
    "complete_groups",
    "complete_topics",
    "complete_transactional_ids",
    "confirm_deletion",
    "connection_options",
    "is_debugging",
    "pairs",
    "root_of",
]

ENVIRONMENT = MappingProxyType(
    {
        "cluster": "SPARKLOG_CLUSTER",
        "storage_options": "SPARKLOG_STORAGE_OPTIONS",
        "completion": "_SPARKLOG_COMPLETE",
    }
)
_CLUSTER, _OPTIONS, _DEBUG = "sparklog.cluster", "sparklog.storage_options", "sparklog.debug"

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(*, envvar: bool = False) -> Callable[[F], F]:
    """``--cluster``, ``--storage-option`` and ``--debug``, kept in the context's ``meta``.

    They stand before the command and after it, where the later ones win.

    Args:
        envvar: the cluster may come from the environment: at the outermost command alone.
    """

    def decorate(command: F) -> F:
        for option in (
            click.option("--debug", is_flag=True, expose_value=False, callback=_keep_flag, help="Show tracebacks."),
            click.option(
                "--storage-option",
                multiple=True,
                expose_value=False,
                callback=_keep_options,
                metavar="KEY=VALUE",
                help=f"Access to an S3 store: key, secret, endpoint_url, … {ENVIRONMENT['storage_options']} holds them "
                "as JSON, where other users of the machine don't see them.",
            ),
            click.option(
                "--cluster",
                "-c",
                expose_value=False,
                callback=_keep_cluster,
                envvar=ENVIRONMENT["cluster"] if envvar else None,
                show_envvar=True,
                metavar="URI",
                help="The cluster's root: a folder, s3://bucket/prefix, gs://…, abfss://….",
            ),
        ):
            command = option(command)
        return command

    return decorate


def _keep_cluster(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value:
        ctx.meta[_CLUSTER] = value


def _keep_options(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    options = ctx.meta.setdefault(_OPTIONS, {})
    for option in given:
        key, equals, value = option.partition("=")
        if not key or not equals:  # what was given may be a secret: it isn't repeated
            raise click.BadParameter("expected KEY=VALUE")
        options[key] = _option_value(value)


def _option_value(text: str) -> Any:
    """JSON where it can only be meant so; a secret of digits stays a text."""
    if text in ("true", "false") or text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _keep_flag(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = ctx.meta.get(_DEBUG, False) or value


def is_debugging(ctx: click.Context) -> bool:
    """Whether tracebacks are asked for."""
    return bool(ctx.meta.get(_DEBUG))


def root_of(ctx: click.Context) -> tuple[str, dict[str, Any] | None]:
    """The cluster's URI and its storage options. Raises ``click.UsageError`` where there is none."""
    uri = ctx.meta.get(_CLUSTER) or os.environ.get(ENVIRONMENT["cluster"])
    if not uri:
        raise click.UsageError(f"Which cluster? Give --cluster URI, or set {ENVIRONMENT['cluster']}.", ctx)
    options = {**_environment_options(), **ctx.meta.get(_OPTIONS, {})}
    return str(uri), options or None


def cluster_of(ctx: click.Context) -> Cluster:
    """The opened cluster. Raises ``InvalidArgumentError`` where there is none."""
    from sparklog.log.cluster import open_cluster

    uri, options = root_of(ctx)
    return open_cluster(uri, storage_options=options, create=False)


def admin_of(ctx: click.Context) -> Admin:
    """An admin client, closed when the command ends."""
    from sparklog.admin import Admin

    uri, options = root_of(ctx)
    return ctx.with_resource(Admin(uri, storage_options=options))


def confirm_deletion(ctx: click.Context, what: str, *, yes: bool) -> None:
    """Ask whether to delete, unless that is said already. Raises ``click.UsageError`` where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: give --yes to delete.", ctx)
    click.confirm(f"Delete {what}?", abort=True, err=True)


def _environment_options() -> dict[str, Any]:
    name = ENVIRONMENT["storage_options"]
    text = os.environ.get(name)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise click.UsageError(f'{name}: expected a JSON object, as {{"key": …, "secret": …}}')
    return options


def pairs(given: Iterable[str], name: str) -> dict[str, str]:
    """``key=value`` options as a dict. Raises ``click.BadParameter`` that names the option."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"got {text!r}, expected KEY=VALUE", param_hint=name)
        if key in found:
            raise click.BadParameter(f"{key} is given twice", param_hint=name)
        found[key] = value
    return found


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin so, for a shell that completes."""
    from sparklog.log.cluster import topic_names

    try:
        return [name for name in topic_names(cluster_of(ctx)) if name.startswith(incomplete)]
    except Exception:  # there is no place for an error
        return []


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose names begin so, for a shell that completes."""
    from sparklog.groups.admin.inspection import group_names

    try:
        return [name for name in group_names(cluster_of(ctx)) if name.startswith(incomplete)]
    except Exception:  # there is no place for an error
        return []


def complete_transactional_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The transactional ids whose names begin so, for a shell that completes."""
    from sparklog.txn.overview import transactional_ids

    try:
        return [name for name in transactional_ids(cluster_of(ctx)) if name.startswith(incomplete)]
    except Exception:  # there is no place for an error
        return []
