"""``sparklog exporter`` prints metrics once, or serves them until it is told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparklog.exporter import metric_names
from tests.cli.support import a_cluster, done, failure


def test_once_prints_the_metrics() -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", "--partitions", "2", cluster=cluster)
    printed = done("exporter", "--once", cluster=cluster).splitlines()
    assert 'kafka_topic_partitions{topic="orders"} 2' in printed
    assert "sparklog_up 1" in printed
    assert {line.split("{")[0].split()[0] for line in printed if not line.startswith("#")} <= metric_names()


def test_wrong_usage_is_told() -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)
    assert "expected I/N" in failure("exporter", "--shard", "3", code=2, cluster=cluster)
    assert "expected 1 to 2" in failure("exporter", "--shard", "3/2", code=2, cluster=cluster)
    assert "expected HOST:PORT" in failure("exporter", "--listen", "9308", code=2, cluster=cluster)
    assert "no sparklog cluster" in failure("exporter", "--once", cluster=a_cluster())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_comes(tmp_path: Path, number: signal.Signals) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    command = [sys.executable, "-m", "sparklog", "-c", str(tmp_path), "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        connection = HTTPConnection("127.0.0.1", int(line.rpartition(":")[2].partition("/")[0]), timeout=30)
        while True:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                break
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'kafka_topic_partitions{topic="orders"} 1\n' in text
        assert "sparklog_disk_free_bytes" in text
        process.send_signal(number)
        assert process.wait(30) == 0
