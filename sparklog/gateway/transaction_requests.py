"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, and what describes transactions: Kafka's transactions
of version 1, whose calls are those of a transactional producer of sparklog's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sparklog.errors import (
    ConcurrentTransactionsError,
    InvalidArgumentError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
)
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.expressions import matching
from sparklog.gateway.group_coordinator import coordinators
from sparklog.gateway.partition_codes import added_partitions, committed_partitions
from sparklog.gateway.transactions import Session, sessions_of
from sparklog.logs import short
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.txn.states import TransactionState

__all__ = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_transactions",
    "end_txn",
    "list_transactions",
    "txn_offset_commit",
]

_LOGGER = logging.getLogger("sparklog.gateway")
_FENCED_SINCE = {"AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "TxnOffsetCommit": 3, "EndTxn": 2}
"""The versions that know ``PRODUCER_FENCED``. Source: KIP-588."""
_ABORTABLE_SINCE = 4
"""The version of each of these requests that knows ``TRANSACTION_ABORTABLE``. Source: KIP-890."""


def _find(backend: Backend, request: Request, name: str, prefix: str = "") -> Session | ErrorCode:
    body = request.body
    number = body[f"{prefix}producer_id"], body[f"{prefix}producer_epoch"]
    session_or_code = sessions_of(backend).find(body[f"{prefix}transactional_id"], number)
    return (
        _code_for_version(session_or_code, request, name) if isinstance(session_or_code, ErrorCode) else session_or_code
    )


def _code_for_version(code: ErrorCode, request: Request, name: str) -> ErrorCode:
    """The code as clients of the request's version know it."""
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE[name]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and request.api_version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING  # clients abort, and ask InitProducerId anew
    return code


async def _done(
    backend: Backend, session: Session, call: Callable[[], object], request: Request, name: str
) -> ErrorCode:
    """Run a call that may block, and return its error code. The caller holds the session's lock."""
    try:
        await backend.run(call)
        return ErrorCode.NONE
    except ProducerFencedError as error:
        _LOGGER.info("%s of %r: %s", name, session.transactional_id, error)
        sessions_of(backend).drop(session)
        return _code_for_version(ErrorCode.PRODUCER_FENCED, request, name)
    except SparklogError as error:
        _LOGGER.info("%s of %r: %s", name, session.transactional_id, error)
        if isinstance(error, TransactionAbortableError):
            return _code_for_version(ErrorCode.TRANSACTION_ABORTABLE, request, name)
        if isinstance(error, InvalidArgumentError):
            return code_of(error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # the same call again says how it ended


async def add_partitions_to_txn(backend: Backend, request: Request) -> dict[str, Any]:
    """Begin a transaction where none is open, and add partitions to it: only to these may the client produce."""
    prefix = "v3_and_below_"
    topics = request.body[f"{prefix}topics"]
    session = _find(backend, request, "AddPartitionsToTxn", prefix)
    if isinstance(session, ErrorCode):
        code = session
    else:
        async with session.lock:
            code = await _done(backend, session, session.begin, request, "AddPartitionsToTxn")
            sessions_of(backend).watch(session)
            if code is ErrorCode.NONE:
                session.partitions |= {(topic["name"], number) for topic in topics for number in topic["partitions"]}
    return added_partitions(topics, code)


async def add_offsets_to_txn(backend: Backend, request: Request) -> dict[str, Any]:
    """Begin a transaction where none is open. The group's offsets come with TxnOffsetCommit."""
    session = _find(backend, request, "AddOffsetsToTxn")
    if isinstance(session, ErrorCode):
        return {"error_code": session}
    async with session.lock:
        code = await _done(backend, session, session.begin, request, "AddOffsetsToTxn")
        sessions_of(backend).watch(session)
    return {"error_code": code}


async def txn_offset_commit(backend: Backend, request: Request) -> dict[str, Any]:
    """Make a group's offsets part of the transaction."""
    body = request.body
    offsets = {
        TopicPartition(topic["name"], partition["partition_index"]): OffsetAndMetadata(
            partition["committed_offset"],
            partition["committed_metadata"] or "",
            partition.get("committed_leader_epoch", -1),
        )
        for topic in body["topics"]
        for partition in topic["partitions"]
    }
    session = _find(backend, request, "TxnOffsetCommit")
    if isinstance(session, ErrorCode):
        code = session
    else:
        async with session.lock:
            code = await _add_offsets(backend, request, session, offsets)
    if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:  # fatal for librdkafka here, as in no other of these answers
        code = ErrorCode.UNKNOWN_MEMBER_ID
    return committed_partitions(body, code)


async def _add_offsets(
    backend: Backend, request: Request, session: Session, offsets: dict[TopicPartition, OffsetAndMetadata]
) -> ErrorCode:
    if not session.is_open:
        return ErrorCode.INVALID_TXN_STATE
    owner = await _owner(backend, request.body, offsets)
    if isinstance(owner, ErrorCode):
        return owner
    producer = session.producer
    return await _done(
        backend,
        session,
        lambda: producer.send_offsets_to_transaction(offsets, owner),
        request,
        "TxnOffsetCommit",
    )


async def _owner(
    backend: Backend, body: dict[str, Any], offsets: dict[TopicPartition, OffsetAndMetadata]
) -> ConsumerGroupMetadata | ErrorCode:
    """The member of the group by which offsets are committed: the gateway, where it coordinates the group."""
    group, member_id, generation = body["group_id"], body.get("member_id", ""), body.get("generation_id", -1)
    if generation < 0 and not member_id:
        return ConsumerGroupMetadata(group)
    groups = coordinators(backend)
    names = {topic for topic, _ in offsets}
    facts = await backend.run(lambda: groups.topics.facts(names))
    if names - set(facts):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic_ids = {partition: facts[partition.topic][0] for partition in offsets}
    return await groups.transaction_owner(group, member_id, body.get("group_instance_id"), generation, topic_ids)


async def end_txn(backend: Backend, request: Request) -> dict[str, Any]:
    """Commit or abort; the answer says that it is done, everywhere. A repetition has the same answer."""
    session, commits = _find(backend, request, "EndTxn"), bool(request.body["committed"])
    if isinstance(session, ErrorCode):
        if session is ErrorCode.INVALID_PRODUCER_ID_MAPPING and commits:
            session = await _inherited(backend, request)
        return {"error_code": session}
    async with session.lock:
        if not session.is_open:
            is_repeated = session.was_committed is commits
            return {"error_code": ErrorCode.NONE if is_repeated else ErrorCode.INVALID_TXN_STATE}
        if commits and session.has_failed:
            return {"error_code": _code_for_version(ErrorCode.TRANSACTION_ABORTABLE, request, "EndTxn")}
        producer, topics = session.producer, {topic for topic, _ in session.partitions}
        call = producer.commit_transaction if commits else producer.abort_transaction
        code = await _done(backend, session, call, request, "EndTxn")
        if code is ErrorCode.NONE:
            session.end(is_committed=commits)
    fetching = backend.extras.get("fetch")
    if fetching is not None:
        fetching.notify(topics)
    return {"error_code": code}


async def _inherited(backend: Backend, request: Request) -> ErrorCode:
    """The answer about a commit that another gateway may have made."""
    body = request.body
    number = body["producer_id"], body["producer_epoch"]
    try:
        code = await sessions_of(backend).inherit(body["transactional_id"], number)
    except ConcurrentTransactionsError:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    except SparklogError as error:
        _LOGGER.info("EndTxn of %r, of another gateway: %s", short(body["transactional_id"]), short(error))
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _code_for_version(code, request, "EndTxn")


async def describe_transactions(backend: Backend, request: Request) -> dict[str, Any]:
    """Transactional ids as of now, whichever gateway or client has them."""
    rules = request.rules

    def describe(transactional_id: str) -> dict[str, Any]:
        state: dict[str, Any] = {"transactional_id": transactional_id, "transaction_state": "", "topics": []}
        state |= {"transaction_timeout_ms": -1, "transaction_start_time_ms": -1}
        state |= {"producer_id": -1, "producer_epoch": -1}
        try:
            (described,) = backend.admin.describe_transactions([transactional_id])
        except SparklogError as error:
            return {**state, "error_code": code_of(error)}
        if described.state is None:
            return {**state, "error_code": ErrorCode.UNKNOWN_SERVER_ERROR}
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(described.topic_partitions):
            if rules is not None and not rules.may_see(topic):
                continue  # source: Kafka ``KafkaApis.handleDescribeTransactionsRequest``
            partitions.setdefault(topic, []).append(partition)
        return {
            **state,
            "transaction_state": described.state.value,
            "transaction_timeout_ms": described.transaction_timeout_ms,
            "producer_id": described.producer_id,
            "producer_epoch": described.producer_epoch,
            "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()],
        }

    ids = dict.fromkeys(request.body["transactional_ids"])
    states = await backend.run(lambda: [describe(name) for name in ids])
    return {"transaction_states": states}


async def list_transactions(backend: Backend, request: Request) -> dict[str, Any]:
    """The transactional ids of the cluster.

    When a transaction began is written nowhere, so a filter by duration goes by the newest entry of an id's log: an
    open transaction began after it.
    """
    names, ids = set(request.body["state_filters"]), set(request.body["producer_id_filters"])
    pattern, least_ms = request.body.get("transactional_id_pattern"), request.body.get("duration_filter", -1)
    known = {state.value for state in TransactionState}
    listed = await backend.run(backend.admin.describe_transactions)
    for listing in listed:
        if listing.error is not None:
            _LOGGER.warning("transactional id %r isn't listed: %s", listing.transactional_id, listing.error)
    if ids:
        listed = [listing for listing in listed if listing.producer_id in ids]
    if least_ms >= 0:
        now_ms = backend.cluster.clock.now_ms()
        listed = [listing for listing in listed if now_ms - listing.written_ms > least_ms]
    if pattern:
        try:
            matched = matching(pattern, [listing.transactional_id for listing in listed])
        except ValueError:
            code = ErrorCode.INVALID_REGULAR_EXPRESSION
            return {"error_code": code, "unknown_state_filters": [], "transaction_states": []}
        listed = [listing for listing in listed if listing.transactional_id in matched]
    states_of_ids = [
        {
            "transactional_id": listing.transactional_id,
            "producer_id": listing.producer_id,
            "transaction_state": listing.state.value,
        }
        for listing in listed
        if listing.state is not None and (not names or listing.state.value in names)
    ]
    return {"unknown_state_filters": sorted(names - known), "transaction_states": states_of_ids}
