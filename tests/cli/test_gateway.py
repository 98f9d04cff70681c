"""``sparklog gateway``: what it refuses, and that it serves until it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from sparklog.gateway.users import User
from tests.cli.support import a_cluster, done, failure, json_lines
from tests.gateway.test_server import Wire, batch, produce, produced


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
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=60) as client:
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            assert client.recv(4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


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
        assert process.wait(60) == 0
    assert not zone.exists() or not [*zone.iterdir()]


@contextmanager
def running(root, *options):
    """The command with a log in JSON: its process, and the addresses of clients and of probes."""
    command = [sys.executable, "-m", "sparklog", "gateway", "-c", str(root), "--listen", "127.0.0.1:0"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, "--log-format", "json", *options], **pipes, env=environment) as process:
        out: Any = process.stdout
        try:
            yield process, out.readline().split()[-1]
        finally:
            process.kill()


def ended(process):
    """The entries of its log, once it was told to end."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    return [json.loads(line) for line in log.splitlines()], log


@pytest.mark.slow
def test_the_log_has_fields_of_clients_that_were_refused_and_no_secrets(tmp_path):
    done("topics", "create", "jobs", cluster=str(tmp_path / "cluster"))
    users = tmp_path / "users"
    users.write_text(done("gateway-user", "ann", "--read", "other", "--password", "pencil"))
    options = ("--users", str(users), "--allow-plain-without-tls")
    with running(tmp_path / "cluster", *options) as (process, servers), ExitStack() as stack:
        wrong, right = Wire(servers), Wire(servers, client_id="billing")
        stack.callback(wrong.close)
        stack.callback(right.close)
        assert wrong.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
        assert wrong.call("SaslAuthenticate", 1, {"auth_bytes": b"\0eve\0s3cret"})["error_code"] == 58
        assert right.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
        assert right.call("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})["error_code"] == 0
        for _ in range(3):
            answer = right.call("Produce", 9, produce(batch(b"of nobody's business")))
            assert produced(answer)["error_code"] == 29
        groups = right.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
        assert groups["coordinators"]
        assert right.call("Heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"})["error_code"] == 30
        right.socket.sendall(b"\x7f\xff\xff\xff")
        assert right.is_closed()
        entries, log = ended(process)
    begun = entries[0]
    assert begun["message"].startswith(f"sparklog {begun['version']} (")
    assert (begun["listener"], begun["tls"], begun["asks_who_they_are"]) == (servers, False, True)
    (stranger,) = [one for one in entries if one.get("user") == "eve"]
    assert (stranger["level"], stranger["reason"]) == ("WARNING", "the name or the password is wrong")
    refused = [(one["user"], one["client_id"], one["api"], one["reason"]) for one in entries if "api" in one]
    assert refused == [
        ("ann", "billing", "Produce", "TOPIC_AUTHORIZATION_FAILED"),
        ("ann", "billing", "Heartbeat", "GROUP_AUTHORIZATION_FAILED"),
    ]
    assert [one.get("topic") or one.get("group") for one in entries if "api" in one] == ["jobs", "g"]
    (cut,) = [one for one in entries if one.get("reason") == "invalid"]
    assert "a frame of 2147483647 bytes" in cut["message"]
    assert cut["client"].startswith("127.0.0.1:")
    assert "draining" in entries[-1]["message"]
    for secret in ("pencil", "s3cret", "business"):
        assert secret not in log


@pytest.mark.slow
def test_limits_are_those_that_the_command_was_given(tmp_path):
    limits = ("--max-connections", "1", "--max-request-bytes", "2048", "--max-decompressed-bytes", "1024")
    with running(tmp_path, *limits, "--auto-create-topics") as (process, servers), ExitStack() as stack:
        first = Wire(servers)
        stack.callback(first.close)
        made = first.call("Metadata", 4, {"topics": [{"name": "jobs"}], "allow_auto_topic_creation": True})
        assert made["topics"][0]["error_code"] == 0
        second = Wire(servers)
        stack.callback(second.close)
        assert second.is_closed()
        too_large = produced(first.call("Produce", 9, produce(batch(b"a" * 2_000, codec="gzip"))))
        assert too_large["error_code"] == 10
        first.socket.sendall((2_049).to_bytes(4, "big"))
        assert first.is_closed()
        entries, _ = ended(process)
    assert [one["reason"] for one in entries if "reason" in one] == ["full", "invalid"]
