"""Groups of processes, some of which are killed or suspended: the others go on at the committed offsets, nothing is
lost, and who was suspended harms nobody when it wakes up.

How long a take-over may take is held in simulated time: ``tests/groups/membership/test_heartbeat_rounds.py``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from proof.processes.group_members import consume
from proof.processes.victims import PARTITIONS, send
from sparklog.consumer import Consumer
from sparklog.log import create_topic, open_cluster
from sparklog.model import TopicPartition
from sparklog.producer import Producer
from tests.depth import by_depth
from tests.producer.support import rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9"),
]


STAYS = {"session_ms": 60_000}
"""For members that nobody kills: a busy machine may keep one from its heartbeats for longer than others' sessions."""


class Group:
    """The processes of a test, their topic and their diary."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cluster"
        self.told = folder / "told"
        self._diary = folder / "diary"
        self._diary.touch()
        self.told.touch()
        create_topic(open_cluster(self.root).topic_log("t"), "t", num_partitions=PARTITIONS)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["proof.processes.group_members", "proof.processes.victims"])
        self.started: list[BaseProcess] = []

    def join(self, name: str, **how: Any) -> BaseProcess:
        return self._start(consume, str(self.root), str(self._diary), name, **how)

    def produce(self, session: int) -> BaseProcess:
        """A process that sends for ever."""
        return self._start(send, str(self.root), str(self.told), session)

    def _start(self, work: Callable[..., None], *arguments: object, **more: Any) -> BaseProcess:
        process = self._context.Process(target=work, args=arguments, kwargs=more)
        process.start()
        self.started.append(process)
        return process

    def fill(self, count: int) -> None:
        """Send this many records, by turns to each partition."""
        with Producer(self.root) as producer:
            for number in range(count):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)

    def events(self, who: str = "", event: str = "") -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self._diary.read_text().splitlines())
        return [line for line in lines if who in ("", line["who"]) and event in ("", line["event"])]

    def owners(self) -> dict[int, str]:
        """Who was told last to have each partition, and not that it hasn't any more."""
        found: dict[int, str] = {}
        for line in self.events():
            for partition in line.get("partitions", ()):
                if line["event"] == "assigned":
                    found[partition] = line["who"]
                elif found.get(partition) == line["who"]:
                    del found[partition]
        return found

    def read(self) -> dict[int, set[int]]:
        """The offsets that somebody has read, by partition."""
        found: dict[int, set[int]] = defaultdict(set)
        for line in self.events(event="read"):
            found[line["partition"]].update(line["offsets"])
        return found

    def ends(self) -> dict[int, int]:
        return {partition: len(found) for partition, found in rows(open_cluster(self.root)).items()}

    def committed(self) -> dict[int, int]:
        with Consumer(cluster=self.root, group_id="g") as consumer:
            return {number: consumer.committed(TopicPartition("t", number)) or 0 for number in range(PARTITIONS)}

    def until_shared_by(self, *names: str) -> None:
        until(lambda: set(self.owners().values()) == set(names) and len(self.owners()) == PARTITIONS)

    def until_all_is_read_and_committed(self) -> None:
        ends = self.ends()
        until(lambda: all(len(self.read()[partition]) == end for partition, end in ends.items()))
        until(lambda: self.committed() == ends)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    yield group
    for process in group.started:
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.join()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(process: BaseProcess) -> None:
    assert process.is_alive(), f"it ended by itself, with {process.exitcode}"
    process.kill()
    process.join()


def leave(process: BaseProcess) -> None:
    """Let a member close."""
    process.terminate()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGTERM)  # the latter before it began


def test_a_killed_members_partitions_are_read_on_by_others_from_the_committed_offset(group: Group) -> None:
    group.fill(300)
    victim, other = group.join("victim"), group.join("other", **STAYS)
    group.until_shared_by("victim", "other")
    until(lambda: group.committed() == group.ends())
    group.fill(300)
    moved = {partition for partition, owner in group.owners().items() if owner == "victim"}
    kill(victim)
    committed = group.committed()
    until(lambda: set(group.owners().values()) == {"other"})
    group.until_all_is_read_and_committed()
    for partition in moved:
        lines = [line for line in group.events("other", "read") if line["partition"] == partition]
        later = [offset for line in lines for offset in line["offsets"] if offset >= committed[partition]]
        assert later == [*range(committed[partition], group.ends()[partition])]
        assert len(group.read()[partition]) == group.ends()[partition]
    leave(other)


def test_a_suspended_member_wakes_up_to_nothing_it_could_harm(group: Group, tmp_path: Path) -> None:
    go = tmp_path / "go"
    sleeper = group.join("sleeper", waits_for=str(go))
    until(lambda: len(group.owners()) == PARTITIONS)
    other = group.join("other", **STAYS)
    group.until_shared_by("sleeper", "other")
    group.fill(90)
    until(lambda: bool(group.events("sleeper", "read")))  # not committed yet
    assert sleeper.pid is not None
    os.kill(sleeper.pid, signal.SIGSTOP)
    until(lambda: group.committed() == group.ends())
    asleep_at = len(group.events())
    group.fill(90)
    until(lambda: group.committed() == group.ends())
    go.touch()
    os.kill(sleeper.pid, signal.SIGCONT)
    until(lambda: bool(group.events("sleeper", "refused")))
    assert group.events("sleeper", "refused")[0]["error"] == "CommitFailedError"
    until(lambda: bool(group.events("sleeper", "lost")))
    group.until_shared_by("sleeper", "other")
    group.fill(90)
    group.until_all_is_read_and_committed()
    check_one_reader_at_a_time(group.events()[asleep_at:], gone="sleeper")
    again = [line for line in group.events()[asleep_at:] if line["event"] == "read"]
    offsets = [(line["partition"], offset) for line in again for offset in line["offsets"]]
    assert len(offsets) == len(set(offsets))  # nothing of what the other committed was read again
    leave(sleeper)
    leave(other)


def check_one_reader_at_a_time(lines: list[dict[str, Any]], *, gone: str) -> None:
    """Who reads a partition was told to have it, and no other since; ``gone`` has none at the beginning."""
    owners: dict[int, str] = {}
    for line in lines:
        who = line["who"]
        if line["event"] == "assigned":
            owners.update(dict.fromkeys(line["partitions"], who))
        elif line["event"] == "read":
            owner = owners.get(line["partition"])
            assert owner == who if owner is not None else who != gone


@pytest.mark.parametrize("moment", ["revoked", "assigned"])
def test_a_crash_between_releasing_and_taking_delays_others_by_at_most_a_session(group: Group, moment: str) -> None:
    group.fill(150)
    victim = group.join("victim", dies_in=moment)
    if moment == "revoked":
        until(lambda: len(group.owners()) == PARTITIONS)
    others = [group.join(name, **STAYS) for name in ("b", "c")]
    victim.join(60)
    assert victim.exitcode == -signal.SIGKILL
    until(lambda: len(owners_but(group, "victim")) == PARTITIONS)
    group.fill(150)
    group.until_all_is_read_and_committed()
    for process in others:
        leave(process)


def owners_but(group: Group, gone: str) -> dict[int, str]:
    return {partition: who for partition, who in group.owners().items() if who != gone}


def test_all_are_killed_at_once_and_others_go_on(group: Group) -> None:
    group.fill(150)
    victims = [group.join(f"victim-{number}") for number in range(3)]
    until(lambda: len(group.owners()) == PARTITIONS)
    for process in victims:
        kill(process)
    group.fill(150)
    heirs = [group.join("x", **STAYS), group.join("y", **STAYS)]
    group.until_shared_by("x", "y")
    group.until_all_is_read_and_committed()
    for process in heirs:
        leave(process)


@pytest.mark.parametrize("seed", [0])
def test_members_come_go_and_are_killed_at_random_and_nothing_is_lost(group: Group, seed: int) -> None:
    chance = random.Random(seed)
    producers = [group.produce(session) for session in range(2)]
    members: list[BaseProcess] = []
    ends, number = time.monotonic() + by_depth(gate=8, nightly=60), 0
    while time.monotonic() < ends:  # most live for longer than a session: who doesn't can't tell who died
        if len(members) < 3 or (len(members) < 6 and chance.random() < 0.5):
            members.append(group.join(f"m{number}", max_records=1_000))
            number += 1
        else:
            member = members.pop(chance.randrange(len(members)))
            if chance.random() < 0.4:
                kill(member)
            else:
                leave(member)
        time.sleep(chance.uniform(0, 1.2))
    for process in producers:
        kill(process)
    for process in members:
        leave(process)
    last = group.join("last", max_records=1_000, **STAYS)
    group.until_all_is_read_and_committed()
    leave(last)
    values = {value for line in group.events(event="read") for value in line["values"]}
    assert set(group.told.read_text().splitlines()) <= values
    assert group.committed() == group.ends()
    assert len(group.events(event="assigned")) >= len({"m0", "m1", "last"})  # on a busy machine few others get that far
