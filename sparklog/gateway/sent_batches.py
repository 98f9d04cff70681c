"""A cache of record batches that were produced through this gateway, as they were sent, for its readers.

A reader at the end of a topic gets them without a request of the store, and without a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog._native import CORE
from sparklog.gateway.fetch import Fetching
from sparklog.producer.outcome import Outcome

__all__ = ["keep_sent"]


def keep_sent(
    fetching: Fetching,
    topic: str,
    outcome: Outcome,
    batches: Sequence[tuple[tuple[Any, ...], memoryview]],
    results: Sequence[object],
) -> None:
    """Keep batches whose records are stored as they were sent, if their topic has been read here: what nobody reads
    would cost a copy, and the room of what somebody does.

    Args:
        batches: as the compiled core has found them in requests, and their bytes.
        results: of each, the offset of its first record; what else there may be: it was refused.
    """
    stored, written = outcome.stored, outcome.written
    if stored is None or written is None or CORE is None or not fetching.is_read(topic, stored.topic_id):
        return
    fetching.note_commit(topic, stored.topic_id, stored.delta_version)
    start = 0
    for (batch, data), offset in zip(batches, results, strict=True):
        partition, _, _, codec, _, count, first_ms, append_ms, *_ = batch
        first, start = start, start + count
        file = stored.files.get(partition)
        if file is None or not isinstance(offset, int) or offset not in file[1]:  # refused, or stored before
            continue
        if codec or append_ms is not None or written.timestamps_ms[first] != first_ms:  # the log's own times
            continue
        kept = CORE.sent_batch(data, offset)
        if kept is not None:
            fetching.note_sent(topic, stored.topic_id, partition, offset + count, stored.delta_version)
            fetching.keep_sent(stored.topic_id, partition, offset, kept, file[0])
