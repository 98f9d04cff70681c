"""MirrorMaker 2 with exactly-once source, between two gateways."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Message

from proof.compat.gateways import running_gateway
from proof.compat.outcomes import Expectations, Outcome
from proof.compat.processes import NotShownError, Program, wait_until
from proof.compat.scenarios import Scenarios
from proof.compat.sources import maven_jars, needed_tool
from proof.compat.topics import (
    commit_offsets,
    committed_offsets,
    create_topics,
    end_offsets,
    produce,
    records_of,
    set_config,
    topic_config,
)
from proof.compat.versions import MIRROR_MAKER_JARS

__all__ = ["MirrorMaker"]

_TOPIC, _GROUP = "orders", "billing"
_MIRRORED = f"source.{_TOPIC}"
_PARTITIONS, _PER_PARTITION = 3, 1_000
_COMMITTED = (970, 995, 1_000)
"""By the group, at the source. MirrorMaker knows few records whose offsets it has seen on both sides, so translated
offsets may be earlier; a group that has read all is translated exactly."""
_WAIT_S = 600
_SETTINGS = """clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {target}
source->target.enabled = true
source->target.topics = {topic}
source->target.groups = .*
target->source.enabled = false
target.exactly.once.source.support = enabled
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.lag.max = 10
refresh.topics.interval.seconds = 5
refresh.groups.interval.seconds = 5
sync.topic.configs.interval.seconds = 5
sync.topic.acls.enabled = false
emit.checkpoints.interval.seconds = 3
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 3
offset.flush.interval.ms = 2000
tasks.max = 2
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
"""
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{HH:mm:ss}] %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class MirrorMaker(Scenarios):
    """One process, which mirrors one topic; the tests look at what it does."""

    name = lists = "mirror-maker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._java = needed_tool("java", "MirrorMaker")
        self._jars = maven_jars(self.name, MIRROR_MAKER_JARS)
        self._source = self._target = ""

    def run(self, tests: Sequence[str], expectations: Expectations) -> Iterator[Outcome]:
        """Run tests while MirrorMaker runs, and tell of each."""
        with ExitStack() as stack:
            self._source = stack.enter_context(running_gateway(self.folder / "source"))
            self._target = stack.enter_context(running_gateway(self.folder / "target"))
            create_topics(self._source, [_TOPIC], _PARTITIONS, {"retention.ms": "86400000"})
            numbers = range(_PARTITIONS * _PER_PARTITION)
            produce(self._source, _TOPIC, ((n % _PARTITIONS, f"key-{n % 50}", f"{n}") for n in numbers))
            commit_offsets(self._source, _GROUP, _TOPIC, _COMMITTED)
            stack.enter_context(Program(self._command(), self.folder, self.folder / "mirror-maker.log"))
            yield from super().run(tests, expectations)

    def records(self) -> None:
        """All records are there, once, in order."""
        wait_until(self._is_mirrored, f"{_MIRRORED} has all records", _WAIT_S)
        found, wanted = (_values(records_of(*one)) for one in ((self._target, _MIRRORED), (self._source, _TOPIC)))
        if found != wanted:
            raise NotShownError(f"{len(found)} records were mirrored, {len(wanted)} expected, or they differ")

    def group_offsets(self) -> str:
        """The group's offsets at the target miss nothing."""
        wait_until(
            lambda: len(self._translated()) == _PARTITIONS and self._translated()[-1] == _COMMITTED[-1],
            f"the group's offsets are translated for each partition, the last one to {_COMMITTED[-1]}",
            _WAIT_S,
        )
        translated = self._translated()
        if any(there > here for there, here in zip(translated, _COMMITTED, strict=True)):
            raise NotShownError(f"translated offsets are {translated}, committed at the source are {_COMMITTED}")
        wanted = {one.value() for one in records_of(self._source, _TOPIC, _COMMITTED)}
        missed = wanted - {one.value() for one in records_of(self._target, _MIRRORED, translated)}
        if missed:
            raise NotShownError(f"a member that goes on at {translated} misses {len(missed)} records")
        return f"{_COMMITTED} became {translated}"

    def settings(self) -> None:
        """Settings follow."""
        self._expect_setting("86400000")
        set_config(self._source, _TOPIC, "retention.ms", "172800000")
        self._expect_setting("172800000")

    def _is_mirrored(self) -> bool:
        ends = end_offsets(self._target, _MIRRORED) if self._is_created() else []
        return sum(ends) >= _PARTITIONS * _PER_PARTITION

    def _is_created(self) -> bool:
        return bool(topic_config(self._target, _MIRRORED))

    def _translated(self) -> list[int]:
        return committed_offsets(self._target, _GROUP, _MIRRORED)

    def _expect_setting(self, value: str) -> None:
        wait_until(
            lambda: topic_config(self._target, _MIRRORED).get("retention.ms") == value,
            f"{_MIRRORED} has retention.ms={value}",
            _WAIT_S,
        )

    def _command(self) -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = _SETTINGS.format(source=self._source, target=self._target, topic=_TOPIC, port=port)
        (self.folder / "mirror-maker.properties").write_text(settings)
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        options = ["-XX:TieredStopAtLevel=1", "-Xmx700m", "-Dlog4j2.configurationFile=log4j2.properties"]
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return [self._java, *options, "-cp", f"{self._jars}/*", main, "mirror-maker.properties"]


def _values(records: Sequence[Message]) -> list[tuple[object, ...]]:
    """What must be the same, by partition and in order."""
    found = [(one.partition(), one.offset(), one.key(), one.value(), one.timestamp()) for one in records]
    return sorted(found, key=lambda one: one[:2])
