"""InitProducerId: ids of idempotent and of transactional producers."""

from __future__ import annotations

from typing import Any

from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.transactions import sessions_of
from sparklog.log.producer_state import new_producer_id

__all__ = ["init_producer_id"]


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
