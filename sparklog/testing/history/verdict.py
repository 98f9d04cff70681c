"""The result of a check: anomalies with their evidence, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from enum import Enum

from sparklog.testing.history.events import Event

__all__ = [
    "Anomaly",
    "AnomalyError",
    "AnomalyKind",
    "Counts",
    "MalformedHistoryError",
    "NothingCheckedError",
    "Verdict",
]

_SHOWN_PER_KIND = 5


class AnomalyKind(Enum):
    """Kinds of anomalies, which a log with Kafka's promises must never show."""

    LOST_WRITE = "lost write"
    """Acknowledged or committed (or seen by a reader), and neither in the final read nor removed by retention or
    compaction."""
    DUPLICATE = "duplicate"
    """One send of an idempotent producer is at two places."""
    ABORTED_READ = "aborted read"
    """Somebody saw a record of an aborted transaction, or of a send that failed for certain."""
    PHANTOM = "phantom"
    """Somebody saw a value that nobody sent, or that was sent to another topic or partition."""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """Two values at one offset, or a value elsewhere than where it was acknowledged, or outside of the log."""
    NON_MONOTONIC_POLL = "non-monotonic poll"
    """A consumer went backwards without a seek or a new assignment."""
    NON_MONOTONIC_SEND = "non-monotonic send"
    """A producer's records are in another order than they were sent in."""
    SKIPPED_POLL = "skipped poll"
    """A consumer passed over a record."""
    TORN_TRANSACTION = "torn transaction"
    """Some records of a transaction are there, others are not."""
    INTERLEAVED_TRANSACTION = "interleaved transaction"
    """In one partition something is between the records of a transaction. Looked for only if asked: Kafka doesn't
    promise that they follow one another, sparklog does."""
    UNSEEN = "unseen after recovery"
    """A consumer, or the group that it belongs to, reached the end without having seen a record."""
    OUT_OF_STEP = "offsets and output out of step"
    """A group's committed offset and the outputs made of its inputs don't fit."""
    OUTPUT_ORDER = "outputs out of order"
    """In one partition the outputs made of one input partition are in another order than their inputs, though the group
    never went back on purpose."""
    OFFSET_WENT_BACK = "committed offset went back"
    """A group's committed offset went backwards though nobody had sought or reset it."""
    CONTRADICTION = "contradiction"
    """A client got two answers that can't both be true, such as acknowledged and certainly failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One thing that should not be."""

    kind: AnomalyKind
    text: str
    """One line: what, where, whose."""
    evidence: tuple[Event, ...] = ()
    """The events that show it."""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much was checked: a verdict without anomalies is worth as much as these."""

    clients: int = 0
    sends: int = 0
    acknowledged: int = 0
    """Sends that were acknowledged with an offset."""
    failed: int = 0
    unknown: int = 0
    """Sends whose outcome their client doesn't know."""
    transactions: int = 0
    committed: int = 0
    """Transactions that were committed for certain; below likewise."""
    aborted: int = 0
    undecided: int = 0
    polls: int = 0
    polled: int = 0
    """Records that polls returned."""
    snapshots: int = 0
    seeks: int = 0
    assignments: int = 0
    """Partitions that were assigned."""
    offset_commits: int = 0
    final_partitions: int = 0
    final_records: int = 0
    required: int = 0
    """Records that had to be in the final read."""
    removed: int = 0
    """The number of these that retention or compaction may have removed."""
    unverified: int = 0
    """The number of these whose partition has no final read."""
    inputs: int = 0
    """Inputs of consume-transform-produce loops whose outputs were compared with the committed offsets."""


class AnomalyError(AssertionError):
    """A history shows anomalies; the message is the report."""


class NothingCheckedError(AssertionError):
    """A history is too small to prove anything; the message says what is missing."""


class MalformedHistoryError(ValueError):
    """The recording isn't a history: the recorder's mistake, not the system's. Names the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of :func:`~sparklog.testing.history.check`; ``print`` it."""

    anomalies: tuple[Anomaly, ...]
    counts: Counts

    def by_kind(self) -> dict[AnomalyKind, list[Anomaly]]:
        """The anomalies of each kind that was found."""
        found: dict[AnomalyKind, list[Anomaly]] = {}
        for anomaly in self.anomalies:
            found.setdefault(anomaly.kind, []).append(anomaly)
        return found

    def raise_if_any(self) -> None:
        """Raise unless the history is clean and says something.

        Raises:
            AnomalyError: there are anomalies.
            NothingCheckedError: nothing was read at all, at the end or before, so that nothing could be found; or
                records had to be there whose partitions have no final read.
        """
        if self.anomalies:
            raise AnomalyError(str(self))
        if not self.counts.final_records and not self.counts.polled:
            raise NothingCheckedError(f"no record was read, so nothing was checked: {self.counts}")
        if self.counts.unverified:
            raise NothingCheckedError(f"{self.counts.unverified} records were never looked for: {self.counts}")

    def require(self, **at_least: int) -> Verdict:
        """Raise ``NothingCheckedError`` where a count (a field of :class:`Counts`) is below what is asked for."""
        for name, minimum in at_least.items():
            if name not in {field.name for field in fields(Counts)}:
                raise TypeError(f"require: there is no count {name!r}")
            if getattr(self.counts, name) < minimum:
                raise NothingCheckedError(f"{name}={getattr(self.counts, name)}, expected at least {minimum}")
        return self

    def __str__(self) -> str:
        counted = ", ".join(f"{name} {number:,}" for name in Counts.__slots__ if (number := getattr(self.counts, name)))
        if not self.anomalies:
            return f"no anomalies in: {counted or 'an empty history'}"
        numbers = Counter(anomaly.kind for anomaly in self.anomalies)
        lines = [f"{len(self.anomalies)} anomalies in: {counted or 'an empty history'}"]
        for kind, found in self.by_kind().items():
            lines.append(f"  {numbers[kind]:,} × {kind.value}")
            lines += [f"    {anomaly.text}" for anomaly in found[:_SHOWN_PER_KIND]]
            if len(found) > _SHOWN_PER_KIND:
                lines.append(f"    … and {len(found) - _SHOWN_PER_KIND:,} more")
        return "\n".join(lines)
