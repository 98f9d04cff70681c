"""A transaction's files in one topic: kept until the transaction is decided, then published or discarded."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from sparklog.clock import Deadline
from sparklog.errors import SparklogError, StoreError, TransactionAbortedError
from sparklog.interrupts import bounded_s
from sparklog.log import Marker, UploadedFile
from sparklog.logs import about
from sparklog.producer.batch import Batch, settle_batches
from sparklog.producer.in_flight import InFlightBatches, UploadResult
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.outcome import Outcome
from sparklog.producer.prepared_batch import PreparedBatch
from sparklog.producer.topic_committer import TopicCommitter
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.writable_topic import WritableTopic, unexpected_error

__all__ = ["TransactionUploads"]

_LOGGER = logging.getLogger("sparklog.producer")


class _Upload:
    """Files that were uploaded in one go, and their batches. Batches that nobody waits for any more are forgotten: a
    transaction takes little memory, however long it is."""

    def __init__(self, result: UploadResult, prepared: PreparedBatch) -> None:
        self.files = [file.facts for file in result.files]
        self.error = next(iter(prepared.refused.values()), None)
        """Why the topic refuses a record of them."""
        self._prepared = weakref.ref(prepared)  # the batches that are left hold it
        self._batches = [weakref.ref(batch) for batch in result.batches]
        self._awaited: list[Batch] = []
        """Batches with callbacks: these mustn't be forgotten."""
        for index, batch in enumerate(result.batches):
            if batch.mark_uploaded(partial(_uploaded_outcome, prepared, index), self._awaited.append):
                self._awaited.append(batch)

    def outcomes(self, base_offsets: Sequence[int]) -> list[tuple[Batch, Outcome]]:
        """How the batches that somebody waits for end, once the files are in the log at these offsets."""
        prepared = self._prepared()
        return [] if prepared is None else self._living(prepared.outcomes(base_offsets))

    def failures(self, error: SparklogError) -> list[tuple[Batch, Outcome]]:
        """How the batches that somebody waits for end, if nothing of the transaction counts."""
        prepared = self._prepared()
        return [] if prepared is None else self._living(prepared.failures(error))

    def _living(self, outcomes: Sequence[Outcome]) -> list[tuple[Batch, Outcome]]:
        pairs = ((batch(), outcome) for batch, outcome in zip(self._batches, outcomes, strict=True))
        return [(batch, outcome) for batch, outcome in pairs if batch is not None]


def _uploaded_outcome(prepared: PreparedBatch, index: int) -> Outcome:
    return prepared.outcomes(None)[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecidedTransaction:
    """A transaction that is committed, and that the committer is to publish in this topic."""

    marker: Marker
    uploads: Sequence[_Upload]
    deadline: Deadline
    published: Future[None]


class TransactionUploads:
    """One topic's part in the open transaction, or in one that is decided and not published yet."""

    def __init__(
        self,
        topic: WritableTopic,
        queue: TopicQueue,
        in_flight: InFlightBatches,
        committer: TopicCommitter,
        *,
        metrics: ProducerMetrics,
        callbacks: threading.RLock,
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.failure: SparklogError | None = None
        """Why the open transaction can't be committed."""
        self._in_flight = in_flight
        self._committer = committer
        self._metrics = metrics
        self._callbacks = callbacks
        self._uploads: list[_Upload] = []
        self._publishing: Future[None] | None = None
        """How the newest publication ends."""
        committer.is_needed = self._is_unfinished

    @property
    def has_records(self) -> bool:
        """Is anything of the open transaction here: uploaded, on its way, or failed?"""
        with self.queue.lock:
            return bool(self._uploads or self._in_flight.uploads or self.queue.unfinished() or self.failure)

    def add(self, result: UploadResult) -> None:
        """Keep what the sender has uploaded; what couldn't be uploaded makes the transaction fail."""
        upload = None if result.prepared is None else _Upload(result, result.prepared)
        with self.queue.lock:
            ended = self._in_flight.end_upload(result.batches)
            if ended is None:
                return
            self._in_flight.note_settled()
            if not ended.is_discarded:
                self.failure = self.failure or (result.error if upload is None else upload.error)
                self.failure = self.failure or result.if_overdue().error
                self._uploads += [] if upload is None else [upload]
        if upload is None:
            self._settle([(batch, Outcome(error=result.error)) for batch in result.batches])
        elif ended.is_discarded:
            self._discard_late(upload)
        if not any(batch.is_overdue for batch in result.batches):
            self._metrics.settled(self.topic.name, result.batches)
        for batch in result.batches:
            self.queue.finish_batch(batch)

    def files(self) -> tuple[UploadedFile, ...]:
        """All files that the open transaction has uploaded, after a flush."""
        with self.queue.lock:
            return tuple(file for upload in self._uploads for file in upload.files)

    def check_publishable(self) -> None:
        """Before the transaction is decided: may all its files be published? Raises as
        :meth:`TopicWriter.check_uploads`."""
        files = self.files()
        if files:
            self.topic.check_uploads(files)

    def start_publishing(self, marker: Marker, *, deadline: Deadline) -> Future[None]:
        """Have the committer publish the files; their transaction is decided. After an error: call it again."""
        published: Future[None] = Future()
        with self.queue.lock:
            if self._publishing is not None and not self._publishing.done():  # the caller was interrupted meanwhile
                return self._publishing
            uploads, self._uploads = self._uploads, []
            if uploads:
                self._publishing = published
                transaction = _DecidedTransaction(
                    marker=marker, uploads=uploads, deadline=deadline, published=published
                )
                self._committer.call_soon(partial(self._publish_transaction, transaction))
        if not uploads:
            published.set_result(None)
        return published

    def wait_until_published(self, timeout_s: float | None) -> None:
        """Wait for a publication that is under way, however it ends."""
        publishing = self._publishing
        if publishing is not None:
            wait([publishing], bounded_s(timeout_s))

    def discard_transaction(self, error: SparklogError) -> list[UploadedFile]:
        """Forget the open transaction's records, wherever they are; their futures fail with ``error``.

        Returns:
            Files that no log will ever name.
        """
        with self.queue.lock:
            for under_way in self._in_flight.uploads:
                under_way.is_discarded = True
            waiting = self.queue.take_all_batches()
            uploads, self._uploads, self.failure = self._uploads, [], None
            self._committer.look_again()
        for upload in uploads:
            self._settle(upload.failures(error))
        self._settle([(batch, Outcome(error=error)) for batch in waiting])
        for batch in waiting:
            self.queue.finish_batch(batch)
        files = [file for upload in uploads for file in upload.files]
        self.topic.forget_files(files)
        return files

    def _discard_late(self, upload: _Upload) -> None:
        """Discard what was uploaded when its transaction was aborted already."""
        aborted = TransactionAbortedError(f"a transaction with records of {self.topic.name!r} was aborted")
        self._settle(upload.failures(aborted))
        try:
            self.topic.delete_files(upload.files)
        except StoreError as error:
            name = self.topic.name
            _LOGGER.info(
                "files of an aborted transaction in %s are left to the sweep: %s", name, error, extra=about(topic=name)
            )

    def _publish_transaction(self, transaction: _DecidedTransaction) -> None:
        """Publish the files and settle their batches. In the committer's thread."""
        files = [file for upload in transaction.uploads for file in upload.files]
        base_offsets: Sequence[int] = ()
        try:
            if files:
                base_offsets = self.topic.publish_files(files, transaction.marker, deadline=transaction.deadline)
        except BaseException as error:
            with self.queue.lock:
                self._uploads = [*transaction.uploads, *self._uploads]  # to be published again
            is_known = isinstance(error, SparklogError)
            transaction.published.set_exception(error if is_known else unexpected_error(self.topic.name, error))
            return
        start = 0
        try:
            for upload in transaction.uploads:
                end = start + len(upload.files)
                self._settle(upload.outcomes(base_offsets[start:end]))
                start = end
        finally:
            transaction.published.set_result(None)

    def _is_unfinished(self) -> bool:
        """Is something kept? What a transaction has sent to a topic that was deleted stays until the transaction ends.
        The lock is held."""
        return bool(self._uploads) or self.failure is not None

    def _settle(self, outcomes: Sequence[tuple[Batch, Outcome]]) -> None:
        settle_batches(outcomes, self._callbacks)
