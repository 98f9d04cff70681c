"""Members of a group, each a process, that write down what befalls them; started by ``test_group_kill.py``."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Any

from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import CommitFailedError, RebalanceInProgressError
from sparklog.model import TopicPartition

SESSION_MS = 1_500
SETTINGS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 200,
}


class Diary:
    """One file for all members: a line of JSON for each thing that happened, in one piece, in the order of events."""

    def __init__(self, path: str, name: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._name = name

    def write(self, event: str, **facts: Any) -> None:
        os.write(self._file, (json.dumps({"who": self._name, "event": event, **facts}) + "\n").encode())


class _Listener(ConsumerRebalanceListener):
    def __init__(self, diary: Diary, consumer: Consumer, dies_in: str) -> None:
        self._diary = diary
        self._consumer = consumer
        self._dies_in = dies_in

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._tell("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._tell("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._tell("lost", lost)

    def _tell(self, event: str, partitions: Collection[TopicPartition]) -> None:
        self._diary.write(event, partitions=[partition for _, partition in partitions])
        if event == self._dies_in:
            os.kill(os.getpid(), signal.SIGKILL)


def consume(
    root: str,
    diary_path: str,
    name: str,
    dies_in: str = "",
    waits_for: str = "",
    max_records: int = 20,
    session_ms: int = SESSION_MS,
) -> None:
    """Read, write down, commit; until SIGTERM.

    Args:
        dies_in: the listener's call in which the process kills itself.
        waits_for: a file: before it is there nothing that was read is committed, nor is there another poll.
        session_ms: how long others wait for a sign of life of it.
    """
    diary, is_over = Diary(diary_path, name), False

    def end(signum: int, frame: FrameType | None) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    with Consumer(cluster=root, **{**SETTINGS, "session_timeout_ms": session_ms}) as consumer:
        consumer.subscribe(["t"], listener=_Listener(diary, consumer, dies_in))
        while not is_over:
            polled = consumer.poll(timeout_ms=100, max_records=max_records)
            for (_, partition), records in polled.items():
                offsets = [record.offset for record in records]
                values = [record.value.decode() for record in records]
                diary.write("read", partition=partition, offsets=offsets, values=values)
            while polled and waits_for and not Path(waits_for).exists():
                time.sleep(0.01)
            try:
                consumer.commit()
            except (CommitFailedError, RebalanceInProgressError) as error:
                diary.write("refused", error=type(error).__name__)
