"""Looking for what was delivered out of a topic of retries: only that goes, whatever ``retention.*`` says (decision
0099).

A record there waits for the group that its header names, which has delivered it once its committed offset is beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa

from sparklog.config import TopicConfig
from sparklog.groups.offsets.offset_state import look_once, offset_log
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.log.data.record_reading import read_segment
from sparklog.log.data.segments import overlapping
from sparklog.log.delay_topics import MOVED_BY_GROUP, retry_source
from sparklog.log.state import TopicState
from sparklog.model import TopicPartition

__all__ = ["delivered_below"]

_NEEDED = ("headers", "timestamp")
_LONGEST_NAME = 1_000
"""No group has a longer one: what a foreign header holds is looked up nowhere."""


def delivered_below(cluster: Cluster, state: TopicState, topic: str, *, now_ms: int) -> dict[int, int]:
    """By partition of a topic of retries, the offset below which all records were delivered; nothing of other topics.

    The headers are read of what was delivered since the last look, and of the file of the first record that waits. A
    record without our headers, as of another program in a topic that only has such a name, goes by ``retention.ms``.

    Raises:
        CorruptRecordError, StoreError, …: a file, or a group's offsets, can't be read.
    """
    if retry_source(topic) is None:
        return {}
    head, index = state.head, state.require_whole().index
    rows_of = cache(lambda group: look_once(offset_log(cluster, group)))
    found: dict[int, int] = {}
    for partition in index.partitions():
        at = TopicPartition(topic, partition)
        start = below = head.log_start_offsets[partition]
        is_done = _judge(at, head.topic_id, head.config, rows_of, now_ms)
        for together in overlapping(index.from_offset(partition, start)):
            tables = [read_segment(state.log, one, start_offset=start, columns=_NEEDED) for one in together]
            records = pa.concat_tables(tables).sort_by("offset")
            waiting = _first_waiting(records, is_done)
            if waiting is not None:
                below = waiting
                break
            below = max(below, *(one.last_offset + 1 for one in together))
        if below > start:
            found[partition] = below
    return found


def _judge(
    at: TopicPartition, topic_id: str, config: TopicConfig, rows_of: Callable[[str], Rows], now_ms: int
) -> Callable[[int, str | None, int], bool]:
    """A function that says whether the record at an offset, which a group has moved there, is needed no more."""
    retention_ms = config.integer("retention.ms")

    @cache
    def committed(group: str) -> int:
        row = rows_of(group).get(at)
        found = None if row is None else row.committed_for(topic_id)
        return 0 if found is None else found.offset

    def is_done(offset: int, group: str | None, timestamp_ms: int) -> bool:
        if group is None:
            return retention_ms >= 0 and now_ms - timestamp_ms > retention_ms
        return offset < committed(group)

    return is_done


def _first_waiting(records: pa.Table, is_done: Callable[[int, str | None, int], bool]) -> int | None:
    """The first offset that isn't done."""
    offsets, headers = records["offset"].to_pylist(), records["headers"].to_pylist()
    timestamps = records["timestamp"].cast(pa.int64()).to_pylist()
    for offset, own, timestamp_us in zip(offsets, headers, timestamps, strict=True):
        if not is_done(offset, _group_of(own or ()), timestamp_us // 1_000):
            return int(offset)
    return None


def _group_of(headers: Sequence[dict[str, object]]) -> str | None:
    for header in reversed(headers):
        name = header["value"]
        if header["key"] == MOVED_BY_GROUP and isinstance(name, bytes) and 0 < len(name) <= _LONGEST_NAME:
            return name.decode(errors="replace")
    return None
