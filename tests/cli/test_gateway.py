"""``sparklog gateway``: what it refuses, and that it serves until it is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

from sparklog.gateway.users import User
from tests.cli.support import a_cluster, done, failure, json_lines


def test_listening_beyond_localhost_must_be_asked_for_by_name():
    assert "--allow-unauthenticated" in failure("gateway", "--listen", "0.0.0.0:0", cluster=a_cluster(), code=2)


def test_an_address_that_is_none_is_refused():
    assert "expected HOST:PORT" in failure("gateway", "--listen", "nowhere", cluster=a_cluster(), code=2)


def test_a_zone_needs_an_address_that_clients_can_be_told():
    open_to_all = ("gateway", "--listen", "0.0.0.0:0", "--allow-unauthenticated", "--zone", "eu-1a")
    assert "needs --advertise" in failure(*open_to_all, cluster=a_cluster(), code=2)
    assert "invalid zone" in failure("gateway", "--zone", "eu,1a", cluster=a_cluster(), code=2)
    assert "invalid address" in failure(
        "gateway", "--zone", "a", "--advertise", "one two:9092", cluster=a_cluster(), code=2
    )


def test_files_of_security_are_looked_at_first(tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing")
    listen = ("gateway", "--listen", "127.0.0.1:0")
    assert "line 1" in failure(*listen, "--users", str(wrong), cluster=a_cluster(), code=2)
    assert "--users or --tls-*" in failure(*listen, "--tls-cert", str(wrong), cluster=a_cluster(), code=2)
    assert "need --tls-cert" in failure(*listen, "--tls-key", str(wrong), cluster=a_cluster(), code=2)


def test_a_users_line_can_be_read_back():
    found = User.from_json(done("gateway-user", "ann", "--read", "a*", "--read", "b", "--admin", "--password", "pen"))
    assert (found.name, found.rules.read, found.rules.write, found.rules.admin) == ("ann", ("a*", "b"), (), True)


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


def test_users_in_the_store_are_added_listed_changed_and_removed():
    cluster = a_cluster()
    done("topics", "create", "jobs", cluster=cluster)
    assert "no users are in" in failure("gateway", "--users", "store", "--listen", "127.0.0.1:0", cluster=cluster)
    add = ("gateway-users", "add", "ann")
    done(*add, "--read", "a*", "--read", "b", "--admin", cluster=cluster, input="pencil\n")
    assert "there is a user 'ann'" in failure(*add, cluster=cluster, input="pencil\n")
    assert "No password" in failure("gateway-users", "add", "bob", cluster=cluster, input="", code=2)
    (found,) = json_lines(done("gateway-users", "list", "--json", cluster=cluster))
    assert (found["user"], found["hashes"]) == ("ann", ["SHA-256", "SHA-512"])
    assert (found["read"], found["write"], found["admin"]) == (["a*", "b"], [], True)
    done("gateway-users", "passwd", "ann", cluster=cluster, input="apple\n")
    done("gateway-users", "rules", "ann", "--write", "jobs", cluster=cluster)
    assert done("gateway-users", "list", cluster=cluster).split()[-4:] == ["ann", "SHA-256,", "SHA-512", "jobs"]
    assert "--yes" in failure("gateway-users", "remove", "ann", cluster=cluster, code=2)
    done("gateway-users", "remove", "ann", "--yes", cluster=cluster)
    assert "no user 'ann'" in failure("gateway-users", "remove", "ann", "--yes", cluster=cluster)
    assert "no user 'ann'" in failure("gateway-users", "passwd", "ann", cluster=cluster, input="pear\n")


def test_a_gateway_with_a_zone_is_known_until_it_is_stopped(tmp_path):
    command = [sys.executable, "-m", "sparklog", "gateway", "-c", str(tmp_path), "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, "--zone", "eu-1a"], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip().rpartition(":")[2]
        zone = tmp_path / "gateways" / "eu-1a"
        assert [file.name for file in zone.iterdir()] == [f"127.0.0.1%3A{port}"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not zone.exists() or not [*zone.iterdir()]
