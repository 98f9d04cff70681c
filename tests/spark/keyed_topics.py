"""Topics with keys that come again, for maintenance on Spark: made, and checked afterwards."""

from __future__ import annotations

from sparklog.delta.log import DeltaLog
from sparklog.log import Cluster
from sparklog.log.topic import create_topic
from tests.compaction.support import Key, append_pairs, pairs_of
from tests.support import a_writer

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}


def a_keyed_topic(cluster: Cluster, file_count: int, topic: str = "t") -> dict[Key, str | None]:
    """Files of four records of seven keys, one of them deleted at the end. Returns what each key's last record says."""
    log = cluster.topic_log(topic)
    create_topic(log, topic, configs=COMPACTED)
    writer = a_writer(log, topic=topic)
    last: dict[Key, str | None] = {}
    for number in range(file_count):
        pairs = [(f"k{(number + turn) % 7}", f"{number}.{turn}") for turn in range(4)]
        append_pairs(writer, pairs)
        last |= dict(pairs)
    append_pairs(writer, [("k3", None)])
    return {**last, "k3": None}


def check_keys(log: DeltaLog, last: dict[Key, str | None]) -> list[tuple[int, Key, str | None]]:
    """Each key's last record says what it said; no offset is there twice."""
    found = pairs_of(log)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    assert {key: value for _, key, value in found} == last
    return found
