"""Loading a topic's table from a checkpoint that hides nothing of what another engine did (rule F6, moved records).

Each commit of ours records what the commits of other engines before it did. So only those right before a checkpoint,
behind the newest entry of ours, may be unjudged: another engine may have written a checkpoint of its own commit.
Spark's ``RESTORE`` always does: it hides the properties that a topic had before.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Snapshot, load_snapshot
from sparklog.errors import CorruptLogError, NotATopicError
from sparklog.log.foreign_rewrites import gives_offsets, rewrites_of
from sparklog.log.shape_evidence import shape_metadata

__all__ = ["load_judgeable"]

_MOST_READ = 64
"""Entries before a checkpoint that are read at most."""
_MOST_PASSED_OVER = 16
"""Checkpoints of other engines, one before the other."""


def load_judgeable(
    log: DeltaLog, *, is_once: bool = False, version: int | None = None, mends_shape: bool = False
) -> Snapshot | None:
    """Load a topic's table as :func:`~sparklog.delta.snapshot.load_snapshot` does.

    Where the newest checkpoint may hide a commit of another engine that nobody judged, an older checkpoint is used, and
    the entries after it; where these are gone, the newest one after all. A checkpoint at an entry of ours costs no
    request more.

    Args:
        mends_shape: use an older checkpoint, too, where the newest one hides what the topic's properties were.
    """
    newest = found = load_snapshot(log, is_once=is_once, version=version)
    passed_over: frozenset[int] = frozenset()
    while (
        found is not None
        and len(passed_over) < _MOST_PASSED_OVER
        and (_hides_a_commit(log, found) or (mends_shape and _hides_a_shape(log, found)))
    ):
        passed_over |= {found.checkpoint_version}
        try:
            found = load_snapshot(log, version=version, without=passed_over)
        except CorruptLogError:  # the older entries are gone
            return newest
        if found is None or found.position.version < (newest.position.version if newest is not None else 0):
            return newest
    return found


def _hides_a_commit(log: DeltaLog, snapshot: Snapshot) -> bool:
    """May a commit of another engine that gives offsets lie at or below the checkpoint, unjudged?"""
    entry = snapshot.checkpoint_entry
    if entry is None or entry.info is not None:
        return False
    judged = rewrites_of(snapshot.transactions).judged_version
    unjudged: list[Entry] = [entry]
    end, count = entry.version, 1
    while len(unjudged) <= _MOST_READ and end > judged + 1 and end > 0:
        first = max(0, judged + 1, end - count)
        for before in reversed(log.read_entries(first, end - first)):
            if before is None or before.info is not None:
                return _gives_offsets(unjudged, judged)
            unjudged.append(before)
        end, count = first, 2 * count
    return _gives_offsets(unjudged, judged)


def _hides_a_shape(log: DeltaLog, snapshot: Snapshot) -> bool:
    """Does nothing behind the checkpoint tell what the topic's properties were, before another engine set them back?"""
    try:
        shape_metadata(log.table, snapshot, mends=True)
    except NotATopicError:
        return True
    return False


def _gives_offsets(entries: Iterable[Entry], judged: int) -> bool:
    return any(gives_offsets(one) for one in entries if one.version > judged)
