"""The command ``sparklog``: its sub-commands, and what becomes of errors, signals and closed pipes."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import click

from sparklog._native import DESCRIPTION
from sparklog._version import __version__
from sparklog.cli.catalog import catalog
from sparklog.cli.check import check
from sparklog.cli.completion import completion
from sparklog.cli.consume import consume
from sparklog.cli.cost import cost
from sparklog.cli.delayed import delayed
from sparklog.cli.dlq import dlq
from sparklog.cli.exporter import exporter
from sparklog.cli.gateway import gateway, gateway_user
from sparklog.cli.gateway_users import gateway_users
from sparklog.cli.groups import groups
from sparklog.cli.health import health
from sparklog.cli.maintain import maintain
from sparklog.cli.options import ENVIRONMENT, connection_options, is_debugging
from sparklog.cli.outbox import outbox
from sparklog.cli.produce import produce
from sparklog.cli.schemas import schemas
from sparklog.cli.share_groups import share_groups
from sparklog.cli.signals import TERMINATED, Terminated, end_despite_hanging_calls
from sparklog.cli.spark import spark
from sparklog.cli.sql import sql
from sparklog.cli.standard_output import OutputClosedError, end_output, protect_output
from sparklog.cli.top import top
from sparklog.cli.topics import topics
from sparklog.cli.transactions import transactions
from sparklog.cli.ui import ui
from sparklog.errors import SparklogError

__all__ = ["cli", "main"]

FAILED = 1
INTERRUPTED = 130


class _Sparklog(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OutputClosedError:
            ctx.exit(0)
        except Terminated:
            ctx.exit(TERMINATED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (SparklogError, OSError) as error:
            if is_debugging(ctx):
                traceback.print_exc()
            click.echo(f"sparklog: error: {_in_one_line(error)}", err=True)
            ctx.exit(FAILED)


@click.group(cls=_Sparklog, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@connection_options(envvar=True)
@click.version_option(__version__, prog_name="sparklog", message=f"%(prog)s %(version)s ({DESCRIPTION})")
def cli() -> None:
    """Kafka's semantics on Delta tables, without a broker.

    A cluster is a root URI: a folder, or s3://bucket/prefix. Give it once by SPARKLOG_CLUSTER, or with --cluster before
    or after the command.

    \b
      export SPARKLOG_CLUSTER=./data
      sparklog topics create orders --partitions 6
      echo 'user-1:{"total": 12}' | sparklog produce orders -K :
      sparklog consume orders --from-beginning
      sparklog consume orders --group billing
      sparklog groups describe billing
      sparklog transactions list
      sparklog cost --rate 1000 --members 3
      sparklog sql "select partition, count(*) from orders group by all"

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but for what couldn't be read, 130 interrupted, 143 ended by
    SIGTERM before it was done.
    """


for _command in (
    topics,
    schemas,
    groups,
    share_groups,
    transactions,
    delayed,
    dlq,
    produce,
    consume,
    sql,
    spark,
    maintain,
    catalog,
    check,
    cost,
    health,
    top,
    exporter,
    ui,
    outbox,
    gateway,
    gateway_user,
    gateway_users,
    completion,
):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code.

    Args:
        args: without the program's name; those of the process by default, which then ends with this call.
    """
    if args is not None:
        return _main(args)
    protect_output()
    code = _main(None)
    lost = end_output()
    if lost is not None and code == 0:
        click.echo(f"sparklog: error: standard output: {_in_one_line(lost)}", err=True)
        code = FAILED
    end_despite_hanging_calls(code)
    return code


def _main(args: Sequence[str] | None) -> int:
    try:
        result = cli.main(args, prog_name="sparklog", complete_var=ENVIRONMENT["completion"], standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _in_one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        message = str(error) or type(error).__name__
    return " ".join(message.split())
