"""The rules of an ingest: which rows are the same, how far back it looks for them, which number it has. Pure.

docs/ingest.md explains it in full; rule F3, ingest, of docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.delta.actions import AddFile, SetTransaction
from sparklog.log.data.segments import SegmentIndex
from sparklog.log.head import TopicHead

__all__ = [
    "INGEST_APP_ID",
    "ProducerRange",
    "identity_columns",
    "in_window",
    "inserted_count",
    "may_be_of",
    "merge_condition",
    "name_app_id",
    "next_txn_version",
    "window_starts",
]

INGEST_APP_ID = "sparklog.ingest"
"""The ``txn`` appId by which the ingests of a topic exclude each other, whatever they are called (decision 0007)."""

_NUMBERS = ("producer_id", "producer_epoch", "sequence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRange:
    """The rows that an ingest has of some producers; all bounds are inclusive."""

    first_producer_id: int
    last_producer_id: int
    first_sequence: int
    last_sequence: int


def identity_columns(*, partition_is_given: bool) -> tuple[str, ...]:
    """The columns by which two rows are the same record.

    A producer numbers the records of each partition. Where the input doesn't name the partition, the key stands for it:
    the partition of a key changes when a topic grows, and a row must be known again afterwards.
    """
    return ("partition", *_NUMBERS) if partition_is_given else (*_NUMBERS, "key")


def merge_condition(identity: Collection[str], ranges: Sequence[ProducerRange]) -> str:
    """The condition of the MERGE, of target ``t`` and source ``s``.

    It asks for rows without an offset alone: those that have one are found before, within the window.
    """
    same = [f"t.{name} <=> s.{name}" for name in identity]
    return " AND ".join(["t.base_offset IS NULL", f"({may_be_of(ranges, 't.')})", *same])


def may_be_of(ranges: Sequence[ProducerRange], prefix: str = "") -> str:
    """A condition that each row of an ingest satisfies; files whose statistics don't are skipped."""
    return " OR ".join(
        f"({prefix}producer_id >= {one.first_producer_id}L AND {prefix}producer_id <= {one.last_producer_id}L"
        f" AND {prefix}sequence >= {one.first_sequence} AND {prefix}sequence <= {one.last_sequence})"
        for one in ranges
    )


def window_starts(head: TopicHead, index: SegmentIndex, *, now_ms: int, window_ms: int) -> tuple[int, ...]:
    """The base offset of each partition from which on files are looked into; the log end where there is none.

    A file belongs to the window if it was written at most ``window_ms`` before the topic's newest, or before now, if a
    writer's clock runs ahead.
    """
    newest_ms = max((segment.modification_ms for segment in index.by_path.values()), default=now_ms)
    oldest_ms = min(newest_ms, now_ms) - window_ms
    starts = list(head.log_end_offsets)
    for segment in index.by_path.values():
        partition, base_offset = segment.partition, segment.base_offset
        if partition is None or base_offset is None or not 0 <= partition < len(starts):
            continue
        if segment.modification_ms >= oldest_ms:
            starts[partition] = min(starts[partition], base_offset)
    return tuple(starts)


def in_window(starts: Sequence[int]) -> str:
    """A condition for rows that have an offset, from a base offset on: of partition columns alone, so that other files
    aren't read."""
    if not any(starts):
        return "base_offset IS NOT NULL"
    bounds = ", ".join(f"{start}L" for start in starts)
    return f"base_offset >= coalesce(try_element_at(array({bounds}), partition + 1), 0L)"


def next_txn_version(transactions: Mapping[str, SetTransaction]) -> int:
    """The number of the next ingest of a topic, by the ``txn`` actions of its table."""
    found = transactions.get(INGEST_APP_ID)
    return 0 if found is None else found.version + 1


def name_app_id(name: str) -> str:
    """The ``txn`` appId of an ingest by its name: the number of its newest commit."""
    return f"ingest:{name}"


def inserted_count(files: Iterable[AddFile]) -> int:
    """The number of rows that an ingest's files hold, by their statistics."""
    return sum(int((file.stats or {}).get("numRecords", 0)) for file in files)
