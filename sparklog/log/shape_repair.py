"""Putting a topic's shape back that another engine set back: one commit, decided on the current state.

Partitions, schemas and the format are properties alone. Where the properties are those of an earlier topic of the name,
as after a ``RESTORE`` to before it was deleted and created again, the files are that topic's, too: then those of the
topic return that it had when its properties were last right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparklog.delta.actions import Action, AddFile, Metadata, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Snapshot
from sparklog.errors import KafkaTimeoutError, NotATopicError
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.data.segments import Segment
from sparklog.log.head import end_app_id
from sparklog.log.judged_checkpoint import load_judgeable
from sparklog.log.loaded_files import add_of_segment
from sparklog.log.returning import Returning, prepare_return
from sparklog.log.shape import ID_PROPERTY
from sparklog.log.shape_evidence import ShapeEvidence, shape_actions, shape_evidence
from sparklog.log.state import TopicState, load_state, unknown_topic
from sparklog.log.topic import topic_metadata
from sparklog.log.uploads import why_not_to_publish

__all__ = ["ShapeRepair", "repair_shape"]

DEFAULT_TIMEOUT_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRepair:
    """The result of a repair."""

    is_done: bool
    """False: the shape is as it has to be, perhaps by another's repair."""
    delta_version: int
    returned_count: int = 0
    """Files of the topic that are live again."""
    dropped_count: int = 0
    """Files of an earlier topic that are live no more."""
    lost: tuple[str, ...] = ()
    """Paths of the topic's files that don't exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """The files of the topic in place of those of an earlier one."""

    kept: Mapping[str, Segment]
    """The topic's live files as its properties were last right, by path."""
    waiting: frozenset[str]
    """Files without offsets that other engines added since."""
    returning: Returning
    ends: tuple[int, ...]


def repair_shape(log: DeltaLog, *, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> ShapeRepair:
    """Put back what went back of a topic's shape. Safe to run twice at once, and to kill at any point.

    Raises:
        UnknownTopicOrPartitionError: there is no such table.
        NotATopicError: nothing in the log tells (any more) what the properties were.
        KafkaTimeoutError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    snapshot = load_judgeable(log, mends_shape=True)
    if snapshot is None:
        raise unknown_topic(log)
    evidence = shape_evidence(snapshot)
    state = load_state(log, mends_shape=True)
    began, known_version = log.clock.ticks_ms(), state.position.version
    exchange = _exchange(snapshot, evidence, state)
    decided: TopicState = state

    def decide(now: TopicState) -> Commit | None:
        nonlocal decided
        decided = now
        return _plan(now, evidence, exchange)

    def check_files() -> bool:
        reason = why_not_to_publish(
            log,
            decided.vacuums,
            began_ticks_ms=began,
            known_version=known_version,
            retention_ms=decided.head.deleted_file_retention_ms,
        )
        if exchange is not None and reason is not None:
            raise KafkaTimeoutError(f"repair of {log.table} begins anew: {reason}")
        return False

    done = commit(
        state,
        decide,
        deadline=log.clock.deadline_in(timeout_ms),
        sync=True,
        prepare=check_files,
        reads_on=True,
        uploads=UploadedSince(began),
    )
    wrote = done.commit
    return ShapeRepair(
        is_done=wrote is not None,
        delta_version=done.state.position.version,
        returned_count=sum(isinstance(one, AddFile) for one in wrote.actions) if wrote else 0,
        dropped_count=sum(isinstance(one, RemoveFile) for one in wrote.actions) if wrote else 0,
        lost=tuple(sorted(exchange.returning.gone)) if exchange and wrote else (),
    )


def _plan(now: TopicState, evidence: ShapeEvidence, exchange: _Exchange | None) -> Commit | None:
    """The commit of a repair; None where nothing is wrong (any more). Pure."""
    whole = now.require_whole()
    try:
        evidence.check(now.log.table, now.position.version, whole.metadata)
    except NotATopicError:
        pass
    else:
        return None
    head, actions = now.head, list[Action]()
    if exchange is not None and _is_of_another(whole.metadata, evidence):
        removed = [one for path, one in whole.index.by_path.items() if path not in exchange.kept]
        removed = [one for one in removed if one.path not in exchange.waiting]
        added = [add for path, add in exchange.returning.adds.items() if path not in whole.index.by_path]
        actions = [*_removes(removed, now_ms=now.log.clock.now_ms()), *added]
        head = replace(
            head, log_end_offsets=exchange.ends, live_file_count=len(whole.index) - len(removed) + len(added)
        )
    metadata = topic_metadata(now, head)
    return Commit(
        actions=[*actions, metadata, *shape_actions(head, now.transactions)], head=head, operation="REPAIR TOPIC"
    )


def _exchange(snapshot: Snapshot, evidence: ShapeEvidence, state: TopicState) -> _Exchange | None:
    if not _is_of_another(snapshot.metadata, evidence):
        return None
    before = load_state(state.log, version=evidence.version, statistics=True)
    kept, now = before.require_whole(), state.require_whole()
    missing = [one for path, one in kept.index.by_path.items() if path not in now.index.by_path]
    adds = [add_of_segment(one, kept.statistics.get(one.path)) for one in missing]
    waiting = {
        action.path
        for entry in snapshot.tail
        if entry.version > evidence.version and not any(isinstance(action, Metadata) for action in entry.actions)
        for action in entry.actions
        if isinstance(action, AddFile) and action.path in now.index.by_path
    }
    recorded = [state.transactions.get(end_app_id(partition)) for partition in range(state.head.partition_count)]
    return _Exchange(
        kept=kept.index.by_path,
        waiting=frozenset(path for path in waiting if now.index.by_path[path].base_offset is None),
        returning=prepare_return(state, adds),
        ends=tuple(
            max(0 if txn is None else txn.version, kept.index.end_offset(partition))
            for partition, txn in enumerate(recorded)
        ),
    )


def _is_of_another(metadata: Metadata, evidence: ShapeEvidence) -> bool:
    return evidence.shape.topic_id is not None and metadata.configuration.get(ID_PROPERTY) != evidence.shape.topic_id


def _removes(segments: Sequence[Segment], *, now_ms: int) -> list[RemoveFile]:
    return [
        RemoveFile(path=s.path, deletion_ms=now_ms, partition_values=s.partition_values(), size_bytes=s.size_bytes)
        for s in segments
    ]
