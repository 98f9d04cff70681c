"""Data files that lie in the store, but in no log: what the commit that publishes them has to say of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sparklog.delta.actions import AddFile
from sparklog.log.data.producer_stamp import ProducerStamp, next_sequence
from sparklog.log.data.segments import format_timestamp
from sparklog.log.data.value_stats import merged_stats

if TYPE_CHECKING:
    from sparklog.log.data.encode import EncodedBatch
    from sparklog.log.data.producer_batch import PlacedBatch
    from sparklog.log.data.sequences import NumberedBatches

__all__ = ["StagedFile", "StagedUpload", "UploadedFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file's facts, without its bytes."""

    path: str
    """Relative to the table's folder."""
    partition: int
    record_count: int
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    stamp: ProducerStamp
    uploaded_ms: int
    """Wall time of the upload; the file's modification time in the log."""
    topic_version: int = -1
    """A version of the topic that was known before the upload; -1: none is known."""
    value_stats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    """The statistics of a typed topic's values, of the indexed leaves, as Delta has them; empty: not known."""
    staged_ticks_ms: float = field(default=-math.inf, compare=False)
    """A tick of this process's clock before the upload began; -inf: another process has uploaded it."""

    @classmethod
    def of(
        cls,
        path: str,
        partition: int,
        batch: EncodedBatch,
        *,
        uploaded_ms: int,
        topic_version: int = -1,
        staged_ticks_ms: float = -math.inf,
    ) -> UploadedFile:
        """Make the description of a batch that is uploaded under ``path``."""
        return cls(
            path=path,
            partition=partition,
            record_count=batch.record_count,
            size_bytes=len(batch.data),
            min_timestamp_ms=batch.min_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            stamp=batch.stamp,
            uploaded_ms=uploaded_ms,
            topic_version=topic_version,
            value_stats=batch.value_stats,
            staged_ticks_ms=staged_ticks_ms,
        )

    def to_add(self, base_offset: int) -> AddFile:
        """The action that publishes the file at ``base_offset``."""
        stamp, last = self.stamp, self.record_count - 1
        oldest = newest = format_timestamp(self.min_timestamp_ms)
        if self.max_timestamp_ms != self.min_timestamp_ms:
            newest = format_timestamp(self.max_timestamp_ms)
        wraps = next_sequence(stamp.base_sequence, last) < stamp.base_sequence
        low_sequence, high_sequence = (0, 2**31 - 1) if wraps else (stamp.base_sequence, stamp.base_sequence + last)
        return AddFile(
            path=self.path,
            partition_values={"partition": str(self.partition), "base_offset": str(base_offset)},
            size_bytes=self.size_bytes,
            modification_ms=self.uploaded_ms,
            stats=merged_stats(
                {
                    "numRecords": self.record_count,
                    "minValues": {
                        "offset_delta": 0,
                        "timestamp": oldest,
                        "producer_id": stamp.producer_id,
                        "sequence": low_sequence,
                    },
                    "maxValues": {
                        "offset_delta": last,
                        "timestamp": newest,
                        "producer_id": stamp.producer_id,
                        "sequence": high_sequence,
                    },
                    "nullCount": {"offset_delta": 0, "timestamp": 0, "producer_id": 0, "sequence": 0},
                },
                self.value_stats,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A data file that lies in the store, but in no log; with its bytes, should it have to be uploaded again."""

    facts: UploadedFile
    batch: EncodedBatch
    uploaded_ticks_ms: float
    """When its upload had ended; before that, when it was staged."""
    batches: tuple[PlacedBatch, ...] = ()
    """The batches that their producers numbered, in the order of their rows (rule L15, numbered batches);
    other rows may lie between them."""

    def uploaded(self, ticks_ms: float) -> StagedFile:
        """The file once its upload has ended, at ``ticks_ms``."""
        return StagedFile(facts=self.facts, batch=self.batch, uploaded_ticks_ms=ticks_ms, batches=self.batches)

    @property
    def path(self) -> str:
        """Relative to the table's folder."""
        return self.facts.path

    @property
    def partition(self) -> int:
        """The partition that all of its records belong to."""
        return self.facts.partition


class StagedUpload(NamedTuple):
    """Files that are uploaded together: encoded, numbered and named, before their bytes are sent."""

    files: Sequence[StagedFile]
    is_announced: bool
    """Do their names let others publish them (rule L14, announced uploads)?"""
    numbered: NumberedBatches

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum([len(file.batch.data) for file in self.files])

    @property
    def files_if_failed(self) -> Sequence[StagedFile]:
        """The files that may be there, or may come, and be published, though their upload failed: announced ones."""
        return self.files if self.is_announced else ()
