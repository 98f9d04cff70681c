"""Figures of a cluster as of one look: frozen values, without a store behind them.

Whoever shows them (Prometheus, the terminal, a page) computes nothing that reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparklog.compaction.last_runs import FailedRuns, RunSummary
from sparklog.errors import SparklogError
from sparklog.log.live_totals import LiveTotals
from sparklog.model import TopicPartition
from sparklog.storage.disk import DiskSpace
from sparklog.txn.states import TransactionState

__all__ = [
    "NO_FILES",
    "SMALL_FILE_BYTES",
    "ClusterFigures",
    "GroupFigures",
    "GroupPartitionFigures",
    "OrphanFigures",
    "PartitionFigures",
    "Problem",
    "TopicFigures",
    "TransactionFigures",
]

NO_FILES = -1
"""The version as of which no file is known yet."""
SMALL_FILE_BYTES = 8 * 1024 * 1024
"""A file that is smaller counts as a small one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """A partition of a topic."""

    log_start_offset: int
    """The first offset that may be read (inclusive)."""
    log_end_offset: int
    """The next offset to be given (exclusive)."""
    record_count: int = 0
    """Records in its live files, by the files' statistics: in a compacted topic fewer than offsets."""
    size_bytes: int = 0
    file_count: int = 0
    small_file_count: int = 0
    """Live files of less than :data:`SMALL_FILE_BYTES`."""
    oldest_ms: int | None = None
    """The smallest timestamp of its records, ms since the epoch; None where it is unknown, or there is none."""
    newest_ms: int | None = None
    """The largest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """A topic. Ends are as of ``delta_version``, what is said of its partitions' files as of ``files_version``, which
    lags behind in a topic with very many commits."""

    name: str
    topic_id: str
    partitions: tuple[PartitionFigures, ...]
    delta_version: int
    files_version: int
    """:data:`NO_FILES`: files weren't looked at yet; then partitions have as many records as offsets that may be
    read."""
    commit_ms: int | None
    """When the newest commit was made, by its writer's clock, ms since the epoch; None: it doesn't say."""
    checkpoint_version: int
    """The newest checkpoint that is known of; -1 for none."""
    checkpoint_ms: int | None = None
    """When it was written, by the store's time, ms since the epoch; None without one."""
    unsequenced_count: int
    """Files of another engine that have no offsets yet."""
    merge_file_count: int = 0
    """Small files that maintenance would merge now."""
    merge_bytes: int = 0
    """Their size."""
    due_ms: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By step of maintenance: the time from which on it has something to do if nothing is committed until then, ms
    since the epoch; at most a day after it was computed. A step that isn't there has nothing to do."""
    cleanup_policy: str = "delete"
    retention_ms: int = -1
    """-1: no limit."""
    value_schema_id: int = 0
    """The newest schema of a typed topic's values; 0: the topic is untyped."""
    maintenance_error: str = ""
    """Why maintenance can't plan anything here, such as a setting that isn't understood; empty where it can."""
    totals: LiveTotals | None = None
    """All its files with offsets, by the newest commit's totals or as they were read; None: neither."""
    totals_version: int = NO_FILES
    """The version of which they are."""

    @property
    def has_files(self) -> bool:
        """Were its files looked at?"""
        return self.files_version != NO_FILES

    @property
    def has_older_totals(self) -> bool:
        """Are its totals of an older version than its ends? Then they are marked wherever they are shown."""
        return self.totals is not None and self.totals_version < self.delta_version

    @property
    def record_count(self) -> int:
        """Records in its live files; where these aren't known, the offsets that may be read."""
        return (
            sum(partition.record_count for partition in self.partitions)
            if self.totals is None
            else self.totals.record_count
        )

    @property
    def uncheckpointed_count(self) -> int:
        """Versions behind the newest checkpoint."""
        return self.delta_version - self.checkpoint_version

    def is_due(self, step: str, *, now_ms: int) -> bool:
        """Has a step of maintenance something to do?"""
        due_ms = self.due_ms.get(step)
        return due_ms is not None and due_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitionFigures:
    """A partition for which a group has committed an offset."""

    partition: TopicPartition
    committed_offset: int
    """The next offset that the group will read."""
    lag: int
    """From there to the log end, 0 or more. Source: Kafka ``ConsumerGroupCommand``: offsets that were deleted from the
    log count, too."""
    lag_ms: int | None
    """How long the oldest record that the group hasn't read has been waiting: 0 where ``lag`` is. None: no statistics
    state its timestamp."""
    commit_ms: int
    """When the offset was committed, by the committer's clock, ms since the epoch."""
    member_id: str = ""
    """The member that owns the partition; empty where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """A group."""

    group_id: str
    member_count: int
    """Members that were seen to live within their sessions."""
    partitions: tuple[GroupPartitionFigures, ...]
    """Sorted; only partitions of topics that were looked at."""
    pending_count: int = 0
    """Offsets of transactions that aren't settled yet."""
    subscribed: tuple[str, ...] = ()
    """The topics that a living member subscribes to, of those that were looked at; sorted."""
    uncommitted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By topic that a living member subscribes to: records that it should have read, in partitions for which nothing is
    committed (:meth:`GroupWatch.uncommitted <sparklog.observe.group_watch.GroupWatch.uncommitted>`). Topics without any
    are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """A transactional id."""

    transactional_id: str
    state: TransactionState
    """``Ongoing``: a transaction may be open. Its producer says so from its first to its last one, also while it idles:
    nothing is written of a transaction before it is decided, but for offsets in groups."""
    producer_id: int
    producer_epoch: int
    since_ms: int
    """When its newest entry was written, or the marker of its session where that is younger; ms since the epoch."""
    timeout_ms: int
    """After so long anybody may abort an open transaction."""
    pending_count: int = 0
    """Offsets in groups that wait for its decision: these groups' offsets stand still until then."""

    def is_overdue(self, *, now_ms: int) -> bool:
        """Does something wait for it in vain: offsets of a group for an open transaction that is past one and a half
        times its time-out, or readers for one that is decided and wasn't carried out for a minute?

        An open transaction without offsets delays no reader; a producer that idles looks the same."""
        age_ms = now_ms - self.since_ms
        if self.state is TransactionState.ONGOING:
            return self.pending_count > 0 and age_ms > 1.5 * self.timeout_ms
        return self.state.is_prepared and age_ms > 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFigures:
    """The files in a topic's folder that maintenance would delete: no log names them, or none has for as long as the
    topic's table keeps what was removed."""

    topic: str
    file_count: int
    size_bytes: int
    searched_ms: int
    """When its folder was listed, ms since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A thing that can't be read; all else can."""

    kind: str
    """``topic``, ``group`` or ``transaction``."""
    name: str
    error: SparklogError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """A cluster as of one look."""

    cluster_id: str
    uri: str
    now_ms: int
    """When the look ended, by this machine's clock, ms since the epoch."""
    took_ms: float
    topics: tuple[TopicFigures, ...] = ()
    """Sorted by name."""
    groups: tuple[GroupFigures, ...] = ()
    """Sorted by id."""
    transactions: tuple[TransactionFigures, ...] = ()
    """Sorted by id."""
    problems: tuple[Problem, ...] = ()
    orphans: tuple[OrphanFigures, ...] = ()
    """Orphans of the topics that were searched, by name; none where they weren't requested."""
    maintained_ms: int | None = None
    """When a run of maintenance last changed its notes, by the store's time, ms since the epoch; None: never. It does
    so once a day at least."""
    runs: tuple[RunSummary, ...] = ()
    """The newest runs of maintenance, newest first."""
    runs_error: str = ""
    """Why these runs are unknown; empty where they are known."""
    failed_runs: FailedRuns = field(default_factory=FailedRuns)
    """Runs of maintenance that failed."""
    disk: DiskSpace | None = None
    """The disk of a cluster in a local folder; None for any other store."""
    unread_topic_count: int = 0
    """Topics of which the first look, which is still under way, has read nothing."""
    unread_group_count: int = 0
    """Groups that it hasn't come to, or of whose topics some."""
    is_part: bool = False
    """Are these the first look's figures before it has loaded everything? It has groups, transactions, and what the
    newest commit of each topic has, totals of its files where that carries them; files by partition and what
    maintenance would do of the topics that were loaded already (:attr:`TopicFigures.has_files`), and lag in time of
    these, and where the newest commit has the records."""
    is_first_page_whole: bool = True
    """Were the topics loaded that an overview shows first? False in the first part of a first look alone."""
