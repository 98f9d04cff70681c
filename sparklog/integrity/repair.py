"""Mending what is safe to mend, by what clients and jobs do anyway. No data is deleted, no entry is written anew; an
entry of another topic is moved where nothing stands on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sparklog.delta.checkpoint import check_checkpoint, write_checkpoint, write_hint
from sparklog.delta.listing import read_hint
from sparklog.errors import CorruptLogError, SparklogError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.integrity.checkpoint_repair import replace_damaged_checkpoints
from sparklog.integrity.findings import Code, Report
from sparklog.integrity.groups import finished_pending
from sparklog.integrity.log_listing import list_log_folder
from sparklog.integrity.other_topics import set_aside
from sparklog.log.cluster import Cluster
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.shape_repair import repair_shape
from sparklog.log.state import load_state
from sparklog.log.store_time import store_time_ms
from sparklog.paths import new_probe
from sparklog.storage.each_alone import check_of_one
from sparklog.txn.forward import settle_group
from sparklog.txn.recovery import RecoveryAction, recover_transactions

__all__ = ["MENDED", "Repaired", "repair_cluster"]

DEFAULT_TIMEOUT_MS = 60_000.0
MENDED = frozenset(
    {
        Code.TOPIC_ID_WRONG,
        Code.TOPIC_SHRUNK,
        Code.TRANSACTION_UNFINISHED,
        Code.TRANSACTION_TIMED_OUT,
        Code.UNSEQUENCED_FILES,
        Code.CHECKPOINT_CORRUPT,
        Code.CHECKPOINT_DIFFERS,
        Code.CHECKPOINT_DUE,
        Code.HINT_WRONG,
        Code.PENDING_ABORTED,
        Code.PENDING_COMMITTED,
    }
)
"""The codes of findings that :func:`repair_cluster` may mend; everything else is for a person to decide."""

_CHECKPOINTS = (Code.CHECKPOINT_CORRUPT, Code.CHECKPOINT_DIFFERS, Code.CHECKPOINT_DUE, Code.HINT_WRONG)


@dataclass(slots=True, kw_only=True)
class Repaired:
    """The report of a repair: what was done, a line each, and what failed."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def repair_cluster(cluster: Cluster, report: Report, *, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> Repaired:
    """Repair what a report names, where that is safe: check again afterwards.

    Sets aside entries of another topic on which nothing stands, and names those that stay; puts back the properties of
    topics that another engine set back; finishes transactions that are decided and aborts those that are past their
    time-outs; gives offsets to files that have none; writes a checkpoint, and its hint, where one is missing or
    damaged, and sets the damaged one aside; settles pending offsets of transactions that are finished. Each may be done
    by anybody, at any time and twice. What fails hinders no other.

    Args:
        timeout_ms: for each entry, each topic and each group.
    Raises:
        SparklogError: the store can't be read.
    """
    work = _Repair(cluster, timeout_ms)
    for topic in _names(report, [Code.TOPIC_ID_WRONG], "topic"):
        work.attempt(f"topic {topic}", partial(work.set_aside, topic))
    codes = {one.code for one in report.findings}
    for topic in _names(report, [Code.TOPIC_SHRUNK], "topic"):
        work.attempt(f"topic {topic}", partial(work.put_shape_back, topic))
    if codes & {Code.TRANSACTION_UNFINISHED, Code.TRANSACTION_TIMED_OUT}:
        work.attempt("transactions", work.recover)
    for topic in _names(report, [Code.UNSEQUENCED_FILES], "topic"):
        work.attempt(f"topic {topic}", partial(work.sequence, topic))
    differing = _names(report, [Code.CHECKPOINT_DIFFERS], "topic")
    for topic in _names(report, _CHECKPOINTS, "topic"):
        work.attempt(f"topic {topic}", partial(work.checkpoint, topic, differs=topic in differing))
    for group in _names(report, [Code.CHECKPOINT_DIFFERS], "group"):
        work.attempt(f"group {group}", partial(work.group_checkpoint, group))
    for group in _names(report, [Code.PENDING_ABORTED, Code.PENDING_COMMITTED], "group"):
        work.attempt(f"group {group}", partial(work.settle, group))
    return work.repaired


class _Repair:
    def __init__(self, cluster: Cluster, timeout_ms: float) -> None:
        self.repaired = Repaired()
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    def attempt(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except SparklogError as error:
            check_of_one(self._cluster.store, error)
            self.repaired.failed.append(f"{what}: {error}")

    def recover(self) -> None:
        for one in recover_transactions(self._cluster, timeout_ms=self._timeout_ms):
            if one.error is not None:
                self.repaired.failed.append(f"transactional id {one.transactional_id}: {one.error}")
            elif one.action is not RecoveryAction.NOTHING:
                self.repaired.done.append(f"transactional id {one.transactional_id}: {one.action.value}")

    def set_aside(self, topic: str) -> None:
        now_ms = store_time_ms(self._cluster, new_probe())
        done = set_aside(self._cluster.topic_log(topic), now_ms=now_ms, timeout_ms=self._timeout_ms)
        self.repaired.done += [f"topic {topic}: {one}" for one in done]

    def put_shape_back(self, topic: str) -> None:
        result = repair_shape(self._cluster.topic_log(topic), timeout_ms=self._timeout_ms)
        if result.is_done:
            files = (
                f", {result.returned_count} files of the topic and took {result.dropped_count} of an earlier one away"
            )
            is_exchanged = result.returned_count or result.dropped_count
            self.repaired.done.append(
                f"topic {topic}: put back its partitions, id and schemas{files if is_exchanged else ''}"
            )
        self.repaired.failed += [f"topic {topic}: {path} is lost: the file doesn't exist" for path in result.lost]

    def sequence(self, topic: str) -> None:
        result = sequence_topic(self._cluster.topic_log(topic), timeout_ms=self._timeout_ms)
        if result.sequenced_count:
            self.repaired.done.append(
                f"topic {topic}: gave offsets to {result.record_count} records of {result.sequenced_count} files"
            )
        self.repaired.failed += [f"topic {topic}: {path}: {why}" for path, why in result.refused.items()]

    def checkpoint(self, topic: str, *, differs: bool) -> None:
        log = self._cluster.topic_log(topic)
        state = load_state(log)
        if state.head.unsequenced_count and not state.head.deleted:
            sequence_topic(log, timeout_ms=self._timeout_ms)  # rule F2, sequencing: a checkpoint forgets their order
        self.repaired.done += [f"topic {topic}: {one}" for one in replace_damaged_checkpoints(log, differs=differs)]
        version = write_checkpoint(log)
        known = list_log_folder(log).checkpoints
        newest = max(known, default=-1) if version is None else version
        try:  # one that is damaged keeps its name: the next version gets another
            check_checkpoint(log, list(known.get(newest, ())), newest)
        except CorruptLogError as error:
            self.repaired.failed.append(f"topic {topic}: repair it again once the topic has a newer version: {error}")
            return
        if version is not None:
            self.repaired.done.append(f"topic {topic}: wrote a checkpoint of version {version}")
        elif read_hint(log) not in known:
            write_hint(log, newest, list(known[newest]))
            self.repaired.done.append(f"topic {topic}: wrote the hint of checkpoint {newest}")

    def group_checkpoint(self, group: str) -> None:
        log = OffsetTable(self._cluster, group).log
        self.repaired.done += [f"group {group}: {one}" for one in replace_damaged_checkpoints(log, differs=True)]

    def settle(self, group: str) -> None:
        table = OffsetTable(self._cluster, group)
        for decider, committed in finished_pending(self._cluster, table.fetch()).items():
            settle_group(table, decider, committed, timeout_ms=self._timeout_ms)
            done = "let the offsets count that wait for" if committed.get(group) else "forgot the offsets that wait for"
            self.repaired.done.append(
                f"group {group}: {done} transaction {decider.number} of transactional id {decider.transactional_id}"
            )


def _names(report: Report, codes: list[Code] | tuple[Code, ...], kind: str) -> list[str]:
    """The topics or groups that findings of these codes are of, sorted."""
    found = {getattr(one.subject, kind) for one in report.findings if one.code in codes}
    return sorted(name for name in found if name is not None)
