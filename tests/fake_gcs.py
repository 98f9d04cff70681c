"""Fixtures for tests on fake-gcs-server, which has the JSON API of Google Cloud Storage: the one that gcsfs speaks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.s3_server import free_port, wait_until_it_answers


def find_fake_gcs() -> str | None:
    """The program ``fake-gcs-server``, where there is one: named by FAKE_GCS_SERVER, or on the PATH."""
    return shutil.which(os.environ.get("FAKE_GCS_SERVER") or "fake-gcs-server")


@pytest.fixture(scope="session")
def fake_gcs_endpoint() -> Iterator[str]:
    """URL of a fake-gcs-server that is started for this run, and holds everything in memory."""
    with pytest.MonkeyPatch.context() as patch:
        # Else gcsfs asks Google itself by gRPC, for minutes, what kind of bucket it has; it looks as it is imported.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        pytest.importorskip("gcsfs")
    program = find_fake_gcs()
    if program is None:
        pytest.skip(
            "there is no fake-gcs-server: go install github.com/fsouza/fake-gcs-server@latest, or name one by "
            "FAKE_GCS_SERVER"
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


@pytest.fixture
def fake_gcs_options(fake_gcs_endpoint: str) -> dict[str, Any]:
    """``storage_options`` for that server by gcsfs."""
    return {"client": "fsspec", "endpoint_url": fake_gcs_endpoint, "token": "anon", "project": "sparklog-tests"}


@pytest.fixture
def fake_gcs_uri(fake_gcs_endpoint: str) -> str:
    """A root in a bucket of this test's own."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    request = urllib.request.Request(
        f"{fake_gcs_endpoint}/storage/v1/b",
        data=json.dumps({"name": bucket}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        return f"gs://{bucket}/root"
