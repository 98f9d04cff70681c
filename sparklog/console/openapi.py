"""The description of the JSON API. Source: OpenAPI 3.1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog._version import __version__

__all__ = ["DESCRIPTION"]

_JSON = "application/json"
_LINES = "application/x-ndjson"
_WHOLE = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TOPIC = {"name": "topic", "in": "path", "required": True, "schema": _TEXT}
_ERROR = {
    "description": "Why not",
    "content": {
        _JSON: {
            "schema": {
                "type": "object",
                "properties": {"error": _TEXT, "message": _TEXT},
                "required": ["error", "message"],
            }
        }
    },
}
_SEARCH: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "mode": ({"enum": ["newest", "oldest", "offset", "time", "key", "header", "field", "text"]}, "how to look"),
    "partition": (_WHOLE, "one partition; all by default"),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 500}, "at most so many records; 50 by default"),
    "since": (_TEXT, "the earliest timestamp: ISO 8601, or milliseconds since the epoch"),
    "until": (_TEXT, "the timestamp before which they are"),
    "offset": (_WHOLE, "mode=offset: the first offset"),
    "key": (_TEXT, "mode=key"),
    "key_format": ({"enum": ["text", "hex"]}, "how the key is written"),
    "home": ({"enum": ["1"]}, "mode=key: only the partition in which the default partitioner puts it"),
    "header": (_TEXT, "mode=header: its name"),
    "header_value": (_TEXT, "mode=header: its value; any by default"),
    "field": (_TEXT, "mode=field: names joined by dots"),
    "comparison": ({"enum": ["=", "!=", "<", "<=", ">", ">=", "contains"]}, "mode=field"),
    "value": (_TEXT, "mode=field: what it is compared with"),
    "text": (_TEXT, "mode=text: what the value contains"),
}


def _get(
    summary: str, *parameters: Mapping[str, Any], media: str = _JSON, errors: tuple[int, ...] = (503,)
) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "parameters": [*parameters],
            "responses": {
                "200": {"description": summary, "content": {media: {"schema": {"type": "object"}}}},
                **{str(code): _ERROR for code in errors},
            },
        }
    }


def _query(name: str, schema: Mapping[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


DESCRIPTION: Mapping[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "sparklog console",
        "version": __version__,
        "description": "A cluster's topics, groups and transactions. It only reads.",
    },
    "paths": {
        "/api/topics": _get("Every topic, as of the newest look, and what can't be read"),
        "/api/topics/{topic}": _get("One topic and its settings, as of now", _TOPIC, errors=(404, 503)),
        "/api/topics/{topic}/commits": _get(
            "The newest commits of a topic",
            _TOPIC,
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 500}, "how many; 50 by default"),
            errors=(400, 404, 503),
        ),
        "/api/topics/{topic}/records": _get(
            "Records, an object a line as they are found; the last line, `search`, tells how far it came",
            _TOPIC,
            *(_query(name, schema, text) for name, (schema, text) in _SEARCH.items()),
            media=_LINES,
            errors=(400, 404, 429, 503),
        ),
        "/api/groups": _get("Every group with its lag, as of the newest look"),
        "/api/groups/{group}": _get(
            "One group with its members, as of now",
            {"name": "group", "in": "path", "required": True, "schema": _TEXT},
            errors=(404, 503),
        ),
        "/api/transactions": _get("Every transactional id, as of the newest look"),
        "/api/sql": _get(
            "The rows of a SELECT over topics, each a view of its name",
            _query("q", _TEXT, "the statement", required=True),
            _query("format", {"enum": ["json", "csv", "parquet"]}, "json: an object a line, the default"),
            media=_LINES,
            errors=(400, 429, 503),
        ),
    },
}
"""The answer of ``/api/openapi.json``."""
