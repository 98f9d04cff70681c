"""Operations on a topic as a whole: create, describe, change, delete. Each is one commit (rule L4, decide
again)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparklog.clock import Deadline
from sparklog.config import TopicConfig, setting_names
from sparklog.delta.actions import Action, Metadata, Protocol, RemoveFile
from sparklog.delta.features import READER_VERSION, WRITER_VERSION
from sparklog.delta.log import DeltaLog
from sparklog.delta.properties import check_removal
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commit import Commit, commit, create_first
from sparklog.log.data.segments import Segment
from sparklog.log.data.table_schema import PARTITION_COLUMNS, SCHEMA_STRING, SKIPPING_PROPERTY, table_properties
from sparklog.log.data.value_columns import indexed_leaves, with_value_columns
from sparklog.log.delay_topics import check_may_grow
from sparklog.log.head import TopicHead, is_topic_property
from sparklog.log.key_lengths import check_topic_length
from sparklog.log.live_totals import EMPTY
from sparklog.log.shape import MAX_PARTITIONS
from sparklog.log.shape_evidence import replaced_actions, shape_actions
from sparklog.log.state import TopicState, load_state, open_state
from sparklog.log.topic_ids import first_topic_id, is_of_same_creation, next_topic_id
from sparklog.log.value_bytes import ValueBytes
from sparklog.log.value_schemas import TopicSchemas, check_columns
from sparklog.schemas import ValueSchema, Verdict

__all__ = [
    "HIGH_WATERMARK",
    "MAX_PARTITIONS",
    "TopicDescription",
    "alter_topic",
    "alter_value_schema",
    "check_value_schema",
    "create_partitions",
    "create_topic",
    "delete_records",
    "delete_topic",
    "describe_topic",
    "first_offset_kept",
    "topic_metadata",
]

HIGH_WATERMARK = -1
"""Stands, as an offset for :func:`delete_records`: everything that is in the log. Source: Kafka
``DeleteRecordsRequest``."""
DEFAULT_TIMEOUT_MS = 60_000.0
_MOST_REMOVED = 4_096
"""Files that one entry of :func:`delete_records` removes: about 1 MB, which everybody reads who follows the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """The settings and the offset ranges of a topic at one version of its Delta table."""

    name: str
    topic_id: str
    log_start_offsets: tuple[int, ...]
    log_end_offsets: tuple[int, ...]
    config: TopicConfig
    delta_version: int
    value_schemas: tuple[ValueSchema, ...] = ()
    """The schemas of a typed topic's values, by id from 1 on; the last is the newest. None for an untyped topic."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return len(self.log_end_offsets)


def create_topic(
    log: DeltaLog,
    name: str,
    *,
    num_partitions: int = 1,
    configs: Mapping[str, object] | None = None,
    value_schema: ValueSchema | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> TopicDescription:
    """Create a topic.

    A name that was deleted is taken up again in the same log, with a new id and offsets from 0 (rule L8, one log).

    Args:
        num_partitions: 1 to 10,000.
        configs: Kafka's topic settings by name.
        value_schema: of a typed topic; None: values are bytes.
    Raises:
        TopicAlreadyExistsError, InvalidPartitionsError, InvalidConfigurationError, NotATopicError, StoreError.
    """
    _check_partitions(name, num_partitions)
    check_topic_length(log.store, name)
    config = TopicConfig.parse(configs or {})
    head = TopicHead(
        delta_version=0,
        topic_id=first_topic_id(),
        deleted=False,
        config=config,
        log_start_offsets=(0,) * num_partitions,
        log_end_offsets=(0,) * num_partitions,
        live_file_count=0,
        unsequenced_count=0,
        totals=EMPTY,
    )
    if value_schema is not None:
        head = head.with_schemas(TopicSchemas.of(value_schema))
        check_values(head)
    deadline = log.clock.deadline_in(timeout_ms)
    if create_first(log, _new_table(head, created_ms=log.clock.now_ms()), deadline=deadline):
        return _describe(name, head)

    def create_again(state: TopicState) -> Commit | None:
        if is_of_same_creation(state.head.topic_id, head.topic_id):
            return None  # our own commit, whose answer was lost
        if not state.head.deleted:
            raise TopicAlreadyExistsError(f"topic {name!r} already exists")
        replaced = replaced_actions(state.head, state.transactions, now_ms=log.clock.now_ms())
        again = replace(head, topic_id=next_topic_id(state.head.topic_id, head.topic_id))
        actions = [*_remove_all(state), topic_metadata(state, again), *replaced, *shape_actions(again, {})]
        return Commit(actions=actions, head=again, operation="CREATE TOPIC")

    # A topic that lives is seen so by one look at its newest commit; only taking up a deleted one loads the table.
    state = open_state(log)
    return _describe(name, _commit(load_state(log) if state.head.deleted else state, create_again, deadline).head)


def describe_topic(log: DeltaLog, name: str) -> TopicDescription:
    """A topic as of now, from its newest commit. Raises ``UnknownTopicOrPartitionError``."""
    head = open_state(log).head
    if head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} was deleted")
    return _describe(name, head)


def alter_topic(
    log: DeltaLog,
    name: str,
    changes: Mapping[str, object] | Callable[[TopicConfig], Mapping[str, object]],
    *,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> TopicDescription:
    """Set some of a topic's settings; None takes one back to its default. Raises ``InvalidConfigurationError``.

    Args:
        changes: settings by name, or a function of the settings as they are, called anew when another commit comes
            first.
    """

    def plan_new_settings(state: TopicState) -> Commit | None:
        wanted = changes(state.head.config) if callable(changes) else changes
        head = replace(state.head, config=state.head.config.with_changes(wanted))
        if {"value.index", "value.format"} & {*setting_names(wanted)}:
            check_values(head)
        # Somebody may have set a property to what isn't allowed: taking the setting back to its default mends that.
        if head == state.head and topic_metadata(state, head) == state.require_whole().metadata:
            return None
        return _settings_commit(state, head, "SET TOPIC CONFIG")

    return _change(log, name, plan_new_settings, timeout_ms)


def alter_value_schema(
    log: DeltaLog, name: str, schema: ValueSchema, *, timeout_ms: float = DEFAULT_TIMEOUT_MS
) -> TopicDescription:
    """Let a topic's values have another schema from now on; an untyped topic becomes typed. One commit registers it,
    checks it against those that are there, and adds its columns. A schema that equals the newest changes nothing.

    Raises:
        InvalidConfigurationError: it isn't compatible, by the topic's ``value.compatibility``, or with columns of
            another engine's; says why.
        UnknownTopicOrPartitionError.
    """

    def plan_new_schema(state: TopicState) -> Commit | None:
        head = _head_with_schema(state, schema)
        return None if head is None else _settings_commit(state, head, "SET VALUE SCHEMA")

    return _change(log, name, plan_new_schema, timeout_ms)


def check_value_schema(log: DeltaLog, name: str, schema: ValueSchema) -> Verdict:
    """Could :func:`alter_value_schema` set this schema, as the topic is now? With the reasons where it couldn't.

    Raises ``UnknownTopicOrPartitionError``.
    """
    state = load_state(log)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} was deleted")
    now = state.head.schemas
    verdict = Verdict(True) if now is None else now.verdict(schema, state.head.config)
    if verdict.compatible:
        try:
            _head_with_schema(state, schema)
        except InvalidConfigurationError as error:
            return Verdict(False, (str(error),))
    return verdict


def _head_with_schema(state: TopicState, schema: ValueSchema) -> TopicHead | None:
    """The topic with a schema that follows the others; None: it equals the newest. Raises
    ``InvalidConfigurationError``."""
    now = state.head.schemas
    schemas = TopicSchemas.of(schema) if now is None else now.with_schema(schema, state.head.config)
    if schemas == now:
        return None
    check_columns(schema, state.require_whole().metadata.schema_string)
    head = state.head.with_schemas(schemas)
    ValueBytes.of(schemas, head.config).check()
    return head


def create_partitions(
    log: DeltaLog, name: str, total_count: int, *, timeout_ms: float = DEFAULT_TIMEOUT_MS
) -> TopicDescription:
    """Let a topic grow to ``total_count`` partitions. Keys go to other partitions afterwards, as in Kafka.

    Raises:
        InvalidPartitionsError: not more than there are now, or it is a topic of delayed records.
    """
    _check_partitions(name, total_count)
    check_may_grow(name)
    asked = False

    def plan_new_partitions(state: TopicState) -> Commit | None:
        nonlocal asked
        now = state.head.partition_count
        if asked and now == total_count:
            return None  # our own commit, whose answer was lost, or another's to the same end
        if total_count <= now:
            raise InvalidPartitionsError(
                f"topic {name!r} has {now} partitions, asked for {total_count}: partitions only grow"
            )
        asked = True
        new = (0,) * (total_count - now)
        head = replace(
            state.head,
            log_start_offsets=state.head.log_start_offsets + new,
            log_end_offsets=state.head.log_end_offsets + new,
        )
        return _settings_commit(state, head, "CREATE PARTITIONS")

    return _change(log, name, plan_new_partitions, timeout_ms)


def first_offset_kept(name: str, log_end_offsets: Sequence[int], partition: int, before_offset: int) -> int:
    """The offset below which :func:`delete_records` deletes a partition's records: the log end for
    :data:`HIGH_WATERMARK`. Raises ``UnknownTopicOrPartitionError``, ``OffsetOutOfRangeError``."""
    if not 0 <= partition < len(log_end_offsets):
        raise UnknownTopicOrPartitionError(
            f"topic {name!r} has no partition {partition}; it has 0 to {len(log_end_offsets) - 1}"
        )
    end = log_end_offsets[partition]
    offset = end if before_offset == HIGH_WATERMARK else before_offset
    if not 0 <= offset <= end:
        raise OffsetOutOfRangeError(
            f"delete_records of {name}-{partition} before {before_offset}: expected 0 to {end}, or {HIGH_WATERMARK}"
        )
    return offset


def delete_records(
    log: DeltaLog,
    name: str,
    before_offsets: Mapping[int, int],
    *,
    topic_id: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> TopicDescription:
    """Delete the records below an offset of each partition.

    Log starts move forward, and nobody of ours reads what lies below. Files wholly below them are removed from the
    table, 4,096 at most; the next retention takes the rest.

    Args:
        before_offsets: partition to the first offset that stays, at most the log end; :data:`HIGH_WATERMARK` for all.
            An offset below the log start changes nothing.
        topic_id: of the topic that the offsets are of, where they come from an earlier look: one that was created
            again since has others.
    Raises:
        OffsetOutOfRangeError.
        UnknownTopicOrPartitionError: there is no such topic, or one with another id.
        PolicyViolationError: the topic's ``cleanup.policy`` is without delete (Kafka
            ``Partition.deleteRecordsOnLeader``), or its table is append-only.
    """

    wanted = dict(before_offsets)

    def plan_new_starts(state: TopicState) -> Commit | None:
        if topic_id not in (None, state.head.topic_id):
            raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} with id {topic_id} was created again")
        if "delete" not in str(state.head.config["cleanup.policy"]).split(","):
            raise PolicyViolationError(
                f"delete_records of {name}: its cleanup.policy is {state.head.config['cleanup.policy']!r}, "
                "expected one with delete"
            )
        check_removal(log.table, state.require_whole().metadata)
        starts = list(state.head.log_start_offsets)
        for partition, asked in wanted.items():
            # The end as it was at first: what is produced while we lose races isn't meant.
            offset = wanted[partition] = first_offset_kept(name, state.head.log_end_offsets, partition, asked)
            starts[partition] = max(starts[partition], offset)
        head = replace(state.head, log_start_offsets=tuple(starts))
        below = [
            segment
            for partition, start in enumerate(starts)
            if partition in wanted
            for segment in state.require_whole().index.partition(partition)
            if segment.has_stats and segment.last_offset < start
        ][:_MOST_REMOVED]
        if head == state.head and not below:
            return None
        head = replace(head, live_file_count=max(0, head.live_file_count - len(below)))
        return Commit(actions=_removes(state, below), head=head, operation="DELETE RECORDS")

    return _change(log, name, plan_new_starts, timeout_ms)


def delete_topic(log: DeltaLog, name: str, *, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
    """Delete a topic: one commit removes all its files and marks it. Its log goes on: a purge deletes data later, and
    creating the topic again is a further commit (rule L8, one log).

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        PolicyViolationError: its table is append-only.
    """

    def plan_deletion(state: TopicState) -> Commit | None:
        check_removal(log.table, state.require_whole().metadata)
        head = replace(state.head, deleted=True, live_file_count=0, unsequenced_count=0)
        return Commit(actions=[*_remove_all(state), topic_metadata(state, head)], head=head, operation="DELETE TOPIC")

    _change(log, name, plan_deletion, timeout_ms, gone_is_done=True)


def _change(
    log: DeltaLog,
    name: str,
    decide: Callable[[TopicState], Commit | None],
    timeout_ms: float,
    *,
    gone_is_done: bool = False,
) -> TopicDescription:
    """Commit a change of one topic, by id. That it is gone is an error, or what was wanted once it is under way."""
    deadline = log.clock.deadline_in(timeout_ms)
    state = load_state(log)
    topic_id = state.head.topic_id
    asked = False

    def decide_again(now: TopicState) -> Commit | None:
        nonlocal asked
        if now.head.deleted or now.head.topic_id != topic_id:  # rule L4, decide again: it may be another topic by now
            if asked and gone_is_done:
                return None
            raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} with id {topic_id} was deleted")
        asked = True
        return decide(now)

    return _describe(name, _commit(state, decide_again, deadline).head)


def _commit(state: TopicState, decide: Callable[[TopicState], Commit | None], deadline: Deadline) -> TopicState:
    # Administration is rare and its loss surprising: always durable.
    return commit(state, decide, deadline=deadline, sync=True).state


def _describe(name: str, head: TopicHead) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=head.topic_id,
        log_start_offsets=head.log_start_offsets,
        log_end_offsets=head.log_end_offsets,
        config=head.config,
        delta_version=head.delta_version,
        value_schemas=() if head.schemas is None else head.schemas.all(),
    )


def check_values(head: TopicHead) -> None:
    """Raise ``InvalidConfigurationError`` where ``value.index`` names what no statistics can be of, or values can't be
    bytes of ``value.format``."""
    if head.schemas is not None:
        indexed_leaves(head.schemas.newest_type, str(head.config["value.index"]))
        ValueBytes.of(head.schemas, head.config).check()


def _check_partitions(name: str, count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidPartitionsError(f"topic {name!r}: got {count!r} partitions, expected 1 to {MAX_PARTITIONS}")


def _new_table(head: TopicHead, *, created_ms: int) -> Commit:
    metadata = Metadata(
        table_id=str(uuid.uuid4()),
        schema_string=SCHEMA_STRING if head.values is None else with_value_columns(SCHEMA_STRING, head.values),
        partition_columns=PARTITION_COLUMNS,
        configuration={
            **table_properties(),
            SKIPPING_PROPERTY: head.skipping_columns(),
            **head.to_properties(),
        },
        created_ms=created_ms,
    )
    protocol = Protocol(min_reader_version=READER_VERSION, min_writer_version=WRITER_VERSION)
    return Commit(actions=[protocol, metadata], head=head, operation="CREATE TOPIC")


def topic_metadata(state: TopicState, head: TopicHead) -> Metadata:
    """The table's metadata with the topic's properties as ``head`` has them; what others put there stays."""
    metadata = state.require_whole().metadata
    foreign = {name: value for name, value in metadata.configuration.items() if not is_topic_property(name)}
    changed = replace(metadata, configuration={**foreign, **head.to_properties()})
    if head.values is None and state.head.values is None:
        return changed
    return replace(
        changed,
        schema_string=with_value_columns(metadata.schema_string, head.values),
        configuration={**changed.configuration, SKIPPING_PROPERTY: head.skipping_columns()},
    )


def _settings_commit(state: TopicState, head: TopicHead, operation: str) -> Commit:
    is_same = head.partition_count == state.head.partition_count and head.value_schema_id == state.head.value_schema_id
    shape = [] if is_same else shape_actions(head, state.transactions)
    return Commit(actions=[topic_metadata(state, head), *shape], head=head, operation=operation)


def _remove_all(state: TopicState) -> list[Action]:
    return list(_removes(state, list(state.require_whole().index.by_path.values())))


def _removes(state: TopicState, segments: list[Segment]) -> list[RemoveFile]:
    now_ms = state.log.clock.now_ms()
    return [
        RemoveFile(path=s.path, deletion_ms=now_ms, partition_values=s.partition_values(), size_bytes=s.size_bytes)
        for s in segments
    ]
