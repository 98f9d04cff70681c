"""Each alert fires where the thing happens that it is about, in real processes, and doesn't while all is well."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.compaction import maintain
from sparklog.errors import StoreError
from sparklog.log import open_cluster
from sparklog.paths import MAINTENANCE_NOTES
from tests.deploy.playing import RULES, Scrape, Span, assert_fires, assert_none_fires, scrape, scrape_when
from tests.s3_server import free_port
from tests.support import unsequenced_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR, DAY = 60, 1_440
"""In minutes."""
APPLICATION = Path(__file__).with_name("an_application.py")
LAGS = frozenset({"kafka_consumergroup_lag", "sparklog_consumergroup_lag_seconds"})
READ = frozenset({"kafka_consumergroup_current_offset"})
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 0000".replace(" ", ""))


def sparklog(root: Path | str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sparklog", "-c", str(root), *arguments]


@contextmanager
def running(*command: str, **how: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*command], text=True, **{"stdin": subprocess.DEVNULL, **how}) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def write_nothing_more(process: subprocess.Popen[str]) -> None:
    """Have each write of a process to a file fail from now on, as on a disk that is full or beyond a quota."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@contextmanager
def an_exporter(root: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An exporter that looks every second, and its port."""
    command = sparklog(root, "exporter", "--listen", "127.0.0.1:0", "--interval", "1", "--log-level", "error")
    with running(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        yield process, int(process.stderr.readline().rpartition(":")[2].partition("/")[0])


class Application:
    """A process with a producer and consumers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._told, self._answers = process.stdin, process.stdout
        self.port = int(self._answers.readline())

    def does(self, *statements: str) -> None:
        self._told.write(json.dumps("\n".join(statements)) + "\n")
        self._told.flush()
        assert self._answers.readline() == "done\n"


class Site:
    """A cluster that is well, with an application and an exporter."""

    def __init__(self, root: Path, port: int, application: Application) -> None:
        self.root = root
        self.port = port
        self.application = application
        self.healthy = self.shows(lambda seen: seen["sparklog_up"] == 1 and seen["sparklog_topic_info"] > 0)
        self.healthy_later = scrape(port, "sparklog")

    def well(self, minutes: int) -> list[Span]:
        return [Span(first=self.healthy, then=self.healthy_later, minutes=minutes)]

    def shows(self, is_so: Callable[[Scrape], bool]) -> Scrape:
        return scrape_when(self.port, "sparklog", is_so)

    def topic(self, name: str, records: int, **configs: str) -> None:
        with Admin(self.root) as admin:
            admin.create_topics([NewTopic(name, configs=configs)])
        self.application.does(f"for _ in range({records}): producer.send({name!r}, b'x').get(60)")


def a_cluster(root: Path) -> Path:
    """A cluster with a topic, a group that has read everything, and a run of maintenance."""
    cluster = open_cluster(root)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("well")])
        with Producer(cluster=cluster) as producer:
            producer.send("well", b"x").get(60)
        admin.alter_group_offsets("well", {TopicPartition("well", 0): OffsetAndMetadata(1)})
    maintain(cluster)
    return root


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = a_cluster(tmp_path_factory.mktemp("site") / "c")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [RULES.parents[2], *sys.path]))}
    command = [sys.executable, str(APPLICATION), str(root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    with running(*command, **pipes) as process, an_exporter(root) as (_, port):
        yield Site(root, port, Application(process))


def test_no_alert_fires_while_all_is_well(here: Site) -> None:
    assert_none_fires(here.well(2 * DAY - HOUR))


def test_a_group_that_falls_behind(here: Site) -> None:
    here.topic("grows", 1)
    with Admin(here.root) as admin:
        admin.alter_group_offsets("slow", {TopicPartition("grows", 0): OffsetAndMetadata(0)})
    first = here.shows(lambda seen: seen.of("kafka_consumergroup_lag", consumergroup="slow") == 1)
    here.application.does("producer.send('grows', b'x').get(60)")
    then = here.shows(lambda seen: seen.of("kafka_consumergroup_lag", consumergroup="slow") == 2)
    sick = [Span(first=first, then=then, minutes=40, growing=LAGS)]
    assert_fires("SparklogLagGrowing", {"consumergroup": "slow"}, healthy=here.well(40), sick=sick)


def test_a_member_that_hangs_in_a_handler_and_one_that_reads_another_topic_by_now(here: Site) -> None:
    here.topic("stalls", 9)
    with Admin(here.root) as admin:
        admin.alter_group_offsets("moved", {TopicPartition("stalls", 0): OffsetAndMetadata(1)})
    here.application.does(
        "moved = Consumer('well', cluster=cluster, group_id='moved', enable_auto_commit=False)", "join(moved)"
    )
    here.application.does(
        "stalled = Consumer('stalls', cluster=cluster, group_id='stalled', auto_offset_reset='earliest', "
        "enable_auto_commit=False, max_poll_records=1)",
        "records_of(stalled, commits=True)",
    )
    first = here.shows(
        lambda seen: (
            seen.of("kafka_consumergroup_current_offset", consumergroup="stalled") == 1
            and seen.of("kafka_consumergroup_members", consumergroup="stalled") == 1
        )
    )
    here.application.does("records_of(stalled, commits=True)")
    then = here.shows(
        lambda seen: (
            seen.of("kafka_consumergroup_current_offset", consumergroup="stalled") == 2
            and seen.of("kafka_consumergroup_members", consumergroup="moved") == 1
        )
    )
    assert then.of("kafka_consumergroup_lag", consumergroup="stalled") == 7
    reads = Span(first=first, then=then, minutes=30, growing=READ)
    hangs = Span(first=then, minutes=30)
    labels, moved = {"consumergroup": "stalled"}, {"consumergroup": "moved"}
    assert_fires("SparklogConsumerStalled", labels, healthy=[reads], sick=[hangs], never=moved)


def test_a_member_that_is_stuck_at_its_first_record_and_one_that_waits_for_it(here: Site) -> None:
    here.topic("begins", 3)
    here.application.does(
        "stuck, waits = [Consumer('begins', cluster=cluster, group_id=group, auto_offset_reset=reset, "
        "enable_auto_commit=False) for group, reset in (('stuck', 'earliest'), ('waits', 'latest'))]",
        "records_of(stuck, commits=False)",
        "join(waits)",
    )

    def is_seen(found: Scrape) -> bool:
        return all(found.of("kafka_consumergroup_members", consumergroup=name) for name in ("stuck", "waits"))

    seen = here.shows(is_seen)
    assert_fires(
        "SparklogConsumerNeverCommitted",
        {"consumergroup": "stuck", "topic": "begins"},
        healthy=here.well(30),
        sick=[Span(first=seen, minutes=30)],
        never={"consumergroup": "waits"},
    )


def test_maintenance_that_is_due_for_a_day(here: Site) -> None:
    here.topic("due", 1, **{"retention.ms": "1"})
    seen = here.shows(lambda seen: seen.of("sparklog_topic_maintenance_due", topic="due", step="retention") == 1)
    due = [Span(first=seen, minutes=DAY + 5)]
    labels = {"topic": "due", "step": "retention"}
    assert_fires("SparklogMaintenanceOverdue", labels, healthy=here.well(DAY + 5), sick=due)


def test_maintenance_that_does_not_run_any_more_or_never_ran(here: Site) -> None:
    notes = here.root / MAINTENANCE_NOTES
    three_days_ago = time.time() - 3 * 86_400
    os.utime(notes, (three_days_ago, three_days_ago))
    healthy = here.healthy["sparklog_maintenance_timestamp_seconds"]
    seen = here.shows(lambda seen: 0 < seen["sparklog_maintenance_timestamp_seconds"] < healthy - 86_400)
    stopped = [Span(first=seen, minutes=2 * HOUR)]
    assert_fires("SparklogMaintenanceNotRunning", healthy=here.well(2 * HOUR), sick=stopped)
    notes.unlink()
    seen = here.shows(lambda seen: not seen["sparklog_maintenance_timestamp_seconds"])
    assert_fires("SparklogMaintenanceNotRunning", healthy=here.well(2 * HOUR), sick=[Span(first=seen, minutes=90)])


def test_maintenance_that_fails_again_and_again(here: Site) -> None:
    here.topic("damaged", 3)
    path = next((here.root / "topics" / "damaged" / "_delta_log").glob(f"*{1:020}.json"))
    path.write_bytes(path.read_bytes()[:-40])
    sick = []
    for number in (1, 2, 3):
        ran = subprocess.run(sparklog(here.root, "maintain", "--topics", "damaged"), capture_output=True, timeout=300)
        assert ran.returncode != 0
        seen = here.shows(
            lambda seen, number=number: (  # type: ignore[misc]
                seen.of("sparklog_topic_maintenance_failed_runs_total", topic="damaged") == number
            )
        )
        sick.append(Span(first=seen, minutes=10))
    healthy = [*here.well(HOUR), *sick[:1]]
    assert_fires("SparklogMaintenanceFailing", {"topic": "damaged"}, healthy=healthy, sick=sick[1:])


def test_a_setting_that_maintenance_does_not_understand(here: Site) -> None:
    here.topic("garbled", 1)
    folder = here.root / "topics" / "garbled" / "_delta_log"
    [metadata] = [
        action
        for line in (folder / f"{0:020}.json").read_text().splitlines()
        if "metaData" in (action := json.loads(line))
    ]
    metadata["metaData"]["configuration"]["sparklog.retention.ms"] = "a week"
    (folder / f"{2:020}.json").write_text(json.dumps(metadata) + "\n")  # as SQL of another engine does
    seen = here.shows(lambda seen: seen.of("sparklog_topic_maintenance_blocked", topic="garbled") == 1)
    blocked = [Span(first=seen, minutes=20)]
    assert_fires("SparklogMaintenanceBlocked", {"topic": "garbled"}, healthy=here.well(20), sick=blocked)


def test_a_transaction_that_nobody_ends(here: Site) -> None:
    here.topic("decided", 1)
    here.application.does(
        "hanging = Producer(cluster, transactional_id='tx', transaction_timeout_ms=1000)",
        "hanging.init_transactions()",
        "hanging.begin_transaction()",
        "hanging.send('decided', b'x')",
        "hanging.send_offsets_to_transaction({TopicPartition('decided', 0): OffsetAndMetadata(1)}, "
        "ConsumerGroupMetadata('waiting', 0, ''))",
    )
    seen = here.shows(lambda seen: seen.of("sparklog_transaction_overdue", transactional_id="tx") == 1)
    hangs = [Span(first=seen, minutes=20)]
    assert_fires("SparklogTransactionUndecided", {"transactional_id": "tx"}, healthy=here.well(20), sick=hangs)


def test_a_topic_that_cannot_be_read(here: Site) -> None:
    here.topic("torn", 1)
    (here.root / "topics" / "torn" / "_delta_log" / f"{2:020}.json").write_text("{ torn")
    seen = here.shows(lambda seen: seen.of("sparklog_unreadable", kind="topic", name="torn") == 1)
    assert_fires("SparklogUnreadable", {"name": "torn"}, healthy=here.well(10), sick=[Span(first=seen, minutes=10)])


def test_files_of_another_engine_without_offsets(here: Site) -> None:
    here.topic("foreign", 1)
    unsequenced_file(open_cluster(here.root).topic_log("foreign"), "a")
    seen = here.shows(lambda seen: seen.of("sparklog_topic_unsequenced_files", topic="foreign") == 1)
    waits = [Span(first=seen, minutes=70)]
    assert_fires("SparklogFilesWithoutOffsets", {"topic": "foreign"}, healthy=here.well(70), sick=waits)


def test_commits_of_an_application_that_fail(here: Site) -> None:
    """The last one here: the application can't write any more."""
    here.topic("orders", 3)

    def seen() -> Scrape:
        return scrape(here.application.port, "shop")

    begins = seen()
    here.application.does("for _ in range(5): producer.send('orders', b'x').get(60)")
    healthy = Span(first=begins, then=(works := seen()), minutes=40)
    assert works["sparklog_store_requests_total"] > begins["sparklog_store_requests_total"]
    write_nothing_more(here.application.process)
    here.application.does(
        "try:",
        "    producer.send('orders', b'x').get(60)",
        "except SparklogError as error:",
        "    failed = error",
        "assert failed",
    )
    fails = Span(first=works, then=seen(), minutes=40)
    assert_fires("SparklogStoreRequestsFailing", {"client_id": "shop"}, healthy=[healthy], sick=[fails])


def test_a_store_that_stumbles_one_that_hangs_and_an_exporter_that_is_gone(tmp_path: Path) -> None:
    root = a_cluster(tmp_path / "c")
    with Admin(root) as admin:
        admin.create_topics([NewTopic("other")])  # two topics: read side by side

    with an_exporter(root) as (process, port):

        def shows(is_so: Callable[[Scrape], bool]) -> Scrape:
            return scrape_when(port, "sparklog", is_so)

        first = shows(lambda seen: seen["sparklog_up"] == 1)
        well = Span(first=first, then=scrape(port, "sparklog"), minutes=40)
        for number in (1, 2):
            root.rename(tmp_path / "away")
            shows(lambda seen, number=number: seen["sparklog_exporter_failed_looks_total"] >= number)  # type: ignore[misc]
            (tmp_path / "away").rename(root)
            then = shows(lambda seen: seen["sparklog_up"] == 1)
        stumbles = Span(first=first, then=then, minutes=40)
        assert_fires("SparklogStoreErrors", healthy=[well], sick=[stumbles])

        os.mkfifo(root / "topics" / "other" / "_delta_log" / f"{1:020}.json")  # its reader waits for ever
        first = shows(lambda seen: seen["sparklog_up"] == 0)
        hangs = Span(
            first=first,
            then=shows(lambda seen: seen.at_s > first.at_s + 1),
            minutes=30,
            growing=frozenset({"sparklog_exporter_look_age_seconds"}),
        )
        assert_fires("SparklogStoreUnavailable", healthy=[well], sick=[hangs])
        assert_fires("SparklogFiguresOld", healthy=[well], sick=[hangs])

        process.kill()
        process.wait()
        gone = Span(first=shows(lambda seen: not seen["up"]), minutes=10)
        assert_fires("SparklogExporterDown", healthy=[well], sick=[gone])


@pytest.mark.parametrize("options", ["size=2m", "size=64m,nr_inodes=400"], ids=["bytes", "i-nodes"])
def test_a_disk_that_is_nearly_full(tmp_path: Path, options: str) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(tmp_path)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a file system")
    try:
        root = a_cluster(tmp_path / "c")
        with an_exporter(root) as (_, port):
            first = scrape_when(port, "sparklog", lambda seen: seen["sparklog_up"] == 1)
            value = os.urandom(50_000) if "inodes" not in options else b"x"
            with suppress(StoreError), Producer(root, linger_ms=0) as producer:
                while True:
                    producer.send("well", value).get(60)

            def is_full(seen: Scrape) -> bool:
                bytes_left = seen["sparklog_disk_free_bytes"] / seen["sparklog_disk_size_bytes"]
                return min(bytes_left, seen["sparklog_disk_free_inodes"] / seen["sparklog_disk_inodes"]) < 0.1

            full = scrape_when(port, "sparklog", is_full)
            healthy = [Span(first=first, minutes=20)]
            assert_fires("SparklogDiskNearlyFull", healthy=healthy, sick=[Span(first=full, minutes=20)])
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@contextmanager
def a_gateway(root: str, *, files: int = 1_024) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A gateway that may open so many files, its port, and that of its metrics."""
    port, probes = free_port(), free_port()
    command = sparklog(root, "gateway", "--listen", f"127.0.0.1:{port}", "--metrics-port", str(probes))
    limited = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", *command]
    with running(*limited, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening")
        yield process, port, probes


def ask(connection: socket.socket) -> bytes:
    connection.sendall(API_VERSIONS)
    return connection.recv(4_096)


def test_a_gateway_that_is_full_held_up_fails_and_is_gone(tmp_path: Path) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    root = a_cluster(tmp_path / "c")
    with a_gateway(str(root), files=200) as (process, port, probes), ExitStack() as connections:

        def connect() -> socket.socket:
            return connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))

        def shows(is_so: Callable[[Scrape], bool]) -> Scrape:
            return scrape_when(probes, "sparklog-gateway", is_so)

        client = connect()
        assert ask(client)
        first = shows(lambda seen: seen["sparklog_gateway_connections"] == 1)
        assert ask(client)
        well = Span(first=first, then=shows(lambda seen: seen.at_s > first.at_s), minutes=40)
        bound = int(first["sparklog_gateway_connections_max"])
        assert bound < 200

        for _ in range(bound - 1):
            assert ask(connect())
        assert ask(client), "whoever is connected is served"
        refused = connect()
        with suppress(ConnectionError):
            assert refused.recv(1) == b"", "a further client is disconnected at once"
        full = shows(lambda seen: seen["sparklog_gateway_connections"] == bound)
        assert_fires("SparklogGatewayNearlyFull", healthy=[well], sick=[Span(first=full, minutes=10)])

        connections.close()
        shows(lambda seen: seen["sparklog_gateway_connections"] == 0)
        large = (100_000_000).to_bytes(4, "big") + bytes.fromhex("0000 0009 00000001".replace(" ", ""))
        for _ in range(3):
            connect().sendall(large)  # and nothing more: 300 MB of the 256 MiB there are
        waits = shows(lambda seen: seen["sparklog_gateway_connections_waiting"] > 0)
        assert_fires("SparklogGatewayHeldUp", healthy=[well], sick=[Span(first=waits, minutes=10)])
        connections.close()

        first = shows(lambda seen: seen["sparklog_gateway_connections_waiting"] == 0)
        outcomes: list[object] = []
        kafka = confluent.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "retries": 0, "linger.ms": 0})

        def send() -> None:
            kafka.produce("well", b"x", on_delivery=lambda error, _: outcomes.append(error and error.name()))
            kafka.flush(60)

        send()
        works = shows(lambda seen: seen.of("sparklog_gateway_requests_total", api="Produce") == 1)
        write_nothing_more(process)
        for _ in range(3):
            send()
        assert outcomes == [None, *["KAFKA_STORAGE_ERROR"] * 3]
        fails = shows(lambda seen: seen.of("sparklog_gateway_requests_total", api="Produce") == 4)
        assert fails["sparklog_store_errors_total"] >= 3
        stored = Span(first=first, then=works, minutes=30)
        assert_fires("SparklogGatewayErrors", healthy=[stored], sick=[Span(first=works, then=fails, minutes=30)])

        process.kill()
        process.wait()
        gone = Span(first=shows(lambda seen: not seen["up"]), minutes=10)
        assert_fires("SparklogGatewayDown", healthy=[well], sick=[gone])


def test_a_gateway_whose_store_has_been_away_since_it_was_started(tmp_path: Path) -> None:
    root = a_cluster(tmp_path / "c")
    with a_gateway(str(root)) as (_, _, probes):
        first = scrape_when(probes, "sparklog-gateway", lambda seen: seen["sparklog_gateway_cluster_open"] == 1)
    (root / "cluster.json").unlink()
    os.mkfifo(root / "cluster.json")  # its reader waits for ever
    with a_gateway(str(root)) as (_, _, probes):
        away = scrape_when(probes, "sparklog-gateway", lambda seen: seen["up"] == 1)
        assert away.of("sparklog_gateway_cluster_open") == 0
        spans = [Span(first=first, minutes=10)], [Span(first=away, minutes=10)]
        assert_fires("SparklogGatewayDown", healthy=spans[0], sick=spans[1])
