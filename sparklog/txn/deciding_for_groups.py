"""The functions by which groups ask of transactions that left offsets pending."""

from __future__ import annotations

from sparklog.groups.offsets.pending import Deciding
from sparklog.groups.offsets.rows import CommittedPartitions, Decider
from sparklog.log.cluster import Cluster
from sparklog.txn.deciding import carry_out, decide, read_decision
from sparklog.txn.entries import open_transaction_log
from sparklog.txn.recovery import abort_if_overdue

__all__ = ["deciding_for"]

_MOST_REMEMBERED = 1_000
"""Transactions that a :class:`Deciding` knows to be aborted, or their records to be in their topics; and those whose
age it has looked at."""
_LOOK_EACH_MS = 2_000
"""A client that waits asks several times a second."""


def deciding_for(cluster: Cluster, *, reason: str, timeout_ms: float) -> Deciding:
    """The functions by which groups learn of a cluster's transactions. Used by one thread at a time.

    Args:
        reason: for the producer of a transaction that is aborted.
        timeout_ms: for aborting one, and for each topic that has to get its records.
    """
    finished: dict[Decider, CommittedPartitions] = {}
    looked: dict[Decider, float] = {}

    def look(decider: Decider) -> CommittedPartitions | None:
        decision = read_decision(open_transaction_log(cluster, decider.transactional_id), decider)
        return None if decision is None else decision.committed

    def finish(decider: Decider) -> CommittedPartitions | None:
        if decider in finished:
            return finished[decider]
        log = open_transaction_log(cluster, decider.transactional_id)
        decision = read_decision(log, decider)
        if decision is None:
            return None
        log.make_durable(decider.number, decision.entry)
        carry_out(cluster, log, decision, timeout_ms=timeout_ms)
        if len(finished) < _MOST_REMEMBERED:
            finished[decider] = decision.committed
        return decision.committed

    def end_overdue(decider: Decider) -> bool:
        now = cluster.clock.ticks_ms()
        if now - looked.get(decider, float("-inf")) < _LOOK_EACH_MS:
            return False
        if len(looked) >= _MOST_REMEMBERED:
            looked.clear()
        looked[decider] = now
        return abort_if_overdue(cluster, decider.transactional_id, timeout_ms=timeout_ms)

    return Deciding(
        decide=lambda decider: decide(cluster, decider, reason=reason, timeout_ms=timeout_ms),
        look=look,
        finish=finish,
        end_overdue=end_overdue,
    )
