"""Serves a console until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from sparklog.console.app import create_app
from sparklog.console.backend import Backend
from sparklog.console.threads import Threads, result_of

__all__ = ["serve"]

_GRACE_S = 3


def serve(backend: Backend, host: str, port: int, *, on_listening: Callable[[str], object]) -> None:
    """Answer until SIGTERM or Ctrl-C.

    Args:
        host: a name or an address; empty for every address of the machine.
        port: 0 for any that is free.
        on_listening: called with the address to open, once it can be.
    Raises:
        InvalidArgumentError: there is no cluster.
        SystemExit: the address isn't free, or isn't this machine's; uvicorn has logged it.
    """
    backend.require_cluster()
    config = uvicorn.Config(
        create_app(backend),
        host=host or "0.0.0.0",  # noqa: S104 - what the caller asked for
        port=port,
        log_config=None,  # the command has set up where logs go
        log_level="warning",
        access_log=False,  # addresses of pages hold keys that were searched for
        server_header=False,
        proxy_headers=False,  # who a proxy is, the guard decides
        timeout_graceful_shutdown=_GRACE_S,
        lifespan="on",
    )
    bound = config.bind_socket()
    bound.listen()  # who comes from here on waits, and isn't refused
    shown = f"[{host}]" if ":" in host else host or "localhost"
    on_listening(f"http://{shown}:{bound.getsockname()[1]}/")
    _Server(config, backend).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Ends the work of its answers first, so that these end by themselves."""

    def __init__(self, config: uvicorn.Config, backend: Backend) -> None:
        super().__init__(config)
        self._backend = backend

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await result_of(Threads("stop", 1).submit(self._backend.end_jobs), lambda: None)
        await super().shutdown(sockets)
