"""The check of one topic: its log, the offsets of its files, the files themselves, what transactions put into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sparklog.config import TOPIC_SETTINGS, TopicConfig
from sparklog.delta.actions import Metadata
from sparklog.delta.log import DeltaLog
from sparklog.delta.removed import removed_files
from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidConfigurationError,
    NotATopicError,
    SparklogError,
    StoreError,
    UnsupportedVersionError,
)
from sparklog.integrity.files import FilesSeen, check_files, read_files
from sparklog.integrity.findings import Code, Counts, Finding, Subject, few
from sparklog.integrity.history import TopicHistory
from sparklog.integrity.log_listing import EntryReader, LogListing, check_checkpoints, check_listing, list_log_folder
from sparklog.integrity.moved_offsets import ForeignRewritesSeen, read_offsets
from sparklog.integrity.nested import nested_folder
from sparklog.integrity.offsets import check_foreign, check_history_against, check_live
from sparklog.integrity.other_topics import accepted_versions, other_topics_findings, without_accepted
from sparklog.integrity.transactions import TopicTransactions, TransactionsSeen, check_topic_transactions
from sparklog.integrity.unread import unread
from sparklog.integrity.value_stats import LoggedValues
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.table_schema import PARTITION_COLUMNS, columns_of
from sparklog.log.data.value_columns import DATA, SCHEMA_ID
from sparklog.log.live_totals import totals_of
from sparklog.log.state import TopicState, load_state
from sparklog.log.value_schemas import SCHEMA_PROPERTY
from sparklog.storage.each_alone import check_of_one, one_alone

__all__ = ["TopicSeen", "check_topic"]

_PREFIX = "sparklog."
_SAY_WHY = (Code.LOG_GAP, Code.ENTRY_CORRUPT, Code.OBJECT_UNREADABLE, Code.TOPIC_ID_WRONG)
"""Findings by which it is known why a topic can't be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """The result of the check of one topic."""

    findings: tuple[Finding, ...]
    counts: Counts
    topic_id: str | None
    """None where the log can't be understood; empty where the topic was deleted."""


def check_topic(cluster: Cluster, topic: str, seen: TransactionsSeen | None, *, deep: bool) -> TopicSeen:
    """Check a topic as of now.

    Args:
        seen: read before; None: what transactions decided isn't looked at.
    Raises:
        UnknownTopicOrPartitionError, NotATopicError: there is no such topic.
        StoreError.
    """
    log = cluster.topic_log(topic)
    try:
        state = load_state(log)
    except (CorruptLogError, UnsupportedVersionError, NotATopicError, StoreError) as error:
        check_of_one(cluster.store, error)
        listing = list_log_folder(log)
        if isinstance(error, NotATopicError) and not _was_topic(log, listing):
            raise
        return _unreadable(log, listing, topic, error)
    return _Check(cluster, topic, state, seen).run(deep=deep)


class _Check:
    """The check of a topic that could be loaded."""

    def __init__(self, cluster: Cluster, topic: str, state: TopicState, seen: TransactionsSeen | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._state = state
        self._log = state.log
        self._whole = state.require_whole()
        self._seen = seen
        self._met = TopicTransactions(topic, seen) if seen is not None else None
        self._rewrites = ForeignRewritesSeen()
        self._entries_accepted: set[int] = set()

    def run(self, *, deep: bool) -> TopicSeen:
        state, topic, index = self._state, self._topic, self._whole.index
        listing = list_log_folder(self._log).up_to(state.position.version)
        findings = [*check_listing(listing, topic), *_check_config(self._whole.metadata, topic)]
        findings += _check_columns(self._whole.metadata, topic)
        findings += check_checkpoints(self._log, listing, topic, live_file_count=len(index))
        history, reader = self._replay(listing)
        findings += [*reader.findings, *without_accepted(history.findings, self._entries_accepted)]
        is_sound = not reader.findings and not reader.missing
        is_whole = is_sound and listing.oldest == 0
        if is_sound:
            findings += check_history_against(
                history,
                index.by_path,
                {app_id: action.version for app_id, action in state.transactions.items()},
                subject=Subject(topic=topic),
                is_whole=is_whole,
            )
        if not state.head.deleted:
            findings += check_foreign(topic, index, self._log.table)
            if not is_sound:  # what the entries that can't be read did isn't known
                history.known_from.clear()
            offsets_of = partial(read_offsets, self._log)
            findings += check_live(topic, state.head, index, history, state.transactions, offsets_of=offsets_of)
        findings += self._check_totals(history)
        files = check_files(self._log, index, topic)
        findings += [nested_folder(folder, Subject(topic=topic, path=folder)) for folder in files.others]
        findings += [*files.findings, *self._check_unsequenced(), *self._check_orphans(files, history)]
        if self._met is not None:
            findings += check_topic_transactions(
                self._met,
                topic_id="" if state.head.deleted else state.head.topic_id,
                markers={app_id: action.version for app_id, action in state.transactions.items()},
                is_whole=is_whole,
                is_sound=is_sound,
            )
        records = sum(segment.record_count or 0 for segment in index.by_path.values())
        if deep and not state.head.deleted:
            found, records = read_files(
                self._log,
                index,
                topic,
                native_producers=self._native_producers(history),
                spared={one.subject.path for one in files.findings if one.subject.path is not None},
                columns=topic_columns(self._whole.metadata),
                values=LoggedValues.load(self._log, self._state.head),
            )
            findings += [*found, *self._rewrites.read(self._log, topic, index.by_path)]
        counts = Counts(topics=1, entries=history.entry_count, files=len(index), records=records)
        return TopicSeen(
            findings=tuple(few(findings, Subject(topic=topic))),
            counts=counts,
            topic_id="" if state.head.deleted else state.head.topic_id,
        )

    def _replay(self, listing: LogListing) -> tuple[TopicHistory, EntryReader]:
        refused = self._whole.index.rewrites.refused
        history = TopicHistory(topic=self._topic, table=self._log.table, refused=refused)
        reader = EntryReader(self._log, self._topic)
        for entry in reader.read(listing.oldest, listing.newest + 1):
            published = history.apply(entry)
            if published is not None and self._met is not None:
                self._met.meet(published)
            self._rewrites.apply(entry)
            self._entries_accepted |= accepted_versions(entry)
        return history, reader

    def _check_totals(self, history: TopicHistory) -> Iterator[Finding]:
        """The totals that the newest commit carries, against the live files."""
        carried = None if history.own_head is None else history.own_head.totals
        counted = totals_of(self._whole.index.by_path.values())
        if history.own_version == self._state.position.version and carried not in (None, counted):
            yield Finding(
                code=Code.TOTALS_WRONG,
                subject=Subject(topic=self._topic, delta_version=history.own_version),
                seen=f"commitInfo carries {carried}",
                expected=f"{counted}, as the live files state; the next compaction or retention counts anew",
            )

    def _check_unsequenced(self) -> Iterator[Finding]:
        waiting = self._whole.index.unsequenced()
        if waiting:
            yield Finding(
                code=Code.UNSEQUENCED_FILES,
                subject=Subject(topic=self._topic),
                seen=f"{len(waiting)} files of {sum(one.size_bytes for one in waiting)} bytes have no offsets yet",
                expected="whoever meets them gives them offsets; maintenance does",
            )

    def _check_orphans(self, files: FilesSeen, history: TopicHistory) -> Iterator[Finding]:
        table, topic = self._log.table, self._topic
        spared = {f"{table}/{path}" for path in self._seen.files_in_use(topic)} if self._seen else set()
        spared |= {_object_path(table, path) for path, is_live in history.live.items() if not is_live}
        left = [file for file in files.unnamed if file[0] not in spared]
        if left and self._state.checkpoint_version >= 0:  # it remembers those that were removed for a week
            removed = one_alone(self._log.store, lambda: removed_files(self._log))
            if isinstance(removed, Exception):  # why, other findings say: which files were removed isn't known
                return
            paths = {_object_path(table, path) for path in removed.removed_ms}
            left = [file for file in left if file[0] not in paths]
        if left:
            oldest_ms = files.newest_ms - min(modified_ms for _, _, modified_ms in left)
            yield Finding(
                code=Code.ORPHANS,
                subject=Subject(topic=topic),
                seen=f"{len(left)} files of {sum(size for _, size, _ in left)} bytes that the log doesn't name, the "
                f"oldest {oldest_ms / 1000:.0f} s older than the newest file",
                expected="some: of aborted transactions, of writers that died or are at work; a vacuum deletes them "
                "after a week",
            )

    def _native_producers(self, history: TopicHistory) -> set[int]:
        known = {*history.producers, *(app_id for app_id in self._state.transactions if app_id.isdecimal())}
        transactional = self._seen.producer_ids if self._seen is not None else set()
        return {int(app_id) for app_id in known if int(app_id) < 2**63} | transactional


def _unreadable(log: DeltaLog, listing: LogListing, topic: str, error: Exception) -> TopicSeen:
    """The findings that say why a topic can't be loaded, as near to the cause as can be known."""
    findings = [*check_listing(listing, topic)]
    reader = EntryReader(log, topic)
    for _ in reader.read(max(listing.checkpoint_version + 1, listing.oldest), listing.newest + 1):
        pass
    findings += reader.findings
    findings += other_topics_findings(log, listing, topic)
    findings += [
        finding
        for finding in check_checkpoints(log, listing, topic, live_file_count=0)
        if finding.code is not Code.CHECKPOINT_DUE
    ]
    if not any(finding.code in _SAY_WHY for finding in findings):
        findings.append(
            unread(error, Subject(topic=topic), Code.TOPIC_UNREADABLE)
            if isinstance(error, StoreError)
            else Finding(
                code=Code.TOPIC_SHRUNK if _can_grow_back(log, error) else Code.TOPIC_UNREADABLE,
                subject=Subject(topic=topic),
                seen=str(error),
                expected="a topic that can be loaded",
            )
        )
    findings = few(findings, Subject(topic=topic))
    return TopicSeen(findings=tuple(findings), counts=Counts(topics=1, entries=len(listing.entries)), topic_id=None)


def _can_grow_back(log: DeltaLog, error: Exception) -> bool:
    """Does the log still tell what the topic's properties were, so that a repair can put them back?"""
    if not isinstance(error, NotATopicError):
        return False
    try:
        load_state(log, mends_shape=True)
    except SparklogError:
        return False
    return True


def _was_topic(log: DeltaLog, listing: LogListing) -> bool:
    """Did an entry of ours make it a topic? Another's table in the folder of topics is none."""
    for entry in EntryReader(log, "").read(listing.oldest, listing.newest + 1):
        if entry.info is not None and "topic_id" in entry.info:
            return True
    return False


def _check_config(metadata: Metadata, topic: str) -> Iterator[Finding]:
    """Settings that clients pass over, and that jobs refuse to guess."""
    explicit = {}
    wrong = []
    for key, value in metadata.configuration.items():
        name = key.removeprefix(_PREFIX)
        if name == key or name not in TOPIC_SETTINGS:
            continue
        try:
            explicit[name] = TOPIC_SETTINGS[name].parse_value(value)
        except InvalidConfigurationError as error:
            wrong.append(str(error))
    try:
        TopicConfig(explicit).check()
    except InvalidConfigurationError as error:
        wrong.append(str(error))
    for problem in wrong:
        yield Finding(
            code=Code.CONFIG_NOT_UNDERSTOOD,
            subject=Subject(topic=topic),
            seen=problem,
            expected="a value that is allowed; maintenance leaves the topic alone",
        )


def topic_columns(metadata: Metadata) -> tuple[str, ...]:
    """The columns of the topic's table; its properties say whether it is typed."""
    is_typed = any(name.startswith(SCHEMA_PROPERTY) for name in metadata.configuration)
    return (*PARTITION_COLUMNS, *DATA_SCHEMA.names, *((DATA, SCHEMA_ID) if is_typed else ()))


def _check_columns(metadata: Metadata, topic: str) -> Iterator[Finding]:
    """Columns that another engine added to the table, or took away."""
    ours = topic_columns(metadata)
    try:
        found = columns_of(metadata.schema_string)
    except ValueError as error:
        yield Finding(
            code=Code.COLUMNS_MISSING, subject=Subject(topic=topic), seen=str(error), expected="the columns of a topic"
        )
        return
    unknown = [f"{name} ({kind})" for name, kind in found.items() if name not in ours]
    if unknown:
        yield Finding(
            code=Code.COLUMNS_UNKNOWN,
            subject=Subject(topic=topic),
            seen=f"the table has columns that a topic doesn't have: {', '.join(unknown)}",
            expected=f"{', '.join(ours)}: no consumer sees what another column holds; if one is misspelt, write its "
            "records again under the right name",
        )
    missing = [name for name in ours if name not in found]
    if missing:
        yield Finding(
            code=Code.COLUMNS_MISSING,
            subject=Subject(topic=topic),
            seen=f"the table lacks columns of a topic: {', '.join(missing)}",
            expected=f"{', '.join(ours)}: other engines don't see what producers write there, and maintenance rewrites "
            "no file; ALTER TABLE can add columns",
        )


def _object_path(table: str, path: str) -> str:
    try:
        return object_path(table, path)
    except InvalidArgumentError:
        return path
