"""Ordinary Produce requests, which most are: those of one turn of the event loop are read and sent together; of some
turns, where many producers are at work.

A request that is small costs Python far more than its records cost the compiled core. So the core finds the record
batches of a whole request in one call, and reads those of all requests for a topic in another; they are one batch of
sparklog's own producer, and one call of the event loop answers where they are. Whatever isn't ordinary goes the way of
:mod:`~sparklog.gateway.produce`, which knows what is wrong with it; it does so in the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from sparklog._native import CORE
from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.defects import log_defect
from sparklog.gateway.element_limits import IN_THE_LOOP
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.fetch import Fetching
from sparklog.gateway.produce import Answer, begin_part, failed, refused_records
from sparklog.gateway.records import BatchError, decode_parts
from sparklog.gateway.records.batches import CODECS, HEADER_BYTES
from sparklog.gateway.records.compression import decompress
from sparklog.gateway.sent_batches import keep_sent
from sparklog.gateway.sent_request import Sent
from sparklog.gateway.unbounded_senders import MANY_CONNECTIONS, MUCH_BYTES, UnboundedSenders
from sparklog.gateway.users import Rules
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.logs import short
from sparklog.producer import Producer
from sparklog.producer.outcome import Outcome, Piece, results_of_pieces

__all__ = ["ProduceRounds", "gathers", "rounds_of"]

_ROUND_BYTES = 1_100_000
"""Bound of a round, and of a request that goes into one: to read as much takes a millisecond."""
_COMPRESSED_BYTES = 131_072
"""Bound of a compressed batch that is read in the event loop."""
_COMPRESSED_COST = 4
"""To decompress a byte takes about so many times longer than to read one."""
_MANY_ROUNDS = 1_000
_GATHER_S = 0.05
"""Time between two rounds of a topic where :func:`gathers` says so: more requests share a file of their partition, a
commit, and what a table of Arrow's costs."""
_QUIET_S = 0.005
"""If many clients don't bound their unanswered requests: the time without a request after which a held round is sent,
unless other requests are on their way to the store."""
_GATHERED_BYTES = 4_400_000
"""Bound of a round that is held, with :data:`_ROW_BYTES` for each record: to read as much takes some milliseconds, once
in that time. More than 6 MiB wouldn't be taken together."""
_ROW_BYTES = 24
"""Size of a record in columns beside its bytes."""


class _Waiting:
    """The records of one partition in a request, until they are sent."""

    __slots__ = ("batch", "counts", "data", "place", "sent")

    def __init__(self, sent: Sent, place: int, data: memoryview, batch: tuple[Any, ...], counts: bool) -> None:
        self.sent = sent
        self.place = place
        self.data = data
        self.batch = batch
        self.counts = counts
        """Is it the one of its request that counts as unanswered?"""


class _Round:
    """Records that were read for one topic, with one kind of acknowledgement, and aren't sent yet."""

    def __init__(self, backend: Backend, topic: str, producer: Producer) -> None:
        self.topic = topic
        self.producer = producer
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Waiting] = []
        self._size_bytes = self._record_count = 0
        self._due: asyncio.Handle | None = None
        """The call that ends the turn."""
        self._opening: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._unanswered: dict[object, int] = {}
        """How many requests aren't stored yet, by connection."""
        self._unanswered_count = 0
        self._not_before_s = 0.0
        """The moment at which the next round is due at the soonest, by the loop's clock, unless it is large."""
        self._unbounded = UnboundedSenders()
        self._came_s = 0.0
        """When the newest request came."""

    @property
    def is_held_up(self) -> bool:
        """Are requests being sent one by one? Others than theirs would wait for them in vain."""
        return self._sending is not None

    @property
    def is_empty(self) -> bool:
        """Is everything sent that was added?"""
        return not self._waiting and self._opening is None and self._sending is None

    def add(self, sent: Sent, first_place: int, frame: memoryview, batches: Sequence[tuple[Any, ...]]) -> None:
        """Send a request's records of this topic at the end of the loop's turn, with what else came in it; where the
        topic isn't open yet, with what comes until it is; while it is held up, behind what holds it up, which the same
        request may have been.

        Args:
            first_place: of the first of these batches in the request.
            batches: of each partition one, as the core has found them in ``frame``.
        """
        self._came_s = now_s = self._loop.time()
        if not self._waiting and 0 < self._not_before_s <= now_s:
            self._not_before_s = 0.0  # a round that begins now isn't held, so it may not be as large as one that is
        connection, counts, place = sent.connection, True, first_place
        before = self._unanswered.get(connection, 0)
        self._unanswered[connection] = before + 1
        self._unanswered_count += 1
        self._unbounded.note(id(connection), before, len(frame), now_s)
        for batch in batches:
            self._waiting.append(_Waiting(sent, place, frame[batch[1] : batch[2]], batch, counts))
            self._size_bytes += _cost(batch)
            self._record_count += batch[5]
            counts, place = False, place + 1
            if self._due is None or self._is_large:
                self._see_to_sending()

    @property
    def _is_large(self) -> bool:
        """Has the round so much that it waits for no more?"""
        if self._not_before_s:
            return self._size_bytes + _ROW_BYTES * self._record_count > _GATHERED_BYTES
        return self._size_bytes > _ROUND_BYTES

    def _see_to_sending(self) -> None:
        """Send what waits, as it is much, or see to it that it will be sent."""
        if self._opening is not None or self._sending is not None:
            return
        if not self.producer._pipelines.is_open(self.topic):
            self._opening = self._loop.create_task(self._open())
        elif self._is_large:
            self._send()
        elif self._due is None:
            self._due = self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._due = None
        if not self._waiting or self._opening is not None or self._sending is not None:
            return
        left_s = self._held_for_s()
        if left_s > 0:
            self._due = self._loop.call_later(left_s, self._end_turn)
        else:
            self._send()

    def _held_for_s(self) -> float:
        """How much longer the round is held, in seconds; 0 or less: it is due."""
        now_s = self._loop.time()
        left_s = self._not_before_s - now_s
        if left_s > 0 and self._unbounded.are_many(now_s) and self._do_all_wait:
            return min(left_s, self._came_s + _QUIET_S - now_s)
        return left_s

    @property
    def _do_all_wait(self) -> bool:
        """Is all that is unanswered in the round, and nothing on its way to the store?"""
        if self._unanswered_count > len(self._waiting):
            return False
        return self._unanswered_count == sum(one.counts for one in self._waiting)

    async def _open(self) -> None:
        """Open the topic, then send what came meanwhile: by as many threads as there are requests, each of which waits
        for the topic, the first records of many clients would cost many times as much."""
        refused: Answer | None = None
        try:
            await self._backend.open_topic(self.producer, self.topic)
        except SparklogError as error:
            refused = failed(error)
        except Exception as error:  # a defect: the clients get an error, and the next request tries it again
            log_defect(self._backend.log_repeats, "topic %s couldn't be opened", short(self.topic))
            refused = failed(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            self._opening = None
        if refused is None:
            self._end_turn()
            return
        waiting, self._waiting = self._waiting, []
        self._size_bytes = self._record_count = 0
        for one in waiting:
            one.sent.note_sent()
        self._settle(waiting, [refused] * len(waiting))

    def _settle(self, waiting: Sequence[_Waiting], results: Sequence[int | Answer]) -> None:
        """Give requests the offsets of their records, or the answers to them."""
        unanswered = self._unanswered
        for one, result in zip(waiting, results, strict=True):
            sent = one.sent
            if one.counts:
                left = unanswered[sent.connection] - 1
                if left:
                    unanswered[sent.connection] = left
                else:
                    del unanswered[sent.connection]
                self._unanswered_count -= 1
            sent.settle(one.place, result)
        self._end_hold_if_all_wait()

    def _end_hold_if_all_wait(self) -> None:
        """Send what is held, unless other requests are on their way to the store: clients that have as many unanswered
        as they send at once would send no more, and all would wait. If many don't bound them, the round is held until
        no request has come for a moment."""
        if self._due is None or not self._not_before_s or not self._do_all_wait:
            return
        if not self._unbounded.are_many(self._loop.time()):
            self._not_before_s = 0.0
        self._due.cancel()
        self._due = self._loop.call_soon(self._end_turn)

    def _send(self) -> None:
        """Send what waits, or as much of it as takes the loop little time, and the others in its next turn."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        was_held = self._not_before_s > 0
        now_s = self._loop.time()
        is_busy = gathers(len(self._unanswered), self._unanswered_count, self._size_bytes)
        self._not_before_s = now_s + _GATHER_S if is_busy or self._unbounded.are_many(now_s) else 0.0
        try:
            taken = self._readable(was_held)
            is_sent = self._try_send(*taken)
        except (BatchError, SparklogError):  # sent alone, each has its own answer
            is_sent = False
        except Exception:  # a defect
            log_defect(self._backend.log_repeats, "requests to topic %s couldn't be sent together", short(self.topic))
            is_sent = False
        if not is_sent:
            self._sending = self._loop.create_task(self._send_each(self._waiting))
            self._waiting, self._size_bytes, self._record_count = [], 0, 0
            return
        for one in taken[0]:
            one.sent.note_sent()
        del self._waiting[: len(taken[0])]
        self._size_bytes = self._record_count = 0
        if self._waiting:
            if was_held and not any(one.batch[3] for one in self._waiting):  # little is left, which more may join
                self._size_bytes = sum(_cost(one.batch) for one in self._waiting)
                self._record_count = sum(one.batch[5] for one in self._waiting)
            else:
                self._not_before_s = 0.0
            self._due = self._loop.call_soon(self._end_turn)

    def _readable(self, was_held: bool) -> tuple[list[_Waiting], list[memoryview | bytes]]:
        """The first that wait, and their records, as many as make a round once they are decompressed. Raises
        ``BatchError``."""
        taken: list[_Waiting] = []
        parts: list[memoryview | bytes] = []
        size, row_bytes = 0, _ROW_BYTES if was_held else 0
        most_bytes = _GATHERED_BYTES if was_held else _ROUND_BYTES
        for one in self._waiting:
            part = _records(one)
            size += len(part) + row_bytes * one.batch[5]
            if one.batch[3]:  # to decompress more would take too long
                most_bytes = _ROUND_BYTES
            if was_held and taken and size > most_bytes:
                break
            parts.append(part)
            taken.append(one)
            if size > most_bytes:
                break
        return taken, parts

    def _try_send(self, waiting: Sequence[_Waiting], parts: Sequence[memoryview | bytes]) -> bool:
        """Send all at once. False, or an error: nothing was sent."""
        numbers = [one.batch[0] for one in waiting]
        if min(numbers) < 0:
            return False
        rows = decode_parts([one.batch for one in waiting], parts)
        if rows is None or rows.size_bytes > self._backend.settings.max_decoded_bytes:
            return False
        pieces = [_piece(one.batch) for one in waiting]
        future = self.producer._try_send_rows(
            self.topic,
            rows.table,
            pieces,
            greatest_partition=max(numbers),
            size_bytes=rows.size_bytes,
            least_timestamp_ms=rows.least_timestamp_ms,
            largest_bytes=rows.largest_bytes,
        )
        if future is None:
            return False
        future.when_outcome(
            lambda outcome: self._backend.later(self._loop, lambda: self._stored(waiting, outcome)),
        )
        return True

    def _stored(self, waiting: Sequence[_Waiting], outcome: Outcome) -> None:
        fetching: Fetching | None = self._backend.extras.get("fetch")
        if outcome.error is not None:
            self._settle(waiting, [failed(outcome.error)] * len(waiting))
        else:
            results = results_of_pieces(outcome, [one.batch[5] for one in waiting])
            self._settle(waiting, [one if isinstance(one, int) else refused_records(one) for one in results])
            if fetching is not None and outcome.stored is not None:
                keep_sent(fetching, self.topic, outcome, [(one.batch, one.data) for one in waiting], results)
        if fetching is not None:
            fetching.notify([self.topic])

    async def _send_each(self, waiting: Sequence[_Waiting]) -> None:
        """Send one after the other what came by a connection, and wait where that takes time; beside it, what came by
        others."""
        by_connection: dict[object, list[_Waiting]] = {}
        for one in waiting:
            by_connection.setdefault(one.sent.connection, []).append(one)
        try:
            await asyncio.gather(*[self._send_in_order(own) for own in by_connection.values()])
        finally:
            self._sending = None
            if self._waiting and self._due is None:
                self._due = self._loop.call_soon(self._end_turn)

    async def _send_in_order(self, waiting: Sequence[_Waiting]) -> None:
        for one in waiting:
            sent, topic = one.sent, {"name": self.topic}
            request = Request(sent.version, {"acks": sent.acks, "transactional_id": None}, "", ("", 0))
            request.rules = sent.rules
            partition = {"index": one.batch[0], "records": one.data}
            done = await begin_part(self._backend, request, topic, partition)
            sent.note_sent()
            done.add_done_callback(partial(self._settle_answer, one))

    def _settle_answer(self, waiting: _Waiting, answer: asyncio.Future[Answer]) -> None:
        self._settle([waiting], [answer.result()])
        fetching = self._backend.extras.get("fetch")
        if fetching is not None:
            fetching.notify([self.topic])

    async def close(self) -> None:
        """Send what waits."""
        while not self.is_empty:
            under_way = self._opening or self._sending
            if under_way is not None:
                await asyncio.wait([under_way])
            else:
                self._send()


def gathers(connections: int, unanswered: int, size_bytes: int) -> bool:
    """Are there so many producers at work that the next round should wait for more of their requests?

    Not where they wait for answers one by one, since nothing more would come; nor where little is sent.

    Args:
        connections: those that have requests which aren't stored yet.
        unanswered: those requests.
        size_bytes: of the round before.
    """
    return connections >= MANY_CONNECTIONS and unanswered >= 2 * connections and size_bytes >= MUCH_BYTES


class ProduceRounds:
    """The rounds of all topics. Belongs to the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._rounds: dict[tuple[str, int], _Round] = {}

    def begin(self, frame: memoryview, rules: Rules | None, connection: object = None) -> Sent | None:
        """Send what a request holds. None: it isn't an ordinary one, or a topic is held up, and nothing was done. Then
        whoever sends it otherwise waits for the connection's earlier ones first.

        Args:
            frame: bytes behind the length.
            rules: the client's rights; None: everything.
            connection: whose requests are sent in their order.
        """
        found = None if CORE is None or len(frame) > _ROUND_BYTES else CORE.produce_request(frame)
        if found is None:
            return None
        version, correlation_id, acks, topics = found
        if acks not in (-1, 0, 1):
            return None
        if len(topics) + sum(len(partitions) for _, partitions in topics) > IN_THE_LOOP.of_message:
            return None
        producer = self._backend.producer(acks)
        kind = min(acks, 0)
        for name, partitions in topics:
            if rules is not None and not rules.may_write(name):
                return None
            held = self._rounds.get((name, kind))
            if held is not None and held.is_held_up:
                return None
            for batch in partitions:
                if batch[3] and batch[2] - batch[1] > _COMPRESSED_BYTES:
                    return None
        sent, place = Sent(version, correlation_id, acks, topics, rules, connection), 0
        for name, partitions in topics:
            self._round(name, producer, kind).add(sent, place, frame, partitions)
            place += len(partitions)
        return sent

    def _round(self, topic: str, producer: Producer, kind: int) -> _Round:
        key = (topic, kind)
        found = self._rounds.get(key)
        if found is None:
            if len(self._rounds) >= _MANY_ROUNDS:
                self._rounds = {one: kept for one, kept in self._rounds.items() if not kept.is_empty}
            found = self._rounds[key] = _Round(self._backend, topic, producer)
        return found

    async def close(self) -> None:
        """Send what was read."""
        for one in list(self._rounds.values()):
            await one.close()


def rounds_of(backend: Backend) -> ProduceRounds:
    """The rounds of a gateway."""
    found: ProduceRounds | None = backend.extras.get("produce")
    if found is None:
        found = backend.extras["produce"] = ProduceRounds(backend)
    return found


def _piece(batch: tuple[Any, ...]) -> Piece:
    _, _, _, _, _, count, _, _, producer_id, epoch, sequence = batch
    if producer_id < 0:
        return Piece(count)
    return Piece(
        count,
        ProducerBatch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, count=count),
    )


def _cost(batch: tuple[Any, ...]) -> int:
    """The effort of reading a batch, in bytes that aren't compressed."""
    size: int = batch[2] - batch[1]
    return size * (_COMPRESSED_COST if batch[3] else 1)


def _records(waiting: _Waiting) -> memoryview | bytes:
    """The records of a batch, behind its header. Raises ``BatchError``."""
    records, codec = waiting.data[HEADER_BYTES:], CODECS[waiting.batch[3]]
    return records if codec is None else decompress(records, codec, limit_bytes=_ROUND_BYTES)
