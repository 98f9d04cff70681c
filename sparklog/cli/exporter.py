"""``sparklog exporter``: metrics of a cluster for Prometheus."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import click

from sparklog.cli.logs import announce, logged
from sparklog.cli.options import cluster_of, connection_options, root_of
from sparklog.cli.partly import end_partly, unread_of
from sparklog.cli.signals import ended_by_signals
from sparklog.cli.standard_output import forgive_output
from sparklog.interrupts import SafeEvent

if TYPE_CHECKING:
    from sparklog.exporter import ExporterApp
    from sparklog.observe import ClusterWatch, Shard

__all__ = ["exporter", "watch_opener"]

_STOP_S = 2.0
_SHARD = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9308",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; :9308 means every address of the machine, port 0 a free port.",
)
@click.option(
    "--interval",
    type=click.FloatRange(1, 300),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads of the cluster, independent of scrapes.",
)
@click.option(
    "--shard",
    default="1/1",
    show_default=True,
    metavar="I/N",
    help="Read only one of N parts of the topics, by their names: 2/3 is for the second of three exporters.",
)
@click.option(
    "--orphans-every",
    type=click.FloatRange(0.1),
    metavar="HOURS",
    help="Time between two listings of each topic's folder, which count orphaned files; never by default.",
)
@click.option(
    "--most-series",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="The most series of one metric: those of the first topics and groups; 0: no bound.",
)
@click.option("--once", is_flag=True, help="Read the cluster once, print the metrics, and end.")
@connection_options()
@logged
@click.pass_context
def exporter(
    ctx: click.Context,
    listen: str,
    interval: float,
    shard: str,
    orphans_every: float | None,
    most_series: int,
    once: bool,
) -> None:
    """Serve metrics of topics, groups, transactions and maintenance to Prometheus.

    Answers /metrics, under the names of kafka_exporter and names of its own that begin with sparklog_; and /healthz and
    /readyz. It reads the cluster periodically, and answers from the last read: a scrape never waits for the store.
    It only reads. Ends by SIGTERM or Ctrl-C. With --once the exit code is 3 where something couldn't be read, which is
    named on standard error.
    """
    if once:
        from sparklog.exporter import ExporterApp

        app = ExporterApp(most_series=most_series)
        _print_once(ctx, app, shard, interval, None if orphans_every is None else 0.0)
        return
    with ended_by_signals(is_service=True):
        from sparklog.errors import InvalidArgumentError
        from sparklog.exporter import ExporterApp, ExporterServer, parse_address
        from sparklog.freed_memory import GIVEN_BACK, share_freed_memory
        from sparklog.observe.watching import Watching

        part, app = _parse_shard(shard), ExporterApp(most_series=most_series)
        try:
            host, port = parse_address(listen)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from None
        forgive_output()
        share_freed_memory(GIVEN_BACK)
        orphans_ms = None if orphans_every is None else orphans_every * 3_600_000
        opener = watch_opener(ctx, part, orphans_every_ms=orphans_ms)
        watching = Watching(opener, interval_ms=interval * 1_000, on_figures=app.keep)
        app.watch(watching)
        server = ExporterServer(app, host, port)
        try:
            watching.start()
            announce(f"listening at http://{host or '*'}:{server.port}/metrics")
            SafeEvent().wait()  # for the signal
        finally:
            server.close()
            watching.stop(_STOP_S)


def _print_once(
    ctx: click.Context, app: ExporterApp, shard: str, interval: float, orphans_every_ms: float | None
) -> None:
    """Look once, and print what was found."""
    from sparklog.observe.watching import Watching

    opener = watch_opener(ctx, _parse_shard(shard), orphans_every_ms=orphans_every_ms)
    watching = Watching(opener, interval_ms=interval * 1_000, on_figures=app.keep)
    app.watch(watching)
    watching.look()
    status = watching.status()
    if status.error is not None:
        raise status.error
    click.echo(app.respond("/metrics").body.decode(), nl=False)
    end_partly(ctx, unread_of(status.figures))


def watch_opener(ctx: click.Context, shard: Shard | None = None, *, orphans_every_ms: float | None = None) -> _Opener:
    """Opens the cluster when it is called, and again as long as the store is away. Raises ``click.UsageError`` where no
    cluster is named, and ``InvalidArgumentError`` where there is none."""
    root_of(ctx)
    return _Opener(ctx, shard, orphans_every_ms)


class _Opener:
    def __init__(self, ctx: click.Context, shard: Shard | None, orphans_every_ms: float | None) -> None:
        from sparklog.errors import StoreError

        self._ctx = ctx
        self._shard = shard
        self._orphans_every_ms = orphans_every_ms
        self._first: ClusterWatch | None = None
        try:
            self._first = self._open()
        except StoreError as error:
            if not error.retriable:
                raise
            announce(f"sparklog: the store is away, trying again: {error}", logging.WARNING)

    def __call__(self) -> ClusterWatch:
        first, self._first = self._first, None
        return first or self._open()

    def _open(self) -> ClusterWatch:
        from sparklog.delta.checkpoint_child import CheckpointChild
        from sparklog.observe import ClusterWatch

        return ClusterWatch(
            cluster_of(self._ctx),
            shard=self._shard,
            checkpoints=CheckpointChild(),
            orphans_every_ms=self._orphans_every_ms,
        )


def _parse_shard(text: str) -> Shard:
    from sparklog.errors import InvalidArgumentError
    from sparklog.observe import Shard

    found = _SHARD.fullmatch(text)
    if not found:
        raise click.BadParameter(f"got {text!r}, expected I/N, such as 1/3", param_hint="--shard")
    try:
        return Shard(int(found[1]) - 1, int(found[2]))
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error), param_hint="--shard") from None
