"""A producer's transactions: the order of the calls, and what each of them does in the topics.

The decisions are those of :class:`~sparklog.txn.session.TransactionSession`. Source of the states and of which error
asks for what: Kafka ``TransactionManager``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial

from sparklog.clock import Deadline
from sparklog.config import ACKS_ALL, ProducerConfig
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from sparklog.interrupts import bounded_s
from sparklog.log import Cluster, Marker
from sparklog.logs import about, without_content
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.producer.completion_thread import CompletionThread
from sparklog.producer.offset_arguments import check_offsets
from sparklog.producer.store_patience import store_patience
from sparklog.producer.transaction_calls import TransactionCalls, check_transaction_timeout
from sparklog.producer.transaction_uploads import TransactionUploads
from sparklog.storage.retrying import Patience
from sparklog.txn.entries import TopicFiles
from sparklog.txn.forward import is_refusal
from sparklog.txn.session import TransactionSession
from sparklog.txn.states import ClientState, check_client_step

__all__ = ["TransactionManager"]

_LOGGER = logging.getLogger("sparklog.producer")
_STILL_ENDING = (
    "a transaction of %r is still being ended as close returns; if that fails, the id's next producer ends it"
)


class TransactionManager:
    """The transactions of one producer. Several threads may call the methods; one call is carried out at a time.

    Where an interrupt might part it, another thread does it: so it goes on; the same call again returns its outcome.

    Args:
        uploads: returns the transaction's part in each topic that was sent to.
        allow_sending: called with whether plain records may be sent from now on without asking :meth:`check_send`.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        uploads: Callable[[], Sequence[TransactionUploads]],
        allow_sending: Callable[[bool], None],
    ) -> None:
        self._clock = cluster.clock
        self._store = cluster.store
        self._config = config
        self._id = config.transactional_id or ""
        self._uploads = uploads
        self._allow_sending = allow_sending
        self._session = TransactionSession(
            cluster, self._id, timeout_ms=config.transaction_timeout_ms, sync=config.acks == ACKS_ALL
        )
        self._calls = TransactionCalls(config.max_block_ms, cluster.clock)
        self._background = CompletionThread()
        self._lock = threading.RLock()
        self._state = ClientState.UNINITIALIZED
        self._error: SparklogError | None = None
        """Reason of the states ``ABORTABLE_ERROR`` and ``FATAL_ERROR``."""
        self._decided: Marker | None = None
        """A transaction that is committed and not carried out everywhere, as topics are to remember it."""
        self.is_refused_by_topics = False
        """Is the transaction carried out in all groups, and in all topics but some that refuse it for good?"""
        self._began_ticks_ms = 0.0
        self._is_known_to_session = False
        self._is_ending = False
        """The open transaction is being committed or aborted: it takes no more records."""
        self._number = 0
        """How many transactions were begun."""

    @property
    def is_open(self) -> bool:
        """May records be sent?"""
        return self._state is ClientState.IN_TRANSACTION and not self._is_ending

    def adopt(self, uploads: TransactionUploads) -> None:
        """Have a topic written to in this producer's name, and only within a transaction. Again does nothing."""
        uploads.queue.check_open = self.check_send
        if not self._session.has_begun:  # init adopts every topic that is open by then
            return
        header = self._session.header
        uploads.topic.use_producer_id(producer_id=header.producer_id, producer_epoch=header.producer_epoch)

    def check_send(self) -> None:
        """May records be sent now?

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: it failed: abort it.
            SparklogError: a fatal error, after which the producer is to be closed.
        """
        if self.is_open:
            return
        self._raise_error("send")
        if self._state is ClientState.IN_TRANSACTION:
            raise IllegalStateError("send: the transaction is being committed or aborted")
        raise IllegalStateError(f"send: this producer is {self._state.value}; expected an open transaction")

    def init_transactions(self) -> None:
        """See :meth:`Producer.init_transactions`."""
        self._calls.run("init_transactions", self._init, key="init_transactions")

    def _init(self) -> None:
        check_transaction_timeout(self._config.transaction_timeout_ms)
        with self._lock:
            self._check_order("init_transactions", ClientState.INITIALIZING)
            with self._within_max_block() as deadline:
                self._call_session(lambda: self._session.begin_epoch(deadline=deadline))
            for uploads in self._uploads():
                self.adopt(uploads)
            self._state = ClientState.READY

    def begin_transaction(self) -> None:
        """See :meth:`Producer.begin_transaction`. After a long idle the session's marker is refreshed beside it."""
        self._calls.check_free("begin_transaction")
        with self._lock:
            self._raise_error("begin_transaction")
            check_client_step("begin_transaction", self._state, ClientState.IN_TRANSACTION)
            self._began_ticks_ms, self._is_known_to_session = self._clock.ticks_ms(), False
            if self._session.is_marker_old():
                self._calls.run("begin_transaction", self._begin_refreshing)
            self._number += 1
            self._is_ending = False
            self._state = ClientState.IN_TRANSACTION  # what counts is this one step: an interrupt may come at any other
            self._allow_sending(True)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], metadata: ConsumerGroupMetadata
    ) -> None:
        """See :meth:`Producer.send_offsets_to_transaction`."""
        check_offsets(offsets, metadata)
        self._calls.run("send_offsets_to_transaction", lambda: self._send_offsets(offsets, metadata))

    def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], metadata: ConsumerGroupMetadata
    ) -> None:
        with self._lock:
            self._check_order("send_offsets_to_transaction", ClientState.IN_TRANSACTION, is_inside=True)
            if not offsets:
                return
            with self._within_max_block() as deadline:
                self._begin_in_session(deadline)
                try:
                    self._call_session(lambda: self._session.add_offsets(offsets, metadata, deadline=deadline))
                except SparklogError as error:
                    self._fail(error)
                    raise

    def commit_transaction(self) -> None:
        """See :meth:`Producer.commit_transaction`."""
        self._calls.run("commit_transaction", self._commit, key=("commit_transaction", self._number))

    def _commit(self) -> None:
        with self._lock:
            self._check_order("commit_transaction", ClientState.COMMITTING, is_prepared=True)
            with self._within_max_block() as deadline:
                if self._state is not ClientState.COMMITTING and not self._prepare(deadline):
                    self._end()
                    return
                if self._decided is None:
                    self._decide_commit(deadline)
                self._publish_everywhere(deadline)
            self._end(completes=True)

    def _prepare(self, deadline: Deadline) -> bool:
        """Upload all that was sent. False: there is nothing to commit."""
        self._take_records(False)  # from here on nobody's record slips behind what is decided
        try:
            for uploads in self._uploads():
                uploads.queue.begin_flush()
            for uploads in self._uploads():
                if not uploads.queue.flush(deadline):
                    raise KafkaTimeoutError(
                        f"commit_transaction: records of topic {uploads.topic.name!r} aren't uploaded after "
                        f"max_block_ms={self._config.max_block_ms}; call it again, or abort"
                    )
        except BaseException:
            self._take_records(True)
            raise
        failure = next((uploads.failure for uploads in self._uploads() if uploads.failure is not None), None)
        if failure is not None:
            self._fail(failure)
            raise TransactionAbortableError(f"a record of the transaction can't be stored: {failure}") from failure
        self._check_publishable()
        self._begin_in_session(deadline)
        return self._session.has_offsets or any(uploads.files() for uploads in self._uploads())

    def _check_publishable(self) -> None:
        """Before the decision: may the files that were uploaded be published (rule L10, orphans)?"""
        for uploads in self._uploads():
            try:
                uploads.check_publishable()
            except TransactionAbortableError as error:
                raise self._fail(error) from None
            except StoreError as error:
                self._take_records(True)
                if not error.retriable:
                    raise
                raise KafkaTimeoutError(
                    f"commit_transaction: whether files of topic {uploads.topic.name!r} are still there is unknown "
                    f"after max_block_ms={self._config.max_block_ms}; call it again, or abort: {error}"
                ) from error

    def _decide_commit(self, deadline: Deadline) -> None:
        open_topics = [(uploads.topic, uploads.files()) for uploads in self._uploads() if not uploads.topic.is_gone]
        topics = {topic.name: TopicFiles(topic_id=topic.topic_id, files=files) for topic, files in open_topics if files}
        self._state = ClientState.COMMITTING
        try:
            used = [topic.newest_transaction(self._session.transactional_id) for topic, _ in open_topics]
            self._decided = self._call_session(lambda: self._session.commit(topics, deadline=deadline, used=used))
        except TransactionAbortableError as error:
            raise self._fail(error) from error.__cause__
        except SparklogError:
            is_undecided = self._state is ClientState.COMMITTING and not self._session.may_be_committed
            if is_undecided:  # it may be aborted as well
                self._state = ClientState.IN_TRANSACTION
                self._take_records(True)
            raise

    def _publish_everywhere(self, deadline: Deadline) -> None:
        """Publish in all topics at once, then let the offsets count in the groups (rule T2, hand-over).

        What fails is done by the next call, or by whoever meets the decision; what a topic refuses for good hinders no
        other, nor the groups."""
        marker = self._decided
        if marker is None:
            raise IllegalStateError("nothing is decided")
        publications = [uploads.start_publishing(marker, deadline=deadline) for uploads in self._uploads()]

        def wait_until_published() -> list[BaseException]:
            """Returns the errors of topics that refuse the transaction."""
            wait(publications, bounded_s(deadline.left_ms / 1000))
            errors = [
                publication.exception() if publication.done() else KafkaTimeoutError("a callback is still at work")
                for publication in publications
            ]
            passing = next((error for error in errors if error is not None and not is_refusal(error)), None)
            if passing is not None:
                raise KafkaTimeoutError(
                    "commit_transaction: the transaction is committed, but not visible everywhere yet; call it again: "
                    f"{passing}"
                ) from passing
            return [error for error in errors if error is not None]

        settle = partial(self._session.settle_groups, is_committed=True, deadline=deadline)
        try:
            settle(when_published=wait_until_published)
        finally:
            refusals = wait_until_published()
        self.is_refused_by_topics = bool(refusals)
        for refusal in refusals:
            raise refusal.with_traceback(None)

    def abort_transaction(self) -> None:
        """See :meth:`Producer.abort_transaction`."""
        if self._calls.interrupted == ("commit_transaction", self._number):
            raise InvalidTxnStateError(
                "abort_transaction: commit_transaction was interrupted; call it again to learn how it ended"
            )
        self._calls.run("abort_transaction", self._abort, key=("abort_transaction", self._number))

    def _abort(self) -> None:
        with self._lock:
            is_repeated = self._state is ClientState.ABORTING
            self._check_order("abort_transaction", ClientState.ABORTING)
            self._take_records(False)
            with self._within_max_block() as deadline:
                self._begin_in_session(deadline)
                has_something = (
                    is_repeated or self._session.has_offsets or any(uploads.has_records for uploads in self._uploads())
                )
                self._state = ClientState.ABORTING
                if has_something:
                    self._call_session(lambda: self._session.abort(deadline=deadline))
                self._discard(TransactionAbortedError("the transaction was aborted"))
            self._end(completes=has_something)

    def _discard(self, error: SparklogError) -> None:
        """Let go of everything that was sent. Its files are deleted, unless the decision may name them."""
        is_named = self._is_known_to_session and self._session.may_be_committed
        if is_named:
            error = CommitStateUnknownError(
                "a transaction that is or may be committed wasn't carried out before its producer ended; whoever comes "
                f"next does so: {error}"
            )
        for uploads in self._uploads():
            files = uploads.discard_transaction(error)
            try:
                uploads.topic.delete_files([] if is_named else files)
            except StoreError as refusal:
                topic = uploads.topic.name
                text = "files of an aborted transaction in %s are left to the sweep: %s"
                _LOGGER.info(text, topic, refusal, extra=about(topic=topic))

    def close(self, deadline: Deadline) -> None:
        """Abort what is open, as Kafka's ``close`` does; say that the session is over. Errors are logged: whoever comes
        next finds what is left. What isn't done by the deadline goes on by itself."""
        level = logging.WARNING if deadline.left_ms > 0 else logging.INFO  # nobody wants to wait
        if not self._calls.run_within(lambda: self._close(deadline), deadline.left_ms):
            _LOGGER.log(level, _STILL_ENDING, self._id, extra=about(transactional_id=self._id))

    def _close(self, deadline: Deadline) -> None:
        with self._lock:
            try:
                if self._state in (ClientState.IN_TRANSACTION, ClientState.ABORTABLE_ERROR):
                    self._abort()
                self._background.wait_until_idle(deadline.left_ms / 1000)
                if self._state is ClientState.READY:
                    self._session.close()
            except SparklogError as error:
                self._tell(logging.WARNING, "a transaction of %r is left to whoever comes next: %s", error)
            for uploads in self._uploads():
                uploads.wait_until_published(deadline.left_ms / 1000)
            self._discard(TransactionAbortedError("the producer was closed within the transaction"))
            self._calls.stop()
            self._background.stop()
            self._session.wait_for_maintenance()

    # Inside.

    def _check_order(self, call: str, to: ClientState, *, is_inside: bool = False, is_prepared: bool = False) -> None:
        """Check the order of the calls.

        Args:
            is_inside: the call is one within a transaction, which stays open.
            is_prepared: the state is changed later.
        """
        if to is not ClientState.ABORTING or self._state is ClientState.FATAL_ERROR:
            self._raise_error(call)
        if is_inside:
            if self._state is not to:
                raise IllegalStateError(f"{call}: this producer is {self._state.value}; expected an open transaction")
            return
        check_client_step(call, self._state, to)
        if not is_prepared and to is not ClientState.ABORTING:
            self._state = to

    def _raise_error(self, call: str) -> None:
        """Raise what this transaction, or this producer, failed with before."""
        if self._error is None:
            return
        if self._state is ClientState.FATAL_ERROR:
            raise self._error.with_traceback(None)
        if self._state is ClientState.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"{call}: the transaction failed, abort it: {self._error}"
            ) from self._error.with_traceback(None)

    def _fail(self, error: SparklogError) -> SparklogError:
        """Remember why this transaction, or this producer, can't go on."""
        self._take_records(False)
        self._error = error
        self._state = ClientState.FATAL_ERROR if error.fatal else ClientState.ABORTABLE_ERROR
        if error.fatal:
            self._discard(error)
        return error

    def _take_records(self, takes_records: bool) -> None:
        """Does the open transaction take records from now on? If not, none is added once every queue was made to
        :meth:`begin_flush`."""
        self._is_ending = not takes_records
        self._allow_sending(takes_records)

    def _call_session(self, call: Callable[[], Marker | None]) -> Marker | None:
        """Make a call of the session; after a fatal error nothing else is possible any more."""
        try:
            return call()
        except SparklogError as error:
            if error.fatal:
                self._fail(error)
            raise

    def _begin_in_session(self, deadline: Deadline) -> None:
        """Begin the transaction in the session, once the one before is complete (rule T3, one at a time)."""
        if self._is_known_to_session:
            return
        try:
            left_s = deadline.left_ms / 1000
            if not self._background.wait_until_idle(left_s):
                raise KafkaTimeoutError(f"the transaction before isn't complete after {left_s:.1f} s")
            self._call_session(lambda: self._session.complete(deadline=deadline))  # if that had failed
        except SparklogError as error:
            raise error.with_traceback(None) from None
        self._session.begin(ticks_ms=self._began_ticks_ms)
        self._is_known_to_session = True

    def _end(self, *, completes: bool = False) -> None:
        """Be ready for the next transaction.

        Args:
            completes: the one that ended is written, and is still to be said to be carried out.
        """
        self._decided = None
        self._error = None
        self._is_known_to_session = False
        self._state = ClientState.READY
        self._take_records(False)
        if completes:  # what isn't completed here, :meth:`_begin_in_session` completes
            self._background.submit(self._complete)

    def _tell(self, level: int, text: str, error: SparklogError) -> None:
        _LOGGER.log(level, text, self._id, without_content(error), extra=about(transactional_id=self._id))

    def _complete(self) -> None:
        deadline = self._clock.deadline_in(self._config.max_block_ms)
        try:
            with self._store.patience(store_patience(self._config, deadline)):
                self._session.complete(deadline=deadline)
        except SparklogError as error:  # tried again before the next transaction is decided
            self._tell(logging.INFO, "a transaction of %r isn't said to be complete: %s", error)

    def _begin_refreshing(self) -> None:
        if self._background.is_idle:
            self._background.submit(self._refresh_marker)

    def _refresh_marker(self) -> None:
        """Refresh the marker beside the transaction that has just begun; once, as the next step waits for it."""
        with self._store.patience(Patience(deadline=self._clock.deadline_in(0), retries=0)):
            self._session.refresh_marker()

    @contextmanager
    def _within_max_block(self) -> Iterator[Deadline]:
        """Give store calls ``max_block_ms`` from now on, and yield that deadline."""
        deadline = self._clock.deadline_in(self._config.max_block_ms)
        with self._store.patience(store_patience(self._config, deadline)):
            yield deadline
