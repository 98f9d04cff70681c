"""What Spark says when it gives up, in errors of ours; and jobs of Spark that end when they should. Without a JVM."""

from __future__ import annotations

import base64
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    RetriableError,
    SparklogError,
)
from sparklog.spark.maintenance.clean_by_shuffle import _ShuffledPositions
from sparklog.spark.maintenance.prefetch import as_text, run_jobs_ahead, spark_errors, waves

pyspark = pytest.importorskip("pyspark")

RAN: list[str] = []


class Attack:
    """Unpickled it would leave its mark."""

    def __reduce__(self) -> Any:
        return RAN.append, ("attacked",)


def marker(text: bytes) -> str:
    return f"[sparklog:{base64.b64encode(text).decode()}]"


def told(text: str) -> SparklogError:
    """What becomes of an error of Spark with this text."""
    with pytest.raises(SparklogError) as raised, spark_errors():
        raise pyspark.errors.PySparkException(text)
    return raised.value


def test_a_file_name_that_holds_a_marker_runs_no_code_and_hides_no_error() -> None:
    path = f"topics/t/part-{marker(pickle.dumps(Attack()))}.parquet"
    error = CorruptRecordError(f"corrupt data file {path}: bad")
    found = told(f"PythonException: Traceback\nRuntimeError: {as_text(error)}\n\n\tat org.apache.spark")
    assert (type(found), str(found)) == (CorruptRecordError, str(error))
    assert isinstance(told(f"RuntimeError: no such file {path}"), RetriableError)
    assert RAN == []


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (b'["ObjectNotFoundError", "gone"]', ObjectNotFoundError, "gone"),
        (b'["TopicPartition", "not an error"]', SparklogError, "not an error"),
        (b'["__name__", "not an error"]', SparklogError, "not an error"),
        (b'[["CorruptRecordError"], {}]', SparklogError, "{}"),
        (b'["OffsetOutOfRangeError", "wants more"]', SparklogError, "wants more"),
        (b'["CorruptRecordError"]', RetriableError, "Spark gave up"),
        (b"\xff", RetriableError, "Spark gave up"),
        (b"7", RetriableError, "Spark gave up"),
    ],
)
def test_a_marker_chooses_nothing_but_a_class_of_error(text: bytes, kind: type, message: str) -> None:
    found = told(f"RuntimeError: {marker(text)}")
    assert type(found) is kind
    assert message in str(found)


def test_an_error_with_more_than_a_message_comes_as_one_without() -> None:
    found = told(as_text(OffsetOutOfRangeError("offset 3", offset=3)))
    assert (type(found), str(found)) == (SparklogError, "offset 3")


WORKER_DIED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:654)
Caused by: java.io.EOFException
\t... 22 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2890)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider more memory
\t... 1 more
Caused by: java.io.EOFException
\t... 22 more
"""
IN_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 3612, in process
    serializer.dump_stream(out_iter, outfile)
{}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            WORKER_DIED,
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider more memory",
        ),
        (IN_PYTHON.format("ZeroDivisionError: division by zero"), "ZeroDivisionError: division by zero"),
        (
            "An error occurred while calling o7.collect.\nJob aborted due to stage failure: x\n\tat y",
            "Job aborted due to stage failure: x",
        ),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
    ],
)
def test_the_cause_is_told_and_may_go_away(text: str, expected: str) -> None:
    found = told(text)
    assert type(found) is RetriableError
    assert str(found) == f"Spark gave up: {expected}"


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'sparklog'",
        "AttributeError: Can't get attribute 'rewrite_in_task' on <module 'sparklog'>",
        "_pickle.UnpicklingError: invalid load key",
    ],
)
def test_an_executor_without_this_sparklog_is_told_and_not_tried_again(line: str) -> None:
    found = told(IN_PYTHON.format(line))
    assert type(found) is InvalidConfigurationError
    assert not found.retriable
    assert f"executors can't run a task: {line}; each needs this version of sparklog" in str(found)


def test_where_the_jvm_is_gone_the_same_call_may_succeed_later() -> None:
    network_error = import_module("py4j.protocol").Py4JNetworkError

    class Speechless(pyspark.errors.PySparkException):  # type: ignore[misc,name-defined]
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    for error in (ConnectionRefusedError(111, "Connection refused"), network_error("no answer"), Speechless("x")):
        with pytest.raises(RetriableError, match=r"Spark gave up: .*(refused|no answer)"), spark_errors():
            raise error


class Context:
    """Of jobs of Spark, as far as ``run_jobs_ahead`` needs it."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self.cancelled = 0

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled += 1
        self._cancel()

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def a_spark(context: Context) -> Any:
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def in_plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "inheritable_thread_target", lambda spark: lambda work: work)


@pytest.mark.usefixtures("in_plain_threads", "sigint")
@pytest.mark.parametrize(("delay_s", "is_to_main"), [(0.0, True), (0.3, True), (0.1, False)])
def test_an_interrupt_cancels_the_begun_job_whether_awaited_or_not(delay_s: float, is_to_main: bool) -> None:
    """A signal to another thread ends no wait of the main thread, and neither does one right before the wait."""
    ended = threading.Event()

    def job() -> bool:
        receiver = threading.main_thread().ident if is_to_main else threading.get_ident()
        threading.Timer(delay_s, signal.pthread_kill, [receiver, signal.SIGINT]).start()
        return ended.wait(60)

    context = Context(ended.set)
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs_ahead(a_spark(context), [job], about="a test"))
    assert context.cancelled > 0


@pytest.mark.usefixtures("in_plain_threads")
def test_a_jvm_that_is_gone_while_jobs_are_cancelled_does_not_hide_why(caplog: pytest.LogCaptureFixture) -> None:
    began, ended = threading.Event(), threading.Event()

    def gone() -> None:
        ended.set()
        raise ConnectionRefusedError(111, "Connection refused")

    def broken() -> None:
        began.wait(60)
        raise CorruptRecordError("a file")

    def slow() -> None:
        began.set()
        ended.wait(60)

    jobs = [broken, slow]
    context = Context(gone)
    with pytest.raises(CorruptRecordError, match="a file"):
        list(run_jobs_ahead(a_spark(context), jobs, about="a test"))
    assert context.cancelled == 1
    assert "jobs of Spark can't be cancelled: [Errno 111] Connection refused" in caplog.text


@pytest.mark.usefixtures("in_plain_threads")
def test_an_interrupt_while_a_job_is_handed_over_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()
    submit = ThreadPoolExecutor.submit

    def interrupted(self: ThreadPoolExecutor, *given: Any) -> Any:
        submit(self, *given)
        began.wait(60)
        raise KeyboardInterrupt

    def job() -> bool:
        began.set()
        return ended.wait(60)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    context = Context(ended.set)
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs_ahead(a_spark(context), [job], about="a test"))
    assert context.cancelled > 0


def test_what_executors_keep_is_forgotten_and_the_error_of_the_pass_is_not_hidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def destroy() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    shared: Any = SimpleNamespace(destroy=destroy)
    planned = _ShuffledPositions(shared, cast(Any, SimpleNamespace(rdd="an RDD")))
    assert planned.rdd() == "an RDD"

    def failing() -> Iterator[None]:
        try:
            raise CorruptRecordError("a file")
            yield
        finally:
            planned.release()

    with pytest.raises(CorruptRecordError, match="a file"):
        list(failing())
    assert "can't be freed: Spark gave up: [Errno 111] Connection refused" in caplog.text


def test_a_jvm_that_is_gone_before_a_job_begins_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "inheritable_thread_target", lambda _: lambda work: work)

    class Gone:
        """A context whose JVM isn't there any more."""

        def __getattr__(self, name: str) -> Any:
            if name == "defaultParallelism":
                raise ConnectionRefusedError(111, "Connection refused")
            return self.refuse

        def refuse(self, *_: object) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

    session: Any = SimpleNamespace(sparkContext=Gone())
    for begin in (lambda: run_jobs_ahead(session, [lambda: 1], about="a test"), lambda: waves(session, [1, 2])):
        with pytest.raises(RetriableError, match=r"Spark gave up: .*Connection refused"):
            list(begin())
