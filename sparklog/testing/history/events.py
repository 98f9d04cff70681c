"""The events of a history, as its clients saw them: frozen, each with its client, its number and a hint of time.

Nothing here is sparklog's own: the same events describe a simulation, of sparklog's clients, and of a real Kafka's.

A record is known by its ``value``: text that no other send of the history has (of a tombstone, or where values repeat,
anything that distinguishes a record from all others, such as a header). A transaction is known by a name that is
unique in the history, too; so is a client: one that is opened again (a restarted process) takes a new name.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from sparklog.model import TopicPartition

__all__ = [
    "EVENT_TYPES",
    "Acknowledged",
    "Assigned",
    "CaughtUp",
    "ConsumerOpened",
    "Event",
    "Failed",
    "FinalOffset",
    "FinalRead",
    "Isolation",
    "Lost",
    "OffsetsSent",
    "OffsetsSettled",
    "Outcome",
    "PartitionView",
    "Polled",
    "ProducerOpened",
    "Revoked",
    "Send",
    "Snapshot",
    "Sought",
    "Source",
    "TransactionBegun",
    "TransactionEnded",
    "TransactionEnding",
    "Unknown",
]


class Isolation(str, Enum):
    """The isolation level that a reader asked for."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Outcome(str, Enum):
    """Outcomes of a transaction, or of a commit of offsets, for its client."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Certainly not carried out (of offsets: refused)."""
    UNKNOWN = "unknown"
    """The client doesn't know: time-out, lost answer, fenced while it waited."""


class Source(NamedTuple):
    """The input record that an output was made of; the outputs of a group name theirs."""

    group: str
    """The group whose committed offsets say how far the inputs are processed."""
    partition: TopicPartition
    offset: int


class ProducerOpened(NamedTuple):
    """A producer begins. Without this event a producer counts as idempotent."""

    order: int
    wall_ms: int
    client: str
    is_idempotent: bool = True
    """False: duplicates of its records, and another order than that of sending, are no anomalies."""
    transactional_id: str | None = None


class Send(NamedTuple):
    """A send was invoked; recorded before the call, so that a record never turns up that nobody sent.

    The order of a client's sends to one partition is the order in which its records must appear.
    """

    order: int
    wall_ms: int
    client: str
    value: str
    topic: str
    partition: int | None = None
    """Where it was sent to, or was seen to go; None as long as only the acknowledgement says."""
    key: str | None = None
    """Needed on compacted topics only."""
    transaction: str | None = None
    is_tombstone: bool = False
    """Whether the record deletes its key: on a compacted topic it may vanish without a successor."""
    source: Source | None = None
    """The input of a consume-transform-produce loop: at most one output per input, see ``OUT_OF_STEP``."""


class Acknowledged(NamedTuple):
    """A send was acknowledged. In a transaction this alone promises nothing: its commit does."""

    order: int
    wall_ms: int
    client: str
    value: str
    partition: TopicPartition
    offset: int | None
    """None where the acknowledgement doesn't say (``acks=0``): then it promises nothing."""


class Failed(NamedTuple):
    """A send failed, and certainly is not in the log: refused, or of a transaction that was aborted."""

    order: int
    wall_ms: int
    client: str
    value: str
    error: str = ""


class Unknown(NamedTuple):
    """A send failed, and may be in the log all the same. A send without any outcome counts as this, too."""

    order: int
    wall_ms: int
    client: str
    value: str
    error: str = ""


class TransactionBegun(NamedTuple):
    """A producer began a transaction."""

    order: int
    wall_ms: int
    client: str
    transaction: str


class TransactionEnding(NamedTuple):
    """Commit or abort was invoked; recorded before the call. A transaction that was never to be committed never is."""

    order: int
    wall_ms: int
    client: str
    transaction: str
    is_commit: bool


class TransactionEnded(NamedTuple):
    """The end of a transaction as its client learnt it. May follow several times: unknown first, then committed or
    aborted."""

    order: int
    wall_ms: int
    client: str
    transaction: str
    outcome: Outcome
    error: str = ""


class OffsetsSent(NamedTuple):
    """A group's offsets were to be committed; recorded before the call."""

    order: int
    wall_ms: int
    client: str
    commit: str
    """Unique in the history."""
    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    """The offset of each partition's next record to be read."""
    transaction: str | None = None
    """Committed with it: its outcome is that of the transaction."""
    is_reset: bool = False
    """Set on purpose, by an administrator: may go backwards or skip records."""


class OffsetsSettled(NamedTuple):
    """The end of a commit of offsets outside of transactions; without this event its outcome is unknown."""

    order: int
    wall_ms: int
    client: str
    commit: str
    outcome: Outcome
    error: str = ""


class ConsumerOpened(NamedTuple):
    """A consumer begins. Without this event it has no group and reads uncommitted records."""

    order: int
    wall_ms: int
    client: str
    group: str | None
    isolation: Isolation
    may_skip: bool = False
    """Where nothing is committed it begins at the end (``auto_offset_reset=latest``): what its group never saw is no
    anomaly then."""
    from_start: bool = False
    """Where nothing is committed it begins at the log start (``auto_offset_reset=earliest``), and nothing was committed
    before the history begins: its group, or without one itself, must see all. False: all from where it was seen to
    begin, so that one that begins too late goes unnoticed."""


class Assigned(NamedTuple):
    """Partitions were added to those that the consumer reads, by a group or by hand."""

    order: int
    wall_ms: int
    client: str
    partitions: tuple[tuple[TopicPartition, int | None], ...]
    """With the position at which reading begins; None: not known, then the first record that is polled begins it."""


class Revoked(NamedTuple):
    """Partitions were given back."""

    order: int
    wall_ms: int
    client: str
    partitions: tuple[TopicPartition, ...]


class Lost(NamedTuple):
    """Partitions belong to somebody else already."""

    order: int
    wall_ms: int
    client: str
    partitions: tuple[TopicPartition, ...]


class Sought(NamedTuple):
    """The consumer goes on elsewhere: a seek, or a reset (``auto_offset_reset=latest``) that the recorder knows of."""

    order: int
    wall_ms: int
    client: str
    partition: TopicPartition
    offset: int | None
    """None: to the end, or to a place that isn't known."""


class Polled(NamedTuple):
    """The records that one poll returned of one partition, in its order; may be empty, with a position that moved."""

    order: int
    wall_ms: int
    client: str
    partition: TopicPartition
    offsets: tuple[int, ...]
    values: tuple[str, ...]
    position: int | None = None
    """Where the next poll goes on; None: not asked for, then the last offset + 1."""


class CaughtUp(NamedTuple):
    """A consumer found nothing more, after everything had been recovered and nothing was being sent any more."""

    order: int
    wall_ms: int
    client: str
    partition: TopicPartition
    position: int


class PartitionView(NamedTuple):
    """A partition within a snapshot: all records of ``[start, end)``."""

    partition: TopicPartition
    start: int
    end: int
    """Exclusive."""
    offsets: tuple[int, ...]
    values: tuple[str, ...]


class Snapshot(NamedTuple):
    """Committed records of several partitions that were read as of one moment: transactions are whole in it."""

    order: int
    wall_ms: int
    client: str
    views: tuple[PartitionView, ...]


class FinalRead(NamedTuple):
    """The records that a partition holds after everything has been recovered and nothing changes any more.

    May come in pieces, each with the same log start and end.
    """

    order: int
    wall_ms: int
    client: str
    partition: TopicPartition
    isolation: Isolation
    log_start: int
    """First offset that retention has left (inclusive)."""
    log_end: int
    """Next offset to be given (exclusive)."""
    offsets: tuple[int, ...]
    values: tuple[str, ...]


class FinalOffset(NamedTuple):
    """A group's committed offset of a partition after everything has been recovered; None: it has none."""

    order: int
    wall_ms: int
    client: str
    group: str
    partition: TopicPartition
    offset: int | None


Event: TypeAlias = (
    ProducerOpened
    | Send
    | Acknowledged
    | Failed
    | Unknown
    | TransactionBegun
    | TransactionEnding
    | TransactionEnded
    | OffsetsSent
    | OffsetsSettled
    | ConsumerOpened
    | Assigned
    | Revoked
    | Lost
    | Sought
    | Polled
    | CaughtUp
    | Snapshot
    | FinalRead
    | FinalOffset
)
"""Each begins with ``order`` (grows within a process; says nothing between processes), ``wall_ms`` (a hint) and
``client``."""

EVENT_TYPES: tuple[type[Event], ...] = (
    ProducerOpened,
    Send,
    Acknowledged,
    Failed,
    Unknown,
    TransactionBegun,
    TransactionEnding,
    TransactionEnded,
    OffsetsSent,
    OffsetsSettled,
    ConsumerOpened,
    Assigned,
    Revoked,
    Lost,
    Sought,
    Polled,
    CaughtUp,
    Snapshot,
    FinalRead,
    FinalOffset,
)
