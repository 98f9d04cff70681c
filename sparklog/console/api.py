"""The JSON API: what the pages show, for programs. It only reads; :mod:`sparklog.console.openapi` describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparklog.console.backend import Backend
from sparklog.console.commits import newest_commits
from sparklog.console.decoding import plain_record
from sparklog.console.files import newest_files, plain_file
from sparklog.console.jobs import EXPORTS, SearchJob, StatementJob, exported, in_one_line, search_of, told
from sparklog.console.openapi import DESCRIPTION
from sparklog.console.plain import plain_group, plain_maintenance, plain_topic, plain_transaction
from sparklog.console.statements import version_of, versions_of, wanted
from sparklog.console.streaming import StreamedResponse
from sparklog.errors import (
    GroupIdNotFoundError,
    InvalidArgumentError,
    SparklogError,
    StoreUnavailableError,
)
from sparklog.observe import ClusterFigures
from sparklog.sql.search import FoundRecord, TopicSearch
from sparklog.texts import as_json

__all__ = ["Api", "json_response"]

_MOST_LISTED = 500


def json_response(value: Any, status: int = 200) -> Response:
    """An answer in JSON; half a surrogate pair, which a text may hold, as JSON escapes it."""
    body = as_json(value).encode(errors="backslashreplace") + b"\n"
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


class Api:
    """Answers programs. For several threads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def openapi(self, request: Request) -> Response:
        """The description of this API."""
        return json_response(DESCRIPTION)

    def topics(self, request: Request) -> Response:
        """Every topic, as of the newest look; and what can't be read."""
        figures = self._figures()
        return json_response(
            {
                "now_ms": figures.now_ms,
                "topics": [plain_topic(one) for one in figures.topics],
                "unreadable": _unreadable(figures, "topic"),
            }
        )

    def topic(self, request: Request) -> Response:
        """One topic, with its settings, as of now."""
        name = request.path_params["topic"]
        admin = self._backend.admin()
        [described] = admin.describe_topics([name])
        known = self._backend.topic_figures(name)
        return json_response(
            {
                "name": name,
                "topic_id": described.topic_id,
                "version": described.delta_version,
                "partitions": [
                    {"partition": number, "log_start_offset": start, "log_end_offset": end}
                    for number, (start, end) in enumerate(
                        zip(described.log_start_offsets, described.log_end_offsets, strict=True)
                    )
                ],
                "settings": {
                    name: {"value": one.value, "default": one.default, "is_default": one.is_default}
                    for name, one in admin.describe_configs([name])[name].items()
                },
                "is_typed": bool(described.value_schemas),
                "schemas": [
                    {
                        "id": number,
                        "registry_id": one.registry_id,
                        "fields": [{"path": path, "type": kind} for path, kind in one.field_types()],
                    }
                    for number, one in enumerate(described.value_schemas, 1)
                ],
                "figures": None if known is None else plain_topic(known),
            }
        )

    def commits(self, request: Request) -> Response:
        """The commits of a topic up to a version, the newest by default; newest first."""
        name, given = request.path_params["topic"], request.query_params
        count = _whole(given, "limit", 50, 1, _MOST_LISTED)
        [described] = self._backend.admin().describe_topics([name])
        newest = min(_whole(given, "upto", described.delta_version, 0, 2**62), described.delta_version)
        found = newest_commits(self._backend.cluster(), name, newest, count, topic_id=described.topic_id)
        older = newest - count if newest >= count and found else None
        return json_response({"topic": name, "commits": [_fields(one) for one in found], "older": older})

    def files(self, request: Request) -> Response:
        """The live files of a topic, newest first."""
        name, given = request.path_params["topic"], request.query_params
        count, skipped = _whole(given, "limit", 100, 1, _MOST_LISTED), _whole(given, "skip", 0, 0, 2**31)
        partition = _whole(given, "partition", 0, 0, 2**31) if given.get("partition") else None
        version, found = newest_files(self._backend.cluster(), name, partition)
        files = [plain_file(one) for one in found[skipped : skipped + count]]
        return json_response({"topic": name, "version": version, "file_count": len(found), "files": files})

    def records(self, request: Request) -> Response:
        """Records of a topic, an object a line; the last line says how far the search has read."""
        name = request.path_params["topic"]
        given = dict(request.query_params)
        shape, state = self._backend.shape_at(name, version_of(given))
        asked = wanted(given, shape)

        def render(steps: Iterator[list[FoundRecord]], search: Callable[[], TopicSearch]) -> Iterator[bytes]:
            error = None
            try:
                for found in steps:
                    lines = [
                        as_json(plain_record(name, one, masks=shape.masks, schema=shape.named_schema)) for one in found
                    ]
                    yield "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
            except SparklogError as caught:
                error = told(caught, shape.masks, by_search=True)
            end = {"search": {**_fields(search().progress), "statement": asked.statement, "error": error}}
            yield as_json(end).encode(errors="backslashreplace") + b"\n"

        search = search_of(self._backend.cluster(), name, asked.search, state)
        job = SearchJob(search, render, self._backend.query_slot())
        return self._streamed(job, EXPORTS["json"])

    def groups(self, request: Request) -> Response:
        """Every group, as of the newest look."""
        figures = self._figures()
        return json_response(
            {
                "now_ms": figures.now_ms,
                "groups": [plain_group(one) for one in figures.groups],
                "unreadable": _unreadable(figures, "group"),
            }
        )

    def group(self, request: Request) -> Response:
        """One group, as of now; lag in seconds as of the newest look."""
        name = request.path_params["group"]
        [described] = self._backend.admin().describe_groups([name])
        if described.state.value == "Dead":
            raise GroupIdNotFoundError(f"no group {name!r}")
        known = self._backend.group_figures(name)
        waits = {} if known is None else {one.partition: one.lag_ms for one in known.partitions}
        return json_response(
            {
                "group": name,
                "state": described.state.value,
                "generation": described.generation_id,
                "error": None if described.error is None else in_one_line(described.error),
                "members": [
                    {"member_id": one.member_id, "client_id": one.client_id, "host": one.host, "topics": one.topics}
                    for one in described.members
                ],
                "partitions": [
                    {
                        "topic": one.partition.topic,
                        "partition": one.partition.partition,
                        "committed_offset": None if one.committed is None else one.committed.offset,
                        "log_start_offset": one.log_start_offset,
                        "log_end_offset": one.log_end_offset,
                        "lag": one.lag,
                        "lag_ms": waits.get(one.partition),
                        "member_id": one.member_id,
                    }
                    for one in described.partitions
                ],
            }
        )

    def transactions(self, request: Request) -> Response:
        """Every transactional id, as of the newest look."""
        figures = self._figures()
        found = [plain_transaction(one, now_ms=figures.now_ms) for one in figures.transactions]
        return json_response(
            {"now_ms": figures.now_ms, "transactions": found, "unreadable": _unreadable(figures, "transaction")}
        )

    def maintenance(self, request: Request) -> Response:
        """The steps of maintenance that are due, and its newest runs, as of the newest look."""
        figures = self._figures()
        return json_response({**plain_maintenance(figures), "unreadable": _unreadable(figures, "topic")})

    def sql(self, request: Request) -> Response:
        """The rows of a statement."""
        self._backend.check_sql()
        self._backend.check_store()
        text, kind = request.query_params.get("q", ""), request.query_params.get("format", "json")
        versions = versions_of(request.query_params)
        job = StatementJob(
            self._backend.cluster(),
            text,
            lambda run, rows: exported(kind, run, rows),
            self._backend.statement_slot(),
            versions=versions,
            origin=self._backend.origin,
        )
        return self._streamed(job, EXPORTS.get(kind, "text/plain"))

    def _figures(self) -> ClusterFigures:
        status = self._backend.status()
        if status.figures is None:
            why = "the first look is under way" if status.error is None else in_one_line(status.error)
            raise StoreUnavailableError(f"the cluster isn't known yet: {why}")
        return status.figures

    def _streamed(self, job: Any, media_type: str) -> Response:
        self._backend.ending(job)
        timeout_ms = self._backend.settings.query_timeout_ms
        return StreamedResponse(job, media_type=media_type, timeout_ms=timeout_ms, gives_up=self._backend.ends_wait)


def _whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name, str(default))
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}: got {text!r}, expected {least} to {most}")
    return number


def _unreadable(figures: ClusterFigures, kind: str) -> list[dict[str, str]]:
    return [{"name": one.name, "error": in_one_line(one.error)} for one in figures.problems if one.kind == kind]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}
