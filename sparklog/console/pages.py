"""The pages that only read: overview, topics, groups, transactions, SQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sparklog.console.backend import Backend
from sparklog.console.commits import changed_fields, compare_versions, newest_commits
from sparklog.console.decoding import DECODINGS, shown_record
from sparklog.console.files import newest_files, plain_file
from sparklog.console.jobs import EXPORTS, SearchJob, StatementJob, TailJob, exported, in_one_line, search_of, told
from sparklog.console.rendering import ENVIRONMENT
from sparklog.console.security import csrf_token, user_of
from sparklog.console.statements import COMPARISONS, MODES, version_of, versions_of, wanted
from sparklog.console.streaming import StreamedResponse, in_chunks
from sparklog.console.views import (
    GroupRow,
    TopicRow,
    group_rows,
    maintenance,
    page_of,
    page_of_groups,
    page_of_topics,
    request_rows,
    topic_rows,
)
from sparklog.console.waiting import read_files
from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SparklogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.observe import ClusterFigures
from sparklog.sql.search import FoundRecord, Search, TopicSearch
from sparklog.texts import as_text
from sparklog.txn.description import newest_entries

__all__ = ["Pages"]

_COMMITS = 50
_ENTRIES = 50
_ROW_LIMIT = 1_000
_LIST_BYTES = 16_384
_RECORD_BYTES = 1_048_576
_MOST_CELL = 2_000
_MOST_PAGE = 8 * 2**20
_CELL_CHARACTERS = 10
_RAW_BYTES = 16 * 2**20
_MARK = secrets.token_hex(16)
"""Stands where the rows of a streamed page go; random, so that nothing that was given has it."""


class _Given(dict[str, str]):
    """The fields of a query; empty those that weren't given."""

    def __missing__(self, name: str) -> str:
        return ""


class Pages:
    """Renders pages of one cluster. For several threads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._rows: tuple[ClusterFigures | None, list[TopicRow], list[GroupRow]] = (None, [], [])

    def render(self, request: Request, template: str, status: int = 200, **context: Any) -> Response:
        """A page."""
        return HTMLResponse(self.text(request, template, **context).encode(errors="replace"), status)

    def text(self, request: Request, template: str, **context: Any) -> str:
        """The text of a page."""
        settings, user = self._backend.settings, user_of(request)
        watched = self._backend.status()
        text: str = ENVIRONMENT.get_template(template).render(
            watched=watched,
            error_of_look=None if watched.error is None else in_one_line(watched.error),
            may_write=settings.allow_writes,
            masks=sorted(settings.masks),
            user=user,
            csrf=csrf_token(self._backend.secret, user) if settings.allow_writes else "",
            path=request.url.path,
            given=_Given(request.query_params),
            **context,
        )
        return text

    def overview(self, request: Request) -> Response:
        """The whole cluster."""
        ENVIRONMENT.get_template("overview.html")  # compiled while the first look waits for the store
        figures = self._backend.seen()
        if figures is None:
            return self._names_alone(request)
        topics, groups = self._known_rows(figures)
        interval_ms = self._backend.settings.interval_ms
        requests, seen_ms = self._backend.history.requests_a_day(figures, interval_ms=interval_ms)
        given = request.query_params
        text = given.get("q", "")
        return self.render(
            request,
            "overview.html",
            figures=figures,
            topics=page_of_topics(topics, text=text, sort=given.get("sort", ""), number=_number(given.get("page"))),
            groups=page_of_groups(groups, text=text, sort=given.get("gsort", ""), number=_number(given.get("gpage"))),
            maintenance=maintenance(topics),
            requests=request_rows(requests),
            requests_seen_ms=seen_ms,
            lags=self._backend.history.lags,
            rates=self._backend.history.rates,
        )

    def topic(self, request: Request) -> Response:
        """A topic: partitions, settings, files, its newest commits."""
        name = request.path_params["topic"]
        admin = self._backend.admin()
        [described] = admin.describe_topics([name])
        newest = min(_version(request.query_params.get("upto"), described.delta_version), described.delta_version)
        commits = newest_commits(self._backend.cluster(), name, newest, _COMMITS, topic_id=described.topic_id)
        figures = self._backend.topic_figures(name)
        now = self._backend.figures()
        readers = [] if now is None else [one for one in group_rows(now) if name in one.topics]
        return self.render(
            request,
            "topic.html",
            topic=name,
            described=described,
            figures=figures,
            configs=admin.describe_configs([name])[name],
            commits=commits,
            upto=newest,
            older=newest - _COMMITS if newest >= _COMMITS and commits else None,
            readers=readers,
            chart=[(one.time_ms, one.added_records or 0) for one in reversed(commits) if one.time_ms is not None],
        )

    def records(self, request: Request) -> Response:
        """Records of a topic by whatever they are looked for, newest first unless by offset or time; streamed."""
        name, given = request.path_params["topic"], dict(request.query_params)
        how = given.get("decode") or "auto"
        if how not in DECODINGS:
            raise InvalidArgumentError(f"decode: got {how!r}, expected one of {', '.join(DECODINGS)}")
        context = {"topic": name, "modes": MODES, "comparisons": COMPARISONS, "decodings": DECODINGS}
        try:
            version = version_of(given)
            shape, state = self._backend.shape_at(name, version)
            asked = wanted(given, shape)
        except InvalidArgumentError as error:
            context |= {"shape": self._backend.shape(name), "version": None, "versions": ""}
            page = self.text(request, "records.html", statement="", mark="", error=in_one_line(error), **context)
            return HTMLResponse(page, 400)
        context |= {"shape": shape, "version": version, "versions": "" if version is None else f"{name}={version}"}
        page = self.text(request, "records.html", statement=asked.statement, mark=_MARK, error="", **context)
        search = Search(**{**_fields(asked.search), "most_bytes": _LIST_BYTES})

        def rows(found: list[FoundRecord]) -> Iterator[str]:
            template = ENVIRONMENT.get_template("record_rows.html")
            shown = [shown_record(one, how=how, masks=shape.masks, schema=shape.named_schema) for one in found]
            yield template.render(topic=name, records=shown, how=how, version=version)

        def render(steps: Iterator[list[FoundRecord]], search: Callable[[], TopicSearch]) -> Iterator[bytes]:
            def texts() -> Iterator[str]:
                head, _, tail = page.partition(_MARK)
                yield head
                error = ""
                try:
                    for found in steps:
                        yield from rows(found)
                except SparklogError as caught:
                    error = told(caught, shape.masks, by_search=True)
                end = ENVIRONMENT.get_template("record_end.html")
                yield end.render(progress=search().progress, error=error)
                yield tail

            yield from in_chunks(texts())

        opened = search_of(self._backend.cluster(), name, search, state)
        job = SearchJob(opened, render, self._backend.query_slot())
        return self._streamed(job, "text/html; charset=utf-8")

    def record(self, request: Request) -> Response:
        """One record whole."""
        name, given = request.path_params["topic"], request.query_params
        how = given.get("decode") or "auto"
        record = self.record_at(request, most_bytes=_RECORD_BYTES)
        settings = self._backend.settings
        named = settings.value_schemas.get(name)
        shown = shown_record(record, how=how, masks=settings.masking, pretty=True, schema=named)
        version = version_of(given)
        return self.render(
            request, "record.html", topic=name, record=shown, decodings=DECODINGS, how=how, version=version
        )

    def raw(self, request: Request) -> Response:
        """The bytes of a record's value or key, as a file."""
        if self._backend.settings.masks:
            raise InvalidArgumentError("the bytes of records aren't shown while fields are masked")
        give_back = self._backend.query_slot()
        try:
            record = self.record_at(request, most_bytes=_RAW_BYTES)
        finally:
            give_back()
        part = request.query_params.get("part", "value")
        data, size = (record.key, record.key_size) if part == "key" else (record.value, record.value_size)
        if not isinstance(data, bytes):
            raise InvalidArgumentError(f"the {part} of this record isn't bytes")
        if size > len(data):
            raise InvalidArgumentError(f"the {part} has {size} bytes, expected at most {_RAW_BYTES}: consume it")
        name = f"{request.path_params['topic']}-{record.partition}-{record.offset}.bin"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type="application/octet-stream", headers=headers)

    def record_at(self, request: Request, *, most_bytes: int) -> FoundRecord:
        """The record that a path names. Raises ``UnknownTopicOrPartitionError``, ``ObjectNotFoundError``."""
        path, version = request.path_params, version_of(request.query_params)
        topic, partition, offset = path["topic"], path["partition"], path["offset"]
        return find_record(self._backend, topic, partition, offset, most_bytes=most_bytes, version=version)

    def tail(self, request: Request) -> Response:
        """The records that come to a topic, as events."""
        name, given = request.path_params["topic"], request.query_params
        shape = self._backend.shape(name)
        partition = given.get("partition", "")
        if partition and not (partition.isdecimal() and int(partition) < shape.partition_count):
            raise InvalidArgumentError(f"partition: got {partition!r}, expected 0 to {shape.partition_count - 1}")
        how = given.get("decode") or "auto"
        if how not in DECODINGS:
            raise InvalidArgumentError(f"decode: got {how!r}, expected one of {', '.join(DECODINGS)}")
        job = TailJob(
            self._backend.cluster(),
            name,
            partition=int(partition) if partition else None,
            how=how,
            masks=shape.masks,
            schema=shape.named_schema,
            give_back=self._backend.tail_slot(),
        )
        self._backend.ending(job)
        headers = {"X-Accel-Buffering": "no"}
        return StreamedResponse(job, media_type="text/event-stream", headers=headers, gives_up=self._backend.ends_wait)

    def files(self, request: Request) -> Response:
        """The live files of a topic, newest first."""
        name, given = request.path_params["topic"], request.query_params
        partition = _partition(given.get("partition", ""))
        version, found = newest_files(self._backend.cluster(), name, partition)
        page = page_of(found, _number(given.get("page")))
        rows = [plain_file(one) for one in page.rows]
        size_bytes = sum(one.size_bytes for one in found)
        now_ms = self._backend.cluster().clock.now_ms()
        return self.render(
            request,
            "files.html",
            topic=name,
            version=version,
            page=page,
            rows=rows,
            size_bytes=size_bytes,
            now_ms=now_ms,
        )

    def compare(self, request: Request) -> Response:
        """Two versions of a topic."""
        name, given = request.path_params["topic"], request.query_params
        [described] = self._backend.admin().describe_topics([name])
        after = _version(given.get("to"), described.delta_version)
        before = _version(given.get("from"), max(0, after - 10))
        found, error = None, ""
        fields: list[tuple[str, str, str]] = []
        try:
            found = compare_versions(self._backend.cluster(), name, before, after, topic_id=described.topic_id)
            if found.schema_ids is not None and not found.of_earlier:
                fields = changed_fields(described.value_schemas, *found.schema_ids)
        except InvalidArgumentError as caught:
            error = in_one_line(caught)
        return self.render(
            request,
            "compare.html",
            topic=name,
            newest=described.delta_version,
            before=before,
            after=after,
            found=found,
            fields=fields,
            error=error,
        )

    def group(self, request: Request) -> Response:
        """A group: members, partitions with lag and owners."""
        name = request.query_params.get("id", "")
        [described] = self._backend.admin().describe_groups([name])
        figures = self._backend.group_figures(name)
        waits = {} if figures is None else {one.partition: one for one in figures.partitions}
        return self.render(
            request,
            "group.html",
            group=described,
            waits=waits,
            chart=self._backend.history.lags(name),
            resets=("earliest", "latest", "offset", "shift", "time"),
        )

    def transaction(self, request: Request) -> Response:
        """A transactional id."""
        name = request.query_params.get("id", "")
        [described] = self._backend.admin().describe_transactions([name])
        figures = self._backend.transaction_figures(name)
        problem, entries = described.error, []
        if problem is None:
            try:
                entries = newest_entries(self._backend.cluster(), name, _ENTRIES)
            except (CorruptLogError, UnsupportedVersionError) as error:  # an older one: what the newest says stands
                problem = error
        return self.render(
            request, "transaction.html", described=described, figures=figures, entries=entries, problem=problem
        )

    def sql(self, request: Request) -> Response:
        """A form for a statement, and what it finds; streamed, or exported in another form."""
        given = request.query_params
        text, kind = given.get("q", ""), given.get("format", "")
        is_off = bool(self._backend.settings.masks)
        if not text.strip() or is_off:
            return self.render(request, "sql.html", statement=text, mark="", exports=EXPORTS, is_off=is_off)
        cluster = self._backend.cluster()
        how: dict[str, Any] = {"versions": versions_of(given), "origin": self._backend.origin}
        self._backend.check_store()
        slot = self._backend.statement_slot
        if kind:
            job = StatementJob(cluster, text, lambda run, rows: exported(kind, run, rows), slot(), **how)
            headers = {"Content-Disposition": f'attachment; filename="query.{kind}"'} if kind in EXPORTS else {}
            return self._streamed(job, EXPORTS.get(kind, "text/plain"), headers)
        page = self.text(request, "sql.html", statement=text, mark=_MARK, exports=EXPORTS, is_off=False)
        head, _, tail = page.partition(_MARK)
        job = StatementJob(cluster, text, lambda run, rows: in_chunks(_result(head, tail, run, rows)), slot(), **how)
        return self._streamed(job, "text/html; charset=utf-8")

    def _streamed(self, job: Any, media_type: str, headers: dict[str, str] | None = None) -> Response:
        self._backend.ending(job)
        return StreamedResponse(
            job,
            media_type=media_type,
            headers=headers,
            timeout_ms=self._backend.settings.query_timeout_ms,
            gives_up=self._backend.ends_wait,
        )

    def _names_alone(self, request: Request) -> Response:
        """The overview before the first look has ended: names, by two listings."""
        error, topics, groups = "", list[str](), list[str]()
        try:
            topics, groups = self._backend.names()
        except SparklogError as caught:
            error = in_one_line(caught)
        return self.render(request, "starting.html", 503 if error else 200, topics=topics, groups=groups, error=error)

    def _known_rows(self, figures: ClusterFigures) -> tuple[list[TopicRow], list[GroupRow]]:
        known, topics, groups = self._rows
        if known is not figures:
            topics, groups = topic_rows(self._backend.history.before, figures), group_rows(figures)
            self._rows = (figures, topics, groups)
        return topics, groups


def find_record(
    backend: Backend, topic: str, partition: int, offset: int, *, most_bytes: int, version: int | None = None
) -> FoundRecord:
    """The record at an offset, in the newest version of the topic by default.

    Raises:
        InvalidArgumentError: a version that the log doesn't contain, or of another topic of the name.
        UnknownTopicOrPartitionError: no such topic or partition.
        ObjectNotFoundError: no such record: deleted, compacted away, or not yet there.
    """
    shape, state = backend.shape_at(topic, version)
    if partition >= shape.partition_count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has no partition {partition}; it has 0 to {shape.partition_count - 1}"
        )
    wanted_one = Search(
        partitions=frozenset([partition]),
        first_offset=offset,
        newest_first=False,
        limit=1,
        most_bytes=most_bytes,
        seen=shape.seen(),
    )
    search = TopicSearch(backend.cluster(), topic, wanted_one, state=state)
    read_files()
    found = [one for some in search for one in some]
    if not found or found[0].offset != offset:
        behind = f"; the next one is {found[0].offset}" if found else ""
        raise ObjectNotFoundError(f"topic {topic!r}, partition {partition}: no record at offset {offset}{behind}")
    return found[0]


def _result(head: str, tail: str, run: Callable[[], pa.Schema], batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """A page with the rows of a statement, at most a thousand, and some megabytes of them."""
    yield head
    yield ""
    count, size, error, is_cut = 0, 0, "", False
    template = ENVIRONMENT.get_template("sql_rows.html")
    try:
        schema = run()
        yield template.render(columns=[(field.name, str(field.type)) for field in schema], rows=[])
        for batch in batches:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))[: _ROW_LIMIT - count]
            count += len(rows)
            cells = [[None if value is None else as_text(value)[:_MOST_CELL] for value in row] for row in rows]
            yield template.render(columns=[], rows=cells)
            size += sum(_CELL_CHARACTERS + len(cell or "") for row in cells for cell in row)
            is_cut = count >= _ROW_LIMIT or size >= _MOST_PAGE
            if is_cut:
                break
    except SparklogError as caught:
        error = in_one_line(caught)
    yield ENVIRONMENT.get_template("sql_end.html").render(count=count, error=error, is_cut=is_cut)
    yield tail


def _fields(search: Search) -> dict[str, Any]:
    return {name: getattr(search, name) for name in Search.__slots__}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _partition(text: str) -> int | None:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidArgumentError(f"partition: got {text!r}, expected a whole number")
    return int(text) if text else None


def _version(text: str | None, otherwise: int) -> int:
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidArgumentError(f"version: got {text!r}, expected a whole number")
    return int(text)
