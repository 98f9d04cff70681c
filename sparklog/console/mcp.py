"""A read-only endpoint of the Model Context Protocol: topics, lag and SQL for language models.

Streamable HTTP without sessions: each POST has one message of JSON-RPC 2.0, and its answer is one JSON object. Source:
Model Context Protocol 2025-06-18, "Transports", "Tools".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from threading import Timer
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparklog._version import __version__
from sparklog.console.api import json_response
from sparklog.console.backend import Backend
from sparklog.console.jobs import StatementJob, exported, in_one_line
from sparklog.console.plain import plain_group, plain_topic
from sparklog.console.waiting import read_files
from sparklog.errors import SparklogError

__all__ = ["Mcp"]

_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_MOST_BODY_BYTES = 1 * 2**20
_MOST_ANSWER_BYTES = 200_000
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _BAD_PARAMS = -32700, -32600, -32601, -32602
"""Source: JSON-RPC 2.0, section 5.1."""


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_TEXT = {"type": "string"}
_TOOLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "list_topics": ("The topics of the cluster with records, bytes, files and partitions.", _schema()),
    "describe_topic": ("One topic: offsets and sizes of its partitions, and its settings.", _schema(topic=_TEXT)),
    "group_lag": ("The consumer groups: lag in records and milliseconds by partition, and members.", _schema()),
    "sql": (
        "Run one SELECT of DuckDB's SQL over the topics; each topic is a view of its name with the columns topic, "
        'partition, "offset", timestamp, key (BLOB), value (BLOB; decode(value) is the text) and headers; typed topics '
        "also have their fields. Returns JSON lines. Use LIMIT.",
        _schema(query=_TEXT),
    ),
}


class Mcp:
    """Answers an MCP client. For several threads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._calls: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "list_topics": self._list_topics,
            "describe_topic": self._describe_topic,
            "group_lag": self._group_lag,
        }
        if not backend.settings.masks:
            self._calls["sql"] = self._sql

    async def answer(self, request: Request) -> Response:
        """The answer to a POST."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _failed(None, _INVALID_REQUEST, "expected application/json", status=415)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY_BYTES:
                return _failed(None, _INVALID_REQUEST, f"more than {_MOST_BODY_BYTES} bytes", status=413)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return _failed(None, _PARSE_ERROR, "no JSON", status=400)
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _failed(None, _INVALID_REQUEST, "expected one request of JSON-RPC 2.0", status=400)
        if "id" not in message:  # a notification, which has no answer
            return Response(status_code=202)
        return await self._backend.answer(partial(self._answered, message), self._backend.page_threads)

    def _answered(self, message: dict[str, Any]) -> Response:
        number, method = message["id"], message["method"]
        params = message.get("params") or {}
        if not isinstance(params, dict):
            return _failed(number, _BAD_PARAMS, "params: expected an object")
        if method == "initialize":
            asked = params.get("protocolVersion")
            return _done(
                number,
                {
                    "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "sparklog", "version": __version__},
                    "instructions": "Kafka's topics on Delta tables. Everything here only reads.",
                },
            )
        if method == "ping":
            return _done(number, {})
        if method == "tools/list":
            tools = [
                {"name": name, "description": text, "inputSchema": schema, "annotations": {"readOnlyHint": True}}
                for name, (text, schema) in _TOOLS.items()
                if name in self._calls
            ]
            return _done(number, {"tools": tools})
        if method == "tools/call":
            return self._called(number, params)
        return _failed(number, _NO_METHOD, f"no method {method!r}")

    def _called(self, number: Any, params: Mapping[str, Any]) -> Response:
        name, given = params.get("name"), params.get("arguments") or {}
        call = self._calls.get(name) if isinstance(name, str) else None
        if call is None or not isinstance(given, dict):
            return _failed(number, _BAD_PARAMS, f"no tool {name!r}, or its arguments are no object")
        wanted = _TOOLS[str(name)][1]["properties"]
        if given.keys() != wanted.keys() or not all(isinstance(value, str) for value in given.values()):
            expected = f"texts for {', '.join(wanted)}" if wanted else "none"
            return _failed(
                number, _BAD_PARAMS, f"arguments of {name}: got {', '.join(given) or 'none'}, expected {expected}"
            )
        try:
            text, is_error = call(given), False
        except SparklogError as error:
            text, is_error = in_one_line(error), True
        return _done(number, {"content": [{"type": "text", "text": text}], "isError": is_error})

    def _list_topics(self, given: Mapping[str, Any]) -> str:
        figures = self._backend.figures()
        if figures is None:
            return "The first look at the cluster is under way: ask again."
        brief = [{**plain_topic(one), "partitions": len(one.partitions)} for one in figures.topics]
        unreadable = {one.name: in_one_line(one.error) for one in figures.problems if one.kind == "topic"}
        return _cut(json.dumps({"topics": brief, "unreadable": unreadable}))

    def _describe_topic(self, given: Mapping[str, Any]) -> str:
        name = given["topic"]
        admin = self._backend.admin()
        settings = {key: one.value for key, one in admin.describe_configs([name])[name].items()}
        known = self._backend.topic_figures(name)
        return _cut(json.dumps({"figures": None if known is None else plain_topic(known), "settings": settings}))

    def _group_lag(self, given: Mapping[str, Any]) -> str:
        figures = self._backend.figures()
        groups = () if figures is None else figures.groups
        return _cut(json.dumps({"groups": [plain_group(one) for one in groups]}))

    def _sql(self, given: Mapping[str, Any]) -> str:
        self._backend.check_store()
        read_files()
        job = StatementJob(
            self._backend.cluster(),
            given["query"],
            lambda run, rows: exported("json", run, rows),
            self._backend.statement_slot(),
            origin=self._backend.origin,
        )
        self._backend.ending(job)
        timer = Timer(self._backend.settings.query_timeout_ms / 1_000, job.cancel)
        timer.daemon = True
        timer.start()
        parts, size = list[bytes](), 0
        try:
            for part in job:
                parts.append(part)
                size += len(part)
                if size > _MOST_ANSWER_BYTES:
                    break
        finally:
            timer.cancel()
            job.close()
        return _cut(b"".join(parts).decode(errors="replace"))


def _cut(text: str) -> str:
    if len(text) <= _MOST_ANSWER_BYTES:
        return text
    return text[:_MOST_ANSWER_BYTES] + f"\n(cut after {_MOST_ANSWER_BYTES} characters: ask for less)"


def _done(number: Any, result: Mapping[str, Any]) -> Response:
    return json_response({"jsonrpc": "2.0", "id": number, "result": result})


def _failed(number: Any, code: int, message: str, status: int = 200) -> Response:
    return json_response({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}, status)
