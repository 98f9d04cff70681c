"""The end of a world: all is recovered, sequenced and maintained, then everything that was promised is looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from proof.simulation.cluster.consuming import LOOP_GROUP, inputs_of
from proof.simulation.cluster.group_worlds import GROUP
from proof.simulation.cluster.jobs import SMALL
from proof.simulation.cluster.unsynced import check_steady
from proof.simulation.cluster.world import DAY_MS
from sparklog.compaction import maintain
from sparklog.consumer import Consumer
from sparklog.groups.admin.administration import committed_offsets
from sparklog.integrity import check_cluster
from sparklog.log import Cluster, sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.model import TopicPartition
from sparklog.testing.history import (
    Assigned,
    ConsumerOpened,
    FinalRead,
    History,
    Isolation,
    Lost,
    OffsetsSent,
    OffsetsSettled,
    Outcome,
    Polled,
    RecordingConsumer,
    Revoked,
    Send,
    TransactionEnded,
    TransactionEnding,
    check,
    record_final,
)
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.recovery import RecoveryAction, recover_transactions

if TYPE_CHECKING:
    from proof.simulation.cluster.play import Play

__all__ = ["await_settled_group", "look_for_low_starts", "settle"]

_COUNTED = ("sends", "acknowledged", "failed", "unknown", "transactions", "final_records", "inputs", "seeks")
_TIMEOUT_MS = 60_000.0
_READ_ON = 0.5
"""How likely a world's groups read to their end: it takes a tenth of a world's time."""
_READ_MS = 600_000.0
_POLL_MS = 3_000
_SLOWEST_MS = 20_000.0
"""Longer than a call takes whose process doesn't sleep."""
_TOPICS_SEEN_MS = 5_000.0
"""Until members have seen that a topic has more partitions."""
_SELDOM = ("",) * 10
"""Where it isn't done: it takes a quarter of a world's time."""


def settle(play: Play, cluster: Cluster) -> None:
    """Bring everything to rest, by someone whom nothing befalls, and check it."""
    play.world.note("settle")
    play.world.pause(play.transaction_timeout_ms + play.session_timeout_ms + _TIMEOUT_MS)
    _recover(play, cluster)
    check_steady(play, cluster)
    if play.world.random.random() < _READ_ON or play.operator is not None:
        _read_to_the_end(play, cluster)
    for group in _groups(play):  # before they are forgotten for their age
        found = committed_offsets(cluster, group, deciding_for(cluster, reason="the end", timeout_ms=_TIMEOUT_MS))
        play.recorder.final_offsets(group, {partition: committed.offset for partition, committed in found.items()})
    if play.shape.ages:
        _maintain(play, cluster)
        for _ in range(2):
            play.world.pause(9 * DAY_MS)
            _maintain(play, cluster)
        play.world.counts["aged"] += 1
    maintained = "" if play.shape.ages else play.world.random.choice(["first", "last", *_SELDOM])
    if maintained == "first":
        _maintain(play, cluster)
    topics = [plan.name for plan in play.shape.topics if not plan.is_recreated]
    for topic in topics:
        _sequence(play, cluster, topic)
    record_final(play.recorder, cluster, topics=topics)
    if maintained == "last":  # what it might put right or take away was read before
        _maintain(play, cluster)
    if play.world.random.random() < 0.3 or play.operator is not None:
        for finding in check_cluster(cluster).errors:
            if play.operator is not None and play.operator.excuses(finding):
                continue
            play.violate(f"integrity: {finding}")
    _judge(play)


def await_settled_group(play: Play, cluster: Cluster) -> None:
    """In a calm that has just begun, with members that live: soon each partition has exactly one owner, and keeps it.

    A session and two heartbeat intervals after the last has woken up nobody takes the dead for members any more; after
    as much again the group must be at rest.
    """
    world = play.world
    world.pause(_SLOWEST_MS)  # a process that was in a call may fall asleep as that call ends
    while (asleep_until := max(job.lives[-1].process.asleep_until for job in play.jobs)) > world.now:
        world.pause(asleep_until - world.now + _SLOWEST_MS)  # and so may one that slept in a call, once more
    rests_until = max(job.lives[-1].rests_until for job in play.jobs)
    patience_ms = play.session_timeout_ms * 5 / 3 + _TOPICS_SEEN_MS
    world.pause(max(0.0, rests_until - world.now) + patience_ms)
    counts = {name: len(open_state(cluster.topic_log(name)).head.log_end_offsets) for name in play.topic_names}
    until = world.now + patience_ms
    while why := play.holders.why_unsettled(GROUP, counts):
        if world.now > until:
            play.violate(f"group {GROUP}: not settled: {why}")
            return
        world.pause(100.0)
    world.pause(play.session_timeout_ms * 2 / 3)
    why = play.holders.why_unsettled(GROUP, counts)
    if why:
        play.violate(f"group {GROUP}: settled, and then not any more: {why}")
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    gone = [partition for partition in partitions if play.watch.has_forgotten(GROUP, partition)]
    if gone:
        play.violate(f"group {GROUP}: the rows of {gone} are gone")
    world.counts["settled groups"] += bool(play.holders.living(GROUP))


def _groups(play: Play) -> list[str]:
    """Those whose every commit is recorded."""
    loops = any(job.plan.role == "loop" for job in play.jobs)
    members = any(job.plan.role == "consume" and not job.plan.settings["auto"] for job in play.jobs)
    return [LOOP_GROUP] * loops + ["manual"] * members


def _read_to_the_end(play: Play, cluster: Cluster) -> None:
    """A new member of each group sees all that the group hasn't seen."""
    kept = [plan.name for plan in play.shape.topics if not plan.is_recreated]
    for topic in kept:
        _sequence(play, cluster, topic)
    for group in _groups(play):
        topics = inputs_of(play) if group == LOOP_GROUP else kept
        consumer = _last_consumer(play, cluster, group)
        consumer.subscribe(topics)
        until = play.world.now + _READ_MS
        while not _has_caught_up(consumer, topics):
            if play.world.now > until:
                play.violate(f"group {group}: not read to the end")
                break
        else:
            play.world.counts["groups read to the end"] += 1
        consumer.close(5_000)


def _last_consumer(play: Play, cluster: Cluster, group: str) -> RecordingConsumer:
    consumer = Consumer(
        cluster=cluster,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=play.session_timeout_ms,
        heartbeat_interval_ms=play.session_timeout_ms // 3,
        partition_assignment_strategy=play.strategy,
    )
    recorder = play.recorder.consumer(f"last/{group}", group=group, isolation=Isolation.READ_COMMITTED, from_start=True)
    return RecordingConsumer(consumer, recorder)


def _has_caught_up(consumer: RecordingConsumer, topics: Sequence[str]) -> bool:
    if consumer.poll(_POLL_MS):
        return False
    wanted = sum(len(consumer.consumer.partitions_for_topic(topic) or ()) for topic in topics)
    return len(consumer.consumer.assignment()) == wanted and consumer.note_caught_up()


def _recover(play: Play, cluster: Cluster) -> None:
    cluster.store.put("now", b"")  # ages are told by the store's own times
    for _ in range(2):  # what the first finishes or aborts, the second finds at rest
        for one in recover_transactions(cluster):
            play.world.counts[f"settled: {one.action.value}"] += 1
            if one.error is not None:
                play.violate(f"recovery of {one.transactional_id}: {one.error!r}")


def _maintain(play: Play, cluster: Cluster) -> None:
    cluster.store.put("now", b"")
    report = maintain(cluster, policy=SMALL)
    for topic in report.topics:
        play.world.counts["data files deleted at the end"] += topic.vacuum.files_deleted if topic.vacuum else 0
    for recovered in report.transactions:
        play.world.counts["expired at the end"] += recovered.action is RecoveryAction.EXPIRED
    for line in report.failures:
        play.violate(f"maintenance at the end: {line}")


def _sequence(play: Play, cluster: Cluster, topic: str) -> None:
    log = cluster.topic_log(topic)
    if not open_state(log).head.unsequenced_count:
        return
    for path, why in sequence_topic(log).refused.items():
        play.violate(f"topic {topic}: {path} was refused: {why}")
    if load_state(log).require_whole().index.unsequenced():
        play.violate(f"topic {topic}: files without offsets are left")


def _judge(play: Play) -> None:
    world, history = play.world, play.recorder.history()
    if play.replacing is not None:
        history = History(play.replacing.judged([*history.events]))
    verdict = check(
        history,
        compacted=[plan.name for plan in play.shape.topics if plan.is_compacted],
        contiguous_transactions=True,
    )
    for anomaly in verdict.anomalies:
        play.violate(str(anomaly))
    kept = {plan.name for plan in play.shape.topics if plan.configs.get("retention.ms") == -1}
    found = {value for event in history.events if isinstance(event, FinalRead) for value in event.values}
    for value, topic in play.foreign_values.items():
        if topic in kept and value not in found:
            play.violate(f"lost write: {value}, which another engine committed to {topic}, is not there")
    play.world.counts["checked transactional reads"] += _look_for_early_reads(play, history)
    play.world.counts["checked starts"] += look_for_low_starts(
        history, play.watch.has_forgotten, play.violate, handed_over=play.hand_overs.order_of
    )
    for name in _COUNTED:
        world.counts[f"checked {name}"] += getattr(verdict.counts, name)
    if verdict.counts.unverified:
        play.violate(f"{verdict.counts.unverified} things couldn't be checked")
    world.counts["rebalances"] += sum(isinstance(event, Revoked | Lost) for event in history.events)
    world.counts["empty worlds"] += not verdict.counts.final_records


def _look_for_early_reads(play: Play, history: History) -> int:
    """Nobody who reads what is committed may see a record whose commit nobody has asked for yet.

    All events are of one recorder, so their order is that in which things happened. Returns how many were looked at.
    """
    isolations = {event.client: event.isolation for event in history.events if isinstance(event, ConsumerOpened)}
    transactions: dict[str, str] = {}
    asked: set[str] = set()
    looked_at = 0
    for event in history.events:
        if isinstance(event, Send) and event.transaction is not None:
            transactions[event.value] = event.transaction
        elif isinstance(event, TransactionEnding) and event.is_commit:
            asked.add(event.transaction)
        elif isinstance(event, Polled) and isolations.get(event.client) is Isolation.READ_COMMITTED:
            for value in event.values:
                transaction = transactions.get(value)
                looked_at += transaction is not None
                if transaction is not None and transaction not in asked:
                    play.violate(f"early read: {event.client} saw {value} before {transaction} was to be committed")
    return looked_at


def look_for_low_starts(
    history: History,
    has_forgotten: Callable[[str, TopicPartition], bool],
    violate: Callable[[str], object],
    *,
    handed_over: Callable[[str, int], int] = lambda client, order: order,
) -> int:
    """Nobody is given a partition below what a member of its group was told to be committed by then.

    All events are of one recorder, as above; nobody commits on purpose what lies below what was committed.

    Args:
        handed_over: the order at which a client was handed the partitions that it wrote down in the event of this
            order; see :class:`~proof.simulation.cluster.hand_overs.HandOvers`.
    Returns:
        How many starts were looked at.
    """
    groups = {event.client: event.group for event in history.events if isinstance(event, ConsumerOpened)}
    committed = _committed_offsets(history)
    looked_at = 0
    for event in history.events:
        if not isinstance(event, Assigned):
            continue
        group = groups.get(event.client) or ""
        for partition, start in event.partitions:
            offsets = committed.get((group, partition), ())
            known = [offset for told, offset in offsets if told < handed_over(event.client, event.order)]
            if start is None or not known or has_forgotten(group, partition):
                continue
            looked_at += 1
            if start < max(known):
                violate(
                    f"low start: {event.client} was given {partition} at {start}, below {max(known)}, which its group "
                    "had committed"
                )
    return looked_at


def _committed_offsets(history: History) -> dict[tuple[str, TopicPartition], list[tuple[int, int]]]:
    """By group and partition: the offsets that a client knew to be committed, each with the number of that event."""
    sent: dict[str, list[OffsetsSent]] = {}
    """By the commit, or the transaction that they are part of."""
    committed: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = {}
    for event in history.events:
        if isinstance(event, OffsetsSent):
            sent.setdefault(event.transaction or event.commit, []).append(event)
        elif isinstance(event, OffsetsSettled | TransactionEnded) and event.outcome is Outcome.COMMITTED:
            name = event.commit if isinstance(event, OffsetsSettled) else event.transaction
            for one in sent.get(name, ()):
                for partition, offset in one.offsets:
                    committed.setdefault((one.group, partition), []).append((event.order, offset))
    return committed
