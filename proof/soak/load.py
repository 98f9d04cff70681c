"""The clients of a soak, each a process: ``python -m proof.soak.load KIND CLUSTER UNTIL NOTES GATEWAY``."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparklog.consumer import Consumer, ShareConsumer
from sparklog.model import OffsetAndMetadata
from sparklog.producer import Producer

__all__ = ["KEYS", "KINDS", "Notes", "Work"]

KEYS = 20
_ACKNOWLEDGED_S = 60
_TRANSACTIONS = 40
"""Of each session; then the next transactional id has one."""
_IDS = 12
"""As many as an application has instances, which take theirs again. An id that is known takes a console or an exporter
some 1.5 KiB: a new one for each session would be a cluster that grows, by 700 ids an hour, and not memory that does."""
_ABORTED = 0.1
_NEW_PRODUCER_S = 60.0
_RECORDS_PER_S, _VALUE_BYTES = 5_000, 100
"""Through the gateway, whose cache of 64 MiB is to be full within the first third of the time."""
_BURST = 1_000
_AFTER_ERROR_S = 1.0


class Notes:
    """What a client was told, a line each: ``ok TOPIC PARTITION OFFSET VALUE``, ``committed COUNT``, ``error TEXT``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def acknowledged(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self._file.write(f"ok {topic} {partition} {offset} {'' if value is None else value.decode()}\n")

    def committed(self, records: int) -> None:
        self._file.write(f"committed {records}\n")

    def read(self, records: int) -> None:
        self._file.write(f"read {records}\n")

    def error(self, error: object) -> None:
        self._file.write(f"error {' '.join(str(error).split()) or 'without a text'}\n")


class Work:
    """What a client is told of its work."""

    def __init__(self, cluster: str, until: float, notes: Notes, gateway: str) -> None:
        self.cluster = cluster
        self.until = until
        self.notes = notes
        self.gateway = gateway

    def goes_on(self) -> bool:
        return time.time() < self.until

    def attempt(self, step: Callable[[], None]) -> None:
        """Whatever goes wrong is a fault of the run, and the client goes on."""
        try:
            step()
        except Exception as error:
            self.notes.error(repr(error))
            time.sleep(_AFTER_ERROR_S)


def plain(work: Work) -> None:
    """Records one at a time."""
    with Producer(work.cluster, linger_ms=5, client_id="plain") as producer:
        number = 0

        def send() -> None:
            value = b"v%d" % number
            told = producer.send("plain", value, b"k%d" % (number % 50)).get(timeout=_ACKNOWLEDGED_S)
            work.notes.acknowledged("plain", told.partition, told.offset, value)

        while work.goes_on():
            work.attempt(send)
            number += 1
            time.sleep(0.08)


def compacted(work: Work) -> None:
    """Records of few keys, which are deleted now and then; a value names its key."""
    with Producer(work.cluster, linger_ms=5, client_id="compacted") as producer:
        number = 0

        def send() -> None:
            key = b"k%d" % (number % KEYS)
            value = b"%s:v%d" % (key, number) if number % 37 else None
            told = producer.send("compacted", value, key).get(timeout=_ACKNOWLEDGED_S)
            shown = value if value is not None else b"%s:" % key
            work.notes.acknowledged("compacted", told.partition, told.offset, shown)

        while work.goes_on():
            work.attempt(send)
            number += 1
            time.sleep(0.15)


def transactions(work: Work) -> None:
    """Consume, transform, produce, exactly once, in sessions of few transactions, of each transactional id in turn."""
    draw, life = random.Random("soak"), 0

    def live() -> None:
        with (
            Producer(work.cluster, transactional_id=f"t-{life % _IDS}", client_id="transactions") as producer,
            Consumer(
                "plain",
                cluster=work.cluster,
                group_id="etl",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                client_id="transactions",
            ) as consumer,
        ):
            producer.init_transactions()
            for _ in range(_TRANSACTIONS):
                if not work.goes_on():
                    return
                _transact(work, producer, consumer, is_aborted=draw.random() < _ABORTED)

    while work.goes_on():
        work.attempt(live)
        life += 1


def _transact(work: Work, producer: Producer, consumer: Consumer, *, is_aborted: bool) -> None:
    found = consumer.poll(timeout_ms=1_000, max_records=20)
    if not found:
        return
    producer.begin_transaction()
    for partition, records in found.items():
        for record in records:
            producer.send("txnout", b"%d:%d" % (partition.partition, record.offset), record.key)
    positions = {partition: OffsetAndMetadata(records[-1].offset + 1) for partition, records in found.items()}
    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    if is_aborted:
        producer.abort_transaction()
        for partition, records in found.items():
            consumer.seek(partition, records[0].offset)
    else:
        producer.commit_transaction()
        work.notes.committed(sum(map(len, found.values())))


def steady_group(work: Work) -> None:
    """A member that stays."""
    with Consumer(
        "plain", cluster=work.cluster, group_id="steady", auto_offset_reset="earliest", client_id="steady"
    ) as consumer:
        _read(work, consumer, work.until)


def churning_group(work: Work) -> None:
    """Members that come and leave."""
    draw = random.Random("churn")

    def live() -> None:
        until = min(work.until, time.time() + draw.uniform(3, 10))
        with Consumer(
            "plain", cluster=work.cluster, group_id="churn", auto_offset_reset="earliest", client_id="churn"
        ) as consumer:
            _read(work, consumer, until)

    while work.goes_on():
        work.attempt(live)


def share_group(work: Work) -> None:
    """A queue of the records."""
    with ShareConsumer(
        "plain", cluster=work.cluster, group_id="queue", share_auto_offset_reset="earliest", client_id="share"
    ) as consumer:
        _read(work, consumer, work.until)


def _read(work: Work, consumer: Any, until: float) -> None:
    records = 0

    def poll() -> None:
        nonlocal records
        records += sum(map(len, consumer.poll(timeout_ms=1_000).values()))

    while time.time() < until:
        work.attempt(poll)
    work.notes.read(records)


def kafka(work: Work) -> None:
    """A consumer and, each for a minute, an idempotent producer of confluent-kafka, through the gateway."""
    import confluent_kafka  # not installed where only other clients are

    def told(error: Any, message: Any) -> None:
        if error is not None:
            work.notes.error(f"{error} for {message.value()}")
        else:
            work.notes.acknowledged("viagw", message.partition(), message.offset(), message.value())

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": work.gateway,
            "group.id": "by-kafka",
            "auto.offset.reset": "earliest",
            "client.id": "kafka",
        }
    )
    consumer.subscribe(["viagw"])
    sent = read = 0
    while work.goes_on():
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": work.gateway, "enable.idempotence": True, "linger.ms": 20, "client.id": "kafka"}
        )
        until = min(work.until, time.time() + _NEW_PRODUCER_S)
        due = time.time()
        while time.time() < until:
            for _ in range(min(_BURST, int((time.time() - due) * _RECORDS_PER_S))):
                try:
                    value = (b"g%d" % sent).ljust(_VALUE_BYTES, b".")
                    producer.produce("viagw", value, b"k%d" % (sent % 7), on_delivery=told)
                except BufferError:  # a hundred thousand records wait for their answers
                    break
                sent += 1
                due += 1 / _RECORDS_PER_S
            due = max(due, time.time() - _BURST / _RECORDS_PER_S)  # what was missed isn't made up for
            producer.poll(0)
            for message in consumer.consume(_BURST, timeout=0.01):
                if message.error() is not None:
                    work.notes.error(message.error())
                read += message.error() is None
        waiting = producer.flush(_ACKNOWLEDGED_S)
        if waiting:
            work.notes.error(f"{waiting} records had no answer after {_ACKNOWLEDGED_S} s")
    work.notes.read(read)
    consumer.close()


KINDS: Mapping[str, Callable[[Work], None]] = {
    "plain": plain,
    "compacted": compacted,
    "transactions": transactions,
    "steady-group": steady_group,
    "churning-group": churning_group,
    "share-group": share_group,
    "kafka": kafka,
}


def main(arguments: list[str]) -> int:
    """Run one client to its end."""
    kind, cluster, until, notes, gateway = arguments
    work = Work(cluster, float(until), Notes(Path(notes)), gateway)
    work.attempt(lambda: KINDS[kind](work))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
