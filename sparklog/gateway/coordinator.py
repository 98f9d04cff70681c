"""FindCoordinator: a transaction's coordinator is the gateway that is asked."""

from __future__ import annotations

from typing import Any

from sparklog.gateway.backend import NODE_ID, Backend, Request
from sparklog.gateway.error_codes import ErrorCode

__all__ = ["find_coordinator"]

_TRANSACTION = 1
"""Source: Kafka ``FindCoordinatorRequest.CoordinatorType``."""


async def find_coordinator(backend: Backend, request: Request) -> dict[str, Any]:
    """This gateway, for transactional ids; groups aren't served."""
    body = request.body
    if body.get("key_type", 0) == _TRANSACTION:
        host, port = backend.advertised or request.local_address
        found = {"error_code": ErrorCode.NONE, "node_id": NODE_ID, "host": host, "port": port}
    else:
        found = {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1}
    keys = body.get("coordinator_keys")
    return found if keys is None else {"coordinators": [{"key": key, **found} for key in keys]}
