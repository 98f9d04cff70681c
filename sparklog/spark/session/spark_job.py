"""The common part of all jobs for ``spark-submit``: their exit codes, and access to a store."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["DONE", "FAILED", "TRY_AGAIN", "add_storage_options", "parsed", "print_lines", "say"]

DONE, FAILED, TRY_AGAIN = 0, 1, 75
"""75: ``EX_TEMPFAIL`` of sysexits.h."""
_VARIABLE = "SPARKLOG_STORAGE_OPTIONS"


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Give a job the option ``--storage-options``."""
    parser.add_argument(
        "--storage-options",
        type=_object,
        metavar="JSON",
        help=f"access to a cloud's store; {_VARIABLE} holds it, too, where other users of the machine don't see it",
    )


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and the environment; exits with 2 where either is wrong."""
    given = parser.parse_args(arguments)
    if given.storage_options is None and os.environ.get(_VARIABLE):
        try:
            given.storage_options = _object(os.environ[_VARIABLE])
        except argparse.ArgumentTypeError as error:
            parser.error(f"{_VARIABLE}: {error}")
    return given


def print_lines(*lines: str) -> None:
    """Print what a job did, to the standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def say(line: str) -> None:
    """Tell of anything else, on the standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object. The text may hold a secret: no error repeats it."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('expected a JSON object, as {"key": …, "secret": …}')
    return found
