"""One producer whose uploads are signed without their content, as AWS's own clients, and sparklog, do it over TLS.

The benchmark's server is spoken to without TLS. There the content's SHA-256 sum is part of the signature by default:
the client computes it, and so does the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.harness import Usage
from benchmarks.stores.sustained import send_batch_sustained, send_sustained

if TYPE_CHECKING:
    from sparklog.log import Cluster

__all__ = ["send_batch_unsigned", "send_unsigned"]


def send_unsigned(root: str, **arguments: Any) -> Usage:
    """``Producer.send`` to S3, the content unsigned."""
    return send_sustained(_unsigned(root), **arguments)


def send_batch_unsigned(root: str, **arguments: Any) -> Usage:
    """``Producer.send_batch`` to S3, the content unsigned."""
    return send_batch_sustained(_unsigned(root), **arguments)


def _unsigned(root: str) -> Cluster:
    from sparklog.log import open_cluster
    from sparklog.storage import open_store

    return open_cluster(open_store(root, {"unsigned_payload": True}))
