"""Rewrites by other engines in which a record has another offset than before, found by reading the files before and
after (rule F6, moved records).

The log's statistics tell how many records a file has, and the least and the greatest offset: an engine that changes
offsets between these breaks nothing that they show. While the files that it replaced are still in the store, their
rows show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.delta.actions import AddFile, Entry, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, InvalidArgumentError, StoreError
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import conform
from sparklog.log.data.segments import Segment
from sparklog.log.foreign_rewrites import gives_offsets
from sparklog.storage.each_alone import check_of_one

__all__ = ["ForeignRewritesSeen", "read_offsets"]

_COLUMNS = ("offset_delta", "producer_id", "producer_epoch", "sequence")
_MOST_NAMED = 5

_Key = tuple[str | None, str | None]
_Record = tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrite:
    """The files of one base offset that a commit of another engine replaced."""

    version: int
    partition: int | None
    removed: tuple[str, ...]
    added: tuple[str, ...]


class ForeignRewritesSeen:
    """The rewrites that a run of entries contains. Memory grows with the files that they name."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._rewrites: list[_Rewrite] = []

    def apply(self, entry: Entry) -> None:
        """Go on by one entry."""
        added = {action.path: _key(action.partition_values) for action in entry.actions if isinstance(action, AddFile)}
        if gives_offsets(entry):
            removed = {
                action.path: self._keys.get(action.path) or _key(action.partition_values)
                for action in entry.actions
                if isinstance(action, RemoveFile)
            }
            for key in sorted({*added.values()} & {*removed.values()}, key=str):
                partition, base = key
                if base in (None, ""):
                    continue
                before = tuple(path for path, its in removed.items() if its == key)
                after = tuple(path for path, its in added.items() if its == key)
                number = int(partition) if partition else None
                self._rewrites.append(_Rewrite(version=entry.version, partition=number, removed=before, added=after))
        self._keys.update(added)

    def read(self, log: DeltaLog, topic: str, live: Mapping[str, object]) -> Iterator[Finding]:
        """Read the files before and after each rewrite whose result is live: a file at a time. Those that are gone by
        now prove nothing.

        Args:
            live: the live files, by path.
        """
        for rewrite in self._rewrites:
            if not all(path in live for path in rewrite.added):
                continue
            before, after = _records(log, rewrite.removed), _records(log, rewrite.added)
            if before is None or after is None:
                continue
            moved = sorted(delta for delta, record in after.items() if not _may_be(record, before.get(delta)))
            if moved:
                named = ", ".join(map(str, moved[:_MOST_NAMED])) + (", …" if len(moved) > _MOST_NAMED else "")
                yield Finding(
                    code=Code.OFFSETS_MOVED,
                    subject=Subject(
                        topic=topic, partition=rewrite.partition, delta_version=rewrite.version, path=rewrite.added[0]
                    ),
                    seen=f"{len(moved)} records have an offset_delta under which the replaced files have none, or "
                    f"another: {named}",
                    expected="each record under its offset: RESTORE TABLE … TO VERSION AS OF "
                    f"{rewrite.version - 1} undoes the commit while the replaced files are kept",
                )


def read_offsets(log: DeltaLog, segment: Segment) -> list[int] | None:
    """The offsets of a file's records; None where it is gone, can't be read or has no offsets. One GET."""
    records = _records(log, (segment.path,))
    if records is None or None in records or segment.base_offset is None:
        return None
    return [segment.base_offset + int(delta) for delta in records]


def _may_be(record: _Record, before: _Record | None) -> bool:
    """May it be the record that had this offset before? A producer's number stays, whatever else SQL changes."""
    return before is not None and (None in record or None in before or record == before)


def _records(log: DeltaLog, paths: Sequence[str]) -> dict[int, _Record] | None:
    """The producer's numbers of each record, by ``offset_delta``; None where a file is gone or can't be read."""
    found: dict[int, _Record] = {}
    for path in paths:
        try:
            name = object_path(log.table, path)
            file = open_parquet(log.store.read(name))
            table = file.read(columns=[column for column in _COLUMNS if column in file.schema_arrow.names])
            columns = [conform(name, table, column).to_pylist() for column in _COLUMNS]
        except (InvalidArgumentError, CorruptRecordError, pa.ArrowException, OSError):
            return None
        except StoreError as error:  # gone, or a finding of its own
            check_of_one(log.store, error)
            return None
        found.update((delta, record) for delta, *rest in zip(*columns, strict=True) for record in [tuple(rest)])
    return found


def _key(partition_values: Mapping[str, str | None]) -> _Key:
    return partition_values.get("partition"), partition_values.get("base_offset")
