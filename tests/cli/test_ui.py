"""``sparklog ui`` serves until it is told to end, and doesn't begin where it would be open to all by accident."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparklog.console import parse_users
from tests.cli.support import a_cluster, done, failure


@contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def test_wrong_usage_is_told(tmp_path: Path) -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)
    users = tmp_path / "users"
    users.write_text("ann:plain\n")
    assert "expected HOST:PORT" in failure("ui", "--listen", "8080", code=2, cluster=cluster)
    for listen in (":8080", "0.0.0.0:8080", "10.1.2.3:0", "[::]:0"):
        assert "--allow-unauthenticated" in failure("ui", "--listen", listen, code=2, cluster=cluster)
    assert "--users FILE" in failure("ui", "--allow-writes", code=2, cluster=cluster)
    assert "line 1" in failure("ui", "--users", users, code=2, cluster=cluster)
    assert "expected TOPIC=SCHEMA" in failure("ui", "--value-schema", "orders.avsc", code=2, cluster=cluster)
    (tmp_path / "a.avsc").write_text("no JSON")
    assert "orders: " in failure("ui", "--value-schema", f"orders={tmp_path / 'a.avsc'}", code=2, cluster=cluster)
    assert "no sparklog cluster" in failure("ui", cluster=a_cluster())


@pytest.mark.slow
def test_a_line_of_a_users_file_is_made() -> None:
    line = done("ui", "--hash-password", input="ann\npw\npw\n")
    assert [*parse_users(line)] == ["ann"]
    assert "pw" not in line.replace("scrypt", "")[:4]
    failure("ui", "--hash-password", input="a:b\n", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_comes(tmp_path: Path, number: signal.Signals) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    command = [sys.executable, "-m", "sparklog", "-c", str(tmp_path), "ui", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, killed_at_last(process):
        assert process.stderr is not None
        address = process.stderr.readline().removeprefix("open http://").rstrip("/\n")
        connection = HTTPConnection(address, timeout=60)
        connection.request("GET", "/")
        assert "orders" in connection.getresponse().read().decode()
        tail = HTTPConnection(address, timeout=60)  # one who follows a topic doesn't keep it from ending
        tail.request("GET", "/topics/orders/tail")
        assert tail.getresponse().readline() == b"event: begun\n"
        process.send_signal(number)
        assert process.wait(60) == 0
        connection.close()
        tail.close()
