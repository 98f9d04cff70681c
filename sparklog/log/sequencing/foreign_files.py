"""Files that other engines wrote without offsets: what is kept of them, and what is filled in (rules F1, foreign files;
L13, new path).

A file that says its partition, numbers its records and gives each a timestamp is copied byte for byte, up to 128 MiB.
Any other is encoded again, once, with what is missing as a producer would have had it: the partition from the key, the
numbers from the order of the rows. It becomes one file or more for each partition that its records belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidRecordError
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.murmur2 import key_partitions, murmur2
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.partitioned_writer import FinishedFile, PartitionedWriter
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP, data_schema
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead
from sparklog.log.sequencing.foreign_scan import Numbers, Scan, scan_file
from sparklog.log.sequencing.foreign_source import ForeignSource
from sparklog.paths import new_data_file

__all__ = ["MAX_COPIED_BYTES", "ForeignFile", "Piece", "check_partition", "read_foreign"]

MAX_COPIED_BYTES = 128 * 1024 * 1024
"""A larger file isn't copied as it is: its records become several files, which take little memory to read and merge."""
_BIN_BYTES = 32 * 1024 * 1024
"""About what the records of a bin take once decoded, where a file's rows aren't in the order of their numbers."""
_MAX_BINS = 256
_MAX_RANKED_RECORDS = 2**22
"""Records of a file whose rows aren't in the order of their numbers: with more, records keep their numbers, gaps and
all, as to number them anew would take 28 bytes of memory for each."""

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The records of one partition in a foreign file, copied under paths of their own."""

    partition: int
    adds: tuple[AddFile, ...]
    """The copies, but for the base offset that they share; at least one."""
    range: tuple[int, int]
    """Least and greatest offset delta over all copies."""
    numbers: tuple[int, int] | None
    """Least and greatest offset delta as the writer gave them; None if they can't be used."""
    renumbered: bool
    """The copies' deltas run from 0, in the order of the writer's, or else of the rows in the file."""

    @property
    def record_count(self) -> int:
        """Over all copies."""
        return sum(int((add.stats or {})["numRecords"]) for add in self.adds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """An unsequenced file and what was made of it."""

    segment: Segment
    """The file's segment as it is live in the table."""
    pieces: tuple[Piece, ...]
    """One or more, each partition once."""

    @property
    def record_count(self) -> int:
        """Over all pieces."""
        return sum(piece.record_count for piece in self.pieces)

    @property
    def paths(self) -> Iterator[str]:
        """The paths of the copies, as in the log."""
        return (add.path for piece in self.pieces for add in piece.adds)


def check_partition(segment: Segment, head: TopicHead) -> None:
    """Raises ``InvalidRecordError``: the file says a partition that the topic doesn't have."""
    if segment.partition is not None and not 0 <= segment.partition < head.partition_count:
        raise InvalidRecordError(f"its partition is {segment.partition}, the topic has 0 to {head.partition_count - 1}")


def read_foreign(
    log: DeltaLog, segment: Segment, head: TopicHead, *, before_piece: Callable[[], None] = lambda: None
) -> ForeignFile:
    """Read a file, and put its copy, or what it has of each partition, beside it. In no log yet.

    Memory is bounded whatever the size of the file: about 256 MiB. A file of more than 32 MiB is read by ranges, twice;
    one whose offset deltas aren't in the order of its rows has that column read more often.

    Args:
        before_piece: is called before each piece of about 4 MiB; what it raises ends the copy.
    Raises:
        InvalidRecordError: no record, a partition that isn't there, a value in a column that no topic has, a timestamp
            or header that can't be one.
        CorruptRecordError: no Parquet, truncated, or a column of a type that can't be the topic's; names the file.
        InvalidArgumentError: the file lies outside of the table.
        ObjectNotFoundError: the file is gone.
        StoreError: the store refuses.
    """
    check_partition(segment, head)
    path = object_path(log.table, segment.path)
    source = ForeignSource(log.store, path, segment.size_bytes, before_piece=before_piece, values=head.values)
    may_be_kept = (
        segment.partition is not None
        and source.size_bytes <= MAX_COPIED_BYTES
        and source.has("offset_delta")
        and source.has("timestamp")
    )
    policies = str(head.config["cleanup.policy"]).split(",")
    scan = scan_file(source, keys_required="compact" in policies, all_columns=may_be_kept, leaves=head.leaves)
    if may_be_kept and scan.is_timed and scan.numbers is not None:
        return _copy(log, segment, source, scan)
    return _Rewrite(log, segment, head, source, scan).run()


def _copy(log: DeltaLog, segment: Segment, source: ForeignSource, scan: Scan) -> ForeignFile:
    """The file byte for byte."""
    partition = segment.partition or 0
    path = new_data_file(partition)
    data = log.store.read(source.path) if source.data is None else source.data
    log.store.put(object_path(log.table, path), data, sync=True)
    finished = FinishedFile(path=path, size_bytes=len(data), stats=scan.stats)
    deltas = _deltas([finished])
    piece = _piece(segment, partition, [finished], numbers=deltas, renumbered=False)
    return ForeignFile(segment=segment, pieces=(piece,))


class _Rewrite:
    """Encodes the records of a file again, with what is missing."""

    def __init__(self, log: DeltaLog, segment: Segment, head: TopicHead, source: ForeignSource, scan: Scan) -> None:
        self._segment = segment
        self._partition_count = head.partition_count
        self._source = source
        self._fill = pa.scalar(_missing_timestamp_ms(segment, head.config, now_ms=log.clock.now_ms()) * 1000, TIMESTAMP)
        self._numbers = scan.numbers
        is_sorted = scan.numbers is None or scan.numbers.ascending
        self._renumbered = scan.numbers is None or (
            segment.partition is None and (is_sorted or scan.stats.record_count <= _MAX_RANKED_RECORDS)
        )
        self._ranks = self._all_ranks() if self._renumbered and not is_sorted else None
        self._next_ranks = np.zeros(head.partition_count, np.int64)
        self._least = np.full(head.partition_count, np.iinfo(np.int64).max)
        self._greatest = np.full(head.partition_count, -1, np.int64)
        """Numbers as the writer gave them, by partition."""
        self._splitters = np.empty(0, np.int64)
        if not self._renumbered and not is_sorted:
            self._splitters = _splitters(scan.numbers, source.decoded_bytes)
        codec = str(head.config["compression.type"])
        self._writer = PartitionedWriter(
            log.store,
            log.table,
            schema=_schema(head, with_headers=scan.has_headers),
            compression="snappy" if codec == "producer" else codec,
            bins_per_partition=len(self._splitters) + 1,
            sort_by_offset=not is_sorted,
            leaves=head.leaves,
        )

    def run(self) -> ForeignFile:
        try:
            start = 0
            for records in self._source.pieces(self._source.schema.names):
                self._write(records, start)
                start += records.num_rows
            finished = self._writer.close()
        except BaseException:  # also an interrupt: what was put is of no use to anybody
            self._writer.discard()
            raise
        pieces = [
            _piece(self._segment, partition, files, numbers=self._given(partition), renumbered=self._renumbered)
            for partition, files in finished.items()
        ]
        return ForeignFile(segment=self._segment, pieces=tuple(pieces))

    def _write(self, records: pa.Table, start: int) -> None:
        partitions = self._partitions(records["key"])
        if self._numbers is not None:
            np.minimum.at(self._least, partitions, records["offset_delta"].to_numpy())
            np.maximum.at(self._greatest, partitions, records["offset_delta"].to_numpy())
        if self._renumbered:
            records = _with(records, "offset_delta", pa.array(self._ranks_of(partitions, start)))
        if records["timestamp"].null_count:
            records = _with(records, "timestamp", pc.fill_null(records["timestamp"], self._fill))
        bins = partitions.astype(np.int64)
        if len(self._splitters):
            parts = np.searchsorted(self._splitters, records["offset_delta"].to_numpy(), side="right")
            bins = bins * (len(self._splitters) + 1) + parts
        self._writer.write(records, bins)

    def _partitions(self, keys: pa.ChunkedArray) -> I32:
        """The partition of each record, as a producer would choose it where the file doesn't say.

        Those without a key stay together, as a sticky partitioner has them: which partition it is follows from the
        file's name, so that whoever sequences the file chooses the same.
        """
        if self._segment.partition is not None:
            return np.full(len(keys), self._segment.partition, np.int32)
        of_chunks = [key_partitions(chunk, self._partition_count) for chunk in keys.chunks]
        partitions: I32 = np.concatenate([np.empty(0, np.int32), *of_chunks])
        partitions[np.asarray(keys.is_null())] = (murmur2(self._segment.path.encode()) & 0x7FFFFFFF) % (
            self._partition_count
        )
        return partitions

    def _given(self, partition: int) -> tuple[int, int] | None:
        """The least and the greatest number of a partition's records, as the writer gave them."""
        return None if self._numbers is None else (int(self._least[partition]), int(self._greatest[partition]))

    def _ranks_of(self, partitions: I32, start: int) -> I64:
        """The new offset deltas of records, of which the first is row ``start`` of the file."""
        if self._ranks is not None:
            return self._ranks[start : start + len(partitions)]
        ranks = _ranks(partitions, np.arange(len(partitions))) + self._next_ranks[partitions]
        self._next_ranks += np.bincount(partitions, minlength=self._partition_count)
        return ranks

    def _all_ranks(self) -> I64:
        """The rank of each record of the file among those of its partition, by its number."""
        pieces = [
            (self._partitions(piece["key"]), piece["offset_delta"].to_numpy())
            for piece in self._source.pieces(["key", "offset_delta"])
        ]
        return _ranks(
            np.concatenate([hashes for hashes, _ in pieces]), np.concatenate([numbers for _, numbers in pieces])
        )


def _ranks(partitions: I32, numbers: I64) -> I64:
    """The rank of each record among those of its partition, by its number."""
    order = np.lexsort((numbers, partitions))
    counts = np.unique(partitions, return_counts=True)[1]
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(len(partitions), np.int64)
    ranks[order] = np.arange(len(partitions)) - starts
    return ranks


def _splitters(numbers: Numbers | None, decoded_bytes: int) -> I64:
    """The numbers at which the second, third, … bin begins: a reader of a file whose rows are in no order has all of it
    in memory, so records that are far apart go to different files."""
    bins = min(_MAX_BINS, 1 + decoded_bytes // _BIN_BYTES)
    if numbers is None or bins == 1:
        return np.empty(0, np.int64)
    sample = numbers.sample
    return np.unique(sample[[len(sample) * number // bins for number in range(1, bins)]])


def _piece(
    segment: Segment,
    partition: int,
    files: list[FinishedFile],
    *,
    numbers: tuple[int, int] | None,
    renumbered: bool,
) -> Piece:
    add = AddFile(
        path="",
        partition_values={"partition": str(partition), "base_offset": None},
        size_bytes=0,
        modification_ms=segment.modification_ms,
    )
    return Piece(
        partition=partition,
        adds=tuple(
            replace(add, path=file.path, size_bytes=file.size_bytes, stats=file.stats.to_delta()) for file in files
        ),
        range=_deltas(files),
        numbers=numbers,
        renumbered=renumbered,
    )


def _deltas(files: list[FinishedFile]) -> tuple[int, int]:
    """The least and the greatest offset delta of files whose records all have one."""
    bounds = [bound for file in files for bound in file.stats.offset_deltas or ()]
    return min(bounds), max(bounds)


def _with(records: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return records.set_column(records.schema.get_field_index(name), DATA_SCHEMA.field(name), column)


def _schema(head: TopicHead, *, with_headers: bool) -> pa.Schema:
    schema = data_schema(head.values)
    return schema if with_headers else schema.remove(schema.get_field_index("headers"))


def _missing_timestamp_ms(segment: Segment, config: TopicConfig, *, now_ms: int) -> int:
    """The timestamp of a record that has none: of ``LogAppendTime`` the time of the copy's upload (rule F4, order),
    else the time when its file was written, which is the nearest that is known to when it was made."""
    if config["message.timestamp.type"] == "LogAppendTime":
        return now_ms
    return min(max(0, segment.modification_ms), MAX_TIMESTAMP_MS)
