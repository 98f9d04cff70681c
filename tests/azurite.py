"""Fixtures for tests on Azurite, Microsoft's emulator of Azure Blob Storage: npm's package ``azurite``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import free_port, wait_until_it_answers

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Every Azurite has this account and this key."""


def find_azurite() -> str | None:
    """The program ``azurite-blob``, where there is one: named by AZURITE, or on the PATH."""
    return shutil.which(os.environ.get("AZURITE") or "azurite-blob")


@pytest.fixture(scope="session")
def azurite_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the account at an Azurite that is started for this run."""
    pytest.importorskip("obstore")
    program = find_azurite()
    if program is None:
        pytest.skip("there is no Azurite: npm install -g azurite, or name azurite-blob by AZURITE")
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("azurite")
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    server = subprocess.Popen([program, *options, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def azure_options(azurite_endpoint: str) -> dict[str, Any]:
    """``storage_options`` for that server."""
    return {"account_name": ACCOUNT, "account_key": KEY, "endpoint_url": azurite_endpoint}


@pytest.fixture
def azure_uri(azurite_endpoint: str) -> str:
    """A root in a container of this test's own."""
    container = f"container-{uuid.uuid4().hex}"
    create_container(azurite_endpoint, container)
    return f"az://{container}/root"


def create_container(endpoint: str, container: str) -> None:
    """Source: Microsoft's documentation of "Authorize with Shared Key" and "Create Container"."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in sorted(headers.items()))]
    signed = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"{endpoint}/{container}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers={**headers, "Content-Length": "0"})
    with urllib.request.urlopen(request, timeout=60):
        pass
