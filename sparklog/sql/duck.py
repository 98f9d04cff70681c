"""DuckDB over topics: a view for each, under its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.errors import (
    InvalidArgumentError,
    InvalidConfigurationError,
    NotATopicError,
    TopicShrunkError,
    UnknownTopicOrPartitionError,
)
from sparklog.lazy_imports import load_uncollected
from sparklog.log.cluster import Cluster, open_cluster, topic_names
from sparklog.parallel import parallel_map, parallel_results
from sparklog.paths import TOPICS_FOLDER
from sparklog.sql.named_topics import names_of_all
from sparklog.sql.names import check_names, may_be_system_names, system_names
from sparklog.sql.unread import log_unread
from sparklog.storage import ObjectStore
from sparklog.storage.each_alone import each_alone

if TYPE_CHECKING:
    import duckdb

    from sparklog.log.state import TopicState

__all__ = [
    "QueryResult",
    "connect",
    "connection_for",
    "duckdb_module",
    "query",
    "quoted_name",
    "told_in_one_line",
]

_BATCH_ROWS = 10_000
_ARROWS_WORDS = re.compile(r"\AInvalid Input Error: reading the Arrow source failed: (Unknown error|IOError): ")
"""The words that stand before the message of an error that was raised while a file was read."""


def connect(
    cluster: str | Path | ObjectStore | Cluster,
    topics: Iterable[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    consistent: bool = False,
    versions: Mapping[str, int] | None = None,
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in memory with a view of each topic, under the topic's name, and system views, as of now.

    Columns: ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestamp_type`` (0: of the producer, 1: of
    the log), ``key``, ``value`` (BLOB; ``decode(value)`` for text), ``headers`` (a list of structs of key and value).
    Files are read when a query needs them (if the store is neither a folder nor an S3 bucket, they are copied now); a
    filter on ``partition``, ``offset`` or ``timestamp`` skips files by the log alone.
    A typed topic's view also has the fields of its values; a field with one of the names above is called
    ``value_<name>``. ``value`` is null except for bytes that couldn't be decoded or that the topic keeps
    (``value.bytes``).
    The session's time zone is UTC. Records that are appended later aren't seen: connect again.

    The system views are ``consumer_offsets``, ``consumer_lag`` and ``transactions``; where a topic has such a name, the
    view is called ``sparklog_…``. Groups and transactional ids that can't be read aren't among their rows, and where
    ``topics`` is None, topics that can't be read have no view, unless all are so: this package's log names each. Their
    columns: :data:`~sparklog.sql.view_schemas.VIEW_SCHEMAS`.

    Args:
        topics: the topics and system views to load; None: all, which loads the log of each topic, and every group.
        consistent: show the topics as of one consistent cut: every transaction is in all of its topics among these, or
            in none. System views aren't part of it.
        versions: older versions (numbers of commits) as of which topics are shown, with their log start at that time.
    Raises:
        KafkaTimeoutError: no consistent cut was found within half a minute.
        InvalidConfigurationError: DuckDB isn't installed.
        InvalidArgumentError: there is no cluster; two of the names in ``topics`` differ only in case; a
            version that a topic's log doesn't contain (any more), of another topic of the name, or of a topic that
            isn't loaded.
        UnknownTopicOrPartitionError, and the errors of reading a log.
    """
    opened = _open(cluster, storage_options, clock)
    if topics is None:
        names = topic_names(opened)
        named, system = names_of_all(opened, names), system_names(names)
    else:
        wanted = list(topics)
        system = {}
        if may_be_system_names(wanted):  # else there is no need to look at all topics
            views = system_names(topic_names(opened))
            system = {view: name for view, name in views.items() if name in wanted}
        named = check_names(name for name in wanted if name not in system.values())
    unread: dict[str, Exception] = {}
    how: dict[str, Any] = {"unread": unread, "skip_unread": topics is None}
    connection = _connect(opened, named, system, consistent=consistent, versions=versions, **how)
    log_unread(unread)
    return connection


class QueryResult:
    """The result of a query: iterate over it once, and close it, or use it as a context manager."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, reader: Any, unread: Mapping[str, Exception]) -> None:
        self._connection = connection
        self._reader = reader
        self.unread = unread
        """Why topics, groups and transactional ids aren't in the result, each by what it is: ``topic orders``, say."""

    @property
    def schema(self) -> pa.Schema:
        """The columns; none if the statement has no result."""
        return pa.schema([]) if self._reader is None else self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches.

        Raises:
            InvalidArgumentError: what DuckDB says of a row, or of a data file that it can't read, in one line.
        """
        with told_in_one_line():
            yield from self._reader or ()

    def close(self) -> None:
        """End the query."""
        self._reader = None
        self._connection.close()

    def __enter__(self) -> QueryResult:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def query(
    cluster: str | Path | ObjectStore | Cluster,
    text: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    consistent: bool = False,
    versions: Mapping[str, int] | None = None,
) -> QueryResult:
    """The result of one query over topics.

    Loads the topics and system views whose names occur in ``text``; all of them for a ``show`` statement, but for those
    that can't be read (:attr:`QueryResult.unread`).

    Args:
        consistent, versions: as for :func:`connect`, of the topics that are loaded.
    Raises:
        InvalidArgumentError: DuckDB refuses the query, or can't read a data file; with DuckDB's message in one line.
        The errors of :func:`connect`.
    """
    opened = _open(cluster, storage_options, clock)
    unread: dict[str, Exception] = {}
    connection = connection_for(opened, text, consistent=consistent, versions=versions, unread=unread)
    try:
        with told_in_one_line():
            relation: Any = connection.sql(text)  # None where there is no result, up to DuckDB 1
            reader = None if relation is None else relation.to_arrow_reader(_BATCH_ROWS)
    except BaseException:
        connection.close()
        raise
    return QueryResult(connection, reader, unread)


def connection_for(
    cluster: Cluster,
    text: str,
    *,
    consistent: bool = False,
    versions: Mapping[str, int] | None = None,
    unread: dict[str, Exception],
) -> duckdb.DuckDBPyConnection:
    """A connection with the topics and system views whose names stand in a statement.

    Args:
        unread: gets why topics, groups and transactional ids are left out. A topic that the statement names isn't.
    Raises as :func:`connect`.
    """
    topics, system = _named_in(cluster, text)
    return _connect(
        cluster,
        topics,
        system,
        skip_deleted=True,
        consistent=consistent,
        versions=versions,
        unread=unread,
        skip_unread=_shows(text),
    )


def quoted_name(name: str) -> str:
    """A name as SQL writes it, whatever stands in it."""
    return '"' + name.replace('"', '""') + '"'


def _open(
    cluster: str | Path | ObjectStore | Cluster, storage_options: Mapping[str, Any] | None, clock: Clock | None
) -> Cluster:
    duckdb_module()  # before anything is read
    if isinstance(cluster, Cluster):
        return cluster
    return open_cluster(cluster, storage_options=storage_options, clock=clock, create=False)


def _connect(
    cluster: Cluster,
    topics: Iterable[str],
    system: Mapping[str, str],
    *,
    skip_deleted: bool = False,
    consistent: bool = False,
    versions: Mapping[str, int] | None = None,
    unread: dict[str, Exception],
    skip_unread: bool,
) -> duckdb.DuckDBPyConnection:
    topics, versions = list(topics), versions or {}
    _check_versions(topics, versions, consistent=consistent)
    # DuckDB takes 20 ms to set itself up, most of it without Python's lock: the logs are read meanwhile.
    left_out = unread if skip_unread else None
    datasets = partial(
        _datasets,
        cluster,
        topics,
        skip_deleted=skip_deleted,
        consistent=consistent,
        versions=versions,
        left_out=left_out,
    )
    steps: Sequence[Callable[[], Any]] = (_empty_connection, datasets)
    made, loaded = parallel_results(_call, steps)
    if isinstance(made, Exception):
        raise made
    connection: duckdb.DuckDBPyConnection = made
    try:
        if isinstance(loaded, Exception):
            raise loaded
        for topic, dataset in loaded.items():
            if dataset is not None:
                connection.from_arrow(dataset).create_view(topic)
        for view, name in system.items():
            from sparklog.sql.system import read_view  # much code, which most queries don't need

            connection.from_arrow(pa.Table.from_batches([read_view(cluster, view, unread)])).create_view(name)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_versions(topics: Sequence[str], versions: Mapping[str, int], *, consistent: bool) -> None:
    if consistent and versions:
        raise InvalidArgumentError("expected either a consistent cut or versions, got both")
    strange = sorted(set(versions).difference(topics))
    if strange:
        raise InvalidArgumentError(f"version of topic {strange[0]!r}: it isn't among the topics of the query")


def _call(step: Callable[[], Any]) -> Any:
    return step()


def _empty_connection() -> duckdb.DuckDBPyConnection:
    connection: duckdb.DuckDBPyConnection = duckdb_module().connect()
    try:
        connection.execute("set TimeZone = 'UTC'")
    except BaseException:
        connection.close()
        raise
    return connection


def _datasets(
    cluster: Cluster,
    topics: Iterable[str],
    *,
    skip_deleted: bool,
    consistent: bool,
    versions: Mapping[str, int],
    left_out: dict[str, Exception] | None,
) -> dict[str, Any | None]:
    """The records of each topic; None for one that is passed over.

    Args:
        left_out: gets why topics that can't be read are passed over; None, or where all of them can't: they aren't.
    """
    topic_dataset = load_uncollected("sparklog.sql.dataset", _load_topic_dataset)

    wanted = list(topics)
    if consistent:
        from sparklog.txn.consistent_read import load_consistent

        states = load_consistent(cluster, wanted, skip_missing=skip_deleted)
        return dict(
            zip(
                states,
                parallel_map(lambda at: topic_dataset(cluster, *at, texts_as_dictionaries=True), states.items()),
                strict=True,
            )
        )

    def dataset(topic: str) -> Any:
        try:
            state = _state_at(cluster, topic, versions[topic]) if topic in versions else None
            return topic_dataset(cluster, topic, state, texts_as_dictionaries=True)
        except (UnknownTopicOrPartitionError, NotATopicError) as error:
            if skip_deleted and topic not in versions and not isinstance(error, TopicShrunkError):
                return None
            raise

    if left_out is None:
        return dict(zip(wanted, parallel_map(dataset, wanted), strict=True))
    found = dict(zip(wanted, each_alone(cluster.store, dataset, wanted), strict=True))
    errors = {name: one for name, one in found.items() if isinstance(one, Exception)}
    if errors and len(errors) == len(found):
        raise next(iter(errors.values()))
    left_out |= {f"topic {name}": error for name, error in errors.items()}
    return {name: None if isinstance(one, Exception) else one for name, one in found.items()}


def _state_at(cluster: Cluster, topic: str, version: int) -> TopicState:
    from sparklog.sql.dataset import load_living

    return load_living(cluster.topic_log(topic), topic, version)


def _load_topic_dataset() -> Callable[..., Any]:
    from sparklog.sql.dataset import topic_dataset  # 20 ms of imports, which DuckDB's setting up has time for

    return topic_dataset


def duckdb_module() -> ModuleType:
    """DuckDB. Raises ``InvalidConfigurationError``: it isn't installed."""

    def load() -> ModuleType:
        import duckdb

        return duckdb

    try:
        return load_uncollected("duckdb", load)
    except ImportError as error:
        raise InvalidConfigurationError("SQL needs DuckDB: pip install 'sparklog[sql]'") from error


def _named_in(cluster: Cluster, text: str) -> tuple[Iterable[str], Mapping[str, str]]:
    """The topics and system views that a query may be about: those whose names stand in it, in any case."""
    names = cluster.store.list_names(TOPICS_FOLDER)
    system = system_names(names)
    if _shows(text):
        return names_of_all(cluster, names), system
    occurring = [name for name in names if _stands_in(name, text, re.IGNORECASE)]
    exact = {name.lower() for name in occurring if _stands_in(name, text)}
    # Of names that differ in case alone, the one that is spelled out is meant.
    meant = [name for name in occurring if name.lower() not in exact or _stands_in(name, text)]
    spelled_out = [name for name in meant if name.lower() in exact]
    topics = [*check_names(spelled_out), *names_of_all(cluster, [name for name in meant if name not in spelled_out])]
    return topics, {view: name for view, name in system.items() if _stands_in(name, text, re.IGNORECASE)}


def _shows(text: str) -> bool:
    """Is a statement about all topics?"""
    return re.match(r"\s*show\b", text, re.IGNORECASE) is not None


def _stands_in(name: str, text: str, flags: int = 0) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, flags) is not None


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Raise what DuckDB says of a statement as ``InvalidArgumentError``, in one line."""
    try:
        yield
    except (duckdb_module().Error, pa.ArrowException, OSError) as error:
        # Of what reading a file raises, DuckDB has the message and then the trace.
        message = str(error).split("\n\nLINE ")[0].partition(". Detail: Python exception: Traceback ")[0]
        message = _ARROWS_WORDS.sub("", message)
        raise InvalidArgumentError(" ".join(message.split())) from error
