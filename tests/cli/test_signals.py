"""A command ends by a signal, whatever hangs and whatever can't be written."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.cli import signals
from sparklog.cli.reading import Grouped, Plan
from sparklog.cli.signals import Terminated, end_despite_hanging_calls, ended_by_signals
from sparklog.cli.start_positions import BEGINNING
from sparklog.groups.admin.description import GroupState
from tests.cli.support import run


class Broken(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def flush(self) -> None:
        raise self._error


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The exit codes with which the process would end at once."""
    ended: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "_exit", ended.append)
        patched.setattr("logging.shutdown", lambda: None)
        patched.setattr(signals, "_END_S", 0.0)
        yield ended


@pytest.mark.parametrize("error", [BrokenPipeError("gone"), OSError("disk full"), ValueError("closed"), None])
def test_a_command_ends_though_a_thread_hangs_and_its_output_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, codes: list[int], error: Exception | None
) -> None:
    goes_on = threading.Event()
    hanging = threading.Thread(target=goes_on.wait)
    hanging.start()
    try:
        with monkeypatch.context() as patched:
            for name in ("stdout", "stderr"):
                patched.setattr(f"sys.{name}", io.StringIO() if error is None else Broken(error))
            end_despite_hanging_calls(3)
    finally:
        goes_on.set()
        hanging.join()
    assert codes
    assert {*codes} == {3}


def test_a_pool_below_a_daemon_thread_is_waited_for_by_python_too(codes: list[int]) -> None:
    """✗ The process hangs at its very end, as the threads of the pool are daemons."""
    goes_on = threading.Event()
    pools: list[ThreadPoolExecutor] = []

    def look() -> None:
        pools.append(ThreadPoolExecutor(1))
        pools[0].submit(goes_on.wait)

    daemon = threading.Thread(target=look, daemon=True)
    daemon.start()
    daemon.join()
    try:
        end_despite_hanging_calls(0)
        assert 0 in codes
    finally:
        goes_on.set()
        pools[0].shutdown()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_what_is_within_once(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    closed = []
    with ended_by_signals() as ending:
        try:
            signal.raise_signal(number)
            closed.append("not ended")
        finally:
            signal.raise_signal(signal.SIGTERM)  # a second one doesn't break off what closes
            closed.append("in order")
    assert closed == ["in order"]
    assert ending.is_asked
    assert before == [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]


def test_a_signal_is_noted_while_something_is_done_that_has_to_end() -> None:
    done = []
    with ended_by_signals() as ending:
        ending.hold(forced_code=1)
        signal.raise_signal(signal.SIGTERM)
        done.append("the line is sent")
        with pytest.raises(Terminated):
            ending.release()
        with ending.calls(lambda: done.append("never")):
            signal.raise_signal(signal.SIGTERM)
    assert done == ["the line is sent"]


def test_services_without_a_terminal_and_commands_of_nohup_ignore_a_hangup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals, "_has_terminal", lambda: False)
    with ended_by_signals(is_service=True) as ending:
        signal.raise_signal(signal.SIGHUP)
    assert not ending.is_asked
    monkeypatch.setattr(signals, "_has_terminal", lambda: True)
    with ended_by_signals(is_service=True) as ending:
        signal.raise_signal(signal.SIGHUP)
    assert ending.is_asked
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals() as ending:
            signal.raise_signal(signal.SIGHUP)
        assert not ending.is_asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_process_ends_though_the_main_thread_never_comes_back(
    monkeypatch: pytest.MonkeyPatch, codes: list[int]
) -> None:
    monkeypatch.setattr(signals, "_LONGEST_END_S", 0.01)
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with monkeypatch.context() as patched:  # within that of the fixture: what it finds there it leaves there
        patched.setattr(os, "_exit", end)
        with ended_by_signals() as ending, ending.calls(lambda: None, forced_code=lambda: 7):
            signal.raise_signal(signal.SIGTERM)
            assert ended.wait(30)
    assert codes == [7]


@pytest.mark.parametrize(
    ("command", "module"),
    [("exporter", "sparklog.exporter"), ("ui", "sparklog.exporter"), ("gateway", "sparklog.gateway.server")],
)
def test_a_signal_ends_a_service_that_is_still_being_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, module: str
) -> None:
    """✗ The process is killed by it, with another exit code than a moment later."""

    def ended_by(address: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the command goes on")

    monkeypatch.setattr(f"{module}.parse_address", ended_by)
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("no handler is set yet"))
    try:
        assert run(command, "--listen", "127.0.0.1:0", cluster=str(tmp_path)).exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, before)


# What only processes show.


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """A cluster with two topics, so that threads of a pool read them."""
    uri = str(tmp_path / "c")
    with Admin(uri) as admin:
        admin.create_topics([NewTopic("t"), NewTopic("other")])
    with Producer(uri) as producer:
        producer.send("t", b"x").get()
    return uri


@contextmanager
def started(cluster: str, *arguments: str, **how: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "sparklog", "-c", cluster, *arguments]
    with subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **how}) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def hanging(cluster: str) -> Iterator[Callable[[], None]]:
    """The next entry of a topic is never read to its end, as on a server of files that is dead; the call waits until
    somebody tries."""
    fifo = Path(cluster, "topics", "t", "_delta_log", f"{2:020}.json")
    os.mkfifo(fifo)
    ours: list[int] = []
    try:
        yield lambda: ours.append(os.open(fifo, os.O_WRONLY))  # opened by a reader, who waits for bytes now
    finally:
        for one in ours:
            os.close(one)


LISTEN = ("--listen", "127.0.0.1:0")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command", [("exporter", *LISTEN), ("top",), ("ui", *LISTEN), ("consume", "t", "-f")], ids=" ".join
)
def test_a_command_ends_in_time_while_its_first_look_hangs(
    cluster: str, command: tuple[str, ...], number: signal.Signals
) -> None:
    with hanging(cluster) as is_read, started(cluster, *command, stdout=subprocess.DEVNULL) as process:
        is_read()
        process.send_signal(number)
        if number == signal.SIGHUP and "--listen" in command:
            process.send_signal(signal.SIGTERM)  # a service without a terminal goes on
        assert process.wait(10 + 20) == 0  # ten seconds, and what a busy machine adds


@pytest.mark.slow
def test_a_member_leaves_its_group_and_has_committed_what_it_printed(cluster: str) -> None:
    with started(cluster, "consume", "t", "--group", "g", "--from-beginning", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with Admin(cluster) as admin:
        [described] = admin.describe_groups(["g"])
        assert (described.state, described.members) == (GroupState.EMPTY, ())
        assert admin.list_group_offsets("g")[TopicPartition("t", 0)].offset == 1


def test_what_is_printed_when_a_signal_comes_is_committed(cluster: str) -> None:
    """✗ Its reader has the line, and the signal comes before the next poll: the line is printed again later."""
    plan = Plan(topics=("t",), partitions=(), start=BEGINNING, follow=True, timeout_ms=None)
    seen = 0
    with ended_by_signals() as ending:
        consumer = Consumer(cluster=cluster, group_id="g", auto_offset_reset="earliest")
        with Grouped(consumer, plan, ending, commits=True) as polls:
            for records in polls:
                seen += len(records)
                signal.raise_signal(signal.SIGTERM)
    with Admin(cluster) as admin:
        assert admin.list_group_offsets("g")[TopicPartition("t", 0)].offset == seen == 1


@pytest.mark.slow
def test_lines_that_were_read_are_stored_before_the_end(cluster: str) -> None:
    with started(cluster, "produce", "t", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        with Admin(cluster) as admin:
            while admin.end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)] < 3:
                pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == b"produced 2 records to t\n"


@pytest.mark.slow
def test_a_transaction_whose_lines_were_not_read_to_the_end_is_aborted(cluster: str) -> None:
    command = ("produce", "t", "--transactional-id", "tx")
    with started(cluster, *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n" * 100_000)
        process.stdin.flush()  # more than a pipe holds: it is being read
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == b"produced 0 records to t\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", [">&-", "<&- >&- 2>&-", "| true"])
def test_closed_or_broken_output_changes_neither_what_is_done_nor_the_exit_code(cluster: str, how: str) -> None:
    def by_shell(arguments: str) -> int:
        script = f"set -o pipefail; '{sys.executable}' -m sparklog -c '{cluster}' {arguments} {how}"
        return subprocess.run(["bash", "-c", script], capture_output=True, timeout=120, check=False).returncode

    Path(cluster, "topics", "t", "_delta_log", f"{1:020}.json").write_text("nonsense")
    assert by_shell("topics create new --partitions 2") == 0
    assert "new" in run("topics", "list", cluster=cluster).stdout
    assert by_shell("check") == 1
    assert by_shell("health") == run("health", cluster=cluster).exit_code


@pytest.mark.slow
@pytest.mark.parametrize("how", [">&-", "> /dev/full", "2> /dev/full"])
def test_services_run_and_end_without_any_output(cluster: str, how: str) -> None:
    script = f"exec '{sys.executable}' -m sparklog -c '{cluster}' gateway --listen 127.0.0.1:0 {how}"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _listens(process.pid):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def _listens(pid: int) -> bool:
    """Does a process have a socket that listens?"""
    sockets = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(one))
        except OSError:
            continue
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[3] == "0A" and f"socket:[{line[9]}]" in sockets for line in listening)
