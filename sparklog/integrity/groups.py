"""Groups: their generations, members and offset tables, and whether what is committed lies in the logs it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTopicError,
    NotATopicError,
    StoreError,
    TopicShrunkError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.groups.membership.generation_numbers import greatest_stamp, not_to_be_taken
from sparklog.groups.membership.generations import GenerationLog, generation_log
from sparklog.groups.membership.member_state import decode_member
from sparklog.groups.offsets.changes import GENERATION_FENCE
from sparklog.groups.offsets.offset_state import OffsetState, load_state, load_whole, offset_log
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, OffsetRow, Rows
from sparklog.integrity.findings import Code, Counts, Finding, Subject
from sparklog.integrity.log_listing import holes, list_numbered
from sparklog.integrity.unread import unread
from sparklog.log.cluster import Cluster
from sparklog.log.head import TopicHead
from sparklog.log.state import open_state
from sparklog.model import TopicPartition
from sparklog.paths import (
    decode_id,
    group_generations,
    group_members,
    member_state,
)
from sparklog.storage.each_alone import check_of_one, one_alone, read_each
from sparklog.txn.deciding import read_decision
from sparklog.txn.entries import open_transaction_log

__all__ = ["TopicHeads", "check_group", "finished_pending"]


@dataclass(slots=True)
class TopicHeads:
    """The heads of topics, looked up once; and again before anything is said against a committed offset."""

    cluster: Cluster
    _seen: dict[str, TopicHead | None] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)

    def get(self, topic: str, *, again: bool = False) -> TopicHead | None:
        """The head of a topic; None where there is no such topic any more."""
        if again or topic not in self._seen:
            self._seen[topic] = self._look(topic)
        return self._seen[topic]

    def is_broken(self, topic: str) -> bool:
        """Couldn't it be understood? Then that is a finding about the topic."""
        return topic in self._broken

    def _look(self, topic: str) -> TopicHead | None:
        try:
            head = open_state(self.cluster.topic_log(topic)).head
        except (CorruptLogError, TopicShrunkError, UnsupportedVersionError, StoreError) as error:
            check_of_one(self.cluster.store, error)
            self._broken.add(topic)
            return None
        except (InvalidTopicError, NotATopicError, UnknownTopicOrPartitionError):
            return None
        return None if head.deleted else head


def check_group(cluster: Cluster, group: str, heads: TopicHeads) -> tuple[list[Finding], Counts]:
    """Check one group. A handful of requests, one for each member, and one or two for each topic that is new."""
    subject = Subject(group=group)
    members = one_alone(cluster.store, lambda: [*_check_members(cluster, group)])
    findings = [unread(members, subject, Code.GROUP_UNREADABLE)] if isinstance(members, Exception) else members
    log = offset_log(cluster, group)
    state = _load(log, lambda: load_state(log), subject, findings)
    if state is None:
        return findings, Counts(groups=1)
    findings += _check_whole(log, subject)
    findings += _check_numbers(cluster, group, state.rows)
    committed = 0
    for partition, row in state.rows.items():
        if partition == GENERATION_FENCE or partition.topic == GENERATION_FENCE.topic:
            continue
        committed += row.committed is not None
        findings += _check_row(group, partition, row, heads)
    findings += _check_pending(cluster, group, state.rows)
    return findings, Counts(groups=1, committed_offsets=committed)


def finished_pending(cluster: Cluster, rows: Rows) -> dict[Decider, CommittedPartitions]:
    """The transactions that left offsets pending though they are finished, and what each committed.

    Raises ``CorruptLogError``, ``StoreError``.
    """
    found: dict[Decider, CommittedPartitions] = {}
    for decider in sorted({row.pending.decider for row in rows.values() if row.pending is not None}):
        decision = read_decision(open_transaction_log(cluster, decider.transactional_id), decider)
        if decision is not None and decision.is_finished:
            found[decider] = decision.committed
    return found


def _check_members(cluster: Cluster, group: str) -> Iterator[Finding]:
    subject = Subject(group=group)
    log = generation_log(cluster, group)
    listed = list_numbered(cluster.store, group_generations(group))
    for first, end in holes(listed):
        yield Finding(
            code=Code.GENERATION_GAP,
            subject=subject,
            seen=f"generations {first} to {end - 1} are missing, though {first - 1} and {end} are there",
            expected="every generation from the oldest that is kept on",
        )
    yield from _check_generations(log, listed, subject)
    members = sorted(
        {
            decode_id(found.path[len(group_members(group)) :].partition("/")[0])
            for found in cluster.store.list(group_members(group))
        }
    )
    paths = [member_state(group, member) for member in members]
    for member, path, data in zip(members, paths, read_each(cluster.store, paths) if paths else (), strict=True):
        if data is None:  # it left, or has shown that it lives before it described itself
            continue
        if isinstance(data, Exception):
            yield unread(data, Subject(group=group, path=path))
            continue
        try:
            decode_member(path, data)
        except CorruptLogError as error:
            yield Finding(
                code=Code.MEMBER_CORRUPT,
                subject=Subject(group=group, path=path),
                seen=f"member {member}: {error}",
                expected="what a member says of itself; the others go on without it",
            )
    if members and not listed:
        yield Finding(
            code=Code.MEMBER_WITHOUT_GROUP,
            subject=subject,
            seen=f"{len(members)} members, {members[0]}, …, and no generation",
            expected="a generation soon: the first members are joining, or died as they did",
        )


def _check_numbers(cluster: Cluster, group: str, rows: Rows) -> Iterator[Finding]:
    """Are the stamps of the offset table of generations that are, or were, in the log? The rows were read before."""
    if greatest_stamp(rows) == 0:
        return
    try:
        newest, _ = generation_log(cluster, group).open_newest()
    except (CorruptLogError, UnsupportedVersionError):  # a finding of its own
        return
    except StoreError as error:  # the same
        check_of_one(cluster.store, error)
        return
    partition = not_to_be_taken(newest, rows)
    if partition is not None:
        known = f"the newest is {newest.version}" if newest is not None else "there is none"
        stamp = rows[partition].stamp
        yield Finding(
            code=Code.GENERATIONS_BEHIND,
            subject=Subject(group=group),
            seen=f"{known}, though {partition.topic}-{partition.partition} was taken in generation {stamp.generation}",
            expected="numbers that never restart: were generations deleted? The next member that joins passes them, "
            "and goes on at the committed offsets",
        )


def _check_generations(log: GenerationLog, listed: Mapping[int, int], subject: Subject) -> Iterator[Finding]:
    for number in listed:
        try:
            log.read_entry(number)
        except (CorruptLogError, UnsupportedVersionError) as error:
            yield Finding(
                code=Code.GROUP_UNREADABLE, subject=subject, seen=str(error), expected="a generation that is whole"
            )
        except StoreError as error:
            check_of_one(log.store, error)
            yield unread(error, subject, Code.GROUP_UNREADABLE)


def _check_whole(log: DeltaLog, subject: Subject) -> list[Finding]:
    """The same by the checkpoint and all entries behind it, as other engines read the table."""
    findings: list[Finding] = []
    loaded = _load(log, lambda: load_whole(log)[0], subject, findings)
    if loaded is None:
        return findings
    newest = _load(log, lambda: load_state(log), subject, findings)
    if newest is not None and newest.position.token == loaded.position.token and newest.rows != loaded.rows:
        findings.append(
            Finding(
                code=Code.CHECKPOINT_DIFFERS,
                subject=subject,
                seen=f"the offset table has {len(loaded.rows)} rows by its checkpoint",
                expected=f"the {len(newest.rows)} that its newest entry names",
            )
        )
    return findings


def _load(
    log: DeltaLog, read: Callable[[], OffsetState], subject: Subject, findings: list[Finding]
) -> OffsetState | None:
    try:
        return read()
    except StoreError as error:
        check_of_one(log.store, error)
        findings.append(unread(error, subject, Code.GROUP_UNREADABLE))
        return None
    except (CorruptLogError, UnsupportedVersionError, InvalidArgumentError) as error:
        findings.append(
            Finding(
                code=Code.GROUP_UNREADABLE, subject=subject, seen=str(error), expected="an offset table that is whole"
            )
        )
        return None


def _check_row(group: str, partition: TopicPartition, row: OffsetRow, heads: TopicHeads) -> Iterator[Finding]:
    if row.committed is None:
        return
    first = heads.get(partition.topic)
    if first is not None and _is_fine(partition, row, first):
        return
    head = heads.get(partition.topic, again=True)  # what was committed meanwhile, the log had before
    if heads.is_broken(partition.topic):
        return
    subject = Subject(topic=partition.topic, partition=partition.partition, group=group)
    if head is None or row.topic_id not in ("", head.topic_id):
        yield Finding(
            code=Code.COMMITTED_TOPIC_GONE,
            subject=subject,
            seen=f"{row.committed.offset} is committed for the topic of id {row.topic_id}, which is no more",
            expected="nothing: it doesn't count, and expires",
        )
        return
    if partition.partition >= head.partition_count:
        yield Finding(
            code=Code.COMMITTED_UNKNOWN_PARTITION,
            subject=subject,
            seen=f"{row.committed.offset} is committed",
            expected=f"a partition of 0 to {head.partition_count - 1}",
        )
        return
    start, end = head.log_start_offsets[partition.partition], head.log_end_offsets[partition.partition]
    if row.committed.offset > end:
        yield Finding(
            code=Code.COMMITTED_ABOVE_END,
            subject=subject,
            seen=f"{row.committed.offset} is committed",
            expected=f"{end} or less, the log end: were records lost?",
        )
    elif row.committed.offset < start:
        yield Finding(
            code=Code.COMMITTED_BELOW_START,
            subject=subject,
            seen=f"{row.committed.offset} is committed",
            expected=f"{start} or more, the log start: the group goes on by its auto_offset_reset",
        )


def _is_fine(partition: TopicPartition, row: OffsetRow, head: TopicHead) -> bool:
    number = partition.partition
    return (
        row.committed is not None
        and row.topic_id in ("", head.topic_id)
        and number < head.partition_count
        and head.log_start_offsets[number] <= row.committed.offset <= head.log_end_offsets[number]
    )


def _check_pending(cluster: Cluster, group: str, rows: Rows) -> Iterator[Finding]:
    deciders = sorted({row.pending.decider for row in rows.values() if row.pending is not None})
    late: dict[Decider, CommittedPartitions] = {}
    for decider in deciders:
        try:
            decision = read_decision(open_transaction_log(cluster, decider.transactional_id), decider)
            if decision is not None and decision.is_finished:
                late[decider] = decision.committed
        except UnsupportedVersionError:  # a finding about the id
            continue
        except StoreError as error:  # the same
            check_of_one(cluster.store, error)
            continue
        except (CorruptLogError, InvalidArgumentError) as error:
            yield Finding(
                code=Code.PENDING_UNKNOWN,
                subject=Subject(group=group, transactional_id=decider.transactional_id),
                seen=f"offsets wait for entry {decider.number} of epoch {decider.producer_epoch}: {error}",
                expected="the transactional id's log to reach as far",
            )
    if not late:
        return
    now = load_state(offset_log(cluster, group)).rows  # what was settled before the entry that says so was written
    still = {partition: row.pending.decider for partition, row in now.items() if row.pending is not None}
    for decider, committed in late.items():
        waiting = {partition for partition, of_row in still.items() if of_row == decider}
        is_committed = bool(waiting & committed.get(group, frozenset()))
        if waiting:
            yield Finding(
                code=Code.PENDING_COMMITTED if is_committed else Code.PENDING_ABORTED,
                subject=Subject(group=group, transactional_id=decider.transactional_id),
                seen=f"offsets wait for transaction {decider.number}, which was "
                f"{'committed' if is_committed else 'aborted'} and is finished",
                expected="offsets that are settled before; who reads them next settles them",
            )
