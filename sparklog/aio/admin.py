"""The admin client for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from sparklog import admin as sync
from sparklog.aio.call_thread import LoopThread, result_of
from sparklog.log import Cluster
from sparklog.storage import ObjectStore

__all__ = ["Admin"]


class Admin:
    """The calls of :class:`sparklog.Admin`, to be awaited: with the same names, arguments, results and errors.

    One thread makes the calls, one after the other. A call continues after a cancellation.

    Args:
        cluster: the cluster's root URI, its store or an open cluster.
        settings: those of :class:`sparklog.Admin`, including ``storage_options`` and ``create``.
    """

    def __init__(self, cluster: str | Path | ObjectStore | Cluster, **settings: Any) -> None:
        self._admin = sync.Admin(cluster, **settings)  # reads nothing yet
        self._thread = LoopThread("admin client")
        self._closing: asyncio.Future[None] | None = None
        weakref.finalize(self, self._thread.end).atexit = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(sync.Admin, name, None)
        if not inspect.isfunction(method):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._thread.call(lambda: method(self._admin, *args, **kwargs))

        return call

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(name for name in dir(sync.Admin) if not name.startswith("_"))})

    async def close(self) -> None:
        """Close the store, after the calls that are running. A second call waits for the first one."""
        if not self._thread.is_ended:
            self._closing = self._thread.submit(self._admin.close)
            self._thread.end()
        if self._closing is not None:
            await result_of(self._closing)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
