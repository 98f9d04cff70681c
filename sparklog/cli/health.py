"""``sparklog health``: is the cluster fit for use from here."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.options import connection_options, root_of
from sparklog.cli.output import as_json, print_table

if TYPE_CHECKING:
    from sparklog.observe.health import HealthCheck
    from sparklog.observe.lag_check import LagLimits

__all__ = ["health"]

FAILED, TRY_AGAIN = 1, 75
"""75: ``EX_TEMPFAIL`` of sysexits.h."""


@click.command()
@click.option("--read-only", is_flag=True, help="Create no object; then neither writing nor the clock is checked.")
@click.option("--strict", is_flag=True, help="Also fail on warnings.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="A store that hasn't answered within this time counts as unavailable.",
)
@click.option(
    "--max-lag",
    type=click.IntRange(0),
    metavar="RECORDS",
    help="Also fail on each group with a higher lag, over all its partitions.",
)
@click.option(
    "--max-lag-seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Also fail on each group whose oldest unread record has been waiting for longer.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    help="Groups whose lag is checked, as in 'billing-*', one at least for each PATTERN; all groups by default.",
)
@click.option("--json", "json_", is_flag=True, help="Print a JSON object.")
@connection_options()
@click.pass_context
def health(
    ctx: click.Context,
    read_only: bool,
    strict: bool,
    timeout_s: float,
    max_lag: int | None,
    max_lag_seconds: float | None,
    groups: tuple[str, ...],
    json_: bool,
) -> None:
    """Check that the cluster can be read and written from here.

    A topic, group or transactional id that can't be read is a warning that names it; of more than a hundred of a kind,
    a hundred are looked at, chosen by chance. Also checks whether this machine's clock agrees with the store's, and
    whether maintenance runs. Creates one small object under probes/, and deletes it.

    With --max-lag or --max-lag-seconds also checks the lag of groups, one line for each that exceeds it, or whose lag
    can't be read; this reads every topic and every group.

    Exit code 0: fit for use, perhaps with warnings. 1: not fit for use. 75: not fit for use now, but perhaps later, as
    the store is unavailable.
    """
    from sparklog.observe.health import Verdict

    uri, options = root_of(ctx)
    lag = _limits(ctx, max_lag, max_lag_seconds, groups)
    checks = _checked(uri, options, writes=not read_only, lag=lag, timeout_s=timeout_s)
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


def _limits(
    ctx: click.Context, max_lag: int | None, max_lag_seconds: float | None, groups: tuple[str, ...]
) -> LagLimits | None:
    """The limits that were given; None: lag isn't checked."""
    if max_lag is None and max_lag_seconds is None:
        if groups:
            raise click.UsageError("--group checks nothing by itself: give --max-lag or --max-lag-seconds, too.", ctx)
        return None
    from sparklog.observe.lag_check import LagLimits

    most_ms = None if max_lag_seconds is None else max_lag_seconds * 1_000
    return LagLimits(most_records=max_lag, most_ms=most_ms, groups=groups)


def _as_plain(check: HealthCheck) -> dict[str, object]:
    return {
        "check": check.name,
        "result": check.verdict.value,
        "ms": round(check.took_ms, 1),
        "seen": check.detail,
    }


def _checked(
    uri: str, options: dict[str, Any] | None, *, writes: bool, lag: LagLimits | None, timeout_s: float
) -> list[HealthCheck]:
    """The checks, or that the cluster can't be opened, or didn't answer within the time."""
    from sparklog.clock import SystemClock
    from sparklog.errors import SparklogError, StoreError, StoreUnavailableError
    from sparklog.log.cluster import open_cluster
    from sparklog.observe.health import HealthCheck, Verdict, check_health
    from sparklog.paths import CLUSTER_FILE
    from sparklog.storage import open_store

    seen: list[StoreError] = []

    def check() -> list[HealthCheck]:
        store = open_store(uri, options)
        try:
            store.read(CLUSTER_FILE)  # without the repetitions of a cluster, so that there is a reason to report
        except StoreError as error:
            seen.append(error)
        cluster = open_cluster(store, create=False)
        checks = check_health(cluster, writes=writes)
        if lag is not None:
            from sparklog.observe.lag_check import check_lag

            checks += check_lag(cluster, lag)
        return checks

    clock = SystemClock()
    began = clock.ticks_ms()
    future = _in_thread(check)
    try:
        return future.result(timeout_s)
    except FutureTimeoutError as caught:
        if future.done() and future.exception() is caught:
            raise
        why = f": {seen[0]}" if seen else ""
        found: SparklogError = StoreUnavailableError(f"not all was answered within {timeout_s:g} s{why}")
    except SparklogError as error:
        found = error
    detail = " ".join(str(found).split())
    took_ms = clock.ticks_ms() - began
    return [HealthCheck(name="read", verdict=Verdict.FAILED, detail=detail, took_ms=took_ms, error=found)]


def _in_thread(call: Callable[[], list[HealthCheck]]) -> Future[list[HealthCheck]]:
    """A call that the process doesn't wait for when it ends."""
    from sparklog.workers import Worker

    future: Future[list[HealthCheck]] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Worker("health", run).start()
    return future
