"""InitProducerId: ids of idempotent producers."""

from __future__ import annotations

from typing import Any

from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode
from sparklog.log.producer_state import new_producer_id

__all__ = ["init_producer_id"]


async def init_producer_id(backend: Backend, request: Request) -> dict[str, Any]:
    """A fresh id, as random as those of sparklog's own producers: nobody hands them out, and nothing is asked or
    written. Which batches it has stored, each topic remembers (rule L15, numbered batches)."""
    if request.body["transactional_id"] is not None:
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": new_producer_id(), "producer_epoch": 0}
