"""Orders become bills: by key in parallel, tried again, poison put aside, and sent again once it is mended.

``python -m examples.processing`` plays it in a new folder.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.log import open_cluster
from sparklog.processing import App, Exponential, Record, Retry, Send
from sparklog.processing.dead_letters import replay

CUSTOMERS, ORDERS = 8, 400


@dataclass
class Order:
    id: int
    total: float


def billing(root: str, *, is_mended: bool) -> App:
    """The worker: two versions of it, of which the first doesn't know what to do with orders for nothing."""
    app = App(root, group_id="billing")

    @app.subscriber(
        "orders",
        retry=Retry(attempts=3, backoff=Exponential(0.01, 1)),
        dead_letter="dlq.orders",
        concurrency=CUSTOMERS,
        order_by="key",
    )
    def bill(record: Record[Order]) -> Iterator[Send]:
        order = record.value
        if order.total == 0 and not is_mended:
            raise ValueError(f"order {order.id} is for nothing")
        time.sleep(0.001)  # a call to somebody else
        yield Send("bills", {"order": order.id, "due": order.total}, key=record.key)

    return app


def work(app: App, count: int) -> None:
    """Have an app process so many records."""
    with app:
        while app.metrics()["processing-metrics"]["records-processed-total"] < count:
            time.sleep(0.01)


def billed(root: str) -> list[int]:
    with Consumer("bills", cluster=root, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets([TopicPartition("bills", number) for number in range(2)])
        return [json.loads(record.value)["order"] for record in islice(consumer, sum(ends.values()))]


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        with Admin(root) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=2), NewTopic("bills", num_partitions=2)])
        with Producer(root) as producer:
            for number in range(ORDERS):
                order = {"id": number, "total": number % 100}
                producer.send("orders", key=b"customer-%d" % (number % CUSTOMERS), value=json.dumps(order).encode())
            producer.send("orders", key=b"customer-0", value=b"no order at all")

        first = billing(root, is_mended=False)
        first.create_topics()
        work(first, ORDERS + 1)
        found = billed(root)
        print(f"{len(found)} bills, {len(set(found))} of them different")
        assert sorted(found) == [number for number in range(ORDERS) if number % 100]

        def of_value_errors(letters):
            return [each for each in letters if "for nothing" in each.letter.message]

        result = replay(open_cluster(root), "dlq.orders", wanted=of_value_errors, execute=True)
        print(f"sent again: {dict(result.to)}")
        work(billing(root, is_mended=True), ORDERS // 100)
        found = billed(root)
        print(f"{len(found)} bills, {len(set(found))} of them different")
        assert sorted(found) == list(range(ORDERS))


if __name__ == "__main__":
    main()
