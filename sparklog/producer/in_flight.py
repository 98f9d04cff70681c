"""Batches on the way from a topic's queue to its log: which ones are being uploaded, and how an upload ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.errors import SparklogError
from sparklog.log import StagedFile
from sparklog.producer.batch import Batch, Outcome
from sparklog.producer.prepared_batch import PreparedBatch

__all__ = ["InFlightBatches", "UploadResult"]


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

    def outcomes(self, base_offsets: Sequence[int]) -> Sequence[Outcome]:
        """How each batch ends once the files are in the log at these offsets."""
        if self.prepared is None or (self.error is not None and not base_offsets):
            return [Outcome(error=self.error)] * len(self.batches)
        return self.prepared.outcomes(base_offsets)


class InFlightBatches:
    """The batches that a topic's sender has taken from its queue and that aren't settled. Guarded by the buffer's
    lock."""

    def __init__(self) -> None:
        self.count = 0
        """How often batches were taken that aren't settled yet."""
        self.uploading: Sequence[Batch] = ()
        """The batches that the sender encodes and uploads at this moment."""
        self.aborted: SparklogError | None = None
        """Why everything that isn't being appended has failed."""

    def begin_upload(self, batches: Sequence[Batch]) -> None:
        """Note that the sender has taken batches. The lock is held."""
        self.uploading = batches
        self.note_taken()

    def note_taken(self) -> None:
        """Count batches that were taken from the queue together. The lock is held."""
        self.count += 1

    def note_settled(self) -> None:
        """Count batches that were taken together as settled. The lock is held."""
        self.count -= 1

    def end_upload(self) -> bool:
        """Note that the sender is done with them, one way or the other; False: all was aborted meanwhile, and they have
        failed. The lock is held."""
        if self.aborted is not None:
            return False
        self.uploading = ()
        return True
