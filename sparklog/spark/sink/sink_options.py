"""The options and columns of ``format("sparklog")`` as a sink: those of Spark's Kafka sink. Pure.

Source: Spark ``KafkaSourceProvider``, ``KafkaWriter.validateQuery``, ``KafkaRowWriter.createProjection``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from sparklog.config.producer import PRODUCER_SETTINGS
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.log.data.value_columns import first_seen, view_columns
from sparklog.paths import transaction_log
from sparklog.streaming.source_options import GivenOptions, bad_option, positive, topic_name

__all__ = ["SINK_COLUMNS", "NumberedWrite", "SinkOptions", "check_columns", "field_columns", "sink_options"]

_NAMES = (
    *("path", "cluster", "kafka.bootstrap.servers", "storageOptions", "topic", "transactionalId"),
    *("txnAppId", "txnVersion", "compression", "kafka.compression.type", "kafka.max.request.size"),
)
_NO_EFFECT = frozenset({"includeheaders", "queryname", "checkpointlocation", "outputmode"})
"""Options of the Kafka sink without effect, and those that Spark itself hands in."""

_MAX_VERSION = 2**63 - 1
_TEXT = ("string", "binary")
SINK_COLUMNS: Mapping[str, Sequence[str]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, and the types they may have; ``timestamp`` is sparklog's own."""
_PASSED_OVER = frozenset({"offset", "timestampType"})
"""Columns of the source that say nothing about a new record: so that a topic may be copied as it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedWrite:
    """A batch write that its application has numbered, to be carried out once. Source: Delta's idempotent writes."""

    app_id: str
    """``txnAppId``"""
    version: int
    """``txnVersion``: 0 or more, one that wasn't used before for each write to one target."""

    def transactional_id(self, topic: str | None) -> str:
        """The id of the application's writes to a topic, or to those that rows name: the numbers of each target are its
        own.

        Never longer than an id may be; the two names are in it for people, the digest distinguishes targets.
        """
        target = f"{topic or ''}/{self.app_id}"  # no topic has a slash in its name
        digest = sha256(target.encode(errors="surrogatepass")).hexdigest()[:16]
        return "-".join(["spark", "app", _readable(self.app_id), *([_readable(topic)] if topic else []), digest])


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a query that writes: where and how."""

    uri: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    topic: str | None = None
    """For all records; None: each has its own."""
    transactional_id: str | None = None
    """None: one that is made of the query's id."""
    numbered: NumberedWrite | None = None
    """The numbered write of a batch query; a streaming query has none."""
    compression: str = "none"
    """The compression of data files, where the topic leaves it to the producer."""
    max_request_size: int = 1_048_576
    """Bytes of one record's key and value."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The columns that are fields of a typed topic's values, with the fields' names: see :func:`field_columns`."""

    @property
    def columns(self) -> frozenset[str]:
        """All columns that are written."""
        return frozenset((*SINK_COLUMNS, *self.fields))


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read the options of a query that writes.

    Args:
        given: names in any case.
        streaming: ``df.writeStream``; else ``df.write``.
    Raises:
        InvalidConfigurationError: an option is unknown or missing, or its value isn't allowed; the message names it.
    """
    options = GivenOptions(given, _NAMES)
    uri, storage_options = options.pop_cluster()
    topic = options.pop("topic")
    compression = options.pop_as("compression", _compression)
    of_kafka = options.pop_as("kafka.compression.type", _compression)
    found = SinkOptions(
        uri=uri,
        storage_options=storage_options,
        topic=None if topic is None else topic_name(topic),
        transactional_id=options.pop_as("transactionalid", _transactional_id),
        numbered=_numbered(options),
        compression=compression or of_kafka or "none",
        max_request_size=options.pop_as("kafka.max.request.size", positive)
        or PRODUCER_SETTINGS["max_request_size"].default,
    )
    options.check_empty(_NO_EFFECT)
    if found.numbered is not None and streaming:
        raise InvalidConfigurationError(
            'txnAppId and txnVersion number batch writes, as those in foreachBatch; a stream into format("sparklog") '
            "numbers its micro-batches by itself"
        )
    if found.numbered is not None and found.transactional_id is not None:
        raise InvalidConfigurationError(
            f"got transactionalId={found.transactional_id!r} and txnAppId={found.numbered.app_id!r}: expected one of "
            "them, since numbered writes are committed under an id that is made of txnAppId and topic"
        )
    return found


def check_columns(
    columns: Sequence[tuple[str, str]], *, topic: str | None, fields: Sequence[str] = (), earlier: Sequence[str] = ()
) -> None:
    """Can rows with these columns be written?

    Args:
        columns: names and types, as Spark's ``simpleString`` writes them.
        topic: the option.
        fields: those of the topic's values, where it is typed: they may be columns, or ``value`` may be a struct.
        earlier: as :func:`field_columns` takes them.
    Raises:
        InvalidConfigurationError: a column is missing, unknown, there twice or of another type.
    """
    names = [name for name, _ in columns]
    expected = "; ".join(f"{name} {' or '.join(kinds)}" for name, kinds in SINK_COLUMNS.items())
    of_values = field_columns(names, fields, earlier)
    unknown = [
        name for name in names if name not in SINK_COLUMNS and name not in _PASSED_OVER and name not in of_values
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    if unknown or twice:
        wrong = f"unknown column {', '.join(unknown)}" if unknown else f"more than one column {', '.join(twice)}"
        if fields:
            expected += f"; the fields of the topic's values: {', '.join(_columns_of(fields, earlier))}"
        raise InvalidConfigurationError(f'format("sparklog"): {wrong}; it writes {expected}')
    if of_values and "value" in names:
        raise InvalidConfigurationError(
            f'format("sparklog"): got the column value beside fields of values ({", ".join(of_values)}); expected one '
            'or the other: drop("value"), or the fields'
        )
    if "value" not in names and not of_values:
        raise InvalidConfigurationError(f'format("sparklog"): no column value in {", ".join(names)}')
    if topic is None and "topic" not in names:
        raise InvalidConfigurationError('format("sparklog"): give the option topic, or a column topic')
    for name, kind in columns:
        allowed = SINK_COLUMNS.get(name)
        if name == "value" and fields and kind.startswith("struct<"):
            continue
        if allowed is not None and kind.split(" ")[0] not in allowed:  # "string collate …" is a string
            raise InvalidConfigurationError(
                f'format("sparklog"): column {name} is {kind}, expected {" or ".join(allowed)}'
            )


def field_columns(names: Sequence[str], fields: Sequence[str], earlier: Sequence[str] = ()) -> dict[str, str]:
    """Which of some columns are fields of a typed topic's values, with the fields' names: a field whose own name the
    source or the sink has for something else is the column ``value_<name>``.

    Args:
        earlier: the fields of the topic's earlier schemas, in the order in which they came: columns keep their meaning.
    """
    columns = _columns_of(fields, earlier)
    return {name: columns[name] for name in names if name in columns}


def _columns_of(fields: Sequence[str], earlier: Sequence[str]) -> dict[str, str]:
    names = view_columns(first_seen([earlier, fields]), (*SINK_COLUMNS, *_PASSED_OVER))
    return {names[field]: field for field in fields}


def _numbered(options: GivenOptions) -> NumberedWrite | None:
    app_id, version = options.pop("txnappid"), options.pop("txnversion")
    if app_id is None and version is None:
        return None
    if not app_id or version is None:
        raise InvalidConfigurationError(
            f"got txnAppId={app_id!r} and txnVersion={version!r}: expected both, the application's name and its number "
            "of this write"
        )
    if not version.strip().isdecimal() or int(version) > _MAX_VERSION:
        raise bad_option("txnVersion", version, "a whole number from 0 on that fits 63 bits")
    return NumberedWrite(app_id=app_id, version=int(version))


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name[:60])


def _compression(name: str, text: str) -> str:
    try:
        return str(PRODUCER_SETTINGS["compression_type"].parse(text.strip().lower()))
    except ValueError as error:
        raise bad_option(name, text, "one of none, gzip, snappy, lz4, zstd") from error


def _transactional_id(name: str, text: str) -> str:
    try:
        transaction_log(text)
    except InvalidArgumentError as error:
        raise bad_option("transactionalId", text, f"a transactional id ({error})") from error
    return text
