"""One topic's way into its log: a sender thread encodes and uploads, a committer thread appends, in the same order.

While a commit is under way the next batch is uploaded and more records gather: batching adapts by itself. What waits is
committed at once. A batch that isn't in the log ``delivery_timeout_ms`` after its first record fails.

Of a producer with a transactional id, what the sender has uploaded is held until its transaction is decided; then the
committer publishes all of it in one commit.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from sparklog.clock import Clock
from sparklog.config import ACKS_ALL, ProducerConfig
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    SparklogError,
    StoreError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import bounded_s, uninterrupted
from sparklog.log import Cluster, Marker, StagedFile, TopicWriter, UploadedFile
from sparklog.log.data.record_reading import object_path
from sparklog.log.gaps import ForeignGaps
from sparklog.log.maintenance import Sequencing
from sparklog.producer.accumulator import Buffer, TopicQueue
from sparklog.producer.batch import Batch, Outcome
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import Drain, drain
from sparklog.storage.retrying import Patience

__all__ = ["Lane"]

_LOGGER = logging.getLogger("sparklog.producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """Batches whose files are uploaded; or that failed before, and wait to be told so in their turn."""

    batches: Sequence[Batch]
    drain: Drain | None = None
    files: Sequence[StagedFile] = ()
    error: SparklogError | None = None

    def given_up(self, error: SparklogError) -> _Staged:
        """The same batches, which aren't to be committed."""
        return _Staged(batches=self.batches, error=self.error or error)

    def outcomes(self, base_offsets: Sequence[int]) -> Sequence[Outcome]:
        if self.drain is None:
            return [Outcome(error=self.error)] * len(self.batches)
        return self.drain.outcomes(base_offsets)


class _Held:
    """What a transaction has uploaded to a topic in one go. Batches that nobody waits for any more are forgotten: a
    transaction takes little memory, however long it is."""

    def __init__(self, batches: Sequence[Batch], made: Drain, files: Sequence[StagedFile]) -> None:
        self.files = [file.facts for file in files]
        self.error = next(iter(made.refused.values()), None)
        """Of a record that the topic refuses."""
        self._drain = weakref.ref(made)  # the batches that are left hold it
        self._batches = [weakref.ref(batch) for batch in batches]
        self._kept: list[Batch] = []
        for place, batch in enumerate(batches):
            if batch.hold(partial(_uploaded, made, place), self._kept.append):
                self._kept.append(batch)

    def outcomes(self, base_offsets: Sequence[int]) -> list[tuple[Batch, Outcome]]:
        """What those are told that somebody waits for, once the files are in the log at these offsets."""
        made = self._drain()
        return [] if made is None else self._living(made.outcomes(base_offsets))

    def failures(self, error: SparklogError) -> list[tuple[Batch, Outcome]]:
        """The same, if nothing of it counts."""
        made = self._drain()
        return [] if made is None else self._living(made.failures(error))

    def _living(self, outcomes: Sequence[Outcome]) -> list[tuple[Batch, Outcome]]:
        told = ((batch(), outcome) for batch, outcome in zip(self._batches, outcomes, strict=True))
        return [(batch, outcome) for batch, outcome in told if batch is not None]


def _uploaded(made: Drain, place: int) -> Outcome:
    return made.outcomes(None)[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publication:
    """A transaction that is decided, on its way to the committer."""

    marker: Marker
    held: Sequence[_Held]
    deadline_ticks_ms: float
    done: Future[None]


class Lane:
    """A topic's queue, its writer and the two threads between them."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        config: ProducerConfig,
        buffer: Buffer,
        metrics: ProducerMetrics,
        callbacks: threading.RLock,
    ) -> None:
        """Open the topic; takes at most ``max_block_ms``.

        Args:
            callbacks: held while callbacks run: no two of a producer run at once.
        Raises:
            UnknownTopicOrPartitionError, StoreError, and what else opening a topic raises.
        """
        self._cluster = cluster
        self._clock: Clock = cluster.clock
        self._config = config
        self._metrics = metrics
        self._callbacks = callbacks
        self._writing = threading.Lock()
        """Held by whoever uses the writer's state: the committer, and a caller that asks for new partitions."""
        with cluster.store.patience(self._patience(self._clock.ticks_ms() + config.max_block_ms)):
            self._writer = TopicWriter(
                cluster.topic_log(topic),
                topic,
                sync=config.acks == ACKS_ALL,
                sequencing=Sequencing(),
                gaps=ForeignGaps(),
            )
        self.topic = topic
        self.queue = TopicQueue(
            topic,
            buffer,
            self._clock,
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            max_block_ms=config.max_block_ms,
            gathers=config.transactional_id is not None,
        )
        self.gone = False
        """The topic was deleted: a producer that sends to it again looks for it anew."""
        self._learn_limits()
        self._buffer = buffer
        self._sticky = StickyPartition(config.batch_size)
        self._staged: deque[_Staged] = deque()
        self._in_flight = 0
        """Drains that were taken from the queue and aren't finished."""
        self._staging: Sequence[Batch] = ()
        """What the sender encodes and uploads at this moment."""
        self._held: list[_Held] = []
        """Of the open transaction, or of one that is decided and not published yet."""
        self._failure: SparklogError | None = None
        """Why the open transaction can't be committed."""
        self._transaction = 0
        """How many were taken back: what is uploaded for an earlier one counts no more."""
        self._staging_of = 0
        """The transaction of ``_staging``."""
        self._publications: deque[_Publication] = deque()
        self._publishing: Future[None] | None = None
        """How the newest publication ends."""
        self._aborted: SparklogError | None = None
        self._closing = False
        self._sender_ended = False
        self._threads = (
            threading.Thread(target=self._send, name=f"sparklog-sender-{topic}", daemon=True),
            threading.Thread(target=self._commit, name=f"sparklog-committer-{topic}", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def partition_count(self) -> int:
        return self._writer.head.partition_count

    @property
    def max_record_bytes(self) -> int:
        """Bytes of key, value and headers; as of the newest commit that is known."""
        return self.queue.max_record_bytes

    @property
    def in_flight(self) -> int:
        """Drains that are being uploaded or committed."""
        return self._in_flight

    @property
    def max_message_bytes(self) -> int:
        """The topic's ``max.message.bytes``."""
        return self._writer.head.config.integer("max.message.bytes")

    def refresh(self) -> None:
        """Learn of new partitions and settings.

        Raises ``UnknownTopicOrPartitionError``, ``StoreError``, ``KafkaTimeoutError``."""
        uninterrupted(self._refresh)

    def _refresh(self) -> None:
        max_block_ms = self._config.max_block_ms
        deadline = self._clock.ticks_ms() + max_block_ms
        self.finish_by(deadline)
        if not self._writing.acquire(timeout=bounded_s(max_block_ms / 1000)):
            raise KafkaTimeoutError(f"topic {self.topic!r}: a commit was under way for max_block_ms={max_block_ms}")
        try:
            with self._cluster.store.patience(self._patience(deadline)):
                self._writer.refresh()
            self._learn_limits()
        except UnknownTopicOrPartitionError:
            self._lose_topic()
            raise
        finally:
            self._writing.release()

    # Transactions.

    def adopt(self, *, producer_id: int, producer_epoch: int) -> None:
        """Write in the name of a transactional id's producer."""
        self._writer.adopt(producer_id=producer_id, producer_epoch=producer_epoch)

    @property
    def topic_id(self) -> str:
        """Of the topic that records are sent to."""
        return self._writer.topic_id

    @property
    def failure(self) -> SparklogError | None:
        """Why the open transaction can't be committed."""
        return self._failure

    @property
    def has_held(self) -> bool:
        """Is something of the open transaction here, uploaded or on its way?"""
        with self._buffer.lock:
            return bool(self._held or self._staging or self.queue.unfinished() or self._failure)

    def held_files(self) -> tuple[UploadedFile, ...]:
        """All that the open transaction has uploaded, after a flush."""
        with self._buffer.lock:
            return tuple(file for held in self._held for file in held.files)

    def check_held(self) -> None:
        """Before it is decided that they are published: may all that are held be? Raises as
        :meth:`TopicWriter.check_uploads`."""
        files = self.held_files()
        if files:
            with self._writing:
                self._writer.check_uploads(files)

    def publish(self, marker: Marker, *, deadline_ticks_ms: float) -> Future[None]:
        """Have the committer publish what is held; its transaction is decided. After an error: call it again."""
        done: Future[None] = Future()
        with self._buffer.lock:
            if self._publishing is not None and not self._publishing.done():  # the caller was interrupted meanwhile
                return self._publishing
            held, self._held = self._held, []
            if held:
                self._publishing = done
                self._publications.append(
                    _Publication(marker=marker, held=held, deadline_ticks_ms=deadline_ticks_ms, done=done)
                )
                self.queue.changed.notify_all()
        if not held:
            done.set_result(None)
        return done

    def wait_until_published(self, timeout_s: float | None) -> None:
        """Wait for a publication that is under way, however it ends."""
        publishing = self._publishing
        if publishing is not None:
            wait([publishing], bounded_s(timeout_s))

    def take_back(self, error: SparklogError) -> list[UploadedFile]:
        """Forget the open transaction's records, wherever they are; their futures fail with ``error``.

        Returns:
            Files that no log will ever name.
        """
        with self._buffer.lock:
            self._transaction += 1
            waiting = self.queue.take_all()
            held, self._held, self._failure = self._held, [], None
            self.queue.changed.notify_all()
        for one in held:
            self._tell(one.failures(error))
        failed = [(batch, Outcome(error=error)) for batch in waiting]
        self._tell(failed)
        for batch in waiting:
            self.queue.finish(batch)
        files = [file for one in held for file in one.files]
        self._writer.forget(files)
        return files

    def delete_files(self, files: Sequence[UploadedFile]) -> None:
        """Delete what no log will ever name. Raises ``StoreError``; the sweep of orphans deletes it later then."""
        table = self._writer.table
        self._cluster.store.delete([object_path(table, file.path) for file in files])

    def _hold(self, batches: Sequence[Batch], made: Drain, files: Sequence[StagedFile], transaction: int) -> None:
        """In the sender: uploaded within a transaction."""
        held = _Held(batches, made, files)
        with self._buffer.lock:
            if self._aborted is not None:
                return  # and they have failed
            self._in_flight -= 1
            self._staging = ()
            is_open = transaction == self._transaction
            if is_open:
                self._held.append(held)
                self._failure = self._failure or held.error
        if not is_open:
            self._forget(held)
        self._metrics.settled(self.topic, batches)
        for batch in batches:
            self.queue.finish(batch)

    def _forget(self, held: _Held) -> None:
        """It belongs to a transaction that was aborted meanwhile."""
        self._tell(held.failures(TransactionAbortedError(f"a transaction with records of {self.topic!r} was aborted")))
        try:
            self.delete_files(held.files)
        except StoreError as error:
            _LOGGER.info("files of an aborted transaction in %s are left to the sweep: %s", self.topic, error)

    def _fail_in_transaction(self, batches: Sequence[Batch], error: SparklogError, transaction: int) -> None:
        """In the sender: what couldn't be uploaded makes the transaction fail."""
        with self._buffer.lock:
            if self._aborted is not None:
                return
            self._in_flight -= 1
            self._staging = ()
            if transaction == self._transaction:
                self._failure = self._failure or error
        self._tell([(batch, Outcome(error=error)) for batch in batches])
        self._metrics.settled(self.topic, batches)
        for batch in batches:
            self.queue.finish(batch)

    def _carry_out(self, publication: _Publication) -> None:
        """In the committer."""
        files = [file for one in publication.held for file in one.files]
        began = self._clock.ticks_ms()
        deadline = publication.deadline_ticks_ms
        try:
            base_offsets: Sequence[int] = ()
            if files:
                with self._writing, self._cluster.store.patience(self._patience(deadline)):
                    published = self._writer.publish(
                        files,
                        publication.marker,
                        known_version=min(file.topic_version for file in files),
                        timeout_ms=max(0.0, deadline - began),
                    )
                base_offsets = published.base_offsets
                if published.is_skipped:
                    _LOGGER.warning("topic %s was deleted: records of a transaction are nowhere", self.topic)
                    self._lose_topic()
                self._learn_limits()
                self._metrics.appended(latency_ms=self._clock.ticks_ms() - began)
        except BaseException as error:
            with self._buffer.lock:
                self._held = [*publication.held, *self._held]  # to be published again
            publication.done.set_exception(error if isinstance(error, SparklogError) else self._broken(error))
            return
        start = 0
        try:
            for one in publication.held:
                end = start + len(one.files)
                self._tell(one.outcomes(base_offsets[start:end]))
                start = end
        finally:
            publication.done.set_result(None)

    def _tell(self, outcomes: Sequence[tuple[Batch, Outcome]]) -> None:
        for batch, outcome in outcomes:
            batch.settle(outcome)
        for batch, _ in outcomes:
            with self._callbacks:
                batch.run_callbacks()

    def owns_current_thread(self) -> bool:
        """Whether this is called by a callback."""
        return threading.current_thread() in self._threads

    def finish_by(self, deadline_ticks_ms: float | None) -> None:
        """Whoever waits for what was sent gives up at that tick; None: never."""
        if deadline_ticks_ms is not None:
            self._writer.finish_by(deadline_ticks_ms)

    def end(self, error: SparklogError) -> None:
        """Take no more records; deliver those that are there."""
        with self._buffer.lock:
            self._closing = True
            self.queue.end(error)

    def abort(self, error: SparklogError) -> None:
        """Give up what isn't being appended at this moment: it fails with ``error``, and is not stored.

        By a callback, they fail after the callbacks that come before theirs. While a callback runs elsewhere, theirs
        are left to the committer: it may never end."""
        with self._buffer.lock:
            self._aborted = error
            waiting = self.queue.take_all()
            self._in_flight += bool(waiting)
            given_up = [one.given_up(error) for one in self._staged]
            given_up += [_Staged(batches=batches, error=error) for batches in (self._staging, waiting) if batches]
            self._staging = ()
            self._staged.clear()
            self.queue.changed.notify_all()
            in_callback = self.owns_current_thread()
            if in_callback or not self._callbacks.acquire(blocking=False):
                self._staged.extend(given_up)
                self.queue.changed.notify_all()
                for one in () if in_callback else given_up:
                    for batch in one.batches:
                        batch.settle(Outcome(error=one.error))
                return
        try:
            self._fail_staged(given_up, error)
        finally:
            self._callbacks.release()

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the threads have ended, which they do once all is delivered after :meth:`end`."""
        deadline = None if timeout_s is None else self._clock.ticks_ms() + timeout_s * 1000
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(bounded_s(None if deadline is None else (deadline - self._clock.ticks_ms()) / 1000))
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self) -> None:
        while True:
            batches = self._next_batches()
            if not batches:
                break
            self._stage(batches)
        with self._buffer.lock:
            self._sender_ended = True
            self.queue.changed.notify_all()

    def _next_batches(self) -> list[Batch]:
        """Wait for batches to send; empty at the end."""
        with self._buffer.lock:
            while True:
                wait_ms: float | None = None
                if self._in_flight < self._config.max_in_flight_requests_per_connection:
                    wait_ms = self.queue.wait_ms(now_ticks_ms=self._clock.ticks_ms(), idle=not self._staged)
                if wait_ms == 0.0:
                    self._staging_of = self._transaction
                    self._staging = self.queue.take()
                    if not self._staging:
                        continue
                    self._in_flight += 1
                    return list(self._staging)
                if self._closing and not self.queue.has_records:
                    return []
                self.queue.changed.wait(None if wait_ms is None else wait_ms / 1000)

    def _stage(self, batches: Sequence[Batch]) -> None:
        """Encode and upload; what fails is told in its turn, by the committer."""
        began = self._clock.ticks_ms()
        gathers, transaction = self._config.transactional_id is not None, self._staging_of
        waits_since = began if gathers else batches[0].created_ticks_ms
        deadline = waits_since + self._config.delivery_timeout_ms
        files: Sequence[StagedFile] = []
        try:
            if self.gone:
                raise UnknownTopicOrPartitionError(f"topic {self.topic!r} was deleted")
            if began >= deadline:
                raise self._too_late(batches, "it waited for the batches before it")
            head = self._writer.head
            made = drain(
                batches,
                head.config,
                partition_count=head.partition_count,
                sticky=self._sticky,
                now_ms=self._clock.now_ms(),
            )
            if made.parts:
                with self._cluster.store.patience(self._patience(deadline)):
                    files = self._writer.upload(made.parts, compression=self._compression())
            staged = _Staged(batches=batches, drain=made.without_records(), files=files)
            self._metrics.encoded(batches, queued_ms=began - batches[0].created_ticks_ms, files=files)
        except StoreError as error:
            too_late = self._too_late(batches, str(error)) if error.retriable else error
            staged = _Staged(batches=batches, error=too_late)
        except SparklogError as error:
            staged = _Staged(batches=batches, error=error)
        except BaseException as error:
            staged = _Staged(batches=batches, error=self._aborted or self._broken(error))
        if gathers and staged.error is not None:
            self._fail_in_transaction(batches, staged.error, transaction)
            return
        if gathers and staged.drain is not None:
            self._hold(batches, staged.drain, files, transaction)
            return
        with self._buffer.lock:
            if self._aborted is not None:
                return  # and they have failed
            self._staging = ()
            self._staged.append(staged)
            self.queue.changed.notify_all()

    def _commit(self) -> None:
        while True:
            with self._buffer.lock:
                while not (self._staged or self._publications or self._is_over()):
                    self.queue.changed.wait()
                staged = list(self._staged)
                self._staged.clear()
                publications = list(self._publications)
                self._publications.clear()
                self.queue.changed.notify_all()
            for publication in publications:
                self._carry_out(publication)
            if not (staged or publications):
                break
            while staged:
                staged = self._append(staged)
                if self._aborted is not None:
                    self._fail_staged(staged, self._aborted)
                    break
        self._writer.close()
        self.queue.close()

    def _is_over(self) -> bool:
        """Has the sender ended, and is nothing left for the committer? What a transaction has sent to a topic that was
        deleted stays until the transaction ends. The lock is held."""
        is_held = self._aborted is None and (self._held or self._failure is not None)
        return self._sender_ended and not is_held

    def _append(self, staged: Sequence[_Staged]) -> list[_Staged]:
        """Commit all at once. Returns those that are to be tried again: others of the same commit came too late."""
        files = [file for one in staged for file in one.files]
        deadline = self._config.delivery_timeout_ms + min(one.batches[0].created_ticks_ms for one in staged)
        outcomes: list[Sequence[Outcome]] = []
        try:
            base_offsets = self._publish(files, deadline_ticks_ms=deadline) if files else ()
            start = 0
            for one in staged:
                end = start + len(one.files)
                outcomes.append(one.outcomes(base_offsets[start:end]))
                start = end
        except CommitStateUnknownError as error:
            self._fail_staged(staged, error)
        except KafkaTimeoutError as error:
            return self._fail_late(staged, error)
        except SparklogError as error:
            if isinstance(error, UnknownTopicOrPartitionError):
                self._lose_topic()
            self._fail_staged(staged, error)
        except BaseException as error:
            self._fail_staged(staged, self._broken(error))
        else:
            for one, told in zip(staged, outcomes, strict=True):
                self._settle(one.batches, told)
        return []

    def _publish(self, files: Sequence[StagedFile], *, deadline_ticks_ms: float) -> Sequence[int]:
        """Append files in one commit; returns their base offsets."""
        began = self._clock.ticks_ms()
        with self._writing, self._cluster.store.patience(self._patience(deadline_ticks_ms)):
            done = self._writer.append(files, timeout_ms=max(0.0, deadline_ticks_ms - began))
        self._learn_limits()
        self._metrics.appended(latency_ms=self._clock.ticks_ms() - began)
        return done.base_offsets

    def _fail_late(self, staged: Sequence[_Staged], error: SparklogError) -> list[_Staged]:
        """Nothing of them is stored: fail those whose time is over, and the first in any case."""
        now = self._clock.ticks_ms() - self._config.delivery_timeout_ms
        late = [one for one in staged if one.batches[0].created_ticks_ms <= now] or [staged[0]]
        self._fail_staged(late, error)
        return [one for one in staged if one not in late]

    def _fail_staged(self, staged: Sequence[_Staged], error: SparklogError) -> None:
        for one in staged:
            self._settle(one.batches, [Outcome(error=one.error or error)] * len(one.batches))

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Outcome]) -> None:
        """The batches of one drain."""
        for batch, outcome in zip(batches, outcomes, strict=True):
            batch.settle(outcome)
        with self._buffer.lock:
            self._in_flight -= 1
        for batch in batches:
            with self._callbacks:
                batch.run_callbacks()
            self.queue.finish(batch)
        self._metrics.settled(self.topic, batches)
        if self._config.acks == 0:
            _log_failures(self.topic, outcomes)

    def _learn_limits(self) -> None:
        config = self._config
        limit = min(config.max_request_size, config.buffer_memory, self.max_message_bytes)
        self.queue.max_record_bytes = -1 if self.gone else limit

    def _lose_topic(self) -> None:
        self.gone = True
        self._learn_limits()

    def _compression(self) -> str:
        """The topic's own codec, where it doesn't leave it to the producer. Source: Kafka ``compression.type``."""
        codec = str(self._writer.head.config["compression.type"])
        return self._config.compression_type if codec == "producer" else codec

    def _patience(self, deadline_ticks_ms: float) -> Patience:
        return Patience(
            deadline_ticks_ms=deadline_ticks_ms,
            retries=self._config.retries,
            backoff_ms=self._config.retry_backoff_ms,
            backoff_max_ms=self._config.retry_backoff_max_ms,
        )

    def _too_late(self, batches: Sequence[Batch], why: str) -> KafkaTimeoutError:
        count = sum(batch.count for batch in batches)
        return KafkaTimeoutError(
            f"{count} records of topic {self.topic!r} were not stored with "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms} and retries={self._config.retries}: {why}"
        )

    def _broken(self, error: BaseException) -> SparklogError:
        """What is not sparklog's own error is a defect, and still nobody may wait for ever."""
        _LOGGER.critical("sending to topic %s failed unexpectedly", self.topic, exc_info=error)
        broken = IllegalStateError(f"sending to topic {self.topic!r} failed unexpectedly: {error!r}")
        broken.__cause__ = error
        return broken


def _log_failures(topic: str, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            _LOGGER.warning("records of topic %s with acks=0 were lost: %s", topic, outcome.error)
        elif outcome.refused:
            first = next(iter(outcome.refused.values()))
            _LOGGER.warning("%d records of topic %s with acks=0 were refused: %s", len(outcome.refused), topic, first)
