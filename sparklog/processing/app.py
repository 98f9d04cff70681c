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
from sparklog.processing.health import Health, State
from sparklog.processing.lanes import OrderBy
from sparklog.processing.moves import DeadLetter
from sparklog.processing.retries import Retry
from sparklog.processing.share_worker import ShareWorker
from sparklog.processing.subscriber import Subscriber, make_subscriber
from sparklog.processing.values import Decode
from sparklog.processing.work import Limits
from sparklog.processing.worker import AppSettings, AppWorker
from sparklog.workers import Worker

__all__ = ["App"]

H = TypeVar("H", bound=Callable[[Any], Any])


class App:
    """Handlers of records, and a worker around a member of a consumer group that calls them.

    What a handler returns or yields (:class:`~sparklog.processing.messages.Send`) is sent in the transaction that
    commits the offsets of what it was made from: exactly once. Other effects of a handler happen at least once.

    Args:
        cluster: its root URI or folder, or an open cluster.
        group_id: the group; workers with the same one share the partitions, or the records.
        group_type: ``consumer``: each partition belongs to one worker. ``share``: the workers are members of a share
            group, which deliver each record by itself, and again where its handler failed; then all that a handler
            does, what it sends among it, happens at least once.
        storage_options: access to the store, for its URI.
        transactional_id: of this worker alone; by default a new one for each. Give one where workers have names of
            their own and restart often: each new id leaves two small objects in the store.
        auto_offset_reset: where a group begins that has committed nothing.
        commit_interval_ms: how often to commit, more than 0; less often while commits take longer than that.
        drain_timeout_s: how long the end, or a partition that is taken away, waits for handlers at work; for a
            partition half of ``max_poll_interval_ms`` at most.
        handler_timeout_s: a handler that takes longer than that hangs: the worker ends with an error.
        patience_s: how long to go on while the store refuses commits or reads, for reasons that may pass.
        limits: bounds of what is read ahead.
        consumer, producer: further settings of the clients, by Kafka's names with underscores.
        on_dead_letter: called with each record that was moved to the dead letters, after that is committed, in the
            worker's thread: at most once. What it raises is logged.
    Raises:
        InvalidArgumentError: a value that isn't allowed; names it.
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
            consumer=dict(consumer or {}),
            producer=dict(producer or {}),
            on_dead_letter=on_dead_letter,
        )
        self.subscribers: list[Subscriber] = []
        """In the order in which they were added."""
        self._worker: AppWorker | ShareWorker | None = None
        self._thread: Worker | None = None
        self._news = EventCount()

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
        """Have a function called with the records of topics. It takes a ``Record[T]`` or a ``Batch[T]``, and may be
        async, a generator or both.

        Args:
            retry: how often to try again what raised an error; not at all by default.
            dead_letter: a topic for records that can't be decoded, or that no try could mend; True: ``dlq.`` and the
                record's topic. Without one the worker ends with an error before such a record.
            concurrency: so many calls at a time at most, 1 to 1,000.
            order_by: what is handled one after the other: the records of a partition, those of a key (records without
                a key in no order), or none. By default those of a partition; a share group has no order.
            batch_size: records of a batch at most.
            value_type: T, where the annotation can't say it.
            decode: makes a value of a record's bytes, instead.
        Raises:
            IllegalStateError: the app has been started, or reads a topic already.
            InvalidArgumentError, InvalidTypeError, InvalidTopicError: names the handler.
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
            self.subscribers.append(made)
            return handler

        return add

    def create_topics(self) -> list[str]:
        """Create the delay and dead-letter topics that aren't there, with as many partitions as the topics whose
        records they take. Returns their names.

        Raises:
            UnknownTopicOrPartitionError: a topic that is subscribed to doesn't exist.
            StoreError.
        """
        created = []
        with Admin(self.settings.cluster, storage_options=self.settings.storage_options) as admin:
            there = set(admin.list_topics())
            for subscriber in self.subscribers:
                for described in admin.describe_topics(subscriber.topics):
                    topic, count = described.name, described.partition_count
                    letters = subscriber.dead_letter_of(topic)
                    wanted = [*subscriber.retry.topics_of(topic), *([] if letters is None else [letters])]
                    for name in dict.fromkeys(wanted):
                        if name not in there:
                            there.add(name)
                            try:
                                admin.create_topics([NewTopic(name, num_partitions=count)])
                                created.append(name)
                            except TopicAlreadyExistsError:  # by another worker, just now
                                continue
        return created

    def run(self) -> None:
        """Work until SIGINT, SIGTERM or :meth:`stop`; then end what was begun, commit it, and leave the group.

        Raises:
            HandlerError: a handler failed or hangs, and its record has nowhere to go.
            SparklogError: what the store or the group refused for good, or for longer than ``patience_s``.
            IllegalStateError: it was started before, or there is no handler.
        """
        with _signals(self._ask_to_stop):
            self.start()
            worker = self._worker
            self._news.wait_for(lambda: worker is None or worker.state in (State.STOPPED, State.FAILED))
        self.stop()

    def start(self) -> None:
        """Begin to work, in a thread. Raises ``IllegalStateError``, and what opening the cluster raises."""
        if self._worker is not None:
            raise IllegalStateError("start: this app has been started before: make a new one")
        if not self.subscribers:
            raise IllegalStateError("start: there is no handler: decorate one by app.subscriber(…)")
        kind = ShareWorker if self.settings.is_shared else AppWorker
        worker = self._worker = kind(self.settings, self.subscribers)
        self._thread = Worker("processing", lambda: self._run(worker))
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        """End what was begun, commit it, leave the group; wait for that.

        Args:
            timeout_s: seconds to wait; None: as long as it takes, which ``drain_timeout_s`` bounds, and the store.
        Raises:
            What the worker ended with, as :meth:`run`.
            TimeoutError: not done in ``timeout_s``; it goes on.
        """
        worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return
        worker.stop()
        if not self._news.wait_for(lambda: worker.state in (State.STOPPED, State.FAILED), timeout_s):
            raise TimeoutError(f"the worker has not ended after {timeout_s} s")
        thread.join(timeout_s)
        if worker.error is not None:
            raise worker.error

    def health(self) -> Health:
        """How the worker fares. From any thread. Raises ``IllegalStateError``: it wasn't started."""
        return self._started().health()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Totals since the start: group to name to value. From any thread. Raises ``IllegalStateError``."""
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
