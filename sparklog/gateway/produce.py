"""Produce: record batches of a request become Arrow tables of sparklog's own producer.

Sending begins when the request was read, in the order of a connection's requests; the answer comes when it is stored.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.errors import (
    CommitStateUnknownError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceError,
    SparklogError,
)
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.defects import log_defect
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.records import BatchError, BatchHeader, batch_headers, decode_batches, decode_rows, is_plain
from sparklog.gateway.records.batches import HEADER_BYTES, TooLargeError, UnsupportedCodecError, UnsupportedMagicError
from sparklog.gateway.transactional_produce import send_in_transaction, send_to_partition
from sparklog.gateway.turns import in_turns
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.logs import short
from sparklog.producer import Producer
from sparklog.producer.future import FutureBatchMetadata
from sparklog.producer.outcome import Outcome, Piece, RefusedWithOthersError

__all__ = ["Answer", "begin_part", "begin_produce", "failed", "refused_records"]

Answer = dict[str, Any]
_NO_TIMESTAMP = -1
"""Source: Kafka ``RecordBatch.NO_TIMESTAMP``."""
_MOST_RECORD_ERRORS = 1_000
"""The bound for one batch: more are answered with the batch's error alone."""
_TOO_LARGE = (
    "a record's key and value, or its batch where that is compressed, have more bytes than the topic's "
    "max.message.bytes, or than the gateway takes"
)
_OF_WHOLE_BATCHES = (
    RefusedWithOthersError,
    CommitStateUnknownError,
    OutOfOrderSequenceError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
)
"""Errors that say nothing of a record by itself."""
_SMALL_BYTES = 1_100_000
"""Bound of records that are decoded in the event loop: a batch of Kafka's clients, of 1 MiB, takes a millisecond."""
_PARTITION_BYTES = 32_768
"""A partition in a request costs about what so many bytes of its records do, however few they are."""


async def begin_produce(backend: Backend, request: Request) -> Awaitable[Answer] | None:
    """Send what a request holds; the answer follows when it is stored. None: the client wants no answer (acks=0)."""
    acks, pending, begun_bytes = request.body["acks"], [], 0
    for topic in request.body["topic_data"]:
        for partition in topic["partition_data"]:
            pending.append(await begin_part(backend, request, topic, partition))
            begun_bytes += len(partition["records"] or b"") + _PARTITION_BYTES
            if begun_bytes > _SMALL_BYTES:
                begun_bytes = 0
                await asyncio.sleep(0)  # other connections' turn: what is sent at once has never waited
    if acks == 0:
        return None
    return asyncio.ensure_future(_answer(backend, request, pending))  # waits even where the client is gone


async def begin_part(
    backend: Backend, request: Request, topic: dict[str, Any], partition: dict[str, Any]
) -> asyncio.Future[Answer]:
    """Send the records of a partition; the future never fails, and has the partition's part of the answer."""
    part = _Part(backend, request, topic, partition)
    try:
        if request.body["acks"] not in (-1, 0, 1):
            raise _RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.body['acks']}: expected -1, 0 or 1")
        if request.body.get("transactional_id") is not None:
            await part.send_in_transaction()
        else:
            producer = backend.producer(request.body["acks"])  # here: two threads would make two
            if not part.try_send(producer):
                await part.open(producer)
                await backend.run_produce(lambda: part.send(producer))
    except _RefusedError as error:
        part.fail(error, error.code)
    except SparklogError as error:
        part.fail(error)
    except Exception as error:  # a defect: the client gets an error, and the connection's other requests go on
        named = short(topic.get("name") or topic.get("topic_id"))
        log_defect(backend.log_repeats, "Produce to %s failed unexpectedly", named)
        part.fail(error, ErrorCode.UNKNOWN_SERVER_ERROR)
    return part.done


class _Part:
    """The records of one partition in a request, and its part of the answer."""

    def __init__(self, backend: Backend, request: Request, topic: dict[str, Any], partition: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Answer] = self._loop.create_future()
        self._backend = backend
        self._request = request
        self._topic = topic
        self._partition = partition
        self._index: int = partition["index"]

    def fail(self, error: BaseException, code: ErrorCode | None = None) -> None:
        """Answer with an error."""
        self._settle(failed(error, code))

    def _settle(self, answer: Answer) -> None:
        if not self.done.done():
            self.done.set_result({"index": self._index, **answer})

    def try_send(self, producer: Producer) -> bool:
        """Decode and send the records here and now, if that takes little time and has to wait for nothing: a thread
        more costs more. False: it isn't so."""
        records = self._partition["records"]
        if records is None or len(records) > _SMALL_BYTES or not self._topic.get("name") or not is_plain(records):
            return False
        name, limit_bytes = self._name(), self._backend.settings.max_decoded_bytes
        with _refusals():
            batches, numbered = _checked_batches(self._request, self._partition)
            rows = decode_rows(batches, self._index, limit_bytes=limit_bytes)
        if rows is None or rows.size_bytes > limit_bytes:
            return False
        if self._index < 0:
            return False
        future = producer._try_send_rows(
            name,
            rows.table,
            [Piece(rows.table.num_rows, numbered)],
            greatest_partition=self._index,
            size_bytes=rows.size_bytes,
            least_timestamp_ms=rows.least_timestamp_ms,
            largest_bytes=rows.largest_bytes,
        )
        if future is None:
            return False
        self._follow(future)
        return True

    def _follow(self, future: FutureBatchMetadata) -> None:
        future.when_outcome(lambda outcome: self._backend.later(self._loop, lambda: self._stored(outcome)))

    def _stored(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.fail(outcome.error)
        elif outcome.refused:
            self._settle(refused_records(outcome.refused))
        else:
            self._settle({"base_offset": int(outcome.require_written().offsets[0])})

    async def open(self, producer: Producer) -> None:
        """Open the topic, together with all others who wait for that."""
        if self._topic.get("name"):
            await self._backend.open_topic(producer, self._name())

    def send(self, producer: Producer) -> None:
        """Decode and send the records; may block."""
        name, decoded = self._decoded()
        send = partial(producer._send_batch, compressed_bytes=decoded.compressed_bytes, is_whole=True)
        self._follow(
            send_to_partition(producer, name, self._index, lambda: send(name, decoded.table, decoded.numbered))
        )

    async def send_in_transaction(self) -> None:
        """Decode and send the records; the answer comes once they are uploaded."""
        name, decoded = await self._backend.run_produce(self._decoded)
        if decoded.numbered is None:
            raise _RefusedError(ErrorCode.INVALID_RECORD, "a batch that isn't of a transactional producer")
        send = partial(send_in_transaction, self._backend, self._request, name, self._index)
        pending = await send(decoded.table, decoded.numbered, decoded.compressed_bytes)
        if isinstance(pending, ErrorCode):
            raise _RefusedError(
                pending, "the transaction isn't open in this gateway, or the partition wasn't added to it"
            )
        pending.add_done_callback(self._take)

    def _take(self, answer: asyncio.Future[Answer]) -> None:
        if answer.cancelled():
            self.done.cancel()
        elif (error := answer.exception()) is not None:
            self.fail(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._settle(answer.result())

    def _decoded(self) -> tuple[str, _Decoded]:
        """The topic's name, and what is to be sent there."""
        return self._name(), _decoded(self._backend, self._request, self._partition)

    def _name(self) -> str:
        """The topic's name. Raises ``_RefusedError``: the client has no right to write to it."""
        name = self._backend.name_in(self._topic, "name")
        rules, transactional_id = self._request.rules, self._request.body.get("transactional_id")
        if rules is not None and not rules.may_write(name):
            raise _RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no right to write to topic {name!r}")
        if rules is not None and not (transactional_id is None or rules.may_use_transactional_id(transactional_id)):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise _RefusedError(code, f"no right to use the transactional id {transactional_id!r}")
        return name


def failed(error: BaseException, code: ErrorCode | None = None) -> Answer:
    """The answer to records that aren't stored."""
    message = _TOO_LARGE if isinstance(error, MessageSizeTooLargeError) else str(error)
    return {"error_code": code or code_of(error), "base_offset": -1, "error_message": message}


def refused_records(refused: Mapping[int, SparklogError]) -> Answer:
    """The answer to records of which some are refused, by their places. Source: KIP-467."""
    about = [
        {"batch_index": place, "batch_index_error_message": str(one)}
        for place, one in sorted(refused.items())
        if not isinstance(one, _OF_WHOLE_BATCHES)
    ]
    return {**failed(next(iter(refused.values()))), "record_errors": about[:_MOST_RECORD_ERRORS]}


class _RefusedError(ValueError):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise what is wrong with batches as ``_RefusedError``."""
    try:
        yield
    except UnsupportedMagicError as error:
        raise _RefusedError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error)) from error
    except UnsupportedCodecError as error:
        raise _RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
    except TooLargeError as error:
        raise _RefusedError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except BatchError as error:
        raise _RefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _checked_batches(request: Request, partition: dict[str, Any]) -> tuple[Sequence[BatchHeader], ProducerBatch | None]:
    """The batches of a partition, not decoded yet, and how an idempotent producer has numbered them."""
    batches = [*batch_headers(partition["records"] or b"")]
    if not any(batch.count for batch in batches):
        raise _RefusedError(ErrorCode.INVALID_RECORD, "a Produce request without records")
    for batch in batches:
        if batch.is_transactional != (request.body.get("transactional_id") is not None):
            raise _RefusedError(ErrorCode.INVALID_RECORD, "a transactional batch has a transactional id, no other")
        if batch.is_control:
            raise InvalidRecordError("a control batch of a client")
    return batches, _numbers(batches)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The records of a partition in a request."""

    table: pa.Table
    """The columns that ``send_batch`` takes."""
    numbered: ProducerBatch | None
    """Their number, where an idempotent producer has given one."""
    compressed_bytes: int | None
    """The size of the largest batch, where all of them are compressed."""


def _decoded(backend: Backend, request: Request, partition: dict[str, Any]) -> _Decoded:
    """The records of a partition. Raises ``_RefusedError``."""
    limit_bytes = backend.settings.max_decoded_bytes
    with _refusals():
        batches, numbered = _checked_batches(request, partition)
        records = decode_batches(batches, limit_bytes=limit_bytes)
    if records.nbytes > limit_bytes:  # else the producer would cut it, and its offsets might not follow each other
        raise _RefusedError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{records.nbytes} bytes of records: expected at most {limit_bytes}"
        )
    records = _with_times(records, int(backend.cluster.clock.now_ms()))
    column = pa.array(np.full(records.num_rows, partition["index"], np.int32))
    table = records.drop_columns(["offset"]).append_column("partition", column)
    is_compressed = all(batch.codec is not None for batch in batches)
    largest = max(HEADER_BYTES + len(batch.records) for batch in batches)
    return _Decoded(table, numbered, largest if is_compressed else None)


def _with_times(records: pa.Table, now_ms: int) -> pa.Table:
    """The records, those without a timestamp with the present one. Kafka stores none for them; here each has one."""
    times = np.asarray(records["timestamp"])
    if not (times == _NO_TIMESTAMP).any():
        return records
    known = pa.array(np.where(times == _NO_TIMESTAMP, now_ms, times))
    return records.set_column(records.column_names.index("timestamp"), "timestamp", known)


def _numbers(batches: Sequence[BatchHeader]) -> ProducerBatch | None:
    """How an idempotent producer has numbered its batch; None: it isn't one. Raises ``_RefusedError``."""
    if all(batch.producer_id < 0 for batch in batches):
        return None
    if len(batches) > 1:  # as Kafka's brokers
        raise _RefusedError(ErrorCode.INVALID_RECORD, f"{len(batches)} batches of an idempotent producer: expected one")
    (batch,) = batches
    if batch.producer_epoch < 0 or batch.base_sequence < 0 or batch.count != batch.last_offset_delta + 1:
        raise _RefusedError(
            ErrorCode.INVALID_RECORD,
            f"a batch of {batch.count} records of epoch {batch.producer_epoch} and sequence {batch.base_sequence}, and "
            f"last offset delta {batch.last_offset_delta}",
        )
    return ProducerBatch(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=batch.count,
    )


async def _answer(backend: Backend, request: Request, pending: list[asyncio.Future[Answer]]) -> Answer:
    left = iter([await one async for one in in_turns(pending)])
    responses = [
        {
            "name": topic.get("name", ""),
            "topic_id": topic.get("topic_id", uuid.UUID(int=0)),
            "partition_responses": [next(left) for _ in topic["partition_data"]],
        }
        async for topic in in_turns(request.body["topic_data"])
    ]
    fetching = backend.extras.get("fetch")
    if fetching is not None:
        fetching.notify(one["name"] for one in responses)
    return {"responses": responses}
