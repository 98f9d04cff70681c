"""Running the command line in this process, on a cluster in memory."""

import json
from itertools import count

from click.testing import CliRunner

from sparklog.cli import cli

_NUMBERS = count()


def a_cluster():
    """The URI of a cluster that isn't there yet."""
    return f"memory://cli-{next(_NUMBERS)}"


def run(*arguments, cluster=None, input=None, env=None):
    """Run ``sparklog``; what it did, with stdout and stderr apart."""
    environment = {"SPARKLOG_CLUSTER": cluster, "SPARKLOG_STORAGE_OPTIONS": None, "COLUMNS": "120", **(env or {})}
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=input, env=environment)


def done(*arguments, **how):
    """Run ``sparklog``, which must succeed; its standard output."""
    result = run(*arguments, **how)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def failure(*arguments, code=1, **how):
    """Run ``sparklog``, which must fail; its one line on standard error, or for wrong usage the last one."""
    result = run(*arguments, **how)
    assert result.exit_code == code, (result.output, result.exception)
    lines = result.stderr.strip().splitlines()
    if code == 1:
        assert lines[-1].startswith("sparklog: error: "), result.stderr
        assert "Traceback" not in result.output
    return lines[-1]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]
