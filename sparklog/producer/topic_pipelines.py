"""The topics that a producer sends to: opened at the first send, opened anew after a deletion, ended together."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable

from sparklog.clock import Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import KafkaTimeoutError, SparklogError, UnknownTopicOrPartitionError
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.parallel import parallel_results
from sparklog.producer.accumulator import FutureBase
from sparklog.producer.buffer import Buffer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.overdue import OverdueWatch
from sparklog.producer.shared_threads import SharedThreads
from sparklog.producer.topic_pipeline import TopicPipeline
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.transaction_uploads import TransactionUploads

__all__ = ["TopicPipelines"]

_OPENED_AT_ONCE = 16
_LOOK_MS = 1_000.0
"""How often whoever closes looks whether threads are held up."""


class TopicPipelines:
    """A producer's pipelines by topic. Threads that send to different topics open them side by side."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, buffer: Buffer, metrics: ProducerMetrics) -> None:
        self.plain_queues: dict[str, TopicQueue] = {}
        """Queues that plain records may be added to without asking anything first."""
        self.future_type: type[FutureBase] = FutureRecordMetadata
        """The type that queues of pipelines which are opened from now on return for plain records."""
        self.ended: SparklogError | None = None
        """Why nothing can be sent any more."""
        self._cluster = cluster
        self._config = config
        self._buffer = buffer
        self._metrics = metrics
        self._pipelines: dict[str, TopicPipeline] = {}
        self._retired: list[TopicPipeline] = []
        """Pipelines of topics that were deleted: the last of their records are failing."""
        self._opening: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        """By topic; held by the thread that opens it, and awaited by others that send to it."""
        self._changing = threading.Lock()
        """Held for no longer than it takes to change a few attributes."""
        self._callbacks = threading.RLock()
        self._threads = SharedThreads(buffer.lock)
        self._has_plain_records = not (
            config.key_serializer
            or config.value_serializer
            or config.partitioner
            or config.interceptors
            or config.acks == 0
        )
        """Nothing of the user's is to be called for a record."""
        self._watch = OverdueWatch(config, cluster.clock, self._give_up_overdue)
        self._prepare: Callable[[TopicPipeline], None] = _nothing_to_prepare
        self._takes_records: Callable[[], bool] = _always

    def restrict(self, *, prepare: Callable[[TopicPipeline], None], takes_records: Callable[[], bool]) -> None:
        """Have pipelines prepared before they are used. For a producer that may not send at any time.

        Args:
            prepare: called with a pipeline that was opened; twice does no harm.
            takes_records: returns whether records may be sent now.
        """
        self._prepare, self._takes_records = prepare, takes_records

    def set_plain(self, allowed: bool) -> None:
        """May plain records be added without asking anything first?"""
        if self._has_plain_records:
            pipelines = dict(self._pipelines)  # another thread may be opening a topic
            self.plain_queues = {topic: pipeline.queue for topic, pipeline in pipelines.items()} if allowed else {}

    def forbid_plain(self) -> None:
        """Let no record be added without asking: somebody watches each. For good."""
        with self._changing:
            self._has_plain_records, self.plain_queues = False, {}

    def all(self) -> list[TopicPipeline]:
        """Every pipeline, also of topics that were deleted."""
        return [*self._retired, *self._pipelines.values()]

    def transaction_uploads(self) -> list[TransactionUploads]:
        """The topics' parts in the open transaction."""
        return [pipeline.uploads for pipeline in self.all() if pipeline.uploads is not None]

    @property
    def owns_current_thread(self) -> bool:
        """Is this called by a callback?"""
        return self._watch.is_current or self._threads.owns_current_thread

    @property
    def has_open(self) -> bool:
        """Is any topic open?"""
        return bool(self._pipelines)

    def get(self, topic: str) -> TopicPipeline:
        """The pipeline of a topic, which is opened if need be.

        Raises:
            SparklogError: :attr:`ended`, or what opening the topic raises.
        """
        self.raise_if_ended()
        pipeline = self._pipelines.get(topic)
        if pipeline is not None and not pipeline.topic.is_gone:
            return pipeline
        return uninterrupted(lambda: self._open(topic))

    def open_all(self, topics: Iterable[str]) -> None:
        """Open topics side by side, as far as they aren't open. Raises as :meth:`get`, once all are tried."""
        results = uninterrupted(lambda: parallel_results(self.get, dict.fromkeys(topics), at_once=_OPENED_AT_ONCE))
        for error in results:
            if isinstance(error, Exception):
                raise error

    def is_open(self, topic: str) -> bool:
        """Is the topic open, so that :meth:`get` doesn't wait?"""
        return self.opened(topic) is not None

    def opened(self, topic: str) -> TopicPipeline | None:
        """The pipeline of a topic that is open; None: it isn't, or nothing can be sent any more."""
        pipeline = self._pipelines.get(topic)
        return None if pipeline is None or pipeline.topic.is_gone or self.ended is not None else pipeline

    def raise_if_ended(self) -> None:
        """Raise :attr:`ended`, if it is set."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)

    def mark_ended(self, error: SparklogError) -> bool:
        """Open no more topics: sending raises ``error``. False: an earlier call has done so."""
        with self._changing:
            is_first, self.ended = self.ended is None, self.ended or error
        return is_first

    def deliver_and_end(self, error: SparklogError, aborted: KafkaTimeoutError, deadline: Deadline) -> bool:
        """Deliver what was sent, then end every topic, and the threads.

        Args:
            error: raised by whoever still sends.
            aborted: fails what isn't delivered at the deadline, or waits for its turn where a callback calls this.
        Returns:
            Whether all threads have ended.
        """
        pipelines = self.all()
        for pipeline in pipelines:
            pipeline.topic.finish_by(deadline)
            pipeline.end_when_delivered(error)
        if self.owns_current_thread:
            deadline = self._cluster.clock.deadline_in(0)
        all_joined = True
        for pipeline in pipelines:
            if not self._join(pipeline, deadline):
                all_joined = False
                pipeline.abort(aborted)
        all_joined = all_joined and self._threads.join(deadline.left_ms / 1000)
        if all_joined or not any(pipeline.queue.unfinished() for pipeline in pipelines):
            self._watch.end()
        self._watch.end_when_told()
        return all_joined

    def _join(self, pipeline: TopicPipeline, deadline: Deadline) -> bool:
        """Wait until a topic is closed; False: the deadline has passed. Where there is none, also: threads
        wait for a store with what was given up."""
        if deadline.left_ms < math.inf:
            return pipeline.join(deadline)
        while not pipeline.join(self._cluster.clock.deadline_in(_LOOK_MS)):
            if pipeline.has_overdue:
                return False
        return True

    def _give_up_overdue(self, before_ticks_ms: float) -> float | None:
        oldest = [pipeline.give_up_overdue(before_ticks_ms) for pipeline in self.all()]
        return min([at for at in oldest if at is not None], default=None)

    def fail_after_fork(self, error: SparklogError) -> None:
        """In a forked child, which has none of the threads: whatever was sent fails, and nothing can be sent."""
        self.ended = error
        for pipeline in self.all():
            pipeline.queue.fail_after_fork(error)
        self._pipelines, self.plain_queues, self._retired = {}, {}, []

    def _open(self, topic: str) -> TopicPipeline:
        """Open a topic, while other threads may open others."""
        with self._opening_lock(topic):
            self.raise_if_ended()
            former = self._pipelines.get(topic)
            if former is not None and not former.topic.is_gone:
                return former
            if former is not None:  # deleted; its records have failed, and a new topic may have the name
                self._retire(topic, former)
            pipeline = TopicPipeline(
                self._cluster,
                topic,
                self._config,
                self._buffer,
                self._metrics,
                self._callbacks,
                self._threads,
                self.future_type,
            )
            self._prepare(pipeline)
            self._metrics.add_topic(topic)  # only one that is there
            self._watch.start()
            with self._changing:  # close() doesn't wait for a topic that is being opened
                if self.ended is None:
                    self._pipelines[topic] = pipeline
                    self._prepare(pipeline)  # once more: init_transactions may have come in between
                    if self._has_plain_records and self._takes_records():
                        self.plain_queues[topic] = pipeline.queue
                    return pipeline
            pipeline.end_when_delivered(self.ended)
            raise self.ended.with_traceback(None)

    def _retire(self, topic: str, former: TopicPipeline) -> None:
        former.end_when_delivered(UnknownTopicOrPartitionError(f"topic {topic!r} was deleted"))
        with self._changing:
            now = self._cluster.clock.deadline_in(0)
            self._retired = [pipeline for pipeline in (*self._retired, former) if not pipeline.join(now)]
            del self._pipelines[topic]

    def _opening_lock(self, topic: str) -> threading.Lock:
        with self._changing:
            return self._opening.setdefault(topic, threading.Lock())


def _nothing_to_prepare(pipeline: TopicPipeline) -> None:
    """For a producer that may send at any time."""


def _always() -> bool:
    """Records may be sent at any time."""
    return True
