"""Spark jobs that run ahead of what the driver does with their results: a few at once, and their results in order.

Each job is as wide as Spark, so that it ends soon, and the next one fills the cores that it leaves idle at its end. A
driver that is killed loses the work of those few jobs, and no more.
"""

from __future__ import annotations

import base64
import pickle
import re
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sparklog.errors import RetriableError, SparklogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS_AHEAD", "as_text", "map_in_arrow", "told_by_spark", "waves", "work_ahead"]

JOBS_AHEAD = 2
"""At work at once: one job, and one that takes over its cores."""
_CANCEL_AGAIN_S = 1.0
_OURS = re.compile(r"\[sparklog:([A-Za-z0-9+/=]+)\]")

T = TypeVar("T")


def waves(spark: SparkSession, items: Sequence[T]) -> Iterator[Sequence[T]]:
    """``items`` in their order, as many at once as Spark has cores for by then."""
    at = 0
    while at < len(items):
        width = max(1, spark.sparkContext.defaultParallelism)
        yield items[at : at + width]
        at += width


def work_ahead(spark: SparkSession, jobs: Iterable[Callable[[], T]], *, about: str) -> Generator[T, None, None]:
    """What each of ``jobs`` returns, in their order, :data:`JOBS_AHEAD` at once.

    Closed early, it cancels those that are at work, and waits for their end.

    Args:
        jobs: run Spark's jobs, each in a thread of its own.
        about: describes them where people look at what Spark does.
    Raises:
        RetriableError: Spark has given up a job; and whatever a job raises.
    """
    from pyspark import inheritable_thread_target

    context = spark.sparkContext
    in_thread = inheritable_thread_target(spark)
    tag = f"sparklog-{uuid.uuid4().hex}"

    def work(job: Callable[[], T]) -> T:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        context.setJobDescription(about)
        with told_by_spark():
            return job()

    threads = ThreadPoolExecutor(JOBS_AHEAD, "sparklog-maintenance")
    left = iter(jobs)
    waiting: deque[Future[T]] = deque()
    try:
        while True:
            for job in islice(left, JOBS_AHEAD - len(waiting)):
                waiting.append(threads.submit(in_thread(work), job))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        while running := [future for future in waiting if not future.done()]:
            context.cancelJobsWithTag(tag)  # again, for one that a thread was just about to begin
            wait(running, timeout=_CANCEL_AGAIN_S)
        threads.shutdown()


def as_text(error: SparklogError) -> str:
    """An error as the message of what a task raises; :func:`told_by_spark` raises it again."""
    return f"{error} [sparklog:{base64.b64encode(pickle.dumps(error.with_traceback(None))).decode()}]"


@contextmanager
def told_by_spark() -> Iterator[None]:
    """Turn what Spark raises when it gives up into the error of ours that a task met, or else ``RetriableError``."""
    from pyspark.errors import PySparkException

    java: Any = import_module("py4j.protocol")
    try:
        yield
    except (java.Py4JError, PySparkException) as error:
        ours = _OURS.search(str(error))
        if ours is not None:
            raise pickle.loads(base64.b64decode(ours[1])) from error  # noqa: S301 - of as_text, in a task of ours
        told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RetriableError(f"Spark gave up: {told.strip()}") from error


def map_in_arrow(frame: DataFrame, work: Callable[[Any], Any], schema: str) -> DataFrame:
    """``frame.mapInArrow(work, schema)`` without pandas, which PySpark insists on, and then doesn't use."""
    from pyspark.sql import DataFrame
    from pyspark.util import PythonEvalType

    functions: Any = import_module("pyspark.sql.pandas.functions")  # its stub leaves out what isn't for everybody
    udf = functions.vectorized_udf(work, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
