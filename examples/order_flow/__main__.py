"""Order, payment, mail: services fail, their answers are lost, the worker is killed, and each happens once.

``python -m examples.order_flow`` plays it in a new folder. It is the story that books on messaging tell: an order is
placed, paid, and confirmed by mail; whatever goes wrong in between, nobody pays twice, and nobody waits for a mail.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

from examples.order_flow.worker import Service
from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition

ORDERS, BAD_ORDERS, KILLS = 150, 3, 3
LONGEST_S = 120.0


def contents(root: str, topic: str) -> list[bytes]:
    """All values that are in a topic now."""
    with Consumer(topic, cluster=root, auto_offset_reset="earliest") as consumer:
        partitions = consumer.partitions_for_topic(topic) or set()
        ends = consumer.end_offsets([TopicPartition(topic, number) for number in partitions])
        return [record.value for record in islice(consumer, sum(ends.values()))]


def effects(services: str, name: str) -> tuple[dict[str, str], int]:
    """The effects of a service by their keys, and how often it was called for them."""
    with closing(sqlite3.connect(services, timeout=30)) as database:
        found = dict(database.execute("SELECT key, text FROM effects WHERE service = ?", (name,)).fetchall())
        [count] = database.execute("SELECT count(*) FROM calls WHERE service = ?", (name,)).fetchone()
    return found, count


def lag(root: str) -> int:
    """What the worker has left to do."""
    with Admin(root) as admin:
        if "order-flow" not in admin.list_groups():
            return ORDERS
        done = admin.list_group_offsets("order-flow")
        at = [TopicPartition(topic, number) for topic in ("orders", "payments") for number in range(2)]
        ends = admin.end_offsets(at)
        return sum(end - (done[each].offset if each in done else 0) for each, end in ends.items())


def work_and_die(root: str, services: str, *, done: int | None) -> None:
    """Run a worker in a process of its own until so many mails are written, then kill it; None: until all is done."""
    with subprocess.Popen([sys.executable, "-m", "examples.order_flow.worker", root, services]) as worker:
        deadline = time.monotonic() + LONGEST_S
        try:
            while lag(root) if done is None else len(effects(services, "mail")[0]) < done:
                if time.monotonic() > deadline or worker.poll() is not None:
                    raise SystemExit(f"the worker ended with {worker.poll()}, or did not come to an end")
                time.sleep(0.05)
        finally:
            worker.kill()  # as the machine does that runs out of memory


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, services = str(Path(folder, "cluster")), str(Path(folder, "services.db"))
        Service(services, "bank")
        with Admin(root) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=2), NewTopic("payments", num_partitions=2)])
        numbers = list(range(ORDERS))
        random.shuffle(numbers)
        with Producer(root) as producer:
            for number in numbers:
                total = 0 if number < BAD_ORDERS else number
                order = json.dumps({"id": number, "total": total}).encode()
                producer.send("orders", key=b"customer-%d" % (number % 10), value=order)

        for kill in range(1, KILLS + 1):
            work_and_die(root, services, done=kill * ORDERS // (KILLS + 2))
        work_and_die(root, services, done=None)

        good = set(range(BAD_ORDERS, ORDERS))
        payments = [json.loads(value)["order"] for value in contents(root, "payments")]
        charged, charge_calls = effects(services, "bank")
        mails, mail_calls = effects(services, "mail")
        letters = [json.loads(value)["id"] for value in contents(root, "dlq.orders")]
        print(
            f"{ORDERS} orders, {KILLS} workers killed: {len(payments)} payments, {len(set(payments))} of them different"
        )
        print(f"the bank was called {charge_calls} times for {len(charged)} charges")
        print(f"the mail server was called {mail_calls} times for {len(mails)} mails")
        print(f"dead letters: {sorted(letters)}")
        assert sorted(payments) == sorted(good)  # topics: exactly once, without anything to be done for it
        assert set(charged) == {f"order-{number}" for number in good}  # services: once, by their idempotency key
        assert set(mails) == {f"payment-of-{number}" for number in good}
        assert sorted(letters) == list(range(BAD_ORDERS))  # what can't be mended: put aside, once


if __name__ == "__main__":
    main()
