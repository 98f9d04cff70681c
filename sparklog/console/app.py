"""The application: which path is answered by what, and what becomes of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sparklog.console.api import Api, json_response
from sparklog.console.backend import Backend, BusyError
from sparklog.console.jobs import in_one_line, told
from sparklog.console.mcp import Mcp
from sparklog.console.pages import Pages
from sparklog.console.rendering import STATIC
from sparklog.console.security import Guard
from sparklog.console.threads import Threads, result_of
from sparklog.console.writes import Writes
from sparklog.errors import (
    GroupIdNotFoundError,
    InvalidArgumentError,
    InvalidConfigurationError,
    InvalidTopicError,
    NotATopicError,
    ObjectNotFoundError,
    SparklogError,
    StoreError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)

__all__ = ["create_app"]

Page = Callable[[Request], Response]

_STATUS: tuple[tuple[type[SparklogError], int], ...] = (
    (BusyError, 429),
    (UnknownTopicOrPartitionError, 404),
    (NotATopicError, 404),
    (ObjectNotFoundError, 404),
    (GroupIdNotFoundError, 404),
    (TransactionalIdNotFoundError, 404),
    (InvalidTopicError, 404),
    (InvalidArgumentError, 400),
    (InvalidConfigurationError, 400),
    (StoreError, 503),
)
"""The first kind that an error is of counts; any other is 500: what is there can't be understood, or wasn't done."""


def create_app(backend: Backend) -> Starlette:
    """The application over a cluster. While it runs, it looks at the cluster in a thread."""
    pages, api, mcp = Pages(backend), Api(backend), Mcp(backend)
    writes = Writes(backend, pages)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        backend.start()
        try:
            yield
        finally:
            await result_of(Threads("stop", 1).submit(backend.stop), lambda: None)

    def failed(request: Request, error: Exception) -> Response:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        message = in_one_line(error)
        if status == 500 and isinstance(error, SparklogError):  # what is there can't be understood: maybe a record
            message = told(error, backend.settings.masking)
        return _error_page(request, pages, status, type(error).__name__, message)

    def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _error_page(request, pages, status, "HTTP", "no such page" if status == 404 else str(error))

    return Starlette(
        routes=[
            *_page_routes(backend, pages, writes),
            *_api_routes(backend, api),
            Route("/mcp", mcp.answer, methods=["POST"]),
            *(Route(path, _exported(backend, path)) for path in ("/metrics", "/healthz", "/readyz")),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[
            Middleware(Guard, settings=backend.settings),
            Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=1),
        ],
        exception_handlers={SparklogError: failed, HTTPException: refused},
        lifespan=lifespan,
    )


def _page_routes(backend: Backend, pages: Pages, writes: Writes) -> list[Route]:
    asking: dict[str, Page] = {
        "/topics/{topic}": pages.topic,
        "/topics/{topic}/records": pages.records,
        "/topics/{topic}/tail": pages.tail,
        "/topics/{topic}/files": pages.files,
        "/topics/{topic}/compare": pages.compare,
        "/topics/{topic}/records/{partition:int}/{offset:int}": pages.record,
        "/topics/{topic}/records/{partition:int}/{offset:int}/raw": pages.raw,
        "/group": pages.group,
        "/transaction": pages.transaction,
        "/sql": pages.sql,
    }
    changing = {
        "/topics/{topic}/settings": writes.settings,
        "/topics/{topic}/produce": writes.produce,
        "/group/reset": writes.reset,
        "/transaction/abort": writes.abort,
        "/transactions/recover": writes.recover,
    }
    return [
        Route("/", _answered(backend, pages.overview, backend.overview_threads)),
        *(Route(path, _answered(backend, page, backend.page_threads)) for path, page in asking.items()),
        *(Route(path, change, methods=["POST"]) for path, change in changing.items()),
    ]


def _api_routes(backend: Backend, api: Api) -> list[Route]:
    known: dict[str, Page] = {
        "/api/openapi.json": api.openapi,
        "/api/topics": api.topics,
        "/api/groups": api.groups,
        "/api/transactions": api.transactions,
        "/api/maintenance": api.maintenance,
    }
    asking: dict[str, Page] = {
        "/api/topics/{topic}": api.topic,
        "/api/topics/{topic}/commits": api.commits,
        "/api/topics/{topic}/files": api.files,
        "/api/topics/{topic}/records": api.records,
        "/api/groups/{group:path}": api.group,
        "/api/sql": api.sql,
    }
    return [
        *(Route(path, _answered(backend, page, backend.overview_threads)) for path, page in known.items()),
        *(Route(path, _answered(backend, page, backend.page_threads)) for path, page in asking.items()),
    ]


def _answered(backend: Backend, page: Page, threads: Threads) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await backend.answer(partial(page, request), threads)

    return answer


def _exported(backend: Backend, path: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        found = backend.exporter.respond(path, accepts_gzip=False)
        return Response(found.body, found.status, media_type=found.content_type)

    return answer


def _error_page(request: Request, pages: Pages, status: int, kind: str, message: str) -> Response:
    """An error as the client reads it."""
    if request.url.path.startswith(("/api/", "/mcp")):
        return json_response({"error": kind, "message": message}, status)
    return pages.render(request, "error.html", status, kind=kind, message=message)
