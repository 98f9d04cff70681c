"""Batches on the way from a topic's queue to its log: which ones are being uploaded, and how an upload ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.errors import SparklogError
from sparklog.log import StagedFile
from sparklog.log.data.producer_batch import FileRows
from sparklog.producer.batch import Batch
from sparklog.producer.outcome import Outcome
from sparklog.producer.prepared_batch import PreparedBatch

__all__ = ["SLOW_PUT_MS", "InFlightBatches", "UploadResult", "UploadUnderWay"]

SLOW_PUT_MS = 4.0
"""Where an upload takes as long, uploads overlap, and a commit waits for one that is about to end."""
_SHARE_WAITED = 0.25
"""A commit waits for the next upload for this part of an upload's time at most."""
_MOST_WAITED_MS = 250.0
"""A commit waits no longer than this for the next upload: an upload that an outage held up says nothing of the next
one, and what is uploaded has until its ``delivery_timeout_ms``."""


class UploadResult(NamedTuple):
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

    def if_overdue(self) -> UploadResult:
        """The same; or what is left to be done of it where it was given up meanwhile: nothing of it is committed."""
        given_up = next((batch.outcome for batch in self.batches if batch.is_overdue and batch.outcome), None)
        return self if given_up is None else self._replace(error=self.error or given_up.error)

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
    taken_ticks_ms: float = 0.0
    """When the sender took them, where they might wait for long before; else 0."""
    put_ticks_ms: float | None = None
    """When their files began to be sent; None: they weren't yet."""


class InFlightBatches:
    """The batches that a topic's sender has taken from its queue and that aren't settled. Guarded by the buffer's
    lock."""

    def __init__(self, *, is_remote: bool = False) -> None:
        """``is_remote``: uploads go to another machine, so they are taken to be slow until one has ended."""
        self.is_remote = is_remote
        self.count = 0
        """How often batches were taken that aren't settled yet."""
        self.uploads: list[UploadUnderWay] = []
        """The uploads that the sender encodes, sends and hands over at this moment, in the order of sending."""
        self.put_ms = SLOW_PUT_MS if is_remote else 0.0
        """How long the newest upload took that succeeded."""
        self.aborted: SparklogError | None = None
        """Why everything that isn't being appended has failed."""

    def begin_upload(self, batches: Sequence[Batch], *, taken_ticks_ms: float = 0.0) -> None:
        """Note that the sender has taken batches. The lock is held."""
        self.uploads.append(UploadUnderWay(batches, taken_ticks_ms=taken_ticks_ms))
        self.note_taken()

    def begin_put(self, batches: Sequence[Batch], *, now_ticks_ms: float) -> None:
        """Note that the files of batches begin to be sent. The lock is held."""
        for upload in self.uploads:  # none after an abort
            if upload.batches is batches:
                upload.put_ticks_ms = now_ticks_ms

    @property
    def is_slow(self) -> bool:
        """Do uploads take so long that it matters which commit they come into?"""
        return self.put_ms >= SLOW_PUT_MS

    def wait_for_more_ms(self, *, now_ticks_ms: float, since_ticks_ms: float) -> float:
        """For how long a commit that might begin is to wait for the next upload; 0: it isn't to.

        An upload that ends just after a commit began waits for the whole of that commit, and with what waits behind
        it for room in the buffer: a producer that sends as fast as it can would fill each other commit alone. So a
        commit waits for an upload that is about to end, by the time that the newest one took, and for a quarter of that
        time at most, nor longer than a quarter of a second. What is uploaded is committed in the order of sending, so
        the first upload under way counts.

        Pure; the lock is held.

        Args:
            since_ticks_ms: the moment from which on the commit might have begun.
        """
        first = self.uploads[0] if self.uploads else None
        if first is None or first.put_ticks_ms is None or not self.is_slow:
            return 0.0
        patience_ms = min(self.put_ms * _SHARE_WAITED, _MOST_WAITED_MS)
        until = since_ticks_ms + patience_ms
        due = first.put_ticks_ms + self.put_ms
        is_soon = due <= until and now_ticks_ms <= due + patience_ms
        return max(0.0, until - now_ticks_ms) if is_soon else 0.0

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
