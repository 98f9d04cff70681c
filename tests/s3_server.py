"""Fixtures for tests marked ``s3``: a server of the test run's own, in memory, on the loopback."""

import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

START_TIMEOUT_S = 60
PAGE_SIZE = 100
"""How many names one answer of the server holds: a long listing is one of hundreds of objects, not of thousands."""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of an S3 server that is started for this run."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("s3_moto.py")), "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE_SIZE)}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        wait_until_it_answers(endpoint, server)
        with descriptions_read_once():
            yield endpoint
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """A port below those that systems give to connections and to whoever names none: else another process, of the many
    that tests start, might be given it before the server that this one is meant for listens."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)  # not as Hypothesis seeds, the same in two processes
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


@contextmanager
def descriptions_read_once() -> Iterator[None]:
    """Each store of the client s3fs has a botocore session of its own, which parses the description of S3: most of
    what such a store costs."""
    from botocore.loaders import JSONFileLoader  # moto's, too

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(cache(JSONFileLoader().load_file)))
        yield


def wait_until_it_answers(endpoint: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(endpoint, timeout=5):
                return
        except urllib.error.HTTPError:  # it answers: one that wants a signature refuses
            return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: exit code {server.poll()}") from error
            time.sleep(0.1)


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, Any]:
    """``storage_options`` for that server."""
    return {
        "key": "sparklog-tests",
        "secret": "not-a-secret",
        "endpoint_url": s3_endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


@pytest.fixture
def s3_uri(s3_endpoint: str) -> str:
    """A root in a bucket of this test's own."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    with urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT"), timeout=60):
        return f"s3://{bucket}/root"
