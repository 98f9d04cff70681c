"""One producer to a folder that answers as late as an object store, and takes no CPU meanwhile: what a delay costs a
client by itself.

The server of :mod:`benchmarks.stores.delayed_s3` and its proxy share the machine's cores with the client that is
measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.harness import Usage
from benchmarks.stores.sustained import send_batch_sustained, send_sustained

if TYPE_CHECKING:
    from sparklog.log import Cluster

__all__ = ["send_batch_later", "send_later"]


def send_later(root: str, *, get_ms: float, put_ms: float, **arguments: Any) -> Usage:
    """``Producer.send`` to a folder that answers later."""
    return send_sustained(_later(root, get_ms, put_ms), **arguments)


def send_batch_later(root: str, *, get_ms: float, put_ms: float, **arguments: Any) -> Usage:
    """``Producer.send_batch`` to a folder that answers later."""
    return send_batch_sustained(_later(root, get_ms, put_ms), **arguments)


def _later(root: str, get_ms: float, put_ms: float) -> Cluster:
    from benchmarks.stores.later_store import LaterStore
    from sparklog.log import open_cluster
    from sparklog.storage import open_store

    return open_cluster(LaterStore(open_store(root), get_ms=get_ms, put_ms=put_ms))
