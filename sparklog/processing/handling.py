"""Handlers at work: called with records or batches, their results checked, their failures settled."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparklog.clock import Clock
from sparklog.errors import HandlerError, SparklogError
from sparklog.logs import about
from sparklog.processing.deduplication import AlreadyProcessedError, current_group
from sparklog.processing.frontier import NOTHING, Entry
from sparklog.processing.messages import Batch, Record, Send
from sparklog.processing.moves import MOVES, Output, bury, delay, group_of, moves_of, origin_of, topic_id_of
from sparklog.processing.retries import Again, Bury, Decision, Delay, decide, is_of_the_record
from sparklog.processing.subscriber import Subscriber
from sparklog.processing.values import encode

if TYPE_CHECKING:
    from sparklog.opentelemetry.processing import ProcessTelemetry

__all__ = ["Await", "HandlerCancelledError", "Handling", "Slot", "outputs_of"]

_LOGGER = logging.getLogger("sparklog.processing")
_MOST_MOVES = 100
"""A record that was moved to dead letters so often goes round."""
Await = Callable[[Awaitable[Any]], Any]
"""Runs what an async handler returned, and returns its result."""


class WrongResultError(TypeError):
    """A handler returned or yielded something else than records to be sent."""


class HandlerCancelledError(BaseException):
    """The worker has ended while an async handler was at work: its record is left to the next one."""


class CircleError(HandlerError):
    """A record was moved to dead letters so often that it goes round, or its headers say so: its partition stops."""


class Slot:
    """The work that one thread is at; for others to look at."""

    __slots__ = ("entry", "failures", "tries")

    def __init__(self) -> None:
        self.entry: Entry | None = None
        """The record, or the first of the batch, that is being handled."""
        self.tries = 0
        self.failures = 0
        """Tries that failed."""


class Handling:
    """The work on records of one subscriber. For several threads, each with a slot of its own.

    Args:
        gives_back: the records are a share group's: one that is to be tried again is given back to the group.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        group_id: str,
        clock: Clock,
        run_async: Await,
        telemetry: ProcessTelemetry | None = None,
        gives_back: bool = False,
    ) -> None:
        self._subscriber = subscriber
        self._group_id = group_id
        self._clock = clock
        self._run_async = run_async
        self._telemetry = telemetry
        self._gives_back = gives_back
        self._delays: Mapping[str, str] = subscriber.delay_topics()

    def work_on(self, entries: Sequence[Entry], slot: Slot) -> Sequence[Entry]:
        """Handle entries of one lane, in their order. Returns those that are to be taken again, now or when they are
        due; those of a partition that was taken away are left.

        Raises:
            HandlerError: one failed that has nowhere to go; those behind it are left.
        """
        before = current_group.set(self._group_id)
        try:
            if self._subscriber.takes == "batch":
                return self._batch(entries, slot)
            return self._records(entries, slot)
        finally:
            slot.entry = None
            current_group.reset(before)

    def _records(self, entries: Sequence[Entry], slot: Slot) -> Sequence[Entry]:
        decode, handler, is_passed_over = self._subscriber.decode, self._subscriber.handler, self._is_passed_over
        telemetry = self._telemetry
        for at, entry in enumerate(entries):
            frontier = entry.frontier
            if not frontier.is_live:
                return ()
            if frontier.is_delayed and is_passed_over(entry):
                entry.is_done = True
                continue
            slot.entry = entry
            slot.tries += 1
            record = entry.record
            value, is_decoded = record.value, False
            try:
                if decode is not None and value is not None:
                    value = decode(value)
                is_decoded = True
                argument = Record(record, value, entry.attempts + 1)
                if telemetry is not None:
                    with telemetry.process((record,)) as entry.span:
                        entry.outputs = self._outputs(handler(argument))
                elif (result := handler(argument)) is not None:
                    entry.outputs = self._outputs(result)
            except AlreadyProcessedError:
                pass  # the inbox contains its message: its effect took place
            except HandlerCancelledError:
                return ()
            except BaseException as error:
                slot.failures += 1
                if self._settle(entry, error, can_mend=is_decoded):
                    return entries[at:]
            entry.is_done = True
        return ()

    def _batch(self, entries: Sequence[Entry], slot: Slot) -> Sequence[Entry]:
        if not entries[0].frontier.is_live:
            return ()
        slot.entry = entries[0]
        slot.tries += 1
        records: list[Record[Any]] = []
        good: list[Entry] = []
        rest: Sequence[Entry] = ()
        for at, entry in enumerate(entries):
            if entry.frontier.is_delayed and self._is_passed_over(entry):
                entry.is_done = True
                continue
            record = self._decoded(entry, slot)
            if entry.stuck is not None:
                rest = entries[at:]
                break
            if record is not None:
                records.append(record)
                good.append(entry)
        if not good:
            return rest
        attempts = max(entry.attempts for entry in good)
        try:
            outputs = self._call_with(Batch(records, attempts + 1), good)
        except HandlerCancelledError:
            return ()
        except BaseException as error:
            slot.failures += 1
            return [*self._batch_failed(good, error, attempts + 1), *rest]
        good[-1].outputs = outputs
        if outputs and len(good) > 1:
            good[-1].batch = tuple(good)
        for entry in reversed(good):  # the frontier passes all of them together: the first is done last
            entry.is_done = True
        return rest

    def _call_with(self, batch: Batch[Any], good: Sequence[Entry]) -> tuple[Output, ...]:
        if self._telemetry is None:
            return self._outputs(self._subscriber.handler(batch))
        with self._telemetry.process([entry.record for entry in good]) as span:
            for entry in good:
                entry.span = span
            return self._outputs(self._subscriber.handler(batch))

    def _batch_failed(self, good: Sequence[Entry], error: BaseException, attempts: int) -> Sequence[Entry]:
        """Try the batch again; one that failed for good is tried record by record, to find out which of them it is."""
        decision = self._decide(good[0], error, attempts=attempts, can_mend=True)
        if len(good) == 1:
            if self._settle(good[0], error, can_mend=True):
                return good
            good[0].is_done = True
            return ()
        if isinstance(decision, Again):
            due = self._clock.ticks_ms() + decision.delay_ms
            for entry in good:
                entry.attempts, entry.due_ticks_ms = attempts, due
        elif isinstance(error, WrongResultError) or not is_of_the_record(error):
            raise self._stopped(good[0], error, attempts) from error
        else:
            for entry in good:
                entry.is_alone = True
        return good

    def _decoded(self, entry: Entry, slot: Slot) -> Record[Any] | None:
        """The record with its value; None: it can't be decoded, and was settled."""
        decode, value = self._subscriber.decode, entry.record.value
        try:
            if decode is not None and value is not None:
                value = decode(value)
        except BaseException as error:
            slot.failures += 1
            self._settle(entry, error, can_mend=False)
            entry.is_done = True
            return None
        return Record(entry.record, value, entry.attempts + 1)

    def _outputs(self, result: Any) -> tuple[Output, ...]:
        if inspect.isawaitable(result):
            result = self._run_async(result)
        if inspect.isasyncgen(result):
            result = self._run_async(_listed(result))
        return outputs_of(result, self._subscriber.name)

    def _settle(self, entry: Entry, error: BaseException, *, can_mend: bool) -> bool:
        """Decide what becomes of an entry whose try has failed. True: it keeps its place, to be tried again, or as
        nothing behind it is to be begun.

        Raises:
            HandlerError: it has nowhere to go.
        """
        attempts = entry.attempts + 1
        decision = self._decide(entry, error, attempts=attempts, can_mend=can_mend)
        if isinstance(decision, Again):
            entry.attempts = attempts
            entry.due_ticks_ms = self._clock.ticks_ms() + decision.delay_ms
            entry.is_given_back = self._gives_back
            return not self._gives_back
        try:
            self._move(entry, error, decision, attempts)
        except CircleError as stopped:
            record = entry.record
            _LOGGER.error(
                "handler %s: %s-%d, offset %d, was a dead letter %d times: nothing behind it is processed there",
                *(self._subscriber.name, record.topic, record.partition, record.offset, _MOST_MOVES),
                extra=about(topic=record.topic, partition=record.partition),
            )
            entry.stuck, entry.due_ticks_ms, entry.is_done = stopped, float("inf"), True
            return not self._gives_back  # nothing behind it in its lane is begun
        return False

    def refuse(self, entry: Entry, error: BaseException) -> None:
        """Settle an entry that isn't to be tried any more. Raises ``HandlerError``."""
        attempts = entry.attempts + 1
        self._move(entry, error, self._decide(entry, error, attempts=attempts, can_mend=False), attempts)

    def refuse_output(
        self, entry: Entry, output: Output, error: SparklogError, *, is_of_the_topic: bool = False
    ) -> Sequence[Entry]:
        """Make dead letters of an entry of which an output can't be sent, or of all of its batch: no further try can
        mend that. Returns them.

        Args:
            is_of_the_topic: the topic takes no record at all: to move one after the other would mend nothing.
        Raises:
            HandlerError: that is so, or there is no dead-letter topic.
        """
        entries = entry.batch or (entry,)
        if is_of_the_topic or self._subscriber.dead_letter_of(self._topic_of(entry)) is None:
            raise self.nowhere_to_send(entry, output, error) from error
        what = f"what handler {self._subscriber.name} made of it can't be sent to topic {output.topic!r}: {error}"
        for each in entries:
            self._move(each, error, Bury(), each.attempts + 1, message=what)
        return entries

    def nowhere_to_send(self, entry: Entry, output: Output, error: SparklogError) -> HandlerError:
        """The error that stops a partition before a record of which something can't be sent, nor moved."""
        first = entry.batch[0] if entry.batch else entry
        at, offset = entry.frontier.partition, first.record.offset
        place = f"offset {offset}" if first is entry else f"offsets {offset} to {entry.record.offset}"
        letters = self._subscriber.dead_letter_of(self._topic_of(entry))
        where = "there is no dead-letter topic" if letters is None else f"its dead-letter topic is {letters!r}"
        return HandlerError(
            f"handler {self._subscriber.name}: what was made of {at.topic}-{at.partition}, {place}, can't be sent to "
            f"topic {output.topic!r}: {error}; {where}, so the worker goes no further there; nothing is skipped",
            topic_partition=at,
            offset=offset,
        )

    def not_visible_yet(self, entry: Entry, output: Output, error: SparklogError) -> HandlerError:
        """The error that stops a partition behind a record that is committed, while the topic of an output takes
        nothing."""
        at, offset = entry.frontier.partition, entry.record.offset
        return HandlerError(
            f"handler {self._subscriber.name}: what was made of {at.topic}-{at.partition}, offset {offset}, is "
            f"committed, but topic {output.topic!r} can't be written: {error}; once that is mended, `sparklog "
            "transactions recover` or maintenance adds it there; the worker goes no further here; nothing is skipped",
            topic_partition=at,
            offset=offset,
        )

    def _decide(self, entry: Entry, error: BaseException, *, attempts: int, can_mend: bool) -> Decision:
        if isinstance(error, WrongResultError):
            raise self._stopped(entry, error, attempts) from error
        has_dead_letter = self._subscriber.dead_letter_of(self._topic_of(entry)) is not None
        return decide(
            self._subscriber.retry, error, attempts=attempts, can_mend=can_mend, has_dead_letter=has_dead_letter
        )

    def _move(
        self, entry: Entry, error: BaseException, decision: Decision, attempts: int, message: str | None = None
    ) -> None:
        record, topic = entry.record, self._topic_of(entry)
        origin = origin_of(record, is_delayed=entry.frontier.is_delayed)
        if not entry.frontier.is_delayed:
            origin = replace(origin, topic_id=entry.frontier.topic_id)
        letters = self._subscriber.dead_letter_of(topic)
        if isinstance(decision, Delay):
            moved = delay(
                record,
                self._subscriber.retry.topic(topic, attempts),
                origin=origin,
                group_id=self._group_id,
                attempts=attempts,
                due_ms=self._clock.now_ms() + decision.delay_ms,
                error=error,
                is_delayed=entry.frontier.is_delayed,
            )
            entry.outputs, entry.is_delayed = (moved,), True
        elif isinstance(decision, Bury) and letters is not None:
            if moves_of(record) >= _MOST_MOVES:
                raise self._goes_round(entry, error, attempts) from error
            output, entry.letter = bury(
                record,
                letters,
                origin=origin,
                group_id=self._group_id,
                attempts=attempts,
                error=error,
                message=message,
                is_delayed=entry.frontier.is_delayed,
            )
            entry.outputs, entry.is_delayed = (output,), False
        else:
            raise self._stopped(entry, error, attempts) from error

    def _stopped(self, entry: Entry, error: BaseException, attempts: int) -> HandlerError:
        at = entry.frontier.partition
        tries = "1 try" if attempts == 1 else f"{attempts} tries"
        what = f"handler {self._subscriber.name} failed at {at.topic}-{at.partition}, offset {entry.record.offset}, "
        return HandlerError(
            f"{what}after {tries}: {error!r}; the worker stops before this record, nothing is skipped",
            topic_partition=at,
            offset=entry.record.offset,
        )

    def _goes_round(self, entry: Entry, error: BaseException, attempts: int) -> CircleError:
        at, offset = entry.frontier.partition, entry.record.offset
        return CircleError(
            f"handler {self._subscriber.name} failed at {at.topic}-{at.partition}, offset {offset}, at try {attempts}: "
            f"{error!r}; its header {MOVES} says that it was a dead letter {_MOST_MOVES} times: dead letters go round, "
            "so the worker goes no further there; nothing is skipped",
            topic_partition=at,
            offset=offset,
        )

    def _topic_of(self, entry: Entry) -> str:
        """The topic that was subscribed to, for a record of one of its delay topics, too."""
        topic = entry.frontier.partition.topic
        return self._delays.get(topic, topic)

    def _is_passed_over(self, entry: Entry) -> bool:
        """Was a record of a delay topic moved there by another group, or is it of a topic that was deleted since?"""
        record, topic_id = entry.record, entry.frontier.topic_id
        if group_of(record) not in (None, self._group_id):
            return True
        if topic_id is None or topic_id_of(record) in (None, topic_id):
            return False
        _LOGGER.warning(
            "%s-%d, offset %d, is passed over: it is of a topic %r that was deleted",
            *(record.topic, record.partition, record.offset, self._topic_of(entry)),
            extra=about(topic=record.topic, partition=record.partition),
        )
        return True


async def _listed(results: Any) -> list[Any]:
    return [each async for each in results]


def outputs_of(result: Any, name: str) -> tuple[Output, ...]:
    """The records that a handler's result asks to be sent.

    Raises:
        WrongResultError: it is neither None, a ``Send`` nor several of them.
        InvalidTypeError: a value can't be encoded.
        Exception: what a generator raises.
    """
    if result is None:
        return NOTHING
    if isinstance(result, Send):
        return (_output(result),)
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise WrongResultError(
            f"handler {name} returned {type(result).__name__}, expected None, a Send or an iterable of them"
        )
    outputs = []
    for each in result:
        if not isinstance(each, Send):
            raise WrongResultError(f"handler {name} yielded {type(each).__name__}, expected Send")
        outputs.append(_output(each))
    return tuple(outputs)


def _output(send: Send) -> Output:
    key = send.key.encode() if isinstance(send.key, str) else send.key
    return Output(
        topic=send.topic,
        key=key,
        value=encode(send.value),
        headers=list(send.headers),
        partition=send.partition,
        timestamp_ms=send.timestamp_ms,
    )
