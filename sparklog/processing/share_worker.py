"""The worker of a share group: takes records, hands them to the threads of handlers, acknowledges each by itself.

What a record sends is stored before its acknowledgement, and no transaction holds both: all of it happens at least
once (decision 0042). Everything but handlers runs in one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from sparklog.consumer import ShareConsumer
from sparklog.errors import (
    HandlerError,
    IllegalStateError,
    InvalidRecordStateError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.groups.sharing.changes import AcknowledgeType
from sparklog.logs import about, without_content
from sparklog.model import ConsumerRecord, DeliveredRecord, TopicPartition
from sparklog.opentelemetry.automatic import instrument_if_traced, process_telemetry
from sparklog.processing.commits import REFUSED_AT_ONCE, REFUSED_LATER, report_refusal, send_output
from sparklog.processing.deduplication import AlreadyProcessedError
from sparklog.processing.frontier import NOTHING, Entry, Frontier
from sparklog.processing.handling import Handling
from sparklog.processing.health import Counts, Health, State
from sparklog.processing.lanes import Lanes
from sparklog.processing.moves import Output
from sparklog.processing.pacing import Patience
from sparklog.processing.room import MOST_BYTES, buffer_bytes_for
from sparklog.processing.subscriber import MOST_SHARED_ATTEMPTS, Subscriber
from sparklog.processing.threads import HandlerThreads, HandlerWatch, LoopThread, called_by
from sparklog.processing.work import Station
from sparklog.processing.worker import AppSettings, opened, report_dead_letter
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["ShareWorker", "TooManyDeliveriesError"]

_LOGGER = logging.getLogger("sparklog.processing")
_IDLE_POLL_MS, _BUSY_MS = 200.0, 5.0
_CLOSE_S = 30.0
_LONGEST_ROUND_MS = 300_000.0
"""A round that takes longer goes on no more, for the probes."""
_DELIVERY_LIMIT = 5
"""Kafka's default of ``group.share.delivery.count.limit``."""
_NEVER_ARCHIVED = MOST_SHARED_ATTEMPTS + 1
"""The greatest limit of a group: a record that was delivered too often is moved by a worker, never archived unseen."""


class TooManyDeliveriesError(Exception):
    """A record was delivered so often that its handler isn't called any more: workers died of it, or it outlasted
    their locks."""


def acknowledgement_of(entry: Entry) -> AcknowledgeType:
    """The acknowledgement of a record that is done."""
    if entry.is_given_back:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT if entry.letter is None else AcknowledgeType.REJECT


def is_settled(entry: Entry, now_ticks_ms: float) -> bool:
    """May a record be acknowledged to the group now? A released one is held until its pause is over."""
    return entry.is_done and (not entry.is_given_back or entry.due_ticks_ms <= now_ticks_ms)


class ShareWorker:
    """Used by its own thread alone, but for :meth:`stop`, :meth:`health` and :meth:`metrics`."""

    def __init__(self, settings: AppSettings, subscribers: Sequence[Subscriber]) -> None:
        self.state = State.NEW
        self.error: BaseException | None = None
        """The error that it ended with."""
        self._settings = settings
        self._cluster, self._owns_store = opened(settings)
        self._clock = settings.clock or self._cluster.clock
        self._loop = LoopThread()
        telemetry = process_telemetry(
            group_id=settings.group_id, cluster_id=self._cluster.cluster_id, passing=(AlreadyProcessedError,)
        )
        self._stations: dict[str, Station] = {}
        stations = []
        for subscriber in subscribers:
            handling = Handling(
                subscriber,
                group_id=settings.group_id,
                clock=self._clock,
                run_async=self._loop.run,
                telemetry=telemetry,
                gives_back=True,
            )
            stations.append(Station(subscriber, Lanes("none", self._clock, most=1), handling))
            self._stations.update(dict.fromkeys(subscriber.topics, stations[-1]))
        self._threads = HandlerThreads(stations)
        self._watch = HandlerWatch(self._threads, self._clock, settings.handler_timeout_s)
        consumer_settings = {"max_poll_records": 500, **settings.consumer}
        limit = int(consumer_settings.pop("group_share_delivery_count_limit", _DELIVERY_LIMIT))
        most = max([limit, *(subscriber.retry.attempts for subscriber in subscribers)])
        self._delivery_limit = min(most, MOST_SHARED_ATTEMPTS)
        self._most_in_hand = int(consumer_settings["max_poll_records"])
        self._consumer = ShareConsumer(
            cluster=self._cluster,
            clock=settings.clock,
            **{
                **consumer_settings,
                "group_id": settings.group_id,
                "share_auto_offset_reset": settings.auto_offset_reset,
                "share_acknowledgement_mode": "explicit",
                "group_share_delivery_count_limit": _NEVER_ARCHIVED,
            },
        )
        self._consumer.set_acknowledgement_commit_callback(self._acknowledged)
        topics = [topic for subscriber in subscribers for topic in subscriber.moves_to()]
        producer_settings = {
            "max_request_size": MOST_BYTES,
            "buffer_memory": buffer_bytes_for(self._cluster, topics),
            **settings.producer,
        }
        self._producer = Producer(self._cluster, clock=settings.clock, **producer_settings)
        instrument_if_traced(self._producer)
        self._in_hand: list[Entry] = []
        self._stuck: dict[Entry, HandlerError] = {}
        """Records in hand that have nowhere to go: they are held, and given back when the worker ends."""
        self._patience = Patience(settings.patience_s * 1_000)
        self._told_ticks_ms = self._round_ticks_ms = self._clock.ticks_ms()
        self._found_nothing = False
        self._is_stopping = False
        self._counts = Counts()

    def run(self) -> None:
        """Work until :meth:`stop`, or until an error, which is kept in ``error``. Ends what it has begun."""
        try:
            self.state = State.STARTING
            self._check_topics()
            self._consumer.subscribe(list(self._stations))
            self._threads.start()
            self.state = State.RUNNING
            while not self._is_stopping:
                self._round()
        except BaseException as error:
            self.error = error
        self._end()
        self.state = State.STOPPED if self.error is None else State.FAILED

    def stop(self) -> None:
        """End after the round that is under way. From any thread."""
        self._is_stopping = True

    @property
    def is_calling(self) -> bool:
        """Is the caller one of its handlers, which it has called?"""
        return called_by.get() is self._threads

    def health(self) -> Health:
        """How it fares; it has no partitions of its own. From any thread."""
        now, error = self._clock.ticks_ms(), self.error
        stuck = list(self._stuck.values())
        told = error or (stuck[0] if stuck else None)
        is_ending = self.state in (State.DRAINING, State.STOPPED)
        return Health(
            state=self.state,
            is_alive=error is None and (is_ending or now - self._round_ticks_ms <= _LONGEST_ROUND_MS),
            is_ready=self.state is State.RUNNING,
            assigned=0,
            in_flight=len(self._in_hand),
            oldest_handler_ms=self._watch.oldest_ms(now),
            last_round_ms=now - self._round_ticks_ms,
            stopped=tuple(map(str, stuck)),
            error=None if told is None else str(told) or type(told).__name__,
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Totals since it began: group to name to value. From any thread."""
        counts, slots = self._counts, self._threads.slots
        return {
            "processing-metrics": {
                "records-processed-total": float(counts.records),
                "records-sent-total": float(counts.sent),
                "records-dead-lettered-total": float(counts.dead_letters),
                "records-released-total": float(counts.delayed),
                "handler-calls-total": float(sum(slot.tries for slot in slots)),
                "handler-failures-total": float(sum(slot.failures for slot in slots)),
                "acknowledgements-failed-total": float(counts.failed_commits),
                "records-in-flight": float(len(self._in_hand)),
            }
        }

    def _round(self) -> None:
        """Acknowledge to the group what is done, take what comes next, check the handlers."""
        self._round_ticks_ms = now = self._clock.ticks_ms()
        if not self._patience.may_try(now):
            self._clock.sleep_ms(_BUSY_MS)
        else:
            try:
                self._settle(now)
                self._take(now)
                self._patience.succeeded()
            except SparklogError as error:
                self._patience.failed(error, self._clock.ticks_ms())
                self._warn("group %s: records could not be taken or acknowledged, which is tried again: %s", error)
        self._watch.look()
        if len(self._stuck) >= self._most_in_hand:  # there is no room for anything else
            raise next(iter(self._stuck.values()))

    def _settle(self, now: float) -> None:
        """Send what records that are done have to send, then mark them: the next call to the group reports it."""
        self._stuck |= {entry: entry.stuck for entry in self._in_hand if entry.is_done and entry.stuck is not None}
        done = [entry for entry in self._in_hand if is_settled(entry, now) and entry not in self._stuck]
        if not done:
            return
        stored, error = self._stored(done)
        self._in_hand = [entry for entry in self._in_hand if entry not in stored]
        for entry in stored:
            if not self._mark(entry, acknowledgement_of(entry)):
                self._counts.failed_commits += 1
            elif entry.is_given_back:
                self._counts.delayed += 1
            else:
                self._counts.records += 1
            self._counts.sent += len(entry.outputs)
            if entry.letter is not None:
                self._counts.dead_letters += 1
                report_dead_letter(self._settings, entry.letter)
        if error is not None:  # the others are in hand still, and are sent again
            raise error

    def _stored(self, done: Sequence[Entry]) -> tuple[set[Entry], SparklogError | None]:
        """Send the outputs of entries, and wait until they are stored. Returns the entries of which everything is, and
        the first error of the others that isn't their own."""
        counts: dict[str, int] = {}
        sent: list[tuple[Entry, list[tuple[Output, FutureRecordMetadata]]]] = []
        stored: set[Entry] = set()
        first_error: SparklogError | None = None
        for entry in done:
            futures = self._send_outputs(entry, counts)
            if futures is not None:
                sent.append((entry, futures))
        if any(futures for _, futures in sent):
            self._producer.flush()
        for entry, futures in sent:
            for output, future in futures:
                try:
                    future.get()
                except REFUSED_LATER as error:  # it becomes a dead letter, which the next round sends
                    self._refuse(entry, output, error)
                    break
                except SparklogError as error:
                    first_error = first_error or error
                    break
            else:
                stored.add(entry)
        return stored, first_error

    def _send_outputs(self, entry: Entry, counts: dict[str, int]) -> list[tuple[Output, FutureRecordMetadata]] | None:
        """Send all outputs of an entry; where one is refused, the entry becomes a dead letter. None: it has nowhere to
        go."""
        outputs = NOTHING if entry.is_given_back else entry.outputs
        futures = []
        for output in outputs:
            try:
                if output.topic not in counts:
                    counts[output.topic] = len(self._producer.partitions_for(output.topic))
                futures.append((output, send_output(self._producer, output, counts[output.topic])))
            except REFUSED_AT_ONCE as error:
                if not self._refuse(entry, output, error):
                    return None
                return self._send_outputs(
                    entry, counts
                )  # it has other outputs now: each is refused three times at most
        return futures

    def _refuse(self, entry: Entry, output: Output, error: SparklogError) -> bool:
        """Settle an entry of which an output can't be sent: it becomes a dead letter, or a smaller one. False: it has
        nowhere to go, and is held."""
        station = self._stations[entry.frontier.partition.topic]
        try:
            station.refuse(entry, output, error)
        except HandlerError as stopped:
            self._stuck[entry] = stopped
        report_refusal(station.subscriber.name, entry, output, error, is_moved=entry not in self._stuck)
        return entry not in self._stuck

    def _take(self, now: float) -> None:
        """Acknowledge to the group what was marked, renew the locks of what is held, take more where there is room."""
        if not self._in_hand:
            self._feed(self._consumer.poll(_IDLE_POLL_MS))
            self._told()
            return
        room = self._most_in_hand - len(self._in_hand)
        wait_ms = self._settings.commit_interval_ms * (10 if self._found_nothing else 1)
        is_renewal_due = now - self._told_ticks_ms >= self._consumer.acquisition_lock_timeout_ms() / 3
        if now - self._told_ticks_ms < wait_ms and not is_renewal_due:
            self._clock.sleep_ms(min(_BUSY_MS, self._settings.commit_interval_ms))
            return
        self._renew()
        if room > 0:
            self._feed(self._consumer.poll(0, max_records=room))
        else:
            self._consumer.commit_sync()
        self._told()

    def _told(self) -> None:
        self._told_ticks_ms = self._clock.ticks_ms()

    def _renew(self) -> None:
        """Hold what is in hand for another lock. What isn't held any more is delivered to others, and left."""
        self._in_hand = [entry for entry in self._in_hand if self._mark(entry, AcknowledgeType.RENEW)]
        self._stuck = {entry: error for entry, error in self._stuck.items() if entry.frontier.is_live}

    def _mark(self, entry: Entry, kind: AcknowledgeType) -> bool:
        """Mark a record for the next call; False: its lock is over, and the group has delivered it again."""
        try:
            self._consumer.acknowledge(entry.frontier.partition, kind, offset=entry.record.offset)
        except IllegalStateError:
            entry.frontier.is_live = False
            return False
        return True

    def _feed(self, found: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        self._found_nothing = not found
        for partition, records in found.items():
            station = self._stations[partition.topic]
            entries = [self._entry(station, partition, record) for record in records]
            self._in_hand += entries
            station.lanes.add(entry for entry in entries if not entry.is_done)

    def _entry(self, station: Station, partition: TopicPartition, record: ConsumerRecord) -> Entry:
        deliveries = record.delivery_count if isinstance(record, DeliveredRecord) else 1
        entry = Entry(record, Frontier(partition), attempts=deliveries - 1)
        if deliveries > self._delivery_limit:
            why = f"delivered {deliveries} times, of which {self._delivery_limit} are allowed: each time its worker "
            try:
                station.handling.refuse(entry, TooManyDeliveriesError(why + "died, or its handler outlasted its lock"))
            except HandlerError as stopped:
                self._stuck[entry] = stopped
                self._warn("group %s: a record is held: %s", stopped)
            entry.is_done = True
        return entry

    def _acknowledged(self, outcomes: dict[TopicPartition, SparklogError | None]) -> None:
        """Count what came too late: those records are delivered again. All else the next call tries again."""
        for error in outcomes.values():
            if error is not None:
                self._counts.failed_commits += 1
                what = "came too late" if isinstance(error, InvalidRecordStateError) else "isn't known to count yet"
                self._warn(f"group %s: an acknowledgement {what}: %s", error)

    # Beginning and end.

    def _check_topics(self) -> None:
        for topic, station in self._stations.items():
            letters = station.subscriber.dead_letter_of(topic)
            for name in [topic, *([] if letters is None else [letters])]:
                try:
                    self._producer.partitions_for(name)
                except UnknownTopicOrPartitionError as error:
                    raise UnknownTopicOrPartitionError(
                        f"unknown topic: {name!r} (of handler {station.subscriber.name}); create it, or have "
                        "app.create_topics() do so"
                    ) from error

    def _drain(self) -> None:
        """Begin nothing more; wait for handlers at work, whose records stay locked; acknowledge what is done."""
        for entry in self._in_hand:
            entry.frontier.is_live = False
        self._threads.stop()
        deadline = self._clock.deadline_in(0.0 if self._watch.is_hung else self._settings.drain_timeout_s * 1_000)
        while not self._threads.join(0.0) and not deadline.has_passed:
            now = self._clock.ticks_ms()
            if now - self._told_ticks_ms >= self._consumer.acquisition_lock_timeout_ms() / 3:
                self._renew()
                self._consumer.commit_sync()
                self._told()
            self._clock.sleep_ms(1)
        self._settle(self._clock.ticks_ms())
        self._consumer.commit_sync()

    def _end(self) -> None:
        """Give back what it has, and close everything. What fails is logged, if it is not what ended the worker."""
        self.state = State.DRAINING
        self.error = self.error or next(iter(self._stuck.values()), None)
        steps: list[Callable[[], object]] = [
            self._drain,
            self._consumer.close,
            partial(self._producer.close, _CLOSE_S),
            self._loop.stop,
        ]
        if self._owns_store:
            steps.append(self._cluster.store.close)
        for step in steps:
            try:
                step()
            except BaseException as error:
                self._warn("group %s: closing failed: %s", error)
                self.error = self.error or error
        if self._threads.failures:
            self.error = self.error or self._threads.failures[0]

    def _warn(self, text: str, error: BaseException) -> None:
        group = self._settings.group_id
        _LOGGER.warning(text, group, without_content(error), extra=about(group=group))
