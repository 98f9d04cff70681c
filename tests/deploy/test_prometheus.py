"""A real Prometheus scrapes an exporter and a gateway, and answers what the dashboard asks."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.compaction import maintain
from sparklog.log import open_cluster
from tests.deploy.test_deploy import DASHBOARDS, panels
from tests.s3_server import free_port
from tests.support import unsequenced_file
from tests.txn.support import Driver

WAIT_S = 60.0
OF_FAILURES = {
    "Overdue transactions",  # the table; past one and a half times a time-out, 10 s at least
    "Calls of the store that failed, and races lost, a second",
}
"""Panels that are empty where all is well. All others have something to show."""
UNKNOWN_TOPIC = bytes.fromhex("00000016 0003 0001 00000002 0000 00000001 0006 6e6f73756368".replace(" ", ""))
"""Metadata of version 1 for a topic that isn't there."""
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 0000".replace(" ", ""))
NO_REQUEST = bytes.fromhex("00000004 ffffffff".replace(" ", ""))


@contextmanager
def running(*command: str | Path) -> Iterator[None]:
    with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def fill(root: Path) -> None:
    """Records, lag, a group's member-less offsets, files of another engine, and a topic that can't be read."""
    cluster = open_cluster(root)
    admin = Admin(cluster)
    admin.create_topics([NewTopic("orders", 2), NewTopic("broken"), NewTopic("foreign")])
    with Producer(cluster=cluster) as producer:
        for number in range(20):
            producer.send("orders", b"x" * number).get(60)
    maintain(cluster)
    admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(1)})
    unsequenced_file(cluster.topic_log("foreign"), "a")
    driver = Driver(cluster, "tx", topics=("orders",)).init()
    driver.begin()
    driver.send("orders", "d")
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(2)}
    driver.session.add_offsets(offsets, ConsumerGroupMetadata("shipping", 0, ""), deadline=driver.deadline)
    [entry] = (root / "topics" / "broken" / "_delta_log").glob("*.json")
    entry.write_bytes(b"{ torn")


def ask(port: int, expression: str) -> list[Any]:
    """The result of an instant query; an error where Prometheus refuses it."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=60) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 503:  # it isn't ready yet
            pytest.fail(f"{expression}: {error.read().decode()}")
        return []
    result: list[Any] = found["data"]["result"]
    return result


def send(port: int, data: bytes) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        connection.recv(1_024)


@pytest.mark.slow
def test_a_real_prometheus_has_data_for_every_panel(tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("there is no prometheus: apt-get install prometheus")
    root = tmp_path / "data"
    fill(root)
    exporter, kafka, probes, web = (free_port() for _ in range(4))
    config = tmp_path / "prometheus.yml"
    jobs = [("sparklog", exporter), ("sparklog-gateway", probes)]
    config.write_text(
        json.dumps(  # JSON is YAML
            {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [
                    {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in jobs
                ],
            }
        )
    )
    sparklog = [sys.executable, "-m", "sparklog", "-c", root]
    listen = f"127.0.0.1:{exporter}"
    with ExitStack() as started:
        for command in (
            [*sparklog, "exporter", "--listen", listen, "--interval", "1", "--orphans-every", "24"],
            [*sparklog, "gateway", "--listen", f"127.0.0.1:{kafka}", "--metrics-port", str(probes)],
            [
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{web}",
            ],
        ):
            started.enter_context(running(*command))
        asked = {
            (panel["title"], target["expr"]): re.sub(r"\$__rate_interval", "1m", target["expr"])
            for path in DASHBOARDS
            for panel in panels(path)
            for target in panel.get("targets", ())
        }
        plain = {key: re.sub(r"\$\w+", ".*", text) for key, text in asked.items()}
        until, empty = time.monotonic() + WAIT_S, set(plain)
        while {title for title, _ in empty} - OF_FAILURES and time.monotonic() < until:
            send(kafka, API_VERSIONS)
            send(kafka, UNKNOWN_TOPIC)
            send(kafka, NO_REQUEST)
            with suppress(urllib.error.URLError, ConnectionError):
                empty = {key for key in empty if not ask(web, plain[key])}
            time.sleep(0.5)
        assert {key for key in empty if key[0] not in OF_FAILURES} == set()
