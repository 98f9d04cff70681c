"""The log of commands that run for long, on standard error: ``--log-level`` and ``--log-format``."""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

__all__ = ["JsonFormatter", "TextFormatter", "announce", "logged", "logging_to_stderr"]

LEVELS = ("debug", "info", "warning", "error")
TEXT, JSON = "text", "json"
_FORMAT = "sparklog.log_format"
_LOGGER = logging.getLogger("sparklog.cli")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line, or command a terminal: names in a message may come from a client."""
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")

F = TypeVar("F", bound=Callable[..., Any])


def logged(command: F) -> F:
    """Options for the log of a command, which is written while the command runs."""

    @click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        help="The lowest level of sparklog's log on standard error; libraries log only warnings.",
    )
    @click.option(
        "--log-format",
        type=click.Choice((TEXT, JSON), case_sensitive=False),
        default=TEXT,
        show_default=True,
        help="Each entry is a line of text, or a JSON object.",
    )
    @functools.wraps(command)
    def run(*args: Any, log_level: str, log_format: str, **given: Any) -> Any:
        click.get_current_context().meta[_FORMAT] = log_format
        with logging_to_stderr(log_level, log_format):
            return command(*args, **given)

    return run  # type: ignore[return-value]


@contextmanager
def logging_to_stderr(level: str, format: str) -> Iterator[None]:
    """Write the log to standard error meanwhile: of sparklog from a level on, of everything else warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == JSON else TextFormatter())
    root, own = logging.root, logging.getLogger("sparklog")
    before = own.level
    own.setLevel(level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)


def announce(text: str, level: int = logging.INFO) -> None:
    """Inform whoever started a command, at any level of its log: a bare line on standard error, where the log isn't
    JSON; else an entry of it.

    Args:
        level: of that entry.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.meta.get(_FORMAT) != JSON:
        click.echo(text, err=True)
    else:
        click.echo(JsonFormatter().format(_LOGGER.makeRecord(_LOGGER.name, level, "", 0, text, (), None)), err=True)


class TextFormatter(logging.Formatter):
    """One line for an entry: time in UTC, level, logger, message. Lines of tracebacks follow, further in.

    Control characters in a message are shown as Python writes them, so that no name can look like another entry.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format an entry."""
        message = _CONTROL.sub(_escaped, record.getMessage())
        line = f"{_time_of(record)} {record.levelname} {record.name}: {message}"
        trace = _traceback_of(self, record)
        return line if trace is None else f"{line}\n{textwrap.indent(_CONTROL_IN_LINES.sub(_escaped, trace), '    ')}"


class JsonFormatter(logging.Formatter):
    """An object for an entry, in one line: ``time`` in UTC, ``level``, ``logger``, ``message``, perhaps ``traceback``.

    Beside them are fields of what the entry is about, ``topic``, ``group``, ``user``, …: :func:`sparklog.logs.about`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format an entry."""
        about = getattr(record, "sparklog", None)
        fields = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _traceback_of(self, record)
        if trace is not None:
            fields["traceback"] = trace
        more = about if isinstance(about, dict) else {}
        return json.dumps(
            {**fields, **{name: value for name, value in more.items() if name not in fields}}, default=str
        )


def _time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return formatter.formatException(record.exc_info)
    return record.exc_text or None


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
