"""The state of a topic's log at one version: settings, log starts and ends. Pure; it changes only by applying the next
entry.

Every commit of ours repeats it whole in ``commitInfo``, so that a producer opens a topic from the newest commit alone
(rules L5, opening; L6, start and end).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparklog.config import TOPIC_SETTINGS, TopicConfig
from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Entry, Metadata, RemoveFile, SetTransaction
from sparklog.delta.properties import DEFAULT_DELETED_FILE_RETENTION_MS, deleted_file_retention_ms
from sparklog.errors import (
    CorruptLogError,
    InvalidConfigurationError,
    NotATopicError,
    TopicShrunkError,
    UnsupportedVersionError,
)
from sparklog.log.data.segments import Segment, segment_of_add
from sparklog.log.data.table_schema import SKIPPING_COLUMNS
from sparklog.log.data.value_columns import Leaf, leaves_of, skipping_columns
from sparklog.log.head_fields import check_offsets, count_of
from sparklog.log.live_totals import TOTALS_INFO, LiveTotals, totals_of_info
from sparklog.log.shape import (
    DELETED_PROPERTY,
    FORMAT_PROPERTY,
    ID_PROPERTY,
    MAX_PARTITIONS,
    PARTITIONS_PROPERTY,
    REPAIR,
    Shape,
    check_shape,
    fingerprints,
)
from sparklog.log.value_schemas import SCHEMA_PROPERTY, SOURCE_PROPERTY, TopicSchemas

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMAT_VERSION",
    "TopicHead",
    "cleaner_app_id",
    "end_app_id",
    "head_after_entry",
    "head_of_info",
    "head_of_table",
    "is_of_cleaner",
    "is_unsequenced",
    "offset_actions",
    "raise_ends",
    "read_properties",
    "shape_of",
    "start_app_id",
]

FORMAT_VERSION = 1
"""The version of the topic format, in the table property ``sparklog.format.version``: of untyped topics."""
TYPED_FORMAT_VERSION = 2
"""The version of typed topics. Who knows 1 alone would take their records for tombstones (decision 0027)."""

SCHEMA_INFO = "value_schema"
"""In ``commitInfo.sparklog`` of a typed topic: the id of the newest schema of its values."""
_CLEANER = "sparklog.cleaner."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHead:
    """A topic as of one delta_version."""

    delta_version: int
    topic_id: str
    """Random; a topic that was deleted and created again has another one."""
    deleted: bool
    config: TopicConfig
    log_start_offsets: tuple[int, ...]
    """Per partition: the first offset that may be read (inclusive)."""
    log_end_offsets: tuple[int, ...]
    """Per partition: the next offset to be given (exclusive)."""
    live_file_count: int
    """About how many files are live; only decides when a checkpoint is due."""
    unsequenced_count: int
    """About how many files are written but not yet in the log."""
    deleted_file_retention_ms: int = DEFAULT_DELETED_FILE_RETENTION_MS
    """The table's ``delta.deletedFileRetentionDuration``: how long vacuums spare what no log names."""

    value_schema_id: int = 0
    """The id of the newest schema of a typed topic's values; 0: the topic is untyped."""
    schemas: TopicSchemas | None = field(default=None, compare=False)
    """All schemas; None for an untyped topic, and where only ``commitInfo`` is known."""
    totals: LiveTotals | None = field(default=None, compare=False)
    """The totals of the live files, as commits carry them on (rule L16, totals); None: no unbroken chain of them does.
    :func:`~sparklog.log.commit.commit` sets it, whatever a decision says."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return len(self.log_end_offsets)

    @property
    def values(self) -> pa.StructType | None:
        """The type of the table's column ``data``; None for an untyped topic."""
        return None if self.schemas is None else self.schemas.physical

    def moved(
        self,
        *,
        delta_version: int,
        log_end_offsets: tuple[int, ...],
        live_file_count: int,
        totals: LiveTotals | None,
    ) -> TopicHead:
        """The head with what each append changes. ``dataclasses.replace`` takes twice as long."""
        return TopicHead(
            delta_version=delta_version,
            topic_id=self.topic_id,
            deleted=self.deleted,
            config=self.config,
            log_start_offsets=self.log_start_offsets,
            log_end_offsets=log_end_offsets,
            live_file_count=live_file_count,
            unsequenced_count=self.unsequenced_count,
            deleted_file_retention_ms=self.deleted_file_retention_ms,
            value_schema_id=self.value_schema_id,
            schemas=self.schemas,
            totals=totals,
        )

    def with_schemas(self, schemas: TopicSchemas) -> TopicHead:
        """The head with these schemas of its values."""
        return replace(self, schemas=schemas, value_schema_id=schemas.newest_id)

    def to_info(self) -> dict[str, Any]:
        """The head as it is written into ``commitInfo.sparklog``."""
        retention_ms = self.deleted_file_retention_ms
        is_usual = retention_ms == DEFAULT_DELETED_FILE_RETENTION_MS
        return {
            "topic_id": self.topic_id,
            "deleted": self.deleted,
            "config": dict(self.config.explicit),
            "log_start_offsets": list(self.log_start_offsets),
            "log_end_offsets": list(self.log_end_offsets),
            "live_files": self.live_file_count,
            "unsequenced": self.unsequenced_count,
            **({} if is_usual else {"deleted_file_retention_ms": retention_ms}),
            **({"format": TYPED_FORMAT_VERSION, SCHEMA_INFO: self.value_schema_id} if self.value_schema_id else {}),
            **({} if self.totals is None else {TOTALS_INFO: self.totals.to_info()}),
        }

    def to_properties(self) -> dict[str, str]:
        """The topic's table properties."""
        return {
            FORMAT_PROPERTY: str(TYPED_FORMAT_VERSION if self.value_schema_id else FORMAT_VERSION),
            ID_PROPERTY: self.topic_id,
            PARTITIONS_PROPERTY: str(self.partition_count),
            DELETED_PROPERTY: "true" if self.deleted else "false",
            **self.config.to_properties(),
            **(self.schemas.to_properties() if self.schemas is not None else {}),
        }

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of a typed topic's values that files have statistics of; none for an untyped one."""
        return () if self.schemas is None else self.schemas.leaves(self.config)

    @property
    def typed_leaves(self) -> tuple[tuple[Leaf, pa.DataType], ...]:
        """The same leaves, with their types."""
        if self.values is None:
            return ()
        kinds = dict(leaves_of(self.values))
        return tuple((leaf, kinds[leaf]) for leaf in self.leaves if leaf in kinds)

    def skipping_columns(self) -> str:
        """The table property ``delta.dataSkippingStatsColumns``."""
        return SKIPPING_COLUMNS + skipping_columns(self.leaves)


def is_topic_property(name: str) -> bool:
    """Is a table property one of those that :meth:`TopicHead.to_properties` writes?"""
    return (
        name in (FORMAT_PROPERTY, ID_PROPERTY, PARTITIONS_PROPERTY, DELETED_PROPERTY)
        or name.startswith((SCHEMA_PROPERTY, SOURCE_PROPERTY))
        or (name.removeprefix("sparklog.") in TOPIC_SETTINGS and name.startswith("sparklog."))
    )


def cleaner_app_id(name: str, topic_id: str, partition: int) -> str:
    """The ``txn`` appId of one of the numbers by which a topic remembers a partition's compaction."""
    return f"{_CLEANER}{name}.{topic_id}.{partition}"


def is_of_cleaner(app_id: str) -> bool:
    """Is a ``txn`` action one that :func:`cleaner_app_id` names, of whatever topic?"""
    return app_id.startswith(_CLEANER)


def end_app_id(partition: int) -> str:
    """The ``txn`` appId that keeps a partition's log end offset."""
    return f"sparklog.end.{partition}"


def start_app_id(partition: int) -> str:
    """The ``txn`` appId that keeps a partition's log start offset."""
    return f"sparklog.start.{partition}"


def offset_actions(
    before: TopicHead | None, after: TopicHead, unrecorded_ends: Collection[int] = ()
) -> list[SetTransaction]:
    """The ``txn`` actions that record every log start and end which ``after`` moves (rule L6, start and end).

    A partition that the topic lost when it was created again is recorded as empty, for whoever lets it grow again.

    Args:
        unrecorded_ends: partitions whose ends a foreign file raised: no ``txn`` states these ends yet.
    """
    moved: list[SetTransaction] = []
    for app_id, old, new in (
        (start_app_id, before.log_start_offsets if before else (), after.log_start_offsets),
        (end_app_id, before.log_end_offsets if before else (), after.log_end_offsets),
    ):
        if old == new and not unrecorded_ends:
            continue
        moved += [
            SetTransaction(app_id=app_id(partition), version=offset, last_updated_ms=FAR_FUTURE_MS)
            for partition, offset in enumerate([*new, *(0 for _ in old[len(new) :])])
            if partition >= len(old)
            or old[partition] != offset
            or (app_id is end_app_id and partition in unrecorded_ends)
        ]
    return moved


def head_of_info(table: str, version: int, info: Mapping[str, Any], *, before: TopicHead | None = None) -> TopicHead:
    """The head that a commit of ours states. Raises ``CorruptLogError``.

    Args:
        before: one whose settings are kept where they are the same.
    """
    try:
        config = info["config"]
        starts, ends = tuple(info["log_start_offsets"]), tuple(info["log_end_offsets"])
        check_offsets(starts, ends)
        head = TopicHead(
            delta_version=version,
            topic_id=str(info["topic_id"]),
            deleted=bool(info["deleted"]),
            config=before.config if before is not None and before.config.explicit == config else TopicConfig(config),
            log_start_offsets=starts,
            log_end_offsets=ends,
            live_file_count=count_of(info, "live_files"),
            unsequenced_count=count_of(info, "unsequenced"),
            deleted_file_retention_ms=count_of(info, "deleted_file_retention_ms", DEFAULT_DELETED_FILE_RETENTION_MS),
            value_schema_id=count_of(info, SCHEMA_INFO, 0),
            totals=totals_of_info(info.get(TOTALS_INFO)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise CorruptLogError(f"{table}, version {version}: commitInfo.sparklog lacks or garbles {error}") from error
    return head


def head_of_table(
    table: str,
    version: int,
    metadata: Metadata,
    transactions: Mapping[str, SetTransaction],
    *,
    live_end_offsets: Mapping[int, int],
    live_file_count: int,
    unsequenced_count: int,
) -> TopicHead:
    """The head as a loaded table gives it: settings from its properties, starts and ends from its ``txn`` actions.

    Args:
        live_end_offsets: one more than the greatest live offset, by partition; only raises an end, never lowers it.
    Raises:
        NotATopicError, UnsupportedVersionError.
    """
    topic_id, partition_count, deleted, config = read_properties(table, metadata)
    schemas = TopicSchemas.from_properties(table, metadata.configuration)

    def offset(app_id: str) -> int:
        found = transactions.get(app_id)
        return found.version if found else 0

    return TopicHead(
        delta_version=version,
        topic_id=topic_id,
        deleted=deleted,
        config=config,
        log_start_offsets=tuple(offset(start_app_id(partition)) for partition in range(partition_count)),
        log_end_offsets=tuple(
            max(offset(end_app_id(partition)), live_end_offsets.get(partition, 0))
            for partition in range(partition_count)
        ),
        live_file_count=live_file_count,
        unsequenced_count=unsequenced_count,
        deleted_file_retention_ms=_deleted_file_retention_ms(table, metadata),
        value_schema_id=0 if schemas is None else schemas.newest_id,
        schemas=schemas,
    )


def head_after_entry(table: str, head: TopicHead, entry: Entry, *, refused: Container[str] = ()) -> TopicHead:
    """The head after ``entry``: what it states itself if it is ours, else what its actions change.

    A foreign engine may change settings, rewrite or remove files and write files without a base offset; whatever it
    does, starts and ends of a topic never decrease (rule L6, start and end).

    Args:
        refused: paths of files that raise no end (rule F6, moved records).
    """
    if entry.info is not None:
        return _with_known_schemas(table, head_of_info(table, entry.version, entry.info, before=head), head, entry)
    head = replace(head, delta_version=entry.version)
    for metadata in (action for action in entry.actions if isinstance(action, Metadata)):
        head = _apply_metadata(table, head, metadata)
    ends, starts = list(head.log_end_offsets), list(head.log_start_offsets)
    for action in entry.actions:
        if isinstance(action, SetTransaction):
            _raise_offset(action, "sparklog.end.", ends)
            _raise_offset(action, "sparklog.start.", starts)
    added = [action for action in entry.actions if isinstance(action, AddFile)]
    removed_count = sum(isinstance(action, RemoveFile) for action in entry.actions)
    head = replace(
        head,
        log_start_offsets=tuple(starts),
        log_end_offsets=tuple(ends),
        live_file_count=max(0, head.live_file_count + len(added) - removed_count),
        unsequenced_count=head.unsequenced_count + sum(is_unsequenced(action) for action in added),
        totals=None if added or removed_count else head.totals,
    )
    counted = (action for action in added if action.path not in refused)
    return raise_ends(head, [segment_of_add(action, entry.version, table=table) for action in counted])


def _with_known_schemas(table: str, after: TopicHead, before: TopicHead, entry: Entry) -> TopicHead:
    """The head of an entry of ours with the schemas of its values: those that were known, or of its metadata."""
    if not after.value_schema_id:
        return after
    metadata = [action for action in entry.actions if isinstance(action, Metadata)]
    if not metadata:
        is_known = before.topic_id == after.topic_id and before.value_schema_id == after.value_schema_id
        return replace(after, schemas=before.schemas) if is_known else after
    return replace(after, schemas=TopicSchemas.from_properties(table, metadata[-1].configuration))


def raise_ends(head: TopicHead, segments: Iterable[Segment]) -> TopicHead:
    """The head whose log ends lie beyond these segments; none is lowered."""
    ends = list(head.log_end_offsets)
    for segment in segments:
        partition = segment.partition
        if segment.base_offset is not None and partition is not None and 0 <= partition < len(ends):
            ends[partition] = max(ends[partition], segment.last_offset + 1)
    return replace(head, log_end_offsets=tuple(ends))


def is_unsequenced(add: AddFile) -> bool:
    """Is the file that it adds written, but not yet in the log?"""
    return add.partition_values.get("base_offset") in (None, "")


def _raise_offset(action: SetTransaction, prefix: str, offsets: list[int]) -> None:
    number = action.app_id.removeprefix(prefix)
    if action.app_id != number and number.isdecimal() and int(number) < len(offsets):
        offsets[int(number)] = max(offsets[int(number)], action.version)


def _apply_metadata(table: str, head: TopicHead, metadata: Metadata) -> TopicHead:
    topic_id, partition_count, deleted, config = read_properties(table, metadata, before=head.config)
    schemas = TopicSchemas.from_properties(table, metadata.configuration)
    where = f"{table}, version {head.delta_version}"
    check_shape(where, shape_of(head), topic_id, partition_count, schemas, by="the version before has it")
    new = (0,) * (partition_count - head.partition_count)
    return replace(
        head,
        value_schema_id=0 if schemas is None else schemas.newest_id,
        schemas=schemas,
        deleted=deleted,
        config=config,
        log_start_offsets=head.log_start_offsets + new,
        log_end_offsets=head.log_end_offsets + new,
        deleted_file_retention_ms=_deleted_file_retention_ms(table, metadata),
    )


def shape_of(head: TopicHead) -> Shape:
    """The shape that a topic has, and keeps."""
    return Shape(
        topic_id=head.topic_id,
        partition_count=head.partition_count,
        schemas=fingerprints(head.schemas),
        schema_count=head.value_schema_id,
    )


def _deleted_file_retention_ms(table: str, metadata: Metadata) -> int:
    """The retention of the table's deleted files; the default where the property can't be understood: no append fails
    for it, as whoever deletes files reports the error."""
    try:
        return deleted_file_retention_ms(table, metadata)
    except InvalidConfigurationError:
        return DEFAULT_DELETED_FILE_RETENTION_MS


def read_properties(
    table: str, metadata: Metadata, *, before: TopicConfig | None = None
) -> tuple[str, int, bool, TopicConfig]:
    properties = metadata.configuration
    if ID_PROPERTY not in properties or FORMAT_PROPERTY not in properties:
        raise NotATopicError(f"{table} is a Delta table but no sparklog topic: it has no property {ID_PROPERTY}")
    try:
        format_version = int(properties[FORMAT_PROPERTY])
        partition_count = int(properties[PARTITIONS_PROPERTY])
    except (KeyError, ValueError) as error:
        raise TopicShrunkError(
            f"{table}: properties {FORMAT_PROPERTY} and {PARTITIONS_PROPERTY} must be whole numbers ({error}). "
            f"ALTER TABLE … SET TBLPROPERTIES with what they were, or {REPAIR}, makes the topic usable again"
        ) from error
    if partition_count > MAX_PARTITIONS:
        raise TopicShrunkError(
            f"{table}: property {PARTITIONS_PROPERTY} is {partition_count}, expected {MAX_PARTITIONS} at most. "
            f"ALTER TABLE … SET TBLPROPERTIES with the number that it was, or {REPAIR}, makes the topic usable again"
        )
    if format_version > TYPED_FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"{table} has topic format {format_version}; this sparklog knows up to {TYPED_FORMAT_VERSION}: upgrade it"
        )
    if format_version < TYPED_FORMAT_VERSION and any(name.startswith(SCHEMA_PROPERTY) for name in properties):
        raise TopicShrunkError(
            f"{table}: property {FORMAT_PROPERTY} is {format_version} beside {SCHEMA_PROPERTY}*, expected "
            f"{TYPED_FORMAT_VERSION}. ALTER TABLE … SET TBLPROPERTIES ('{FORMAT_PROPERTY}'='{TYPED_FORMAT_VERSION}'), "
            f"or {REPAIR}, makes the topic usable again"
        )
    deleted = properties.get(DELETED_PROPERTY) == "true"
    return properties[ID_PROPERTY], partition_count, deleted, TopicConfig.from_properties(properties, before=before)
