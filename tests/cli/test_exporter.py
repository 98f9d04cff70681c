"""``sparklog exporter`` prints metrics once, or serves them until it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparklog import Admin, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.exporter import metric_names
from sparklog.log import create_topic, open_cluster
from tests.cli.support import a_cluster, done, failure
from tests.support import a_writer, append
from tests.txn.support import Driver


def test_once_prints_the_metrics() -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", "--partitions", "2", cluster=cluster)
    printed = done("exporter", "--once", cluster=cluster).splitlines()
    assert 'kafka_topic_partitions{topic="orders"} 2' in printed
    assert "sparklog_up 1" in printed
    assert {line.split("{")[0].split()[0] for line in printed if not line.startswith("#")} <= metric_names()


def test_orphans_are_counted_where_it_is_asked_for() -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)
    assert "sparklog_topic_orphan_files" not in done("exporter", "--once", cluster=cluster)
    printed = done("exporter", "--once", "--orphans-every", "24", cluster=cluster).splitlines()
    assert 'sparklog_topic_orphan_files{topic="orders"} 0' in printed


@pytest.mark.slow
def test_arrow_is_not_loaded_for_checkpoints_offsets_and_transactions(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    create_topic(cluster.topic_log("orders"), "orders")
    append(a_writer(cluster.topic_log("orders"), topic="orders"), "a", "b", "c")
    write_checkpoint(cluster.topic_log("orders"))
    for group in ("billing", "shipping"):
        Admin(cluster).alter_group_offsets(group, {TopicPartition("orders", 0): OffsetAndMetadata(1)})
    driver = Driver(cluster, "tx", topics=("orders",)).init()
    driver.begin()
    driver.send("orders", "d")
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(2)}
    driver.session.add_offsets(offsets, ConsumerGroupMetadata("shipping", 0, ""), deadline=driver.deadline)
    code = (
        "import sys; from sparklog.cli import main; "
        f"main(['-c', {str(tmp_path)!r}, 'exporter', '--once']); "
        "print('pyarrow' in sys.modules, 'numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    *printed, loaded = ran.stdout.splitlines()
    assert loaded == "False False"
    assert 'sparklog_partition_files{topic="orders",partition="0"} 1' in printed
    assert 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 2' in printed
    assert 'sparklog_consumergroup_pending_offsets{consumergroup="shipping"} 1' in printed
    assert ran.stderr == ""


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
        connection = HTTPConnection("127.0.0.1", int(line.rpartition(":")[2].partition("/")[0]), timeout=60)
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
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_store_that_hangs_is_not_up_within_two_intervals_or_five_seconds(tmp_path: Path) -> None:
    """✗ The alert never fires: the newest look that ended went well."""
    done("topics", "create", "orders", cluster=str(tmp_path))
    done("topics", "create", "other", cluster=str(tmp_path))
    command = [sys.executable, "-m", "sparklog", "-c", str(tmp_path), "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--interval", "1"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            port = int(process.stderr.readline().rpartition(":")[2].partition("/")[0])

            def shown(name: str) -> float:
                connection = HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
                connection.close()
                return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), -1.0)

            while shown("sparklog_up") != 1:
                assert process.poll() is None
            os.mkfifo(tmp_path / "topics" / "orders" / "_delta_log" / f"{1:020}.json")  # its reader waits for ever
            while shown("sparklog_up") != 0:
                assert process.poll() is None
            assert shown("sparklog_exporter_failed_looks_total") == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
