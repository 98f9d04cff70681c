"""The worker: charges each order, then writes a mail for each payment; its services fail now and then."""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass

from sparklog.processing import App, Exponential, Record, Retry, Send

FAILS = 0.2
"""So many of the calls to each service fail, half of these after they had their effect."""


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Payment:
    order: int
    total: float


class ServiceError(Exception):
    """A service was away, or its answer was lost."""


class Service:
    """Somebody else's service. As any that is worth calling it takes an idempotency key, and remembers it."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS effects (service, key, text, PRIMARY KEY (service, key))")
            database.execute("CREATE TABLE IF NOT EXISTS calls (service, key)")

    def call(self, key: str, text: str) -> None:
        chance = random.random()
        if chance < FAILS / 2:
            raise ServiceError(f"{self._name} is away")
        with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            database.execute("INSERT INTO calls VALUES (?, ?)", (self._name, key))
            database.execute("INSERT OR IGNORE INTO effects VALUES (?, ?, ?)", (self._name, key, text))
        if chance < FAILS:
            raise ServiceError(f"the answer of {self._name} was lost")


def an_app(root: str, services: str) -> App:
    bank, mail = Service(services, "bank"), Service(services, "mail")
    # A worker with a name takes up at once what it had before it died; without one others wait for its session's end.
    app = App(
        root,
        group_id="order-flow",
        transactional_id="order-flow-1",
        consumer={"group_instance_id": "order-flow-1"},
    )
    patient = Retry(attempts=20, backoff=Exponential(0.01, 0.1), not_on=(ValueError,))

    @app.subscriber("orders", retry=patient, dead_letter=True, concurrency=4, order_by="key")
    def charge(record: Record[Order]) -> Send:
        order = record.value
        if order.total <= 0:
            raise ValueError(f"order {order.id}: a total of {order.total}")
        bank.call(f"order-{order.id}", f"{order.total:.2f}")
        return Send("payments", {"order": order.id, "total": order.total}, key=record.key)

    @app.subscriber("payments", retry=patient, dead_letter=True, concurrency=4, order_by="key")
    def write_mail(record: Record[Payment]) -> None:
        payment = record.value
        mail.call(f"payment-of-{payment.order}", f"thank you for {payment.total:.2f}")

    return app


if __name__ == "__main__":
    app = an_app(*sys.argv[1:3])
    app.create_topics()
    with app:
        while True:
            time.sleep(60)
