"""Batches on the way from a topic's queue to its log: which ones are being uploaded, and how an upload ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.errors import SparklogError
from sparklog.log import StagedFile
from sparklog.log.data.producer_batch import FileRows
from sparklog.producer.batch import Batch, Outcome
from sparklog.producer.prepared_batch import PreparedBatch

__all__ = ["InFlightBatches", "UploadResult", "UploadUnderWay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadResult:
    """Batches that the sender took together: with the files that it uploaded, or with the error that they fail with."""

    batches: Sequence[Batch]
    prepared: PreparedBatch | None = None
    """None after an error."""
    files: Sequence[StagedFile] = ()
    error: SparklogError | None = None
    """Why the upload failed. With files: it was announced, so they may be there, or may come; they are withdrawn before
    the batches fail."""

    def aborted(self, error: SparklogError) -> UploadResult:
        """The same batches, which aren't to be committed."""
        return UploadResult(batches=self.batches, error=self.error or error)

    def outcomes(self, base_offsets: Sequence[int], rows: Sequence[FileRows | None] = ()) -> Sequence[Outcome]:
        """How each batch ends once the files are in the log at these offsets.

        Args:
            rows: for each file, where some of its rows weren't stored; empty: all were.
        """
        if self.prepared is None or (self.error is not None and not base_offsets):
            return [Outcome(error=self.error)] * len(self.batches)
        return self.prepared.outcomes(base_offsets, rows)


@dataclass(slots=True, eq=False)
class UploadUnderWay:
    """Batches that the sender has taken together and hasn't handed over."""

    batches: Sequence[Batch]
    is_discarded: bool = False
    """Was the transaction that they belong to aborted meanwhile?"""


class InFlightBatches:
    """The batches that a topic's sender has taken from its queue and that aren't settled. Guarded by the buffer's
    lock."""

    def __init__(self) -> None:
        self.count = 0
        """How often batches were taken that aren't settled yet."""
        self.uploads: list[UploadUnderWay] = []
        """The uploads that the sender encodes, sends and hands over at this moment, in the order of sending."""
        self.aborted: SparklogError | None = None
        """Why everything that isn't being appended has failed."""

    def begin_upload(self, batches: Sequence[Batch]) -> None:
        """Note that the sender has taken batches. The lock is held."""
        self.uploads.append(UploadUnderWay(batches))
        self.note_taken()

    def note_taken(self) -> None:
        """Count batches that were taken from the queue together. The lock is held."""
        self.count += 1

    def note_settled(self) -> None:
        """Count batches that were taken together as settled. The lock is held."""
        self.count -= 1

    def end_upload(self, batches: Sequence[Batch]) -> UploadUnderWay | None:
        """Note that the sender is done with them, one way or the other; None: all was aborted meanwhile, and they have
        failed. The lock is held."""
        if self.aborted is not None:
            return None
        ended = next(upload for upload in self.uploads if upload.batches is batches)
        self.uploads.remove(ended)
        return ended
