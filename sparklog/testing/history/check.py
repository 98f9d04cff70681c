"""The check of a whole history: every anomaly, and how much was looked at."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sparklog.testing.history.columns import NONE, Bools, Columns, Ends, columns_of
from sparklog.testing.history.events import Assigned, OffsetsSent, Polled, Snapshot, Sought
from sparklog.testing.history.facts import Facts, facts_of
from sparklog.testing.history.files import History
from sparklog.testing.history.polls import coverage_of, poll_anomalies
from sparklog.testing.history.progress import progress_anomalies
from sparklog.testing.history.stretches import stretches_of
from sparklog.testing.history.verdict import Counts, Verdict
from sparklog.testing.history.writes import interleaved, write_anomalies

__all__ = ["check"]


def check(history: History, *, compacted: Collection[str] = (), contiguous_transactions: bool = False) -> Verdict:
    """Look for every anomaly of :class:`~sparklog.testing.history.AnomalyKind`.

    Takes a few seconds for a million records; the time grows as sorting them does. Nothing is concluded from the order
    between clients, but that the final reads come last.

    What it can't see: what the clients didn't record, above all the commits that a consumer makes by itself; records
    below the log start, and on compacted topics those with a successor; a transaction that is missing as a whole and
    whose client doesn't know its outcome; that a group's offset went back after a seek to below it.

    Nor what only the order between clients would show: that a fresh reader doesn't find what was acknowledged before
    (a stale read), or finds records of a transaction that wasn't asked to be committed yet; and no cycles between
    transactions over several partitions (G0 and G1c, where each comes before the other somewhere).

    Args:
        history: complete: a record that somebody saw and nobody's event sent is a ``PHANTOM``.
        compacted: topics from which records may vanish that have a later one of their key; and tombstones, once no
            earlier record of their key is left.
        contiguous_transactions: on other topics look for ``INTERLEAVED_TRANSACTION``, too. Of sparklog's logs only:
            in Kafka's, records of others may be between those of a transaction.
    Raises:
        MalformedHistoryError: what was recorded contradicts itself in a way that no system can cause, such as one
            value that was sent twice.
    """
    columns = columns_of(history)
    facts = facts_of(columns, compacted)
    anomalies = list(write_anomalies(facts))
    if contiguous_transactions:
        anomalies += interleaved(facts)
    stretches, went_back = stretches_of(columns)
    coverage = coverage_of(columns, stretches)
    anomalies += [*went_back, *poll_anomalies(facts, stretches, coverage)]
    out_of_step, inputs = progress_anomalies(facts, coverage)
    anomalies += out_of_step
    return Verdict(anomalies=tuple(anomalies), counts=_counts(facts, history, inputs))


def _counts(facts: Facts, history: History, inputs: int) -> Counts:
    columns: Columns = facts.columns
    sends, end = columns.sends, columns.transactions.end
    is_failed, is_acknowledged = sends.failed != NONE, sends.acknowledged_offset != NONE
    missing = facts.is_required & ~facts.is_in_final
    polls = columns.of(Polled)
    return Counts(
        clients=len({event.client for event in history.events}),
        sends=len(sends),
        acknowledged=_number(is_acknowledged),
        failed=_number(is_failed),
        unknown=_number(~is_failed & ~is_acknowledged),
        transactions=len(end),
        committed=_number(end == Ends.COMMITTED),
        aborted=_number(end == Ends.ABORTED),
        undecided=_number(end == Ends.UNKNOWN),
        polls=len(polls),
        polled=sum(len(poll.offsets) for poll in polls),
        snapshots=len(columns.of(Snapshot)),
        seeks=len(columns.of(Sought)),
        assignments=sum(len(event.partitions) for event in columns.of(Assigned)),
        offset_commits=len(columns.of(OffsetsSent)),
        final_partitions=len({place for finals in columns.finals.values() for place in finals}),
        final_records=_number(facts.final_reads),
        required=_number(facts.is_required),
        removed=_number(missing & facts.has_final & facts.may_be_removed),
        unverified=_number(missing & ~facts.has_final),
        inputs=inputs,
    )


def _number(column: Bools) -> int:
    return int(np.count_nonzero(column))
