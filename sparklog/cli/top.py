"""``sparklog top``: groups by lag and topics by rate, in the terminal, live."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.exporter import watch_opener
from sparklog.cli.options import connection_options
from sparklog.cli.output import as_json, is_terminal, print_table
from sparklog.cli.partly import end_partly, unread_of
from sparklog.cli.signals import ended_by_signals
from sparklog.cli.standard_output import check_output
from sparklog.texts import counted

if TYPE_CHECKING:
    from sparklog.observe import ClusterFigures
    from sparklog.observe.rates import TopicRate
    from sparklog.observe.watching import Watching, WatchStatus

__all__ = ["top"]

_GROUP_COLUMNS = ("group", "topic", "members", "lag", "lag s", "read/s")
_TOPIC_COLUMNS = ("topic", "partitions", "records", "bytes", "files", "new/s", "commits/s", "last commit")
_TEXTS = frozenset({"group", "topic", "last commit"})
_LOOKS_OF_A_RATE = 2
_LEAST_ROWS = 5
_MOST_NAMED = 3
"""Things that can't be read, in the headline."""
_LINES_AROUND = 9
"""Headings, and what else stands around two tables."""
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 300),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads of the cluster.",
)
@click.option("--once", is_flag=True, help="Show the rates of one interval, and end.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON object for each read.")
@connection_options()
@click.pass_context
def top(ctx: click.Context, interval: float, once: bool, json_: bool) -> None:
    """Watch lag, rates and newest commits.

    Groups with the most lag and topics with the most new records come first. On a terminal the page is redrawn after
    each read of the cluster; otherwise pages are printed one after the other. Ends by Ctrl-C.

    What can't be read is named at the top. With --once it is also named on standard error with the reason, and the exit
    code is 3.
    """
    from sparklog.observe.watching import Watching

    is_live = is_terminal() and not once and not json_
    unread: dict[str, Exception] = {}
    with ended_by_signals(), _Screen(is_live=is_live) as screen:
        watching = Watching(
            watch_opener(ctx),
            interval_ms=interval * 1_000,
            on_part=lambda status: screen.show(None, status, as_json_line=False),
            tells_parts=is_live,
            most_looks=_LOOKS_OF_A_RATE if once else None,
        )
        watching.start()  # in a thread: a look at a store that hangs never ends
        try:
            unread = _show_looks(watching, screen, once=once, as_json_lines=json_)
        finally:
            watching.stop(0.0)
    end_partly(ctx, unread)


def _show_looks(watching: Watching, screen: _Screen, *, once: bool, as_json_lines: bool) -> dict[str, Exception]:
    """Show what each look finds, compared with what the one before it found; ``once``: end then. Returns what couldn't
    be read by the last look, then."""
    before: ClusterFigures | None = None
    count = 0
    while watching.wait_for_look(None, beyond=count):
        status = watching.status()
        count = status.look_count
        if status.figures is None and once and status.error is not None:
            raise status.error
        is_last = once and before is not None
        if is_last or not once:
            screen.show(before, status, as_json_line=as_json_lines)
            check_output()
        if is_last:
            return unread_of(status.figures)
        before = status.figures
    return {}


class _Screen:
    """Where pages go: onto the terminal, each in place of the one before, or to standard output."""

    def __init__(self, *, is_live: bool) -> None:
        self._live: Any = None
        if is_live:
            from rich.live import Live

            self._live = Live(screen=True, auto_refresh=False)

    def __enter__(self) -> _Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, before: ClusterFigures | None, status: WatchStatus, *, as_json_line: bool) -> None:
        """Show what a look has found."""
        if as_json_line:
            click.echo(as_json(_as_plain(before, status)))
            return
        lines = shutil.get_terminal_size().lines if self._live is not None else 1_000_000
        most = max(_LEAST_ROWS, (lines - _LINES_AROUND) // 2)
        figures = status.figures or status.part
        groups = [] if figures is None else _group_rows(before, figures)
        topics = [] if figures is None else _topic_rows(before, figures)
        if self._live is not None:
            self._live.update(_page(_headline(status), groups[:most], topics[:most]), refresh=True)
            return
        click.echo(_headline(status))
        for columns, rows in ((_GROUP_COLUMNS, groups), (_TOPIC_COLUMNS, topics)):
            if rows:
                click.echo("")
                print_table(columns, rows, numbers=[name for name in columns if name not in _TEXTS])


def _page(headline: str, groups: Sequence[Sequence[str]], topics: Sequence[Sequence[str]]) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(headline, style="bold")]
    for columns, rows in ((_GROUP_COLUMNS, groups), (_TOPIC_COLUMNS, topics)):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        parts.append(table)
    return Group(*parts)


def _headline(status: WatchStatus) -> str:
    figures = status.figures or status.part
    error = "" if status.error is None else " ".join(str(status.error).split())
    if figures is None:
        return f"the cluster can't be read: {error}"
    unfinished = sum(one.is_overdue(now_ms=figures.now_ms) for one in figures.transactions)
    parts = [
        figures.uri,
        counted(len(figures.topics), "topic"),
        counted(len(figures.groups), "group"),
        counted(unfinished, "overdue transaction"),
        _in_short(figures),
        f"look {figures.took_ms:.0f} ms" if not figures.is_part else "the first look is under way",
    ]
    if error and status.age_ms is not None:
        parts.append(f"as of {status.age_ms / 1_000:.0f} s ago, the store can't be read: {error}")
    return "  ".join(parts)


def _in_short(figures: ClusterFigures) -> str:
    """How many things can't be read, and the names of the first."""
    names = [f"{one.kind} {one.name}" for one in figures.problems[:_MOST_NAMED]]
    more = [f"{len(figures.problems) - len(names)} more"] if len(figures.problems) > len(names) else []
    return f"{len(figures.problems)} unreadable{': ' if names else ''}{', '.join([*names, *more])}"


def _group_rows(before: ClusterFigures | None, now: ClusterFigures) -> list[list[str]]:
    from sparklog.observe.rates import group_rates

    return [
        [
            one.group_id,
            one.topic,
            str(one.member_count),
            str(one.lag),
            "" if one.lag_ms is None else f"{one.lag_ms / 1_000:.1f}",
            _rate(one.records_per_s),
        ]
        for one in group_rates(before, now)
    ]


def _topic_rows(before: ClusterFigures | None, now: ClusterFigures) -> list[list[str]]:
    from sparklog.observe.rates import topic_rates

    return [
        [
            one.name,
            str(one.partition_count),
            ("~" if one.is_record_count_by_offsets else _older(one)) + str(one.record_count),
            "…" if one.size_bytes is None else _older(one) + _size(one.size_bytes),
            "…" if one.file_count is None else _older(one) + str(one.file_count),
            _rate(one.records_per_s),
            _rate(one.commits_per_s),
            "" if one.commit_age_ms is None else f"{_age(one.commit_age_ms)} ago",
        ]
        for one in topic_rates(before, now)
    ]


def _older(topic: TopicRate) -> str:
    """The mark of figures that are older than the topic's newest commit."""
    return "~" if topic.has_older_totals else ""


def _as_plain(before: ClusterFigures | None, status: WatchStatus) -> dict[str, object]:
    from dataclasses import asdict

    from sparklog.observe.rates import group_rates, topic_rates

    now = status.figures
    return {
        "up": status.is_up,
        "error": None if status.error is None else str(status.error),
        "now_ms": None if now is None else now.now_ms,
        "groups": [] if now is None else [asdict(one) for one in group_rates(before, now)],
        "topics": [] if now is None else [asdict(one) for one in topic_rates(before, now)],
        "unreadable": []
        if now is None
        else [{"kind": one.kind, "name": one.name, "error": str(one.error)} for one in now.problems],
    }


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}"


def _size(size_bytes: int) -> str:
    return next((f"{size_bytes / unit:.1f} {name}" for name, unit in _UNITS if size_bytes >= unit), f"{size_bytes} B")


def _age(age_ms: int) -> str:
    seconds = age_ms / 1_000
    for name, unit in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
