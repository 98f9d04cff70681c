"""The results of a check: findings by code, how severe each is, and how much was looked at. Frozen, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

__all__ = ["SEVERITIES", "Code", "Counts", "Finding", "Report", "Severity", "Subject", "few"]

_MOST_REPORTED = 20


class Severity(str, Enum):
    """Severities of findings."""

    ERROR = "error"
    """Something is lost, doubled or can't be read, or a rule is broken that keeps it from being so."""
    WARNING = "warning"
    """Nothing is lost, but somebody should look, or finish what was left."""
    INFO = "info"
    """A fact that is no fault."""


class Code(str, Enum):
    """Codes of the findings. The names stay as they are; docs/integrity.md says what each means and what to do."""

    # Anything.
    OBJECT_UNREADABLE = "object-unreadable"
    # Topics: their logs.
    TOPIC_UNREADABLE = "topic-unreadable"
    TOPIC_SHRUNK = "topic-shrunk"
    LOG_GAP = "log-gap"
    LOG_GAP_BELOW_CHECKPOINT = "log-gap-below-checkpoint"
    ENTRY_CORRUPT = "entry-corrupt"
    TOPIC_ID_WRONG = "topic-id-wrong"
    TOPIC_ID_ACCEPTED = "topic-id-accepted"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    CHECKPOINT_DIFFERS = "checkpoint-differs"
    CHECKPOINT_DUE = "checkpoint-due"
    HINT_WRONG = "hint-wrong"
    CONFIG_NOT_UNDERSTOOD = "config-not-understood"
    COLUMNS_UNKNOWN = "columns-unknown"
    COLUMNS_MISSING = "columns-missing"
    OFFSET_WENT_BACK = "offset-went-back"
    OFFSETS_DISAGREE = "offsets-disagree"
    APPEND_WRONG = "append-wrong"
    REWRITE_LOST_RECORDS = "rewrite-lost-records"
    PRODUCER_COUNTER = "producer-counter"
    ANNOUNCED_NUMBER = "announced-number"
    TOTALS_WRONG = "totals-wrong"
    SEQUENCE_REPEATED = "sequence-repeated"
    # Topics: their offsets and files.
    PARTITION_UNKNOWN = "partition-unknown"
    FOREIGN_FILE_REFUSED = "foreign-file-refused"
    PARTITION_STOPPED = "partition-stopped"
    OFFSETS_MOVED = "offsets-moved"
    OFFSETS_OVERLAP = "offsets-overlap"
    OFFSETS_MISSING = "offsets-missing"
    OFFSETS_MISSING_LONG_AGO = "offsets-missing-long-ago"
    OFFSETS_ABOVE_END = "offsets-above-end"
    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    FILE_OUTSIDE = "file-outside"
    FILE_CORRUPT = "file-corrupt"
    STATS_WRONG = "stats-wrong"
    COLUMN_VALUES = "column-values"
    UNSEQUENCED_FILES = "unsequenced-files"
    LOG_BEGINS_LATE = "log-begins-late"
    HINT_MISSING = "hint-missing"
    NESTED_FOLDER = "nested-folder"
    ORPHANS = "orphans"
    # Groups.
    GROUP_UNREADABLE = "group-unreadable"
    GENERATION_GAP = "generation-gap"
    GENERATIONS_BEHIND = "generations-behind"
    MEMBER_CORRUPT = "member-corrupt"
    MEMBER_WITHOUT_GROUP = "member-without-group"
    COMMITTED_ABOVE_END = "committed-above-end"
    COMMITTED_BELOW_START = "committed-below-start"
    COMMITTED_UNKNOWN_PARTITION = "committed-unknown-partition"
    COMMITTED_TOPIC_GONE = "committed-topic-gone"
    PENDING_UNKNOWN = "pending-unknown"
    PENDING_COMMITTED = "pending-committed"
    PENDING_ABORTED = "pending-aborted"
    # Transactions.
    TRANSACTION_UNREADABLE = "transaction-unreadable"
    TRANSACTION_LOG_GAP = "transaction-log-gap"
    TRANSACTION_STEP = "transaction-step"
    TRANSACTION_UNFINISHED = "transaction-unfinished"
    TRANSACTION_TIMED_OUT = "transaction-timed-out"
    TRANSACTION_TOPIC_GONE = "transaction-topic-gone"
    TRANSACTION_NOT_VISIBLE = "transaction-not-visible"
    TRANSACTION_DIFFERS = "transaction-differs"
    TRANSACTION_NOT_COMMITTED = "transaction-not-committed"


_WARNINGS = frozenset(
    {
        Code.LOG_GAP_BELOW_CHECKPOINT,
        Code.TOPIC_ID_ACCEPTED,
        Code.CHECKPOINT_CORRUPT,
        Code.HINT_WRONG,
        Code.CONFIG_NOT_UNDERSTOOD,
        Code.COLUMNS_UNKNOWN,
        Code.COLUMN_VALUES,
        Code.TOTALS_WRONG,
        Code.MEMBER_CORRUPT,
        Code.COMMITTED_BELOW_START,
        Code.PENDING_ABORTED,
        Code.TRANSACTION_UNFINISHED,
        Code.TRANSACTION_TIMED_OUT,
        Code.NESTED_FOLDER,
    }
)
_INFOS = frozenset(
    {
        Code.CHECKPOINT_DUE,
        Code.OFFSETS_MISSING_LONG_AGO,
        Code.LOG_BEGINS_LATE,
        Code.HINT_MISSING,
        Code.UNSEQUENCED_FILES,
        Code.ORPHANS,
        Code.MEMBER_WITHOUT_GROUP,
        Code.COMMITTED_TOPIC_GONE,
        Code.TRANSACTION_TOPIC_GONE,
    }
)

SEVERITIES: Mapping[Code, Severity] = MappingProxyType(
    {
        code: Severity.WARNING if code in _WARNINGS else Severity.INFO if code in _INFOS else Severity.ERROR
        for code in Code
    }
)
"""The severity of each finding: always the same of one code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a finding; a field that doesn't apply is None."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    delta_version: int | None = None
    """The version of the topic's log."""
    path: str | None = None
    """In the store."""

    def __str__(self) -> str:
        topic = self.topic
        if topic is not None and self.partition is not None:
            topic = f"{topic}-{self.partition}"
        named = (
            ("topic", topic),
            ("group", self.group),
            ("transactional id", self.transactional_id),
            ("version", self.delta_version),
        )
        parts = [f"{name} {value}" for name, value in named if value is not None]
        if self.path is not None:
            parts.append(self.path)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding of a check."""

    code: Code
    subject: Subject
    seen: str
    expected: str
    is_unread: bool = False
    """Couldn't its subject be read, so that it may be whole, and wasn't checked?"""

    @property
    def severity(self) -> Severity:
        """The severity of its code (:data:`SEVERITIES`)."""
        return SEVERITIES[self.code]

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.code.value}: {self.subject}: {self.seen}; expected {self.expected}"


def few(findings: Iterable[Finding], subject: Subject) -> list[Finding]:
    """Shorten a long list of findings: the first 20 of every code, and a finding about ``subject`` that counts the
    rest."""
    kept: list[Finding] = []
    more: dict[Code, list[Finding]] = {}
    counts: Counter[Code] = Counter()
    for finding in findings:
        counts[finding.code] += 1
        if counts[finding.code] <= _MOST_REPORTED:
            kept.append(finding)
        else:
            more.setdefault(finding.code, [finding])
    for code, [first] in more.items():
        rest = f"{counts[code] - _MOST_REPORTED} more of these"
        kept.append(replace(first, subject=subject, seen=rest))
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much was looked at: a check that looked at nothing proves nothing."""

    topics: int = 0
    """The number of topics, deleted ones included."""
    entries: int = 0
    """The number of entries of the topics' logs."""
    files: int = 0
    """Live ones."""
    records: int = 0
    """The number of records of the live files by the log; with ``deep`` that of the records that were read."""
    groups: int = 0
    committed_offsets: int = 0
    transactional_ids: int = 0
    transactions: int = 0
    """Decisions in the logs of transactional ids that were compared with the topics they name."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Counts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a check: its findings, and how much was looked at."""

    findings: tuple[Finding, ...] = ()
    """Errors first, then warnings; within each as they were met."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def of(cls, findings: Iterable[Finding], counts: Counts) -> Report:
        """A report of ``findings`` in any order: they are sorted by severity."""
        order = list(Severity)
        return cls(findings=tuple(sorted(findings, key=lambda one: order.index(one.severity))), counts=counts)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity ``ERROR``: something is lost, doubled or can't be read, or could become so."""
        return self._of(Severity.ERROR)

    @property
    def is_partial(self) -> bool:
        """Is what couldn't be read the only error, so that the rest is as it should be?"""
        return bool(self.errors) and all(one.is_unread for one in self.errors)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings of severity ``WARNING``: nothing is lost, but somebody should look."""
        return self._of(Severity.WARNING)

    @property
    def infos(self) -> tuple[Finding, ...]:
        """The findings of severity ``INFO``: all may be as it should."""
        return self._of(Severity.INFO)

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity is severity)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "counts": {one.name: getattr(self.counts, one.name) for one in fields(Counts)},
            "unread": sum(one.is_unread for one in self.findings),
            "findings": [
                {
                    "severity": one.severity.value,
                    "code": one.code.value,
                    **{
                        part.name: getattr(one.subject, part.name)
                        for part in fields(Subject)
                        if getattr(one.subject, part.name) is not None
                    },
                    "seen": one.seen,
                    "expected": one.expected,
                }
                for one in self.findings
            ],
        }

    def __str__(self) -> str:
        counted = ", ".join(f"{getattr(self.counts, one.name)} {one.name.replace('_', ' ')}" for one in fields(Counts))
        return "\n".join([*map(str, self.findings), f"checked {counted}"])
