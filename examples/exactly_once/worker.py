"""A worker: consume, transform, produce, with the group's offsets in the same transaction.

``python -m examples.exactly_once.worker <folder> <transactional id>`` works until it is killed.
"""

from __future__ import annotations

import os
import sys

from examples.exactly_once.alerts import alert_of
from sparklog import Consumer, OffsetAndMetadata, Producer
from sparklog.errors import SparklogError

__all__ = ["BEGUN", "COMMITTED", "GROUP", "work"]

GROUP = "alerts"
BEGUN, COMMITTED = b"(", b")"
"""What is written to the standard output, so that whoever kills us sees in what."""


def work(root: str, transactional_id: str, *, records_each: int) -> None:
    """Transform flights for ever, in transactions of up to ``records_each`` of them."""
    with (
        Producer(root, transactional_id=transactional_id) as producer,
        Consumer(
            "flights",
            cluster=root,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # the transaction commits the offsets
            max_poll_records=records_each,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=200,
        ) as consumer,
    ):
        producer.init_transactions()  # finishes what an earlier worker of this name decided, aborts what it didn't
        while True:
            polled = consumer.poll(timeout_ms=1_000)
            if not polled:
                continue
            producer.begin_transaction()
            tell(BEGUN)
            try:
                for records in polled.values():
                    for record in records:
                        alert = alert_of(record)
                        if alert is not None:
                            producer.send("alerts", key=record.key, value=alert)
                offsets = {
                    partition: OffsetAndMetadata(records[-1].offset + 1) for partition, records in polled.items()
                }
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
            except SparklogError as error:  # a partition went to another worker, for one
                if error.fatal:
                    raise
                producer.abort_transaction()
                rewind(consumer)
            tell(COMMITTED)


def rewind(consumer: Consumer) -> None:
    """Read again what the transaction would have committed."""
    for partition in consumer.assignment():
        committed = consumer.committed(partition)
        if committed is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, committed)


def tell(what: bytes) -> None:
    os.write(sys.stdout.fileno(), what)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], records_each=int(sys.argv[3]))
