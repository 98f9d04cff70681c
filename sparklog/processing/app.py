"""The app: handlers by decorator, and a worker that calls them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from sparklog.admin import Admin, NewTopic
from sparklog.clock import Clock
from sparklog.errors import IllegalStateError, InvalidArgumentError, TopicAlreadyExistsError
from sparklog.interrupts import EventCount
from sparklog.log import Cluster
from sparklog.processing.client_settings import checked_client_settings
from sparklog.processing.health import Health, State
from sparklog.processing.lanes import OrderBy
from sparklog.processing.moves import DeadLetter
from sparklog.processing.retries import Retry
from sparklog.processing.retry_topics import fit_retry_topic, retry_topic_settings
from sparklog.processing.share_worker import ShareWorker
from sparklog.processing.subscriber import Subscriber, check_no_circle, make_subscriber
from sparklog.processing.values import Decode
from sparklog.processing.work import Limits
from sparklog.processing.worker import AppSettings, AppWorker
from sparklog.workers import Worker

__all__ = ["App"]

H = TypeVar("H", bound=Callable[[Any], Any])


class App:
    """Handlers of records, and a worker, a member of a group, that calls them.

    The records that a handler returns or yields (:class:`~sparklog.processing.messages.Send`) are sent in the
    transaction that commits the offsets of its input: exactly once. Other effects of a handler happen at least once.

    Args:
        cluster: the cluster's root URI or folder, or an open cluster.
        group_id: the group; workers with the same group share the partitions, or the records.
        group_type: ``consumer``: each partition belongs to one worker. ``share``: the workers are members of a share
            group, which delivers each record separately, and again if its handler failed. Then all effects of a
            handler, including the records that it sends, happen at least once.
        storage_options: credentials and endpoint of the store, if ``cluster`` is a URI.
        transactional_id: used by this worker only; by default each worker gets a new one. Set it if workers have
            fixed names and restart often, since each new id leaves two small objects in the store.
        auto_offset_reset: where a group without committed offsets begins.
        commit_interval_ms: time between two commits, more than 0; longer while commits take longer than that.
        drain_timeout_s: how long to wait for running handlers when the worker ends or a partition is revoked; for a
            partition, half of ``max_poll_interval_ms`` at most.
        handler_timeout_s: if a handler takes longer than this, the worker ends with an error.
        patience_s: how long to retry while the store refuses commits or reads for temporary reasons.
        limits: bounds of reading ahead.
        consumer, producer: further settings of the clients, by Kafka's names with underscores or dots; not the
            worker's own, and none that changes keys and values.
        on_dead_letter: called in the worker's thread with each record that was moved to a dead-letter topic, after
            the move is committed: at most once. Errors that it raises are logged.
    Raises:
        InvalidArgumentError: a value isn't allowed; the message names it.
        InvalidConfigurationError: a setting of a client isn't.
    """

    def __init__(
        self,
        cluster: str | Path | Cluster,
        *,
        group_id: str,
        group_type: Literal["consumer", "share"] = "consumer",
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        transactional_id: str | None = None,
        auto_offset_reset: str = "earliest",
        commit_interval_ms: float = 100,
        drain_timeout_s: float = 30,
        handler_timeout_s: float = 300,
        patience_s: float = 120,
        limits: Limits | None = None,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
        on_dead_letter: Callable[[DeadLetter], object] | None = None,
    ) -> None:
        for name, number in (("commit_interval_ms", commit_interval_ms), ("handler_timeout_s", handler_timeout_s)):
            if not number > 0:
                raise InvalidArgumentError(f"App: {name}={number}, expected more than 0")
        if group_type not in ("consumer", "share"):
            raise InvalidArgumentError(f"App: {group_type=}, expected 'consumer' or 'share'")
        if group_type == "share" and transactional_id is not None:
            raise InvalidArgumentError("App: transactional_id: a share group's acknowledgements are in no transaction")
        if drain_timeout_s < 0 or patience_s < 0:
            raise InvalidArgumentError(f"App: {drain_timeout_s=}, {patience_s=}: expected 0 or more")
        of_consumer, of_producer = checked_client_settings(
            group_id, consumer or {}, producer or {}, is_shared=group_type == "share"
        )
        self.settings = AppSettings(
            cluster=cluster,
            group_id=group_id,
            is_shared=group_type == "share",
            storage_options=storage_options,
            clock=clock,
            transactional_id=transactional_id,
            auto_offset_reset=auto_offset_reset,
            commit_interval_ms=commit_interval_ms,
            drain_timeout_s=drain_timeout_s,
            handler_timeout_s=handler_timeout_s,
            patience_s=patience_s,
            limits=limits or Limits(),
            consumer=of_consumer,
            producer=of_producer,
            on_dead_letter=on_dead_letter,
        )
        self.subscribers: list[Subscriber] = []
        """In the order in which they were added."""
        self._worker: AppWorker | ShareWorker | None = None
        self._thread: Worker | None = None
        self._news = EventCount()
        self._is_stop_asked = False

    def subscriber(
        self,
        *topics: str,
        retry: Retry | None = None,
        dead_letter: bool | str | None = None,
        concurrency: int = 1,
        order_by: OrderBy | None = None,
        batch_size: int = 500,
        value_type: Any = None,
        decode: Decode | None = None,
    ) -> Callable[[H], H]:
        """Register a function as handler of the records of topics. It takes a ``Record[T]`` or a ``Batch[T]``, and may
        be async, a generator or both.

        Args:
            retry: the rules for retries after an error; by default there are none.
            dead_letter: a topic for records that can't be decoded, or whose last retry failed; True: ``dlq.`` and the
                record's topic. Without one the worker ends with an error before such a record.
            concurrency: the greatest number of concurrent calls, 1 to 1,000.
            order_by: which records are handled in order: those of a partition, those of a key (records without
                a key in no order), or none. By default those of a partition; a share group has no order.
            batch_size: the most records of a batch.
            value_type: T, if the annotation can't express it.
            decode: a function from a record's bytes to the value, instead of ``value_type``.
        Raises:
            IllegalStateError: the app has been started, or another handler reads one of the topics.
            InvalidArgumentError, InvalidTypeError, InvalidTopicError: the message names the handler.
        """

        def add(handler: H) -> H:
            if self._worker is not None:
                raise IllegalStateError("subscriber: the app has been started")
            made = make_subscriber(
                handler,
                topics,
                retry=retry,
                dead_letter=dead_letter,
                concurrency=concurrency,
                order_by=order_by,
                batch_size=batch_size,
                value_type=value_type,
                decode=decode,
                is_shared=self.settings.is_shared,
            )
            taken = {topic for each in self.subscribers for topic in (*each.topics, *each.delay_topics())}
            twice = taken.intersection([*made.topics, *made.delay_topics()])
            if twice:
                raise IllegalStateError(f"subscriber {made.name}: another handler reads {', '.join(sorted(twice))}")
            check_no_circle([*self.subscribers, made])
            self.subscribers.append(made)
            return handler

        return add

    def create_topics(self) -> list[str]:
        """Create the delay and dead-letter topics that don't exist, each with as many partitions as the topic from
        which its records come. Delay topics keep what waits for any time; those that exist get the same settings.
        Returns the names of the topics that were created.

        Raises:
            UnknownTopicOrPartitionError: a subscribed topic doesn't exist.
            InvalidConfigurationError: a topic of a delay topic's name is compacted, or has a schema.
            StoreError.
        """
        created = []
        with Admin(self.settings.cluster, storage_options=self.settings.storage_options) as admin:
            there = set(admin.list_topics())
            for subscriber in self.subscribers:
                for described in admin.describe_topics(subscriber.topics):
                    topic, count = described.name, described.partition_count
                    delays = dict.fromkeys(subscriber.retry.topics_of(topic), retry_topic_settings(described.config))
                    letters = subscriber.dead_letter_of(topic)
                    for name, configs in {**delays, **({} if letters is None else {letters: {}})}.items():
                        if name not in there:
                            there.add(name)
                            try:
                                admin.create_topics([NewTopic(name, num_partitions=count, configs=configs)])
                                created.append(name)
                            except TopicAlreadyExistsError:  # by another worker, just now
                                continue
                        elif name in delays:
                            fit_retry_topic(admin, name, described)
        return created

    def run(self) -> None:
        """Run the worker until SIGINT, SIGTERM or :meth:`stop`; then wait for running handlers, commit, and leave the
        group.

        Raises:
            HandlerError: a handler failed, and there is no dead-letter topic for its record; or a handler hangs.
            SparklogError: the store or the group refused a call permanently, or for longer than ``patience_s``.
            IllegalStateError: it was started before, or there is no handler.
        """
        with _signals(self._ask_to_stop):
            self.start()
            worker = self._worker
            self._news.wait_for(lambda: worker is None or worker.state in (State.STOPPED, State.FAILED))
        self.stop()

    def start(self) -> None:
        """Start the worker in a thread. Raises ``IllegalStateError``, and the errors of opening the cluster."""
        if self._worker is not None:
            raise IllegalStateError("start: this app has been started before: make a new one")
        if not self.subscribers:
            raise IllegalStateError("start: there is no handler: decorate one by app.subscriber(…)")
        kind = ShareWorker if self.settings.is_shared else AppWorker
        worker = self._worker = kind(self.settings, self.subscribers)
        if self._is_stop_asked:  # by a signal, while the cluster was opened
            worker.stop()
        self._thread = Worker("processing", lambda: self._run(worker))
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the worker: it waits for running handlers, commits, and leaves the group. Waits for its end; from a
        handler or ``on_dead_letter``, which the worker itself waits for, it doesn't.

        Args:
            timeout_s: seconds to wait; None: no bound but ``drain_timeout_s`` and the store's time-outs.
        Raises:
            The error with which the worker ended; see :meth:`run`.
            TimeoutError: the worker hasn't ended within ``timeout_s``; it still does.
        """
        worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return
        worker.stop()
        if thread.is_current or worker.is_calling:
            return
        if not self._news.wait_for(lambda: worker.state in (State.STOPPED, State.FAILED), timeout_s):
            raise TimeoutError(f"the worker has not ended after {timeout_s} s")
        thread.join(timeout_s)
        if worker.error is not None:
            raise worker.error

    def health(self) -> Health:
        """The worker's state. From any thread. Raises ``IllegalStateError``: it wasn't started."""
        return self._started().health()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Totals since the start, by group and name. From any thread. Raises ``IllegalStateError``: not started."""
        return self._started().metrics()

    def __enter__(self) -> App:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _started(self) -> AppWorker | ShareWorker:
        if self._worker is None:
            raise IllegalStateError("the app hasn't been started")
        return self._worker

    def _ask_to_stop(self) -> None:
        self._is_stop_asked = True
        if self._worker is not None:
            self._worker.stop()

    def _run(self, worker: AppWorker | ShareWorker) -> None:
        try:
            worker.run()
        finally:
            self._news.notify_all()


@contextmanager
def _signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop meanwhile, where this is the main thread; a second one does what it did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in wanted}

    def ask(number: int, frame: object) -> None:
        stop()
        for each in wanted:
            signal.signal(each, before[each] or signal.SIG_DFL)

    for number in wanted:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, before[number] or signal.SIG_DFL)
