"""Kafka's own tools, as their scripts run them, and Kafka Connect: each step must succeed and say what is expected."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.compat.gateways import running_gateway
from proof.compat.outcomes import FAILED, PASSED, Expectations, Outcome
from proof.compat.sources import maven_jars, needed_tool
from proof.compat.versions import KAFKA_TOOLS_JARS

__all__ = ["KafkaTools"]

_STEP_S = 120
_RECORDS = 1_000
_TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class Step:
    """A tool that is run, after those before it."""

    name: str
    main: str
    """Its class."""
    arguments: str
    expected: str
    """A regular expression that is in what it prints."""
    given: str = ""
    """What it reads."""
    code: int = 0
    """How it ends."""


_LINES = "".join(f"{number}\n" for number in range(20))
_DELETED = '{"partitions": [{"topic": "tools", "partition": 0, "offset": 1}], "version": 1}'
_CONSUMED = r'"name":"records_consumed".*"count":\d+'
_STEPS = (
    Step("topics-create", f"{_TOOLS}.TopicCommand", "--create --topic tools --partitions 1", "Created topic tools"),
    Step("topics-list", f"{_TOOLS}.TopicCommand", "--list", r"^tools$"),
    Step("console-producer", f"{_TOOLS}.ConsoleProducer", "--topic tools", "", given=_LINES),
    Step(
        "console-consumer",
        f"{_TOOLS}.consumer.ConsoleConsumer",
        "--topic tools --from-beginning --max-messages 20 --timeout-ms 60000 --group console",
        r"(?s)(?=.*^0$)(?=.*^19$).*Processed a total of 20 messages",
    ),
    Step(
        "verifiable-producer",
        f"{_TOOLS}.VerifiableProducer",
        f"--topic tools --max-messages {_RECORDS} --throughput -1",
        rf'"sent":{_RECORDS},"acked":{_RECORDS}',
    ),
    Step(
        "verifiable-consumer-classic",
        f"{_TOOLS}.VerifiableConsumer",
        f"--topic tools --group-id classic --max-messages {_RECORDS + 20}",
        _CONSUMED,
    ),
    Step(
        "verifiable-consumer-848",
        f"{_TOOLS}.VerifiableConsumer",
        f"--topic tools --group-id modern --group-protocol consumer --max-messages {_RECORDS + 20}",
        _CONSUMED,
    ),
    Step("groups-list", f"{_TOOLS}.GroupsCommand", "--list", r"^console\s+Classic\s+consumer"),
    Step(
        "groups-describe",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
        "--describe --group classic",
        r"^classic\s+tools\s+0\s+\d+\s+\d+\s+0\b",
    ),
    Step(
        "groups-reset",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
        "--group console --topic tools --reset-offsets --to-earliest --execute",
        r"^console\s+tools\s+0\s+0\b",
    ),
    Step(
        "groups-delete",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
        "--delete --group console",
        r"'console'\) was successful",
    ),
    Step("get-offsets", f"{_TOOLS}.GetOffsetShell", "--topic tools", r"^tools:0:[1-9]\d+$"),
    Step("get-offsets-by-time", f"{_TOOLS}.GetOffsetShell", "--topic tools --time -3", r"^tools:0:\d+$"),
    Step(
        "configs-alter",
        "kafka.admin.ConfigCommand",
        "--alter --topic tools --add-config retention.ms=3600000",
        "Completed updating config for topic tools",
    ),
    Step("configs-describe", "kafka.admin.ConfigCommand", "--describe --topic tools", "retention.ms=3600000"),
    Step(
        "log-dirs", f"{_TOOLS}.LogDirsCommand", "--describe --topic-list tools", r'"partition":"tools-0","size":[1-9]'
    ),
    Step("leader-election", f"{_TOOLS}.LeaderElectionCommand", "--election-type preferred --all-topic-partitions", ""),
    Step(
        "delete-records",
        f"{_TOOLS}.DeleteRecordsCommand",
        "--offset-json-file delete.json",
        r"tools-0\s+low_watermark: 1",
    ),
    Step("api-versions", f"{_TOOLS}.BrokerApiVersionsCommand", "", r"Produce\(0\): 0 to 11"),
    Step("cluster-id", f"{_TOOLS}.ClusterTool", "cluster-id", r"Cluster ID: \w+"),
    Step("reassignments", f"{_TOOLS}.reassign.ReassignPartitionsCommand", "--list", "No partition reassignments found"),
    Step("acls", f"{_TOOLS}.AclCommand", "--list", "SecurityDisabledException", code=1),
    Step(
        "producer-perf-transactions",
        f"{_TOOLS}.ProducerPerformance",
        f"--topic tools --num-records {_RECORDS} --record-size 100 --throughput -1 --transactional-id perf",
        rf"^{_RECORDS} records sent",
    ),
    Step("transactions-list", f"{_TOOLS}.TransactionsCommand", "list", r"^perf\s+\d+\s+\d+\s+\w+"),
    Step(
        "transactions-list-by-pattern",
        f"{_TOOLS}.TransactionsCommand",
        "list --transactional-id-pattern p.*",
        r"^perf\s+\d+\s+\d+\s+\w+",
    ),
    Step(
        "describe-producers",
        f"{_TOOLS}.TransactionsCommand",
        "describe-producers --topic tools --partition 0",
        r"^\d+\s+0\s+-1\s+\d+\s+\d+\s+None",
    ),
    Step(
        "transactions-find-hanging",
        f"{_TOOLS}.TransactionsCommand",
        "find-hanging --topic tools --partition 0",
        r"(?s)\A(?:Picked[^\n]*\n)?Topic\s+Partition\s+ProducerId[^\n]*\s*\Z",
    ),
    Step("configs-describe-users", "kafka.admin.ConfigCommand", "--describe --entity-type users", r"\A\s*\Z"),
    Step("list-endpoints", f"{_TOOLS}.ClusterTool", "list-endpoints", r"unfenced\s+broker"),
    Step("topics-alter", f"{_TOOLS}.TopicCommand", "--alter --topic tools --partitions 3", ""),
    Step("topics-describe", f"{_TOOLS}.TopicCommand", "--describe --topic tools", r"Partition: 2\s+Leader: \d+"),
    Step("topics-delete", f"{_TOOLS}.TopicCommand", "--delete --topic tools", ""),
)
_CONNECT = "connect-file-source-and-sink"


class KafkaTools:
    """The tools."""

    name = lists = "kafka-tools"

    def __init__(self, folder: Path) -> None:
        """Fetch them. Raises ``SuiteUnavailableError``."""
        self._folder = folder
        self._java = needed_tool("java", "Kafka's tools")
        self._jars = maven_jars("kafka-tools", KAFKA_TOOLS_JARS)
        self.tests = dict.fromkeys((*(step.name for step in _STEPS), _CONNECT), "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "delete.json").write_text(_DELETED)

    def run(self, tests: Sequence[str], _expectations: Expectations) -> Iterator[Outcome]:
        """Run steps in their order, and tell of each."""
        with running_gateway(self._folder / "gateway", "--auto-create-topics") as servers:
            for step in _STEPS:
                if step.name in tests:
                    yield self._run(step, servers)
            if _CONNECT in tests:
                yield self._connect(servers)

    def _command(self, main: str) -> list[str]:
        return [self._java, "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{self._jars}/*", main]

    def _run(self, step: Step, servers: str) -> Outcome:
        arguments = step.arguments.split()
        at = 1 if step.arguments.startswith(("cluster-id", "list-endpoints")) else 0  # a subcommand comes first
        command = [*self._command(step.main), *arguments[:at], "--bootstrap-server", servers, *arguments[at:]]
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                input=step.given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_STEP_S,
            )
        except subprocess.TimeoutExpired:
            return Outcome(step.name, FAILED, _STEP_S, f"it didn't end within {_STEP_S} s")
        (self._folder / f"{step.name}.log").write_text(done.stdout)
        seconds = time.monotonic() - began
        if done.returncode != step.code:
            return Outcome(step.name, FAILED, seconds, f"it ended with {done.returncode}")
        if not re.search(step.expected, done.stdout, re.MULTILINE):
            return Outcome(step.name, FAILED, seconds, f"it didn't say {step.expected}")
        return Outcome(step.name, PASSED, seconds)

    def _connect(self, servers: str) -> Outcome:
        """A line of a file goes through a topic into another file."""
        began = time.monotonic()
        source, sink = self._folder / "source.txt", self._folder / "sink.txt"
        source.write_text(_LINES)
        self._settings("worker", servers)
        self._settings("source", f"file={source}", "topic=lines", "connector.class=FileStreamSource")
        self._settings("sink", f"file={sink}", "topics=lines", "connector.class=FileStreamSink")
        command = self._command("org.apache.kafka.connect.cli.ConnectStandalone")
        names = [str(self._folder / f"{name}.properties") for name in ("worker", "source", "sink")]
        with (self._folder / f"{_CONNECT}.log").open("w") as log:
            process = subprocess.Popen([*command, *names], cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
            try:
                while time.monotonic() - began < _STEP_S and process.poll() is None:
                    if sink.is_file() and sink.read_text() == _LINES:
                        return Outcome(_CONNECT, PASSED, time.monotonic() - began)
                    time.sleep(0.2)
            finally:
                process.kill()
                process.wait()
        return Outcome(_CONNECT, FAILED, time.monotonic() - began, "the lines didn't come through")

    def _settings(self, name: str, first: str, *others: str) -> None:
        converter = "org.apache.kafka.connect.storage.StringConverter"
        lines = [f"name={name}", "tasks.max=1", first, *others]
        if name == "worker":
            lines = [
                f"bootstrap.servers={first}",
                f"key.converter={converter}",
                f"value.converter={converter}",
                f"offset.storage.file.filename={self._folder / 'connect.offsets'}",
                "offset.flush.interval.ms=1000",
                "listeners=http://127.0.0.1:0",
            ]
        (self._folder / f"{name}.properties").write_text("\n".join(lines) + "\n")
