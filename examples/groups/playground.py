"""A topic of jobs in a new folder, for the examples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog import Admin, NewTopic, Producer

__all__ = ["jobs", "orders", "produce"]


@contextmanager
def jobs(*, count: int) -> Iterator[str]:
    """The root of a cluster whose topic ``jobs`` holds "job 0", "job 1", … in four partitions."""
    with tempfile.TemporaryDirectory(prefix="sparklog-") as root:
        with Admin(root) as admin:
            admin.create_topics([NewTopic("jobs", num_partitions=4)])
        produce(root, count=count)
        yield root


def produce(root: str, *, count: int) -> None:
    """Add "job 0", "job 1", …"""
    with Producer(root) as producer:
        for number in range(count):
            producer.send("jobs", key=b"%d" % number, value=b"job %d" % number)


def orders(job: str) -> int:
    """The number of a job."""
    return int(job.split()[1])
