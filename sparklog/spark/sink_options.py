"""The options and columns of ``format("sparklog")`` as a sink: those of Spark's Kafka sink. Pure.

Source: Spark ``KafkaSourceProvider``, ``KafkaWriter.validateQuery``, ``KafkaRowWriter.createProjection``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.config.producer import PRODUCER_SETTINGS
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.paths import transaction_log
from sparklog.spark.options import GivenOptions, bad_option, positive, topic_name

__all__ = ["SINK_COLUMNS", "SinkOptions", "check_columns", "sink_options"]

_NO_EFFECT = frozenset({"includeheaders", "queryname", "checkpointlocation", "outputmode"})
"""Of the Kafka sink, and what Spark itself hands in."""

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
class SinkOptions:
    """Where and how a query writes."""

    uri: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    topic: str | None = None
    """For all records; None: each has its own."""
    transactional_id: str | None = None
    """None: one that is made of the query's id."""
    compression: str = "none"
    """Of data files, where the topic leaves it to the producer."""
    max_request_size: int = 1_048_576
    """Bytes of one record's key and value."""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a query that writes.

    Args:
        given: names in any case.
    Raises:
        InvalidConfigurationError: an option is unknown or missing, or its value isn't allowed; the message names it.
    """
    options = GivenOptions({name.lower(): value for name, value in given.items()})
    uri, storage_options = options.pop_place()
    topic = options.pop("topic")
    compression = options.pop_as("compression", _compression)
    of_kafka = options.pop_as("kafka.compression.type", _compression)
    found = SinkOptions(
        uri=uri,
        storage_options=storage_options,
        topic=None if topic is None else topic_name(topic),
        transactional_id=options.pop_as("transactionalid", _transactional_id),
        compression=compression or of_kafka or "none",
        max_request_size=options.pop_as("kafka.max.request.size", positive)
        or PRODUCER_SETTINGS["max_request_size"].default,
    )
    options.check_empty(_NO_EFFECT)
    return found


def check_columns(columns: Sequence[tuple[str, str]], *, topic: str | None) -> None:
    """Can rows with these columns be written?

    Args:
        columns: names and types, as Spark's ``simpleString`` writes them.
        topic: the option.
    Raises:
        InvalidConfigurationError: a column is missing, unknown, there twice or of another type.
    """
    names = [name for name, _ in columns]
    expected = "; ".join(f"{name} {' or '.join(kinds)}" for name, kinds in SINK_COLUMNS.items())
    unknown = [name for name in names if name not in SINK_COLUMNS and name not in _PASSED_OVER]
    twice = sorted({name for name in names if names.count(name) > 1})
    if unknown or twice:
        wrong = f"unknown column {', '.join(unknown)}" if unknown else f"more than one column {', '.join(twice)}"
        raise InvalidConfigurationError(f'format("sparklog"): {wrong}; it writes {expected}')
    if "value" not in names:
        raise InvalidConfigurationError(f'format("sparklog"): no column value in {", ".join(names)}')
    if topic is None and "topic" not in names:
        raise InvalidConfigurationError('format("sparklog"): give the option topic, or a column topic')
    for name, kind in columns:
        allowed = SINK_COLUMNS.get(name)
        if allowed is not None and kind.split(" ")[0] not in allowed:  # "string collate …" is a string
            raise InvalidConfigurationError(
                f'format("sparklog"): column {name} is {kind}, expected {" or ".join(allowed)}'
            )


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
