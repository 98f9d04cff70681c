"""Produce within a transaction: records are uploaded, and lie in no log before EndTxn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from sparklog.errors import (
    InvalidArgumentError,
    RetriableError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.transactions import Done, Ends, Sent, Session, sessions_of
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.producer import Producer
from sparklog.producer.batch import Batch
from sparklog.producer.future import FutureBatchMetadata

__all__ = ["send_in_transaction", "send_to_partition"]

_ABORTABLE_SINCE = 11
"""The version of Produce that knows ``TRANSACTION_ABORTABLE``. Source: KIP-890."""


async def send_in_transaction(
    backend: Backend,
    request: Request,
    topic: str,
    partition: int,
    table: pa.Table,
    numbered: ProducerBatch,
    compressed_bytes: int | None,
) -> asyncio.Future[dict[str, Any]] | ErrorCode:
    """Send a batch. The answer follows once it is uploaded. An error isn't to be tried again: the transaction must be
    aborted.

    Records have offsets only when the transaction is committed, so the answer has a lower bound of the first one's:
    where the partition's log ends by now, plus what the transaction had sent there before. All records of a transaction
    in a partition are published by one commit, in their order, at the log's end, which never moves back: so the bound
    is never above the offset, it is exact where nobody else writes to the partition meanwhile, and it never decreases
    but after an abort. A session looks at a topic once a second; what other sessions have seen and committed since, it
    has from :class:`LeastEnds`.

    Args:
        compressed_bytes: of the batch; None: it wasn't compressed.
    Raises:
        OutOfOrderSequenceError: as the code says.
    """
    number = numbered.producer_id, numbered.producer_epoch
    session = sessions_of(backend).find(request.body["transactional_id"], number)
    if isinstance(session, ErrorCode):
        return ErrorCode.INVALID_PRODUCER_EPOCH if session is ErrorCode.PRODUCER_FENCED else session
    if not session.is_open or (topic, partition) not in session.partitions:
        return ErrorCode.INVALID_TXN_STATE
    sent, is_new = session.take(topic, numbered, partition)
    if is_new:
        await _send(backend, session, topic, partition, table, sent, compressed_bytes)
    return asyncio.ensure_future(_answer(request, sent.done))


def send_to_partition(
    producer: Producer, topic: str, partition: int, send: Callable[[], FutureBatchMetadata]
) -> FutureBatchMetadata:
    """Send records of one partition, which may have been added after the producer has looked at the topic; may block.

    Raises ``UnknownTopicOrPartitionError``: the topic has no such partition; and what ``send`` raises.
    """
    try:
        return send()
    except InvalidArgumentError:
        if partition not in producer.partitions_for(topic):
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {partition}") from None
        return send()


async def _send(
    backend: Backend,
    session: Session,
    topic: str,
    partition: int,
    table: pa.Table,
    new: Sent,
    compressed_bytes: int | None,
) -> None:
    loop, done, ends = asyncio.get_running_loop(), new.done, session.ends
    base_offset = -1

    def settle(error: SparklogError | None) -> None:
        session.has_failed = session.has_failed or error is not None
        if not done.done():
            done.set_result(base_offset if error is None else error)

    def send() -> None:
        nonlocal base_offset
        producer = session.producer
        least_end = _least_end(session, ends, topic, partition)
        if session.ends is ends:  # else the client has ended the transaction meanwhile
            base_offset = least_end + new.place
        send_batch = partial(producer._send_batch, topic, table, compressed_bytes=compressed_bytes)
        sent = send_to_partition(producer, topic, partition, send_batch)
        batches = sent._batches

        def known() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, next(filter(None, map(_error_of, batches)), None))

        batches[-1].when_known(known)  # the others are known before

    try:
        await backend.run_produce(send)
    except SparklogError as error:
        settle(error)
    except BaseException:
        done.cancel()
        raise


def _least_end(session: Session, ends: Ends, topic: str, partition: int) -> int:
    """Where the log of a partition ends at least; may block, for the first records of a transaction there.

    Args:
        ends: of the transaction.
    Raises:
        As :meth:`WritableTopic.refresh`, and what opening the topic raises.
    """
    at = (topic, partition)
    if at not in ends:
        writable = session.producer._pipelines.get(topic).topic
        writable.refresh_each_second()
        topic_id, known = writable.topic_id, writable.head.log_end_offsets
        end = known[partition] if partition < len(known) else 0
        ends.setdefault(at, (topic_id, session.least_ends.seen(topic, partition, topic_id, end)))
    return ends[at][1]


def _error_of(batch: Batch) -> SparklogError | None:
    outcome = batch.outcome or batch.uploaded_outcome
    if outcome is None:
        return None
    return outcome.error or next(iter((outcome.refused or {}).values()), None)


async def _answer(request: Request, done: Done) -> dict[str, Any]:
    error = await asyncio.shield(done)
    if isinstance(error, int):
        return {"base_offset": error}
    code = code_of(error)
    if isinstance(error, (RetriableError, StoreError, TransactionAbortableError)):
        is_known = request.api_version >= _ABORTABLE_SINCE
        code = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
    return {"error_code": code, "base_offset": -1, "error_message": str(error)}
