"""Due times: when a topic needs to be looked at again, by what is known of it now, if nothing happens to it. Pure."""

from __future__ import annotations

from collections.abc import Collection

from sparklog.compaction.idle_notes import TopicNote
from sparklog.compaction.plan_cleaning import compaction_due_ms
from sparklog.compaction.plan_optimize import OptimizePolicy, is_optimize_due
from sparklog.compaction.retention import retention_due_ms
from sparklog.compaction.steps import Step
from sparklog.log.state import TopicState

__all__ = ["LOOK_EVERY_MS", "checkpoint_worthwhile", "is_due", "is_plausible", "note_of", "policy_key"]

LOOK_EVERY_MS = 86_400_000
"""How often each topic is checked, whatever its note, and its folder searched for unneeded files."""
_TAIL = 20
_LIVE_FILES_PER_VERSION = 100


def note_of(
    state: TopicState, steps: Collection[Step], *, policy: OptimizePolicy | None, now_ms: int, search_ms: int
) -> TopicNote:
    """The note about a topic that a run leaves for the next.

    Args:
        state: whole; after the run's last commit.
        steps: those that the run has done for it.
        policy: which files are worth being merged.
        now_ms: the store's time.
        search_ms: when its folder is to be searched again.
    Raises:
        InvalidConfigurationError: a setting isn't understood.
    """
    due = {step: _due_ms(step, state, policy, now_ms=now_ms, search_ms=search_ms) for step in steps}
    return TopicNote(
        version=state.position.version,
        token=state.position.token,
        deleted=state.head.deleted,
        due_ms={step: min(due_ms, now_ms + LOOK_EVERY_MS) for step, due_ms in due.items()},
        policy=policy_key(policy),
        search_ms=search_ms,
    )


def is_due(note: TopicNote, steps: Collection[Step], *, policy: OptimizePolicy | None, now_ms: int) -> bool:
    """May one of ``steps`` have something to do in a topic whose newest entry is the one that the note is of?"""
    wanted = {Step.VACUUM} & {*steps} if note.deleted else {*steps}
    if Step.OPTIMIZE in wanted and note.policy != policy_key(policy):
        return True
    return any(note.due_ms.get(step, now_ms) <= now_ms for step in wanted)


def is_plausible(note: TopicNote, *, now_ms: int) -> bool:
    """Is no time of a note later than a day from now? If one is, the note was written while the store's clock was
    ahead, and who went by it would pass the topic over until then."""
    return max([note.search_ms, *note.due_ms.values()]) <= now_ms + LOOK_EVERY_MS


def policy_key(policy: OptimizePolicy | None) -> str:
    """A policy in few characters; empty for the default."""
    if policy is None or policy == OptimizePolicy():
        return ""
    return f"{policy.target_bytes},{policy.min_files},{policy.max_files},{policy.max_span_ms},{policy.growth}"


def _due_ms(step: Step, state: TopicState, policy: OptimizePolicy | None, *, now_ms: int, search_ms: int) -> int:
    later_ms = now_ms + LOOK_EVERY_MS
    if step is Step.SEQUENCE:
        return now_ms if state.head.unsequenced_count else later_ms
    if step is Step.RETENTION:
        due_ms = retention_due_ms(state, now_ms=now_ms)
        return later_ms if due_ms is None else due_ms
    if step is Step.COMPACT:
        due_ms = compaction_due_ms(state, now_ms=now_ms)
        return later_ms if due_ms is None else due_ms
    if step is Step.OPTIMIZE:
        return now_ms if is_optimize_due(state, policy) else later_ms
    if step is Step.VACUUM:
        is_worthwhile = checkpoint_worthwhile(
            version=state.position.version,
            checkpoint_version=state.checkpoint_version,
            live_file_count=state.head.live_file_count,
        )
        return now_ms if is_worthwhile else search_ms
    return later_ms


def checkpoint_worthwhile(*, version: int, checkpoint_version: int, live_file_count: int) -> bool:
    """Is it for a job to write a checkpoint? Sooner than for a writer: only entries below one can be cleaned up."""
    return version - checkpoint_version >= max(_TAIL, live_file_count // _LIVE_FILES_PER_VERSION)
