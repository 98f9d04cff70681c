"""Several groups on a topic: each sees everything; the consumers of one group share it.

``python -m examples.groups.broadcast`` plays it in a new folder, with three groups, one of them of two consumers.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from examples.groups.playground import jobs, produce
from sparklog import Consumer

CONSUMERS = [("audit", 4), ("billing", 4), ("shipping", 2), ("shipping", 2)]
"""The group of each, and how many of the four partitions will be its own."""


def read(root: str, group_id: str, share: int, ready: threading.Barrier) -> list[str]:
    """All that one consumer gets until there is nothing more for five seconds."""
    with Consumer(
        "jobs",
        cluster=root,
        group_id=group_id,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
        heartbeat_interval_ms=200,
    ) as consumer:
        while len(consumer.assignment()) != share:
            consumer.poll(timeout_ms=100)
        ready.wait(timeout=60)
        return [record.value.decode() for record in consumer]


def main() -> None:
    ready = threading.Barrier(len(CONSUMERS) + 1)
    with jobs(count=0) as root, ThreadPoolExecutor(len(CONSUMERS)) as threads:
        found = [threads.submit(read, root, group_id, share, ready) for group_id, share in CONSUMERS]
        ready.wait(timeout=60)
        produce(root, count=100)
        groups: dict[str, list[list[str]]] = {}
        for (group_id, _), each in zip(CONSUMERS, found, strict=True):
            groups.setdefault(group_id, []).append(each.result())
    for group_id, parts in groups.items():
        print(f"{group_id}: {' + '.join(str(len(part)) for part in parts)} records")
        if sorted(job for part in parts for job in part) != sorted(f"job {number}" for number in range(100)):
            raise SystemExit(f"{group_id} did not see everything once")


if __name__ == "__main__":
    main()
