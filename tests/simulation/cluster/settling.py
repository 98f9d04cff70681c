"""The end of a world: all is recovered, sequenced and maintained, then everything that was promised is looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.compaction import maintain
from sparklog.groups.administration import committed_offsets
from sparklog.log import Cluster, sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.testing.history import FinalRead, Lost, Revoked, check, record_final
from sparklog.txn.deciding import deciding_for
from sparklog.txn.recovery import recover_transactions
from tests.simulation.cluster.consuming import LOOP_GROUP
from tests.simulation.cluster.jobs import SMALL
from tests.simulation.cluster.world import DAY_MS

if TYPE_CHECKING:
    from tests.simulation.cluster.play import Play

__all__ = ["settle"]

_COUNTED = ("sends", "acknowledged", "failed", "unknown", "transactions", "final_records", "inputs", "seeks")
_TIMEOUT_MS = 60_000.0


def settle(play: Play, cluster: Cluster) -> None:
    """Bring everything to rest, by someone whom nothing befalls, and check it."""
    play.world.note("settle")
    play.world.pause(play.transaction_timeout_ms + play.session_timeout_ms + _TIMEOUT_MS)
    _recover(play, cluster)
    for group in _groups(play):  # before they are forgotten for their age
        found = committed_offsets(cluster, group, deciding_for(cluster, reason="the end", timeout_ms=_TIMEOUT_MS))
        play.recorder.final_offsets(group, {partition: committed.offset for partition, committed in found.items()})
    if play.shape.ages:
        _maintain(play, cluster)
        for _ in range(2):
            play.world.pause(9 * DAY_MS)
            _maintain(play, cluster)
        play.world.counts["aged"] += 1
    topics = [plan.name for plan in play.shape.topics if not plan.is_recreated]
    for topic in topics:
        _sequence(play, cluster, topic)
    record_final(play.recorder, cluster, topics=topics)
    _judge(play)


def _groups(play: Play) -> list[str]:
    """Those whose every commit is recorded."""
    loops = any(job.plan.role == "loop" for job in play.jobs)
    members = any(job.plan.role == "consume" and not job.plan.settings["auto"] for job in play.jobs)
    return [LOOP_GROUP] * loops + ["manual"] * members


def _recover(play: Play, cluster: Cluster) -> None:
    cluster.store.put("now", b"")  # ages are told by the store's own times
    for _ in range(2):  # what the first finishes or aborts, the second finds at rest
        for one in recover_transactions(cluster):
            play.world.counts[f"settled: {one.action.value}"] += 1
            if one.error is not None:
                play.violate(f"recovery of {one.transactional_id}: {one.error!r}")


def _maintain(play: Play, cluster: Cluster) -> None:
    cluster.store.put("now", b"")
    for line in maintain(cluster, policy=SMALL).failures:
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
    verdict = check(history, compacted=[plan.name for plan in play.shape.topics if plan.is_compacted])
    for anomaly in verdict.anomalies:
        play.violate(str(anomaly))
    kept = {plan.name for plan in play.shape.topics if plan.configs.get("retention.ms") == -1}
    found = {value for event in history.events if isinstance(event, FinalRead) for value in event.values}
    for value, topic in play.foreign_values.items():
        if topic in kept and value not in found:
            play.violate(f"lost write: {value}, which another engine committed to {topic}, is not there")
    for name in _COUNTED:
        world.counts[f"checked {name}"] += getattr(verdict.counts, name)
    world.counts["rebalances"] += sum(isinstance(event, Revoked | Lost) for event in history.events)
    world.counts["empty worlds"] += not verdict.counts.final_records
