"""The command line. What a command needs beyond click is imported when it runs, so that ``--help`` is quick."""

from sparklog.cli.app import cli, main

__all__ = ["cli", "main"]
