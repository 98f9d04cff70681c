"""The common part of ``sparklog.jobs.retention``, ``compact``, ``optimize``, ``vacuum`` and ``maintain``: all but their
names.

Exit codes: 0 done, or nothing was to be done; 1 something failed, the rest was done; 2 wrong arguments; 75 something
failed, and the same call may succeed later.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparklog.compaction.maintenance import MaintenanceReport, ProgressListener, Step
from sparklog.compaction.plan_optimize import TARGET_BYTES, OptimizePolicy
from sparklog.compaction.report_format import COLUMNS, NUMBERS, error_as_plain, report_as_plain, report_rows
from sparklog.compaction.topic_access import may_succeed_later
from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.spark.maintenance.maintenance import SMALL_BYTES, maintain
from sparklog.spark.runtime.versions import need_java
from sparklog.spark.session.connect import is_asked_for
from sparklog.spark.session.session import pyspark_sql
from sparklog.spark.session.spark_job import DONE, FAILED, TRY_AGAIN, add_storage_options, parsed, print_lines, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS", "main", "parse", "spark_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One of the modules of ``sparklog.jobs``."""

    steps: tuple[Step, ...]
    """The steps that the job runs; where there are several, ``--steps`` chooses."""
    description: str


JOBS = {
    "retention": Job(
        steps=(Step.RETENTION,),
        description="Remove what topics' retention.ms and retention.bytes don't keep, and what lies below their log "
        "starts. Only logs change.",
    ),
    "compact": Job(
        steps=(Step.COMPACT,),
        description="Drop the records of compacted topics whose keys came again, where it is due: more than "
        "min.cleanable.dirty.ratio is new, or max.compaction.lag.ms has passed, or tombstones may go.",
    ),
    "optimize": Job(
        steps=(Step.OPTIMIZE,),
        description="Merge small files of topics into few large ones. Not a record changes.",
    ),
    "vacuum": Job(
        steps=(Step.VACUUM,),
        description="Delete old log entries, and files that were removed from topics, or uploaded and never committed, "
        "a week ago.",
    ),
    "maintain": Job(
        steps=tuple(Step),
        description="All that keeps a cluster in shape, in order: finish transactions, give offsets to what other "
        "engines wrote, retention, compaction, merging, vacuum, expired group offsets.",
    ),
}


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a job of :data:`JOBS`; returns its exit code.

    What it did goes to the standard output, all else to the standard error. With ``--json`` the standard output holds
    one object whatever happens, ``{"error": …, "retriable": …}`` where there is no report.
    """
    given = parse(name, arguments)
    telling = ProgressListener(
        lambda topic, step: say(f"{name}: {topic}: {step.value}" if topic else f"{name}: {step.value}"),
        lambda topic, step, how_far: say(f"{name}: {topic}: {step.value}: {how_far}"),
    )
    try:
        report = maintain(
            spark_of(f"sparklog {name}"),
            given.cluster,
            given.topics,
            storage_options=given.storage_options,
            steps=given.steps,
            policy=given.policy,
            dry_run=given.dry_run,
            full=given.full,
            small_bytes=given.small_bytes,
            tell=telling,
        )
    except SparklogError as error:
        if given.json:
            print_lines(json.dumps(error_as_plain(error)))
        say(f"{name}: {error}")
        return TRY_AGAIN if may_succeed_later(error) else FAILED
    print_lines(*([json.dumps(report_as_plain(report))] if given.json else lines_of_report(report)))
    for line in report.failures:
        say(f"{name}: error: {' '.join(line.split())}")
    if not report.failures:
        return DONE
    return TRY_AGAIN if report.may_succeed_later else FAILED


def parse(name: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; exits with 2 where it is wrong."""
    job = JOBS[name]
    parser = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=job.description,
        epilog="Producers and consumers go on meanwhile. It may run twice at once, and be killed at any point. "
        "Exit codes: 0 done, 1 something failed and the rest was done, 2 wrong arguments, 75 something failed, try "
        "again.",
    )
    parser.add_argument("--cluster", required=True, metavar="URI", help="the cluster's root")
    parser.add_argument(
        "--topics",
        type=_names,
        action="extend",
        metavar="NAME[,NAME]…",
        help="only these (default: all"
        + (", and the cluster's transactions and groups)" if len(job.steps) > 1 else ")"),
    )
    if len(job.steps) > 1:
        parser.add_argument(
            "--steps",
            type=_steps,
            action="extend",
            metavar="STEP[,STEP]…",
            help=f"only these of {', '.join(step.value for step in job.steps)}; they come in this order",
        )
    parser.add_argument(
        "--dry-run", action="store_true", help="report what would be done as of now, and change nothing"
    )
    parser.add_argument(
        "--full", action="store_true", help="look at every topic, also where nothing has happened since the last run"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, in one line")
    add_storage_options(parser)
    if Step.OPTIMIZE in job.steps:
        parser.add_argument(
            "--target-bytes",
            type=int,
            default=TARGET_BYTES,
            metavar="N",
            help="how large merged files should become (default: %(default)s); a topic's segment.bytes may say less",
        )
    if Step.OPTIMIZE in job.steps or Step.COMPACT in job.steps:
        parser.add_argument(
            "--small-bytes",
            type=int,
            default=SMALL_BYTES,
            metavar="N",
            help="up to so many bytes to be merged, and eight times as many to be compacted, one process deals with "
            "(default: %(default)s)",
        )
    given = parsed(parser, arguments)
    try:
        given.policy = OptimizePolicy(target_bytes=given.target_bytes) if "target_bytes" in given else None
    except InvalidArgumentError as error:
        parser.error(str(error))
    given.small_bytes = getattr(given, "small_bytes", SMALL_BYTES)
    given.steps = getattr(given, "steps", None) or job.steps
    return given


def spark_of(app_name: str) -> SparkSession:
    """The session that is running, or a new one as ``spark-submit`` was configured: neither Delta nor S3A is needed.

    Raises ``InvalidConfigurationError`` where pyspark isn't installed, or it or Java is of a version that won't do.
    """
    sql = pyspark_sql()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else workers run whatever python3 is on the PATH
        if not is_asked_for(os.environ, {}):
            need_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark: SparkSession = sql.SparkSession.builder.appName(app_name).getOrCreate()
    return spark


def lines_of_report(report: MaintenanceReport) -> list[str]:
    """A report as lines for people."""
    rows = [tuple("" if value is None else str(value) for value in row) for row in report_rows(report)]
    if not rows:
        return [] if report.failures else ["nothing to be done"]
    lines = [COLUMNS, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    columns = [*zip(COLUMNS, widths, strict=True)]
    found = [
        "  ".join(
            text.rjust(width) if name in NUMBERS else text.ljust(width)
            for text, (name, width) in zip(line, columns, strict=True)
        ).rstrip()
        for line in lines
    ]
    return [*found, "nothing was changed: this was a dry run"] if report.dry_run else found


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:  # else a list that a script left empty would mean everything
        raise argparse.ArgumentTypeError("expected the name of a topic, or several with commas between them")
    return names


def _steps(text: str) -> list[Step]:
    try:
        return [Step(name) for name in _names(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected any of {', '.join(step.value for step in Step)}"
        ) from None
