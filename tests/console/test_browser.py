"""A real browser shows the pages: no error in its console, what is live comes, hostile records run nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.admin import Admin
from sparklog.producer import Producer

pytestmark = pytest.mark.slow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = b"<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a console of a cluster with hostile records answers."""
    if BROWSER is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    cluster = tmp_path / "cluster"
    Admin(cluster).create_topics(["orders"])
    with Producer(cluster=cluster) as producer:
        for _ in range(3):
            producer.send("orders", HOSTILE, key=HOSTILE, headers=[("<b>", HOSTILE)]).get(30)
    command = [sys.executable, "-m", "sparklog", "-c", str(cluster), "ui", "--listen", "127.0.0.1:0", "--interval", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().removeprefix("open ").rstrip("/\n")
        finally:
            process.terminate()


def shown(address: str, path: str, folder: Path) -> tuple[str, str]:
    """What the browser has made of a page after some seconds, and what its console said."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom", f"{address}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    said = "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    return done.stdout, said


def test_pages_are_whole_and_run_nothing_of_records(address: str, tmp_path: Path) -> None:
    for path, expected in (
        ("/", "orders"),
        ("/topics/orders", "<canvas"),  # the chart was drawn
        ("/topics/orders/records", "3 records found"),
        ("/topics/orders/records/0/0", "Headers"),
        ("/sql?q=select%20key%20from%20orders", "3 rows"),
    ):
        page, said = shown(address, path, tmp_path / "profile")
        assert expected in page, path
        assert said == "", path
        assert "<title>ran" not in page
    assert 'data-for="offset" hidden=""' in shown(address, "/topics/orders/records", tmp_path / "profile")[0]
