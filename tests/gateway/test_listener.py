"""Connections count from their acceptance, a TLS handshake has a time limit, and no open file to spare fills no log."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from contextlib import contextmanager

import pytest

import sparklog.gateway
from sparklog.gateway import server as server_module
from sparklog.gateway.listener import Listener, bound_sockets
from sparklog.gateway.repeats import Repeats
from sparklog.gateway.server import parse_address, tls_context
from tests.gateway.test_security import certificate
from tests.gateway.test_server import Wire

__all__ = ["certificate"]


def connected(servers: str) -> socket.socket:
    return socket.create_connection(parse_address(servers), timeout=60)


def is_ended(client: socket.socket, within_s: float = 60) -> bool:
    client.settimeout(within_s)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.timeout(240)
def test_clients_that_begin_no_handshake_count(tmp_path, certificate, caplog) -> None:
    """✗ 800 silent connections to a gateway of 100: 809 open files."""
    tls = tls_context(certificate)
    with sparklog.gateway.serve("memory://listener-tls", tls=tls, max_connections=2) as servers:
        silent = [connected(servers) for _ in range(2)]
        assert not is_ended(silent[0], 0.5)
        refused = [connected(servers) for _ in range(5)]
        assert all(map(is_ended, refused))
        for client in [*silent, *refused]:
            client.close()
    told = [text for text in caplog.messages if "was refused" in text]
    assert 1 <= len(told) <= 3
    assert "2 connections are open" in told[0]


@pytest.mark.timeout(240)
def test_a_handshake_has_a_time_limit(certificate, monkeypatch, caplog) -> None:
    monkeypatch.setattr(server_module, "_HANDSHAKE_S", 0.3)
    tls = tls_context(certificate)
    with (
        caplog.at_level(logging.INFO, "sparklog.gateway"),
        sparklog.gateway.serve("memory://listener-late", tls=tls, max_connections=1) as servers,
    ):
        for _ in range(2):  # the place of the first is free again
            silent = connected(servers)
            assert is_ended(silent)
            silent.close()
            time.sleep(0.2)
    assert [text for text in caplog.messages if "handshake failed" in text]


@contextmanager
def no_file_to_spare():
    """The process has as many open files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    while (free := os.open(os.devnull, os.O_RDONLY)) < 1_000 and len(held) < 100:
        held.append(free)
    held.append(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_without_an_open_file_clients_are_disconnected_at_once(certificate, caplog, is_encrypted) -> None:
    """✗ asyncio wrote a trace for each client that waited, as fast as it could, and nobody was disconnected."""
    tls = tls_context(certificate) if is_encrypted else None
    with sparklog.gateway.serve("memory://listener-files", tls=tls) as servers:
        clients = [socket.socket() for _ in range(20)]
        with no_file_to_spare():
            for client in clients:
                client.settimeout(60)
                client.connect(parse_address(servers))
            assert all(map(is_ended, clients))
        for client in clients:
            client.close()
        if not is_encrypted:
            again = Wire(servers)
            assert again.call("ApiVersions", 0, {})["error_code"] == 0
            again.close()
    assert not [text for text in caplog.messages if "out of system resource" in text]
    told = [text for text in caplog.messages if "clients were disconnected" in text or "no client is accepted" in text]
    assert 1 <= len(told) <= 10  # of each kind one a second


@pytest.mark.parametrize("turns", range(6))
def test_no_accepted_connection_is_lost_by_closing(monkeypatch, turns) -> None:
    """✗ What asyncio had accepted when the listener was closed stayed open until it was collected."""
    accepted: list[socket.socket] = []
    accept = socket.socket.accept

    def noting(listening: socket.socket) -> tuple[socket.socket, object]:
        client, address = accept(listening)
        accepted.append(client)
        return client, address

    async def closed_while_a_client_connects() -> list[socket.socket]:
        taken: list[socket.socket] = []
        sockets = bound_sockets("127.0.0.1", 0)
        listener = Listener(sockets, taken.append, lambda: None, lambda: None, Repeats())
        await asyncio.sleep(0.01)  # it waits for clients now
        client = socket.create_connection(sockets[0].getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        client.close()
        return taken

    monkeypatch.setattr(socket.socket, "accept", noting)
    taken = asyncio.run(closed_while_a_client_connects())
    assert taken == accepted
    for client in accepted:
        client.close()
