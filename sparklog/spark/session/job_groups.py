"""Groups and descriptions, by which Spark's UI shows the jobs that sparklog runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparklog.spark.session.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["described_jobs"]

_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


@contextmanager
def described_jobs(spark: SparkSession, about: str) -> Iterator[None]:
    """Within the block this thread's jobs have a description, and a group of the same name; not by Spark Connect.

    Whoever has set a group already, to cancel it, keeps it. What was there before is there again afterwards.
    """
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION)}
    if before[_GROUP] is None:
        context.setLocalProperty(_GROUP, about)
    context.setLocalProperty(_DESCRIPTION, about)
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
