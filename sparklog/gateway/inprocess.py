"""A gateway in a thread of this process: a Kafka broker for tests, without Docker and without Java."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparklog.gateway.server import Gateway, parse_address
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.stored_users import IN_STORE, StoredUsers
from sparklog.gateway.users import KnownUsers, Users
from sparklog.log.cluster import Cluster, open_cluster

__all__ = ["serve"]

_STOP_S = 30.0


@contextmanager
def serve(
    cluster: str | Path | Cluster,
    *,
    listen: str = "127.0.0.1:0",
    storage_options: Mapping[str, Any] | None = None,
    users: str | Path | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Serve a cluster to Kafka's clients within a ``with`` block; creates the cluster if there is none.

    Args:
        cluster: root URI, such as ``memory://tests``, or an open cluster.
        listen: host and port; port 0 means a free port.
        users: a file of users, or ``store``, as ``sparklog gateway --users`` takes it; None: every
            client that reaches the port may do everything, so listen on localhost.
        tls: see :func:`~sparklog.gateway.server.tls_context`; None: nothing is encrypted.
        settings: fields of :class:`~sparklog.gateway.settings.GatewaySettings`; topics are created when clients
            request them unless ``auto_create_topics=False``.
    Yields:
        the value for ``bootstrap_servers`` of clients.
    Raises:
        OSError: listening on the address isn't possible.
        InvalidConfigurationError: a line of the file of users can't be parsed, or there are no users in the store.
        InvalidArgumentError, StoreError.
    """
    chosen = GatewaySettings(**{"auto_create_topics": True, **settings})
    host, port = parse_address(listen)
    known: KnownUsers | None = None if users is None or users == IN_STORE else Users(users)
    opened = cluster if isinstance(cluster, Cluster) else open_cluster(cluster, storage_options=storage_options)
    if users == IN_STORE:
        try:
            known = StoredUsers(opened)
        except BaseException:
            if not isinstance(cluster, Cluster):
                opened.store.close()
            raise
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sparklog-gateway-loop", daemon=True)
    thread.start()
    gateway = Gateway(opened, chosen, users=known, tls=tls)
    try:
        bound = asyncio.run_coroutine_threadsafe(gateway.listen(host, port), loop).result(_STOP_S)
        yield f"{bound[0]}:{bound[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(gateway.close(), loop).result(_STOP_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_S)
        loop.close()
        if not isinstance(cluster, Cluster):
            opened.store.close()
