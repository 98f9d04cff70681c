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
    """Serve a cluster to Kafka's clients as long as the block lasts; makes the cluster where there is none.

    Args:
        cluster: root URI, such as ``memory://tests``, or an opened cluster.
        listen: host and port; port 0 is a free one.
        users: a file of users, or ``store``, as ``sparklog gateway --users`` takes it; None: whoever reaches the port
            may do everything, so listen on localhost.
        tls: see :func:`~sparklog.gateway.server.tls_context`; None: nothing is encrypted.
        settings: fields of :class:`~sparklog.gateway.settings.GatewaySettings`; topics are created as clients ask for
            them unless ``auto_create_topics=False``.
    Yields:
        ``bootstrap_servers``, as clients take it.
    Raises:
        OSError: the address can't be listened on.
        InvalidConfigurationError: a user's line can't be understood, or no users are in the store.
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
