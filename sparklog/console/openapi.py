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
_INTEGER = {"type": "integer"}
_TRUTH = {"type": "boolean"}


def _maybe(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A value of a schema, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def _list(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _object(**fields: Mapping[str, Any]) -> dict[str, Any]:
    """An object that has all of these fields, and no other."""
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


_TIME = {**_INTEGER, "description": "milliseconds since the epoch"}
_UNREADABLE = _list(_object(name=_TEXT, error=_TEXT))
_TOPIC_FIGURES = _object(
    name=_TEXT,
    topic_id=_TEXT,
    version=_WHOLE,
    files_version=_WHOLE,
    commit_ms=_maybe(_TIME),
    cleanup_policy=_TEXT,
    retention_ms=_INTEGER,
    is_typed=_TRUTH,
    unsequenced_files=_WHOLE,
    records=_WHOLE,
    bytes=_WHOLE,
    files=_WHOLE,
    partitions=_list(
        _object(
            partition=_WHOLE,
            log_start_offset=_WHOLE,
            log_end_offset=_WHOLE,
            records=_WHOLE,
            bytes=_WHOLE,
            files=_WHOLE,
            oldest_ms=_maybe(_TIME),
            newest_ms=_maybe(_TIME),
        )
    ),
)
_WORK = _object(
    sequenced_files=_WHOLE,
    retention_files=_WHOLE,
    compacted_files=_WHOLE,
    dropped_records=_WHOLE,
    merged_files=_WHOLE,
    merged_into=_WHOLE,
    deleted_files=_WHOLE,
    deleted_entries=_WHOLE,
    checkpoints=_WHOLE,
)
_SETTING = {"type": ["boolean", "integer", "number", "string"]}
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "/api/topics": _object(now_ms=_TIME, topics=_list(_TOPIC_FIGURES), unreadable=_UNREADABLE),
    "/api/topics/{topic}": _object(
        name=_TEXT,
        topic_id=_TEXT,
        version=_WHOLE,
        partitions=_list(_object(partition=_WHOLE, log_start_offset=_WHOLE, log_end_offset=_WHOLE)),
        settings={
            "type": "object",
            "additionalProperties": _object(value=_SETTING, default=_SETTING, is_default=_TRUTH),
        },
        is_typed=_TRUTH,
        schemas=_list(_object(id=_WHOLE, registry_id=_maybe(_INTEGER), fields=_list(_object(path=_TEXT, type=_TEXT)))),
        figures=_maybe(_TOPIC_FIGURES),
    ),
    "/api/topics/{topic}/commits": _object(
        topic=_TEXT,
        commits=_list(
            _object(
                version=_WHOLE,
                time_ms=_maybe(_TIME),
                operation=_TEXT,
                engine=_TEXT,
                added_files=_WHOLE,
                removed_files=_WHOLE,
                added_bytes=_WHOLE,
                added_records=_maybe(_WHOLE),
                is_rewrite=_TRUTH,
                transactional_ids=_list(_TEXT),
                changes_table=_TRUTH,
                is_of_earlier=_TRUTH,
            )
        ),
        older={**_maybe(_WHOLE), "description": "`upto` of the commits before these; null: there are none"},
    ),
    "/api/topics/{topic}/files": _object(
        topic=_TEXT,
        version=_WHOLE,
        file_count=_WHOLE,
        files=_list(
            _object(
                path={**_TEXT, "description": "relative to the topic's folder"},
                partition=_maybe(_WHOLE),
                first_offset=_maybe(_WHOLE),
                last_offset=_maybe(_WHOLE),
                records=_maybe(_WHOLE),
                bytes=_WHOLE,
                written_ms=_TIME,
                oldest_ms=_maybe(_TIME),
                newest_ms=_maybe(_TIME),
            )
        ),
    ),
    "/api/groups": _object(
        now_ms=_TIME,
        groups=_list(
            _object(
                group=_TEXT,
                members=_WHOLE,
                pending_offsets=_WHOLE,
                lag=_WHOLE,
                lag_ms=_maybe(_INTEGER),
                partitions=_list(
                    _object(
                        topic=_TEXT,
                        partition=_WHOLE,
                        committed_offset=_maybe(_WHOLE),
                        commit_ms=_maybe(_TIME),
                        lag=_WHOLE,
                        lag_ms=_maybe(_INTEGER),
                        member_id=_maybe(_TEXT),
                    )
                ),
            )
        ),
        unreadable=_UNREADABLE,
    ),
    "/api/groups/{group}": _object(
        group=_TEXT,
        state=_TEXT,
        generation=_INTEGER,
        error=_maybe(_TEXT),
        members=_list(_object(member_id=_TEXT, client_id=_maybe(_TEXT), host=_maybe(_TEXT), topics=_list(_TEXT))),
        partitions=_list(
            _object(
                topic=_TEXT,
                partition=_WHOLE,
                committed_offset=_maybe(_WHOLE),
                log_start_offset=_maybe(_WHOLE),
                log_end_offset=_maybe(_WHOLE),
                lag=_maybe(_WHOLE),
                lag_ms=_maybe(_INTEGER),
                member_id=_maybe(_TEXT),
            )
        ),
    ),
    "/api/maintenance": _object(
        now_ms=_TIME,
        noted_ms=_maybe(_TIME),
        due=_list(_object(topic=_TEXT, steps=_list(_TEXT), merge_files=_WHOLE, merge_bytes=_WHOLE, error=_TEXT)),
        runs=_list(
            _object(
                ended_ms=_TIME,
                took_ms=_WHOLE,
                topic_count=_WHOLE,
                unchanged_count=_WHOLE,
                failed_count=_WHOLE,
                has_failed_otherwise=_TRUTH,
                finished_transactions=_WHOLE,
                expired_offsets=_WHOLE,
                words={**_TEXT, "description": "what was done; empty for nothing"},
                work=_WORK,
                topics=_list(_object(topic=_TEXT, failed=_TRUTH, words=_TEXT, work=_WORK)),
            )
        ),
        runs_error={**_TEXT, "description": "why it is unknown what runs did; empty where it is known"},
        unreadable=_UNREADABLE,
    ),
    "/api/transactions": _object(
        now_ms=_TIME,
        transactions=_list(
            _object(
                transactional_id=_TEXT,
                state=_TEXT,
                producer_id=_INTEGER,
                producer_epoch=_INTEGER,
                since_ms=_TIME,
                timeout_ms=_INTEGER,
                is_overdue=_TRUTH,
            )
        ),
        unreadable=_UNREADABLE,
    ),
}
"""The schema of each answer that is one object; a test holds the answers against them."""
_RECORD_LINE = {
    "oneOf": [
        {
            "type": "object",
            "description": "a record; bytes that aren't UTF-8 in base64, under a name that ends so",
            "properties": {
                "topic": _TEXT,
                "partition": _WHOLE,
                "offset": _WHOLE,
                "timestamp": _maybe(_TIME),
                "key": _maybe(_TEXT),
                "key_base64": _TEXT,
                "value": {"description": "a text, null, or an object of a typed topic or a named schema"},
                "value_base64": _TEXT,
                "value_size": {**_WHOLE, "description": "bytes of the whole value, where it is cut"},
                "headers": _list(
                    {
                        "type": "object",
                        "properties": {"key": _TEXT, "value": _maybe(_TEXT), "value_base64": _TEXT},
                        "required": ["key"],
                        "additionalProperties": False,
                    }
                ),
            },
            "required": ["topic", "partition", "offset", "timestamp", "headers"],
            "additionalProperties": False,
        },
        _object(
            search=_object(
                file_count=_WHOLE,
                skipped_count=_WHOLE,
                read_count=_WHOLE,
                scanned_count=_WHOLE,
                found_count=_WHOLE,
                is_done=_TRUTH,
                statement=_TEXT,
                error=_maybe(_TEXT),
            )
        ),
    ]
}
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
    "version": (_WHOLE, "the topic as of that version, the number of a commit; the newest by default"),
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
    summary: str,
    *parameters: Mapping[str, Any],
    answer: Mapping[str, Any],
    media: str = _JSON,
    errors: tuple[int, ...] = (503,),
) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "parameters": [*parameters],
            "responses": {
                "200": {"description": summary, "content": {media: {"schema": answer}}},
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
        "/api/topics": _get(
            "Every topic, as of the newest look, and what can't be read", answer=_ANSWERS["/api/topics"]
        ),
        "/api/topics/{topic}": _get(
            "One topic with its settings and the schemas of its values, as of now",
            _TOPIC,
            answer=_ANSWERS["/api/topics/{topic}"],
            errors=(404, 503),
        ),
        "/api/topics/{topic}/commits": _get(
            "The commits of a topic, newest first",
            _TOPIC,
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 500}, "how many; 50 by default"),
            _query("upto", _WHOLE, "the newest version among them; the topic's newest by default"),
            answer=_ANSWERS["/api/topics/{topic}/commits"],
            errors=(400, 404, 503),
        ),
        "/api/topics/{topic}/files": _get(
            "The live files of a topic, those written last first",
            _TOPIC,
            _query("partition", _WHOLE, "one partition; all by default"),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 500}, "how many; 100 by default"),
            _query("skip", _WHOLE, "leave out so many of the first; 0 by default"),
            answer=_ANSWERS["/api/topics/{topic}/files"],
            errors=(400, 404, 503),
        ),
        "/api/topics/{topic}/records": _get(
            "Records, an object a line as they are found; the last line, `search`, says how far it came",
            _TOPIC,
            *(_query(name, schema, text) for name, (schema, text) in _SEARCH.items()),
            answer=_RECORD_LINE,
            media=_LINES,
            errors=(400, 404, 429, 503),
        ),
        "/api/groups": _get("Every group with its lag, as of the newest look", answer=_ANSWERS["/api/groups"]),
        "/api/groups/{group}": _get(
            "One group with its members, as of now",
            {"name": "group", "in": "path", "required": True, "schema": _TEXT},
            answer=_ANSWERS["/api/groups/{group}"],
            errors=(404, 503),
        ),
        "/api/transactions": _get(
            "Every transactional id, as of the newest look", answer=_ANSWERS["/api/transactions"]
        ),
        "/api/maintenance": _get(
            "What maintenance would do, as of the newest look, and what its newest runs did, newest first",
            answer=_ANSWERS["/api/maintenance"],
        ),
        "/api/sql": _get(
            "The rows of a SELECT over topics, each a view of its name",
            _query("q", _TEXT, "the statement", required=True),
            _query("versions", _TEXT, "topics as of older versions: orders=41, bills=7"),
            _query("format", {"enum": ["json", "csv", "parquet"]}, "json: an object a line, the default"),
            answer={"type": "object", "description": "a row: its columns by their names"},
            media=_LINES,
            errors=(400, 429, 503),
        ),
    },
}
"""The answer of ``/api/openapi.json``."""
