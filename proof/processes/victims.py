"""Processes that send and consume until they are killed; started by ``test_kill.py``."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path

from sparklog.consumer import Consumer
from sparklog.model import TopicPartition
from sparklog.producer import Producer

KEYS = 7
PARTITIONS = 3
_UNACKNOWLEDGED = 60


def send(root: str, told: str, session: int) -> None:
    """Send ``session:number`` for ever, key by key in turn; append what is acknowledged to the file ``told``.

    A line is written in one piece, after the acknowledgement: what stands there was acknowledged.
    """
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    outstanding: deque[object] = deque()
    with Producer(root, acks=1, linger_ms=1) as producer:
        number = 0
        while True:
            value = f"{session}:{number}"
            future = producer.send("t", value.encode(), b"%d" % (number % KEYS))
            future.add_callback(lambda result, value=value: os.write(file, f"{value}\n".encode()))
            outstanding.append(future)
            number += 1
            if len(outstanding) == _UNACKNOWLEDGED:
                outstanding.popleft().get(60)  # type: ignore[attr-defined]


def consume(root: str, chunks: str, end_offsets: dict[int, int] | None) -> None:
    """Consume for ever, or to ``end_offsets``: write what each poll gives, with the positions after it, as one file
    that is there whole or not at all; begin where the newest file ends."""
    folder = Path(chunks)
    done = sorted(folder.glob("*.json"))
    positions = {int(p): o for p, o in json.loads(done[-1].read_text())["positions"].items()} if done else {}
    with Consumer(cluster=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", partition) for partition in range(PARTITIONS)])
        for partition, offset in positions.items():
            consumer.seek(TopicPartition("t", partition), offset)
        number = len(done)
        while end_offsets is None or any(positions.get(p, 0) < end for p, end in end_offsets.items()):
            polled = consumer.poll(timeout_ms=1_000, max_records=50)
            if not polled:
                continue
            seen = []
            for at, records in polled.items():
                seen += [(at.partition, record.offset, record.value.decode()) for record in records]
                positions[at.partition] = records[-1].offset + 1
            draft = folder / f"{number:08d}.draft"
            draft.write_text(json.dumps({"positions": positions, "records": seen}))
            draft.rename(folder / f"{number:08d}.json")
            number += 1
