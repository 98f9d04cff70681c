"""``sparklog health``: is the cluster fit for use from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.options import cluster_of, connection_options
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.observe.health import HealthCheck

__all__ = ["health"]

FAILED, TRY_AGAIN = 1, 75
"""75: ``EX_TEMPFAIL`` of sysexits.h."""


@click.command()
@click.option("--read-only", is_flag=True, help="Create no object: check neither that nor the clock.")
@click.option("--strict", is_flag=True, help="Let warnings fail, too.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def health(ctx: click.Context, read_only: bool, strict: bool, json_: bool) -> None:
    """Check that the cluster can be read and written from here.

    Also whether this machine's clock agrees with the store's, and whether maintenance runs. Creates one small object
    under probes/, and deletes it.

    Exit code 0: fit for use, perhaps with warnings. 1: it isn't. 75: it isn't, and may be when it is tried again, as
    the store is away.
    """
    from sparklog.errors import SparklogError
    from sparklog.observe.health import HealthCheck, Verdict, check_health

    try:
        checks = check_health(cluster_of(ctx), writes=not read_only)
    except SparklogError as error:
        detail = " ".join(str(error).split())
        checks = [HealthCheck(name="read", verdict=Verdict.FAILED, detail=detail, error=error)]
    bad = {Verdict.FAILED, Verdict.WARNING} if strict else {Verdict.FAILED}
    failed = [check for check in checks if check.verdict in bad]
    if json_:
        click.echo(as_json({"healthy": not failed, "checks": [_as_plain(check) for check in checks]}))
    else:
        rows = [(check.name, check.verdict.value, f"{check.took_ms:.0f}", check.detail) for check in checks]
        print_table(("check", "result", "ms", "seen"), rows, numbers=("ms",))
    if failed:
        is_passing = all(check.error is not None and check.error.retriable for check in failed)
        ctx.exit(TRY_AGAIN if is_passing else FAILED)


def _as_plain(check: HealthCheck) -> dict[str, object]:
    return {
        "check": check.name,
        "result": check.verdict.value,
        "ms": round(check.took_ms, 1),
        "seen": check.detail,
    }
