"""InitProducerId and DescribeProducers: idempotent and transactional producers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.distinct import distinct
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.transactions import sessions_of
from sparklog.log.numbering_producers import NumberingProducer, numbering_producers
from sparklog.log.producer_state import new_producer_id
from sparklog.log.state import load_state

__all__ = ["describe_producers", "init_producer_id"]

_Answer = dict[str, Any]


async def init_producer_id(backend: Backend, request: Request) -> dict[str, Any]:
    """An id and an epoch.

    Without a transactional id it is as random as those of sparklog's own producers: nobody hands them out, and nothing
    is asked or written. Which batches such a producer has stored, each topic remembers (rule L15, numbered batches).
    """
    body, version = request.body, request.api_version
    if body["transactional_id"] is None:
        return {"producer_id": new_producer_id(), "producer_epoch": 0}
    asked = body.get("producer_id", -1), body.get("producer_epoch", -1)
    code = ErrorCode.INVALID_REQUEST
    if body["transactional_id"]:
        try:
            begun = await sessions_of(backend).begin(body["transactional_id"], body["transaction_timeout_ms"], asked)
            if not isinstance(begun, ErrorCode):
                return {"producer_id": begun.number[0], "producer_epoch": begun.number[1]}
            code = begun
        except (KafkaTimeoutError, StoreError):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        except SparklogError as error:
            code = code_of(error)
    if code is ErrorCode.PRODUCER_FENCED and version < 4:  # source: KIP-588
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


async def describe_producers(backend: Backend, request: Request) -> _Answer:
    """The idempotent producers of which partitions remember something. None has a transaction open there: what it sent
    in one is in no topic before the commit."""
    rules, topics = request.rules, distinct(request.body["topics"], "name", "partition_indexes")

    def topic(wanted: Mapping[str, Any]) -> _Answer:
        name, numbers = wanted["name"], dict.fromkeys(wanted["partition_indexes"])
        if rules is not None and not rules.may_read(name):
            return _refused_topic(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        try:
            state = load_state(backend.cluster.topic_log(name))
            if state.head.deleted:
                raise UnknownTopicOrPartitionError(f"topic {name!r} was deleted")
        except SparklogError as error:
            return _refused_topic(wanted, code_of(error), str(error))
        known, count = numbering_producers(state), state.head.partition_count
        partitions = []
        for number in numbers:
            is_there = 0 <= number < count
            code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            producers = [_described(producer) for producer in known.get(number, ())] if is_there else []
            partitions.append({"partition_index": number, "error_code": code, "active_producers": producers})
        return {"name": name, "partitions": partitions}

    return {"topics": await backend.run_look(lambda: [topic(one) for one in topics])}


def _described(producer: NumberingProducer) -> _Answer:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.updated_ms,
        "coordinator_epoch": -1,
        "current_txn_start_offset": -1,
    }


def _refused_topic(wanted: Mapping[str, Any], code: ErrorCode, message: str | None) -> _Answer:
    refused: _Answer = {"error_code": code, "error_message": message, "active_producers": []}
    return {
        "name": wanted["name"],
        "partitions": [{**refused, "partition_index": number} for number in wanted["partition_indexes"]],
    }
