"""Replacing a range of files by others in one commit: what merging and compaction by key have in common.

Appends never conflict with it: they touch no file that is there. Whatever else happened to the range since the plan,
a retention, a user's ``DELETE``, another job, makes the whole replacement void (rule L4, decide again).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sparklog.compaction.rewrite_arrow import Rewritten
from sparklog.compaction.topic_access import check_removal, commit_job, is_gone
from sparklog.delta.actions import Action, RemoveFile
from sparklog.errors import KafkaTimeoutError, ObjectNotFoundError
from sparklog.log.commit import Commit
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.segments import Segment
from sparklog.log.state import TopicState
from sparklog.log.uploads import why_not_to_publish

__all__ = ["Outcome", "Replacement", "commit_replacement", "is_live", "plan_replacement", "why_gone"]


class Outcome(str, Enum):
    """The outcome of replacing a range."""

    DONE = "done"
    PLANNED = "planned"
    """Nothing was done, as it was to be a dry run."""
    OVERTAKEN = "overtaken"
    """A file of the range is no longer in the table, or no longer there at all: the next run plans anew."""
    FAILED = "failed"
    """A file of the range can't be rewritten as it is, and stays; or it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Files of one partition that take the place of others."""

    rewritten: Rewritten
    data_change: bool
    """False: the same records in other files."""
    operation: str
    """The operation's name in Delta's history."""
    topic_id: str
    known_version: int
    """The topic's version, known before the first of the files was uploaded."""

    @property
    def removed(self) -> tuple[Segment, ...]:
        """The files that go."""
        return self.rewritten.range.segments


def plan_replacement(state: TopicState, wanted: Replacement, *, deletion_ms: int) -> Commit | None:
    """The commit of a replacement; None where it is void, or done already.

    Raises ``PolicyViolationError`` where records are dropped and the table has become append-only.
    """
    added = [file.to_add(data_change=wanted.data_change) for file in wanted.rewritten.files]
    if is_gone(state, wanted.topic_id) or not is_live(state, wanted.removed):
        return None
    if wanted.data_change:
        check_removal(state.log.table, state.require_whole().metadata)
    removes = [
        RemoveFile(
            path=segment.path,
            deletion_ms=deletion_ms,
            data_change=wanted.data_change,
            partition_values=segment.partition_values(),
            size_bytes=segment.size_bytes,
        )
        for segment in wanted.removed
    ]
    count = max(0, state.head.live_file_count - len(removes) + len(added))
    actions: list[Action] = [*removes, *added]
    return Commit(actions=actions, head=replace(state.head, live_file_count=count), operation=wanted.operation)


def commit_replacement(state: TopicState, wanted: Replacement, *, timeout_ms: float) -> tuple[Outcome, TopicState]:
    """Commit a replacement. Returns the state to go on with.

    Raises:
        KafkaTimeoutError: others were faster again and again, or the files may have been swept or vacuumed (rule L10,
            orphans); nothing was changed.
        CommitStateUnknownError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    log = state.log

    def decide(now: TopicState) -> Commit | None:
        planned = plan_replacement(now, wanted, deletion_ms=log.clock.now_ms())
        reason = why_not_to_publish(
            log,
            now.vacuums,
            began_ticks_ms=wanted.rewritten.began_ticks_ms,
            known_version=wanted.known_version,
            retention_ms=now.head.deleted_file_retention_ms,
        )
        if planned is not None and reason is not None:
            raise KafkaTimeoutError(
                f"{log.table}: a rewritten range of partition {wanted.rewritten.range.partition} isn't published: "
                f"{reason}"
            )
        return planned

    began = wanted.rewritten.began_ticks_ms
    done = commit_job(state, decide, timeout_ms=timeout_ms, uploaded_since_ticks_ms=began)
    live = done.state.require_whole().index.by_path
    # What is there although this call wrote nothing: its create was carried out, and the answer was lost.
    is_done = done.commit is not None or _is_there(wanted, live.keys())
    return (Outcome.DONE if is_done else Outcome.OVERTAKEN), done.state


def is_live(state: TopicState, segments: Iterable[Segment]) -> bool:
    """Are all of these files still in the table, where they were?"""
    live = state.require_whole().index.by_path
    return all(_is_unchanged(live.get(segment.path), segment) for segment in segments)


def why_gone(now: TopicState, segments: Iterable[Segment], error: ObjectNotFoundError, *, topic_id: str) -> str:
    """The reason why a file that was to be rewritten isn't in the store: empty where it was replaced, and vacuumed
    already, by another process; else the error to report, as records are lost.

    Args:
        now: loaded after the file was looked for.
        segments: those that were to be rewritten.
        error: names the file.
    """
    if is_gone(now, topic_id):
        return ""
    live = now.require_whole().index.by_path
    paths = (object_path(now.log.table, segment.path) for segment in segments if segment.path in live)
    lost = next((path for path in paths if path in str(error)), None)
    return "" if lost is None else f"{lost}: the log names this data file, and the store hasn't got it: {error}"


def _is_there(wanted: Replacement, live: Collection[str]) -> bool:
    return bool(wanted.rewritten.files) and all(file.path in live for file in wanted.rewritten.files)


def _is_unchanged(now: Segment | None, planned: Segment) -> bool:
    return now is not None and (now.partition, now.base_offset) == (planned.partition, planned.base_offset)
