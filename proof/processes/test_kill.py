"""``kill -9`` of producers and consumers at random moments: what was acknowledged is there once and in order, and a
consumer that goes on from its own positions sees everything once."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from proof.processes.victims import KEYS, PARTITIONS, consume, send
from sparklog.log import create_topic, open_cluster
from tests.producer.support import eventually, rows

Found = dict[int, list[tuple[int, bytes, str]]]
"""By partition: offset, key and value."""

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9"
)


def kill(process: BaseProcess) -> None:
    """Kill a process that lives still."""
    assert process.is_alive(), f"it ended by itself, with {process.exitcode}"
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def contents(root: Path) -> Found:
    return {
        partition: [(offset, key or b"", (value or b"").decode()) for offset, key, value in found]
        for partition, found in rows(open_cluster(root)).items()
    }


def check_sent(found: Found, acknowledged: list[str]) -> None:
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    for records in found.values():
        assert [offset for offset, _, _ in records] == list(range(len(records)))
        for _, key, value in records:
            session, number = (int(part) for part in value.split(":"))
            by_key.setdefault(key, []).append((session, number))
    stored = [value for records in found.values() for _, _, value in records]
    assert len(set(stored)) == len(stored)
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(stored)
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers)
        assert {number % KEYS for _, number in numbers} == {int(key)}
        for session in {session for session, _ in numbers}:  # no hole: nothing overtook what was lost
            of_session = [number for one, number in numbers if one == session]
            assert of_session == list(range(int(key), int(key) + KEYS * len(of_session), KEYS))


def check_consumed(found: Found, chunks: Path) -> None:
    seen: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(PARTITIONS)}
    for chunk in sorted(chunks.glob("*.json")):
        for partition, offset, value in json.loads(chunk.read_text())["records"]:
            seen[partition].append((offset, value))
    assert seen == {partition: [(offset, value) for offset, _, value in found[partition]] for partition in found}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", [25])
def test_killed_at_random_nothing_acknowledged_is_lost_or_seen_twice(rounds: int, tmp_path: Path) -> None:
    root, told, chunks = tmp_path / "cluster", tmp_path / "told", tmp_path / "chunks"
    chunks.mkdir()
    told.touch()
    create_topic(open_cluster(root).topic_log("t"), "t", num_partitions=PARTITIONS)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["proof.processes.victims"])
    chance = random.Random(rounds)
    consumer: BaseProcess | None = None
    for session in range(rounds):
        producer = context.Process(target=send, args=(str(root), str(told), session))
        producer.start()
        if consumer is None:
            consumer = context.Process(target=consume, args=(str(root), str(chunks), None))
            consumer.start()
        if session % 3 == 0:  # at least these come to send
            before = told.stat().st_size
            eventually(lambda before=before: told.stat().st_size > before)  # type: ignore[misc]
        time.sleep(chance.uniform(0.02, 0.5))
        if chance.random() < 0.8:
            kill(consumer)
            consumer = None
        kill(producer)
    if consumer is not None:
        kill(consumer)

    found = contents(root)
    acknowledged = told.read_text().splitlines()
    assert len({value.split(":")[0] for value in acknowledged}) >= rounds / 3
    check_sent(found, acknowledged)
    last = context.Process(
        target=consume, args=(str(root), str(chunks), {partition: len(found[partition]) for partition in found})
    )
    last.start()
    last.join(60)
    assert last.exitcode == 0
    check_consumed(found, chunks)
