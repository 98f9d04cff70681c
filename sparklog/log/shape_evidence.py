"""The shape that a topic had, by what a loaded table still tells of it, whatever its properties say now. Pure.

Properties are set by whoever can write to the table, and ``RESTORE`` sets all of them back. What stays is: ``txn``
actions (log starts and ends of each partition, the numbers of compaction, and those of :func:`shape_actions` and
:func:`replaced_actions`), and the entries behind the checkpoint, of which ours state the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sparklog.delta.actions import FAR_FUTURE_MS, Entry, Metadata, SetTransaction
from sparklog.delta.snapshot import Snapshot
from sparklog.errors import NotATopicError, SparklogError
from sparklog.log.head import SCHEMA_INFO, TopicHead, is_of_cleaner, is_topic_property, read_properties
from sparklog.log.shape import (
    FORMAT_PROPERTY,
    ID_PROPERTY,
    MAX_PARTITIONS,
    PARTITIONS_PROPERTY,
    Shape,
    check_shape,
    fingerprints,
)
from sparklog.log.value_schemas import SCHEMA_PROPERTY, SOURCE_PROPERTY, TopicSchemas

__all__ = ["ShapeEvidence", "replaced_actions", "shape_actions", "shape_evidence", "shape_metadata"]

_SHAPE, _CLEANER = "sparklog.shape.", "sparklog.cleaner."
_REPLACED = "sparklog.replaced."
_PARTITIONS, _SCHEMA = "partitions", "schema"
_MOST_DIGITS = 20
_OFFSETS = ("sparklog.start.", "sparklog.end.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeEvidence:
    """The shape that a topic had, by what survives a change of its properties."""

    shape: Shape
    metadata: Metadata | None
    """The newest metadata that agreed with all that was known; None where the log has none (any more)."""
    version: int
    """The newest version that had such metadata; -1: none is known."""

    def check(self, table: str, version: int, metadata: Metadata) -> None:
        """Raise ``NotATopicError`` where a table's properties say less than the topic had; names the way back."""
        topic_id, partition_count, _, _ = read_properties(table, metadata)
        schemas = TopicSchemas.from_properties(table, metadata.configuration)
        by = "its txn actions and the entries of its log tell"
        check_shape(f"{table}, version {version}", self.shape, topic_id, partition_count, schemas, by=by)

    def mended(self, table: str, version: int, metadata: Metadata) -> Metadata:
        """A table's metadata with a topic's properties as they have to be; the same where they are. Columns are left.

        Settings stay as they are, but for those of another topic.

        Raises:
            NotATopicError: nothing tells (any more) what the properties were.
            UnsupportedVersionError: a newer sparklog wrote them.
        """
        now, own = dict(metadata.configuration), {} if self.metadata is None else _own(self.metadata)
        others = {name: value for name, value in now.items() if not is_topic_property(name)}
        unchanged = {name: value for name, value in now.items() if not _is_of_schemas(name)}
        schemas = {name: value for name, value in own.items() if _is_of_schemas(name)}
        count, problem = self.shape.partition_count, ""
        for properties in (now, _grown(now, count), _grown(unchanged | schemas, count), _grown(others | own, count)):
            mended = replace(metadata, configuration=properties)
            try:
                self.check(table, version, mended)
            except NotATopicError as error:
                problem = problem or str(error)
            else:
                return mended
        raise NotATopicError(f"{problem}. But nothing in its log tells (any more) what these properties were")


def shape_evidence(snapshot: Snapshot) -> ShapeEvidence:
    """Collect what a topic's table tells of the topic's shape, beside its newest metadata."""
    known = _Known()
    if snapshot.checkpoint_metadata is not None:
        known.agree(snapshot.checkpoint_metadata, snapshot.checkpoint_version)
    for entry in snapshot.tail:
        known.apply(entry)
    kept = [txn for txn in snapshot.transactions.values() if txn.last_updated_ms == FAR_FUTURE_MS]
    topic_id = known.topic_id
    if not known.is_stated:
        topic_id = _named_id(snapshot, kept) or topic_id
    if topic_id != known.topic_id:  # nothing that is known of another topic counts
        known = _Known()
    count, schemas = known.partition_count, dict(known.schemas)
    for name, number, version in _numbers(kept, topic_id):
        if name == _PARTITIONS:
            count = max(count, version)
        elif name == _SCHEMA:
            schemas[number] = version
    return ShapeEvidence(
        shape=Shape(
            topic_id=topic_id,
            partition_count=max(count, _recorded_count(kept)),
            schemas=schemas,
            schema_count=max([known.schema_count, *schemas]),
        ),
        metadata=known.metadata,
        version=known.version,
    )


def shape_metadata(table: str, snapshot: Snapshot, *, mends: bool) -> Metadata:
    """The metadata by which a topic is opened: that of the table, if it says no less than the topic had.

    Args:
        mends: put right what went back, in place of the error.
    Raises:
        NotATopicError, UnsupportedVersionError.
    """
    evidence, version = shape_evidence(snapshot), snapshot.position.version
    if mends:
        return evidence.mended(table, version, snapshot.metadata)
    evidence.check(table, version, snapshot.metadata)
    return snapshot.metadata


def shape_actions(head: TopicHead, transactions: Mapping[str, SetTransaction]) -> list[SetTransaction]:
    """The ``txn`` actions by which a table remembers a topic's shape, those that it doesn't have yet.

    Args:
        transactions: all of the table's, by ``app_id``.
    """
    wanted = {f"{_SHAPE}{_PARTITIONS}.{head.topic_id}.0": head.partition_count}
    for number, one in fingerprints(head.schemas).items():
        wanted[f"{_SHAPE}{_SCHEMA}.{head.topic_id}.{number}"] = one
    return [
        SetTransaction(app_id=app_id, version=version, last_updated_ms=FAR_FUTURE_MS)
        for app_id, version in wanted.items()
        if (found := transactions.get(app_id)) is None or found.version != version
    ]


def replaced_actions(
    before: TopicHead, transactions: Mapping[str, SetTransaction], *, now_ms: int
) -> list[SetTransaction]:
    """The ``txn`` actions of a commit that creates a topic again: the numbers that were kept of earlier topics of the
    name expire, since no id comes back, and for as long as ``RESTORE`` may bring one back its id is known as replaced.
    """
    until_ms = min(now_ms + before.config.integer("log.retention.ms"), FAR_FUTURE_MS - 1)
    return [
        SetTransaction(app_id=_REPLACED + before.topic_id, version=before.delta_version, last_updated_ms=until_ms),
        *(
            replace(txn, last_updated_ms=now_ms)
            for txn in transactions.values()
            if txn.last_updated_ms == FAR_FUTURE_MS and (is_of_cleaner(txn.app_id) or txn.app_id.startswith(_SHAPE))
        ),
    ]


@dataclass(slots=True)
class _Known:
    """The shape that a topic has by its metadata and entries, one after the other."""

    topic_id: str | None = None
    is_stated: bool = False
    """Has an entry of ours stated the id?"""
    partition_count: int = 0
    schemas: dict[int, int] = field(default_factory=dict)
    schema_count: int = 0
    metadata: Metadata | None = None
    version: int = -1
    _agrees: bool = False
    """Did the newest metadata agree with what was known before?"""

    def apply(self, entry: Entry) -> None:
        """Go on by one entry. One of ours that has metadata may begin another topic; any other only lets it grow."""
        info = entry.info or {}
        for metadata in [action for action in entry.actions if isinstance(action, Metadata)][-1:]:
            if info.get("topic_id", self.topic_id) != self.topic_id:
                self._forget()
            self.agree(metadata, entry.version)
        if isinstance(info.get("topic_id"), str) and self.topic_id in (None, info["topic_id"]):
            self.topic_id, self.is_stated = info["topic_id"], True
            ends, newest = info.get("log_end_offsets"), info.get(SCHEMA_INFO)
            self.partition_count = max(self.partition_count, len(ends) if isinstance(ends, list) else 0)
            self.schema_count = max(self.schema_count, newest if isinstance(newest, int) else 0)
        if self._agrees:
            self.version = entry.version

    def agree(self, metadata: Metadata, version: int) -> None:
        """Take a table's metadata for what the topic has, if that is no less than what it had."""
        shape = Shape(
            topic_id=self.topic_id,
            partition_count=self.partition_count,
            schemas=self.schemas,
            schema_count=self.schema_count,
        )
        try:
            topic_id, partition_count, _, _ = read_properties("", metadata)
            schemas = TopicSchemas.from_properties("", metadata.configuration)
            check_shape("", shape, topic_id, partition_count, schemas, by="")
        except SparklogError:
            self._agrees = False
            return
        self.topic_id, self.partition_count = topic_id, partition_count
        self.schemas = fingerprints(schemas)
        self.schema_count = len(self.schemas)
        self.metadata, self.version, self._agrees = metadata, version, True

    def _forget(self) -> None:
        self.topic_id, self.is_stated, self.partition_count = None, False, 0
        self.schemas, self.schema_count = {}, 0
        self.metadata, self.version, self._agrees = None, -1, False


def _numbers(kept: Iterable[SetTransaction], topic_id: str | None) -> Iterator[tuple[str, int, int]]:
    """Name, number and value of each action by which a topic's shape is remembered."""
    for txn in kept:
        name, _, rest = txn.app_id.removeprefix(_SHAPE).partition(".")
        found, _, number = rest.rpartition(".")
        if txn.app_id.startswith(_SHAPE) and number.isdecimal() and found == topic_id:
            yield name, int(number), txn.version


def _named_id(snapshot: Snapshot, kept: Iterable[SetTransaction]) -> str | None:
    """The id that the table's topic has by its ``txn`` actions, where that isn't the one in the properties; None: they
    name none, that one, or several. An id that was replaced never comes back; empty: it isn't known by which."""
    now = snapshot.metadata.configuration.get(ID_PROPERTY)

    def named_by(prefix: str) -> set[str]:
        ids = {txn.app_id.split(".")[3] for txn in kept if txn.app_id.startswith(prefix) and txn.app_id.count(".") == 4}
        return {one for one in ids if _REPLACED + one not in snapshot.transactions}

    ids = named_by(_CLEANER) | named_by(_SHAPE)
    if _REPLACED + str(now) in snapshot.transactions:
        return ids.pop() if len(ids) == 1 else ""
    # An older version that created the topic again let go of the cleaner's numbers, but not of a shape.
    ids = set() if now in ids else named_by(_CLEANER)
    return ids.pop() if len(ids) == 1 else None


def _recorded_count(kept: Iterable[SetTransaction]) -> int:
    """One more than the greatest partition that has had a record: one that a topic lost by being created again is
    recorded as empty."""
    numbers = [
        txn.app_id.removeprefix(prefix)
        for txn in kept
        for prefix in _OFFSETS
        if txn.version > 0 and txn.app_id.startswith(prefix)
    ]
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def _own(metadata: Metadata) -> dict[str, str]:
    return {name: value for name, value in metadata.configuration.items() if is_topic_property(name)}


def _is_of_schemas(name: str) -> bool:
    return name.startswith((SCHEMA_PROPERTY, SOURCE_PROPERTY))


def _grown(properties: Mapping[str, str], partition_count: int) -> dict[str, str]:
    """Properties with at least so many partitions, and the format that they ask for."""
    now = properties.get(PARTITIONS_PROPERTY, "")
    stated = int(now) if now.isdecimal() and len(now) <= _MOST_DIGITS else 0
    count = max(stated if stated <= MAX_PARTITIONS else 0, partition_count)
    is_typed = any(name.startswith(SCHEMA_PROPERTY) for name in properties)
    format_version = "2" if is_typed else properties.get(FORMAT_PROPERTY, "1")
    return {**properties, PARTITIONS_PROPERTY: str(count), FORMAT_PROPERTY: format_version}
