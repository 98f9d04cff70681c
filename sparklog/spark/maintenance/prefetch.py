"""Prefetching: Spark jobs run ahead of the driver's use of their results, a few at once, and their results in order.

Each job is as wide as Spark, so that it ends soon, and the next one fills the cores that it leaves idle at its end. A
driver that is killed loses the work of those few jobs, and no more.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import sparklog.errors
from sparklog.errors import InvalidConfigurationError, RetriableError, SparklogError
from sparklog.spark.runtime.spark_calls import in_thread_of
from sparklog.spark.session.job_groups import described_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS_AHEAD", "as_text", "run_jobs_ahead", "spark_errors", "waves"]

JOBS_AHEAD = 2
"""At work at once: one job, and one that takes over its cores."""
_CANCEL_AGAIN_S = 1.0
_NOTICED_S = 0.25
"""After so long an interrupt is noticed that came right before the main thread began to wait, or to another thread."""
_OURS = re.compile(r"\[sparklog:([A-Za-z0-9+/=]+)\]")
_CAUSE = re.compile(r"(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception): .*")
"""The line that ends a traceback of Python or of Java."""
_TRACEBACK = "Traceback (most recent call last):"
_LACKS_SPARKLOG = ("ModuleNotFoundError", "ImportError", "AttributeError", "PicklingError", "UnpicklingError")
"""Errors of a task that can't be run: what it is made of isn't where it runs, or is another version's."""
_LOGGER = logging.getLogger("sparklog.spark")

T = TypeVar("T")


def waves(spark: SparkSession, items: Sequence[T]) -> Iterator[Sequence[T]]:
    """``items`` in their order, as many at once as Spark has cores for by then."""
    at = 0
    while at < len(items):
        with spark_errors():
            width = max(1, spark.sparkContext.defaultParallelism)
        yield items[at : at + width]
        at += width


def run_jobs_ahead(spark: SparkSession, jobs: Iterable[Callable[[], T]], *, about: str) -> Generator[T, None, None]:
    """Run jobs, and yield what each returns, in their order, :data:`JOBS_AHEAD` at once.

    Closed early, it cancels those that are at work, and waits for their end.

    Args:
        jobs: run Spark's jobs, each in a thread of its own.
        about: describes them where people look at what Spark does.
    Raises:
        RetriableError, InvalidConfigurationError: Spark has given up a job, see :func:`spark_errors`; and whatever a
            job raises.
    """
    context = spark.sparkContext
    tag = f"sparklog-{uuid.uuid4().hex}"

    running: set[object] = set()
    is_over, job_ended = threading.Event(), threading.Event()

    def work(job: Callable[[], T]) -> T:
        this = object()
        running.add(this)
        try:
            if is_over.is_set():  # set before `running` is looked at: whoever isn't seen there sees this
                raise CancelledError
            with spark_errors(), described_jobs(spark, about):
                context.addJobTag(tag)
                context.setInterruptOnCancel(True)
                return job()
        finally:
            running.discard(this)
            job_ended.set()

    threads = ThreadPoolExecutor(JOBS_AHEAD, "sparklog-maintenance")
    left = iter(jobs)
    waiting: deque[Future[T]] = deque()
    try:
        while True:
            for job in islice(left, JOBS_AHEAD - len(waiting)):
                waiting.append(threads.submit(in_thread_of(spark, work), job))
            if not waiting:
                return
            yield _result(waiting.popleft())
    finally:
        # An interrupt may come before a job that has begun is among those we wait for: the threads show which run.
        is_over.set()
        threads.shutdown(wait=False, cancel_futures=True)
        try:
            while True:
                job_ended.clear()
                if not running:
                    break
                context.cancelJobsWithTag(tag)  # again, for one that a thread was just about to begin
                job_ended.wait(_CANCEL_AGAIN_S)
        except _gave_up() as error:  # then the jobs end by themselves; what came before is the error to raise
            _LOGGER.warning("jobs of Spark can't be cancelled: %s", _text_of(error))
        threads.shutdown()


def _result(future: Future[T]) -> T:
    """Return a job's result, or raise its error. An interrupt doesn't wait for the job's end."""
    while not wait([future], _NOTICED_S).done:
        pass  # Python handles signals here
    return future.result(0)


def as_text(error: SparklogError) -> str:
    """An error as the message of what a task raises; :func:`spark_errors` raises it again."""
    packed = json.dumps([type(error).__name__, str(error)]).encode()
    return f"{error} [sparklog:{base64.b64encode(packed).decode()}]"


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises when it gives up into an error of sparklog's.

    Raises:
        SparklogError: the one that a task met.
        InvalidConfigurationError: executors lack sparklog, or have another version of it.
        RetriableError: anything else, with its cause.
    """
    try:
        yield
    except _gave_up() as error:
        text = _text_of(error)
        raise _ours(text) or _not_ours(text or type(error).__name__) from error


def _gave_up() -> tuple[type[Exception], ...]:
    """The errors that Spark raises; where its JVM is gone, that is what the connection says."""
    from pyspark.errors import PySparkException

    java: Any = import_module("py4j.protocol")
    return (java.Py4JError, PySparkException, ConnectionError)


def _text_of(error: Exception) -> str:
    """The text of an error; most of it only the JVM knows, which may be gone by now."""
    try:
        return str(error)
    except Exception as unknown:  # of py4j, of sockets, and PySpark's own assertions
        return f"{type(error).__name__}: {getattr(error, 'errmsg', '')} (the JVM can't be asked: {unknown!r})"


def _ours(text: str) -> SparklogError | None:
    """The error that :func:`as_text` wrote into ``text``, by the last of the markers there.

    A marker is nothing but the name of a class and a message: error texts hold names of files, which are chosen by
    whoever may commit to a table.
    """
    found = _OURS.findall(text)
    if not found:
        return None
    try:
        name, message = json.loads(base64.b64decode(found[-1]))
    except (ValueError, TypeError):
        return None  # not written by us
    kind = getattr(sparklog.errors, name, None) if isinstance(name, str) and name in sparklog.errors.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, SparklogError)) or "__init__" in vars(kind):
        kind = SparklogError  # those with an __init__ want more than a message
    return kind(str(message))


def _not_ours(text: str) -> SparklogError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.fullmatch(line) and not line.endswith(_TRACEBACK)]
    aborted = next((line for line in lines if "Job aborted" in line), None)
    cause = causes[-1].removeprefix("Caused by: ") if causes else aborted or next(iter(lines), "")
    if cause.split(":")[0].rpartition(".")[2] in _LACKS_SPARKLOG:
        return InvalidConfigurationError(
            f"executors can't run a task: {cause}; each needs this version of sparklog[spark,s3], and the Python "
            "packages that the driver has"
        )
    return RetriableError(f"Spark gave up: {cause}")
