"""One of several writer processes; started by ``test_many_writers.py``."""

from __future__ import annotations

from typing import Any

from sparklog.log.append import TopicWriter
from sparklog.log.cluster import open_cluster
from tests.support import append


def write(uri: str, options: dict[str, Any] | None, name: str, count: int) -> list[tuple[int, str]]:
    """Append ``count`` records, a commit each. Returns what was acknowledged: offsets and values."""
    cluster = open_cluster(uri, storage_options=options, create=False)
    writer = TopicWriter(cluster.topic_log("t"), "t")
    acknowledged = []
    for number in range(count):
        value = f"{name}-{number:04d}"
        acknowledged.append((append(writer, value, timeout_ms=300_000).base_offsets[0], value))
    writer.close()
    return acknowledged
