"""Access of maintenance jobs to a topic: its settings and columns, read strictly, and commits beside producers.

Producers and consumers live with an invalid property: it is logged, and the setting stays as it was. A job
that deletes by it must not guess.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sparklog.config import TOPIC_SETTINGS, TopicConfig
from sparklog.delta.actions import Metadata
from sparklog.delta.log import DeltaLog
from sparklog.delta.properties import check_removal
from sparklog.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    NotATopicError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commit import Decide, TopicCommitResult, UploadedSince, commit
from sparklog.log.data.table_schema import SCHEMA_STRING, columns_of
from sparklog.log.state import TopicState

__all__ = [
    "check_columns",
    "check_removal",
    "commit_job",
    "is_gone",
    "made_durable",
    "may_succeed_later",
    "strict_config",
]

_LOGGER = logging.getLogger("sparklog.compaction")
_PREFIX = "sparklog."


def strict_config(table: str, metadata: Metadata, names: Iterable[str]) -> TopicConfig:
    """The settings ``names`` as a table's properties have them; Kafka's default for each that isn't there.

    Raises:
        InvalidConfigurationError: one of them has a value that isn't allowed, alone or beside the others; names it.
    """
    explicit = {}
    for name in names:
        given = metadata.configuration.get(_PREFIX + name)
        if given is None:
            continue
        try:
            explicit[name] = TOPIC_SETTINGS[name].parse_value(given)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{table}: table property {_PREFIX}{error}") from None
    config = TopicConfig(explicit)
    try:
        config.check()
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(f"{table}: table properties: {error}") from None
    return config


def check_columns(table: str, metadata: Metadata) -> None:
    """Raise ``NotATopicError`` where the table lacks columns of a topic. Columns that another engine added are no
    hindrance, as long as the files that are rewritten hold nothing but null in them."""
    try:
        found = columns_of(metadata.schema_string)
    except ValueError as error:
        raise NotATopicError(f"{table}: its schema can't be read ({error!r})") from error
    missing = columns_of(SCHEMA_STRING).keys() - found.keys()
    if missing:
        raise NotATopicError(
            f"{table}: files aren't rewritten, as the table lacks columns of a topic: {', '.join(sorted(missing))}"
        )


def commit_job(
    state: TopicState, decide: Decide, *, timeout_ms: float, uploaded_since_ticks_ms: float | None = None
) -> TopicCommitResult:
    """Commit what a job decided; see :func:`~sparklog.log.commit.commit` for what it raises.

    It isn't made durable before it is visible, as an append with ``acks=all`` is (rule L9, fsync): to flush what all
    producers wrote before takes longer than they need for the next commit, so a job that did would lose every race on a
    disk. A job makes durable what it has done at its end, by :func:`made_durable`; the files that it names are so
    before.

    Args:
        uploaded_since_ticks_ms: before the first upload of a file that it adds began; None: it adds none.
    """
    deadline = state.log.clock.deadline_in(timeout_ms)
    uploads = None if uploaded_since_ticks_ms is None else UploadedSince(uploaded_since_ticks_ms)
    return commit(state, decide, deadline=deadline, sync=False, uploads=uploads)


@contextmanager
def made_durable(log: DeltaLog) -> Iterator[Callable[[], None]]:
    """Let what a job commits within survive a power loss, however the job ends.

    What it gives is to be called before each commit; without a call nothing is done.

    Raises:
        StoreOutcomeUnknownError: the disk refuses; where the job itself has failed, that is logged instead.
    """
    committed = False

    def committing() -> None:
        nonlocal committed
        committed = True

    try:
        yield committing
    except (Exception, KeyboardInterrupt):
        if committed:
            try:
                log.store.sync_all()
            except SparklogError as error:
                _LOGGER.warning("%s: what was committed may not survive a power loss: %s", log.table, error)
        raise
    if committed:
        log.store.sync_all()


def may_succeed_later(error: SparklogError) -> bool:
    """May a job that failed simply be run again, without anybody doing anything?

    A consumer may wait for a topic to be created, or for a file to become readable. A job that did would fail again and
    again, without an error.
    """
    return error.retriable and not isinstance(error, (UnknownTopicOrPartitionError, CorruptRecordError))


def is_gone(state: TopicState, topic_id: str) -> bool:
    """Was the topic deleted since a plan was made? Another may have taken its name."""
    return state.head.deleted or state.head.topic_id != topic_id
