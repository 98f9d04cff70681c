"""``sparklog gateway``: what it refuses, and that it serves until it is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

from tests.cli.support import a_cluster, failure


def test_listening_beyond_localhost_must_be_asked_for_by_name():
    assert "--allow-unauthenticated" in failure("gateway", "--listen", "0.0.0.0:0", cluster=a_cluster(), code=2)


def test_an_address_that_is_none_is_refused():
    assert "expected HOST:PORT" in failure("gateway", "--listen", "nowhere", cluster=a_cluster(), code=2)


def test_it_serves_until_it_is_stopped(tmp_path):
    command = [sys.executable, "-m", "sparklog", "gateway", "-c", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        found = re.fullmatch(rb"listening on 127.0.0.1:(\d+)\n", process.stdout.readline())
        assert found is not None
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=20) as client:
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            assert client.recv(4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
