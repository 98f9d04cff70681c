"""Members of a share group, each a process, that write down what befalls them; started by ``test_share_kill.py``."""

from __future__ import annotations

import random
import signal
import time
from types import FrameType

from proof.processes.group_members import Diary
from sparklog import AcknowledgeType, ShareConsumer

LOCK_MS = 1_500
LIMIT = 50


def take(root: str, diary_path: str, name: str, *, seed: int, pause_s: float = 0.0) -> None:
    """Take records, write them down, acknowledge most of them, give back some; until SIGTERM.

    An acknowledgement is written down before it is sent (``accepting``), and when it is known to count (``accepted``).
    """
    diary, is_over, chance = Diary(diary_path, name), False, random.Random(seed)

    def end(signum: int, frame: FrameType | None) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    with ShareConsumer(
        "t",
        cluster=root,
        group_id="g",
        share_auto_offset_reset="earliest",
        share_acknowledgement_mode="explicit",
        share_record_lock_duration_ms=LOCK_MS,
        share_heartbeat_interval_ms=200,
        share_session_timeout_ms=1_500,
        group_share_delivery_count_limit=LIMIT,
    ) as consumer:
        while not is_over:
            accepting: dict[int, list[int]] = {}
            for at, records in consumer.poll(100, max_records=20).items():
                for record in records:
                    diary.write("got", at=[at.partition, record.offset], count=record.delivery_count)
                    gives_back = chance.random() < 0.1
                    consumer.acknowledge(record, AcknowledgeType.RELEASE if gives_back else AcknowledgeType.ACCEPT)
                    if not gives_back:
                        accepting.setdefault(at.partition, []).append(record.offset)
            time.sleep(pause_s)
            if not accepting:
                continue
            diary.write("accepting", offsets=accepting)
            errors = {at.partition: error for at, error in consumer.commit_sync().items()}
            counted = [number for number in accepting if number in errors and errors[number] is None]
            diary.write("accepted", offsets={number: accepting[number] for number in counted})
