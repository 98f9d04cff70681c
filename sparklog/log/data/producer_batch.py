"""Record batches that a producer outside of sparklog has numbered itself, as Kafka's idempotent producers do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.errors import SparklogError
from sparklog.log.data.producer_stamp import next_sequence

__all__ = ["FileRows", "PlacedBatch", "ProducerBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBatch:
    """The numbers of one batch of one partition. Source: Kafka ``DefaultRecordBatch``."""

    producer_id: int
    """0 … 2**63 - 1."""
    producer_epoch: int
    """0 … 32767."""
    base_sequence: int
    """The first record's, 0 … 2**31 - 1; the next batch goes on behind the last record, or at 0 after 2**31 - 1."""
    count: int
    """Records, 1 or more."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record."""
        return next_sequence(self.base_sequence, self.count - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBatch:
    """A batch in a data file."""

    batch: ProducerBatch
    start: int
    """The row of its first record in the file; the others follow."""

    @property
    def rows(self) -> slice:
        """Its rows in the file."""
        return slice(self.start, self.start + self.batch.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The fate of the rows of a file of which some weren't stored."""

    offsets: npt.NDArray[np.int64]
    """The offset of each row; also of one that was stored before. -1: it isn't stored."""
    refused: tuple[tuple[slice, SparklogError], ...]
    """Rows that aren't stored, and the reason."""
