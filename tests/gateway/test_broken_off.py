"""Requests that break off give their memory back at once: nothing waits for the interpreter to look for circles."""

from __future__ import annotations

import gc
import socket
import struct
import time

import pytest

import sparklog.gateway
from sparklog.gateway.connection import Connection
from sparklog.gateway.frame_reader import FrameReader
from sparklog.gateway.server import parse_address

BODY = 1_000_000
HALF = struct.pack(">ihhihi", BODY, 0, 9, 1, -1, 0)
TOO_MANY = struct.pack(">ihhih", 60_000, 3, 1, 1, -1) + struct.pack(">i", 16_000) + b"\0\1a" * 16_000
CASES = {
    "half a request": HALF + bytes(500_000),
    "a few bytes of a large one": struct.pack(">ihhihi", 50_000_000, 0, 9, 1, -1, 0) + bytes(300_000),
    "too many elements": TOO_MANY + bytes(60_004 - len(TOO_MANY)),
    "not the protocol": b"GET / HTTP/1.1\r\n\r\n",
    "one whole request before": struct.pack(">ihhih", 10, 18, 0, 1, -1) + HALF + bytes(500_000),
}


def left() -> list[object]:
    """Connections and readers that are still there."""
    return [one for one in gc.get_objects() if isinstance(one, Connection | FrameReader)]


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("sent", CASES.values(), ids=CASES)
def test_nothing_is_left_of_a_request_that_breaks_off(no_collection, sent: bytes, is_reset: bool) -> None:
    """✗ 300 connections left 1.1 GB in circles of a task, its error, its frames and its connection."""
    with sparklog.gateway.serve("memory://broken-off") as servers:
        for _ in range(3):
            client = socket.create_connection(parse_address(servers), timeout=60)
            client.sendall(sent)
            time.sleep(0.1)
            if is_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        until = time.monotonic() + 10
        while left() and time.monotonic() < until:
            time.sleep(0.1)
        assert len(left()) == 0  # no more: a list of them in a failure would keep them for the tests that follow
