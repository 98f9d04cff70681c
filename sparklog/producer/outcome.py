"""The outcome of a batch: the offsets of its records, or why they aren't stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.errors import IllegalStateError, InvalidRecordError, SparklogError
from sparklog.log.data.producer_batch import ProducerBatch

__all__ = [
    "I32",
    "I64",
    "Numbers",
    "Outcome",
    "Piece",
    "RefusedWithOthersError",
    "Stored",
    "Written",
    "results_of_pieces",
]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Numbers: TypeAlias = "Sequence[int] | I32 | I64"
"""Numbers of records; of a few Python's own: to make an array takes longer than to keep them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where the records of a batch are, in the order in which they were given."""

    partitions: Numbers
    """-1 for a record that was refused, and with ``acks=0``."""
    offsets: Numbers
    """-1 likewise."""
    timestamps_ms: Numbers
    key_sizes: Numbers
    """Bytes; -1 for null."""
    value_sizes: Numbers


def results_of_pieces(outcome: Outcome, counts: Sequence[int]) -> list[int | dict[int, SparklogError]]:
    """The results of the pieces of a batch that didn't fail as a whole: of each the offset of its first record, or the
    errors of its records that were refused, by their place in it.

    Args:
        counts: of the pieces, which are all of the batch.
    """
    ends = np.cumsum(np.array(counts, np.int64))
    starts = ends - counts
    results: list[int | dict[int, SparklogError]] = np.asarray(outcome.require_written().offsets)[starts].tolist()
    errors: dict[int, dict[int, SparklogError]] = {}
    for row, error in (outcome.refused or {}).items():
        number = int(np.searchsorted(ends, row, side="right"))
        errors.setdefault(number, {})[row - int(starts[number])] = error
    for number, refused in errors.items():
        results[number] = refused
    return results


class RefusedWithOthersError(InvalidRecordError):
    """Nothing is wrong with the record, but with another of its batch, which is stored whole or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The commit of a batch of pieces, and the files that it has added."""

    topic_id: str
    delta_version: int
    """-1 where it is known no more."""
    files: Mapping[int, tuple[str, range]]
    """By partition, the path of a file in the table's folder, and the offsets of its rows. Not of a file of which some
    rows aren't stored, or were before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a batch ended."""

    written: Written | None = None
    error: SparklogError | None = None
    """The error of the whole batch."""
    refused: Mapping[int, SparklogError] | None = None
    """The errors of single records, by their place in the batch."""
    stored: Stored | None = None
    """Where a batch of pieces is that didn't fail as a whole."""

    def error_of(self, index: int) -> SparklogError | None:
        """The error of the batch, or of the record at ``index``; None: it is stored."""
        return self.error or (self.refused or {}).get(index)

    def require_written(self) -> Written:
        """Where the records are. Raises ``IllegalStateError`` for a batch that failed."""
        if self.written is None:
            raise IllegalStateError("a batch that failed has no offsets")
        return self.written


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one partition that another producer has put together: one that is refused refuses all, as in Kafka."""

    count: int
    numbered: ProducerBatch | None = None
    """How that producer has numbered them (rule L15, numbered batches)."""
