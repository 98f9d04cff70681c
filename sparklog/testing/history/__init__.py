"""A history of what clients of a cluster did and saw, and a check of it against what Kafka promises.

Record with a :class:`Recorder` (for sparklog's clients :class:`RecordingProducer` and :class:`RecordingConsumer` do
it), at the end what each partition holds and what each group has committed, then::

    verdict = check(recorder.history(), compacted={"latest"})
    print(verdict)
    verdict.raise_if_any()
    verdict.require(acknowledged=1000, committed=10)
"""

from __future__ import annotations

from sparklog.testing.history.adapters import RecordingConsumer, RecordingProducer, record_final
from sparklog.testing.history.check import check
from sparklog.testing.history.events import (
    EVENT_TYPES,
    Acknowledged,
    Assigned,
    CaughtUp,
    ConsumerOpened,
    Event,
    Failed,
    FinalOffset,
    FinalRead,
    Isolation,
    Lost,
    OffsetsSent,
    OffsetsSettled,
    Outcome,
    PartitionView,
    Polled,
    ProducerOpened,
    Revoked,
    Send,
    Snapshot,
    Sought,
    Source,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
    Unknown,
)
from sparklog.testing.history.files import History, load, merge
from sparklog.testing.history.recorder import ConsumerRecorder, ProducerRecorder, Recorder
from sparklog.testing.history.verdict import (
    Anomaly,
    AnomalyError,
    AnomalyKind,
    Counts,
    MalformedHistoryError,
    NothingCheckedError,
    Verdict,
)

__all__ = [
    "EVENT_TYPES",
    "Acknowledged",
    "Anomaly",
    "AnomalyError",
    "AnomalyKind",
    "Assigned",
    "CaughtUp",
    "ConsumerOpened",
    "ConsumerRecorder",
    "Counts",
    "Event",
    "Failed",
    "FinalOffset",
    "FinalRead",
    "History",
    "Isolation",
    "Lost",
    "MalformedHistoryError",
    "NothingCheckedError",
    "OffsetsSent",
    "OffsetsSettled",
    "Outcome",
    "PartitionView",
    "Polled",
    "ProducerOpened",
    "ProducerRecorder",
    "Recorder",
    "RecordingConsumer",
    "RecordingProducer",
    "Revoked",
    "Send",
    "Snapshot",
    "Sought",
    "Source",
    "TransactionBegun",
    "TransactionEnded",
    "TransactionEnding",
    "Unknown",
    "Verdict",
    "check",
    "load",
    "merge",
    "record_final",
]
